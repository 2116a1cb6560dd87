//! The style of terminal text: its colours, and its paragraphs wrapped to the width.

use std::fmt::Write as _;

use super::table::wrap;

/// The style of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextStyle {
    /// Whether to use ANSI colours.
    pub colour: bool,
    /// Characters per line. Below 60 tables become blocks of lines; text is no narrower than 20.
    pub width: usize,
    /// Whether characters beyond ASCII may be used.
    pub unicode: bool,
    /// Whether each verdict is also a sentence beneath the matrix.
    pub verdicts: bool,
    /// Where the answer of a run stands.
    pub answer: AnswerPlace,
}

/// Where the answer of a run stands in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerPlace {
    /// At the beginning: of a report.
    First,
    /// At the end: where the run has just ended, and a terminal shows the last lines.
    Last,
}

impl Default for TextStyle {
    fn default() -> Self {
        Self { colour: false, width: 100, unicode: true, verdicts: false, answer: AnswerPlace::First }
    }
}

/// An ANSI style (ECMA-48 SGR parameters).
#[derive(Clone, Copy)]
pub(super) enum Paint {
    Bold,
    Dim,
    Green,
    Red,
    Yellow,
}

impl TextStyle {
    /// `text` in `paint`, if colours are on.
    pub(super) fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Bold => "1",
            Paint::Dim => "2",
            Paint::Green => "32",
            Paint::Red => "31",
            Paint::Yellow => "33",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(super) fn limit(self) -> usize {
        self.width.max(60)
    }

    /// Whether its lines are shorter than those of the narrowest table.
    pub(super) fn is_narrow(self) -> bool {
        self.width < self.limit()
    }

    /// Characters in a line of text behind an indent.
    pub(super) fn behind(self, indent: usize) -> usize {
        self.width.max(20).saturating_sub(indent)
    }

    /// `text` as it may be printed: in ASCII where nothing else may be used.
    pub fn printable(self, text: String) -> String {
        if self.unicode || text.is_ascii() { text } else { text.chars().fold(String::new(), in_ascii) }
    }
}

/// Appends a character in ASCII. Those of our own texts have a likeness, of one character where columns depend on it.
fn in_ascii(mut out: String, c: char) -> String {
    match c {
        c if c.is_ascii() => out.push(c),
        '×' => out.push('x'),
        '━' => out.push('='),
        '–' | '—' | '−' | '─' | '▃' | '▂' | '▌' | '▍' => out.push('-'),
        '■' | '█' | '▉' | '▇' | '▆' | '▲' => out.push('#'),
        '▅' | '▄' | '▊' | '▋' => out.push('+'),
        '▁' | '▎' | '▏' => out.push('_'),
        '▼' => out.push('v'),
        'µ' | 'μ' => out.push('u'),
        '·' | '•' => out.push('*'),
        '‘' | '’' => out.push('\''),
        '“' | '”' => out.push('"'),
        '←' => out.push_str("<-"),
        '→' => out.push_str("->"),
        '≤' => out.push_str("<="),
        '≥' => out.push_str(">="),
        '±' => out.push_str("+-"),
        '∞' => out.push_str("inf"),
        '…' => out.push_str("..."),
        '§' => out.push_str("section "),
        _ => out.push('?'),
    }
    out
}

/// [`paragraph`] in `paint`.
pub(super) fn painted(out: &mut String, style: TextStyle, paint: Paint, lead: &str, text: &str) {
    let mut plain = String::new();
    paragraph(&mut plain, style, lead, text);
    let _ = writeln!(out, "{}", style.paint(paint, plain.trim_end()));
}

/// Writes `text` wrapped to the width, its further lines indented like the first one's `lead`.
pub(super) fn paragraph(out: &mut String, style: TextStyle, lead: &str, text: &str) {
    let text = style.printable(text.to_owned());
    let indent = " ".repeat(lead.chars().count());
    for (i, line) in wrap(&text, style.behind(indent.len())).into_iter().enumerate() {
        let lead = if i == 0 { lead } else { &indent };
        let _ = writeln!(out, "{lead}{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_unicode_every_character_of_ours_has_a_likeness() {
        let style = TextStyle { unicode: false, ..TextStyle::default() };
        let text = "16 × p99 1.83 × (0.89–2.46), ≤4, ■■, 3 µs, a → b".to_owned();
        assert_eq!(style.printable(text.clone()), "16 x p99 1.83 x (0.89-2.46), <=4, ##, 3 us, a -> b");
        assert_eq!(TextStyle::default().printable(text.clone()), text);
        let report = |style| crate::text(&[crate::testing::Fixture::study().report()], style);
        let unknown = |text: &str| text.matches('?').count();
        assert!(report(style).is_ascii());
        assert_eq!(unknown(&report(style)), unknown(&report(TextStyle::default())));
    }
}
