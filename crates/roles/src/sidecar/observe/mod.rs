//! What the sidecar sees of its own work: counters, the access log, trace context, and what `h2lab diagnose --sidecar` reads.
//!
//! Each loop counts for itself, without locks. Nothing is counted without an admin listener and a log.

mod admin_state;
mod log;
mod periodic;
mod refused;
mod responses;
mod snapshot;
mod window;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use h2lab_base::random::Counter;
use h2lab_base::text::PeerText;
use h2lab_base::units::Time;
use h2lab_model::record::histogram::DurationMeter;
use h2lab_model::record::{CloseReason, GoAwayRecord, Histogram, Outcome, Sample};
use h2lab_model::sidecar::{Durations, MOST_ERRORS, PathStatus};
use h2lab_proxy::config::TraceContext;
use h2lab_proxy::fields::Version;
use h2lab_proxy::grpc;
use h2lab_proxy::head::Part;
use h2lab_proxy::log::Entry;
use h2lab_proxy::trace::{self, Span};
use h2lab_wire::{ErrorCode, Event, Initiator, StreamId};

pub use admin_state::{AdminState, LoopHandle, Snapshot};
pub use log::{AccessLog, Writer};
pub use window::{Watched, streams_allowed};

use super::config::SidecarConfig;
use super::exchange::Exchange;
use super::side::{Peer, Side};
use log::LogBuffer;
use window::Window;

/// Recent response times are those of one to two of these.
const RECENT: Duration = Duration::from_secs(30);
/// GOAWAYs of a connection that are kept.
const MOST_GOAWAYS: usize = 16;
/// Bytes of a peer's text that are kept.
const MOST_TEXT: usize = 256;

/// What was seen of a request.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    client: String,
    version: Option<Version>,
    service: Option<u32>,
    /// The instance that it was given to last.
    instance: Option<u32>,
    connection: u32,
    stream: StreamId,
    tries: u32,
    /// It had to wait for a connection or a stream.
    pub waited: bool,
    /// The status that the client was given.
    pub status: u16,
    /// gRPC's status that the client was given.
    pub grpc: Option<u32>,
    /// Bytes of the response's body, and of the request's.
    pub bytes: [u64; 2],
    /// When it was first given to a connection.
    given_at: Option<Time>,
    /// When the head of the response came from the instance.
    pub head_at: Option<Time>,
    /// When the response was complete.
    pub whole_at: Option<Time>,
    span: Option<Span>,
    failed: Option<String>,
    /// How the client's side ended before its time, if the client did not simply go away.
    left: Option<String>,
}

impl Seen {
    /// Whether a client has asked for it, or is given it as a push.
    pub const fn is_of_a_client(&self) -> bool {
        self.version.is_some()
    }
}

/// Why a request was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Again {
    /// It was above the last stream of a GOAWAY.
    Goaway,
    /// Its stream was refused.
    Refused,
    /// Its stream was reset.
    Reset,
    /// Its connection ended.
    #[default]
    Ended,
    /// Its response had a status that asks for that.
    Status,
    /// There was no response within the time of an attempt.
    Attempt,
}

impl Again {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Goaway, "goaway"),
        (Self::Refused, "refused-stream"),
        (Self::Reset, "reset"),
        (Self::Ended, "connection-ended"),
        (Self::Status, "status"),
        (Self::Attempt, "attempt-timeout"),
    ];
}

/// Counters of a service.
#[derive(Debug, Default)]
struct OfService {
    name: String,
    requests: Vec<(Version, u16, u64)>,
    durations: Durations,
    /// gRPC's statuses, by name.
    grpc: BTreeMap<&'static str, u64>,
}

/// Counters of an instance.
#[derive(Debug, Default)]
struct OfInstance {
    dialled: u64,
    dials_failed: u64,
    goaways: u64,
    refused: u64,
    resets: u64,
    broken: u64,
    requests: u64,
    waited: u64,
    waited_for: Duration,
    path: PathStatus,
    streams_allowed: Option<u32>,
    /// Response times since `recent` began, before they are added to it.
    meter: DurationMeter,
    recent: Histogram,
    before: Histogram,
    responses: responses::OfInstance,
}

/// Something that went wrong.
#[derive(Debug)]
struct Wrong {
    at: Time,
    service: Option<u32>,
    status: u16,
    what: String,
    times: u64,
}

