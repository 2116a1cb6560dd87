//! Counts of how the files of a transfer ended.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

/// The number of files by outcome; every file is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TransferTally {
    /// All of it arrived.
    pub complete: u64,
    /// Cut off: the time was over, or we were interrupted.
    pub partial: u64,
    /// An error occurred.
    pub failed: u64,
}

impl TransferTally {
    /// All of them.
    pub const fn all(self) -> u64 {
        self.complete + self.partial + self.failed
    }
}
