//! What the answer of each kind of run is.

use super::super::style::AnswerPlace;
use super::super::testing::Fixture;
use super::*;
use h2lab_analysis::stats::{ErrorCount, RatioInterval, Setting};
use h2lab_model::record::Fault;

#[test]
fn a_comparison_that_was_interrupted_before_its_second_cell_says_that_nothing_was_compared() {
    let mut fixture = Fixture::new();
    fixture.run.repetitions.truncate(1);
    fixture.run.interrupted = true;
    fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
    let first = |fixture: &Fixture| of(&fixture.report()).swap_remove(0);
    let expected = "Nothing was compared: the run was interrupted when only HTTP/1.1 had been measured.";
    assert_eq!(first(&fixture), expected);
    fixture.run.command[1] = "load".to_owned();
    assert!(!first(&fixture).contains("compared"), "a load compares nothing");
    fixture.run.command[1] = "compare".to_owned();
    fixture.run.interrupted = false;
    assert!(!first(&fixture).contains("compared"));
}

/// The p99 of 16 connections at 3 % loss, of which nothing stalls too long.
fn with_ratio(fixture: &mut Fixture, conclusion: Conclusion, ratio: f64) {
    let verdict = fixture.analysis.verdicts.last_mut().expect("it has some");
    verdict.conclusion = conclusion;
    verdict.tail = h2lab_analysis::stats::Tail::P99;
    verdict.tail_ratio = Some(RatioInterval {
        share: 0.99,
        baseline: Duration::from_millis(250),
        candidate: Duration::from_millis(250).mul_f64(ratio),
        ratio,
        low: ratio * 0.8,
        high: ratio * 1.2,
        block: Duration::from_millis(250),
        longest_stall: Duration::ZERO,
        blocks: 24,
    });
}

#[test]
fn it_names_what_loses_most_what_wins_most_the_cause_and_the_change() {
    let mut fixture = Fixture::new();
    with_ratio(&mut fixture, Conclusion::Faster, 0.44);
    assert_eq!(
        of(&fixture.report()),
        [
            "Overloaded at 3% loss: one HTTP/2 connection serves 290 of 1,000 requests/s, HTTP/1.1 all of them.",
            "Faster at 3% loss: 16 HTTP/2 connections have 0.44 × the p99 of HTTP/1.1 (110 ms against 250 ms; 95 % \
             interval 0.35–0.53).",
            "Cause (LOSS101): every drop stalls all streams of the connection, 31 at a time on average. Change: \
             connections = 16 (client).",
        ]
    );
}

#[test]
fn the_largest_difference_that_a_setting_of_conditions_makes_is_part_of_the_answer() {
    let mut fixture = Fixture::new();
    let last = fixture.analysis.verdicts.pop().expect("it has some");
    fixture.analysis.verdicts = vec![last];
    with_ratio(&mut fixture, Conclusion::Slower, 3.0);
    let mut pair = fixture.analysis.pairs[0].clone();
    pair.verdict = fixture.analysis.verdicts[0].clone();
    // The cell of the finding, which no verdict blames.
    (pair.verdict.cell, pair.verdict.median_conclusion) = (fixture.findings[0].cell, None);
    with_ratio(&mut fixture, Conclusion::Faster, 0.44);
    fixture.analysis.pairs.clear();
    let before = of(&fixture.report());
    let mut with = |conclusion: Conclusion, setting: Setting| {
        (pair.verdict.conclusion, pair.setting) = (conclusion, setting);
        fixture.analysis.pairs = vec![pair.clone()];
        let answer = of(&fixture.report());
        assert_eq!(answer[0], before[0]);
        (answer[1..].to_vec(), sentences::pair(&fixture.report(), &pair))
    };
    let (answer, words) = with(Conclusion::Slower, Setting::ClientEngine);
    assert!(words.contains("3.00 ×") && answer[0] == words, "{answer:?}");
    assert!(answer[1].starts_with("Cause (LOSS101): "), "{answer:?}");
    assert_eq!(with(Conclusion::NoDifference, Setting::ClientEngine).0, before[1..]);
    assert_eq!(with(Conclusion::Slower, Setting::Connections).0, before[1..], "verdicts have these");
}

