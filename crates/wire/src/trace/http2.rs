//! HTTP/2 frames out of a byte stream (RFC 9113 §4.1): nine bytes of header, and of most payloads only the length.
//!
//! What precedes them is not a frame: the client's preface, which is skipped, and the heads of an HTTP/1.1 exchange
//! that upgraded, which go to the sink's `head_before`.

use super::frame::{BareFrame, Direction, FrameKind, Sink};
use crate::StreamId;

/// Bytes of a frame header.
pub(super) const HEADER: usize = 9;
/// Bytes of the client's connection preface (RFC 9113 §3.4).
pub(super) const PREFACE: u32 = 24;
/// Bytes of the longest payload of a first frame (RFC 9113 §4.2).
const LONGEST_FIRST: u32 = 1 << 14;
/// Window increments and stream ids have 31 bits; the topmost is reserved.
const LOW_31_BITS: u32 = 0x7fff_ffff;

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Frames {
    up: Stream,
    down: Stream,
}

impl Frames {
    pub(super) fn feed<S: Sink>(&mut self, direction: Direction, bytes: &[u8], sink: &mut S) {
        match direction {
            Direction::Up => self.up.feed(bytes, direction, sink),
            Direction::Down => self.down.feed(bytes, direction, sink),
        }
    }
}

/// The position of a direction before its first frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// The next byte decides what follows: the first frame is SETTINGS, whose length is below 2^16.
    #[default]
    Open,
    /// In a head of HTTP/1.1.
    Head {
        /// Bytes of its final CRLF CRLF that were seen.
        seen: u8,
        /// Bytes of it that were seen, at most 255.
        length: u8,
        /// It is a response other than 1xx: its server does not upgrade.
        is_final: bool,
    },
    /// Its first frame is under way, if it is one.
    First,
    /// Frames from here on.
    Over,
    /// What arrives is not HTTP/2.
    Foreign,
}

/// Where the status is in the first line of a response, `HTTP/1.1 101`.
const STATUS: u8 = 9;

impl Beginning {
    /// What is left after the heads at the front of `bytes`.
    fn take_heads<'a>(&mut self, bytes: &'a [u8], direction: Direction, sink: &mut impl Sink) -> &'a [u8] {
        let mut begin = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            *self = match *self {
                Self::Open if byte.is_ascii_uppercase() && byte != b'P' => {
                    Self::Head { seen: 0, length: 1, is_final: false }
                }
                Self::Head { seen: 3, is_final, .. } if byte == b'\n' => {
                    sink.head_before(&bytes[begin..=at], true);
                    begin = at + 1;
                    if is_final { Self::Foreign } else { Self::Open }
                }
                Self::Head { seen, length, is_final } => {
                    let is_next = byte == b"\r\n\r\n"[usize::from(seen)];
                    let is_status = length == STATUS && direction == Direction::Down;
                    Self::Head {
                        seen: if is_next { seen + 1 } else { u8::from(byte == b'\r') },
                        length: length.saturating_add(1),
                        is_final: is_final || is_status && byte != b'1',
                    }
                }
                Self::Open | Self::First | Self::Over | Self::Foreign => return &bytes[at..],
            };
        }
        sink.head_before(&bytes[begin..], false);
        &[]
    }
}

/// One direction: where it is in the current frame.
#[derive(Debug, Default)]
struct Stream {
    beginning: Beginning,
    header: [u8; HEADER],
    /// Bytes of `header` that are there.
    have: usize,
    /// Bytes of payload (or preface) still to come.
    left: u32,
    /// The frame whose payload is under way, if it has not been reported yet.
    waiting: Option<BareFrame>,
}

