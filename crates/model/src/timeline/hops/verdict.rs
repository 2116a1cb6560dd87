//! The verdict about a server, and what it rests on.

use std::fmt;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a server did with something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HopVerdict {
    /// There was nothing of the kind.
    None,
    /// All of it came through at once.
    Forwarded,
    /// Some of it did.
    Partly,
    /// It came through, too late to be of use.
    HeldBack,
    /// None of it came through; the response did.
    Swallowed,
    /// The server disabled it towards its upstream.
    Refused,
    /// The server made it; nothing of the kind came from upstream.
    Added,
    /// The response did not come through, or what was promised did not.
    Broken,
}

impl fmt::Display for HopVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Forwarded => "forwarded",
            Self::Partly => "partly forwarded",
            Self::HeldBack => "held back",
            Self::Swallowed => "swallowed",
            Self::Refused => "refused",
            Self::Added => "added",
            Self::Broken => "BROKEN",
        })
    }
}

/// A verdict and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ruling {
    /// What was done.
    pub verdict: HopVerdict,
    /// What was seen on either side, in a sentence.
    pub evidence: String,
}

impl Ruling {
    pub(super) fn new(verdict: HopVerdict, evidence: impl Into<String>) -> Self {
        Self { verdict, evidence: evidence.into() }
    }

    pub(super) fn none() -> Self {
        Self::new(HopVerdict::None, "")
    }
}

/// A number of resources as the subject of a sentence.
pub(super) fn resources(count: usize) -> String {
    if count == 1 { "1 resource is".to_owned() } else { format!("{count} resources are") }
}
