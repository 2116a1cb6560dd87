//! Configurations of lines: `HAProxy` in sections, Apache, and the flags of our origin.

use std::ops::Range;

use super::{Raised, Want, indent, lines_of, spliced};

/// Other names of flags of our origin.
const LONG: [(&str, &str); 3] =
    [("-w", "--stream-window"), ("-W", "--connection-window"), ("-f", "--max-frame-size")];

/// The value of a line that is this setting.
type Read<'a> = dyn Fn(&'a str) -> Option<&'a str> + 'a;

/// Raises the lines from which `read` reads a value.
fn raised<'a>(text: &'a str, want: &Want<'_>, read: &Read<'a>) -> Raised {
    let its: Vec<(usize, &str, &str)> =
        lines_of(text).filter_map(|(at, line)| Some((at, line, read(line)?))).collect();
    let edits: Vec<(Range<usize>, String)> = its
        .iter()
        .filter(|(.., value)| want.is_missed_by(value))
        .map(|(at, line, _)| (*at..at + line.len(), format!("{}{}", indent(line), want.line)))
        .collect();
    Raised { text: (!edits.is_empty()).then(|| spliced(text, &edits)), is_set: !its.is_empty() }
}

/// The words of a line without a comment.
fn words(line: &str) -> std::str::SplitWhitespace<'_> {
    line.split('#').next().unwrap_or_default().split_whitespace()
}

/// The section that begins with this line of `HAProxy`'s: it is not indented by rule, but its keyword says it.
fn section(line: &str) -> Option<&str> {
    const SECTIONS: [&str; 13] = [
        "global",
        "defaults",
        "frontend",
        "backend",
        "listen",
        "peers",
        "resolvers",
        "mailers",
        "userlist",
        "cache",
        "program",
        "http-errors",
        "ring",
    ];
    words(line).next().filter(|word| SECTIONS.contains(word))
}

/// `HAProxy`: in the sections that may have it. A setting's name may have several words.
pub(super) fn raised_in_sections(text: &str, want: &Want<'_>) -> Raised {
    let current = std::cell::Cell::new("");
    raised(text, want, &|line| {
        if let Some(section) = section(line) {
            current.set(section);
        }
        let rest = line.trim_start().strip_prefix(want.name)?;
        let is_its = rest.starts_with([' ', '\t']) && want.stands_in(current.get());
        words(rest).next().filter(|_| is_its)
    })
}

/// `HAProxy`: at the beginning of the first section that may have it; a `global` section is made.
pub(super) fn inserted_in_section(text: &str, want: &Want<'_>) -> Option<String> {
    let head = lines_of(text).find(|(_, line)| section(line).is_some_and(|name| want.stands_in(name)));
    match head {
        Some((at, line)) => {
            let end = at + line.len();
            Some(spliced(text, &[(end..end, format!("\n    {}", want.line))]))
        }
        None => want.stands_in("global").then(|| format!("global\n    {}\n{text}", want.line)),
    }
}

/// Apache: a directive, whatever its case.
pub(super) fn raised_directives(text: &str, want: &Want<'_>) -> Raised {
    raised(text, want, &|line| {
        let mut words = words(line);
        words.next().filter(|word| word.eq_ignore_ascii_case(want.name))?;
        words.next()
    })
}

/// At the end: after what loads the module that knows it.
pub(super) fn appended(text: &str, want: &Want<'_>) -> String {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}{}\n", want.line)
}

/// Our origin: a flag per line, with its value behind a space or an equals sign.
pub(super) fn raised_flags(text: &str, want: &Want<'_>) -> Raised {
    raised(text, want, &|line| {
        let mut words = line.trim().splitn(2, [' ', '=']);
        let name = words.next()?;
        let is_its = name == want.name || LONG.contains(&(want.name, name));
        words.next().filter(|_| is_its).map(str::trim)
    })
}
