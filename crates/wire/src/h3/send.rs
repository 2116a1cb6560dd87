//! The send path: commands become frames on the queues of their streams.

use std::sync::Arc;

use super::control::stream_type;
use super::frame::{self, kind};
use super::qpack::Encoder;
use super::settings::Settings;
use super::stream::{Fin, MOST_REQUESTS, QuicStreamId, Stream};
use super::transport::Action;
use super::{Connection, Role, varint};
use crate::compression::Block;
use crate::connection::{Request, Response};
use crate::content::{Content, Side};
use crate::queue::Payload;
use crate::{Error, ErrorCode, Field, Initiator, Priority, StreamId};
use h2lab_base::units::Time;

/// What a stream may queue while it shares [`crate::Config::send_buffer`] with others, in bytes.
const TURN: usize = 16 * 1024;
/// Less room than this is not worth a frame. A stream may also queue this much whatever the others have queued.
const LEAST_ROOM: usize = 1_024;

/// The contents of a field section, by kind.
#[derive(Debug, Clone, Copy)]
enum Head<'a> {
    Request(&'a Request<'a>, Option<&'a str>),
    Interim(u16, &'a [Field<'a>]),
    Response(&'a Response<'a>),
    Trailers(&'a [Field<'a>]),
}

impl Connection {
    /// Begins our control stream, our only unidirectional one: without a dynamic table the QPACK streams would be empty
    /// (RFC 9204 §4.2).
    pub(super) fn greet(&mut self) {
        let before = self.control.queue.len();
        varint::encode(stream_type::CONTROL, self.control.queue.tail());
        self.unsent += self.control.queue.len() - before;
        self.put_control(kind::SETTINGS, &Settings::of(&self.config).announce());
    }

    /// Appends a frame to the control stream.
    pub(super) fn put_control(&mut self, kind: u64, payload: &[u8]) {
        let before = self.control.queue.len();
        let tail = self.control.queue.tail();
        frame::put_header(kind, payload.len() as u64, tail);
        tail.extend_from_slice(payload);
        self.unsent += self.control.queue.len() - before;
        self.counters.frames_sent[frame::slot(kind)] += 1;
        self.offer(QuicStreamId::control_of(self.config.role));
    }

    /// See [`super::super::Connection::send_request`].
    pub fn send_request(&mut self, now: Time, request: &Request<'_>) -> Option<StreamId> {
        self.begin_request(now, request, None)
    }

    /// See [`super::super::Connection::send_connect`].
    pub fn send_connect(&mut self, now: Time, protocol: &str, request: &Request<'_>) -> Option<StreamId> {
        self.takes_connect_protocol().then(|| self.begin_request(now, request, Some(protocol)))?
    }

    fn begin_request(
        &mut self,
        now: Time,
        request: &Request<'_>,
        protocol: Option<&str>,
    ) -> Option<StreamId> {
        let number = self.begin_stream_for(now, request)?;
        if self.put_head(number, Head::Request(request, protocol)) {
            self.cached_header_block.0.clone_from(&self.section);
            self.finish_head(number, request.end_stream);
        }
        Some(StreamId::of_request(number))
    }

    /// See [`super::super::Connection::send_request_again`]. Without a dynamic table the same head has the same bytes
    /// on every stream.
    pub fn send_request_again(&mut self, now: Time, request: &Request<'_>) -> Option<StreamId> {
        if self.cached_header_block.0.is_empty() {
            return self.send_request(now, request);
        }
        let number = self.begin_stream_for(now, request)?;
        self.section.clone_from(&self.cached_header_block.0);
        self.put_section(number, self.cached_header_block.1);
        self.finish_head(number, request.end_stream);
        Some(StreamId::of_request(number))
    }

