//! The packet pump: a thread that carries packets between the two ports of the link at the times that [`Pipe`] decides.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use h2lab_base::units::{Time, nanos};
use h2lab_link::{Admission, Flows, IpPacket, LinkSpec, Pipe};
use h2lab_model::record::{LinkSummary, PacketRecord};
use h2lab_wire::trace::Direction;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt::socket_error;
use rustix::time::{ClockId, clock_gettime};

use super::capture_buffer::{FrameMetadata, Intake};
use super::error::{During, Result};
use super::namespaces::{DropCounters, Namespaces};
use super::packet_batch::{Held, PacketBatch, PumpRecords};
use super::packet_log::{CAPACITY, Lateness, PacketLog, record_of};
use super::port::{self, Port};
use super::received::Received;
use super::sched::{self, SchedulingPolicy};
use super::setup_step::SetupStep;
use super::side::Side;
use super::spec::Mechanism;
use super::vnet;
use h2lab_net::cpu_budget::{CpuBudget, CpuShares, REST};
use h2lab_net::precise_wakeup::PreciseWakeup;
use h2lab_net::privileges;

/// Packets taken from a port before due packets get their turn, and batches sent before others are received.
const BATCH: u32 = 64;

/// One wake-up in this many is later than the packet is due.
const ONE_LATE_IN: u32 = 4;

/// The longest time that the pump spins while it waits for a packet to be due.
const LONGEST_SPIN: Duration = Duration::from_micros(100);

/// Measured at 1 Gbit/s: with 75 % for waiting, one connection sometimes got 0.93 of that, since sender and receiver lacked the CPU;
/// with 50 and 60 all of it. At 10 Gbit/s a packet is due every 1.2 µs, and sending it by itself takes 1.1.
const SHARES: CpuShares = CpuShares { waiting: 50, working: 93 };

/// The settings of a pump. The default is that of a measured repetition.
#[derive(Debug)]
pub struct PumpOptions {
    /// Origin of [`Time`], in nanoseconds of `CLOCK_MONOTONIC`.
    pub origin_nanos: u64,
    /// The CPU to pin it to; `None` leaves that to the kernel.
    pub cpu: Option<usize>,
    /// Ordinary packets that each port's ring holds. 4096 are 27 ms of 150,000 packets per second, and take 48 MiB with
    /// the ring for super-packets beside it.
    pub packets: u32,
    /// Where the bytes of all packets go, see [`super::CaptureBuffer`]; `None` keeps none.
    pub intake: Option<Intake>,
}

impl Default for PumpOptions {
    fn default() -> Self {
        Self { origin_nanos: 0, cpu: None, packets: 4096, intake: None }
    }
}

/// What the link did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkResult {
    /// Totals, lateness and cost.
    pub summary: LinkSummary,
    /// Every packet, in the order in which they entered.
    pub packets: Vec<PacketRecord>,
    /// Delivered packets that are only in the totals, because the packet log was full; drops are always logged.
    pub unrecorded: u64,
    /// The scheduling class of the pump.
    pub priority: SchedulingPolicy,
    /// The CPU to which it was pinned; `None` if it was not, or if the kernel refused.
    pub cpu: Option<usize>,
}

/// A running pump. It ends when this is dropped.
#[derive(Debug)]
pub struct Pump {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<LinkResult>>,
    counters: Arc<DropCounters>,
    drops_before: u64,
    mechanism: Mechanism,
    fallback_reason: Option<String>,
}

