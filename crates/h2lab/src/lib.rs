//! h2lab shell.

pub mod io;
