//! The state of a connection and of its one exchange, and what the role commands.

use std::sync::Arc;

use super::body::{Decoder, Encoder};
use super::buffer::{Input, LEAST_READ, MAX_READ, Output};
use super::counts::Counts;
use super::head::{self, Scratch, Version};
use super::repetition::Repeated;
use super::unwanted::Unwanted;
use super::upgrade::offer;
use crate::connection::{Config, Counters, Refused, Request};
use crate::limits::deadlines::Deadlines;
use crate::own_answers::OwnAnswers;
use crate::queue::Payload;
use crate::{Error, ErrorCode, Event, Field, Priority, Role, StreamId};
use h2lab_base::units::Time;

/// Requests after which a connection accepts no more: stream ids, 2n + 1, must stay below 2^31 as in HTTP/2.
pub(super) const MAX_REQUESTS: u64 = 1 << 30;

/// Bytes of pipelined requests that are read behind a complete message before it is answered. The rest waits in the
/// transport, whose flow control holds the client back.
pub(super) const READ_AHEAD: usize = 64 * 1024;

/// "Switching Protocols" (RFC 9110 §15.2.2).
pub(super) const SWITCHING: u16 = 101;

/// Index of DATA and of HEADERS in [`Counters::frames_sent`].
pub(super) const DATA: usize = 0;
/// See [`DATA`].
pub(super) const HEADERS: usize = 1;

/// How far the peer's current message has been read.
#[derive(Debug)]
pub(super) enum Receiving {
    /// No head yet.
    Head,
    /// In its body.
    Body(Decoder),
    /// In the trailer section of its body.
    Trailers,
    /// It is complete; the next one is not read before the exchange is over.
    Complete,
}

/// How far our current message has been queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// No head yet.
    Head,
    /// In its body.
    Body(Encoder),
    /// In its body, of which `send_data` could not take all: the role waits for [`Event::Writable`].
    Blocked(Encoder),
    /// It is complete.
    Complete,
}

impl Sending {
    /// How the body is framed while one is being sent.
    const fn encoder(&mut self) -> Option<&mut Encoder> {
        match self {
            Self::Body(encoder) | Self::Blocked(encoder) => Some(encoder),
            Self::Head | Self::Complete => None,
        }
    }
}

/// Whether the connection is open.
#[derive(Debug)]
pub(super) enum Life {
    Open,
    /// Ends as soon as the output is flushed: `None` after an orderly end, else why.
    Ending(Option<Box<Error>>),
    /// The role has been notified.
    Over,
}

/// A request and its response. It is over when both messages are complete.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "what each side has asked for is independent")]
pub(super) struct Exchange {
    pub(super) stream: StreamId,
    /// The response to HEAD has no body, whatever its fields say.
    pub(super) is_head: bool,
    /// The request's version, in the server role.
    pub(super) version: Version,
    /// The client waits for our 100 before it sends the body (server role).
    pub(super) awaits_continue: bool,
    /// The connection ends with the response.
    pub(super) close: bool,
    /// Interim responses so far (client role).
    pub(super) interims: u32,
    /// The protocol that it asks to switch to (client role).
    pub(super) asks_for: Option<Box<str>>,
    /// It is a CONNECT: a tunnel follows a 2xx (RFC 9110 §9.3.6).
    pub(super) is_connect: bool,
    /// The role does not need the rest of the request, whose response is complete.
    pub(super) unwanted: Option<Box<Unwanted>>,
    pub(super) sending: Sending,
}

impl Exchange {
    /// An exchange of which only the request's head is known.
    pub(super) const fn new(stream: StreamId, is_head: bool, version: Version) -> Self {
        Self {
            stream,
            is_head,
            version,
            awaits_continue: false,
            close: false,
            interims: 0,
            asks_for: None,
            is_connect: false,
            unwanted: None,
            sending: Sending::Head,
        }
    }
}

