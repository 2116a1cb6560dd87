//! One direction of a TCP connection as a capture has it: bytes in order, what was sent again, what is missing.

use std::time::Duration;

use crate::diagnose::waits::assembly::Assembly;
use crate::diagnose::waits::flow::Numbers;
use crate::diagnose::waits::segment::{Segment, flag};
use h2lab_base::units::Time;

/// The most bytes held while earlier ones are missing: what a path of 1 Gbit/s and 30 ms has in flight.
const HELD: usize = 4 << 20;
/// With so many bytes held although the receiver has acknowledged the missing ones, these are not in the capture.
const HELD_ACKNOWLEDGED: usize = 256 << 10;
/// What comes sooner than this behind a later segment was overtaken on the way, rather than sent again.
const LEAST_REPAIR: Duration = Duration::from_millis(3);

/// What a segment with payload was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its bytes were new, and next or behind a hole.
    New,
    /// It came behind later ones: overtaken on the way.
    Overtaken,
    /// It was sent again: its bytes had been seen, or it fills a hole later than anything is overtaken.
    Again,
    /// It says nothing of the stream: a probe that a connection is alive.
    Probe,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Half {
    numbers: Option<Numbers>,
    bytes: Assembly<HELD>,
    /// The end of the last byte seen.
    highest: u64,
    /// Since when bytes have been missing before later ones; [`Time::NEVER`] if none are.
    hole_since: Time,
    /// What the receiver has acknowledged.
    acked: u64,
    /// The largest segment that the receiver takes, if it said so.
    pub mss: Option<u16>,
    /// Segments with payload.
    pub segments: u32,
    /// Those that were sent again.
    pub again: u32,
    /// Segments larger than the receiver takes: the capture has them as they were before the device cut them, or after it merged
    /// them.
    pub large: u32,
    /// Segments whose payload was not kept whole.
    pub cut: u32,
}

impl Default for Half {
    fn default() -> Self {
        Self {
            numbers: None,
            bytes: Assembly::default(),
            highest: 0,
            hole_since: Time::NEVER,
            acked: 0,
            mss: None,
            segments: 0,
            again: 0,
            large: 0,
            cut: 0,
        }
    }
}

impl Half {
    /// The next segment of this direction. `length` is that of its payload on the wire; `sink` is given the bytes that are next in
    /// order, with the place of the first.
    pub fn take(
        &mut self,
        now: Time,
        segment: &Segment<'_>,
        length: u64,
        rtt: Duration,
        sink: &mut impl FnMut(u64, &[u8]),
    ) -> Kind {
        let is_syn = segment.flags & flag::SYN != 0;
        let numbers = self.numbers.get_or_insert_with(|| {
            if is_syn { Numbers::behind(segment.seq) } else { Numbers::from_first(segment.seq) }
        });
        if is_syn || length == 0 {
            return Kind::Probe;
        }
        let Some(start) = numbers.place(segment.seq) else { return Kind::Again };
        let end = start + length;
        if length == 1 && end == self.bytes.next() && self.acked >= end {
            return Kind::Probe;
        }
        numbers.advance(end);
        self.segments += 1;
        let most = self.mss.map_or(usize::MAX, usize::from);
        self.large += u32::from(segment.payload.len() > most);
        let kind = self.kind(now, start..end, rtt);
        self.again += u32::from(kind == Kind::Again);
        if start > self.highest {
            self.hole_since = self.hole_since.min(now);
        }
        self.highest = self.highest.max(end);
        self.bytes.add(start, segment.payload, sink);
        if (segment.payload.len() as u64) < length {
            self.cut += 1;
            self.bytes.lose();
        }
        if self.bytes.next() >= self.highest {
            self.hole_since = Time::NEVER;
        }
        kind
    }

    fn kind(&self, now: Time, bytes: std::ops::Range<u64>, rtt: Duration) -> Kind {
        if bytes.end <= self.bytes.next() || self.bytes.holds(&bytes) {
            return Kind::Again;
        }
        if bytes.start >= self.highest {
            return Kind::New;
        }
        let repair = LEAST_REPAIR.max(rtt * 3 / 4);
        if now.since(self.hole_since) >= repair { Kind::Again } else { Kind::Overtaken }
    }

    /// The receiver has acknowledged all before this number.
    pub fn acknowledge(&mut self, number: u32) {
        let Some(place) = self.numbers.and_then(|numbers| numbers.place(number)) else { return };
        self.acked = self.acked.max(place);
        if self.acked > self.bytes.next() && self.bytes.held() > HELD_ACKNOWLEDGED {
            self.bytes.lose();
        }
    }

    /// Whether bytes are missing that the receiver has: the capture lost them. A FIN counts as one.
    pub const fn has_missing(&self) -> bool {
        self.cut == 0 && (self.bytes.is_broken() || self.acked > self.bytes.next() + 1)
    }
}