#[test]
fn what_clients_did_at_several_places_is_not_compared() {
    let mut fixture = Fixture::new();
    fixture.findings.clear();
    fixture.analysis.verdicts.clear();
    fixture.analysis.pairs.clear();
    let told = |fixture: &Fixture| of(&fixture.report()).join(" ");
    assert!(told(&fixture).contains("From p"), "{}", told(&fixture));
    fixture.run.repetitions.iter_mut().for_each(|one| one.generator.wall_ns = 0);
    let of_packets = told(&fixture);
    assert!(!of_packets.contains("From p") && of_packets.contains("); p9"), "{of_packets}");
    assert!(of_packets.contains(" with fewer requests."), "{of_packets}");
    assert!(!of_packets.contains("measured time"), "how long each was seen is no condition: {of_packets}");
}

#[test]
fn fewer_than_twenty_requests_have_no_percentile() {
    let mut summary = Fixture::new().analysis.cells[0].clone();
    let mut said = |n: u64| {
        let of = |most: u64, last: u64| {
            Latency::new((1..=n).map(|k| Duration::from_millis(if k == n { last } else { most })))
        };
        (summary.response, summary.service, summary.ttfb) = (of(30, 90), of(10, 10), of(10, 10));
        phase(&summary).unwrap_or_default()
    };
    assert!(said(19).starts_with("The max is 90 ms; from sending"), "{}", said(19));
    assert!(said(20).starts_with("The p95 is "), "{}", said(20));
}

#[test]
fn the_cause_that_costs_most_of_all_places_is_named_with_its_place() {
    let mut fixture = Fixture::new();
    fixture.analysis.verdicts.clear();
    fixture.analysis.pairs.clear();
    fixture.run.repetitions.iter_mut().for_each(|one| one.generator.wall_ns = 0);
    let finding = fixture.findings[0].clone();
    for (summary, ms) in fixture.analysis.cells.iter_mut().zip([10, 20, 500, 30, 30, 30]) {
        summary.state = CellState::Ok;
        summary.response = Latency::new((0..100).map(|_| Duration::from_millis(ms)));
    }
    let cells: Vec<u32> = fixture.analysis.cells.iter().map(|summary| summary.cell.index).collect();
    let of_cell = |cell: u32, rule: &str| Finding { cell, rule: rule.to_owned(), ..finding.clone() };
    // The slowest place has none.
    fixture.findings = vec![of_cell(cells[0], "CONN101"), of_cell(cells[1], "CONN105")];
    let told = of(&fixture.report()).join(" ");
    let dearest = &fixture.analysis.cells[1];
    let place = format!("{}{}", name(dearest), at(&fixture.report(), dearest.cell.group));
    assert!(told.contains(&format!(" Cause (CONN105) for {place}: every drop")), "{told}");
    assert!(!told.contains("CONN101"), "{told}");
    fixture.findings[1].explains = Some(0.0);
    let told = of(&fixture.report()).join(" ");
    assert!(told.contains(" Cause (CONN101) for ") && !told.contains("CONN105"), "{told}");
    fixture.findings.iter_mut().for_each(|finding| finding.cost_share = LEAST_COST / 2.0);
    let told = of(&fixture.report()).join(" ");
    assert!(!told.contains("Cause ("), "{told}");
}

