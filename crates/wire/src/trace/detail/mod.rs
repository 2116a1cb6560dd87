//! The detailed reader: every frame with its contents, for people.
//!
//! [`Reader`] works beside the [`Tap`](super::Tap): both are sinks of the same two readers of bytes, so that they see
//! the same frames. It costs what decoding costs, and is for the few connections that somebody inspects, not for the
//! generator's hot path.
//!
//! What a peer sends never makes it panic, and it holds a bounded amount: see [`KEPT`].

mod detailed_frame;
mod http1;
mod http2;
mod http3;
mod kept;
mod line;
mod secrets;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use super::frame::{BareFrame, Direction, FrameKind, Sink};
use super::tap::{Crossing, Dialect, Parser};
use super::{http2 as frames, http3 as streams};
use crate::StreamId;
use crate::h2::frame::flag;
use crate::h3::inspect::FieldSections;
use crate::h3::stream::QuicStreamId;
pub use detailed_frame::{Dependency, Detail, DetailedFrame, Head, PrintableField, Setting};
use h2lab_base::units::Time;
pub use kept::KEPT;
use kept::Kept;
pub use line::{dependency, line, plain};
pub use secrets::Secrets;
pub use words::flag_names;

/// Reads the bytes of one connection, in clear, and reports each frame with its contents.
#[derive(Debug)]
pub struct Reader {
    connection: u32,
    dialect: Dialect,
    parser: Parser,
    up: Side,
    down: Side,
    /// HTTP/3: the streams on which a frame is under way.
    sides: BTreeMap<(QuicStreamId, Direction), Side>,
}

/// One direction: what has been seen of the frame under way, and what its contents depend on.
#[derive(Debug, Default)]
struct Side {
    /// The frame whose payload is under way, and when its header was there.
    begun: Option<(BareFrame, Time)>,
    /// When the first byte of that payload was there.
    payload_at: Option<Time>,
    kept: Kept,
    /// HTTP/1.1: chunk framing since the last frame.
    framing: Kept,
    blocks: http2::Blocks,
    /// Bytes that have passed, preface and framing included.
    passed: u64,
    /// HTTP/2: its first frame has begun.
    has_frames: bool,
}

impl Reader {
    /// A reader for the connection with this index. It must see all of its bytes, from the first one in each direction.
    pub fn new(dialect: Dialect, connection: u32) -> Self {
        let parser = Parser::new(dialect);
        Self {
            connection,
            dialect,
            parser,
            up: Side::default(),
            down: Side::default(),
            sides: BTreeMap::new(),
        }
    }

    /// These bytes crossed TCP at `now`. Each frame that they complete is given to `sink`.
    pub fn feed(
        &mut self,
        now: Time,
        direction: Direction,
        bytes: &[u8],
        sink: &mut impl FnMut(DetailedFrame),
    ) {
        self.cross(now, direction, Crossing::tcp(bytes), sink);
    }

    /// The same for what crossed any transport.
    pub fn cross(
        &mut self,
        now: Time,
        direction: Direction,
        crossing: Crossing<'_>,
        sink: &mut impl FnMut(DetailedFrame),
    ) {
        let (connection, dialect) = (self.connection, self.dialect);
        match crossing {
            Crossing::Bytes { stream: None, .. } => {
                let side = if direction == Direction::Up { &mut self.up } else { &mut self.down };
                let mut looking = Looking { now, direction, connection, dialect, side, sink };
                self.parser.feed(direction, crossing, &mut looking);
            }
            Crossing::Bytes { stream: Some(stream), fin, .. } => {
                let mut side = self.sides.remove(&(stream, direction)).unwrap_or_default();
                let mut looking = Looking { now, direction, connection, dialect, side: &mut side, sink };
                self.parser.feed(direction, crossing, &mut looking);
                if !fin && side.begun.is_some() {
                    self.sides.insert((stream, direction), side);
                }
            }
            Crossing::Reset { stream, code } | Crossing::Stop { stream, code } => {
                let stops = matches!(crossing, Crossing::Stop { .. });
                self.sides.remove(&(stream, streams::Frames::silenced(direction, stops)));
                let mut emit = |frame: BareFrame| {
                    let (event, detail) = (frame.event(now, connection, direction), http3::given_up(code));
                    sink(DetailedFrame { event, detail, payload_at: now, is_complete: true, ends_at: 0 });
                };
                self.parser.feed(direction, crossing, &mut emit);
            }
        }
    }

