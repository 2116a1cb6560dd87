//! Receiving on the peer's unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2): control, QPACK, and others.

use std::collections::BTreeSet;

use super::fault::{self, Fault, connection};
use super::frame::{self, FrameReader, Step, Treatment, kind};
use super::qpack::{self, DecoderStream};
use super::receive::Piece;
use super::settings::Settings;
use super::stream::QuicStreamId;
use super::transport::Action;
use super::{Connection, Occurrence, Received, Role, varint};
use crate::{ErrorCode, Priority, StreamId};
use h2lab_base::units::Time;

/// Types of streams (RFC 9114 §11.2.4, RFC 9204 §8.2).
pub(super) mod stream_type {
    pub(in super::super) const CONTROL: u64 = 0x0;
    pub(in super::super) const PUSH: u64 = 0x1;
    pub(in super::super) const QPACK_ENCODER: u64 = 0x2;
    pub(in super::super) const QPACK_DECODER: u64 = 0x3;
}

/// The longest frame on the control stream that we read, in bytes; all known ones are far shorter.
const LONGEST_FRAME: u64 = 4_096;
/// How far ahead of the others a stream may begin to arrive: transports grant far fewer.
const WIDEST_GAP: u64 = 100;
/// The highest last stream that is reported: what HTTP/2 has for "none in particular" (RFC 9113 §6.8).
const ANY_STREAM: u32 = (1 << 31) - 1;

/// A unidirectional stream of the peer.
#[derive(Debug)]
pub(super) enum Uni {
    /// Its type is not complete.
    Beginning(Vec<u8>),
    Control(FrameReader),
    QpackEncoder,
    QpackDecoder(DecoderStream),
}

impl Uni {
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Beginning(bytes) => bytes.capacity(),
                Self::Control(reader) => reader.held(),
                Self::QpackEncoder | Self::QpackDecoder(_) => 0,
            }
    }
}

/// Which streams of a type that is allowed once have begun.
#[derive(Debug, Default)]
pub(super) struct PeerStreams {
    /// By type: control, none, encoder, decoder.
    begun: [bool; 4],
    /// The first frame of the control stream, which is SETTINGS, has begun.
    settings_begun: bool,
    /// The highest push id that the peer has allowed.
    max_push_id: Option<u64>,
    /// The lowest number above all unidirectional streams of the peer seen so far.
    next: u64,
    /// The numbers below `next` of streams not seen yet.
    late: BTreeSet<u64>,
}

impl PeerStreams {
    /// Whether the peer has begun any.
    pub(super) const fn have_begun(&self) -> bool {
        self.next > 0
    }

    /// The heap memory that it takes, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.late.len() * size_of::<u64>()
    }

    /// Called for a stream that is not under way: whether this is its beginning. Otherwise it has ended, or was
    /// stopped, and its bytes are late.
    fn begins(&mut self, stream: QuicStreamId) -> Result<bool, Fault> {
        let number = stream.number();
        if number < self.next {
            return Ok(self.late.remove(&number));
        }
        if number - self.next > WIDEST_GAP {
            return Err(fault::id("a stream far above all others (RFC 9000 §4.6)"));
        }
        self.late.extend(self.next..number);
        self.next = number + 1;
        Ok(true)
    }
}

impl Connection {
    /// Takes bytes of a unidirectional stream up to the next event.
    pub(super) fn take_of_uni(&mut self, piece: &mut Piece) -> Received {
        if piece.stream.initiator() == self.config.role {
            return Ok(None); // nothing can arrive there
        }
        let mut uni = match self.unis.remove(&piece.stream.0) {
            Some(uni) => uni,
            None if self.peer_streams.begins(piece.stream)? => Uni::Beginning(Vec::new()),
            None => return Ok(None),
        };
        if let Uni::Beginning(begun) = &mut uni
            && let Some(stream_type) = self.take_type(begun, piece)
        {
            match self.identify(piece.stream, stream_type)? {
                Some(known) => uni = known,
                // It is not recorded: QUIC may never report it again, not even its end.
                None => return Ok(None),
            }
        }
        let taken = self.take_typed(&mut uni, piece);
        self.unis.insert(piece.stream.0, uni);
        let occurrence = taken?;
        if occurrence.is_none() && std::mem::take(&mut piece.fin) {
            self.uni_ended(piece.stream)?;
        }
        Ok(occurrence)
    }

    /// The type that a stream begins with, once it is complete.
    fn take_type(&self, begun: &mut Vec<u8>, piece: &mut Piece) -> Option<u64> {
        for place in piece.place.clone() {
            begun.extend_from_slice(self.arrivals.slice(place, place + 1));
            piece.place.start += 1;
            if let Some((stream_type, _)) = varint::decode(begun) {
                return Some(stream_type);
            }
        }
        None
    }

