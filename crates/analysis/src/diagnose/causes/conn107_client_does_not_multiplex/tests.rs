//! Both sides of every threshold.

use crate::diagnose::testing::Scene;
use crate::diagnose::{Finding, client, run};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, CloseReason, Outcome};
use h2lab_model::workload::Protocol;
use h2lab_wire::h2::setting;

fn finding(record: CellRecord) -> Option<Finding> {
    run(&[record]).into_iter().find(|finding| finding.rule == "CONN107")
}

/// Connections that we end after `each` requests. The first request on each was due `wait` ms before the connection was
/// ready; all are answered after 25 ms.
fn reconnecting(connections: u32, each: u32, wait: u64) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c);
    for index in 0..connections {
        for n in 0..each {
            let at = 1_000 + u64::from(index) * 1_000 + u64::from(n) * 30;
            scene = scene.request(index, 2 * n + 1, at, at + 25, at + 25);
        }
    }
    let mut record = scene.record();
    for connection in &mut record.connections {
        connection.ready_at = Time::from_millis(1_000 + u64::from(connection.index) * 1_000);
        connection.dialled_at = Time::from_millis(1_000 + u64::from(connection.index) * 1_000 - wait);
        connection.closed = CloseReason::Local { why: "--reconnect-every".to_owned() };
        connection.closed_at = connection.ready_at + std::time::Duration::from_millis(900);
    }
    for sample in record.samples.edit().iter_mut().filter(|sample| sample.stream.0 == 1) {
        sample.scheduled_at = Time::from_nanos(sample.sent_at.as_nanos() - wait * 1_000_000);
        sample.stall_open_ns = wait * 1_000_000;
    }
    record.cell.policy.reconnect_every = Some(each);
    record
}

#[test]
fn a_connection_for_each_request_is_found_with_what_it_cost() {
    let found = finding(reconnecting(6, 1, 25)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the client ended 5 connections itself, after 1.0 requests each on average; 6 requests waited 25 ms each for theirs"
    );
    assert!((found.cost_share - 0.5).abs() < 1e-9, "{}", found.cost);
    assert!(found.fixes[0].setting.contains("--reconnect-every"));
}

#[test]
fn requests_that_never_got_a_connection_waited_all_the_time() {
    let mut record = reconnecting(5, 1, 25);
    record.samples.edit()[4].connection = h2lab_model::record::Sample::NO_CONNECTION;
    record.samples.edit()[4].stall_open_ns = 50_000_000;
    let found = finding(record).expect("a finding");
    // 4 times 25 ms and 50 ms of 5 times 50 ms.
    assert!((found.cost_share - 0.6).abs() < 1e-9, "{}", found.cost);
}

#[test]
fn few_ends_many_requests_each_and_cheap_dials_are_none() {
    // The last has no successor.
    assert!(finding(reconnecting(5, 1, 25)).is_some());
    assert_eq!(finding(reconnecting(4, 1, 25)), None, "three are no habit");
    assert!(finding(reconnecting(5, 10, 100)).is_some());
    assert_eq!(finding(reconnecting(5, 11, 100)), None, "that is another reason");
    // Of 25 ms and the wait, 5 % are 1.3 ms.
    assert!(finding(reconnecting(5, 1, 2)).is_some());
    assert_eq!(finding(reconnecting(5, 2, 2)), None, "2 ms of 52 ms");
    let mut at_once = reconnecting(6, 10, 100);
    at_once.connections.iter_mut().for_each(|one| one.dialled_at = Time::from_millis(900));
    assert_eq!(finding(at_once), None, "a pool that ends with the work: none replaces another");
}

#[test]
fn ends_by_the_server_of_requests_that_failed_and_over_http1_are_none() {
    let changed = |change: fn(&mut CellRecord)| {
        let mut record = reconnecting(5, 1, 25);
        change(&mut record);
        finding(record)
    };
    assert!(changed(|_| ()).is_some());
    assert_eq!(
        changed(|record| record.connections.iter_mut().for_each(|c| c.closed = CloseReason::Server)),
        None
    );
    let fail = |record: &mut CellRecord| {
        record.samples.edit().iter_mut().for_each(|sample| sample.outcome = Outcome::Protocol);
    };
    assert_eq!(changed(fail), None, "we ended what the server had broken");
    assert_eq!(changed(|record| record.cell.protocol = Protocol::H1), None);
}

/// What is found of a client that was alone.
fn alone(record: CellRecord) -> Option<Finding> {
    client::of_client(Vec::new(), &[record], &client::Client::default())
        .findings
        .into_iter()
        .find(|finding| finding.rule == "CONN107")
}

