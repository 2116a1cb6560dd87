//! `cargo xtask strings`: everything that a user can read, generated from the source as one sorted file.
//!
//! A review of words is then a review of a diff. Literals and the documentation that clap prints come from Rust files,
//! the rest from templates, pages and scenarios. Where a text stands in its file is left out: it would change with
//! every line above.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::process;
use crate::source::{Said, Tree};

/// The inventory, from the root of the workspace.
const FILE: &str = "docs/strings.txt";

/// What precedes a literal that no user reads.
const INTERNAL: [&str; 12] = [
    "expect(",
    "reason = ",
    "panic!(",
    "unreachable!(",
    "include_str!(",
    "include_bytes!(",
    "env!(",
    "feature = ",
    "not_found(",
    "assert!(",
    "cfg(",
    "serde(",
];

/// Folders whose texts are all for users, so that a single word counts, too.
const WORDS: [&str; 1] = ["crates/report/src"];

/// Folders with files that are not Rust, and the ending of these files.
const OTHERS: [(&str, &str); 6] = [
    ("crates/report/src", "html"),
    ("crates/report/src", "js"),
    ("crates/model/src/probe/pages", "md"),
    ("crates/model/src/settings/products", "toml"),
    ("crates/analysis/src/diagnose/causes", "md"),
    ("scenarios", "toml"),
];

/// Writes the inventory.
pub fn run() -> Result<ExitCode> {
    let root = process::workspace();
    let text = inventory(&root)?;
    fs::write(root.join(FILE), &text).with_context(|| format!("cannot write {FILE}"))?;
    println!("{FILE}: {} texts", text.lines().count());
    Ok(ExitCode::SUCCESS)
}

/// A line for each text: its file, a colon, the text; sorted, without repetitions.
fn inventory(root: &Path) -> Result<String> {
    let mut lines = BTreeSet::new();
    let mut add = |path: &Path, text: &str| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.insert(format!("{}: {text}\n", path.display()));
    };
    for file in Tree::read(root)?.files {
        let with_words = WORDS.iter().any(|folder| file.path.starts_with(folder));
        for text in texts(&file.said, with_words) {
            add(&file.path, &text);
        }
    }
    for (folder, ending) in OTHERS {
        for path in files(&root.join(folder), ending)? {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let found = match ending {
                "html" => of_template(&text),
                "md" => paragraphs(&text),
                _ => of_script(&text),
            };
            for text in found {
                add(path.strip_prefix(root).unwrap_or(&path), &text);
            }
        }
    }
    Ok(lines.into_iter().collect())
}

/// The files below `folder` whose names end with `ending`.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, ending)?);
        } else if path.extension().is_some_and(|is| is == ending) {
            found.push(path);
        }
    }
    Ok(found)
}

/// The texts of a Rust file: one per literal that reads as a text, and one per paragraph of help.
fn texts(said: &[Said], with_words: bool) -> Vec<String> {
    let mut texts = Vec::new();
    let mut help = Vec::new();
    for one in said {
        if let Said::Help(line) = one {
            help.push(line.as_str());
            continue;
        }
        texts.extend(paragraphs(&std::mem::take(&mut help).join("\n")));
        if let Said::Literal { before, text } = one
            && !INTERNAL.iter().any(|word| before.ends_with(word))
        {
            let lines = plain(text);
            texts.extend(lines.lines().filter(|line| is_text(line, with_words)).map(str::to_owned));
        }
    }
    texts.extend(paragraphs(&help.join("\n")));
    texts
}

/// A literal without its quotes, and without the breaks that a backslash before the end of a line leaves out.
fn plain(literal: &str) -> String {
    let inner = literal.trim_start_matches(['b', 'c', 'r', '#']).trim_end_matches('#');
    let inner = inner.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or("");
    let mut parts = inner.split("\\\n");
    let first = parts.next().unwrap_or("").to_owned();
    let joined = parts.fold(first, |text, part| text + part.trim_start());
    joined.replace("\\n", "\n").replace("\\\"", "\"")
}

