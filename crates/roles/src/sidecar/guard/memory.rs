//! The memory that connections and exchanges hold, and what is given up when it becomes short.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::quic::QuicSession;
use h2lab_net::resources::give_back_freed_memory;
use h2lab_net::transport::Transport;
use h2lab_proxy::guard::memory::{Memory, Pressure};

use super::super::buffers::SpareBuffers;
use super::super::exchange::Exchange;
use super::super::side::{Peer, Side};
use super::super::threads::Shared;
use super::super::{Sidecar, Slot};
use super::Guard;
use h2lab_wire::StreamId;

/// What a TLS session holds beside its connection.
const TLS: usize = 24 * 1024;
/// The same of QUIC, and of the buffers of its datagrams and the streams that it has granted: 145 KiB were measured, engine included.
const QUIC: usize = 128 * 1024;
/// A loop tells the others of so many bytes at once, while it works.
const STEP: u64 = 32 * 1024;
/// How often freed memory is given back to the kernel at most: that takes milliseconds.
const GIVE_BACK_PERIOD: Duration = Duration::from_millis(500);
/// Windows of all connections while memory is short.
const SHORT_WINDOW: u32 = 64 * 1024;

/// What this loop holds, by connection and by exchange.
#[derive(Debug)]
pub struct Held {
    memory: Memory,
    slots: Vec<u64>,
    exchanges: Vec<u64>,
    /// All of this loop.
    all: u64,
    /// Of this, what all loops know of.
    told: u64,
    /// What other loops hold.
    others: u64,
    shared: Arc<Shared>,
    /// The pressure that windows were set for.
    applied: Pressure,
    /// The bound.
    bytes: u64,
    /// The most that all loops have held since freed memory was given back to the kernel, and when it may be again.
    most: u64,
    give_back_at: Time,
}

impl Held {
    /// Nothing, of so many bytes for the process.
    pub fn new(bytes: u64, shared: Arc<Shared>) -> Self {
        Self {
            memory: Memory::new(bytes, shared.threads()),
            slots: Vec::new(),
            exchanges: Vec::new(),
            all: 0,
            told: 0,
            others: 0,
            shared,
            applied: Pressure::None,
            bytes,
            most: 0,
            give_back_at: Time::ZERO,
        }
    }

    /// What all loops hold.
    const fn sum(&self) -> u64 {
        self.all + self.others
    }

    /// Tells the others what this loop holds, and finds out what they do.
    fn tell(&mut self) {
        let held = &self.shared.held;
        let sum = match self.all.checked_sub(self.told) {
            Some(0) => held.load(Ordering::Relaxed),
            Some(more) => held.fetch_add(more, Ordering::Relaxed) + more,
            None => held.fetch_sub(self.told - self.all, Ordering::Relaxed) - (self.told - self.all),
        };
        self.told = self.all;
        self.others = sum - self.all;
        self.memory.holds(sum);
    }

    /// Gives back to the kernel what was freed, if that is an eighth of the bound or more. It stays with the thread that has freed it, and
    /// others would take as much again.
    fn give_back(&mut self, now: Time) {
        let held = self.sum();
        self.most = self.most.max(held);
        if held + self.bytes / 8 <= self.most && now >= self.give_back_at {
            (self.most, self.give_back_at) = (held, now + GIVE_BACK_PERIOD);
            give_back_freed_memory();
        }
    }

    fn set(&mut self, of_slots: bool, index: usize, bytes: usize) {
        let list = if of_slots { &mut self.slots } else { &mut self.exchanges };
        if list.len() <= index {
            list.resize(index + 1, 0);
        }
        let before = std::mem::replace(&mut list[index], bytes as u64);
        self.all = self.all + bytes as u64 - before;
        if self.all.abs_diff(self.told) >= STEP {
            self.tell();
        } else {
            self.memory.holds(self.sum());
        }
    }
}

/// What a connection's transport holds in any case.
fn transport(transport: &Transport) -> usize {
    match transport {
        Transport::Quic(_) => QUIC,
        Transport::Stream(_) if transport.is_tls() => TLS,
        Transport::Stream(_) => 0,
    }
}

