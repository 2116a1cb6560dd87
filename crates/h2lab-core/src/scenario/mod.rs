//! What to measure: a scenario file or command line, expanded into a plan of cells.

pub mod cell;
pub mod file;

pub use cell::{Cell, Target};
pub use file::Scenario;
