//! How a request ended, and whose fault it was if it failed.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// Whose fault a failure was. A `Harness` fault never counts against a server: it makes the cell invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// Our client gave up, by a cancellation or a timeout, where it is not shown that the server was at fault.
    Client,
    /// Packets were lost.
    Link,
    /// The server or proxy under test.
    Sut,
    /// Our own origin.
    Origin,
    /// h2lab itself.
    Harness,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
#[derive(strum::Display, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Outcome {
    /// A complete response with a 2xx or 3xx status.
    Succeeded = 0,
    /// A complete response with another status.
    Status = 1,
    /// Not finished at the end of the drain; recorded with the age that it had reached.
    Unfinished = 2,
    /// Not answered within `--timeout`, so that we cancelled it, for a reason that may lie on our side: it was not sent
    /// completely, its answer had begun, or what a link lost cannot be distinguished from what a server never said.
    Timeout = 3,
    /// No connection could be made for it.
    Connect = 4,
    /// The TLS handshake failed.
    Tls = 5,
    /// The server reset its stream.
    Reset = 6,
    /// It was above the last-stream-id of a GOAWAY, or refused with REFUSED_STREAM, more often than we replay.
    Refused = 7,
    /// It might have been processed when its connection ended with GOAWAY, or with a clean close in HTTP/2 and HTTP/3.
    GoAway = 8,
    /// Its connection was reset or closed in the middle of the exchange.
    Closed = 9,
    /// The answer broke the protocol.
    Protocol = 10,
    /// We cancelled it on purpose (`--cancel-after`).
    Cancelled = 11,
    /// No byte of an answer within `--timeout`, although the server's TCP has acknowledged the whole request and no
    /// emulated link lies between; we cancelled it. Reports call it a timeout too: only the fault is another.
    Unanswered = 12,
}

impl Outcome {
    /// All outcomes, in the order of their numbers.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The name in JSON and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The outcome as which reports count it: a request that ran into `--timeout` is a timeout, whosever fault it was.
    #[must_use]
    pub const fn kind(self) -> Self {
        match self {
            Self::Unanswered => Self::Timeout,
            other => other,
        }
    }

    /// Whether the request got its complete 2xx or 3xx response.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Succeeded)
    }

    /// Whether the request got a complete response at all.
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Succeeded | Self::Status)
    }

    /// Whether it failed: neither a success nor unfinished at the cut.
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::Succeeded | Self::Unfinished)
    }

    /// Whose fault a failure was, judging by the outcome only.
    pub const fn fault(self) -> Option<Fault> {
        match self {
            Self::Succeeded | Self::Unfinished => None,
            Self::Timeout | Self::Cancelled => Some(Fault::Client),
            Self::Status | Self::Connect | Self::Tls | Self::Reset | Self::Refused | Self::GoAway => {
                Some(Fault::Sut)
            }
            Self::Closed | Self::Protocol | Self::Unanswered => Some(Fault::Sut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stable_and_read_back() {
        for &outcome in Outcome::ALL {
            assert_eq!(Outcome::ALL[outcome as usize], outcome);
        }
    }

    #[test]
    fn a_timeout_is_one_kind_whosever_fault_it_was() {
        let rendered = |outcome: Outcome| (outcome.kind(), outcome.fault());
        assert_eq!(rendered(Outcome::Timeout), (Outcome::Timeout, Some(Fault::Client)));
        assert_eq!(rendered(Outcome::Unanswered), (Outcome::Timeout, Some(Fault::Sut)));
        assert_eq!(rendered(Outcome::Cancelled), (Outcome::Cancelled, Some(Fault::Client)));
    }
}
