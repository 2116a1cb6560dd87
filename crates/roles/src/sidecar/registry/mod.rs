//! Service discovery: a thread for each service queries its registry, and gives [`Live`] the instances that this names.
//!
//! Where the answer is missing or wrong the instances that are known stay, and that is reported once.

mod consul;
mod dns;
mod file;
mod http;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use h2lab_base::counts::plural;
use h2lab_proxy::config::{Config, Registry};

use super::live::{Live, Resolved};
pub use file::{Fingerprint, Watched};

/// A thread that waits looks this often whether it is still needed.
const STEP: Duration = Duration::from_millis(100);
/// See [`Source::longest_pause`].
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A registry as its thread sees it.
trait Source: Send {
    /// The instances, if they may be others than the last time. May wait for news.
    fn look(&mut self) -> Result<Option<Vec<Resolved>>, String>;

    /// How long to wait until the next look.
    fn pause(&self) -> Duration;

    /// The same at most after failures, of which each doubles it.
    fn longest_pause(&self) -> Duration {
        LONGEST_PAUSE
    }
}

fn source(registry: Registry, folder: &Path) -> Box<dyn Source> {
    match registry {
        Registry::File(name) => Box::new(file::File::new(folder.join(name))),
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
    running: BTreeMap<String, Running>,
}

impl Registries {
    /// None yet. Names of files are relative to `folder`.
    pub fn new(live: Arc<Live>, folder: PathBuf) -> Self {
        Self { live, folder, running: BTreeMap::new() }
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
                source: source(registry.clone(), &self.folder),
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
    /// Told once it has looked.
    looked: Option<mpsc::Sender<()>>,
}

impl Task {
    fn run(mut self) {
        let (mut failures, mut told) = (0_u32, None);
        while !self.is_over.load(Ordering::Relaxed) {
            let result = self.source.look();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let service = &self.service;
            match result {
                Ok(set) => {
                    if told.take().is_some() {
                        self.live.report(&format!("service {service}: its registry is available again"));
                    }
                    failures = 0;
                    if let Some(set) = set {
                        self.live.set(service, set);
                    }
                }
                Err(why) => {
                    failures = failures.saturating_add(1);
                    if told.as_ref() != Some(&why) {
                        let known = self.live.state().1.sets.get(service).map_or(0, |set| set.len());
                        let known = plural(known as u64, "instance");
                        self.live.report(&format!("service {service}: {why}; keeping {known}"));
                    }
                    told = Some(why);
                }
            }
            if let Some(looked) = self.looked.take() {
                let _ = looked.send(()); // nobody may wait any more
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
}
