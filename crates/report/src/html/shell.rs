//! The frame of every page: head, headline, contents, sections, how to repeat it and how to cite it.
//!
//! Only the style and the script that the page was made with are let in: its Content-Security-Policy has their hashes.

use serde::Serialize;

use super::template::render;
use crate::format::repeated_line;
use h2lab_base::units::base64;
use h2lab_transfer::{Algorithm, Digest};

/// The style sheet of every page.
pub(super) const STYLE: &str = include_str!("style.css");
/// The script of every page.
const SCRIPT: &str = include_str!("script.js");

/// A page.
#[derive(Debug, Default)]
pub(super) struct Shell {
    /// The command that made it: `compare`.
    pub kind: String,
    /// The answer, in one to three sentences; the first one is the title.
    pub answer: Vec<String>,
    /// What else the reader has to know before the first section.
    pub notes: Vec<String>,
    /// Reasons to doubt the measurement.
    pub warnings: Vec<String>,
    /// The sections, in their order.
    pub sections: Vec<Section>,
    /// How to repeat it.
    pub repeat: Repeat,
    /// It shows how something is at present: nobody repeats or cites that.
    pub is_live: bool,
    /// A style sheet behind that of every page.
    pub style: &'static str,
    /// A script behind that of every page.
    pub script: &'static str,
}

/// A part of a page that the contents lead to.
#[derive(Debug, Default, Serialize)]
pub(super) struct Section {
    /// Its address in the page.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// Its markup.
    pub body: String,
    /// What stands in the place of a long one until it is opened; empty if it is always shown.
    pub folded: String,
}

impl Section {
    /// A section that is always shown.
    pub fn new(id: impl Into<String>, title: impl Into<String>, body: String) -> Self {
        Self { id: id.into(), title: title.into(), body, folded: String::new() }
    }

    /// The same behind a line that says what is in it.
    pub fn folded(self, summary: impl Into<String>) -> Self {
        Self { folded: summary.into(), ..self }
    }
}

/// How to repeat what a page reports, and how to cite it.
#[derive(Debug, Default)]
pub(super) struct Repeat {
    /// The command line, a word each.
    pub command: Vec<String>,
    /// The seed of its random choices, if it has one.
    pub seed: Option<u64>,
    /// The version of h2lab.
    pub version: String,
    /// When it began, RFC 3339; empty if that is not known.
    pub started: String,
    /// The machine that made it, or had agents make it; empty if that is not known.
    pub machine: String,
    /// The agents that made it, with their machines; empty if there were none.
    pub agents: String,
    /// That it is not complete, and how much of it there is; empty if it is complete.
    pub partial: String,
    /// The name of its folder; empty if there is none.
    pub folder: String,
}

impl Repeat {
    /// The command line for a shell.
    fn command_line(&self) -> String {
        repeated_line(&self.command, self.seed)
    }

    /// The text to cite it by.
    fn citation(&self, answer: &str) -> String {
        let year = self.started.get(..4).unwrap_or_default();
        let year = if year.is_empty() { String::new() } else { format!(" ({year})") };
        let on = match (self.agents.as_str(), self.machine.as_str()) {
            ("", "") => None,
            ("", machine) => Some(format!("on {machine}")),
            (agents, "") => Some(format!("on {agents}")),
            (agents, machine) => Some(format!("on {agents}; driven from {machine}")),
        };
        let of = [
            (!self.folder.is_empty()).then(|| format!("Run {}", self.folder)),
            (!self.partial.is_empty()).then(|| self.partial.clone()),
            self.seed.map(|seed| format!("seed {seed}")),
            (!self.started.is_empty()).then(|| format!("measured {}", self.started)),
            on,
        ];
        let of = of.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let of = if of.is_empty() { of } else { format!(" {of}.") };
        format!("h2lab {}{year}. “{}.”{of}", self.version, answer.trim_end_matches('.'))
    }
}

