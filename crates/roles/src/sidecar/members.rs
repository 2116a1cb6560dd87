//! The instances of a service, as they appear and disappear.
//!
//! One that appears gets less than its share at first (`slow-start`). One that disappears gets no further requests; those under way end
//! on their connections, which end with them, and those that wait for a connection go to others.

use std::sync::Arc;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::workload::Protocol;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::{TlsError, TlsOptions};
use h2lab_proxy::config::{ORIGINAL, Service, Speaks, Timeouts};
use h2lab_proxy::guard::health::Health;
use h2lab_proxy::pool::place::Load;
use h2lab_proxy::pool::portion::Portion;
use h2lab_proxy::pool::ramp;
use h2lab_proxy::proxy_protocol;
use h2lab_wire::ErrorCode;

use super::config::SidecarConfig;
use super::guard::Standing;
use super::live::{Resolved, State};
use super::names::Unresolved;
use super::pool::{Pool, Pools};
use super::side::Peer;
use super::threads::Shared;
use super::{Sidecar, Slot, http3, mark, side};
use crate::client::connect::DialTarget;

/// An instance beside the others of its service.
#[derive(Debug)]
pub struct Part {
    /// Where it is.
    pub at: Resolved,
    /// Whether it is in the sidecar's own zone.
    is_near: bool,
    /// When it appeared; `None` if it was there from the start.
    appeared_at: Option<Time>,
    slow_start: Duration,
    /// It is no instance any more: what is under way ends.
    pub is_leaving: bool,
}

impl Part {
    /// What is known of it, for the choice of the next request's instance. What takes instances out for a while (health checks, outlier
    /// ejection) says so in [`Load::is_down`].
    pub fn load(&self, load: Load, now: Time) -> Load {
        let age = self.appeared_at.map(|at| now.since(at));
        Load {
            weight: ramp::weight(self.at.member.weight, age, self.slow_start),
            priority: self.at.member.priority,
            is_near: self.is_near,
            ..load
        }
    }

    fn take(&mut self, at: &Resolved, zone: Option<&str>, service: &Service) {
        self.is_near = zone.is_some() && zone == at.member.zone.as_deref();
        self.slow_start = service.slow_start.unwrap_or_default();
        self.at = at.clone();
    }
}

/// How instances of a service are dialled.
#[derive(Debug, Clone, Copy)]
pub struct Dialled<'a> {
    /// The service.
    pub service: &'a Service,
    /// What its connections trust and present.
    pub tls: &'a TlsOptions,
    /// The rest.
    pub config: &'a SidecarConfig,
    /// The part of its bounds that is this loop's.
    pub portion: Portion,
}

/// What existing connections were made with: if it changes, they are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Made {
    tls: TlsOptions,
    server_name: Option<String>,
    congestion: Option<String>,
    h3: bool,
    proxy_protocol: Option<proxy_protocol::Version>,
}

/// A service that is, or was, in the configuration.
#[derive(Debug)]
pub struct Group {
    name: String,
    made: Made,
    /// For how long its instances are waited for.
    timeouts: Timeouts,
    /// Why some of its instances have no address.
    pub unresolved: Vec<Unresolved>,
    /// It is no more: requests under way end.
    is_retired: bool,
}

impl Dialled<'_> {
    fn timeouts(&self) -> Timeouts {
        self.config.file.timeouts.of(&self.service.timeouts)
    }

    /// Connections that an instance may have in this loop.
    fn most(&self) -> usize {
        self.service.limits.connections.map_or(usize::MAX, |most| self.portion.part(most) as usize)
    }

    fn made(&self) -> Made {
        Made {
            tls: self.tls.clone(),
            server_name: self.service.server_name.clone(),
            congestion: self.service.congestion.clone(),
            h3: self.service.h3,
            proxy_protocol: self.service.proxy_protocol,
        }
    }

    fn group(&self, name: &str) -> Group {
        Group {
            name: name.to_owned(),
            made: self.made(),
            timeouts: self.timeouts(),
            unresolved: Vec::new(),
            is_retired: false,
        }
    }

    /// How an instance is dialled, in the order of preference.
    fn targets(&self, at: &Resolved) -> Result<Vec<DialTarget>, TlsError> {
        let protocols: &[Protocol] = match at.member.url.speaks {
            Speaks::H1 | Speaks::Tcp => &[Protocol::H1],
            // An instance that turns out not to speak HTTP/2 gets HTTP/1.1.
            Speaks::H2c => &[Protocol::H2c, Protocol::H1],
            Speaks::Tls if self.service.h3 => &[Protocol::H3, Protocol::H2, Protocol::H1s],
            Speaks::Tls => &[Protocol::H2, Protocol::H1s],
            Speaks::H3 => &[Protocol::H3],
            Speaks::H1s => &[Protocol::H1s],
            Speaks::H2 => &[Protocol::H2],
        };
        let server_name = self.service.server_name.as_ref().unwrap_or(&at.server_name);
        let target = |protocol: &Protocol| {
            let congestion = self.service.congestion.clone();
            let address = Endpoint::Tcp(at.address);
            let mut target = DialTarget::new(address, *protocol, server_name, self.tls, congestion)?;
            target.engine = h2lab_wire::Config { tls: target.engine.tls, ..self.config.client };
            target.engine.peer_timeout = target.engine.peer_timeout.max(self.config.file.timeouts.ping);
            target.connect_timeout = self.timeouts().connect;
            target.mark = self.config.file.mark;
            target.tap = false;
            if protocol.is_quic() {
                http3::prepare(&mut target, protocols.len() > 1);
            }
            Ok(target)
        };
        protocols.iter().map(target).collect()
    }

    /// An instance without a connection yet.
    pub fn pool(
        &self,
        service: u32,
        at: &Resolved,
        appeared_at: Option<Time>,
        standing: Arc<Standing>,
    ) -> Result<Pool, TlsError> {
        let slow_start = Duration::ZERO;
        let mut part = Part { at: at.clone(), is_near: false, appeared_at, slow_start, is_leaving: false };
        part.take(at, self.config.file.zone.as_deref(), self.service);
        let mut pool = Pool::new(part, service, self.service.policy, self.targets(at)?, standing);
        (pool.most, pool.proxied) = (self.most(), self.service.proxy_protocol);
        if self.portion.number == 0 {
            pool.standing.examined(pool.health); // by this loop's checks, which begin anew
        }
        Ok(pool)
    }
}

