//! Instances of services: their connections, and the requests that wait for one.

mod dial;
mod race;
mod status;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::transport::TransportError;
use h2lab_proxy::config::{Policy, Speaks};
use h2lab_proxy::fields::Version;
use h2lab_proxy::guard::health::Health;
use h2lab_proxy::guard::panic::Candidate;
use h2lab_proxy::pool::choice;
use h2lab_proxy::pool::dials;
use h2lab_proxy::pool::estimate::Estimate;
use h2lab_proxy::pool::idle::Idle;
use h2lab_proxy::pool::place::{self, Load, Room};
use h2lab_proxy::pool::portion::Portion;
use h2lab_proxy::pool::quota::Quota;
use h2lab_proxy::proxy_protocol;
use h2lab_proxy::refusal::ProxyError;
use h2lab_proxy::retry::Fate;

use super::after_handshake;
use super::exchange::Refusal;
use super::fallback::Spoken;
use super::guard::{DEFAULT_RETRY_AFTER, Standing};
use super::members::{Group, Part};
use super::side::{Peer, Side};
use super::{Sidecar, Slot};
use crate::client::connect::DialTarget;
pub use dial::Dialling;

/// The longest time for which an instance that could not be reached is asked last.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Requests in a queue that have ended are kept until their place has come: up to so many, or as many as wait.
const QUEUED: usize = 64;
/// The wait assumed for a connection that does not answer: it is taken only if there is no other.
const DOUBTED: Duration = Duration::from_secs(60);

/// An instance of a service.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "what is known of an instance is independent")]
pub struct Pool {
    /// What it is called in messages.
    pub name: String,
    /// Its place beside the other instances.
    pub part: Part,
    /// The number of its service.
    pub service: u32,
    /// Its failures, as counted by all loops.
    pub standing: Arc<Standing>,
    /// Requests that ended well, not yet included there.
    pub uncounted: u32,
    /// It has failed, so that it is asked last.
    pub is_avoided: bool,
    /// Its priority counts as this one, if that is a higher number: the instances of its service with lower numbers are
    /// not enough.
    pub joined: u16,
    /// The result of its checks.
    pub health: Health,
    /// A check is under way.
    pub is_probed: bool,
    /// When the next one is due.
    pub probe_at: Time,
    /// Connections that it may have.
    pub most: usize,
    /// It does not use HTTP: it is the target of CONNECTs.
    is_raw: bool,
    /// It gets a header of the PROXY protocol before each request.
    pub proxied: Option<proxy_protocol::Version>,
    pub policy: Policy,
    /// How it is dialled, in the order of preference.
    pub targets: Vec<DialTarget>,
    /// The one of them that it is known to speak.
    pub known: usize,
    /// What was found out about that.
    pub spoken: Spoken,
    /// Places of its connections, without those that end.
    pub connections: Vec<u32>,
    /// The place in there of the one that got the last request.
    last: usize,
    /// Connections being dialled.
    dialling: u32,
    /// Others, each for a check alone.
    pub dialling_for_checks: u32,
    /// The place among its addresses of the one that answered last.
    first_address: usize,
    /// Requests that wait for a connection, in the order in which they came. Some of them may have ended meanwhile.
    queue: VecDeque<(u32, u32)>,
    /// How many of them still wait.
    pub waiting: u32,
    pub load: Load,
    /// When a response of it was measured last.
    answered_at: Time,
    /// When an attempt at it ended last.
    judged_at: Time,
    /// Until then it counts as down.
    down_until: Time,
    /// How often in a row it could not be reached.
    failures: u32,
    /// When it is dialled again for those that wait.
    pub retry_at: Time,
    /// Requests that wait may get a connection.
    is_woken: bool,
    /// After how many requests it ends a connection.
    pub quota: Quota,
    /// Streams that it has allowed on its last connection; none if it set no bound, or has not announced one yet.
    streams_allowed: Option<u32>,
    /// After which time without a request it ends a connection.
    pub idle: Idle,
    /// Connections that there have been.
    numbered: u32,
    /// How many connections its path needs.
    pub estimate: Estimate,
    /// The same, as of the last look.
    pub wanted: u32,
    /// When the paths of its connections were last read.
    pub read_at: Time,
    /// It has asked for fewer PINGs: it gets none.
    pub refuses_pings: bool,
    /// When it last was not reached over HTTP/3 although it should be.
    pub without_http3_at: Time,
}

