//! Bulk work: the bytes per second of a cell against those of another.
//!
//! Its responses last as long as the measurement, so there are no response times to compare. The interval is that of
//! throughputs (`rate.rs`), over bytes instead of successes. TCP changes its rate slowly, so a block is a quarter of
//! the measured time, however steady the rate is.

use std::collections::BTreeMap;
use std::time::Duration;

use super::runs::conclude_rate;
use super::summary::RepetitionSeries;
use super::{CellSummary, CellVerdict, Conclusion, rate, verdict};
use h2lab_base::packed::Packed;
use h2lab_model::record::CellRecord;
use h2lab_model::scenario::Cell;
use h2lab_model::workload::Protocol;

/// A block is two of these "stalls" long (`bootstrap.rs`).
const STALLS_OF_TIME: u32 = 8;

/// The verdict on the repetitions of a cell of bulk work against those of another, one of `looks`.
pub(super) fn compared(
    baseline: &[&CellRecord],
    candidate: &[&CellRecord],
    seed: u64,
    looks: u32,
) -> CellVerdict {
    let (first, other) = (CellSummary::of(baseline), CellSummary::of(candidate));
    let mut verdict = verdict::open(&first, &other);
    if let Some(conclusion) = verdict::by_state(&first, &other) {
        verdict.conclusion = conclusion;
        return verdict;
    }
    let seed = seed.wrapping_add(u64::from(other.cell.index));
    verdict.bytes = rate::ratio(&series(baseline), &series(candidate), seed, looks);
    verdict.conclusion = verdict.bytes.as_ref().map_or(Conclusion::NoDifference, conclude_rate);
    verdict
}

/// Each multiplexed cell of bulk work against the same work over HTTP/1.1, or over TCP by itself if HTTP/1.1 was not
/// measured; none for a cell without either.
pub(crate) fn bulk_verdicts(cells: &BTreeMap<u32, Vec<&CellRecord>>) -> Vec<CellVerdict> {
    let of_cell = |candidate: &Vec<&CellRecord>| {
        let cell = &candidate[0].cell;
        let is_compared = cell.work.bulk && cell.protocol.is_multiplexed();
        let baseline = is_compared.then(|| twin(cells, cell)).flatten()?;
        Some(compared(baseline, candidate, cell.seed, 1))
    };
    cells.values().filter_map(of_cell).collect()
}

/// What a multiplexed cell is compared with: over as many connections, if there is such a cell.
fn twin<'a, 'b>(cells: &'b BTreeMap<u32, Vec<&'a CellRecord>>, cell: &Cell) -> Option<&'b [&'a CellRecord]> {
    let is_alike =
        |other: &Cell| (other.group, &other.target, other.work.bulk) == (cell.group, &cell.target, true);
    let plain = cells.values().filter(|records| {
        let other = &records[0].cell;
        is_alike(other) && !other.protocol.is_multiplexed()
    });
    let place = |records: &&Vec<&CellRecord>| {
        let other = &records[0].cell;
        (other.protocol == Protocol::Tcp, other.connections != cell.connections, other.index)
    };
    plain.min_by_key(place).map(Vec::as_slice)
}

