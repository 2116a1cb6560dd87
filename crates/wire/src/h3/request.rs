//! Receiving on request streams (RFC 9114 §4.1, §7.2).

use std::ops::Range;

use super::fault::{self, Fault};
use super::frame::{self, Step, Treatment, kind};
use super::receive::Piece;
use super::stream::QuicStreamId;
use super::transport::Action;
use super::{Connection, Occurrence, Received, Role, qpack};
use crate::compression::CompressionError;
use crate::content::{Content, Side};
use crate::message;
use crate::message::{RequestParts, ResponseParts};
use crate::{ErrorCode, Exceeded, Limit};
use h2lab_base::units::Time;

/// Shorter sections, in bytes, are never refused by their length alone: a frame of HTTP/2 may be as long.
const SECTION_GRANTED: u32 = 16_384;

impl Connection {
    /// Takes bytes of a request's stream up to the next event.
    pub(super) fn take_of_request(&mut self, now: Time, request: u32, piece: &mut Piece) -> Received {
        if !self.admit(now, request)? {
            return Ok(None);
        }
        loop {
            let known = self.streams.get_mut(&request).filter(|stream| !stream.is_finished);
            let Some(stream) = known else { return Ok(None) };
            let input = self.arrivals.slice(piece.place.start, piece.place.end);
            let (taken, step) = stream.reader.step(input);
            let bytes = piece.place.start..piece.place.start + taken;
            piece.place.start = bytes.end;
            match step {
                Step::Starved if piece.place.is_empty() => break,
                Step::Starved => {}
                Step::Begun { kind, length } => self.begin_frame(now, request, kind, length)?,
                Step::Payload => return self.receive_data(request, bytes, piece).map(Some),
                Step::Whole { kept, .. } => {
                    let section = (!kept).then_some(bytes);
                    return self.receive_section(now, request, section, piece).map(Some);
                }
            }
        }
        if std::mem::take(&mut piece.fin) { self.receive_fin(request) } else { Ok(None) }
    }

    /// How to treat a frame, by its header.
    fn begin_frame(&mut self, now: Time, request: u32, kind: u64, length: u64) -> Result<(), Fault> {
        self.counters.frames_received[frame::slot(kind)] += 1;
        let Some(stream) = self.streams.get_mut(&request) else { return Ok(()) };
        match kind {
            kind::DATA => match stream.remote {
                Side::Body => {
                    stream.reader.treat(Treatment::Pass);
                    let length = u32::try_from(length).unwrap_or(u32::MAX);
                    self.accounts.data(now, length, false)
                }
                Side::Head => Err(fault::unexpected("DATA before the head of a message (RFC 9114 §4.1)")),
                Side::Ended => Err(fault::unexpected("DATA after trailers (RFC 9114 §4.1)")),
            },
            kind::HEADERS => {
                if stream.remote == Side::Ended {
                    return Err(fault::unexpected("HEADERS after trailers (RFC 9114 §4.1)"));
                }
                if stream.content.is_tunnel() && stream.remote == Side::Body {
                    return Err(fault::unexpected("HEADERS within a tunnel (RFC 9114 §4.4)"));
                }
                stream.reader.treat(Treatment::Keep);
                self.check_length(request, length)
            }
            kind::PUSH_PROMISE if self.config.role == Role::Client => {
                Err(fault::id("PUSH_PROMISE, although no push is allowed (RFC 9114 §7.2.5)"))
            }
            kind::PUSH_PROMISE => Err(fault::unexpected("PUSH_PROMISE from a client (RFC 9114 §7.2.5)")),
            kind::SETTINGS
            | kind::GOAWAY
            | kind::CANCEL_PUSH
            | kind::MAX_PUSH_ID
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH => Err(fault::unexpected(
                "a frame of the control stream on another (RFC 9114 §7.2, RFC 9218 §7.2)",
            )),
            _ if frame::is_of_http2(kind) => Err(fault::unexpected("a frame of HTTP/2 (RFC 9114 §7.2.8)")),
            _ => self.noise(), // unknown, and thrown away (§9)
        }
    }

