use super::*;
use crate::stats::Instability;
use h2lab_model::record::testing::{Model, cell, one_repetition, run};

fn setup() -> Setup {
    Setup {
        subject: 1,
        twin: Some(0),
        direct: None,
        hops: vec![[0, 1]],
        knobs: vec![(2, Knob::Connections(4))],
    }
}

#[test]
fn the_looks_at_a_change_share_its_chance_of_a_false_claim_whenever_the_budget_ends() {
    let share = |rounds: u32| 1.0 / f64::from(looks(rounds));
    let planned: f64 = LOOKS.map(share).iter().sum();
    let last = LOOKS[LOOKS.len() - 1];
    for end in (1..=last).filter(|rounds| !LOOKS.contains(rounds)) {
        // One that ends before the second round has no other look.
        let before: f64 = LOOKS.iter().filter(|look| **look < end).map(|look| share(*look)).sum();
        assert!(before + share(end) <= 1.0 + 1e-9, "{end}");
    }
    assert!(planned + share(6) <= 1.0 + 1e-9 && planned > 0.9, "{planned}");
    assert!([2, 3, 4, 5].iter().all(|rounds| looks(*rounds) == 5) && looks(6) == 45);
}

#[test]
fn a_change_that_needs_a_finding_is_worth_a_try_where_one_of_its_cell_names_its_cause() {
    let finding = |cell, rule: &str| Finding { cell, rule: rule.to_owned(), ..Finding::default() };
    let findings = [finding(1, "MUX101"), finding(1, "LOSS104"), finding(2, "CONN102")];
    let is_tried = |knob: &Knob| is_worth_trying(knob, 1, &findings);
    assert!(is_tried(&Knob::QuickAcks) && is_tried(&Knob::LongFrames));
    assert!(!is_tried(&Knob::AwaitedSettings), "of another cell");
    assert_eq!(suspicion(&Knob::Connections(4), 1, &findings), Some(0));
    assert_eq!(suspicion(&Knob::QuickAcks, 1, &findings), Some(1));
    assert_eq!(suspicion(&Knob::LongFrames, 1, &findings), None);
    let [_, delayed, _] = findings;
    let prompt = [Finding { unaffected_by: Some(Knob::QuickAcks), ..delayed }];
    assert!(!is_worth_trying(&Knob::QuickAcks, 1, &prompt), "its form is one that the change leaves");
}

/// Three rounds; the subject is `slow` times as slow as the twin, and the changed cell `changed` times.
fn measured(slow: f64, changed: f64) -> RunRecord {
    let mut repetitions = Vec::new();
    for round in 0..3 {
        for (index, protocol, factor) in
            [(0, Protocol::H1, 1.0), (1, Protocol::H2c, slow), (2, Protocol::H2c, changed)]
        {
            let model = Model { factor, ..Model::CLEAN };
            repetitions.push(one_repetition(&cell(index, 0, protocol, 1, 0.0), round, &model));
        }
    }
    run(repetitions)
}

fn concluded(slow: f64, changed: f64) -> Experiment {
    Experiment::of(&measured(slow, changed), &setup()).unwrap()
}