/// Every service of a configuration, and how its instances are dialled.
pub fn services(config: &SidecarConfig, portion: Portion) -> impl Iterator<Item = (&str, Dialled<'_>)> {
    let all = config.file.service.iter().zip(&config.services);
    all.map(move |((name, service), tls)| (name.as_str(), Dialled { service, tls, config, portion }))
}

impl Pools {
    /// Sets up the instances that are known at the start, for one of the loops.
    pub fn new(state: &State, shared: &Shared, portion: Portion) -> Result<Self, TlsError> {
        let mut pools = Self::default();
        pools.portion = portion;
        for (name, dialled) in services(&state.config, portion) {
            let mut group = dialled.group(name);
            group.unresolved = state.unresolved.get(name).cloned().unwrap_or_default();
            pools.groups.push(group);
            let mut members = Vec::new();
            for at in state.sets.get(name).map_or(&[][..], |set| set) {
                members.push(pools.all.len() as u32);
                let standing = shared.standing(name, at);
                pools.all.push(dialled.pool(pools.services.len() as u32, at, None, standing)?);
            }
            pools.services.push(members);
        }
        Ok(pools)
    }

    /// Whether instances of a service that is gone are still needed.
    pub fn has_retired(&self) -> bool {
        self.groups.iter().zip(&self.services).any(|(group, members)| group.is_retired && !members.is_empty())
    }

    /// The names of all services, by number, of those that are gone too.
    pub fn service_names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| &*group.name)
    }

    /// Messages about a service's instances that have no address, if there are some.
    pub fn without_address(&self, service: u32) -> Vec<String> {
        let all = self.groups.get(service as usize).map_or(&[][..], |group| &group.unresolved);
        all.iter().map(|one| format!("cannot resolve {}: {}", one.member.url.host, one.why)).collect()
    }

    /// The number of a service that is in the configuration.
    pub fn service(&self, name: &str) -> Option<u32> {
        self.groups.iter().position(|group| group.name == name).map(|number| number as u32)
    }
}

