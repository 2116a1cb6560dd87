//! Both sides of every threshold.
#![allow(clippy::float_cmp, reason = "counts are exact in binary")]

use crate::diagnose::testing::Scene;
use crate::diagnose::{Finding, client, run};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;
use h2lab_wire::h2::setting;

fn finding(record: CellRecord) -> Option<Finding> {
    run(&[record]).into_iter().find(|finding| finding.rule == "CONN104")
}

/// A request at 100 ms; then one burst a second: the first number is how many connections are dialled 1 ms apart, the
/// second is how many of them, from the first, carry a request each. A dial takes 25 ms.
fn dials(bursts: &[(u32, u32)]) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 125);
    let mut times = Vec::new();
    let mut next = 1;
    for (second, &(dialled, used)) in (1..).zip(bursts) {
        for n in 0..dialled {
            times.push(second * 1_000 + u64::from(n));
            if n < used {
                let at = second * 1_000 + u64::from(n) + 25;
                scene = scene.request(next + n, 1, at, at + 25, at + 25);
            }
        }
        next += dialled;
    }
    let mut record = scene.connections(next).record();
    for (connection, at) in record.connections[1..].iter_mut().zip(times) {
        (connection.dialled_at, connection.ready_at) = (Time::from_millis(at), Time::from_millis(at + 25));
    }
    record
}

#[test]
fn dials_of_which_one_is_used_are_a_stampede() {
    let found = finding(dials(&[(4, 1), (3, 1)])).expect("a finding");
    assert_eq!(
        found.symptom,
        "2 stampedes, with 3.5 dials on average where one would do: 5 of 8 connections opened carried no request"
    );
    assert_eq!((found.evidence[2].value, found.evidence[4].value), (5.0, 4.0));
    assert!(found.cost.starts_with("5 handshakes for nothing at both ends"), "{}", found.cost);
    assert!(found.fixes[0].setting.starts_with("one dial for all that wait"));
}

#[test]
fn used_connections_and_single_spare_ones_are_none() {
    assert!(finding(dials(&[(4, 2), (4, 2)])).is_some(), "half of them are used");
    assert_eq!(finding(dials(&[(4, 3), (4, 3), (4, 3), (4, 3)])), None, "most of them are");
    assert_eq!(finding(dials(&[(2, 1), (2, 1), (2, 1)])), None, "three in vain may be the end of a load");
    assert!(finding(dials(&[(2, 1), (2, 1), (2, 1), (2, 1)])).is_some());
    assert_eq!(finding(dials(&[(1, 0), (1, 0), (1, 0), (1, 0)])), None, "one after another");
}

#[test]
fn a_pool_that_dials_as_many_as_it_was_asked_for_is_none() {
    let mut record = dials(&[(4, 1), (4, 1)]);
    record.cell.connections = 3;
    assert!(finding(record.clone()).is_some());
    record.cell.connections = 4;
    assert_eq!(finding(record.clone()), None);
    (record.cell.connections, record.cell.protocol) = (1, Protocol::H1);
    assert_eq!(finding(record), None, "HTTP/1.1 needs one for each");
}

#[test]
fn what_requests_waited_longer_than_for_the_quickest_dial_is_its_cost() {
    // The second stampede is slowed down by its own dials: its first connection is ready after 65 ms rather than 25 ms.
    let mut record = dials(&[(4, 1), (4, 1)]);
    record.connections[0].ready_at = Time::from_millis(25);
    for connection in &mut record.connections[5..] {
        connection.ready_at = Time::from_millis(2_065);
    }
    for sample in record.samples.edit().iter_mut().filter(|sample| sample.connection == 5) {
        sample.scheduled_at = Time::from_millis(2_000);
        (sample.sent_at, sample.stall_open_ns) = (Time::from_millis(2_065), 65_000_000);
        (sample.first_byte_at, sample.completed_at) = (Time::from_millis(2_090), Time::from_millis(2_090));
    }
    let found = finding(record).expect("a finding");
    // 40 ms of 25, 25 and 90.
    assert!((found.cost_share - 40.0 / 140.0).abs() < 1e-9, "{}", found.cost);
    assert!(found.cost.contains("1 request waited longer"), "{}", found.cost);
}

/// The record of a client that was alone and dialled `dialled` connections 1 ms apart. Each carries a request when it
/// is ready, and the first carries `more` besides.
fn at_once(dialled: u32, more: u32) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2);
    for index in 0..dialled {
        let at = 140 + u64::from(index);
        scene = scene.request(index, 1, at, at + 25, at + 25);
    }
    for n in 0..more {
        scene = scene.request(0, 2 * n + 3, 300, 325, 325);
    }
    let mut record = scene.record();
    for connection in &mut record.connections {
        connection.dialled_at = Time::from_millis(100 + u64::from(connection.index));
        connection.ready_at = Time::from_millis(140 + u64::from(connection.index));
    }
    for sample in record.samples.edit().iter_mut().filter(|sample| sample.stream.0 == 1) {
        sample.scheduled_at = Time::from_millis(100 + u64::from(sample.connection));
        sample.stall_open_ns = 40_000_000;
    }
    record
}

fn alone(record: CellRecord) -> Option<Finding> {
    let found = client::of_client(Vec::new(), &[record], &client::Client::default());
    found.findings.into_iter().find(|finding| finding.rule == "CONN104")
}

#[test]
fn a_connection_for_each_of_many_requests_at_once_is_found_of_one_client() {
    assert_eq!(finding(at_once(20, 0)), None, "they may be of several clients");
    let found = alone(at_once(20, 5)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the client opened 20 connections within 19 ms, before the first of them was ready after 40 ms; all but one carried a \
         request at most, and the first could have carried the 25"
    );
    assert!(found.cost.starts_with("19 handshakes for nothing at both ends"), "{}", found.cost);
    assert!(found.fixes.iter().any(|fix| fix.setting.contains("sendAsync")), "{:?}", found.fixes);
}

#[test]
fn few_dials_and_pools_that_are_used_are_no_stampede_of_one_client() {
    assert!(alone(at_once(5, 0)).is_some());
    assert_eq!(alone(at_once(4, 0)), None, "three in vain are no habit");
    let mut used = at_once(20, 0);
    used.connections[1].requests = 2;
    assert!(alone(used.clone()).is_some(), "one is kept, whichever");
    used.connections[2].requests = 2;
    assert_eq!(alone(used), None, "a pool");
    let allowed = |streams: u32| {
        let mut record = at_once(20, 0);
        for one in &mut record.connections {
            one.http.settings_remote = vec![(setting::MAX_CONCURRENT_STREAMS, streams)];
        }
        alone(record)
    };
    assert!(allowed(20).is_some());
    assert_eq!(allowed(19), None, "one would not have carried all");
    let mut late = at_once(20, 0);
    for one in &mut late.connections {
        one.ready_at = Time::from_millis(103 + u64::from(one.index));
    }
    assert_eq!(alone(late), None, "three at a time before one was ready");
}
