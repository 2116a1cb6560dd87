//! Runs of a client, and what they show.

use super::*;
use h2lab_model::record::Outcome as Ended;
use h2lab_model::record::testing::{Model, cell, one_repetition};
use h2lab_model::scenario::Change;
use h2lab_model::workload::Protocol;

const KNOB: Knob = Knob::LargeServerWindows;

fn run(cell: u32, round: u32, took: f64, response: f64) -> ClientRun {
    ClientRun {
        cell,
        round,
        took: Duration::from_secs_f64(took),
        responses: vec![Duration::from_secs_f64(response)],
        requests: 1,
        ..ClientRun::default()
    }
}

/// More streams on a connection.
fn streams() -> Knob {
    Knob::Server(ServerSetting {
        change: Change { knob: settings::Knob::MaxConcurrentStreams, value: Some(128) },
        words: "128 streams".to_owned(),
        causes: vec!["MUX101".to_owned()],
    })
}

/// In each round a run without the change, which takes about 1 s, and one with it; by these factors it and its response are
/// quicker.
fn runs(rounds: u32, quicker: [f64; 2]) -> Vec<ClientRun> {
    let of_round = |round: u32| {
        let varied = 1.0 + [0.0, 0.02, -0.01][round as usize % 3];
        [run(0, round, varied, varied), run(1, round, varied / quicker[0], varied / quicker[1])]
    };
    (0..rounds).flat_map(of_round).collect()
}

fn of(runs: &[ClientRun]) -> Experiment {
    experiment(runs, 0, &[(1, KNOB)])
}

fn outcome(runs: &[ClientRun]) -> Outcome {
    of(runs).trials[0].outcome.clone()
}

#[test]
fn a_change_with_which_runs_are_quicker_is_confirmed_and_one_without_effect_refuted() {
    let found = of(&runs(3, [2.0; 2]));
    let trial = &found.trials[0];
    assert_eq!((found.metric, &trial.outcome, trial.rounds), (Metric::Run, &Outcome::Confirmed, 3));
    let effect = trial.effect.unwrap();
    assert!((effect.ratio - 2.0).abs() < 0.01 && effect.low > 1.7 && effect.low < 1.95, "{effect:?}");
    assert!((effect.before - 1.0).abs() < 0.02 && (effect.after - 0.5).abs() < 0.01, "{effect:?}");
    assert_eq!(outcome(&runs(3, [1.0; 2])), Outcome::Refuted);
    assert_eq!(outcome(&runs(3, [0.5; 2])), Outcome::Worse);
    assert_eq!(outcome(&runs(3, [1.09; 2])), Outcome::Undecided, "too little to claim, and not nothing");
}

#[test]
fn nothing_is_concluded_from_less_than_three_rounds() {
    assert_eq!(outcome(&runs(2, [2.0; 2])), Outcome::Undecided);
    assert_eq!(of(&runs(1, [2.0; 2])).trials[0].effect, None, "nothing is known of the variation");
    let none = of(&runs(3, [2.0; 2])[..1]);
    assert_eq!((none.trials.len(), none.untried), (0, 1), "the budget was spent before");
}

#[test]
fn a_client_that_runs_for_a_fixed_time_is_judged_by_its_response_times() {
    let found = of(&runs(3, [1.0, 2.0]));
    assert_eq!(found.metric, Metric::Response(Tail::P95));
    assert_eq!(found.trials[0].outcome, Outcome::Confirmed);
}

#[test]
fn a_client_that_runs_for_a_fixed_time_is_judged_by_its_requests_per_second() {
    let timed = |more: usize| {
        let mut runs = runs(3, [1.0; 2]);
        for run in &mut runs {
            let varied = if run.cell == 1 { 100 + more } else { 100 };
            run.responses = vec![Duration::from_secs_f64(0.01); varied + run.round as usize % 2];
            run.requests = run.responses.len() as u64;
        }
        of(&runs)
    };
    let (found, alike) = (timed(100), timed(5));
    assert_eq!((found.metric, &found.trials[0].outcome), (Metric::Served, &Outcome::Confirmed));
    let effect = found.trials[0].effect.unwrap();
    assert!((effect.ratio - 2.0).abs() < 0.02 && effect.before < effect.after, "{effect:?}");
    assert_eq!((alike.metric, &alike.trials[0].outcome), (Metric::Run, &Outcome::Refuted));
}

