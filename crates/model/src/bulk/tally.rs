//! Counts of how the files of a transfer ended.

/// The number of files by outcome; every file is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// All of it arrived.
    pub complete: u64,
    /// A part of it did, as intended.
    pub partial: u64,
    /// Something went wrong.
    pub failed: u64,
}

impl Tally {
    /// All of them.
    pub const fn all(self) -> u64 {
        self.complete + self.partial + self.failed
    }
}
