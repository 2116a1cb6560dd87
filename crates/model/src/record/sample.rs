//! One request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Outcome;
use h2lab_base::packed::{Pack, Packed};
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

/// Many requests, in the order of `scheduled_at`: about 15 bytes each.
pub type Samples = Packed<Sample, 17>;

/// Each time is told from the one before it: how long a step takes is alike for neighbours.
impl Pack<17> for Sample {
    fn to_numbers(&self) -> [u64; 17] {
        let times = [self.scheduled_at, self.sent_at, self.first_byte_at, self.completed_at];
        let [due, sent, first_byte, completed] = times.map(Time::as_nanos);
        [
            due,
            sent.wrapping_sub(due),
            first_byte.wrapping_sub(sent),
            completed.wrapping_sub(first_byte),
            self.connection.into(),
            self.stream.0.into(),
            self.number.into(),
            self.stall_open_ns,
            self.stall_socket_ns,
            self.stall_window_ns,
            self.body_bytes,
            self.outcome as u64,
            self.status.into(),
            self.code.into(),
            self.replays.into(),
            self.measured.into(),
            self.kind.into(),
        ]
    }

    fn from_numbers(numbers: [u64; 17]) -> Self {
        let [due, sent, first_byte, completed, connection, stream, number, ..] = numbers;
        let [.., open, socket, window, body_bytes, outcome, status, code, replays, measured, kind] = numbers;
        let sent = due.wrapping_add(sent);
        let first_byte = sent.wrapping_add(first_byte);
        let completed = first_byte.wrapping_add(completed);
        Self {
            connection: connection as u32,
            stream: StreamId(stream as u32),
            scheduled_at: Time::from_nanos(due),
            sent_at: Time::from_nanos(sent),
            first_byte_at: Time::from_nanos(first_byte),
            completed_at: Time::from_nanos(completed),
            outcome: Outcome::ALL[outcome as usize],
            status: status as u16,
            code: code as u32,
            body_bytes,
            replays: replays as u8,
            stall_open_ns: open,
            stall_socket_ns: socket,
            stall_window_ns: window,
            measured: measured != 0,
            kind: kind as u16,
            number: number as u32,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The n-th of two million in five seconds over four connections.
    fn usual(n: u32) -> Sample {
        let due = Time::from_nanos(u64::from(n) * 2_500);
        let after = |ns: u64| {
            Time::from_nanos(due.as_nanos() + ns + u64::from(n.wrapping_mul(2_654_435_761) % 50_000))
        };
        Sample {
            connection: n % 4,
            stream: StreamId(n / 4 * 2 + 1),
            sent_at: after(1_000),
            first_byte_at: after(200_000),
            completed_at: after(201_000),
            outcome: Outcome::Succeeded,
            status: 200,
            body_bytes: 100,
            ..Sample::due(due, true)
        }
    }

    #[test]
    fn samples_come_out_of_the_packed_form_as_they_were() {
        let never = Sample::due(Time::NEVER, false);
        let largest = Sample {
            connection: u32::MAX - 1,
            stream: StreamId(u32::MAX),
            status: u16::MAX,
            code: u32::MAX,
            body_bytes: u64::MAX,
            replays: u8::MAX,
            stall_open_ns: u64::MAX,
            stall_socket_ns: u64::MAX - 1,
            stall_window_ns: u64::MAX - 2,
            kind: u16::MAX,
            number: u32::MAX,
            ..usual(7)
        };
        let only_completed = Sample { completed_at: Time::from_millis(3), ..Sample::due(Time::ZERO, true) };
        let ended = Outcome::ALL.iter().zip(10..).map(|(&outcome, n)| Sample { outcome, ..usual(n) });
        let mut samples = vec![never, usual(0), largest, only_completed, never, only_completed, usual(1)];
        samples.extend(ended.chain((0..3_000).map(usual)));
        let packed: Samples = samples.iter().copied().collect();
        assert_eq!(packed.iter().collect::<Vec<Sample>>(), samples);
        assert_eq!(packed.get(2), Some(largest));
    }

    #[test]
    fn usual_samples_take_no_more_than_20_bytes_each() {
        let packed: Samples = (0..100_000).map(usual).collect();
        assert!(packed.bytes() <= 100_000 * 20, "{}", packed.bytes());
    }
}
