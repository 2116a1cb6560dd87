//! The style of terminal text: its colours, and its paragraphs wrapped to the width.

use std::fmt::Write as _;

use super::table::wrap;

/// The style of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextStyle {
    /// Whether to use ANSI colours.
    pub colour: bool,
    /// Characters per line; below 60 lines are broken as if it were 60.
    pub width: usize,
}

impl Default for TextStyle {
    fn default() -> Self {
        Self { colour: false, width: 100 }
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
}

/// [`paragraph`] in `paint`.
pub(super) fn painted(out: &mut String, style: TextStyle, paint: Paint, lead: &str, text: &str) {
    let mut plain = String::new();
    paragraph(&mut plain, style, lead, text);
    let _ = writeln!(out, "{}", style.paint(paint, plain.trim_end()));
}

/// Writes `text` wrapped to the width, its further lines indented like the first one's `lead`.
pub(super) fn paragraph(out: &mut String, style: TextStyle, lead: &str, text: &str) {
    let indent = " ".repeat(lead.chars().count());
    for (i, line) in wrap(text, style.limit() - indent.len()).into_iter().enumerate() {
        let lead = if i == 0 { lead } else { &indent };
        let _ = writeln!(out, "{lead}{line}");
    }
}
