//! Calibration of the verdicts: twins must not differ, and a twofold difference must be found, at `compare`'s
//! default size: two repetitions of three seconds at 1,000 requests/s.

use super::{CellSummary, CellVerdict, verdict};
use h2lab_model::record::CellRecord;
use h2lab_model::record::testing::{Model, cell, one_repetition};
use h2lab_model::scenario::Cell;
use h2lab_model::workload::Protocol;

/// Runs of each kind. At most 5 % of them may claim a difference between twins.
const RUNS: u64 = 40;

/// Sixteen connections that share a lossy link: stalls are shared by all requests of a connection, and doubled timeouts
/// make the tail heavy, but the cell carries its load.
const SHARED: Model = Model { stall_chance: 0.03, pace: 600.0, ..Model::LOSSY_SHARED };

fn pool(cell: &Cell, model: &Model) -> CellSummary {
    let repetitions: Vec<CellRecord> =
        (0..2).map(|repetition| one_repetition(cell, repetition, model)).collect();
    CellSummary::of(&repetitions.iter().collect::<Vec<_>>())
}

/// The verdict on a cell under `model` against its twin under `twin`, for one seed.
fn compare(run: u64, (protocol, connections): (Protocol, u32), model: &Model, twin: &Model) -> CellVerdict {
    let first = Cell { seed: 1000 + 17 * run, ..cell(0, 0, protocol, connections, 0.03) };
    let second = Cell { index: 1, twin: 1, ..first.clone() };
    verdict::compare(&[&pool(&first, model), &pool(&second, twin)], run).remove(0)
}

/// How many of [`RUNS`] runs claim a difference, in the tails or in the medians: both are printed.
fn claims(kind: (Protocol, u32), model: &Model, twin: &Model) -> usize {
    let claims = |verdict: &CellVerdict| {
        let conclusions = [Some(verdict.conclusion), verdict.median_conclusion];
        conclusions.into_iter().flatten().any(|conclusion| conclusion.claims_a_difference())
    };
    (0..RUNS).map(|run| compare(run, kind, model, twin)).filter(claims).count()
}

/// How many claim a difference in the tails.
fn claims_of_tails(kind: (Protocol, u32), model: &Model, twin: &Model) -> usize {
    let verdicts = (0..RUNS).map(|run| compare(run, kind, model, twin));
    verdicts.filter(|verdict| verdict.conclusion.claims_a_difference()).count()
}

#[test]
fn http1_does_not_differ_from_itself_on_a_lossy_link() {
    assert!(claims((Protocol::H1, 32), &Model::LOSSY, &Model::LOSSY) <= 2);
}

#[test]
fn http1_does_not_differ_from_itself_where_the_p99_falls_into_the_gap_before_a_timeout() {
    // About 1 % of the requests wait for a timeout: the p99 of one run is 26 ms, that of the next 230 ms.
    let model = Model { stall_chance: 0.015, ..Model::LOSSY };
    assert!(claims((Protocol::H1, 32), &model, &model) <= 2);
}

#[test]
fn shared_heavy_tailed_stalls_do_not_differ_from_themselves() {
    assert!(claims((Protocol::H2c, 16), &SHARED, &SHARED) <= 2);
}

#[test]
fn a_machine_that_is_faster_in_one_repetition_than_in_the_next_is_no_difference() {
    let model = Model { repetition_spread: 0.06, ..Model::CLEAN };
    assert!(claims((Protocol::H2c, 4), &model, &model) <= 2);
}

#[test]
fn twice_as_slow_is_seen_in_most_runs() {
    let slow = |model: Model| Model { factor: 2.0, ..model };
    for (kind, model) in [((Protocol::H1, 32), Model::LOSSY), ((Protocol::H2c, 4), Model::CLEAN)] {
        assert!(claims(kind, &model, &slow(model)) >= 36);
    }
    let seen = claims((Protocol::H2c, 16), &SHARED, &slow(SHARED));
    assert!(seen > 20, "{seen}");
}

#[test]
fn a_tail_that_is_twice_as_slow_is_seen_by_itself() {
    let slow = Model { factor: 2.0, ..Model::LOSSY };
    assert!(claims_of_tails((Protocol::H1, 32), &Model::LOSSY, &slow) >= 36);
}
