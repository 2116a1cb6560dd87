//! The JSON document of `bulk drive --json`.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bulk::{BulkFramesDocument, IntervalsDocument, frames, intervals, spread, to_micros};
use super::round::rounded;
use h2lab_base::units::millis_f64;
use h2lab_model::bulk::{
    Binding, RateSpread, TIME_WAS_OVER, TransferDirection, TransferOutcome, TransferTally,
};
use h2lab_model::fleet::{
    AgentRecord, Ending, FleetRecord, FleetSummary, PairEnd, PairFigures, PairRecord, PairState, PairTally,
    ServerFigures,
};
use h2lab_model::workload::Protocol;

/// The document of transfers among several machines. Rates are in bits of file data per second, sizes in bytes; times are those
/// of the driver's clock. What could not be seen is null, never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetDocument {
    /// Version of h2lab.
    pub version: String,
    /// The command line, as given.
    pub command: Vec<String>,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// Kernel and machine of the driver.
    pub machine: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The protocol.
    pub protocol: Protocol,
    /// What was asked for.
    pub asked: FleetAskedDocument,
    /// Bytes of all pairs, those that failed or were lost among them.
    pub bytes: u64,
    /// Of these, bytes that pairs had reported before they were lost.
    pub lost_bytes: u64,
    /// From the first request of any pair to the last byte of any, on one clock.
    pub elapsed_s: f64,
    /// All bytes over all that time.
    pub rate_bps: Option<f64>,
    /// Rates of the pairs, each over its own time: how even they are. Never what they carry together.
    pub pair_rate_bps: Option<RateSpread>,
    /// Bytes of all pairs over time.
    pub intervals: IntervalsDocument,
    /// How many pairs became what.
    pub tally: PairTally,
    /// How the files ended of which that is known.
    pub files: TransferTally,
    /// How well the common start was kept; null if it never started.
    pub start: Option<StartDocument>,
    /// Frames of the data and the credit returned for it, of all pairs that reported it; null in HTTP/1.1.
    pub frames: Option<BulkFramesDocument>,
    /// Each pair of the plan.
    pub pairs: Vec<PairDocument>,
    /// The clients.
    pub clients: Vec<AgentDocument>,
    /// The servers.
    pub servers: Vec<AgentDocument>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Warnings about the measurement.
    pub warnings: Vec<String>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetAskedDocument {
    /// Which way the bytes went: `get`, from servers to clients, or `put`.
    pub direction: TransferDirection,
    /// Transfers at a time of each client.
    pub concurrency: u32,
    /// For how long.
    pub duration_s: f64,
    /// How long results could take after that.
    pub grace_s: f64,
    /// How much was asked for, or sent, at a time: `100M`, `normal:100M:20M`.
    pub sizes: String,
    /// Congestion control; null if it was left to the systems.
    pub congestion_control: Option<String>,
}

/// How well the common start was kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StartDocument {
    /// The most that a pair was begun after the instant, by its client's own clock.
    pub latest_ms: Option<f64>,
    /// The most that the clock of a client may be off the driver's.
    pub clock_uncertainty_ms: Option<f64>,
}

/// A pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairDocument {
    /// The client's name.
    pub client: String,
    /// The server's name.
    pub server: String,
    /// What became of it.
    pub state: PairState,
    /// Why it failed as a whole or was lost; null otherwise.
    pub why: Option<String>,
    /// Connections as planned.
    pub connections: u32,
    /// Streams of each as planned.
    pub streams: u32,
    /// Connections that were dialled; null if it was not reported.
    pub dialled: Option<u64>,
    /// Bytes that are known to have come; of uploads, to have been sent.
    pub bytes: u64,
    /// From its first request, or the common start if that was not reported, to its last byte.
    pub elapsed_s: f64,
    /// Its bytes over that time.
    pub rate_bps: Option<f64>,
    /// Its part of all bytes, from 0 to 1; null if there were none.
    pub share: Option<f64>,
    /// How long after the common start it was begun, by its client's own clock.
    pub late_ms: Option<f64>,
    /// How its files ended; null if it was not reported.
    pub files: Option<TransferTally>,
    /// The files by how they ended, with reasons: all of them.
    pub endings: Vec<Ending>,
    /// Rates of its streams, each over its own time.
    pub stream_rate_bps: Option<RateSpread>,
    /// Streams that ended before all of theirs had come.
    pub broken_streams: Option<u64>,
    /// Frames of its data; null in HTTP/1.1, and if it was not reported.
    pub frames: Option<BulkFramesDocument>,
    /// The longest frame that its receiving end let in.
    pub max_frame_size: Option<u32>,
    /// Bytes of a stream window after which its client returned credit; null of uploads, for which its server does.
    pub window_update_bytes: Option<u32>,
    /// What held most of its bytes back.
    pub limit: Option<Binding>,
    /// CPU time of the client's thread that fetched or sent it; null if it was not reported.
    pub cpu_s: Option<f64>,
    /// The same per GB of `bytes`.
    pub cpu_s_per_gb: Option<f64>,
    /// Bytes over time.
    pub intervals: IntervalsDocument,
}

