//! Dials connections to instances.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::transport::Transport;
use h2lab_proxy::fields::Version;
use h2lab_proxy::pool::dials::Count;
use h2lab_wire::Connection;

use super::race::Race;
use super::{LONGEST_PAUSE, Pool, is_lasting};
use crate::client::connect::{ConnectError, Dial, DialState, DialTarget, Established};
use crate::sidecar::fallback::Spoken;
use crate::sidecar::scarce::Scarce;
use crate::sidecar::side::{LITTLE, Peer, Side};
use crate::sidecar::{Sidecar, Slot, guard, http3};

/// An instance that could not be reached is dialled again after a pause that doubles with each failure, and is asked last until then.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// How long a request waits if no instance can be reached: one that is restarted is back by then.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that is being dialled.
#[derive(Debug)]
pub struct Dialling {
    dial: Option<Dial>,
    pub(super) instance: u32,
    /// Which of the instance's targets it dials.
    pub(super) target: usize,
    /// It begins with small windows, as QUIC does when it is dialled.
    is_little: bool,
    /// What it is an attempt of.
    pub(super) race: Race,
    /// When the next address is tried beside this one.
    pub(super) next_at: Time,
}

impl Sidecar<'_> {
    /// Dials if the policy wants more connections than there are.
    pub(in crate::sidecar) fn dial_more(&mut self, instance: u32, now: Time) {
        loop {
            let pool = self.pools.get(instance);
            if pool.part.is_leaving {
                return;
            }
            if pool.failures > 0 && pool.dialling > 0 {
                return; // one at a time; how it ends decides
            }
            if now < pool.down_until {
                pool.retry_at = if pool.waiting == 0 { Time::NEVER } else { pool.down_until };
                return;
            }
            let before = pool.dialling;
            if self.lacking(instance) == 0 {
                return;
            }
            self.dial(instance, None, now);
            if self.pools.get(instance).dialling <= before {
                return; // it failed at once, or is established
            }
        }
    }

    /// How many more connections to an instance the policy wants, within all bounds.
    fn lacking(&self, instance: u32) -> usize {
        let pool = &self.pools.all[instance as usize];
        let lasting = pool.connections.iter().filter(|slot| is_lasting(&self.slots, **slot, pool)).count();
        let count = Count { lasting: lasting as u32, dialling: pool.dialling, waiting: pool.waiting };
        let wanted = count.wanted(pool.policy, pool.is_single(), pool.wanted, self.pools.portion) as usize;
        wanted.min(pool.most).saturating_sub(lasting + pool.dialling as usize)
    }

    /// A health check that no connection takes, and for which none is being made, gets a connection of its own beyond
    /// all bounds: if clients use all connections, that says nothing about the instance.
    pub(in crate::sidecar) fn connect_check(&mut self, id: u32, instance: u32, now: Time) {
        let exchange = self.exchanges.get(id);
        let check = (id, exchange.generation);
        if exchange.watched.probes.is_none() || !exchange.waits {
            return;
        }
        let pool = self.pools.get(instance);
        if pool.dialling == 0 && !pool.part.is_leaving && self.lacking(instance) == 0 {
            self.dial(instance, Some(check), now);
        }
    }

    /// Dials a connection: for requests, or for this check alone.
    fn dial(&mut self, instance: u32, check: Option<(u32, u32)>, now: Time) {
        let number = self.totals.dialled as u32;
        self.totals.dialled += 1;
        self.observer.dialled(instance);
        let pool = self.pools.get(instance);
        pool.try_http3(now);
        let race = Race::new(number, pool, check);
        *pool.dials(race) += 1;
        let target = pool.known;
        self.attempt((instance, target), race, now);
    }

    /// Dials one of an instance's addresses.
    pub(super) fn attempt(&mut self, (instance, target): (u32, usize), race: Race, now: Time) {
        let slot = self.free_slot();
        let token = Self::token(slot);
        let is_little = self.guard.is_tight();
        let window = if is_little { LITTLE } else { u32::MAX };
        let (step, to) = {
            let to = self.pools.all[instance as usize].target(target, race);
            let step = Dial::begin(&mut self.reactor, token, race.number, &to, window, now);
            (step, to.address.clone())
        };
        let dialling = Dialling { dial: None, instance, target, is_little, race, next_at: race.next_at(now) };
        self.slots[slot as usize] = Slot::Dialling(Box::new(dialling));
        self.note_dial(slot, &to);
        self.advance_dial(slot, instance, step, now);
    }

    /// Gives up the dials to an instance that is to be dialled otherwise; requests that wait get other ones.
    pub(in crate::sidecar) fn abandon_dials(&mut self, instance: u32) {
        for slot in 0..self.slots.len() as u32 {
            let is_its = |dialling: &Dialling| dialling.instance == instance;
            if matches!(&self.slots[slot as usize], Slot::Dialling(dialling) if is_its(dialling)) {
                self.vacate(slot);
            }
        }
        let pool = self.pools.get(instance);
        (pool.dialling, pool.dialling_for_checks) = (0, 0);
        self.wake(instance);
    }

    /// Continues a dial.
    pub(in crate::sidecar) fn step(
        &mut self,
        slot: u32,
        advance: impl FnOnce(Dial, &DialTarget, Time) -> DialState,
    ) {
        let now = self.now;
        let Slot::Dialling(dialling) = &mut self.slots[slot as usize] else { return };
        let (instance, target) = (dialling.instance, dialling.target);
        let Some(dial) = dialling.dial.take() else { return };
        let pool = self.pools.get(instance);
        let step = advance(dial, &pool.targets[target], now);
        self.advance_dial(slot, instance, step, now);
    }

    fn advance_dial(&mut self, slot: u32, instance: u32, step: DialState, now: Time) {
        let Slot::Dialling(dialling) = &mut self.slots[slot as usize] else { return };
        let (target, race) = (dialling.target, dialling.race);
        match step {
            DialState::Pending(dial) => {
                self.reactor.set_timer(Self::token(slot), dial.deadline().min(dialling.next_at));
                dialling.dial = Some(dial);
            }
            DialState::Established(Established { transport, .. }) => {
                self.win(slot);
                self.connected(slot, (instance, target), transport, now);
            }
            DialState::Failed(_, error) => {
                self.vacate(slot);
                if !self.goes_on((instance, target), race, &error, now) {
                    self.failed((instance, target), race, &error, now);
                }
            }
        }
    }

    /// A connection to an instance is there.
    fn connected(
        &mut self,
        slot: u32,
        (instance, target): (u32, usize),
        mut transport: Transport,
        now: Time,
    ) {
        let Slot::Dialling(dialling) = &self.slots[slot as usize] else { return };
        let (began_with_little, race) = (dialling.is_little, dialling.race);
        let pool = self.pools.get(instance);
        *pool.dials(race) -= 1;
        if pool.part.is_leaving {
            return self.vacate(slot); // before the transport is closed
        }
        (pool.down_until, pool.failures, pool.retry_at) = (Time::ZERO, 0, Time::NEVER);
        if race.check.is_none() {
            pool.connections.push(slot);
        }
        pool.standing.dialled(true);
        let target = &pool.targets[target];
        if target.protocol.is_quic() {
            pool.standing.reached_over_http3();
        }
        let mut config = target.engine;
        let is_tight = self.guard.is_tight();
        if is_tight {
            config.flow.stream_window = config.flow.stream_window.min(LITTLE);
        }
        pool.numbered += 1;
        let number = pool.numbered;
        let (engine, version) = if target.protocol.is_quic() {
            (http3::engine(&mut transport, target, now), Version::H3)
        } else if target.protocol.is_multiplexed() {
            (Connection::h2(config, now), Version::H2)
        } else if pool.is_raw {
            (Connection::tunnel(target.engine), Version::H1)
        } else {
            (Connection::h1(target.engine), Version::H1)
        };
        let mut side = Side::new(transport, engine, version, Peer::Instance(instance));
        side.number = number;
        let is_little = if version == Version::H3 { began_with_little } else { is_tight };
        side.announced_little = is_little || config.flow.stream_window <= LITTLE;
        side.used_at = now;
        side.silence = (version == Version::H3).then(Box::default);
        let of = self.guard.services.get(self.pools.get(instance).service as usize);
        side.watch_peer(of.map_or(&self.config.file.timeouts, |of| &of.timeouts));
        side.watched = self.observer.connected(number, self.pools.get(instance).protocol(), now);
        self.place(slot, side);
        match race.check {
            Some(check) => self.begin_check(check, slot, now),
            None => self.wake(instance),
        }
        self.read(slot);
    }

    /// A connection to an instance could not be made.
    fn failed(&mut self, (instance, target): (u32, usize), race: Race, error: &ConnectError, now: Time) {
        let pool = self.pools.get(instance);
        *pool.dials(race) -= 1;
        if pool.part.is_leaving {
            return;
        }
        let is_quic = pool.targets[target].protocol.is_quic();
        let scarce = Scarce::of_dial(error, &pool.target(target, race).address);
        if let Some(scarce) = scarce {
            self.lacks.count(scarce); // the instance is not to blame
        } else if (error.is_not_spoken() || is_quic) && target + 1 < pool.targets.len() {
            // This is recorded: the next dials begin with what it speaks.
            pool.known = pool.known.max(target + 1);
            if is_quic {
                self.without_http3(instance, error, now);
            }
            return self.dial(instance, race.check, now);
        }
        let pool = self.pools.get(instance);
        if scarce.is_none() {
            pool.standing.dialled(false); // that it was for a check makes no difference
        }
        let name = self.guard.services.get(pool.service as usize).map_or("", |of| of.name.as_str());
        let refusal = match scarce {
            Some(scarce) => scarce.refusal(name, &pool.name),
            None => guard::unreachable(name, &pool.name, error),
        };
        if let Some(check) = race.check {
            return self.fail_check(check, refusal);
        }
        if scarce.is_none() && error.is_not_there() {
            // It is being started anew, and may speak something else then.
            (pool.known, pool.spoken) = (0, Spoken::Unknown);
            pool.standing.starts();
        }
        if scarce.is_none() {
            self.judge(instance, true, now);
        }
        let pool = self.pools.get(instance);
        let why = refusal.detail.as_deref().unwrap_or_default();
        self.observer.unreachable(instance, pool.service, why, now);
        if scarce.is_some() {
            self.guard.note(pool.service, "", refusal.error, why, now); // also if other connections take these
        }
        pool.failures = pool.failures.saturating_add(1);
        pool.down_until = now + (FIRST_PAUSE * (1 << pool.failures.min(6))).min(LONGEST_PAUSE);
        let is_lasting = pool.connections.iter().any(|slot| is_lasting(&self.slots, *slot, pool));
        if matches!(error, ConnectError::QuicTimeout(_)) && !pool.connections.is_empty() {
            // It does not answer on its other connections either: it may be stopped for a while, and continue later.
            return self.wake(instance);
        }
        if is_lasting || pool.dialling > 0 {
            if scarce.is_some() && pool.waiting > 0 {
                pool.retry_at = pool.down_until; // no event of the instance shows when the system has more
            }
            return; // others take them
        }
        for (id, generation) in std::mem::take(&mut pool.queue) {
            if !self.exchanges.waits(id, generation) {
                continue;
            }
            let exchange = self.exchanges.get(id);
            if exchange.watched.probes.is_some() {
                self.fail_check((id, generation), refusal.clone());
                continue;
            }
            let service = exchange.service;
            // After that time a request goes only to instances that have not failed: otherwise it would circulate among
            // instances that do not answer.
            let is_late = now.since(exchange.began_at) >= UNREACHABLE_TIMEOUT;
            let is_there = |other: &Pool| other.down_until <= now && (!is_late || other.failures == 0);
            let others = &self.pools.services[service as usize];
            let has_other = others.iter().any(|other| is_there(&self.pools.all[*other as usize]));
            let gives_up = !self.retries_connections(service) || (is_late && !has_other);
            let exchange = self.exchanges.get(id);
            if !has_other && !gives_up {
                self.pools.get(instance).queue.push_back((id, generation));
                continue;
            }
            if gives_up {
                exchange.refusal = Some(refusal.clone());
            }
            self.leave(id);
            self.exchanges.stir(id);
        }
        self.dial_more(instance, now);
    }

    /// Dials again where that failed a while ago.
    pub(in crate::sidecar) fn retry(&mut self, now: Time) {
        for instance in 0..self.pools.count() {
            let pool = self.pools.get(instance);
            if pool.retry_at <= now {
                pool.retry_at = Time::NEVER;
                self.dial_more(instance, now);
            }
        }
    }
}
