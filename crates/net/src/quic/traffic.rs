//! Counts of what was sent and received, which show whether the peer still has the connection.

use std::time::Duration;

use h2lab_base::units::Time;
use quinn_proto::FrameStats;

use super::session::{End, QuicSession};

/// The time within which an error that the other host reports about a datagram arrives.
const PAUSE: Duration = Duration::from_secs(1);

/// Datagrams that were sent without a pause of [`PAUSE`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Burst {
    /// When the last one before them was sent.
    before: Time,
    /// When the last of them was sent.
    last: Time,
    datagrams: usize,
}

impl Burst {
    /// `datagrams` more were sent at `now`.
    pub(super) fn sent(&mut self, datagrams: usize, now: Time) {
        if now.since(self.last) >= PAUSE {
            (self.before, self.datagrams) = (self.last, 0);
        }
        (self.last, self.datagrams) = (now, self.datagrams + datagrams);
    }

    /// When the datagram before the burst was sent, if the burst is a single datagram.
    fn before_only(&self) -> Option<Time> {
        (self.datagrams == 1).then_some(self.before)
    }
}

/// What has arrived and was handed over since the last time that nothing was left unread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Intake {
    /// Bytes of datagrams that had arrived at that time.
    before: u64,
    /// Bytes of streams that were handed over since then.
    taken: u64,
    /// Bytes that a stream may have unread.
    stream_window: u64,
}

impl Intake {
    /// Nothing, with this window for each stream.
    pub(super) fn new(stream_window: u32) -> Self {
        Self { stream_window: stream_window.into(), ..Self::default() }
    }

    /// `bytes` bytes were handed over.
    pub(super) const fn took(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes as u64);
    }

    /// Bytes left unread in `streams` streams, where `come` bytes have arrived in all.
    fn left(&mut self, come: u64, streams: usize) -> u64 {
        if streams == 0 {
            (self.before, self.taken) = (come, 0);
            return 0;
        }
        let most = self.stream_window.saturating_mul(streams as u64);
        come.saturating_sub(self.before.saturating_add(self.taken)).min(most)
    }
}

impl QuicSession {
    /// Bytes that have arrived and were not handed over, since the engine does not want them yet. It is an upper bound,
    /// since it includes what datagrams have besides stream data, but it never exceeds the windows of the streams. Data
    /// that waits for a gap to be filled is not included.
    pub fn unread(&mut self) -> u64 {
        let come = self.proto.stats().udp_rx.bytes;
        self.intake.left(come, self.readable.len())
    }

    /// Two counters: frames sent that the peer has to acknowledge, and frames received in packets of the peer itself.
    /// Packets that others send in its name add nothing.
    pub fn traffic(&self) -> (u64, u64) {
        let stats = self.proto.stats();
        let (sent, come) = (stats.frame_tx, stats.frame_rx);
        (asking(&sent), asking(&come) + come.acks + come.connection_close)
    }

    /// If only one datagram was sent in the last second: when the one before it was sent. What the other host reports
    /// now is about the single datagram.
    pub fn before_only_datagram(&self) -> Option<Time> {
        self.burst.before_only()
    }

    /// Server: whether all data of the streams that have ended has arrived, so that only the end of the connection is
    /// still owed to the client.
    pub fn owes_only_the_end(&self) -> bool {
        matches!(&self.end, End::Server { unacknowledged } if unacknowledged.is_empty())
    }
}

/// Frames that a peer has to acknowledge (RFC 9000 §13.2.1).
fn asking(frames: &FrameStats) -> u64 {
    let about_the_connection =
        frames.crypto + frames.ping + frames.datagram + frames.ack_frequency + frames.immediate_ack;
    let about_paths =
        frames.path_challenge + frames.path_response + frames.new_connection_id + frames.retire_connection_id;
    let about_tokens = frames.new_token + u64::from(frames.handshake_done);
    let about_credit =
        frames.max_data + frames.max_stream_data + frames.data_blocked + frames.stream_data_blocked;
    let about_counts = frames.max_streams_bidi
        + frames.max_streams_uni
        + frames.streams_blocked_bidi
        + frames.streams_blocked_uni;
    let about_streams = frames.stream + frames.reset_stream + frames.stop_sending;
    about_the_connection + about_paths + about_tokens + about_credit + about_counts + about_streams
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_what_has_come_and_was_not_taken_within_the_windows() {
        let mut intake = Intake::new(1_000);
        assert_eq!(intake.left(5_000, 0), 0);
        assert_eq!(intake.left(5_600, 1), 600);
        intake.took(400);
        assert_eq!(
            [intake.left(5_600, 1), intake.left(9_000, 1), intake.left(9_000, 2)],
            [200, 1_000, 2_000]
        );
        intake.took(9_000);
        assert_eq!([intake.left(9_000, 1), intake.left(9_000, 0), intake.left(9_300, 1)], [0, 0, 300]);
    }

    #[test]
    fn a_datagram_is_alone_until_another_one_follows_within_a_second() {
        let (mut burst, at) = (Burst::default(), Time::from_millis);
        burst.sent(3, at(5_000));
        assert_eq!(burst.before_only(), None);
        burst.sent(1, at(6_000));
        assert_eq!(burst.before_only(), Some(at(5_000)));
        burst.sent(1, at(6_900));
        assert_eq!(burst.before_only(), None, "an error may be about either");
    }
}