impl Pool {
    /// Its host and port, as they are written; without the port that its scheme has anyway (RFC 9110 §4.2.3).
    pub fn authority(&self) -> &str {
        // Each request needs this: a search for one character takes a tenth of that for three.
        let (scheme, rest) = self.name.split_once(':').unwrap_or_default();
        let authority = rest.strip_prefix("//").unwrap_or_default();
        let port = if matches!(scheme, "http" | "h2c") { ":80" } else { ":443" };
        authority.strip_suffix(port).unwrap_or(authority)
    }

    /// What decides whether it is avoided.
    pub fn candidate(&self, now: Time) -> Candidate {
        let Load { priority, is_near, .. } = self.part.load(self.load, now);
        Candidate { is_fit: self.standing.is_fit(now), priority, is_near }
    }

    /// Whether a request that is meant for it is given to it.
    pub fn is_open(&self, now: Time) -> bool {
        now >= self.down_until && !self.is_avoided && !self.part.is_leaving
    }

    /// The time that a response takes, as far as recent measurements show.
    fn takes(&self, now: Time) -> Option<Duration> {
        let age = now.since(self.answered_at);
        self.load.takes.map(|takes| place::remembered(takes, age))
    }

    /// The share of attempts at it that fail, as far as recent ones show.
    fn fails(&self, now: Time) -> f64 {
        choice::failing_after(self.load.fails, now.since(self.judged_at))
    }

    /// An attempt at it has ended.
    pub fn judged(&mut self, failed: bool, now: Time) {
        self.load.fails = choice::failing(self.fails(now), failed);
        self.judged_at = now;
    }

    /// It does not answer: others are asked for a while.
    pub fn doubt(&mut self, now: Time) {
        self.down_until = now + LONGEST_PAUSE;
    }

    /// Takes the requests that wait, some of which may have ended.
    pub fn take_queue(&mut self) -> VecDeque<(u32, u32)> {
        std::mem::take(&mut self.queue)
    }

    /// Without a connection.
    pub fn new(
        part: Part,
        service: u32,
        policy: Policy,
        targets: Vec<DialTarget>,
        standing: Arc<Standing>,
    ) -> Self {
        let is_raw = part.at.member.url.speaks == Speaks::Tcp;
        Self {
            name: part.at.member.url.to_string(),
            part,
            service,
            standing,
            uncounted: 0,
            is_avoided: false,
            joined: 0,
            health: Health::default(),
            is_probed: false,
            probe_at: Time::ZERO,
            most: usize::MAX,
            is_raw,
            proxied: None,
            policy,
            targets,
            known: 0,
            spoken: Spoken::Unknown,
            connections: Vec::new(),
            last: 0,
            dialling: 0,
            dialling_for_checks: 0,
            first_address: 0,
            queue: VecDeque::new(),
            waiting: 0,
            load: Load::default(),
            answered_at: Time::ZERO,
            judged_at: Time::ZERO,
            down_until: Time::ZERO,
            failures: 0,
            retry_at: Time::NEVER,
            is_woken: false,
            quota: Quota::default(),
            streams_allowed: None,
            idle: Idle::default(),
            numbered: 0,
            estimate: Estimate::new(Time::ZERO),
            wanted: 1,
            read_at: Time::ZERO,
            refuses_pings: false,
            without_http3_at: Time::ZERO,
        }
    }

    /// Whether each of its connections carries one request at a time.
    pub fn is_single(&self) -> bool {
        self.policy == Policy::PerRequest || !self.targets[self.known].protocol.is_multiplexed()
    }

    /// Whether requests wait for a connection that replaces those that do not answer, as long as one may come.
    fn is_replacing(&self) -> bool {
        self.is_single() || (self.dialling > 0 && self.failures == 0)
    }

    /// Whether nothing is under way there but what connections that end still carry.
    pub const fn is_idle(&self) -> bool {
        self.load.open == 0 && self.dialling == 0 && self.dialling_for_checks == 0
    }
}

