//! How sure it is that something is the cause.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

/// How sure a finding or a limit is. The surest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// A change that removes the cause was shown to help (`diagnose`).
    Confirmed,
    /// Every step of the cause was seen.
    #[default]
    Observed,
    /// A step is concluded from others: the server's retransmissions, for example, over a network that we do not
    /// observe; or sizes and round trips agree.
    Inferred,
    /// It agrees with what was seen, and so would other causes: only a change decides.
    Guessed,
}

impl Confidence {
    /// The name in JSON and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Observed => "observed",
            Self::Inferred => "inferred",
            Self::Guessed => "guessed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_documents_and_the_surest_is_first() {
        let all = [Confidence::Confirmed, Confidence::Observed, Confidence::Inferred, Confidence::Guessed];
        assert!(all.is_sorted());
        for one in all {
            assert_eq!(serde_json::to_string(&one).unwrap(), format!("\"{}\"", one.name()));
        }
    }
}
