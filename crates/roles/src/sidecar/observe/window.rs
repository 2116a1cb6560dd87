//! What was seen on connections to instances lately: requests, frames, readings of TCP. Rules read it as the records of a run.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use h2lab_base::counters::TcpTick;
use h2lab_base::spans::most_at_once;
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, ConnectionRecord, Sample};
use h2lab_model::scenario::{Axis, Cell, LiveTarget, Scenario};
use h2lab_model::workload::{Arrival, Protocol};
use h2lab_net::quic::QuicSession;
use h2lab_net::tcp_info::TcpInfo;
use h2lab_net::transport::Transport;
use h2lab_wire::Connection;
use h2lab_wire::StreamId;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::{Crossing, Dialect, Direction, FrameEvent, FrameKind, Tap};

/// Requests of an instance that are kept at most, in each thread: 8 MB.
const MOST_SAMPLES: usize = 65_536;
/// Frames, likewise: 8 MB.
const MOST_FRAMES: usize = 262_144;
/// Readings, likewise: 8 MB. 64 connections are read 100 times per second each.
const MOST_TICKS: usize = 262_144;
/// Connections that have ended, likewise.
const MOST_ENDED: usize = 4_096;
/// About what a record of one of these has on the heap: settings, GOAWAYs.
const OF_ENDED: usize = 256;
/// Stands for the streams before the window in the account of a connection's flow control. No peer reaches this number.
const BEFORE: StreamId = StreamId(0x7fff_ffff);
/// The largest increment of a window (RFC 9113 §6.9.1).
const LARGEST: u64 = 0x7fff_ffff;

/// A connection to an instance that is watched.
#[derive(Debug)]
pub struct Watched {
    /// What is known of it; the figures of its engine and of TCP are added when it is asked for.
    pub record: ConnectionRecord,
    /// What it speaks.
    pub protocol: Protocol,
    tap: Tap,
    /// Frames since the last look.
    frames: Vec<FrameEvent>,
}

impl Watched {
    /// The connection with this number, established at `now`.
    pub fn new(number: u32, protocol: Protocol, dialled_at: Time, now: Time) -> Self {
        let record = ConnectionRecord {
            index: number,
            dialled_at,
            connected_at: now,
            ready_at: now,
            closed_at: Time::NEVER,
            ..ConnectionRecord::default()
        };
        let tap = Tap::new(Dialect::of(protocol.is_multiplexed(), protocol.is_quic()), number);
        Self { record, protocol, tap, frames: Vec::new() }
    }

    /// These bytes crossed.
    pub fn see(&mut self, now: Time, direction: Direction, crossing: Crossing<'_>) {
        let Self { tap, frames, .. } = self;
        tap.cross(now, direction, crossing, &mut |frame| {
            if frames.len() < MOST_FRAMES {
                frames.push(frame);
            }
        });
    }

    /// What is known of it now.
    fn known(&self, transport: &Transport, engine: &Connection, requests: u32) -> ConnectionRecord {
        let mut record = self.record.clone();
        record.requests = requests;
        record.counters = engine.counters();
        (record.http.settings_local, record.http.settings_remote) = engine.settings_in_effect();
        if let Some(tcp) = transport.tcp()
            && let (Ok(info), Ok(congestion)) = (TcpInfo::of(tcp), tcp.congestion())
        {
            record.tcp_client = Some(info.summary(congestion));
        }
        record.quic_client = transport.quic().map(QuicSession::summary);
        record.tls_records = transport.tls_records();
        record
    }
}

/// What is kept of an instance.
#[derive(Debug, Default)]
struct Kept {
    samples: VecDeque<Sample>,
    frames: VecDeque<FrameEvent>,
    ticks: VecDeque<TcpTick>,
    ended: VecDeque<(Protocol, ConnectionRecord)>,
    /// Bytes of DATA and of credit for it that are no longer kept, by connection, of both directions of data: credit less data.
    before: BTreeMap<u32, [i64; 2]>,
    /// All requests and frames since then are here.
    since: Time,
}

/// Makes room for `more` further elements, or for an eighth of what is there if that is more. Doubling, as usual, could
/// exceed the bound by as much again.
fn make_room<T>(list: &mut VecDeque<T>, more: usize) {
    if list.len() + more > list.capacity() {
        list.reserve_exact(more.max(list.len() / 8 + 8));
    }
}

