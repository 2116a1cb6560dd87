//! The JSON document of `bulk get --json` and `bulk put --json`.

use std::time::Duration;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::round::rounded;
use crate::bulk_cells::BulkCell;
use h2lab_analysis::bulk::{BoundConnection, BulkSummary, TransferStalls};
use h2lab_base::units::{Time, millis_f64};
use h2lab_model::bulk::{
    Binding, BulkParameters, BulkRecord, ByteMeter, FrameFigures, IoFigures, RateSpread, TransferDirection,
    TransferOutcome, TransferRecord, TransferTally,
};
use h2lab_model::workload::Protocol;
use h2lab_transfer::Checksum;

/// The document of a bulk transfer. Rates are in bits of file data per second, sizes in bytes, GB are 10^9 bytes. What could
/// not be seen is null, never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BulkDocument {
    /// Version of h2lab.
    pub version: String,
    /// The command line, as given.
    pub command: Vec<String>,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// Kernel and machine.
    pub machine: String,
    /// `get` or `put`.
    pub direction: TransferDirection,
    /// The protocol.
    pub protocol: Protocol,
    /// How `h2c` began: `prior-knowledge` or `upgrade`; null for the others.
    pub mode: Option<String>,
    /// What was asked for.
    pub asked: AskedDocument,
    /// Bytes that were transferred, those of files that failed among them.
    pub bytes: u64,
    /// Bytes that were here from before.
    pub held_bytes: u64,
    /// From the first request to the last byte; with `-z`, until the time was over.
    pub elapsed_s: f64,
    /// All bytes over all that time.
    pub rate_bps: Option<f64>,
    /// The same of the last 30 s; null of a transfer that was no longer.
    pub rate_last_30s_bps: Option<f64>,
    /// Bytes over time.
    pub intervals: IntervalsDocument,
    /// How many files ended how.
    pub files: TransferTally,
    /// Each file; of those that are moved over and over (-z) the first 10,000, and all that are not complete.
    pub transfers: Vec<TransferDocument>,
    /// Files that are complete, and not in that list.
    pub unlisted: u64,
    /// The requests that carried them.
    pub streams: StreamsDocument,
    /// What held the transfer back, by the connections with most of its bytes; null if none carried any.
    pub limit: Option<Binding>,
    /// What held each connection back, the one with most bytes first.
    pub connections: Vec<BoundConnection>,
    /// Frames of the data and the credit returned for it; null in HTTP/1.1.
    pub frames: Option<BulkFramesDocument>,
    /// What this end asked of its kernel.
    pub io: IoFigures,
    /// CPU time.
    pub cpu: CpuDocument,
    /// What data waited for.
    pub stalls_s: BulkStallsDocument,
    /// Segments or packets that the sender of the data sent again.
    pub retransmits: Option<u64>,
    /// Congestion control as read back, of the data's sender if it could be seen, else of our end.
    pub congestion_control: Vec<String>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Warnings about the measurement.
    pub warnings: Vec<String>,
}

/// What was asked for, with defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AskedDocument {
    /// Connections.
    pub connections: u32,
    /// Requests at a time on each.
    pub streams: u32,
    /// Bytes of a part; null if files were not taken apart.
    pub part_bytes: Option<u64>,
    /// Sizes that we chose ourselves: `100M`, `normal:100M:20M`; null of those that the server has.
    pub sizes: Option<String>,
    /// After which time it was cut off; null if it was not.
    pub duration_s: Option<f64>,
    /// The longest frame that the receiving end lets in.
    pub max_frame_size: Option<u32>,
    /// Bytes of a stream window after which the receiving end returns credit.
    pub window_update_bytes: Option<u32>,
    /// Congestion control; null if it was left to the system.
    pub congestion_control: Option<String>,
}

