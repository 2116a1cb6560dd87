//! How much of each request a cell keeps.

use h2lab_base::JsonSchema;

use serde::{Deserialize, Serialize};

use h2lab_base::units::ParseQuantityError;

/// What is recorded of the requests of a cell. Counts are exact in every level; what differs is how much is known of each
/// request, and so the memory that a million of them per second take.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = ParseQuantityError, parse_err_fn = no_level)]
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
    pub fn name(self) -> &'static str {
        self.into()
    }
}

fn no_level(text: &str) -> ParseQuantityError {
    ParseQuantityError::new(text, "a level of recording (full, tail, hist)")
}
