use super::*;
use crate::testing::Fixture;
use h2lab_analysis::stats::Analysis;
use std::time::Duration;

/// The sentence about the fixture's lossy h2c × 16 after `change`.
fn concluded(change: impl Fn(&mut Analysis, &mut CellVerdict)) -> String {
    let mut fixture = Fixture::new();
    let mut verdict = fixture.analysis.verdicts[5].clone();
    change(&mut fixture.analysis, &mut verdict);
    super::verdict(&fixture.report(), &verdict)
}

fn tail(ratio: f64, low: f64, high: f64) -> RatioInterval {
    let baseline = Duration::from_millis(250);
    let candidate = baseline.mul_f64(ratio);
    let block = Duration::from_millis(750);
    let longest_stall = Duration::from_millis(300);
    RatioInterval { share: 0.99, baseline, candidate, ratio, low, high, block, longest_stall, blocks: 8 }
}

#[test]
fn a_difference_is_reported_with_numbers_and_how_sure_it_is() {
    let faster = concluded(|_, verdict| {
        verdict.conclusion = Conclusion::Faster;
        verdict.tail_ratio = Some(tail(0.3, 0.25, 0.36));
    });
    let expected = "At 3% loss: 16 HTTP/2 connections are faster than HTTP/1.1: \
                    p99 0.30 × (95 % interval 0.25–0.36; 75 ms against 250 ms).";
    assert_eq!(faster, expected);
}

#[test]
fn no_difference_resolved_is_a_verdict_and_names_a_median_that_differs() {
    let same = |verdict: &mut CellVerdict| {
        verdict.conclusion = Conclusion::NoDifference;
        verdict.tail_ratio = Some(tail(0.95, 0.82, 1.09));
    };
    let sentence = concluded(|_, verdict| same(verdict));
    let expected = "At 3% loss: 16 HTTP/2 connections: \
                    p99 0.95 × HTTP/1.1 (95 % interval 0.82–1.09; 238 ms against 250 ms), no difference resolved (the interval includes 1).";
    assert_eq!(sentence, expected);
    let sentence = concluded(|_, verdict| {
        same(verdict);
        verdict.tail_ratio.as_mut().unwrap().longest_stall = Duration::from_millis(1_100);
    });
    assert!(
        sentence.ends_with(
            "no difference resolved (requests stalled together for up to 1.10 s: that needs repetitions of 5 s, -z 5s)."
        ),
        "{sentence}"
    );
    let sentence = concluded(|_, verdict| {
        same(verdict);
        verdict.median_ratio = Some(tail(1.4, 1.3, 1.5));
        verdict.median_conclusion = Some(Conclusion::Slower);
    });
    assert!(
        sentence.contains("the usual request is slower: p50 1.40 × (95 % interval 1.30–1.50"),
        "{sentence}"
    );
}

#[test]
fn a_cell_that_cannot_carry_the_load_is_described_by_what_it_serves() {
    let load = (1000.0, 290.4);
    let (offered_rps, served_rps) = load;
    let unstable = concluded(|_, v| v.conclusion = Conclusion::Unstable { offered_rps, served_rps });
    assert!(unstable.ends_with("16 HTTP/2 connections serve 290 of 1,000 requests/s; HTTP/1.1 serves 999."));
    let baseline = concluded(|_, v| v.conclusion = Conclusion::BaselineUnstable { offered_rps, served_rps });
    assert!(baseline.ends_with("connections carry the load, HTTP/1.1 serves only 290 of 1,000 requests/s."));
    let both = concluded(|_, v| v.conclusion = Conclusion::BothUnstable);
    assert!(both.ends_with(
        "neither carries the load of 1,000 requests/s: HTTP/1.1 serves 999/s, 16 HTTP/2 connections 995/s."
    ));
}

#[test]
fn what_is_served_of_a_load_that_is_not_carried_has_an_interval_from_its_rounds() {
    let said = |low: f64, high: f64| {
        concluded(|_, verdict| {
            verdict.conclusion = Conclusion::Unstable { offered_rps: 1000.0, served_rps: 290.4 };
            let (ratio, cell_rps, baseline_rps) = (0.29, 290.4, 999.0);
            let of = h2lab_analysis::stats::RateRatio { ratio, low, high, cell_rps, baseline_rps };
            verdict.throughput = Some(of);
        })
    };
    let end = |clause: &str| format!("requests/s; HTTP/1.1 serves 999; {clause}.");
    let clear = said(0.25, 0.33);
    assert!(clear.ends_with(&end("served 0.29 × (95 % interval 0.25–0.33)")), "{clear}");
    let open = said(0.12, 1.01);
    let words = "served 0.29 × (95 % interval 0.12–1.01, no difference resolved)";
    assert!(open.ends_with(&end(words)), "{open}");
    let unknown = said(0.29e-6, 0.29e6);
    assert!(unknown.ends_with(&end("too few rounds to say how far what is served varies")), "{unknown}");
}