#[test]
fn how_the_requests_of_clients_failed_is_told_of_each_place() {
    let mut fixture = Fixture::new();
    fixture.findings.clear();
    fixture.analysis.verdicts.clear();
    fixture.analysis.pairs.clear();
    fixture.run.repetitions.iter_mut().for_each(|one| one.generator.wall_ns = 0);
    for summary in &mut fixture.analysis.cells {
        (summary.state, summary.requests.failed, summary.errors) = (CellState::Ok, 0, Vec::new());
    }
    let told = |fixture: &Fixture| of(&fixture.report()).join(" ");
    let before = told(&fixture);
    assert!(!before.contains("failed"), "{before}");
    let mut fail = |cell: usize, kind: Outcome, code: u32, failed: u64| {
        let summary = &mut fixture.analysis.cells[cell];
        (summary.requests.sent, summary.requests.failed) = (1_000, failed);
        summary.errors = vec![ErrorCount { kind, code, fault: Fault::Sut, count: failed }];
        told(&fixture)
    };
    let one = fail(0, Outcome::Closed, 0, 5);
    assert!(one.contains(": 0.5 % of 1,000 requests failed (the connection was closed)."), "{one}");
    let both = fail(1, Outcome::Reset, 2, 200);
    let [reset, closed] =
        ["20.0 % of 1,000 requests failed (the stream was reset with INTERNAL_ERROR); ", "0.5 % of 1,000"]
            .map(|words| both.find(words).unwrap_or_else(|| panic!("{words}: {both}")));
    assert!(reset < closed, "{both}");
    fail(2, Outcome::Reset, 2, 2);
    let four = fail(3, Outcome::Reset, 2, 1);
    assert!(four.contains("; so did some in 1 other cell."), "{four}");
}

#[test]
fn an_invalid_or_failed_cell_is_mentioned_and_never_the_answer() {
    let mut fixture = Fixture::new();
    fixture.findings.clear();
    fixture.analysis.cells[5].state = CellState::Invalid { reasons: vec!["the link was late".to_owned()] };
    for verdict in &mut fixture.analysis.verdicts {
        let is_its = verdict.cell == 5;
        verdict.conclusion = if is_its { Conclusion::Invalid } else { Conclusion::NoDifference };
    }
    with_ratio(&mut fixture, Conclusion::Slower, 2.0);
    let answer = of(&fixture.report());
    assert!(
        answer[0].starts_with("Slower at 3% loss: 16 HTTP/2 connections have 2.00 × the p99"),
        "{answer:?}"
    );
    assert_eq!(answer[1], "1 of 6 comparisons has no verdict: h2c × 1 at 3% loss: the link was late.");
    fixture.analysis.verdicts.retain(|verdict| verdict.cell == 5);
    assert_eq!(of(&fixture.report()), ["No result: h2c × 1 at 3% loss: the link was late."]);
}

#[test]
fn without_a_difference_it_says_whether_there_is_none_or_none_was_resolved() {
    let mut fixture = Fixture::new();
    fixture.findings.clear();
    let pattern = fixture.analysis.verdicts[0].clone();
    let mut answered = |conclusions: &[(f64, f64)]| {
        let verdict = |&(low, high): &(f64, f64)| {
            let mut verdict = pattern.clone();
            verdict.conclusion = Conclusion::NoDifference;
            let tail = verdict.tail_ratio.as_mut().expect("it has one");
            (tail.low, tail.high, tail.longest_stall) = (low, high, Duration::ZERO);
            verdict
        };
        fixture.analysis.verdicts = conclusions.iter().map(verdict).collect();
        of(&fixture.report()).join(" ")
    };
    let (same, open) = ((0.97, 1.03), (0.5, 2.0));
    assert!(answered(&[same]).starts_with("No difference: Without loss: one HTTP/2 connection: p9"));
    assert!(answered(&[open]).starts_with("Undecided: Without loss: "));
    assert_eq!(answered(&[same, same]), "No difference of 10 % or more in 2 of 2 comparisons.");
    assert!(answered(&[open, open]).starts_with("Undecided: none of 2 comparisons resolved a difference."));
    let both = answered(&[same, open]);
    assert!(
        both.starts_with("No difference was found: of 2 comparisons 1 shows less than 10 %, 1 is undecided."),
        "{both}"
    );
    let most = answered(&[same, open, open]);
    assert!(
        most.starts_with("Undecided: of 3 comparisons 1 shows less than 10 %, 2 are undecided."),
        "{most}"
    );
    let few = answered(&[same, same, open]);
    assert!(
        few.starts_with("No difference was found: of 3 comparisons 2 show less than 10 %, 1 is undecided."),
        "{few}"
    );
}

