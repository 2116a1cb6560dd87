//! Both sides of every threshold.

use crate::diagnose::testing::Scene;
use crate::diagnose::{Finding, run};
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;

fn findings(record: CellRecord) -> Vec<Finding> {
    run(&[record]).into_iter().filter(|finding| finding.rule == "FLOW105").collect()
}

/// The client received `data` DATA frames and sent `credits` WINDOW_UPDATEs; it was busy.
fn record(data: u64, credits: u64) -> CellRecord {
    let mut record = Scene::new(Protocol::H2c).record();
    (record.generator.busiest_ns, record.generator.wall_ns) = (700_000_000, 1_000_000_000);
    let counters = &mut record.connections[0].counters;
    (counters.frames_received[0], counters.frames_sent[8]) = (data, credits);
    record
}

#[test]
fn credit_for_each_frame_is_observed_and_explains_no_time() {
    let found = findings(record(2_000, 4_000)).remove(0);
    assert!(found.is_observation() && found.cost_share < 1e-9);
    assert_eq!(found.symptom, "our client sent 4,000 WINDOW_UPDATEs for 2,000 DATA frames: 2.0 for each");
    let mut up = record(2_000, 4_000);
    let counters = &mut up.connections[0].counters;
    std::mem::swap(&mut counters.frames_received, &mut counters.frames_sent);
    assert!(findings(up).remove(0).symptom.starts_with("the server sent 4,000"));
}

#[test]
fn more_than_one_for_two_and_a_thousand_are_wanted() {
    assert_eq!(findings(record(2_000, 1_001)).len(), 1);
    assert_eq!(findings(record(2_000, 1_000)), []);
    assert_eq!(findings(record(1_000, 1_000)).len(), 1);
    assert_eq!(findings(record(1_000, 999)), []);
}

#[test]
fn ends_that_have_cpu_time_left_and_other_protocols_are_silent() {
    let mut idle = record(2_000, 4_000);
    idle.generator.busiest_ns = 499_000_000;
    assert_eq!(findings(idle), []);
    let mut other = record(2_000, 4_000);
    other.cell.protocol = Protocol::H3;
    assert_eq!(findings(other), []);
}