impl Pump {
    /// Starts to carry packets between client and server, impaired as `link` says under `seed`.
    ///
    /// Call it from a thread in the link's namespace, such as the one that made `namespaces`.
    pub fn start(namespaces: &Namespaces, link: &LinkSpec, seed: u64, options: PumpOptions) -> Result<Self> {
        let counters = namespaces.drop_counters();
        let drops_before = counters.read().during(SetupStep::Veth)?;
        let open = |side| Port::open(namespaces.plug(side), side, options.packets);
        let clock = Clock { origin_nanos: options.origin_nanos };
        let (up, down) = link.pipes(seed, clock.now());
        let wake =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).during(SetupStep::PacketRing)?;
        let stop = Arc::new(Stop { asked: AtomicBool::new(false), wake });
        let engine = Engine {
            ports: [open(Side::Client)?, open(Side::Server)?],
            directions: [LinkDirection::new(Direction::Up, up), LinkDirection::new(Direction::Down, down)],
            flows: Flows::of(link),
            records: PumpRecords {
                packet_log: PacketLog::new(CAPACITY),
                lateness: Lateness::new(),
                intake: options.intake,
                spare: Vec::new(),
                refused: 0,
            },
            clock,
            precise_wakeup: PreciseWakeup::new(
                ONE_LATE_IN,
                LONGEST_SPIN,
                CpuBudget::new(SHARES, clock.now(), 0),
            ),
            batch: PacketBatch::default(),
            stop: Arc::clone(&stop),
        };
        let builder = std::thread::Builder::new().name("link-pump".to_owned());
        let thread = builder.spawn(move || engine.run(options.cpu)).during(SetupStep::PacketRing)?;
        Ok(Self {
            stop,
            thread: Some(thread),
            counters,
            drops_before,
            mechanism: namespaces.mechanism(),
            fallback_reason: namespaces.fallback_reason().map(str::to_owned),
        })
    }

    /// Ends the pump. Packets that are still inside count as in flight.
    pub fn stop(mut self) -> Result<LinkResult> {
        let result = self.join().expect("only stop and drop join, and stop consumes");
        let drops = self.counters.read().during(SetupStep::Veth)? - self.drops_before;
        let summary = LinkSummary {
            mechanism: self.mechanism.name().to_owned(),
            fallback_reason: self.fallback_reason.take(),
            device_drops: result.summary.device_drops + drops,
            ..result.summary
        };
        Ok(LinkResult { summary, ..result })
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

/// Makes the pump's thread end.
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

    /// What to subtract from the kernel's timestamps, which are in real time, to get the run's time. It is read anew with each
    /// batch, since real time may be set or slewed.
    fn stamp_offset(self) -> u64 {
        read_clock(ClockId::Realtime).saturating_sub(self.now().as_nanos())
    }
}

/// One direction of the link.
struct LinkDirection {
    direction: Direction,
    pipe: Pipe<Held>,
    /// When the last frame entered: none may be earlier.
    last_at: Time,
}

impl LinkDirection {
    fn new(direction: Direction, pipe: Pipe<Held>) -> Self {
        Self { direction, pipe, last_at: Time::ZERO }
    }

    /// Takes a frame that entered at `at`; returns how many packets on the wire it was.
    ///
    /// It is segmented before the loss model, bandwidth, queue and packet log: each of its packets meets them as if sent
    /// separately.
    fn enter(
        &mut self,
        received: &Received<'_>,
        at: Time,
        flows: &mut Flows,
        records: &mut PumpRecords,
    ) -> u32 {
        if is_announcement(received.bytes) {
            return 1;
        }
        let mut bytes = records.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(received.bytes);
        let read = |offload| Some((offload, IpPacket::read(bytes, offload).ok()?));
        let Some((offload, frame)) = received.offload.and_then(read) else {
            records.refused += 1;
            return 1;
        };
        self.last_at = at.max(self.last_at);
        let (at, segments, frame) = (self.last_at, frame.segments(), Arc::new(frame));
        if let Some(intake) = &mut records.intake {
            let index = self.pipe.totals().packets_in;
            let entered = FrameMetadata { at, direction: self.direction, index, segments, offload };
            intake.keep(entered, received.bytes);
        }
        for index in 0..segments {
            self.enter_one(&frame, index, at, flows, &mut records.packet_log);
        }
        segments
    }