#[test]
fn a_cell_that_gets_slower_and_slower_is_not_said_to_serve_its_load() {
    let mut fixture = Fixture::new();
    let (offered_rps, served_rps) = (1000.0, 999.0);
    let (first, second) = (Duration::from_millis(30), Duration::from_millis(300));
    let why = Instability::Growing { first, second };
    fixture.analysis.cells[5].state = CellState::Unstable { offered_rps, served_rps, why };
    fixture.analysis.verdicts.retain(|verdict| verdict.cell == 5);
    fixture.analysis.verdicts[0].conclusion = Conclusion::Unstable { offered_rps, served_rps };
    let expected = "Overloaded at 3% loss: with one HTTP/2 connection the mean response time grew from 30 ms to \
         300 ms during the measured time; HTTP/1.1 carried the 1,000 requests/s.";
    assert_eq!(of(&fixture.report())[0], expected);
    let sentence = sentences::verdict(&fixture.report(), &fixture.analysis.verdicts[0]);
    assert!(sentence.contains("grew from 30 ms to 300 ms") && !sentence.contains("999"), "{sentence}");
}

#[test]
fn the_better_side_is_the_one_that_carries_the_load() {
    let mut fixture = Fixture::new();
    let (offered_rps, served_rps) = (20.0, 12.0);
    let why = Instability::Served { share: 0.6, failed: 0.0 };
    let verdict = fixture.analysis.verdicts.pop().expect("it has some");
    for summary in &mut fixture.analysis.cells {
        if summary.cell.index == verdict.baseline {
            summary.state = CellState::Unstable { offered_rps, served_rps, why };
            summary.served_rps = served_rps;
        }
    }
    let conclusion = Conclusion::BaselineUnstable { offered_rps, served_rps };
    fixture.analysis.verdicts = vec![CellVerdict { conclusion, ..verdict }];
    let answer = of(&fixture.report());
    let expected =
        "Better at 3% loss: 16 HTTP/2 connections serve all of 1,000 requests/s, HTTP/1.1 12 of them.";
    assert_eq!(answer[0], expected);
}

#[test]
fn two_ways_that_both_answer_without_a_success_are_both_named() {
    let mut fixture = Fixture::new();
    fixture.findings.clear();
    let verdict = fixture.analysis.verdicts.pop().expect("it has some");
    let mut answered = |of_baseline: u16, of_cell: u16| {
        for summary in &mut fixture.analysis.cells {
            let status = if summary.cell.index == verdict.baseline { of_baseline } else { of_cell };
            summary.statuses = [(status, 100)].into();
            let how = h2lab_analysis::stats::Failed::NoSuccess;
            summary.state = CellState::Failed { why: format!("100 × {status}"), how };
        }
        fixture.analysis.verdicts = vec![CellVerdict { conclusion: Conclusion::Failed, ..verdict.clone() }];
        of(&fixture.report()).join(" ")
    };
    assert_eq!(answered(503, 503), "No result: both ways answered only 503 at 3% loss.");
    assert_eq!(answered(503, 404), "No result: h1 answered only 503, h2c × 16 only 404 at 3% loss.");
}

#[test]
fn a_client_with_too_few_connections_is_named_and_not_the_server() {
    let mut fixture = Fixture::new();
    fixture.run.command[1] = "load".to_owned();
    fixture.analysis.verdicts.clear();
    fixture.analysis.cells.truncate(1);
    fixture.analysis.pairs.clear();
    let summary = &mut fixture.analysis.cells[0];
    let (offered_rps, served_rps) = (3000.0, 1429.0);
    let why = Instability::Served { share: 0.48, failed: 0.0 };
    summary.state = CellState::Unstable { offered_rps, served_rps, why };
    let (waited, service) = (Duration::from_millis(1_075), Duration::from_millis(10));
    summary.pool = Some(h2lab_analysis::stats::PoolLimit { connections: 16, waited, service });
    let answer = of(&fixture.report());
    assert!(answer[0].starts_with("Too few connections: serves 1,429 of "), "{answer:?}");
    let expected = "All 16 HTTP/1.1 connections were in use, and requests waited 1,075 ms on average for one; on it they took \
         10 ms. Raise -c.";
    assert_eq!(answer[1], expected);
    assert!(!answer.join(" ").contains("Overloaded"), "{answer:?}");
    fixture.run.command[1] = "compare".to_owned();
    assert!(of(&fixture.report())[1].ends_with("Raise --max-connections."));
}