/// What a loop sees.
#[derive(Debug)]
pub struct Watch {
    is_on: bool,
    /// By number; the last one is for requests that no route takes.
    services: Vec<OfService>,
    /// By number.
    instances: Vec<OfInstance>,
    again: [u64; Again::ALL.len()],
    /// What ends the attempt that is being ended.
    pub reason: Again,
    errors: VecDeque<Wrong>,
    /// Invalid requests of clients that got to no service, and TLS handshakes of theirs that failed.
    bad_requests: u64,
    tls_failures: u64,
    log: Option<LogBuffer>,
    window: Option<Window>,
    trace: Option<Counter>,
    admin: Option<LoopHandle>,
    began_at: Time,
    look_at: Time,
    tick_at: Time,
    looked_at: Time,
    recent_until: Time,
    /// Added to our clock's time, this gives the time since 1970.
    since_1970: Duration,
}

impl Watch {
    /// As configured.
    pub fn new(config: &SidecarConfig, now: Time) -> Self {
        let admin = config.admin.as_ref().map(AdminState::register);
        let log = config.log.clone().map(LogBuffer::new);
        let keeps = config.file.admin.window;
        let is_recorded = admin.is_some() && !keeps.is_zero();
        let names = config.file.service.keys().cloned().chain([String::new()]);
        let joins = config.file.trace.context == TraceContext::Join;
        // The ids of two sidecars must differ, so they come from the operating system's randomness, not from our seed.
        let random = || Counter::new(RandomState::new().hash_one(std::process::id()), "trace");
        Self {
            is_on: admin.is_some() || log.is_some() || joins,
            services: names.map(|name| OfService { name, ..OfService::default() }).collect(),
            instances: Vec::new(),
            again: [0; Again::ALL.len()],
            reason: Again::default(),
            errors: VecDeque::new(),
            bad_requests: 0,
            tls_failures: 0,
            window: is_recorded.then(|| Window::new(keeps, config.diagnosis())),
            log,
            trace: joins.then(random),
            admin,
            began_at: now,
            look_at: now,
            tick_at: if is_recorded { now } else { Time::NEVER },
            looked_at: now,
            recent_until: now + RECENT,
            since_1970: unix().saturating_sub(now.since(Time::ZERO)),
        }
    }

    /// The sidecar is being stopped.
    pub fn drain(&self) {
        if let Some(admin) = &self.admin {
            admin.drain();
        }
    }

    /// Bytes that are kept for the diagnosis.
    pub fn kept(&self) -> u64 {
        self.window.as_ref().map_or(0, Window::held)
    }

    /// Whether somebody may still expect an answer from this loop.
    pub fn is_asked(&self) -> bool {
        self.admin.as_ref().is_some_and(LoopHandle::is_asked)
    }

