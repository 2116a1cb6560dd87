//! What is sent and when: the protocol, the shape of a request, the arrival of requests, the phases of a cell.

pub mod body;
pub mod engine;
pub mod mix;
pub mod policy;
pub mod schedule;
pub mod shape;
pub mod share;
pub mod template;

use h2lab_base::JsonSchema;
use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use body::Body;
pub use engine::EngineSettings;
pub use mix::{Draw, MixEntry};
pub use policy::{ClientPolicy, DialPolicy};
pub use schedule::{Phases, Schedule, due_within};
pub use shape::RequestShape;
pub use share::{Share, ShareError};
pub use template::{Template, TemplateError, without_placeholders};

use h2lab_base::secrets::without_url_secrets;
use h2lab_base::units::{ParseQuantityError, duration_text};

/// Congestion control that a QUIC connection of ours can have, by the names that Linux has for TCP's: `NewReno`, CUBIC,
/// BBR.
pub const QUIC_CONGESTION: [&str; 3] = ["reno", "cubic", "bbr"];

/// A protocol under comparison (GLOSSARY.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1 in clear.
    H1,
    /// HTTP/1.1 over TLS.
    H1s,
    /// HTTP/2 over TLS, by ALPN.
    H2,
    /// HTTP/2 in clear; how it begins is its mode, see [`H2cMode`].
    H2c,
    /// HTTP/3, over QUIC.
    H3,
    /// No HTTP at all: bytes over a TCP connection, as fast as it takes them. The reference for any protocol over TCP
    /// in bulk work; no other work has it.
    Tcp,
}

impl Protocol {
    /// All that are HTTP, in the order in which they are printed.
    pub const ALL: [Self; 5] = [Self::H1, Self::H1s, Self::H2, Self::H2c, Self::H3];

    /// Those over TCP: what servers support unless HTTP/3 is known, and what proxies speak to their upstreams.
    pub const OVER_TCP: [Self; 4] = [Self::H1, Self::H1s, Self::H2, Self::H2c];

    /// The name in flags, TOML, JSON and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether the transport is encrypted, by TLS or by QUIC, so that its URLs begin with `https://`.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::H1s | Self::H2 | Self::H3)
    }

    /// Whether it runs over QUIC, and so over UDP, instead of TCP.
    pub const fn is_quic(self) -> bool {
        matches!(self, Self::H3)
    }

    /// Whether several requests share a connection at a time.
    pub const fn is_multiplexed(self) -> bool {
        matches!(self, Self::H2 | Self::H2c | Self::H3)
    }

    /// The ALPN protocol name (RFC 7301), for the encrypted protocols.
    pub const fn alpn(self) -> Option<&'static str> {
        match self {
            Self::H1s => Some("http/1.1"),
            Self::H2 => Some("h2"),
            Self::H3 => Some("h3"),
            Self::H1 | Self::H2c | Self::Tcp => None,
        }
    }
}

impl FromStr for Protocol {
    type Err = ParseQuantityError;

    /// Reads the name of one that is HTTP: see [`Protocol::Tcp`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.name() == text)
            .ok_or_else(|| ParseQuantityError::new(text, "a protocol (h1, h1s, h2, h2c, h3)"))
    }
}

/// How a connection of `h2c` begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum H2cMode {
    /// With HTTP/2 at once (RFC 9113 §3.3).
    #[default]
    PriorKnowledge,
    /// With HTTP/1.1 and `Upgrade: h2c` (RFC 7540 §3.2), by an `OPTIONS *` of our own.
    Upgrade,
}

impl H2cMode {
    /// The name in flags, TOML, JSON and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PriorKnowledge => "prior-knowledge",
            Self::Upgrade => "upgrade",
        }
    }
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "loop", deny_unknown_fields)]
pub enum Arrival {
    /// Closed loop: the next request goes when one is answered; `concurrency` are always in flight.
    Closed {
        /// Requests in flight, over all connections.
        concurrency: u32,
    },
    /// Open loop at even intervals: request k is due at k / rate, whatever has happened before.
    Constant {
        /// Requests per second, in all.
        rate: f64,
    },
    /// Open loop with exponentially distributed intervals, drawn from the cell's seed.
    Poisson {
        /// Mean requests per second, in all.
        rate: f64,
    },
    /// Open loop whose rate changes from `from` to `to` during warm-up and measured time together, in even intervals: in a
    /// straight line, or in equal steps.
    Ramp {
        /// Requests per second at the beginning.
        from: f64,
        /// Requests per second at the end.
        to: f64,
        /// How long the change takes; after it the rate stays `to`.
        #[serde(with = "duration_text")]
        #[schemars(with = "String")]
        over: Duration,
        /// Equal steps, the first at `from` and the last at `to`: 2 or more. 0 is a straight line.
        #[serde(default)]
        steps: u32,
    },
}

