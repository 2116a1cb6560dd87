//! A cell of bulk work, its repetitions pooled.

use std::time::Duration;

use super::{BoundConnection, BulkSummary, TransferStalls};
use h2lab_model::bulk::rate::{bits_per_second, cpu_per_gb};
use h2lab_model::bulk::{
    BulkParameters, BulkRecord, ByteMeter, FrameFigures, IoFigures, RateSpread, TransferTally,
};
use h2lab_model::record::CellRecord;

/// The figures of all repetitions of a cell. Rates are in bits per second.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooled {
    /// The rate of each repetition in its measured time: after the warm-up with TCP's slow start.
    pub rate: RateSpread,
    /// All bytes over all the time of all repetitions, the warm-up included.
    pub whole: f64,
    /// Bytes of data of all repetitions. The fields below are for all repetitions, too.
    pub bytes: u64,
    /// From the first request to the last byte.
    pub elapsed: Duration,
    /// What was requested, and the limits that our end announced.
    pub asked: BulkParameters,
    /// How the responses ended.
    pub tally: TransferTally,
    /// The rate of each stream over its own time; of the median repetition, like the next two fields.
    pub per_stream: Option<RateSpread>,
    /// What held the data back.
    pub bound: Option<BoundConnection>,
    /// Each connection that carried data.
    pub connections: Vec<BoundConnection>,
    /// Frames of the data.
    pub frames: FrameFigures,
    /// What our end requested from its kernel.
    pub io: IoFigures,
    /// CPU seconds of our end per GB.
    pub cpu_per_gb: Option<f64>,
    /// The same of the server.
    pub peer_cpu_per_gb: Option<f64>,
    /// Segments or packets that the server retransmitted; `None` if unknown.
    pub retransmits: Option<u64>,
    /// What data waited for.
    pub stalls: TransferStalls,
    /// Bytes over time, of each repetition.
    pub meters: Vec<ByteMeter>,
}