/// Bytes over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IntervalsDocument {
    /// The length of an interval.
    pub interval_ms: f64,
    /// Bytes of each, from the first request on; the last interval may not be full.
    pub bytes: Vec<u64>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransferDocument {
    /// Where it came from or went to.
    pub url: String,
    /// The file here; null if it was thrown away, or made up.
    pub file: Option<String>,
    /// `complete`, `partial` or `failed`; why, and of a failure whose fault it was.
    #[serde(flatten)]
    pub outcome: TransferOutcome,
    /// Bytes that were transferred, whatever the outcome.
    pub bytes: u64,
    /// Bytes that were here from before.
    pub held_bytes: u64,
    /// The length of the whole; null if it was never declared.
    pub total_bytes: Option<u64>,
    /// From the beginning of the run to its first request; null if none went out.
    pub started_ms: Option<f64>,
    /// From there to its first byte; null if none came.
    pub first_byte_ms: Option<f64>,
    /// From there to its end.
    pub ended_ms: Option<f64>,
    /// Requests that carried it, those that broke among them.
    pub streams: u64,
    /// Connections that carried it.
    pub connections: u64,
    /// Its checksum.
    pub checksum: ChecksumDocument,
}

/// The checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChecksumDocument {
    /// `crc32c`, `sha-256`, `sha-512` or `none`.
    pub algorithm: String,
    /// `matches`, `differs`, `undeclared` (the other end declared none) or `none` (it was not made).
    pub verdict: String,
    /// What we made of the bytes, in hexadecimal digits.
    pub computed: Option<String>,
    /// What the other end declared.
    pub declared: Option<String>,
}

/// The requests that carried the data.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamsDocument {
    /// How many.
    pub count: u64,
    /// Those that ended before all of theirs had come, but for those that we cut ourselves.
    pub broken: u64,
    /// Rates of each over its own time: how even they are. Never what they carry together.
    pub rate_bps: Option<RateSpread>,
}

/// Frames of the data, as they were, beside what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BulkFramesDocument {
    /// DATA frames.
    pub data: u64,
    /// The longest of them, in bytes of payload.
    pub largest_data: u64,
    /// Their mean.
    pub mean_data: Option<f64>,
    /// WINDOW_UPDATEs the other way, of streams and connection.
    pub window_updates: u64,
    /// Their mean increment, in bytes.
    pub mean_increment: Option<f64>,
}

/// CPU seconds per GB.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuDocument {
    /// Of this process, in all.
    pub here_s: f64,
    /// Of this process per GB; null if nothing came.
    pub here_s_per_gb: Option<f64>,
    /// Of the other end per GB.
    pub peer_s_per_gb: Option<f64>,
}

/// What data waited for, in seconds; of several connections they add up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BulkStallsDocument {
    /// A stream window.
    pub stream_window: Option<f64>,
    /// The connection window.
    pub connection_window: Option<f64>,
    /// The congestion window.
    pub congestion_window: Option<f64>,
    /// The sender's socket buffer.
    pub send_buffer: Option<f64>,
    /// The window that the receiver's TCP offered.
    pub receive_buffer: Option<f64>,
    /// A disk, at either end.
    pub disk: Option<f64>,
}

/// What moved in a cell of bulk work, its repetitions pooled. Rates are in bits of data per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BulkCellDocument {
    /// What its condition does otherwise than the first one: `RTT 25ms`; `baseline` if nothing.
    pub factor: String,
    /// In the measured time, of the repetitions.
    pub rate_bps: RateSpread,
    /// The one in the middle as a share of what TCP without HTTP carried under the same condition; null if that was not
    /// measured soundly.
    pub of_tcp: Option<f64>,
    /// All bytes over all the time of all repetitions, the warm-up included.
    pub rate_all_bps: f64,
    /// Bytes of data, of all repetitions; all that follows is, too.
    pub bytes: u64,
    /// From the first request to the last byte.
    pub elapsed_s: f64,
    /// Bytes over time, of each repetition.
    pub intervals: Vec<IntervalsDocument>,
    /// What was asked for.
    pub asked: AskedDocument,
    /// How the responses ended; one that was cut off when the time was over is partial.
    pub responses: TransferTally,
    /// Rates of each stream over its own time, in the repetition in the middle.
    pub streams_bps: Option<RateSpread>,
    /// What held the data back in that repetition, by the connections with most of its bytes.
    pub limit: Option<Binding>,
    /// What held each of its connections back.
    pub connections: Vec<BoundConnection>,
    /// Frames of the data and the credit returned for it; null where there are none.
    pub frames: Option<BulkFramesDocument>,
    /// What our end asked of its kernel.
    pub io: IoFigures,
    /// CPU seconds of our end per GB.
    pub cpu_s_per_gb: Option<f64>,
    /// The same of the server.
    pub server_cpu_s_per_gb: Option<f64>,
    /// What data waited for.
    pub stalls_s: BulkStallsDocument,
    /// Segments that the server sent again.
    pub retransmits: Option<u64>,
}

