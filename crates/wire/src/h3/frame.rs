//! Frames (RFC 9114 §7), read from bytes that are cut anywhere.

use super::varint;
use crate::connection::FRAME_TYPES;

/// Frame types (RFC 9114 §7.2, RFC 9218 §7.2).
pub mod kind {
    /// DATA.
    pub const DATA: u64 = 0x0;
    /// HEADERS.
    pub const HEADERS: u64 = 0x1;
    /// `CANCEL_PUSH`.
    pub const CANCEL_PUSH: u64 = 0x3;
    /// SETTINGS.
    pub const SETTINGS: u64 = 0x4;
    /// PUSH_PROMISE.
    pub const PUSH_PROMISE: u64 = 0x5;
    /// GOAWAY.
    pub const GOAWAY: u64 = 0x7;
    /// `MAX_PUSH_ID`.
    pub const MAX_PUSH_ID: u64 = 0xd;
    /// `PRIORITY_UPDATE` of a request.
    pub const PRIORITY_UPDATE: u64 = 0xf_0700;
    /// `PRIORITY_UPDATE` of a push.
    pub const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;
}

/// Whether HTTP/2 has a frame of this type that HTTP/3 does not have, so that it must not be sent (RFC 9114 §7.2.8):
/// PRIORITY, PING, WINDOW_UPDATE, CONTINUATION.
pub(super) const fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// The slot of a type among the counters of frames; types that HTTP/2 does not have, or has under another number, share
/// the last.
pub(super) const fn slot(kind: u64) -> usize {
    match kind {
        kind::DATA | kind::HEADERS | kind::SETTINGS | kind::PUSH_PROMISE | kind::GOAWAY => kind as usize,
        _ => FRAME_TYPES.len() - 1,
    }
}

/// Appends the header of a frame.
pub(super) fn put_header(kind: u64, length: u64, out: &mut Vec<u8>) {
    varint::encode(kind, out);
    varint::encode(length, out);
}

/// How to treat a frame's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// It is passed on as it comes.
    Pass,
    /// It is kept until it is whole.
    Keep,
    /// It is thrown away.
    Skip,
}

/// What the reader found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The input is used up.
    Starved,
    /// A frame has begun: [`FrameReader::treat`] sets how to treat it.
    Begun {
        /// Its type.
        kind: u64,
        /// The length of its payload, in bytes.
        length: u64,
    },
    /// The bytes that were taken are payload to be passed on.
    Payload,
    /// The payload is whole: the bytes that were taken, or, if `kept`, what [`FrameReader::kept`] shows.
    Whole {
        /// The frame's type.
        kind: u64,
        /// It came in pieces.
        kept: bool,
    },
}

/// The longest frame header: two integers of 8 bytes.
pub const LONGEST_HEADER: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header,
    Payload { kind: u64, left: u64, treatment: Treatment },
}

/// Reads the frames of one stream.
#[derive(Debug)]
pub(super) struct FrameReader {
    header: [u8; LONGEST_HEADER],
    header_length: usize,
    state: State,
    kept: Vec<u8>,
}

impl FrameReader {
    pub(super) const fn new() -> Self {
        Self { header: [0; LONGEST_HEADER], header_length: 0, state: State::Header, kept: Vec::new() }
    }

    /// Whether no frame is under way.
    pub(super) fn is_between_frames(&self) -> bool {
        self.state == State::Header && self.header_length == 0
    }

    /// How to treat the frame that has just begun; by default it is skipped.
    pub(super) fn treat(&mut self, as_is: Treatment) {
        if let State::Payload { treatment, .. } = &mut self.state {
            *treatment = as_is;
        }
    }

    /// The payload of a frame that came in pieces and is whole.
    pub(super) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// The memory that it takes, in bytes.
    pub(super) const fn held(&self) -> usize {
        self.kept.capacity()
    }

    /// Takes the next step; returns how many bytes of `input` it took.
    pub(super) fn step(&mut self, input: &[u8]) -> (usize, Step) {
        match self.state {
            State::Header => self.read_header(input),
            // The end of a frame that is passed on or skipped is not an event.
            State::Payload { left: 0, treatment: Treatment::Pass | Treatment::Skip, .. } => {
                self.state = State::Header;
                self.read_header(input)
            }
            State::Payload { kind, left, treatment: Treatment::Keep } => self.keep(kind, left, input),
            State::Payload { kind, left, treatment } => {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let left = left - taken as u64;
                self.state = if left == 0 { State::Header } else { State::Payload { kind, left, treatment } };
                let passed = treatment == Treatment::Pass && taken > 0;
                (taken, if passed { Step::Payload } else { Step::Starved })
            }
        }
    }