    /// The content of a stream of this type; `None` if the type is unknown: then the stream is stopped.
    fn identify(&mut self, stream: QuicStreamId, stream_type: u64) -> Result<Option<Uni>, Fault> {
        let uni = match (stream_type, self.config.role) {
            (stream_type::CONTROL, _) => Uni::Control(FrameReader::new()),
            (stream_type::QPACK_ENCODER, _) => Uni::QpackEncoder,
            (stream_type::QPACK_DECODER, _) => Uni::QpackDecoder(DecoderStream::default()),
            (stream_type::PUSH, Role::Client) => {
                return Err(fault::id("a push stream, although no push is allowed (RFC 9114 §4.6)"));
            }
            (stream_type::PUSH, Role::Server) => {
                let reason = "a push stream from a client (RFC 9114 §6.2.2)";
                return Err(connection(ErrorCode::H3_STREAM_CREATION_ERROR, reason));
            }
            _ => {
                self.actions.push_back(Action::Stop { stream, code: ErrorCode::H3_STREAM_CREATION_ERROR });
                self.noise()?;
                return Ok(None);
            }
        };
        if std::mem::replace(&mut self.peer_streams.begun[stream_type as usize], true) {
            let reason = "a second stream of a type that is limited to one (RFC 9114 §6.2.1, RFC 9204 §4.2)";
            return Err(connection(ErrorCode::H3_STREAM_CREATION_ERROR, reason));
        }
        Ok(Some(uni))
    }

    fn take_typed(&mut self, uni: &mut Uni, piece: &mut Piece) -> Received {
        let place = piece.place.clone();
        match uni {
            Uni::Control(reader) => return self.take_of_control(reader, piece),
            _ if place.is_empty() => return Ok(None),
            Uni::Beginning(_) => {}
            Uni::QpackEncoder => {
                qpack::check_encoder_stream(self.arrivals.slice(place.start, place.end))?;
                self.noise()?;
            }
            Uni::QpackDecoder(decoder) => {
                decoder.check(self.arrivals.slice(place.start, place.end))?;
                self.noise()?;
            }
        }
        piece.place.start = place.end;
        Ok(None)
    }

    fn take_of_control(&mut self, reader: &mut FrameReader, piece: &mut Piece) -> Received {
        loop {
            let (taken, step) = reader.step(self.arrivals.slice(piece.place.start, piece.place.end));
            let start = piece.place.start;
            piece.place.start += taken;
            match step {
                Step::Starved if piece.place.is_empty() => return Ok(None),
                Step::Starved | Step::Payload => {}
                Step::Begun { kind, length } => reader.treat(self.begin_control_frame(kind, length)?),
                Step::Whole { kind, kept } => {
                    let bytes = self.arrivals.slice(start, start + taken);
                    // Rare and short: not worth borrowing.
                    let payload = if kept { reader.kept().to_vec() } else { bytes.to_vec() };
                    if let Some(occurrence) = self.receive_control_frame(kind, &payload)? {
                        return Ok(Some(occurrence));
                    }
                }
            }
        }
    }

    /// How to treat a frame on the control stream, by its header.
    fn begin_control_frame(&mut self, kind: u64, length: u64) -> Result<Treatment, Fault> {
        self.counters.frames_received[frame::slot(kind)] += 1;
        let is_first = !std::mem::replace(&mut self.peer_streams.settings_begun, true);
        if is_first != (kind == kind::SETTINGS) {
            return Err(if is_first {
                let reason = "the control stream does not begin with SETTINGS (RFC 9114 §6.2.1)";
                connection(ErrorCode::H3_MISSING_SETTINGS, reason)
            } else {
                fault::unexpected("a second SETTINGS frame (RFC 9114 §7.2.4)")
            });
        }
        match kind {
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => {
                return Err(fault::unexpected("a frame of a request on the control stream (RFC 9114 §7.2)"));
            }
            _ if frame::is_of_http2(kind) => {
                return Err(fault::unexpected("a frame of HTTP/2 (RFC 9114 §7.2.8)"));
            }
            kind::MAX_PUSH_ID if self.config.role == Role::Client => {
                return Err(fault::unexpected("MAX_PUSH_ID from a server (RFC 9114 §7.2.7)"));
            }
            kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH if self.config.role == Role::Client => {
                return Err(fault::unexpected("PRIORITY_UPDATE from a server (RFC 9218 §7.2)"));
            }
            kind::SETTINGS => {}
            kind::GOAWAY
            | kind::CANCEL_PUSH
            | kind::MAX_PUSH_ID
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH => self.noise()?, // none of these is needed often
            _ => {
                self.noise()?;
                return Ok(Treatment::Skip); // unknown (§9)
            }
        }
        if length > LONGEST_FRAME {
            let reason = "a frame on the control stream exceeds our limit";
            return Err(connection(ErrorCode::H3_EXCESSIVE_LOAD, reason));
        }
        Ok(Treatment::Keep)
    }

