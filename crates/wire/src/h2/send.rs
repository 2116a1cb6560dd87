//! The send path: commands become frames at the end of the output.

use super::frame::{FrameHeader, HEADER_LENGTH, MAX_31_BITS, flag, kind};
use super::hpack::Encoder;
use super::stream::{Side, Wait};
use super::streams::{Ending, Key};
use super::{Connection, Role};
use crate::compression::Block;
use crate::connection::{FRAME_TYPES, Request, Response};
use crate::content::Content;
use crate::queue::Payload;
use crate::{Error, ErrorCode, Field, StreamId};
use h2lab_base::units::Time;

/// The beginning of the frame that holds a field block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lead {
    /// HEADERS or PUSH_PROMISE.
    pub(super) kind: u8,
    pub(super) stream: u32,
    pub(super) end_stream: bool,
    /// PUSH_PROMISE: the promised stream.
    pub(super) promised: Option<u32>,
}

impl Lead {
    const fn headers(stream: u32, end_stream: bool) -> Self {
        Self { kind: kind::HEADERS, stream, end_stream, promised: None }
    }

    const fn flags(self) -> u8 {
        if self.end_stream { flag::END_STREAM } else { 0 }
    }
}

/// The HEADERS of the last request, for requests that are sent over and over.
#[derive(Debug, Default)]
pub(super) struct CachedHeaderBlock {
    /// The whole frame, whose stream is replaced; empty if it may not be repeated.
    frame: Vec<u8>,
    /// The state of the encoder's table for which it holds.
    version: u64,
    /// What its fields take as HTTP/1.1 text, in bytes.
    plain: u64,
}

impl CachedHeaderBlock {
    /// The longest cached block, in bytes. Longer ones are encoded anew, since one of indexes alone is short.
    const LONGEST: usize = 256;

    fn stands(&self, encoder: &Encoder) -> bool {
        !self.frame.is_empty() && self.version == encoder.version()
    }

    fn learn(&mut self, encoder: &Encoder, frame: &[u8], plain: u64) {
        self.frame.clear();
        if encoder.is_repeatable() && frame.len() <= HEADER_LENGTH + Self::LONGEST {
            self.frame.extend_from_slice(frame);
            (self.version, self.plain) = (encoder.version(), plain);
        }
    }
}

