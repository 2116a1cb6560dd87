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
    /// Which columns are left out first where a table is too wide: those of the highest rank, of equal ones the rightmost. The
    /// first column stays.
    pub rank: u8,
    /// Whether its second line is the rest of its title and no unit: `req/` and `conn`.
    pub goes_on: bool,
}

impl Column {
    /// The same with another rank than [`UNRANKED`].
    pub const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    /// The same with a title of two lines.
    pub const fn goes_on(self) -> Self {
        Self { goes_on: true, ..self }
    }

    /// Its title in a sentence: `req/conn`, `served`; of words that are divided, `un-` and `known`, the whole one.
    pub fn title_in_words(&self) -> String {
        let (title, rest) = (self.title, if self.goes_on { self.unit } else { "" });
        match title.strip_suffix('-') {
            Some(begin) if self.goes_on => format!("{begin}{rest}"),
            _ if rest.is_empty() || title.ends_with(['/', '_']) || rest.starts_with('+') => {
                format!("{title}{rest}")
            }
            _ => format!("{title} {rest}"),
        }
    }
}

/// The rank of columns that have no other.
const UNRANKED: u8 = 100;

/// A number's column.
pub(super) const fn number(title: &'static str, unit: &'static str) -> Column {
    Column { title, unit, left: false, rank: UNRANKED, goes_on: false }
}

/// A name's column.
pub(super) const fn name(title: &'static str) -> Column {
    Column { title, unit: "", left: true, rank: UNRANKED, goes_on: false }
}

/// Characters of `text`; each that we print is one column wide.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// The characters that each column needs.
fn widths(columns: &[Column], rows: &[Vec<String>]) -> Vec<usize> {
    let needed = |(i, column): (usize, &Column)| {
        let cells = rows.iter().map(|row| width(&row[i]));
        cells.chain([width(column.title), width(column.unit)]).max().unwrap_or(0)
    };
    columns.iter().enumerate().map(needed).collect()
}

/// The places of the columns that have room.
fn kept(columns: &[Column], widths: &[usize], limit: usize) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let needed = |kept: &[usize]| kept.iter().map(|&i| widths[i] + 1).sum::<usize>();
    while kept.len() > 1 && needed(&kept) > limit + 1 {
        let least = kept[1..].iter().copied().max_by_key(|&i| (columns[i].rank, i));
        kept.retain(|&i| Some(i) != least);
    }
    kept
}

/// Names the columns that [`lay_out`] leaves out, in a sentence; `None` if there are none.
pub(super) fn left_out(columns: &[Column], rows: &[Vec<String>], limit: usize) -> Option<String> {
    let kept = kept(columns, &widths(columns, rows), limit);
    let names: Vec<String> =
        (0..columns.len()).filter(|i| !kept.contains(i)).map(|i| columns[i].title_in_words()).collect();
    (!names.is_empty()).then(|| format!("Omitted, too wide: {}.", names.join(", ")))
}

/// Whether [`lay_out`] leaves out more columns than it keeps.
pub(super) fn is_too_wide(columns: &[Column], rows: &[Vec<String>], limit: usize) -> bool {
    kept(columns, &widths(columns, rows), limit).len() * 2 < columns.len()
}

/// Lines of a table: two of header, then one per row. Columns are two spaces apart, one if it would be wider than
/// `limit` otherwise. Those for which there is no room even then are left out, by their rank.
pub(super) fn lay_out(columns: &[Column], rows: &[Vec<String>], limit: usize) -> Vec<String> {
    let widths = widths(columns, rows);
    let kept = kept(columns, &widths, limit);
    let all: usize = kept.iter().map(|&i| widths[i]).sum();
    let gap = if all + 2 * kept.len().saturating_sub(1) > limit { " " } else { "  " };
    let line = |cells: Vec<&str>| {
        let padded = kept.iter().map(|&i| {
            // A format's width ends at 65,535, a cell's text does not: a URL may be in it.
            let (cell, space) = (cells[i], " ".repeat(widths[i] - width(cells[i])));
            if columns[i].left { format!("{cell}{space}") } else { format!("{space}{cell}") }
        });
        padded.collect::<Vec<_>>().join(gap).trim_end().to_owned()
    };
    let header = |text: fn(&Column) -> &'static str| line(columns.iter().map(text).collect());
    let mut lines = vec![header(|column| column.title), header(|column| column.unit)];
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines
}

/// Columns that are all as important, after the first one, in as many parts as are needed for each to fit: the places of each
/// part's columns. The first column is in all of them.
pub(super) fn parts(columns: &[Column], rows: &[Vec<String>], limit: usize) -> Vec<Vec<usize>> {
    let widths = widths(columns, rows);
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for place in 1..columns.len() {
        match parts.last_mut() {
            Some(part) if widths[place] + 2 <= room => part.push(place),
            _ => {
                room = limit.saturating_sub(widths[0]);
                parts.push(vec![0, place]);
            }
        }
        room = room.saturating_sub(widths[place] + 2);
    }
    parts
}