impl Kept {
    /// Bytes that it takes.
    fn held(&self) -> usize {
        let of_ended = size_of::<(Protocol, ConnectionRecord)>() + OF_ENDED;
        self.samples.capacity() * size_of::<Sample>()
            + self.frames.capacity() * size_of::<FrameEvent>()
            + self.ticks.capacity() * size_of::<TcpTick>()
            + self.ended.capacity() * of_ended
    }

    /// Keeps `percent` percent of the bytes that it takes, the newest.
    fn shrink(&mut self, percent: usize) {
        let part = |capacity: usize| capacity * percent / 100;
        let (samples, frames) = (part(self.samples.capacity()), part(self.frames.capacity()));
        let (ticks, ended) = (part(self.ticks.capacity()), part(self.ended.capacity()));
        while self.ended.len() > ended {
            self.forget_ended();
        }
        let surplus = |length: usize, most: usize| length.checked_sub(most + 1); // the place of the last one to go
        let last = surplus(self.samples.len(), samples).map(|at| self.samples[at].completed_at);
        let last = last.max(surplus(self.frames.len(), frames).map(|at| self.frames[at].at));
        let last = last.max(surplus(self.ticks.len(), ticks).map(|at| self.ticks[at].at));
        // What is as old as the last one goes, too.
        self.forget(last.map_or(Time::ZERO, |last| last + Duration::from_nanos(1)));
        self.samples.shrink_to(samples);
        self.frames.shrink_to(frames);
        self.ticks.shrink_to(ticks);
        self.ended.shrink_to(ended);
    }

    /// Drops what is older than this.
    fn forget(&mut self, oldest: Time) {
        self.since = self.since.max(oldest);
        while self.samples.len() > MOST_SAMPLES {
            let sample = self.samples.pop_front();
            self.since = self.since.max(sample.map_or(Time::ZERO, |sample| sample.completed_at));
        }
        while self.frames.len() > MOST_FRAMES
            || self.frames.front().is_some_and(|frame| frame.at < self.since)
        {
            let Some(frame) = self.frames.pop_front() else { break };
            self.since = self.since.max(frame.at);
            account(self.before.entry(frame.connection).or_default(), &frame);
        }
        while self.samples.front().is_some_and(|sample| sample.completed_at < self.since) {
            self.samples.pop_front();
        }
        while self.ticks.len() > MOST_TICKS || self.ticks.front().is_some_and(|tick| tick.at < self.since) {
            self.ticks.pop_front();
        }
        while self.ended.len() > MOST_ENDED
            || self.ended.front().is_some_and(|(_, record)| record.closed_at < self.since)
        {
            self.forget_ended();
        }
    }

    fn forget_ended(&mut self) {
        if let Some((_, record)) = self.ended.pop_front() {
            self.before.remove(&record.index);
        }
    }

    /// Frames that stand for those that are no longer kept: a connection's windows are what they were at the begin of what is kept.
    fn opening(&self) -> impl Iterator<Item = FrameEvent> {
        let frames = self.before.iter().flat_map(|(&connection, credits)| {
            let of = move |(data, credit): (Direction, i64)| {
                let frame = FrameEvent {
                    at: self.since,
                    connection,
                    stream: StreamId::CONNECTION,
                    length: 4,
                    value: 0,
                    kind: FrameKind::WINDOW_UPDATE,
                    flags: 0,
                    direction: data.opposite(),
                };
                let (mut left, is_credit) = (credit.unsigned_abs(), credit >= 0);
                std::iter::from_fn(move || {
                    let part = left.min(LARGEST);
                    left -= part;
                    let data = FrameEvent {
                        length: part as u32,
                        stream: BEFORE,
                        kind: FrameKind::DATA,
                        direction: data,
                        ..frame
                    };
                    let frame = if is_credit { FrameEvent { value: part as u32, ..frame } } else { data };
                    (part > 0).then_some(frame)
                })
            };
            [(Direction::Up, credits[0]), (Direction::Down, credits[1])].into_iter().flat_map(of)
        });
        frames.collect::<Vec<_>>().into_iter()
    }
}

