//! HTTP/3 frames out of the streams of QUIC (RFC 9114 §7.1): of each its type and length, two integers of one to eight
//! bytes, and of most payloads only that.
//!
//! Frames of requests have the stream of their request, by its protocol-independent id; those of the control streams
//! have stream 0. Bytes on streams of other types, above all QPACK's, are not frames.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::frame::{BareFrame, Direction, FrameEvent, FrameKind, Sink};
use crate::StreamId;
use crate::h3::frame::kind;
use crate::h3::inspect::{CONTROL_STREAM, LONGEST_HEADER, integer, request_on};
use crate::h3::stream::QuicStreamId;

/// The streams of a connection that have begun and not ended, by number and direction.
#[derive(Debug, Default)]
pub(super) struct Frames {
    open: BTreeMap<(QuicStreamId, Direction), Stream>,
}

impl Frames {
    /// `bytes` crossed on a stream, which ends after them if `fin`.
    pub(super) fn feed<S: Sink>(
        &mut self,
        direction: Direction,
        number: QuicStreamId,
        bytes: &[u8],
        fin: bool,
        sink: &mut S,
    ) {
        let early = direction == Direction::Up && !S::WHOLE;
        match self.open.entry((number, direction)) {
            Entry::Occupied(mut open) => {
                open.get_mut().feed(bytes, fin, early, sink);
                if fin {
                    open.remove();
                }
            }
            // Most messages come in one piece and need no state.
            Entry::Vacant(place) => {
                let mut stream = Stream::new(number);
                stream.feed(bytes, fin, early, sink);
                if !fin {
                    place.insert(stream);
                }
            }
        }
    }

    /// The direction in which nothing more crosses on a stream that the sender in `direction` aborted: that one, or, if
    /// it stopped reading (`stops`), the other. What its peer still sends meanwhile is discarded.
    pub(super) const fn silenced(direction: Direction, stops: bool) -> Direction {
        if stops { direction.opposite() } else { direction }
    }

    /// The sender in `direction` aborted a stream: its reading (`stops`) or its sending. Reports QUIC's frame for that.
    pub(super) fn abort(
        &mut self,
        direction: Direction,
        number: QuicStreamId,
        stops: bool,
        code: u64,
    ) -> BareFrame {
        self.open.remove(&(number, Self::silenced(direction, stops)));
        BareFrame {
            stream: request_on(number).unwrap_or(StreamId::CONNECTION),
            length: 0,
            value: u32::try_from(code).unwrap_or(u32::MAX),
            kind: if stops { FrameKind::STOP_SENDING } else { FrameKind::RESET_STREAM },
            flags: 0,
        }
    }
}

/// What a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carries {
    /// Its first integer, the type, is incomplete.
    Undeclared,
    Frames,
    SomethingElse,
}

/// One direction of a stream: where it is in the current frame.
#[derive(Debug)]
struct Stream {
    request: StreamId,
    carries: Carries,
    header: [u8; LONGEST_HEADER],
    /// Bytes of `header` that are there.
    have: usize,
    /// Bytes of payload still to come.
    left: u64,
    /// The frame whose payload is under way, if it has not been reported yet.
    waiting: Option<BareFrame>,
}

impl Stream {
    fn new(number: QuicStreamId) -> Self {
        let carries = if number.is_unidirectional() { Carries::Undeclared } else { Carries::Frames };
        Self {
            request: request_on(number).unwrap_or(StreamId::CONNECTION),
            carries,
            header: [0; LONGEST_HEADER],
            have: 0,
            left: 0,
            waiting: None,
        }
    }

    /// `early`: a frame is reported when its header is there rather than when it is complete.
    fn feed<S: Sink>(&mut self, mut bytes: &[u8], fin: bool, early: bool, sink: &mut S) {
        loop {
            if self.carries == Carries::SomethingElse {
                return;
            }
            let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            if S::WHOLE && self.waiting.is_some() {
                sink.payload(&bytes[..n]);
            }
            (self.left, bytes) = (self.left - n as u64, &bytes[n..]);
            if self.left > 0 {
                return;
            }
            if let Some(frame) = self.waiting.take() {
                sink.frame(ending(frame, fin && bytes.is_empty()));
            }
            let Some((first, rest)) = bytes.split_first() else { return };
            // An integer at a time is read as its bytes come; a header has at most sixteen.
            (self.header[self.have], bytes) = (*first, rest);
            self.have += 1;
            self.read_header(bytes, fin, early, sink);
        }
    }

