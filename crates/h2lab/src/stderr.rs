//! What is said on stderr: progress, notes, errors.
//!
//! `eprintln!` panics where stderr takes nothing (`2>&1 | head`, a full disk), and what a run has found would be lost with it. Here the
//! line is lost instead.

use std::fmt::Arguments;
use std::io::Write as _;

/// Writes `text`, as far as it can be written.
pub fn write(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// A line, as `eprintln!` would write it.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::stderr::write(format_args!("{}\n", format_args!($($text)*)))
    };
}