#[test]
fn without_effect_is_a_change_only_by_all_figures_and_what_harms_one_of_them_helps_none() {
    let mut wild = runs(3, [1.0; 2]);
    for (run, response) in wild.iter_mut().zip([1, 2, 3, 1, 2, 4]) {
        run.responses = vec![Duration::from_secs(response)];
    }
    assert_eq!((of(&wild).metric, outcome(&wild)), (Metric::Run, Outcome::Undecided));
    let quicker_but_slow = runs(3, [2.0, 0.5]);
    assert_eq!(outcome(&quicker_but_slow), Outcome::Undecided);
    // What waited for a stream before is in no response time: the time of the run decides.
    let knob = streams();
    assert_eq!(experiment(&quicker_but_slow, 0, &[(1, knob.clone())]).trials[0].outcome, Outcome::Confirmed);
    let slower = experiment(&runs(3, [0.5, 2.0]), 0, &[(1, knob)]);
    assert_ne!(slower.trials[0].outcome, Outcome::Confirmed);
}

#[test]
fn more_changes_and_more_looks_make_intervals_wider() {
    let runs = runs(3, [2.0; 2]);
    let low = |knobs: &[(u32, Knob)]| experiment(&runs, 0, knobs).trials[0].effect.unwrap().low;
    let alone = low(&[(1, KNOB)]);
    assert!(low(&[(1, KNOB), (2, Knob::NoLoss)]) < alone);
}

#[test]
fn a_busy_machine_and_failures_make_a_change_void() {
    let with = |change: &dyn Fn(&mut ClientRun)| {
        let mut runs = runs(5, [2.0; 2]);
        runs.iter_mut().filter(|run| run.cell == 1).for_each(change);
        match outcome(&runs) {
            Outcome::Void(why) => Some(why),
            _ => None,
        }
    };
    let busy = |rounds: u32| {
        with(&|run: &mut ClientRun| {
            if run.round < rounds {
                run.doubts = vec!["late".to_owned()];
            }
        })
    };
    assert_eq!((busy(2), busy(3).as_deref()), (None, Some("late")), "half of the rounds are sound, or fewer");
    let failed = |rounds: u32| with(&|run: &mut ClientRun| run.has_failed = run.round < rounds);
    let most = "the command failed in 4 of 5 runs with the change";
    assert_eq!((failed(3), failed(4).as_deref()), (None, Some(most)), "fewer may fail by chance");
    assert!(with(&|run: &mut ClientRun| run.requests = 0).is_some());
    let requests =
        |failures: u64| with(&|run: &mut ClientRun| (run.requests, run.failures) = (100, failures));
    assert_eq!((requests(2), requests(3).as_deref()), (None, Some("15 of 500 requests failed")));
    // What fails without it as well is no effect of the change.
    let mut both = runs(3, [2.0; 2]);
    for run in &mut both {
        run.has_failed = true;
    }
    assert_eq!(outcome(&both), Outcome::Confirmed);
    let mut failing = |more: u64| {
        for run in &mut both {
            (run.requests, run.failures) = (100, 5 + more * u64::from(run.cell));
        }
        outcome(&both)
    };
    let more = Outcome::Void("27 of 300 requests failed".to_owned());
    assert_eq!(failing(4), more, "of a client that always fails; 27 beside 15 are 4 % likely");
    assert_eq!(failing(3), Outcome::Confirmed, "24 beside 15 are 9 % likely");
}

#[test]
fn a_change_with_which_the_command_always_fails_is_void_however_many_changes_are_tried() {
    let mut runs = runs(4, [2.0; 2]);
    runs.iter_mut().filter(|run| run.cell == 1).for_each(|run| run.has_failed = true);
    let is_void = |changes: u32| {
        let knobs: Vec<(u32, Knob)> = (1..=changes).map(|cell| (cell, KNOB)).collect();
        matches!(experiment(&runs, 0, &knobs).trials[0].outcome, Outcome::Void(_))
    };
    // Four of four are one in 70.
    assert!(is_void(1) && is_void(12));
}

#[test]
fn a_run_that_fails_is_not_compared_and_ends_no_experiment() {
    let knobs = vec![(1, KNOB)];
    for end in [0, 1] {
        let mut runs = runs(4, [2.0; 2]);
        let bad = runs.iter_mut().find(|run| run.cell == end).unwrap();
        (bad.has_failed, bad.took) = (true, Duration::from_millis(1));
        let first = of(&runs[..2]);
        assert_eq!((&first.trials[0].outcome, first.open(&knobs, 1)), (&Outcome::Undecided, knobs.clone()));
        assert_eq!(outcome(&runs[..6]), Outcome::Undecided, "two rounds are compared");
        let trial = of(&runs).trials[0].clone();
        assert_eq!((&trial.outcome, trial.rounds), (&Outcome::Confirmed, 4));
        assert!((trial.effect.unwrap().ratio - 2.0).abs() < 0.01, "{trial:?}");
    }
}

