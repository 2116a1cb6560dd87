//! Applies the peer's bytes to the state of a connection.

use super::body::{Decoder, Then};
use super::buffer::Span;
use super::connection::{Connection, DATA, Eof, Exchange, HEADERS, Life, Receiving, SWITCHING};
use super::head::{self, Framing, Head, Opening, Refusal, Target, Version};
use super::upgrade::any_token;
use crate::{Error, Event, Exceeded, Fields, Limit, RequestHead, ResponseHead, Role, StreamId};

/// Bytes that may wait behind a complete message. A role that honours `wants_input` reads no more than
/// [`READ_AHEAD`](super::connection::READ_AHEAD) and one read; for one that does not the bound is an error.
const MAX_AHEAD: usize = 1 << 20;

/// An event whose borrowed parts are still positions: [`Connection::lend`] turns it into an [`Event`].
#[derive(Debug)]
pub(super) enum Ready {
    Request { stream: StreamId, target: Target, end_stream: bool },
    Interim { stream: StreamId, status: u16 },
    Response { stream: StreamId, status: u16, end_stream: bool },
    Data { stream: StreamId, data: Span, end_stream: bool },
    Trailers { stream: StreamId },
    Writable { stream: StreamId },
    Closed { error: Option<Error> },
}

/// The result of a step of reading.
enum Progress {
    /// An event to report.
    Event(Ready),
    /// The state changed: look again.
    Again,
    /// Nothing can be done without more input.
    Starved,
}

impl Connection {
    pub(super) fn next_event(&mut self) -> Option<Ready> {
        loop {
            match &mut self.life {
                Life::Over => return None,
                Life::Ending(_) if !self.output.is_empty() => return None,
                Life::Ending(error) => {
                    let error = error.take().map(|error| *error);
                    self.life = Life::Over;
                    return Some(Ready::Closed { error });
                }
                Life::Open => {}
            }
            if let Some(stream) = self.take_writable() {
                return Some(Ready::Writable { stream });
            }
            let progress = match self.read() {
                Progress::Starved if self.eof.has_come() => self.read_end(),
                progress => progress,
            };
            match progress {
                Progress::Event(ready) => return Some(ready),
                Progress::Again => {}
                Progress::Starved => return None,
            }
        }
    }

