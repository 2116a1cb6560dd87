//! When a server processes the requests of a connection one after another, and what looks the same.

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Finding, run};
use h2lab_model::record::{CellRecord, ServerSummary};
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("MUX105", record)
}

/// `count` requests, one every `every` ms, for a server with `workers` workers, each of which takes `work` ms for one;
/// the round trip is 25 ms.
fn record(count: u32, every: u64, workers: usize, work: u64) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c);
    let mut free = vec![0; workers];
    for n in 0..count {
        let sent = 100 + u64::from(n) * every;
        free.sort_unstable();
        let done = free[0].max(sent + 12) + work;
        free[0] = done;
        scene = scene.request(0, 2 * n + 1, sent, done + 13, done + 13);
    }
    let mut record = scene.record();
    record.cell.work.body_bytes = 0;
    record
}

#[test]
fn answers_one_piece_of_work_apart_are_those_of_a_server_that_does_one_at_a_time() {
    let mut one = record(60, 18, 1, 20);
    one.connections[0].server_software = Some("Apache/2.4.62 (Debian)".into());
    let found = finding(one).expect("a finding");
    assert!(found.symptom.contains("answered one after the other, 20 ms apart"), "{}", found.symptom);
    assert!(found.cost_share > 0.3, "{}", found.cost);
    assert_eq!(found.fixes[0].product, "Apache");
    assert!(found.confirm.contains("-c 1,8"), "{}", found.confirm);
}

#[test]
fn a_repetition_that_is_busy_from_its_first_request_on_learns_from_others_what_one_takes() {
    let whole = record(60, 10, 1, 20);
    let mut busy = whole.clone();
    busy.samples.edit().retain(|sample| sample.stream.0 > 20);
    busy.cell.repetition = 1;
    let found = |records: &[CellRecord]| run(records).into_iter().find(|finding| finding.rule == "MUX105");
    assert_eq!(found(std::slice::from_ref(&busy)), None, "what one takes is not known");
    let pairs = |found: Option<Finding>| found.expect("a finding").evidence[1].value;
    assert!(pairs(found(&[whole.clone(), busy])) > 1.5 * pairs(found(&[whole])));
}

#[test]
fn a_server_with_more_workers_is_silent_also_when_all_are_busy() {
    assert_eq!(finding(record(200, 9, 2, 20)), None, "two at a time");
    assert_eq!(finding(record(200, 4, 4, 20)), None, "four at a time");
    assert_eq!(finding(record(60, 18, 100, 20)), None, "as many as come");
}

#[test]
fn twenty_pairs_must_have_met() {
    // From the second on, each request is at the server together with the one before.
    assert!(finding(record(21, 10, 1, 20)).is_some());
    assert_eq!(finding(record(20, 10, 1, 20)), None);
}

#[test]
fn short_work_is_not_told_from_cpu_time() {
    assert!(finding(record(60, 3, 1, 5)).is_some());
    assert_eq!(finding(record(60, 2, 1, 4)), None);
}

#[test]
fn what_looks_alike_is_silent() {
    let serial = record(60, 10, 1, 20);
    let mut busy = serial.clone();
    busy.server = Some(ServerSummary { cpu_ns: 600, wall_ns: 1_000, ..ServerSummary::default() });
    assert_eq!(finding(busy.clone()), None, "a CPU with too much to do");
    busy.server = Some(ServerSummary { cpu_ns: 400, wall_ns: 1_000, ..ServerSummary::default() });
    assert!(finding(busy).is_some());
    let mut large = serial.clone();
    // 20 ms at 10 Mbit/s are 25,000 bytes; a quarter of them, minus the heads, may be due to the path.
    let with = |record: &mut CellRecord, bytes| {
        record.samples.edit().iter_mut().for_each(|sample| sample.body_bytes = bytes);
        finding(record.clone())
    };
    assert!(with(&mut large, 5_200).is_some());
    assert_eq!(with(&mut large, 5_300), None, "a narrow path");
    let mut spread = serial;
    for (n, sample) in spread.samples.edit().iter_mut().enumerate() {
        sample.connection = n as u32;
    }
    assert_eq!(finding(spread), None, "one request per connection");
}
