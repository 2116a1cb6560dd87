//! Instances of services: their connections, and the requests that wait for one.

mod status;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::transport::Transport;
use h2lab_proxy::config::{Policy, Speaks};
use h2lab_proxy::fields::Version;
use h2lab_proxy::guard::health::Health;
use h2lab_proxy::pool::estimate::Estimate;
use h2lab_proxy::pool::idle::Idle;
use h2lab_proxy::pool::place::{self, Load, Room};
use h2lab_proxy::pool::portion::Portion;
use h2lab_proxy::pool::quota::Quota;
use h2lab_proxy::proxy_protocol;
use h2lab_proxy::retry::Fate;
use h2lab_wire::Connection;

use super::guard::Standing;
use super::members::{Group, Part};
use super::path::MOST_ADAPTIVE;
use super::side::{Peer, Side};
use super::{Sidecar, Slot, guard};
use crate::client::connect::{ConnectError, Dial, DialState, DialTarget, Established};

/// An instance that could not be reached is dialled again after a pause that doubles with each failure, and is asked last until then.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// See [`FIRST_PAUSE`].
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// For so long a request waits where no instance can be reached: one that is restarted is back by then.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection that does not answer is taken only where there is no other.
const DOUBTED: Duration = Duration::from_secs(60);
/// Connections to an instance at most where each carries one request.
const MOST: u32 = 1_024;

/// A connection that is being dialled.
#[derive(Debug)]
pub struct Dialling {
    dial: Option<Dial>,
    instance: u32,
    /// Which of the instance's targets it dials.
    target: usize,
}

/// An instance of a service.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "what is known of an instance is independent")]
pub struct Pool {
    /// What it is called in messages.
    pub name: String,
    /// What it is beside the others.
    pub part: Part,
    /// The number of its service.
    pub service: u32,
    /// What all loops know of its failures.
    pub standing: Arc<Standing>,
    /// Requests that ended well, of which they do not know yet.
    pub uncounted: u32,
    /// It has failed, so that it is asked last.
    pub is_avoided: bool,
    /// What it says of itself.
    pub health: Health,
    /// A check is under way.
    pub is_probed: bool,
    /// When the next one is due.
    pub probe_at: Time,
    /// Connections that it may have.
    pub most: usize,
    /// It is no HTTP: the target of CONNECTs.
    is_raw: bool,
    /// It is told of the client before each request.
    pub proxied: Option<proxy_protocol::Version>,
    pub policy: Policy,
    /// How it is dialled, in the order of preference.
    pub targets: Vec<DialTarget>,
    /// The one of them that it is known to speak.
    pub known: usize,
    /// Places of its connections, without those that end.
    pub connections: Vec<u32>,
    /// The place in there of the one that got the last request.
    last: usize,
    /// Connections being dialled.
    dialling: u32,
    /// Requests that wait for a connection.
    pub waiting: VecDeque<(u32, u32)>,
    pub load: Load,
    /// When a response of it was measured last.
    answered_at: Time,
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
    /// After which time without a request it does.
    pub idle: Idle,
    /// Connections that there have been.
    numbered: u32,
    /// How many connections its path needs.
    pub estimate: Estimate,
    /// The same, when it was last looked at.
    pub wanted: u32,
    /// When the paths of its connections were last read.
    pub read_at: Time,
    /// It has asked for fewer PINGs: it gets none.
    pub refuses_pings: bool,
}

impl Pool {
    /// Whether it may be asked as any other.
    pub fn is_fit(&self, now: Time) -> bool {
        self.standing.is_fit(now)
    }

    /// What a response takes, as far as that is remembered.
    fn takes(&self, now: Time) -> Option<Duration> {
        let age = now.since(self.answered_at);
        self.load.takes.map(|takes| place::remembered(takes, age))
    }