    /// Takes a stream for `request`; `None` if none is available.
    fn begin_stream_for(&mut self, now: Time, request: &Request<'_>) -> Option<u32> {
        if self.available_streams() == 0 {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let content = Content::new(request.method == "HEAD", request.method == "CONNECT");
        self.streams.insert(number, Stream::new(Side::Body, content, now));
        self.open += 1;
        self.counters.requests += 1;
        Some(number)
    }

    /// See [`super::super::Connection::send_interim`].
    pub fn send_interim(&mut self, _now: Time, stream: StreamId, status: u16, fields: &[Field<'_>]) {
        if let Some(number) = self.sendable(stream, Side::Head) {
            self.put_head(number, Head::Interim(status, fields));
        }
    }

    /// See [`super::super::Connection::send_response`].
    pub fn send_response(&mut self, _now: Time, stream: StreamId, response: &Response<'_>) {
        let Some(number) = self.sendable(stream, Side::Head) else { return };
        if !self.put_head(number, Head::Response(response)) {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.local = Side::Body;
            stream.content.answered(response.status);
        }
        self.finish_head(number, response.end_stream);
    }

    /// See [`super::super::Connection::send_trailers`].
    pub fn send_trailers(&mut self, _now: Time, stream: StreamId, fields: &[Field<'_>]) {
        let Some(number) = self.sendable(stream, Side::Body) else { return };
        if self.put_head(number, Head::Trailers(fields)) {
            self.end_local(number);
        }
    }

    /// Appends HEADERS, unless the peer accepts no section of that size: then the stream ends and `false` is returned.
    fn put_head(&mut self, number: u32, head: Head<'_>) -> bool {
        let scheme = if self.config.tls { "https" } else { "http" };
        self.section.clear();
        Encoder::begin(&mut self.section);
        let mut encoder = Encoder;
        let mut block = Block::new(&mut encoder, &mut self.section);
        match head {
            Head::Request(request, protocol) => block.request(request, scheme, protocol),
            Head::Interim(status, fields) => block.interim(status, fields),
            Head::Response(response) => block.response(response),
            Head::Trailers(fields) => block.fields(fields),
        }
        let (plain, size) = (block.plain() as u64, block.size() as u64);
        if size > self.peer().max_field_section {
            self.refuse_to_send(number);
            return false;
        }
        self.cached_header_block.1 =
            if matches!(head, Head::Request(..)) { plain } else { self.cached_header_block.1 };
        self.put_section(number, plain);
        true
    }

    /// The peer announced a smaller limit for sections (RFC 9114 §4.2.2): it would refuse this one.
    fn refuse_to_send(&mut self, number: u32) {
        let code = ErrorCode::H3_EXCESSIVE_LOAD;
        self.cached_header_block.0.clear();
        self.ended.push_back((number, code, Initiator::Engine));
        self.abort(number, code);
        self.remove(number);
    }

    /// Appends [`Connection::section`] as HEADERS.
    fn put_section(&mut self, number: u32, plain: u64) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let before = stream.out.queue.len();
        let tail = stream.out.queue.tail();
        frame::put_header(kind::HEADERS, self.section.len() as u64, tail);
        tail.extend_from_slice(&self.section);
        self.unsent += stream.out.queue.len() - before;
        self.counters.headers_plain += plain;
        self.counters.headers_sent += self.section.len() as u64;
        self.counters.frames_sent[kind::HEADERS as usize] += 1;
        self.offer(QuicStreamId::of_number(number));
    }

    fn finish_head(&mut self, number: u32, end_stream: bool) {
        if end_stream {
            self.end_local(number);
        }
    }

    /// See [`super::super::Connection::set_send_buffer`].
    pub fn set_send_buffer(&mut self, bytes: usize) {
        if self.config.send_buffer != bytes {
            Arc::make_mut(&mut self.config).send_buffer = bytes;
        }
    }

    /// See [`super::super::Connection::send_data`]. Here the limit is the room in [`crate::Config::send_buffer`], which
    /// streams share, each with 16 KiB of its own; windows are QUIC's. When QUIC's windows block more bodies than
    /// [`crate::Limits::unread_output`], a stream has 1 KiB: no stream waits for the others, and all together are
    /// bounded.
    pub fn send_data(&mut self, _now: Time, stream: StreamId, data: &[u8], end_stream: bool) -> usize {
        self.send_piece(stream, Payload::Copied(data), end_stream)
    }

    /// See [`super::super::Connection::send_static`].
    pub fn send_static(
        &mut self,
        _now: Time,
        stream: StreamId,
        data: &'static [u8],
        end_stream: bool,
    ) -> usize {
        self.send_piece(stream, Payload::Lent(data), end_stream)
    }

    fn send_piece(&mut self, stream: StreamId, data: Payload<'_>, end_stream: bool) -> usize {
        let Some(number) = self.sendable(stream, Side::Body) else { return 0 };
        let room = self.room(number);
        // A stream waits for half of its share.
        let least = data.len().min(LEAST_ROOM).min(self.share().div_ceil(2));
        let accepted = if room < least { 0 } else { room.min(data.len()) };
        let is_all = accepted == data.len();
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.waits = !is_all;
            if accepted > 0 {
                let before = stream.out.queue.len();
                frame::put_header(kind::DATA, accepted as u64, stream.out.queue.tail());
                stream.out.queue.push(data.split_at(accepted).0);
                let queued = stream.out.queue.len() - before;
                stream.out.body += queued;
                self.unsent += queued;
                self.unsent_bodies += queued;
                self.counters.frames_sent[kind::DATA as usize] += 1;
            }
        }
        if is_all && end_stream {
            self.end_local(number);
        } else {
            self.offer(QuicStreamId::of_number(number));
        }
        if !is_all {
            self.stream_drained(number);
        }
        accepted
    }

    /// How much a stream may have waiting.
    fn share(&self) -> usize {
        let buffer = self.config.send_buffer;
        let is_held_up = self.unsent_bodies >= self.config.limits.unread_output;
        let least = if is_held_up { LEAST_ROOM } else { TURN };
        (buffer / self.open.max(1) as usize).max(least).min(buffer)
    }

    /// How much more may wait on a stream.
    fn room(&self, number: u32) -> usize {
        let waiting = self.streams.get(&number).map_or(0, |stream| stream.out.queue.len());
        self.share().saturating_sub(waiting)
    }

    /// The transport took some output of a stream; its body is writable when half of its share is free.
    pub(super) fn stream_drained(&mut self, number: u32) {
        let share = self.share();
        if let Some(stream) = self.streams.get(&number)
            && stream.waits
            && stream.out.queue.len() <= share / 2
            && !self.writable.contains(&number)
        {
            self.writable.push_back(number);
        }
        self.remove_if_done(number);
    }

    /// The next stream that may send more body.
    pub(super) fn next_writable(&mut self) -> Option<u32> {
        loop {
            let number = self.writable.pop_front()?;
            let share = self.share();
            // The share may have shrunk; then the stream is queued again when the transport has taken more.
            if let Some(stream) = self.streams.get_mut(&number)
                && stream.waits
                && stream.out.queue.len() <= share / 2
            {
                stream.waits = false;
                return Some(number);
            }
        }
    }

    /// The stream's number, if it is live and our side is at `side`. A stream that is gone ended for a reason that was
    /// or will be reported to the role; a command out of order is the role's defect.
    fn sendable(&mut self, stream: StreamId, side: Side) -> Option<u32> {
        let number = stream.0 >> 1;
        let local = self.streams.get(&number)?.local;
        if !self.end.is_open() || stream.0 & 1 == 0 {
            return None;
        }
        if local == side {
            return Some(number);
        }
        let is_stopped = self.config.role == Role::Client && local == Side::Ended;
        if !is_stopped {
            const MISUSE: &str = "a message was sent out of order";
            self.fail(Error::Misuse(MISUSE), ErrorCode::H3_INTERNAL_ERROR, MISUSE.to_owned());
        }
        None
    }

    /// Our message ends after the pending output.
    fn end_local(&mut self, number: u32) {
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.local = Side::Ended;
            stream.waits = false;
            stream.out.fin = Fin::Due;
            self.open -= u32::from(stream.is_over());
        }
        self.offer(QuicStreamId::of_number(number));
    }

