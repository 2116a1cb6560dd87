//! The JSON document of `run --json` and `compare --json`: a contract that scripts rely on.
//!
//! Latencies are in microseconds, rates per second, sizes in bytes. Unknown values are `null`, never 0. An unstable cell has its
//! latencies here (text prints none); its `state` qualifies them.

mod agents;
mod build;
mod bulk;
mod causes;
mod fleet;
mod load;
mod machines;
pub(crate) mod round;
mod runs;
mod study;
mod timeline;

use std::collections::BTreeMap;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

pub use agents::{
    AgentCardDocument, AgentClockDocument, AgentLimitsDocument, AgentsDocument, NatsServerDocument,
    OpenRunDocument, ProgramDocument, agent_card_document,
};
pub use build::{document, documents};
pub use bulk::{
    AskedDocument, BulkCellDocument, BulkDocument, BulkFramesDocument, BulkStallsDocument, ChecksumDocument,
    CpuDocument, IntervalsDocument, StreamsDocument, TransferDocument, bulk_document,
};
pub use causes::{
    CausesDocument, DropDocument, IntervalDocument, LatencyBreakdownDocument, PartDocument, RepairDocument,
};
pub use fleet::{
    AgentDocument, FleetAskedDocument, FleetDocument, PairDocument, StartDocument, fleet_document,
};
pub use load::{LoadDocument, ShareDocument, SharesDocument, load_document};
pub use machines::{MachineDocument, OwnVerdictDocument, ReproductionDocument};
pub use runs::{DifferenceDocument, FigurePairDocument, RunsComparisonDocument};
pub(crate) use runs::{comparison as run_comparison, figure_pairs};
pub use study::{ConditionDocument, ConfigurationDocument, NeededDocument, RampsDocument, StudyDocument};
pub use timeline::{TimelineAsked, TimelineDocument, timeline_document};

use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::stats::{
    ByteCounts, Closing, ErrorCount, GoAwayCount, ProcessTotals, PushCounts, QuicEnd, RateRatio,
    RequestCounts, RequestSpread, ResetCount, TcpEnd,
};
use h2lab_model::record::Level;
use h2lab_model::scenario::{Sysctls, Topology};
use h2lab_model::workload::Protocol;

/// The document of several runs: `report RUN RUN … --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunsDocument {
    /// Each run as it is alone, in the order given.
    pub runs: Vec<Document>,
    /// Each run but the first against the first.
    pub comparisons: Vec<RunsComparisonDocument>,
}

/// The whole document of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// Version of h2lab.
    pub version: String,
    /// The command line, as given.
    pub command: Vec<String>,
    /// When the run began, UTC, RFC 3339.
    pub started: String,
    /// Kernel and machine.
    pub machine: String,
    /// The seed of everything random.
    pub seed: u64,
    /// Where the run folder is; null if it was not kept.
    pub run_folder: Option<String>,
    /// Where the HTML report is; null if none was written.
    pub report: Option<String>,
    /// The answer, in one to three sentences.
    #[serde(default)]
    pub answer: String,
    /// Whether the run was interrupted before its end.
    pub interrupted: bool,
    /// When it was resumed after an interruption, UTC, RFC 3339.
    pub resumed: Vec<String>,
    /// Each cell, its repetitions pooled, in the order of the matrix.
    pub cells: Vec<CellDocument>,
    /// Each cell of a group against the group's baseline.
    pub verdicts: Vec<VerdictDocument>,
    /// Cells that differ in one setting (connections, congestion control, a sysctl, the server, a setting of an engine), against
    /// the first value of it.
    #[serde(default)]
    pub pairs: Vec<SettingPairDocument>,
    /// Diagnoses, dearest first.
    pub findings: Vec<Finding>,
    /// What these leave of the differences that they divide; a difference that they explain to 99 % or more is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unexplained: Vec<UnexplainedDocument>,
    /// The study's part; null unless the scenario says `study = true`.
    #[serde(default)]
    pub study: Option<StudyDocument>,
    /// The machines of the agents that measured it, and what each did; none if this machine did it itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<MachineDocument>,
    /// Comparisons that several machines made, each by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reproductions: Vec<ReproductionDocument>,
    /// Warnings about the measurement as a whole.
    pub warnings: Vec<String>,
}