#[test]
fn what_fails_over_both_is_no_load_that_is_too_much() {
    let why = Instability::Served { share: 0.9, failed: 0.1 };
    let both = concluded(|analysis, verdict| {
        verdict.conclusion = Conclusion::BothUnstable;
        for summary in &mut analysis.cells {
            summary.state = CellState::Unstable { offered_rps: 1000.0, served_rps: 900.0, why };
        }
    });
    assert!(
        both.starts_with("At 3% loss: requests fail over both at ") && !both.contains("carries"),
        "{both}"
    );
}

#[test]
fn a_cause_is_named_only_where_a_finding_has_one() {
    let fixture = Fixture::new();
    let (with, without) = (&fixture.analysis.verdicts[3], &fixture.analysis.verdicts[4]);
    let sentence = super::verdict(&fixture.report(), with);
    assert!(
        sentence.ends_with(
            "(LOSS101: every drop stalls all streams of the connection, 31 at a time on average)."
        )
    );
    assert!(!super::verdict(&fixture.report(), without).contains("LOSS101"));
}

#[test]
fn without_a_sound_measurement_there_is_a_reason_and_no_verdict() {
    let sentence = concluded(|analysis, verdict| {
        verdict.conclusion = Conclusion::Invalid;
        analysis.cells[4].state = CellState::Invalid { reasons: vec!["the link was late".to_owned()] };
    });
    assert!(sentence.ends_with("no verdict on 16 HTTP/2 connections: h1: the link was late."), "{sentence}");
}

#[test]
fn a_sentence_names_the_streams_and_the_target_where_cells_differ_in_them() {
    let mut fixture = Fixture::new();
    let cell = &mut fixture.analysis.cells[7];
    assert_eq!(name(cell), "16 HTTP/2 connections");
    cell.naming = [Difference::Streams, Difference::Target].into_iter().collect();
    cell.cell.streams = 10;
    assert_eq!(name(cell), "16 HTTP/2 connections of up to 10 streams at origin");
    let h1 = &mut fixture.analysis.cells[4];
    h1.naming = [Difference::Streams].into_iter().collect();
    assert_eq!(name(h1), "HTTP/1.1");
}

#[test]
fn a_violation_says_in_which_group_it_was_measured() {
    let fixture = Fixture::new();
    let threshold: h2lab_analysis::stats::Threshold = "h2cx16.p50 > 1ms".parse().unwrap();
    let violations = threshold.check(&fixture.analysis).unwrap();
    let rendered: Vec<String> = violations.iter().map(|v| judged(&fixture.report(), v)).collect();
    assert!(
        rendered[0].starts_with("h2cx16.p50 > 1ms without loss: h2c × 16 has p50 25."),
        "{}",
        rendered[0]
    );
    assert!(rendered[1].starts_with("h2cx16.p50 > 1ms at 3% loss: h2c × 16 has p50 "), "{}", rendered[1]);
    assert_eq!(rendered.len(), 2);
}

#[test]
fn a_finding_says_in_which_group_its_cell_is() {
    let mut fixture = Fixture::new();
    let title = |fixture: &Fixture| finding_title(&fixture.report(), &fixture.findings[0]);
    let expected = "LOSS101 tcp-head-of-line-blocking in h2c × 1 at 3% loss (observed)";
    assert_eq!(title(&fixture), expected);
    fixture.analysis.cells.retain(|summary| summary.cell.group == 1);
    assert_eq!(title(&fixture), expected.replace(" at 3% loss", ""));
}

use h2lab_model::scenario::Sidecar;

/// A run whose second group is another target's, under the conditions of the first, with a rule that fires only there.
fn two_targets(rule: &str) -> Fixture {
    let mut fixture = Fixture::new();
    let (first, second): (Vec<_>, Vec<_>) =
        fixture.analysis.cells.iter_mut().partition(|summary| summary.cell.group == 0);
    for (there, here) in second.into_iter().zip(first) {
        let (index, target) = (there.cell.index, Target::Sut { name: "nginx-proxy".to_owned() });
        there.cell = Cell { index, group: 1, target, ..here.cell.clone() };
        here.state = CellState::Ok;
        there.state = CellState::Ok;
    }
    fixture.findings.truncate(1);
    rule.clone_into(&mut fixture.findings[0].rule);
    fixture
}