impl Stream {
    fn feed<S: Sink>(&mut self, mut bytes: &[u8], direction: Direction, sink: &mut S) {
        // A frame that we send is reported when its header is there rather than when it is complete.
        let early = direction == Direction::Up && !S::WHOLE;
        if matches!(self.beginning, Beginning::Open | Beginning::Head { .. }) {
            bytes = self.beginning.take_heads(bytes, direction, sink);
            let Some(first) = bytes.first() else { return };
            if self.beginning == Beginning::Open {
                self.left = if *first == b'P' { PREFACE } else { 0 };
                self.beginning = Beginning::First;
            }
        }
        if self.beginning == Beginning::Foreign {
            return;
        }
        loop {
            // Most frames are whole in one read.
            while self.beginning == Beginning::Over
                && self.is_between()
                && let Some((frame, payload, rest)) = whole(bytes)
            {
                if S::WHOLE {
                    sink.begin(frame);
                    sink.payload(payload);
                }
                sink.frame(frame);
                bytes = rest;
            }
            bytes = self.take_payload(bytes, sink);
            if self.left > 0 {
                return;
            }
            if let Some(mut frame) = self.waiting.take() {
                if frame.kind == FrameKind::WINDOW_UPDATE {
                    frame.value &= LOW_31_BITS;
                }
                sink.frame(frame);
            }
            let n = bytes.len().min(HEADER - self.have);
            self.header[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            self.have += n;
            bytes = &bytes[n..];
            if self.have < HEADER {
                return;
            }
            self.have = 0;
            let frame = parse(self.header);
            if self.beginning == Beginning::First {
                // Text and TLS, read as a frame, have a longer length: nothing longer may be sent before the settings
                // are known.
                let is_frame = frame.length <= LONGEST_FIRST;
                self.beginning = if is_frame { Beginning::Over } else { Beginning::Foreign };
                if !is_frame {
                    return;
                }
            }
            self.left = frame.length;
            if early && value_offset(frame.kind).is_none() {
                sink.frame(frame);
            } else {
                if S::WHOLE {
                    sink.begin(frame);
                }
                self.waiting = Some(frame);
            }
        }
    }

    /// Whether the next byte begins a frame.
    const fn is_between(&self) -> bool {
        self.left == 0 && self.have == 0 && self.waiting.is_none()
    }

    /// Skips payload, picking out the number that some frames carry.
    fn take_payload<'a, S: Sink>(&mut self, bytes: &'a [u8], sink: &mut S) -> &'a [u8] {
        let n = bytes.len().min(self.left as usize);
        if S::WHOLE && self.waiting.is_some() {
            sink.payload(&bytes[..n]);
        }
        if let Some(frame) = &mut self.waiting
            && let Some(offset) = value_offset(frame.kind)
        {
            let at = (frame.length - self.left) as usize;
            let (from, to) = (offset.max(at), (offset + 4).min(at + n));
            for &byte in bytes.get(from.wrapping_sub(at)..to.saturating_sub(at)).unwrap_or_default() {
                frame.value = frame.value << 8 | u32::from(byte);
            }
        }
        self.left -= n as u32;
        &bytes[n..]
    }
}