/// What the findings about a cell leave of its difference from the other protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnexplainedDocument {
    /// The index of the cell.
    pub cell: u32,
    /// The part that they do not explain, 0 to 1.
    pub part: f64,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellDocument {
    /// Its index in the matrix.
    pub index: u32,
    /// Cells of one group are compared with each other.
    pub group: u32,
    /// How tables name it.
    pub label: String,
    /// Who answered: `origin`, `nginx`, or a URL.
    pub target: String,
    /// Where sidecars stand: `direct`, `sidecar` (beside the client), `two-sidecars`.
    pub topology: Topology,
    /// The protocol over the link: `h1`, `h1s`, `h2`, `h2c`, `h3`. A sidecar is asked in `h1`.
    pub protocol: Protocol,
    /// How `h2c` begins: `prior-knowledge` or `upgrade`; null for the others.
    pub mode: Option<String>,
    /// The server that we started; a proxy's process is its own, without what is behind it. Null for a live server.
    pub server: Option<ProcessTotals>,
    /// The client's sidecar; null without one.
    pub sidecar: Option<ProcessTotals>,
    /// TCP connections that the sidecar held over the link, added up over all repetitions; null without one.
    pub hop_connections: Option<u64>,
    /// Connections opened before measuring.
    pub connections: u32,
    /// Streams per connection that we allow ourselves.
    pub streams: u32,
    /// Requests after which the server was configured to end a connection; null for no limit.
    pub max_requests_per_connection: Option<u32>,
    /// What is dialled when no connection is usable: `single-flight` or `stampede`; null for HTTP/1.1.
    pub dial_policy: Option<String>,
    /// How many repetitions are pooled.
    pub repetitions: u32,
    /// Measured seconds, of all repetitions.
    pub duration_s: f64,
    /// `ok`, `unstable`, `failed` (no success, or the server ended), `invalid` or `unsupported`.
    pub state: String,
    /// Why it is not ok, in sentences.
    pub reasons: Vec<String>,
    /// How the measured requests ended.
    pub requests: RequestCounts,
    /// Complete responses by status.
    pub status: BTreeMap<String, u64>,
    /// Failures, the most frequent first.
    pub errors: Vec<ErrorCount>,
    /// Requests per second that were due inside the measured time, those of lost shares included.
    pub rate_rps: f64,
    /// Successful responses per second that were complete inside the measured time.
    pub throughput_rps: f64,
    /// Body bytes per second of those.
    pub goodput_bytes_per_s: f64,
    /// Latencies.
    pub latency_us: LatenciesDocument,
    /// What was recorded of each request: `full` (each of them, so that percentiles are exact), `tail` (counted in histograms of
    /// three digits; only the slowest, the failed and a thousandth of the others one by one) or `hist` (counted only).
    pub record: Level,
    /// Established connections, of all repetitions.
    pub connections_opened: u64,
    /// How and why connections ended, dials that came to nothing included; the most frequent first.
    pub connections_closed: Vec<Closing>,
    /// Established connections that never carried a request.
    pub useless_dials: u64,
    /// Time in which no connection could take a request, from the first request due to the end of measuring.
    pub zero_connections_ms: f64,
    /// Requests per connection, on average.
    pub requests_per_connection: f64,
    /// Requests on the connections that carried any; null if none did.
    pub streams_per_connection: Option<RequestSpread>,
    /// How long measured requests waited, added up.
    pub stalls_us: StallsDocument,
    /// Bytes of a request on the wire, on average, as handed to TCP; null if no request was sent, or too many were cut.
    pub request_bytes: Option<f64>,
    /// TCP data segments per request, client to server; in HTTP/3 UDP datagrams, those that only acknowledge among them. Null
    /// if they were not seen.
    pub request_segments: Option<f64>,
    /// From dialling to ready.
    pub handshakes: HandshakesDocument,
    /// GOAWAYs received.
    pub goaway: Vec<GoAwayCount>,
    /// `RST_STREAM`s, of both sides.
    pub rst_stream: Vec<ResetCount>,
    /// Responses that the server pushed.
    pub pushes: PushCounts,
    /// Interim responses by status.
    pub interim: BTreeMap<String, u64>,
    /// Settings in effect on the first connection; null in HTTP/1.1.
    pub settings: Option<SettingsDocument>,
    /// Header bytes that HPACK or QPACK saved against HTTP/1.1 text.
    pub header_bytes_saved: u64,
    /// Bytes in clear.
    pub bytes: ByteCounts,
    /// Frames by type; HTTP/1.1 counts heads as HEADERS and pieces of body as DATA.
    pub frames: FramesDocument,
    /// Both ends of TCP. The client's end is blind to the server's retransmits.
    pub tcp: TcpDocument,
    /// Our end of QUIC; null where nothing speaks it, and never of the server, whose end nobody else can see.
    #[serde(default)]
    pub quic: Option<QuicEnd>,
    /// The emulated link; null over a real network.
    pub link: Option<LinkDocument>,
    /// What moved; null unless the work is bulk. Latencies say nothing there.
    #[serde(default)]
    pub bulk: Option<BulkCellDocument>,
    /// What its slow requests waited for; null unless that was asked (`--causes`).
    #[serde(default)]
    pub causes: Option<CausesDocument>,
    /// Kernel settings that were asked for on each side, by name; those that every run has are in the run folder.
    pub sysctls: Sysctls,
    /// How the generator did.
    pub generator: GeneratorDocument,
    /// Warnings about the measurement.
    pub warnings: Vec<String>,
    /// Diagnoses of this cell.
    pub findings: Vec<Finding>,
    /// The seed of its first repetition.
    pub seed: u64,
    /// Version of h2lab.
    pub version: String,
}

