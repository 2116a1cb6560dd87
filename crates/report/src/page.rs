//! Text in lines that begin with what they tell of: the form of the summaries of one load and of one bulk transfer.

use super::format::count;
use super::style::{Paint, TextStyle, paragraph};

/// Where the text behind a line's name begins.
const INDENT: usize = 14;

/// The text so far.
pub(super) struct Page {
    /// The text.
    pub out: String,
    /// How it is to look.
    pub style: TextStyle,
}

impl Page {
    /// Nothing yet.
    pub const fn new(style: TextStyle) -> Self {
        Self { out: String::new(), style }
    }

    /// `Name          text`, further lines of a long text under its beginning. Without text there is no line.
    pub fn line(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            paragraph(&mut self.out, self.style, &format!("{name:<INDENT$}"), text);
        }
    }

    /// A line of its own in bold, after an empty one.
    pub fn heading(&mut self, text: &str) {
        let bold = self.style.paint(Paint::Bold, text);
        self.out.push('\n');
        self.out.push_str(&bold);
        self.out.push('\n');
    }

    /// Paragraphs under a heading; nothing if there are none.
    pub fn list(&mut self, heading: &str, paragraphs: &[String]) {
        if paragraphs.is_empty() {
            return;
        }
        self.heading(heading);
        for text in paragraphs {
            paragraph(&mut self.out, self.style, "- ", text);
        }
    }

    /// What is in doubt of a transfer.
    pub fn doubts(&mut self, warnings: &[String]) {
        self.list("Doubts about the measurement", warnings);
    }

    /// An empty line.
    pub fn blank(&mut self) {
        self.out.push('\n');
    }
}

/// Items that are there, with commas between them.
pub(super) fn listed(items: impl IntoIterator<Item = Option<String>>) -> String {
    items.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `n what` unless n is 0.
pub(super) fn some(n: u64, what: &str) -> Option<String> {
    (n > 0).then(|| format!("{} {what}", count(n)))
}
