//! Text whose lines begin with their subject: the form of the summaries of one load and of one bulk transfer.

use super::format::{count, plural};
use super::style::{Paint, TextStyle, painted, paragraph};
use super::table::{self, Column};

/// The column where the text of a line begins.
const INDENT: usize = 14;

/// In the place of a figure that is not known, or that there is none of: it has no unit.
const NO_FIGURE: [&str; 2] = ["?", "-"];

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

    /// Whether its lines are shorter than those of the narrowest table.
    pub fn is_narrow(&self) -> bool {
        self.style.width < self.style.limit()
    }

    /// A table, its header in `header`, and which of its columns have no room; on a narrow page a block of lines for each row.
    pub fn table(&mut self, header: Paint, columns: &[Column], rows: &[Vec<String>]) {
        let style = self.style;
        if self.is_narrow() {
            return rows.iter().for_each(|row| self.block(columns, row));
        }
        for (place, line) in table::lay_out(columns, rows, style.limit()).into_iter().enumerate() {
            // The line of units, where no column has one.
            if line.is_empty() {
                continue;
            }
            let line = if place < 2 { style.paint(header, &line) } else { line };
            self.out.push_str(&line);
            self.out.push('\n');
        }
        if let Some(note) = table::left_out(columns, rows, style.limit()) {
            painted(&mut self.out, style, Paint::Dim, "", &note);
        }
    }

    /// The first figure of a row, and below it a line for each other one, with its title and unit.
    fn block(&mut self, columns: &[Column], row: &[String]) {
        for (place, (column, figure)) in columns.iter().zip(row).enumerate() {
            if place == 0 {
                painted(&mut self.out, self.style, Paint::Bold, "", figure);
                continue;
            }
            let unit = if NO_FIGURE.contains(&figure.as_str()) { "" } else { column.unit };
            let between = if unit.starts_with('/') { "" } else { " " };
            let text = match column.title {
                "" => figure.clone(),
                title => format!("{title}: {figure}{between}{unit}"),
            };
            // A remark that not every row has.
            if !text.is_empty() {
                paragraph(&mut self.out, self.style, "  ", &text);
            }
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
