//! A request of a client and its response.

use std::net::SocketAddr;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_proxy::config::Speaks;
use h2lab_proxy::fields::Asked;
use h2lab_proxy::head::{Head, Part};
use h2lab_proxy::refusal::ProxyError;
use h2lab_proxy::retry::{Attempt, Fate};
use h2lab_wire::StreamId;

use super::body::{Body, KEPT};
use super::guard::Watched;
use super::observe::Seen;

/// A stream of a connection: the place of the connection among all, and the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamAt {
    /// The place of the connection.
    pub slot: u32,
    /// Which of the connections in that place it is: another one may be there by now.
    pub serial: u32,
    /// The stream.
    pub stream: StreamId,
}

/// Why the sidecar answers by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status: 404, 429, 431, 501, 502, 503, 504.
    pub status: u16,
    /// The explanation that the client gets, without the address of an instance.
    pub why: String,
    /// The same for programs.
    pub error: ProxyError,
    /// Further details for the operator.
    pub detail: Option<String>,
    /// After what time the client may retry.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// The error follows from the status.
    pub fn new(status: u16, why: impl Into<String>) -> Self {
        let error = ProxyError::of_status(status);
        Self { status, why: why.into(), error, detail: None, retry_after: None }
    }

    /// The same, with a more precise error.
    pub fn because(self, error: ProxyError) -> Self {
        Self { error, ..self }
    }

    /// The same, with details for the operator.
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The same, with a time after which the client may retry.
    pub fn come_again_after(self, after: Duration) -> Self {
        Self { retry_after: Some(after), ..self }
    }
}

/// One of them. Entries are reused with their memory.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "how far its two sides have come is independent")]
pub struct Exchange {
    /// Towards the client; `None` once that is over.
    pub down: Option<StreamAt>,
    /// Towards the instance; `None` while it has none.
    pub up: Option<StreamAt>,
    /// The number of its service.
    pub service: u32,
    /// Where it is to go, and what is spoken there, if the address that its client connected to says so.
    pub destination: Option<(SocketAddr, Speaks)>,
    /// The number of the instance that it is counted at.
    pub instance: Option<u32>,
    /// The request, as the instance gets it.
    pub head: Head,
    /// What it asks of the sidecar.
    pub asked: Asked,
    /// Its body.
    pub request: Body,
    /// Interim responses that the client has not got yet.
    pub interims: Vec<Head>,
    /// The head of the response, until the client has it.
    pub answer: Option<Head>,
    /// The memory of the last head, to be reused.
    pub spare: Head,
    /// The client has the head of the response.
    pub is_answered: bool,
    /// Its response has begun, and only gRPC's status, which is yet to come, says whether the instance has failed.
    pub is_unjudged: bool,
    /// The body of the response.
    pub response: Body,
    /// Why the sidecar answers by itself, until it has.
    pub refusal: Option<Refusal>,
    /// How often it was sent again.
    pub repeated: u8,
    /// What is recorded of it for the protection of its service.
    pub watched: Watched,
    /// When it came.
    pub began_at: Time,
    /// When it was given to a connection.
    pub sent_at: Time,
    /// It is a WebSocket whose handshake the instance has accepted: bytes go both ways.
    pub is_tunnel: bool,
    /// It asks for a WebSocket by an extended CONNECT, which each 2xx accepts (RFC 8441 §4).
    pub is_extended: bool,
    /// The key that the sidecar made for a WebSocket, since its client, of HTTP/2, has none.
    pub key: Option<String>,
    /// What the log and the figures record of it.
    pub seen: Seen,
    /// It waits for a connection.
    pub waits: bool,
    /// Its connection was silent, and an attempt to start it again elsewhere was made.
    pub was_tried: bool,
    /// It is to be advanced.
    pub is_stirred: bool,
    /// It is in use.
    pub is_open: bool,
    /// Which of the exchanges in this place it is.
    pub generation: u32,
}

impl Exchange {
    /// A new one in this place.
    fn begin(&mut self) {
        let Self { mut head, spare, mut request, mut response, mut interims, is_stirred, generation, .. } =
            std::mem::take(self);
        head.clear();
        request.begin(true);
        response.begin(false);
        interims.clear();
        let generation = generation.wrapping_add(1);
        *self = Self {
            head,
            spare,
            request,
            response,
            interims,
            is_stirred,
            generation,
            is_open: true,
            ..Self::default()
        };
    }

