//! One direction of a TCP connection as a capture shows it: bytes in order, what was sent again, what is missing.

use std::time::Duration;

use crate::diagnose::waits::assembly::Assembly;
use crate::diagnose::waits::flow::Numbers;
use crate::diagnose::waits::segment::{Segment, flag};
use h2lab_base::units::Time;

/// The most bytes held while earlier ones are missing: what a path of 1 Gbit/s and 30 ms has in flight.
const HELD: usize = 4 << 20;
/// If this many bytes are held although the receiver has acknowledged the missing ones, the missing ones are not in the
/// capture.
const HELD_ACKNOWLEDGED: usize = 256 << 10;
/// A segment that arrives sooner than this after a later one was reordered in the network, not sent again.
const LEAST_REPAIR: Duration = Duration::from_millis(3);

/// The kind of a segment with payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its bytes were new, and came next or after a hole.
    New,
    /// It arrived after later ones: reordered in the network.
    Overtaken,
    /// It was sent again: its bytes had been seen, or it fills a hole later than reordering could.
    Again,
    /// It has nothing of the stream: a keep-alive probe.
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
    /// The largest segment that the receiver accepts, if it announced one.
    pub mss: Option<u16>,
    /// Segments with payload.
    pub segments: u32,
    /// Those that were sent again.
    pub again: u32,
    /// Segments larger than the receiver accepts: they were captured before the device split them, or after it merged
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
    /// Processes the next segment of this direction. `length` is that of its payload on the wire; `sink` gets the bytes
    /// that are next in order, with the place of the first.
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

    /// The receiver has acknowledged all bytes before this number.
    pub fn acknowledge(&mut self, number: u32) {
        let Some(place) = self.numbers.and_then(|numbers| numbers.place(number)) else { return };
        self.acked = self.acked.max(place);
        if self.acked > self.bytes.next() && self.bytes.held() > HELD_ACKNOWLEDGED {
            self.bytes.lose();
        }
    }

    /// Whether the receiver has acknowledged all bytes seen.
    pub const fn is_acknowledged(&self) -> bool {
        self.acked >= self.highest
    }

    /// Whether bytes are missing that the receiver has: the capture lost them. A FIN counts as one byte.
    pub const fn has_missing(&self) -> bool {
        self.cut == 0 && (self.bytes.is_broken() || self.acked > self.bytes.next() + 1)
    }
}
