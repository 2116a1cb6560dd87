//! The figures of a bulk transfer, from its record.

use std::collections::BTreeMap;
use std::time::Duration;

use super::limits::{self, congestion_wait};
use h2lab_base::JsonSchema;
use h2lab_model::bulk::rate::{bits_per_second, cpu_per_gb};
use h2lab_model::bulk::{
    Binding, BindingKind, BulkRecord, ConnectionFigures, PartRecord, RateSpread, TransferOutcome,
    TransferRecord, TransferTally,
};
use serde::{Deserialize, Serialize};

/// The window at the end of a transfer, long after slow start.
pub const AT_SPEED: Duration = Duration::from_secs(30);

/// A connection that carried data for this share of the time counts as having done so all the time: the first bytes of
/// several connections arrive one after the other.
const LASTED: f64 = 0.9;

/// What data waited for, over all connections: the time during which at least some data of a connection was blocked.
/// The times of several connections add up. `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransferStalls {
    /// A stream window.
    pub stream_window: Option<Duration>,
    /// The connection window.
    pub connection_window: Option<Duration>,
    /// The congestion window: TCP was busy, and no buffer limited it. Over a round trip of less than 1 ms only if it was full.
    pub congestion_window: Option<Duration>,
    /// The sender's socket buffer.
    pub send_buffer: Option<Duration>,
    /// The window that the receiver's TCP offered.
    pub receive_buffer: Option<Duration>,
    /// A disk, at either end.
    pub disk: Option<Duration>,
}

impl TransferStalls {
    /// The sum of several repetitions; unknown values are left out.
    pub(super) fn sum(all: impl Iterator<Item = Self>) -> Self {
        let add = |a: Option<Duration>, b: Option<Duration>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        all.fold(Self::default(), |sum, one| Self {
            stream_window: add(sum.stream_window, one.stream_window),
            connection_window: add(sum.connection_window, one.connection_window),
            congestion_window: add(sum.congestion_window, one.congestion_window),
            send_buffer: add(sum.send_buffer, one.send_buffer),
            receive_buffer: add(sum.receive_buffer, one.receive_buffer),
            disk: add(sum.disk, one.disk),
        })
    }
}

/// A connection that carried data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoundConnection {
    /// Its index.
    pub connection: u32,
    /// Bytes of data.
    pub bytes: u64,
    /// Over the time in which it carried data.
    #[serde(rename = "rate_bps")]
    pub rate: f64,
    /// What held it back.
    #[serde(rename = "limit")]
    pub binding: Binding,
}

/// The figures of a bulk transfer. Rates are in bits per second.
#[derive(Debug, Clone, PartialEq)]
pub struct BulkSummary {
    /// How the files ended.
    pub tally: TransferTally,
    /// Bytes that were transferred, including those of files that failed.
    pub bytes: u64,
    /// Bytes that an earlier run had stored.
    pub held: u64,
    /// See [`BulkRecord::elapsed`].
    pub elapsed: Duration,
    /// All bytes over all that time; `None` if there was none.
    pub aggregate: Option<f64>,
    /// The same of the last [`AT_SPEED`]; `None` for a shorter transfer.
    pub at_speed: Option<f64>,
    /// The rate of each stream over its own time, from its request to its end: for fairness, never to be added up.
    /// Streams that broke or carried nothing are included.
    pub per_stream: Option<RateSpread>,
    /// Streams that ended early, except those that we cut when the time was over.
    pub broken_streams: u64,
    /// CPU seconds of this end per GB (10^9 bytes).
    pub cpu_per_gb: Option<f64>,
    /// The same of the other end, if known.
    pub peer_cpu_per_gb: Option<f64>,
    /// Segments or packets that the sender retransmitted; `None` if unknown.
    pub retransmits: Option<u64>,
    /// Congestion control of the sender as read back, each once, ours if the sender's is unknown.
    pub congestion: Vec<String>,
    /// What data waited for.
    pub stalls: TransferStalls,
    /// Each connection that carried data with its limit, the one with most bytes first.
    pub bound: Vec<BoundConnection>,
}

impl BulkSummary {
    /// The summary of a record.
    pub fn of(record: &BulkRecord) -> Self {
        let overflow = &record.overflow;
        let bytes = overflow.bytes + record.transfers.iter().map(|transfer| transfer.bytes).sum::<u64>();
        let per_gb = |cpu: Duration| cpu_per_gb(cpu, bytes);
        let elapsed = record.elapsed();
        let parts = || record.transfers.iter().flat_map(|transfer| &transfer.parts);
        let rates = parts().filter_map(|part| bits_per_second(part.bytes, part.ended_at.since(part.sent_at)));
        Self {
            tally: tally(record),
            bytes,
            held: record.transfers.iter().map(|transfer| transfer.held).sum(),
            elapsed,
            aggregate: bits_per_second(bytes, elapsed),
            at_speed: record.meter.over_last(AT_SPEED).filter(|_| elapsed > AT_SPEED),
            per_stream: RateSpread::weighted(rates.map(|rate| (rate, 1)).chain(overflow.rates())),
            broken_streams: overflow.broken_streams
                + record.transfers.iter().map(broken_streams).sum::<u64>(),
            cpu_per_gb: per_gb(record.cpu),
            peer_cpu_per_gb: record.peer_cpu.and_then(per_gb),
            retransmits: sum(record, |figures| figures.sender.retransmits),
            congestion: congestion(record),
            stalls: stalls(record),
            bound: if bytes > 0 { bound(record) } else { Vec::new() },
        }
    }