#[test]
fn bulk_work_is_answered_by_rates_and_what_held_them_back() {
    let fixture = Fixture::bulk();
    let answer = of(&fixture.report());
    assert!(
        answer[0].starts_with("Slowest: one HTTP/2 connection (") && answer[0].contains("100 Mbit/s"),
        "{answer:?}"
    );
    assert!(answer[0].contains("0.25 × the rate of TCP alone"), "{answer:?}");
    assert!(
        answer[1].starts_with("Fastest: TCP without HTTP (") && answer[1].contains("800 Mbit/s"),
        "{answer:?}"
    );
}

#[test]
fn every_form_has_the_same_answer() {
    let fixture = Fixture::new();
    let report = fixture.report();
    let sentences = of(&report);
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (text, markdown) = (flat(&crate::text(&[report], TextStyle::default())), crate::markdown(&[report]));
    assert!(text.starts_with(&format!("Answer: {}", sentences[0])), "{text}");
    assert!(markdown.contains("**Overloaded at 3% loss: "), "{markdown}");
    assert_eq!(crate::document(&report).answer, sentences.join(" "));
    let last = crate::text(&[report], TextStyle { answer: AnswerPlace::Last, ..TextStyle::default() });
    assert!(flat(&last).ends_with(&format!("Answer: {}", sentences.join(" "))), "{last}");
    let html = crate::html(&[report]);
    assert!(
        html.contains("Overloaded at 3% loss: one HTTP&#x2f;2 connection serves 290 of 1,000"),
        "the title"
    );
}

#[test]
fn a_long_tail_says_in_which_phase_of_a_request_it_passes() {
    let mut summary = Fixture::new().analysis.cells[0].clone();
    // Of a hundred requests ten take long; the tail of so few is the p95.
    let mut said = |response: u64, service: u64, first_byte: u64| {
        let of = |long| Latency::new((0..100).map(|n| Duration::from_millis(if n < 90 { 1 } else { long })));
        (summary.response, summary.service, summary.ttfb) = (of(response), of(service), of(first_byte));
        phase(&summary).unwrap_or_default()
    };
    assert!(said(500, 150, 149).contains("The p95 is 500 ms; from sending the request on 150 ms; before"));
    assert!(said(151, 151, 150).contains("151 ms; the first byte of the response came after 150 ms:"));
    assert!(said(151, 151, 3).contains("the response came after 3 ms; the rest is the transfer"));
    assert_eq!((said(151, 151, 90).as_str(), said(19, 19, 19).as_str()), ("", ""));
}

#[test]
fn what_costs_next_to_nothing_is_no_cause_unless_requests_failed() {
    let mut fixture = Fixture::new();
    let cell = fixture.findings[0].cell;
    assert!(cause(&fixture.report(), cell).is_some());
    fixture.findings.iter_mut().for_each(|finding| finding.cost_share = 0.049);
    assert_eq!(cause(&fixture.report(), cell), None);
    let closed = ErrorCount { kind: Outcome::Closed, code: 0, fault: Fault::Sut, count: 1 };
    let failing = fixture.analysis.cells.iter_mut().find(|summary| summary.cell.index == cell);
    failing.expect("the finding's cell").errors = vec![closed];
    assert_eq!(cause(&fixture.report(), cell), None, "it is not about failures");
    fixture.findings.iter_mut().for_each(|finding| finding.of_failures = true);
    for (kind, is_of_connections) in [
        // A finding about failures names their cause, however little time they take.
        (Outcome::Closed, true),
        (Outcome::Reset, true),
        (Outcome::Status, false),
        (Outcome::Connect, false),
        (Outcome::Timeout, false),
    ] {
        let summary = fixture.analysis.cells.iter_mut().find(|summary| summary.cell.index == cell);
        let error = ErrorCount { kind, code: 0, fault: Fault::Sut, count: 1 };
        summary.expect("the finding's cell").errors = vec![error];
        assert_eq!(cause(&fixture.report(), cell).is_some(), is_of_connections, "{kind}");
    }
}