/// A client or a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentDocument {
    /// What it is called.
    pub name: String,
    /// Where it serves; null of a client.
    pub url: Option<String>,
    /// Kernel and machine; null of a server that ran already.
    pub machine: Option<String>,
    /// Version of h2lab, likewise.
    pub version: Option<String>,
    /// How much its clock may be off the driver's after they were compared.
    pub clock_uncertainty_ms: Option<f64>,
    /// What serving took; null of a client, of a server that ran already, and of one that did not report it.
    pub served: Option<ServedDocument>,
    /// Why it was lost; null if it was not.
    pub lost: Option<String>,
}

/// What serving took, as the server's end saw it, from when it listened until it was stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServedDocument {
    /// CPU time of the thread that served.
    pub cpu_s: f64,
    /// The same per GB of `sent_bytes` and `received_bytes`; null if there were none.
    pub cpu_s_per_gb: Option<f64>,
    /// Bytes of HTTP that it sent, before they were encrypted: bodies, heads, frames, what was cut on its way among them.
    pub sent_bytes: u64,
    /// Bytes of uploads that it received, of those that were cut too.
    pub received_bytes: u64,
    /// Connections that it accepted.
    pub connections: u64,
    /// Segments that were sent again, of all its TCP connections; null over QUIC, and if the kernel did not report it.
    pub retransmits: Option<u64>,
    /// Congestion control of what it sent; null if nobody connected.
    pub congestion_control: Option<String>,
}

/// The document of a fleet's transfers.
pub fn fleet_document(record: &FleetRecord) -> FleetDocument {
    let summary = FleetSummary::of(record);
    let asked = &record.asked;
    let millis = |time: std::time::Duration| rounded(millis_f64(time));
    FleetDocument {
        version: record.version.clone(),
        command: record.command.clone(),
        started: record.started.clone(),
        machine: record.machine.clone(),
        seed: record.seed,
        protocol: record.protocol,
        asked: FleetAskedDocument {
            direction: asked.direction,
            concurrency: asked.concurrency,
            duration_s: asked.duration.as_secs_f64(),
            grace_s: asked.grace.as_secs_f64(),
            sizes: asked.sizes.to_string(),
            congestion_control: asked.congestion.clone(),
        },
        bytes: summary.bytes,
        lost_bytes: summary.lost_bytes,
        elapsed_s: summary.elapsed.as_secs_f64(),
        rate_bps: summary.aggregate.map(rounded),
        pair_rate_bps: summary.per_pair.map(spread),
        intervals: intervals(&summary.meter),
        tally: summary.pairs,
        files: summary.files,
        start: record.start_at.happened().then(|| StartDocument {
            latest_ms: summary.latest_start.map(millis),
            clock_uncertainty_ms: summary.clock_uncertainty.map(millis),
        }),
        frames: record.protocol.is_multiplexed().then(|| frames(&summary.frames)),
        pairs: record.pairs.iter().map(|one| pair(record, &summary, one)).collect(),
        clients: record.clients.iter().map(agent).collect(),
        servers: record.servers.iter().map(agent).collect(),
        interrupted: record.interrupted,
        warnings: record.warnings.clone(),
    }
}

/// Why the files of a pair were cut before their time, if they were.
fn cut(figures: &PairFigures) -> Option<String> {
    figures.endings.iter().filter(|_| figures.interrupted).find_map(|ending| match &ending.outcome {
        TransferOutcome::Partial { why } if why != TIME_WAS_OVER => Some(why.clone()),
        _ => None,
    })
}