    /// The connection has ended: reports the frame cut off in each direction, if any.
    pub fn end(&mut self, sink: &mut impl FnMut(DetailedFrame)) {
        let streams = self.sides.iter_mut().map(|((_, direction), side)| (*direction, side));
        for (direction, side) in
            [(Direction::Up, &mut self.up), (Direction::Down, &mut self.down)].into_iter().chain(streams)
        {
            let Some((frame, at)) = side.begun.take() else { continue };
            let event = frame.event(at, self.connection, direction);
            let detail = Detail::CutOff { received: side.kept.length as u64 };
            let payload_at = side.payload_at.take().unwrap_or(at);
            sink(DetailedFrame { event, detail, payload_at, is_complete: false, ends_at: side.passed });
        }
    }
}

/// The sink of one call to [`Reader::feed`].
struct Looking<'a, F> {
    now: Time,
    direction: Direction,
    connection: u32,
    dialect: Dialect,
    side: &'a mut Side,
    sink: &'a mut F,
}

impl<F: FnMut(DetailedFrame)> Sink for Looking<'_, F> {
    const WHOLE: bool = true;

    fn begin(&mut self, frame: BareFrame) {
        // The client's preface stands before its first frame, and nothing but an upgrade's request before that.
        let is_first = self.direction == Direction::Up && !std::mem::replace(&mut self.side.has_frames, true);
        self.side.passed += frames::HEADER as u64 + if is_first { u64::from(frames::PREFACE) } else { 0 };
        self.side.begun = Some((frame, self.now));
    }

    fn payload(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.side.payload_at.get_or_insert(self.now);
        }
        self.side.passed += bytes.len() as u64;
        // Of a body only its length and padding are shown, for which the first byte is enough.
        let is_body = matches!(self.side.begun, Some((frame, _)) if frame.kind == FrameKind::DATA);
        self.side.kept.push(bytes, if is_body { 1 } else { KEPT });
    }

    fn framing(&mut self, bytes: &[u8]) {
        self.side.passed += bytes.len() as u64;
        self.side.framing.push(bytes, http1::FRAMING_KEPT);
    }

    fn head_before(&mut self, bytes: &[u8], ends: bool) {
        if bytes.is_empty() {
            return;
        }
        self.side.passed += bytes.len() as u64;
        self.side.kept.push(bytes, KEPT);
        let length = u32::try_from(self.side.kept.length).unwrap_or(u32::MAX);
        let frame = BareFrame {
            // The request that upgrades has stream 1, and so has what answers it (RFC 7540 §3.2).
            stream: StreamId(1),
            length,
            value: 0,
            kind: FrameKind::HEADERS,
            flags: flag::END_HEADERS,
        };
        if ends {
            self.complete(frame, Dialect::Http1);
        } else {
            let at = self.side.begun.map_or(self.now, |(_, at)| at);
            self.side.begun = Some((frame, at));
        }
    }

    fn frame(&mut self, frame: BareFrame) {
        self.complete(frame, self.dialect);
    }
}

impl<F: FnMut(DetailedFrame)> Looking<'_, F> {
    /// All of `frame` is there; reads its contents.
    fn complete(&mut self, frame: BareFrame, dialect: Dialect) {
        let side = &mut *self.side;
        let begun = side.begun.take().map_or(self.now, |(_, at)| at);
        // A frame has the time of its last byte if it is a downlink frame, or one whose number the rules read, either
        // way.
        let is_early = self.direction == Direction::Up && frames::value_offset(frame.kind).is_none();
        let at = if is_early { begun } else { self.now };
        let payload_at = side.payload_at.take().unwrap_or(begun);
        let detail = match dialect {
            Dialect::Http1 => http1::read(frame, &side.kept, &side.framing),
            Dialect::Http2 => http2::read(frame, &side.kept, &mut side.blocks),
            Dialect::Http3 => http3::read(frame, &side.kept, &mut FieldSections::default()),
        };
        // Of a body of HTTP/1.1 only the length is reported.
        side.passed += if self.dialect == Dialect::Http1 && frame.kind == FrameKind::DATA {
            u64::from(frame.length)
        } else {
            0
        };
        let ends_at = side.passed;
        side.kept.clear();
        side.framing.clear();
        let event = frame.event(at, self.connection, self.direction);
        (self.sink)(DetailedFrame { event, detail, payload_at, is_complete: true, ends_at });
    }
}
