//! One repetition of a cell, and a whole run.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BulkRepetition, ConnectionRecord, Disturbance, Level, LinkSummary, MeasuredOn, PacketRecord, Sample,
    Samples, ShareSummary, Tally,
};
use crate::scenario::{Cell, Scenario};
use h2lab_base::counters::TcpTick;
use h2lab_base::secrets::without_secrets;
use h2lab_base::units::Time;
use h2lab_wire::trace::FrameEvent;

/// Version of the run folder's layout; a reader refuses a newer one.
pub const SCHEMA_VERSION: u32 = 1;

/// How the generator itself did.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorSummary {
    /// CPU time of the generator between start and cut, in nanoseconds.
    pub cpu_ns: u64,
    /// Wall-clock time of the same, in nanoseconds.
    pub wall_ns: u64,
    /// Threads that generated load.
    pub threads: u32,
    /// Requests still waiting for a connection or a slot at the cut.
    pub backlog_at_cut: u64,
    /// CPU time of the thread that worked most, in nanoseconds; 0 in records of before the field.
    #[serde(default)]
    pub busiest_ns: u64,
    /// Of `cpu_ns`, time in which threads stayed awake for a request that was about to be due, in nanoseconds: no work, and
    /// no sign that the generator has too much of it. `busiest_ns` is without it.
    #[serde(default)]
    pub awake_ns: u64,
    /// For how long between start and cut each CPU of this machine would have run and was not let by its hypervisor, which had
    /// others on it ("steal", proc(5)), on average, in nanoseconds; 0 on bare metal, and in records of before.
    #[serde(default)]
    pub stolen_ns: u64,
    /// In sum, for how long a thread did not run although it was to look at its schedule, in nanoseconds: it was stopped, or
    /// its machine was. Of the thread with the longest sum; times below 20 ms are not in it.
    #[serde(default)]
    pub paused_ns: u64,
    /// The longest of these times, in nanoseconds.
    #[serde(default)]
    pub longest_pause_ns: u64,
    /// What was recorded of each request.
    #[serde(default)]
    pub level: Level,
    /// Memory of the generator's process.
    #[serde(default)]
    pub memory: GeneratorMemory,
}

/// Memory of the generator's process, resident, in bytes; zeros where it could not be seen, and in records of before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorMemory {
    /// Before the first connection was dialled.
    pub before: u64,
    /// When all connections were up and nothing had been asked.
    pub connected: u64,
    /// The most until the cut.
    pub peak: u64,
}

/// The process of a server or of a sidecar, where we started it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ServerSummary {
    /// `origin`, `nginx` …
    pub name: String,
    /// As it says itself.
    pub version: String,
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// Wall-clock time of the same, in nanoseconds.
    pub wall_ns: u64,
    /// The most memory that was resident at a time, in bytes; 0 where it could not be seen, and in records of before the
    /// field.
    #[serde(default)]
    pub rss_peak_bytes: u64,
    /// How it waited for a CPU; zeros where the kernel does not count it, and in records of before the field.
    #[serde(default)]
    pub run_delay: RunDelay,
    /// For how long the kernel kept the main thread of one of its processes waiting for a disk or a network file system, that of the
    /// one that waited longest, in nanoseconds, as looks at its state every 20 ms saw it; 0 in records of before the field.
    #[serde(default)]
    pub disk_wait_ns: u64,
    /// What our origin counted, if that is the server, or the upstream behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginCounts>,
    /// What stopped or ended it during the repetition, or the origin behind it, if anything did: the first such event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<Disturbance>,
}

/// What our origin counted in a repetition, of all its connections: of a proxy under test, those of its upstream. The
/// last tenth of a second may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct OriginCounts {
    /// Requests whose heads arrived.
    pub requests: u64,
    /// Connections that it accepted, with those that only saw whether it listens.
    pub connections: u64,
    /// Of these, the connections of HTTP/2 and HTTP/3, which can carry several requests at a time.
    pub multiplexed: u64,
    /// The most connections that had a request to answer at a time.
    pub most_busy: u64,
    /// For how long connections had one, added up over them, in nanoseconds.
    pub busy_ns: u64,
    /// The time in which all of this was counted, in nanoseconds.
    pub wall_ns: u64,
    /// System calls that wrote to TCP sockets.
    pub writes: u64,
    /// Frames that it sent over HTTP/2 and HTTP/3.
    pub frames: u64,
}

/// How the threads of a server, and of the origin behind it, waited for a CPU, in nanoseconds of one repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunDelay {
    /// For how long they ran, added up.
    pub ran_ns: u64,
    /// For how long they were ready to run and had no CPU, added up.
    pub waited_ns: u64,
    /// The longest such time of one of them, less what others of the same server ran meanwhile.
    pub longest_ns: u64,
    /// CPU time that programs other than ours used meanwhile.
    pub others_ns: u64,
}

impl RunDelay {
    /// How much of the waiting other programs explain: the rest is a server with more to do than it has CPUs.
    pub fn taken_ns(&self) -> u64 {
        self.waited_ns.min(self.others_ns)
    }
}

/// The sidecar on the client's side.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SidecarSummary {
    /// Its process.
    pub process: ServerSummary,
    /// TCP connections over the link from its start to the end of the repetition: what it took to carry the requests, whether it
    /// was configured with a number or not.
    pub connections: u32,
}

