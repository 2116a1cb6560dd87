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
    #[strum(serialize = "h3.enable")]
    EnableH3,
    #[strum(serialize = "h3.alt-svc")]
    AltSvc,
    #[strum(serialize = "one-port")]
    OnePort,
    #[strum(serialize = "h1.http-1.0")]
    Http10,
    #[strum(serialize = "h2.goaway.by-response")]
    EndByResponse,
    #[strum(serialize = "h2.stream-buffer")]
    StreamBuffer,
    #[strum(serialize = "interim-responses")]
    InterimResponses,
    #[strum(serialize = "client.resend")]
    Resend,
    #[strum(serialize = "client.dials")]
    Dials,
    #[strum(serialize = "timeouts.silence")]
    SilenceTimeout,
    #[strum(serialize = "timeouts.exchange")]
    ExchangeTimeout,
    #[strum(serialize = "limits.memory")]
    Memory,
    #[strum(serialize = "trailers")]
    Trailers,
    #[strum(serialize = "response-fields")]
    ResponseFields,
    #[strum(serialize = "preload")]
    Preload,
    #[strum(serialize = "misdirected")]
    Misdirected,
    #[strum(serialize = "upgrade.forwarding")]
    ForwardedUpgrade,
    #[strum(serialize = "translation.field-names")]
    FieldNames,
    #[strum(serialize = "translation.field-values")]
    FieldValues,
    #[strum(serialize = "translation.path")]
    Path,
    #[strum(serialize = "translation.host")]
    Host,
    #[strum(serialize = "translation.body-length")]
    BodyLength,
    #[strum(serialize = "translation.transfer-encoding")]
    TransferEncoding,
    #[strum(serialize = "translation.hop-fields")]
    HopFields,
    #[strum(serialize = "translation.trailers")]
    ForwardedTrailers,
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
            Self::EnableH3 => "HTTP/3",
            Self::AltSvc => "the announcement of HTTP/3 (Alt-Svc)",
            Self::OnePort => "HTTP/1.1 and h2c on one port",
            Self::Http10 => "requests of HTTP/1.0",
            Self::EndByResponse => "the end of a connection by a response",
            Self::StreamBuffer => "the bytes of a response that it holds for a stream",
            Self::InterimResponses => "interim responses (1xx)",
            Self::Resend => "requests that are sent again",
            Self::Dials => "the connections that a client may have and dial at a time",
            Self::SilenceTimeout => "how long it waits for bytes of a response",
            Self::ExchangeTimeout => "how long a whole exchange may take",
            Self::Memory => "the memory that it may take",
            Self::Trailers => "trailers over HTTP/1.1",
            Self::ResponseFields => "fields of responses that HTTP/2 forbids",
            Self::Preload => "the Link field by which clients preload",
            Self::Misdirected => "requests for other names (421)",
            Self::ForwardedUpgrade => "upgrades that it forwards",
            Self::FieldNames => "which names of fields it forwards",
            Self::FieldValues => "which values of fields it forwards",
            Self::Path => "the path that it forwards",
            Self::Host => "the host that it forwards",
            Self::BodyLength => "the length of bodies that it forwards",
            Self::TransferEncoding => "transfer-encoding of requests that it forwards",
            Self::HopFields => "fields of one connection that it forwards",
            Self::ForwardedTrailers => "trailers of requests that it forwards",
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