/// The frame that `bytes` begin with, its payload, and what follows, if all of it is there.
fn whole(bytes: &[u8]) -> Option<(BareFrame, &[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let mut frame = parse(*header);
    let (payload, rest) = rest.split_at_checked(frame.length as usize)?;
    if let Some(offset) = value_offset(frame.kind) {
        // A truncated number is read as far as it goes, as when it comes in pieces.
        for &byte in payload.iter().skip(offset).take(4) {
            frame.value = frame.value << 8 | u32::from(byte);
        }
        if frame.kind == FrameKind::WINDOW_UPDATE {
            frame.value &= LOW_31_BITS;
        }
    }
    Some((frame, payload, rest))
}

/// Where in the payload the 32-bit number stands that [`FrameEvent::value`](super::FrameEvent::value) shows.
pub(super) const fn value_offset(kind: FrameKind) -> Option<usize> {
    match kind {
        FrameKind::WINDOW_UPDATE | FrameKind::RST_STREAM => Some(0),
        FrameKind::GOAWAY => Some(4),
        _ => None,
    }
}

fn parse(header: [u8; HEADER]) -> BareFrame {
    let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = header;
    BareFrame {
        stream: StreamId(u32::from_be_bytes([s0, s1, s2, s3]) & LOW_31_BITS),
        length: u32::from_be_bytes([0, l0, l1, l2]),
        value: 0,
        kind: FrameKind(kind),
        flags,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Dialect, FrameEvent, Tap};
    use super::*;
    use h2lab_base::units::Time;

    /// A frame on the wire.
    fn wire(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// What a tap reports when `bytes` come in pieces, one per millisecond.
    fn tapped(direction: Direction, pieces: impl Iterator<Item = Vec<u8>>) -> Vec<FrameEvent> {
        let (mut tap, mut events) = (Tap::new(Dialect::Http2, 7), Vec::new());
        for (n, piece) in pieces.enumerate() {
            tap.feed(Time::from_millis(n as u64), direction, &piece, &mut |event| events.push(event));
        }
        events
    }

    fn preface() -> Vec<u8> {
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()
    }

    #[test]
    fn the_numbers_that_rules_need_are_picked_out() {
        let bytes = [
            preface(),
            wire(4, 0, 0, &[0, 3, 0, 0, 0, 100]),
            wire(8, 0, 0, &0x8000_ffff_u32.to_be_bytes()),
            wire(1, 5, 1, b"block"),
            wire(3, 0, 1, &8_u32.to_be_bytes()),
            wire(7, 0, 0, &[0, 0, 7, 207, 0, 0, 0, 11, b'c', b'a', b'l', b'm']),
            wire(0, 1, 0x8000_0003, b""),
            wire(0xf0, 0, 5, b"unknown"),
        ]
        .concat();
        let events = tapped(Direction::Up, std::iter::once(bytes));
        let seen: Vec<_> = events.iter().map(|e| (e.to_string(), e.length, e.value, e.flags)).collect();
        let expected = [
            ("SETTINGS[0]", 6, 0, 0),
            ("WINDOW_UPDATE[0]", 4, 0xffff, 0),
            ("HEADERS[1]", 5, 0, 5),
            ("RST_STREAM[1]", 4, 8, 0),
            ("GOAWAY[0]", 12, 11, 0),
            ("DATA[3]", 0, 0, 1),
            ("0xf0[5]", 7, 0, 0),
        ];
        assert_eq!(
            seen,
            expected.map(|(name, length, value, flags)| (name.to_owned(), length, value, flags))
        );
        assert!(events.iter().all(|event| event.connection == 7 && event.direction == Direction::Up));
    }

    #[test]
    fn what_comes_before_an_upgrade_is_passed_over_however_it_is_cut() {
        let up = [b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(), preface(), wire(4, 0, 0, &[])].concat();
        let down = [
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n".to_vec(),
            wire(4, 0, 0, &[]),
        ]
        .concat();
        for (direction, bytes) in [(Direction::Up, up), (Direction::Down, down)] {
            for step in 1..bytes.len() {
                let events = tapped(direction, bytes.chunks(step).map(<[u8]>::to_vec));
                let seen: Vec<_> = events.iter().map(ToString::to_string).collect();
                assert_eq!(seen, ["SETTINGS[0]"], "{direction:?} in steps of {step}");
            }
        }
    }

    #[test]
    fn what_is_no_http2_is_not_taken_for_frames_however_it_is_cut() {
        let refused = b"HTTP/1.0 404 Not Found\r\n\r\n".to_vec();
        let settings = wire(4, 0, 0, &[]);
        for (bytes, seen) in [
            (b"<!DOCTYPE HTML>\n<html lang=\"en\">".to_vec(), &[][..]),
            (vec![0x15, 3, 1, 0, 2, 2, 40, 0, 0, 0], &[][..]),
            ([&refused[..], b"<!DOCTYPE HTML>\n<html>"].concat(), &[][..]),
            ([&refused[..], b"Not found\r\n\r\n"].concat(), &[][..]),
            ([&refused[..], &settings].concat(), &[][..]),
            (settings, &["SETTINGS[0]"][..]),
        ] {
            for step in 1..=bytes.len() {
                let events = tapped(Direction::Down, bytes.chunks(step).map(<[u8]>::to_vec));
                let names: Vec<_> = events.iter().map(ToString::to_string).collect();
                assert_eq!(names, seen, "{bytes:?} in steps of {step}");
            }
        }
    }

    #[test]
    fn a_frame_counts_when_its_last_byte_arrives_and_when_its_header_leaves() {
        let pieces = || wire(0, 0, 1, b"abc").into_iter().map(|byte| vec![byte]);
        assert_eq!(tapped(Direction::Down, pieces())[0].at, Time::from_millis(11));
        assert_eq!(tapped(Direction::Up, pieces())[0].at, Time::from_millis(8));
    }

    #[test]
    fn short_payloads_of_malformed_frames_do_no_harm() {
        for kind in [3, 7, 8] {
            let bytes = [wire(kind, 0, 0, &[1]), wire(6, 1, 0, &[0; 8])].concat();
            let events = tapped(Direction::Down, std::iter::once(bytes));
            assert_eq!(events.len(), 2);
        }
    }

    proptest! {
        #[test]
        fn frames_come_out_alike_however_the_bytes_are_cut(
            frames in prop::collection::vec((0..12_u8, any::<u8>(), any::<u32>(), 0..400_usize), 1..20),
            cuts in prop::collection::vec(1..60_usize, 1..20),
            up in any::<bool>(),
        ) {
            let direction = if up { Direction::Up } else { Direction::Down };
            let mut bytes = if up { preface() } else { Vec::new() };
            for (kind, flags, stream, size) in &frames {
                let payload: Vec<u8> = (0..*size).map(|n| n as u8).collect();
                bytes.extend(wire(*kind, *flags, *stream, &payload));
            }
            let (mut rest, mut cuts) = (&bytes[..], cuts.iter().cycle());
            let pieces = std::iter::from_fn(|| {
                let (piece, after) = rest.split_at_checked(*cuts.next()?).unwrap_or((rest, &[]));
                rest = after;
                (!piece.is_empty()).then(|| piece.to_vec())
            });
            let forget_time = |events: Vec<FrameEvent>| -> Vec<_> {
                events.into_iter().map(|event| FrameEvent { at: Time::ZERO, ..event }).collect()
            };
            let cut = forget_time(tapped(direction, pieces));
            let whole = forget_time(tapped(direction, std::iter::once(bytes.clone())));
            prop_assert_eq!(cut.len(), frames.len());
            prop_assert_eq!(cut, whole);
        }
    }
}