    /// Turns positions into borrowed bytes.
    pub(super) fn lend(&self, ready: Ready) -> Event<'_> {
        let fields = Fields::new(&self.scratch.bytes, &self.scratch.spans);
        let is_http10 = self.received == Version::Http10;
        match ready {
            Ready::Request { stream, target, end_stream } => {
                let head = RequestHead {
                    method: self.input.get(target.method),
                    scheme: self.input.get(target.scheme),
                    authority: self.input.get(target.authority),
                    path: self.input.get(target.path),
                    protocol: b"",
                    is_http10,
                    fields,
                };
                Event::Request { stream, head, end_stream }
            }
            Ready::Interim { stream, status } => {
                Event::Interim { stream, head: ResponseHead { status, is_http10, fields } }
            }
            Ready::Response { stream, status, end_stream } => {
                Event::Response { stream, head: ResponseHead { status, is_http10, fields }, end_stream }
            }
            Ready::Data { stream, data, end_stream } => {
                Event::Data { stream, data: self.input.get(data), end_stream }
            }
            Ready::Trailers { stream } => Event::Trailers { stream, fields },
            Ready::Writable { stream } => Event::Writable { stream },
            Ready::Closed { error } => Event::Closed { error },
        }
    }

    fn read(&mut self) -> Progress {
        if !self.is_usable() || self.awaits_its_tunnel() {
            return Progress::Starved; // see `upgrade`, `tunnel`
        }
        if self.input.is_empty() && !matches!(self.receiving, Receiving::Body(_)) {
            return Progress::Starved;
        }
        match self.receiving {
            Receiving::Head => self.read_head(),
            Receiving::Body(_) => self.read_body(),
            Receiving::Trailers => self.read_trailers(),
            Receiving::Complete if self.input.unread().len() > MAX_AHEAD => {
                self.refuse(Refusal::bad("more than 1 MiB was sent ahead of the response"));
                Progress::Again
            }
            Receiving::Complete => Progress::Starved,
        }
    }

    fn read_head(&mut self) -> Progress {
        let server = self.config.role == Role::Server;
        if !self.opened {
            match head::opening(self.input.unread(), server) {
                Opening::Http => self.opened = true,
                Opening::Unclear => return Progress::Starved,
                Opening::Foreign(error) => {
                    self.refuse_with(Refusal::bad("this is not HTTP/1.1"), error);
                    return Progress::Again;
                }
            }
        }
        if server {
            // Some clients send an empty line after a body (RFC 9112 §2.2).
            while self.input.unread().starts_with(b"\r\n") {
                self.input.consume(2);
            }
        }
        let bytes = self.input.unread();
        if bytes.first() == Some(&b'\n') || (!server && bytes.first() == Some(&b'\r')) {
            self.refuse(Refusal::bad("an empty line where a message should begin"));
            return Progress::Again;
        }
        if server { self.read_request() } else { self.read_response() }
    }

    fn read_request(&mut self) -> Progress {
        let head = match self.parse(head::parse_request, |head| head.length) {
            Ok(Some(head)) => head,
            Ok(None) => return Progress::Starved,
            // The request line is more than half of what is too large.
            Err(Refusal { status: 431, .. })
                if head::first_line(self.input.unread()).len()
                    > self.config.max_header_list_size as usize / 2 =>
            {
                return self.refuse_and_go_on(Refusal::LONG_TARGET);
            }
            Err(_) if self.counters.requests == 0 && head::names_another_protocol(self.input.unread()) => {
                // A version of HTTP may still follow a target with a space.
                let unread = self.input.unread();
                if !head::has_first_line(unread) && unread.len() <= self.config.max_header_list_size as usize
                {
                    return Progress::Starved;
                }
                // The sender would not understand an answer; a client of HTTP/2 with a wrong preface would take it for
                // frames (RFC 9113 §3.4).
                let hint = "its first line names a protocol that is not HTTP";
                self.end(Some(Error::WrongProtocol { expected: "HTTP/1.1", hint }));
                return Progress::Again;
            }
            Err(Refusal { status: 505, .. }) if head::has_space_in_target(self.input.unread()) => {
                return self.refuse_and_go_on(Refusal::bad("white space in the request target"));
            }
            Err(refusal) => return self.refuse_and_go_on(refusal),
        };
        if let Err(refusal) = self.note_offer(head.framing, head.version) {
            return self.refuse_and_go_on(refusal);
        }
        let place = self.take_head(head.length);
        self.received = head.version;
        let stream = StreamId::of_request(self.counters.requests as u32);
        self.counters.requests += 1;
        let Head { line: Target { method, scheme, authority, path }, version, framing, .. } = head;
        let target = Target {
            method: method.within(place),
            scheme: scheme.within(place),
            authority: authority.within(place),
            path: path.within(place),
        };
        let decoder = match framing {
            Framing { chunked: true, .. } => Some(Decoder::chunked()),
            Framing { content_length: Some(length @ 1..), .. } => Some(Decoder::Length(length)),
            _ => None,
        };
        let awaits_continue = framing.expects_continue && decoder.is_some() && version == Version::Http11;
        let mut exchange = Exchange::new(stream, self.input.get(target.method) == b"HEAD", version);
        exchange.close = framing.ends_connection(version);
        exchange.awaits_continue = awaits_continue;
        exchange.is_connect = self.input.get(target.method) == b"CONNECT";
        if exchange.is_connect && decoder.is_some() {
            return self.refuse_and_go_on(Refusal::bad("CONNECT with content (RFC 9110 §9.3.6)"));
        }
        self.exchange = Some(exchange);
        let end_stream = self.begin_body(decoder);
        Progress::Event(Ready::Request { stream, target, end_stream })
    }

    fn read_response(&mut self) -> Progress {
        let head = if let Some(head) =
            self.repeated.as_ref().and_then(|repeated| repeated.response.read_again(self.input.unread()))
        {
            self.looked_at = 0;
            self.take_head(head.length);
            head
        } else {
            let head = match self.parse(head::parse_response, |head| head.length) {
                Ok(Some(head)) => head,
                Ok(None) => return Progress::Starved,
                Err(refusal) => return self.refuse_and_go_on(refusal),
            };
            let place = self.take_head(head.length);
            self.repeated.get_or_insert_default().response.remember(self.input.get(place), head);
            head
        };
        let Head { line: status, version, framing, .. } = head;
        self.received = version;
        let Some(exchange) = &mut self.exchange else {
            return self.read_unasked(status);
        };
        let stream = exchange.stream;
        match status {
            SWITCHING if exchange.asks_for.is_some() => {
                let fields = Fields::new(&self.scratch.bytes, &self.scratch.spans);
                let protocol = exchange.asks_for.as_deref().unwrap_or_default();
                if !any_token(fields, b"upgrade", protocol.as_bytes()) {
                    let refusal = Refusal::bad("it switches to a protocol that we did not ask for");
                    return self.refuse_and_go_on(refusal);
                }
                self.begin_tunnel();
                return Progress::Event(Ready::Response { stream, status, end_stream: false });
            }
            200..=299 if exchange.is_connect => {
                self.begin_tunnel();
                return Progress::Event(Ready::Response { stream, status, end_stream: false });
            }
            SWITCHING => {
                return self.refuse_and_go_on(Refusal::bad("it switches protocols without a request to"));
            }
            100..=199 => {
                exchange.interims += 1;
                if exchange.interims > self.config.limits.interims {
                    return self.exceed_interims();
                }
                return Progress::Event(Ready::Interim { stream, status });
            }
            _ => {}
        }
        exchange.close |= framing.ends_connection(version);
        let decoder = if exchange.is_head || matches!(status, 204 | 304) {
            None
        } else {
            match framing {
                Framing { chunked: true, .. } => Some(Decoder::chunked()),
                Framing { content_length: Some(0), .. } => None,
                Framing { content_length: Some(length), .. } => Some(Decoder::Length(length)),
                _ => {
                    exchange.close = true;
                    Some(Decoder::UntilClose)
                }
            }
        };
        let end_stream = self.begin_body(decoder);
        Progress::Event(Ready::Response { stream, status, end_stream })
    }

    /// Too many interim responses: over HTTP/1.1 the connection ends with the request.
    fn exceed_interims(&mut self) -> Progress {
        self.counters.limit_hit(Limit::Interims);
        let allowed = u64::from(self.config.limits.interims);
        self.end(Some(Error::Exceeded(Exceeded { limit: Limit::Interims, allowed })));
        Progress::Again
    }

    /// A response that no request asked for. A server that stops waiting for a request answers 408 and closes, which is
    /// an orderly end (RFC 9110 §15.5.9).
    fn read_unasked(&mut self, status: u16) -> Progress {
        let error = (status != 408).then_some(Error::BadHttp1("unsolicited response"));
        self.end(error);
        Progress::Again
    }

    /// Parses a head at the front of the input, or finds that it is too large or incomplete.
    pub(super) fn parse<T>(
        &mut self,
        parse: fn(&[u8], &mut head::Scratch) -> Result<Option<T>, Refusal>,
        length: fn(&T) -> usize,
    ) -> Result<Option<T>, Refusal> {
        let limit = self.config.max_header_list_size as usize;
        let bytes = self.input.unread();
        if self.looked_at > 0 && !head::may_be_complete(bytes, self.looked_at) {
            self.looked_at = bytes.len();
            return if bytes.len() > limit { Err(Refusal::TOO_LARGE) } else { Ok(None) };
        }
        let parsed = parse(bytes, &mut self.scratch)?;
        let size = parsed.as_ref().map_or(bytes.len(), length);
        self.looked_at = if parsed.is_some() { 0 } else { bytes.len() };
        if size > limit { Err(Refusal::TOO_LARGE) } else { Ok(parsed) }
    }

    /// Takes a head, or trailers, off the input and counts it. Returns where in the input it lies.
    pub(super) fn take_head(&mut self, length: usize) -> Span {
        self.counters.headers_received += length as u64;
        self.counters.frames_received[HEADERS] += 1;
        self.input.consume(length)
    }

    /// Continues with the body, if there is one; else the message is complete. Returns whether it is.
    fn begin_body(&mut self, decoder: Option<Decoder>) -> bool {
        let end_stream = decoder.is_none();
        match decoder {
            Some(decoder) => self.receiving = Receiving::Body(decoder),
            None => self.message_received(),
        }
        end_stream
    }

    /// The peer's message is complete.
    fn message_received(&mut self) {
        self.receiving = Receiving::Complete;
        self.settle();
    }

    fn read_body(&mut self) -> Progress {
        let (Receiving::Body(decoder), Some(exchange)) = (&mut self.receiving, &self.exchange) else {
            return Progress::Starved;
        };
        let stream = exchange.stream;
        let piece = match decoder.decode(self.input.unread()) {
            Ok(piece) => piece,
            Err(reason) => return self.refuse_and_go_on(Refusal::bad(reason)),
        };
        self.charge_offer(piece.data as u64);
        self.input.consume(piece.skip);
        let data = self.input.consume(piece.data);
        if piece.data > 0 {
            if let Some(exchange) = &mut self.exchange {
                exchange.awaits_continue = false;
            }
            self.counters.frames_received[DATA] += 1;
        }
        let is_unwanted = self.throws_away(piece.data as u64);
        match piece.then {
            Then::End => self.message_received(),
            Then::Trailers => self.receiving = Receiving::Trailers,
            Then::More => {}
        }
        match piece.then {
            Then::Trailers => Progress::Again,
            Then::More if piece.data == 0 => Progress::Starved,
            _ if is_unwanted => Progress::Again,
            then => Progress::Event(Ready::Data { stream, data, end_stream: then == Then::End }),
        }
    }

    fn read_trailers(&mut self) -> Progress {
        let Some(stream) = self.exchange.as_ref().map(|exchange| exchange.stream) else {
            return Progress::Starved;
        };
        if let Some(repeated) = &mut self.repeated {
            repeated.response.forget();
        }
        let length = match self.parse(head::parse_trailers, |length| *length) {
            Ok(Some(length)) => length,
            Ok(None) => return Progress::Starved,
            Err(refusal) => return self.refuse_and_go_on(refusal),
        };
        if self.throws_away(length as u64) {
            self.input.consume(length);
            self.message_received();
            return Progress::Again;
        }
        if self.scratch.spans.is_empty() {
            self.input.consume(length);
            self.message_received();
            return Progress::Event(Ready::Data { stream, data: Span::default(), end_stream: true });
        }
        self.take_head(length);
        self.message_received();
        Progress::Event(Ready::Trailers { stream })
    }

    /// The peer has closed and all that it sent has been read.
    fn read_end(&mut self) -> Progress {
        let server = self.config.role == Role::Server;
        let begun = !self.input.is_empty();
        let missing = match &self.receiving {
            Receiving::Head if begun => "a message head",
            Receiving::Head if self.exchange.is_some() => "an exchange, before any of the response",
            Receiving::Body(Decoder::UntilClose) if self.eof == Eof::Truncated => {
                "a body that ends with the connection: TLS ended without close_notify"
            }
            Receiving::Body(Decoder::UntilClose) => {
                let stream = self.exchange.as_ref().map_or(StreamId::CONNECTION, |exchange| exchange.stream);
                self.message_received();
                return Progress::Event(Ready::Data { stream, data: Span::default(), end_stream: true });
            }
            Receiving::Body(_) | Receiving::Trailers => "a message body",
            // The client half-closed: it still waits for our response. In a tunnel either side may have.
            Receiving::Complete if server || (self.is_raw && self.exchange.is_some()) => {
                return Progress::Starved;
            }
            // Between exchanges, or the server answered without reading our whole request.
            Receiving::Head | Receiving::Complete => {
                self.end(None);
                return Progress::Again;
            }
        };
        self.end(Some(Error::UnexpectedEof(missing)));
        Progress::Again
    }

    fn refuse_and_go_on(&mut self, refusal: Refusal) -> Progress {
        self.refuse(refusal);
        Progress::Again
    }
}