    /// The server needs no more of a request: pending output is dropped, and the response may still come.
    pub(super) fn end_unsent(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        if stream.out.fin == Fin::Sent {
            return;
        }
        let was_over = stream.is_over();
        self.unsent -= stream.out.queue.len();
        self.unsent_bodies -= std::mem::take(&mut stream.out.body);
        stream.out.queue.consume(usize::MAX);
        (stream.local, stream.waits, stream.out.fin) = (Side::Ended, false, Fin::Sent);
        self.open -= u32::from(stream.is_over() && !was_over);
        self.put_abort(number, true, false, ErrorCode::H3_NO_ERROR);
        self.remove_if_done(number);
    }

    /// Takes a stream out of the store when both sides have ended and the transport has all our output.
    pub(super) fn remove_if_done(&mut self, number: u32) {
        let is_done =
            self.streams.get(&number).is_some_and(|stream| stream.is_over() && !stream.out.is_waiting());
        if is_done {
            self.remove(number);
        }
    }

    /// See [`super::super::Connection::reset`]. A server whose response is complete only stops reading the request:
    /// `RESET_STREAM` could discard the response, which RST_STREAM after it does not in HTTP/2.
    pub fn reset(&mut self, _now: Time, stream: StreamId, code: ErrorCode) {
        let number = stream.0 >> 1;
        let Some(stream) = self.streams.get_mut(&number).filter(|_| self.end.is_open()) else { return };
        let code = code.in_http3();
        if self.config.role == Role::Server && stream.local == Side::Ended {
            let (receives, was_over) = (!stream.is_finished, stream.is_over());
            stream.is_finished = true;
            self.open -= u32::from(!was_over);
            self.put_abort(number, false, receives, code);
            self.remove_if_done(number);
        } else {
            self.abort(number, code);
            self.remove(number);
        }
        self.ended.retain(|ended| ended.0 != number);
    }