impl Sidecar<'_> {
    /// Takes over the services and instances of this state.
    pub(super) fn take_services(&mut self, state: &State, now: Time) {
        self.pools.groups.iter_mut().for_each(|group| group.is_retired = true);
        for (name, dialled) in services(&state.config, self.pools.portion) {
            let number = self.pools.service(name).unwrap_or_else(|| {
                self.pools.groups.push(dialled.group(name));
                self.pools.services.push(Vec::new());
                self.pools.groups.len() as u32 - 1
            });
            self.take_changes(number, &dialled, now);
            self.pools.groups[number as usize].unresolved =
                state.unresolved.get(name).cloned().unwrap_or_default();
            if name == ORIGINAL && state.config.file.is_transparent() {
                continue; // its instances are the destinations that are asked for
            }
            let set = state.sets.get(name).map_or(&[][..], |set| set);
            self.take_members(number, set, &dialled, now);
        }
        self.dismiss_retired(now);
    }

    /// Instances that stay are dialled as the service says now.
    fn take_changes(&mut self, service: u32, dialled: &Dialled<'_>, now: Time) {
        let group = &mut self.pools.groups[service as usize];
        group.is_retired = false;
        let (made, timeouts) = (dialled.made(), dialled.timeouts());
        let (is_made_anew, is_changed) = (group.made != made, group.timeouts != timeouts);
        (group.made, group.timeouts) = (made, timeouts);
        for number in self.pools.services[service as usize].clone() {
            let pool = self.pools.get(number);
            (pool.policy, pool.most) = (dialled.service.policy, dialled.most());
            pool.proxied = dialled.service.proxy_protocol;
            if dialled.service.health.is_none() && dialled.portion.number == 0 {
                // No check would find out that it is well again.
                pool.standing.examined(Health::default());
                pool.health = Health::default();
            }
            self.wake(number); // there may be room for more
            if !is_made_anew && !is_changed {
                continue;
            }
            let pool = self.pools.get(number);
            match dialled.targets(&pool.part.at) {
                Ok(targets) => {
                    // It may speak more than before.
                    pool.known = if is_made_anew { 0 } else { pool.known };
                    pool.targets = targets;
                }
                Err(error) => {
                    let text = format!("{}: {error}", pool.name);
                    self.report(&text);
                }
            }
            if is_made_anew {
                self.abandon_dials(number);
                self.end_connections(number, now, b"its settings have changed");
            }
            for slot in self.pools.get(number).connections.clone() {
                if let Some(side) = side(&mut self.slots, slot) {
                    side.watch_peer(&timeouts);
                }
            }
        }
    }

    /// A service now has these instances.
    fn take_members(&mut self, service: u32, set: &[Resolved], dialled: &Dialled<'_>, now: Time) {
        let before = std::mem::take(&mut self.pools.services[service as usize]);
        let mut after = Vec::with_capacity(set.len());
        for at in set {
            let known = before.iter().find(|number| self.pools.all[**number as usize].part.at.is_same(at));
            if let Some(number) = known {
                let zone = dialled.config.file.zone.as_deref();
                self.pools.get(*number).part.take(at, zone, dialled.service);
                after.push(*number);
                continue;
            }
            let standing = self.shared.standing(&self.pools.groups[service as usize].name, at);
            match dialled.pool(service, at, Some(now), standing) {
                Ok(pool) => after.push(self.place_pool(pool)),
                Err(error) => self.report(&format!("{}: {error}", at.member.url)),
            }
        }
        let gone: Vec<u32> = before.into_iter().filter(|number| !after.contains(number)).collect();
        self.pools.services[service as usize] = after;
        for number in gone {
            self.dismiss(number, now);
        }
    }

    /// Gives an instance a number: one of an instance that is gone altogether, or a new one.
    pub(super) fn place_pool(&mut self, pool: Pool) -> u32 {
        let is_free = |number: u32| {
            let old = &self.pools.all[number as usize];
            let is_its =
                |slot: &Slot| matches!(slot, Slot::Open(side) if side.peer == Peer::Instance(number));
            old.part.is_leaving && old.is_idle() && !self.slots.iter().any(is_its)
        };
        if let Some(number) = (0..self.pools.count()).find(|number| is_free(*number)) {
            self.pools.all[number as usize] = pool;
            self.observer.replaced(number);
            return number;
        }
        self.pools.all.push(pool);
        self.pools.count() - 1
    }

    /// An instance is none any more.
    pub(super) fn dismiss(&mut self, number: u32, now: Time) {
        let pool = self.pools.get(number);
        pool.part.is_leaving = true;
        pool.retry_at = Time::NEVER;
        let queue = pool.take_queue();
        self.end_connections(number, now, b"this instance was removed");
        for (id, generation) in queue {
            if self.exchanges.waits(id, generation) {
                self.leave(id);
                self.exchanges.stir(id);
            }
        }
    }

    /// The connections of an instance take no further requests, and end with the last one.
    fn end_connections(&mut self, number: u32, now: Time, why: &[u8]) {
        for slot in std::mem::take(&mut self.pools.get(number).connections) {
            if let Some(side) = side(&mut self.slots, slot) {
                side.engine.goaway(now, ErrorCode::NO_ERROR, why);
                mark(side, slot, &mut self.dirty);
            }
        }
    }

    /// Instances of services that are gone leave when no request needs them any more.
    pub(super) fn dismiss_retired(&mut self, now: Time) {
        for service in 0..self.pools.groups.len() {
            let is_left = self.pools.groups[service].is_retired
                && !self.pools.services[service].is_empty()
                && !self.exchanges.use_service(service as u32);
            if is_left {
                for number in std::mem::take(&mut self.pools.services[service]) {
                    self.dismiss(number, now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use h2lab_proxy::config::Config;

    use super::*;

    #[test]
    fn the_zones_of_a_file_say_which_instances_are_near() {
        let is_near = |zones: &str| {
            let text = format!(
                "{zones}\n[[listen]]\naddress = '127.0.0.1:1'\nservice = 'users'\n\
                 [service.users]\ninstances = [{{ url = 'h2c://127.0.0.1:2', zone = 'a' }}]"
            );
            let config = Config::parse(&text).expect("a file");
            let service = &config.service["users"];
            let at = Resolved::all(&service.instances[0]).expect("an address").remove(0);
            let slow_start = Duration::ZERO;
            let mut part =
                Part { at: at.clone(), is_near: false, appeared_at: None, slow_start, is_leaving: false };
            part.take(&at, config.zone.as_deref(), service);
            part.load(Load::default(), Time::ZERO).is_near
        };
        assert_eq!(["zone = 'a'", "zone = 'b'", ""].map(is_near), [true, false, false]);
    }
}