    fn receive_control_frame(&mut self, kind: u64, payload: &[u8]) -> Received {
        match kind {
            kind::SETTINGS => {
                self.peer_settings = Some(Settings::parse(payload)?);
                self.settings_due = Time::NEVER;
                // The cached block may exceed the peer's new limit: it is encoded and measured anew.
                self.cached_header_block.0.clear();
                Ok(Some(Occurrence::Settings))
            }
            kind::GOAWAY => self.receive_goaway(the_id(payload)?).map(Some),
            kind::MAX_PUSH_ID => self.receive_max_push_id(the_id(payload)?).map(|()| None),
            kind::CANCEL_PUSH => {
                the_id(payload)?;
                Err(fault::id("CANCEL_PUSH, although nothing was pushed (RFC 9114 §7.2.3)"))
            }
            kind::PRIORITY_UPDATE_PUSH => {
                Err(fault::id("PRIORITY_UPDATE of a push that was not promised (RFC 9218 §7.2)"))
            }
            _ => self.receive_priority_update(payload).map(|()| None),
        }
    }

    /// GOAWAY (RFC 9114 §5.2, §7.2.6): a server's holds the first stream that it does not process, a client's a push
    /// id.
    fn receive_goaway(&mut self, id: u64) -> Result<Occurrence, Fault> {
        if self.drain.peer.is_some_and(|before| id > before) {
            return Err(fault::id("a GOAWAY with a higher id than the one before it (RFC 9114 §5.2)"));
        }
        self.drain.peer = Some(id);
        if self.config.role == Role::Server {
            return Ok(Occurrence::GoAway { last_stream: StreamId::CONNECTION });
        }
        if id & 3 != 0 {
            return Err(fault::id("a GOAWAY with an id that is not a request stream (RFC 9114 §7.2.6)"));
        }
        let first = u32::try_from(id >> 2).unwrap_or(u32::MAX);
        self.refused_from(first);
        let last = first.checked_sub(1).map(|last| last.min(ANY_STREAM / 2));
        Ok(Occurrence::GoAway { last_stream: last.map_or(StreamId::CONNECTION, StreamId::of_request) })
    }

    /// A higher number than before, or the first (RFC 9114 §7.2.7). We push nothing, whatever is allowed.
    fn receive_max_push_id(&mut self, id: u64) -> Result<(), Fault> {
        if self.peer_streams.max_push_id.is_some_and(|before| id < before) {
            return Err(fault::id("MAX_PUSH_ID goes down (RFC 9114 §7.2.7)"));
        }
        self.peer_streams.max_push_id = Some(id);
        Ok(())
    }

    /// `PRIORITY_UPDATE` of a request (RFC 9218 §7.2), which need not have begun to arrive.
    fn receive_priority_update(&mut self, mut payload: &[u8]) -> Result<(), Fault> {
        let Some(id) = varint::take(&mut payload) else {
            return Err(fault::layout("PRIORITY_UPDATE without a stream (RFC 9218 §7.2)"));
        };
        let stream = QuicStreamId(id);
        let Some(request) = stream.request() else {
            return Err(fault::id("PRIORITY_UPDATE of a stream that is not a request (RFC 9218 §7.2)"));
        };
        let has_head = self.streams.get(&request).map(super::Stream::has_head);
        let is_to_come = request >= self.next || self.late.contains(&request);
        if has_head.map_or(is_to_come, |has_head| !has_head) {
            self.early_priorities.put(request, payload);
        } else if has_head.is_some() {
            let priority = Priority::default().updated_by(payload);
            self.actions.push_back(Action::Prioritise { stream, priority });
        }
        Ok(())
    }

    /// The end of a unidirectional stream. Critical streams must not end (RFC 9114 §6.2.1, RFC 9204
    /// §4.2); others may, even before their type is complete (RFC 9114 §6.2).
    pub(super) fn uni_ended(&mut self, stream: QuicStreamId) -> Result<(), Fault> {
        match self.unis.remove(&stream.0) {
            Some(Uni::Control(_) | Uni::QpackEncoder | Uni::QpackDecoder(_)) => {
                let reason = "a stream that the connection needs was closed (RFC 9114 §6.2.1, RFC 9204 §4.2)";
                Err(connection(ErrorCode::H3_CLOSED_CRITICAL_STREAM, reason))
            }
            Some(Uni::Beginning(_)) => self.noise(),
            None => {
                self.peer_streams.begins(stream)?;
                self.noise()
            }
        }
    }
}

/// The one integer that a payload consists of.
fn the_id(mut payload: &[u8]) -> Result<u64, Fault> {
    let id = varint::take(&mut payload).filter(|_| payload.is_empty());
    id.ok_or(fault::layout("a frame that is not exactly one integer long (RFC 9114 §7.1)"))
}
