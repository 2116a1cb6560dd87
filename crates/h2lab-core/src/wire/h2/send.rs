//! The send path: commands become frames at the end of the output.

use super::frame::{FrameHeader, HEADER_LENGTH, MAX_31_BITS, flag, kind};
use super::hpack::Encoder;
use super::stream::{Side, Wait};
use super::streams::{Ending, Key};
use super::{Connection, Role};
use crate::units::Time;
use crate::wire::connection::{Request, Response};
use crate::wire::{Error, ErrorCode, Field, StreamId};

/// Writes the fields of one block, and counts what they would take as HTTP/1.1 text.
struct Block<'a> {
    encoder: &'a mut Encoder,
    out: &'a mut Vec<u8>,
    plain: usize,
}

/// `: ` and CRLF around every field of HTTP/1.1.
const PLAIN_FIELD: usize = 4;

impl Block<'_> {
    fn pseudo(&mut self, name: &str, value: &[u8]) {
        self.encoder.field(name.as_bytes(), value, self.out);
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.encoder.field(name, value, self.out);
        self.plain += name.len() + value.len() + PLAIN_FIELD;
    }

    fn fields(&mut self, fields: &[Field<'_>]) {
        for field in fields {
            self.field(field.name, field.value);
        }
    }

    fn content_length(&mut self, length: Option<u64>) {
        if let Some(length) = length {
            let mut digits = [0; 20];
            self.field(b"content-length", decimal(length, &mut digits));
        }
    }

    /// `GET /path HTTP/1.1`, host, and the empty line.
    fn request_line(&mut self, request: &Request<'_>, scheme: &str) {
        self.pseudo(":method", request.method.as_bytes());
        if request.method != "CONNECT" {
            self.pseudo(":scheme", scheme.as_bytes());
        }
        self.pseudo(":authority", request.authority.as_bytes());
        if request.method != "CONNECT" {
            self.pseudo(":path", request.path.as_bytes());
        }
        let line = request.method.len() + request.path.len() + "  HTTP/1.1\r\n".len();
        self.plain += line + "host".len() + request.authority.len() + PLAIN_FIELD + "\r\n".len();
    }

    /// `HTTP/1.1 200`, without a reason phrase, and the empty line.
    fn status_line(&mut self, status: u16) {
        let mut digits = [0; 20];
        self.pseudo(":status", decimal(u64::from(status), &mut digits));
        self.plain += "HTTP/1.1 200 \r\n\r\n".len();
    }
}

/// `number` in decimal digits.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[first..];
        }
    }
}