#[test]
fn a_hop_has_the_medians_of_both_cells_and_the_verdicts_of_the_experiment_come_first() {
    let run = measured(2.0, 1.0);
    let experiment = Experiment::of(&run, &setup()).unwrap();
    let hop = experiment.hops.first().unwrap();
    let [direct, via] = *hop.medians.as_ref().unwrap();
    let ratio = via.as_secs_f64() / direct.as_secs_f64();
    assert!((1.8..2.2).contains(&ratio), "{direct:?} {via:?}");
    assert_eq!(hop.protocols, [Protocol::H1, Protocol::H2c]);
    assert_eq!(Hop::of(&run, [0, 7]), None, "it was not measured");
    let mut other_work = run.clone();
    let of_subject = other_work.repetitions.iter_mut().filter(|one| one.cell.index == 1);
    of_subject.for_each(|one| one.samples.edit().iter_mut().for_each(|sample| sample.body_bytes += 9_999));
    let medians = Hop::of(&other_work, [0, 1]).unwrap().medians;
    assert!(medians.unwrap_err().ends_with("the work compared is not the same"));
    for (index, place) in [(0, "at the server itself "), (1, "through the proxy ")] {
        let mut unsound = run.clone();
        let one = unsound.repetitions.iter_mut().find(|one| one.cell.index == index).unwrap();
        one.link.as_mut().unwrap().device_drops = 9;
        let why = Hop::of(&unsound, [0, 1]).unwrap().medians.unwrap_err();
        assert!(why.starts_with(place), "{why}");
    }
    // The run compares with a different cell than the experiment does.
    let own = experiment.verdict.clone().unwrap();
    let foreign = CellVerdict { baseline: 2, ..own.clone() };
    let other = CellVerdict { cell: 2, ..own.clone() };
    assert_eq!(experiment.verdicts(&[foreign, other.clone()]), [own, other]);
}

#[test]
fn each_protocol_that_both_hops_speak_has_its_times_whether_or_not_one_is_slower() {
    let protocols = |slow: f64, setup: &Setup| {
        let experiment = Experiment::of(&measured(slow, 1.0), setup).unwrap();
        experiment.hops.iter().map(|hop| hop.protocols).collect::<Vec<_>>()
    };
    let at_both = Setup { direct: Some([0, 2]), hops: vec![[0, 0], [2, 1]], knobs: Vec::new(), ..setup() };
    for slow in [1.0, 2.0] {
        assert_eq!(protocols(slow, &at_both), [[Protocol::H1; 2], [Protocol::H2c; 2]]);
        assert_eq!(protocols(slow, &setup()), [[Protocol::H1, Protocol::H2c]], "the server has no HTTP/2");
    }
}

#[test]
fn a_knob_that_closes_the_gap_is_confirmed_with_its_effect() {
    let experiment = concluded(2.0, 1.0);
    let trial = &experiment.trials[0];
    assert_eq!(trial.outcome, Outcome::Confirmed);
    assert_eq!((trial.knob.clone(), trial.cell, trial.rounds), (Knob::Connections(4), 2, 3));
    let effect = trial.effect.unwrap();
    assert!((effect.ratio - 2.0).abs() < 0.05 && effect.low > 1.5 && effect.high < 2.5, "{effect:?}");
    assert!(trial.closes.unwrap()[0] > 0.95, "{trial:?}");
    assert!(!experiment.is_healthy());
    assert_eq!(experiment.confirmed().len(), 1);
}

/// Like `measured`, but every tenth request takes 300 ms in each cell: the tails do not differ.
fn measured_in_median(slow: f64, changed: f64) -> RunRecord {
    let mut run = measured(slow, changed);
    for one in &mut run.repetitions {
        for (n, sample) in one.samples.edit().iter_mut().enumerate() {
            if n % 10 == 0 {
                sample.completed_at = sample.scheduled_at + Duration::from_millis(300);
            }
        }
    }
    run
}

#[test]
fn changes_are_judged_by_the_quantity_in_which_the_difference_was_found() {
    let of = |run: &RunRecord, setup: &Setup| Experiment::of(run, setup).unwrap();
    let run = measured_in_median(2.0, 1.0);
    let experiment = of(&run, &setup());
    assert!(experiment.verdict.as_ref().unwrap().is_slower_in_median_only());
    assert_eq!(experiment.metric, Metric::Median);
    let trial = &experiment.trials[0];
    assert_eq!(trial.outcome, Outcome::Confirmed, "{trial:?}");
    assert!(trial.closes.unwrap()[0] > 0.9, "{trial:?}");
    let since = Since::of(&run, &measured_in_median(1.0, 1.0), &setup()).unwrap();
    assert_eq!(since.metric, Metric::Median);
    assert!(since.gap.as_ref().unwrap().closed.unwrap() > 0.9, "{since:?}");
    let tail = |experiment: Experiment| matches!(experiment.metric, Metric::Response(_));
    assert!(tail(of(&run, &Setup { twin: None, ..setup() })), "there is nothing that differs");
    assert!(tail(concluded(2.0, 1.0)), "the tail differs as well");
    assert!(tail(of(&measured_in_median(1.0, 1.0), &setup())), "nothing differs");
}

