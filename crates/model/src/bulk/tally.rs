//! How the files of a transfer ended, counted.

/// How many files ended how: all are counted, whatever became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// All of it arrived.
    pub complete: u64,
    /// A part of it did, as it was to be.
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
