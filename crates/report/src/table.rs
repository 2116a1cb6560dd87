//! Plain tables: columns as wide as necessary, numbers to the right.

/// A column's two header lines and its side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    /// Its title.
    pub title: &'static str,
    /// Its unit; may be empty.
    pub unit: &'static str,
    /// Names are left-aligned, numbers right-aligned.
    pub left: bool,
}

/// A number's column.
pub(super) const fn number(title: &'static str, unit: &'static str) -> Column {
    Column { title, unit, left: false }
}

/// A name's column.
pub(super) const fn name(title: &'static str) -> Column {
    Column { title, unit: "", left: true }
}

/// Characters of `text`; each that we print is one column wide.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// Lines of a table: two of header, then one per row. Columns are two spaces apart, one if it would be wider than
/// `limit` otherwise.
pub(super) fn lay_out(columns: &[Column], rows: &[Vec<String>], limit: usize) -> Vec<String> {
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let cells = rows.iter().map(|row| width(&row[i]));
            cells.chain([width(column.title), width(column.unit)]).max().unwrap_or(0)
        })
        .collect();
    let gap =
        if widths.iter().sum::<usize>() + 2 * columns.len().saturating_sub(1) > limit { " " } else { "  " };
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(&widths)
            .zip(columns)
            .map(|((cell, &wide), column)| {
                // A format's width ends at 65,535, a cell's text does not: a URL may be in it.
                let space = " ".repeat(wide - width(cell));
                if column.left { format!("{cell}{space}") } else { format!("{space}{cell}") }
            })
            .collect();
        padded.join(gap).trim_end().to_owned()
    };
    let mut lines = vec![
        line(&mut columns.iter().map(|column| column.title)),
        line(&mut columns.iter().map(|column| column.unit)),
    ];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines
}

/// Breaks `text` at spaces into lines of at most `limit` characters; a longer word gets a line of its own.
pub(super) fn wrap(text: &str, limit: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        if last.is_empty() {
            last.push_str(word);
        } else if width(last) + 1 + width(word) <= limit {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_and_names_left() {
        let rows = [vec!["h1".to_owned(), "25.1".to_owned()], vec!["h2c × 16".to_owned(), "9".to_owned()]];
        let lines = lay_out(&[name("cell"), number("p50", "ms")], &rows, 80);
        assert_eq!(lines, ["cell       p50", "            ms", "h1        25.1", "h2c × 16     9"]);
        assert_eq!(lay_out(&[name("cell"), number("p50", "ms")], &rows, 13)[2], "h1       25.1");
    }

    #[test]
    fn a_cell_of_any_length_is_laid_out() {
        let rows = [vec!["a".repeat(70_000), "1".to_owned()]];
        assert_eq!(lay_out(&[name("cell"), number("p50", "ms")], &rows, 80)[2].len(), 70_004);
    }

    #[test]
    fn text_is_broken_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("extraordinarily long", 7), ["extraordinarily", "long"]);
        assert_eq!(wrap("", 7), [""]);
    }
}
