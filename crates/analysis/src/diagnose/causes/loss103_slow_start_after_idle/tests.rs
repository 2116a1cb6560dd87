//! When an idle time makes a congestion window smaller, and what looks the same.

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("LOSS103", record)
}

/// `count` bodies of 64 KiB on one connection, with `idle` ms without traffic between them; each takes `took` ms over a
/// round trip of 25 ms. The window is `before` when each begins and `after` while it is sent.
fn uploads(count: u32, idle: u64, took: u64, before: u32, after: u32) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c);
    for n in 0..count {
        let sent = 100 + u64::from(n) * (took + idle);
        scene = scene.request(0, 2 * n + 1, sent, sent + took, sent + took);
        scene = scene.tick(0, sent - 1, 0, false).tick(0, sent + 9, 0, false);
    }
    let mut record = scene.record();
    record.cell.work.body_bytes = 64 << 10;
    for (n, tick) in record.tcp.iter_mut().enumerate() {
        tick.cwnd = if n % 2 == 0 { before } else { after };
    }
    record
}

#[test]
fn a_window_that_is_that_of_a_new_connection_after_each_pause_is_named() {
    // 46 segments: one round trip with a window of 80, three with one of 10.
    let found = finding(uploads(8, 1_000, 80, 80, 10)).expect("a finding");
    assert_eq!(
        found.symptom,
        "after 1 s or more without traffic the congestion window of the client fell from 80 to 10 segments, 7 times; bodies \
         then took 50 ms longer on average"
    );
    assert!((found.cost_share - 7.0 * 50.0 / (8.0 * 80.0)).abs() < 1e-9, "{}", found.cost);
    assert!(found.fixes[0].setting.contains("tcp_slow_start_after_idle=0"), "{:?}", found.fixes);
}

#[test]
fn the_connection_must_have_been_idle_for_the_shortest_timeout() {
    assert!(finding(uploads(8, 200, 80, 80, 10)).is_some());
    assert_eq!(finding(uploads(8, 199, 80, 80, 10)), None);
}

#[test]
fn five_requests_after_a_pause_are_wanted() {
    assert!(finding(uploads(6, 1_000, 80, 80, 10)).is_some(), "the first finds a new connection");
    assert_eq!(finding(uploads(5, 1_000, 80, 80, 10)), None);
}

#[test]
fn it_must_cost_round_trips_and_a_twentieth() {
    assert_eq!(finding(uploads(8, 1_000, 80, 80, 46)), None, "it fits nevertheless");
    assert!(finding(uploads(8, 1_000, 80, 80, 45)).is_some(), "one round trip more");
    let mut small = uploads(8, 1_000, 80, 80, 10);
    small.cell.work.body_bytes = 10 * 1_448;
    assert_eq!(finding(small), None, "what ten segments carry");
    assert_eq!(finding(uploads(8, 1_000, 25, 80, 10)), None, "all were as fast as the path allows");
    let mut cheap = uploads(8, 1_000, 80, 80, 10);
    cheap.samples.edit()[0].completed_at = Time::from_millis(9_000);
    assert_eq!(finding(cheap), None, "350 ms of 9.5 s");
}

#[test]
fn what_looks_alike_is_silent() {
    assert_eq!(finding(uploads(8, 1_000, 80, 80, 80)), None, "the window was kept");
    assert_eq!(finding(uploads(8, 1_000, 80, 10, 10)), None, "it never grew");
    let mut lossy = uploads(8, 1_000, 80, 80, 10);
    for (n, tick) in lossy.tcp.iter_mut().enumerate() {
        tick.retransmits = n as u32;
    }
    assert_eq!(finding(lossy), None, "a loss made it smaller");
    let mut servers = uploads(8, 1_000, 80, 80, 10);
    servers.tcp.iter_mut().for_each(|tick| tick.server = true);
    assert_eq!(finding(servers), None, "the server sends no bodies here");
    let mut first = uploads(8, 1_000, 80, 80, 10);
    for (n, sample) in first.samples.edit().iter_mut().enumerate() {
        sample.connection = n as u32;
    }
    assert_eq!(finding(first), None, "each on a new connection");
    let mut mixed = uploads(8, 1_000, 80, 80, 10);
    mixed.cell.work.mix = vec![h2lab_model::workload::MixEntry::default()];
    assert_eq!(finding(mixed), None, "bodies of other lengths");
}
