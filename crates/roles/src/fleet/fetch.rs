//! An agent's fetches from one server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::fleet::{FetchTask, PairFigures};

use super::event::Summarize;
use crate::bulk::job::LISTED;
use crate::bulk::{FileLocation, Job, JobError, RequestedFile, RunError, TransferOptions, run};
use crate::client::reach;
use crate::client::url::Url;
use h2lab_net::clock::{Clock, thread_cpu_ns};
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::TlsOptions;

/// Before the number of bytes in the paths of servers that send any number, ours and httpbin.
const FILLER: &str = "/bytes/";

/// How often a wait for the start checks whether it is still wanted.
const GLANCE: Duration = Duration::from_millis(20);

/// A fetch that is ready to begin.
#[derive(Debug)]
pub(super) struct Fetcher {
    task: FetchTask,
    url: Url,
    endpoints: Vec<Endpoint>,
    wanted: Vec<RequestedFile>,
    tls: TlsOptions,
}

impl Fetcher {
    /// Parses URLs and resolves their server; the error says what is wrong with them.
    pub fn new(task: FetchTask) -> Result<Self, String> {
        let parse = |text: &String| text.parse::<Url>().map_err(|error| format!("{text}: {error}"));
        let urls = task.urls.iter().map(parse).collect::<Result<Vec<Url>, String>>()?;
        let url = urls.first().ok_or("there is nothing to fetch")?.clone();
        let endpoints = reach::endpoints(&task.reach, &url)?;
        let wanted = |(text, url): (&String, &Url)| RequestedFile {
            url: text.clone(),
            path: url.path_and_query().to_owned(),
            place: FileLocation::Discard,
            bytes: url.path_and_query().strip_prefix(FILLER).and_then(|bytes| bytes.parse().ok()),
        };
        let tls = reach::tls_options(&task.trust);
        Ok(Self { wanted: task.urls.iter().zip(&urls).map(wanted).collect(), task, url, endpoints, tls })
    }

    /// The pair's place in the plan.
    pub const fn pair(&self) -> u32 {
        self.task.pair
    }

    /// Fetches from `at` on, until its time is over or `stop` is set. Returns when it really began, and the result; `bytes`
    /// counts what has come meanwhile.
    pub fn fetch(
        &self,
        clock: Clock,
        at: Time,
        stop: &AtomicBool,
        bytes: &AtomicU64,
        summarize: Summarize,
    ) -> (Time, Result<Box<PairFigures>, String>) {
        if !wait_until(clock, at, stop) {
            return (Time::NEVER, Err("it was stopped before it began".to_owned()));
        }
        let (began, cpu_before) = (clock.now(), thread_cpu_ns());
        let mut error = "its server has no address".to_owned();
        for endpoint in &self.endpoints {
            let got = run(&self.job(clock, endpoint, stop), &mut |progress| {
                bytes.store(progress.meter.total(), Ordering::Relaxed);
            });
            let may_be_elsewhere = match got {
                Ok(got) if got.record.transfers.is_empty() => {
                    let why = got.record.connections.iter().find_map(|connection| connection.closed.why());
                    let why = why.unwrap_or("no connection accepted a request before the end");
                    return (began, Err(format!("{endpoint}: no request could be made: {why}")));
                }
                Ok(got) => {
                    // The process has other threads, which may fetch other pairs, or serve.
                    let cpu = Duration::from_nanos(thread_cpu_ns().saturating_sub(cpu_before));
                    return (began, Ok(Box::new(PairFigures { cpu, ..summarize(&got.record) })));
                }
                Err(JobError::Run(RunError::Unreachable(why))) => {
                    error = format!("{endpoint}: {why}");
                    why.is_not_there()
                }
                Err(why) => {
                    error = format!("{endpoint}: {why}");
                    false
                }
            };
            if !may_be_elsewhere {
                break;
            }
        }
        (began, Err(error))
    }

    fn job<'a>(&'a self, clock: Clock, endpoint: &Endpoint, stop: &'a AtomicBool) -> Job<'a> {
        let task = &self.task;
        Job {
            wanted: self.wanted.clone(),
            address: endpoint.clone(),
            authority: self.url.authority(),
            server_name: self.url.host(),
            tls: &self.tls,
            protocol: task.protocol,
            upgrade: task.upgrade,
            congestion: task.congestion.clone(),
            settings: task.settings,
            fields: &task.fields,
            connections: task.connections,
            streams: task.streams,
            // Each transfer is one request: many at a time are measured, not one in parts.
            options: TransferOptions::default(),
            duration: Some(task.duration),
            listed: LISTED,
            timeout: task.timeout,
            stop: Some(stop),
            clock,
        }
    }
}

/// Sleeps until `at`; `false` if `stop` was set before.
fn wait_until(clock: Clock, at: Time, stop: &AtomicBool) -> bool {
    loop {
        let left = at.since(clock.now());
        if left.is_zero() {
            return true;
        }
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        sleep(left.min(GLANCE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stopped_before_the_start_does_not_begin() {
        let clock = Clock::start();
        let never = clock.now() + Duration::from_secs(1_000_000);
        assert!(!wait_until(clock, never, &AtomicBool::new(true)));
        assert!(wait_until(clock, Time::ZERO, &AtomicBool::new(true)), "it is late already");
        let soon = clock.now() + Duration::from_millis(1);
        assert!(wait_until(clock, soon, &AtomicBool::new(false)) && clock.now() >= soon);
    }
}
