//! h2lab shell.

pub mod client;
pub mod io;
pub mod load;
