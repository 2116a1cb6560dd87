//! Text whose lines begin with their subject: the form of the summaries of one load and of one bulk transfer.

use super::fold;
use super::format::{count, plural};
use super::style::{Paint, TextStyle, painted, paragraph};
use super::table::Column;

/// The column where the text of a line begins.
const INDENT: usize = 14;

/// The text so far.
pub(super) struct Page {
    /// The text.
    pub out: String,
    /// Its lines that have a name, for forms other than text: an empty name continues the one before.
    pub lines: Vec<(String, String)>,
    /// Its style.
    pub style: TextStyle,
}

impl Page {
    /// An empty page.
    pub const fn new(style: TextStyle) -> Self {
        Self { out: String::new(), lines: Vec::new(), style }
    }

    /// `Name          text`, a long text continued under its beginning. Without text there is no line.
    pub fn line(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.lines.push((name.trim().to_owned(), text.to_owned()));
            paragraph(&mut self.out, self.style, &format!("{name:<INDENT$}"), text);
        }
    }

    /// A bold line after an empty one.
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

    /// A table, its header in `header`, and which of its columns have no room; on a narrow page a block of lines for each row.
    pub fn table(&mut self, header: Paint, columns: &[Column], rows: &[Vec<String>]) {
        let style = self.style;
        let table = fold::fold(columns, rows, style);
        let titles = table.header.iter().map(|line| style.paint(header, line));
        for line in titles.chain(table.rows) {
            self.out.push_str(&line);
            self.out.push('\n');
        }
        if let Some(note) = &table.note {
            painted(&mut self.out, style, Paint::Dim, "", note);
        }
    }

    /// The doubts about a transfer.
    pub fn doubts(&mut self, warnings: &[String]) {
        self.list("Warnings", warnings);
    }

    /// An empty line.
    pub fn blank(&mut self) {
        self.out.push('\n');
    }
}

/// The items that are present, joined by commas.
pub(super) fn listed(items: impl IntoIterator<Item = Option<String>>) -> String {
    items.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `1 file read`, `2 file reads`, nothing if there is none.
pub(super) fn counted(n: u64, noun: &str) -> Option<String> {
    (n > 0).then(|| plural(n, noun))
}

/// `n what` unless n is 0: of what has no plural.
pub(super) fn some(n: u64, what: &str) -> Option<String> {
    (n > 0).then(|| format!("{} {what}", count(n)))
}