    /// It does not answer: others are asked for a while.
    pub fn doubt(&mut self, now: Time) {
        self.down_until = now + LONGEST_PAUSE;
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
            health: Health::default(),
            is_probed: false,
            probe_at: Time::ZERO,
            most: usize::MAX,
            is_raw,
            proxied: None,
            policy,
            targets,
            known: 0,
            connections: Vec::new(),
            last: 0,
            dialling: 0,
            waiting: VecDeque::new(),
            load: Load::default(),
            answered_at: Time::ZERO,
            down_until: Time::ZERO,
            failures: 0,
            retry_at: Time::NEVER,
            is_woken: false,
            quota: Quota::default(),
            idle: Idle::default(),
            numbered: 0,
            estimate: Estimate::new(Time::ZERO),
            wanted: 1,
            read_at: Time::ZERO,
            refuses_pings: false,
        }
    }

    /// Whether each of its connections carries one request at a time.
    pub fn is_single(&self) -> bool {
        self.policy == Policy::PerRequest || !self.targets[self.known].protocol.is_multiplexed()
    }

    /// Whether nothing is under way there but what connections that end still carry.
    pub const fn is_idle(&self) -> bool {
        self.load.open == 0 && self.dialling == 0
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
        let exchange = self.exchanges.get(id);
        let instance = match exchange.instance {
            Some(instance) => instance,
            None if exchange.watched.probes.is_some() => {
                return exchange.refuse(502, "the instance cannot be reached");
            }
            None => {
                let avoids = exchange.watched.avoids;
                let numbers = &self.pools.services[service];
                let load = |number: &u32| {
                    let pool = &self.pools.all[*number as usize];
                    let is_down = now < pool.down_until || pool.is_avoided || avoids == Some(*number);
                    Load { is_down, takes: pool.takes(now), ..pool.part.load(pool.load, now) }
                };
                let loads: Vec<Load> = numbers.iter().map(load).collect();
                let Some(chosen) = place::instance(&loads, &mut self.random) else {
                    return self.exchanges.get(id).refuse(503, "the service has no instance");
                };
                let instance = numbers[chosen];
                self.pools.get(instance).load.open += 1;
                self.exchanges.get(id).instance = Some(instance);
                instance
            }
        };
        self.refresh(instance, now);
        let pool = &self.pools.all[instance as usize];
        let chosen = choose(&self.slots, pool);
        let is_enough = chosen.is_some_and(|(chosen, is_idle)| {
            is_idle && is_lasting(&self.slots, pool.connections[chosen], pool)
        });
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
    }

    /// The connections of an instance that take further requests, and how many.
    pub(super) fn lasting(&self, instance: u32) -> Vec<(u32, Room)> {
        let pool = &self.pools.all[instance as usize];
        let lasting = pool.connections.iter().filter(|slot| is_lasting(&self.slots, **slot, pool));
        lasting.map(|slot| (*slot, room(&self.slots, *slot, pool))).collect()
    }

    /// A request waits for a connection of its instance, or for what one still has to learn.
    pub(super) fn wait(&mut self, id: u32) {
        if !self.may_wait(id) {
            return;
        }
        let exchange = self.exchanges.get(id);
        exchange.waits = true;
        exchange.seen.waited = true;
        let waiting = (id, exchange.generation);
        if let Some(instance) = exchange.instance {
            self.pools.get(instance).waiting.push_back(waiting);
        }
    }

    /// Dials if the policy wants more connections than there are.
    pub(super) fn dial_more(&mut self, instance: u32, now: Time) {
        let portion = self.pools.portion;
        loop {
            let pool = self.pools.get(instance);
            if pool.part.is_leaving {
                return;
            }
            let lasting =
                pool.connections.iter().filter(|slot| is_lasting(&self.slots, **slot, pool)).count();
            let there = lasting + pool.dialling as usize;
            if pool.failures > 0 && pool.dialling > 0 {
                return; // one at a time; how it ends decides
            }
            if now < pool.down_until {
                pool.retry_at = if pool.waiting.is_empty() { Time::NEVER } else { pool.down_until };
                return;
            }
            let wanted = match pool.policy {
                _ if pool.is_single() => {
                    // One for each that waits; those being dialled are for the first of them.
                    (lasting + pool.waiting.len()).min(portion.part(MOST) as usize)
                }
                Policy::Adaptive => {
                    // All streams are taken, too: one more at a time.
                    let is_full = !pool.waiting.is_empty() && pool.dialling == 0;
                    let wanted = pool.wanted.max(1) as usize;
                    if is_full {
                        wanted.max(there + 1).min(portion.part(MOST_ADAPTIVE) as usize)
                    } else {
                        wanted
                    }
                }
                // One at a time: the next when this one is busy, too.
                Policy::Fixed(n) if pool.dialling == 0 => (portion.part(n) as usize).min(there + 1),
                _ => there,
            };
            if there >= wanted.min(pool.most) {
                return;
            }
            let before = pool.dialling;
            self.dial(instance, now);
            if self.pools.get(instance).dialling <= before {
                return; // it failed at once, or is established
            }
        }
    }

    fn dial(&mut self, instance: u32, now: Time) {
        let slot = self.free_slot();
        let token = Self::token(slot);
        let number = self.totals.dialled as u32;
        self.totals.dialled += 1;
        self.observer.dialled(instance);
        let pool = self.pools.get(instance);
        pool.dialling += 1;
        let target = pool.known;
        let step = Dial::begin(&mut self.reactor, token, number, &pool.targets[target], u32::MAX, now);
        self.slots[slot as usize] = Slot::Dialling(Box::new(Dialling { dial: None, instance, target }));
        self.advance_dial(slot, instance, step, now);
    }

    /// Continues a dial.
    pub(super) fn step(&mut self, slot: u32, advance: impl FnOnce(Dial, &DialTarget, Time) -> DialState) {
        let now = self.now;
        let Slot::Dialling(dialling) = &mut self.slots[slot as usize] else { return };
        let (instance, target) = (dialling.instance, dialling.target);
        let Some(dial) = dialling.dial.take() else { return };
        let pool = self.pools.get(instance);
        let step = advance(dial, &pool.targets[target], now);
        self.advance_dial(slot, instance, step, now);
    }

    fn advance_dial(&mut self, slot: u32, instance: u32, step: DialState, now: Time) {
        let target = match &self.slots[slot as usize] {
            Slot::Dialling(dialling) => dialling.target,
            _ => 0,
        };
        match step {
            DialState::Pending(dial) => {
                self.reactor.set_timer(Self::token(slot), dial.deadline());
                if let Slot::Dialling(dialling) = &mut self.slots[slot as usize] {
                    dialling.dial = Some(dial);
                }
            }
            DialState::Established(Established { transport, .. }) => {
                self.connected(slot, (instance, target), transport, now);
            }
            DialState::Failed(_, error) => {
                self.vacate(slot);
                self.failed((instance, target), &error, now);
            }
        }
    }

    /// A connection to an instance is there.
    fn connected(&mut self, slot: u32, (instance, target): (u32, usize), transport: Transport, now: Time) {
        let pool = self.pools.get(instance);
        pool.dialling -= 1;
        if pool.part.is_leaving {
            return self.vacate(slot); // before the transport is closed
        }
        (pool.down_until, pool.failures, pool.retry_at) = (Time::ZERO, 0, Time::NEVER);
        pool.connections.push(slot);
        let target = &pool.targets[target];
        pool.numbered += 1;
        let number = pool.numbered;
        let (engine, version) = if target.protocol.is_multiplexed() {
            (Connection::h2(target.engine, now), Version::H2)
        } else if pool.is_raw {
            (Connection::tunnel(target.engine), Version::H1)
        } else {
            (Connection::h1(target.engine), Version::H1)
        };
        let mut side = Side::new(transport, engine, version, Peer::Instance(instance));
        side.number = number;
        side.watch_peer(&self.config.file.timeouts);
        side.watched = self.observer.connected(number, self.pools.get(instance).protocol(), now);
        self.place(slot, side);
        self.wake(instance);
        self.read(slot);
    }

    /// A connection to an instance could not be made.
    fn failed(&mut self, (instance, target): (u32, usize), error: &ConnectError, now: Time) {
        let pool = self.pools.get(instance);
        pool.dialling -= 1;
        if pool.part.is_leaving {
            return;
        }
        if error.is_not_spoken() && target + 1 < pool.targets.len() {
            // It is remembered: the next ones begin with what it speaks.
            pool.known = pool.known.max(target + 1);
            return self.dial(instance, now);
        }
        if error.is_not_there() {
            // It is being started anew, and may speak something else then.
            pool.known = 0;
            pool.standing.starts();
        }
        self.judge(instance, true, now);
        let why = format!("cannot connect to {}: {error}", self.pools.name(instance));
        self.observer.unreachable(instance, &why, now);
        let pool = self.pools.get(instance);
        pool.failures = pool.failures.saturating_add(1);
        pool.down_until = now + (FIRST_PAUSE * (1 << pool.failures.min(6))).min(LONGEST_PAUSE);
        let is_lasting = pool.connections.iter().any(|slot| is_lasting(&self.slots, *slot, pool));
        if is_lasting || pool.dialling > 0 {
            return; // others take them
        }
        let name = self.guard.services.get(pool.service as usize).map_or("", |of| of.name.as_str());
        let refusal = guard::unreachable(name, &pool.name, error);
        for (id, generation) in std::mem::take(&mut pool.waiting) {
            let exchange = self.exchanges.get(id);
            if !exchange.is_open || exchange.generation != generation || !exchange.waits {
                continue;
            }
            let others = &self.pools.services[exchange.service as usize];
            let has_other = others.iter().any(|other| self.pools.all[*other as usize].down_until <= now);
            let service = exchange.service;
            let is_late = now.since(exchange.began_at) >= UNREACHABLE_TIMEOUT;
            let is_late = is_late || !self.retries_connections(service);
            let exchange = self.exchanges.get(id);
            if !has_other && !is_late {
                self.pools.get(instance).waiting.push_back((id, generation));
                continue;
            }
            exchange.waits = false;
            if is_late {
                exchange.refusal = Some(refusal.clone());
            }
            self.leave(id);
            self.exchanges.stir(id);
        }
        self.dial_more(instance, now);
    }

    /// Dials again where that failed a while ago.
    pub(super) fn retry(&mut self, now: Time) {
        for instance in 0..self.pools.count() {
            let pool = self.pools.get(instance);
            if pool.retry_at <= now {
                pool.retry_at = Time::NEVER;
                self.dial_more(instance, now);
            }
        }
    }

    /// A request is no longer counted at its instance; the next one finds another.
    pub(super) fn leave(&mut self, id: u32) {
        if let Some(instance) = self.exchanges.get(id).instance.take() {
            self.pools.get(instance).load.open -= 1;
            self.wake(instance);
        }
    }

    /// Requests that wait for a connection of this instance may get one.
    fn wake(&mut self, instance: u32) {
        if !std::mem::replace(&mut self.pools.get(instance).is_woken, true) {
            self.pools.woken.push(instance);
        }
    }

    /// As many of the requests that wait as there is room for are advanced.
    pub(super) fn admit(&mut self) {
        let mut woken = std::mem::take(&mut self.pools.woken);
        for instance in woken.drain(..) {
            let pool = &mut self.pools.all[instance as usize];
            pool.is_woken = false;
            if pool.waiting.is_empty() {
                continue;
            }
            let rooms = pool.connections.iter().map(|slot| room(&self.slots, *slot, pool).free as usize);
            let mut free: usize = rooms.sum();
            while free > 0
                && let Some((id, generation)) = pool.waiting.pop_front()
            {
                let exchange = self.exchanges.get(id);
                if exchange.is_open && exchange.generation == generation && exchange.waits {
                    exchange.waits = false;
                    self.exchanges.stir(id);
                    free -= 1;
                }
            }
            if !pool.waiting.is_empty() {
                // Those that they waited for may be gone, or take no more.
                self.dial_more(instance, self.now);
            }
        }
        if self.pools.woken.is_empty() {
            self.pools.woken = woken; // with its memory
        }
    }

    /// An instance may take more requests.
    pub(super) fn call(&mut self, side: &Side) {
        if let Peer::Instance(instance) = side.peer {
            self.wake(instance);
        }
    }

    /// A connection is no more: what it carried has failed, and its place is free.
    pub(super) fn lose(&mut self, slot: u32, mut side: Side, why: &str) {
        self.abandon(&mut side, Fate::Unknown, why);
        self.observer.lost(&mut side, why, self.clock.now());
        if let Peer::Instance(instance) = side.peer {
            self.pools.get(instance).connections.retain(|other| *other != slot);
            self.wake(instance);
        }
        drop(side);
        self.vacate(slot);
    }
}

