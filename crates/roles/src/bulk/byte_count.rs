//! Bytes over time, counted when they have moved.

use h2lab_base::units::Time;
use h2lab_model::bulk::ByteMeter;

/// Counts bytes when they have moved. Those of a download have when they arrive. Those of an upload are handed to an
/// engine and a socket first, which take some MiB at once: they count when the server's kernel has acknowledged them.
/// Counted when they were handed over, the first intervals would show a rate that no path had, and the sum over time
/// would be ahead of the server's.
#[derive(Debug)]
pub(super) struct ByteCount {
    meter: ByteMeter,
    /// Handed over, and not counted yet.
    pending: u64,
    /// When it was last looked up what has moved.
    settled_at: Time,
}

impl ByteCount {
    /// Of transfers whose first request was sent at `began`.
    pub const fn new(began: Time) -> Self {
        Self { meter: ByteMeter::new(began), pending: 0, settled_at: began }
    }

    /// What was counted.
    pub const fn meter(&self) -> &ByteMeter {
        &self.meter
    }

    /// `fresh` bytes were handed over, or arrived. `back` bytes that were reported before are to be sent again, or have
    /// not left us: those that were not counted yet are not counted at all, and the others are taken back.
    pub fn note(&mut self, fresh: u64, back: u64) {
        self.pending += fresh;
        let uncounted = back.min(self.pending);
        self.pending -= uncounted;
        self.meter.take_back(back - uncounted);
    }

    /// Counts what was handed over until `now`, but for the last `behind` bytes of it: evenly over the time since the
    /// last call, in which it moved.
    pub fn settle(&mut self, now: Time, behind: u64) {
        let moved = self.pending.saturating_sub(behind);
        self.pending -= moved;
        self.meter.add_over(self.settled_at, now, moved);
        self.settled_at = self.settled_at.max(now);
    }

    /// What was counted, when all is over.
    pub fn into_meter(self) -> ByteMeter {
        self.meter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn what_lies_in_a_buffer_counts_when_it_has_left() {
        let mut count = ByteCount::new(ms(0));
        // A socket takes 4 MB at once, and the path 1 MB per 100 ms.
        count.note(4_000_000, 0);
        count.settle(ms(0), 4_000_000);
        assert_eq!((count.meter().total(), count.meter().ended()), (0, ms(0)));
        for tick in 0..4_u64 {
            count.settle(ms(100 * tick + 100), 3_000_000 - 1_000_000 * tick);
        }
        assert_eq!(count.meter().intervals(), [1_000_000; 4]);
        // Heads of frames wait, too: more than was handed over of bodies.
        count.note(100, 0);
        count.settle(ms(410), 109);
        assert_eq!(count.meter().total(), 4_000_000);
        count.settle(ms(450), 0);
        assert_eq!(count.into_meter().total(), 4_000_100);
    }

    #[test]
    fn bytes_that_are_looked_up_late_count_when_they_moved() {
        let mut count = ByteCount::new(ms(0));
        // A steady 1,000 bytes per ms, looked up every 80 ms; the last look-up is 16 ms into an interval.
        for tick in 1..=27 {
            count.note(80_000, 0);
            count.settle(ms(80 * tick), 0);
        }
        count.note(56_000, 0);
        count.settle(ms(2_216), 0);
        let meter = count.into_meter();
        assert_eq!((meter.total(), meter.intervals().len()), (2_216_000, 23));
        assert!(meter.intervals()[..22].iter().all(|&bytes| bytes == 100_000), "{:?}", meter.intervals());
        assert_eq!(meter.intervals()[22], 16_000);
    }

    #[test]
    fn what_has_not_left_is_never_counted_and_what_is_sent_again_is_taken_back() {
        let mut count = ByteCount::new(ms(0));
        count.note(1000, 0);
        count.settle(ms(10), 400);
        // It ends: 400 bytes are still in the socket.
        count.note(0, 400);
        count.settle(ms(20), 0);
        assert_eq!((count.meter().total(), count.meter().ended()), (600, ms(10)));
        count.note(50, 80);
        count.settle(ms(30), 0);
        assert_eq!((count.meter().total(), count.meter().ended()), (570, ms(10)));
    }
}