/// A client's offer to switch to HTTP/2.
#[derive(Debug)]
pub(super) struct Offered {
    /// The payload of its `HTTP2-Settings`.
    pub(super) settings: Vec<u8>,
    /// Bytes of the request's body that may still come.
    pub(super) body_left: u64,
}

/// The state of the switch to HTTP/2.
#[derive(Debug)]
pub(super) enum Upgrade {
    /// Not requested.
    No,
    /// Server: the first request offers it.
    Offered(Box<Offered>),
    /// Client: the first request is to ask for it.
    Wanted,
    /// Client: we have asked, and the server must have answered by then.
    Asked(Time),
}

/// Whether the peer has closed its sending side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eof {
    /// More may come.
    NotYet,
    /// It has.
    Clean,
    /// It has, without the `close_notify` of TLS.
    Truncated,
}

impl Eof {
    pub(super) fn has_come(self) -> bool {
        self != Self::NotYet
    }
}

/// An HTTP/1.1 connection. See [`crate`] for how to drive it.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "how the connection began and how it ends are independent")]
pub struct Connection {
    pub(super) config: Arc<Config>,
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) scratch: Scratch,
    pub(super) counters: Counts,
    pub(super) exchange: Option<Exchange>,
    pub(super) receiving: Receiving,
    pub(super) life: Life,
    /// No further exchange will begin.
    pub(super) draining: bool,
    /// The next response says `Connection: close`, and is the last.
    pub(super) announces_close: bool,
    /// Whether the peer has closed its sending side.
    pub(super) eof: Eof,
    /// The first bytes were found to be HTTP/1.1.
    pub(super) opened: bool,
    /// Bytes of an incomplete head or trailer section that have been examined.
    pub(super) looked_at: usize,
    pub(super) deadlines: Deadlines,
    /// Heads that may come again (client role).
    pub(super) repeated: Option<Box<Repeated>>,
    /// The switch to HTTP/2.
    pub(super) upgrade: Upgrade,
    /// It carries one tunnel and no HTTP.
    pub(super) is_raw: bool,
    /// The version of the message that is arriving, or of the last one.
    pub(super) received: Version,
    /// The size up to which the read buffer grows, in bytes.
    pub(super) most_read: u32,
    /// See [`crate::Connection::take_refused`].
    pub(super) refused: Option<Box<Refused>>,
    /// See [`crate::Connection::set_own_answers`].
    pub(crate) own_answers: Option<Arc<OwnAnswers>>,
}

impl Connection {
    /// A connection in the given role. Nothing is sent until the role asks for it.
    pub fn new(config: impl Into<Arc<Config>>) -> Self {
        let config = config.into();
        Self {
            deadlines: Deadlines::new(Arc::clone(&config)),
            config,
            input: Input::default(),
            output: Output::default(),
            scratch: Scratch::default(),
            counters: Counts::default(),
            exchange: None,
            receiving: Receiving::Head,
            life: Life::Open,
            draining: false,
            announces_close: false,
            eof: Eof::NotYet,
            opened: false,
            looked_at: 0,
            repeated: None,
            upgrade: Upgrade::No,
            is_raw: false,
            received: Version::Http11,
            most_read: MAX_READ,
            refused: None,
            own_answers: None,
        }
    }

    /// See [`crate::Connection::recv_space`].
    pub fn recv_space(&mut self) -> &mut [u8] {
        self.input.space()
    }

    /// See [`crate::Connection::expected`].
    pub fn expected(&self) -> u64 {
        let Receiving::Body(decoder) = &self.receiving else { return 0 };
        decoder.left().saturating_sub(self.input.unread().len() as u64)
    }

    /// See [`crate::Connection::announced`]: one message at a time, and all other events come after it.
    pub fn announced(&self) -> u64 {
        self.expected()
    }

    /// See [`crate::Connection::handle_received`].
    pub fn handle_received(&mut self, now: Time, n: usize) {
        self.deadlines.received(now, n);
        self.input.fill(n, self.most_read as usize);
        if !matches!(self.life, Life::Open) {
            self.input.clear();
        }
    }