    fn read_header(&mut self, input: &[u8]) -> (usize, Step) {
        let fresh = input.len().min(LONGEST_HEADER - self.header_length);
        let before = self.header_length;
        self.header[before..before + fresh].copy_from_slice(&input[..fresh]);
        let mut rest = &self.header[..before + fresh];
        let whole = rest.len();
        let (Some(kind), Some(length)) = (varint::take(&mut rest), varint::take(&mut rest)) else {
            self.header_length += fresh;
            return (fresh, Step::Starved);
        };
        let taken = whole - rest.len() - before;
        self.header_length = 0;
        self.kept.clear();
        self.state = State::Payload { kind, left: length, treatment: Treatment::Skip };
        (taken, Step::Begun { kind, length })
    }

    fn keep(&mut self, kind: u64, left: u64, input: &[u8]) -> (usize, Step) {
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let left = left - taken as u64;
        if left == 0 && self.kept.is_empty() {
            self.state = State::Header;
            return (taken, Step::Whole { kind, kept: false });
        }
        self.kept.extend_from_slice(&input[..taken]);
        if left == 0 {
            self.state = State::Header;
            return (taken, Step::Whole { kind, kept: true });
        }
        self.state = State::Payload { kind, left, treatment: Treatment::Keep };
        (taken, Step::Starved)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Type, payload and treatment of each frame that `bytes` hold, read in the given pieces.
    fn read(bytes: &[u8], cuts: &[usize]) -> Vec<(u64, Vec<u8>)> {
        let (mut reader, mut frames, mut rest) = (FrameReader::new(), Vec::new(), bytes);
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let (mut piece, after) = rest.split_at(rest.len().min(1 + *cuts.next().unwrap_or(&0)));
            rest = after;
            loop {
                let (taken, step) = reader.step(piece);
                let bytes = &piece[..taken];
                piece = &piece[taken..];
                match step {
                    Step::Starved if piece.is_empty() => break,
                    Step::Starved => {}
                    Step::Begun { kind, .. } => {
                        frames.push((kind, Vec::new()));
                        reader.treat(treatment(kind));
                    }
                    Step::Payload => frames.last_mut().unwrap().1.extend_from_slice(bytes),
                    Step::Whole { kind, kept } => {
                        let payload = if kept { reader.kept() } else { bytes };
                        assert_eq!(frames.last().unwrap(), &(kind, Vec::new()), "whole at once");
                        frames.last_mut().unwrap().1.extend_from_slice(payload);
                    }
                }
            }
        }
        assert!(reader.is_between_frames());
        frames
    }

    const fn treatment(kind: u64) -> Treatment {
        match kind % 3 {
            0 => Treatment::Pass,
            1 => Treatment::Keep,
            _ => Treatment::Skip,
        }
    }

    proptest! {
        #[test]
        fn frames_are_the_same_however_they_are_cut(
            frames in prop::collection::vec((0_u64..100_000, prop::collection::vec(any::<u8>(), 0..80)), 0..12),
            cuts in prop::collection::vec(0_usize..40, 1..10),
        ) {
            let mut bytes = Vec::new();
            for (kind, payload) in &frames {
                put_header(*kind, payload.len() as u64, &mut bytes);
                bytes.extend_from_slice(payload);
            }
            let expected: Vec<_> = frames
                .into_iter()
                .map(|(kind, payload)| (kind, if kind % 3 == 2 { Vec::new() } else { payload }))
                .collect();
            prop_assert_eq!(read(&bytes, &cuts), expected);
        }
    }

    #[test]
    fn a_frame_under_way_is_distinguished_from_the_end_of_one() {
        let mut reader = FrameReader::new();
        reader.step(&[0]);
        assert!(!reader.is_between_frames(), "half a header");
        reader.step(&[2]);
        reader.treat(Treatment::Pass);
        reader.step(b"a");
        assert!(!reader.is_between_frames(), "half a payload");
        assert_eq!(reader.step(b"b"), (1, Step::Payload));
        assert!(reader.is_between_frames());
    }

    #[test]
    fn only_frames_with_the_number_of_http_2_are_counted_as_such() {
        assert_eq!(FRAME_TYPES[slot(kind::HEADERS)], "HEADERS");
        assert_eq!(FRAME_TYPES[slot(kind::GOAWAY)], "GOAWAY");
        assert_eq!(FRAME_TYPES[slot(kind::CANCEL_PUSH)], "unknown", "3 is RST_STREAM in HTTP/2");
        assert_eq!(FRAME_TYPES[slot(kind::PRIORITY_UPDATE)], "unknown");
    }
}
