//! A fleet as records have it, for tests of the coordinator, summaries and reports.

use std::time::Duration;

use super::plan::PlanInput;
use super::record::FleetAsked;
use super::{
    AGENT_VERSION, AgentCard, AgentLimits, AgentRecord, ClientIdentity, ClockOffset, Ending, FetchTask,
    FleetJob, FleetPlan, FleetRecord, FleetTimeouts, LoadJob, LoadTask, PairEnd, PairFigures, PairRecord,
    Pairing, PartReport, Reach, RoundTrip, Server, ServerFigures, ServerPlace, ShareProgress, Trust,
};
use crate::bulk::record::RECORD_VERSION;
use crate::bulk::{ByteMeter, FrameFigures, RateSpread, TransferDirection, TransferOutcome};
use crate::record::{Fault, Histogram, HostId, Level};
use crate::scenario::{Axis, LiveTarget, MatrixAxes, Scenario, WorkAxes};
use crate::workload::{EngineSettings, Protocol, Share};
use h2lab_base::units::Time;
use h2lab_transfer::Sizes;

/// A job for so many clients and servers, each client with one concurrent transfer from each server; ten seconds.
pub fn job(clients: u32, servers: u32) -> FleetJob {
    let input = PlanInput {
        clients,
        servers,
        concurrency: servers,
        connections: None,
        pairing: Pairing::All,
        seed: 1,
    };
    let listen = "0.0.0.0:0".parse().unwrap();
    FleetJob {
        clients: (0..clients).map(|n| format!("client-{n}")).collect(),
        servers: (1..=servers)
            .map(|n| Server {
                name: format!("server-{}", n - 1),
                place: ServerPlace::Agent { listen, host: format!("10.0.0.{n}") },
            })
            .collect(),
        concurrency: input.concurrency,
        plan: FleetPlan::make(&input).unwrap(),
        direction: TransferDirection::Get,
        protocol: Protocol::H1,
        upgrade: false,
        sizes: Sizes::Fixed(1 << 30),
        duration: Duration::from_secs(10),
        timeout: Duration::from_secs(30),
        settings: EngineSettings::default(),
        fields: Vec::new(),
        congestion: None,
        trust: Trust::default(),
        reach: Reach::default(),
        seed: 1,
        waits: FleetTimeouts { setup: Duration::from_secs(30), grace: Duration::from_secs(4) },
    }
}

/// The task of a client for a pair.
pub fn fetch_task(pair: u32) -> FetchTask {
    FetchTask {
        pair,
        direction: TransferDirection::Get,
        urls: vec!["http://10.0.0.1:8080/bytes/1".to_owned()],
        protocol: Protocol::H2c,
        upgrade: true,
        connections: 1,
        streams: 8,
        duration: Duration::from_secs(10),
        timeout: Duration::from_secs(30),
        settings: EngineSettings { max_frame_size: Some(1 << 20), ..EngineSettings::default() },
        fields: vec![("x-tenant".to_owned(), "a".to_owned())],
        congestion: None,
        trust: Trust {
            ca_pem: Some("PEM".to_owned()),
            identity: Some(ClientIdentity { certificates_pem: "CERT".to_owned(), key_pem: "KEY".to_owned() }),
            ..Trust::default()
        },
        reach: Reach {
            resolve: vec!["a.test:443:192.0.2.1".parse().unwrap()],
            connect_to: vec!["a.test:::8443".parse().unwrap()],
            ..Reach::default()
        },
    }
}

