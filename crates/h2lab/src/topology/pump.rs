//! The packet pump: a thread that carries frames between the two ports of the link when [`Pipe`] says so.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use h2lab_core::link::{LinkSpec, Offload, Packet, Pipe, Verdict};
use h2lab_core::record::{LinkSummary, PacketFate, PacketRecord};
use h2lab_core::trace::Direction;
use h2lab_core::units::{Time, nanos};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};

use super::error::{During, Step, TopologyError};
use super::ledger::{CAPACITY, Entry, Lateness, Ledger, record_of};
use super::namespaces::{DropCounters, Namespaces, Side};
use super::ring::{ETHERNET, Port, Received};
use super::sched::{self, Priority};

/// Frames taken from a port before packets that are due get their turn.
const BATCH: usize = 64;

/// How a pump runs. The default is what a measured visit wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PumpOptions {
    /// Origin of [`Time`], in nanoseconds of `CLOCK_MONOTONIC`.
    pub origin_nanos: u64,
    /// The CPU to stay on; `None` leaves that to the kernel.
    pub cpu: Option<usize>,
    /// Frames that each port's ring holds, at 2 KiB each. 8192 are 33 ms of 3 Gbit/s.
    pub frames: u32,
}

impl Default for PumpOptions {
    fn default() -> Self {
        Self { origin_nanos: 0, cpu: None, frames: 8192 }
    }
}

/// What the link did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkResult {
    /// Totals, lateness and cost.
    pub summary: LinkSummary,
    /// Every packet, in the order in which they entered.
    pub packets: Vec<PacketRecord>,
    /// Delivered packets that are only in the totals, because the ledger was full; drops are never left out.
    pub unrecorded: u64,
    /// How the scheduler treated the pump.
    pub priority: Priority,
}

/// A running pump. It ends when this is dropped.
#[derive(Debug)]
pub struct Pump {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<LinkResult>>,
    counters: Arc<DropCounters>,
    drops_before: u64,
}

impl Pump {
    /// Starts to carry packets between client and server, impaired as `link` says under `seed`.
    ///
    /// From a thread in the link's namespace, such as the one that made `namespaces`.
    pub fn start(
        namespaces: &Namespaces,
        link: &LinkSpec,
        seed: u64,
        options: PumpOptions,
    ) -> Result<Self, TopologyError> {
        let counters = namespaces.drop_counters();
        let drops_before = counters.read().during(Step::Veth)?;
        let open = |side| Port::open(namespaces.port(side), options.frames);
        let (up, down) = link.pipes(seed);
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).during(Step::PacketRing)?;
        let stop = Arc::new(Stop { asked: AtomicBool::new(false), wake });
        let engine = Engine {
            ports: [open(Side::Client)?, open(Side::Server)?],
            ways: [Way::new(Direction::Up, up), Way::new(Direction::Down, down)],
            books: Books {
                ledger: Ledger::new(CAPACITY),
                lateness: Lateness::new(),
                spare: Vec::new(),
                refused: 0,
            },
            clock: Clock { origin_nanos: options.origin_nanos },
            stop: Arc::clone(&stop),
        };
        let builder = std::thread::Builder::new().name("link-pump".to_owned());
        let thread = builder.spawn(move || engine.run(options.cpu)).during(Step::PacketRing)?;
        Ok(Self { stop, thread: Some(thread), counters, drops_before })
    }

    /// Ends the pump. Packets that are still inside count as in flight.
    pub fn stop(mut self) -> Result<LinkResult, TopologyError> {
        let mut result = self.join().expect("only stop and drop join, and stop consumes");
        let drops = self.counters.read().during(Step::Veth)?;
        result.summary.device_drops += drops - self.drops_before;
        Ok(result)
    }

    fn join(&mut self) -> Option<LinkResult> {
        let thread = self.thread.take()?;
        self.stop.asked.store(true, Ordering::Release);
        // Cannot fail: the counter of an eventfd that is written once has room.
        let _ = rustix::io::write(&self.stop.wake, &1_u64.to_ne_bytes());
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.join();
        }
    }
}

/// Asks the pump's thread to end.
#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    /// Wakes the thread.
    wake: OwnedFd,
}

/// The run's clock.
#[derive(Debug, Clone, Copy)]
struct Clock {
    origin_nanos: u64,
}

