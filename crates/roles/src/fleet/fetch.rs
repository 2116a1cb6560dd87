//! An agent's transfers from one server, or to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use h2lab_base::units::{Time, format_bytes};
use h2lab_model::bulk::{TIME_WAS_OVER, TransferDirection, TransferOutcome};
use h2lab_model::fleet::{FetchTask, PairFigures};

use super::event::Summarize;
use crate::bulk::job::LISTED;
use crate::bulk::{FileLocation, Job, JobError, RequestedFile, RunError, TransferOptions, run};
use crate::client::reach;
use crate::client::url::Url;
use h2lab_net::clock::{Clock, thread_cpu_ns};
use h2lab_net::storage::Chunk;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::TlsOptions;

/// Before the number of bytes in the paths of servers that send any number, ours and httpbin.
const FILLER: &str = "/bytes/";

/// How often a wait for the start checks whether it is still wanted.
const CHECK_PERIOD: Duration = Duration::from_millis(20);

/// How much the transfers of an agent may still move together, whatever its driver asks for.
#[derive(Debug)]
pub(super) struct ByteBudget {
    most: u64,
    moved: AtomicU64,
}

impl ByteBudget {
    /// At most so many bytes; `None` is any number.
    pub fn new(most: Option<u64>) -> Self {
        Self { most: most.unwrap_or(u64::MAX), moved: AtomicU64::new(0) }
    }

    /// Counts `fresh` bytes; whether that was too many.
    fn exceeds(&self, fresh: u64) -> bool {
        self.moved.fetch_add(fresh, Ordering::Relaxed).saturating_add(fresh) >= self.most
    }

    /// Why transfers were ended, if they have used it up.
    fn reached(&self) -> Option<String> {
        let is_reached = self.moved.load(Ordering::Relaxed) >= self.most;
        is_reached.then(|| format!("the agent's --max-bytes of {} was reached", format_bytes(self.most)))
    }
}

/// Has the files that were cut say why, if that was not the end of their time or the user.
fn name_end(mut figures: PairFigures, why: Option<&str>) -> PairFigures {
    let Some(end) = why.filter(|_| figures.interrupted) else { return figures };
    for ending in &mut figures.endings {
        if let TransferOutcome::Partial { why } = &mut ending.outcome
            && why != TIME_WAS_OVER
        {
            end.clone_into(why);
        }
    }
    figures
}

/// Transfers that are ready to begin.
#[derive(Debug)]
pub(super) struct Fetcher {
    task: FetchTask,
    url: Url,
    endpoints: Vec<Endpoint>,
    wanted: Vec<RequestedFile>,
    tls: TlsOptions,
    budget: Arc<ByteBudget>,
}

impl Fetcher {
    /// Parses URLs and resolves their server; the error says what is wrong with them. With what it moves `budget` is used up.
    pub fn new(task: FetchTask, budget: Arc<ByteBudget>) -> Result<Self, String> {
        let parse = |text: &String| text.parse::<Url>().map_err(|error| format!("{text}: {error}"));
        let urls = task.urls.iter().map(parse).collect::<Result<Vec<Url>, String>>()?;
        let url = urls.first().ok_or("there is nothing to transfer")?.clone();
        let endpoints = reach::endpoints(&task.reach, &url)?;
        let wanted = task.urls.iter().zip(&urls).map(|(text, url)| wanted(task.direction, text, url));
        let wanted = wanted.collect::<Result<Vec<RequestedFile>, String>>()?;
        let tls = reach::tls_options(&task.trust);
        Ok(Self { task, url, endpoints, wanted, tls, budget })
    }

    /// The pair's place in the plan.
    pub const fn pair(&self) -> u32 {
        self.task.pair
    }

