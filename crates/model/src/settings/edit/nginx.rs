//! nginx: statements in blocks.

use std::ops::Range;

use super::{ConfigFile, Raised, Want, indent, spliced};

/// A directive, or the head of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Its words, without quotes.
    pub words: Vec<&'a str>,
    /// Where it stands, with its semicolon or brace.
    pub range: Range<usize>,
    /// The names of the blocks around it, the outermost first.
    pub within: Vec<&'a str>,
    /// Where the block stands: the number of its head among all statements; `None` at the top.
    pub block: Option<usize>,
    /// Whether it opens a block.
    pub is_block: bool,
}

impl Statement<'_> {
    /// The word at a place behind the name; empty if there is none.
    pub fn argument(&self, at: usize) -> &str {
        self.words.get(at + 1).copied().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.words.first().copied().unwrap_or_default()
    }
}

/// The statements of a configuration in order. What nginx itself would refuse is left out; its own test says what is wrong.
pub fn statements(text: &str) -> Vec<Statement<'_>> {
    let mut found: Vec<Statement<'_>> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    let mut start = None;
    let mut at = 0;
    while let Some(character) = text[at..].chars().next() {
        let next = at + character.len_utf8();
        match character {
            '#' => at = text[at..].find('\n').map_or(text.len(), |end| at + end),
            ';' | '{' | '}' => {
                let taken = std::mem::take(&mut words);
                if !taken.is_empty() && character != '}' {
                    let is_block = character == '{';
                    let is_code = is_block && taken[0].ends_with("_by_lua_block");
                    found.push(Statement {
                        words: taken,
                        range: start.unwrap_or(at)..next,
                        within: open.iter().map(|&head| found[head].words[0]).collect(),
                        block: open.last().copied(),
                        is_block,
                    });
                    if is_code {
                        at = end_of_code(text, next);
                        start = None;
                        continue;
                    }
                    if is_block {
                        open.push(found.len() - 1);
                    }
                }
                if character == '}' {
                    open.pop();
                }
                start = None;
                at = next;
            }
            _ if character.is_whitespace() => at = next,
            _ => {
                start = start.or(Some(at));
                let (word, end) = word(text, at);
                words.push(word);
                at = end;
            }
        }
    }
    found
}

/// The word that begins here, without its quotes, and where it ends.
fn word(text: &str, at: usize) -> (&str, usize) {
    let quote = text[at..].chars().next().filter(|first| ['"', '\''].contains(first));
    let begin = at + quote.map_or(0, char::len_utf8);
    let mut is_escaped = false;
    // `${name}` is a variable in a word, and its braces are no blocks.
    let mut is_variable = false;
    let mut before = ' ';
    for (offset, character) in text[begin..].char_indices() {
        let ends = match quote {
            Some(quote) => character == quote,
            None if character == '{' && before == '$' => {
                is_variable = true;
                false
            }
            None if is_variable => {
                is_variable = character != '}';
                false
            }
            None => character.is_whitespace() || [';', '{', '}'].contains(&character),
        };
        if ends && !is_escaped {
            let end = begin + offset;
            return (&text[begin..end], end + quote.map_or(0, char::len_utf8));
        }
        is_escaped = character == '\\' && !is_escaped;
        before = character;
    }
    (&text[begin..], text.len())
}

/// Where a block of another language ends, by matching braces.
fn end_of_code(text: &str, from: usize) -> usize {
    let mut depth = 1_u32;
    for (offset, character) in text[from..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return from + offset + 1;
        }
    }
    text.len()
}

/// Raises the directive in every block that may have it. An included file is in the block that includes it.
pub(super) fn raised(file: &ConfigFile, want: &Want<'_>) -> Raised {
    let statements = statements(&file.text);
    let around = |statement: &Statement<'_>| {
        statement.within.last().map(|block| (*block).to_owned()).or_else(|| file.within.clone())
    };
    let stands = |statement: &&Statement<'_>| {
        statement.name() == want.name && around(statement).is_none_or(|block| want.stands_in(&block))
    };
    let its: Vec<&Statement<'_>> = statements.iter().filter(stands).collect();
    let edits: Vec<(Range<usize>, String)> = its
        .iter()
        .filter(|statement| want.is_missed_by(statement.argument(0)))
        .map(|statement| (statement.range.clone(), want.line.clone()))
        .collect();
    Raised {
        text: (!edits.is_empty()).then(|| spliced(&file.text, &edits)),
        is_set: its.iter().any(|statement| around(statement).as_deref() == Some("http")),
    }
}

/// Writes it at the beginning of the `http` block.
pub(super) fn inserted(text: &str, want: &Want<'_>) -> Option<String> {
    let statements = statements(text);
    if want.stands_in("main") {
        return statements.iter().any(|one| one.name() == "events").then(|| format!("{}\n{text}", want.line));
    }
    let http =
        statements.iter().position(|one| one.is_block && one.name() == "http" && one.block.is_none())?;
    if !want.stands_in("http") {
        return None;
    }
    let first = statements.get(http + 1).filter(|one| one.block == Some(http));
    let begin = first.map_or(0, |first| text[..first.range.start].rfind('\n').map_or(0, |at| at + 1));
    let space = if begin > statements[http].range.start { indent(&text[begin..]) } else { "    " };
    let at = statements[http].range.end;
    Some(spliced(text, &[(at..at, format!("\n{space}{}", want.line))]))
}
