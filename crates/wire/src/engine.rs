//! One connection of any protocol, driven the same way: [`Connection`] forwards to the engine.

use std::sync::Arc;

use super::connection::{Config, Counters, Refused, Request, Response, SettingValues, setting_name};
use super::own_answers::OwnAnswers;
use super::{ErrorCode, Event, Field, Priority, StreamId, h1, h2, h3, upgrade};
use h2lab_base::units::Time;

/// An HTTP connection of any protocol. See the [module](super) for how to drive it.
#[derive(Debug)]
pub enum Connection {
    /// HTTP/1.1.
    H1(Box<h1::Connection>),
    /// HTTP/2.
    H2(Box<h2::Connection>),
    /// HTTP/3. Its bytes are spread over many streams: they go through [`Connection::as_h3`] and [`h3::transport`]
    /// instead of [`Connection::recv_space`] and [`Connection::poll_transmit`], which carry none of them. All else is
    /// the same.
    H3(Box<h3::Connection>),
}

macro_rules! forward {
    ($self:ident, $engine:ident => $call:expr) => {
        match $self {
            Self::H1($engine) => $call,
            Self::H2($engine) => $call,
            Self::H3($engine) => $call,
        }
    };
    // What HTTP/3 leaves to QUIC, or does not have.
    ($self:ident, $engine:ident => $call:expr, h3: $instead:expr) => {
        match $self {
            Self::H1($engine) => $call,
            Self::H2($engine) => $call,
            Self::H3(_) => $instead,
        }
    };
}

impl Connection {
    /// An HTTP/1.1 connection.
    pub fn h1(config: impl Into<Arc<Config>>) -> Self {
        Self::H1(Box::new(h1::Connection::new(config)))
    }

    /// A connection that does not speak HTTP. It takes one request (client role), which sends nothing and has no
    /// response. All bytes that follow in both directions are [`Event::Data`] of its stream. What the server sends
    /// before is kept for it.
    pub fn tunnel(config: impl Into<Arc<Config>>) -> Self {
        Self::H1(Box::new(h1::Connection::tunnel(config)))
    }

    /// An HTTP/2 connection by prior knowledge or ALPN; the preface and SETTINGS are queued at once.
    pub fn h2(config: impl Into<Arc<Config>>, now: Time) -> Self {
        Self::H2(Box::new(h2::Connection::new(config, now)))
    }

    /// An HTTP/3 connection over a QUIC connection whose handshake is complete; our control stream is queued at once.
    pub fn h3(config: impl Into<Arc<Config>>, now: Time) -> Self {
        Self::H3(Box::new(h3::Connection::new(config, now)))
    }

    /// The HTTP/3 engine, for its transport; `None` for another protocol.
    pub fn as_h3(&mut self) -> Option<&mut h3::Connection> {
        match self {
            Self::H1(_) | Self::H2(_) => None,
            Self::H3(engine) => Some(engine),
        }
    }

    /// A client's HTTP/2 connection in clear that begins with HTTP/1.1 and `Upgrade: h2c` (RFC 7540 §3.2): an `OPTIONS
    /// *` to `authority` is queued at once, and once the server has switched, this is an HTTP/2 connection like any
    /// other. That request's response comes on stream 1, which a role did not begin and need not honour; its own
    /// requests begin with stream 3. A server that does not switch ends the connection with
    /// [`super::Error::WrongProtocol`].
    pub fn h2c_upgrade(config: impl Into<Arc<Config>>, authority: &str, now: Time) -> Self {
        Self::H1(Box::new(h1::Connection::asking_for_h2c(config, authority, now)))
    }

    /// The same, but the role's own first request makes the offer, as with curl. It must have no body, its response
    /// comes on stream 1, and no other request can begin before the server has switched. After that
    /// [`Connection::is_established`] is true.
    pub fn h2c_upgrade_by_request(config: impl Into<Arc<Config>>) -> Self {
        Self::H1(Box::new(h1::Connection::offering_h2c(config)))
    }