#[test]
fn what_a_change_closes_is_its_part_of_what_is_served() {
    let effect = |before: f64, after: f64, ratio: f64| Effect {
        ratio,
        low: ratio * 0.99,
        high: ratio * 1.01,
        before,
        after,
    };
    // 72 of 2,036 requests/s, and 283 with the change.
    let of_rates = |gap: Effect| closed(Metric::Served, gap, effect(72.0, 283.0, 3.9)).unwrap();
    let [part, low, high] = of_rates(effect(72.0, 2036.0, 28.3));
    assert!((part - 211.0 / 1964.0).abs() < 1e-9, "{part}");
    assert!((low - 0.1037).abs() < 1e-4 && (high - 0.1088).abs() < 1e-4, "{low} {high}");
    // A gap that may be nearly none: all of it may be closed.
    let [_, low, high] = of_rates(Effect { low: 1.01, ..effect(72.0, 2036.0, 28.3) });
    assert!(low < 0.11 && (high - 1.0).abs() < 1e-9, "{low} {high}");
    // The unchanged cell took 244 ms over all rounds, and 148 ms in those of the change.
    let of_times = |gap: Effect, effect: Effect| closed(Metric::Median, gap, effect);
    let [part, low, high] =
        of_times(effect(0.244, 0.066, 3.7), effect(0.148, 0.0666, 2.2)).expect("a difference");
    assert!((part - 81.4 / 82.0).abs() < 1e-9, "of what is printed beside it: {part}");
    assert!((low - 0.968).abs() < 1e-3 && high >= part && high <= 1.0, "{low} {high}");
    assert_eq!(of_times(effect(1.0, 1.0, 1.0), effect(1.0, 2.0, 0.5)), None);
    // In the rounds of the change the unchanged cell was quicker than the twin: 100 ms, and 110 ms.
    let gap = effect(0.244, 0.11, 2.2);
    assert_eq!(of_times(gap, effect(0.1, 0.12, 0.83)), Some([0.0; 3]), "what is worse closes nothing");
    assert_eq!(of_times(gap, effect(0.1, 0.08, 1.25)), None);
    // An estimate that is no better closes nothing, and its interval may: to 71 of 100 ms, where the twin takes 56.
    let open = |ratio: f64, high: f64| Effect { high, low: 0.7, ..effect(0.1, 0.1 / ratio, ratio) };
    let gap = Effect { low: 1.8, high: 2.2, ..effect(0.1, 0.05, 2.0) };
    let [part, low, high] = of_times(gap, open(0.99, 1.4)).expect("a difference");
    assert!((part, low) == (0.0, 0.0) && (high - 0.643).abs() < 1e-3, "{part} {low} {high}");
    assert_eq!(of_times(gap, open(0.99, 1.0)), Some([0.0; 3]));
}

#[test]
fn a_knob_without_effect_is_refuted_and_one_that_harms_is_worse() {
    assert_eq!(concluded(2.0, 2.0).trials[0].outcome, Outcome::Refuted);
    let worse = concluded(2.0, 3.0);
    assert_eq!(worse.trials[0].outcome, Outcome::Worse);
    assert_eq!(worse.trials[0].closes, Some([0.0; 3]));
    assert!(concluded(1.0, 1.0).is_healthy());
}

