//! Field blocks: HEADERS, PUSH_PROMISE and their CONTINUATIONs (RFC 9113 §4.3, §8).

use std::ops::Range;

use super::fault::Fault;
use super::flow::ReceiveWindow;
use super::frame::{FrameHeader, kind};
use super::stream::{Side, Stream};
use super::streams::{Ending, Key};
use super::{Connection, Occurrence, Received, Role};
use crate::compression::CompressionError;
use crate::connection::{Refused, Response};
use crate::content::Content;
use crate::message;
use crate::message::{RequestParts, ResponseParts};
use crate::{ErrorCode, Exceeded, Field, Limit};

/// How many streams a server may have promised at a time; more are refused.
const MAX_PROMISED: u32 = 256;

/// The contents of the frame that begins a block.
#[derive(Debug, Clone, Copy)]
struct Opening {
    stream: u32,
    /// PUSH_PROMISE: the promised stream.
    promised: Option<u32>,
    end_stream: bool,
    self_dependent: bool,
}

/// A field block whose END_HEADERS is still to come.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    opening: Option<Opening>,
    bytes: Vec<u8>,
    continuations: u32,
    /// The number of the frame that began it.
    begun_at: u64,
}

impl Assembly {
    /// The number of the frame that began the block under way.
    pub(super) fn begun_at_frame(&self) -> Option<u64> {
        self.opening.map(|_| self.begun_at)
    }

    /// The memory that it takes, in bytes.
    pub(super) const fn held(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.opening.is_some()
    }

    /// Whether this frame is the CONTINUATION that must follow.
    pub(super) fn continues(&self, header: FrameHeader) -> bool {
        header.kind == kind::CONTINUATION
            && self.opening.is_some_and(|opening| opening.stream == header.stream)
    }
}

impl Connection {
    pub(super) fn receive_headers(
        &mut self,
        header: FrameHeader,
        fragment: Range<usize>,
        end_stream: bool,
        end_headers: bool,
        depends_on: Option<u32>,
    ) -> Received {
        let stream = header.stream;
        let opening =
            Opening { stream, promised: None, end_stream, self_dependent: depends_on == Some(stream) };
        self.open_block(opening, fragment, end_headers)
    }

    pub(super) fn receive_push_promise(
        &mut self,
        stream: u32,
        promised: u32,
        fragment: Range<usize>,
        end_headers: bool,
    ) -> Received {
        if self.config.role == Role::Server || !self.config.enable_push {
            return Err(Fault::protocol("PUSH_PROMISE although push is disabled (RFC 9113 §8.4)"));
        }
        let opening = Opening { stream, promised: Some(promised), end_stream: false, self_dependent: false };
        self.open_block(opening, fragment, end_headers)
    }

    fn open_block(&mut self, opening: Opening, fragment: Range<usize>, end_headers: bool) -> Received {
        if end_headers {
            let block = self.input.slice(fragment.start, fragment.end);
            self.counters.headers_received += block.len() as u64;
            let decoded = self.decoder.decode(block, &mut self.fields);
            return self.receive_block(opening, decoded);
        }
        self.assembly.bytes.clear();
        self.assembly.continuations = 0;
        self.assembly.begun_at = self.frame_number();
        self.assembly.opening = Some(opening);
        self.append_fragment(fragment)?;
        Ok(None)
    }

    pub(super) fn receive_continuation(&mut self, fragment: Range<usize>, end_headers: bool) -> Received {
        let Some(opening) = self.assembly.opening else {
            return Err(Fault::protocol("CONTINUATION without a field block (RFC 9113 §6.10)"));
        };
        self.assembly.continuations += 1;
        let (list, frame) = (self.config.max_header_list_size, self.config.max_frame_size);
        let bytes = self.assembly.bytes.len() + fragment.len();
        self.accounts.continuations(self.assembly.continuations, bytes, list, frame)?;
        self.append_fragment(fragment)?;
        if !end_headers {
            return Ok(None);
        }
        self.assembly.opening = None;
        self.counters.headers_received += self.assembly.bytes.len() as u64;
        let decoded = self.decoder.decode(&self.assembly.bytes, &mut self.fields);
        self.assembly.bytes = Vec::new(); // blocks in pieces are rare and large
        self.receive_block(opening, decoded)
    }

    fn append_fragment(&mut self, fragment: Range<usize>) -> Result<(), Fault> {
        let (list, frame) = (self.config.max_header_list_size, self.config.max_frame_size);
        self.accounts.field_block(self.assembly.bytes.len() + fragment.len(), list, frame)?;
        self.assembly.bytes.extend_from_slice(self.input.slice(fragment.start, fragment.end));
        Ok(())
    }

