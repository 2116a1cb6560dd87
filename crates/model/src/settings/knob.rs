//! What a setting controls, and which end of a connection has it.

use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// What a setting controls. A rule names one of these; the table says how it is written in a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::Display, VariantArray)]
#[allow(missing_docs, reason = "the id and the words of each say what it is")]
pub enum Knob {
    #[strum(serialize = "h2.stream-window.receive")]
    StreamWindow,
    #[strum(serialize = "h2.connection-window.receive")]
    ConnectionWindow,
    #[strum(serialize = "h2.max-concurrent-streams")]
    MaxConcurrentStreams,
    #[strum(serialize = "h2.max-frame-size.receive")]
    MaxFrameSize,
    #[strum(serialize = "h2.header-table-size")]
    HeaderTableSize,
    #[strum(serialize = "h2.requests-per-connection")]
    H2Requests,
    #[strum(serialize = "h1.requests-per-connection")]
    H1Requests,
    #[strum(serialize = "h2.idle-timeout")]
    H2IdleTimeout,
    #[strum(serialize = "h1.idle-timeout")]
    H1IdleTimeout,
    #[strum(serialize = "h2.max-connection-age")]
    ConnectionAge,
    #[strum(serialize = "h2.push")]
    Push,
    #[strum(serialize = "h2.goaway.grace")]
    GoAwayGrace,
    #[strum(serialize = "h2.write-size")]
    WriteSize,
    #[strum(serialize = "h2.keep-alive")]
    KeepAlive,
    #[strum(serialize = "h2.misuse-limit")]
    MisuseLimit,
    #[strum(serialize = "h2.workers")]
    Workers,
    #[strum(serialize = "h2.websocket")]
    WebSocket,
    #[strum(serialize = "tls.record-size")]
    RecordSize,
    #[strum(serialize = "tls.session-resumption")]
    SessionResumption,
    #[strum(serialize = "tcp.congestion-control")]
    CongestionControl,
    #[strum(serialize = "tcp.send-buffer")]
    SendBuffer,
    #[strum(serialize = "tcp.receive-buffer")]
    ReceiveBuffer,
    #[strum(serialize = "tcp.nodelay")]
    NoDelay,
    #[strum(serialize = "tcp.notsent-lowat")]
    NotsentLowat,
    #[strum(serialize = "tcp.slow-start-after-idle")]
    SlowStartAfterIdle,
    #[strum(serialize = "h2.enable")]
    EnableH2,
    #[strum(serialize = "h2c.prior-knowledge")]
    PriorKnowledge,
    #[strum(serialize = "h2c.upgrade")]
    Upgrade,
    #[strum(serialize = "upstream.protocol")]
    UpstreamProtocol,
    #[strum(serialize = "upstream.keepalive")]
    UpstreamKeepAlive,
    #[strum(serialize = "upstream.connections")]
    UpstreamConnections,
    #[strum(serialize = "limits.header-size")]
    HeaderSize,
    #[strum(serialize = "limits.body-size")]
    BodySize,
    #[strum(serialize = "limits.request-rate")]
    RequestRate,
    #[strum(serialize = "request-buffering")]
    RequestBuffering,
    #[strum(serialize = "response-buffering")]
    ResponseBuffering,
    #[strum(serialize = "early-hints")]
    EarlyHints,
    #[strum(serialize = "priorities")]
    Priorities,
}

impl TryFrom<String> for Knob {
    type Error = String;

    fn try_from(id: String) -> Result<Self, String> {
        id.parse().map_err(|_| format!("`{id}` is not a knob"))
    }
}

impl Knob {
    /// All of them, in the order of their ids' groups.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The id, such as `h2.stream-window.receive`.
    pub fn id(self) -> &'static str {
        self.into()
    }

    /// What it is, as the object of a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::StreamWindow => "the stream window that it offers",
            Self::ConnectionWindow => "the connection window that it offers",
            Self::MaxConcurrentStreams => "the number of concurrent streams",
            Self::MaxFrameSize => "the largest frame that it accepts",
            Self::HeaderTableSize => "the size of the header table",
            Self::H2Requests => "the requests of an HTTP/2 connection",
            Self::H1Requests => "the requests of an HTTP/1.1 connection",
            Self::H2IdleTimeout => "how long an idle HTTP/2 connection is kept",
            Self::H1IdleTimeout => "how long an idle HTTP/1.1 connection is kept",
            Self::ConnectionAge => "the age of a connection",
            Self::Push => "server push",
            Self::GoAwayGrace => "how long requests may go on after a GOAWAY",
            Self::WriteSize => "the bytes of a write or a DATA frame",
            Self::KeepAlive => "PINGs on silent connections",
            Self::MisuseLimit => "what a client may do before its connection is ended",
            Self::Workers => "the threads that handle streams",
            Self::WebSocket => "WebSockets over HTTP/2 (RFC 8441)",
            Self::RecordSize => "the size of TLS records",
            Self::SessionResumption => "the resumption of TLS sessions",
            Self::CongestionControl => "the congestion control",
            Self::SendBuffer => "the send buffer",
            Self::ReceiveBuffer => "the receive buffer",
            Self::NoDelay => "TCP_NODELAY",
            Self::NotsentLowat => "unsent bytes in the kernel (TCP_NOTSENT_LOWAT)",
            Self::SlowStartAfterIdle => "slow start after an idle time",
            Self::EnableH2 => "HTTP/2 over TLS",
            Self::PriorKnowledge => "h2c by prior knowledge",
            Self::Upgrade => "the upgrade to h2c",
            Self::UpstreamProtocol => "the protocol to the upstream",
            Self::UpstreamKeepAlive => "idle connections to the upstream",
            Self::UpstreamConnections => "the connections to the upstream",
            Self::HeaderSize => "the size of request headers",
            Self::BodySize => "the size of request bodies",
            Self::RequestRate => "the requests per second that are served",
            Self::RequestBuffering => "the buffering of request bodies",
            Self::ResponseBuffering => "the buffering of responses",
            Self::EarlyHints => "Early Hints (103)",
            Self::Priorities => "the order of responses",
        }
    }
}

/// The end that a setting is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// A server or a proxy, towards its clients.
    Front,
    /// A proxy, towards its upstream.
    Back,
    /// A client.
    Client,
    /// The kernel of either end.
    Kernel,
}

impl Role {
    /// Whose setting it is.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Front => "of a server or a proxy towards its clients",
            Self::Back => "of a proxy towards its upstream",
            Self::Client => "of a client",
            Self::Kernel => "of the kernel",
        }
    }
}