/// The instances of all services.
#[derive(Debug, Default)]
pub struct Pools {
    pub all: Vec<Pool>,
    /// Numbers of each service's instances.
    pub services: Vec<Vec<u32>>,
    /// Each service, by its number.
    pub groups: Vec<Group>,
    /// Those at which requests that wait may get a connection.
    woken: Vec<u32>,
    /// The part of bounds on connections that is this loop's.
    pub portion: Portion,
}

impl Pools {
    /// How many instances there are.
    pub const fn count(&self) -> u32 {
        self.all.len() as u32
    }

    /// The numbers of a service's instances.
    pub fn of(&self, service: u32) -> &[u32] {
        self.services.get(service as usize).map_or(&[], Vec::as_slice)
    }

    /// The instance with this number.
    pub fn get(&mut self, instance: u32) -> &mut Pool {
        &mut self.all[instance as usize]
    }

    /// When an instance is dialled again.
    pub fn next_retry(&self) -> Time {
        self.all.iter().map(|pool| pool.retry_at).min().unwrap_or(Time::NEVER)
    }

    /// The head of a response has come after this time.
    pub fn answered(&mut self, instance: u32, took: Duration, now: Time) {
        let pool = self.get(instance);
        pool.load.takes = Some(place::smoothed(pool.takes(now), took));
        pool.answered_at = now;
    }
}