/// Connections that stay open to the end. A request is sent on each when it is ready, every 100 ms, and answered after `takes` ms;
/// the next connection is dialled 60 ms after that.
fn abandoned(connections: u32, takes: u64) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c);
    for index in 0..connections {
        let at = 1_000 + u64::from(index) * 100;
        scene = scene.request(index, 1, at, at + takes, at + takes);
    }
    let mut record = scene.record();
    for connection in &mut record.connections {
        connection.dialled_at = Time::from_millis(960 + u64::from(connection.index) * 100);
        connection.ready_at = Time::from_millis(1_000 + u64::from(connection.index) * 100);
    }
    for sample in record.samples.edit().iter_mut() {
        sample.scheduled_at = Time::from_nanos(sample.sent_at.as_nanos() - 40_000_000);
        sample.stall_open_ns = 40_000_000;
    }
    record
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
    assert_eq!(alone(abandoned(4, 60)), None, "three dials are no habit");
}

#[test]
fn requests_with_a_connection_each_are_found_whenever_those_were_dialled() {
    let at_once = |connections: u32| {
        let mut record = abandoned(connections, 60);
        for connection in &mut record.connections {
            connection.dialled_at = Time::from_millis(900);
            connection.ready_at = Time::from_millis(940);
        }
        for sample in record.samples.edit().iter_mut() {
            (sample.scheduled_at, sample.stall_open_ns) = (sample.sent_at, 0);
        }
        record
    };
    let found = alone(at_once(6)).expect("a finding");
    assert!(found.symptom.starts_with("each of 6 requests had a connection of its own, which took 40 ms"));
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

#[test]
fn a_dial_is_needed_while_all_connections_carry_requests_or_end() {
    assert_eq!(alone(abandoned(5, 61)), None, "each was open when the next was dialled, and all before");
    let mut record = abandoned(5, 60);
    for connection in &mut record.connections {
        connection.closed = CloseReason::Server;
        connection.closed_at = Time::from_millis(1_100 + u64::from(connection.index) * 100);
    }
    assert_eq!(alone(record), None, "the server ended it while the next was dialled");
    let mut record = abandoned(5, 60);
    record.connections.iter_mut().for_each(|one| one.requests = 11);
    assert_eq!(alone(record), None, "many requests each");
    let mut record = abandoned(5, 60);
    record.connections.iter_mut().for_each(|one| one.remote_port = 80 + one.index as u16);
    assert_eq!(alone(record), None, "of other servers");
    let mut record = abandoned(5, 60);
    record.cell.protocol = Protocol::H1;
    assert_eq!(alone(record), None);
}

/// Ten requests that each wait 20 ms for one of two connections, on each of which the client allows itself `streams`
/// streams.
fn waiting(streams: u32, allowed: Option<u32>) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c);
    for n in 0..10_u32 {
        let at = 1_000 + u64::from(n) * 30;
        scene = scene.request(n % 2, 2 * (n / 2) + 1, at, at + 25, at + 25);
    }
    let mut record = scene.record();
    record.cell.streams = streams;
    for sample in record.samples.edit().iter_mut() {
        sample.scheduled_at = Time::from_nanos(sample.sent_at.as_nanos() - 20_000_000);
        sample.stall_open_ns = 20_000_000;
    }
    for connection in &mut record.connections {
        connection.http.settings_remote = vec![(setting::INITIAL_WINDOW_SIZE, 65_535)];
        connection.http.settings_remote.extend(allowed.map(|allowed| (3, allowed)));
    }
    record
}

#[test]
fn one_stream_on_each_connection_is_found_where_the_server_allows_more() {
    let found = finding(waiting(1, Some(128))).expect("a finding");
    assert!(found.symptom.starts_with("the client carries one request at a time on each of 1 connection"));
    assert!(
        found.symptom.contains("the server allows 128; 10 requests waited 20 ms each"),
        "{}",
        found.symptom
    );
    assert!(finding(waiting(1, None)).is_some_and(|found| found.symptom.contains("any number")));
    assert_eq!(finding(waiting(2, Some(128))), None, "it multiplexes");
    assert!(finding(waiting(1, Some(2))).is_some());
    assert_eq!(finding(waiting(1, Some(1))), None, "that is the server's limit");
}

#[test]
fn one_stream_on_each_connection_without_waiting_is_none() {
    let mut record = waiting(1, Some(128));
    record.samples.edit().iter_mut().for_each(|sample| sample.stall_open_ns = 0);
    assert_eq!(finding(record), None);
}
