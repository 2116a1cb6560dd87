//! One connection of either protocol, driven the same way: [`Connection`] forwards to the engine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::{Limit, Limits};
use super::{ErrorCode, Event, Field, Priority, StreamId, h1, h2, h3, upgrade};
use h2lab_base::units::Time;

/// Which side of the connection we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sends requests.
    Client,
    /// Answers them.
    Server,
}

/// How a receiver hands out flow-control credit (RFC 9113 §6.9). A value, so that every role can vary it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowControl {
    /// `SETTINGS_INITIAL_WINDOW_SIZE` that we announce, in bytes, up to 2^31 − 1. Default 65,535, as RFC 9113 has it;
    /// the roles set what their users would meet in practice.
    pub stream_window: u32,
    /// The connection window that we open to, in bytes, from 65,535 to 2^31 − 1.
    pub connection_window: u32,
    /// Credit is returned when this share of the window, in percent, has been used. 50 is what nghttp2 and h2 do. With
    /// `auto_limit` 25 at most: the credit that is not yet returned must be the smaller part of the window.
    pub update_threshold_percent: u8,
    /// Credit is returned after so many bytes, whatever the window's size, at the latest when all of it has been used. `None`, the
    /// default: the share decides.
    pub update_bytes: Option<u32>,
    /// The role returns credit itself with [`Connection::release`], for example after a slow write to disk.
    pub manual_release: bool,
    /// Auto-tuning: both windows begin as given here and grow with the measured bandwidth-delay product, to three times
    /// that and to this many bytes at most (up to 2^31 − 1). Only bytes that the role has released count, so a slow reader
    /// gets no growth. `None`, the default: windows stay as they are.
    pub auto_limit: Option<u32>,
}

impl Default for FlowControl {
    fn default() -> Self {
        Self {
            stream_window: 65_535,
            connection_window: 65_535,
            update_threshold_percent: 50,
            update_bytes: None,
            manual_release: false,
            auto_limit: None,
        }
    }
}

impl FlowControl {
    /// The same with no window above `share` bytes, or above the least that is of use: what a new connection may promise
    /// under a [`super::WindowBudget`].
    #[must_use]
    pub fn within(self, share: u32) -> Self {
        Self {
            stream_window: self.stream_window.min(share.max(LEAST_STREAM_WINDOW)),
            connection_window: self.connection_window.min(share.max(LEAST_CONNECTION_WINDOW)),
            ..self
        }
    }
}

/// A stream's peer may always send a frame of the least size.
const LEAST_STREAM_WINDOW: u32 = 16_384;
/// A connection begins with so much, whatever is announced (RFC 9113 §6.9.2).
const LEAST_CONNECTION_WINDOW: u32 = 65_535;