/// What requests waited for, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StallsDocument {
    /// A connection or a stream slot.
    pub open: f64,
    /// A flow-control window.
    pub window: f64,
    /// Room in the socket.
    pub socket: f64,
}

/// Settings by name (RFC 9113 §6.5.2), announced or initial; no limit is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingsDocument {
    /// Ours.
    pub local: BTreeMap<String, u32>,
    /// The server's; empty if it never said.
    pub remote: BTreeMap<String, u32>,
}

/// The three latencies; each is null if no request has it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatenciesDocument {
    /// Completed − scheduled: what a user waits. Unfinished requests count with the age that they reached.
    pub response: Option<LatencyDocument>,
    /// Completed − sent.
    pub service: Option<LatencyDocument>,
    /// First byte − sent.
    pub ttfb: Option<LatencyDocument>,
}

/// Percentiles in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it all")]
pub struct LatencyDocument {
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    pub mean: f64,
    pub n: u64,
}

/// Handshakes: TCP, TLS and HTTP/2 preface.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HandshakesDocument {
    /// How many.
    pub count: u64,
    /// Their median, in microseconds.
    pub p50_us: f64,
    /// Their 99th percentile, in microseconds.
    pub p99_us: f64,
    /// How many TLS handshakes resumed an earlier session; null in clear.
    pub resumed: Option<u64>,
}

/// Frames by type; types that did not occur are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FramesDocument {
    /// Sent.
    pub sent: BTreeMap<String, u64>,
    /// Received.
    pub received: BTreeMap<String, u64>,
}

/// Both ends of TCP; null where an end could not be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TcpDocument {
    /// Our end.
    pub client: Option<TcpEnd>,
    /// The server's end.
    pub server: Option<TcpEnd>,
}

/// The emulated link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkDocument {
    /// One-way delay of the uplink.
    pub delay_ms: f64,
    /// Both one-way delays together.
    pub rtt_ms: f64,
    /// Share of packets lost by chance, 0 to 1; the worse direction.
    pub loss: f64,
    /// The loss model: `none`, `bernoulli`, `gilbert-elliott`, `burst`; ` by time` is added where time is its clock.
    pub model: String,
    /// Congestion control, read back; null if it was left to the system and could not be read.
    pub congestion_control: Option<String>,
    /// Packets that did not come out, uplink.
    pub dropped_up: u64,
    /// Packets that did not come out, downlink.
    pub dropped_down: u64,
    /// Those of both that found the queue full.
    pub tail_dropped: u64,
    /// How late packets left: the worst repetition's 99th percentile.
    pub late_us_p99: f64,
}

/// How the generator did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorDocument {
    /// CPU time per request.
    pub cpu_us_per_request: f64,
    /// Of that, time in which it stayed awake, so that the request went out when it was due.
    #[serde(default)]
    pub awake_us_per_request: f64,
    /// How late it sent: median.
    pub late_us_p50: f64,
    /// The 99th percentile.
    pub late_us_p99: f64,
    /// The worst.
    pub late_us_max: f64,
    /// Threads that generated load.
    pub threads: u32,
    /// Its memory.
    pub memory_bytes: MemoryDocument,
}

/// Memory of the generator's process, resident, in bytes. What each connection and request takes is reported only of so many that
/// all else in the process does not matter: 100 connections, 1,000 requests in flight of a closed loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryDocument {
    /// The most that it had; null if that could not be seen.
    pub peak: Option<u64>,
    /// For each connection, before anything was asked; null of few.
    pub per_connection: Option<u64>,
    /// For each request in flight, which in HTTP/2 is a stream; null of few, and in open loop.
    pub per_request_in_flight: Option<u64>,
}