    /// See [`crate::Connection::handle_eof`].
    pub fn handle_eof(&mut self, _now: Time) {
        self.eof = Eof::Clean;
    }

    /// See [`crate::Connection::handle_truncation`].
    pub const fn handle_truncation(&mut self) {
        self.eof = Eof::Truncated;
    }

    /// See [`crate::Connection::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        self.handle_timeouts(now);
        if now >= self.upgrade_deadline() {
            self.end(Some(Error::Timeout("its answer to `Upgrade: h2c`")));
        }
        if now >= self.unwanted_until() {
            self.end(None);
        }
    }

    /// See [`crate::Connection::handle_transmitted`].
    pub fn handle_transmitted(&mut self, now: Time, n: usize) {
        self.deadlines.transmitted(now, n);
        if !self.wants_input() {
            self.deadlines.excuse_bodies();
        }
        self.output.consume(n);
    }

    /// See [`crate::Connection::handle_acknowledged`].
    pub fn handle_acknowledged(&mut self, now: Time) {
        self.deadlines.taken(now);
    }

    /// See [`crate::Connection::poll_event`].
    pub fn poll_event(&mut self, now: Time) -> Option<Event<'_>> {
        // Between exchanges, after nearly every response: there is nothing to find out.
        if self.exchange.is_none()
            && (self.input.is_empty() || self.is_raw)
            && matches!(self.life, Life::Open)
            && !self.eof.has_come()
        {
            self.watch_input(now);
            return None;
        }
        let Some(ready) = self.next_event() else {
            self.watch_input(now);
            return None;
        };
        Some(self.lend(ready))
    }

    /// See [`crate::Connection::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Time) -> &[u8] {
        self.deadlines.output_waits(now, !self.output.is_empty());
        self.output.pending()
    }

    /// See [`crate::Connection::is_scattered`].
    pub fn is_scattered(&self) -> bool {
        self.output.is_scattered()
    }

    /// See [`crate::Connection::poll_transmit_slices`].
    pub fn poll_transmit_slices<'a>(&'a mut self, now: Time, into: &mut [&'a [u8]]) -> usize {
        self.poll_transmit(now);
        self.output.slices(into)
    }

    /// See [`crate::Connection::unsent`].
    pub fn unsent(&self) -> usize {
        self.output.unsent()
    }

    /// When a deadline for the peer passes, or that for the server's answer to `Upgrade: h2c`.
    pub fn poll_timeout(&self) -> Time {
        let timeout = if matches!(self.life, Life::Over) { Time::NEVER } else { self.deadlines.next() };
        timeout.min(self.upgrade_deadline()).min(self.unwanted_until())
    }

    /// See [`crate::Connection::wants_input`]: also `false` while enough pipelined input waits behind the current
    /// exchange.
    pub fn wants_input(&self) -> bool {
        let is_ahead =
            matches!(self.receiving, Receiving::Complete) && self.input.unread().len() > READ_AHEAD;
        !is_ahead && self.output.unsent() <= self.config.limits.unread_output
    }

    /// See [`crate::Connection::is_output_full`]: HTTP/1.1 has no windows.
    pub fn is_output_full(&self) -> bool {
        let sending = self.exchange.as_ref().map(|exchange| exchange.sending);
        matches!(sending, Some(Sending::Blocked(_)))
    }

    /// See [`crate::Connection::held_bytes`].
    pub fn held_bytes(&self) -> usize {
        let repeated = self.repeated.as_ref().map_or(0, |repeated| repeated.held());
        size_of::<Self>() + self.input.held() + self.output.held() + self.scratch.held() + repeated
    }

    /// See [`crate::Connection::release_memory`].
    pub fn release_memory(&mut self) {
        if self.exchange.is_some() {
            return;
        }
        self.input.release_memory();
        self.output.release_memory();
        self.scratch = Scratch::default();
        self.repeated = None;
    }

    /// 1 for a client whose connection is idle and may be used again, else 0.
    pub fn available_streams(&self) -> u32 {
        let is_clean = self.input.is_empty() || self.awaits_its_tunnel();
        let idle = self.exchange.is_none() && is_clean && !self.eof.has_come();
        u32::from(self.config.role == Role::Client && idle && !self.is_draining())
    }

    /// 1 while an exchange is under way, else 0.
    pub fn open_streams(&self) -> u32 {
        u32::from(self.exchange.is_some())
    }

    /// See [`crate::Connection::idle_input`].
    pub fn idle_input(&self) -> Option<&[u8]> {
        let is_between = self.exchange.is_none() && matches!(self.receiving, Receiving::Head);
        let is_idle =
            is_between && self.output.is_empty() && matches!(self.life, Life::Open) && !self.draining;
        let is_server = self.config.role == Role::Server && !self.is_raw;
        (is_server && is_idle && !self.eof.has_come()).then(|| self.input.unread())
    }

    /// Whether no further request will be accepted here.
    pub fn is_draining(&self) -> bool {
        let closing = self.exchange.as_ref().is_some_and(|exchange| exchange.close);
        let used_up = self.counters.requests >= if self.is_raw { 1 } else { MAX_REQUESTS };
        self.draining || closing || used_up || self.eof.has_come() || !matches!(self.life, Life::Open)
    }

    /// See [`crate::Connection::take_refused`].
    pub fn take_refused(&mut self) -> Option<Refused> {
        self.refused.take().map(|refused| *refused)
    }

    /// Always, as HTTP/1.1 has no preface, unless it is to become HTTP/2.
    pub const fn is_established(&self) -> bool {
        !matches!(self.upgrade, Upgrade::Wanted | Upgrade::Asked(_))
    }

    /// See [`crate::Connection::is_usable`].
    pub const fn is_usable(&self) -> bool {
        !matches!(self.upgrade, Upgrade::Asked(_))
    }

    /// See [`crate::Connection::send_request`].
    pub fn send_request(&mut self, now: Time, request: &Request<'_>) -> Option<StreamId> {
        if let Some(repeated) = &mut self.repeated {
            repeated.request.forget();
        }
        self.begin_exchange(now, request, |connection| connection.queue_request(request))
    }

    /// See [`crate::Connection::send_connect`]: `Upgrade` (RFC 9110 §7.8). Nothing can be sent before the answer, and
    /// all that follows a 101 belongs to the other protocol.
    pub fn send_connect(&mut self, now: Time, protocol: &str, request: &Request<'_>) -> Option<StreamId> {
        let asking = [Field::new("connection", "upgrade"), Field::new("upgrade", protocol)];
        let fields: Vec<Field<'_>> = asking.iter().chain(request.fields).copied().collect();
        let request =
            Request { method: "GET", fields: &fields, body_length: None, end_stream: true, ..*request };
        let stream = self.send_request(now, &request)?;
        let exchange = self.exchange.as_mut()?;
        exchange.asks_for = Some(protocol.into());
        Some(stream)
    }

    /// See [`crate::Connection::send_request_again`]. The head is written in full once more before it is cached: most
    /// connections of a pool that grows on demand never send a second request.
    pub fn send_request_again(&mut self, now: Time, request: &Request<'_>) -> Option<StreamId> {
        self.begin_exchange(now, request, |connection| {
            let last = connection.repeated.as_ref().and_then(|repeated| repeated.request.get());
            if let Some((head, fields, encoder)) = last {
                connection.output.push(head);
                connection.counters.headers_plain += fields;
                connection.counters.headers_sent += head.len() as u64;
                connection.counters.frames_sent[HEADERS] += 1;
                return Ok(encoder);
            }
            let (mark, fields) = (connection.output.len(), connection.counters.headers_plain);
            let encoder = connection.queue_request(request)?;
            let fields = connection.counters.headers_plain - fields;
            let repeated = connection.repeated.get_or_insert_default();
            repeated.request.remember(connection.output.since(mark), fields, encoder);
            Ok(encoder)
        })
    }

    /// Begins the exchange of a request whose head `queue` puts into the output.
    fn begin_exchange(
        &mut self,
        now: Time,
        request: &Request<'_>,
        queue: impl FnOnce(&mut Self) -> Result<Encoder, &'static str>,
    ) -> Option<StreamId> {
        if self.available_streams() == 0 {
            return None;
        }
        if self.is_raw {
            return Some(self.claim_tunnel());
        }
        let mark = self.output.len();
        let encoder = match queue(self) {
            Ok(encoder) => encoder,
            Err(misuse) => {
                self.misuse(mark, misuse);
                return None;
            }
        };
        let stream = StreamId::of_request(self.counters.requests as u32);
        self.counters.requests += 1;
        let exchange = Exchange::new(stream, request.method == "HEAD", Version::Http11);
        let is_connect = request.method == "CONNECT";
        let is_whole = request.end_stream || is_connect;
        let sending = if is_whole { Sending::Complete } else { Sending::Body(encoder) };
        self.exchange = Some(Exchange { is_connect, sending, ..exchange });
        if matches!(self.upgrade, Upgrade::Wanted) {
            self.upgrade = Upgrade::Asked(now + self.config.peer_timeout);
        }
        Some(stream)
    }

    /// Nothing: HTTP/1.1 has no push.
    pub const fn send_push(
        &mut self,
        _now: Time,
        _stream: StreamId,
        _request: &Request<'_>,
    ) -> Option<StreamId> {
        None
    }

    /// See [`crate::Connection::send_data`].
    pub fn send_data(&mut self, _now: Time, stream: StreamId, data: &[u8], end_stream: bool) -> usize {
        self.send_piece(stream, Payload::Copied(data), end_stream)
    }

    /// See [`crate::Connection::send_static`].
    pub fn send_static(
        &mut self,
        _now: Time,
        stream: StreamId,
        data: &'static [u8],
        end_stream: bool,
    ) -> usize {
        let piece = if self.config.tls { Payload::Copied(data) } else { Payload::Lent(data) };
        self.send_piece(stream, piece, end_stream)
    }

    fn send_piece(&mut self, stream: StreamId, data: Payload<'_>, end_stream: bool) -> usize {
        let room = self.config.send_buffer.max(1).saturating_sub(self.output.unsent());
        let Some(exchange) = self.exchange.as_mut().filter(|exchange| exchange.stream == stream) else {
            return 0;
        };
        let Some(mut encoder) = exchange.sending.encoder().copied() else {
            if exchange.sending == Sending::Head {
                self.misuse(self.output.len(), "a body before its head");
            }
            return 0;
        };
        let accepted = if encoder == Encoder::Discard { data.len() } else { data.len().min(room) };
        let pushed = encoder.push(&mut self.output, data.split_at(accepted).0);
        let all = accepted == data.len();
        exchange.sending = if all { Sending::Body(encoder) } else { Sending::Blocked(encoder) };
        self.counters.frames_sent[DATA] += u64::from(accepted > 0);
        if let Err(misuse) = pushed {
            self.misuse(self.output.len(), misuse);
        } else if end_stream && all {
            self.finish_body(&[]);
        }
        accepted
    }

    /// Ends a body with trailer fields. Only a chunked body can carry them; else they are left out, as RFC 9110 §6.5.1
    /// allows.
    pub fn send_trailers(&mut self, _now: Time, stream: StreamId, fields: &[Field<'_>]) {
        if self.exchange.as_ref().is_some_and(|exchange| exchange.stream == stream) {
            self.finish_body(fields);
        }
    }

    /// Nothing: HTTP/1.1 answers one request at a time.
    pub const fn send_priority_update(&mut self, _now: Time, _stream: StreamId, _priority: Priority) {}

    /// Nothing: TCP alone paces an HTTP/1.1 body.
    pub fn release(&mut self, _now: Time, _stream: StreamId, _n: u32) {}

    /// Ends the exchange, and with it the connection: HTTP/1.1 has no other means. A response that is complete still
    /// goes out: then only the rest of the request is not read.
    pub fn reset(&mut self, _now: Time, stream: StreamId, _code: ErrorCode) {
        let Some(exchange) = self.exchange.as_ref().filter(|exchange| exchange.stream == stream) else {
            return;
        };
        let is_request = self.config.role == Role::Client && !self.is_raw;
        if is_request || exchange.sending != Sending::Complete {
            self.output.clear();
        }
        self.end(None);
    }

    /// The current exchange is the last: a server's next head says `Connection: close`. An idle connection ends at
    /// once.
    pub fn goaway(&mut self, _now: Time, _code: ErrorCode, _debug: &[u8]) {
        self.draining = true;
        if self.exchange.is_none() {
            self.end(None);
        }
    }

    /// HTTP/1.1 has no windows: a smaller read buffer limits a peer just as well.
    pub fn set_window_limit(&mut self, bytes: u32) {
        self.most_read = bytes.clamp(LEAST_READ, MAX_READ);
        self.input.shrink(self.most_read as usize);
    }

    /// See [`crate::Connection::set_send_buffer`].
    pub fn set_send_buffer(&mut self, bytes: usize) {
        if self.config.send_buffer != bytes {
            Arc::make_mut(&mut self.config).send_buffer = bytes;
        }
        self.output.shrink();
    }

    /// Nothing: HTTP/1.1 has no PING.
    pub fn ping(&mut self, _now: Time) {}

    /// What has been sent and received so far.
    pub fn counters(&self) -> Counters {
        self.counters.counters()
    }

    /// Queues a request's head and returns how its body will be framed.
    fn queue_request(&mut self, request: &Request<'_>) -> Result<Encoder, &'static str> {
        if [request.method, request.path, request.authority]
            .iter()
            .any(|part| part.bytes().any(|b| b <= b' '))
        {
            return Err("white space or a control character in a request line");
        }
        let offer = match self.upgrade {
            // The body would have to be complete before anything else can be sent.
            Upgrade::Wanted if !request.end_stream => {
                return Err("a body in the request that asks for HTTP/2");
            }
            Upgrade::Wanted => Some(offer(&self.config)),
            _ => None,
        };
        let output = &mut self.output;
        let mark = output.len();
        let is_connect = request.method == "CONNECT";
        let target = if is_connect { request.authority } else { request.path };
        for part in [request.method, " ", target, " HTTP/1.1\r\n"] {
            output.push(part.as_bytes());
        }
        let fields_at = output.len();
        for part in ["host: ", request.authority, "\r\n"] {
            output.push(part.as_bytes());
        }
        push_fields(output, request.fields)?;
        if is_connect {
            self.end_head(mark, fields_at);
            return Ok(Encoder::Length(0));
        }
        let encoder = match (request.end_stream, request.body_length) {
            (true, Some(1..)) => return Err("a body shorter than its content-length"),
            (false, None) => Encoder::Chunked,
            (_, length) => Encoder::Length(length.unwrap_or(0)),
        };
        // RFC 9110 §8.6: methods that anticipate content say so even when there is none.
        let anticipates = matches!(request.method, "POST" | "PUT" | "PATCH");
        match encoder {
            Encoder::Chunked => output.push(b"transfer-encoding: chunked\r\n"),
            Encoder::Length(length) if length > 0 || anticipates || !request.end_stream => {
                push_length(output, length);
            }
            _ => {}
        }
        if let Some(offer) = offer {
            output.push(offer.as_bytes());
        }
        self.end_head(mark, fields_at);
        Ok(encoder)
    }

    pub(super) fn push_status_line(&mut self, status: u16) {
        self.output.push(b"HTTP/1.1 ");
        self.output.push_decimal(u64::from(status));
        self.output.push(b" ");
        self.output.push(head::reason_phrase(status).as_bytes());
        self.output.push(b"\r\n");
    }

    /// Ends a head, or trailers, that began at `mark` and whose fields began at `fields_at`, and counts it.
    pub(super) fn end_head(&mut self, mark: usize, fields_at: usize) {
        self.counters.headers_plain += (self.output.len() - fields_at) as u64;
        self.output.push(b"\r\n");
        self.counters.headers_sent += (self.output.len() - mark) as u64;
        self.counters.frames_sent[HEADERS] += 1;
    }

    /// Our message is complete, after these trailers.
    pub(super) fn finish_body(&mut self, trailers: &[Field<'_>]) {
        let Some(exchange) = &mut self.exchange else { return };
        let Some(&mut encoder) = exchange.sending.encoder() else { return };
        exchange.sending = Sending::Complete;
        let mark = self.output.len();
        let mut result = encoder.finish(&mut self.output);
        if encoder == Encoder::Chunked {
            let fields_at = self.output.len();
            result = result.and_then(|()| push_fields(&mut self.output, trailers));
            if trailers.is_empty() {
                self.output.push(b"\r\n");
            } else {
                self.end_head(fields_at, fields_at);
            }
        }
        match result {
            Ok(()) => self.settle(),
            Err(misuse) => self.misuse(mark, misuse),
        }
    }

    /// A message was completed: the exchange may be over, and with it the connection.
    pub(super) fn settle(&mut self) {
        let Some(exchange) = &self.exchange else { return };
        let received = matches!(self.receiving, Receiving::Complete);
        let sent = exchange.sending == Sending::Complete;
        let over = received && sent;
        let answered = match self.config.role {
            _ if self.is_raw => over, // each direction ends by itself
            Role::Client => received,
            Role::Server => sent,
        };
        // Nobody reads the rest of a request's body when the connection ends with the response.
        let close = answered && (exchange.close || (over && self.draining));
        if over || close {
            self.exchange = None;
            self.receiving = Receiving::Head;
        }
        if close {
            self.end(None);
        }
    }

    /// The connection is over once the output is flushed. A client then has nothing left to send, unless it carries a
    /// tunnel.
    pub(super) fn end(&mut self, error: Option<Error>) {
        if self.config.role == Role::Client && !self.is_raw {
            self.output.clear();
        }
        self.input.clear();
        self.exchange = None;
        if matches!(self.life, Life::Open) {
            self.life = Life::Ending(error.map(Box::new));
        }
    }

    /// The role used the API wrongly: what it queued since `mark` is removed and the connection ends.
    pub(super) fn misuse(&mut self, mark: usize, what: &'static str) {
        self.output.truncate(mark);
        self.end(Some(Error::Misuse(what)));
    }

    /// Whether to report that the role may send again: half of the buffer is free, so that there is not an event for
    /// every segment.
    pub(super) fn take_writable(&mut self) -> Option<StreamId> {
        let drained = self.output.unsent() <= self.config.send_buffer / 2;
        let exchange = self.exchange.as_mut().filter(|_| drained)?;
        let Sending::Blocked(encoder) = exchange.sending else { return None };
        exchange.sending = Sending::Body(encoder);
        Some(exchange.stream)
    }
}

pub(super) fn push_length(output: &mut Output, length: u64) {
    output.push(b"content-length: ");
    output.push_decimal(length);
    output.push(b"\r\n");
}

/// Queues field lines. A line break inside one would let its author write further lines, so it is refused.
pub(super) fn push_fields(output: &mut Output, fields: &[Field<'_>]) -> Result<(), &'static str> {
    for field in fields {
        if breaks_line(field.name) || breaks_line(field.value) {
            return Err("a line break in a header field");
        }
        for part in [field.name, b": ", field.value, b"\r\n"] {
            output.push(part);
        }
    }
    Ok(())
}

/// Whether there is a CR, LF or NUL in `bytes`. Without an early exit, so that it compiles to vector code.
fn breaks_line(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | matches!(byte, b'\r' | b'\n' | 0))
}
