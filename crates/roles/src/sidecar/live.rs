//! What changes while a sidecar runs: its configuration, and the instances of its services.
//!
//! A registry or a reload stores the whole new state here; every loop compares its version in each iteration, and
//! makes its own state equal to this one. So any number of loops follow, and none misses anything.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use h2lab_net::tcp::Listener;
use h2lab_net::udp::Socket;
use h2lab_proxy::config::{Listen, Member};

use super::config::{SidecarConfig, SidecarError};
use super::transparent;

/// An instance with its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// What is known of it.
    pub member: Member,
    /// Its address.
    pub address: SocketAddr,
    /// The name of its certificate, if the service has none for all.
    pub server_name: String,
}

impl Resolved {
    /// The addresses of an instance: several, where a name has several.
    pub fn all(member: &Member) -> Result<Vec<Self>, String> {
        let host = member.url.host.as_str();
        let addresses = (host, member.url.port).to_socket_addrs().map_err(|error| error.to_string())?;
        let of = |address| Self { member: member.clone(), address, server_name: host.to_owned() };
        let mut all: Vec<Self> = Vec::new();
        for address in addresses {
            if all.iter().all(|other| other.address != address) {
                all.push(of(address));
            }
        }
        if all.is_empty() { Err("it has none".to_owned()) } else { Ok(all) }
    }

    /// Whether it is the same instance, perhaps with another weight.
    pub fn is_same(&self, other: &Self) -> bool {
        self.address == other.address
            && self.member.url == other.member.url
            && self.server_name == other.server_name
    }
}

/// A configuration, and the instances that are known by now.
#[derive(Debug, Clone)]
pub struct State {
    /// The configuration.
    pub config: Arc<SidecarConfig>,
    /// Instances, by service; a service that nothing is known of has none.
    pub sets: BTreeMap<String, Arc<[Resolved]>>,
}

/// The state that all loops follow.
pub struct Live {
    version: AtomicU64,
    state: Mutex<State>,
    report: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Live {
    /// Begins with this configuration, and resolves the names of its instances. `report` takes a line about what went wrong, or has
    /// changed, while the sidecar runs.
    pub fn new(
        config: SidecarConfig,
        report: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, SidecarError> {
        let sets = written(&config)?;
        let state = Mutex::new(State { config: Arc::new(config), sets });
        Ok(Self { version: AtomicU64::new(0), state, report: Box::new(report) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes with every change of the state.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The state, and its version.
    pub fn state(&self) -> (u64, State) {
        let state = self.lock();
        (self.version(), state.clone())
    }

    /// Says something to who runs the sidecar.
    pub fn report(&self, text: &str) {
        (self.report)(text);
    }

    /// A registry knows the instances of a service; whether they are others than before.
    pub fn set(&self, service: &str, set: Vec<Resolved>) -> bool {
        let mut state = self.lock();
        if state.sets.get(service).is_some_and(|before| **before == *set) {
            return false;
        }
        state.sets.insert(service.to_owned(), set.into());
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// Looks whether another configuration can take the place of this one: whether names are known, and addresses can be listened on.
    pub fn prepare(&self, mut config: SidecarConfig) -> Result<State, SidecarError> {
        let sets = written(&config)?;
        let before = Arc::clone(&self.lock().config);
        config.sockets = before.sockets.clone();
        (config.admin, config.log) = (before.admin.clone(), before.log.clone());
        config.threads = before.threads;
        config.file.keep_start(&before.file);
        config.file.check_threads(config.threads)?;
        for listen in &config.file.listen {
            transparent::prepare(listen, &before.file, &before.sockets)?;
            if before.file.listen.iter().all(|other| other.address != listen.address) {
                // Closed at once: the loops listen themselves.
                Listener::bind(listen.address)
                    .map_err(|source| SidecarError::Listen { address: listen.address, source })?;
            }
            let has_udp = |other: &Listen| other.address == listen.address && other.h3;
            let has_udp = before.file.listen.iter().any(has_udp) || before.sockets.serves(listen.address);
            if listen.h3 && !has_udp && listen.address.port() != 0 {
                Socket::bind(listen.address)
                    .map_err(|source| SidecarError::ListenUdp { address: listen.address, source })?;
            }
        }
        Ok(State { config: Arc::new(config), sets })
    }

    /// Nothing is logged any more: the log's file is closed when all who write it have let it go.
    pub fn end_log(&self) {
        let mut state = self.lock();
        let config = SidecarConfig { log: None, ..(*state.config).clone() };
        state.config = Arc::new(config);
    }

    /// Another configuration takes the place of this one. Services whose instances a registry knows keep those that they have until it
    /// names others.
    pub fn commit(&self, mut next: State) {
        let mut state = self.lock();
        for (name, service) in &next.config.file.service {
            if let (Some(_), Some(set)) = (service.registry(), state.sets.get(name)) {
                next.sets.insert(name.clone(), Arc::clone(set));
            }
        }
        *state = next;
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// The instances that a configuration names itself. Of a name with several addresses the first counts: several instances are what a
/// registry is for.
fn written(config: &SidecarConfig) -> Result<BTreeMap<String, Arc<[Resolved]>>, SidecarError> {
    let mut sets = BTreeMap::new();
    for (service, file) in &config.file.service {
        if file.registry().is_some() {
            continue;
        }
        let mut set = Vec::new();
        for member in &file.instances {
            let wrong =
                |why| SidecarError::Address { service: service.clone(), host: member.url.host.clone(), why };
            set.extend(Resolved::all(member).map_err(wrong)?.into_iter().next());
        }
        sets.insert(service.clone(), set.into());
    }
    Ok(sets)
}
