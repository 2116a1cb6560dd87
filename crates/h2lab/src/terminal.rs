//! What stdout or stderr can show: how wide, in colour or not, beyond ASCII or not, whether a line can be drawn over.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use h2lab_report::{TextStyle, hanging};
use rustix::termios::tcgetwinsize;

/// Columns of a report where none are known: in a pipe.
const PIPED: usize = 110;
/// Columns of progress where none are known.
const UNKNOWN: usize = 80;
/// A report is as wide as the terminal, and no wider than this: longer lines are hard to read.
const WIDEST: usize = 160;
/// Columns that stay free behind a drawn line: a terminal echoes Ctrl-C there, and what wraps is not removed again.
const FREE: usize = 4;

/// What the reader of an output stream can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a property of its own")]
pub struct Terminal {
    /// Whether a person may be watching.
    pub is_watched: bool,
    /// Whether it takes escape sequences: a terminal that is not dumb.
    pub takes_escapes: bool,
    /// Whether it takes colours too.
    pub colour: bool,
    /// Whether characters beyond ASCII may be used.
    pub unicode: bool,
    /// Columns for text: `COLUMNS`, else those that the terminal has.
    pub columns: Option<usize>,
    /// Columns that the terminal has.
    real: Option<usize>,
}

impl Terminal {
    /// Of stdout.
    pub fn stdout() -> Self {
        Self::of(&std::io::stdout())
    }

    /// Of stderr.
    pub fn stderr() -> Self {
        Self::of(&std::io::stderr())
    }

    fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        // A pseudo-terminal without a size reports 0.
        let size = tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col));
        Self::new(stream.is_terminal(), size.filter(|columns| *columns > 0), |name| std::env::var(name).ok())
    }

    fn new(is_terminal: bool, real: Option<usize>, variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let takes_escapes = is_terminal && set("TERM").is_some_and(|term| term != "dumb");
        let asked = set("COLUMNS").and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let is_utf8 = |locale: &String| locale.to_ascii_lowercase().replace('-', "").contains("utf8");
        Self {
            is_watched: is_terminal,
            takes_escapes,
            colour: takes_escapes && set("NO_COLOR").is_none(),
            // Without a locale the reader of a pipe is unknown; files are UTF-8.
            unicode: locale.as_ref().map_or(!is_terminal, is_utf8),
            columns: asked.or(real),
            real,
        }
    }

    /// The style in which a report is written for it. Where tables have no room they become blocks of lines.
    pub fn style(self) -> TextStyle {
        TextStyle {
            width: self.columns.unwrap_or(PIPED).min(WIDEST),
            colour: self.colour,
            unicode: self.unicode,
            ..TextStyle::default()
        }
    }

    /// Columns for a line that is drawn over later.
    pub fn drawable(self) -> usize {
        let columns = self.columns.unwrap_or(UNKNOWN);
        columns.min(self.real.unwrap_or(columns)).saturating_sub(FREE)
    }

    /// Rows that `columns` characters of a line take.
    pub fn rows(self, columns: usize) -> usize {
        columns.div_ceil(self.real.unwrap_or(UNKNOWN)).max(1)
    }

    /// `text` with its lines folded, each at its own indentation. Unchanged if no width is known, in a pipe or a file
    /// without `COLUMNS`: there programs look for whole lines.
    pub fn wrapped(self, text: &str) -> Cow<'_, str> {
        let style = self.style();
        if self.columns.is_none() || text.lines().all(|line| line.chars().count() <= style.width) {
            return text.into();
        }
        let folded = text.lines().map(|line| {
            let words = line.trim_start();
            hanging(&line[..line.len() - words.len()], words, style)
        });
        let folded: Vec<String> = folded.map(|lines| lines.trim_end().to_owned()).collect();
        folded.join("\n").into()
    }

    /// `text` in the characters of the reader's locale.
    pub fn printable<'a>(self, text: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
        let text = text.into();
        if self.unicode || text.is_ascii() { text } else { self.style().printable(text.into_owned()).into() }
    }
}