    /// The value of `HTTP2-Settings` with which a client offers to switch to HTTP/2 itself (RFC 7540 §3.2.1), for a
    /// role that varies the offer and so cannot use [`Connection::h2c_upgrade`].
    pub fn h2c_offer(config: &Config) -> String {
        upgrade::encode(&h2::announced_settings(config))
    }

    /// The HTTP/2 connection that continues after a role has itself exchanged the offer and its 101. `offered` is the
    /// value of the client's `HTTP2-Settings` (for the server role; perhaps empty) and `unread` the bytes after the
    /// last head. The offering request, which was not HEAD, is stream 1, which a server answers without an
    /// [`Event::Request`] for it. `None`: the settings are invalid.
    pub fn h2c_switched(config: Config, offered: &[u8], unread: &[u8], now: Time) -> Option<Self> {
        let settings = upgrade::decode(offered).filter(|payload| h2::are_client_settings(payload))?;
        let handover = upgrade::Handover {
            config: config.into(),
            counters: Counters::default(),
            unread: unread.to_vec(),
            unsent: Vec::new(),
            settings,
            is_head: false,
            eof: false,
            draining: false,
        };
        Some(Self::H2(Box::new(h2::Connection::upgraded(&handover, now))))
    }

    /// Space for the transport to read into: at least 1 KiB, and up to what the peer has been seen to send at a time.
    /// Empty over HTTP/3.
    pub fn recv_space(&mut self) -> &mut [u8] {
        forward!(self, engine => engine.recv_space(), h3: &mut [])
    }

    /// `n` bytes were read into [`Connection::recv_space`] at `now`.
    pub fn handle_received(&mut self, now: Time, n: usize) {
        forward!(self, engine => engine.handle_received(now, n), h3: {});
    }

    /// Bytes that must arrive before any event other than more of the current body is possible: the rest of the body,
    /// chunk or frame. 0 if that is not known. Call it when no event is left.
    pub fn expected(&self) -> u64 {
        forward!(self, engine => engine.expected(), h3: 0)
    }

    /// The same, including the bodies that the peer has announced by content-length, as far as our windows let it send
    /// them. Other events may come before or in between, or the peer may stop: a caller that waits for this many bytes
    /// must poll in between.
    pub fn announced(&self) -> u64 {
        forward!(self, engine => engine.announced(), h3: 0)
    }

