//! Envoy: fields of each HTTP connection manager, in YAML or in JSON that has a line for each field.

use std::ops::Range;

use super::{Raised, Want, indent, lines_of, spliced};

/// The type of the filter that has the settings.
const MANAGER: &str = "HttpConnectionManager";

/// A line as a field: its name without quotes, and its value without a comma at the end.
pub fn field(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let line = line.strip_prefix("- ").unwrap_or(line);
    let (name, value) = line.split_once(':')?;
    let name = name.trim().trim_matches(['"', '\'']);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_@".contains(c));
    is_name.then(|| (name, value.trim().trim_end_matches(',').trim_end()))
}

/// The column of a field's name: the dash of a list counts as indentation.
fn depth(line: &str) -> usize {
    let space = indent(line).len();
    if line[space..].starts_with("- ") { space + 2 } else { space }
}

/// Raises the field in every connection manager, and adds it where it is missing.
pub(super) fn raised(text: &str, want: &Want<'_>) -> Raised {
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
    let group = want.setting.place.as_deref()?.split(' ').next()?;
    let is_json = lines[0].1.trim_start().starts_with('{');
    let new = want.line.split_once(':').map(|(name, value)| {
        if is_json { format!("\"{name}\":{}", json(value)) } else { want.line.clone() }
    })?;
    let own = (first..end).find(|&at| depth(lines[at].1) == level && named(lines[at].1, group));
    let Some(own) = own else {
        // Beside the type, as its first sibling.
        let (at, line) = lines[head];
        let space = " ".repeat(level);
        let text = if is_json {
            format!("{space}\"{group}\": {{ {new} }},\n")
        } else {
            // The type may follow the dash of a list.
            return Some((at + line.len()..at + line.len(), format!("\n{space}{group}:\n{space}  {new}")));
        };
        return Some((at..at, text));
    };
    let (at, line) = lines[own];
    if let Some((before, inner)) =
        line.split_once('{').and_then(|(before, after)| Some((before, flow(after)?)))
    {
        return in_flow(at, before.len(), inner, (&new, want));
    }
    let children: Vec<usize> = (own + 1..end).take_while(|&at| depth(lines[at].1) > level).collect();
    let mut values = children.iter().map(|&at| lines[at]);
    match values.find_map(|(at, line)| named(line, want.name).then(|| (at, line, field(line)))) {
        Some((at, line, Some((_, value)))) if want.is_missed_by(value) => {
            let comma = if line.trim_end().ends_with(',') { "," } else { "" };
            Some((at..at + line.len(), format!("{}{new}{comma}", indent(line))))
        }
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

/// The text before the brace that closes these fields; `None` if they continue on another line.
fn flow(text: &str) -> Option<&str> {
    let mut depth = 0_u32;
    for (at, character) in text.char_indices() {
        match character {
            '{' | '[' => depth += 1,
            '}' if depth == 0 => return Some(&text[..at]),
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The fields between commas. Commas within braces or brackets do not separate fields.
fn parts(inner: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let is_comma = |character: char| {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    };
    inner.split(is_comma).map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// The edit in fields that stand in one line, such as `http2_protocol_options: { a: 1 }`.
fn in_flow(
    at: usize,
    open: usize,
    inner: &str,
    (new, want): (&str, &Want<'_>),
) -> Option<(Range<usize>, String)> {
    let mut kept = parts(inner);
    match kept.iter().position(|part| named(part, want.name)) {
        Some(place) => {
            let is_small = field(kept[place]).is_some_and(|(_, value)| want.is_missed_by(value));
            if !is_small {
                return None;
            }
            kept[place] = new;
        }
        None => kept.push(new),
    }
    let end = open + 1 + inner.len() + 1;
    Some((at + open..at + end, format!("{{ {} }}", kept.join(", "))))
}

fn named(line: &str, name: &str) -> bool {
    field(line).is_some_and(|(its, _)| its == name)
}

/// A value in JSON: a number as it is, anything else in quotes.
fn json(value: &str) -> String {
    let value = value.trim();
    let is_number = value.parse::<u64>().is_ok();
    if is_number { format!(" {value}") } else { format!(" \"{value}\"") }
}