/// A cell against the baseline of its group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerdictDocument {
    /// The group.
    pub group: u32,
    /// The cell's index in the matrix.
    pub cell: u32,
    /// The cell's label.
    pub label: String,
    /// The baseline's index in the matrix.
    pub baseline: u32,
    /// The baseline's label.
    pub baseline_label: String,
    /// `faster`, `slower`, `no-difference`, `unstable`, `baseline-unstable`, `both-unstable`, `failed`, `invalid`,
    /// `unsupported` or `unlike-machines`.
    pub verdict: String,
    /// Requests per second that the unstable cell of the two serves; null if neither or both are.
    pub served_rps: Option<f64>,
    /// Requests per second that it was offered.
    pub offered_rps: Option<f64>,
    /// The percentile that stands for the tail: `p99` or `p95`.
    pub percentile: String,
    /// The ratio of the tails; null where a state forbids it.
    pub tail: Option<RatioDocument>,
    /// The ratio of the medians, likewise.
    pub median: Option<RatioDocument>,
    /// What the medians alone would say: `faster`, `slower`, `no-difference`.
    pub median_verdict: Option<String>,
    /// The ratio of the throughputs of two closed loops whose latencies are compared; of two cells of which one or both do not
    /// carry their load, that of what they serve, by their rounds alone; of two cells of bulk work, that of their
    /// bytes per second; null for any other.
    pub throughput: Option<RateRatio>,
    /// Differences below this are not claimed.
    pub floor_us: f64,
    /// The verdict in a word: without a difference `same` or `undecided`.
    #[serde(default)]
    pub word: String,
    /// The verdict in a sentence.
    pub sentence: String,
}

/// A cell against the first one that differs from it in one setting and in nothing else. Its intervals are widened by Bonferroni's
/// correction for all pairs of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingPairDocument {
    /// The kind of the setting: `connections`, `streams`, `dial`, `congestion`, `sysctls`, `parties`, `client-engine` or
    /// `server-engine`.
    pub setting: String,
    /// The comparison.
    #[serde(flatten)]
    pub verdict: VerdictDocument,
}

/// A ratio with its 95 % interval by block bootstrap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioDocument {
    /// Cell over baseline.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// The cell's quantile.
    pub cell_us: f64,
    /// The baseline's quantile.
    pub baseline_us: f64,
    /// The length of a block.
    pub block_ms: f64,
    /// Blocks of the cell with fewer of them.
    pub blocks: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;

    #[test]
    fn a_cell_and_a_verdict_as_scripts_read_them() {
        let fixture = Fixture::new();
        let document = document(&fixture.report());
        assert_eq!(document.cells.len(), 8);
        insta::assert_json_snapshot!("cell", document.cells[5]);
        insta::assert_json_snapshot!("verdict", document.verdicts[5]);
    }

    #[test]
    fn a_document_reads_back_as_written() {
        let fixture = Fixture::new();
        let written = document(&fixture.report());
        let text = serde_json::to_string(&written).unwrap();
        assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), written);
    }

    #[test]
    fn over_a_real_network_there_is_no_link_and_no_server_end() {
        let mut fixture = Fixture::new();
        for repetition in &mut fixture.run.repetitions {
            repetition.cell.link = None;
            repetition.link = None;
            repetition.connections.iter_mut().for_each(|c| c.tcp_server = None);
        }
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        let cell = &serde_json::to_value(document(&fixture.report())).unwrap()["cells"][0];
        assert!(cell["link"].is_null() && cell["tcp"]["server"].is_null());
        assert!(cell["tcp"]["client"]["retransmits"].is_u64());
    }

    #[cfg(feature = "schema")]
    #[test]
    fn the_schema_names_every_part_of_the_contract() {
        let schema = schemars::schema_for!(CellDocument);
        let properties = schema.get("properties").unwrap();
        for name in [
            "protocol",
            "mode",
            "connections",
            "streams",
            "max_requests_per_connection",
            "dial_policy",
            "duration_s",
            "requests",
            "status",
            "errors",
            "rate_rps",
            "throughput_rps",
            "goodput_bytes_per_s",
            "latency_us",
            "connections_opened",
            "handshakes",
            "goaway",
            "rst_stream",
            "connections_closed",
            "useless_dials",
            "zero_connections_ms",
            "streams_per_connection",
            "stalls_us",
            "pushes",
            "interim",
            "settings",
            "header_bytes_saved",
            "bytes",
            "frames",
            "tcp",
            "link",
            "generator",
            "state",
            "warnings",
            "findings",
            "seed",
            "version",
        ] {
            assert!(properties.get(name).is_some(), "{name}");
        }
    }
}
