//! What a connection of any protocol is given and what it counts: configuration, messages to send, counters.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::{Limit, Limits};
use super::{Field, Role};

/// How a receiver hands out flow-control credit (RFC 9113 §6.9). A value, so that every role can vary it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowControl {
    /// `SETTINGS_INITIAL_WINDOW_SIZE` that we announce, in bytes, up to 2^31 − 1. Default 65,535, as RFC 9113 has it;
    /// the roles set what is usual in practice.
    pub stream_window: u32,
    /// The connection window that we open to, in bytes, from 65,535 to 2^31 − 1.
    pub connection_window: u32,
    /// Credit is returned when this share of the window, in percent, has been used. 50 is what nghttp2 and h2 do. With
    /// `auto_limit` 25 at most: the credit that is not yet returned must be the smaller part of the window.
    pub update_threshold_percent: u8,
    /// Credit is returned after this many bytes, whatever the window's size, at the latest when all of it has been
    /// used. `None`, the default: the share decides.
    pub update_bytes: Option<u32>,
    /// The role returns credit itself with [`Connection::release`](super::Connection::release), for example after a
    /// slow write to disk.
    pub manual_release: bool,
    /// Auto-tuning: both windows begin as given here and grow with the measured bandwidth-delay product, to three times
    /// that and to this many bytes at most (up to 2^31 − 1). Only bytes that the role has released count, so a slow
    /// reader gets no growth. `None`, the default: windows stay as they are.
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
    /// The same with no window above `share` bytes, or above the smallest useful window if that is larger: what a new
    /// connection may grant under a [`super::WindowBudget`].
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
/// A connection begins with this window, whatever is announced (RFC 9113 §6.9.2).
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
    /// Bytes that may wait for the transport before [`Connection::send_data`](super::Connection::send_data) accepts no
    /// more. Default 256 KiB. In HTTP/3 streams share it, and each may have 16 KiB waiting in any case: one that QUIC's
    /// windows block must not block the others. Once such bodies exceed [`Limits::unread_output`] in all, it is 1 KiB.
    pub send_buffer: usize,
    /// Server role: after this many requests the connection ends as in nginx: GOAWAY, or `Connection: close`.
    pub max_requests: Option<u32>,
    /// How long the peer may take to send its preface or acknowledge our SETTINGS or PING. Default 10 s.
    pub peer_timeout: Duration,
    /// Bounds on what a peer may make us do. Defaults are those of [`Limits::new`] for the role.
    pub limits: Limits,
    /// Server role, cleartext HTTP/1.1: switch to HTTP/2 when the first request of a connection asks for it by
    /// `Upgrade: h2c` (RFC 7540 §3.2), if its body has at most this many bytes; otherwise the offer is ignored. `None`,
    /// the default, ignores every offer, as RFC 9113 §3.1 recommends.
    pub h2c_upgrade: Option<u32>,
    /// Server role, HTTP/2: announce `SETTINGS_ENABLE_CONNECT_PROTOCOL`, so that a CONNECT may name a protocol that it
    /// tunnels, such as `websocket` (RFC 8441); the role finds it in [`super::RequestHead::protocol`]. Off by default:
    /// a `:protocol` is then malformed. A client needs no switch, see
    /// [`Connection::send_connect`](super::Connection::send_connect).
    pub connect_protocol: bool,
    /// HTTP/2: after this long without a byte from the peer, a PING asks whether it is still there (RFC 9113 §6.7), and
    /// if nothing arrives for [`Config::peer_timeout`] after that, the connection ends with [`super::Error::Timeout`].
    /// A server that has [`Limits::idle`] asks only while a request is under way: that bound ends the other
    /// connections, and our own PINGs must not keep them alive. `None`, the default, never asks.
    pub keep_alive: Option<Duration>,
    /// Octets of padding in every HEADERS, PUSH_PROMISE and DATA that has room for it (RFC 9113 §6.1). 0, the default,
    /// sends none.
    pub padding: u8,
    /// Whether all pending output is handed to the transport at once. `false` hands out one HTTP/2 frame at a time, so
    /// that each costs a write, a TLS record and a packet, as with servers that write frame by frame. Default `true`.
    /// HTTP/1.1 has no frames and ignores this, as it ignores `flow`.
    pub coalesce: bool,
    /// HTTP/2: the largest table of our own header encoder in bytes, whatever the peer allows, and at most 65,536, which is
    /// the default; with 0 it refers to nothing that was sent before.
    pub encoder_table_size: u32,
    /// HTTP/2: whether our header encoder uses the Huffman code (RFC 7541 §5.2) where it is shorter. Default `true`.
    pub huffman: bool,
    /// Client role, HTTP/2: whether no request begins before the server has said how many it accepts. Default `false`: up
    /// to 100 do, since RFC 9113 §6.5.2 recommends that it be at least so many.
    pub await_settings: bool,
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
            encoder_table_size: 65_536,
            huffman: true,
            await_settings: false,
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

