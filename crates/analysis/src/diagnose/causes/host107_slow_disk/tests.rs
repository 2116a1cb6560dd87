//! Both sides of every threshold.

use crate::diagnose::testing::{Scene, found, says};
use crate::diagnose::{Confidence, Finding, findings, run};
use crate::stats::{CellSummary, CellVerdict, Conclusion, verdict_on};
use h2lab_model::record::{CellRecord, ServerSummary};
use h2lab_model::workload::Protocol;

/// Two responses that take `late` ms beyond the round trip of 25 ms, of a server that waited for its disk for `disk_ms` of 1,000 ms.
fn scene(late: u64, disk_ms: u64) -> CellRecord {
    let end = 125 + late;
    let scene = Scene::new(Protocol::H2c).request(0, 1, 100, end, end);
    let mut record = scene.request(0, 3, 100, end, end).record();
    record.server = Some(ServerSummary {
        name: "nginx".to_owned(),
        wall_ns: 1_000_000_000,
        disk_wait_ns: disk_ms * 1_000_000,
        ..ServerSummary::default()
    });
    record
}

fn finding(late: u64, disk_ms: u64) -> Option<Finding> {
    found("HOST107", scene(late, disk_ms))
}

#[test]
fn a_server_that_waits_for_its_disk_most_of_the_time_is_the_cause_in_place_of_a_slow_handler() {
    let found = finding(75, 800).expect("a finding");
    assert_eq!(
        found.symptom,
        "nginx waited for its disk for 80 % of the time; responses took 75 ms beyond their round trip on average"
    );
    // 0.8 of 75 ms, of 100 ms.
    assert!((found.cost_share - 0.6).abs() < 1e-9, "{}", found.cost);
    assert_eq!(found.confidence, Confidence::Inferred);
    let has_handler =
        |disk_ms: u64| run(&[scene(75, disk_ms)]).iter().any(|finding| finding.rule == "HOST106");
    assert!(has_handler(499) && !has_handler(500));
}

#[test]
fn a_disk_that_is_not_most_of_the_time_responses_that_are_quick_and_an_unknown_server_are_none() {
    assert!(finding(75, 500).is_some());
    assert_eq!(finding(75, 499), None);
    assert!(finding(5, 900).is_some());
    assert_eq!(finding(4, 900), None, "it waits with something else");
    let mut unknown = scene(75, 900);
    unknown.server = None;
    assert_eq!(found("HOST107", unknown), None);
}

#[test]
fn a_disk_that_is_as_slow_over_both_protocols_is_an_observation_with_its_fixes() {
    let found = |other_disk_ms: u64, conclusion: Conclusion| {
        let mut other = scene(75, other_disk_ms);
        (other.cell.index, other.cell.protocol) = (1, Protocol::H1);
        let record = scene(75, 900);
        let [of_other, of_record] = [&other, &record].map(|record| CellSummary::of(&[record]));
        let verdict = CellVerdict { conclusion, ..verdict_on(&of_other, &of_record, 1) };
        let all = findings(&[record, other], &[verdict]);
        all.into_iter().find(|finding| finding.rule == "HOST107" && finding.cell == 0).expect("a finding")
    };
    let both = found(500, Conclusion::NoDifference);
    says(&both.symptom, "nginx waited for its disk for 90 % of the time over both protocols; responses…");
    assert!(both.is_observation() && !both.fixes.is_empty());
    assert!(!found(499, Conclusion::NoDifference).symptom.contains("both"));
    assert!(!found(500, Conclusion::Slower).symptom.contains("both"), "it waits more over this one");
}