impl Connection {
    /// Appends one frame.
    pub(super) fn put_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.counters.frames_sent[usize::from(kind)] += 1;
        let tail = self.output.tail();
        tail.extend_from_slice(&FrameHeader { length: payload.len() as u32, kind, flags, stream }.encode());
        tail.extend_from_slice(payload);
    }

    pub(super) fn put_reset(&mut self, stream: u32, code: ErrorCode) {
        self.put_frame(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes());
    }

    /// Appends HEADERS with the fields that `write` puts, encoded in place, and CONTINUATIONs if they take more than a
    /// frame.
    fn put_headers(&mut self, stream: u32, end_stream: bool, write: impl FnOnce(&mut Block<'_>)) {
        let out = self.output.tail();
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LENGTH]);
        self.encoder.begin(out);
        let mut block = Block { encoder: &mut self.encoder, out, plain: 0 };
        write(&mut block);
        self.counters.headers_plain += block.plain as u64;
        let out = self.output.tail();
        let length = out.len() - start - HEADER_LENGTH;
        self.counters.headers_sent += length as u64;
        let end = if end_stream { flag::END_STREAM } else { 0 };
        if length > self.peer_settings.max_frame_size as usize {
            return self.put_split(stream, end, start);
        }
        let header = FrameHeader {
            length: length as u32,
            kind: kind::HEADERS,
            flags: flag::END_HEADERS | end,
            stream,
        };
        out[start..start + HEADER_LENGTH].copy_from_slice(&header.encode());
        self.counters.frames_sent[usize::from(kind::HEADERS)] += 1;
    }

    /// Splits the block that begins behind the room for a header at `start`. Rare: a block above 16 KiB.
    fn put_split(&mut self, stream: u32, end: u8, start: usize) {
        let out = self.output.tail();
        let block = out.split_off(start + HEADER_LENGTH);
        out.truncate(start);
        let mut pieces = block.chunks(self.peer_settings.max_frame_size as usize).peekable();
        let (mut kind, mut flags) = (kind::HEADERS, end);
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
            self.put_frame(kind, flags | last, stream, piece);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }

    /// See [`super::super::Connection::send_request`].
    pub fn send_request(&mut self, _now: Time, request: &Request<'_>) -> Option<StreamId> {
        if self.available_streams() == 0 {
            return None;
        }
        let id = self.next_local;
        self.next_local += 2;
        let local = if request.end_stream { Side::Ended } else { Side::Body };
        let mut stream = self.new_stream(id, local, Side::Head);
        stream.no_content = request.method == "HEAD";
        stream.is_connect = request.method == "CONNECT";
        self.streams.insert(stream);
        self.counters.requests += 1;
        let scheme = if self.config.tls { "https" } else { "http" };
        self.put_headers(id, request.end_stream, |block| {
            block.request_line(request, scheme);
            block.content_length(request.body_length);
            block.fields(request.fields);
        });
        Some(StreamId(id))
    }

    /// See [`super::super::Connection::send_interim`].
    pub fn send_interim(&mut self, _now: Time, stream: StreamId, status: u16, fields: &[Field<'_>]) {
        if self.sendable(stream, Side::Head).is_none() {
            return;
        }
        self.put_headers(stream.0, false, |block| {
            block.status_line(status);
            block.fields(fields);
        });
    }

    /// See [`super::super::Connection::send_response`].
    pub fn send_response(&mut self, _now: Time, stream: StreamId, response: &Response<'_>) {
        let Some(key) = self.sendable(stream, Side::Head) else { return };
        self.put_headers(stream.0, response.end_stream, |block| {
            block.status_line(response.status);
            block.content_length(response.body_length);
            block.fields(response.fields);
        });
        self.streams[key].local = Side::Body;
        if response.end_stream {
            self.end_local(key);
        }
    }

    /// See [`super::super::Connection::send_data`].
    pub fn send_data(&mut self, now: Time, stream: StreamId, data: &[u8], end_stream: bool) -> usize {
        let Some(key) = self.sendable(stream, Side::Body) else { return 0 };
        let window = self.usable_window(key);
        let accepted = self.allowance(key, data.len(), window);
        let is_all = accepted == data.len();
        self.guard.piece(accepted, !is_all && accepted == window);
        if accepted > 0 || (is_all && end_stream) {
            self.put_data(key, &data[..accepted], is_all && end_stream);
        }
        if !is_all {
            self.wait(now, key, data.len(), accepted);
        }
        accepted
    }

    /// Appends DATA frames; `data` fits in both windows.
    fn put_data(&mut self, key: Key, data: &[u8], end_stream: bool) {
        let stream = &mut self.streams[key];
        let id = stream.id;
        stream.send.consume(data.len());
        self.send_window.consume(data.len());
        let mut rest = data;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(self.peer_settings.max_frame_size as usize));
            let flags = if end_stream && after.is_empty() { flag::END_STREAM } else { 0 };
            self.put_frame(kind::DATA, flags, id, piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        if end_stream {
            self.end_local(key);
        }
    }

    /// See [`super::super::Connection::send_trailers`].
    pub fn send_trailers(&mut self, _now: Time, stream: StreamId, fields: &[Field<'_>]) {
        let Some(key) = self.sendable(stream, Side::Body) else { return };
        self.put_headers(stream.0, true, |block| block.fields(fields));
        self.end_local(key);
    }

    /// The stream, if it is live and our side has come just so far. A stream that is gone ended for a reason that the
    /// role has been or will be told; a command out of order is the role's defect.
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
        // A role may send before it is told that it can: what it waited for no longer matters.
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

    /// See [`super::super::Connection::release`]. Credit of the connection is due for every byte of [`super::Event::Data`],
    /// also when its stream is over.
    pub fn release(&mut self, _now: Time, stream: StreamId, n: u32) {
        if !self.end.is_open() {
            return;
        }
        self.guard.released(n, self.receive_window.held());
        self.receive_window.release(n);
        self.return_connection_credit();
        if let Some(key) = self.streams.find(stream.0) {
            self.streams[key].receive.release(n);
            if self.streams[key].remote != Side::Ended {
                self.return_stream_credit(key);
            }
        }
    }

    /// Whether stream ids are used up (RFC 9113 §5.1.1).
    pub(super) const fn is_out_of_ids(&self) -> bool {
        matches!(self.config.role, Role::Client) && self.next_local > MAX_31_BITS
    }
}