/// A pair that was begun at `began_ms` and carried so many bytes in so many seconds, evenly; its last file was cut.
pub fn figures(began_ms: u64, bytes: u64, seconds: u64) -> PairFigures {
    let mut meter = ByteMeter::new(Time::from_millis(began_ms));
    for n in 1..=10 {
        meter.add(Time::from_millis(began_ms + 100 * n * seconds), bytes / 10);
    }
    let cut = TransferOutcome::Partial { why: "the time was over".to_owned() };
    PairFigures {
        endings: vec![
            Ending { outcome: TransferOutcome::Complete, files: 3, bytes: bytes / 10 * 9 },
            Ending { outcome: cut, files: 1, bytes: bytes - bytes / 10 * 9 },
        ],
        meter,
        per_stream: RateSpread::of([1e8, 2e8, 4e8]),
        broken_streams: 1,
        connections: 1,
        frames: FrameFigures {
            data: 100,
            data_bytes: bytes,
            largest_data: 65_536,
            updates: 10,
            update_bytes: 2 * bytes,
        },
        max_frame_size: Some(1 << 20),
        update_bytes: Some(1 << 20),
        limit: None,
        cpu: Duration::from_millis(300),
        interrupted: false,
        paused: Duration::ZERO,
    }
}

/// The figures of a server that sent 2 GB over two connections.
pub fn server_figures() -> ServerFigures {
    ServerFigures {
        cpu: Duration::from_secs(1),
        sent: 2_000_000_000,
        received: 0,
        connections: 2,
        retransmits: Some(12),
        congestion: Some("cubic".to_owned()),
        paused: Duration::ZERO,
        busiest: None,
    }
}

/// The task of an agent that makes a whole load: 6,000 requests per second for 9 seconds after one of warm-up.
pub fn load_task() -> LoadTask {
    let url = "https://shop.example/cart".to_owned();
    let live = LiveTarget { url: url.clone(), path: "/cart".to_owned(), protocols: Axis::one(Protocol::H2) };
    LoadTask {
        scenario: Scenario {
            repetitions: 1,
            work: WorkAxes {
                rate: Axis::one(6_000.0),
                warmup: Duration::from_secs(1),
                measure: Axis::one(Duration::from_secs(9)),
                drain: Duration::from_secs(1),
                ..WorkAxes::default()
            },
            matrix: MatrixAxes {
                live: vec![live],
                protocols: Axis::one(Protocol::H2),
                ..MatrixAxes::default()
            },
            ..Scenario::default()
        },
        congestion: Some("bbr".to_owned()),
        requests: None,
        share: Share::default(),
        threads: 2,
        level: Level::Hist,
        frames: false,
        url,
        reach: Reach::default(),
        trust: Trust::default(),
        protocol: Protocol::H2,
    }
}

/// That load by so many agents.
pub fn load_job(agents: u32) -> LoadJob {
    LoadJob {
        agents: (0..agents).map(|n| format!("kek-{n}")).collect(),
        task: load_task(),
        duration: Duration::from_secs(11),
        waits: FleetTimeouts { setup: Duration::from_secs(30), grace: Duration::from_secs(4) },
    }
}

/// The progress of a third of that load after so many seconds.
pub fn share_progress(seconds: u64) -> ShareProgress {
    ShareProgress {
        elapsed: Duration::from_secs(seconds),
        total: Duration::from_secs(10),
        due: 2_000 * seconds,
        succeeded: 1_990 * seconds,
        failed: seconds,
        waiting: 1,
        in_flight: 8,
        connections: 8,
        opened: 8,
        recent: Histogram::of([Duration::from_millis(2), Duration::from_millis(3)]),
    }
}

/// The report of an agent that has made a third of that load. It began at time 0 of its clock.
pub fn part_report(agent: &str) -> PartReport {
    let last = ShareProgress {
        waiting: 0,
        in_flight: 0,
        connections: 0,
        recent: Histogram::default(),
        ..share_progress(10)
    };
    PartReport {
        object: format!("5ea1ab1e5ea1ab1e5ea1ab1e5ea1ab1e.{agent}"),
        bytes: 100_000,
        digest: "SHA-256=lmXqbQFtwVJbAQ7KpGdbtKDxCOFGOLRvSgaCyQu7gbQ=".to_owned(),
        started_at: Time::ZERO,
        clock_origin_ns: 0,
        host: HostId::default(),
        late: Duration::from_micros(30),
        interrupted: false,
        cpu: Duration::from_secs(2),
        last,
    }
}