/// The transfer of a cell; `None` if nothing moved.
pub(super) fn cell(one: &BulkCell<'_>) -> Option<BulkCellDocument> {
    let pooled = one.pooled.as_ref()?;
    Some(BulkCellDocument {
        factor: one.factor.clone(),
        rate_bps: spread(pooled.rate),
        of_tcp: one.of_tcp.map(|share| (share * 1e4).round() / 1e4),
        rate_all_bps: rounded(pooled.whole),
        bytes: pooled.bytes,
        elapsed_s: pooled.elapsed.as_secs_f64(),
        intervals: pooled.meters.iter().map(intervals).collect(),
        asked: asked(&pooled.asked),
        responses: pooled.tally,
        streams_bps: pooled.per_stream.map(spread),
        limit: pooled.bound.as_ref().map(|one| one.binding.clone()),
        connections: pooled.connections.iter().map(connection).collect(),
        frames: (pooled.frames.data > 0).then(|| frames(&pooled.frames)),
        io: pooled.io,
        cpu_s_per_gb: pooled.cpu_per_gb.map(to_micros),
        server_cpu_s_per_gb: pooled.peer_cpu_per_gb.map(to_micros),
        stalls_s: stalls(&pooled.stalls),
        retransmits: pooled.retransmits,
    })
}

/// The document of a bulk transfer.
pub fn bulk_document(record: &BulkRecord) -> BulkDocument {
    let summary = BulkSummary::of(record);
    BulkDocument {
        version: record.version.clone(),
        command: record.command.clone(),
        started: record.started.clone(),
        machine: record.machine.clone(),
        direction: record.direction,
        protocol: record.protocol,
        mode: (record.protocol == Protocol::H2c).then(|| record.h2c_mode.name().to_owned()),
        asked: asked(&record.asked),
        bytes: summary.bytes,
        held_bytes: summary.held,
        elapsed_s: summary.elapsed.as_secs_f64(),
        rate_bps: summary.aggregate.map(rounded),
        rate_last_30s_bps: summary.at_speed.map(rounded),
        intervals: intervals(&record.meter),
        files: summary.tally,
        transfers: record.transfers.iter().map(|one| transfer(one, record.meter.began())).collect(),
        unlisted: record.overflow.files,
        streams: StreamsDocument {
            count: record.overflow.streams
                + record.transfers.iter().map(TransferRecord::streams).sum::<u64>(),
            broken: summary.broken_streams,
            rate_bps: summary.per_stream.map(spread),
        },
        limit: summary.binding().map(|one| one.binding.clone()),
        connections: summary.bound.iter().map(connection).collect(),
        frames: record.protocol.is_multiplexed().then(|| frames(&record.frames)),
        io: record.io,
        cpu: CpuDocument {
            here_s: record.cpu.as_secs_f64(),
            here_s_per_gb: summary.cpu_per_gb.map(to_micros),
            peer_s_per_gb: summary.peer_cpu_per_gb.map(to_micros),
        },
        stalls_s: stalls(&summary.stalls),
        retransmits: summary.retransmits,
        congestion_control: summary.congestion.clone(),
        interrupted: record.interrupted,
        warnings: record.warnings.clone(),
    }
}

