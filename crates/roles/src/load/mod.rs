//! The load generator: drives a schedule over a pool of connections and yields one sample per request.
//!
//! Each thread is a generator of its own ([`threads`]). Open loop goes by an absolute schedule: a late request is sent as soon as
//! possible and none is skipped, so that response times, counted from the moment a request was due, hide nothing. Failures are
//! data.

mod connections;
pub mod discover;
mod driver;
mod recorder;
mod requests;
#[cfg(test)]
mod tests;
mod threads;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use h2lab_base::counters::TcpTick;
use h2lab_base::units::Time;
use h2lab_model::record::{ConnectionRecord, GeneratorSummary, Level, Outcome, Sample, Tally};
use h2lab_model::scenario::Cell;
use h2lab_model::workload::{Arrival, ClientPolicy, DialPolicy, Phases, TemplateError};
use h2lab_wire::trace::FrameEvent;

use crate::client::{ConnectError, Kind, Prepared, Session, Watch, defaults};
use driver::Driver;
use h2lab_net::clock::Clock;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::{TlsError, TlsOptions};
pub use recorder::Recent;
use threads::Part;

/// All that the generator needs to know.
#[derive(Debug, Clone)]
pub struct LoadSpec<'a> {
    /// The work; its link and target are not used, except that TCP's congestion control is set per socket only where there is no
    /// link whose routes set it.
    pub cell: Cell,
    /// Where the server is.
    pub address: Endpoint,
    /// Host and, unless it is the scheme's own, port: `:authority` or Host.
    pub authority: String,
    /// The server's name in TLS.
    pub server_name: String,
    /// What to trust in TLS.
    pub tls: TlsOptions,
    /// Origin of the run's clock, see [`Clock::new`].
    pub clock_origin_ns: u64,
    /// At most so many requests are sent; `None` leaves it to the phases.
    pub requests: Option<usize>,
    /// Threads that share the work; never more than connections, or in closed loop than requests in flight.
    pub threads: u32,
    /// What is kept of each request; `None` keeps all as long as they are no more than 50,000 per second or 131,072
    /// together, and in all no more than eight million, and goes over to [`Level::Tail`] then.
    pub record: Option<Level>,
    /// Whether every frame is recorded, as in every cell. Off shows the cost of recording.
    pub tap: bool,
    /// Called in each thread that it starts, before anything else, to pin that thread or set its priority: scheduling attributes
    /// of the calling thread are not necessarily inherited.
    pub on_thread: Option<fn()>,
    /// Whether a thread of an open loop may spin before a request is due, for 60 µs at most, as long as it has a CPU that others
    /// do not need. In a lab all CPUs are needed.
    pub sharp: bool,
    /// Set to end early: what has been measured until then is kept.
    pub stop: Option<&'a AtomicBool>,
}

/// Why no load could be generated.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No working connection could be made before measuring.
    #[error("{address}: {why}")]
    Unreachable {
        /// The server.
        address: Endpoint,
        /// What is wrong with it.
        why: ConnectError,
    },
    /// TLS cannot be set up on our side.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The work has an unknown placeholder.
    #[error("the request is no template: {0}")]
    Template(#[from] TemplateError),
    /// A system call failed for a reason other than the server.
    #[error("the load generator cannot work: {0}")]
    Io(#[from] io::Error),
}

/// The progress of a cell, reported about ten times per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Since the first request was due.
    pub elapsed: Duration,
    /// Warm-up and measured time together.
    pub total: Duration,
    /// Requests that were due so far.
    pub due: u64,
    /// Requests that were answered with 2xx or 3xx.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests waiting for a connection or a stream.
    pub waiting: u64,
    /// Requests that have a connection and have not ended.
    pub in_flight: u64,
    /// Connections that are up.
    pub connections: u32,
    /// Connections that were established so far.
    pub opened: u64,
    /// Response times of the requests that succeeded since the last report.
    pub recent: Recent,
}