/// What a repetition was made under, read back from the kernel rather than assumed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Congestion control of the client's namespace, read back from a socket.
    pub congestion_client: String,
    /// The same of the server's.
    pub congestion_server: String,
    /// Sysctls that we set, as read back: `client net.ipv4.tcp_rmem`, value.
    pub sysctls: Vec<(String, String)>,
    /// CPUs of the link pump, the generator and the server, as placed: `pump`, `0`.
    pub placement: Vec<(String, String)>,
    /// Whether the run had root rather than a user namespace.
    pub root: bool,
}

/// One repetition of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// The cell.
    pub cell: Cell,
    /// 0 for the first try; a cell whose measurement was invalid is repeated.
    pub attempt: u32,
    /// When the first request was due: all phases count from here.
    pub started_at: Time,
    /// Every request, in the order of `scheduled_at`; with `tallies` the slowest and a uniform part only.
    pub samples: Samples,
    /// Every request, counted, where they were not all kept: see [`Level`]. Else empty.
    #[serde(default)]
    pub tallies: Vec<Tally>,
    /// Every connection, by index.
    pub connections: Vec<ConnectionRecord>,
    /// Every frame, in the order of `at`.
    pub frames: Vec<FrameEvent>,
    /// `TCP_INFO` over time.
    pub tcp: Vec<TcpTick>,
    /// The packet log; empty over a real network.
    pub packets: Vec<PacketRecord>,
    /// Totals of the packet log; `None` over a real network.
    pub link: Option<LinkSummary>,
    /// How the generator did.
    pub generator: GeneratorSummary,
    /// Figures of the server; `None` if we did not start it.
    pub server: Option<ServerSummary>,
    /// Figures of the client's sidecar; `None` without one.
    pub sidecar: Option<SidecarSummary>,
    /// The figures of bulk work; else `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk: Option<BulkRepetition>,
    /// The shares of the agents that made the load, by number; empty where the driver made it itself, and in records of before
    /// the field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<ShareSummary>,
    /// Its environment.
    pub environment: Environment,
    /// Warnings about the measurement, in sentences.
    pub warnings: Vec<String>,
    /// Why it could not be measured: the target does not speak the cell's protocol. All else is empty then.
    pub unsupported: Option<String>,
    /// The agent that made it, and its machine; `None` if that is the machine of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MeasuredOn>,
}

impl CellRecord {
    /// The connection with this index, which a sample names. As a rule that is its place too, but not where some were not kept; then they
    /// are in this order as a rule.
    pub fn connection(&self, index: u32) -> Option<&ConnectionRecord> {
        let is_it = |connection: &&ConnectionRecord| connection.index == index;
        let by_order = || {
            let place = self.connections.binary_search_by_key(&index, |connection| connection.index).ok()?;
            self.connections.get(place)
        };
        let at_place = self.connections.get(index as usize).filter(is_it);
        // Requests that never had one are many where a server is not there.
        let anywhere = || self.connections.iter().find(is_it);
        at_place.or_else(by_order).or_else(|| if index == Sample::NO_CONNECTION { None } else { anywhere() })
    }

    /// The record of a cell whose target does not speak its protocol. It stands for all repetitions of the cell.
    pub fn unsupported(cell: Cell, why: String) -> Self {
        Self { unsupported: Some(why), ..Self::empty(cell) }
    }

    /// Whether it was read out of packets of a client that is not ours: nothing of that client was measured.
    pub const fn is_of_packets(&self) -> bool {
        self.generator.wall_ns == 0
    }

    /// A repetition without records.
    pub fn empty(cell: Cell) -> Self {
        Self {
            cell,
            attempt: 0,
            started_at: Time::ZERO,
            samples: Samples::new(),
            tallies: Vec::new(),
            connections: Vec::new(),
            frames: Vec::new(),
            tcp: Vec::new(),
            packets: Vec::new(),
            link: None,
            generator: GeneratorSummary::default(),
            server: None,
            sidecar: None,
            bulk: None,
            agents: Vec::new(),
            environment: Environment::default(),
            warnings: Vec::new(),
            unsupported: None,
            machine: None,
        }
    }
}

/// A whole run, as `run.json` has it; the repetitions' bulk is in the Parquet files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Version of h2lab.
    pub version: String,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// The command line, as given.
    pub command: Vec<String>,
    /// The seed of everything random.
    pub seed: u64,
    /// Kernel and machine.
    pub machine: String,
    /// What was asked.
    pub scenario: Scenario,
    /// The repetitions in order.
    pub repetitions: Vec<CellRecord>,
    /// Whether the run was interrupted before its end.
    pub interrupted: bool,
    /// Why the run could not go on to its end; `None` if it did, and if the user ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// When it was resumed after interruptions, UTC, RFC 3339. Times of repetitions count from the last of these before
    /// them.
    #[serde(default)]
    pub resumed: Vec<String>,
}

impl RunRecord {
    /// The run as it is stored and reported: see [`Scenario::without_secrets`].
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        if !self.scenario.work.secrets {
            self.command.iter_mut().for_each(|word| *word = without_secrets(word).into_owned());
        }
        self.scenario = self.scenario.without_secrets();
        self.repetitions.iter_mut().for_each(|one| one.cell = one.cell.without_secrets());
        self
    }

    /// Whether `cell`, of the run's plan, needs no run: it has a record, or cannot have one.
    pub fn has(&self, cell: &Cell) -> bool {
        self.repetitions.iter().any(|measured| {
            let is_same_repetition =
                measured.unsupported.is_some() || measured.cell.repetition == cell.repetition;
            measured.cell.index == cell.index && is_same_repetition
        })
    }
}