/// Counts a frame that is dropped.
fn account(credits: &mut [i64; 2], frame: &FrameEvent) {
    let of = |data: Direction| usize::from(data == Direction::Down);
    match frame.kind {
        FrameKind::DATA => credits[of(frame.direction)] -= i64::from(frame.length),
        FrameKind::WINDOW_UPDATE if frame.stream == StreamId::CONNECTION => {
            credits[of(frame.direction.opposite())] += i64::from(frame.value);
        }
        _ => {}
    }
}

/// What is kept of all instances, by number.
#[derive(Debug)]
pub struct Window {
    keeps: Duration,
    /// Bytes that all may take.
    most: u64,
    /// Bytes that all took at the last look.
    held: u64,
    instances: Vec<Kept>,
}

impl Window {
    /// Keeps what happened in the last `keeps`, in `most` bytes at most; beyond that, the oldest of all instances is
    /// dropped. What happens between two looks may exceed the bound.
    pub const fn new(keeps: Duration, most: u64) -> Self {
        Self { keeps, most, held: 0, instances: Vec::new() }
    }

    /// Bytes that it takes, as of the last look.
    pub const fn held(&self) -> u64 {
        self.held
    }

    fn at(&mut self, instance: u32) -> &mut Kept {
        let place = instance as usize;
        if place >= self.instances.len() {
            self.instances.resize_with(place + 1, Kept::default);
        }
        &mut self.instances[place]
    }

    /// This number is now another instance's.
    pub fn replaced(&mut self, instance: u32) {
        *self.at(instance) = Kept::default();
    }

    /// A request to this instance is over.
    pub fn ended(&mut self, instance: u32, sample: Sample) {
        let samples = &mut self.at(instance).samples;
        make_room(samples, 1);
        samples.push_back(sample);
    }

    /// A reading of TCP.
    pub fn tick(&mut self, instance: u32, tick: TcpTick) {
        let ticks = &mut self.at(instance).ticks;
        make_room(ticks, 1);
        ticks.push_back(tick);
    }

    /// Takes the frames of a connection.
    pub fn gather(&mut self, instance: u32, watched: &mut Watched) {
        let frames = &mut self.at(instance).frames;
        make_room(frames, watched.frames.len());
        frames.extend(watched.frames.drain(..));
    }

    /// A connection is no more.
    pub fn closed(
        &mut self,
        instance: u32,
        watched: &mut Watched,
        (transport, engine, requests): (&Transport, &Connection, u32),
    ) {
        self.gather(instance, watched);
        let record = watched.known(transport, engine, requests);
        let ended = &mut self.at(instance).ended;
        make_room(ended, 1);
        ended.push_back((watched.protocol, record));
    }

    fn sum(&self) -> u64 {
        self.instances.iter().map(|kept| kept.held() as u64).sum()
    }

    /// Drops what is too old, or too much: in that case an eighth more, so that this is seldom.
    pub fn look(&mut self, now: Time) {
        let oldest = Time::from_nanos(now.nanos_since(Time::from_nanos(self.keeps.as_nanos() as u64)));
        self.instances.iter_mut().for_each(|kept| kept.forget(oldest));
        self.held = self.sum();
        if self.held > self.most {
            let percent = u128::from(self.most) * 100 / 8 * 7 / u128::from(self.held);
            self.instances.iter_mut().for_each(|kept| kept.shrink(percent as usize));
            self.held = self.sum();
        }
    }

    /// The records of an instance: one of each protocol. `open` are its connections that are open.
    pub fn records<'a>(
        &self,
        instance: u32,
        url: &str,
        open: impl Iterator<Item = (&'a Watched, &'a Transport, &'a Connection, u32)>,
    ) -> Vec<CellRecord> {
        let Some(kept) = self.instances.get(instance as usize) else { return Vec::new() };
        let open = open.map(|(watched, transport, engine, requests)| {
            (watched.protocol, watched.known(transport, engine, requests))
        });
        let mut by_protocol: BTreeMap<Protocol, Vec<ConnectionRecord>> = BTreeMap::new();
        for (protocol, record) in kept.ended.iter().cloned().chain(open) {
            by_protocol.entry(protocol).or_default().push(record);
        }
        by_protocol
            .into_iter()
            .filter_map(|(protocol, connections)| kept.record(protocol, url, connections))
            .collect()
    }
}

