//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Confidence, Finding, findings};
use crate::stats::{CellSummary, CellVerdict, Conclusion, verdict_on};
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("CONN109", record)
}

/// `requests` requests, of which `refused` are answered with this status.
fn scene(protocol: Protocol, requests: u32, refused: usize, status: u16) -> CellRecord {
    Scene::requests(protocol, requests).failing(refused, Outcome::Status, status, 0).record()
}

#[test]
fn requests_answered_with_421_are_found_with_what_a_client_must_do() {
    let found = finding(scene(Protocol::H2, 10, 2, 421)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server answered 421 Misdirected Request to 2 of 10 requests: on the connection that they came on it does \
         not serve their host"
    );
    assert_eq!((found.confidence, found.fixes.len()), (Confidence::Inferred, 2));
    assert!((found.cost_share - 0.2).abs() < 1e-9 && found.of_failures);
}

#[test]
fn one_answer_few_of_many_other_statuses_and_http1_are_none() {
    assert_eq!(finding(scene(Protocol::H2, 10, 1, 421)), None);
    assert!(finding(scene(Protocol::H2, 2_000, 2, 421)).is_some());
    assert_eq!(finding(scene(Protocol::H2, 2_001, 2, 421)), None);
    assert_eq!(finding(scene(Protocol::H2, 10, 10, 404)), None);
    assert_eq!(finding(scene(Protocol::H1s, 10, 10, 421)), None);
}

#[test]
fn a_host_that_no_connection_serves_shares_none() {
    assert!(finding(scene(Protocol::H2, 10, 9, 421)).is_some());
    assert_eq!(finding(scene(Protocol::H2, 10, 10, 421)), None);
    let mut failed = scene(Protocol::H2, 10, 9, 421);
    failed.samples.edit().iter_mut().for_each(|sample| {
        if sample.outcome == Outcome::Succeeded {
            (sample.outcome, sample.status) = (Outcome::Reset, 0);
        }
    });
    assert_eq!(finding(failed), None, "the tenth failed as well");
}

#[test]
fn a_host_that_is_not_served_over_http1_either_is_none() {
    let beside = |of_http1: usize| {
        let mut other = scene(Protocol::H1s, 100, of_http1, 421);
        other.cell.index = 1;
        let cell = scene(Protocol::H2, 100, 20, 421);
        let [first, second] = [&other, &cell].map(|record| CellSummary::of(&[record]));
        let verdict = CellVerdict { conclusion: Conclusion::Slower, ..verdict_on(&first, &second, 1) };
        findings(&[cell, other], &[verdict]).into_iter().any(|finding| finding.rule == "CONN109")
    };
    assert!(beside(0) && beside(9));
    assert!(!beside(10) && !beside(20), "half as many and more");
}
