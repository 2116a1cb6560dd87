//! Both sides of every threshold.

use std::time::Duration;

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene, says};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, CloseReason, ConnectionRecord, Outcome, Sample};
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("CONN107", record)
}

/// What is found of a client that was alone.
fn alone(record: CellRecord) -> Option<Finding> {
    testing::found_alone("CONN107", record)
}

/// Connections that we end after `each` requests. The first request on each was due `wait` ms before the connection was
/// ready; all are answered after 25 ms.
fn reconnecting(connections: u32, each: u32, wait: u64) -> CellRecord {
    let scene = (0..connections).fold(Scene::new(Protocol::H2c), |scene, index| {
        let ready = 1_000 * (u64::from(index) + 1);
        let scene = scene.dialled(index, ready - wait, ready);
        (1..each).fold(scene.waited(index, 1, [ready - wait, ready, ready + 25]), |scene, n| {
            let at = ready + 30 * u64::from(n);
            scene.request(index, 2 * n + 1, at, at + 25, at + 25)
        })
    });
    let mut record = scene.record();
    for connection in &mut record.connections {
        connection.closed = CloseReason::Local { why: "--reconnect-every".to_owned() };
        connection.closed_at = connection.ready_at + Duration::from_millis(900);
    }
    record.cell.policy.reconnect_every = Some(each);
    record
}

/// The record with this change to each of its connections.
fn with(mut record: CellRecord, change: fn(&mut ConnectionRecord)) -> CellRecord {
    record.connections.iter_mut().for_each(change);
    record
}

#[test]
fn a_connection_for_each_request_is_found_with_what_it_cost() {
    let found = finding(reconnecting(6, 1, 25)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the client ended 6 connections itself, after 1.0 requests each on average; 6 requests waited 25 ms each for theirs"
    );
    assert!((found.cost_share - 0.5).abs() < 1e-9, "{}", found.cost);
    assert!(found.fixes[0].setting.contains("--reconnect-every"));
    assert!((found.evidence[0].value - 6.0).abs() < 1e-9, "the last one as well, as the report's list says");
}

#[test]
fn the_last_connection_is_counted_unless_it_carried_many_requests() {
    let ended = |requests: u32| {
        let mut record = reconnecting(6, 1, 25);
        record.connections[5].requests = requests;
        finding(record).expect("a finding").evidence[0].value
    };
    assert!((ended(10) - 6.0).abs() < 1e-9);
    assert!((ended(11) - 5.0).abs() < 1e-9, "however few the others carried");
}

#[test]
fn requests_that_never_got_a_connection_waited_all_the_time() {
    let mut record = reconnecting(5, 1, 25);
    record.samples.edit()[4].connection = Sample::NO_CONNECTION;
    record.samples.edit()[4].stall_open_ns = 50_000_000;
    let found = finding(record).expect("a finding");
    // 4 times 25 ms and 50 ms of 5 times 50 ms.
    assert!((found.cost_share - 0.6).abs() < 1e-9, "{}", found.cost);
}

#[test]
fn few_ends_many_requests_each_cheap_dials_and_ends_by_others_are_none() {
    let record = || reconnecting(5, 1, 25);
    let mut failed = record();
    failed.samples.edit().iter_mut().for_each(|sample| sample.outcome = Outcome::Protocol);
    let mut over_http1 = record();
    over_http1.cell.protocol = Protocol::H1;
    let at_once = with(reconnecting(6, 10, 100), |one| one.dialled_at = Time::from_millis(900));
    for (record, is_found, why) in [
        (record(), true, "the last has no successor"),
        (reconnecting(4, 1, 25), false, "three may be chance"),
        (reconnecting(5, 10, 100), true, "few requests each"),
        (reconnecting(5, 11, 100), false, "that is another reason"),
        (reconnecting(5, 1, 2), true, "of 25 ms and the wait, 5 % are 1.3 ms"),
        (reconnecting(5, 2, 2), false, "2 ms of 52 ms"),
        (at_once, false, "a pool that ends with the work: none replaces another"),
        (with(record(), |one| one.closed = CloseReason::Server), false, "the server ended them"),
        (failed, false, "we ended what the server had broken"),
        (over_http1, false, "HTTP/1.1"),
    ] {
        assert_eq!(finding(record).is_some(), is_found, "{why}");
    }
}

/// Connections that stay open to the end. A request is sent on each when it is ready, every 100 ms, and answered after `takes` ms;
/// the next connection is dialled 60 ms after that.
fn abandoned(connections: u32, takes: u64) -> CellRecord {
    let scene = (0..connections).fold(Scene::new(Protocol::H2c), |scene, index| {
        let ready = 1_000 + 100 * u64::from(index);
        let scene = scene.dialled(index, ready - 40, ready);
        scene.waited(index, 1, [ready - 40, ready, ready + takes])
    });
    scene.record()
}

#[test]
fn a_client_object_for_each_request_is_found_although_nothing_is_closed() {
    assert_eq!(finding(abandoned(5, 60)), None, "they may be of several clients");
    let found = alone(abandoned(5, 60)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the client dialled 4 of 5 connections although another one was open with no request on it; 4 requests waited 40 ms each \
         for theirs"
    );
    // 4 times 40 ms of 5 times 100 ms.
    assert!((found.cost_share - 0.32).abs() < 1e-9, "{}", found.cost);
}