/// The fields of `row` at these places.
pub(super) fn picked<T: Clone>(row: &[T], places: &[usize]) -> Vec<T> {
    places.iter().map(|&place| row[place].clone()).collect()
}

/// A word of at most this many characters is never broken, such as a hash.
const WHOLE: usize = 80;

/// Breaks `text` at spaces into lines of at most `limit` characters. A longer word gets a line of its own; it is broken if it is
/// longer than 80 characters, as in a program's output, and no path, URL or code, which are there to be copied.
pub fn wrap(text: &str, limit: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace().flat_map(|word| pieces(word, limit)) {
        let last = lines.last_mut().expect("there is always a line");
        if last.is_empty() {
            last.push_str(&word);
        } else if width(last) + 1 + width(&word) <= limit {
            last.push(' ');
            last.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    lines
}

/// A word, or the pieces it is broken into.
fn pieces(word: &str, limit: usize) -> Vec<String> {
    if width(word) <= limit.max(WHOLE) || word.contains(['/', '`']) {
        return vec![word.to_owned()];
    }
    let characters: Vec<char> = word.chars().collect();
    characters.chunks(limit.max(1)).map(|piece| piece.iter().collect()).collect()
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
    fn columns_without_room_are_left_out_by_rank_and_named() {
        let columns = [
            name("cell"),
            number("p50", "ms").rank(1),
            number("req/", "conn").goes_on().rank(3),
            number("max", "ms").rank(2),
        ];
        let rows = [["h1", "25.1", "1,000", "99.9"].map(str::to_owned).to_vec()];
        let at = |limit| (lay_out(&columns, &rows, limit)[2].clone(), left_out(&columns, &rows, limit));
        assert_eq!(at(23), ("h1    25.1  1,000  99.9".to_owned(), None));
        assert_eq!(at(20), ("h1   25.1 1,000 99.9".to_owned(), None));
        let without = Some("Omitted, too wide: req/conn.".to_owned());
        assert_eq!(at(19), ("h1    25.1  99.9".to_owned(), without));
        assert_eq!(at(1).1.as_deref(), Some("Omitted, too wide: p50, req/conn, max."));
    }

    #[test]
    fn a_title_of_two_lines_is_one_in_words_and_a_unit_is_no_part_of_it() {
        for (column, words) in [
            (number("p50", "ms"), "p50"),
            (number("served", "/s"), "served"),
            (number("req/", "conn").goes_on(), "req/conn"),
            (number("failed", "+cut").goes_on(), "failed+cut"),
            (number("un-", "known").goes_on(), "unknown"),
            (number("other's", "loss").goes_on(), "other's loss"),
            (number("server", "").goes_on(), "server"),
        ] {
            assert_eq!(column.title_in_words(), words);
        }
    }

    #[test]
    fn a_wide_table_of_equals_is_cut_in_parts_that_fit() {
        let columns = [name(""), number("", ""), number("", ""), number("", "")];
        let rows = [["h1", "1234", "1234", "1234"].map(str::to_owned).to_vec()];
        assert_eq!(parts(&columns, &rows, 20), [vec![0, 1, 2, 3]]);
        assert_eq!(parts(&columns, &rows, 19), [vec![0, 1, 2], vec![0, 3]]);
        assert_eq!(parts(&columns, &rows, 1), [[0, 1], [0, 2], [0, 3]]);
        for part in parts(&columns, &rows, 14) {
            let line = &lay_out(&picked(&columns, &part), &[picked(&rows[0], &part)], 14)[2];
            assert!(line.chars().count() <= 14, "{line}");
        }
    }

    #[test]
    fn a_cell_of_any_length_is_laid_out() {
        let rows = [vec!["a".repeat(70_000), "1".to_owned()]];
        assert_eq!(lay_out(&[name("cell"), number("p50", "ms")], &rows, 80)[2].len(), 70_000);
    }

    #[test]
    fn text_is_broken_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("extraordinarily long", 7), ["extraordinarily", "long"]);
        assert_eq!(wrap("", 7), [""]);
    }

    #[test]
    fn a_word_longer_than_eighty_characters_is_broken_and_a_url_and_code_are_not() {
        let (whole, broken) = ("x".repeat(WHOLE), "x".repeat(WHOLE + 1));
        assert_eq!(wrap(&whole, 40), std::slice::from_ref(&whole));
        let line = "x".repeat(40);
        assert_eq!(wrap(&format!("said {broken} end"), 40), ["said", &line, &line, "x end"]);
        assert_eq!(wrap(&broken, 81), std::slice::from_ref(&broken), "it has room");
        for word in [format!("/{broken}"), format!("`{broken}`")] {
            assert_eq!(wrap(&word, 40), std::slice::from_ref(&word));
        }
    }
}
