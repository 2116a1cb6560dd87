//! Calibration of experiments: changes without effect must not be called effects, however often they are evaluated.

use std::time::Duration;

use h2lab_model::experiment::Knob;
use h2lab_model::record::RunRecord;
use h2lab_model::record::testing::{Model, cell, one_repetition, run};
use h2lab_model::scenario::Cell;
use h2lab_model::workload::{Arrival, Protocol};

use super::{Experiment, FIRST_ROUNDS, LOOKS, Outcome, Setup, Trial};

/// How much a run tries.
#[derive(Clone, Copy)]
struct Size {
    /// Changes that are tried at once.
    knobs: u32,
    /// Rounds with changes.
    rounds: u32,
}

/// As much as `diagnose` tries where most of its settings concern the cell, up to the first of the later looks.
const FULL: Size = Size { knobs: 10, rounds: LOOKS[4] };
/// Less, to limit the time of the test.
const SMALL: Size = Size { knobs: 4, rounds: 4 };
/// The measured time of a repetition: shorter than in `diagnose`, for the same reason.
const MEASURE: Duration = Duration::from_secs(1);
/// Sixteen connections that share a lossy link, as in `stats::calibration`.
const SHARED: Model = Model { stall_chance: 0.03, pace: 600.0, ..Model::LOSSY_SHARED };
/// Rounds that differ by a tenth.
const VARYING: Model = Model { repetition_spread: 0.1, ..Model::CLEAN };

/// A shape of load.
struct Shape {
    name: &'static str,
    kind: (Protocol, u32),
    arrival: Arrival,
    model: Model,
}

const OPEN: Arrival = Arrival::Constant { rate: 1_000.0 };

/// Losses that each connection has separately, shared stalls in an open and in a closed loop, and none at all, in rounds that
/// are alike and in rounds that vary more than the requests in them.
const SHAPES: [Shape; 5] = [
    Shape { name: "own losses", kind: (Protocol::H1, 32), arrival: OPEN, model: Model::LOSSY },
    Shape { name: "shared stalls", kind: (Protocol::H2c, 16), arrival: OPEN, model: SHARED },
    Shape {
        name: "shared stalls, closed loop",
        kind: (Protocol::H2c, 16),
        arrival: Arrival::Closed { concurrency: 32 },
        model: SHARED,
    },
    Shape { name: "no losses", kind: (Protocol::H2c, 1), arrival: OPEN, model: Model::CLEAN },
    Shape { name: "rounds that vary", kind: (Protocol::H2c, 1), arrival: OPEN, model: VARYING },
];

/// Whether a run claims an effect in any of its looks. All cells are the same cell with other seeds, and the rounds are those of
/// `diagnose`: first the unchanged cell alone, then the changes until they are decided, those that look as if they help first.
fn claims_an_effect(seed: u64, shape: &Shape, size: Size) -> bool {
    let (protocol, connections) = shape.kind;
    let mut subject = Cell { seed: 1_000 + 131 * seed, ..cell(0, 0, protocol, connections, 0.03) };
    subject.work.phases.measure = MEASURE;
    subject.work.arrival = shape.arrival;
    let changed = |n: u32| Cell { index: n, seed: subject.seed + 7_919 * u64::from(n), ..subject.clone() };
    let measure = |n: u32, round: u32| one_repetition(&changed(n), round, &shape.model);
    let knobs: Vec<(u32, Knob)> = (1..=size.knobs).map(|n| (n, Knob::Connections(n))).collect();
    let setup = Setup { subject: 0, twin: None, direct: None, hops: Vec::new(), knobs: knobs.clone() };
    let mut record: RunRecord = run(Vec::new());
    record.seed = seed;
    record.repetitions.extend((0..FIRST_ROUNDS).map(|round| measure(0, round)));
    let mut next = knobs.clone();
    for made in 1..=size.rounds {
        let round = FIRST_ROUNDS + made - 1;
        record.repetitions.push(measure(0, round));
        record.repetitions.extend(next.iter().map(|(n, _)| measure(*n, round)));
        let Some(experiment) = Experiment::of(&record, &setup) else { return false };
        let is_claim = |trial: &Trial| {
            let is_look = LOOKS.contains(&trial.rounds) || made == size.rounds;
            is_look && matches!(trial.outcome, Outcome::Confirmed | Outcome::Worse)
        };
        if experiment.trials.iter().any(is_claim) {
            return true;
        }
        next = experiment.promising(experiment.open(&knobs, made));
    }
    false
}

fn claims(runs: u64, shape: &Shape, size: Size) -> u64 {
    (0..runs).filter(|&seed| claims_an_effect(seed, shape, size)).count() as u64
}

/// Wilson's interval of 95 % for a share.
fn wilson(hits: u64, trials: u64) -> [f64; 2] {
    const Z: f64 = 1.96;
    let n = trials as f64;
    let p = hits as f64 / n;
    let centre = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    [centre - half, centre + half].map(|end| (end / (1.0 + Z * Z / n)).clamp(0.0, 1.0))
}

#[test]
fn changes_without_an_effect_are_not_called_effects() {
    for shape in &SHAPES {
        let claims = claims(12, shape, SMALL);
        // Of 12 runs with a chance of 5 % each, three or more claim something in 2 % of the cases.
        assert!(claims <= 2, "{}: {claims} of 12", shape.name);
    }
}

#[test]
#[ignore = "a thousand runs of each shape take far longer than a test may: `cargo xtask verify diagnose --only aa-simulated`"]
#[allow(clippy::print_stdout, reason = "its figures are for results/")]
fn of_a_thousand_runs_at_most_one_in_twenty_claims_an_effect() {
    const RUNS: u64 = 1_000;
    for shape in &SHAPES {
        let claims = claims(RUNS, shape, FULL);
        let [low, high] = wilson(claims, RUNS).map(|share| share * 100.0);
        let name = shape.name;
        // `verify` reads such lines.
        println!("figure: {name}: {claims} of {RUNS} runs claim an effect ({low:.1} to {high:.1} %)");
        assert!(claims * 20 <= RUNS, "{name}: {claims} of {RUNS}");
    }
}

#[test]
fn the_interval_of_a_share_is_that_of_the_books() {
    let [low, high] = wilson(9, 10);
    assert!((low - 0.596).abs() < 0.001 && (high - 0.982).abs() < 0.001, "{low} {high}");
}

#[test]
fn the_closed_loop_of_the_model_sends_the_next_request_after_each_answer() {
    let mut cell = cell(0, 0, Protocol::H2c, 2, 0.0);
    cell.work.arrival = Arrival::Closed { concurrency: 3 };
    let record = one_repetition(&cell, 0, &SHARED);
    for ms in [20, 400, 1_500, 2_900] {
        let at = record.started_at + Duration::from_millis(ms);
        let under_way = record.samples.iter().filter(|one| one.scheduled_at <= at && at < one.completed_at);
        assert_eq!(under_way.count(), 3, "after {ms} ms");
    }
}
