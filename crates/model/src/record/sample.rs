//! One request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Outcome;
use h2lab_base::units::Time;
use h2lab_wire::StreamId;

/// One request, from when it was due. Times that were not reached are [`Time::NEVER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The connection's index in the cell; `u32::MAX` if it never got one.
    pub connection: u32,
    /// Its stream there.
    pub stream: StreamId,
    /// When it should have been sent: by the schedule in open loop, when its predecessor ended in closed loop.
    pub scheduled_at: Time,
    /// When its head was handed to the socket.
    pub sent_at: Time,
    /// When the first byte of its final response was read.
    pub first_byte_at: Time,
    /// When its last byte was read, or when it failed. For [`Outcome::Unfinished`] the cut.
    pub completed_at: Time,
    /// How it ended.
    pub outcome: Outcome,
    /// The response's status, 0 if none came.
    pub status: u16,
    /// HTTP/2 error code of a reset or GOAWAY that ended it, else 0.
    pub code: u32,
    /// Body bytes received.
    pub body_bytes: u64,
    /// How often it was sent again after a GOAWAY or REFUSED_STREAM that left it unprocessed.
    pub replays: u8,
    /// Time it waited for a connection or a stream slot: `stall{open}`, in nanoseconds.
    pub stall_open_ns: u64,
    /// Time its head waited for room in the socket's send buffer: `stall{socket}`, in nanoseconds.
    pub stall_socket_ns: u64,
    /// Time its body waited for a flow-control window: `stall{window}`, in nanoseconds.
    pub stall_window_ns: u64,
    /// Whether it was scheduled inside the measured time and so counts.
    pub measured: bool,
    /// Which entry of the work's mix it is; 0 without a mix.
    #[serde(default)]
    pub kind: u16,
    /// Its number among all requests of the cell while measuring; 0 when read back, since only the analysis of the packets needs
    /// it.
    #[serde(default)]
    pub number: u32,
}

impl Sample {
    /// A connection index that means "never got one".
    pub const NO_CONNECTION: u32 = u32::MAX;

    /// A request that is due at `scheduled_at` and has not begun.
    pub const fn due(scheduled_at: Time, measured: bool) -> Self {
        Self {
            connection: Self::NO_CONNECTION,
            stream: StreamId::CONNECTION,
            scheduled_at,
            sent_at: Time::NEVER,
            first_byte_at: Time::NEVER,
            completed_at: Time::NEVER,
            outcome: Outcome::Unfinished,
            status: 0,
            code: 0,
            body_bytes: 0,
            replays: 0,
            stall_open_ns: 0,
            stall_socket_ns: 0,
            stall_window_ns: 0,
            measured,
            kind: 0,
            number: 0,
        }
    }

    /// Completed − scheduled: a user's waiting time. The age at the cut if unfinished.
    pub const fn response_time(&self) -> Duration {
        self.completed_at.since(self.scheduled_at)
    }

    /// The same in nanoseconds.
    pub const fn response_ns(&self) -> u64 {
        self.completed_at.nanos_since(self.scheduled_at)
    }

    /// Completed − sent.
    pub const fn service_time(&self) -> Duration {
        self.completed_at.since(self.sent_at)
    }

    /// First byte − sent; `None` if no response began.
    pub fn time_to_first_byte(&self) -> Option<Duration> {
        self.first_byte_at.happened().then(|| self.first_byte_at.since(self.sent_at))
    }

    /// How late the generator itself was: sent − scheduled, without the time that the request waited for a connection, a
    /// stream or the socket, which are due to the server and the link.
    pub fn lateness(&self) -> Option<Duration> {
        self.sent_at.happened().then(|| {
            let waited = Duration::from_nanos(self.stall_open_ns + self.stall_socket_ns);
            self.sent_at.since(self.scheduled_at).saturating_sub(waited)
        })
    }
}
