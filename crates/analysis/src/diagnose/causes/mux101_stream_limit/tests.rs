//! When a limit of streams holds requests back, and when something else does.

use std::time::Duration;

use crate::diagnose::testing::{self, Scene, says};
use crate::diagnose::{Confidence, Finding};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, ConnectionRecord, Level, Sample};
use h2lab_model::workload::{Arrival, Protocol};

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("MUX101", record)
}

/// The record of a client that would open 400 streams, of which the server allows `limit`.
fn limited(scene: Scene, limit: u32) -> CellRecord {
    let mut record = scene.allows(Some(limit)).record();
    record.cell.streams = 400;
    record
}

/// A server with a limit, and requests that are due at regular times.
#[derive(Clone, Copy)]
struct Load {
    /// Streams at a time.
    limit: usize,
    count: u64,
    /// Between requests, in ms.
    every: u64,
    /// How long one takes alone, in ms.
    service: u64,
    /// How much longer for each other stream that is open, in ms.
    crowding: u64,
    /// How long one takes at most, in ms.
    longest: u64,
}

const SLOW_HANDLER: Load =
    Load { limit: 2, count: 40, every: 20, service: 50, crowding: 0, longest: u64::MAX };

impl Load {
    fn record(self) -> CellRecord {
        let mut ends: Vec<u64> = Vec::new();
        let scene = (0..self.count).fold(Scene::new(Protocol::H2c), |scene, n| {
            let due = 100 + n * self.every;
            ends.sort_unstable();
            let free = ends.len().checked_sub(self.limit).map_or(0, |nth| ends[nth]);
            let sent = due.max(free);
            let others = ends.iter().filter(|end| **end > sent).count() as u64;
            let end = sent + (self.service + self.crowding * others).min(self.longest);
            ends.push(end);
            scene.waited(0, 2 * n as u32 + 1, [due, sent, end])
        });
        limited(scene, self.limit as u32)
    }
}

#[test]
fn requests_behind_a_slow_handler_with_few_streams_wait_in_the_client() {
    let mut record = SLOW_HANDLER.record();
    record.connections[0].server_software = Some("nginx/1.27.0".into());
    let found = finding(record).expect("a finding");
    says(
        &found.symptom,
        "38 requests waited in the client for …since the server allows 2 streams on a connection and all were taken…",
    );
    // Two streams of 50 ms serve 40 requests per second, and 50 come: the 40th waits for 190 ms.
    assert!((0.5..0.75).contains(&found.cost_share), "{}", found.cost);
    assert!(found.fixes[0].setting.starts_with("http2_max_concurrent_streams 128"), "{:?}", found.fixes[0]);
    assert!(found.fixes[1].setting.contains("-c 4"), "{:?}", found.fixes[1]);
    assert!(found.confirm.contains("-c 1,4"), "{}", found.confirm);
}

#[test]
fn a_server_that_has_no_room_for_more_is_not_helped_by_a_higher_limit() {
    let with =
        |crowding| finding(Load { limit: 4, service: 40, every: 8, crowding, ..SLOW_HANDLER }.record());
    assert!(with(0).is_some());
    // The quickest takes 40 ms, the others 40 + 3 × 13 or 3 × 14.
    assert!(with(13).is_some());
    assert_eq!(with(14), None);
}

#[test]
fn a_quarter_of_a_large_limit_may_be_a_crowd_already() {
    let load = Load { limit: 80, count: 400, every: 1, service: 40, crowding: 1, longest: u64::MAX };
    // Beside up to 8 others a request takes 44 ms on average, beside up to 20 it takes 50 ms.
    assert!(finding(Load { longest: 85, ..load }.record()).is_some());
    assert_eq!(finding(Load { longest: 95, ..load }.record()), None);
}

/// A server that answers 40 requests at once, after the 40 ms that it needs for all of them: even when few are open,
/// none is alone.
fn in_batches() -> CellRecord {
    let scene = (0..14 * 40 + 5_u64).fold(Scene::new(Protocol::H2c), |scene, n| {
        let stream = 2 * n as u32 + 1;
        // The first five have the server to themselves.
        let (alone, sent) = (100 + 2 * n, 200 + n.saturating_sub(5) / 40 * 40);
        scene.waited(0, stream, if n < 5 { [alone, alone, alone + 1] } else { [200, sent, sent + 40] })
    });
    limited(scene, 40)
}

#[test]
fn a_server_that_ends_all_at_once_has_no_room_though_few_streams_are_open_for_a_moment() {
    assert_eq!(finding(in_batches()), None);
    // The same batches with a handler that sleeps: a request that is alone takes as long.
    let mut sleeps = in_batches();
    for sample in sleeps.samples.edit().iter_mut().take(5) {
        sample.completed_at = sample.sent_at + Duration::from_millis(40);
        sample.first_byte_at = sample.completed_at;
    }
    assert!(finding(sleeps).is_some());
}