    /// A whole block is decoded; its meaning depends on its stream. The order matters: the header tables are in step
    /// from here on, so that every error below can be limited to the stream.
    fn receive_block(&mut self, opening: Opening, decoded: Result<(), CompressionError>) -> Received {
        decoded.map_err(|error| self.undecodable(error))?;
        if !self.fields.is_repeated() {
            self.is_response_known = false;
        }
        if let Some(promised) = opening.promised {
            return self.receive_promise(opening.stream, promised);
        }
        let Some(key) = self.streams.find(opening.stream) else {
            return self.begin_stream(opening);
        };
        self.check_block(opening)?;
        match (self.streams[key].remote, self.config.role) {
            (Side::Head, Role::Client) => self.receive_response(key, opening),
            (Side::Head | Side::Body, _) => self.receive_trailers(key, opening),
            (Side::Ended, _) => Err(Fault::Stream {
                stream: opening.stream,
                code: ErrorCode::STREAM_CLOSED,
                reason: "HEADERS after END_STREAM (RFC 9113 §5.1)",
            }),
        }
    }

    /// The fault for a block that could not be decoded.
    fn undecodable(&self, CompressionError(reason): CompressionError) -> Fault {
        if self.fields.is_beyond_measure() {
            let allowed = self.fields.most_decoded() as u64;
            return Fault::Excess(Exceeded { limit: Limit::FieldList, allowed });
        }
        Fault::Connection { code: ErrorCode::COMPRESSION_ERROR, reason }
    }

    fn check_block(&mut self, opening: Opening) -> Result<(), Fault> {
        let stream = opening.stream;
        if opening.self_dependent {
            return Err(Fault::malformed(stream, "a stream depends on itself (RFC 7540 §5.3.1)"));
        }
        if self.fields.is_too_large() {
            self.counters.limit_hit(Limit::FieldList);
            let code = ErrorCode::ENHANCE_YOUR_CALM;
            return Err(Fault::Stream {
                stream,
                code,
                reason: "more fields than SETTINGS_MAX_HEADER_LIST_SIZE",
            });
        }
        Ok(())
    }

    /// HEADERS on a stream that is not in the store: a request, a late frame, or a violation.
    fn begin_stream(&mut self, opening: Opening) -> Received {
        let id = opening.stream;
        let begins = self.config.role == Role::Server && self.is_of_peer(id) && self.is_idle(id);
        if self.is_beyond_goaway(id) {
            return Ok(None);
        }
        if !begins {
            self.check_absent(id, kind::HEADERS)?;
            return self.noise().map(|()| None);
        }
        self.highest_peer = id;
        if self.config.max_concurrent_streams.is_some_and(|limit| self.streams.requested() >= limit) {
            self.counters.limit_hit(Limit::Streams);
            let reason = "more streams than SETTINGS_MAX_CONCURRENT_STREAMS";
            return Err(Fault::Stream { stream: id, code: ErrorCode::REFUSED_STREAM, reason });
        }
        if let Err(fault) = self.check_block(opening) {
            return self.answer_too_large(opening, fault);
        }
        let malformed = |reason| Fault::malformed(id, reason);
        let parts = RequestParts::check(&self.fields, self.config.connect_protocol).map_err(malformed)?;
        let mut stream = self.new_stream(id, Side::Head, Side::Body);
        stream.content = Content::new(false, parts.is_connect());
        stream.content.expect(parts.content_length());
        stream.priority = self.early_priorities.take(id).or_else(|| parts.priority(&self.fields));
        if opening.end_stream {
            stream.end_remote().map_err(malformed)?;
        }
        self.streams.insert(stream);
        if !opening.end_stream {
            self.deadlines.body_begins(id);
        }
        self.counters.requests += 1;
        self.count_request();
        self.request = parts;
        Ok(Some(Occurrence::Request { stream: id, end_stream: opening.end_stream }))
    }

    /// A request with more fields than we announced is answered 431, as over HTTP/1.1 (RFC 9113 §10.5.1). The rest of
    /// it is not needed.
    fn answer_too_large(&mut self, opening: Opening, fault: Fault) -> Received {
        let Fault::Stream { stream, code: ErrorCode::ENHANCE_YOUR_CALM, reason } = fault else {
            return Err(fault);
        };
        let said: Vec<_> = self.own_answers.iter().flat_map(|own| own.fields(reason)).collect();
        let fields: Vec<Field<'_>> = said.iter().map(|(name, value)| Field::new(name, value)).collect();
        let response = Response { status: 431, fields: &fields, body_length: Some(0), end_stream: true };
        self.put_headers(stream, true, |block| {
            block.response(&response);
        });
        let times = self.refused.map_or(0, |refused| refused.times) + 1;
        self.refused = Some(Refused { status: 431, reason, body: 0, times });
        if !opening.end_stream {
            return Err(Fault::Stream { stream, code: ErrorCode::NO_ERROR, reason });
        }
        // Both sides have ended. No reset is sent: some clients, such as curl 7.88, treat one that arrives before they
        // have read the answer as a failure.
        self.streams.remember(stream, Ending::ResetByUs);
        self.accounts.stream_error().map(|()| None)
    }

