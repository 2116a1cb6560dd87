//! Parts that several pages have: named lines, lists, tables.

use serde::Serialize;

use super::template::render;

#[derive(Serialize)]
struct Lines<'a> {
    lines: &'a [(String, String)],
}

/// Lines with their names.
pub(super) fn lines(lines: &[(String, String)]) -> String {
    render(include_str!("lines.html"), &Lines { lines })
}

#[derive(Serialize)]
struct List<'a> {
    items: &'a [String],
    shown: usize,
    rest: &'a str,
}

/// A list of which the first `shown` are unfolded; `rest` is about what it does not have.
pub(super) fn list(items: &[String], shown: usize, rest: &str) -> String {
    render(include_str!("list.html"), &List { items, shown, rest })
}

#[derive(Serialize)]
struct Preformatted<'a> {
    label: &'a str,
    text: &'a str,
}

/// Lines as they are, to be copied: indentation counts.
pub(super) fn preformatted(label: &str, text: &str) -> String {
    render(include_str!("preformatted.html"), &Preformatted { label, text })
}

#[derive(Serialize)]
struct Rows<'a> {
    columns: &'a [(&'static str, &'static str)],
    rows: &'a [Vec<String>],
}

/// A table of columns with their units.
pub(super) fn table((columns, rows): &(Vec<(&'static str, &'static str)>, Vec<Vec<String>>)) -> String {
    render(include_str!("rows.html"), &Rows { columns, rows })
}
