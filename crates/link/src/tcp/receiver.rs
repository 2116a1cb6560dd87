//! The receiving half: bytes come out in order, or not at all until the missing ones have come.

use std::collections::{BTreeMap, VecDeque};

use h2lab_base::units::Time;

use super::{Config, Segment};

/// Ranges that one acknowledgement has room for beside the timestamps.
const SACK_BLOCKS: usize = 3;

/// What has arrived, and which acknowledgements are due for it.
#[derive(Debug)]
pub(super) struct Receiver {
    config: Config,
    /// The first byte that has not arrived.
    next: u64,
    /// In order, for the application.
    ready: VecDeque<u8>,
    /// Beyond a hole, by first byte.
    beyond: BTreeMap<u64, Vec<u8>>,
    /// First byte of the segment beyond a hole that came last: its range is reported first (RFC 2018 §4).
    newest: u64,
    /// Where the peer's stream ends, once its FIN was seen.
    end: Option<u64>,
    /// Segments that came in order and are not acknowledged.
    owed: u32,
    /// When the acknowledgement leaves in a segment of its own; [`Time::NEVER`] if none is owed.
    ack_at: Time,
    /// One past the last byte that the announced window lets the peer send.
    announced: u64,
}

impl Receiver {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            next: 1,
            ready: VecDeque::new(),
            beyond: BTreeMap::new(),
            newest: 0,
            end: None,
            owed: 0,
            ack_at: Time::NEVER,
            announced: 1 + config.receive_buffer as u64,
        }
    }

    /// Takes in a segment's payload and FIN.
    pub fn take(&mut self, now: Time, segment: Segment) {
        let Segment { seq, payload, fin, probe, .. } = segment;
        let length = payload.len() as u64;
        if length == 0 && !fin {
            if probe {
                self.ack_at = now;
            }
            return;
        }
        let last = seq + length;
        let fits = last <= self.next + self.room();
        if fin && fits {
            self.end = Some(last);
        }
        let in_order = seq == self.next && self.beyond.is_empty() && !fin && fits;
        if fits && seq >= self.next && length > 0 {
            self.newest = seq;
            self.beyond.entry(seq).or_insert(payload);
            self.advance();
        }
        self.owed += 1;
        // Anything out of the ordinary is acknowledged at once: the sender repairs its losses by it.
        if !in_order || self.owed >= 2 || self.config.delayed_ack.is_zero() {
            self.ack_at = now;
        } else {
            self.ack_at = self.ack_at.min(now + self.config.delayed_ack);
        }
    }

    /// Moves what has become contiguous to the application.
    fn advance(&mut self) {
        while let Some(piece) = self.beyond.remove(&self.next) {
            self.next += piece.len() as u64;
            self.ready.extend(piece);
        }
    }

    /// Bytes from `next` on that there is room for.
    fn room(&self) -> u64 {
        (self.config.receive_buffer.saturating_sub(self.ready.len())) as u64
    }

    /// Gives the application up to `space.len()` bytes.
    pub fn read(&mut self, now: Time, space: &mut [u8]) -> usize {
        let n = space.len().min(self.ready.len());
        let (front, back) = self.ready.as_slices();
        let in_front = n.min(front.len());
        space[..in_front].copy_from_slice(&front[..in_front]);
        space[in_front..n].copy_from_slice(&back[..n - in_front]);
        self.ready.drain(..n);
        // As Linux does: a window that had become small is announced when reading has at least doubled it.
        let left = self.announced.saturating_sub(self.next);
        let small = left <= self.config.receive_buffer as u64 / 2;
        if n > 0 && small && self.room() >= 2 * left {
            self.ack_at = now;
        }
        n
    }

    /// Whether bytes have come that wait for others before them.
    pub fn has_hole(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Bytes that the application may read now.
    pub fn readable(&self) -> usize {
        self.ready.len()
    }

    /// Whether the application has read everything up to the peer's FIN.
    pub fn is_at_end(&self) -> bool {
        self.end == Some(self.next) && self.ready.is_empty()
    }

    /// When an acknowledgement must leave if nothing carries it before.
    pub fn ack_at(&self) -> Time {
        self.ack_at
    }

    /// Writes the acknowledgement into a segment that is about to leave.
    pub fn acknowledge(&mut self, segment: &mut Segment) {
        segment.ack = self.next + u64::from(self.end == Some(self.next));
        segment.window = self.room();
        segment.sack = self.ranges();
        self.announced = self.next + segment.window;
        self.owed = 0;
        self.ack_at = Time::NEVER;
    }

    /// The ranges beyond the first hole, the newest first.
    fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (&first, piece) in &self.beyond {
            let end = first + piece.len() as u64;
            match ranges.last_mut() {
                Some(last) if last.1 == first => last.1 = end,
                _ => ranges.push((first, end)),
            }
        }
        let newest = |range: &(u64, u64)| (range.0..range.1).contains(&self.newest);
        if let Some(at) = ranges.iter().position(newest) {
            ranges[..=at].rotate_right(1);
        }
        ranges.truncate(SACK_BLOCKS);
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(1_000);

    fn receiver(receive_buffer: usize) -> Receiver {
        Receiver::new(Config { receive_buffer, ..Config::default() })
    }

    fn data(seq: u64, payload: &[u8]) -> Segment {
        Segment { seq, payload: payload.to_vec(), ..Segment::default() }
    }

    fn read(receiver: &mut Receiver, n: usize) -> Vec<u8> {
        let mut space = vec![0; n];
        let n = receiver.read(NOW, &mut space);
        space.truncate(n);
        space
    }

    fn rendered(receiver: &mut Receiver) -> (u64, u64, Vec<(u64, u64)>) {
        let mut segment = Segment::default();
        receiver.acknowledge(&mut segment);
        (segment.ack, segment.window, segment.sack)
    }

    #[test]
    fn bytes_behind_a_hole_wait_for_it() {
        let mut receiver = receiver(100);
        receiver.take(NOW, data(4, b"def"));
        assert_eq!(receiver.readable(), 0);
        assert_eq!(rendered(&mut receiver), (1, 100, vec![(4, 7)]));
        receiver.take(NOW, data(1, b"abc"));
        assert_eq!(read(&mut receiver, 99), b"abcdef");
        assert_eq!(rendered(&mut receiver), (7, 100, vec![]));
    }

    #[test]
    fn one_segment_may_wait_for_its_acknowledgement_and_two_may_not() {
        let mut receiver = receiver(100);
        receiver.take(NOW, data(1, b"a"));
        assert_eq!(receiver.ack_at(), Time::from_millis(1_040));
        receiver.take(NOW, data(2, b"b"));
        assert_eq!(receiver.ack_at(), NOW);
        rendered(&mut receiver);
        assert_eq!(receiver.ack_at(), Time::NEVER);
    }

    #[test]
    fn a_segment_out_of_order_or_repeated_is_acknowledged_at_once() {
        for seq in [1, 5] {
            let mut receiver = receiver(100);
            receiver.take(NOW, data(1, b"a"));
            rendered(&mut receiver);
            receiver.take(NOW, data(seq, b"a"));
            assert_eq!(receiver.ack_at(), NOW, "{seq}");
        }
    }

    #[test]
    fn the_newest_range_is_reported_first_and_neighbours_are_one_range() {
        let mut receiver = receiver(100);
        for seq in [3, 4, 7, 9, 11, 8] {
            receiver.take(NOW, data(seq, b"x"));
        }
        assert_eq!(rendered(&mut receiver).2, [(7, 10), (3, 5), (11, 12)]);
    }

    #[test]
    fn what_does_not_fit_the_window_is_refused_and_reading_reopens_it() {
        let mut receiver = receiver(4);
        receiver.take(NOW, data(1, b"abcd"));
        assert_eq!(rendered(&mut receiver), (5, 0, vec![]));
        receiver.take(NOW, data(5, b"e"));
        assert_eq!(rendered(&mut receiver), (5, 0, vec![]), "not taken, but answered");
        assert_eq!(read(&mut receiver, 3), b"abc");
        assert_eq!(receiver.ack_at(), NOW);
        assert_eq!(rendered(&mut receiver).1, 3);
    }

    #[test]
    fn the_end_comes_after_the_last_byte_was_read() {
        let mut receiver = receiver(100);
        receiver.take(NOW, Segment { fin: true, ..data(2, b"") });
        assert!(!receiver.is_at_end());
        receiver.take(NOW, data(1, b"a"));
        assert!(!receiver.is_at_end());
        assert_eq!(rendered(&mut receiver).0, 3, "FIN counts as a byte");
        read(&mut receiver, 9);
        assert!(receiver.is_at_end());
    }
}
