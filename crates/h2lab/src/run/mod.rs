//! Executes a plan, cell by cell, and keeps what was measured.

pub mod store;
