//! How much of each request a cell keeps.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use h2lab_base::units::ParseQuantityError;

/// What is recorded of the requests of a cell. Counts are exact in every level; what differs is how much is known of each
/// request, and so the memory that a million of them per second take.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Every request as a [`Sample`](super::Sample): about 100 bytes each. Percentiles are exact.
    #[default]
    Full,
    /// Histograms of every request ([`Tally`](super::Tally)), and samples of the slowest and of a uniform part.
    Tail,
    /// Histograms only.
    Hist,
}

impl Level {
    /// All levels, the most detailed first.
    pub const ALL: [Self; 3] = [Self::Full, Self::Tail, Self::Hist];

    /// The name in flags, JSON and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Tail => "tail",
            Self::Hist => "hist",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or_else(|| ParseQuantityError::new(text, "a level of recording (full, tail, hist)"))
    }
}