#[test]
fn what_is_gone_of_a_difference_is_its_part_of_the_milliseconds() {
    let [slow, between, quick] = [4.0, 2.0, 1.0].map(|slow| measured(slow, slow));
    let since = |before: &RunRecord, now: &RunRecord| Since::of(before, now, &setup()).unwrap();
    let closed = |before: &RunRecord, now: &RunRecord| since(before, now).gap.unwrap().closed;
    let is_near = |closed: Option<f64>, part: f64| closed.is_some_and(|it| (it - part).abs() < 0.1);
    assert!(is_near(closed(&slow, &quick), 1.0) && is_near(closed(&slow, &between), 2.0 / 3.0));
    assert!(is_near(closed(&between, &slow), -2.0), "it has grown");
    assert_eq!(closed(&quick, &slow), None, "there was none");
    let alone = Since::of(&slow, &quick, &Setup { twin: None, ..setup() }).unwrap();
    assert_eq!(alone.gap, None);
    assert!((alone.subject.ratio - 4.0).abs() < 0.2 && alone.subject.low > 3.0, "{:?}", alone.subject);
    assert_eq!(since(&slow, &quick).subject, alone.subject, "whatever there is beside it");
}

#[test]
fn a_single_round_claims_no_more_than_the_rounds_of_the_unchanged_cell_vary() {
    // The unchanged cell takes 1, 1.7 and 1.9 times as long in its rounds, and the change without effect takes 1.5
    // times as long, once.
    let mut run = measured(1.0, 1.5);
    run.repetitions.retain(|one| one.cell.index != 2 || one.cell.repetition == 2);
    for one in run.repetitions.iter_mut().filter(|one| one.cell.index == 1) {
        let factor = [1.0, 1.7, 1.9][one.cell.repetition as usize];
        for sample in one.samples.edit().iter_mut() {
            sample.completed_at = sample.scheduled_at + sample.response_time().mul_f64(factor);
        }
    }
    let trial = |run: &RunRecord| Experiment::of(run, &setup()).unwrap().trials[0].clone();
    assert_eq!(trial(&run).outcome, Outcome::Undecided, "{:?}", trial(&run).effect);
    // Without the other rounds this variation is unknown.
    run.repetitions.retain(|one| one.cell.repetition == 2);
    assert_eq!(trial(&run).outcome, Outcome::Undecided, "{:?}", trial(&run).effect);
}

/// Adds repetitions of a cell in the rounds that follow `from`, one for each factor.
fn add_rounds(run: &mut RunRecord, index: u32, from: u32, factors: &[f64]) {
    for (round, factor) in (from..).zip(factors) {
        let model = Model { factor: *factor, ..Model::CLEAN };
        run.repetitions.push(one_repetition(&cell(index, 0, Protocol::H2c, 1, 0.0), round, &model));
    }
}

#[test]
fn two_cells_that_happen_to_vary_little_claim_nothing_where_the_others_vary_much() {
    let others = [Knob::LongFrames, Knob::LargeWindows, Knob::NoPush, Knob::Huffman];
    let knobs = [Knob::Connections(4)].into_iter().chain(others);
    let setup = Setup { knobs: (2..).zip(knobs).collect(), ..setup() };
    let outcome = |factors: [f64; 3]| {
        let mut run = measured(1.0, 0.8);
        for index in 3..7 {
            add_rounds(&mut run, index, 0, &factors);
        }
        let trials = Experiment::of(&run, &setup).unwrap().trials;
        (trials.len(), trials[0].outcome.clone())
    };
    assert_eq!(outcome([1.0; 3]), (5, Outcome::Confirmed));
    assert_eq!(outcome([1.0, 1.5, 2.0]), (5, Outcome::Undecided));
}

#[test]
fn what_a_look_has_decided_stays_decided_whatever_later_rounds_show() {
    let knobs = vec![(2, Knob::Connections(4)), (3, Knob::LongFrames)];
    let setup = Setup { knobs: knobs.clone(), ..setup() };
    let mut run = measured(2.0, 1.0);
    let before = Experiment::of(&run, &setup).unwrap();
    assert_eq!((before.trials.len(), &before.trials[0].outcome), (1, &Outcome::Confirmed));
    for index in [1, 3] {
        add_rounds(&mut run, index, 3, &[2.0, 9.0, 2.0, 9.0]);
    }
    let after = Experiment::of(&run, &setup).unwrap();
    assert_eq!(after.trials[0].effect, before.trials[0].effect);
    assert_eq!(after.trials[0].outcome, Outcome::Confirmed);
    assert_eq!(after.open(&knobs, 4), knobs[1..], "the other one is undecided");
}

