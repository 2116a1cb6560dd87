//! h2lab shell.
