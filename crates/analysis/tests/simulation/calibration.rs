//! A/A end to end: cells that differ only in their seed must not be called different.
//!
//! `stats::calibration` checks the same for synthetic latencies, which can be given exactly the shapes that are hard to
//! judge (a p99 in the gap before a timeout, repetitions that differ) and a real difference to find. Here latencies
//! result from engines, TCP and link together: what a model of latencies would have to assume (how stalls cluster, how
//! one backlog overlaps the next, how a connection behaves that is dialled in between) actually happens. Both tests are
//! kept.

use std::time::Duration;

use h2lab_analysis::stats::{CellVerdict, Conclusion, analyse};
use h2lab_model::scenario::Axis;
use h2lab_model::workload::{Protocol, RequestShape};

use crate::model::{self, Setup};
use crate::trial;

/// Runs of each kind.
const RUNS: u64 = 40;
/// How many of them may claim a difference: 5 %.
const ALLOWED: usize = 2;

/// The verdict of `protocol` compared with itself for one seed, with two repetitions each as in `compare`, at `loss`
/// and with this much additional delay for the second.
fn verdict(protocol: Protocol, loss: f64, handicap: Duration, seed: u64) -> CellVerdict {
    let mut scenario = trial::one(protocol, 1, loss);
    scenario.repetitions = 2;
    scenario.seed = Axis::one(seed);
    scenario.matrix.protocols = Axis::new(vec![protocol; 2]).expect("two");
    scenario.work.warmup = Duration::from_millis(100);
    scenario.work.measure = Axis::one(Duration::from_millis(1_200));
    // Few fields: a debug build spends most of its time parsing heads.
    scenario.work.shape = Axis::one(RequestShape::Bare);
    let mut run = trial::not_begun(&scenario);
    for cell in scenario.plan() {
        let mut slower = cell.clone();
        let link = slower.link.as_mut().expect("a link");
        link.downlink.delay += handicap * cell.twin;
        run.repetitions.push(model::repetition(&slower, &Setup::new()).record);
    }
    analyse(&run).verdicts.remove(0)
}

/// Whether any printed conclusion says that the two differ.
fn claims_a_difference(verdict: &CellVerdict) -> bool {
    let median = verdict.median_conclusion.as_ref().is_some_and(Conclusion::claims_a_difference);
    median || verdict.conclusion.claims_a_difference()
}

/// The seeds whose run claims a difference.
fn claims(protocol: Protocol, loss: f64) -> Vec<u64> {
    let claims = (1..=RUNS).filter(|&seed| {
        let verdict = verdict(protocol, loss, Duration::ZERO, seed);
        assert!(verdict.tail_ratio.is_some(), "seed {seed}: nothing was compared: {:?}", verdict.conclusion);
        claims_a_difference(&verdict)
    });
    claims.collect()
}

#[test]
fn http1_does_not_differ_from_itself_at_3_percent_loss() {
    let claims = claims(Protocol::H1, 0.03);
    println!("h1 at 3 %: {} of {RUNS} runs claim a difference (seeds {claims:?})", claims.len());
    assert!(claims.len() <= ALLOWED, "seeds {claims:?}");
}

/// 0.05 %: about one loss a second. It delays all requests of the connection, which still carries its load.
#[test]
fn one_http2_connection_does_not_differ_from_itself_at_a_loss_that_it_bears() {
    let claims = claims(Protocol::H2c, 0.0005);
    println!("h2c × 1 at 0.05 %: {} of {RUNS} runs claim a difference (seeds {claims:?})", claims.len());
    assert!(claims.len() <= ALLOWED, "seeds {claims:?}");
}

#[test]
fn what_is_5_milliseconds_further_away_is_called_different() {
    for (protocol, loss) in [(Protocol::H1, 0.03), (Protocol::H2c, 0.0005)] {
        let claims = (1..=3)
            .filter(|&seed| claims_a_difference(&verdict(protocol, loss, Duration::from_millis(5), seed)));
        assert_eq!(claims.count(), 3, "{protocol}");
    }
}
