//! Synthetic repetitions for tests of statistics, rules and reports: made by a small model from a seed.
//!
//! The model includes what makes latencies hard to compare: heavy-tailed stalls (retransmission timeouts that double),
//! shared by all requests of a connection, and a backlog that drains only as fast as the connection's window allows.

use std::time::Duration;

use super::link::DirectionTotals;
use super::tally::Tallier;
use super::{
    CellRecord, CloseReason, ConnectionRecord, Environment, GeneratorSummary, HttpRecord, LinkSummary, Marks,
    Outcome, PacketFate, PacketRecord, RunRecord, SCHEMA_VERSION, Sample,
};
use crate::scenario::{Cell, Scenario, Target};
use crate::workload::{Arrival, EngineSettings, H2cMode, Phases, Protocol, RequestShape, Schedule, Work};
use h2lab_base::counters::{TcpSummary, TlsRecords};
use h2lab_base::random::Counter;
use h2lab_base::units::{Ratio, Time};
use h2lab_link::{Impairment, LinkSpec, LossModel};
use h2lab_wire::trace::Direction;
use h2lab_wire::{Counters, StreamId};

/// The parameters of a synthetic repetition.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// Round-trip time: the time of an undisturbed request.
    pub rtt: Duration,
    /// Mean of the exponential variation on top.
    pub jitter: Duration,
    /// The chance that a request meets a drop that stalls its connection.
    pub stall_chance: f64,
    /// The part of the stalls that wait for a retransmission timeout rather than a fast retransmission.
    pub timeout_share: f64,
    /// The chance that a retransmission is lost too, which doubles the timeout.
    pub again: f64,
    /// Requests per second that one connection carries while it works off a backlog.
    pub pace: f64,
    /// Every response time is multiplied by this: a real difference.
    pub factor: f64,
    /// The standard deviation, as a share, of a factor shared by all requests of one repetition.
    pub repetition_spread: f64,
    /// Whether to write the packet log, which takes 64 bytes each.
    pub packets: bool,
}

impl Model {
    /// RTT 25 ms and nothing lost.
    pub const CLEAN: Self = Self {
        rtt: Duration::from_millis(25),
        jitter: Duration::from_micros(100),
        stall_chance: 0.0,
        timeout_share: 0.0,
        again: 0.0,
        pace: 20_000.0,
        factor: 1.0,
        repetition_spread: 0.0,
        packets: false,
    };
    /// RTT 25 ms, 3 % of the packets lost in either direction, CUBIC, one request at a time on a connection: after the
    /// last segment of a message nothing follows that could reveal its loss, so most losses wait for a timeout.
    pub const LOSSY: Self =
        Self { stall_chance: 0.08, timeout_share: 0.7, again: 0.06, pace: 290.0, ..Self::CLEAN };
    /// The same with requests that follow each other on a connection and reveal most losses within a round trip.
    pub const LOSSY_SHARED: Self = Self { timeout_share: 0.15, ..Self::LOSSY };
}

/// The smallest retransmission timeout of Linux (`TCP_RTO_MIN`).
const RTO: Duration = Duration::from_millis(200);

/// A cell of `compare`'s default: 1,000 requests/s, POST 1 KiB, 0.5 s of warm-up and 3 s measured.
pub fn cell(index: u32, group: u32, protocol: Protocol, connections: u32, loss: f64) -> Cell {
    let impairment = Impairment {
        delay: Duration::from_micros(12_500),
        loss: LossModel::bernoulli(Ratio::new(loss).expect("a share")),
        ..Impairment::default()
    };
    Cell {
        index,
        group,
        repetition: 0,
        seed: 42,
        request_seed: 42,
        target: Target::Origin,
        sidecar: None,
        protocol,
        h2c_mode: H2cMode::default(),
        max_requests_per_connection: None,
        client: EngineSettings::default(),
        server: EngineSettings::default(),
        setup: crate::scenario::ServerSetup::default(),
        dial: crate::workload::DialPolicy::default(),
        policy: crate::workload::ClientPolicy::default(),
        twin: 0,
        connections,
        max_connections: if protocol.is_multiplexed() { connections } else { 512 },
        streams: if protocol.is_multiplexed() { 100 } else { 1 },
        link: Some(LinkSpec::symmetric(impairment)),
        congestion: Some("cubic".to_owned()),
        sysctls: crate::scenario::Sysctls::default(),
        capture: crate::scenario::CaptureOptions::default(),
        work: Work {
            method: "POST".to_owned(),
            path: "/".to_owned(),
            shape: RequestShape::Mesh,
            headers: Vec::new(),
            body_bytes: 1024,
            body: None,
            mix: Vec::new(),
            template: false,
            secrets: false,
            bulk: false,
            arrival: Arrival::Constant { rate: 1000.0 },
            phases: Phases {
                warmup: Duration::from_millis(500),
                measure: Duration::from_secs(3),
                drain: Duration::from_secs(1),
            },
            timeout: Duration::from_secs(10),
            replay: true,
        },
    }
}