    /// Whether a section of `length` bytes may be kept.
    fn check_length(&mut self, request: u32, length: u64) -> Result<(), Fault> {
        if length <= u64::from(self.config.max_header_list_size.max(SECTION_GRANTED)) {
            return Ok(());
        }
        self.counters.limit_hit(Limit::FieldBlock);
        let reason = "a field section longer than SETTINGS_MAX_FIELD_SECTION_SIZE";
        Err(Fault::Stream { stream: request, code: ErrorCode::H3_EXCESSIVE_LOAD, reason })
    }

    fn receive_data(
        &mut self,
        request: u32,
        bytes: Range<usize>,
        piece: &mut Piece,
    ) -> Result<Occurrence, Fault> {
        let malformed = |reason| fault::message(request, reason);
        let end_stream = self.ends_here(request, piece);
        let Some(stream) = self.streams.get_mut(&request) else {
            return Err(malformed("DATA on a stream that is over"));
        };
        stream.content.body(bytes.len() as u64).map_err(malformed)?;
        if stream.by_hand || self.config.flow.manual_release {
            stream.by_hand = true;
            stream.held = stream.held.saturating_add(bytes.len() as u32);
        }
        if end_stream {
            self.end_remote(request)?;
        }
        Ok(Occurrence::Data { request, start: bytes.start, end: bytes.end, end_stream })
    }

    /// Whether the stream ends after the bytes just taken; if so, takes the end too.
    fn ends_here(&self, request: u32, piece: &mut Piece) -> bool {
        let is_between = self.streams.get(&request).is_some_and(|stream| stream.reader.is_between_frames());
        let ends = piece.fin && piece.place.is_empty() && is_between;
        piece.fin &= !ends;
        ends
    }

    /// A whole field section has arrived: at `bytes`, or in pieces that the stream's reader has kept.
    fn receive_section(
        &mut self,
        now: Time,
        request: u32,
        bytes: Option<Range<usize>>,
        piece: &mut Piece,
    ) -> Result<Occurrence, Fault> {
        let end_stream = self.ends_here(request, piece);
        let Some(stream) = self.streams.get(&request) else {
            return Err(fault::message(request, "HEADERS on a stream that is over"));
        };
        let remote = stream.remote;
        let section = match bytes {
            Some(bytes) => self.arrivals.slice(bytes.start, bytes.end),
            None => stream.reader.kept(),
        };
        self.counters.headers_received += section.len() as u64;
        qpack::decode(section, &mut self.fields).map_err(|error| self.undecodable(error))?;
        if !self.fields.is_repeated() {
            self.known_response = None;
        }
        if self.fields.is_too_large() {
            self.counters.limit_hit(Limit::FieldList);
            let reason = "more fields than SETTINGS_MAX_FIELD_SECTION_SIZE (RFC 9114 §4.2.2)";
            return Err(Fault::Stream { stream: request, code: ErrorCode::H3_EXCESSIVE_LOAD, reason });
        }
        match (remote, self.config.role) {
            (Side::Head, Role::Client) => self.receive_response(request, end_stream),
            (Side::Head, Role::Server) => self.receive_request(now, request, end_stream),
            (Side::Body | Side::Ended, _) => self.receive_trailers(request, end_stream),
        }
    }

    /// The fault for a section that could not be decoded.
    fn undecodable(&self, CompressionError(reason): CompressionError) -> Fault {
        if self.fields.is_beyond_measure() {
            let allowed = self.fields.most_decoded() as u64;
            return Fault::Excess(Exceeded { limit: Limit::FieldList, allowed });
        }
        fault::connection(ErrorCode::QPACK_DECOMPRESSION_FAILED, reason)
    }

