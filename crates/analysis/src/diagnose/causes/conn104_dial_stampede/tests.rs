//! Both sides of every threshold.
#![allow(clippy::float_cmp, reason = "counts are exact in binary")]

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene, says};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("CONN104", record)
}

fn alone(record: CellRecord) -> Option<Finding> {
    testing::found_alone("CONN104", record)
}

/// A request at 100 ms; then one burst a second: the first number is how many connections are dialled 1 ms apart, the
/// second is how many of them, from the first, carry a request each. A dial takes 25 ms.
fn dials(bursts: &[(u32, u32)]) -> CellRecord {
    let first = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 125);
    let all = (1_u64..).zip(bursts).flat_map(|(second, &(dialled, used))| {
        (0..dialled).map(move |n| (1_000 * second + u64::from(n), n < used))
    });
    let scene = (1..).zip(all).fold(first, |scene, (index, (at, is_used))| {
        let scene = scene.dialled(index, at, at + 25);
        if is_used { scene.request(index, 1, at + 25, at + 50, at + 50) } else { scene }
    });
    scene.record()
}

#[test]
fn dials_of_which_one_is_used_are_a_stampede() {
    let found = finding(dials(&[(4, 1), (3, 1)])).expect("a finding");
    assert_eq!(
        found.symptom,
        "2 stampedes, with 3.5 dials on average where one would do: 5 of 8 connections opened carried no request"
    );
    assert_eq!((found.evidence[2].value, found.evidence[4].value), (5.0, 4.0));
    says(&found.cost, "5 handshakes for nothing at both ends…");
    assert!(found.is_observation() && found.fixes.is_empty(), "no request waited longer: {found:?}");
}

#[test]
fn used_connections_single_spare_ones_and_pools_as_large_as_asked_for_are_none() {
    let pool = |connections: u32, protocol: Protocol| {
        let mut record = dials(&[(4, 1), (4, 1)]);
        (record.cell.connections, record.cell.protocol) = (connections, protocol);
        record
    };
    for (record, is_found, why) in [
        (dials(&[(4, 2), (4, 2)]), true, "half of them are used"),
        (dials(&[(4, 3), (4, 3), (4, 3), (4, 3)]), false, "most of them are"),
        (dials(&[(2, 1), (2, 1), (2, 1)]), false, "three unused ones may be the end of a load"),
        (dials(&[(2, 1), (2, 1), (2, 1), (2, 1)]), true, "four are not"),
        (dials(&[(1, 0), (1, 0), (1, 0), (1, 0)]), false, "one after another"),
        (pool(3, Protocol::H2c), true, "more than were asked for"),
        (pool(4, Protocol::H2c), false, "as many as were asked for"),
        (pool(1, Protocol::H1), false, "HTTP/1.1 needs one for each"),
    ] {
        assert_eq!(finding(record).is_some(), is_found, "{why}");
    }
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
    says(&found.cost, "…1 request waited longer…");
    assert!(!found.is_observation() && found.fixes[0].setting.starts_with("one dial for all that wait"));
}

/// The record of a client that was alone and dialled `dialled` connections 1 ms apart. Each carries a request when it
/// is ready, and the first carries `more` besides.
fn at_once(dialled: u32, more: u32) -> Scene {
    let scene = (0..dialled).fold(Scene::new(Protocol::H2), |scene, index| {
        let (at, ready) = (100 + u64::from(index), 140 + u64::from(index));
        scene.dialled(index, at, ready).waited(index, 1, [at, ready, ready + 25])
    });
    (0..more).fold(scene, |scene, n| scene.request(0, 2 * n + 3, 300, 325, 325))
}

#[test]
fn a_connection_for_each_of_many_requests_at_once_is_found_of_one_client() {
    assert_eq!(finding(at_once(20, 0).record()), None, "they may be of several clients");
    let found = alone(at_once(20, 5).record()).expect("a finding");
    assert_eq!(
        found.symptom,
        "the client opened 20 connections within 19 ms, before the first of them was ready after 40 ms; all but one carried a \
         request at most, and the first could have carried the 25"
    );
    says(&found.cost, "19 handshakes for nothing at both ends…");
    assert!(found.fixes.iter().any(|fix| fix.setting.contains("sendAsync")), "{:?}", found.fixes);
}

#[test]
fn a_stampede_for_which_hardly_any_time_was_waited_is_an_observation_without_a_fix() {
    // The nth request waits n - 1 ms longer than the first, of 65 ms each.
    let found = |dialled: u32| alone(at_once(dialled, 0).record()).expect("a finding");
    let (eight, seven) = (found(8), found(7));
    assert!(!eight.is_observation() && !eight.fixes.is_empty(), "3.5 of 65 ms: {}", eight.cost);
    assert!(seven.is_observation() && seven.fixes.is_empty(), "3 of 65 ms: {}", seven.cost);
    says(
        &seven.cost,
        "6 handshakes for nothing at both ends…, 21 ms in sum; an observation: what requests waited for it is below 5 % of \
         their time",
    );
}

#[test]
fn few_dials_and_pools_that_are_used_are_no_stampede_of_one_client() {
    let used = |connections: &[usize]| {
        let mut record = at_once(20, 0).record();
        for &index in connections {
            record.connections[index].requests = 2;
        }
        record
    };
    let mut late = at_once(20, 0).record();
    for one in &mut late.connections {
        one.ready_at = Time::from_millis(103 + u64::from(one.index));
    }
    for (record, is_found, why) in [
        (at_once(5, 0).record(), true, "four needless ones"),
        (at_once(4, 0).record(), false, "three needless ones may be chance"),
        (used(&[1]), true, "one is kept, whichever"),
        (used(&[1, 2]), false, "a pool"),
        (at_once(20, 0).allows(Some(20)).record(), true, "one would have carried all"),
        (at_once(20, 0).allows(Some(19)).record(), false, "one would not have"),
        (late, false, "three at a time before one was ready"),
    ] {
        assert_eq!(alone(record).is_some(), is_found, "{why}");
    }
}