#[test]
fn the_guilty_hop_is_named_where_a_rule_speaks_of_one_target_and_not_of_another() {
    assert_eq!(hops(&Fixture::new().report()), Vec::<String>::new(), "there is only one");
    let mut fixture = two_targets("CONN101");
    let expected = "CONN101 is found at nginx-proxy in 1 of 4 cells, at origin in none of 4: the cause lies at \
                    nginx-proxy.";
    assert_eq!(hops(&fixture.report()), [expected]);
    let cell = fixture.analysis.cells.iter_mut().find(|summary| summary.cell.group == 1).unwrap();
    cell.cell.max_requests_per_connection = Some(1_000);
    assert_eq!(hops(&fixture.report()), [expected], "its limit is what may be the cause");
    let elsewhere = Finding { cell: 0, ..fixture.findings[0].clone() };
    fixture.findings.push(elsewhere);
    assert_eq!(hops(&fixture.report()), Vec::<String>::new(), "it speaks of both");
}

#[test]
fn no_hop_is_guilty_where_another_could_not_show_the_cause_or_the_link_is_the_cause() {
    let none = Vec::<String>::new();
    assert_eq!(hops(&two_targets("LOSS101").report()), none, "the link loses the packets");
    let spoilt = |spoil: fn(&mut CellSummary)| {
        let mut fixture = two_targets("CONN101");
        spoil(&mut fixture.analysis.cells[0]);
        hops(&fixture.report())
    };
    assert_eq!(
        spoilt(|origin| {
            let name = "haproxy".to_owned();
            origin.cell.sidecar = Some(Sidecar { name, warm_pool: 1, max_connections: 1 });
        }),
        none
    );
    assert_eq!(spoilt(|origin| origin.cell.streams += 1), none, "another client");
    let invalid = |origin: &mut CellSummary| {
        origin.state = CellState::Invalid { reasons: vec!["late".to_owned()] };
    };
    assert_eq!(spoilt(invalid), none);
}

#[test]
fn the_throughputs_of_closed_loops_are_compared() {
    let sentence = concluded(|_, verdict| {
        verdict.conclusion = Conclusion::Slower;
        verdict.tail_ratio = Some(tail(2.0, 1.5, 2.5));
        verdict.throughput = Some(h2lab_analysis::stats::RateRatio {
            baseline_rps: 10_000.0,
            cell_rps: 7_100.0,
            ratio: 0.71,
            low: 0.66,
            high: 0.76,
        });
    });
    let expected = "; served 0.71 × (95 % interval 0.66–0.76; 7,100 against 10,000 requests/s).";
    assert!(sentence.ends_with(expected), "{sentence}");
}

#[test]
fn a_clause_begins_small_unless_with_a_name() {
    assert_eq!(lower_first("Every drop"), "every drop");
    assert_eq!(lower_first("HTTP/2 stalls"), "HTTP/2 stalls");
}

#[test]
fn what_findings_leave_is_told_of_each_cell_whose_difference_they_divide() {
    let mut fixture = Fixture::new();
    let first = fixture.findings[0].clone();
    let of = |cell, explains| Finding { cell, explains, ..first.clone() };
    fixture.findings =
        vec![of(5, Some(0.5)), of(4, Some(0.0)), of(3, None), of(2, Some(0.99)), of(5, Some(0.25))];
    assert_eq!(unexplained(&fixture.report()), [(5, 0.25)]);
    fixture.findings[3].explains = Some(0.75);
    assert_eq!(unexplained(&fixture.report()), [(5, 0.25), (2, 0.25)]);
}

#[test]
fn that_a_few_requests_have_no_tail_is_told_of_a_cell_that_is_alone_too() {
    use h2lab_analysis::stats::Latency;
    let of = |n: u64| {
        let mut fixture = Fixture::new();
        fixture.analysis.cells.truncate(1);
        fixture.analysis.cells[0].response = Latency::new((1..=n).map(Duration::from_millis));
        missing_tails(&fixture.report())
    };
    assert_eq!(of(FEW - 1).as_deref(), Some("A p95 or p99 is printed only of 20 or more requests."));
    assert_eq!([of(0), of(FEW)], [None, None]);
}
