//! What was sent and has come: whether the peer still has the connection is found out by that.

use std::time::Duration;

use h2lab_base::units::Time;
use quinn_proto::FrameStats;

use super::session::{End, QuicSession};

/// What the other host says of a datagram has come after so long.
const PAUSE: Duration = Duration::from_secs(1);

/// Datagrams that were sent without a pause of [`PAUSE`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Burst {
    /// When the last one before them was sent.
    before: Time,
    /// When the last of them was.
    last: Time,
    datagrams: usize,
}

impl Burst {
    /// So many more were sent.
    pub(super) fn sent(&mut self, datagrams: usize, now: Time) {
        if now.since(self.last) >= PAUSE {
            (self.before, self.datagrams) = (self.last, 0);
        }
        (self.last, self.datagrams) = (now, self.datagrams + datagrams);
    }

    /// When the one before was sent, if there is one alone.
    fn before_only(&self) -> Option<Time> {
        (self.datagrams == 1).then_some(self.before)
    }
}

/// What has come and was taken since the last time that nothing was left.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Intake {
    /// Bytes of datagrams that had come then.
    before: u64,
    /// Bytes of streams that were handed over since.
    taken: u64,
    /// What a stream may have that is not read.
    stream_window: u64,
}

impl Intake {
    /// None, with this window for each stream.
    pub(super) fn new(stream_window: u32) -> Self {
        Self { stream_window: stream_window.into(), ..Self::default() }
    }

    /// So many bytes were handed over.
    pub(super) const fn took(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes as u64);
    }

    /// Bytes that are left in so many streams, where so many have come in all.
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
    /// Bytes that have come and were not handed over, since nobody wants them yet: as many, or more by what datagrams have beside the bytes
    /// of streams, and never more than their windows. What waits for a gap to be filled is not among them.
    pub fn unread(&mut self) -> u64 {
        let come = self.proto.stats().udp_rx.bytes;
        self.intake.left(come, self.readable.len())
    }

    /// Counts that rise with each frame sent that the peer has to acknowledge, and with each that has come in a packet of the peer's own: what
    /// others send in its name has none.
    pub fn traffic(&self) -> (u64, u64) {
        let stats = self.proto.stats();
        let (sent, come) = (stats.frame_tx, stats.frame_rx);
        (asking(&sent), asking(&come) + come.acks + come.connection_close)
    }

    /// If one datagram alone was sent in the last second: when the one before it was. What the other host says now is about the one alone.
    pub fn before_only_datagram(&self) -> Option<Time> {
        self.burst.before_only()
    }

    /// Server: whether all that streams have ended with has arrived, so that the client is owed the end of the connection alone.
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
