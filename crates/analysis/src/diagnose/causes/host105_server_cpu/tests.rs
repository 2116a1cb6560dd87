//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene, says};
use crate::diagnose::{Confidence, Finding, findings};
use crate::stats::{CellSummary, CellVerdict, Conclusion, verdict_on};
use h2lab_model::record::{CellRecord, RunDelay, ServerSummary};
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("HOST105", record)
}

/// One response after 25 ms and one after `slow` ms, of a server that used `cpu_ms` ms of CPU time in 1,000 ms.
fn scene(slow: u64, cpu_ms: u64) -> CellRecord {
    let scene = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 125);
    let mut record = scene.request(0, 3, 100, 100 + slow, 100 + slow).record();
    record.server = Some(ServerSummary {
        name: "nginx".to_owned(),
        cpu_ns: cpu_ms * 1_000_000,
        wall_ns: 1_000_000_000,
        ..ServerSummary::default()
    });
    record
}

#[test]
fn a_busy_server_in_which_requests_wait_is_the_limit() {
    let found = finding(scene(75, 980)).expect("a finding");
    assert_eq!(
        found.symptom,
        "nginx used 0.98 CPUs throughout, as much as one thread can; responses began 25 ms later on average than the quickest"
    );
    assert!((found.cost_share - 0.5).abs() < 1e-9, "{}", found.cost);
    assert_eq!(found.confidence, Confidence::Inferred, "one thread may be all that it has");
}

#[test]
fn an_idle_server_one_that_answers_at_once_and_an_unknown_one_are_none() {
    assert!(finding(scene(75, 900)).is_some());
    assert_eq!(finding(scene(75, 899)), None);
    // For responses after 25 ms and n ms, a tenth of the time is beyond the quickest if n is at least 31.
    assert!(finding(scene(31, 980)).is_some());
    assert_eq!(finding(scene(30, 980)), None);
    let mut unknown = scene(75, 980);
    unknown.server = None;
    assert_eq!(finding(unknown), None);
    let mut short = scene(75, 490);
    short.server.as_mut().unwrap().wall_ns = 499_000_000;
    assert_eq!(finding(short), None);
}

/// The finding about a server that used the CPU for `cpu_ms` ms, and whose threads waited `taken_ms` ms for a CPU that
/// other programs had.
fn with_others(cpu_ms: u64, taken_ms: u64) -> Option<Finding> {
    let mut record = scene(75, cpu_ms);
    let (waited_ns, others_ns) = (taken_ms * 1_000_000, 2_000_000_000);
    record.server.as_mut().unwrap().run_delay = RunDelay { waited_ns, others_ns, ..RunDelay::default() };
    finding(record)
}

#[test]
fn what_other_programs_took_of_a_busy_server_is_of_what_it_wants() {
    assert!(with_others(850, 50).is_some());
    assert_eq!(with_others(850, 49), None);
    assert!(with_others(750, 150).is_some());
    assert_eq!(with_others(749, 151), None, "what it would have done with that is not known");
}

#[test]
fn more_than_a_thread_can_use_is_of_several() {
    let is_of_one = |cpu, taken| {
        let found = with_others(cpu, taken).expect("a finding");
        found.symptom.contains("as much as one thread can")
    };
    assert!(is_of_one(1_000, 100) && !is_of_one(1_001, 100));
}

#[test]
fn a_server_whose_threads_waited_for_a_cpu_of_its_own_is_seen_to_want_more() {
    let confidence = |waited: u64, others: u64| {
        let mut record = scene(75, 980);
        let ns = |ms: u64| ms * 1_000_000;
        let delay = RunDelay { ran_ns: ns(980), waited_ns: ns(waited), longest_ns: 0, others_ns: ns(others) };
        record.server.as_mut().unwrap().run_delay = delay;
        finding(record).expect("a finding").confidence
    };
    assert_eq!(confidence(50, 0), Confidence::Observed);
    assert_eq!(confidence(49, 0), Confidence::Inferred);
    assert_eq!(confidence(50, 1), Confidence::Inferred, "another program had the CPU");
}

#[test]
fn a_server_that_is_as_busy_over_both_protocols_is_an_observation_with_its_fixes() {
    let found = |other_cpu_ms: u64, conclusion: Conclusion| {
        let mut other = scene(75, other_cpu_ms);
        (other.cell.index, other.cell.protocol) = (1, Protocol::H1);
        let record = scene(75, 980);
        let [of_other, of_record] = [&other, &record].map(|record| CellSummary::of(&[record]));
        let verdict = CellVerdict { conclusion, ..verdict_on(&of_other, &of_record, 1) };
        let all = findings(&[record, other], &[verdict]);
        all.into_iter().find(|finding| finding.rule == "HOST105" && finding.cell == 0).expect("a finding")
    };
    let both = found(900, Conclusion::NoDifference);
    says(&both.symptom, "nginx used 0.98 CPUs throughout over both protocols, as much…");
    assert!(both.is_observation() && !both.fixes.is_empty());
    assert!(!found(899, Conclusion::NoDifference).symptom.contains("both"));
    assert!(!found(900, Conclusion::Slower).symptom.contains("both"), "it takes more CPU time over this one");
}
