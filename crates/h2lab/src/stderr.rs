//! Output on stderr: progress, notes, errors.
//!
//! `eprintln!` panics if stderr accepts nothing (`2>&1 | head`, a full disk), and the results of a run would be lost
//! with it. Here only the line is lost. A progress line, which is drawn again and again, stays below all other output.
//!
//! A command that serves has a thread that writes ([`write_aside`]): its event loops print messages, and must not wait
//! for the reader.

use std::fmt::Arguments;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::terminal::{Terminal, cut};
use crate::text_writer::TextWriter;

/// The thread that writes, in a command that serves. Without one, each caller writes by itself.
static WRITER: Mutex<Option<TextWriter>> = Mutex::new(None);

/// The line that is currently drawn; empty if there is none.
static DRAWN: Mutex<String> = Mutex::new(String::new());

/// Rows from the first of what is drawn to the cursor's, which is one of them; 0 if nothing is drawn.
static DRAWN_ROWS: AtomicUsize = AtomicUsize::new(0);

/// `rows` lines that the caller draws itself are above the cursor: what [`erase`] removes.
pub fn drew_above(rows: usize) {
    DRAWN_ROWS.store(if rows == 0 { 0 } else { rows + 1 }, Ordering::Relaxed);
}

/// Removes what is drawn. A signal's handler may call it: it takes no lock and allocates nothing.
pub fn erase() {
    let rows = DRAWN_ROWS.load(Ordering::Relaxed);
    if rows > 0 {
        let (text, length) = erasing_rows(rows);
        let _ = rustix::io::write(std::io::stderr(), &text[..length]);
    }
}

/// The escape sequences that remove this many rows, with the cursor in the last one, without heap allocation.
fn erasing_rows(rows: usize) -> ([u8; 32], usize) {
    let mut text = [0; 32];
    let mut rest = &mut text[..];
    let written = match rows - 1 {
        0 => rest.write_all(b"\r\x1b[J"),
        above => std::io::Write::write_fmt(&mut rest, format_args!("\r\x1b[{above}A\x1b[J")),
    };
    let length = if written.is_ok() { 32 - rest.len() } else { 0 };
    (text, length)
}

/// From now on no caller waits until its message is written. For commands that serve, once they have given up rights:
/// the thread that writes has those of the caller. Call [`flush`] before output that must come later, and at the end.
pub fn write_aside() {
    // If no thread can be started, callers write by themselves as before.
    *writer() = TextWriter::start(std::io::stderr()).ok();
}

/// Waits until all messages are written, for a second at most.
pub fn flush() {
    let waiting = writer().as_mut().map(TextWriter::waiting);
    if let Some(waiting) = waiting {
        waiting.wait();
    }
}

fn writer() -> MutexGuard<'static, Option<TextWriter>> {
    WRITER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes `text`, as far as it can be written.
pub fn write(text: Arguments<'_>) {
    change(Terminal::stderr(), Some(&text.to_string()), |_| ());
}

/// Writes a message for people, folded to the width, and ends the line.
pub fn say(text: Arguments<'_>) {
    write(format_args!("{}\n", Terminal::stderr().wrapped(&text.to_string())));
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

/// Removes the drawn line, writes `text`, and draws the line as `with` has changed it. This is one write, to avoid
/// flicker.
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
    if *drawn != before {
        let rows = if drawn.is_empty() { 0 } else { terminal.rows(drawn.chars().count()) };
        DRAWN_ROWS.store(rows, Ordering::Relaxed);
    }
    if let Some(writer) = &mut *writer() {
        return writer.put(&out);
    }
    let _ = std::io::stderr().lock().write_all(out.as_bytes());
}

/// The escape sequences that remove a drawn line. The terminal may have become narrower since, and have wrapped it.
fn erasing(drawn: &str, terminal: Terminal) -> String {
    if drawn.is_empty() {
        return String::new();
    }
    let (text, length) = erasing_rows(terminal.rows(drawn.chars().count()));
    String::from_utf8_lossy(&text[..length]).into_owned()
}

/// A line, as `eprintln!` would write it, folded to the width. What is to be copied is written by [`write`] instead.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::stderr::say(format_args!($($text)*))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_removed_from_the_first_to_the_cursors() {
        let removes = |rows| {
            let (text, length) = erasing_rows(rows);
            String::from_utf8(text[..length].to_vec()).unwrap()
        };
        assert_eq!([1, 2, 6].map(removes), ["\r\x1b[J", "\r\x1b[1A\x1b[J", "\r\x1b[5A\x1b[J"]);
        assert!(removes(usize::MAX).ends_with('J'));
    }
}
