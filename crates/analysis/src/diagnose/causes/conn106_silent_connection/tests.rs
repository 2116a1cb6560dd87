//! Both sides of every threshold.

use std::time::Duration;

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Confidence, Finding};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, CloseReason, Level, Outcome};
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("CONN106", record)
}

/// A connection that was idle for `idle` ms when a request was sent that hung for 10 s. Nothing came for `lasted` ms, in
/// which TCP sent `again` segments again, and 100 ms later a request on another connection was answered.
fn scene(idle: u64, lasted: u64, again: u32) -> CellRecord {
    let hung = 125 + idle;
    let scene = Scene::new(Protocol::H2c).no_link().request(0, 1, 100, 125, 125);
    let scene = scene.request(0, 3, hung, hung, hung + 10_000);
    let scene = scene.request(1, 1, hung + 100, hung + 125, hung + 125);
    let scene = (0..=again).fold(scene, |scene, n| scene.tick(0, hung + 10 * u64::from(n), n, false));
    let mut record = scene.tick(0, hung + lasted, again, false).record();
    record.frames.clear();
    for sample in record.samples.edit().iter_mut().filter(|sample| sample.stream.0 == 3) {
        (sample.outcome, sample.status, sample.first_byte_at) = (Outcome::Timeout, 0, Time::NEVER);
    }
    record
}

/// One that is found, changed.
fn changed(change: impl Fn(&mut CellRecord)) -> Option<Finding> {
    let mut record = scene(60_000, 9_000, 5);
    change(&mut record);
    finding(record)
}

#[test]
fn requests_on_an_idle_connection_that_fell_silent_hang_together() {
    let found = changed(|_| ()).expect("a finding");
    assert_eq!(
        found.symptom,
        "1 request hung on 1 connection that had been silent for 60 s or more: for up to 9 s no byte came and TCP sent 5 \
         segments again, while requests on other connections were answered"
    );
    assert_eq!((found.confidence, found.fixes.len()), (Confidence::Inferred, 2));
    assert!(found.cost_share > 0.99, "{}", found.cost);
    assert!(found.fixes[0].setting.contains("--keep-alive"), "{:?}", found.fixes);
    let pinging = changed(|record| record.cell.client.keep_alive = Some(Duration::from_secs(10)));
    assert_eq!(pinging.expect("a finding").fixes.len(), 1, "the client has it already");
}

#[test]
fn a_short_idle_time_a_short_silence_and_few_repeated_segments_are_none() {
    assert!(finding(scene(1_000, 1_000, 3)).is_some());
    assert_eq!(finding(scene(999, 1_000, 3)), None);
    assert_eq!(finding(scene(1_000, 999, 3)), None);
    assert_eq!(finding(scene(1_000, 1_000, 2)), None);
    let far = |lasted: u64| {
        let mut record = scene(60_000, lasted, 5);
        record.tcp.iter_mut().for_each(|tick| tick.rtt_us = 200_000);
        finding(record)
    };
    assert!(far(2_000).is_some());
    assert_eq!(far(1_999), None, "ten round trips");
}

#[test]
fn an_upload_that_is_acknowledged_is_not_silent() {
    let with = |rtt_us: u32| {
        changed(|record| record.tcp.last_mut().expect("there are ticks").rtt_us = rtt_us).is_some()
    };
    assert_eq!([25_000, 25_001].map(with), [true, false]);
}

#[test]
fn without_an_answer_on_another_connection_the_path_or_the_server_is_down() {
    let other = |sent: u64, first_byte: u64| {
        changed(|record| {
            for sample in record.samples.edit().iter_mut().filter(|sample| sample.connection == 1) {
                sample.sent_at = Time::from_millis(60_125 + sent);
                sample.first_byte_at = Time::from_millis(60_125 + first_byte);
                sample.completed_at = sample.first_byte_at;
            }
        })
    };
    assert!(other(0, 9_000).is_some());
    assert_eq!(other(0, 9_001), None);
    let before = changed(|record| record.samples.edit()[2].sent_at = Time::from_millis(60_124));
    assert_eq!(before, None, "it was sent before the silence");
}

#[test]
fn whatever_the_server_says_ends_the_silence() {
    let closed = |closed: CloseReason| {
        changed(|record| {
            record.connections[0].closed = closed.clone();
            record.connections[0].closed_at = Time::from_millis(69_125);
        })
    };
    let why = || "why".to_owned();
    assert!(closed(CloseReason::TimedOut { why: why() }).is_some());
    assert!(closed(CloseReason::Local { why: why() }).is_some());
    assert_eq!(closed(CloseReason::Reset { why: why() }), None);
    assert_eq!(closed(CloseReason::Server), None);
    let with_frame = |at: u64| {
        let frame = Scene::new(Protocol::H2c).frame(0, 1, at).record().frames.remove(0);
        changed(|record| record.frames = vec![frame])
    };
    assert!(with_frame(60_124).is_none(), "it was not idle");
    assert_eq!(with_frame(60_200), None);
    assert!(with_frame(125).is_some());
    let of_server = changed(|record| record.tcp.iter_mut().for_each(|tick| tick.server = true));
    assert_eq!(of_server, None, "the server's end repeats what we did not acknowledge");
}

#[test]
fn http1_unknown_answers_and_a_cost_that_is_not_worth_it_are_none() {
    assert_eq!(changed(|record| record.cell.protocol = Protocol::H1), None);
    assert_eq!(changed(|record| record.generator.level = Level::Tail), None);
    let beside = |long: u64| {
        changed(|record| {
            let mut other = record.samples.get(0).expect("there are three");
            (other.connection, other.completed_at) = (1, Time::from_millis(100 + long));
            record.samples.push(&other);
        })
    };
    assert!(beside(189_000).is_some());
    assert_eq!(beside(191_000), None, "less than 5 %");
}
