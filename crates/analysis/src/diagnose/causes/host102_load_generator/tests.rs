//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene, says};
use crate::diagnose::{Finding, run};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, ServerSummary};
use h2lab_model::workload::{Arrival, Protocol};

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("HOST102", record)
}

/// Two requests of 50 ms each, sent `late` ms after they were due, by a generator whose thread worked for `busy_ms` of
/// 1,000 ms.
fn scene(late: u64, busy_ms: u64) -> CellRecord {
    let mut record =
        Scene::new(Protocol::H2c).request(0, 1, 100, 150, 150).request(0, 3, 100, 150, 150).record();
    for sample in record.samples.edit().iter_mut() {
        sample.scheduled_at = Time::from_millis(100 - late);
    }
    let generator = &mut record.generator;
    (generator.cpu_ns, generator.wall_ns, generator.threads) = (busy_ms * 1_000_000, 1_000_000_000, 1);
    record
}

#[test]
fn a_busy_generator_that_is_late_is_the_limit() {
    let found = finding(scene(50, 950)).expect("a finding");
    says(&found.symptom, "the load generator's busiest thread worked 95 % of the time…");
    assert!((found.cost_share - 0.5).abs() < 1e-9, "{}", found.cost);
}

#[test]
fn an_idle_generator_and_one_that_is_punctual_are_none() {
    assert!(finding(scene(50, 900)).is_some());
    assert_eq!(finding(scene(50, 899)), None, "it was stopped, or late for another reason");
    assert_eq!(finding(scene(2, 950)), None, "4 of 104 ms");
    assert!(finding(scene(3, 950)).is_some(), "6 of 106 ms");
    let mut awake = scene(50, 950);
    awake.generator.awake_ns = 60_000_000;
    assert_eq!(finding(awake), None, "it was awake without work");
    let mut short = scene(50, 950);
    (short.generator.wall_ns, short.generator.cpu_ns) = (499_000_000, 499_000_000);
    assert_eq!(finding(short), None, "it began");
}

#[test]
fn one_busy_thread_of_several_and_a_closed_loop_count() {
    let mut record = scene(50, 950);
    (record.generator.threads, record.generator.busiest_ns) = (4, 940_000_000);
    assert!(finding(record).is_some_and(|found| found.symptom.contains("94 % of the time, of 4")));
    let mut closed = scene(0, 950);
    assert_eq!(finding(closed.clone()), None);
    closed.cell.work.arrival = Arrival::Closed { concurrency: 2 };
    let found = finding(closed).expect("a finding");
    assert!(
        (found.cost_share - 0.95).abs() < 1e-9 && found.cost.contains("95 % of the time"),
        "{}",
        found.cost
    );
}

#[test]
fn what_a_busy_generator_imitates_is_not_named_beside_it() {
    let rules = |busy_ms: u64| {
        let mut record = scene(50, busy_ms);
        // A server that is equally busy, and of whose two responses one comes later.
        let (cpu_ns, wall_ns) = (980_000_000, 1_000_000_000);
        record.server = Some(ServerSummary { cpu_ns, wall_ns, ..ServerSummary::default() });
        for sample in record.samples.edit().iter_mut().skip(1) {
            (sample.first_byte_at, sample.completed_at) = (Time::from_millis(200), Time::from_millis(200));
        }
        run(&[record]).into_iter().map(|finding| finding.rule).collect::<Vec<_>>()
    };
    assert_eq!(rules(950), ["HOST102"]);
    assert_eq!(rules(899), ["HOST105"]);
}
