//! Envoy: fields of each HTTP connection manager, in YAML or in JSON that has a line for each field.

use std::ops::Range;

use super::{Raised, Want, indent, lines_of, spliced};

/// The type of the filter that has the settings.
const MANAGER: &str = "HttpConnectionManager";
/// What the table calls it.
const PLACE: &str = "HTTP connection manager";

/// A line as a field: its name without quotes, and its value without a comment or a comma at the end.
pub fn field(line: &str) -> Option<(&str, &str)> {
    let line = code(line.trim_start());
    let line = line.strip_prefix("- ").unwrap_or(line);
    let (name, value) = line.split_once(':')?;
    let name = name.trim().trim_matches(['"', '\'']);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_@".contains(c));
    is_name.then(|| (name, value.trim().trim_end_matches(',').trim_end()))
}

/// A line without a comment behind its text.
fn code(line: &str) -> &str {
    let is_comment = |&(at, character): &(usize, char)| character == '#' && line[..at].ends_with([' ', '\t']);
    unquoted(line).find(is_comment).map_or(line, |(at, _)| line[..at].trim_end())
}

/// The column of a field's name: the dash of a list counts as indentation.
fn depth(line: &str) -> usize {
    let space = indent(line).len();
    if line[space..].starts_with("- ") { space + 2 } else { space }
}

/// The field of the manager in which the setting stands; empty if it is a field of the manager itself, `None` if it
/// stands elsewhere.
fn group<'a>(want: &Want<'a>) -> Option<&'a str> {
    let group = want.setting.place.as_deref()?.strip_suffix(PLACE)?;
    Some(group.trim_end_matches(" of the "))
}

/// The field as it is written; `None` if a text in JSON would need more than its name and value in quotes.
fn written(want: &Want<'_>, is_json: bool) -> Option<String> {
    let (name, value) = want.line.split_once(':')?;
    if !is_json {
        return Some(want.line.clone());
    }
    let value = json(value.trim()).filter(|_| !name.starts_with('-'))?;
    Some(format!("\"{name}\": {value}"))
}

/// Raises the field in every connection manager, and adds it where it is missing.
pub(super) fn raised(text: &str, want: &Want<'_>) -> Raised {
    if group(want).is_none() {
        return Raised { text: None, is_set: false };
    }
    // A comment may stand anywhere, so its indentation says nothing.
    let is_field = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let lines: Vec<(usize, &str)> = lines_of(text).filter(|(_, line)| is_field(line)).collect();
    let is_manager =
        |line: &str| field(line).is_some_and(|(name, value)| name == "@type" && value.contains(MANAGER));
    let heads: Vec<usize> = (0..lines.len()).filter(|&at| is_manager(lines[at].1)).collect();
    let mut edits: Vec<(Range<usize>, String)> =
        heads.iter().filter_map(|&head| edit(&lines, head, want)).collect();
    edits.sort_by_key(|(range, _)| range.start);
    Raised { text: (!edits.is_empty()).then(|| spliced(text, &edits)), is_set: !heads.is_empty() }
}

/// The edit in the manager whose type is in line `head`; `None` if nothing changes.
fn edit(lines: &[(usize, &str)], head: usize, want: &Want<'_>) -> Option<(Range<usize>, String)> {
    let level = depth(lines[head].1);
    let is_inside = |&at: &usize| depth(lines[at].1) >= level;
    let first = (0..head).rev().take_while(is_inside).last().unwrap_or(head);
    let end = (head..lines.len()).take_while(is_inside).last().unwrap_or(head) + 1;
    let group = group(want)?;
    let is_json = lines[0].1.trim_start().starts_with('{');
    let new = written(want, is_json)?;
    let wanted = if group.is_empty() { want.name } else { group };
    let own = (first..end).find(|&at| depth(lines[at].1) == level && named(lines[at].1, wanted));
    let Some(own) = own else {
        // Beside the type, as its first sibling, which in YAML may follow the dash of a list.
        let (at, line) = lines[head];
        let space = " ".repeat(level);
        return Some(match (is_json, group.is_empty()) {
            (true, true) => (at..at, format!("{space}{new},\n")),
            (true, false) => (at..at, format!("{space}\"{group}\": {{ {new} }},\n")),
            (false, true) => (at + line.len()..at + line.len(), format!("\n{space}{new}")),
            (false, false) => {
                (at + line.len()..at + line.len(), format!("\n{space}{group}:\n{space}  {new}"))
            }
        });
    };
    let (at, line) = lines[own];
    let (_, value) = field(line)?;
    if group.is_empty() {
        // A value on lines of its own is not replaced.
        let is_whole = !value.is_empty() && (!value.starts_with('{') || value.ends_with('}'));
        return (is_whole && want.is_missed_by(value)).then(|| replaced(at, line, &new));
    }
    let is_block = if is_json { value == "{" } else { value.is_empty() };
    if !is_block {
        // Neither a list in brackets nor what goes on in other lines is changed.
        let is_flow = value.starts_with('{') && !want.line.starts_with('-');
        let open = line.find('{').filter(|_| is_flow)?;
        let inner = flow(&line[open + 1..])?;
        return Some((at + open + 1..at + open + 1 + inner.len(), merged(inner, &new, want)?));
    }
    let children: Vec<usize> = (own + 1..end).take_while(|&at| depth(lines[at].1) > level).collect();
    let mut values = children.iter().map(|&at| lines[at]);
    match values.find_map(|(at, line)| named(line, want.name).then(|| (at, line, field(line)))) {
        Some((at, line, Some((_, value)))) if want.is_missed_by(value) => Some(replaced(at, line, &new)),
        Some(_) => None,
        None => {
            let space =
                children.first().map_or_else(|| " ".repeat(level + 2), |&at| indent(lines[at].1).to_owned());
            let comma = if is_json && !children.is_empty() { "," } else { "" };
            let end = at + line.len();
            Some((end..end, format!("\n{space}{new}{comma}")))
        }
    }
}

