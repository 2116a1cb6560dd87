//! Both sides of every threshold.

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("CONN105", record)
}

/// Connections that the server ended at these ages in ms, one after the other, each after the given number of requests.
/// After each end a request waits `wait` ms for the next connection.
fn aged(ends: &[(u64, u32)], wait: u64) -> CellRecord {
    let mut at = 0;
    let scene = (0..).zip(ends).fold(Scene::new(Protocol::H2), |scene, (n, &(age, requests))| {
        let end = at + age;
        at = end + wait;
        let scene = scene.goaway(n, end, 2 * requests - 1, 0).waited(n + 1, 1, [end, at, at + 50]);
        scene.established(n + 1, at)
    });
    scene.server_software("nginx/1.22.1").record()
}

#[test]
fn equal_ages_with_other_numbers_of_requests_are_a_maximum_age() {
    let found = finding(aged(&[(2_000, 190), (2_010, 215), (2_020, 201)], 50)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server ended 3 connections at an age of 2.01 s (deviation 0.4 %), after 190 to 215 requests"
    );
    assert!((found.cost_share - 0.5).abs() < 1e-9, "{}", found.cost);
    assert_eq!(found.fixes[0].setting, "keepalive_time 3600s;");
}

#[test]
fn two_ends_uneven_ages_short_ones_and_cheap_ends_are_none() {
    assert_eq!(finding(aged(&[(2_000, 190), (2_010, 215)], 50)), None);
    // The deviation of 2,000, 2,000 and 2,600 is 13 % of their mean, that of 2,000, 2,000 and 2,400 is 9 %.
    assert!(finding(aged(&[(2_000, 190), (2_000, 215), (2_400, 230)], 50)).is_some());
    assert_eq!(finding(aged(&[(2_000, 190), (2_000, 215), (2_600, 230)], 50)), None);
    assert!(finding(aged(&[(500, 50), (500, 61), (500, 70)], 50)).is_some());
    assert_eq!(finding(aged(&[(499, 50), (499, 61), (499, 70)], 50)), None);
    assert!(finding(aged(&[(2_000, 190), (2_010, 215), (2_020, 201)], 3)).is_some());
    assert_eq!(finding(aged(&[(2_000, 190), (2_010, 215), (2_020, 201)], 2)), None, "2 ms of 52");
}

#[test]
fn a_number_of_requests_and_a_restart_are_none() {
    assert_eq!(finding(aged(&[(2_000, 200), (2_010, 200), (2_020, 200)], 50)), None, "CONN101 says so");
    let mut record = aged(&[(2_000, 190), (2_000, 215), (2_000, 201)], 50);
    for connection in &mut record.connections[..3] {
        connection.connected_at = Time::ZERO;
        connection.goaways[0].at = Time::from_millis(2_000);
    }
    assert_eq!(finding(record), None, "all at one moment");
}

#[test]
fn requests_that_were_lost_with_the_connections_count() {
    let mut record = aged(&[(2_000, 190), (2_010, 215), (2_020, 201)], 0);
    assert_eq!(finding(record.clone()), None);
    record.samples.edit()[1].outcome = Outcome::Closed;
    let found = finding(record).expect("a finding");
    assert!((found.cost_share - 1.0 / 3.0).abs() < 1e-9, "{}", found.cost);
}