/// Whether somebody could read it as words: two of them, or one if `with_words` is set or it begins like a title.
fn is_text(line: &str, with_words: bool) -> bool {
    let is_word = |word: &&str| word.chars().filter(|c| c.is_alphabetic()).count() >= 2;
    let words = line.split_whitespace().filter(is_word).count();
    let is_title = line.starts_with(|c: char| c.is_uppercase()) && line.contains(|c: char| c.is_lowercase());
    words >= if with_words || is_title { 1 } else { 2 }
}

/// Paragraphs, headings and points of a list, a text each.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines().map(str::trim) {
        let is_new = !goes_on || line.starts_with(['#', '-', '`', '|']);
        goes_on = !line.is_empty() && !line.starts_with('#');
        match found.last_mut() {
            _ if line.is_empty() => {}
            Some(last) if !is_new => {
                last.push(' ');
                last.push_str(line);
            }
            _ => found.push(line.to_owned()),
        }
    }
    found
}

/// What a template shows: its text without tags and expressions, and the attributes that people read or hear.
fn of_template(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for name in ["aria-label=\"", "title=\"", "alt=\"", "placeholder=\""] {
        let values = text.split(name).skip(1).filter_map(|rest| rest.split('"').next());
        found.extend(values.filter(|value| is_text(value, true)).map(str::to_owned));
    }
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['<', '{']) {
        shown.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = [
            ("{{", "}}"),
            ("{%", "%}"),
            ("{#", "#}"),
            ("<script", "</script>"),
            ("<style", "</style>"),
            ("<", ">"),
        ]
        .into_iter()
        .find(|(start, _)| rest.starts_with(start))
        .map(|(_, end)| end);
        // A value in the middle of a sentence is an ellipsis there; anything else ends the text.
        shown.push_str(if rest.starts_with("{{") { "…" } else { "\n" });
        let length = end.map_or(1, |end| rest.find(end).map_or(rest.len(), |at| at + end.len()));
        rest = &rest[length..];
    }
    shown.push_str(rest);
    found.extend(shown.lines().map(str::trim).filter(|line| is_text(line, true)).map(str::to_owned));
    found
}

/// What a script or a scenario says between double quotes; of a scenario the comments, too, which are its description.
fn of_script(text: &str) -> Vec<String> {
    let comments: Vec<&str> = text.lines().map(|line| line.strip_prefix('#').unwrap_or("")).collect();
    let quoted = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.split('"').skip(1).step_by(2));
    let quoted = quoted.filter(|line| is_text(line, false)).map(str::to_owned);
    paragraphs(&comments.join("\n")).into_iter().chain(quoted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_inventory_is_that_of_the_source() {
        let root = process::workspace();
        let committed = fs::read_to_string(root.join(FILE)).unwrap_or_default();
        // Thousands of lines: git shows better than a failure where they differ.
        assert!(inventory(&root).unwrap() == committed, "{FILE} lags behind: run `cargo xtask strings`");
    }

    /// The texts of a file with this content.
    fn of(text: &str) -> Vec<String> {
        texts(&crate::source::said_in(text), false)
    }

    #[test]
    fn help_and_messages_are_texts_and_names_reasons_and_tests_are_not() {
        let text = "/// What this type is\n\
                    #[derive(Debug, Args)]\nstruct A {\n    /// Say it\n    /// aloud\n    ///\n    /// More\n    a: u8,\n}\n\
                    /// Internal\nfn f() {\n    bail!(\"cannot \\\n        open {a}\");\n    x(\"name\").expect(\"is there now\");\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn g() { h(\"a test says\") }\n}\n";
        assert_eq!(of(text), ["What this type is", "Say it aloud", "More", "cannot open {a}"]);
    }

    #[test]
    fn a_template_is_read_without_its_tags_and_values_are_ellipses() {
        let text = "<h2 title=\"Each way\">Slow {{ n }} requests</h2>{% if x %}<p>None</p>{% endif %}<style>b c</style>";
        assert_eq!(of_template(text), ["Each way", "Slow … requests", "None"]);
    }

    #[test]
    fn paragraphs_are_joined_and_points_stay_apart() {
        assert_eq!(paragraphs("# A b\nc\nd\n\n- e\n- f\n  g"), ["# A b", "c d", "- e", "- f g"]);
    }
}
