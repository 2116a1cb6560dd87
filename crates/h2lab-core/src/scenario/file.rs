//! A scenario file.

use serde::{Deserialize, Serialize};

/// What a user asked for; expands into cells.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Scenario {
    /// The claim that it tests, in a sentence.
    pub claim: String,
}