impl Kept {
    fn record(
        &self,
        protocol: Protocol,
        url: &str,
        mut connections: Vec<ConnectionRecord>,
    ) -> Option<CellRecord> {
        connections.sort_by_key(|connection| connection.index);
        let is_own = |index: u32| connections.binary_search_by_key(&index, |one| one.index).is_ok();
        let samples = self.samples.iter().filter(|sample| is_own(sample.connection));
        let mut samples: Vec<Sample> =
            samples.filter(|sample| sample.scheduled_at >= self.since).copied().collect();
        samples.sort_by_key(|sample| sample.scheduled_at);
        let first = samples.first()?.scheduled_at;
        let last = samples.iter().map(|sample| sample.completed_at).max()?;
        let mut record = CellRecord::empty(cell(protocol, url, &connections)?);
        record.started_at = first;
        let spans = || samples.iter().map(|sample| (sample.sent_at, sample.completed_at));
        record.cell.work.arrival = Arrival::Closed { concurrency: most_at_once(spans()) };
        record.cell.work.phases.warmup = Duration::ZERO;
        record.cell.work.phases.measure = last.since(first);
        let live = connections.iter().map(|one| (one.connected_at, one.closed_at));
        record.cell.connections = most_at_once(live);
        record.cell.max_connections = record.cell.connections;
        let frames = self.opening().chain(self.frames.iter().copied());
        record.frames = frames.filter(|frame| is_own(frame.connection)).collect();
        // Each connection's are in order.
        record.frames.sort_by_key(|frame| frame.at);
        record.tcp = self.ticks.iter().filter(|tick| is_own(tick.connection)).copied().collect();
        for (number, sample) in samples.into_iter().enumerate() {
            record.samples.push(&Sample { number: number as u32, ..sample });
        }
        let uploaded: u64 = sent_data(&record.frames);
        record.cell.work.body_bytes = uploaded / (record.samples.len() as u64).max(1);
        record.cell.work.body = None;
        record.connections = connections;
        Some(record)
    }
}

fn sent_data(frames: &[FrameEvent]) -> u64 {
    let is_sent = |frame: &&FrameEvent| {
        frame.kind == FrameKind::DATA && frame.direction == Direction::Up && frame.stream != BEFORE
    };
    frames.iter().filter(is_sent).map(|frame| u64::from(frame.length)).sum()
}

/// The cell of an instance that others use: a live one.
fn cell(protocol: Protocol, url: &str, connections: &[ConnectionRecord]) -> Option<Cell> {
    let live = LiveTarget { url: url.to_owned(), path: "/".to_owned(), protocols: Axis::one(protocol) };
    let mut scenario = Scenario { repetitions: 1, ..Scenario::default() };
    scenario.matrix.live = vec![live];
    scenario.matrix.protocols = Axis::one(protocol);
    scenario.matrix.connections = Axis::one(1.into());
    let mut cell = scenario.plan().into_iter().next()?;
    // The sidecar takes all streams that it is allowed.
    let allowed = connections.iter().filter_map(|one| streams_allowed(&one.http.settings_remote)).min();
    cell.streams = cell.streams.max(allowed.unwrap_or(0));
    Some(cell)
}

