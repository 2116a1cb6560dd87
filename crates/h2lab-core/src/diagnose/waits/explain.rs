//! From connections that were read, and the record of a visit, to the stories of its slow requests.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::split::Split;
use super::story::Story;

/// The field that names a request, so that it is known again behind a proxy. Its value is a decimal number that is unique in
/// the visit.
pub const ID_HEADER: &str = "x-h2lab-id";

/// Why less is told than could be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "doubt")]
pub enum Doubt {
    /// Connections were encrypted and no key log opens them: drops are told, and not whose bytes they carried.
    NoKeys {
        /// How many connections.
        connections: u32,
    },
    /// Connections were open when the capture began, so that their bytes cannot be read.
    BeganMidFlow {
        /// How many connections.
        connections: u32,
    },
    /// Bytes are missing from the capture: what lies behind them on the same connection could not be read.
    BytesMissing {
        /// How many connections.
        connections: u32,
    },
    /// Connections carry neither HTTP/1.1 nor HTTP/2.
    NotHttp {
        /// How many connections.
        connections: u32,
    },
    /// Slow requests were not found on the link.
    NotFound {
        /// How many of them.
        requests: u32,
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys { connections } => write!(
                f,
                "{connections} connections were encrypted and no key log opens them: which stream a lost segment belonged to is not known"
            ),
            Self::BeganMidFlow { connections } => write!(
                f,
                "{connections} connections were open before the capture began: which stream a lost segment belonged to is not known"
            ),
            Self::BytesMissing { connections } => {
                write!(
                    f,
                    "bytes of {connections} connections are missing from the capture, and what follows them could not be read"
                )
            }
            Self::NotHttp { connections } => {
                write!(f, "{connections} connections carry neither HTTP/1.1 nor HTTP/2")
            }
            Self::NotFound { requests } => write!(f, "{requests} slow requests were not found on the link"),
        }
    }
}

/// What the slow requests of a visit waited for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// The 95th percentile of the visit's response times, in nanoseconds: a request is slow that took longer.
    pub slower_than_ns: u64,
    /// Every slow request that was measured, in the order of the samples.
    pub stories: Vec<Story>,
    /// Their time by cause.
    pub split: Split,
    /// Why less is told than could be.
    pub doubts: Vec<Doubt>,
}

impl Waits {
    /// The 95th percentile of the visit's response times.
    pub const fn slower_than(&self) -> Duration {
        Duration::from_nanos(self.slower_than_ns)
    }
}