fn held_by(side: &mut Side) -> usize {
    // Of TCP the kernel keeps what is not acknowledged, and bounds it itself.
    let unacknowledged = side.transport.quic_mut().map_or(0, QuicSession::unacknowledged);
    let own = size_of::<Side>() + side.engine.held_bytes() + side.streams.len() * 16;
    own + transport(&side.transport) + unacknowledged as usize
}

fn held_in(exchange: &Exchange) -> usize {
    let heads = exchange.head.held()
        + exchange.spare.held()
        + exchange.answer.as_ref().map_or(0, h2lab_proxy::head::Head::held);
    size_of::<Exchange>() + heads + exchange.request.held() + exchange.response.held()
}

impl Guard {
    /// Finds out what other loops hold.
    pub fn look_at_memory(&mut self) {
        if let Some(held) = &mut self.held {
            held.tell();
        }
    }

    /// How short memory is.
    pub fn pressure(&self) -> Pressure {
        self.held.as_ref().map_or(Pressure::None, |held| held.memory.pressure())
    }
}

impl Sidecar<'_> {
    /// What a connection holds may have changed.
    pub(in super::super) fn weigh_slot(&mut self, slot: u32) {
        let Some(held) = &mut self.guard.held else { return };
        let bytes = match &mut self.slots[slot as usize] {
            Slot::Open(side) => held_by(side),
            Slot::Empty => 0,
            Slot::Opening(opening) => transport(&opening.transport).max(TLS),
            Slot::Dialling(_) => TLS,
        };
        held.set(true, slot as usize, bytes);
    }

    /// What an exchange holds may have changed.
    pub(in super::super) fn weigh_exchange(&mut self, id: u32) {
        let Some(held) = &mut self.guard.held else { return };
        held.set(false, id as usize, held_in(self.exchanges.get(id)));
    }

    /// Whether nothing is read of a connection until memory is free again: an instance would send what nobody takes.
    pub(in super::super) fn is_held_back(&self, side: &Side) -> bool {
        let is_instance = matches!(side.peer, Peer::Instance(_));
        is_instance && side.streams.len() > 0 && self.guard.pressure() == Pressure::Full
    }

    /// Gives up what there is no memory for.
    pub(in super::super) fn relieve(&mut self) {
        let Some(held) = &mut self.guard.held else { return };
        held.tell();
        if self.number == 0 {
            held.give_back(self.now);
        }
        let pressure = held.memory.pressure();
        if pressure == Pressure::None && held.applied == Pressure::None {
            return;
        }
        let changed = std::mem::replace(&mut held.applied, pressure) != pressure;
        self.spare = SpareBuffers::default();
        for id in self.exchanges.trim() {
            self.weigh_exchange(id);
        }
        if changed {
            let window = if pressure == Pressure::None { u32::MAX } else { SHORT_WINDOW };
            for (number, slot) in self.slots.iter_mut().enumerate() {
                let Slot::Open(side) = slot else { continue };
                side.engine.set_window_limit(window);
                side.limit_quic(pressure == Pressure::None, window);
                let number = number as u32;
                if pressure != Pressure::Full && side.has_unread() && !self.unread.contains(&number) {
                    self.unread.push(number);
                }
            }
        }
        if pressure == Pressure::Full {
            self.close_largest();
        }
    }

    /// Closes the connections of clients that hold most, until enough is free.
    fn close_largest(&mut self) {
        let Some(held) = &self.guard.held else { return };
        // Each loop gives up its part of it.
        let part =
            u128::from(held.memory.excess(held.sum())) * u128::from(held.all) / u128::from(held.sum().max(1));
        let excess = part as u64;
        let of_exchange = |(_, id): (StreamId, u32)| held.exchanges.get(id as usize).copied().unwrap_or(0);
        let mut clients: Vec<(u64, u32)> = Vec::new();
        for (slot, bytes) in held.slots.iter().enumerate() {
            if let Some(Slot::Open(side)) = self.slots.get(slot)
                && matches!(side.peer, Peer::Client { .. })
            {
                let own: u64 = side.streams.iter().map(of_exchange).sum();
                clients.push((bytes + own, slot as u32));
            }
        }
        clients.sort_unstable();
        let mut freed = 0;
        while freed < excess
            && let Some((bytes, slot)) = clients.pop()
        {
            freed += bytes;
            if let Some(side) = self.take_side(slot) {
                self.guard.closed += 1;
                self.lose(slot, *side, "memory is short");
            }
        }
    }
}