impl Arrival {
    /// Requests offered per second, for a ramp those at its end; `None` in closed loop, which offers what is served.
    pub const fn rate(self) -> Option<f64> {
        match self {
            Self::Closed { .. } => None,
            Self::Constant { rate } | Self::Poisson { rate } | Self::Ramp { to: rate, .. } => Some(rate),
        }
    }
}

/// The field that carries a request's number, if causes are asked for.
pub const ID_FIELD: &str = "x-h2lab-id";

/// The work of one cell: the same for every protocol of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "they are keys of a scenario, each by itself")]
pub struct Work {
    /// `GET`, `POST` …
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Which header fields go with it.
    pub shape: RequestShape,
    /// Further header fields, from `-H`; a name given here replaces that of the shape.
    pub headers: Vec<(String, String)>,
    /// Request body in bytes: filler, unless `body` says what.
    pub body_bytes: u64,
    /// The request body itself, from `-d`.
    pub body: Option<Body>,
    /// Several kinds of requests, drawn by weight from the cell's seed; if it is empty, all are as said above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<MixEntry>,
    /// Whether `{{…}}` in paths, header values and bodies is a placeholder to be filled anew in each request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub template: bool,
    /// Whether the values of queries are kept: see [`Work::url_as_shown`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secrets: bool,
    /// Whether it is bulk work: each response lasts, or is requested again, until the time is over, and bytes are
    /// counted. Its arrival is a closed loop, whose concurrency is the number of responses at a time; the drain is not
    /// needed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bulk: bool,
    /// When requests are sent.
    pub arrival: Arrival,
    /// Warm-up, measurement and drain.
    pub phases: Phases,
    /// A request unanswered for this long is cancelled and recorded as a timeout.
    #[serde(with = "duration_text")]
    pub timeout: Duration,
    /// Whether requests that the server certainly did not process are sent again on another stream or connection: those that
    /// RFC 9113 §6.8 and §8.7 declare unprocessed, and those whose connection the server had closed before they arrived
    /// (RFC 9112 §9.3.1). If not, they have failed.
    #[serde(default = "sends_again")]
    pub replay: bool,
}

/// What runs did before this was configurable.
const fn sends_again() -> bool {
    true
}

impl Work {
    /// A URL of it, or a path with its query, as output and run folders have it.
    pub fn url_as_shown<'a>(&self, url: &'a str) -> Cow<'a, str> {
        if self.secrets { Cow::Borrowed(url) } else { without_url_secrets(url) }
    }

    /// The same work in which each request carries its number, in decimal digits, in the field [`ID_FIELD`], so that it
    /// can be recognised behind a proxy. That costs some 15 bytes of each request, and its head is encoded anew each
    /// time.
    #[must_use]
    pub fn identified(&self) -> Self {
        let mut work = self.clone();
        if !work.template {
            // Literal braces stay literal.
            let plain = |text: &mut String| *text = text.replace("{{", "{{{{");
            let plain_body = |body: &mut Body| {
                // A body that is not text has no placeholders.
                if let Some(text) = body.text() {
                    *body = text.replace("{{", "{{{{").into();
                }
            };
            for kind in &mut work.mix {
                plain(&mut kind.path);
                kind.headers.iter_mut().for_each(|(_, value)| plain(value));
                kind.body.iter_mut().for_each(plain_body);
            }
            plain(&mut work.path);
            work.headers.iter_mut().for_each(|(_, value)| plain(value));
            work.body.iter_mut().for_each(plain_body);
            work.template = true;
        }
        // A kind's own field would replace that of the work.
        let is_other = |(name, _): &(String, String)| !name.eq_ignore_ascii_case(ID_FIELD);
        work.headers.retain(is_other);
        work.mix.iter_mut().for_each(|kind| kind.headers.retain(is_other));
        work.headers.push((ID_FIELD.to_owned(), "{{counter}}".to_owned()));
        work
    }

    /// How many requests are in flight in a closed loop; `None` in an open one.
    pub const fn concurrency(&self) -> Option<u32> {
        match self.arrival {
            Arrival::Closed { concurrency } => Some(concurrency),
            Arrival::Constant { .. } | Arrival::Poisson { .. } | Arrival::Ramp { .. } => None,
        }
    }

    /// Whether any of its requests has a body.
    pub fn has_bodies(&self) -> bool {
        let of_mix = |entry: &MixEntry| {
            entry.body.as_ref().map_or(self.body_length(), |body| body.bytes().len() as u64)
        };
        let own = if self.mix.is_empty() { self.body_length() } else { 0 };
        self.mix.iter().map(of_mix).chain([own]).any(|length| length > 0)
    }

    /// The length of the request body in bytes.
    pub fn body_length(&self) -> u64 {
        self.body.as_ref().map_or(self.body_bytes, |body| body.bytes().len() as u64)
    }
}
