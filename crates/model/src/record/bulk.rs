//! The record of a repetition of bulk work besides its requests: bytes over time, frames, settings in force.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteMeter, FrameFigures};

/// What this end asked of its kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IoFigures {
    /// Reads from sockets; `None` over QUIC, whose connections share theirs.
    pub socket_reads: Option<u64>,
    /// Writes to sockets, likewise.
    pub socket_writes: Option<u64>,
    /// Reads from files.
    pub file_reads: u64,
    /// Writes to files.
    pub file_writes: u64,
    /// The largest buffer that one of them filled or emptied, in bytes.
    pub largest_buffer: u64,
}

impl IoFigures {
    /// Adds the figures of another repetition.
    pub fn add(&mut self, other: &Self) {
        // All repetitions of a cell are over QUIC, or none is.
        let add = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        self.socket_reads = add(self.socket_reads, other.socket_reads);
        self.socket_writes = add(self.socket_writes, other.socket_writes);
        self.file_reads += other.file_reads;
        self.file_writes += other.file_writes;
        self.largest_buffer = self.largest_buffer.max(other.largest_buffer);
    }
}

/// The figures of a repetition of bulk work. Each response is a [`super::Sample`] of the repetition, one cut off when the time
/// was over unfinished; each connection is a [`super::ConnectionRecord`]. Its frames are counted here instead of kept: at 10
/// Gbit/s there are a hundred thousand per second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkRepetition {
    /// Bytes of data over time, from the first request on.
    pub meter: ByteMeter,
    /// Frames of the data and the credit for it; all zero where there are none.
    #[serde(default)]
    pub frames: FrameFigures,
    /// What our end asked of its kernel.
    #[serde(default)]
    pub io: IoFigures,
    /// The limits that our end announced; `None` where there are no frames.
    #[serde(default)]
    pub offered: Option<Offered>,
    /// The most that a receive buffer of ours may grow to, in bytes.
    #[serde(default)]
    pub receive_buffer: Option<u64>,
    /// The most that a send buffer of the server may grow to, in bytes; `None` if we did not start it.
    #[serde(default)]
    pub send_buffer: Option<u64>,
}

/// The limits that a receiving end announces, with defaults filled in; auto-tuned windows by their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Offered {
    /// The stream window, in bytes.
    pub stream_window: u32,
    /// The connection window, in bytes.
    pub connection_window: u32,
    /// The longest frame, in bytes.
    pub max_frame_size: u32,
    /// Bytes of a stream window after which credit is returned.
    pub update_bytes: u32,
}