#[test]
fn changes_that_look_as_if_they_help_are_measured_before_the_others() {
    let knobs: Vec<(u32, Knob)> =
        vec![(2, Knob::Connections(4)), (3, Knob::LongFrames), (4, Knob::LargeWindows), (5, Knob::Huffman)];
    let next = |ratios: &[Option<f64>]| {
        let effect = |ratio: f64| Effect { ratio, low: 0.1, high: 10.0, before: 1.0, after: 1.0 / ratio };
        let trial = |((cell, knob), ratio): (&(u32, Knob), &Option<f64>)| Trial {
            knob: knob.clone(),
            cell: *cell,
            rounds: 1,
            effect: ratio.map(effect),
            outcome: Outcome::Undecided,
            closes: None,
        };
        let trials = knobs.iter().zip(ratios).map(trial).collect();
        let experiment = Experiment { trials, ..Experiment::unmeasured() };
        experiment.promising(knobs.clone()).into_iter().map(|(cell, _)| cell).collect::<Vec<_>>()
    };
    assert_eq!(next(&[Some(4.0), Some(2.1), Some(1.9), Some(0.5)]), [2, 3]);
    assert_eq!(next(&[Some(1.05), Some(1.0), Some(0.5), Some(1.0)]), [2, 3, 4, 5], "none of them does");
    assert_eq!(next(&[Some(4.0), None, Some(1.0), Some(1.0)]), [2, 3, 4, 5], "of one nothing is known");
    assert_eq!(next(&[]), [2, 3, 4, 5], "before the first round");
}

#[test]
fn without_a_twin_the_first_rounds_choose_the_metric() {
    let setup = Setup { twin: None, hops: Vec::new(), ..setup() };
    let metric = |rounds: u32| {
        let mut rare = cell(1, 0, Protocol::H2c, 1, 0.0);
        rare.work.arrival = Arrival::Constant { rate: 500.0 };
        let repetitions = (0..rounds).map(|round| one_repetition(&rare, round, &Model::CLEAN)).collect();
        let run = run(repetitions);
        let all = summary(&repetitions_of(&run, 1)).unwrap();
        (metric_of(&run, &setup).unwrap(), all.response.tail())
    };
    let first = Metric::Response(Tail::P95);
    assert_eq!(metric(2), (first, Tail::P95));
    assert_eq!(metric(4), (first, Tail::P99), "of all rounds there are requests enough for p99");
}

#[test]
fn only_rounds_that_both_have_are_compared() {
    let mut run = measured(2.0, 1.0);
    run.repetitions.retain(|one| one.cell.index != 2 || one.cell.repetition == 2);
    for one in run.repetitions.iter_mut().filter(|one| one.cell.index == 1 && one.cell.repetition < 2) {
        one.samples.edit().iter_mut().for_each(|sample| sample.completed_at += Duration::from_millis(60));
    }
    let experiment = Experiment::of(&run, &setup()).unwrap();
    let effect = experiment.trials[0].effect.unwrap();
    assert!((effect.ratio - 2.0).abs() < 0.1, "the slow rounds are not beside it: {effect:?}");
    run.repetitions.retain(|one| one.cell.index != 2);
    assert_eq!(Experiment::of(&run, &setup()).unwrap().trials, []);
    run.repetitions.retain(|one| one.cell.index == 0);
    assert_eq!(Experiment::of(&run, &setup()), None);
}

