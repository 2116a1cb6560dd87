//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Confidence, Finding, run};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("CONN110", record)
}

/// One request on each connection, and after the given idle time in ms another one, which fails when the server closes
/// the connection `closed` ms after it was sent.
fn races(idle: &[u64], closed: u64) -> CellRecord {
    let mut scene = Scene::new(Protocol::H1);
    for (connection, idle) in (0..).zip(idle) {
        let at = 10_000 * u64::from(connection) + 100;
        let again = at + 25 + idle;
        scene = scene.request(connection, 1, at, at + 25, at + 25).request(
            connection,
            3,
            again,
            again,
            again + closed,
        );
        scene = scene.closed_by_server(connection, again + closed);
    }
    let mut record = scene.record();
    for sample in record.samples.edit().iter_mut().filter(|sample| sample.stream.0 == 3) {
        (sample.outcome, sample.status, sample.first_byte_at) = (Outcome::Closed, 0, Time::NEVER);
    }
    record
}

#[test]
fn requests_that_fail_after_one_idle_time_meet_a_timeout() {
    let found = finding(races(&[5_000, 5_010], 25)).expect("a finding");
    assert_eq!(
        found.symptom,
        "2 requests failed that followed on 5 s to 5.01 s without one: the server closed the idle connection at that time"
    );
    assert_eq!((found.confidence, found.fixes.len()), (Confidence::Observed, 2));
    assert!((found.cost_share - 0.5).abs() < 1e-9);
}

#[test]
fn a_connection_is_found_by_its_index_wherever_it_stands() {
    let mut record = races(&[5_000, 5_010], 25);
    let found = finding(record.clone());
    record.connections.reverse();
    assert_eq!(finding(record.clone()), found);
    let mut unused = record.connections[0].clone();
    unused.index = 9;
    record.connections.insert(0, unused);
    assert!(finding(record).is_some());
}

#[test]
fn one_failure_short_gaps_uneven_ones_and_late_ends_are_none() {
    assert_eq!(finding(races(&[5_000], 25)), None);
    assert!(finding(races(&[500, 500], 25)).is_some());
    assert_eq!(finding(races(&[499, 499], 25)), None);
    assert!(finding(races(&[5_000, 5_500], 25)).is_some());
    assert_eq!(finding(races(&[5_000, 5_501], 25)), None);
    assert!(finding(races(&[5_000, 5_010], 50)).is_some());
    assert_eq!(finding(races(&[5_000, 5_010], 51)), None, "not within two round trips: the server had it");
}

#[test]
fn a_502_after_a_time_without_requests_is_a_race_behind_a_proxy() {
    let with = |status: u16| {
        let mut record = races(&[5_000, 5_010], 25);
        for sample in record.samples.edit().iter_mut().filter(|sample| sample.stream.0 == 3) {
            (sample.outcome, sample.status, sample.first_byte_at) =
                (Outcome::Status, status, sample.completed_at);
        }
        finding(record)
    };
    let found = with(502).expect("a finding");
    assert!(found.symptom.contains("a proxy answered 502") && found.confidence == Confidence::Inferred);
    assert_eq!(found.fixes[0].product, "proxy");
    assert_eq!(with(500), None);
}

/// The same over HTTP/2, where a GOAWAY excludes the later request, `late` ms after it was sent; the connection is closed later.
fn refused(idle: &[u64], late: u64, replays: u8) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c);
    for (connection, idle) in (0..).zip(idle) {
        let at = 10_000 * u64::from(connection) + 100;
        let again = at + 25 + idle;
        scene = scene.request(connection, 1, at, at + 25, at + 25);
        scene = scene.request(connection, 3, again, again, again + late);
        scene = scene.goaway(connection, again + late, 1, 0).closed_by_server(connection, again + 900);
    }
    let mut record = scene.record();
    record.cell.work.replay = false;
    for sample in record.samples.edit().iter_mut().filter(|sample| sample.stream.0 == 3) {
        (sample.outcome, sample.status, sample.first_byte_at) = (Outcome::Refused, 0, Time::NEVER);
        sample.replays = replays;
    }
    record
}

#[test]
fn requests_that_a_goaway_excludes_after_one_idle_time_are_no_others() {
    let rules = |record: CellRecord| -> Vec<String> {
        run(&[record])
            .into_iter()
            .map(|finding| finding.rule)
            .filter(|rule| rule.starts_with("CONN"))
            .collect()
    };
    assert_eq!(rules(refused(&[900, 910], 25, 0)), ["CONN110"], "the GOAWAY is that of the timeout");
    assert_eq!(rules(refused(&[400, 410], 25, 0)), ["CONN103"], "no idle time");
    assert_eq!(rules(refused(&[900, 910], 51, 0)), ["CONN103"], "not within two round trips");
    assert_eq!(
        rules(refused(&[900, 910], 25, 1)),
        Vec::<String>::new(),
        "it was sent again until that was given up"
    );
}

#[test]
fn a_server_that_says_goaway_and_waits_for_the_client_to_close_is_named_by_its_timeout() {
    let mut scene = Scene::new(Protocol::H2c);
    for connection in 0..2 {
        let at = 10_000 * u64::from(connection) + 100;
        scene = scene.request(connection, 1, at, at + 25, at + 25).request(
            connection,
            3,
            at + 5_025,
            at + 5_025,
            at + 5_050,
        );
        scene = scene.goaway(connection, at + 5_050, 1, 0);
    }
    let mut record = scene.record();
    for sample in record.samples.edit().iter_mut().filter(|sample| sample.stream.0 == 3) {
        (sample.outcome, sample.status, sample.first_byte_at) = (Outcome::GoAway, 0, Time::NEVER);
    }
    let found: Vec<String> = run(&[record]).into_iter().map(|finding| finding.rule).collect();
    assert_eq!(found, ["CONN110"], "CONN103 is what it looks like");
}