    /// There are these services, by number. A service keeps its number.
    pub fn follow<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let of_no_service = self.services.pop();
        let new = names.skip(self.services.len());
        let new: Vec<OfService> =
            new.map(|name| OfService { name: name.to_owned(), ..OfService::default() }).collect();
        self.services.extend(new);
        self.services.extend(of_no_service);
    }

    /// This number is now another instance's.
    pub fn replaced(&mut self, instance: u32) {
        *self.at(instance) = OfInstance::default();
        if let Some(window) = &mut self.window {
            window.replaced(instance);
        }
    }

    fn at(&mut self, instance: u32) -> &mut OfInstance {
        let place = instance as usize;
        if place >= self.instances.len() {
            self.instances.resize_with(place + 1, OfInstance::default);
        }
        &mut self.instances[place]
    }

    /// A request has come. `service`: where it goes, if a route takes it.
    pub fn began(&mut self, exchange: &mut Exchange, peer: &Peer, version: Version, service: Option<u32>) {
        if !self.is_on {
            return;
        }
        let seen = &mut exchange.seen;
        (seen.version, seen.service) = (Some(version), service);
        if let Some(random) = &mut self.trace {
            seen.span = trace::join(&mut exchange.head, random);
        } else if self.log.is_some() {
            seen.span = Span::of(&exchange.head);
        }
        if let (Peer::Client { address, .. }, Some(_)) = (peer, &self.log) {
            seen.client.clear();
            seen.client.push_str(address);
        }
    }

    /// A request was given to a connection.
    pub fn given(&mut self, exchange: &mut Exchange, up: &Side, stream: StreamId, now: Time) {
        let Peer::Instance(instance) = up.peer else { return };
        if !self.is_on || exchange.watched.probes.is_some() {
            return;
        }
        let seen = &mut exchange.seen;
        (seen.instance, seen.connection, seen.stream) = (Some(instance), up.number, stream);
        seen.tries += 1;
        let is_first = seen.given_at.is_none();
        let given_at = *seen.given_at.get_or_insert(now);
        let waited = if seen.waited && is_first { given_at.since(exchange.began_at) } else { Duration::ZERO };
        let counts = self.at(instance);
        counts.requests += 1;
        if !waited.is_zero() {
            counts.waited += 1;
            counts.waited_for += waited;
        }
    }

    /// The sidecar answers a request by itself, or breaks its response off.
    pub fn refused(&mut self, exchange: &mut Exchange, status: u16, why: &str, now: Time) {
        if !self.is_on || status < 400 {
            return;
        }
        exchange.seen.failed = Some(why.to_owned());
        self.wrong(exchange.seen.service, status, why, now);
    }

    fn wrong(&mut self, service: Option<u32>, status: u16, what: &str, now: Time) {
        if self.admin.is_none() {
            return;
        }
        // What failed without a client (status 0) is the cause of what clients get then: one entry, which counts the
        // clients.
        let is_same = |last: &&mut Wrong| {
            let is_status = last.status == status || last.status == 0 || status == 0;
            is_status && (last.service, &*last.what) == (service, what)
        };
        if let Some(last) = self.errors.iter_mut().find(is_same) {
            last.at = now;
            last.times += u64::from(last.status == status);
            last.status = last.status.max(status);
            return;
        }
        self.errors.truncate(MOST_ERRORS - 1);
        self.errors.push_front(Wrong { at: now, service, status, what: what.to_owned(), times: 1 });
    }

    /// An exchange is over. `instance` is the name of the instance that it was given to last.
    fn over(&mut self, exchange: &mut Exchange, instance: Option<&str>, now: Time) {
        let is_done = exchange.is_answered && exchange.response.is_done();
        let seen = &mut exchange.seen;
        if exchange.down.is_none() && !is_done && seen.failed.is_none() {
            seen.failed = Some(seen.left.take().unwrap_or_else(|| "the client disconnected".to_owned()));
        }
        let version = seen.version.unwrap_or(Version::H1);
        let took = now.since(exchange.began_at);
        let last = self.services.len() - 1;
        let place = seen.service.map_or(last, |service| (service as usize).min(last));
        let service = &mut self.services[place];
        match service.requests.iter_mut().find(|(of, status, _)| (*of, *status) == (version, seen.status)) {
            Some((.., count)) => *count += 1,
            None => service.requests.push((version, seen.status, 1)),
        }
        service.durations.record(took);
        if let Some(status) = seen.grpc {
            *service.grpc.entry(grpc::name(status)).or_default() += 1;
        }
        if let Some(number) = seen.instance {
            self.at(number).meter.record(took.as_nanos() as u64);
        }
        if let (Some(window), Some(number)) = (&mut self.window, exchange.seen.instance) {
            window.ended(number, sample(exchange, is_done, now));
        }
        let since_1970 = self.since_1970 + exchange.began_at.since(Time::ZERO);
        if let Some(log) = &mut self.log {
            let seen = &exchange.seen;
            let entry = Entry {
                at: since_1970,
                client: &seen.client,
                method: exchange.head.get(Part::Method),
                authority: exchange.head.get(Part::Authority),
                path: exchange.head.get(Part::Path),
                version: Some(version),
                is_http10: exchange.asked.is_http10,
                status: seen.status,
                received: seen.bytes[1],
                sent: seen.bytes[0],
                took,
                service: seen.service.map(|_| &*self.services[place].name),
                instance,
                grpc_status: seen.grpc,
                connection: seen.connection,
                tries: seen.tries,
                span: seen.span,
                failed: seen.failed.as_deref(),
            };
            log.add(&entry, now);
        }
    }

    /// A request is sent again.
    pub fn repeated(&mut self) {
        self.again[self.reason as usize] += 1;
    }

    /// A stream of an instance ended before its time.
    pub fn reset(&mut self, side: &Side, code: ErrorCode, initiator: Initiator) {
        self.reason = match code {
            code if code.is_refusal() && side.engine.is_draining() => Again::Goaway,
            code if code.is_refusal() => Again::Refused,
            _ => Again::Reset,
        };
        let is_its = self.is_on && initiator == Initiator::Remote; // what this side has refused is no reset of the instance's
        let (Peer::Instance(instance), true) = (&side.peer, is_its) else { return };
        let reason = self.reason;
        let counts = self.at(*instance);
        match reason {
            Again::Refused => counts.refused += 1,
            Again::Reset => counts.resets += 1,
            Again::Goaway | Again::Ended | Again::Status | Again::Attempt => {}
        }
    }

    /// A connection has ended; `why` is recorded if it carried requests of ours.
    pub fn abandoned(&mut self, side: &Side, why: &str, now: Time) {
        self.reason = Again::Ended;
        let Peer::Instance(instance) = side.peer else { return };
        if self.is_on && side.streams.len() > 0 {
            self.at(instance).broken += 1;
            self.wrong(
                None,
                0,
                &format!("a connection to an instance ended with requests in progress: {why}"),
                now,
            );
        }
    }

    /// Records it if an instance announces the end of a connection.
    pub fn goaway(&mut self, peer: &Peer, watched: &mut Option<Box<Watched>>, event: &Event<'_>, now: Time) {
        let Event::GoAway { last_stream, code, debug } = *event else { return };
        let (Peer::Instance(instance), true) = (peer, self.is_on) else { return };
        self.at(*instance).goaways += 1;
        if let Some(watched) = watched {
            let goaways = &mut watched.record.goaways;
            goaways.truncate(MOST_GOAWAYS - 1);
            goaways.push(GoAwayRecord {
                at: now,
                code: code.0,
                last_stream: last_stream.0,
                debug: PeerText::cut(debug, MOST_TEXT),
            });
        }
        if !matches!(code, ErrorCode::NO_ERROR | ErrorCode::H3_NO_ERROR) {
            self.wrong(None, 0, &format!("an instance closed a connection with GOAWAY ({code})"), now);
        }
    }

    /// An instance is dialled.
    pub fn dialled(&mut self, instance: u32) {
        if self.is_on {
            self.at(instance).dialled += 1;
        }
    }

    /// An instance of a service could not be reached.
    pub fn unreachable(&mut self, instance: u32, service: u32, why: &str, now: Time) {
        if self.is_on {
            self.at(instance).dials_failed += 1;
            self.wrong(Some(service), 0, why, now);
        }
    }

    /// A connection was made: what is watched of it.
    pub fn connected(
        &self,
        number: u32,
        protocol: h2lab_model::workload::Protocol,
        now: Time,
    ) -> Option<Box<Watched>> {
        self.window.as_ref().map(|_| Box::new(Watched::new(number, protocol, now, now)))
    }

    /// A connection is no more.
    pub fn lost(&mut self, side: &mut Side, why: &str, now: Time) {
        let (Some(mut watched), Peer::Instance(instance)) = (side.watched.take(), &side.peer) else { return };
        let record = &mut watched.record;
        record.closed_at = now;
        if record.closed == CloseReason::Cell {
            record.closed = match side.version {
                _ if !record.goaways.is_empty() => CloseReason::Server,
                Version::H1 if side.has_ended() => CloseReason::Server,
                _ => CloseReason::Broken { why: why.to_owned() },
            };
        }
        if let Some(window) = &mut self.window {
            window.closed(*instance, &mut watched, (&side.transport, &side.engine, side.requests));
        }
    }
}

/// A request as rules read it.
fn sample(exchange: &Exchange, is_done: bool, now: Time) -> Sample {
    let seen = &exchange.seen;
    let given_at = seen.given_at.unwrap_or(now);
    let outcome = match seen.status {
        0 => Outcome::Cancelled,
        _ if !is_done || seen.failed.is_some() => Outcome::Closed,
        200..400 => Outcome::Succeeded,
        _ => Outcome::Status,
    };
    let waited = if seen.waited { given_at.nanos_since(exchange.began_at) } else { 0 };
    Sample {
        connection: seen.connection,
        stream: seen.stream,
        sent_at: given_at,
        first_byte_at: seen.head_at.unwrap_or(Time::NEVER),
        // The instance is not to blame for a client that reads slowly.
        completed_at: seen.whole_at.unwrap_or(now),
        outcome,
        status: seen.status,
        body_bytes: seen.bytes[0],
        replays: seen.tries.saturating_sub(1).min(255) as u8,
        stall_open_ns: waited,
        ..Sample::due(exchange.began_at, true)
    }
}

/// The time since 1970.
pub fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