#[test]
fn what_fails_is_no_overload() {
    let why = |share: f64, failed: f64| Instability::Served { share, failed }.is_of_failures();
    assert!(why(0.5, 0.5) && why(0.5, 0.25));
    assert!(!why(0.5, 0.2) && !why(0.9, 0.0));
}

/// A run with one cell and without a finding.
fn alone() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.analysis.verdicts.clear();
    fixture.analysis.cells.truncate(1);
    fixture.analysis.pairs.clear();
    fixture.findings.clear();
    fixture
}

#[test]
fn of_a_server_that_stopped_answering_it_says_what_was_served_until_then() {
    let mut fixture = alone();
    let cell = &mut fixture.analysis.cells[0];
    let why = "nothing arrived from 2 s until the end".to_owned();
    cell.state = CellState::Failed { why, how: Failed::ServerEnded };
    cell.series.truncate(1);
    cell.series[0].served = vec![(Duration::ZERO, 30_000), (Duration::from_secs(1), 44_000)];
    assert_eq!(
        of(&fixture.report()),
        [
            "The server stopped answering: nothing arrived from 2 s until the end. Until then 74,000 requests were \
          answered, 37,000/s."
        ]
    );
    fixture.analysis.cells[0].series.clear();
    assert!(of(&fixture.report())[0].ends_with("until the end."));
}

#[test]
fn of_what_was_stopped_it_says_after_how_long_unless_nothing_was_measured() {
    let mut fixture = alone();
    fixture.run.interrupted = true;
    fixture.run.scenario.work.measure = h2lab_model::scenario::Axis::one(Duration::from_secs(8));
    let mut said = |measured: u64| {
        let cell = &mut fixture.analysis.cells[0];
        (cell.repetitions, cell.measured) = (1, Duration::from_millis(measured));
        stopped(&fixture.report(), &fixture.analysis.cells[0])
    };
    assert_eq!(said(1_800).as_deref(), Some("Stopped after 1.8 of 8 s."));
    assert_eq!((said(0), said(8_000)), (None, None));
}

#[test]
fn a_pause_of_the_server_is_named_and_not_what_it_looks_like() {
    let mut fixture = alone();
    let cell = &mut fixture.analysis.cells[0];
    let [from, until] = [1_200, 2_200].map(Duration::from_millis);
    cell.silence = Some(h2lab_analysis::stats::Silence {
        from,
        until,
        repetition: None,
        times: 1,
        total: until.saturating_sub(from),
    });
    assert_eq!(of(&fixture.report())[1], "Nothing arrived from the server from 1.20 s to 2.20 s.");
}

#[test]
fn an_observation_is_the_cause_only_where_nothing_else_costs_enough() {
    let mut fixture = Fixture::new();
    let cell = fixture.findings[0].cell;
    let mut observed = fixture.findings[0].clone();
    (observed.rule, observed.cost_share, observed.explains) = ("HOST106".to_owned(), 0.9, Some(0.0));
    fixture.findings = vec![fixture.findings[0].clone(), observed];
    let mut rule = |cost_share: f64| {
        fixture.findings[0].cost_share = cost_share;
        dearest(&fixture.report(), cell).map(|finding| finding.rule.clone())
    };
    assert_eq!(rule(LEAST_COST).as_deref(), Some("LOSS101"));
    assert_eq!(rule(LEAST_COST - 0.001).as_deref(), Some("HOST106"));
}