    /// See [`super::super::Connection::send_priority_update`].
    pub fn send_priority_update(&mut self, _now: Time, stream: StreamId, priority: Priority) {
        let number = stream.0 >> 1;
        let is_live = self.end.is_open() && self.streams.contains_key(&number);
        if self.config.role == Role::Client && is_live {
            let stream = QuicStreamId::of_number(number);
            let mut payload = Vec::new();
            varint::encode(stream.0, &mut payload);
            payload.extend_from_slice(priority.to_string().as_bytes());
            self.put_control(kind::PRIORITY_UPDATE, &payload);
            self.actions.push_back(Action::Prioritise { stream, priority });
        }
    }

    /// See [`super::super::Connection::release_by_hand`].
    pub fn release_by_hand(&mut self, stream: StreamId) {
        if let Some(stream) = self.streams.get_mut(&(stream.0 >> 1)) {
            stream.by_hand = true;
        }
    }

    /// See [`super::super::Connection::release`]: [`Connection::wants_stream`] checks what is still held.
    pub fn release(&mut self, _now: Time, stream: StreamId, n: u32) {
        if let Some(stream) = self.streams.get_mut(&(stream.0 >> 1)) {
            let was_full = stream.held >= self.config.flow.stream_window;
            stream.held = stream.held.saturating_sub(n);
            if was_full {
                self.deadlines.excuse_bodies();
            }
        }
    }

    /// Whether the numbers of requests are used up.
    pub(super) fn is_out_of_ids(&self) -> bool {
        matches!(self.config.role, Role::Client) && self.next >= MOST_REQUESTS
    }
}