/// The first `room` characters, the last of them dots if there are more.
pub fn cut(text: &str, room: usize) -> Cow<'_, str> {
    if text.chars().count() <= room {
        return text.into();
    }
    let dots = "...".chars().take(room);
    text.chars().take(room.saturating_sub(3)).chain(dots).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal(real: Option<usize>, variables: &[(&str, &str)]) -> Terminal {
        let value = |name: &str| variables.iter().find(|one| one.0 == name).map(|one| one.1.to_owned());
        Terminal::new(true, real, value)
    }

    #[test]
    fn a_line_is_cut_where_the_room_ends() {
        let words = "3/16 direct over RTT 25ms: h2c × 1";
        assert_eq!(cut(words, 34), words);
        assert_eq!(cut(words, 12), "3/16 dire...");
        assert_eq!((cut(words, 2), cut(words, 0)), ("..".into(), "".into()));
    }

    #[test]
    fn columns_are_those_asked_for_then_those_of_the_terminal() {
        let width = |real, asked: &str| terminal(real, &[("COLUMNS", asked)]).style().width;
        assert_eq!([width(Some(80), "72"), width(Some(80), ""), width(None, "72")], [72, 80, 72]);
        assert_eq!([width(Some(80), "0"), width(Some(80), "wide"), width(Some(40), "")], [80, 80, 40]);
        assert_eq!([width(Some(160), ""), width(Some(161), "")], [160, 160]);
        assert_eq!(terminal(None, &[]).style().width, 110);
    }

    #[test]
    fn lines_are_folded_at_their_indentation_where_a_width_is_known() {
        let words = "note: one two three four five six seven eight nine ten eleven twelve\n\n  \
                     an indented line that is longer than sixty columns and so is folded, too";
        let folded = "note: one two three four five six seven eight nine ten\neleven twelve\n\n  \
                      an indented line that is longer than sixty columns and so\n  is folded, too";
        let piped = |columns: Option<&str>| {
            Terminal::new(false, None, |name| columns.filter(|_| name == "COLUMNS").map(str::to_owned))
        };
        assert_eq!(terminal(Some(60), &[]).wrapped(words), folded);
        assert_eq!(piped(Some("60")).wrapped(words), folded);
        assert_eq!(piped(None).wrapped(words), words);
        assert_eq!(terminal(Some(60), &[]).wrapped(folded), folded, "twice changes nothing");
        let narrow = terminal(Some(80), &[("COLUMNS", "40")]).wrapped(words).into_owned();
        let widest = narrow.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| (30..=40).contains(&widest)), "{narrow}");
    }

    #[test]
    fn what_is_drawn_over_never_fills_the_line_that_there_is() {
        assert_eq!(terminal(Some(80), &[]).drawable(), 76);
        assert_eq!(terminal(Some(80), &[("COLUMNS", "200")]).drawable(), 76);
        assert_eq!(terminal(Some(80), &[("COLUMNS", "60")]).drawable(), 56);
        assert_eq!(terminal(None, &[]).drawable(), 76);
        assert_eq!(terminal(Some(2), &[]).drawable(), 0);
        assert_eq!([0, 40, 41, 81].map(|n| terminal(Some(40), &[]).rows(n)), [1, 1, 2, 3]);
    }

    #[test]
    fn a_dumb_terminal_takes_no_escape_sequence_and_no_color_no_colour() {
        let of = |variables: &[(&str, &str)]| {
            let one = terminal(Some(80), variables);
            (one.takes_escapes, one.colour)
        };
        assert_eq!(of(&[("TERM", "xterm")]), (true, true));
        assert_eq!(of(&[("TERM", "xterm"), ("NO_COLOR", "1")]), (true, false));
        assert_eq!([of(&[("TERM", "dumb")]), of(&[])], [(false, false); 2]);
        assert!(!Terminal::new(false, None, |_| Some("xterm".to_owned())).takes_escapes);
    }

    #[test]
    fn the_first_locale_that_is_set_says_whether_there_is_more_than_ascii() {
        let unicode = |variables| terminal(Some(80), variables).unicode;
        assert!(unicode(&[("LANG", "de_DE.UTF-8")]) && unicode(&[("LC_ALL", "C.utf8"), ("LANG", "C")]));
        assert!(!unicode(&[("LC_ALL", "C"), ("LANG", "C.UTF-8")]) && !unicode(&[]));
        assert!(unicode(&[("LC_ALL", ""), ("LC_CTYPE", "C.UTF-8"), ("LANG", "C")]));
        let piped = |locale: Option<&str>| Terminal::new(false, None, |_| locale.map(str::to_owned));
        assert!(piped(None).unicode && !piped(Some("C")).unicode);
        assert_eq!(piped(Some("C")).printable("2 × 3 µs …"), "2 x 3 us ...");
    }
}