#[test]
fn a_change_with_which_the_load_is_carried_helps_however_little_was_missing() {
    let run = measured(2.0, 1.0);
    let [mut subject, changed] = [1, 2].map(|index| summary(&repetitions_of(&run, index)).unwrap());
    let effect = |low: f64| Some(Effect { ratio: 1.05, low, high: 1.06, before: 95.0, after: 100.0 });
    let of = |subject: &CellSummary, low| outcome([subject, &changed], Metric::Served, [effect(low); 2]);
    assert_eq!(of(&subject, 1.04), Outcome::Refuted, "it is carried without");
    let why = Instability::Served { share: 0.95, failed: 0.0 };
    subject.state = CellState::Unstable { offered_rps: 100.0, served_rps: 95.0, why };
    assert_eq!([1.04, 0.99].map(|low| of(&subject, low)), [Outcome::Confirmed, Outcome::Refuted]);
}

#[test]
fn a_change_is_void_if_more_requests_fail_with_it_than_by_chance() {
    let run = measured(2.0, 1.0);
    let [mut subject, mut changed] = [1, 2].map(|index| summary(&repetitions_of(&run, index)).unwrap());
    let effect = Some(Effect { ratio: 2.0, low: 1.5, high: 2.5, before: 2.0, after: 1.0 });
    let mut among = |[without, with]: [u64; 2], sent: u64| {
        (subject.requests.failed, changed.requests.failed) = (without, with);
        (subject.requests.sent, changed.requests.sent) = (sent, sent);
        outcome([&subject, &changed], Metric::Served, [effect; 2])
    };
    // 7 beside none are 0.8 % likely: that is too seldom, however many changes are tried and looks are made.
    assert_eq!(among([0, 7], 300), Outcome::Void("7 of 300 requests failed".to_owned()));
    let mut of = |failed: [u64; 2]| among(failed, 1_000);
    let void = |failed: u64| Outcome::Void(format!("{failed} of 1,000 requests failed"));
    assert_eq!(of([0, 21]), void(21));
    assert_eq!(of([0, 20]), Outcome::Confirmed, "two in a hundred may fail");
    // By Fisher's exact test 30 or more beside 20 are 10 % likely, and 38 are 1.1 %.
    assert_eq!(of([20, 30]), Outcome::Confirmed, "by chance");
    assert_eq!(of([20, 38]), void(38));
    assert_eq!(of([38, 38]), Outcome::Confirmed, "as many fail without it");
}

#[test]
fn the_part_of_an_interval_from_few_blocks_is_corrected_by_students_t() {
    let run = measured(2.0, 1.0);
    let [subject, changed] = [1, 2].map(|index| summary(&repetitions_of(&run, index)[..1]).unwrap());
    let half = |looks: Looks| {
        let of = effect_among(&subject, &changed, Metric::Response(Tail::P95), 1, looks).unwrap();
        (of.high / of.low).ln()
    };
    // A round has twelve blocks of 250 ms; the normal distribution would have the interval 1.68 times as wide.
    let by = half(Looks::at_known_variation(50)) / half(1.into());
    assert!((by - 4.437 / 2.201).abs() < 0.01, "{by}");
}

#[test]
fn what_was_not_measured_soundly_confirms_nothing() {
    for unsound in [1, 2] {
        let mut run = measured(2.0, 1.0);
        let cell = run.repetitions.iter_mut().find(|one| one.cell.index == unsound).unwrap();
        cell.link.as_mut().unwrap().device_drops = 9;
        let experiment = Experiment::of(&run, &setup()).unwrap();
        assert!(matches!(experiment.trials[0].outcome, Outcome::Void(_)), "cell {unsound}");
    }
}

#[test]
fn the_causes_that_a_knob_takes_away_are_in_the_catalogue() {
    let mut odd = cell(0, 0, Protocol::H2c, 1, 0.0);
    odd.max_requests_per_connection = Some(9);
    odd.dial = h2lab_model::workload::DialPolicy::Stampede;
    for knob in Knob::of(&odd) {
        for id in knob.causes() {
            assert!(crate::diagnose::cause(id).is_some(), "{id} of {knob:?}");
        }
    }
}