/// The field of a line that begins at `at`, replaced: its comma or its comment stays.
fn replaced(at: usize, line: &str, new: &str) -> (Range<usize>, String) {
    let end = code(line).trim_end().len();
    let comma = if line[..end].ends_with(',') { "," } else { "" };
    (at + depth(line)..at + end, format!("{new}{comma}"))
}

/// The characters outside of quotes, with their places.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quote, mut is_escaped) = (None, false);
    text.char_indices().filter(move |&(_, character)| {
        match (quote, character) {
            (Some('"'), '\\') if !is_escaped => {
                is_escaped = true;
                return false;
            }
            (Some(open), _) if open == character && !is_escaped => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, _) => return true,
            _ => {}
        }
        is_escaped = false;
        false
    })
}

/// The text before the brace that closes these fields; `None` if it does not, or if a comment is among them.
fn flow(text: &str) -> Option<&str> {
    let mut depth = 0_u32;
    for (at, character) in unquoted(text) {
        match character {
            '{' | '[' => depth += 1,
            '}' if depth == 0 => return Some(&text[..at]),
            '}' | ']' => depth = depth.saturating_sub(1),
            '#' => return None,
            _ => {}
        }
    }
    None
}

/// Where the fields between commas stand. Commas within braces or brackets do not separate fields.
fn parts(inner: &str) -> Vec<Range<usize>> {
    let mut depth = 0_u32;
    let mut commas = vec![];
    for (at, character) in unquoted(inner) {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => commas.push(at),
            _ => {}
        }
    }
    let begins = std::iter::once(0).chain(commas.iter().map(|at| at + 1));
    let ends = commas.iter().copied().chain([inner.len()]);
    begins
        .zip(ends)
        .map(|(begin, end)| {
            let text = &inner[begin..end];
            begin + indent(text).len()..begin + text.trim_end().len()
        })
        .filter(|part| !part.is_empty())
        .collect()
}

/// The fields within braces with the new one; `None` if nothing changes.
fn merged(inner: &str, new: &str, want: &Want<'_>) -> Option<String> {
    match part(inner, want.name) {
        Some(own) => {
            let (_, value) = field(&inner[own.clone()])?;
            want.is_missed_by(value).then(|| spliced(inner, &[(own, new.to_owned())]))
        }
        None => Some(added(inner, new)),
    }
}

/// Where the field with this name stands within braces.
fn part(inner: &str, name: &str) -> Option<Range<usize>> {
    parts(inner).into_iter().find(|part| named(&inner[part.clone()], name))
}

/// The fields within braces, and one more behind them.
fn added(inner: &str, new: &str) -> String {
    let before = inner.trim_end().trim_end_matches(',');
    let comma = if before.is_empty() { "" } else { "," };
    format!("{before}{comma} {new} ")
}

/// The edit in every connection manager that stands in braces with its type, such as `{ "@type": …, stat_prefix: a }`.
pub(super) fn inserted(text: &str, want: &Want<'_>) -> Option<String> {
    let is_json = text.trim_start().starts_with('{');
    let (group, new) = (group(want)?, written(want, is_json)?);
    if new.starts_with('-') {
        return None; // an item of a list
    }
    let mut edits: Vec<(Range<usize>, String)> = text
        .match_indices(MANAGER)
        .filter_map(|(at, _)| {
            let (open, inner) = braces_around(text, at)?;
            let own = part(inner, "@type").filter(|own| inner[own.clone()].contains(MANAGER));
            let changed = if group.is_empty() {
                merged(inner, &new, want)
            } else {
                grouped(inner, group, &new, (want, is_json))
            };
            own.and(changed).map(|changed| (open + 1..open + 1 + inner.len(), changed))
        })
        .collect();
    // Its type may be named twice in one manager.
    let mut end = 0;
    edits.retain(|(range, _)| {
        let is_behind = range.start >= end;
        end = end.max(range.end);
        is_behind
    });
    (!edits.is_empty()).then(|| spliced(text, &edits))
}

/// The fields within braces with the new one in `group`, which is added if it is missing.
fn grouped(inner: &str, group: &str, new: &str, (want, is_json): (&Want<'_>, bool)) -> Option<String> {
    match part(inner, group) {
        Some(own) => {
            let open = own.start + inner[own.clone()].find('{')? + 1;
            let fields = flow(&inner[open..own.end])?;
            Some(spliced(inner, &[(open..open + fields.len(), merged(fields, new, want)?)]))
        }
        None if is_json => Some(added(inner, &format!("\"{group}\": {{ {new} }}"))),
        None => Some(added(inner, &format!("{group}: {{ {new} }}"))),
    }
}

/// The innermost braces around a place: where they open, and the text within; `None` if there are none.
fn braces_around(text: &str, place: usize) -> Option<(usize, &str)> {
    let mut depth = 0_u32;
    for (at, character) in text[..place].char_indices().rev() {
        match character {
            '}' | ']' => depth += 1,
            '{' if depth == 0 => return Some((at, flow(&text[at + 1..])?)),
            '[' if depth == 0 => return None,
            '{' | '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn named(line: &str, name: &str) -> bool {
    field(line).is_some_and(|(its, _)| its == name)
}

/// A value in JSON: a number or a truth value as it is, anything else in quotes; `None` for what has fields or items.
fn json(value: &str) -> Option<String> {
    let is_bare = value.parse::<u64>().is_ok() || ["true", "false"].contains(&value);
    let written = if is_bare { value.to_owned() } else { format!("\"{value}\"") };
    (!value.starts_with(['{', '['])).then_some(written)
}