impl Sidecar<'_> {
    /// Finds an instance and a connection for a request; if there is none, it waits for one.
    pub(super) fn find_connection(&mut self, id: u32, now: Time) {
        let service = self.exchanges.get(id).service as usize;
        if let Some(instance) = self.exchanges.get(id).instance
            && self.pools.get(instance).part.is_leaving
        {
            self.leave(id);
        }
        if !self.find_destination(id, now) {
            return;
        }
        let exchange = self.exchanges.get(id);
        let instance = match exchange.instance {
            Some(instance) => instance,
            None if exchange.watched.probes.is_some() => {
                let Some(instance) = self.probe_again(id) else { return };
                instance
            }
            None => {
                let avoids = exchange.watched.avoids;
                let numbers = &self.pools.services[service];
                let load = |number: &u32| {
                    let pool = &self.pools.all[*number as usize];
                    let is_down = now < pool.down_until || pool.is_avoided || avoids == Some(*number);
                    let (takes, fails) = (pool.takes(now), pool.fails(now));
                    let part = pool.part.load(pool.load, now);
                    Load { is_down, takes, fails, priority: part.priority.max(pool.joined), ..part }
                };
                let loads: Vec<Load> = numbers.iter().map(load).collect();
                let Some(chosen) = place::instance(&loads, &mut self.random) else {
                    return self.refuse_without_instance(id);
                };
                let instance = numbers[chosen];
                self.pools.get(instance).load.open += 1;
                let exchange = self.exchanges.get(id);
                exchange.instance = Some(instance);
                (exchange.watched.tried_from, exchange.watched.is_last) = (now, false);
                instance
            }
        };
        let pool = &self.pools.all[instance as usize];
        if pool.proxied.is_some() && pool.part.at.member.url.speaks != Speaks::H1 {
            // This is known only now: the instance comes from a registry.
            let why = format!("proxy-protocol needs instances of http://, not {}", pool.part.at.member.url);
            return self.exchanges.get(id).refuse(502, why);
        }
        self.refresh(instance, now);
        self.replace_silent(instance, now);
        let pool = &self.pools.all[instance as usize];
        let chosen = choose(&self.slots, pool);
        let is_lasting =
            chosen.is_some_and(|(chosen, _)| is_lasting(&self.slots, pool.connections[chosen], pool));
        let is_enough = dials::is_enough(chosen.map(|(_, room)| room), is_lasting);
        if let Some((chosen, _)) = chosen {
            let slot = pool.connections[chosen];
            self.pools.get(instance).last = chosen;
            self.send(id, slot, now);
        } else {
            self.wait(id);
        }
        if !is_enough {
            self.dial_more(instance, now);
        }
        self.connect_check(id, instance, now);
    }

    /// A service has no instance that could be asked.
    fn refuse_without_instance(&mut self, id: u32) {
        let service = self.exchanges.get(id).service;
        let unresolved = self.pools.without_address(service);
        let refusal = if unresolved.is_empty() {
            Refusal::new(503, "the service has no instances")
        } else {
            Refusal::new(503, "the service has no instances: their names do not resolve yet")
                .because(ProxyError::DnsError)
                .with_detail(unresolved.join("; "))
                .come_again_after(DEFAULT_RETRY_AFTER)
        };
        self.exchanges.get(id).refusal = Some(refusal);
    }

    /// The connections of an instance that take further requests, and how many.
    pub(super) fn lasting(&self, instance: u32) -> Vec<(u32, Room)> {
        let pool = &self.pools.all[instance as usize];
        let lasting = pool.connections.iter().filter(|slot| is_lasting(&self.slots, **slot, pool));
        lasting.map(|slot| (*slot, room(&self.slots, *slot, pool))).collect()
    }

    /// A request waits for a connection of its instance, or until a connection's engine is established.
    pub(super) fn wait(&mut self, id: u32) {
        // A check of an instance is no load. It shows the state of the instance, and not how long the queue is.
        let is_check = self.exchanges.get(id).watched.probes.is_some();
        if !is_check && !self.may_wait(id) {
            return;
        }
        let exchange = self.exchanges.get(id);
        exchange.seen.waited = true;
        let Some(instance) = exchange.instance else { return };
        exchange.waits = true;
        let pool = self.pools.get(instance);
        pool.waiting += 1;
        if is_check {
            pool.queue.push_front((id, exchange.generation));
        } else {
            pool.queue.push_back((id, exchange.generation));
        }
        if pool.queue.len() > 2 * pool.waiting as usize + QUEUED {
            pool.queue.retain(|(id, generation)| self.exchanges.waits(*id, *generation));
        }
        self.watch(id); // an attempt at this instance has begun, which `timeouts.attempt` bounds
    }

    /// A request waits no longer: it gets a connection, or is over.
    pub(super) fn stop_waiting(&mut self, id: u32) {
        let exchange = self.exchanges.get(id);
        if std::mem::take(&mut exchange.waits)
            && let Some(instance) = exchange.instance
        {
            self.pools.get(instance).waiting -= 1;
        }
    }

    /// A request is no longer counted at its instance; the next one finds another.
    pub(super) fn leave(&mut self, id: u32) {
        self.stop_waiting(id);
        if let Some(instance) = self.exchanges.get(id).instance.take() {
            self.pools.get(instance).load.open -= 1;
            self.wake(instance);
        }
    }

    /// Requests that wait for a connection of this instance may get one.
    pub(super) fn wake(&mut self, instance: u32) {
        if !std::mem::replace(&mut self.pools.get(instance).is_woken, true) {
            self.pools.woken.push(instance);
        }
    }

    /// Advances as many of the requests that wait as there is room for.
    pub(super) fn admit(&mut self) {
        let mut woken = std::mem::take(&mut self.pools.woken);
        for instance in woken.drain(..) {
            let pool = &mut self.pools.all[instance as usize];
            pool.is_woken = false;
            if pool.waiting == 0 {
                continue;
            }
            let rooms = pool.connections.iter().map(|slot| room(&self.slots, *slot, pool).free as usize);
            let mut free: usize = rooms.sum();
            while free > 0
                && let Some((id, generation)) = pool.queue.pop_front()
            {
                if self.exchanges.waits(id, generation) {
                    self.exchanges.get(id).waits = false;
                    pool.waiting -= 1;
                    self.exchanges.stir(id);
                    free -= 1;
                }
            }
            if pool.waiting > 0 {
                // Those that they waited for may be gone, or take no more.
                self.dial_more(instance, self.now);
            }
        }
        if self.pools.woken.is_empty() {
            self.pools.woken = woken; // with its memory
        }
    }

    /// An instance has announced how many streams it takes. Requests that wait may begin. The next connection begins
    /// with as many, until the instance has announced it there.
    pub(super) fn note_settings(&mut self, side: &Side) {
        self.note_spoken(&side.peer, side.version);
        if let Peer::Instance(instance) = side.peer {
            self.pools.get(instance).streams_allowed = side.streams_allowed();
        }
        self.call(side);
    }

    /// An instance may take more requests.
    pub(super) fn call(&mut self, side: &Side) {
        if let Peer::Instance(instance) = side.peer {
            self.wake(instance);
        }
    }

    /// A connection broke.
    pub(super) fn break_off(&mut self, slot: u32, side: Side, error: &TransportError) {
        self.falls_back_at_reset(&side, error);
        let fate = self.fate_of_break(&side, error);
        self.lose_with(slot, side, fate, &after_handshake::words(error));
    }

    /// A connection is no more: what it carried has failed, and its place is free.
    pub(super) fn lose(&mut self, slot: u32, side: Side, why: &str) {
        self.lose_with(slot, side, Fate::Unknown, why);
    }

    /// The same; `fate` is the fate of its requests.
    fn lose_with(&mut self, slot: u32, mut side: Side, fate: Fate, why: &str) {
        self.note_client_end(&mut side, None, self.now);
        self.abandon(&mut side, fate, why);
        self.observer.lost(&mut side, why, self.clock.now());
        if let Peer::Instance(instance) = side.peer {
            self.pools.get(instance).connections.retain(|other| *other != slot);
            self.wake(instance);
        }
        drop(side);
        self.vacate(slot);
    }
}

