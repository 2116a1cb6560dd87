//! What a bulk transfer leaves: all that a report of it knows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Figures, Further};
use crate::record::{ConnectionRecord, Fault, FrameFigures, IoFigures, Meter};
use crate::workload::{EngineSettings, H2cMode, Protocol};
use h2lab_base::units::Time;
use h2lab_transfer::{Algorithm, Checksum, Sizes};
use h2lab_wire::StreamId;
use h2lab_wire::trace::Direction;

/// Version of a record's form; a reader refuses a newer one.
pub const RECORD_VERSION: u32 = 1;

/// Which way the data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
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

    /// The direction in which the data goes over the wire; credit for it goes the other way.
    pub const fn of_data(self) -> Direction {
        match self {
            Self::Get => Direction::Down,
            Self::Put => Direction::Up,
        }
    }
}

/// How a transfer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase", tag = "outcome")]
pub enum TransferOutcome {
    /// All of it arrived.
    Complete,
    /// A part of it arrived, and nothing was wrong with that: the time was over, or somebody interrupted us.
    Partial {
        /// What ended it.
        why: String,
    },
    /// Something went wrong. What had arrived counts all the same.
    Failed {
        /// What.
        why: String,
        /// Whose fault it was.
        fault: Fault,
    },
}

/// What became of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DigestVerdict {
    /// The other end told one, and it is ours.
    Matches,
    /// The other end told one, and it is another: the bytes are not those that were sent.
    Differs,
    /// The other end told none: ours is only for the user to compare.
    Untold,
    /// It was not made, since none was wanted or not all of the file arrived.
    #[default]
    None,
}

impl DigestVerdict {
    /// Of what the other end told and what we made.
    pub fn of(told: Option<&Checksum>, computed: Option<&Checksum>) -> Self {
        match (told, computed) {
            (_, None) => Self::None,
            (None, Some(_)) => Self::Untold,
            // Sums of two algorithms say nothing about each other.
            (Some(told), Some(computed)) if told.algorithm() != computed.algorithm() => Self::Untold,
            (Some(told), Some(computed)) if told == computed => Self::Matches,
            (Some(_), Some(_)) => Self::Differs,
        }
    }

    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Matches => "matches",
            Self::Differs => "differs",
            Self::Untold => "untold",
            Self::None => "none",
        }
    }
}

/// A transfer's checksum.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DigestRecord {
    /// What was asked for.
    pub asked: Algorithm,
    /// What the other end told.
    pub told: Option<Checksum>,
    /// What we made of the bytes that are here, or that we sent.
    pub computed: Option<Checksum>,
    /// What follows.
    pub verdict: DigestVerdict,
}

impl DigestRecord {
    /// Of what was asked for, what the other end told and what we made.
    pub fn new(asked: Algorithm, told: Option<Checksum>, computed: Option<Checksum>) -> Self {
        let verdict = DigestVerdict::of(told.as_ref(), computed.as_ref());
        Self { asked, told, computed, verdict }
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
    /// When it ended, one way or the other.
    pub ended_at: Time,
    /// Whether all that it was to carry came through. If not, the rest went to another part, or is missing.
    pub is_complete: bool,
}

/// One file, over one request or many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferRecord {
    /// Where it came from or went to.
    pub url: String,
    /// The file here; `None` if it was thrown away, or made up.
    pub file: Option<String>,
    /// Its direction.
    pub direction: TransferDirection,
    /// Bytes that were transferred in this run, whatever the outcome.
    pub bytes: u64,
    /// Bytes that were here from before, and were not transferred again.
    pub held: u64,
    /// The length of the whole; `None` if it was never told.
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
    /// Its requests, in the order in which they went out.
    pub parts: Vec<PartRecord>,
}

impl TransferRecord {
    /// How many streams carried it, those that broke among them.
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

/// What was asked for, as it was in force: defaults are filled in.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// Connections (`-c`).
    pub connections: u32,
    /// Requests at a time on each (`-m`).
    pub streams: u32,
    /// Bytes of a part, of the file with the largest ones; `None` if files were not taken apart.
    pub part_bytes: Option<u64>,
    /// Sizes of what was asked for, where we chose them.
    pub sizes: Option<Sizes>,
    /// After which time no further request went out (`-z`), and what was under way was cut off.
    pub duration: Option<Duration>,
    /// Settings of the engine that were given.
    pub engine: EngineSettings,
    /// The largest frame that the receiving end lets in, in bytes; `None` in HTTP/1.1, in HTTP/3, whose frames may have any
    /// length, and where it was not told.
    pub max_frame_size: Option<u32>,
    /// Bytes of a stream window after which the receiving end returns credit; `None` where that is not ours: in HTTP/1.1, and
    /// in HTTP/3, where QUIC does it.
    pub update_bytes: Option<u32>,
    /// The congestion control that was asked for; what was in use is told by each connection.
    pub congestion: Option<String>,
}