#[test]
fn ten_requests_must_have_waited() {
    let waited = |count| finding(Load { count, ..SLOW_HANDLER }.record());
    assert!(waited(12).is_some());
    assert_eq!(waited(11), None);
}

#[test]
fn short_waits_are_not_worth_a_finding() {
    // The last one waits as long as the excess of all the services over a stream's share of the load.
    let with = |service| finding(Load { every: 25, service, count: 12, ..SLOW_HANDLER }.record());
    assert!(with(52).is_some());
    assert_eq!(with(51), None);
}

#[test]
fn what_looks_alike_is_silent() {
    type Change = fn(&mut CellRecord);
    let changes: [(Change, &str); 5] = [
        (|record| record.connections[0].http.settings_remote.clear(), "the server has no limit"),
        (|record| record.cell.streams = 1, "our own limit is lower"),
        (|record| record.generator.level = Level::Tail, "some requests are not recorded"),
        (|record| record.connections[0].ready_at = Time::from_millis(5_000), "they waited for a connection"),
        (
            |record| {
                let idle = ConnectionRecord { index: 1, ..record.connections[0].clone() };
                record.connections.push(idle);
            },
            "another connection had streams left",
        ),
    ];
    for (change, why) in changes {
        let mut record = SLOW_HANDLER.record();
        change(&mut record);
        assert_eq!(finding(record), None, "{why}");
    }
    assert_eq!(finding(Load { every: 30, ..SLOW_HANDLER }.record()), None, "the streams suffice");
}

#[test]
fn a_request_that_was_never_sent_waited_until_the_end() {
    let mut record = Load { count: 13, ..SLOW_HANDLER }.record();
    let before = finding(record.clone()).expect("a finding").cost_share;
    let mut cut = Sample::due(Time::from_millis(110), true);
    (cut.completed_at, cut.stall_open_ns) = (Time::from_millis(400), 290_000_000);
    record.samples.push(&cut);
    assert!(finding(record).expect("a finding").cost_share > before);
}

/// A closed loop with `in_flight` requests, whose service times vary as they do on loopback.
fn closed(in_flight: u32, limit: u32) -> CellRecord {
    let mut free = vec![100_u64; limit as usize];
    // When the request that this one follows ended: all are due at the beginning, then one after each end.
    let mut due = vec![100_u64; in_flight as usize];
    let scene = (0..600_u32).fold(Scene::new(Protocol::H2c), |scene, n| {
        let slot = (0..free.len()).min_by_key(|slot| free[*slot]).unwrap();
        let sent = free[slot].max(due[n as usize]);
        let end = sent + if n % 10 == 0 || n < 30 { 1 } else { 4 };
        free[slot] = end;
        due.push(end);
        scene.waited(0, 2 * n + 1, [due[n as usize], sent, end])
    });
    let mut record = limited(scene, limit);
    record.cell.connections = 1;
    record.cell.work.arrival = Arrival::Closed { concurrency: in_flight };
    record
}

#[test]
fn a_closed_loop_of_more_than_the_limit_is_the_plainest_case() {
    let found = finding(closed(20, 2)).expect("a finding");
    says(&found.symptom, "…since the server allows 2 streams on a connection…");
    assert!(found.cost_share > 0.8, "18 of 20 wait: {}", found.cost);
    assert_eq!(finding(closed(2, 2)), None, "as many as the limit: none waits");
    assert!(finding(closed(300, 99)).is_some());
    // The limit that the RFC recommends may be enough: then it must be known that more streams would help.
    assert_eq!(finding(closed(300, 100)), None);
}

#[test]
fn requests_that_were_refused_first_do_not_show_how_long_one_takes() {
    let refused = |replays| {
        let mut record = SLOW_HANDLER.record();
        for sample in record.samples.edit().iter_mut().step_by(3) {
            // Sent first, refused, and sent again two seconds later.
            (sample.replays, sample.completed_at) = (replays, sample.completed_at + Duration::from_secs(2));
        }
        finding(record)
    };
    assert!(refused(1).is_some());
    assert_eq!(refused(0), None, "a server that has no room for more");
}

#[test]
fn nobody_waits_longer_on_average_than_the_longest() {
    let mut record = SLOW_HANDLER.record();
    for n in 0..500 {
        let mut cut = Sample::due(Time::from_millis(110 + n), true);
        (cut.completed_at, cut.stall_open_ns) = (Time::from_millis(900), (790 - n) * 1_000_000);
        record.samples.push(&cut);
    }
    let found = finding(record).expect("a finding");
    says(&found.symptom, "538 requests waited in the client for 5… ms on average…");
}