/// What a cell gave, as the record has it.
#[derive(Debug, Clone, Default)]
pub struct LoadResult {
    /// When the first request was due.
    pub started_at: Time,
    /// Every request, in the order of `scheduled_at`; below [`Level::Full`] those that were kept.
    pub samples: Vec<Sample>,
    /// Every request, counted: below [`Level::Full`], else empty.
    pub tallies: Vec<Tally>,
    /// Every connection, by index.
    pub connections: Vec<ConnectionRecord>,
    /// Every frame, in the order of `at`.
    pub frames: Vec<FrameEvent>,
    /// `TCP_INFO` of our ends over time.
    pub tcp: Vec<TcpTick>,
    /// How the generator did.
    pub generator: GeneratorSummary,
    /// Doubts that arose, in sentences.
    pub warnings: Vec<String>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// A finished cell. Its connections stay open until this is closed or dropped, so that the server's ends of them can be
/// inspected first.
#[derive(Debug)]
pub struct Finished {
    /// What was measured.
    pub result: LoadResult,
    open: Vec<Session>,
    clock: Clock,
}

impl Finished {
    /// Closes the connections that are still open, in order.
    pub fn close(mut self) -> LoadResult {
        let now = self.clock.now();
        for session in &mut self.open {
            session.say_goodbye(now);
        }
        self.result
    }
}

/// Is notified of each request as it ends, warm-up included.
pub trait Listener: fmt::Debug + Send + Sync {
    /// A request of generator `thread`, from 0 on, has ended; connections are numbered within their thread. It is called on the
    /// generator's thread: blocking here makes requests late.
    fn ended(&self, thread: u32, sample: &Sample);
}

/// Does the work of a cell: dials, warms up, measures, drains, cuts.
pub fn run(spec: &LoadSpec<'_>, progress: &mut dyn FnMut(&Progress)) -> Result<Finished, LoadError> {
    threads::run(spec, None, progress)
}

/// As [`run`], with a listener that is notified of each request as it ends.
pub fn run_observed(
    spec: &LoadSpec<'_>,
    listener: Option<&Arc<dyn Listener>>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Finished, LoadError> {
    threads::run(spec, listener, progress)
}

/// How the work of a cell is observed.
#[derive(Debug, Clone)]
pub struct Watching {
    /// The observer.
    pub watch: Arc<dyn Watch>,
    /// Whether servers may push.
    pub accept_push: bool,
    /// How long connections are kept when all is done, to see what the server does with them.
    pub linger: Duration,
    /// How long the server may take to accept and, again, to show that it speaks the protocol. A load has the client's own
    /// [`defaults`]: with a request's timeout, a busy server would be dialled again and again.
    pub patience: Duration,
}

/// As [`run`], with an observer of everything, the closing of connections included.
pub fn watch(spec: &LoadSpec<'_>, watching: &Watching) -> Result<LoadResult, LoadError> {
    let work = &spec.cell.work;
    let kinds = Kind::all(work);
    let prepared = Prepared::new(work, &kinds, &spec.authority, spec.cell.seed)?;
    let mut driver = Driver::new(spec, &prepared, Part::WHOLE)?;
    driver.watch(watching);
    driver.dial()?;
    // If it is stopped while connections are made, no request is to be sent.
    if !driver.is_stopped() {
        driver.measure(&mut |_| ())?;
        driver.linger(watching.linger)?;
    }
    Ok(threads::merge(vec![driver.finish()]).close())
}

/// What a server answers to a single request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its `server` field.
    pub server: Option<String>,
    /// From sending to the first byte.
    pub time_to_first_byte: Duration,
}

/// Makes one connection and one request of the cell's work, to learn whether the server speaks the cell's protocol. A complete
/// response of any status is an answer; anything else is [`LoadError::Unreachable`].
pub fn preflight(spec: &LoadSpec<'_>) -> Result<Answer, LoadError> {
    ask_once(spec, Duration::ZERO)
}

/// As [`preflight`], and then keeps the connection as a pool does, until the server closes it or `linger` has passed: this also
/// shows what a server does with an idle connection.
pub fn ask_once(spec: &LoadSpec<'_>, linger: Duration) -> Result<Answer, LoadError> {
    let mut spec = spec.clone();
    let patience = defaults::FIRST_BYTE_TIMEOUT;
    spec.requests = Some(1);
    spec.threads = 1;
    spec.record = Some(Level::Full);
    spec.cell.connections = 1;
    spec.cell.max_connections = 1;
    let work = &mut spec.cell.work;
    work.arrival = Arrival::Closed { concurrency: 1 };
    work.timeout = patience;
    work.phases = Phases { warmup: Duration::ZERO, measure: patience, drain: Duration::from_secs(1) };
    // Whether a server speaks a protocol does not depend on the users' timeout.
    let connect_timeout = spec.cell.policy.connect_timeout;
    spec.cell.policy = ClientPolicy { connect_timeout, ..ClientPolicy::default() };
    spec.cell.dial = DialPolicy::default();
    let work = &spec.cell.work;
    let kinds = Kind::all(work);
    let prepared = Prepared::new(work, &kinds, &spec.authority, spec.cell.seed)?;
    let mut driver = Driver::new(&spec, &prepared, Part::WHOLE)?;
    driver.dial()?;
    driver.measure(&mut |_| ())?;
    driver.linger(linger)?;
    let ended = driver.take_connect_error();
    let result = threads::merge(vec![driver.finish()]).close();
    let server = result.connections.iter().find_map(|connection| connection.server_software.clone());
    match result.samples.first() {
        Some(sample) if sample.outcome.is_complete() => Ok(Answer {
            status: sample.status,
            server,
            time_to_first_byte: sample.time_to_first_byte().unwrap_or_default(),
        }),
        Some(Sample { outcome: Outcome::Reset | Outcome::Refused, code, .. }) => {
            let why =
                ConnectError::Protocol(format!("the stream was reset ({})", h2lab_wire::ErrorCode(*code)));
            Err(LoadError::Unreachable { address: spec.address.clone(), why })
        }
        _ => Err(LoadError::Unreachable {
            address: spec.address.clone(),
            why: ended.unwrap_or(ConnectError::NoAnswer(patience)),
        }),
    }
}