    /// The limit of the transfer: of the connections with the kind of limit that applied to most of the bytes, the one
    /// that carried most. `None` if no connection carried any.
    pub fn binding(&self) -> Option<&BoundConnection> {
        let mut bytes: BTreeMap<BindingKind, u64> = BTreeMap::new();
        for one in &self.bound {
            *bytes.entry(one.binding.kind).or_default() += one.bytes;
        }
        // Of two kinds with equal bytes, the one with a name is preferred.
        let (&kind, _) =
            bytes.iter().max_by_key(|(kind, bytes)| (**bytes, **kind != BindingKind::Unknown))?;
        self.bound.iter().find(|one| one.binding.kind == kind)
    }

    /// How many connections each kind limited, in the order of [`BindingKind::ALL`]; kinds without any are left out.
    pub fn kinds(&self) -> Vec<(BindingKind, u64)> {
        let of = |kind| self.bound.iter().filter(|one| one.binding.kind == kind).count() as u64;
        BindingKind::ALL
            .iter()
            .copied()
            .map(|kind| (kind, of(kind)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

/// When a partial file ends, its requests end too: those did not break.
fn broken_streams(transfer: &TransferRecord) -> u64 {
    let is_cut = |part: &PartRecord| {
        matches!(transfer.outcome, TransferOutcome::Partial { .. }) && part.ended_at >= transfer.ended_at
    };
    transfer.parts.iter().filter(|part| !part.is_complete && !is_cut(part)).count() as u64
}

fn tally(record: &BulkRecord) -> TransferTally {
    let mut tally = TransferTally { complete: record.overflow.files, ..TransferTally::default() };
    for transfer in &record.transfers {
        match transfer.outcome {
            TransferOutcome::Complete => tally.complete += 1,
            TransferOutcome::Partial { .. } => tally.partial += 1,
            TransferOutcome::Failed { .. } => tally.failed += 1,
        }
    }
    tally
}

/// The sum of a value over the connections where it is known; `None` if it is known for none.
fn sum<T: std::iter::Sum<T>>(record: &BulkRecord, of: impl Fn(&ConnectionFigures) -> Option<T>) -> Option<T> {
    let mut known = record.figures.iter().filter_map(of).peekable();
    known.peek()?;
    Some(known.sum())
}

fn congestion(record: &BulkRecord) -> Vec<String> {
    let of_senders = record.figures.iter().filter_map(|figures| figures.sender.congestion_control.clone());
    let mut names: Vec<String> = of_senders.collect();
    if names.is_empty() {
        let ours = record.connections.iter().filter_map(|connection| {
            let tcp = connection.tcp_client.as_ref().map(|end| &end.congestion_control);
            tcp.or(connection.quic_client.as_ref().map(|end| &end.congestion_control))
        });
        names = ours.filter(|name| !name.is_empty()).cloned().collect();
    }
    names.sort();
    names.dedup();
    names
}

fn stalls(record: &BulkRecord) -> TransferStalls {
    TransferStalls {
        stream_window: sum(record, |figures| figures.sender.blocked_stream_window),
        connection_window: sum(record, |figures| figures.sender.blocked_connection_window),
        congestion_window: sum(record, congestion_wait),
        send_buffer: sum(record, |figures| figures.sender.tcp_sndbuf_limited),
        receive_buffer: sum(record, |figures| figures.sender.tcp_rwnd_limited),
        disk: sum(record, |figures| {
            let waits = [figures.sender.disk_wait, figures.receiver.disk_wait];
            waits.iter().any(Option::is_some).then(|| waits.into_iter().flatten().sum())
        }),
    }
}

fn bound(record: &BulkRecord) -> Vec<BoundConnection> {
    let carried: Vec<&ConnectionFigures> =
        record.figures.iter().filter(|figures| figures.bytes > 0).collect();
    let all: u64 = carried.iter().map(|figures| figures.bytes).sum();
    let elapsed = record.meter.elapsed();
    // If all connections carried data all the time, the meter gives the rate of the second half, without TCP's slow
    // start. If that rate is higher, each connection is assumed to have kept its share of the total.
    let lasted = carried.iter().all(|figures| figures.wall >= elapsed.mul_f64(LASTED));
    let late = record.meter.over_last(elapsed / 2).filter(|_| carried.len() == 1 || lasted);
    let speed = |figures: &ConnectionFigures| {
        let late = late.map(|late| late * (figures.bytes as f64 / all.max(1) as f64));
        let late = late.filter(|late| carried.len() == 1 || *late > figures.rate());
        late.unwrap_or_else(|| figures.rate())
    };
    let mut bound: Vec<BoundConnection> = carried
        .iter()
        .map(|figures| BoundConnection {
            connection: figures.connection,
            bytes: figures.bytes,
            rate: figures.rate(),
            binding: limits::binding_at_speed(figures, speed(figures)),
        })
        .collect();
    bound.sort_by_key(|one| (std::cmp::Reverse(one.bytes), one.connection));
    bound
}

#[cfg(test)]
mod tests;
