//! The memory that connections and exchanges hold, and what is given up when it becomes short.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use h2lab_base::units::{Time, nanos};
use h2lab_net::quic::QuicSession;
use h2lab_net::resources::{OwnMemory, give_back_freed_memory, keep_little_freed_memory};
use h2lab_net::transport::Transport;
use h2lab_proxy::fields::Version;
use h2lab_proxy::guard::memory::{Memory, Pressure};
use h2lab_wire::ErrorCode;

use super::super::buffers::SpareBuffers;
use super::super::exchange::Exchange;
use super::super::side::{LITTLE, Peer, Side};
use super::super::threads::Shared;
use super::super::{Sidecar, Slot, mark};
use super::Guard;

/// What a TLS session holds beside its connection.
const TLS: usize = 24 * 1024;
/// The same of QUIC, and of the buffers of its datagrams and the streams that it has granted: 145 KiB were measured, engine included.
const QUIC: usize = 128 * 1024;
/// A loop reports to the others in steps of so many bytes, while it works.
const STEP: u64 = 32 * 1024;
/// How often freed memory is given back to the kernel at most: that takes milliseconds.
const GIVE_BACK_PERIOD: Duration = Duration::from_millis(500);
/// How often the kernel is asked what the process has.
const MEASURE_PERIOD: Duration = Duration::from_millis(250);
/// The part of what is reserved for the program that lies in its file: it is not measured.
const CODE: u64 = 8 << 20;
/// How often waiting bytes are moved into as little memory as they need, while memory is short.
const SHRINK_PERIOD: Duration = Duration::from_secs(1);
/// Memory has been enough for so long before connections begin with large windows again.
const GROW_AFTER: Duration = Duration::from_secs(30);
/// A recipient that has taken nothing for so long is slow.
const SLOW: Duration = Duration::from_secs(1);
/// The message to the operator about a connection that was closed for this.
const WHY: &str = "memory limit reached: the proxy closed this connection, which held much of it";

/// What this loop holds, by connection and by exchange.
#[derive(Debug)]
pub struct Held {
    memory: Memory,
    slots: Vec<u64>,
    exchanges: Vec<u64>,
    /// For the diagnosis.
    kept: u64,
    /// All of this loop.
    all: u64,
    /// Of this, what was reported to all loops.
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
    /// The kernel's figures, and when they are read next. Only the first loop reads them.
    own: Option<OwnMemory>,
    measure_at: Time,
    /// When bodies are put into less memory next.
    shrink_at: Time,
    /// Something was not read of instances, since memory was full.
    has_unread: bool,
    /// Connections have small windows and buffers, or announced small ones when they began.
    has_little: bool,
    /// When connections to instances that announced little give way to others.
    grow_at: Time,
}

