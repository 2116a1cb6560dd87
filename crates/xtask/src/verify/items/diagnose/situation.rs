//! A situation: a server, a link, a client, and the causes that are planted in them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::verify::items::faults::draw;

/// A row of `situations.toml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a key of the file, independent of the others")]
pub struct Situation {
    /// What it is, for people.
    pub is: String,
    /// The ids of its causes; `A|B` where either is right; none in a healthy one.
    #[serde(default)]
    pub planted: Vec<String>,
    /// The ids of causes that the planted ones bring with them in some draws: neither expected nor wrong.
    #[serde(default)]
    pub also: Vec<String>,
    /// The arguments of `diagnose`.
    pub diagnose: String,
    /// The server's command, in the namespace behind the link, `H2LAB` for our own program; without it `diagnose` starts one.
    pub server: Option<String>,
    /// The arguments of `h2lab link`, with a server.
    #[serde(default)]
    pub link: String,
    /// What the whole command is an argument of: a shell script in the folder, for example, that keeps the machine busy.
    #[serde(default)]
    pub machine: String,
    /// Files in the folder in which both run.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Whether `key.pem` and `cert.pem` of `localhost` are among them.
    #[serde(default)]
    pub certificate: bool,
    /// How the setting begins that `diagnose --fix` must change.
    #[serde(default)]
    pub setting: String,
    /// What is drawn at random.
    pub draw: BTreeMap<String, Range>,
    /// Values in place of drawn ones that really take the cause away, at the server: what that does is compared with the experiment.
    #[serde(default)]
    pub removed: BTreeMap<String, String>,
    /// Flags of `diagnose --again` that do so where the cause is planted by flags of `diagnose`.
    #[serde(default)]
    pub again: String,
    /// Whether the effect of taking it away is that on the difference from HTTP/1.1, which suffers from it as well: without loss both
    /// are faster, and more connections spare HTTP/2 what it suffers beyond that. Else it is the effect on HTTP/2 itself.
    #[serde(default)]
    pub of_difference: bool,
    /// Whether it is one of those that `--ci` selects: some of each family, on servers that every machine of CI has.
    #[serde(default)]
    pub ci: bool,
}

/// What a value is drawn from.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Range {
    /// Both ends are included.
    Numbers([u64; 2]),
    /// One of these.
    Words(Vec<String>),
}

/// The files with situations.
const FILES: [(&str, &str); 10] = [
    ("situations.toml", include_str!("situations.toml")),
    ("situations/servers.toml", include_str!("situations/servers.toml")),
    ("situations/limits.toml", include_str!("situations/limits.toml")),
    ("situations/failed.toml", include_str!("situations/failed.toml")),
    ("situations/two.toml", include_str!("situations/two.toml")),
    ("situations/clients.toml", include_str!("situations/clients.toml")),
    ("situations/tomcat.toml", include_str!("situations/tomcat.toml")),
    ("situations/java.toml", include_str!("situations/java.toml")),
    ("situations/disk.toml", include_str!("situations/disk.toml")),
    ("situations/healthy.toml", include_str!("situations/healthy.toml")),
];

/// A script that situations share: it is in the folder of each.
pub const SHARED: (&str, &str) = ("throttled.sh", include_str!("situations/throttled.sh"));

/// All situations by name.
pub fn all() -> Result<BTreeMap<String, Situation>> {
    let mut all = BTreeMap::new();
    for (file, text) in FILES {
        for (name, situation) in of_file(text).context(file)? {
            ensure!(all.insert(name.clone(), situation).is_none(), "{file}: there is another `{name}`");
        }
    }
    Ok(all)
}

/// The situations of a file by name.
pub fn of_file(text: &str) -> Result<BTreeMap<String, Situation>> {
    Ok(toml::from_str(text)?)
}

impl Situation {
    /// Whether it says how to take its cause away.
    pub fn is_removable(&self) -> bool {
        !(self.removed.is_empty() && self.again.is_empty())
    }

    /// What must be found, in words.
    pub fn expected(&self) -> String {
        match &self.planted[..] {
            [] => "healthy".to_owned(),
            planted => format!("planted {}", planted.join(" and ")),
        }
    }

    /// Its values: the same for the same seed and name.
    pub fn drawn(&self, seed: u64, name: &str) -> BTreeMap<String, String> {
        let value = |(key, range): (&String, &Range)| {
            let random = draw(seed, &format!("{name}/{key}"));
            let value = match range {
                Range::Numbers([least, most]) => (least + random % (most - least + 1)).to_string(),
                Range::Words(words) => words[(random % words.len() as u64) as usize].clone(),
            };
            (key.clone(), value)
        };
        self.draw.iter().map(value).collect()
    }
}

/// `text` with the drawn values in place of `<name>`: braces are common in configurations.
pub fn filled(text: &str, drawn: &BTreeMap<String, String>) -> Result<String> {
    let mut text = text.to_owned();
    for (name, value) in drawn {
        text = text.replace(&format!("<{name}>"), value);
    }
    let is_name = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
    let mut places = text.split('<').skip(1).filter_map(|rest| rest.split_once('>'));
    match places.find(|(word, _)| is_name(word)) {
        Some((word, _)) => bail!("nothing draws <{word}>"),
        None => Ok(text),
    }
}