#[test]
fn late_rounds_are_followed_by_others_and_a_change_with_which_the_command_always_fails_is_given_up() {
    let knobs = vec![(1, KNOB)];
    let with = |rounds: u32, change: &dyn Fn(&mut ClientRun)| {
        let mut runs = runs(rounds, [2.0; 2]);
        runs.iter_mut().filter(|run| run.cell == 1).for_each(change);
        let found = of(&runs);
        let is_void = matches!(found.trials[0].outcome, Outcome::Void(_));
        (is_void, found.open(&knobs, rounds).len())
    };
    let late = |run: &mut ClientRun| run.doubts = vec!["late".to_owned()];
    assert_eq!([1, 2].map(|rounds| with(rounds, &late)), [(true, 1); 2]);
    let fails = |run: &mut ClientRun| run.has_failed = true;
    assert_eq!([2, 3].map(|rounds| with(rounds, &fails)), [(false, 1), (true, 0)]);
}

#[test]
fn a_run_has_its_answered_requests_and_counts_the_others() {
    let base = cell(7, 0, Protocol::H2c, 1, 0.0);
    let mut record = one_repetition(&base, 2, &Model::CLEAN);
    let all = record.samples.iter().count() as u64;
    for (n, sample) in record.samples.edit().iter_mut().enumerate() {
        sample.outcome = if n == 0 { Ended::Reset } else { Ended::Succeeded };
    }
    let run = ClientRun::of(&record.cell, std::slice::from_ref(&record));
    assert_eq!((run.cell, run.round, run.requests, run.failures), (7, 2, all, 1));
    assert_eq!(run.responses.len() as u64, all - 1);
    assert!(run.responses.is_sorted());
    let median = run.figure(Metric::Median).unwrap();
    assert!((median - run.responses[(all as usize - 1).div_ceil(2) - 1].as_secs_f64()).abs() < 1e-12);
    assert_eq!(ClientRun::default().figure(Metric::Median), None);
    assert_eq!(ClientRun::default().figure(Metric::Run), None);
}

#[test]
fn the_changes_of_the_first_finding_are_tried_first_and_none_without_a_finding() {
    let finding = |rule: &str| Finding { rule: rule.to_owned(), ..Finding::default() };
    let mut ours = cell(0, 0, Protocol::H2c, 1, 0.03);
    ours.max_requests_per_connection = Some(9);
    let of = |rules: &[&str], named: &[settings::Knob]| {
        let named = named.iter().map(|knob| ServerSetting {
            change: Change { knob: *knob, value: Some(128) },
            words: "x".to_owned(),
            causes: vec!["MUX101".to_owned()],
        });
        let findings: Vec<Finding> = rules.iter().map(|rule| finding(rule)).collect();
        suspects(&findings, &ours, named.collect())
    };
    assert_eq!(of(&["CONN101", "LOSS101"], &[]), [Knob::NoRequestLimit, Knob::NoLoss]);
    assert_eq!(of(&["CONN103"], &[]), [Knob::NoRequestLimit], "it ends connections by GOAWAY");
    assert_eq!(of(&["LOSS101", "CONN107", "CONN101"], &[]), [Knob::NoLoss, Knob::NoRequestLimit]);
    assert!(of(&["CONN107", "FLOW102"], &[]).is_empty(), "its windows are large, and its dials are its own");
    let unaffected = Finding { unaffected_by: Some(Knob::NoLoss), ..finding("LOSS101") };
    assert!(suspects(&[unaffected], &ours, Vec::new()).is_empty(), "its form is one that the change leaves");
    let streams = of(&["MUX101"], &[settings::Knob::MaxConcurrentStreams, settings::Knob::StreamWindow]);
    assert_eq!(streams.len(), 1, "{streams:?}");
}

#[test]
fn a_run_longer_than_a_third_of_the_budget_is_not_repeated() {
    let seconds = Duration::from_secs;
    assert_eq!(too_long(seconds(20), seconds(60)), None);
    let said = too_long(seconds(40), seconds(60)).unwrap();
    assert!(said.starts_with("one run takes 40") && said.ends_with("give --budget 300s"), "{said}");
    assert!(too_long(Duration::from_millis(20_001), seconds(60)).is_some());
    assert_eq!(too_long(seconds(40), seconds(300)), None, "what it asks for is enough");
    assert_eq!([48, 47, 24, 0].map(|left| fitting(seconds(left), seconds(4))), [3, 2, 1, 1]);
    assert_eq!(fitting(seconds(9), Duration::ZERO), u32::MAX as usize - 1);
}
