//! What is said on stderr: progress, notes, errors.
//!
//! `eprintln!` panics where stderr takes nothing (`2>&1 | head`, a full disk), and what a run has found would be lost with it. Here the
//! line is lost instead. A line that is drawn again and again stays below all that is said meanwhile.

use std::fmt::{Arguments, Write as _};
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use crate::terminal::{Terminal, cut};

/// The line that is drawn at present; empty if there is none.
static DRAWN: Mutex<String> = Mutex::new(String::new());

/// Writes `text`, as far as it can be written.
pub fn write(text: Arguments<'_>) {
    change(Terminal::stderr(), Some(&text.to_string()), |_| ());
}

/// Draws `line` over the one that was drawn before, or removes that one if `line` is empty. Only on a terminal that takes escape
/// sequences, and cut to its width.
pub fn draw(line: &str) {
    let terminal = Terminal::stderr();
    if terminal.takes_escapes {
        let line = cut(&terminal.printable(line), terminal.drawable()).into_owned();
        change(terminal, None, |drawn| *drawn = line);
    }
}

/// Removes the drawn line, writes `text`, and draws the line as `with` has changed it; in one write, so that nothing flickers.
fn change(terminal: Terminal, text: Option<&str>, with: impl FnOnce(&mut String)) {
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut out = erasing(&drawn, terminal);
    let before = drawn.clone();
    with(&mut drawn);
    if text.is_none() && *drawn == before {
        return;
    }
    out.push_str(&terminal.printable(text.unwrap_or_default()));
    out.push_str(&drawn);
    let _ = std::io::stderr().lock().write_all(out.as_bytes());
}

/// What removes a drawn line. The terminal may have become narrower since, and have wrapped it.
fn erasing(drawn: &str, terminal: Terminal) -> String {
    let mut out = String::new();
    if !drawn.is_empty() {
        out.push('\r');
        let above = terminal.rows(drawn.chars().count()) - 1;
        if above > 0 {
            let _ = write!(out, "\x1b[{above}A");
        }
        out.push_str("\x1b[J");
    }
    out
}

/// A line, as `eprintln!` would write it.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::stderr::write(format_args!("{}\n", format_args!($($text)*)))
    };
}
