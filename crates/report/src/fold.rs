//! A table as a terminal has room for it: in columns, or, on a terminal that is narrower than tables are or than most columns of
//! this one, a block of lines for each row.

use super::style::{Paint, TextStyle, painted, paragraph};
use super::table::{self, Column};

/// In the place of a figure that is not known, or that there is none of: it has no unit.
const NO_FIGURE: [&str; 2] = ["?", "-"];

/// The text of a table.
pub(super) struct Folded {
    /// The lines of titles and of units, as far as there are any. Blocks have titles in their lines.
    pub header: Vec<String>,
    /// Each row: a line, or the lines of its block. No line break at its end.
    pub rows: Vec<String>,
    /// Which columns have no room, in a sentence.
    pub note: Option<String>,
}

/// The table in this style. Its rows have no colour; a block begins with the first figure of its row, in bold.
pub(super) fn fold(columns: &[Column], rows: &[Vec<String>], style: TextStyle) -> Folded {
    if style.is_narrow() || table::is_too_wide(columns, rows, style.limit()) {
        let folded = |row: &Vec<String>| {
            let figures = columns.iter().zip(row).skip(1).filter(|(_, figure)| !figure.is_empty());
            block(&row[0], figures.map(|(column, figure)| line(column, figure)), style)
        };
        return Folded { header: Vec::new(), rows: rows.iter().map(folded).collect(), note: None };
    }
    let mut header = table::lay_out(columns, rows, style.limit());
    let lines = header.split_off(2);
    // The line of units, where no column has one.
    header.retain(|line| !line.is_empty());
    Folded { header, rows: lines, note: table::left_out(columns, rows, style.limit()) }
}

/// A name, and lines below it; without a name the lines alone. No line break at its end.
pub(super) fn block(name: &str, lines: impl IntoIterator<Item = String>, style: TextStyle) -> String {
    let mut out = String::new();
    if !name.is_empty() {
        painted(&mut out, style, Paint::Bold, "", name);
    }
    for line in lines {
        paragraph(&mut out, style, "  ", &line);
    }
    out.truncate(out.trim_end().len());
    out
}

/// `served: 290/s`, `p50: 25.1 ms`, `req/conn: 63`; of a column without a title the figure alone.
fn line(column: &Column, figure: &str) -> String {
    let unit = if column.goes_on || NO_FIGURE.contains(&figure) { "" } else { column.unit };
    let between = if unit.is_empty() || unit.starts_with('/') { "" } else { " " };
    let title = column.title_in_words();
    if title.is_empty() { figure.to_owned() } else { format!("{title}: {figure}{between}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::super::table::{name, number};
    use super::*;

    const COLUMNS: [Column; 6] = [
        name("cell"),
        number("served", "/s").rank(1),
        number("p50", "ms").rank(1),
        number("req/", "conn").goes_on().rank(2),
        number("other's", "loss").goes_on().rank(1),
        name("").rank(1),
    ];

    fn at(width: usize) -> Folded {
        let row = |row: [&str; 6]| row.map(str::to_owned).to_vec();
        let first = row(["h1", "1,000", "25.1", "63", "5%", "knee"]);
        let rows = [first, row(["h2c × 1", "290", "-", "?", "", ""])];
        fold(&COLUMNS, &rows, TextStyle { width, ..TextStyle::default() })
    }

    #[test]
    fn below_60_columns_each_row_is_a_block_and_no_figure_is_left_out() {
        for width in [20, 40, 59] {
            let narrow = at(width);
            assert!(narrow.header.is_empty() && narrow.note.is_none());
            let whole = "h1\n  served: 1,000/s\n  p50: 25.1 ms\n  req/conn: 63\n  other's loss: 5%\n  knee";
            assert_eq!(narrow.rows[0], whole, "{width}");
            assert_eq!(narrow.rows[1], "h2c × 1\n  served: 290/s\n  p50: -\n  req/conn: ?", "{width}");
        }
    }

    #[test]
    fn from_60_columns_on_each_row_is_a_line() {
        for width in [60, 80] {
            let wide = at(width);
            assert_eq!(wide.header.len(), 2, "{:?}", wide.header);
            assert!(wide.rows.iter().all(|row| !row.contains('\n')), "{:?}", wide.rows);
        }
        let long = [["a".repeat(58).as_str(), "1", "2", "3", "4", "5"].map(str::to_owned).to_vec()];
        let folded = fold(&COLUMNS, &long, TextStyle { width: 60, ..TextStyle::default() });
        assert!(
            folded.note.is_none() && folded.rows[0].contains("\n  p50: 2 ms"),
            "most have no room: {:?}",
            folded.rows
        );
        let rows = [vec!["h1".to_owned(), "1".to_owned()]];
        let without_units = fold(&[name("cell"), number("n", "")], &rows, TextStyle::default());
        assert_eq!(without_units.header, ["cell  n"]);
    }

    #[test]
    fn a_block_without_a_name_has_lines_alone_and_a_long_one_is_wrapped() {
        let style = TextStyle { width: 40, ..TextStyle::default() };
        assert_eq!(block("", ["p50: 1 ms".to_owned()], style), "  p50: 1 ms");
        let long = block(&"name ".repeat(20), ["word ".repeat(20)], style);
        assert!(long.lines().count() > 4 && long.lines().all(|line| line.chars().count() <= 40), "{long}");
    }
}