    /// Checks whether the header is complete; `rest` follows it.
    fn read_header<S: Sink>(&mut self, rest: &[u8], fin: bool, early: bool, sink: &mut S) {
        let Some((first, header)) = integer(&self.header[..self.have]) else { return };
        if self.carries == Carries::Undeclared {
            self.carries = if first == CONTROL_STREAM { Carries::Frames } else { Carries::SomethingElse };
            self.have = 0;
            return;
        }
        let Some((length, _)) = integer(header) else { return };
        (self.have, self.left) = (0, length);
        let frame = BareFrame {
            stream: self.request,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            value: 0,
            kind: known(first),
            flags: 0,
        };
        if early {
            sink.frame(ending(frame, fin && rest.len() as u64 == length));
        } else {
            if S::WHOLE {
                sink.begin(frame);
            }
            self.waiting = Some(frame);
        }
    }
}

/// HTTP/3 has no flags; the end of a stream is shown by HTTP/2's END_STREAM.
fn ending(mut frame: BareFrame, ends: bool) -> BareFrame {
    if ends && matches!(frame.kind, FrameKind::DATA | FrameKind::HEADERS) {
        frame.flags = FrameEvent::END_STREAM;
    }
    frame
}

/// The kind of a frame by its type: the number of HTTP/2 where it has the same frame.
fn known(number: u64) -> FrameKind {
    match number {
        kind::DATA => FrameKind::DATA,
        kind::HEADERS => FrameKind::HEADERS,
        kind::CANCEL_PUSH => FrameKind::CANCEL_PUSH,
        kind::SETTINGS => FrameKind::SETTINGS,
        kind::PUSH_PROMISE => FrameKind::PUSH_PROMISE,
        kind::GOAWAY => FrameKind::GOAWAY,
        kind::MAX_PUSH_ID => FrameKind::MAX_PUSH_ID,
        kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH => FrameKind::PRIORITY_UPDATE,
        _ => FrameKind::OTHER,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tap::Parser;
    use super::super::{Crossing, Dialect, FrameEvent, Tap};
    use super::*;
    use h2lab_base::units::Time;

    /// HEADERS of 3 bytes and DATA of 70, whose length takes two bytes.
    fn message() -> Vec<u8> {
        [&[1, 3, 0, 0, 0xd1][..], &[0, 0x40, 70], &[7; 70]].concat()
    }

    fn detailed(direction: Direction, pieces: &[(u64, &[u8], bool)]) -> Vec<String> {
        let mut tap = Tap::new(Dialect::Http3, 0);
        let mut detailed = Vec::new();
        for (stream, bytes, fin) in pieces {
            let crossing = Crossing::Bytes { stream: Some(QuicStreamId(*stream)), bytes, fin: *fin };
            tap.cross(Time::ZERO, direction, crossing, &mut |frame| {
                detailed.push(format!("{frame} {} {}", frame.length, frame.ends_stream()));
            });
        }
        detailed
    }

    #[test]
    fn frames_of_requests_have_the_streams_of_http_2() {
        for direction in [Direction::Up, Direction::Down] {
            let seen = detailed(direction, &[(0, &message(), false), (4, &message(), true)]);
            assert_eq!(
                seen,
                ["HEADERS[1] 3 false", "DATA[1] 70 false", "HEADERS[3] 3 false", "DATA[3] 70 true"]
            );
        }
    }

    #[test]
    fn a_frame_that_goes_up_is_reported_with_its_header_and_one_that_comes_down_with_its_end() {
        let whole = message();
        let head = &whole[..8];
        assert_eq!(detailed(Direction::Up, &[(0, head, false)]).len(), 2);
        assert_eq!(detailed(Direction::Down, &[(0, head, false)]).len(), 1);
    }

    #[test]
    fn streams_that_go_one_way_have_frames_only_if_they_are_control_streams() {
        let control = [0, 4, 0, 7, 1, 0]; // SETTINGS, GOAWAY
        assert_eq!(
            detailed(Direction::Down, &[(3, &control, false)]),
            ["SETTINGS[0] 0 false", "GOAWAY[0] 1 false"]
        );
        assert_eq!(detailed(Direction::Down, &[(7, &[2, 0x3f, 0xe1, 0x1f], false)]), [""; 0]);
        assert_eq!(detailed(Direction::Down, &[(11, &[0x40], false), (11, &[0x21, 1, 1], true)]), [""; 0]);
    }

    #[test]
    fn what_http_2_has_not_has_a_name_of_its_own() {
        let frames = [&[3, 1, 0][..], &[0xd, 1, 0], &[0x80, 0xf, 7, 0, 1, 0], &[0x21, 0]].concat();
        let seen = detailed(Direction::Up, &[(2, &[&[0], &frames[..]].concat(), false)]);
        let names: Vec<&str> = seen.iter().map(|one| one.split('[').next().unwrap()).collect();
        assert_eq!(names, ["CANCEL_PUSH", "MAX_PUSH_ID", "PRIORITY_UPDATE", "other"]);
    }

    #[test]
    fn a_stream_that_was_given_up_leaves_nothing_behind() {
        let mut tap = Tap::new(Dialect::Http3, 0);
        let mut detailed = Vec::new();
        let mut sink = |frame: FrameEvent| detailed.push((frame.to_string(), frame.value));
        let stream = QuicStreamId(4);
        let crossing = Crossing::Bytes { stream: Some(stream), bytes: &[1, 9], fin: false };
        tap.cross(Time::ZERO, Direction::Down, crossing, &mut sink);
        tap.cross(Time::ZERO, Direction::Down, Crossing::Reset { stream, code: 0x10c }, &mut sink);
        tap.cross(Time::ZERO, Direction::Up, Crossing::Stop { stream, code: 0x10c }, &mut sink);
        assert_eq!(detailed, [("RESET_STREAM[3]".to_owned(), 0x10c), ("STOP_SENDING[3]".to_owned(), 0x10c)]);
        let Parser::Http3(frames) = &tap.parser else { panic!("it is HTTP/3") };
        assert!(frames.open.is_empty());
    }

    #[test]
    fn a_response_that_is_not_read_to_its_end_leaves_nothing_behind() {
        let mut frames = Frames::default();
        let stream = QuicStreamId(4);
        frames.feed(Direction::Up, stream, &message(), true, &mut |_| ());
        frames.feed(Direction::Down, stream, &message()[..8], false, &mut |_| ());
        assert_eq!(frames.open.len(), 1, "the body is under way");
        frames.abort(Direction::Up, stream, true, 0x10c);
        assert!(frames.open.is_empty());
    }

    #[test]
    fn streams_that_a_server_begins_carry_no_request() {
        assert_eq!(
            detailed(Direction::Down, &[(5, &message(), true)]),
            ["HEADERS[0] 3 false", "DATA[0] 70 true"]
        );
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_report_the_same_frames(cuts in prop::collection::vec(0..80_usize, 0..6)) {
            let whole = [message(), message()].concat();
            let mut cuts: Vec<usize> = cuts.into_iter().chain([0, whole.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<(u64, &[u8], bool)> =
                cuts.windows(2).map(|cut| (0, &whole[cut[0]..cut[1]], cut[1] == whole.len())).collect();
            // What follows the first end of the stream is not part of it.
            let end = pieces.iter().position(|piece| piece.2).unwrap();
            for direction in [Direction::Up, Direction::Down] {
                let seen = detailed(direction, &pieces[..=end]);
                let kinds: Vec<&str> = seen.iter().map(|one| one.rsplit_once(' ').unwrap().0).collect();
                prop_assert_eq!(kinds, ["HEADERS[1] 3", "DATA[1] 70", "HEADERS[1] 3", "DATA[1] 70"]);
            }
        }

        #[test]
        fn nothing_that_a_peer_sends_makes_it_panic(
            stream in 0..12_u64,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            fin: bool,
        ) {
            detailed(Direction::Down, &[(stream, &bytes, false), (stream, &bytes, fin)]);
        }
    }
}