    /// Moves bytes from `at` on, until its time is over, its budget is used up or `stop` is set. Returns when it really began, and
    /// the result; `bytes` counts what has come, or went, meanwhile.
    pub fn fetch(
        &self,
        clock: Clock,
        at: Time,
        stop: &AtomicBool,
        bytes: &AtomicU64,
        summarize: Summarize,
    ) -> (Time, Result<Box<PairFigures>, String>) {
        if !wait_until(clock, at, stop) {
            let why = self.budget.reached().unwrap_or_else(|| "it was stopped before it began".to_owned());
            return (Time::NEVER, Err(why));
        }
        let (began, cpu_before) = (clock.now(), thread_cpu_ns());
        let mut error = "its server has no address".to_owned();
        for endpoint in &self.endpoints {
            let mut moved = 0;
            let got = run(&self.job(clock, endpoint, stop), &mut |progress| {
                bytes.store(progress.meter.total(), Ordering::Relaxed);
                // Of an upload what is on its way counts, too: it may arrive after the end.
                let now_moved = progress.transfers.amount().0;
                if self.budget.exceeds(now_moved.saturating_sub(moved)) {
                    stop.store(true, Ordering::Relaxed);
                }
                moved = moved.max(now_moved);
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
                    let figures = PairFigures { cpu, ..summarize(&got.record) };
                    return (began, Ok(Box::new(name_end(figures, self.budget.reached().as_deref()))));
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
            options: TransferOptions {
                direction: task.direction,
                chunk: match task.direction {
                    TransferDirection::Get => Chunk::default(),
                    TransferDirection::Put => Chunk::of_frame(None, task.settings.max_frame_size),
                },
                ..TransferOptions::default()
            },
            duration: Some(task.duration),
            listed: LISTED,
            timeout: task.timeout,
            stop: Some(stop),
            clock,
        }
    }
}

/// What is moved from or to `url`: bytes that are discarded, or as many bytes of memory as its path says.
fn wanted(direction: TransferDirection, text: &str, url: &Url) -> Result<RequestedFile, String> {
    let path = url.path_and_query();
    let length = path.strip_prefix(FILLER).and_then(|bytes| bytes.parse().ok());
    let (place, bytes) = match direction {
        TransferDirection::Get => (FileLocation::Discard, length),
        TransferDirection::Put => {
            let none =
                || format!("{text}: an upload needs a path of {FILLER}N, which says how many bytes to send");
            (FileLocation::Memory(length.ok_or_else(none)?), None)
        }
    };
    Ok(RequestedFile { url: text.to_owned(), path: path.to_owned(), place, bytes })
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
        sleep(left.min(CHECK_PERIOD));
    }
}

#[cfg(test)]
mod tests {
    use h2lab_model::fleet::testing;

    use super::*;

    #[test]
    fn an_upload_has_as_many_bytes_as_its_path_says_and_a_download_is_discarded() {
        let of = |direction, text: &str| wanted(direction, text, &text.parse().unwrap());
        let up = of(TransferDirection::Put, "http://a:1/bytes/1000").unwrap();
        assert_eq!((up.place, up.bytes, up.path.as_str()), (FileLocation::Memory(1000), None, "/bytes/1000"));
        let down = of(TransferDirection::Get, "http://a:1/bytes/1000").unwrap();
        assert_eq!((down.place, down.bytes), (FileLocation::Discard, Some(1000)));
        assert_eq!(of(TransferDirection::Get, "http://a:1/data.tar").unwrap().bytes, None);
        for bad in ["http://a:1/data.tar", "http://a:1/bytes/", "http://a:1/bytes/x"] {
            assert!(of(TransferDirection::Put, bad).unwrap_err().contains("/bytes/N"), "{bad}");
        }
    }

    #[test]
    fn a_budget_is_used_up_by_all_transfers_together() {
        let budget = ByteBudget::new(Some(100));
        assert!(!budget.exceeds(60) && !budget.exceeds(39));
        assert!(budget.exceeds(1) && budget.exceeds(0));
        let any = ByteBudget::new(None);
        assert!(!any.exceeds(u64::MAX - 1), "nobody moves more");
    }

    #[test]
    fn files_that_the_budget_cut_say_so_and_those_whose_time_was_over_do_not() {
        let budget = ByteBudget::new(Some(300 << 10));
        assert_eq!(budget.reached(), None);
        assert!(budget.exceeds(300 << 10));
        let why = budget.reached().expect("it is used up");
        assert_eq!(why, "the agent's --max-bytes of 300 KiB was reached");
        let cut = |interrupted, cause: &str| {
            let mut figures = PairFigures { interrupted, ..testing::figures(0, 1_000, 1) };
            figures.endings[1].outcome = TransferOutcome::Partial { why: cause.to_owned() };
            name_end(figures, Some(&why)).endings.remove(1).outcome
        };
        let partial = |why: &str| TransferOutcome::Partial { why: why.to_owned() };
        assert_eq!(cut(true, "interrupted"), partial(&why));
        assert_eq!(cut(true, TIME_WAS_OVER), partial(TIME_WAS_OVER));
        assert_eq!(cut(false, "interrupted"), partial("interrupted"), "its time ended it");
    }

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
