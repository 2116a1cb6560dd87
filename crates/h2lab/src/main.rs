//! The `h2lab` binary.
fn main() {}