/// One connection of the model.
#[derive(Clone, Copy)]
struct ModelConnection {
    /// Until when nothing comes through.
    blocked_until: Time,
    /// When its last response was complete.
    last: Time,
    requests: u32,
    stalls: u32,
}

const IDLE: ModelConnection =
    ModelConnection { blocked_until: Time::ZERO, last: Time::ZERO, requests: 0, stalls: 0 };

/// One repetition of `cell`, with the seed of its repetition.
pub fn one_repetition(cell: &Cell, repetition: u32, model: &Model) -> CellRecord {
    let mut cell = cell.clone();
    cell.repetition = repetition;
    cell.seed = h2lab_base::random::derive(cell.seed + u64::from(repetition), &cell.label());
    let started_at = Time::from_millis(10);
    let mut connections = vec![IDLE; cell.connections as usize];
    let (samples, packets) = simulate(&cell, model, started_at, &mut connections);
    let link = cell.link.is_some().then(|| link_summary(&samples, &connections, &packets));
    let connections = connections
        .iter()
        .enumerate()
        .map(|(index, carried)| connection(&cell, index as u32, *carried))
        .collect();
    let wall = cell.work.phases.cut(Time::ZERO).as_nanos();
    CellRecord {
        attempt: 0,
        started_at,
        generator: GeneratorSummary {
            cpu_ns: samples.len() as u64 * 12_000,
            wall_ns: wall,
            threads: 1,
            ..GeneratorSummary::default()
        },
        samples: samples.into_iter().collect(),
        tallies: Vec::new(),
        connections,
        frames: Vec::new(),
        tcp: Vec::new(),
        packets,
        link,
        server: None,
        sidecar: None,
        bulk: None,
        agents: Vec::new(),
        environment: Environment {
            congestion_client: "cubic".to_owned(),
            congestion_server: "cubic".to_owned(),
            sysctls: vec![("client net.ipv4.tcp_no_metrics_save".to_owned(), "1".to_owned())],
            placement: vec![("pump".to_owned(), "0".to_owned()), ("generator".to_owned(), "1".to_owned())],
            root: true,
        },
        warnings: Vec::new(),
        cell,
        unsupported: None,
        machine: None,
    }
}

/// Draws all requests of a repetition.
fn simulate(
    cell: &Cell,
    model: &Model,
    started_at: Time,
    connections: &mut Vec<ModelConnection>,
) -> (Vec<Sample>, Vec<PacketRecord>) {
    let mut random = Counter::new(cell.seed, "model");
    let normal = (0..12).map(|_| random.next_f64()).sum::<f64>() - 6.0; // sum of 12 uniforms: variance 1
    let factor = model.factor * (normal * model.repetition_spread).exp();
    let phases = cell.work.phases;
    let (from, until, cut) =
        (phases.measure_from(started_at), phases.measure_until(started_at), phases.cut(started_at));
    let mut schedule = Schedule::new(cell.work.arrival, started_at, cell.seed);
    let (mut samples, mut packets) = (Vec::new(), Vec::new());
    // In a closed loop each of its requests is due when the one before it is answered.
    let mut loops = match cell.work.arrival {
        Arrival::Closed { concurrency } => vec![started_at; concurrency as usize],
        _ => Vec::new(),
    };
    loop {
        let first = loops.iter_mut().min();
        let due = first.as_ref().map_or_else(|| schedule.next_at(), |first| **first);
        if due >= until {
            break;
        }
        if first.is_none() {
            schedule.advance();
        }
        let index = pick(cell, connections, due);
        let carried = &mut connections[index];
        let stall = draw_stall(model, &mut random);
        if model.packets {
            packet_log(&mut packets, due, index, stall);
        }
        let noise = model.jitter.mul_f64(-(1.0 - random.next_f64()).ln());
        let unqueued = due.max(carried.blocked_until) + (model.rtt + noise + stall).mul_f64(factor);
        let paced = carried.last + Duration::from_secs_f64(1.0 / model.pace);
        let done = if cell.protocol.is_multiplexed() { unqueued.max(paced) } else { unqueued };
        if !stall.is_zero() {
            carried.blocked_until = due + stall;
            carried.stalls += 1;
        }
        carried.last = done;
        carried.requests += 1;
        if let Some(first) = first {
            *first = done;
        }
        samples.push(sample(index, carried.requests, due, done, cut, due >= from));
    }
    (samples, packets)
}

