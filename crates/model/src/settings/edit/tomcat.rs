//! Tomcat: attributes of elements in `server.xml`.

use std::ops::Range;

use super::{Raised, Want, spliced};

/// The elements whose attributes are settings.
const ELEMENTS: [&str; 2] = ["Connector", "UpgradeProtocol"];
/// How a connector that does not speak HTTP says so in its attribute `protocol`: `AJP/1.3`, or the name of a class.
const NOT_HTTP: &str = "ajp";
/// The value that is no limit.
const NO_LIMIT: &str = "-1";

/// Raises the attribute in every element of the setting's place, and adds it where it is missing.
pub(super) fn raised(text: &str, want: &Want<'_>) -> Raised {
    let place = want.setting.place.as_deref();
    let Some(element) = ELEMENTS.into_iter().find(|element| Some(*element) == place) else {
        return Raised { text: None, is_set: false };
    };
    let tags = tags(text, element);
    let edits: Vec<(Range<usize>, String)> = tags
        .iter()
        .filter_map(|tag| match attribute(&text[tag.clone()], want.name) {
            Some((range, value)) => {
                let is_small = value != NO_LIMIT && want.is_missed_by(value);
                is_small.then(|| (tag.start + range.start..tag.start + range.end, want.line.clone()))
            }
            None => {
                let end = tag.start + 1 + element.len();
                Some((end..end, format!(" {}", want.line)))
            }
        })
        .collect();
    Raised { text: (!edits.is_empty()).then(|| spliced(text, &edits)), is_set: !tags.is_empty() }
}

/// Where the tags of an element stand that is of HTTP, from `<` to `>`. Those in comments are none.
fn tags(text: &str, element: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = text[at..].find('<').map(|offset| at + offset) {
        let rest = &text[open..];
        if rest.starts_with("<!--") {
            at = rest.find("-->").map_or(text.len(), |end| open + end + 3);
            continue;
        }
        at = open + length(rest);
        let is_its = rest[1..]
            .strip_prefix(element)
            .is_some_and(|after| after.starts_with(|c: char| c.is_whitespace() || c == '/' || c == '>'));
        let protocol = attribute(&text[open..at], "protocol");
        if is_its && protocol.is_none_or(|(_, value)| !value.to_ascii_lowercase().contains(NOT_HTTP)) {
            found.push(open..at);
        }
    }
    found
}

/// The bytes of the tag with which a text begins. A `>` in quotes does not end it.
fn length(text: &str) -> usize {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, '>') => return at + 1,
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    text.len()
}

/// Where an attribute stands in a tag, and its value.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<(Range<usize>, &'a str)> {
    let mut from = 0;
    loop {
        let equals = from + tag[from..].find('=')?;
        let before = tag[from..equals].trim_end();
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let start = from + before.len() - word.len();
        let rest = tag[equals + 1..].trim_start();
        let open = tag.len() - rest.len();
        let quote = rest.chars().next().filter(|first| ['"', '\''].contains(first))?;
        let end = open + 1 + rest[1..].find(quote)?;
        if word == name {
            return Some((start..end + 1, &tag[open + 1..end]));
        }
        from = end + 1;
    }
}