    fn receive_request(&mut self, now: Time, request: u32, end_stream: bool) -> Result<Occurrence, Fault> {
        let malformed = |reason| fault::message(request, reason);
        let parts = RequestParts::check(&self.fields, self.config.connect_protocol).map_err(malformed)?;
        if parts.lacks_authority(&self.fields) {
            return Err(malformed("a request without an authority (RFC 9114 §4.3.1)"));
        }
        let priority = self.early_priorities.take(request).or_else(|| parts.priority(&self.fields));
        let Some(stream) = self.streams.get_mut(&request) else {
            return Err(malformed("a request on a stream that is over"));
        };
        let mut content = Content::new(false, parts.is_connect());
        content.expect(parts.content_length());
        if end_stream {
            content.end().map_err(malformed)?;
        }
        (stream.content, stream.remote) = (content, Side::Body);
        if end_stream {
            self.end_remote(request)?;
        } else {
            self.deadlines.body_begins(request);
        }
        if let Some(priority) = priority {
            self.actions.push_back(Action::Prioritise { stream: QuicStreamId::of_number(request), priority });
        }
        self.counters.requests += 1;
        self.count_request(now);
        Ok(Occurrence::Request { request, parts, end_stream })
    }

    fn receive_response(&mut self, request: u32, end_stream: bool) -> Result<Occurrence, Fault> {
        let malformed = |reason| fault::message(request, reason);
        let parts = match self.known_response {
            Some(parts) => parts,
            None => *self.known_response.insert(ResponseParts::check(&self.fields).map_err(malformed)?),
        };
        let Some(stream) = self.streams.get_mut(&request) else {
            return Err(malformed("a response on a stream that is over"));
        };
        if parts.status < 200 {
            if end_stream {
                return Err(malformed("an interim response ends the stream (RFC 9114 §4.1)"));
            }
            stream.interims += 1;
            if self.accounts.too_many_interims(stream.interims) {
                self.counters.limit_hit(Limit::Interims);
                let reason = "too many interim responses";
                return Err(Fault::Stream { stream: request, code: ErrorCode::H3_EXCESSIVE_LOAD, reason });
            }
            return Ok(Occurrence::Response { request, parts, end_stream });
        }
        stream.remote = Side::Body;
        stream.content.answers(parts.status, parts.content_length);
        if end_stream {
            self.end_remote(request)?;
        }
        Ok(Occurrence::Response { request, parts, end_stream })
    }

    /// Trailers; the stream need not end with them at once, but nothing may follow.
    fn receive_trailers(&mut self, request: u32, end_stream: bool) -> Result<Occurrence, Fault> {
        let malformed = |reason| fault::message(request, reason);
        message::check_trailers(&self.fields).map_err(malformed)?;
        let Some(stream) = self.streams.get_mut(&request) else {
            return Err(malformed("trailers on a stream that is over"));
        };
        stream.content.end().map_err(malformed)?;
        stream.remote = Side::Ended;
        if end_stream {
            self.finish_remote(request);
        }
        Ok(Occurrence::Trailers { request })
    }

    /// The stream has ended without bytes.
    fn receive_fin(&mut self, request: u32) -> Received {
        let Some(stream) = self.streams.get_mut(&request) else { return Ok(None) };
        if !stream.reader.is_between_frames() {
            return Err(fault::layout("a stream ends within a frame (RFC 9114 §7.1)"));
        }
        match (stream.remote, self.config.role) {
            (Side::Head, Role::Server) => {
                let code = ErrorCode::H3_REQUEST_INCOMPLETE;
                stream.is_finished = true;
                Err(Fault::Stream { stream: request, code, reason: "no whole request (RFC 9114 §4.1)" })
            }
            (Side::Head, Role::Client) => Err(fault::message(request, "no response (RFC 9114 §4.1)")),
            (Side::Body, _) => {
                self.end_remote(request)?;
                Ok(Some(Occurrence::Data { request, start: 0, end: 0, end_stream: true }))
            }
            (Side::Ended, _) => {
                self.finish_remote(request);
                Ok(None)
            }
        }
    }

    /// The peer's message and its direction of the stream end.
    fn end_remote(&mut self, request: u32) -> Result<(), Fault> {
        if let Some(stream) = self.streams.get_mut(&request) {
            stream.content.end().map_err(|reason| fault::message(request, reason))?;
            stream.remote = Side::Ended;
            self.finish_remote(request);
        }
        Ok(())
    }

    /// The peer's direction of the stream has ended.
    fn finish_remote(&mut self, request: u32) {
        if let Some(stream) = self.streams.get_mut(&request) {
            stream.is_finished = true;
            let is_over = stream.is_over();
            self.open -= u32::from(is_over);
            self.remove_if_done(request);
        }
    }
}