/// The data of the template.
#[derive(Serialize)]
struct Document<'a> {
    policy: String,
    kind: &'a str,
    title: &'a str,
    more: &'a [String],
    notes: &'a [String],
    warnings: &'a [String],
    sections: &'a [Section],
    command: String,
    citation: String,
    is_live: bool,
    style: String,
    script: String,
}

impl Shell {
    /// The page as text.
    pub fn render(&self) -> String {
        let (style, script) = ([STYLE, self.style].concat(), [SCRIPT, self.script].concat());
        let (title, more) = match self.answer.split_first() {
            Some((first, more)) => (first.as_str(), more),
            None => ("Nothing was measured", &[][..]),
        };
        let document = Document {
            policy: policy(&style, &script),
            kind: &self.kind,
            title,
            more,
            notes: &self.notes,
            warnings: &self.warnings,
            sections: &self.sections,
            command: self.repeat.command_line(),
            citation: self.repeat.citation(title),
            is_live: self.is_live,
            style,
            script,
        };
        render(include_str!("shell.html"), &document)
    }
}

/// The policy under which only this style and this script apply, and nothing is loaded but pictures in the page itself.
fn policy(style: &str, script: &str) -> String {
    let [style, script] = [style, script].map(|text| {
        let mut digest = Digest::new(Algorithm::Sha256);
        digest.update(text.as_bytes());
        let checksum = digest.checksum().expect("SHA-256 is a checksum");
        format!("'sha256-{}'", base64(checksum.bytes()))
    });
    format!(
        "default-src 'none'; style-src {style}; script-src {script}; img-src data:; base-uri 'none'; form-action 'none'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell_and_has_the_seed() {
        let words = |text: &[&str]| text.iter().map(|&word| word.to_owned()).collect();
        let repeat = Repeat {
            command: words(&["/usr/bin/h2lab", "load", "-H", "a: it's", "http://a/?b&c", ""]),
            seed: Some(7),
            ..Repeat::default()
        };
        assert_eq!(repeat.command_line(), r"h2lab load -H 'a: it'\''s' 'http://a/?b&c' '' --seed 7");
        let given =
            Repeat { command: words(&["h2lab", "run", "--seed=1"]), seed: Some(1), ..Repeat::default() };
        assert_eq!(given.command_line(), "h2lab run --seed=1");
    }

    #[test]
    fn a_command_line_does_not_name_the_folder_of_the_run_that_is_to_be_repeated() {
        for words in ["--out there", "--out=there"] {
            let line = format!("h2lab load --output a.html {words} --agents a,b http://a/");
            let command = line.split(' ').map(str::to_owned).collect();
            let repeat = Repeat { command, ..Repeat::default() };
            assert_eq!(repeat.command_line(), "h2lab load --output a.html --agents a,b http://a/");
        }
    }

    #[test]
    fn a_citation_names_what_is_known() {
        let repeat = Repeat {
            seed: Some(7),
            version: "1.0.0".to_owned(),
            started: "2026-11-26T03:00:00Z".to_owned(),
            machine: "Linux".to_owned(),
            folder: "runs/a".to_owned(),
            ..Repeat::default()
        };
        let whole =
            "h2lab 1.0.0 (2026). “It is slow.” Run runs/a, seed 7, measured 2026-11-26T03:00:00Z, on Linux.";
        assert_eq!(repeat.citation("It is slow."), whole);
        let early = Repeat { partial: "partial (4 of 10 repetitions)".to_owned(), ..Repeat::default() };
        assert!(early.citation("It is slow.").ends_with("” partial (4 of 10 repetitions)."), "{early:?}");
        let by_agents = Repeat { agents: "kek-1, kek-2 (Linux 6)".to_owned(), ..repeat };
        let cited = by_agents.citation("It is slow.");
        assert!(cited.ends_with("Z, on kek-1, kek-2 (Linux 6); driven from Linux."), "{cited}");
        let bare = Repeat { version: "1.0.0".to_owned(), ..Repeat::default() };
        assert_eq!(bare.citation("It is slow."), "h2lab 1.0.0. “It is slow.”");
    }
}
