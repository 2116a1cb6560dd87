//! Calibration of experiments: changes without effect must not be called effects, however often they are evaluated.

use std::time::Duration;

use h2lab_model::experiment::Knob;
use h2lab_model::record::RunRecord;
use h2lab_model::record::testing::{Model, cell, one_repetition, run};
use h2lab_model::scenario::Cell;
use h2lab_model::workload::Protocol;

use super::{Experiment, Outcome, Setup};

/// Changes that are tried at once, and looks at each: fewer than in `diagnose`, to limit the time of the test.
const KNOBS: u32 = 4;
const LOOKS: u32 = 3;
/// The measured time of a repetition: shorter than in `diagnose`, for the same reason.
const MEASURE: Duration = Duration::from_secs(1);
/// Sixteen connections that share a lossy link, as in `stats::calibration`.
const SHARED: Model = Model { stall_chance: 0.03, pace: 600.0, ..Model::LOSSY_SHARED };

/// Whether a run claims an effect in any of its looks, as `diagnose` does: a claim ends the trial. All cells are the
/// same cell with other seeds.
fn claims_an_effect(seed: u64, (protocol, connections): (Protocol, u32), model: &Model) -> bool {
    let mut subject = Cell { seed: 1_000 + 131 * seed, ..cell(0, 0, protocol, connections, 0.03) };
    subject.work.phases.measure = MEASURE;
    let changed = |n: u32| Cell { index: n, seed: subject.seed + 7_919 * u64::from(n), ..subject.clone() };
    let knobs = (1..=KNOBS).map(|n| (n, Knob::Connections(n))).collect();
    let setup = Setup { subject: 0, twin: None, direct: None, hop: None, knobs, looks: LOOKS };
    let mut record: RunRecord = run(Vec::new());
    record.seed = seed;
    for round in 0..=LOOKS {
        for n in 0..=KNOBS {
            record.repetitions.push(one_repetition(&changed(n), round, model));
        }
        let is_claim = |outcome: &Outcome| matches!(outcome, Outcome::Confirmed | Outcome::Worse);
        let looks = (round > 0).then(|| Experiment::of(&record, &setup)).flatten();
        if looks.is_some_and(|experiment| experiment.trials.iter().any(|trial| is_claim(&trial.outcome))) {
            return true;
        }
    }
    false
}

fn claims(runs: u64, kind: (Protocol, u32), model: &Model) -> usize {
    (0..runs).filter(|&seed| claims_an_effect(seed, kind, model)).count()
}

/// The shapes of load: losses that each connection has separately, shared stalls, and none at all.
const SHAPES: [(&str, (Protocol, u32), Model); 3] = [
    ("own losses", (Protocol::H1, 32), Model::LOSSY),
    ("shared stalls", (Protocol::H2c, 16), SHARED),
    ("no losses", (Protocol::H2c, 1), Model::CLEAN),
];

#[test]
fn changes_without_an_effect_are_not_called_effects() {
    for (name, kind, model) in &SHAPES {
        let claims = claims(12, *kind, model);
        // Of 12 runs with a chance of 5 % each, three or more claim something in 2 % of the cases.
        assert!(claims <= 2, "{name}: {claims} of 12");
    }
}

#[test]
#[ignore = "a thousand runs of each shape take far longer than a test may: `cargo test --release -p h2lab-analysis -- --ignored a_thousand`"]
#[allow(clippy::print_stdout, reason = "its figures are for results/")]
fn of_a_thousand_runs_at_most_one_in_twenty_claims_an_effect() {
    for (name, kind, model) in &SHAPES {
        let claims = claims(1_000, *kind, model);
        println!("{name}: {claims} of 1000 runs claim an effect");
        assert!(claims <= 50, "{name}: {claims} of 1000");
    }
}
