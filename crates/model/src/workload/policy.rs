//! What our client does with connections: choices in which common client libraries differ, and that decide the effect
//! of a server's limits.

use h2lab_base::JsonSchema;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use h2lab_base::units::{format_duration, optional_duration_text};

/// What is dialled when requests wait and no connection can take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DialPolicy {
    /// One connection for all that wait, if they can share it; HTTP/1.1 dials one for each, up to its limit.
    #[default]
    SingleFlight,
    /// One connection for each that waits, although one would do: what Go's net/http and others do when a server's
    /// GOAWAY leaves none. Those that come too late carry no request: useless dials.
    Stampede,
}

impl DialPolicy {
    /// Whether it is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// All policies.
    pub const ALL: [Self; 2] = [Self::SingleFlight, Self::Stampede];

    /// The name in flags, TOML, JSON and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SingleFlight => "single-flight",
            Self::Stampede => "stampede",
        }
    }
}

/// How our client treats its connections and requests beyond the work itself, the same in every cell of a scenario. What is
/// dialled when no connection is usable is an axis, [`DialPolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ClientPolicy {
    /// Requests after which we end a connection ourselves and dial a new one (`--reconnect-every`); 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconnect_every: Option<u32>,
    /// Idle connections that are kept (`--pool-size`), as in common pools (`OkHttp`, Go): one more is closed as soon as it is
    /// idle. Everything is kept if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_size: Option<u32>,
    /// Requests unanswered for this long are cancelled and recorded as cancelled, by our own fault (`--cancel-after`),
    /// as by a caller whose user has left.
    #[serde(with = "optional_duration_text", skip_serializing_if = "Option::is_none")]
    pub cancel_after: Option<Duration>,
    /// How long a server may take until TCP and TLS are established (`--connect-timeout`); 10 s if it is not given.
    #[serde(with = "optional_duration_text", skip_serializing_if = "Option::is_none")]
    pub connect_timeout: Option<Duration>,
    /// Whether each TLS handshake is a full one (`--no-tls-resumption`), as of clients that keep no sessions; otherwise
    /// later connections of a cell resume the session of earlier ones (RFC 8446 §2.2).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_tls_resumption: bool,
    /// Whether our client acknowledges over TCP at once whatever it reads (`--quick-acks`), where the kernel would delay
    /// that, which a server with Nagle's algorithm waits for (RFC 9293 §3.7.4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub quick_acks: bool,
}

impl ClientPolicy {
    /// Whether it is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What it is, as in labels: `reconnects every 7 requests`, `no TLS resumption`.
    pub fn rendered(&self) -> Vec<String> {
        let rendered = [
            self.reconnect_every.map(|requests| match requests {
                1 => "reconnects every request".to_owned(),
                n => format!("reconnects every {n} requests"),
            }),
            self.pool_size.map(|idle| format!("{idle} idle connections kept")),
            self.cancel_after.map(|time| format!("cancels after {}", format_duration(time))),
            self.connect_timeout.map(|time| format!("connect timeout {}", format_duration(time))),
            self.no_tls_resumption.then(|| "no TLS resumption".to_owned()),
            self.quick_acks.then(|| "quick acknowledgements".to_owned()),
        ];
        rendered.into_iter().flatten().collect()
    }
}
