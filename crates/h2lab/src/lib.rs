//! h2lab shell.

pub mod topology;