/// The connection of the next request: in turn if multiplexed, else an idle one, else a new one.
fn pick(cell: &Cell, connections: &mut Vec<ModelConnection>, due: Time) -> usize {
    if cell.protocol.is_multiplexed() {
        return (0..connections.len()).min_by_key(|&i| connections[i].requests).expect("a connection");
    }
    connections.iter().position(|carried| carried.last <= due).unwrap_or_else(|| {
        connections.push(IDLE);
        connections.len() - 1
    })
}

/// How long the drops that a request meets stall its connection.
fn draw_stall(model: &Model, random: &mut Counter) -> Duration {
    if random.next_f64() >= model.stall_chance {
        return Duration::ZERO;
    }
    if random.next_f64() >= model.timeout_share {
        return model.rtt;
    }
    let mut timeout = RTO.mul_f64(1.0 + 0.3 * random.next_f64()); // it includes the variation of the round trip
    let mut stall = timeout;
    while random.next_f64() < model.again && timeout < RTO * 16 {
        timeout *= 2;
        stall += timeout;
    }
    stall
}

fn sample(connection: usize, nth: u32, due: Time, done: Time, cut: Time, measured: bool) -> Sample {
    let finished = done <= cut;
    Sample {
        connection: connection as u32,
        stream: StreamId::of_request(nth - 1),
        sent_at: due + Duration::from_micros(20),
        first_byte_at: if finished { done - Duration::from_micros(30) } else { Time::NEVER },
        completed_at: done.min(cut),
        outcome: if finished { Outcome::Succeeded } else { Outcome::Unfinished },
        status: if finished { 200 } else { 0 },
        body_bytes: if finished { 1024 } else { 0 },
        ..Sample::due(due, measured)
    }
}

/// Two data segments up and one down per request; a stall is a packet lost, up and down in turn.
fn packet_log(packets: &mut Vec<PacketRecord>, due: Time, connection: usize, stall: Duration) {
    for (direction, payload) in [(Direction::Up, 1448), (Direction::Up, 320), (Direction::Down, 1200)] {
        let index = packets.len() as u64;
        let lost = !stall.is_zero() && payload == if index.is_multiple_of(2) { 320 } else { 1200 };
        packets.push(PacketRecord {
            at: due,
            out_at: if lost { Time::NEVER } else { due + Duration::from_micros(12_500) },
            index,
            client_port: 40_000 + connection as u16,
            server_port: 8080,
            bytes: payload + 52,
            payload,
            seq: 0,
            direction,
            fate: if lost { PacketFate::Lost } else { PacketFate::Delivered },
            marks: Marks::default(),
        });
    }
}

fn link_summary(
    samples: &[Sample],
    connections: &[ModelConnection],
    packets: &[PacketRecord],
) -> LinkSummary {
    let stalls: u64 = connections.iter().map(|carried| u64::from(carried.stalls)).sum();
    let lost = |direction| {
        let hits = packets.iter().filter(|p| p.fate == PacketFate::Lost && p.direction == direction);
        if packets.is_empty() { stalls / 2 } else { hits.count() as u64 }
    };
    let totals = |lost: u64, per_request: u64| {
        let packets_in = samples.len() as u64 * per_request + lost;
        DirectionTotals {
            packets_in,
            delivered: packets_in - lost,
            lost,
            bytes_in: packets_in * 900,
            ..DirectionTotals::default()
        }
    };
    LinkSummary {
        up: totals(lost(Direction::Up), 3),
        down: totals(lost(Direction::Down), 3),
        late_p50_ns: 8_000,
        late_p99_ns: 60_000,
        late_max_ns: 400_000,
        cpu_ns: 400_000_000,
        wall_ns: 4_500_000_000,
        device_drops: 0,
        mechanism: "veth+af_packet".to_owned(),
        fallback_reason: None,
        realtime: true,
    }
}

