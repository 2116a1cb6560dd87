//! A connection is tried at several addresses, if the name of an instance has several (RFC 8305 §5).
//!
//! They are tried in the order of the resolver, from the one that answered last. If an address refuses, the next one is
//! tried at once. If it has not answered after [`NEXT`], the next one is tried beside it. The first that accepts gets
//! the connection; the other attempts are given up.

use std::borrow::Cow;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::tcp::Endpoint;

use super::{Dialling, Pool};
use crate::client::connect::{ConnectError, DialTarget};
use crate::sidecar::scarce::Scarce;
use crate::sidecar::{Sidecar, Slot};

/// After that time without an answer the next address is tried, too (RFC 8305 §8).
const NEXT: Duration = Duration::from_millis(250);

/// A connection that is wanted, and the attempt at it.
#[derive(Debug, Clone, Copy)]
pub struct Race {
    /// All attempts at it have this number.
    pub number: u32,
    /// The address of this attempt, by its place among the addresses.
    pub address: usize,
    /// Addresses that no attempt has tried yet; 0 for all but the last attempt.
    pub left: usize,
    /// There are, or were when it began, several addresses.
    is_one_of_several: bool,
    /// The check that the connection is for, and for nothing else: number and generation of its exchange.
    pub check: Option<(u32, u32)>,
}

impl Race {
    /// Its first attempt.
    pub fn new(number: u32, pool: &Pool, check: Option<(u32, u32)>) -> Self {
        let left = pool.part.at.others.len();
        Self { number, address: pool.first_address % (left + 1), left, is_one_of_several: left > 0, check }
    }

    /// The next attempt, at one of `addresses` addresses.
    fn next(self, addresses: usize) -> Self {
        Self { address: (self.address + 1) % addresses, left: self.left.saturating_sub(1), ..self }
    }

    /// When that is due, if this attempt begins now and is not over then.
    pub fn next_at(self, now: Time) -> Time {
        if self.left > 0 { now + NEXT } else { Time::NEVER }
    }
}

impl Pool {
    /// How it is dialled, at the address of this attempt.
    pub fn target(&self, target: usize, race: Race) -> Cow<'_, DialTarget> {
        let target = &self.targets[target];
        let others = &self.part.at.others;
        match race.address.checked_sub(1).and_then(|place| others.get(place)) {
            Some(address) => {
                let mut target = target.clone();
                target.address = Endpoint::Tcp(*address);
                Cow::Owned(target)
            }
            None => Cow::Borrowed(target),
        }
    }

    /// How many connections of this kind are being dialled.
    pub const fn dials(&mut self, race: Race) -> &mut u32 {
        if race.check.is_some() { &mut self.dialling_for_checks } else { &mut self.dialling }
    }

    const fn addresses(&self) -> usize {
        1 + self.part.at.others.len()
    }
}

impl Sidecar<'_> {
    /// The deadline of a dial, or the time for the next address, may have come.
    pub(in crate::sidecar) fn expire_dial(&mut self, slot: u32) {
        let now = self.now;
        if let Slot::Dialling(dialling) = &mut self.slots[slot as usize]
            && dialling.next_at <= now
        {
            let (of, race) = ((dialling.instance, dialling.target), dialling.race);
            (dialling.race.left, dialling.next_at) = (0, Time::NEVER);
            let addresses = self.pools.get(of.0).addresses();
            self.attempt(of, race.next(addresses), now);
        }
        self.step(slot, |dial, _, now| dial.expire(now));
    }

    /// An address has accepted: the attempts at the others are given up, and from now on this address is tried first.
    pub(in crate::sidecar) fn win(&mut self, slot: u32) {
        let Slot::Dialling(dialling) = &mut self.slots[slot as usize] else { return };
        let (instance, race) = (dialling.instance, dialling.race);
        if !race.is_one_of_several {
            return;
        }
        self.pools.all[instance as usize].first_address = race.address;
        (dialling.race.left, dialling.next_at) = (0, Time::NEVER);
        for other in (0..self.slots.len() as u32).filter(|other| *other != slot) {
            if is_of(&self.slots[other as usize], instance, race.number) {
                self.vacate(other);
            }
        }
    }

    /// Gives up what is dialled for a check of this instance that is over.
    pub(in crate::sidecar) fn abandon_checks(&mut self, instance: u32) {
        if self.pools.get(instance).dialling_for_checks == 0 {
            return;
        }
        self.pools.get(instance).dialling_for_checks = 0;
        for slot in 0..self.slots.len() as u32 {
            let is_its = |of: &Dialling| of.instance == instance && of.race.check.is_some();
            if matches!(&self.slots[slot as usize], Slot::Dialling(of) if is_its(of)) {
                self.vacate(slot);
            }
        }
    }

    /// Whether other attempts at a connection remain after one has failed.
    pub(super) fn goes_on(
        &mut self,
        (instance, target): (u32, usize),
        race: Race,
        error: &ConnectError,
        now: Time,
    ) -> bool {
        if !race.is_one_of_several {
            return false;
        }
        let pool = &self.pools.all[instance as usize];
        let addresses = pool.addresses();
        let is_nobody_there =
            error.is_not_there() || matches!(error, ConnectError::NoUdp | ConnectError::QuicTimeout(_));
        let is_our_lack = Scarce::of_dial(error, &pool.target(target, race).address).is_some();
        if race.left > 0 && is_nobody_there && !is_our_lack && !pool.part.is_leaving {
            self.attempt((instance, target), race.next(addresses), now);
            return true;
        }
        self.slots.iter().any(|slot| is_of(slot, instance, race.number))
    }
}

/// Whether an attempt at this connection is in this place.
fn is_of(slot: &Slot, instance: u32, number: u32) -> bool {
    matches!(slot, Slot::Dialling(other) if other.instance == instance && other.race.number == number)
}