    /// Whether it is a tunnel to its destination, without HTTP.
    pub const fn is_raw(&self) -> bool {
        matches!(self.destination, Some((_, Speaks::Tcp)))
    }

    /// Whether it is such a tunnel, and its client has sent everything and has received everything.
    pub const fn is_left_to_the_instance(&self) -> bool {
        self.is_raw() && self.request.has_ended() && self.response.is_done()
    }

    /// Whether it is sent again after this.
    pub fn may_repeat(&self, fate: Fate) -> bool {
        let attempt = Attempt {
            method: self.head.get(Part::Method),
            repeated: self.repeated,
            most: self.watched.attempts,
            is_kept: self.request.can_rewind(),
            is_answered: self.is_answered || self.answer.is_some() || !self.interims.is_empty(),
        };
        attempt.may_repeat(fate)
    }

    /// The body that comes from the client, or from the instance.
    pub const fn body_of(&mut self, is_client: bool) -> &mut Body {
        if is_client { &mut self.request } else { &mut self.response }
    }

    /// Gives the memory of its bodies back; whether there was any. Only when it is over.
    fn trim(&mut self) -> bool {
        let had = self.request.held() + self.response.held() > 0;
        (self.request, self.response) = (Body::default(), Body::default());
        had
    }

    /// Gives the memory back that its bodies do not need now.
    pub fn shrink(&mut self) {
        self.request.shrink();
        self.response.shrink();
    }

    /// Whether a part of it has waited for its recipient since then.
    pub const fn has_waited_since(&self, then: Time) -> bool {
        let waits = self.request.waiting() + self.response.waiting() > 0;
        waits && self.watched.moved_at.as_nanos() <= then.as_nanos()
    }

    /// Answers it with this.
    pub fn refuse(&mut self, status: u16, why: impl Into<String>) {
        self.refusal = Some(Refusal::new(status, why));
    }
}

/// All exchanges, by number.
#[derive(Debug, Default)]
pub struct Exchanges {
    all: Vec<Exchange>,
    free: Vec<u32>,
    /// Those to be advanced.
    stirred: Vec<u32>,
}

impl Exchanges {
    /// Begins one, to be advanced; its number.
    pub fn begin(&mut self) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push(Exchange::default());
            self.all.len() as u32 - 1
        });
        self.all[id as usize].begin();
        self.stir(id);
        id
    }

    /// It is over.
    pub fn end(&mut self, id: u32) {
        let exchange = &mut self.all[id as usize];
        if std::mem::take(&mut exchange.is_open) {
            if exchange.request.held().max(exchange.response.held()) > KEPT {
                exchange.trim(); // thousands of these would keep much
            }
            self.free.push(id);
        }
    }

    /// Gives the memory of those back that are not in use; which had any.
    pub fn trim(&mut self) -> Vec<u32> {
        let mut trimmed = Vec::new();
        for id in &self.free {
            if self.all[*id as usize].trim() {
                trimmed.push(*id);
            }
        }
        trimmed
    }

    /// The numbers that there may be.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        0..self.all.len() as u32
    }

    /// The one with this number.
    pub fn get(&mut self, id: u32) -> &mut Exchange {
        &mut self.all[id as usize]
    }

    /// It is to be advanced.
    pub fn stir(&mut self, id: u32) {
        if !std::mem::replace(&mut self.all[id as usize].is_stirred, true) {
            self.stirred.push(id);
        }
    }

    /// Whether the one that was in this place with this generation waits for a connection.
    pub fn waits(&self, id: u32, generation: u32) -> bool {
        let exchange = &self.all[id as usize];
        exchange.is_open && exchange.generation == generation && exchange.waits
    }

    /// Whether any is to be advanced.
    pub const fn has_stirred(&self) -> bool {
        !self.stirred.is_empty()
    }

    /// Takes those to be advanced.
    pub fn take_stirred(&mut self, into: &mut Vec<u32>) {
        std::mem::swap(&mut self.stirred, into);
        for id in into {
            self.all[*id as usize].is_stirred = false;
        }
    }

    /// Whether any is for this service.
    pub fn use_service(&self, service: u32) -> bool {
        self.all.iter().any(|exchange| exchange.is_open && exchange.service == service)
    }

    /// How many are in use.
    pub const fn open(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