/// The record of a connection that carried `carried`.
fn connection(cell: &Cell, index: u32, carried: ModelConnection) -> ConnectionRecord {
    let tcp = |retransmits| TcpSummary {
        retransmits,
        rtt_us: 25_300,
        min_rtt_us: 25_000,
        cwnd: 12,
        segments_out: carried.requests * 2,
        segments_in: carried.requests,
        congestion_control: "cubic".to_owned(),
        ..TcpSummary::default()
    };
    let mut counters = Counters { requests: u64::from(carried.requests), ..Counters::default() };
    counters.frames_sent[0] = u64::from(carried.requests);
    counters.frames_sent[1] = u64::from(carried.requests);
    counters.frames_received = counters.frames_sent;
    counters.headers_plain = u64::from(carried.requests) * 744;
    counters.headers_sent = if cell.protocol.is_multiplexed() {
        600 + u64::from(carried.requests) * 24
    } else {
        counters.headers_plain
    };
    counters.headers_received = counters.headers_sent / 4;
    ConnectionRecord {
        index,
        local_port: 40_000 + index as u16,
        remote_port: 8080,
        dialled_at: Time::ZERO,
        connected_at: Time::from_micros(25_100),
        ready_at: Time::from_micros(25_200),
        tls_resumed: None,
        tls_records: TlsRecords::default(),
        closed_at: Time::NEVER,
        closed: CloseReason::Cell,
        goaways: Vec::new(),
        resets_received: Vec::new(),
        highest_stream: StreamId::of_request(carried.requests.saturating_sub(1)),
        requests: carried.requests,
        bytes_sent: counters.headers_sent + u64::from(carried.requests) * 1024,
        bytes_received: counters.headers_received + u64::from(carried.requests) * 1024,
        counters,
        server_software: Some("h2lab".into()),
        tcp_client: Some(tcp(carried.stalls / 2)),
        tcp_server: Some(tcp(carried.stalls - carried.stalls / 2)),
        quic_client: None,
        http: HttpRecord::default(),
    }
}

/// A run with these repetitions.
pub fn run(repetitions: Vec<CellRecord>) -> RunRecord {
    RunRecord {
        schema: SCHEMA_VERSION,
        version: "0.1.0".to_owned(),
        started: "2026-01-31T12:00:00Z".to_owned(),
        command: ["h2lab", "compare", "--seed", "42"].map(str::to_owned).to_vec(),
        seed: 42,
        machine: "Linux 6.12.0 x86_64, 4 CPUs".to_owned(),
        scenario: Scenario::default(),
        repetitions,
        interrupted: false,
        failure: None,
        resumed: Vec::new(),
    }
}

/// The default plan of `compare`: h1 and h2c with 1, 4 and 16 connections at 0 % and 3 % loss, two repetitions each, in
/// the order A B C D D C B A.
pub fn compare(packets: bool) -> RunRecord {
    let points = [(Protocol::H1, 32), (Protocol::H2c, 1), (Protocol::H2c, 4), (Protocol::H2c, 16)];
    let mut repetitions = Vec::new();
    for (group, (loss, model)) in [(0.0, Model::CLEAN), (0.03, Model::LOSSY)].into_iter().enumerate() {
        let cells: Vec<Cell> = points
            .iter()
            .enumerate()
            .map(|(i, &(protocol, connections))| {
                cell((group * points.len() + i) as u32, group as u32, protocol, connections, loss)
            })
            .collect();
        let model = |cell: &Cell| {
            let timeout_share = if cell.protocol.is_multiplexed() {
                Model::LOSSY_SHARED.timeout_share
            } else {
                model.timeout_share
            };
            Model { timeout_share, packets, ..model }
        };
        repetitions.extend(cells.iter().map(|cell| one_repetition(cell, 0, &model(cell))));
        repetitions.extend(cells.iter().rev().map(|cell| one_repetition(cell, 1, &model(cell))));
    }
    run(repetitions)
}

/// The same repetition as recorded at the levels that count requests instead of keeping them.
pub fn counted(mut record: CellRecord) -> CellRecord {
    let mut tallier = Tallier::new(record.cell.work.phases, record.started_at);
    record.samples.iter().for_each(|sample| tallier.add(&sample));
    record.tallies = tallier.finish(0);
    record.samples.clear();
    record
}