    /// Takes one packet on the wire, and records its fate and that of its copy.
    fn enter_one(
        &mut self,
        frame: &Arc<IpPacket>,
        index: u32,
        at: Time,
        flows: &mut Flows,
        packet_log: &mut PacketLog,
    ) {
        let packet = frame.segment(index).packet();
        let blank = record_of(&packet, at, self.direction);
        match self.pipe.admit(at, &packet, flows.number(&packet)) {
            Admission::Dropped { index, cause } => {
                let record = PacketRecord { index, ..blank };
                let entry = packet_log.enter(record);
                packet_log.drop(entry, record, cause.into());
            }
            Admission::Passes { original, copy } => {
                for passage in std::iter::once(original).chain(copy) {
                    let record = PacketRecord { index: passage.index, marks: passage.marks, ..blank };
                    let entry = packet_log.enter(record);
                    let held =
                        Held { frame: Arc::clone(frame), index, entry, corrupt: passage.marks.corrupt };
                    if let Err(cause) = self.pipe.enqueue(passage, held) {
                        packet_log.drop(entry, record, cause.into());
                    }
                }
            }
        }
    }

    /// Records what the queue has dropped at its head since the last call.
    fn write_down_drops(&mut self, packet_log: &mut PacketLog) {
        while let Some((passage, cause, held)) = self.pipe.poll_dropped() {
            let blank = record_of(&held.segment().packet(), passage.at, self.direction);
            let record = PacketRecord { index: passage.index, marks: passage.marks, ..blank };
            packet_log.drop(held.entry, record, cause.into());
        }
    }
}

/// Whether a packet is IPv6 multicast. The kernel reports memberships and looks for routers and neighbours with these; nothing
/// here needs them, and they must not use up draws of the loss model.
fn is_announcement(packet: &[u8]) -> bool {
    vnet::is_v6(packet) && packet.get(24) == Some(&0xff)
}

/// The state of the pump's thread. What enters by `ports[n]` takes `directions[n]` and leaves by the other port.
struct Engine {
    ports: [Port; 2],
    directions: [LinkDirection; 2],
    flows: Flows,
    records: PumpRecords,
    clock: Clock,
    precise_wakeup: PreciseWakeup,
    batch: PacketBatch,
    stop: Arc<Stop>,
}

impl Engine {
    fn run(mut self, cpu: Option<usize>) -> LinkResult {
        let started = self.clock.now();
        // A pump that cannot be pinned or given priority still works; its lateness shows it.
        let cpu = cpu.filter(|&cpu| sched::set_affinity(cpu).is_ok());
        let _ = sched::sharpen_timers();
        let priority = sched::prefer();
        // The rings are open, and the class is set: reading and sending packets needs no privilege.
        privileges::renounce();
        while !self.stop.asked.load(Ordering::Acquire) {
            let mut may_have_more = false;
            for n in 0..self.directions.len() {
                may_have_more |= self.take_in(n);
                may_have_more |= self.let_out(n);
            }
            if self.is_overworked() {
                self.rest();
            } else if !may_have_more {
                self.wait();
            }
        }
        LinkResult { cpu, ..self.finish(started, priority) }
    }

    /// Receives frames; whether there may be more.
    fn take_in(&mut self, n: usize) -> bool {
        let Self { ports, directions, flows, records, clock, .. } = self;
        if !ports[n].is_ready() {
            return false;
        }
        let (now, offset) = (clock.now(), clock.stamp_offset());
        let mut packets = 0;
        while packets < BATCH {
            let taken = ports[n].receive(|received| {
                // The time of arrival, not of our wake-up. It must not be in the future if the real-time clock was set.
                let came = |stamp: u64| Time::from_nanos(stamp.saturating_sub(offset)).min(now);
                let at = received.stamp_nanos.map_or_else(|| clock.now(), came);
                directions[n].enter(&received, at, flows, records)
            });
            match taken {
                Some(more) => packets += more,
                None => return false,
            }
        }
        true
    }

    /// Sends what is due, merged where possible; whether there is more. A packet has left when the device is given it: the rest
    /// of the call is the receiver's stack.
    ///
    /// Only packets that are due already are merged: none waits for another. A receiver sees what a network card with GRO would
    /// have made of the same packets.
    fn let_out(&mut self, n: usize) -> bool {
        let Self { ports, directions, records, clock, batch, .. } = self;
        let mut now = clock.now();
        let (mut until, mut batches) = (now, 0);
        let mut carried = None;
        while let Some((due, held)) = carried.take().or_else(|| directions[n].pipe.poll(until)) {
            carried = batch.append(due, held);
            if carried.is_some() || directions[n].pipe.next_at() > until {
                batch.leave(&ports[1 - n], now, records);
                now = clock.now();
                batches += 1;
                // What has come due meanwhile is sent too, up to a bound.
                if batches < BATCH {
                    until = now;
                }
            }
        }
        directions[n].write_down_drops(&mut records.packet_log);
        directions[n].pipe.next_at() <= now
    }