/// Seconds to six decimals: what a GB costs is rendered to a hundredth.
pub(super) fn to_micros(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

fn asked(asked: &BulkParameters) -> AskedDocument {
    AskedDocument {
        connections: asked.connections,
        streams: asked.streams,
        part_bytes: asked.part_bytes,
        sizes: asked.sizes.map(|sizes| sizes.to_string()),
        duration_s: asked.duration.map(|duration| duration.as_secs_f64()),
        max_frame_size: asked.max_frame_size,
        window_update_bytes: asked.update_bytes,
        congestion_control: asked.congestion.clone(),
    }
}

fn transfer(transfer: &TransferRecord, began: Time) -> TransferDocument {
    let since = |time: Time, from: Time| {
        (time.happened() && from.happened()).then(|| rounded(millis_f64(time.since(from))))
    };
    let digest = &transfer.digest;
    TransferDocument {
        url: transfer.url.clone(),
        file: transfer.file.clone(),
        outcome: transfer.outcome.clone(),
        bytes: transfer.bytes,
        held_bytes: transfer.held,
        total_bytes: transfer.total,
        started_ms: since(transfer.started_at, began),
        first_byte_ms: since(transfer.first_byte_at, transfer.started_at),
        ended_ms: since(transfer.ended_at, transfer.started_at),
        streams: transfer.streams(),
        connections: transfer.connections(),
        checksum: ChecksumDocument {
            algorithm: digest.asked.name().to_owned(),
            verdict: digest.verdict.name().to_owned(),
            computed: digest.computed.as_ref().map(Checksum::hex),
            declared: digest.declared.as_ref().map(Checksum::hex),
        },
    }
}

pub(super) fn intervals(meter: &ByteMeter) -> IntervalsDocument {
    IntervalsDocument { interval_ms: millis_f64(meter.interval()), bytes: meter.intervals().to_vec() }
}

pub(super) fn spread(spread: RateSpread) -> RateSpread {
    RateSpread {
        min: rounded(spread.min),
        median: rounded(spread.median),
        max: rounded(spread.max),
        n: spread.n,
    }
}

fn connection(one: &BoundConnection) -> BoundConnection {
    BoundConnection { rate: rounded(one.rate), ..one.clone() }
}

pub(super) fn frames(frames: &FrameFigures) -> BulkFramesDocument {
    BulkFramesDocument {
        data: frames.data,
        largest_data: frames.largest_data,
        mean_data: frames.mean_data().map(rounded),
        window_updates: frames.updates,
        mean_increment: frames.mean_update().map(rounded),
    }
}

fn stalls(stalls: &TransferStalls) -> BulkStallsDocument {
    let seconds = |time: Option<Duration>| time.map(|time| rounded(time.as_secs_f64()));
    BulkStallsDocument {
        stream_window: seconds(stalls.stream_window),
        connection_window: seconds(stalls.connection_window),
        congestion_window: seconds(stalls.congestion_window),
        send_buffer: seconds(stalls.send_buffer),
        receive_buffer: seconds(stalls.receive_buffer),
        disk: seconds(stalls.disk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::bulk::testing::record;

    #[test]
    fn a_bulk_transfer_as_scripts_read_it() {
        insta::assert_json_snapshot!("bulk", bulk_document(&record()));
    }

    #[test]
    fn it_reads_back_as_written() {
        let written = bulk_document(&record());
        let text = serde_json::to_string(&written).unwrap();
        // As text: the wish behind a fix is not written.
        let read: BulkDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn what_a_protocol_does_not_have_is_null() {
        let mut record = record();
        record.protocol = Protocol::H1;
        record.transfers[0].first_byte_at = Time::NEVER;
        let document = serde_json::to_value(bulk_document(&record)).unwrap();
        assert!(document["frames"].is_null() && document["mode"].is_null());
        assert!(document["transfers"][0]["first_byte_ms"].is_null());
        assert_eq!(document["transfers"][1]["outcome"], "failed");
        assert_eq!(document["transfers"][1]["fault"], "sut");
    }
}