/// A client alone with `in_flight` requests at a time on one connection, of which the server allows `limit`: each takes
/// 30 ms, and the next one is sent `pause` ms after it. One of them is always 1 ms later than the others.
fn alone(in_flight: u32, limit: Option<u32>, requests: u32, pause: u64) -> CellRecord {
    let scene = (0..requests).fold(Scene::new(Protocol::H2c), |scene, n| {
        let sent = 100 + u64::from(n / in_flight) * (30 + pause) + u64::from(n % in_flight == 1);
        scene.request(0, 2 * n + 1, sent, sent + 30, sent + 30)
    });
    let mut record = scene.allows(limit).record();
    record.cell.connections = 1;
    record
}

fn held(record: CellRecord) -> Option<Finding> {
    testing::found_alone("MUX101", record)
}

#[test]
fn a_client_that_fills_the_limit_and_refills_it_is_taken_to_be_held_back() {
    let record = alone(2, Some(2), 30, 0);
    assert_eq!(finding(record.clone()), None, "none is known to have waited");
    let found = held(record).expect("a finding");
    says(
        &found.symptom,
        "the client had as many requests in flight as the server allows on a connection, 2, for …",
    );
    assert_eq!(found.confidence, Confidence::Inferred);
    assert!(found.cost_share > 0.9, "{}", found.symptom);
    assert!(held(alone(99, Some(99), 99 * 8, 0)).is_some());
}

#[test]
fn a_client_below_the_limit_or_with_few_requests_or_pauses_is_not_held_back() {
    let mut several = alone(2, Some(2), 30, 0);
    several.cell.connections = 2;
    for (record, why) in [
        (alone(1, Some(1), 30, 0), "one request after another"),
        (alone(10, Some(11), 100, 0), "a stream is left"),
        (alone(8, Some(100), 100, 0), "healthy"),
        (alone(100, Some(100), 100 * 8, 0), "the limit that the RFC recommends"),
        (alone(2, None, 30, 0), "no limit"),
        (several, "it opens another connection instead"),
    ] {
        assert_eq!(held(record), None, "{why}");
    }
    // 30 rounds, in each of which the limit is reached for 29 ms: 870 of 1,713 or 1,742 ms.
    let batches = |pause| held(alone(2, Some(2), 60, pause));
    assert!(batches(28).is_some());
    assert_eq!(batches(29), None);
    assert!(held(alone(2, Some(2), 22, 4)).is_some(), "ten rounds after the first fill it");
    assert_eq!(held(alone(2, Some(2), 20, 4)), None, "nine do");
}

#[test]
fn all_requests_that_took_the_places_of_those_that_ended_are_counted() {
    let followed = |in_flight, requests| {
        let found = held(alone(in_flight, Some(in_flight), requests, 0)).expect("a finding");
        says(&found.symptom, "…and sent … only when one of these had ended");
        found.evidence[1].value
    };
    // The other four of each round end together, and four take their places.
    assert!((followed(5, 60) - 55.0).abs() < 1e-9);
    assert!((followed(2, 30) - 28.0).abs() < 1e-9);
}

#[test]
fn requests_after_which_a_stream_is_left_are_not_counted() {
    let mut record = alone(2, Some(2), 30, 0);
    let followed = |record: &CellRecord| held(record.clone()).expect("a finding").evidence[1].value;
    let before = followed(&record);
    let mut last = Sample::due(Time::from_millis(560), true);
    (last.sent_at, last.completed_at) = (Time::from_millis(560), Time::from_millis(561));
    record.samples.push(&last);
    assert!((followed(&record) - before).abs() < 1e-9);
}

#[test]
fn refused_streams_show_in_a_capture_that_the_client_wanted_more_than_the_limit() {
    let refused = |in_flight: u32, resets: &[(u32, u32)]| {
        let mut record = alone(in_flight, Some(2), 30, 0);
        record.generator.wall_ns = 0;
        record.connections[0].resets_received = resets.to_vec();
        record
    };
    let found = finding(refused(2, &[(7, 2)])).expect("a finding");
    says(
        &found.symptom,
        "the client had as many requests in flight as the server allows on a connection, 2, …",
    );
    says(&found.cost, "…: 2 streams that the server refused show that it wanted more at a time");
    assert_eq!(found.confidence, Confidence::Inferred);
    assert_eq!(finding(refused(2, &[(7, 1)])), None, "one may be chance");
    assert_eq!(finding(refused(2, &[(8, 9)])), None, "CANCEL");
    assert_eq!(finding(refused(1, &[(7, 9)])), None, "the limit was not reached otherwise");
    let mut ours = refused(2, &[(7, 9)]);
    ours.generator.wall_ns = 1;
    assert_eq!(finding(ours), None, "our own client shows what waited");
}
