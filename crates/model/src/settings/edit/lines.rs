//! Line-based configurations: `HAProxy` in sections, Apache, nghttpx, h2o, and the flags of our origin.

use std::cell::Cell;
use std::ops::Range;

use super::{ConfigFile, Raised, Want, indent, lines_of, spliced};

/// Other names of flags of our origin.
const LONG: [(&str, &str); 3] =
    [("-w", "--stream-window"), ("-W", "--connection-window"), ("-f", "--max-frame-size")];

/// Reads the value of a line if the line is this setting.
type Read<'a> = dyn Fn(&'a str) -> Option<&'a str> + 'a;

/// Raises the lines from which `read` reads a value; a comment after the value stays.
fn raised<'a>(text: &'a str, want: &Want<'_>, read: &Read<'a>) -> Raised {
    let its: Vec<(usize, &str, &str)> =
        lines_of(text).filter_map(|(at, line)| Some((at, line, read(line)?))).collect();
    let edits: Vec<(Range<usize>, String)> = its
        .iter()
        .filter(|(.., value)| want.is_missed_by(value))
        .map(|(at, line, _)| {
            let end = line.split('#').next().unwrap_or_default().trim_end().len();
            (at + indent(line).len()..at + end, want.line.clone())
        })
        .collect();
    Raised { text: (!edits.is_empty()).then(|| spliced(text, &edits)), is_set: !its.is_empty() }
}

/// The words of a line without a comment.
fn words(line: &str) -> std::str::SplitWhitespace<'_> {
    line.split('#').next().unwrap_or_default().split_whitespace()
}

/// The section that begins with this line of `HAProxy`'s. Its keyword decides, since no rule requires indentation.
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
    let current = Cell::new("");
    raised(text, want, &|line| {
        if let Some(section) = section(line) {
            current.set(section);
        }
        let rest = line.trim_start().strip_prefix(want.name)?;
        let is_its = rest.starts_with([' ', '\t']) && want.stands_in(current.get());
        words(rest).next().filter(|_| is_its)
    })
}

/// `HAProxy`: at the beginning of the first section that may have it; a missing `global` section is added.
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

/// The section of Apache that applies to one virtual host.
pub const HOST: &str = "VirtualHost";

/// Apache: a directive, whatever its case. A directive in one virtual host does not apply to others.
pub(super) fn raised_directives(file: &ConfigFile, want: &Want<'_>) -> Raised {
    let is_inside = Cell::new(file.within.as_deref() == Some(HOST));
    let is_set = Cell::new(false);
    let raised = raised(&file.text, want, &|line| {
        let mut words = words(line);
        let first = words.next()?;
        if first.eq_ignore_ascii_case("<VirtualHost") || first.eq_ignore_ascii_case("</VirtualHost>") {
            is_inside.set(!first.starts_with("</"));
        }
        let value = words.next().filter(|_| first.eq_ignore_ascii_case(want.name))?;
        is_set.set(is_set.get() || !is_inside.get());
        Some(value)
    });
    Raised { is_set: is_set.get(), ..raised }
}

/// At the end: after the line that loads its module.
pub(super) fn appended(text: &str, want: &Want<'_>) -> String {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}{}\n", want.line)
}

/// The option of nghttpx as its file has it: `key=value`, without the dashes of the command line.
pub(super) fn key<'a>(want: &Want<'a>) -> Want<'a> {
    let bare = want.line.trim_start_matches('-');
    let line = if bare.contains('=') { bare.to_owned() } else { format!("{bare}=yes") };
    Want { setting: want.setting, name: want.name.trim_start_matches('-'), line, value: want.value }
}

/// nghttpx: a line for each option.
pub(super) fn raised_keys(text: &str, want: &Want<'_>) -> Raised {
    raised(text, want, &|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == want.name).then_some(value.trim())
    })
}

/// h2o: a field of YAML that applies to all hosts, so that it has no indentation. What has fields of its own, in lines below it or
/// in braces, is left as it is.
pub(super) fn raised_fields(text: &str, want: &Want<'_>) -> Raised {
    let is_group = |value: &str| words(value).next().is_none_or(|word| word.starts_with(['{', '[']));
    let is_head = |line: &str| after(line, want.name).is_some_and(is_group);
    if lines_of(text).any(|(_, line)| is_head(line)) {
        return Raised { text: None, is_set: true };
    }
    raised(text, want, &|line| words(after(line, want.name)?).next())
}

/// What follows the name of a field and its colon.
fn after<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.strip_prefix(name)?.strip_prefix(':')
}

/// Our origin: flags with their values after a space or an equals sign, one or several in a line.
pub(super) fn raised_flags(text: &str, want: &Want<'_>) -> Raised {
    let mut words: Vec<Range<usize>> = Vec::new();
    for (at, line) in lines_of(text) {
        let code = line.split('#').next().unwrap_or_default();
        let mut from = 0;
        for word in code.split_whitespace() {
            from += code[from..].find(word).unwrap_or(0);
            words.push(at + from..at + from + word.len());
            from += word.len();
        }
    }
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut is_set = false;
    let has_value = want.line.contains(' ');
    for (n, word) in words.iter().enumerate() {
        let text_of = |range: &Range<usize>| &text[range.clone()];
        let (name, joined) =
            text_of(word).split_once('=').map_or((text_of(word), None), |(a, b)| (a, Some(b)));
        if name != want.name && !LONG.contains(&(want.name, name)) {
            continue;
        }
        is_set = true;
        if !has_value {
            continue;
        }
        let next = words.get(n + 1).filter(|_| joined.is_none());
        let value = joined.or_else(|| next.map(text_of)).unwrap_or_default();
        if want.is_missed_by(value) {
            edits.push((word.start..next.unwrap_or(word).end, want.line.clone()));
        }
    }
    Raised { text: (!edits.is_empty()).then(|| spliced(text, &edits)), is_set }
}