/// What we announce and how we behave. Defaults are those of RFC 9113 unless a comment says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own, as SETTINGS are")]
pub struct Config {
    /// Client or server.
    pub role: Role,
    /// Whether the transport is TLS: decides `:scheme` and nothing else.
    pub tls: bool,
    /// How we hand out credit as a receiver.
    pub flow: FlowControl,
    /// `SETTINGS_MAX_FRAME_SIZE` that we announce: 16,384 to 16,777,215 bytes.
    pub max_frame_size: u32,
    /// `SETTINGS_HEADER_TABLE_SIZE` that we announce, in bytes.
    pub header_table_size: u32,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS` that we announce (server role); `None` announces no limit.
    pub max_concurrent_streams: Option<u32>,
    /// `SETTINGS_MAX_HEADER_LIST_SIZE` that we announce and enforce, in bytes as RFC 9113 §6.5.2 counts them. The same
    /// bound holds for an HTTP/1.1 head. Default 65,536.
    pub max_header_list_size: u32,
    /// Whether we accept PUSH_PROMISE (client role). Off by default.
    pub enable_push: bool,
    /// Bytes that may wait for the transport before [`Connection::send_data`] accepts no more. Default 256 KiB. In HTTP/3
    /// streams share it, and each may have 16 KiB waiting in any case: one that QUIC's windows hold up must not keep the
    /// others. Beyond [`Limits::unread_output`] of such bodies in all it is 1 KiB.
    pub send_buffer: usize,
    /// Server role: after this many requests the connection ends as nginx ends it: GOAWAY, or `Connection: close`.
    pub max_requests: Option<u32>,
    /// How long the peer may take to send its preface or acknowledge our SETTINGS or PING. Default 10 s.
    pub peer_timeout: Duration,
    /// What a peer may do before it is taken for an attacker. Defaults as [`Limits::new`] has them for the role.
    pub limits: Limits,
    /// Server role, cleartext HTTP/1.1: switch to HTTP/2 when the first request of a connection asks for it by
    /// `Upgrade: h2c` (RFC 7540 §3.2), if its body has at most so many bytes; a longer one is answered 413. `None`, the
    /// default, takes no notice of the offer, as RFC 9113 §3.1 recommends.
    pub h2c_upgrade: Option<u32>,
    /// Server role, HTTP/2: announce `SETTINGS_ENABLE_CONNECT_PROTOCOL`, so that a CONNECT may name a protocol that it
    /// tunnels, such as `websocket` (RFC 8441); the role finds it in [`super::RequestHead::protocol`]. Off by default: a
    /// `:protocol` is then malformed. A client needs no switch, see [`Connection::send_connect`].
    pub connect_protocol: bool,
    /// HTTP/2: after so long without a byte from the peer a PING asks whether it is still there (RFC 9113 §6.7), and if
    /// nothing arrives for [`Config::peer_timeout`] after that the connection ends with [`super::Error::Timeout`]. A server
    /// that has [`Limits::idle`] asks only while a request is under way: that bound ends the other connections, and our
    /// own PINGs must not keep them. `None`, the default, never asks.
    pub keep_alive: Option<Duration>,
    /// Octets of padding in every HEADERS, PUSH_PROMISE and DATA that has room for it (RFC 9113 §6.1). 0, the default,
    /// sends none.
    pub padding: u8,
    /// Whether everything that waits is handed to the transport at once. `false` hands out one HTTP/2 frame at a time, so
    /// that each costs a write, a TLS record and a packet, as with servers that write frame by frame. Default `true`.
    /// HTTP/1.1 has no frames and takes no notice, as of `flow`.
    pub coalesce: bool,
}

impl Config {
    /// The defaults for a role.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            tls: false,
            flow: FlowControl::default(),
            max_frame_size: 16_384,
            header_table_size: 4_096,
            max_concurrent_streams: (role == Role::Server).then_some(100),
            max_header_list_size: 65_536,
            enable_push: false,
            send_buffer: 256 * 1024,
            max_requests: None,
            peer_timeout: Duration::from_secs(10),
            limits: Limits::new(role),
            h2c_upgrade: None,
            connect_protocol: false,
            keep_alive: None,
            padding: 0,
            coalesce: true,
        }
    }
}

/// Frame types counted by [`Counters`]: RFC 9113 §6 plus one slot for all unknown types.
pub const FRAME_TYPES: [&str; 11] = [
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RST_STREAM",
    "SETTINGS",
    "PUSH_PROMISE",
    "PING",
    "GOAWAY",
    "WINDOW_UPDATE",
    "CONTINUATION",
    "unknown",
];

/// Settings as identifier and value.
pub type SettingValues = Vec<(u16, u32)>;

/// Names of the settings of [`Connection::settings_in_effect`] in HTTP/2 (RFC 9113 §6.5.2, RFC 8441 §3); those of HTTP/3
/// have other numbers, see [`h3::setting_name`].
pub const fn setting_name(identifier: u16) -> Option<&'static str> {
    Some(match identifier {
        1 => "HEADER_TABLE_SIZE",
        2 => "ENABLE_PUSH",
        3 => "MAX_CONCURRENT_STREAMS",
        4 => "INITIAL_WINDOW_SIZE",
        5 => "MAX_FRAME_SIZE",
        6 => "MAX_HEADER_LIST_SIZE",
        8 => "ENABLE_CONNECT_PROTOCOL",
        9 => "NO_RFC7540_PRIORITIES",
        _ => return None,
    })
}

/// The same for whichever protocol it is: HTTP/3, or one of the others.
pub const fn setting_name_in(is_http3: bool, identifier: u16) -> Option<&'static str> {
    if is_http3 { h3::setting_name(identifier) } else { setting_name(identifier) }
}

/// What a connection has done so far. HTTP/1.1 counts heads as HEADERS and body pieces as DATA, so that both compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Frames sent, by index into [`FRAME_TYPES`]. In HTTP/3 a stream that is given up counts as RST_STREAM, and frames that
    /// HTTP/2 has not, or under another number, as unknown.
    pub frames_sent: [u64; 11],
    /// Frames received, likewise.
    pub frames_received: [u64; 11],
    /// Header bytes as sent: HPACK blocks, QPACK sections, or heads as text.
    pub headers_sent: u64,
    /// Header bytes as received.
    pub headers_received: u64,
    /// What the header fields sent would take as HTTP/1.1 text (name, `: `, value, CRLF).
    pub headers_plain: u64,
    /// Requests begun.
    pub requests: u64,
    /// Time in which body waited for a stream window; several streams that wait at a time count once. Not known in HTTP/3,
    /// whose windows are QUIC's, nor is the next.
    pub stalled_stream_window: Duration,
    /// Time in which body waited for the connection window.
    pub stalled_connection_window: Duration,
    /// How often each of [`Limit::ALL`] was met, in that order.
    pub limits_hit: [u32; Limit::ALL.len()],
}

impl Counters {
    /// A bound was met.
    pub(crate) const fn limit_hit(&mut self, limit: Limit) {
        self.limits_hit[limit as usize] += 1;
    }
}

/// An HTTP connection of any protocol. See the [module](super) for how to drive it.
#[derive(Debug)]
pub enum Connection {
    /// HTTP/1.1.
    H1(Box<h1::Connection>),
    /// HTTP/2.
    H2(Box<h2::Connection>),
    /// HTTP/3. Its bytes lie in many streams: they go through [`Connection::as_h3`] and [`h3::transport`] instead of
    /// [`Connection::recv_space`] and [`Connection::poll_transmit`], which know nothing of them. All else is the same.
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
    pub fn h1(config: Config) -> Self {
        Self::H1(Box::new(h1::Connection::new(config)))
    }

    /// An HTTP/2 connection by prior knowledge or ALPN; the preface and SETTINGS are queued at once.
    pub fn h2(config: Config, now: Time) -> Self {
        Self::H2(Box::new(h2::Connection::new(config, now)))
    }

    /// An HTTP/3 connection over a QUIC connection whose handshake is complete; our control stream is queued at once.
    pub fn h3(config: Config, now: Time) -> Self {
        Self::H3(Box::new(h3::Connection::new(config, now)))
    }

    /// The engine of HTTP/3, for its transport; `None` if it is another.
    pub fn as_h3(&mut self) -> Option<&mut h3::Connection> {
        match self {
            Self::H1(_) | Self::H2(_) => None,
            Self::H3(engine) => Some(engine),
        }
    }

    /// A client's HTTP/2 connection in clear that begins with HTTP/1.1 and `Upgrade: h2c` (RFC 7540 §3.2): an
    /// `OPTIONS *` to `authority` is queued at once, and when the server has switched this is an HTTP/2 connection like
    /// any other. That request's response comes on stream 1, which a role did not begin and need not heed; its own
    /// requests begin with stream 3. A server that does not switch ends the connection with [`super::Error::WrongProtocol`].
    pub fn h2c_upgrade(config: Config, authority: &str, now: Time) -> Self {
        Self::H1(Box::new(h1::Connection::asking_for_h2c(config, authority, now)))
    }

    /// The value of `HTTP2-Settings` with which a client offers the step to HTTP/2 itself (RFC 7540 §3.2.1), for a role that
    /// varies the offer and so cannot leave it to [`Connection::h2c_upgrade`].
    pub fn h2c_offer(config: &Config) -> String {
        upgrade::encode(&h2::announced_settings(config))
    }

    /// The HTTP/2 connection that goes on where a role has itself exchanged the offer and its 101. `offered` is the value
    /// of the client's `HTTP2-Settings` (for the server role; perhaps empty) and `unread` what came behind the last head. The
    /// offering request is stream 1, which a server answers without being told of it. `None`: the settings are no legal ones.
    pub fn h2c_switched(config: Config, offered: &[u8], unread: &[u8], now: Time) -> Option<Self> {
        let settings = upgrade::decode(offered).filter(|payload| h2::are_client_settings(payload))?;
        let handover = upgrade::Handover {
            config,
            counters: Counters::default(),
            unread: unread.to_vec(),
            unsent: Vec::new(),
            settings,
            eof: false,
            draining: false,
        };
        Some(Self::H2(Box::new(h2::Connection::upgraded(&handover, now))))
    }

    /// Space for the transport to read into: at least 2 KiB, and as much as the peer has been found to send at a time.
    /// Over HTTP/3 none.
    pub fn recv_space(&mut self) -> &mut [u8] {
        forward!(self, engine => engine.recv_space(), h3: &mut [])
    }

    /// `n` bytes were read into [`Connection::recv_space`] at `now`.
    pub fn handle_received(&mut self, now: Time, n: usize) {
        forward!(self, engine => engine.handle_received(now, n), h3: {});
    }

    /// Bytes of the connection that must come before there is any other news than a longer piece of the body at hand: what is
    /// left of it, or of its chunk or frame. 0 if that is not known. Ask when no event is left.
    pub fn expected(&self) -> u64 {
        forward!(self, engine => engine.expected(), h3: 0)
    }

    /// The same with the bodies that the peer has announced by content-length, as far as our windows let it send them: other
    /// news may come before or between, or the peer may think better of it. Who waits for so much must look in between.
    pub fn announced(&self) -> u64 {
        forward!(self, engine => engine.announced(), h3: 0)
    }

    /// Copies `bytes` in as if they had been read; for tests and replay. Nothing happens in HTTP/3.
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

    /// The deadline of [`Connection::poll_timeout`] has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        forward!(self, engine => engine.handle_timeout(now));
    }

    /// The transport took the first `n` bytes of [`Connection::poll_transmit`].
    pub fn handle_transmitted(&mut self, now: Time, n: usize) {
        forward!(self, engine => engine.handle_transmitted(now, n), h3: {});
    }

    /// The next thing that happened, or `None` until more input arrives. With [`Config::h2c_upgrade`] the request that
    /// asks for HTTP/2 is told by HTTP/1.1, and the first call after its end switches: it is answered, on the same
    /// stream, in HTTP/2. A role that answers earlier stays with HTTP/1.1.
    #[inline]
    pub fn poll_event(&mut self, now: Time) -> Option<Event<'_>> {
        if let Self::H1(engine) = self
            && engine.may_switch()
            && let Some(handover) = engine.switch_to_h2c()
        {
            *self = Self::H2(Box::new(h2::Connection::upgraded(&handover, now)));
        }
        forward!(self, engine => engine.poll_event(now))
    }

    /// The bytes to send next, in one write; empty when there is nothing to send. Of what is scattered, see
    /// [`Connection::is_scattered`], these are the first ones only.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time) -> &[u8] {
        forward!(self, engine => engine.poll_transmit(now), h3: &[])
    }

    /// Whether what [`Connection::poll_transmit`] shows is not all that is to be sent in one write: where a body lies elsewhere,
    /// see [`Connection::send_static`].
    #[inline]
    pub fn is_scattered(&self) -> bool {
        forward!(self, engine => engine.is_scattered(), h3: false)
    }

    /// The same bytes and those after them, place by place, as far as there is room in `into`; how many places it took.
    /// Together they are for one write: whatever of them the transport takes, [`Connection::handle_transmitted`] hears of.
    pub fn poll_transmit_slices<'a>(&'a mut self, now: Time, into: &mut [&'a [u8]]) -> usize {
        forward!(self, engine => engine.poll_transmit_slices(now, into), h3: 0)
    }

    /// All that is to be sent, in one piece, which counts as sent: for roles whose bytes go somewhere else than into a socket.
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

    /// Whether there is something to send that the transport may take: [`Connection::poll_transmit`] is not empty, or in HTTP/3
    /// a stream that is not blocked has something, or there is something to do for the transport.
    pub fn has_output(&mut self, now: Time) -> bool {
        match self {
            Self::H1(_) | Self::H2(_) => !self.poll_transmit(now).is_empty(),
            Self::H3(engine) => engine.has_output(),
        }
    }

    /// How many bytes wait for the transport. [`Connection::poll_transmit`] shows the first of the places in which they lie:
    /// bodies that were lent lie in places of their own, and with [`Config::coalesce`] off each frame is shown by itself.
    pub fn unsent(&self) -> usize {
        forward!(self, engine => engine.unsent())
    }

    /// When [`Connection::handle_timeout`] must be called; [`Time::NEVER`] if no deadline runs.
    pub fn poll_timeout(&self) -> Time {
        forward!(self, engine => engine.poll_timeout())
    }

    /// How many requests may be begun now. HTTP/1.1: 1 when idle. HTTP/2: what the peer's
    /// `MAX_CONCURRENT_STREAMS` leaves (100 until its SETTINGS arrive), 0 after GOAWAY or when ids run out. HTTP/3: what
    /// QUIC has been granted, as [`h3::Connection::handle_streams_granted`] was told.
    pub fn available_streams(&self) -> u32 {
        forward!(self, engine => engine.available_streams())
    }

    /// Whether more input is welcome: no, while so much waits for the peer to read it that answering more would only pile
    /// up, and in HTTP/1.1 while 64 KiB wait behind a message whose exchange is not over. The role then leaves what the peer
    /// sends in the transport until it has sent some.
    pub fn wants_input(&self) -> bool {
        forward!(self, engine => engine.wants_input())
    }

    /// Whether a body that [`Connection::send_data`] did not take waits for the transport to take some of the output, and
    /// not for the peer's windows or its turn.
    pub fn is_output_full(&self) -> bool {
        forward!(self, engine => engine.is_output_full())
    }

    /// Bytes of memory that the connection holds for its peer: buffers, tables, streams.
    pub fn held_bytes(&self) -> usize {
        forward!(self, engine => engine.held_bytes())
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

    /// Begins a request (client role). `body_length` is the announced content-length, if any: HTTP/1.1 frames the body
    /// by it, else by chunks; HTTP/2 sends the content-length field. `fields` holds neither content-length nor host.
    /// Returns `None` when [`Connection::available_streams`] is 0.
    pub fn send_request(&mut self, now: Time, request: &Request<'_>) -> Option<StreamId> {
        forward!(self, engine => engine.send_request(now, request))
    }

    /// As [`Connection::send_request`], for a `request` that is the same as the last one on this connection: what was
    /// encoded for that is used again where it still stands.
    pub fn send_request_again(&mut self, now: Time, request: &Request<'_>) -> Option<StreamId> {
        forward!(self, engine => engine.send_request_again(now, request))
    }

    /// The settings of both sides, ours first, as (identifier, value) in the order of the identifiers (RFC 9113 §6.5.2):
    /// what was announced, else the initial value; no limit is left out. The peer's are empty until it has announced them,
    /// and both are in HTTP/1.1.
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

    /// Begins an extended CONNECT (client role, RFC 8441 §4): `request`, whose method is CONNECT and whose path and
    /// authority are those of any request, asks for a tunnel that speaks `protocol`. Once it is answered with 2xx, DATA
    /// goes both ways until each side ends it. `None` as for [`Connection::send_request`], and unless
    /// [`Connection::takes_connect_protocol`]. HTTP/1.1 has Upgrade for this, which is not ours to begin.
    pub fn send_connect(&mut self, now: Time, protocol: &str, request: &Request<'_>) -> Option<StreamId> {
        match self {
            Self::H1(_) => None,
            Self::H2(engine) => engine.send_connect(now, protocol, request),
            Self::H3(engine) => engine.send_connect(now, protocol, request),
        }
    }

    /// Sends a 1xx response (server role).
    pub fn send_interim(&mut self, now: Time, stream: StreamId, status: u16, fields: &[Field<'_>]) {
        forward!(self, engine => engine.send_interim(now, stream, status, fields));
    }

    /// Sends the final response's head (server role). `body_length` as in [`Connection::send_request`]; `end_stream`
    /// means that no body follows.
    pub fn send_response(&mut self, now: Time, stream: StreamId, response: &Response<'_>) {
        forward!(self, engine => engine.send_response(now, stream, response));
    }

    /// Promises the response to `request` because of the request on `stream`, before the response to that refers to it
    /// (server role, RFC 9113 §8.4). Answer it on the stream that is returned, as if it had been asked for. `None` if the
    /// peer takes no promise, now or ever, and always in HTTP/1.1 and HTTP/3. `request` is a GET or HEAD without a body.
    pub fn send_push(&mut self, now: Time, stream: StreamId, request: &Request<'_>) -> Option<StreamId> {
        forward!(self, engine => engine.send_push(now, stream, request), h3: None)
    }

    /// Sends body bytes; `end_stream` takes effect only if all of `data` was accepted. Returns how many were accepted:
    /// fewer when a flow-control window or the send buffer is full or it is another stream's turn (by priority, RFC 9218,
    /// and in rotation among equals), and then [`Event::Writable`] follows. Nothing is accepted on a stream that is over; its end has been or will be told.
    pub fn send_data(&mut self, now: Time, stream: StreamId, data: &[u8], end_stream: bool) -> usize {
        forward!(self, engine => engine.send_data(now, stream, data, end_stream))
    }

    /// As [`Connection::send_data`], of bytes that never change or go away: in clear they may be sent from where they lie.
    #[inline]
    pub fn send_static(
        &mut self,
        now: Time,
        stream: StreamId,
        data: &'static [u8],
        end_stream: bool,
    ) -> usize {
        match self {
            Self::H1(engine) => engine.send_static(now, stream, data, end_stream),
            Self::H2(engine) => engine.send_static(now, stream, data, end_stream),
            Self::H3(engine) => engine.send_data(now, stream, data, end_stream),
        }
    }

    /// Ends a body with trailer fields.
    pub fn send_trailers(&mut self, now: Time, stream: StreamId, fields: &[Field<'_>]) {
        forward!(self, engine => engine.send_trailers(now, stream, fields));
    }

    /// Tells the server how urgent the response on `stream` has become (client role, HTTP/2 and HTTP/3: `PRIORITY_UPDATE`, RFC 9218
    /// §7). What is known when the request is sent belongs into its `priority` field.
    pub fn send_priority_update(&mut self, now: Time, stream: StreamId, priority: Priority) {
        forward!(self, engine => engine.send_priority_update(now, stream, priority));
    }

    /// From now on the role gives back the credit for what arrives on `stream` itself, as [`FlowControl::manual_release`]
    /// has it for all streams: for a tunnel whose far end may be slower than its near one. Nothing happens in HTTP/1.1.
    pub fn release_by_hand(&mut self, stream: StreamId) {
        match self {
            Self::H1(_) => {}
            Self::H2(engine) => engine.release_by_hand(stream),
            Self::H3(engine) => engine.release_by_hand(stream),
        }
    }

    /// Gives `n` bytes of credit back where [`FlowControl::manual_release`] or [`Connection::release_by_hand`] leaves that to
    /// the role. Every byte of [`Event::Data`] must then be released once, also when its stream is over: the connection's
    /// window is owed it.
    pub fn release(&mut self, now: Time, stream: StreamId, n: u32) {
        forward!(self, engine => engine.release(now, stream, n));
    }

    /// There is memory for receive windows of `bytes` only, or of one frame of 16,384 bytes: windows that are larger get no
    /// credit until they have come down to that, the connection's and each stream's. Call it again with more when there is
    /// more; `u32::MAX` lifts the limit. [`super::WindowBudget`] says how much there is for each connection. What the peer has been given it may still send: a window comes down only as it is
    /// used. Nothing happens in HTTP/1.1, nor in HTTP/3, whose windows are QUIC's.
    pub fn set_window_limit(&mut self, bytes: u32) {
        forward!(self, engine => engine.set_window_limit(bytes), h3: {});
    }

    /// Ends one stream. HTTP/2: RST_STREAM. HTTP/1.1: the connection ends with it.
    pub fn reset(&mut self, now: Time, stream: StreamId, code: ErrorCode) {
        forward!(self, engine => engine.reset(now, stream, code));
    }

    /// Announces that no further requests are accepted; open ones finish. HTTP/1.1: the next head says
    /// `Connection: close`.
    pub fn goaway(&mut self, now: Time, code: ErrorCode, debug: &[u8]) {
        forward!(self, engine => engine.goaway(now, code, debug));
    }

    /// Sends a PING; [`Event::Pong`] tells the round trip. Nothing happens in HTTP/1.1 and HTTP/3.
    pub fn ping(&mut self, now: Time) {
        forward!(self, engine => engine.ping(now), h3: {});
    }

    /// What has been sent and received so far.
    pub fn counters(&self) -> &Counters {
        forward!(self, engine => engine.counters())
    }
}

/// A request to send.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET`, `POST` …
    pub method: &'a str,
    /// Host and, unless it is the scheme's own, port.
    pub authority: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// Field lines, lower-case names, without content-length and host.
    pub fields: &'a [Field<'a>],
    /// The length of the body if it is known.
    pub body_length: Option<u64>,
    /// No body follows.
    pub end_stream: bool,
}

/// A final response to send.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// 200 to 599.
    pub status: u16,
    /// Field lines, lower-case names, without content-length.
    pub fields: &'a [Field<'a>],
    /// The length of the body if it is known.
    pub body_length: Option<u64>,
    /// No body follows.
    pub end_stream: bool,
}
