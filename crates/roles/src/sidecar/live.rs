//! What changes while a sidecar runs: its configuration, and the instances of its services.
//!
//! A registry or a reload stores the whole new state here; every loop compares its version in each iteration, and
//! makes its own state equal to this one. So any number of loops follow, and none misses anything.

mod found;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use h2lab_model::sidecar::ReloadStatus;
use h2lab_net::tcp::Listener;
use h2lab_net::udp::Socket;
use h2lab_proxy::config::{Config as File, Listen, Member, Service};

use super::config::{SidecarConfig, SidecarError};
use super::names::{self, Unresolved};
use super::observe::unix;
use super::transparent;
pub use found::Found;

/// The most addresses of a name that are used.
const MOST_ADDRESSES: usize = 8;

/// An instance with its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// What is known of it.
    pub member: Member,
    /// Its address.
    pub address: SocketAddr,
    /// Further addresses at which it may be: they are tried if it is not reached at the first one.
    pub others: Vec<SocketAddr>,
    /// The name of its certificate, if the service has none for all.
    pub server_name: String,
}

impl Resolved {
    /// An instance that is at one of the addresses of its name.
    pub fn one(member: &Member) -> Result<Self, String> {
        let mut all = Self::all(member)?;
        all.truncate(MOST_ADDRESSES);
        let others = all.split_off(1).into_iter().map(|other| other.address).collect();
        all.pop().map(|first| Self { others, ..first }).ok_or_else(|| "it has no address".to_owned())
    }

    /// An instance at each address of a name.
    pub fn all(member: &Member) -> Result<Vec<Self>, String> {
        let host = member.url.host.as_str();
        let addresses = (host, member.url.port).to_socket_addrs().map_err(|error| unresolved(&error))?;
        let of = |address| Self {
            member: member.clone(),
            address,
            others: Vec::new(),
            server_name: host.to_owned(),
        };
        let mut all: Vec<Self> = Vec::new();
        for address in addresses {
            if all.iter().all(|other| other.address != address) {
                all.push(of(address));
            }
        }
        if all.is_empty() { Err("it has no address".to_owned()) } else { Ok(all) }
    }

    /// All of its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        [self.address].into_iter().chain(self.others.iter().copied())
    }

    /// The same with the addresses in the order that they had before, as far as they are the same: name servers shuffle
    /// them, and an instance is identified by its first one.
    fn in_the_order_of(mut self, before: &Self) -> Self {
        let mut all: Vec<SocketAddr> = self.addresses().collect();
        let place = |address: &SocketAddr| before.addresses().position(|other| other == *address);
        all.sort_by_key(|address| place(address).unwrap_or(usize::MAX)); // what is new comes last, in its order
        if let [first, others @ ..] = &all[..] {
            (self.address, self.others) = (*first, others.to_vec());
        }
        self
    }

    /// Whether it is the same instance, perhaps with another weight.
    pub fn is_same(&self, other: &Self) -> bool {
        self.address == other.address
            && self.member.url == other.member.url
            && self.server_name == other.server_name
    }
}

/// Why a name has no address, in the resolver's words alone: `name or service not known`.
pub fn unresolved(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.rsplit(": ").next().unwrap_or_default();
    match words {
        "Name or service not known" | "Name does not resolve" => "name not known".to_owned(),
        _ => words.to_owned(),
    }
}

/// A configuration, and the instances that are known by now.
#[derive(Debug, Clone)]
pub struct State {
    /// The configuration.
    pub config: Arc<SidecarConfig>,
    /// Instances, by service; a service that nothing is known of has none.
    pub sets: BTreeMap<String, Arc<[Resolved]>>,
    /// Those whose names have no address yet, by service.
    pub unresolved: BTreeMap<String, Vec<Unresolved>>,
    /// Services whose instances are those of an earlier answer of their registry, since no name of the last one has an address yet.
    kept: BTreeSet<String>,
    /// A thread is looking up the names that have no address.
    is_looked_up: bool,
}

impl State {
    /// A state with the instances that the configuration names itself. Their names are waited for until `timeout`. One
    /// that has no address now keeps the one that it had `before`. Messages about them are added to `told`.
    fn new(config: SidecarConfig, before: Option<&Self>, timeout: Duration, told: &mut Vec<String>) -> Self {
        let written = |(name, service): (&String, &Service)| {
            let members = if service.registry().is_some() { Vec::new() } else { service.instances.clone() };
            members.into_iter().map(|member| (name.clone(), member)).collect::<Vec<_>>()
        };
        let written: Vec<(String, Member)> = config.file.service.iter().flat_map(written).collect();
        let results = names::resolve(written.iter().map(|(_, member)| member.clone()).collect(), timeout);
        let mut sets: BTreeMap<String, Vec<Resolved>> = BTreeMap::new();
        let mut unresolved: BTreeMap<String, Vec<Unresolved>> = BTreeMap::new();
        for ((service, member), result) in written.into_iter().zip(results) {
            let set = sets.entry(service.clone()).or_default();
            let known = || {
                let set = before?.sets.get(&service)?;
                set.iter().find(|at| at.member.url == member.url)
            };
            match result {
                Ok(at) => set.push(match known() {
                    Some(before) => at.in_the_order_of(before),
                    None => at,
                }),
                Err(why) => {
                    let about = without_address(&service, &member, &why);
                    if let Some(at) = known() {
                        told.push(format!("{about}; still using {}", at.address.ip()));
                        set.push(Resolved { member, ..at.clone() });
                    } else {
                        told.push(format!("{about}; retrying until it resolves"));
                        unresolved.entry(service).or_default().push(Unresolved { member, why });
                    }
                }
            }
        }
        let sets = sets.into_iter().map(|(service, set)| (service, distinct(set).into())).collect();
        Self { config: Arc::new(config), sets, unresolved, kept: BTreeSet::new(), is_looked_up: false }
    }
}