#[test]
fn a_dial_is_needed_while_all_connections_carry_requests_or_end() {
    let ended = with(abandoned(5, 60), |one| {
        one.closed = CloseReason::Server;
        one.closed_at = Time::from_millis(1_100 + u64::from(one.index) * 100);
    });
    let mut over_http1 = abandoned(5, 60);
    over_http1.cell.protocol = Protocol::H1;
    for (record, why) in [
        (abandoned(4, 60), "three dials may be chance"),
        (abandoned(5, 61), "each was open when the next was dialled, and all before"),
        (ended, "the server ended it while the next was dialled"),
        (with(abandoned(5, 60), |one| one.requests = 11), "many requests each"),
        (with(abandoned(5, 60), |one| one.remote_port = 80 + one.index as u16), "of other servers"),
        (over_http1, "HTTP/1.1"),
    ] {
        assert_eq!(alone(record), None, "{why}");
    }
}

#[test]
fn requests_with_a_connection_each_are_found_whenever_those_were_dialled() {
    let at_once = |connections: u32| {
        let scene = (0..connections).fold(Scene::new(Protocol::H2c), |scene, index| {
            let at = 1_000 + 100 * u64::from(index);
            scene.dialled(index, 900, 940).request(index, 1, at, at + 60, at + 60)
        });
        scene.record()
    };
    let found = alone(at_once(6)).expect("a finding");
    says(&found.symptom, "each of 6 requests had a connection of its own, which took 40 ms…");
    // 5 times 40 ms beside 6 times 60 ms.
    assert!((found.cost_share - 0.2 / 0.56).abs() < 1e-9, "{}", found.cost);
    assert_eq!(alone(at_once(5)), None, "that may be chance");
    let mut reused = at_once(6);
    reused.connections[3].requests = 2;
    assert_eq!(alone(reused), None);
    let mut ended = at_once(6);
    ended.connections[3].closed = CloseReason::Server;
    assert_eq!(alone(ended), None, "the server may end each after its request");
}

/// Ten requests that each wait `wait` ms for one of two connections, on each of which the client allows itself
/// `streams` streams.
fn waiting(wait: u64, streams: u32, allowed: Option<u32>) -> CellRecord {
    let scene = (0..10).fold(Scene::new(Protocol::H2c), |scene, n| {
        let at = 1_000 + u64::from(n) * 30;
        scene.waited(n % 2, 2 * (n / 2) + 1, [at - wait, at, at + 25])
    });
    let mut record = scene.allows(allowed).record();
    record.cell.streams = streams;
    record
}

#[test]
fn one_stream_on_each_connection_is_found_where_the_server_allows_more_and_requests_wait() {
    let found = finding(waiting(20, 1, Some(128))).expect("a finding");
    says(
        &found.symptom,
        "the client carries one request at a time on each of 1 connection…the server allows 128; 10 requests waited 20 ms each…",
    );
    assert!(finding(waiting(20, 1, None)).is_some_and(|found| found.symptom.contains("any number")));
    assert!(finding(waiting(20, 1, Some(2))).is_some());
    assert_eq!(finding(waiting(20, 1, Some(1))), None, "that is the server's limit");
    assert_eq!(finding(waiting(20, 2, Some(128))), None, "it multiplexes");
    assert_eq!(finding(waiting(0, 1, Some(128))), None, "none waits");
}

/// Requests of HTTP/1.1 with a connection each, `at_once` of them at a time: a dial takes `opening` ms, an answer 100 ms.
fn each_its_own(requests: u32, at_once: u32, opening: u64) -> CellRecord {
    let scene = (0..requests).fold(Scene::new(Protocol::H1s), |scene, index| {
        let dialled = 1_000 + u64::from(index / at_once) * (opening + 150);
        let ready = dialled + opening;
        scene.dialled(index, dialled, ready).waited(index, 1, [dialled, ready, ready + 100])
    });
    with(scene.record(), |one| one.closed = CloseReason::Server)
}

#[test]
fn a_connection_for_each_request_of_http1_is_found_where_it_costs() {
    assert_eq!(finding(each_its_own(15, 1, 50)), None, "they may be of several clients");
    let found = alone(each_its_own(15, 1, 50)).expect("a finding");
    assert_eq!(
        found.symptom,
        "each of 15 requests of HTTP/1.1 had a connection of its own, although 1 at a time would have sufficed; 15 requests waited \
         50 ms each for theirs"
    );
    // 14 of 15 times 50 ms of 150 ms.
    assert!((found.cost_share - 14.0 / 15.0 / 3.0).abs() < 1e-9, "{}", found.cost);
    let mut kept = each_its_own(15, 1, 50);
    kept.connections[3].requests = 2;
    for (record, is_found, why) in [
        (each_its_own(6, 1, 50), true, "six"),
        (each_its_own(5, 1, 50), false, "that may be chance"),
        (each_its_own(12, 6, 50), true, "half of them were needless"),
        (each_its_own(12, 7, 50), false, "most were needed at a time"),
        (each_its_own(15, 15, 50), false, "HTTP/1.1 needs one for each at a time"),
        (each_its_own(15, 1, 6), true, "5.6 of 106 ms"),
        (each_its_own(15, 1, 5), false, "4.7 of 105 ms cost nothing to speak of"),
        (kept, false, "it keeps connections"),
    ] {
        assert_eq!(alone(record).is_some(), is_found, "{why}");
    }
}
