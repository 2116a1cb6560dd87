//! Service discovery: a thread for each service queries its registry, and passes [`Live`] the instances that the
//! registry names.
//!
//! If the answer is missing or wrong, the instances that are known stay, and that is reported once.

mod consul;
mod dns;
mod file;
mod http;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use h2lab_base::counts::plural;
use h2lab_proxy::config::{Config, Registry};

use super::live::{Found, Live};
use super::{SidecarError, names};
pub use file::{Fingerprint, Watched};

/// How often a thread that waits checks whether it is still needed.
const STEP: Duration = Duration::from_millis(100);
/// See [`Source::longest_pause`].
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long a list waits for the names in it that do not resolve: less than the start waits for the list.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a file cannot be read, with what is known of that.
pub type Unreadable = fn(&Path, io::Error) -> SidecarError;

/// A registry as used by its thread.
trait Source: Send {
    /// The instances, if they may be others than the last time. May wait for news.
    fn look(&mut self) -> Result<Option<Found>, String>;

    /// How long to wait until the next look.
    fn pause(&self) -> Duration;

    /// The longest such wait after failures, each of which doubles it.
    fn longest_pause(&self) -> Duration {
        LONGEST_PAUSE
    }
}

fn source(registry: Registry, folder: &Path, unreadable: Unreadable) -> Box<dyn Source> {
    match registry {
        Registry::File(name) => Box::new(file::File::new(folder.join(name), unreadable)),
        Registry::Dns { url, refresh } => Box::new(dns::Addresses::new(url, refresh)),
        Registry::DnsSrv { name, refresh } => Box::new(dns::Services::new(name, refresh)),
        Registry::Consul(consul) => Box::new(consul::Agent::new(consul, folder)),
    }
}

/// A registry with a thread.
#[derive(Debug)]
struct Running {
    registry: Registry,
    is_over: Arc<AtomicBool>,
}

/// All of them.
#[derive(Debug)]
pub struct Registries {
    live: Arc<Live>,
    folder: PathBuf,
    unreadable: Unreadable,
    running: BTreeMap<String, Running>,
}

impl Registries {
    /// None yet. Names of files are relative to `folder`; `unreadable` explains why one cannot be read.
    pub fn new(live: Arc<Live>, folder: PathBuf, unreadable: Unreadable) -> Self {
        Self { live, folder, unreadable, running: BTreeMap::new() }
    }

    /// Asks the registries of this configuration, and no others. Waits until each new one has answered once, or failed, but not longer
    /// than `timeout`.
    pub fn follow(&mut self, config: &Config, timeout: Duration) {
        let wanted: BTreeMap<&String, Registry> =
            config.service.iter().filter_map(|(name, service)| Some((name, service.registry()?))).collect();
        self.running.retain(|name, running| {
            let is_wanted = wanted.get(name).is_some_and(|registry| *registry == running.registry);
            running.is_over.fetch_or(!is_wanted, Ordering::Relaxed);
            is_wanted
        });
        let (looked, has_looked) = mpsc::channel();
        let mut new = 0;
        for (name, registry) in wanted {
            if self.running.contains_key(name) {
                continue;
            }
            let is_over = Arc::new(AtomicBool::new(false));
            let task = Task {
                service: name.clone(),
                source: source(registry.clone(), &self.folder, self.unreadable),
                live: Arc::clone(&self.live),
                is_over: Arc::clone(&is_over),
                looked: Some(looked.clone()),
            };
            match thread::Builder::new().name(format!("registry {name}")).spawn(move || task.run()) {
                Ok(_) => {
                    self.running.insert(name.clone(), Running { registry, is_over });
                    new += 1;
                }
                Err(error) => {
                    self.live
                        .report(&format!("service {name}: cannot start the thread of its registry: {error}"));
                }
            }
        }
        drop(looked);
        let until = Instant::now() + timeout;
        while new > 0 && has_looked.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {
            new -= 1;
        }
    }
}

/// What its thread has.
struct Task {
    service: String,
    source: Box<dyn Source>,
    live: Arc<Live>,
    is_over: Arc<AtomicBool>,
    /// Gets a message once it has looked.
    looked: Option<mpsc::Sender<()>>,
}

impl Task {
    fn run(mut self) {
        let mut failures = 0_u32;
        let mut told = Told::default();
        while !self.is_over.load(Ordering::Relaxed) {
            let result = self.source.look();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let has_failed = match result {
                Ok(None) => false,
                Ok(Some(found)) => self.take(found, &mut told),
                Err(why) => {
                    let known = self.live.state().1.sets.get(&self.service).map_or(0, |set| set.len());
                    let known = plural(known as u64, "instance");
                    told.follow(
                        &self,
                        vec![format!("service {}: {why}; keeping {known}", self.service)],
                        false,
                    );
                    true
                }
            };
            failures = if has_failed { failures.saturating_add(1) } else { 0 };
            if let Some(looked) = self.looked.take() {
                let _ = looked.send(()); // the receiver may be gone
            }
            let pause = match failures {
                0 => self.source.pause(),
                n => (STEP * (1 << n.min(10))).min(self.source.longest_pause()),
            };
            let until = Instant::now() + pause;
            while Instant::now() < until && !self.is_over.load(Ordering::Relaxed) {
                thread::sleep(STEP.min(until.saturating_duration_since(Instant::now())));
            }
        }
    }

    /// The registry has answered. Returns whether nothing of the answer is of use.
    fn take(&self, found: Found, told: &mut Told) -> bool {
        let is_failure = found.is_failure();
        let lines = self.live.found(&self.service, found);
        told.follow(self, lines, true);
        if let Err(error) = names::follow(&self.live) {
            self.live.report(&format!("names that do not resolve are not retried: {error}"));
        }
        is_failure
    }
}

/// The last messages about a registry: the same ones are not repeated.
#[derive(Debug, Default)]
struct Told {
    lines: Vec<String>,
    /// The registry itself had answered.
    has_answered: bool,
}

impl Told {
    /// These are the messages now; without any, all is well again.
    fn follow(&mut self, task: &Task, lines: Vec<String>, has_answered: bool) {
        let service = &task.service;
        if lines.is_empty() && !self.lines.is_empty() {
            let what =
                if self.has_answered { "all names resolve" } else { "its registry is available again" };
            task.live.report(&format!("service {service}: {what}"));
        }
        for line in lines.iter().filter(|line| !self.lines.contains(line)) {
            task.live.report(line);
        }
        (self.lines, self.has_answered) = (lines, has_answered);
    }
}