/// The message about an instance whose name has no address.
fn without_address(service: &str, member: &Member, why: &str) -> String {
    format!("service {service}: cannot resolve {}: {why}", member.url.host)
}

/// The state that all loops follow.
pub struct Live {
    version: AtomicU64,
    state: Mutex<State>,
    reloads: Mutex<ReloadStatus>,
    report: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Live {
    /// Begins with this configuration, and resolves the names of its instances; [`names::follow`] continues with those
    /// that have no address yet. `report` takes a line about what went wrong, or has changed, while the sidecar runs.
    pub fn new(config: SidecarConfig, report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let mut told = Vec::new();
        let state = State::new(config, None, names::LOOKUP_TIMEOUT, &mut told);
        for line in &told {
            report(line);
        }
        let state = Mutex::new(state);
        let reloads =
            Mutex::new(ReloadStatus { succeeded_unix_s: unix().as_secs(), ..ReloadStatus::default() });
        Self { version: AtomicU64::new(0), state, reloads, report: Box::new(report) }
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

    /// The configuration was read again. `wrong` says why it was not applied, if it was not.
    pub fn reloaded(&self, wrong: Option<String>) {
        let mut reloads = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong.is_some() {
            reloads.failed += 1;
        } else {
            reloads.succeeded += 1;
            reloads.succeeded_unix_s = unix().as_secs();
        }
        reloads.wrong = wrong;
    }

    /// How often the configuration was read again, and with what result.
    pub fn reloads(&self) -> ReloadStatus {
        let config_hash = self.state().1.config.file.hash();
        let reloads = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        ReloadStatus { config_hash, ..reloads.clone() }
    }

    /// Prints a message for the operator.
    pub fn report(&self, text: &str) {
        (self.report)(text);
    }

    /// Checks whether another configuration can take the place of this one: whether addresses can be listened on.
    pub fn prepare(&self, mut config: SidecarConfig) -> Result<State, SidecarError> {
        let state = self.state().1;
        let before = Arc::clone(&state.config);
        config.sockets = before.sockets.clone();
        (config.admin, config.log) = (before.admin.clone(), before.log.clone());
        config.threads = before.threads;
        config.file.keep_start(&before.file);
        config.file.check_addresses()?; // the admin listener stays where it is
        config.file.check_threads(config.threads)?;
        let listeners = listeners(&config.file, &before)?;
        before.sockets.reserve(listeners);
        let mut told = Vec::new();
        let next = State::new(config, Some(&state), names::LONG_LOOKUP_TIMEOUT, &mut told);
        for line in &told {
            self.report(line);
        }
        Ok(next)
    }

    /// The name of an instance of this configuration was looked up again.
    pub fn take_name(
        &self,
        config: &Arc<SidecarConfig>,
        service: &str,
        member: &Member,
        result: Result<Resolved, String>,
    ) {
        let mut state = self.lock();
        if !Arc::ptr_eq(&state.config, config) {
            return;
        }
        let State { sets, unresolved, kept, .. } = &mut *state;
        let Some(all) = unresolved.get_mut(service) else { return };
        let Some(place) = all.iter().position(|one| one.member == *member) else { return };
        let told = match result {
            Ok(at) => {
                all.remove(place);
                if all.is_empty() {
                    unresolved.remove(service);
                }
                let told = format!("service {service}: {} resolved to {}", member.url.host, at.address.ip());
                let is_gone = kept.remove(service);
                let known = sets.get(service).filter(|_| !is_gone).map_or(&[][..], |set| set);
                let set = distinct(known.iter().cloned().chain([at]).collect());
                sets.insert(service.to_owned(), set.into());
                told
            }
            Err(why) if why == all[place].why => return,
            Err(why) => {
                let told = without_address(service, member, &why);
                all[place].why = why;
                told
            }
        };
        self.version.fetch_add(1, Ordering::Release);
        drop(state);
        self.report(&told);
    }

    /// Ends logging: the log's file is closed when all who write it have released it.
    pub fn end_log(&self) {
        let mut state = self.lock();
        let config = SidecarConfig { log: None, ..(*state.config).clone() };
        state.config = Arc::new(config);
    }

    /// Another configuration takes the place of this one. Services with a registry keep the instances that they have
    /// until the registry names others.
    pub fn commit(&self, mut next: State) {
        let mut state = self.lock();
        for (name, _) in next.config.file.service.iter().filter(|(_, service)| service.registry().is_some()) {
            if let Some(set) = state.sets.get(name) {
                next.sets.insert(name.clone(), Arc::clone(set));
            }
            if let Some(unresolved) = state.unresolved.get(name) {
                next.unresolved.insert(name.clone(), unresolved.clone());
            }
            next.kept.extend(state.kept.get(name).cloned());
        }
        *state = next;
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// Sockets of new listeners: they listen before those that they replace are closed.
fn listeners(file: &File, before: &SidecarConfig) -> Result<Vec<Listener>, SidecarError> {
    let has = |file: &File, address| file.listen.iter().any(|listen| listen.address == address);
    let leaving = before.file.listen.iter().filter(|listen| !has(file, listen.address));
    let leaving: Vec<&Listen> = leaving.collect();
    let leaving_at: Vec<SocketAddr> = leaving.iter().map(|listen| listen.address).collect();
    let mut listeners = Vec::new();
    for listen in &file.listen {
        let address = listen.address;
        transparent::prepare(listen, &before.file, &before.sockets)?;
        let own = |source: &io::Error, is_udp: bool| {
            let its = |other: &&&Listen| other.address.port() == address.port() && (other.h3 || !is_udp);
            let other = leaving.iter().find(its).filter(|_| source.kind() == io::ErrorKind::AddrInUse)?;
            let udp = if is_udp { "UDP " } else { "" };
            Some(SidecarError::OwnPort { udp, address, own: other.address })
        };
        if !has(&before.file, address) {
            let listener = before
                .sockets
                .bind(address, &leaving_at)
                .map_err(|source| own(&source, false).unwrap_or(SidecarError::Listen { address, source }))?;
            // One with a free port is closed at once: the loop takes another one.
            listeners.extend(Some(listener).filter(|_| address.port() != 0));
        }
        let has_udp = |other: &Listen| other.address == address && other.h3;
        let has_udp = before.file.listen.iter().any(has_udp) || before.sockets.serves(address);
        if listen.h3 && !has_udp && address.port() != 0 {
            Socket::bind(address).map_err(|source| {
                own(&source, true).unwrap_or(SidecarError::ListenUdp { address, source })
            })?;
        }
    }
    Ok(listeners)
}

/// Each instance once: one that is listed several times, as registries may do, has the weight of all of them. Nothing
/// else distinguishes them, and an instance must have a single state.
fn distinct(set: Vec<Resolved>) -> Vec<Resolved> {
    let mut all: Vec<Resolved> = Vec::with_capacity(set.len());
    for at in set {
        match all.iter_mut().find(|other| other.is_same(&at)) {
            Some(other) => other.member.weight = other.member.weight.saturating_add(at.member.weight),
            None => all.push(at),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_at_several_addresses_stays_the_same_however_they_are_shuffled() {
        let address = |last: u8| SocketAddr::from(([127, 0, 0, last], 1));
        let at = |all: [u8; 3]| {
            let member = Member::from("http://a:1".parse::<h2lab_proxy::config::Instance>().expect("a URL"));
            let others = vec![address(all[1]), address(all[2])];
            Resolved { member, address: address(all[0]), others, server_name: "a".to_owned() }
        };
        let before = at([1, 2, 3]);
        assert_eq!(at([3, 1, 2]).in_the_order_of(&before), before);
        assert_eq!(at([4, 3, 1]).in_the_order_of(&before), at([1, 3, 4]), "one is new, one has gone");
        assert_eq!(at([5, 4, 6]).in_the_order_of(&before), at([5, 4, 6]));
    }

    #[test]
    fn an_instance_has_all_addresses_of_its_name_and_each_once() {
        let member =
            Member::from("http://localhost:1".parse::<h2lab_proxy::config::Instance>().expect("a URL"));
        let all = Resolved::all(&member).expect("an address");
        let one = Resolved::one(&member).expect("an address");
        assert!(one.addresses().eq(all.iter().map(|at| at.address).take(MOST_ADDRESSES)), "{one:?}");
    }

    #[test]
    fn an_instance_that_is_listed_twice_is_one_with_the_weight_of_both() {
        let at = |url: &str, weight| {
            let member = Member { weight, ..url.parse::<h2lab_proxy::config::Instance>().expect(url).into() };
            Resolved::all(&member).expect("an address").remove(0)
        };
        let (one, other) = ("http://127.0.0.1:1", "h2c://127.0.0.1:1");
        let all = distinct(vec![at(one, 1), at(other, 1), at(one, 3), at(one, 0)]);
        assert_eq!(all, [at(one, 4), at(other, 1)]);
    }
}