impl Connection {
    /// Appends one frame.
    pub(super) fn put_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.put_header(kind, flags, stream, payload.len());
        self.output.tail().extend_from_slice(payload);
    }

    /// Appends the header of a frame, whose payload of `length` octets is to follow.
    fn put_header(&mut self, kind: u8, flags: u8, stream: u32, length: usize) {
        self.counters.frames_sent[usize::from(kind).min(FRAME_TYPES.len() - 1)] += 1;
        let header = FrameHeader { length: length as u32, kind, flags, stream };
        self.output.tail().extend_from_slice(&header.encode());
    }

    pub(super) fn put_reset(&mut self, stream: u32, code: ErrorCode) {
        self.put_frame(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes());
    }

    /// Appends HEADERS with the fields that `write` puts.
    pub(super) fn put_headers(
        &mut self,
        stream: u32,
        end_stream: bool,
        write: impl FnOnce(&mut Block<'_, Encoder>),
    ) {
        self.put_block(Lead::headers(stream, end_stream), write);
    }

    /// Appends a frame with the fields that `write` puts, encoded in place, and CONTINUATIONs if they take more than
    /// one.
    pub(super) fn put_block(&mut self, lead: Lead, write: impl FnOnce(&mut Block<'_, Encoder>)) {
        let padding = self.config.padding;
        let out = self.output.tail();
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LENGTH]);
        if padding > 0 {
            out.push(padding);
        }
        if let Some(promised) = lead.promised {
            out.extend_from_slice(&promised.to_be_bytes());
        }
        let fragment = out.len();
        self.encoder.begin(out);
        let mut block = Block::new(&mut self.encoder, out);
        write(&mut block);
        self.counters.headers_plain += block.plain() as u64;
        let out = self.output.tail();
        self.counters.headers_sent += (out.len() - fragment) as u64;
        let length = out.len() - start - HEADER_LENGTH + usize::from(padding);
        if length > self.peer_settings.max_frame_size as usize {
            return self.put_split(lead, start, fragment);
        }
        out.resize(out.len() + usize::from(padding), 0);
        let padded = if padding > 0 { flag::PADDED } else { 0 };
        let header = FrameHeader {
            length: length as u32,
            kind: lead.kind,
            flags: lead.flags() | flag::END_HEADERS | padded,
            stream: lead.stream,
        };
        out[start..start + HEADER_LENGTH].copy_from_slice(&header.encode());
        self.counters.frames_sent[usize::from(lead.kind)] += 1;
    }

    /// Splits the block that begins at `fragment`, in a frame that begins at `start`. Rare: a block above 16 KiB. Its
    /// size need not be hidden, so it is sent without padding.
    fn put_split(&mut self, lead: Lead, start: usize, fragment: usize) {
        let out = self.output.tail();
        let block = out.split_off(fragment);
        out.truncate(start);
        let promised = lead.promised.map(u32::to_be_bytes);
        let promised = promised.as_ref().map_or(&[][..], |id| &id[..]);
        let room = self.peer_settings.max_frame_size as usize - promised.len();
        let (first, rest) = block.split_at(room.min(block.len()));
        let end_if = |last: bool| if last { flag::END_HEADERS } else { 0 };
        let flags = lead.flags() | end_if(rest.is_empty());
        self.put_frame(lead.kind, flags, lead.stream, &[promised, first].concat());
        let mut pieces = rest.chunks(room).peekable();
        while let Some(piece) = pieces.next() {
            self.put_frame(kind::CONTINUATION, end_if(pieces.peek().is_none()), lead.stream, piece);
        }
    }

    /// See [`super::super::Connection::most_fields_of_peer`].
    pub const fn most_fields_of_peer(&self) -> u32 {
        self.peer_settings.max_header_list_size
    }

    /// See [`super::super::Connection::send_request`].
    pub fn send_request(&mut self, _now: Time, request: &Request<'_>) -> Option<StreamId> {
        let id = self.begin_stream_for(request)?;
        self.put_request(id, request, None);
        Some(StreamId(id))
    }

    /// See [`super::super::Connection::send_connect`].
    pub fn send_connect(&mut self, _now: Time, protocol: &str, request: &Request<'_>) -> Option<StreamId> {
        if !self.takes_connect_protocol() {
            return None;
        }
        let id = self.begin_stream_for(request)?;
        self.put_request(id, request, Some(protocol));
        Some(StreamId(id))
    }

    /// See [`super::super::Connection::send_request_again`].
    pub fn send_request_again(&mut self, _now: Time, request: &Request<'_>) -> Option<StreamId> {
        let id = self.begin_stream_for(request)?;
        if self.cached_header_block.stands(&self.encoder) {
            self.put_cached_header_block(id);
        } else {
            self.put_request(id, request, None);
        }
        Some(StreamId(id))
    }

    /// Takes a stream for `request`; `None` if none is available.
    fn begin_stream_for(&mut self, request: &Request<'_>) -> Option<u32> {
        if self.available_streams() == 0 {
            return None;
        }
        let id = self.next_local;
        self.next_local += 2;
        let local = if request.end_stream { Side::Ended } else { Side::Body };
        let mut stream = self.new_stream(id, local, Side::Head);
        stream.content = Content::new(request.method == "HEAD", request.method == "CONNECT");
        self.streams.insert(stream);
        self.counters.requests += 1;
        Some(id)
    }

    /// Encodes a request's head, and caches the frame if it may be sent again as it stands.
    fn put_request(&mut self, id: u32, request: &Request<'_>, protocol: Option<&str>) {
        let scheme = if self.config.tls { "https" } else { "http" };
        let (start, plain) = (self.output.tail().len(), self.counters.headers_plain);
        self.put_headers(id, request.end_stream, |block| {
            block.request(request, scheme, protocol);
        });
        let plain = self.counters.headers_plain - plain;
        if self.config.padding == 0 {
            self.cached_header_block.learn(&self.encoder, &self.output.tail()[start..], plain);
        }
    }

    /// Sends the cached frame once more, on another stream.
    fn put_cached_header_block(&mut self, stream: u32) {
        let frame = &self.cached_header_block.frame;
        let tail = self.output.tail();
        let start = tail.len();
        tail.extend_from_slice(frame);
        FrameHeader::set_stream(&mut tail[start..], stream);
        self.counters.headers_plain += self.cached_header_block.plain;
        self.counters.headers_sent += (frame.len() - HEADER_LENGTH) as u64;
        self.counters.frames_sent[usize::from(kind::HEADERS)] += 1;
    }

    /// See [`super::super::Connection::send_interim`].
    pub fn send_interim(&mut self, _now: Time, stream: StreamId, status: u16, fields: &[Field<'_>]) {
        if self.sendable(stream, Side::Head).is_none() {
            return;
        }
        self.put_headers(stream.0, false, |block| {
            block.interim(status, fields);
        });
    }

    /// See [`super::super::Connection::send_response`].
    pub fn send_response(&mut self, _now: Time, stream: StreamId, response: &Response<'_>) {
        let Some(key) = self.sendable(stream, Side::Head) else { return };
        self.put_headers(stream.0, response.end_stream, |block| {
            block.response(response);
        });
        self.streams[key].local = Side::Body;
        self.streams[key].content.answered(response.status);
        if response.end_stream {
            self.end_local(key);
        }
    }

    /// See [`super::super::Connection::send_data`].
    pub fn send_data(&mut self, now: Time, stream: StreamId, data: &[u8], end_stream: bool) -> usize {
        self.send_piece(now, stream, Payload::Copied(data), end_stream)
    }

    /// See [`super::super::Connection::send_static`]. With [`crate::Config::coalesce`] off each frame is one piece.
    pub fn send_static(
        &mut self,
        now: Time,
        stream: StreamId,
        data: &'static [u8],
        end_stream: bool,
    ) -> usize {
        let lends = !self.config.tls && self.config.coalesce;
        let piece = if lends { Payload::Lent(data) } else { Payload::Copied(data) };
        self.send_piece(now, stream, piece, end_stream)
    }

    fn send_piece(&mut self, now: Time, stream: StreamId, data: Payload<'_>, end_stream: bool) -> usize {
        let Some(key) = self.sendable(stream, Side::Body) else { return 0 };
        let most = self.take_turn(key);
        let window = self.usable_window(key);
        let accepted = self.allowance(key, data.len(), window, most);
        let is_all = accepted == data.len();
        self.accounts.piece(accepted, !is_all && accepted == window);
        if accepted > 0 || (is_all && end_stream) {
            self.put_data(key, data.split_at(accepted).0, is_all && end_stream);
        }
        if !is_all {
            self.wait(now, key, data.len(), accepted);
        }
        accepted
    }

    /// Appends DATA frames; `data` fits in both windows.
    fn put_data(&mut self, key: Key, data: Payload<'_>, end_stream: bool) {
        let id = self.streams[key].id;
        // The pad length and the padding, which count against the windows too (RFC 9113 §6.1).
        let overhead = if self.config.padding == 0 { 0 } else { 1 + usize::from(self.config.padding) };
        let mut rest = data;
        loop {
            let most = self.peer_settings.max_frame_size as usize - overhead;
            let (piece, after) = rest.split_at(rest.len().min(most));
            let flags = if end_stream && after.is_empty() { flag::END_STREAM } else { 0 };
            let fits = |window: usize| rest.len() + overhead <= window;
            let padded =
                overhead > 0 && fits(self.streams[key].send.usable()) && fits(self.send_window.usable());
            let taken = if padded {
                self.put_padded(flags, id, piece);
                piece.len() + overhead
            } else {
                let length = piece.len();
                self.put_header(kind::DATA, flags, id, length);
                self.output.push(piece);
                length
            };
            self.streams[key].send.consume(taken);
            self.send_window.consume(taken);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        if end_stream {
            self.end_local(key);
        }
    }

    /// Appends DATA with padding.
    fn put_padded(&mut self, flags: u8, stream: u32, data: Payload<'_>) {
        let padding = usize::from(self.config.padding);
        let header = FrameHeader {
            length: (1 + data.len() + padding) as u32,
            kind: kind::DATA,
            flags: flags | flag::PADDED,
            stream,
        };
        self.counters.frames_sent[usize::from(kind::DATA)] += 1;
        let tail = self.output.tail();
        tail.extend_from_slice(&header.encode());
        tail.push(self.config.padding);
        self.output.push(data);
        let tail = self.output.tail();
        tail.resize(tail.len() + padding, 0);
    }

    /// See [`super::super::Connection::send_trailers`].
    pub fn send_trailers(&mut self, _now: Time, stream: StreamId, fields: &[Field<'_>]) {
        let Some(key) = self.sendable(stream, Side::Body) else { return };
        self.put_headers(stream.0, true, |block| block.fields(fields));
        self.end_local(key);
    }

    /// The stream, if it is live and our side is at `side`. A stream that is gone ended for a reason that was or will
    /// be reported to the role; a command out of order is the role's defect.
    fn sendable(&mut self, stream: StreamId, side: Side) -> Option<Key> {
        if !self.end.is_open() {
            return None;
        }
        let key = self.streams.find(stream.0)?;
        if self.streams[key].local != side {
            const MISUSE: &str = "a message was sent out of order";
            self.fail(Error::Misuse(MISUSE), ErrorCode::INTERNAL_ERROR, MISUSE.as_bytes());
            return None;
        }
        Some(key)
    }

    fn end_local(&mut self, key: Key) {
        let stream = &mut self.streams[key];
        stream.local = Side::Ended;
        // A role may send without waiting for `Writable`: what it waited for no longer matters.
        self.backlog.forget(stream);
        stream.wait = Wait::No;
        self.remove_if_closed(key);
    }

    /// See [`super::super::Connection::reset`].
    pub fn reset(&mut self, _now: Time, stream: StreamId, code: ErrorCode) {
        if !self.end.is_open() {
            return;
        }
        if let Some(key) = self.streams.find(stream.0) {
            self.put_reset(stream.0, code);
            self.remove(key, Ending::ResetByUs);
        }
    }

    /// See [`super::super::Connection::release_by_hand`].
    pub fn release_by_hand(&mut self, stream: StreamId) {
        if let Some(key) = self.streams.find(stream.0) {
            self.streams[key].by_hand = true;
            self.any_by_hand = true;
        }
    }

    /// Whether what arrives on this stream is held until the role releases it.
    pub(super) fn is_by_hand(&self, stream: u32) -> bool {
        let of_stream = || self.streams.find(stream).is_some_and(|key| self.streams[key].by_hand);
        self.config.flow.manual_release || (self.any_by_hand && of_stream())
    }

    /// See [`super::super::Connection::release`]. Credit of the connection is due for every byte of
    /// [`super::Event::Data`], also when its stream has ended.
    pub fn release(&mut self, now: Time, stream: StreamId, n: u32) {
        if !self.end.is_open() {
            return;
        }
        self.accounts.released(n, self.receive_window.held());
        let released = self.receive_window.release(n);
        self.measure_release(now, released);
        self.return_connection_credit(now);
        if let Some(key) = self.streams.find(stream.0) {
            let released = self.streams[key].receive.release(n);
            if self.streams[key].remote != Side::Ended {
                self.stream_released(now, key, released);
            }
        }
    }

    /// Whether stream ids are used up (RFC 9113 §5.1.1).
    pub(super) fn is_out_of_ids(&self) -> bool {
        matches!(self.config.role, Role::Client) && self.next_local > MAX_31_BITS
    }
}