/// Whether a connection takes further requests, and is not about to have had all that its instance takes on one: others are replaced
/// before they end, which may take as long as a download.
fn is_lasting(slots: &[Slot], slot: u32, pool: &Pool) -> bool {
    let Slot::Open(side) = &slots[slot as usize] else { return false };
    let is_open = !side.is_closed && !side.engine.is_draining();
    is_open && !side.liveness.is_doubted() && !pool.quota.is_low(pool.quota.left(side.number, side.requests))
}

/// The place among its connections of the one that takes an instance's next request, and whether that carries no other.
fn choose(slots: &[Slot], pool: &Pool) -> Option<(usize, bool)> {
    let all = &pool.connections;
    if pool.is_single() {
        // The first in turn that is idle: nothing else tells them apart.
        let mut turn = (1..=all.len()).map(|step| (pool.last + step) % all.len());
        return turn.find(|place| room(slots, all[*place], pool).free > 0).map(|place| (place, true));
    }
    let rooms: Vec<Room> = all.iter().map(|slot| room(slots, *slot, pool)).collect();
    let chosen = place::connection(&rooms, pool.last)?;
    Some((chosen, rooms[chosen].open == 0))
}

/// What a connection can take.
fn room(slots: &[Slot], slot: u32, pool: &Pool) -> Room {
    let Slot::Open(side) = &slots[slot as usize] else { return Room::default() };
    let open = side.streams.len() as u32;
    let left = pool.quota.left(side.number, side.requests);
    let free = match (side.is_closed, pool.policy) {
        (true, _) => 0,
        (false, Policy::PerRequest) if open > 0 => 0,
        (false, _) => side.engine.available_streams().min(left),
    };
    let wait = match pool.policy {
        _ if side.liveness.is_doubted() => DOUBTED,
        Policy::Adaptive if side.version != Version::H1 => place::wait(&side.path.now, side.path.added),
        _ => Duration::ZERO,
    };
    Room { free, open, wait }
}