    /// A stream with the windows that both sides announced.
    pub(super) fn new_stream(&self, id: u32, local: Side, remote: Side) -> Stream {
        let mut receive = ReceiveWindow::new(self.stream_window);
        receive.resize(self.tuner.capped(self.stream_window));
        Stream::new(id, local, remote, self.peer_settings.initial_window_size, receive)
    }

    fn receive_response(&mut self, key: Key, opening: Opening) -> Received {
        let Opening { stream: id, end_stream, .. } = opening;
        let malformed = |reason| Fault::malformed(id, reason);
        if !self.is_response_known {
            self.response = ResponseParts::check(&self.fields).map_err(malformed)?;
            self.is_response_known = true;
        }
        let ResponseParts { status, content_length, .. } = self.response;
        if status < 200 {
            if end_stream {
                return Err(malformed("an interim response ends the stream (RFC 9113 §8.1)"));
            }
            self.count_interim(key)?;
            return Ok(Some(Occurrence::Response { stream: id, end_stream }));
        }
        let stream = &mut self.streams[key];
        stream.remote = Side::Body;
        stream.content.answers(status, content_length);
        if end_stream {
            stream.end_remote().map_err(malformed)?;
            self.remove_if_closed(key);
        }
        Ok(Some(Occurrence::Response { stream: id, end_stream }))
    }

    fn count_interim(&mut self, key: Key) -> Result<(), Fault> {
        let stream = &mut self.streams[key];
        stream.interims += 1;
        if !self.accounts.too_many_interims(stream.interims) {
            return Ok(());
        }
        let (stream, code) = (stream.id, ErrorCode::ENHANCE_YOUR_CALM);
        self.counters.limit_hit(Limit::Interims);
        Err(Fault::Stream { stream, code, reason: "too many interim responses" })
    }

    fn receive_trailers(&mut self, key: Key, opening: Opening) -> Received {
        let id = opening.stream;
        let malformed = |reason| Fault::malformed(id, reason);
        if !opening.end_stream {
            return Err(malformed("a second head, or trailers without END_STREAM (RFC 9113 §8.1)"));
        }
        if self.streams[key].content.is_tunnel() {
            return Err(malformed("HEADERS within a tunnel (RFC 9113 §8.5)"));
        }
        message::check_trailers(&self.fields).map_err(malformed)?;
        self.streams[key].end_remote().map_err(malformed)?;
        self.remove_if_closed(key);
        Ok(Some(Occurrence::Trailers { stream: id }))
    }

    /// A server promises `promised` because of the request on `id` (RFC 9113 §8.4).
    fn receive_promise(&mut self, id: u32, promised: u32) -> Received {
        if !self.is_of_peer(promised) || !self.is_idle(promised) {
            return Err(Fault::protocol("PUSH_PROMISE of a stream that is not idle (RFC 9113 §6.6)"));
        }
        let parent = self.streams.find(id).map(|key| self.streams[key].remote);
        // A forgotten stream may have been reset by us.
        let may_be_reset =
            || !self.is_idle(id) && matches!(self.streams.ending(id), Ending::ResetByUs | Ending::Forgotten);
        if matches!(parent, Some(Side::Ended)) || (parent.is_none() && !may_be_reset()) {
            return Err(Fault::protocol("PUSH_PROMISE on a stream that is not open (RFC 9113 §6.6)"));
        }
        self.highest_peer = promised;
        if parent.is_none() || self.streams.promised() >= MAX_PROMISED || self.is_draining() {
            let reason = "an unexpected promise";
            return Err(Fault::Stream { stream: promised, code: ErrorCode::REFUSED_STREAM, reason });
        }
        self.check_block(Opening {
            stream: promised,
            promised: None,
            end_stream: false,
            self_dependent: false,
        })?;
        let parts =
            RequestParts::check(&self.fields, false).map_err(|reason| Fault::malformed(promised, reason))?;
        if !parts.may_be_promised(&self.fields) {
            return Err(Fault::malformed(promised, "a promised request is not GET or HEAD (RFC 9113 §8.4)"));
        }
        let mut stream = self.new_stream(promised, Side::Ended, Side::Head);
        stream.content = Content::new(parts.is_head(), false);
        self.streams.insert(stream);
        self.request = parts;
        Ok(Some(Occurrence::PushPromise { stream: id, promised }))
    }
}
