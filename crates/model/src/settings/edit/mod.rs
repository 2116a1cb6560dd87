//! Puts one setting into a configuration, in the syntax of its product; all else stays as it is, to the byte.
//!
//! Every value that is too small is raised where it stands. If there is none, the setting is written where the product
//! applies it to everything. So the lines that differ are those that a person would write.

mod caddy;
mod envoy;
mod lines;
pub mod nginx;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_servers;
mod tomcat;

use std::ops::Range;

pub use envoy::field as envoy_field;
pub use lines::HOST;

use super::advice::{fitting, line};
use super::{Peer, Role, Setting, Unit, Wish};
use crate::scenario::Change;

/// A file of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its path, as reports name it.
    pub path: String,
    /// Its text.
    pub text: String,
    /// The block in which another file includes it, such as `server`; `None` for a main file.
    pub within: Option<String>,
}

impl ConfigFile {
    /// A file that no other one includes.
    pub fn main(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into(), within: None }
    }
}

/// What is to be written.
struct Want<'a> {
    setting: &'a Setting,
    /// The setting's name.
    name: &'a str,
    /// Its line, as the table writes it.
    line: String,
    /// The value in bytes, a count or milliseconds, as far as the setting's range goes.
    value: Option<u64>,
}

impl Want<'_> {
    /// Whether a value in a configuration is too small or, if values cannot be compared, a different one.
    fn is_missed_by(&self, written: &str) -> bool {
        let read = self.read(written);
        if read == Some(0) && self.setting.zero_is_no_limit {
            return false;
        }
        match (self.value, self.setting.unit) {
            (Some(value), Some(_)) => read.is_none_or(|read| read < value),
            _ => {
                let mut words = self.line.split([' ', '=']).filter(|word| !word.is_empty());
                words.nth(1).map(|word| word.trim_matches([';', '"'])) != Some(written)
            }
        }
    }

    /// A configuration's value in bytes, a count or milliseconds. A number alone is one of KiB where the setting is always
    /// written so; elsewhere, as in nginx, it is one of bytes.
    fn read(&self, written: &str) -> Option<u64> {
        let unit = self.setting.unit?;
        let has_letter = self.setting.write.as_deref().is_some_and(|write| write.contains("{value}k"));
        match written.trim_matches([';', '"']).parse() {
            Ok(number) if unit == Unit::Kib && !has_letter => Some(unit.base(number)),
            _ => unit.read(written),
        }
    }

    /// Whether the setting may stand in a section of this name.
    fn stands_in(&self, section: &str) -> bool {
        let place = self.setting.place.as_deref().unwrap_or_default();
        place.split([',', ' ']).any(|word| word == section)
    }
}

/// The result of raising the values in a file.
struct Raised {
    /// The text with values raised; `None` if none was too small.
    text: Option<String>,
    /// Whether the file sets it for everything, so that nothing can be added.
    is_set: bool,
}