/// An agent of this version on a machine with 8 CPUs and nothing else, that permits nothing and is free.
pub fn agent_card(name: &str) -> AgentCard {
    AgentCard {
        name: name.parse().expect("the name of an agent"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        agent: AGENT_VERSION,
        machine: "Linux".to_owned(),
        host: HostId::default(),
        kernel: "Linux 6.12".to_owned(),
        cpu_model: "EPYC".to_owned(),
        cpus: 8,
        memory: 1 << 34,
        isolation: None,
        realtime: false,
        programs: Vec::new(),
        congestion: Vec::new(),
        limits: AgentLimits::default(),
        allow: Vec::new(),
        busy: None,
        serves_s: 5,
    }
}

fn agent(name: &str, url: Option<&str>) -> AgentRecord {
    let trip = RoundTrip {
        sent: Time::from_millis(10),
        theirs: Time::from_micros(5_400),
        received: Time::from_micros(10_800),
    };
    AgentRecord {
        name: name.to_owned(),
        url: url.map(str::to_owned),
        machine: Some("Linux 6.12.0 x86_64, 4 CPUs".to_owned()),
        version: Some("0.1.0".to_owned()),
        offset: ClockOffset::of(&[trip]),
        served: url.map(|_| server_figures()),
        lost: None,
    }
}

/// Two clients and two servers. The first client fetches from the first server until the end and loses the second one; the
/// second client dies in the middle, after its other pair was refused.
pub fn record() -> FleetRecord {
    let plan = job(2, 2).plan;
    let reported = figures(1000, 1_250_000_000, 10);
    let mut broken = figures(1010, 125_000_000, 2);
    broken.endings[1].outcome = TransferOutcome::Failed {
        why: "the server is gone: connection refused".to_owned(),
        fault: Fault::Sut,
    };
    let mut until_then = ByteMeter::new(Time::from_millis(1005));
    until_then.add(Time::from_millis(4000), 62_500_000);
    let row = |n: usize, end, meter, late| PairRecord { pair: plan.pairs[n], end, meter, late };
    let late = |us| Some(Duration::from_micros(us));
    let lost = "its agent ended: killed by signal 9".to_owned();
    let pairs = vec![
        row(0, PairEnd::Reported(Box::new(reported.clone())), reported.meter, late(80)),
        row(1, PairEnd::Reported(Box::new(broken.clone())), broken.meter, late(120)),
        row(2, PairEnd::Lost { why: format!("ssh:kek-2: {lost}") }, until_then, None),
        row(
            3,
            PairEnd::Failed { why: "10.0.0.2:8080: connection refused".to_owned() },
            ByteMeter::new(Time::ZERO),
            late(90),
        ),
    ];
    let mut clients = vec![agent("ssh:kek-1", None), agent("ssh:kek-2", None)];
    clients[1].lost = Some(lost);
    FleetRecord {
        schema: RECORD_VERSION,
        version: "0.1.0".to_owned(),
        command: ["h2lab", "bulk", "drive", "--clients=ssh:kek-1,ssh:kek-2"].map(str::to_owned).to_vec(),
        started: "2026-01-31T12:00:00Z".to_owned(),
        machine: "Linux 6.12.0 x86_64, 2 CPUs".to_owned(),
        seed: 1,
        protocol: Protocol::H2c,
        asked: FleetAsked {
            direction: TransferDirection::Get,
            concurrency: 2,
            duration: Duration::from_secs(10),
            grace: Duration::from_secs(4),
            sizes: Sizes::Fixed(1 << 30),
            engine: EngineSettings::default(),
            congestion: Some("cubic".to_owned()),
        },
        clients,
        servers: vec![
            agent("ssh:lyon-1", Some("http://10.0.0.1:8080")),
            agent("ssh:lyon-2", Some("http://10.0.0.2:8080")),
        ],
        pairs,
        start_at: Time::from_millis(1000),
        interrupted: false,
        warnings: Vec::new(),
    }
}
