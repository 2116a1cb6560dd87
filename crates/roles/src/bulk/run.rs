//! `bulk get` and `bulk put`: moves files from one server, or to it.

use std::time::Duration;

use h2lab_model::bulk::{BulkRecord, TransferDirection};

use super::driver::{BulkProgress, Driver, RunError, Traffic};
use super::fetch::{Fetch, TransferOptions};
use super::job::{CpuTime, Job, config};
use super::record;
use super::transfers::{Outbox, Transfers};
use crate::client::{DialTarget, UpgradeOffer};
use h2lab_net::clock::{process_cpu, thread_cpu_ns};
use h2lab_net::tls::TlsError;

/// The result of a job.
#[derive(Debug)]
pub struct Moved {
    /// The record that reports are made from.
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
    /// No connection to the server worked.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<std::io::Error> for JobError {
    fn from(error: std::io::Error) -> Self {
        Self::Run(error.into())
    }
}

/// Runs the job. A file that did not arrive is reported with that file. An error means that no connection to the server
/// worked from the beginning, so another address or protocol may be tried.
pub fn run(job: &Job<'_>, progress: &mut dyn FnMut(&BulkProgress<'_>)) -> Result<Moved, JobError> {
    let clock = job.clock;
    let congestion = job.congestion.clone();
    let mut target =
        DialTarget::new(job.address.clone(), job.protocol, job.server_name, job.tls, congestion)?;
    target.engine = config(job, target.engine.tls);
    // Frames are recorded; HTTP/1.1 has none.
    target.tap = job.protocol.is_multiplexed();
    target.gathers = true;
    target.connect_timeout = target.connect_timeout.min(job.timeout);
    let is_put = job.options.direction == TransferDirection::Put;
    target.upgrade = job.upgrade.then(|| UpgradeOffer::of(job.authority, is_put));
    let traffic = Traffic {
        connections: job.connections,
        streams: job.streams,
        window_limit: match job.settings.window_budget {
            Some(bytes) => u32::try_from(bytes / u64::from(job.connections.max(1))).unwrap_or(u32::MAX),
            None => u32::MAX,
        },
        timeout: job.timeout,
        until: job.duration,
        stop: job.stop,
    };
    let options = TransferOptions { trailers: job.protocol.is_multiplexed(), ..job.options };
    let transfers = Transfers::new(job.wanted.clone(), options, job.duration.map(|_| job.listed));
    let driver = Driver::new(target, traffic, transfers, Outbox::new(job.authority, job.fields), clock)?;
    let (before, began) = ((process_cpu(), thread_cpu_ns()), clock.now());
    let done = driver.run(progress)?;
    let cpu = CpuTime {
        process: process_cpu().saturating_sub(before.0),
        thread: Duration::from_nanos(thread_cpu_ns().saturating_sub(before.1)),
        wall: clock.now().since(began),
    };
    let mut record = record::of(job, &config(job, job.protocol.is_tls()), &done, cpu);
    record.warnings.extend(record.silence().map(|time| format!("no data in the last {time:.1?}")));
    Ok(Moved { record, files: done.transfers.into_fetches() })
}