/// How a product's configuration is read and written.
struct Grammar {
    raise: fn(&ConfigFile, &Want<'_>) -> Raised,
    /// The text with the setting added for everything; `None` if it does not belong in this file.
    insert: fn(&str, &Want<'_>) -> Option<String>,
    /// What a configuration in which no place was found would need.
    needs: &'static str,
}

fn grammar(product: &str) -> Option<Grammar> {
    Some(match product {
        "nginx" => Grammar {
            raise: nginx::raised,
            insert: nginx::inserted,
            needs: "no file of it has an `http` block",
        },
        "haproxy" => Grammar {
            raise: |file, want| lines::raised_in_sections(&file.text, want),
            insert: lines::inserted_in_section,
            needs: "no section of it may have it",
        },
        "apache" => Grammar {
            raise: lines::raised_directives,
            insert: |text, want| Some(lines::appended(text, want)),
            needs: "",
        },
        "h2lab" => Grammar {
            raise: |file, want| lines::raised_flags(&file.text, want),
            insert: |text, want| Some(lines::appended(text, want)),
            needs: "",
        },
        "envoy" => Grammar {
            raise: |file, want| envoy::raised(&file.text, want),
            insert: envoy::inserted,
            needs: "only fields of an HttpConnectionManager, with its `@type`, are written",
        },
        "nghttpx" => Grammar {
            raise: |file, want| lines::raised_keys(&file.text, &lines::key(want)),
            insert: |text, want| Some(lines::appended(text, &lines::key(want))),
            needs: "",
        },
        "h2o" => Grammar {
            raise: |file, want| lines::raised_fields(&file.text, want),
            insert: |text, want| Some(lines::appended(text, want)),
            needs: "",
        },
        "tomcat" => Grammar {
            raise: |file, want| tomcat::raised(&file.text, want),
            insert: |_, _| None,
            needs: "only attributes of a Connector of HTTP or of its UpgradeProtocol are written",
        },
        "caddy" => Grammar {
            raise: |file, want| caddy::raised(&file.text, want),
            insert: caddy::inserted,
            needs: "only options of `servers` are written, in JSON the idle time and the size of heads",
        },
        _ => return None,
    })
}

/// How a change is written in the product of `peer`, or why it cannot be.
fn want(peer: &Peer, change: &Change) -> Result<(Want<'static>, Grammar), String> {
    let product = peer.product.ok_or("nothing is known of this server's settings")?;
    let entries: Vec<&'static Setting> = product.entries(change.knob, Role::Front).collect();
    let setting = fitting(&entries, peer.version.as_ref());
    let wish = Wish { knob: change.knob, role: Role::Front, value: change.value };
    let written = setting.and_then(|setting| Some((setting, setting.name.as_deref()?, line(setting, wish)?)));
    let Some((setting, name, (line, _))) = written else {
        return Err(format!("{} has no setting for {}", product.name, change.knob.words()));
    };
    let value = setting.unit.zip(change.value);
    if setting.unit.is_some() && value.is_none() {
        return Err(format!("{name} needs a value, and none is known"));
    }
    let value = value.map(|(unit, value)| unit.base(unit.write(value, setting.range).number));
    let grammar = grammar(product.id)
        .ok_or_else(|| format!("h2lab does not write configurations of {}", product.name))?;
    Ok((Want { setting, name, line, value }, grammar))
}

/// How a change is written, as `nginx: keepalive_requests 100000;`; `None` if it cannot be made.
pub fn words(peer: &Peer, change: &Change) -> Option<String> {
    let (want, _) = want(peer, change).ok()?;
    // In a sentence, the semicolon at the end of a statement is left out.
    Some(format!("{}: {}", peer.product?.name, want.line.trim_end_matches(';')))
}

/// The files with this change, of the product of `peer`, the first being the main one; or why it cannot be made.
pub fn edited(peer: &Peer, change: &Change, files: &[ConfigFile]) -> Result<Vec<ConfigFile>, String> {
    let (want, Grammar { raise, insert, needs }) = want(peer, change)?;
    let name = want.name;
    let raised: Vec<Raised> = files.iter().map(|file| raise(file, &want)).collect();
    let mut changed = files.to_vec();
    if raised.iter().any(|raised| raised.text.is_some()) {
        for (file, raised) in changed.iter_mut().zip(raised) {
            file.text = raised.text.unwrap_or_else(|| std::mem::take(&mut file.text));
        }
        return Ok(changed);
    }
    if raised.iter().any(|raised| raised.is_set) {
        return Err(format!("the configuration has {name} as large already"));
    }
    for file in &mut changed {
        if let Some(text) = insert(&file.text, &want) {
            file.text = text;
            return Ok(changed);
        }
    }
    Err(format!("no place for {name} was found in the configuration: {needs}"))
}

/// `text` with these parts replaced; they are in order and do not overlap.
pub fn spliced(text: &str, edits: &[(Range<usize>, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (range, with) in edits {
        out.push_str(&text[from..range.start]);
        out.push_str(with);
        from = range.end;
    }
    out.push_str(&text[from..]);
    out
}

/// Lines without their line ends, each with the offset at which it begins.
fn lines_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line.trim_end_matches(['\n', '\r'])))
    })
}

/// The spaces at the beginning of a line.
fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}