/// A run of `bulk get` or `bulk put`: several files, maybe, over several connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkRecord {
    /// [`RECORD_VERSION`].
    pub schema: u32,
    /// Version of h2lab.
    pub version: String,
    /// The command line, as given.
    pub command: Vec<String>,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// Kernel and machine.
    pub machine: String,
    /// The protocol.
    pub protocol: Protocol,
    /// How `h2c` began.
    pub h2c_mode: H2cMode,
    /// Which way the data went.
    pub direction: TransferDirection,
    /// What was asked for.
    pub asked: Asked,
    /// Each file, in the order given; of those that are moved over and over the first, and all that are not complete.
    pub transfers: Vec<TransferRecord>,
    /// The sum of those that are not listed.
    #[serde(default)]
    pub further: Further,
    /// Each connection, by index.
    pub connections: Vec<ConnectionRecord>,
    /// What is known of each connection that carried data.
    pub figures: Vec<Figures>,
    /// Bytes of all files over time.
    pub meter: Meter,
    /// Frames of all connections.
    pub frames: FrameFigures,
    /// What this end asked of its kernel.
    pub io: IoFigures,
    /// CPU time of this process, from the first dial until the last file is on the disk.
    pub cpu: Duration,
    /// CPU time of the other end in that time; `None` where it cannot be seen.
    pub peer_cpu: Option<Duration>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Doubts that arose, in sentences.
    pub warnings: Vec<String>,
}

impl BulkRecord {
    /// Whether files were to be moved for a time, in which not a byte of one was.
    pub fn is_in_vain(&self) -> bool {
        let bytes = self.further.bytes + self.transfers.iter().map(|transfer| transfer.bytes).sum::<u64>();
        let is_cut = |one: &TransferRecord| matches!(one.outcome, TransferOutcome::Partial { .. });
        self.asked.duration.is_some()
            && bytes == 0
            && self.transfers.iter().all(is_cut)
            && self.further.files == 0
    }

    /// How long nothing had moved when the time of files that are moved over and over was over, if that was long.
    pub fn silence(&self) -> Option<Duration> {
        let is_cut = |one: &TransferRecord| matches!(one.outcome, TransferOutcome::Partial { .. });
        let silence = self.asked.duration?.saturating_sub(self.meter.elapsed());
        let is_over = !self.interrupted && self.transfers.iter().any(is_cut);
        (is_over && silence >= crate::fleet::SILENCE).then_some(silence)
    }

    /// Of a run that has not begun; `now` is when its first request goes out.
    pub fn new(protocol: Protocol, direction: TransferDirection, now: Time) -> Self {
        Self {
            schema: RECORD_VERSION,
            version: String::new(),
            command: Vec::new(),
            started: String::new(),
            machine: String::new(),
            protocol,
            h2c_mode: H2cMode::default(),
            direction,
            asked: Asked::default(),
            transfers: Vec::new(),
            further: Further::default(),
            connections: Vec::new(),
            figures: Vec::new(),
            meter: Meter::new(now),
            frames: FrameFigures::default(),
            io: IoFigures::default(),
            cpu: Duration::ZERO,
            peer_cpu: None,
            interrupted: false,
            warnings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::testing;
    use h2lab_transfer::Digest;

    #[test]
    fn a_checksum_that_nobody_told_proves_nothing() {
        let (one, other) = (Checksum::crc32c(1), Checksum::crc32c(2));
        assert_eq!(DigestVerdict::of(Some(&one), Some(&one.clone())), DigestVerdict::Matches);
        assert_eq!(DigestVerdict::of(Some(&one), Some(&other)), DigestVerdict::Differs);
        assert_eq!(DigestVerdict::of(None, Some(&one)), DigestVerdict::Untold);
        assert_eq!(DigestVerdict::of(Some(&one), None), DigestVerdict::None);
        let mut sha = Digest::new(Algorithm::Sha256);
        sha.update(b"x");
        assert_eq!(DigestVerdict::of(Some(&one), sha.checksum().as_ref()), DigestVerdict::Untold);
    }

    #[test]
    fn a_record_reads_back_as_written() {
        let record = testing::record();
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<BulkRecord>(&text).unwrap(), record);
    }

    #[test]
    fn a_time_in_which_nothing_moved_is_told() {
        let mut record = testing::record();
        record.asked.duration = Some(record.meter.elapsed() + Duration::from_secs(3));
        assert_eq!((record.silence(), record.is_in_vain()), (Some(Duration::from_secs(3)), false));
        record.asked.duration = Some(record.meter.elapsed() + Duration::from_secs(2));
        assert_eq!(record.silence(), None);
        record.transfers.drain(..2);
        record.transfers[0].bytes = 0;
        assert!(record.is_in_vain());
    }

    #[test]
    fn a_transfer_counts_the_streams_that_broke_and_each_connection_once() {
        let transfer = &testing::record().transfers[1];
        assert_eq!((transfer.streams(), transfer.connections()), (3, 2));
    }
}
