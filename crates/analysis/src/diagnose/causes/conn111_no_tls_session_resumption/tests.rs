//! Both sides of every threshold.

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene, says};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("CONN111", record)
}

/// A first connection, then `full` and `resumed` ones, one second apart. TLS takes `tls` ms on each after TCP is
/// established, and a request waits for it. The round trip is 25 ms.
fn scene(full: u32, resumed: u32, tls: u64) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2).request(0, 1, 100, 125, 125);
    for n in 1..=full + resumed {
        let (begin, ready) = (1_000 * u64::from(n), 1_000 * u64::from(n) + tls);
        scene = scene.waited(n, 1, [begin, ready, ready + 25]);
    }
    let mut record = scene.record();
    for connection in &mut record.connections[1..] {
        connection.connected_at = Time::from_millis(1_000 * u64::from(connection.index));
        connection.ready_at = Time::from_millis(1_000 * u64::from(connection.index) + tls);
        connection.tls_resumed = Some(connection.index > full);
    }
    record
}

#[test]
fn handshakes_that_began_before_there_was_a_session_are_told_apart() {
    let mut record = scene(4, 0, 35);
    let mut early = record.connections[1].clone();
    (early.connected_at, early.ready_at) = (
        record.connections[0].connected_at,
        record.connections[0].ready_at + std::time::Duration::from_millis(1),
    );
    early.index = 5;
    record.connections.push(early);
    let found = finding(record).expect("a finding");
    says(&found.symptom, "4 of 4 TLS handshakes after the first were full ones…");
    says(&found.symptom, "…; 1 other began before the first had brought a session");
}

#[test]
fn a_server_that_needs_no_setting_is_told_of_none() {
    let mut record = scene(4, 0, 35);
    record.connections[0].server_software = Some("h2lab/0.1.0".into());
    let found = finding(record).expect("a finding");
    let products: Vec<&str> = found.fixes.iter().map(|fix| fix.product.as_str()).collect();
    assert_eq!(products, ["client"]);
    assert!(!found.fixes[0].setting.contains("h2lab"), "{:?}", found.fixes);
}

#[test]
fn full_handshakes_are_found_with_what_they_took_beyond_a_round_trip() {
    let found = finding(scene(4, 0, 35)).expect("a finding");
    assert_eq!(
        found.symptom,
        "4 of 4 TLS handshakes after the first were full ones, of 10 ms beyond a round trip each; 0 resumed a session"
    );
    // 4 times 10 ms, of 25 ms and 4 times 60 ms.
    assert!((found.cost_share - 40.0 / 265.0).abs() < 1e-9, "{}", found.cost);
}

#[test]
fn a_connection_is_found_by_its_index_wherever_it_stands() {
    let mut record = scene(4, 0, 35);
    let found = finding(record.clone());
    record.connections.reverse();
    assert!(found.is_some());
    assert_eq!(finding(record), found);
}

#[test]
fn three_full_ones_some_resumed_and_quick_ones_are_none() {
    assert_eq!(finding(scene(3, 0, 35)), None);
    assert!(finding(scene(18, 2, 35)).is_some());
    assert_eq!(finding(scene(17, 2, 35)), None, "more than a tenth");
    assert_eq!(finding(scene(4, 0, 27)), None, "8 of 233 ms");
    assert!(finding(scene(4, 0, 28)).is_some());
}

#[test]
fn connections_without_tls_and_those_dialled_at_the_beginning_are_none() {
    let mut clear = scene(6, 0, 35);
    clear.connections.iter_mut().for_each(|connection| connection.tls_resumed = None);
    assert_eq!(finding(clear), None);
    let mut early = scene(6, 0, 35);
    early.connections[0].ready_at = Time::from_millis(975);
    assert!(
        finding(early.clone()).is_some_and(|found| found.symptom.starts_with("5 of 5")),
        "the first came too early"
    );
    early.connections[0].ready_at = Time::from_millis(9_000);
    early.connections.iter_mut().for_each(|c| c.ready_at = Time::from_millis(9_000));
    assert_eq!(finding(early), None);
}

#[test]
fn our_own_flag_is_the_fix_where_it_is_given() {
    let mut record = scene(4, 0, 35);
    assert_eq!(finding(record.clone()).expect("a finding").fixes.len(), 2);
    record.cell.policy.no_tls_resumption = true;
    assert!(finding(record).expect("a finding").fixes[0].setting.contains("--no-tls-resumption"));
}