    /// Copies `bytes` in as if they had been read; for tests and replay. Does nothing in HTTP/3.
    pub fn handle_input(&mut self, now: Time, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.recv_space();
            let n = space.len().min(bytes.len());
            if n == 0 {
                return;
            }
            space[..n].copy_from_slice(&bytes[..n]);
            self.handle_received(now, n);
            bytes = &bytes[n..];
        }
    }

    /// The peer closed its sending side.
    pub fn handle_eof(&mut self, now: Time) {
        forward!(self, engine => engine.handle_eof(now));
    }

    /// The transport ended without its own signal of a complete close, TLS's `close_notify`: a body that the end of the
    /// connection delimits is incomplete (RFC 9112 §9.8). Otherwise as [`Connection::handle_eof`].
    pub fn handle_truncation(&mut self, now: Time) {
        match self {
            Self::H1(engine) => engine.handle_truncation(),
            Self::H2(engine) => engine.handle_eof(now),
            Self::H3(engine) => engine.handle_eof(now),
        }
    }

    /// The deadline of [`Connection::poll_timeout`] has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        forward!(self, engine => engine.handle_timeout(now));
    }

    /// The transport took the first `n` bytes of [`Connection::poll_transmit`].
    pub fn handle_transmitted(&mut self, now: Time, n: usize) {
        forward!(self, engine => engine.handle_transmitted(now, n), h3: {});
    }

    /// The peer has acknowledged some, but not all, of the bytes that the transport took before. So it is slow but does
    /// take data, even if the transport has no room for more ([`super::Limits::stall`]). QUIC reports this for each
    /// stream.
    pub fn handle_acknowledged(&mut self, now: Time) {
        forward!(self, engine => engine.handle_acknowledged(now), h3: {});
    }

    /// The next thing that happened, or `None` until more input arrives. With [`Config::h2c_upgrade`] HTTP/1.1 reports
    /// the request that asks for HTTP/2, and the first call after its end switches: the request is answered in HTTP/2,
    /// on the same stream. A role that answers earlier stays with HTTP/1.1.
    #[inline]
    pub fn poll_event(&mut self, now: Time) -> Option<Event<'_>> {
        self.switch(now, |config| config);
        forward!(self, engine => engine.poll_event(now))
    }

    /// Continues in HTTP/2 if both sides have agreed on it by `Upgrade: h2c`; returns whether it switched.
    /// [`Connection::poll_event`] does so, too, with HTTP/1.1's configuration; `config` may replace that for HTTP/2.
    #[inline]
    pub fn switch(&mut self, now: Time, config: impl FnOnce(Arc<Config>) -> Arc<Config>) -> bool {
        let Self::H1(engine) = self else { return false };
        if !engine.may_switch() {
            return false;
        }
        let Some(mut handover) = engine.switch_to_h2c() else { return false };
        handover.config = config(handover.config);
        let own_answers = engine.own_answers.take();
        let mut upgraded = h2::Connection::upgraded(&handover, now);
        upgraded.set_own_answers(own_answers);
        *self = Self::H2(Box::new(upgraded));
        true
    }

    /// The bytes to send next, in one write; empty when there is nothing to send. If the output is scattered
    /// ([`Connection::is_scattered`]), these are only the first of the bytes.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time) -> &[u8] {
        forward!(self, engine => engine.poll_transmit(now), h3: &[])
    }

    /// Whether [`Connection::poll_transmit`] shows only a part of what one write should send, because a body lies
    /// elsewhere; see [`Connection::send_static`].
    #[inline]
    pub fn is_scattered(&self) -> bool {
        forward!(self, engine => engine.is_scattered(), h3: false)
    }

    /// Fills `into` with the slices to send next; returns how many it used. They are meant for one vectored write: pass
    /// whatever the transport takes of them to [`Connection::handle_transmitted`].
    pub fn poll_transmit_slices<'a>(&'a mut self, now: Time, into: &mut [&'a [u8]]) -> usize {
        forward!(self, engine => engine.poll_transmit_slices(now, into), h3: 0)
    }

    /// Takes all pending output in one piece and counts it as sent: for roles that do not write to a socket.
    pub fn take_transmit(&mut self, now: Time) -> Vec<u8> {
        let mut taken = Vec::new();
        loop {
            let bytes = self.poll_transmit(now);
            if bytes.is_empty() {
                return taken;
            }
            taken.extend_from_slice(bytes);
            let n = bytes.len();
            self.handle_transmitted(now, n);
        }
    }

    /// Whether there is something to send that the transport may take: [`Connection::poll_transmit`] is not empty, or
    /// in HTTP/3 a stream that is not blocked has something to send, or the transport has something to do.
    pub fn has_output(&mut self, now: Time) -> bool {
        match self {
            Self::H1(_) | Self::H2(_) => !self.poll_transmit(now).is_empty(),
            Self::H3(engine) => engine.has_output(),
        }
    }

    /// How many bytes wait for the transport. [`Connection::poll_transmit`] shows the first of the slices that hold
    /// them: bodies that were lent are slices of their own, and with [`Config::coalesce`] off each frame is shown by
    /// itself.
    pub fn unsent(&self) -> usize {
        forward!(self, engine => engine.unsent())
    }

    /// When [`Connection::handle_timeout`] must be called; [`Time::NEVER`] if no deadline runs.
    pub fn poll_timeout(&self) -> Time {
        forward!(self, engine => engine.poll_timeout())
    }

    /// How many requests may be begun now. HTTP/1.1: 1 when idle. HTTP/2: what the peer's `MAX_CONCURRENT_STREAMS`
    /// leaves (100 until its SETTINGS arrive), 0 after GOAWAY or when ids run out. HTTP/3: what QUIC has been granted,
    /// as passed to [`h3::Connection::handle_streams_granted`].
    pub fn available_streams(&self) -> u32 {
        forward!(self, engine => engine.available_streams())
    }

    /// Whether the role should read more input. Not while so much output waits for the peer that more answers would
    /// only pile up. In HTTP/1.1 also not while 64 KiB wait behind a message whose exchange is not over. The role then
    /// leaves the peer's bytes in the transport until some output was sent.
    pub fn wants_input(&self) -> bool {
        forward!(self, engine => engine.wants_input())
    }

    /// Whether a body that [`Connection::send_data`] did not take waits for the transport to take some of the output,
    /// rather than for the peer's windows or its turn.
    pub fn is_output_full(&self) -> bool {
        forward!(self, engine => engine.is_output_full())
    }

    /// Bytes of memory that the connection holds for its peer: buffers, tables, streams.
    pub fn held_bytes(&self) -> usize {
        forward!(self, engine => engine.held_bytes())
    }

    /// From now on the bodies that it is given to send may wait in at most this many bytes, at least 1, instead of
    /// [`super::Config::send_buffer`]. Bytes that already wait stay.
    pub fn set_send_buffer(&mut self, bytes: usize) {
        forward!(self, engine => engine.set_send_buffer(bytes.max(1)));
    }

    /// Frees the memory of empty buffers if no exchange is under way: for connections that are idle. The next message
    /// allocates it again. HTTP/3 keeps its memory.
    pub fn release_memory(&mut self) {
        forward!(self, engine => engine.release_memory(), h3: ());
    }

    /// Whether it has no buffers, so that [`Connection::lend_buffers`] would save an allocation: only in a server's
    /// HTTP/1.1.
    #[inline]
    pub fn wants_buffers(&self) -> bool {
        matches!(self, Self::H1(engine) if engine.wants_buffers())
    }

    /// Lends it buffers before it reads or before a response is written. Does nothing unless it
    /// [wants](Connection::wants_buffers) them.
    pub fn lend_buffers(&mut self, buffers: h1::Buffers) {
        if let Self::H1(engine) = self {
            engine.lend_buffers(buffers);
        }
    }

    /// Takes empty buffers back once all events were taken: between requests, and while a complete request waits for
    /// its response. `None` if the buffers are in use, or if the connection keeps them, as all but a server's HTTP/1.1
    /// do. They need not have been lent.
    #[inline]
    pub fn take_buffers(&mut self) -> Option<h1::Buffers> {
        match self {
            Self::H1(engine) => engine.take_buffers(),
            Self::H2(_) | Self::H3(_) => None,
        }
    }

    /// Streams begun and not finished.
    pub fn open_streams(&self) -> u32 {
        forward!(self, engine => engine.open_streams())
    }

    /// Whether no further request will ever be accepted here: GOAWAY, `Connection: close`, or the end.
    pub fn is_draining(&self) -> bool {
        forward!(self, engine => engine.is_draining())
    }

    /// Whether the peer's preface (SETTINGS) has been seen; always true for HTTP/1.1.
    pub fn is_established(&self) -> bool {
        forward!(self, engine => engine.is_established())
    }

    /// For a server: what is in its answers to requests that the engine refuses by itself. HTTP/3 refuses by resets,
    /// which have no fields.
    pub fn set_own_answers(&mut self, own: Arc<OwnAnswers>) {
        match self {
            Self::H1(engine) => engine.own_answers = Some(own),
            Self::H2(engine) => engine.set_own_answers(Some(own)),
            Self::H3(_) => {}
        }
    }

    /// What the engine has refused by itself since the last call: requests (server role), or, over HTTP/2 and HTTP/3,
    /// the response whose stream it has reset (client role; `reason` says why).
    pub fn take_refused(&mut self) -> Option<Refused> {
        match self {
            Self::H1(engine) => engine.take_refused(),
            Self::H2(engine) => engine.take_refused(),
            Self::H3(engine) => engine.take_refused(),
        }
    }

    /// Whether it can begin requests without waiting for the peer: it is established, or its first request is to ask
    /// for HTTP/2, see [`Connection::h2c_upgrade_by_request`].
    pub fn is_usable(&self) -> bool {
        match self {
            Self::H1(engine) => engine.is_usable(),
            Self::H2(_) | Self::H3(_) => self.is_established(),
        }
    }

    /// Begins a request (client role). `body_length` is the announced content-length, if any: HTTP/1.1 frames the body
    /// by it, else by chunks; HTTP/2 sends the content-length field. `fields` holds neither content-length nor host.
    /// Returns `None` when [`Connection::available_streams`] is 0.
    pub fn send_request(&mut self, now: Time, request: &Request<'_>) -> Option<StreamId> {
        forward!(self, engine => engine.send_request(now, request))
    }

    /// As [`Connection::send_request`], for a `request` that is the same as the last one on this connection: the
    /// encoding of that one is used again where it is still valid.
    pub fn send_request_again(&mut self, now: Time, request: &Request<'_>) -> Option<StreamId> {
        forward!(self, engine => engine.send_request_again(now, request))
    }

    /// The settings of both sides, ours first, as (identifier, value) in the order of the identifiers (RFC 9113
    /// §6.5.2): what was announced, else the initial value. A setting without a limit is left out. The peer's are empty
    /// until it has announced them. In HTTP/1.1 both are empty.
    pub fn settings_in_effect(&self) -> (SettingValues, SettingValues) {
        match self {
            Self::H1(_) => (Vec::new(), Vec::new()),
            Self::H2(engine) => engine.settings_in_effect(),
            Self::H3(engine) => engine.settings_in_effect(),
        }
    }

    /// Whether the peer has announced that it takes [`Connection::send_connect`]; never in HTTP/1.1.
    pub fn takes_connect_protocol(&self) -> bool {
        match self {
            Self::H1(_) => false,
            Self::H2(engine) => engine.takes_connect_protocol(),
            Self::H3(engine) => engine.takes_connect_protocol(),
        }
    }

    /// Whether the role must end its direction of the transport and continue to read: everything that a tunnel in
    /// HTTP/1.1 was given is sent, and only the end of the connection marks the end of the tunnel.
    pub fn has_ended_its_direction(&self) -> bool {
        match self {
            Self::H1(engine) => engine.has_ended_its_direction(),
            Self::H2(_) | Self::H3(_) => false,
        }
    }

    /// Begins an extended CONNECT (client role, RFC 8441 §4): `request`, whose method is CONNECT and whose path and
    /// authority are those of any request, asks for a tunnel that speaks `protocol`. Once it is answered with 2xx, DATA
    /// goes both ways until each side ends it. `None` as for [`Connection::send_request`], and unless
    /// [`Connection::takes_connect_protocol`]. HTTP/1.1 asks by GET and `Upgrade` (RFC 9110 §7.8) instead, and is
    /// answered with 101, which [`Event::Response`] reports; there the connection ends with the tunnel.
    pub fn send_connect(&mut self, now: Time, protocol: &str, request: &Request<'_>) -> Option<StreamId> {
        match self {
            Self::H1(engine) => engine.send_connect(now, protocol, request),
            Self::H2(engine) => engine.send_connect(now, protocol, request),
            Self::H3(engine) => engine.send_connect(now, protocol, request),
        }
    }

    /// Sends a 1xx response (server role).
    pub fn send_interim(&mut self, now: Time, stream: StreamId, status: u16, fields: &[Field<'_>]) {
        forward!(self, engine => engine.send_interim(now, stream, status, fields));
    }

    /// Sends the final response's head (server role). Over HTTP/1.1 status 101 switches: all bytes that follow, both
    /// ways, belong to the protocol that its `upgrade` field names and are DATA. `body_length` as in
    /// [`Connection::send_request`]; `end_stream` means that no body follows.
    pub fn send_response(&mut self, now: Time, stream: StreamId, response: &Response<'_>) {
        forward!(self, engine => engine.send_response(now, stream, response));
    }

    /// Promises the response to `request` because of the request on `stream`, before that request's response refers to
    /// it (server role, RFC 9113 §8.4). Answer it on the stream that is returned, as if it had been asked for. `None`
    /// if the peer takes no promise, now or ever, and always in HTTP/1.1 and HTTP/3. `request` is a GET or HEAD without
    /// a body.
    pub fn send_push(&mut self, now: Time, stream: StreamId, request: &Request<'_>) -> Option<StreamId> {
        forward!(self, engine => engine.send_push(now, stream, request), h3: None)
    }

    /// Sends body bytes; `end_stream` takes effect only if all of `data` was accepted. Returns how many were accepted:
    /// fewer when a flow-control window or the send buffer is full or it is another stream's turn (by priority, RFC
    /// 9218, and in rotation among equals), and then [`Event::Writable`] follows. Nothing is accepted on a stream that
    /// has ended; its end has been or will be reported.
    pub fn send_data(&mut self, now: Time, stream: StreamId, data: &[u8], end_stream: bool) -> usize {
        forward!(self, engine => engine.send_data(now, stream, data, end_stream))
    }

    /// Like [`Connection::send_data`], for bytes that never change or go away: in clear and over QUIC they are not
    /// copied into the send queue.
    #[inline]
    pub fn send_static(
        &mut self,
        now: Time,
        stream: StreamId,
        data: &'static [u8],
        end_stream: bool,
    ) -> usize {
        forward!(self, engine => engine.send_static(now, stream, data, end_stream))
    }

    /// Ends a body with trailer fields.
    pub fn send_trailers(&mut self, now: Time, stream: StreamId, fields: &[Field<'_>]) {
        forward!(self, engine => engine.send_trailers(now, stream, fields));
    }

    /// Changes the priority of the response on `stream` (client role, HTTP/2 and HTTP/3: `PRIORITY_UPDATE`, RFC 9218
    /// §7). The initial priority belongs in the request's `priority` field.
    pub fn send_priority_update(&mut self, now: Time, stream: StreamId, priority: Priority) {
        forward!(self, engine => engine.send_priority_update(now, stream, priority));
    }

    /// From now on the role itself returns the credit for what arrives on `stream`, as with
    /// [`FlowControl::manual_release`](super::FlowControl::manual_release) for all streams: for a tunnel whose far end
    /// may be slower than its near one. Does nothing in HTTP/1.1.
    pub fn release_by_hand(&mut self, stream: StreamId) {
        match self {
            Self::H1(_) => {}
            Self::H2(engine) => engine.release_by_hand(stream),
            Self::H3(engine) => engine.release_by_hand(stream),
        }
    }

    /// Returns `n` bytes of credit where [`FlowControl::manual_release`](super::FlowControl::manual_release) or
    /// [`Connection::release_by_hand`] leaves that to the role. Every byte of [`Event::Data`] must then be released
    /// once, also when its stream has ended: the connection's window needs that credit back.
    pub fn release(&mut self, now: Time, stream: StreamId, n: u32) {
        forward!(self, engine => engine.release(now, stream, n));
    }

    /// Limits receive windows to `bytes`, and at least to one frame of 16,384 bytes. Larger windows, the connection's
    /// and each stream's, get no credit until they have shrunk to that. Call it again with a higher limit when there is
    /// more; `u32::MAX` lifts the limit. [`super::WindowBudget`] computes the share of each connection. Credit that the
    /// peer already has stays valid: a window shrinks only as it is used. HTTP/1.1 has no windows: with less than 256
    /// KiB its read buffer is smaller instead. Does nothing in HTTP/3, whose windows are QUIC's.
    pub fn set_window_limit(&mut self, bytes: u32) {
        forward!(self, engine => engine.set_window_limit(bytes), h3: {});
    }

    /// Whether more than 1 MiB of the body of the request under way is still to come, or an unknown amount (HTTP/1.1,
    /// server role). A role that will not read it can announce with [`Connection::announce_end`] that its response is
    /// the last: few clients then send the body in vain.
    pub fn is_much_to_come(&self) -> bool {
        matches!(self, Self::H1(engine) if engine.is_much_to_come())
    }

    /// A response is complete, and the rest of its request is not needed (server role). HTTP/2 and HTTP/3 reset the
    /// stream for no error (RFC 9113 §8.1). Over HTTP/1.1 the rest is thrown away as it arrives, and the connection
    /// stays, if that is not too much and does not take too long.
    pub fn forgo(&mut self, now: Time, stream: StreamId) {
        let is_read = match self {
            Self::H1(engine) => engine.forgo(now, stream),
            Self::H2(_) | Self::H3(_) => false,
        };
        if !is_read {
            self.reset(now, stream, ErrorCode::NO_ERROR);
        }
    }

    /// Ends one stream. HTTP/2: RST_STREAM. HTTP/1.1: the connection ends with it.
    pub fn reset(&mut self, now: Time, stream: StreamId, code: ErrorCode) {
        forward!(self, engine => engine.reset(now, stream, code));
    }

    /// Whether it is a [`Connection::tunnel`].
    pub const fn is_tunnel(&self) -> bool {
        match self {
            Self::H1(engine) => engine.is_raw(),
            Self::H2(_) | Self::H3(_) => false,
        }
    }

    /// Bytes that were received and not used, the beginning of a request, of a server's HTTP/1.1 connection that owes
    /// nothing and has not ended. Another engine that is given these bytes can continue the connection. `None` for any
    /// other.
    pub fn idle_input(&self) -> Option<&[u8]> {
        match self {
            Self::H1(engine) => engine.idle_input(),
            Self::H2(_) | Self::H3(_) => None,
        }
    }

    /// The most bytes of fields that the peer accepts in a message, as RFC 9113 §6.5.2 counts them; `u32::MAX` if it
    /// names no bound, and always in HTTP/1.1 and HTTP/3.
    pub fn most_fields_of_peer(&self) -> u32 {
        match self {
            Self::H2(engine) => engine.most_fields_of_peer(),
            Self::H1(_) | Self::H3(_) => u32::MAX,
        }
    }

    /// Announces the end (server role): requests are accepted until the peer has received the announcement. HTTP/2 and
    /// HTTP/3: as [`Connection::goaway`] without an error. HTTP/1.1: the next response says `Connection: close`, and
    /// until then the connection stays open.
    pub fn announce_end(&mut self, now: Time, debug: &[u8]) {
        match self {
            Self::H1(engine) => engine.announce_end(),
            Self::H2(engine) => engine.goaway(now, ErrorCode::NO_ERROR, debug),
            Self::H3(engine) => engine.goaway(now, ErrorCode::NO_ERROR, debug),
        }
    }

    /// Announces that no further requests are accepted; open ones finish. HTTP/1.1: the next head says
    /// `Connection: close`.
    pub fn goaway(&mut self, now: Time, code: ErrorCode, debug: &[u8]) {
        forward!(self, engine => engine.goaway(now, code, debug));
    }

    /// Sends a PING; [`Event::Pong`] carries the round trip. Does nothing in HTTP/1.1 and HTTP/3.
    pub fn ping(&mut self, now: Time) {
        forward!(self, engine => engine.ping(now), h3: {});
    }

    /// PINGs that the peer may have received since it last sent HEADERS or DATA; 0 in HTTP/1.1 and HTTP/3. gRPC servers
    /// end a connection that receives more than three.
    pub fn pings_since_message(&self) -> u32 {
        match self {
            Self::H2(engine) => engine.pings_since_message(),
            Self::H1(_) | Self::H3(_) => 0,
        }
    }

    /// What has been sent and received so far.
    pub fn counters(&self) -> Counters {
        match self {
            Self::H1(engine) => engine.counters(),
            Self::H2(engine) => *engine.counters(),
            Self::H3(engine) => *engine.counters(),
        }
    }
}

/// The name of a setting of HTTP/3 or, otherwise, of HTTP/2.
pub const fn setting_name_in(is_http3: bool, identifier: u16) -> Option<&'static str> {
    if is_http3 { h3::setting_name(identifier) } else { setting_name(identifier) }
}