/// Names of the settings of [`Connection::settings_in_effect`](super::Connection::settings_in_effect) in HTTP/2 (RFC
/// 9113 §6.5.2, RFC 8441 §3); those of HTTP/3 have other numbers, see [`setting_name`](super::h3::setting_name).
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

/// What a connection has done so far. HTTP/1.1 counts heads as HEADERS and body pieces as DATA, so that the protocols
/// can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Frames sent, by index into [`FRAME_TYPES`]. In HTTP/3 an aborted stream counts as RST_STREAM, and frames that
    /// HTTP/2 does not have, or has under another number, as unknown.
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
    /// Time in which body waited for a stream window; streams that wait at the same time count once. Not known in
    /// HTTP/3, whose windows are QUIC's; nor is `stalled_connection_window`.
    pub stalled_stream_window: Duration,
    /// Time in which body waited for the connection window.
    pub stalled_connection_window: Duration,
    /// Time in which the peer's body waited for credit of a stream window of ours, as far as a receiver sees it: its
    /// data stopped at the old limit and went on one round trip after our WINDOW_UPDATE. Added up over streams. `None`
    /// in HTTP/3, without DATA, and in records that are older than the field.
    #[serde(default)]
    pub peer_waited_stream_window: Option<Duration>,
    /// Likewise, for the connection window.
    #[serde(default)]
    pub peer_waited_connection_window: Option<Duration>,
    /// How often each of [`Limit::ALL`] was met, in that order.
    pub limits_hit: [u32; Limit::ALL.len()],
}

impl Counters {
    /// A bound was met.
    pub(crate) const fn limit_hit(&mut self, limit: Limit) {
        self.limits_hit[limit as usize] += 1;
    }
}

/// Requests that an engine has answered, or reset, by itself: the role never saw them, or did not decide how they
/// ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The status of the answer: 400, 408, 414, 431, 501, 505. 0: there was none, and the stream was reset.
    pub status: u16,
    /// What is wrong with the request.
    pub reason: &'static str,
    /// Bytes of the answer's body.
    pub body: u64,
    /// How many were answered like this.
    pub times: u32,
}

impl Refused {
    /// Counts one more, which was reset.
    pub(crate) fn by_reset(before: Option<Self>, reason: &'static str) -> Self {
        Self { status: 0, reason, body: 0, times: before.map_or(0, |refused| refused.times) + 1 }
    }
}

/// A request to send.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET`, `POST` …
    pub method: &'a str,
    /// Host, and the port unless it is the scheme's default.
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
    /// 200 to 999; over HTTP/1.1 also 101.
    pub status: u16,
    /// Field lines, lower-case names, without content-length.
    pub fields: &'a [Field<'a>],
    /// The length of the body if it is known.
    pub body_length: Option<u64>,
    /// No body follows.
    pub end_stream: bool,
}
