//! The record of a run of bulk transfers: the only source of its report.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConnectionFigures, Overflow, TransferDirection, TransferOutcome, TransferRecord};
use crate::record::{ByteMeter, ConnectionRecord, FrameFigures, IoFigures};
use crate::workload::{EngineSettings, H2cMode, Protocol};
use h2lab_base::secrets::{without_secrets, without_url_secrets};
use h2lab_base::units::Time;
use h2lab_transfer::Sizes;

/// Version of the record's format; a reader refuses a newer one.
pub const RECORD_VERSION: u32 = 1;

/// An end that is silent for this long when the time is over may have hung.
pub const SILENCE: Duration = Duration::from_secs(3);

/// What was requested, with defaults filled in.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BulkParameters {
    /// Connections (`-c`).
    pub connections: u32,
    /// Concurrent requests on each (`-m`).
    pub streams: u32,
    /// Bytes of a part, of the file with the largest ones; `None` if files were not split.
    pub part_bytes: Option<u64>,
    /// The requested sizes, if we chose them.
    pub sizes: Option<Sizes>,
    /// After which time no further request went out (`-z`), and what was under way was cut off.
    pub duration: Option<Duration>,
    /// Settings of the engine that were set explicitly.
    pub engine: EngineSettings,
    /// The largest frame that the receiving end lets in, in bytes; `None` in HTTP/1.1, in HTTP/3, whose frames may have any
    /// length, and if it was not declared.
    pub max_frame_size: Option<u32>,
    /// Bytes of a stream window after which the receiving end returns credit; `None` where h2lab does not return it: in HTTP/1.1,
    /// and in HTTP/3, where QUIC does it.
    pub update_bytes: Option<u32>,
    /// The congestion control that was asked for; the connections' records have the one in use.
    pub congestion: Option<String>,
}

/// A run of `bulk get` or `bulk put`: one file or several, over one connection or several.
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
    pub asked: BulkParameters,
    /// Each file, in the order given; of repeated ones the first, and all that are incomplete.
    pub transfers: Vec<TransferRecord>,
    /// The sum of those that are not listed.
    #[serde(default)]
    pub overflow: Overflow,
    /// Each connection, by index.
    pub connections: Vec<ConnectionRecord>,
    /// What is known of each connection that carried data.
    pub figures: Vec<ConnectionFigures>,
    /// Bytes of all files over time.
    pub meter: ByteMeter,
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
    /// The total time for which the thread that moved the bytes did not run although it had to, in pauses of 100 ms or
    /// more: the thread or its machine was stopped.
    #[serde(default)]
    pub paused: Duration,
    /// Doubts about the result, in sentences.
    pub warnings: Vec<String>,
}

/// An end that did not run for more than this share of its time has no figures. A smaller share is a warning.
pub(crate) const MOST_PAUSED_SHARE: f64 = 0.1;

/// Whether `time` is more than this share of `all`.
pub(crate) fn exceeds(time: Duration, share: f64, all: Duration) -> bool {
    time.as_secs_f64() > share * all.as_secs_f64()
}

impl BulkRecord {
    /// The record without the values of queries in URLs, which may be secrets.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        for transfer in &mut self.transfers {
            transfer.url = without_url_secrets(&transfer.url).into_owned();
            if let TransferOutcome::Partial { why } | TransferOutcome::Failed { why, .. } =
                &mut transfer.outcome
            {
                *why = without_secrets(why).into_owned();
            }
        }
        self.warnings.iter_mut().for_each(|warning| *warning = without_secrets(warning).into_owned());
        self
    }

    /// Whether this was a run for a fixed time in which no byte was moved.
    pub fn moved_nothing(&self) -> bool {
        let bytes = self.overflow.bytes + self.transfers.iter().map(|transfer| transfer.bytes).sum::<u64>();
        let is_cut = |one: &TransferRecord| matches!(one.outcome, TransferOutcome::Partial { .. });
        self.asked.duration.is_some()
            && bytes == 0
            && self.transfers.iter().all(is_cut)
            && self.overflow.files == 0
    }

    /// Whether this end did not run for so much of the time that the rate says nothing of the server.
    pub fn is_void(&self) -> bool {
        exceeds(self.paused, MOST_PAUSED_SHARE, self.elapsed())
    }

    /// The fixed time of a run that lasted until it was over; `None` for any other run.
    fn time_over(&self) -> Option<Duration> {
        let is_cut = |one: &TransferRecord| matches!(one.outcome, TransferOutcome::Partial { .. });
        let is_over = !self.interrupted && self.transfers.iter().any(is_cut);
        self.asked.duration.filter(|_| is_over)
    }

    /// From the first request to the last byte. For a run for a fixed time that was not cut short, to the end of that
    /// time: a pause at its end counts.
    pub fn elapsed(&self) -> Duration {
        self.meter.elapsed().max(self.time_over().unwrap_or_default())
    }

    /// For how long no byte had moved when the time of repeated transfers was over, if that was long.
    pub fn silence(&self) -> Option<Duration> {
        let silence = self.time_over()?.saturating_sub(self.meter.elapsed());
        (silence >= SILENCE).then_some(silence)
    }

    /// The record of a run that has not begun; `now` is when its first request is sent.
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
            asked: BulkParameters::default(),
            transfers: Vec::new(),
            overflow: Overflow::default(),
            connections: Vec::new(),
            figures: Vec::new(),
            meter: ByteMeter::new(now),
            frames: FrameFigures::default(),
            io: IoFigures::default(),
            cpu: Duration::ZERO,
            peer_cpu: None,
            interrupted: false,
            paused: Duration::ZERO,
            warnings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::testing;

    #[test]
    fn a_record_reads_back_as_written() {
        let record = testing::record();
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<BulkRecord>(&text).unwrap(), record);
    }

    #[test]
    fn a_pause_at_the_end_of_a_fixed_time_belongs_to_it_unless_the_run_ended_before() {
        let mut record = testing::record();
        let moved = record.meter.elapsed();
        assert_eq!(record.elapsed(), moved);
        record.asked.duration = Some(moved + Duration::from_secs(1));
        assert_eq!(record.elapsed(), moved + Duration::from_secs(1));
        record.interrupted = true;
        assert_eq!(record.elapsed(), moved);
    }

    #[test]
    fn a_time_in_which_nothing_moved_is_reported() {
        let mut record = testing::record();
        record.asked.duration = Some(record.meter.elapsed() + Duration::from_secs(3));
        assert_eq!((record.silence(), record.moved_nothing()), (Some(Duration::from_secs(3)), false));
        record.asked.duration = Some(record.meter.elapsed() + Duration::from_secs(2));
        assert_eq!(record.silence(), None);
        record.transfers.drain(..2);
        record.transfers[0].bytes = 0;
        assert!(record.moved_nothing());
    }
}