impl Pooled {
    /// The pooled repetitions of one cell; `None` if none of them moved a byte.
    pub fn of(repetitions: &[&CellRecord]) -> Option<Self> {
        let mut seen: Vec<(f64, BulkRecord, BulkSummary)> = repetitions
            .iter()
            .filter_map(|repetition| {
                let record = BulkRecord::of_repetition(repetition)?;
                let summary = BulkSummary::of(&record);
                let phases = &repetition.cell.work.phases;
                let measured = record.meter.within(phases.warmup, phases.measure);
                Some((measured.or(summary.aggregate)?, record, summary))
            })
            .collect();
        let meters = seen.iter().map(|(_, record, _)| record.meter.clone()).collect();
        let rate = RateSpread::of(seen.iter().map(|(rate, ..)| *rate))?;
        seen.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
        let (_, middle, rendered) = &seen[(seen.len() - 1) / 2];
        let elapsed = seen.iter().map(|(.., summary)| summary.elapsed).sum();
        let bytes = seen.iter().map(|(.., summary)| summary.bytes).sum();
        let per_gb = |cpu: Duration| cpu_per_gb(cpu, bytes);
        let peers: Option<Duration> = seen.iter().map(|(_, record, _)| record.peer_cpu).sum();
        let mut pooled = Self {
            rate,
            whole: bits_per_second(bytes, elapsed).unwrap_or(0.0),
            bytes,
            elapsed,
            asked: middle.asked.clone(),
            tally: TransferTally::default(),
            per_stream: rendered.per_stream,
            bound: rendered.binding().cloned(),
            connections: rendered.bound.clone(),
            frames: FrameFigures::default(),
            io: IoFigures::default(),
            cpu_per_gb: per_gb(seen.iter().map(|(_, record, _)| record.cpu).sum()),
            peer_cpu_per_gb: peers.and_then(per_gb),
            retransmits: seen.iter().map(|(.., summary)| summary.retransmits).sum(),
            stalls: TransferStalls::sum(seen.iter().map(|(.., summary)| summary.stalls)),
            meters,
        };
        for (_, record, summary) in &seen {
            pooled.frames.add(&record.frames);
            pooled.io.add(&record.io);
            pooled.tally.complete += summary.tally.complete;
            pooled.tally.partial += summary.tally.partial;
            pooled.tally.failed += summary.tally.failed;
        }
        Some(pooled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::bulk::testing::bulk_repetition;
    use h2lab_model::record::ServerSummary;
    use h2lab_model::workload::Protocol;

    #[test]
    fn the_rate_is_of_the_measured_time_and_the_whole_has_the_warm_up_too() {
        // 1 s of warm-up at 10 Mbit/s and 2 s at 100; then the same at half the speed.
        let (fast, slow) = (bulk_repetition(Protocol::H2c, 100e6), bulk_repetition(Protocol::H2c, 50e6));
        let pooled = Pooled::of(&[&fast, &slow]).unwrap();
        assert!((pooled.rate.max / 100e6 - 1.0).abs() < 0.01, "{:?}", pooled.rate);
        assert!((pooled.rate.min / 50e6 - 1.0).abs() < 0.01, "{:?}", pooled.rate);
        assert!((pooled.whole / 52.5e6 - 1.0).abs() < 0.05, "{}", pooled.whole);
        assert_eq!((pooled.rate.n, pooled.meters.len(), pooled.tally.partial), (2, 2, 2));
        assert_eq!(
            pooled.bytes,
            fast.samples.get(0).unwrap().body_bytes + slow.samples.get(0).unwrap().body_bytes
        );
        let frames = [&fast, &slow].map(|repetition| repetition.bulk.as_ref().unwrap().frames.data);
        assert_eq!(pooled.frames.data, frames.iter().sum::<u64>());
        assert_eq!(Pooled::of(&[]), None);
    }

    #[test]
    fn data_that_ends_early_does_not_make_the_warm_up_part_of_the_measured_time() {
        let mut broken = bulk_repetition(Protocol::H2c, 100e6);
        let bulk = broken.bulk.as_mut().unwrap();
        let mut meter = ByteMeter::new(bulk.meter.began());
        for tick in 0..20_u64 {
            let rate = if tick < 10 { 10e6 } else { 100e6 };
            meter.add(meter.began() + Duration::from_millis(100 * tick + 50), (rate / 80.0) as u64);
        }
        bulk.meter = meter;
        let pooled = Pooled::of(&[&broken]).unwrap();
        assert!(
            (pooled.rate.median / 50e6 - 1.0).abs() < 0.01,
            "it broke after half of 2 s: {:?}",
            pooled.rate
        );
    }

    #[test]
    fn a_server_in_one_thread_is_as_busy_over_several_connections() {
        let mut repetition = bulk_repetition(Protocol::Tcp, 100e6);
        let share = |repetition: &CellRecord| {
            let figures = BulkRecord::of_repetition(repetition).unwrap().figures.swap_remove(0);
            figures.sender.cpu.unwrap().as_secs_f64() / figures.wall.as_secs_f64()
        };
        repetition.server =
            Some(ServerSummary { cpu_ns: 1_000_000, wall_ns: 1_000_000, ..ServerSummary::default() });
        let alone = share(&repetition);
        assert!((alone - 1.0).abs() < 1e-6, "{alone}");
        for index in 1..4 {
            let (mut connection, mut sample) =
                (repetition.connections[0].clone(), repetition.samples.get(0).unwrap());
            (connection.index, sample.connection) = (index, index);
            repetition.connections.push(connection);
            repetition.samples.push(&sample);
        }
        assert!((share(&repetition) - alone).abs() < 1e-6, "it has not four threads");
    }

    #[test]
    fn both_ends_of_a_repetition_are_in_its_figures() {
        let repetition = bulk_repetition(Protocol::H2c, 100e6);
        let record = BulkRecord::of_repetition(&repetition).unwrap();
        let figures = &record.figures[0];
        assert_eq!(figures.sender.send_buffer, Some(4 << 20));
        assert_eq!(figures.receiver.receive_buffer, Some(32 << 20));
        assert_eq!(figures.receiver.stream_window, Some(1 << 30));
        assert_eq!(figures.sender.tcp_sndbuf_limited, Some(Duration::from_millis(2_700)));
        assert_eq!(figures.sender.cwnd_bytes, Some(1448 * 8000));
        assert_eq!((figures.we_send, figures.streams), (false, 1));
        let mut other = repetition;
        other.bulk = None;
        assert_eq!(BulkRecord::of_repetition(&other), None);
    }
}