    /// Waits until a frame comes, one is due, or the pump is to stop; or rests, if it has used too much of its CPU.
    fn wait(&mut self) {
        let next = self.directions.iter().map(|n| n.pipe.next_at()).min().unwrap_or(Time::NEVER);
        let now = self.clock.now();
        self.settle(now);
        // If no packet is inside, there is none that an arriving frame could be sent together with.
        if self.precise_wakeup.budget.for_waiting().is_zero() && next.happened() {
            self.rest();
            return;
        }
        let wake_at = next - self.precise_wakeup.margin();
        if wake_at > now {
            if self.sleep(next.happened().then(|| wake_at.since(now)), true) {
                return;
            }
            self.precise_wakeup.woke(self.clock.now().since(wake_at));
        }
        while self.clock.now() < next && !self.ports.iter().any(Port::is_ready) {
            std::hint::spin_loop();
        }
    }

    /// Whether the pump must rest although there is work.
    fn is_overworked(&mut self) -> bool {
        let now = self.clock.now();
        if self.precise_wakeup.budget.is_old(now) {
            self.settle(now);
        }
        self.precise_wakeup.budget.is_overdrawn()
    }

    fn settle(&mut self, now: Time) {
        self.precise_wakeup.budget.settle(now, read_clock(ClockId::ThreadCPUTime));
    }

    /// Leaves the CPU to others for a moment, whatever comes in or is due. The resulting lateness is recorded: the kernel
    /// timestamps packets as they come, except on TUN devices.
    fn rest(&mut self) {
        self.sleep(Some(REST), false);
        self.settle(self.clock.now());
    }

    /// Sleeps until `duration` is over (`None`: without a bound), until a frame comes if it `minds_frames`, or until
    /// the pump is to stop. Returns whether something other than the time woke us.
    fn sleep(&self, duration: Option<Duration>, minds_frames: bool) -> bool {
        let timeout = duration.map(|duration| Timespec {
            tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: duration.subsec_nanos().into(),
        });
        let mut fds = vec![PollFd::new(&self.stop.wake, PollFlags::IN)];
        if minds_frames {
            self.ports.iter().for_each(|port| port.watch(&mut fds));
        }
        // An error is either a signal, which wakes us early, or one that more waiting does not repair.
        let is_woken = poll(&mut fds, timeout.as_ref()).map_or(true, |ready| ready > 0);
        // A device that is set down leaves an error on its packet sockets. Until it is read, no poll waits any more, even when
        // the device is up again.
        for fd in fds.iter().filter(|fd| fd.revents().contains(PollFlags::ERR)) {
            let _ = socket_error(fd);
        }
        is_woken
    }

    fn finish(self, started: Time, priority: SchedulingPolicy) -> LinkResult {
        let Self { ports, directions, records, clock, .. } = self;
        // A socket whose drops cannot be read counts as having dropped: the repetition is then invalid rather than trusted.
        let ring_drops: u64 = ports.iter().map(|port| port.take_drops().unwrap_or(1)).sum();
        let summary = LinkSummary {
            up: directions[0].pipe.totals(),
            down: directions[1].pipe.totals(),
            late_p50_ns: records.lateness.quantile(0.5),
            late_p99_ns: records.lateness.quantile(0.99),
            late_max_ns: records.lateness.quantile(1.0),
            cpu_ns: read_clock(ClockId::ThreadCPUTime),
            wall_ns: nanos(clock.now().since(started)),
            device_drops: ring_drops + records.refused,
            realtime: priority == SchedulingPolicy::Realtime,
            ..LinkSummary::default()
        };
        // A TUN device exists as long as a descriptor of it: it must not outlive its namespaces' guard.
        if ports.iter().all(Port::has_rings) {
            port::close_beside(ports);
        }
        let (packets, unrecorded) = records.packet_log.finish();
        LinkResult { summary, packets, unrecorded, priority, cpu: None }
    }
}