/// Whether a connection takes further requests, and is not about to reach the number that its instance takes on one.
/// Such connections are replaced before they end, which may take as long as a download.
fn is_lasting(slots: &[Slot], slot: u32, pool: &Pool) -> bool {
    let Slot::Open(side) = &slots[slot as usize] else { return false };
    let is_open = !side.is_closed && !side.engine.is_draining();
    is_open && !side.is_doubted(pool) && !pool.quota.is_low(side.number, side.requests)
}

/// The place, among its connections, of the one that takes an instance's next request, and the room on it.
fn choose(slots: &[Slot], pool: &Pool) -> Option<(usize, Room)> {
    let all = &pool.connections;
    if pool.is_single() {
        // The first idle one after the last that was used: nothing else distinguishes them.
        let turn = (1..=all.len()).map(|step| (pool.last + step) % all.len());
        let mut rooms = turn.map(|place| (place, room(slots, all[place], pool)));
        return rooms.find(|(_, room)| room.free > 0);
    }
    let mut rooms: Vec<Room> = all.iter().map(|slot| room(slots, *slot, pool)).collect();
    let is_silent = |slot: &u32| matches!(&slots[*slot as usize], Slot::Open(side) if side.is_silent(pool));
    if all.iter().any(is_silent) && all.iter().any(|slot| is_lasting(slots, *slot, pool)) {
        // No more requests go to connections that seem to be gone.
        rooms.iter_mut().zip(all).filter(|(_, slot)| is_silent(slot)).for_each(|(room, _)| room.free = 0);
    }
    let chosen = place::connection(&rooms, pool.last)?;
    Some((chosen, rooms[chosen]))
}

/// What a connection can take.
fn room(slots: &[Slot], slot: u32, pool: &Pool) -> Room {
    let Slot::Open(side) = &slots[slot as usize] else { return Room::default() };
    let open = side.streams.len() as u32;
    let left = pool.quota.left(side.number, side.requests);
    let free = match (side.is_closed, pool.policy) {
        (true, _) => 0,
        _ if pool.is_replacing() && side.is_silent(pool) => 0,
        (false, Policy::PerRequest) if open > 0 => 0,
        (false, _) => {
            let known = pool.streams_allowed.filter(|_| !side.engine.is_established());
            side.engine
                .available_streams()
                .min(known.map_or(u32::MAX, |known| known.saturating_sub(open)))
                .min(left)
        }
    };
    let wait = match pool.policy {
        _ if side.is_doubted(pool) => DOUBTED,
        Policy::Adaptive if side.version != Version::H1 => {
            side.path.as_ref().map_or(Duration::ZERO, |path| place::wait(&path.now, path.added))
        }
        _ => Duration::ZERO,
    };
    Room { free, open, wait }
}
