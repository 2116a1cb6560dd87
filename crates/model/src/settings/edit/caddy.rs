//! Caddy: the global options `servers` of a Caddyfile, or the fields of each HTTP server in JSON that has a line for
//! each field.

use std::ops::Range;

use super::envoy::field;
use super::{Raised, Want, indent, lines_of, spliced};

/// The blocks around the options: the global one has no name.
const AROUND: [&str; 2] = ["{", "servers"];

/// A line of a Caddyfile that is no comment and closes no block.
struct Line<'a> {
    /// Where it begins and ends.
    range: Range<usize>,
    /// Without a comment, with the spaces before it.
    text: &'a str,
    /// The first words of the blocks around it, the outermost first.
    within: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn first(&self) -> &'a str {
        self.text.split_whitespace().next().unwrap_or_default()
    }

    /// Whether it opens the block with this path.
    fn opens(&self, path: &[&str]) -> bool {
        let is_its =
            path.split_last().is_some_and(|(name, around)| self.first() == *name && self.within == around);
        is_its && self.text.ends_with('{')
    }
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut found = Vec::new();
    let mut within: Vec<&str> = Vec::new();
    for (at, line) in lines_of(text) {
        let code = if line.trim_start().starts_with('#') { "" } else { line };
        let code = code.split(" #").next().unwrap_or_default().trim_end();
        match code.trim_start() {
            "" => {}
            "}" => {
                within.pop();
            }
            words => {
                found.push(Line { range: at..at + line.len(), text: code, within: within.clone() });
                if words.ends_with('{') {
                    within.extend(words.split_whitespace().next());
                }
            }
        }
    }
    found
}

/// The blocks in `servers` around the option, and its own line: `timeouts { idle 60s }` has one block.
fn option<'a>(want: &'a Want<'_>) -> Option<(Vec<&'a str>, &'a str)> {
    if want.setting.place.as_deref() != Some("servers") {
        return None;
    }
    match want.line.split_once(" { ") {
        Some((block, rest)) => Some((vec![block], rest.strip_suffix(" }")?)),
        None => Some((Vec::new(), want.line.as_str())),
    }
}

/// Whether a text is JSON: a Caddyfile may begin with a brace, too.
fn is_json(text: &str) -> bool {
    text.trim_start().strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('"'))
}

/// Raises the option wherever it stands.
pub(super) fn raised(text: &str, want: &Want<'_>) -> Raised {
    let Some((blocks, line)) = option(want) else { return Raised { text: None, is_set: false } };
    if is_json(text) {
        return raised_fields(text, line, want);
    }
    let path: Vec<&str> = AROUND.into_iter().chain(blocks).collect();
    let (name, _) = line.split_once(' ').unwrap_or((line, ""));
    let all = lines(text);
    let its: Vec<&Line<'_>> = all.iter().filter(|one| one.within == path && one.first() == name).collect();
    let is_missed = |one: &Line<'_>| match want.setting.unit {
        Some(_) => want.is_missed_by(one.text.split_whitespace().nth(1).unwrap_or_default()),
        None => one.text.trim_start() != line,
    };
    let edits: Vec<(Range<usize>, String)> = its
        .iter()
        .filter(|one| is_missed(one))
        .map(|one| {
            let start = one.range.start;
            (start + indent(one.text).len()..start + one.text.len(), line.to_owned())
        })
        .collect();
    Raised { text: (!edits.is_empty()).then(|| spliced(text, &edits)), is_set: !its.is_empty() }
}

/// Writes the option into every `servers`, which is added if there is none.
pub(super) fn inserted(text: &str, want: &Want<'_>) -> Option<String> {
    let (blocks, line) = option(want)?;
    if is_json(text) {
        return None;
    }
    let path: Vec<&str> = AROUND.into_iter().chain(blocks).collect();
    let all = lines(text);
    for depth in (1..=path.len()).rev() {
        let edits: Vec<(Range<usize>, String)> = all
            .iter()
            .filter(|one| one.opens(&path[..depth]))
            .map(|one| {
                let end = one.range.end;
                (end..end, format!("\n{}", nested(&path[depth..], line, depth)))
            })
            .collect();
        if !edits.is_empty() {
            return Some(spliced(text, &edits));
        }
    }
    Some(format!("{{\n{}\n}}\n{text}", nested(&path[1..], line, 1)))
}

/// A line in blocks.
fn nested(blocks: &[&str], line: &str, depth: usize) -> String {
    let space = "\t".repeat(depth);
    match blocks.split_first() {
        None => format!("{space}{line}"),
        Some((first, rest)) => format!("{space}{first} {{\n{}\n{space}}}", nested(rest, line, depth + 1)),
    }
}

/// JSON: raises the field in every HTTP server, which is what listens at a list of addresses, and adds it where it is
/// missing.
fn raised_fields(text: &str, line: &str, want: &Want<'_>) -> Raised {
    let value = line.split(' ').nth(1).unwrap_or_default();
    let (name, value) = match want.name {
        "timeouts idle" => ("idle_timeout", format!("\"{value}\"")),
        "max_header_size" => ("max_header_bytes", value.to_owned()),
        _ => return Raised { text: None, is_set: false },
    };
    // The indentation of an empty line says nothing.
    let all: Vec<(usize, &str)> = lines_of(text).filter(|(_, line)| !line.trim().is_empty()).collect();
    let is_server =
        |line: &str| field(line).is_some_and(|(name, value)| name == "listen" && value.starts_with('['));
    let heads: Vec<usize> = (0..all.len()).filter(|&at| is_server(all[at].1)).collect();
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for &head in &heads {
        let space = indent(all[head].1);
        let is_inside = |&at: &usize| indent(all[at].1).len() >= space.len();
        let before = (0..head).rev().take_while(is_inside);
        let after = (head + 1..all.len()).take_while(is_inside);
        let own = before
            .chain(after)
            .map(|at| all[at])
            .find(|(_, line)| indent(line) == space && field(line).is_some_and(|(its, _)| its == name));
        match own.map(|(at, line)| (at, line, field(line).map_or("", |(_, written)| written))) {
            Some((at, line, written)) if want.is_missed_by(written) => {
                let comma = if line.ends_with(',') { "," } else { "" };
                edits.push((at + space.len()..at + line.len(), format!("\"{name}\": {value}{comma}")));
            }
            Some(_) => {}
            None => edits.push((all[head].0..all[head].0, format!("{space}\"{name}\": {value},\n"))),
        }
    }
    edits.sort_by_key(|(range, _)| range.start);
    Raised { text: (!edits.is_empty()).then(|| spliced(text, &edits)), is_set: !heads.is_empty() }
}