fn pair(record: &FleetRecord, summary: &FleetSummary, one: &PairRecord) -> PairDocument {
    let called = |agents: &[AgentRecord], place: u32| {
        agents.get(place as usize).map(|agent| agent.name.clone()).unwrap_or_default()
    };
    let (figures, why) = match &one.end {
        PairEnd::Reported(figures) => (Some(figures), cut(figures)),
        PairEnd::Failed { why } | PairEnd::Lost { why } => (None, Some(why.clone())),
    };
    let share = one.bytes() as f64 / summary.bytes as f64;
    PairDocument {
        client: called(&record.clients, one.pair.client),
        server: called(&record.servers, one.pair.server),
        state: one.state(),
        why,
        connections: one.pair.connections,
        streams: one.pair.streams,
        dialled: figures.map(|figures| figures.connections),
        bytes: one.bytes(),
        elapsed_s: one.meter.elapsed().as_secs_f64(),
        rate_bps: (!one.meter.elapsed().is_zero()).then(|| rounded(one.rate())),
        share: (summary.bytes > 0).then(|| (share * 1e6).round() / 1e6),
        late_ms: one.late.map(|late| rounded(millis_f64(late))),
        files: figures.map(|_| one.files()),
        endings: figures.map(|figures| figures.endings.clone()).unwrap_or_default(),
        stream_rate_bps: figures.and_then(|figures| figures.per_stream).map(spread),
        broken_streams: figures.map(|figures| figures.broken_streams),
        frames: figures.filter(|_| record.protocol.is_multiplexed()).map(|figures| frames(&figures.frames)),
        max_frame_size: figures.and_then(|figures| figures.max_frame_size),
        window_update_bytes: figures.and_then(|figures| figures.update_bytes),
        limit: figures.and_then(|figures| figures.limit.clone()),
        cpu_s: figures.map(|figures| figures.cpu.as_secs_f64()),
        cpu_s_per_gb: one.cpu_per_gb().map(to_micros),
        intervals: intervals(&one.meter),
    }
}

fn agent(agent: &AgentRecord) -> AgentDocument {
    AgentDocument {
        name: agent.name.clone(),
        url: agent.url.clone(),
        machine: agent.machine.clone(),
        version: agent.version.clone(),
        clock_uncertainty_ms: agent.offset.map(|offset| rounded(millis_f64(offset.uncertainty))),
        served: agent.served.as_ref().map(served),
        lost: agent.lost.clone(),
    }
}

fn served(figures: &ServerFigures) -> ServedDocument {
    ServedDocument {
        cpu_s: figures.cpu.as_secs_f64(),
        cpu_s_per_gb: figures.cpu_per_gb().map(to_micros),
        sent_bytes: figures.sent,
        received_bytes: figures.received,
        connections: figures.connections,
        retransmits: figures.retransmits,
        congestion_control: figures.congestion.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_base::units::Time;
    use h2lab_model::fleet::testing::record;

    /// Without the intervals, whose many numbers would clutter the snapshot.
    fn rendered() -> FleetDocument {
        let mut document = fleet_document(&record());
        document.intervals.bytes.truncate(3);
        document.pairs.iter_mut().for_each(|pair| pair.intervals.bytes.truncate(3));
        document
    }

    #[test]
    fn a_fleet_as_scripts_read_it() {
        insta::assert_json_snapshot!("fleet", rendered());
    }

    #[test]
    fn it_reads_back_as_written() {
        let text = serde_json::to_string(&rendered()).unwrap();
        assert_eq!(serde_json::from_str::<FleetDocument>(&text).unwrap(), rendered());
    }

    #[test]
    fn what_nobody_sent_is_null() {
        let document = serde_json::to_value(rendered()).unwrap();
        let lost = &document["pairs"][2];
        assert_eq!(lost["state"], "lost");
        assert!(["files", "frames", "dialled", "late_ms"].iter().all(|key| lost[key].is_null()), "{lost}");
        assert!(lost["bytes"].as_u64() > Some(0) && lost["why"].is_string());
        assert!(lost["cpu_s_per_gb"].is_null() && document["clients"][0]["served"].is_null());
        assert_eq!(document["servers"][0]["served"]["cpu_s_per_gb"], 0.5);
        assert_eq!(document["asked"]["direction"], "get");
        assert_eq!(document["servers"][0]["served"]["received_bytes"], 0);
        let never = FleetRecord { start_at: Time::NEVER, ..record() };
        assert!(fleet_document(&never).start.is_none());
    }
}