/// The streams that the settings of a server allow, if they set a bound.
pub fn streams_allowed(settings: &[(u16, u32)]) -> Option<u32> {
    settings.iter().find(|(id, _)| *id == setting::MAX_CONCURRENT_STREAMS).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::Outcome;

    fn frame(ms: u64, stream: u32, kind: FrameKind, direction: Direction, n: u32) -> FrameEvent {
        let (length, value) = if kind == FrameKind::DATA { (n, 0) } else { (4, n) };
        FrameEvent {
            at: Time::from_millis(ms),
            connection: 1,
            stream: StreamId(stream),
            length,
            value,
            kind,
            flags: 0,
            direction,
        }
    }

    fn credit(frames: impl Iterator<Item = FrameEvent>) -> [i64; 2] {
        let mut credits = [65_535; 2];
        frames.for_each(|frame| account(&mut credits, &frame));
        credits
    }

    #[test]
    fn what_is_forgotten_stays_in_the_account_of_the_connection() {
        let all = [
            frame(1, 0, FrameKind::WINDOW_UPDATE, Direction::Up, i32::MAX as u32 - 65_535),
            frame(2, 0, FrameKind::WINDOW_UPDATE, Direction::Up, 60_000),
            frame(3, 1, FrameKind::DATA, Direction::Up, 50_000),
            frame(4, 1, FrameKind::DATA, Direction::Down, 10),
            frame(5, 1, FrameKind::WINDOW_UPDATE, Direction::Down, 7),
            frame(6, 0, FrameKind::WINDOW_UPDATE, Direction::Down, 1_000),
        ];
        let whole = credit(all.into_iter());
        for oldest in 0..8 {
            let mut kept = Kept { frames: all.into(), ..Kept::default() };
            kept.forget(Time::from_millis(oldest));
            let seen: Vec<FrameEvent> = kept.opening().chain(kept.frames.iter().copied()).collect();
            assert_eq!(credit(seen.iter().copied()), whole, "{oldest}");
            assert!(
                seen.iter().all(|frame| frame.at >= Time::from_millis(oldest).min(kept.since)),
                "{oldest}"
            );
        }
    }

    #[test]
    fn a_bound_holds_for_all_instances_and_the_oldest_goes_first() {
        const MOST: u64 = 1 << 20;
        let tick = |at| TcpTick {
            at,
            connection: 1,
            retransmits: 0,
            cwnd: 10,
            rtt_us: 1,
            unacked: 0,
            server: false,
        };
        let mut window = Window::new(Duration::from_secs(300), MOST);
        let mut watched = Watched::new(1, Protocol::H2c, Time::ZERO, Time::ZERO);
        let mut held = Vec::new();
        for ms in 0..20_000 {
            for instance in 0..3 {
                let at = Time::from_millis(ms);
                let sample = Sample { connection: 1, sent_at: at, completed_at: at, ..Sample::due(at, true) };
                window.ended(instance, sample);
                watched.frames.push(frame(ms, 1, FrameKind::DATA, Direction::Down, 10));
                window.gather(instance, &mut watched);
                window.tick(instance, tick(at));
            }
            if ms % 100 == 99 {
                window.look(Time::from_millis(ms));
                held.push(window.held());
            }
        }
        assert!(
            held.iter().all(|held| *held <= MOST) && held.iter().any(|held| *held > MOST / 2),
            "{held:?}"
        );
        for kept in &window.instances {
            assert!(kept.since > Time::from_millis(15_000), "{:?}", kept.since);
            let last = kept.samples.back().map(|sample| sample.completed_at);
            assert_eq!((last, kept.samples.len() > 500), (Some(Time::from_millis(19_999)), true));
            let oldest =
                kept.frames.front().map(|frame| frame.at).min(kept.ticks.front().map(|tick| tick.at));
            assert!(oldest.is_some_and(|oldest| oldest >= kept.since), "{oldest:?}");
        }
    }

    #[test]
    fn requests_that_began_before_what_is_kept_are_left_out() {
        let mut window = Window::new(Duration::from_secs(1), u64::MAX);
        let sample = |from: u64, until: u64| Sample {
            connection: 1,
            sent_at: Time::from_millis(from),
            first_byte_at: Time::from_millis(until),
            completed_at: Time::from_millis(until),
            outcome: Outcome::Succeeded,
            status: 200,
            ..Sample::due(Time::from_millis(from), true)
        };
        for (from, until) in [(100, 200), (900, 1_100), (1_200, 1_300), (1_250, 1_300)] {
            window.ended(0, sample(from, until));
        }
        let record = ConnectionRecord { index: 1, closed_at: Time::NEVER, ..ConnectionRecord::default() };
        window.at(0).ended.push_back((Protocol::H2c, record));
        window.look(Time::from_millis(2_000));
        let records = window.records(0, "http://10.0.0.7:8080", std::iter::empty());
        let [record] = &records[..] else { panic!("one: {records:?}") };
        assert_eq!(record.samples.len(), 2);
        assert_eq!(
            (record.started_at, record.cell.work.arrival),
            (Time::from_millis(1_200), Arrival::Closed { concurrency: 2 })
        );
        assert!(record.is_of_packets());
        assert!(window.records(7, "http://a", std::iter::empty()).is_empty());
        window.look(Time::from_millis(9_000));
        assert!(window.records(0, "http://a", std::iter::empty()).is_empty());
    }
}