/// The bytes of each repetition in its measured time.
fn series(repetitions: &[&CellRecord]) -> Vec<RepetitionSeries> {
    let of_one = |repetition: &&CellRecord| {
        let meter = &repetition.bulk.as_ref()?.meter;
        let (warmup, measure) = (repetition.cell.work.phases.warmup, repetition.cell.work.phases.measure);
        let begins = (0..).map(|n: u32| meter.interval() * n);
        let in_time = |(begin, bytes): (Duration, &u64)| {
            let is_counted = *bytes > 0 && begin >= warmup && begin < warmup + measure;
            is_counted.then(|| (begin.saturating_sub(warmup), *bytes))
        };
        Some(RepetitionSeries {
            round: repetition.cell.repetition,
            duration: measure,
            longest_stall: measure / STALLS_OF_TIME,
            points: Packed::default(),
            served: begins.zip(meter.intervals()).filter_map(in_time).collect(),
            failed: Vec::new(),
        })
    };
    repetitions.iter().filter_map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Unclaimed, repetitions_by_cell};
    use h2lab_model::bulk::testing::bulk_repetition;
    use h2lab_model::workload::Protocol::{H1, H2c, Tcp};

    #[test]
    fn a_rate_that_is_a_tenth_lower_is_slower_and_less_is_the_same() {
        let against =
            |rate: f64| compared(&[&bulk_repetition(H1, 100e6)], &[&bulk_repetition(H2c, rate)], 1, 1);
        let slower = against(80e6);
        assert_eq!(slower.conclusion, Conclusion::Slower);
        let bytes = slower.bytes.unwrap();
        assert!((bytes.ratio - 0.8).abs() < 0.01, "{bytes:?}");
        assert!((bytes.baseline_rps / 12.5e6 - 1.0).abs() < 0.02, "bytes per second: {bytes:?}");
        assert!(slower.is_slower() && slower.tail_ratio.is_none());
        assert_eq!(against(125e6).conclusion, Conclusion::Faster);
        let same = against(95e6);
        assert_eq!((same.conclusion, same.unclaimed()), (Conclusion::NoDifference, Some(Unclaimed::Small)));
        assert!(same.is_no_slower());
    }

    #[test]
    fn what_was_not_measured_soundly_has_no_verdict_and_no_ratio() {
        let mut lost = bulk_repetition(H2c, 50e6);
        lost.link.as_mut().unwrap().device_drops = 1;
        let verdict = compared(&[&bulk_repetition(H1, 100e6)], &[&lost], 1, 1);
        assert_eq!((verdict.conclusion, verdict.bytes), (Conclusion::Invalid, None));
    }

    #[test]
    fn one_of_several_comparisons_needs_a_wider_interval_the_more_so_of_few_repetitions() {
        let twice = |protocol: Protocol, rates: [f64; 2]| rates.map(|rate| bulk_repetition(protocol, rate));
        let (http1, http2) = (twice(H1, [100e6, 100e6]), twice(H2c, [80e6, 76e6]));
        let among = |looks: u32| compared(&http1.each_ref(), &http2.each_ref(), 1, looks);
        // A difference of 25 % with a standard error of 2.6 %: Student's t for two degrees of freedom is 4.3 at 5 %, and
        // 12.6 at an eighth of that, where the normal distribution has 2.7.
        assert_eq!(among(1).conclusion, Conclusion::Slower);
        assert_eq!(among(8).conclusion, Conclusion::NoDifference);
        assert_eq!(among(8).unclaimed(), Some(Unclaimed::Undecided));
    }

    #[test]
    fn http2_is_compared_with_http1_over_as_many_connections_else_with_tcp() {
        let of = |made: &[(Protocol, u32, u32)]| {
            let made = (0..).zip(made).map(|(index, (protocol, group, connections))| {
                let mut record = bulk_repetition(*protocol, 100e6);
                (record.cell.index, record.cell.group) = (index, *group);
                record.cell.connections = *connections;
                record
            });
            let records: Vec<CellRecord> = made.collect();
            let verdicts = bulk_verdicts(&repetitions_by_cell(&records));
            verdicts.iter().map(|verdict| (verdict.cell, verdict.baseline)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[(Tcp, 0, 1), (H1, 0, 1), (H1, 0, 4), (H2c, 0, 4)]), [(3, 2)]);
        assert_eq!(of(&[(Tcp, 0, 1), (H1, 0, 1), (H2c, 0, 4)]), [(2, 1)]);
        assert_eq!(of(&[(Tcp, 0, 1), (H2c, 0, 1), (H1, 1, 1)]), [(1, 0)]);
        assert!(of(&[(H1, 1, 1), (H2c, 0, 1)]).is_empty(), "another condition");
    }
}