fn read_clock(id: ClockId) -> u64 {
    let now = clock_gettime(id);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Clock {
    fn now(self) -> Time {
        Time::from_nanos(read_clock(ClockId::Monotonic).saturating_sub(self.origin_nanos))
    }

    /// What to subtract from the kernel's stamps, which are in real time, to get the run's time. It is asked for anew with
    /// each batch, since real time may be set or slewed.
    fn stamp_offset(self) -> u64 {
        read_clock(ClockId::Realtime).saturating_sub(self.now().as_nanos())
    }
}

/// One direction of the link.
struct Way {
    direction: Direction,
    pipe: Pipe<Held>,
    /// When the last frame came in: none is earlier.
    last_at: Time,
}

/// A frame inside the link.
struct Held {
    frame: Vec<u8>,
    entry: Entry,
}

/// What the pump's thread writes down, and the buffers that it uses again.
struct Books {
    ledger: Ledger,
    lateness: Lateness,
    /// Buffers of frames that have left.
    spare: Vec<Vec<u8>>,
    /// Frames that could not be taken as they were or that the device did not take.
    refused: u64,
}

impl Way {
    fn new(direction: Direction, pipe: Pipe<Held>) -> Self {
        Self { direction, pipe, last_at: Time::ZERO }
    }

    /// Takes a frame in that came at `at`.
    fn enter(&mut self, received: &Received<'_>, at: Time, books: &mut Books) {
        let network = received.bytes.get(ETHERNET..).unwrap_or_default();
        let packet = Packet::parse(network, Offload::default()).filter(|_| received.is_whole);
        let Some(packet) = packet else {
            books.refused += 1;
            return;
        };
        self.last_at = at.max(self.last_at);
        let at = self.last_at;
        let record = record_of(&packet, at, self.pipe.totals().packets_in, self.direction);
        let entry = books.ledger.enter(record);
        let mut frame = books.spare.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(received.bytes);
        match self.pipe.push(at, &packet, Held { frame, entry }) {
            Verdict::Queued => {}
            Verdict::Lost => books.ledger.drop(entry, record, PacketFate::Lost),
            Verdict::TailDropped => books.ledger.drop(entry, record, PacketFate::TailDropped),
        }
    }
}

/// The state of the pump's thread. What comes in by `ports[n]` takes `ways[n]` and goes out by the other port.
struct Engine {
    ports: [Port; 2],
    ways: [Way; 2],
    books: Books,
    clock: Clock,
    stop: Arc<Stop>,
}

impl Engine {
    fn run(mut self, cpu: Option<usize>) -> LinkResult {
        let started = self.clock.now();
        // A pump that may not be placed or hurried still works; its lateness tells.
        let _ = cpu.map(sched::set_affinity);
        let _ = sched::sharpen_timers();
        let priority = sched::prefer();
        while !self.stop.asked.load(Ordering::Acquire) {
            let mut may_have_more = false;
            for way in 0..self.ways.len() {
                may_have_more |= self.take_in(way);
                self.let_out(way);
            }
            if !may_have_more {
                self.wait();
            }
        }
        self.finish(started, priority)
    }

    /// Takes frames in; whether there may be more.
    fn take_in(&mut self, n: usize) -> bool {
        let Self { ports, ways, books, clock, .. } = self;
        if !ports[n].is_ready() {
            return false;
        }
        let (now, offset) = (clock.now(), clock.stamp_offset());
        for _ in 0..BATCH {
            let taken = ports[n].receive(|received| {
                // When it came, not when we woke. A real-time clock that was just set must not lead into the future.
                let at = Time::from_nanos(received.stamp_nanos.saturating_sub(offset)).min(now);
                ways[n].enter(&received, at, books);
            });
            if taken.is_none() {
                return false;
            }
        }
        true
    }

    /// Sends what is due.
    fn let_out(&mut self, n: usize) {
        let mut now = self.clock.now();
        while let Some((due, held)) = self.ways[n].pipe.poll(now) {
            let is_sent = self.ports[1 - n].send(&held.frame).is_ok();
            now = self.clock.now();
            self.books.refused += u64::from(!is_sent);
            self.books.lateness.record(due, now);
            self.books.ledger.leave(held.entry, now);
            self.books.spare.push(held.frame);
        }
    }

    /// Sleeps until a frame comes, one is due, or the pump is to stop.
    ///
    /// Spinning for the last microseconds was rejected: thousands of packets per second would take a third of a core from
    /// the generator and the server to win 20 µs of a round trip, which the lateness shows anyway.
    fn wait(&self) {
        let next = self.ways.iter().map(|way| way.pipe.next_at()).min().unwrap_or(Time::NEVER);
        let left = next.since(self.clock.now());
        if left.is_zero() {
            return;
        }
        let timeout = next.happened().then(|| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = [
            PollFd::from_borrowed_fd(self.ports[0].as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.ports[1].as_fd(), PollFlags::IN),
            PollFd::new(&self.stop.wake, PollFlags::IN),
        ];
        // A signal only wakes us early.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn finish(self, started: Time, priority: Priority) -> LinkResult {
        let Self { ports, ways, books, clock, .. } = self;
        // A socket that cannot say how much it dropped has dropped: the visit is then invalid rather than trusted.
        let ring_drops: u64 = ports.iter().map(|port| port.take_drops().unwrap_or(1)).sum();
        let summary = LinkSummary {
            up: ways[0].pipe.totals(),
            down: ways[1].pipe.totals(),
            late_p50_ns: books.lateness.quantile(0.5),
            late_p99_ns: books.lateness.quantile(0.99),
            late_max_ns: books.lateness.quantile(1.0),
            cpu_ns: read_clock(ClockId::ThreadCPUTime),
            wall_ns: nanos(clock.now().since(started)),
            device_drops: ring_drops + books.refused,
            mechanism: "veth+af_packet".to_owned(),
            realtime: priority == Priority::Realtime,
        };
        let (packets, unrecorded) = books.ledger.finish();
        LinkResult { summary, packets, unrecorded, priority }
    }
}