impl Held {
    /// Nothing is held yet, of `bytes` bytes for the process.
    pub fn new(bytes: u64, shared: Arc<Shared>) -> Self {
        keep_little_freed_memory();
        Self {
            own: OwnMemory::open(),
            measure_at: Time::ZERO,
            shrink_at: Time::ZERO,
            has_unread: false,
            has_little: false,
            grow_at: Time::NEVER,
            memory: Memory::new(bytes, shared.threads()),
            slots: Vec::new(),
            exchanges: Vec::new(),
            kept: 0,
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

    /// What all loops hold, as far as they count it.
    const fn counted(&self) -> u64 {
        self.all + self.others
    }

    /// The same with what the process was found to have beyond that: what the allocator could not give back, and what
    /// is not counted. This part is at most as much again: memory that cannot be freed by closing connections must not
    /// stop everything.
    fn sum(&self) -> u64 {
        let counted = self.counted();
        counted + self.shared.slack.load(Ordering::Relaxed).min(counted)
    }

    /// Determines how short memory is, from the last result of any loop.
    fn judge(&mut self) {
        let level = &self.shared.pressure;
        let before = level.load(Ordering::Relaxed);
        self.memory.resume(of_number(before));
        let now = self.memory.holds(self.sum()) as u8;
        if now != before {
            level.store(now, Ordering::Relaxed);
        }
    }

    /// Asks the kernel what the process has beyond what is counted. If that is more than the program needs, what was freed is given back
    /// first: it costs milliseconds, and only what is left then counts.
    fn measure(&mut self, now: Time) {
        let Some(own) = self.own.as_ref().filter(|_| now >= self.measure_at) else { return };
        self.measure_at = now + MEASURE_PERIOD;
        let reserved = self.bytes.saturating_sub(self.memory.room() + CODE);
        let beyond = |held: u64| own.now().saturating_sub(held + reserved);
        let mut slack = beyond(self.counted());
        if slack > 0 && now >= self.give_back_at {
            self.give_back_at = now + GIVE_BACK_PERIOD;
            give_back_freed_memory();
            slack = beyond(self.counted());
        }
        self.shared.slack.store(slack, Ordering::Relaxed);
    }

    /// Reports to the others what this loop holds, and reads what they hold.
    fn tell(&mut self) {
        let held = &self.shared.held;
        let sum = match self.all.checked_sub(self.told) {
            Some(0) => held.load(Ordering::Relaxed),
            Some(more) => held.fetch_add(more, Ordering::Relaxed) + more,
            None => held.fetch_sub(self.told - self.all, Ordering::Relaxed) - (self.told - self.all),
        };
        self.told = self.all;
        self.others = sum - self.all;
        self.judge();
    }

    /// Gives back to the kernel what was freed, if that is an eighth of the bound or more. It stays with the thread that has freed it, and
    /// others would take as much again.
    fn give_back(&mut self, now: Time) {
        let held = self.counted();
        self.most = self.most.max(held);
        if held + self.bytes / 8 <= self.most && now >= self.give_back_at {
            (self.most, self.give_back_at) = (held, now + GIVE_BACK_PERIOD);
            give_back_freed_memory();
        }
    }

    /// So much is kept for the diagnosis, which has its own bound.
    const fn keep(&mut self, bytes: u64) {
        self.all = self.all + bytes - self.kept;
        self.kept = bytes;
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
            self.judge();
        }
    }
}

/// The pressure with this number.
const fn of_number(number: u8) -> Pressure {
    match number {
        0 => Pressure::None,
        1 => Pressure::Tight,
        2 => Pressure::Shed,
        _ => Pressure::Full,
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
    // Of TCP the kernel keeps what is not acknowledged and what is not read, and bounds it itself.
    let kept = |quic: &mut QuicSession| quic.unacknowledged().saturating_add(quic.unread());
    let kept = side.transport.quic_mut().map_or(0, kept);
    let own = size_of::<Side>() + side.engine.held_bytes() + side.streams.len() * 16;
    own + transport(&side.transport) + kept as usize
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

    /// Whether buffers and windows are to be small.
    pub fn is_tight(&self) -> bool {
        self.pressure() >= Pressure::Tight
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
        let is_tight = self.guard.is_tight();
        let Some(held) = &mut self.guard.held else { return };
        let exchange = self.exchanges.get(id);
        if is_tight {
            exchange.shrink();
        }
        held.set(false, id as usize, held_in(exchange));
    }

    /// Whether nothing is read of a connection until memory is free again: an instance would send what nobody takes.
    pub(in super::super) fn is_held_back(&mut self, side: &Side) -> bool {
        let is_instance = matches!(side.peer, Peer::Instance(_));
        let is_held = is_instance && side.streams.len() > 0 && self.guard.pressure() == Pressure::Full;
        if let Some(held) = self.guard.held.as_mut().filter(|_| is_held) {
            held.has_unread = true;
        }
        is_held
    }

    /// Gives up what there is no memory for.
    pub(in super::super) fn relieve(&mut self) {
        let Some(held) = &mut self.guard.held else { return };
        held.keep(self.observer.kept());
        held.tell();
        if self.number == 0 {
            held.measure(self.now);
            held.give_back(self.now);
        }
        held.judge();
        let pressure = held.memory.pressure();
        self.grow_again();
        let Some(held) = &mut self.guard.held else { return };
        if pressure == Pressure::None && !held.has_little && !held.has_unread {
            return;
        }
        let before = std::mem::replace(&mut held.applied, pressure);
        let has_little = std::mem::replace(&mut held.has_little, pressure > Pressure::None);
        let reads = pressure != Pressure::Full && std::mem::take(&mut held.has_unread);
        let shrinks = self.now >= held.shrink_at;
        if shrinks {
            held.shrink_at = self.now + SHRINK_PERIOD;
        }
        self.spare = SpareBuffers::default();
        for id in self.exchanges.trim() {
            self.weigh_exchange(id);
        }
        let is_tight = pressure > Pressure::None;
        if (before > Pressure::None) != is_tight || (has_little && !is_tight) {
            self.fit_connections(is_tight);
        }
        if reads {
            self.read_again();
        }
        if shrinks && is_tight {
            for id in self.exchanges.numbers() {
                self.weigh_exchange(id);
            }
        }
        if pressure >= Pressure::Shed {
            self.close_largest(pressure);
        }
    }

    /// A connection has begun, with as much as there is now.
    pub(in super::super) fn fit_new(&mut self, side: &mut Side) {
        let is_tight = self.guard.is_tight();
        let Some(held) = &mut self.guard.held else { return };
        held.has_little |= is_tight;
        if is_tight || side.version == Version::H1 {
            side.use_little(is_tight, &self.config.server);
        }
    }

    /// The pressure has changed: connections have little, or as much as they may again.
    fn fit_connections(&mut self, is_tight: bool) {
        for (number, slot) in (0..).zip(self.slots.iter_mut()) {
            let Slot::Open(side) = slot else { continue };
            side.use_little(is_tight, &self.config.server);
            mark(side, number, &mut self.dirty);
        }
        if is_tight {
            self.replace_instances(false);
        }
        if let Some(held) = &mut self.guard.held {
            held.grow_at = if is_tight { Time::NEVER } else { self.now + GROW_AFTER };
        }
        for slot in 0..self.slots.len() as u32 {
            self.weigh_slot(slot);
        }
    }

    /// What instances have sent was not read while memory was full.
    fn read_again(&mut self) {
        for (number, slot) in (0..).zip(self.slots.iter_mut()) {
            if let Slot::Open(side) = slot
                && side.has_unread()
                && !self.unread.contains(&number)
            {
                self.unread.push(number);
            }
        }
    }

    /// Memory has been enough for a while: connections to instances may begin with large windows again.
    fn grow_again(&mut self) {
        if let Some(held) = self.guard.held.as_mut().filter(|held| held.grow_at <= self.now) {
            held.grow_at = Time::NEVER;
            self.replace_instances(true);
        }
    }

    /// How much a stream may send at once was announced when its connection began. So connections to instances that
    /// announced little, or those that did not, take no more requests, and others are dialled.
    fn replace_instances(&mut self, of_little: bool) {
        if self.config.client.flow.stream_window <= LITTLE {
            return;
        }
        for (number, slot) in (0..).zip(self.slots.iter_mut()) {
            if let Slot::Open(side) = slot
                && matches!(side.peer, Peer::Instance(_))
                && side.version != Version::H1
                && side.announced_little == of_little
                && !side.is_closed
            {
                side.engine.goaway(self.now, ErrorCode::NO_ERROR, b"windows have changed");
                mark(side, number, &mut self.dirty);
            }
        }
    }

    /// Closes the connections of clients that hold most, until enough is free. Before memory is full, this closes only
    /// those that have taken nothing for a while: they would keep others out as long as they like.
    fn close_largest(&mut self, pressure: Pressure) {
        let Some(held) = &self.guard.held else { return };
        // Each loop gives up its part of it.
        let all = u128::from(held.counted().max(1));
        let part = u128::from(held.memory.excess(held.sum(), pressure)) * u128::from(held.all) / all;
        let excess = part as u64;
        if excess == 0 {
            return;
        }
        let slow_since = Time::from_nanos(self.now.as_nanos().saturating_sub(nanos(SLOW)));
        let mut clients: Vec<(u64, u32)> = Vec::new();
        for (slot, bytes) in held.slots.iter().enumerate() {
            if let Some(Slot::Open(side)) = self.slots.get(slot)
                && matches!(side.peer, Peer::Client { .. })
            {
                let (mut own, mut is_slow) = (0, false);
                for (_, id) in side.streams.iter() {
                    own += held.exchanges.get(id as usize).copied().unwrap_or(0);
                    is_slow |= self.exchanges.get(id).has_waited_since(slow_since);
                }
                if pressure == Pressure::Full || is_slow {
                    clients.push((bytes + own, slot as u32));
                }
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
                for (_, id) in side.streams.iter() {
                    self.observer.left(self.exchanges.get(id), WHY.to_owned(), None);
                }
                self.lose(slot, *side, WHY);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use h2lab_net::byte_stream::ByteStream;
    use h2lab_net::tcp::{ConnectOptions, Listener, StreamSocket};
    use h2lab_proxy::config::Config as File;
    use h2lab_wire::StreamId;
    use h2lab_wire::h2::frame::{FrameHeader, PREFACE, flag, kind};

    use super::super::super::config::SidecarConfig;
    use super::super::super::engines::Carrier;
    use super::super::super::live::Live;
    use super::*;

    fn held(bytes: u64, shared: &Arc<Shared>) -> Held {
        Held::new(bytes, Arc::clone(shared))
    }

    #[test]
    fn all_loops_agree_on_how_short_memory_is() {
        let shared = Arc::new(Shared::new(2).expect("wakeups"));
        let (mut first, mut second) = (held(96 << 20, &shared), held(96 << 20, &shared));
        let room = first.memory.room() as usize;
        first.set(false, 0, room / 100 * 96);
        first.set(false, 0, room / 100 * 92);
        second.tell();
        // It was never above 95 percent when this loop looked, and must not let the other one wait alone.
        assert_eq!((first.memory.pressure(), second.memory.pressure()), (Pressure::Full, Pressure::Full));
        first.set(false, 0, 0);
        second.tell();
        assert_eq!(second.memory.pressure(), Pressure::None);
    }

    /// A client upgrades to HTTP/2 while so many percent of the memory are taken. Returns whether a stream that has
    /// used all but 20,000 bytes of its window gets them back.
    fn gives_credit_after_an_upgrade(percent: usize) -> bool {
        let text = "memory = '96M'\n[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['http://127.0.0.1:9']\n";
        let config = SidecarConfig::new(File::parse(text).expect("it is right"), 1, &|_| Ok(Vec::new()));
        let live = Live::new(config.expect("it is right"), |_| ());
        let mut sidecar =
            Sidecar::new(&live, Arc::new(Shared::new(1).expect("a wakeup")), 0).expect("a free port");
        let held = sidecar.guard.held.as_mut().expect("it is bounded");
        held.set(false, 1_000, held.memory.room() as usize / 100 * percent);
        let (now, server) = (sidecar.now, sidecar.config.server);
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let to = listener.local_address().expect("an address").into();
        let socket = StreamSocket::connect(&to, &ConnectOptions::default()).expect("it accepts");
        let transport = Transport::Stream(ByteStream::clear(socket));
        let engine = sidecar.engines.engine(&server, Version::H1, Carrier::Clear, now);
        let peer = Peer::Client { listener: 0, address: "192.0.2.1".into() };
        let mut side = Side::new(transport, engine, Version::H1, peer);
        let offer = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\
                      http2-settings: AAMAAABkAAQAAP__\r\n\r\n";
        side.engine.handle_input(now, offer);
        sidecar.take_events(0, &mut side, now);
        assert!(side.version == Version::H2 && side.path.is_some());
        let frame = |kind, flags, stream, payload: &[u8]| {
            let header = FrameHeader { length: payload.len() as u32, kind, flags, stream };
            [&header.encode()[..], payload].concat()
        };
        // `:method: POST`, `:path: /`, `:scheme: http`, and `:authority: a`.
        let post = frame(kind::HEADERS, flag::END_HEADERS, 3, &[0x83, 0x84, 0x86, 0x41, 1, b'a']);
        let settings = [frame(kind::SETTINGS, 0, 0, &[]), frame(kind::SETTINGS, flag::ACK, 0, &[])].concat();
        side.engine.handle_input(now, &[&PREFACE[..], &settings, &post].concat());
        let used = server.flow.stream_window as usize - 20_000;
        for piece in vec![b'x'; used].chunks(16_384) {
            side.engine.handle_input(now, &frame(kind::DATA, 0, 3, piece));
        }
        sidecar.take_events(0, &mut side, now);
        let _ = side.engine.take_transmit(now);
        side.engine.release(now, StreamId(3), used as u32);
        let told = side.engine.take_transmit(now);
        let update = [&[0, 0, 4, kind::WINDOW_UPDATE, 0][..], &3_u32.to_be_bytes()].concat();
        told.windows(update.len()).any(|bytes| bytes == update)
    }

    #[test]
    fn who_upgrades_while_memory_is_tight_has_little() {
        assert!(gives_credit_after_an_upgrade(30));
        assert!(!gives_credit_after_an_upgrade(60));
    }

    #[test]
    fn what_nobody_counts_counts_up_to_as_much_again() {
        let shared = Arc::new(Shared::new(1).expect("a wakeup"));
        let mut one = held(96 << 20, &shared);
        let room = one.memory.room();
        shared.slack.store(room, Ordering::Relaxed);
        one.tell();
        assert_eq!(one.memory.pressure(), Pressure::None, "nothing could be given up");
        one.set(false, 0, room as usize / 100 * 48);
        assert_eq!(one.memory.pressure(), Pressure::Full);
    }

    #[test]
    fn what_is_kept_for_the_diagnosis_counts() {
        let shared = Arc::new(Shared::new(1).expect("a wakeup"));
        let mut one = held(96 << 20, &shared);
        one.set(true, 0, 1_000);
        for bytes in [5_000, 3_000, 0] {
            one.keep(bytes);
            one.tell();
            assert_eq!((one.all, shared.held.load(Ordering::Relaxed)), (1_000 + bytes, 1_000 + bytes));
        }
    }

    #[test]
    fn every_pressure_has_its_number() {
        for pressure in [Pressure::None, Pressure::Tight, Pressure::Shed, Pressure::Full] {
            assert_eq!(of_number(pressure as u8), pressure);
        }
    }
}
