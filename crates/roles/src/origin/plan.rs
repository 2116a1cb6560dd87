//! What is answered to a request, and when.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use h2lab_base::units::Time;

use super::digests::Known;
use super::receipt::Receipt;
use h2lab_net::storage::Body;

/// Longest delay that a path may ask for: no connection is held for ever.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(300);
/// Most bytes that a path may ask for.
pub(super) const MAX_BYTES: u64 = 1 << 40;
/// What to answer, and when.
#[derive(Debug, Default)]
pub struct ResponsePlan {
    /// The UDP port of HTTP/3, if it is to be announced to clients (RFC 7838).
    pub alt_svc: Option<u16>,
    /// 200 to 599.
    pub status: u16,
    /// Interim responses that go before the answer, in their order, once the request is complete.
    pub interim: VecDeque<PlannedInterim>,
    /// When the head may go.
    pub due: Time,
    /// `content-type`.
    pub content_type: &'static str,
    /// Further fields, lower-case names.
    pub fields: Vec<(&'static str, String)>,
    /// The digest of the whole that the client wants to know.
    pub awaited: Option<Answering>,
    /// The body, unless `echo` makes it.
    pub body: Body,
    /// The body is made of the request's.
    pub echo: Option<Echo>,
    /// The body leaves in pieces, one each time that this has passed since the head.
    pub drip: Option<Drip>,
    /// What is pushed because of it.
    pub push: Option<Push>,
    /// Trailer fields behind the body, lower-case names.
    pub trailers: Vec<(String, String)>,
    /// The answer opens a tunnel (RFC 8441): what arrives goes back as it comes.
    pub tunnel: bool,
    /// Takes the request's body, and has the answer once that has arrived.
    pub receipt: Option<Box<Receipt>>,
    /// The rest of the request cannot change the answer, which therefore does not wait for it.
    pub is_final: bool,
}

/// A digest that goes with an answer once it is known.
#[derive(Debug)]
pub struct Answering {
    /// The digest.
    pub digest: Arc<Known>,
    /// Whether the answer waits for it. If not, the answer goes without it if it is not known yet.
    pub is_patient: bool,
    /// Whether it may follow the body instead, which then ends when it is known.
    pub may_follow: bool,
}

/// What is made of a request's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Echo {
    /// The same bytes.
    Same,
    /// JSON that describes the whole request; holds what is known of its head.
    Described(serde_json::Value),
}

impl Echo {
    /// The body of the answer.
    pub fn answer(self, received: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Same => received,
            Self::Described(mut document) => {
                document["bytes"] = received.len().into();
                document["data"] = String::from_utf8_lossy(&received).into();
                pretty(&document)
            }
        }
    }
}

/// A body in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drip {
    /// Bytes of a piece.
    pub piece: u64,
    /// Time between two pieces.
    pub every: Duration,
}

impl ResponsePlan {
    /// A complete answer at once.
    pub(super) fn at_once(now: Time, status: u16, content_type: &'static str, body: Body) -> Self {
        Self { status, due: now, content_type, body, ..Self::default() }
    }

    pub(super) fn filler(now: Time, bytes: u64) -> Self {
        Self::at_once(now, 200, "application/octet-stream", Body::filler(bytes))
    }

    pub(super) fn text(now: Time, status: u16, text: impl Into<String>) -> Self {
        Self::at_once(now, status, "text/plain; charset=utf-8", Body::bytes(text.into().into_bytes()))
    }

    /// The same with another field.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Bytes that are held for its body.
    pub const fn held(&self) -> usize {
        self.body.held()
    }

    pub(super) fn echoing(mut self, echo: Echo) -> Self {
        self.echo = Some(echo);
        self
    }

    pub(super) fn after(mut self, delay: Duration) -> Self {
        self.due += delay.min(MAX_DELAY);
        self
    }
}

/// An interim response that is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedInterim {
    /// When.
    pub due: Time,
    /// 100 to 199, without 101.
    pub status: u16,
    /// How many resources its Link fields name.
    pub links: u32,
}

/// When resources are promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// As soon as the request has arrived.
    Request,
    /// With the first interim response.
    Interim,
    /// With the response.
    Final,
}

/// What is pushed because of a request, unless the client refuses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// How many resources, see [`super::early::resource`].
    pub count: u32,
    /// When.
    pub moment: Moment,
    /// The authority of the request, which those that are promised share.
    pub authority: String,
}

/// JSON for people.
pub(super) fn pretty(document: &serde_json::Value) -> Vec<u8> {
    format!("{document:#}\n").into_bytes()
}
