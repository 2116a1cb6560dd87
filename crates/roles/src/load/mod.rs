//! The load generator: drives a schedule over a pool of connections and yields one sample per request.
//!
//! Each thread is a generator of its own ([`threads`]). Open loop goes by an absolute schedule: a late request is sent as soon as
//! possible and none is skipped, so that response times, counted from the moment a request was due, hide nothing. Failures are
//! data.

mod connections;
pub mod discover;
mod driver;
mod gathering;
mod merge;
mod recorder;
mod requests;
mod spec;
mod start_gate;
mod team;
#[cfg(test)]
mod tests;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use h2lab_base::text::PeerText;
use h2lab_model::record::{Level, Outcome, Sample};
use h2lab_model::workload::{Arrival, ClientPolicy, DialPolicy, Phases};

use crate::client::{ConnectError, Prepared, RequestKind, defaults};
use driver::Driver;
pub use merge::{Finished, LoadResult};
pub use recorder::{FULL_BURST, FULL_RATE, MOST_SAMPLES};
pub use spec::{LoadError, LoadProgress, LoadSpec, SampleListener, Watching};
pub use start_gate::{Readiness, StartGate};
use team::Part;

/// Does the work of a cell: dials, warms up, measures, drains, cuts.
pub fn run(spec: &LoadSpec<'_>, progress: &mut dyn FnMut(&LoadProgress)) -> Result<Finished, LoadError> {
    threads::run(spec, None, progress)
}

/// As [`run`], with a listener that is notified of each request as it ends.
pub fn run_observed(
    spec: &LoadSpec<'_>,
    listener: Option<&Arc<dyn SampleListener>>,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<Finished, LoadError> {
    threads::run(spec, listener, progress)
}

/// As [`run`], with an observer of everything, the closing of connections included.
pub fn watch(spec: &LoadSpec<'_>, watching: &Watching) -> Result<LoadResult, LoadError> {
    let work = &spec.cell.work;
    let kinds = RequestKind::all(work);
    let prepared = Prepared::new(work, &kinds, &spec.authority, spec.cell.request_seed)?;
    let mut driver = Driver::new(spec, &prepared, Part::WHOLE)?;
    driver.watch(watching);
    driver.dial()?;
    // If it is stopped while connections are made, no request is to be sent.
    if !driver.is_stopped() {
        driver.measure(&mut |_| ())?;
        driver.linger(watching.linger)?;
    }
    Ok(merge::merge(vec![driver.finish()]).close())
}

/// What a server answers to a single request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SingleAnswer {
    /// Its status.
    pub status: u16,
    /// Its `server` field.
    pub server: Option<PeerText>,
    /// From sending to the first byte.
    pub time_to_first_byte: Duration,
    /// From sending to the last byte.
    pub time_to_last_byte: Duration,
    /// Body bytes of the response.
    pub body_bytes: u64,
}

/// Makes one connection and one request of the cell's work, to learn whether the server speaks the cell's protocol. A complete
/// response of any status is an answer; anything else is [`LoadError::Unreachable`].
pub fn preflight(spec: &LoadSpec<'_>) -> Result<SingleAnswer, LoadError> {
    ask_once(spec, Duration::ZERO)
}

/// How long a server may take for the single response of a preflight, even if the work has a shorter timeout.
const LEAST_PREFLIGHT_TIMEOUT: Duration = Duration::from_secs(1);

/// As [`preflight`], and then keeps the connection as a pool does, until the server closes it or `linger` has passed: this also
/// shows what a server does with an idle connection.
pub fn ask_once(spec: &LoadSpec<'_>, linger: Duration) -> Result<SingleAnswer, LoadError> {
    let mut spec = spec.clone();
    // A first response may take longer than those that follow, which the users' timeout is for.
    let timeout = spec.cell.work.timeout.clamp(LEAST_PREFLIGHT_TIMEOUT, defaults::FIRST_BYTE_TIMEOUT);
    spec.requests = Some(1);
    spec.threads = 1;
    spec.start = None;
    spec.record = Some(Level::Full);
    spec.cell.connections = 1;
    spec.cell.max_connections = 1;
    let work = &mut spec.cell.work;
    work.arrival = Arrival::Closed { concurrency: 1 };
    work.timeout = timeout;
    work.phases = Phases { warmup: Duration::ZERO, measure: timeout, drain: Duration::from_secs(1) };
    let connect_timeout = spec.cell.policy.connect_timeout;
    spec.cell.policy = ClientPolicy { connect_timeout, ..ClientPolicy::default() };
    spec.cell.dial = DialPolicy::default();
    let work = &spec.cell.work;
    let kinds = RequestKind::all(work);
    let prepared = Prepared::new(work, &kinds, &spec.authority, spec.cell.request_seed)?;
    let mut driver = Driver::new(&spec, &prepared, Part::WHOLE)?;
    driver.dial()?;
    driver.measure(&mut |_| ())?;
    driver.linger(linger)?;
    let ended = driver.take_connect_error();
    let result = merge::merge(vec![driver.finish()]).close();
    let server = result.connections.iter().find_map(|connection| connection.server_software.clone());
    match result.samples.first() {
        Some(sample) if sample.outcome.is_complete() => Ok(SingleAnswer {
            status: sample.status,
            server,
            time_to_first_byte: sample.time_to_first_byte().unwrap_or_default(),
            time_to_last_byte: sample.service_time(),
            body_bytes: sample.body_bytes,
        }),
        Some(Sample { outcome: Outcome::Reset | Outcome::Refused, code, .. }) => {
            let why = ConnectError::Reset(h2lab_wire::ErrorCode(*code));
            Err(LoadError::Unreachable { address: spec.address.clone(), why })
        }
        sample => {
            let is_malformed = sample.is_some_and(|sample| sample.outcome == Outcome::Protocol);
            let begun = sample.filter(|sample| sample.first_byte_at.happened());
            let otherwise = match begun {
                _ if is_malformed => ConnectError::Protocol("its response is malformed".to_owned()),
                Some(sample) => ConnectError::Incomplete { bytes: sample.body_bytes, within: timeout },
                None => ConnectError::NoAnswer(timeout),
            };
            // A silence ends with our patience, not with that of the connection.
            let why = ended.filter(|why| !matches!(why, ConnectError::NoAnswer(_))).unwrap_or(otherwise);
            Err(LoadError::Unreachable { address: spec.address.clone(), why })
        }
    }
}
