//! One file's transfer: its requests, how it ended, its checksum.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::Fault;
use h2lab_base::units::Time;
use h2lab_transfer::{Algorithm, Checksum};
use h2lab_wire::StreamId;
use h2lab_wire::trace::Direction;

/// Which way the data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransferDirection {
    /// From the server to us.
    #[default]
    Get,
    /// From us to the server.
    Put,
}

impl TransferDirection {
    /// The name in commands, JSON and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
        }
    }

    /// The direction in which the data goes over the wire; credit for it flows in the opposite direction.
    pub const fn of_data(self) -> Direction {
        match self {
            Self::Get => Direction::Down,
            Self::Put => Direction::Up,
        }
    }
}

/// Why a transfer for a fixed time is partial: that was planned.
pub const TIME_WAS_OVER: &str = "the time was over";

/// How a transfer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", tag = "outcome")]
pub enum TransferOutcome {
    /// All of it arrived.
    Complete,
    /// A part of it arrived, without an error: the time was over, or we were interrupted.
    Partial {
        /// What ended it.
        why: String,
    },
    /// An error occurred. What had arrived counts all the same.
    Failed {
        /// What.
        why: String,
        /// Whose fault it was.
        fault: Fault,
    },
}

/// The result of comparing checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum DigestVerdict {
    /// The other end declared one, and it equals ours.
    Matches,
    /// The other end declared one, and it differs from ours: the bytes are not those that were sent.
    Differs,
    /// The other end declared none: ours is only for the user to compare.
    #[serde(alias = "untold")]
    Undeclared,
    /// It was not made, since none was wanted or not all of the file arrived.
    #[default]
    None,
}

impl DigestVerdict {
    /// The verdict on the declared and the computed checksum.
    pub fn of(declared: Option<&Checksum>, computed: Option<&Checksum>) -> Self {
        match (declared, computed) {
            (_, None) => Self::None,
            (None, Some(_)) => Self::Undeclared,
            // Sums by different algorithms cannot be compared.
            (Some(declared), Some(computed)) if declared.algorithm() != computed.algorithm() => {
                Self::Undeclared
            }
            (Some(declared), Some(computed)) if declared == computed => Self::Matches,
            (Some(_), Some(_)) => Self::Differs,
        }
    }

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A transfer's checksum.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DigestRecord {
    /// What was asked for.
    pub asked: Algorithm,
    /// What the other end declared.
    #[serde(alias = "told")]
    pub declared: Option<Checksum>,
    /// The checksum that we computed of the bytes received or sent.
    pub computed: Option<Checksum>,
    /// The result of comparing them.
    pub verdict: DigestVerdict,
}

impl DigestRecord {
    /// Compares the declared checksum with the one computed, by the requested algorithm.
    pub fn new(asked: Algorithm, declared: Option<Checksum>, computed: Option<Checksum>) -> Self {
        let verdict = DigestVerdict::of(declared.as_ref(), computed.as_ref());
        Self { asked, declared, computed, verdict }
    }
}

/// One request for a part of a file, or for all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// The index of its connection.
    pub connection: u32,
    /// Its stream.
    pub stream: StreamId,
    /// The first byte that was asked for.
    pub from: u64,
    /// Bytes of the file that it carried, complete or not.
    pub bytes: u64,
    /// When its request went out.
    pub sent_at: Time,
    /// When the first byte of the file came or went; [`Time::NEVER`] if none did.
    pub first_byte_at: Time,
    /// When it ended, in whatever way.
    pub ended_at: Time,
    /// Whether it carried its whole range. If not, the rest went to another part, or is missing.
    pub is_complete: bool,
}

/// One file, over one request or many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferRecord {
    /// Where it came from or went to.
    pub url: String,
    /// The local file; `None` if the bytes were discarded or generated.
    pub file: Option<String>,
    /// Its direction.
    pub direction: TransferDirection,
    /// Bytes that were transferred in this run, whatever the outcome.
    pub bytes: u64,
    /// Bytes already stored before, and not transferred again.
    pub held: u64,
    /// The length of the whole; `None` if it was never declared.
    pub total: Option<u64>,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: TransferOutcome,
    /// When its first request went out.
    pub started_at: Time,
    /// When its first byte came or went; [`Time::NEVER`] if none did.
    pub first_byte_at: Time,
    /// When it ended: with its last byte, and for a file with that byte safely on disk.
    pub ended_at: Time,
    /// Its checksum.
    pub digest: DigestRecord,
    /// Its requests, in the order in which they were sent.
    pub parts: Vec<PartRecord>,
}

impl TransferRecord {
    /// How many streams carried it, broken ones included.
    pub fn streams(&self) -> u64 {
        self.parts.len() as u64
    }

    /// How many connections carried it.
    pub fn connections(&self) -> u64 {
        let indices: std::collections::BTreeSet<u32> =
            self.parts.iter().map(|part| part.connection).collect();
        indices.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::testing;
    use h2lab_transfer::Digest;

    #[test]
    fn a_checksum_that_nobody_sent_proves_nothing() {
        let (one, other) = (Checksum::crc32c(1), Checksum::crc32c(2));
        assert_eq!(DigestVerdict::of(Some(&one), Some(&one.clone())), DigestVerdict::Matches);
        assert_eq!(DigestVerdict::of(Some(&one), Some(&other)), DigestVerdict::Differs);
        assert_eq!(DigestVerdict::of(None, Some(&one)), DigestVerdict::Undeclared);
        assert_eq!(DigestVerdict::of(Some(&one), None), DigestVerdict::None);
        let mut sha = Digest::new(Algorithm::Sha256);
        sha.update(b"x");
        assert_eq!(DigestVerdict::of(Some(&one), sha.checksum().as_ref()), DigestVerdict::Undeclared);
    }

    #[test]
    fn a_transfer_counts_the_streams_that_broke_and_each_connection_once() {
        let transfer = &testing::record().transfers[1];
        assert_eq!((transfer.streams(), transfer.connections()), (3, 2));
    }
}
