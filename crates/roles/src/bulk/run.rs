//! `bulk get` and `bulk put`: moves files from one server, or to it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use h2lab_model::bulk::BulkRecord;
use h2lab_model::workload::{EngineSettings, Protocol};
use h2lab_wire::Config;

use super::driver::{Driver, Progress, RunError, Traffic};
use super::fetch::{Fetch, Manner};
use super::record;
use super::work::{Outbox, Wanted, Work};
use crate::client::Target;
use h2lab_net::clock::{Clock, process_cpu, thread_cpu_ns};
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::{TlsError, TlsOptions};

/// What to move, from or to where, and how.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// The files, all of one server.
    pub wanted: Vec<Wanted>,
    /// Where the server is.
    pub address: Endpoint,
    /// Host and, unless it is the scheme's own, port.
    pub authority: &'a str,
    /// The server's name in TLS.
    pub server_name: &'a str,
    /// What to trust in TLS.
    pub tls: &'a TlsOptions,
    /// What to speak.
    pub protocol: Protocol,
    /// Whether h2c begins with HTTP/1.1 and `Upgrade: h2c`.
    pub upgrade: bool,
    /// Congestion control of our sockets.
    pub congestion: Option<String>,
    /// Settings of our engine that were given.
    pub settings: EngineSettings,
    /// Further header fields of each request, with names in lower case.
    pub fields: &'a [(String, String)],
    /// Connections.
    pub connections: u32,
    /// Requests at a time on each.
    pub streams: u32,
    /// Which way files go, and how each does.
    pub manner: Manner,
    /// Repeat the files for so long.
    pub duration: Option<Duration>,
    /// Of those, how many that are complete are listed one by one; further ones are a sum.
    pub listed: usize,
    /// After so long without a byte the server has gone.
    pub patience: Duration,
    /// Set to end early.
    pub stop: Option<&'a AtomicBool>,
    /// What times are counted from.
    pub clock: Clock,
}

/// The default of [`Job::listed`].
pub const LISTED: usize = 10_000;

/// What came of it.
#[derive(Debug)]
pub struct Moved {
    /// All that reports know.
    pub record: BulkRecord,
    /// The files, in the order in which they were begun.
    pub files: Vec<Fetch>,
}

/// Why nothing could be moved at all.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// TLS cannot be set up on our side.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No connection was of use.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<std::io::Error> for JobError {
    fn from(error: std::io::Error) -> Self {
        Self::Run(error.into())
    }
}

/// Does the job. That a file did not arrive is reported with the file; an error means that no connection to the server worked
/// from the beginning, so that another address or protocol may be tried.
pub fn run(job: &Job<'_>, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<Moved, JobError> {
    let clock = job.clock;
    let congestion = job.congestion.clone();
    let mut target = Target::new(job.address.clone(), job.protocol, job.server_name, job.tls, congestion)?;
    target.engine = config(job, target.engine.tls);
    // Frames are recorded; HTTP/1.1 has none.
    target.tap = job.protocol.is_multiplexed();
    target.gathers = true;
    target.upgrade_of = job.upgrade.then(|| job.authority.to_owned());
    let traffic = Traffic {
        connections: job.connections,
        streams: job.streams,
        window_limit: match job.settings.window_budget {
            Some(bytes) => u32::try_from(bytes / u64::from(job.connections.max(1))).unwrap_or(u32::MAX),
            None => u32::MAX,
        },
        patience: job.patience,
        until: job.duration,
        stop: job.stop,
    };
    let manner = Manner { trailers: job.protocol.is_multiplexed(), ..job.manner };
    let work = Work::new(job.wanted.clone(), manner, job.duration.map(|_| job.listed));
    let driver = Driver::new(target, traffic, work, Outbox::new(job.authority, job.fields), clock)?;
    let (before, began) = ((process_cpu(), thread_cpu_ns()), clock.now());
    let done = driver.run(progress)?;
    let cpu = CpuTime {
        process: process_cpu().saturating_sub(before.0),
        thread: Duration::from_nanos(thread_cpu_ns().saturating_sub(before.1)),
        wall: clock.now().since(began),
    };
    let mut record = record::of(job, &config(job, job.protocol.is_tls()), &done, cpu);
    record.warnings.extend(
        record.silence().map(|time| format!("nothing moved in the last {time:.1?} before the time was over")),
    );
    Ok(Moved { record, files: done.work.into_fetches() })
}

/// CPU time that a run took.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuTime {
    /// Of all threads.
    pub process: Duration,
    /// Of the one that drives the connections and stores the bytes.
    pub thread: Duration,
    /// How long the run took, connecting and syncing included.
    pub wall: Duration,
}

impl CpuTime {
    /// The thread's CPU time in a part of the run, assuming an even load.
    pub fn of(self, part: Duration) -> Duration {
        let share = self.thread.as_secs_f64() / self.wall.as_secs_f64().max(1e-9);
        part.mul_f64(share.min(1.0))
    }
}

/// What our engines announce.
pub fn config(job: &Job<'_>, tls: bool) -> Config {
    let mut config = super::engine(tls);
    job.settings.apply(&mut config);
    job.manner.chunk.make_room(&mut config);
    config
}
