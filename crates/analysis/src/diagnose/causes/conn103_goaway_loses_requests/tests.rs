//! Both sides of every threshold.
#![allow(clippy::float_cmp, reason = "counts are exact in binary")]

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, CloseReason, Outcome};
use h2lab_model::workload::Protocol;
use h2lab_wire::ErrorCode;

const ANNOUNCEMENT: u32 = 0x7fff_ffff;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("CONN103", record)
}

/// Connection 0 gets a GOAWAY at 1,000 ms with `code` and this last stream; requests with these outcomes were in flight
/// on it, and `others` were answered on connection 1.
fn scene(last: u32, code: u32, outcomes: &[Outcome], others: u32) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c).connections(2).goaway(0, 1_000, last, code);
    for n in 0..outcomes.len() as u32 {
        scene = scene.request(0, 101 + 2 * n, 990, 1_000, 1_000);
    }
    for n in 0..others {
        let at = 2_000 + u64::from(n);
        scene = scene.request(1, 2 * n + 1, at, at + 25, at + 25);
    }
    let mut record = scene.record();
    for (sample, outcome) in record.samples.edit().iter_mut().zip(outcomes) {
        sample.outcome = *outcome;
    }
    record.cell.work.replay = false;
    record
}

#[test]
fn requests_above_the_last_stream_that_fail_are_lost_by_the_goaway() {
    let found =
        finding(scene(99, 0, &[Outcome::Refused, Outcome::Refused, Outcome::GoAway], 7)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server ended 1 connection by GOAWAY, and without announcing it; 3 requests failed (30.0 %), of which 2 may \
         be sent again since their streams were above the last of the GOAWAY"
    );
    assert_eq!(found.cost, "3 of 10 requests failed (30.0 %)");
    assert!((found.cost_share - 0.3).abs() < 1e-9 && found.of_failures);
    assert!(found.fixes[0].setting.contains("remove --no-replay"), "{:?}", found.fixes);
    assert_eq!(found.fixes.len(), 2, "and a graceful end");
}

#[test]
fn an_announced_end_needs_no_other_announcement() {
    let record = scene(ANNOUNCEMENT, 0, &[Outcome::GoAway, Outcome::GoAway], 1);
    let found = finding(record).expect("a finding");
    assert!(found.symptom.contains("0 of them without announcing it"), "{}", found.symptom);
    assert_eq!(found.fixes, [], "what was processed may not be repeated");
}

#[test]
fn a_client_that_closes_at_a_goaway_is_told_to_wait_for_what_the_server_still_answers() {
    let fixes = |closed: CloseReason, wall_ns: u64| {
        let mut record = scene(11, 0, &[Outcome::GoAway; 5], 1);
        record.connections[0].closed = closed;
        record.generator.wall_ns = wall_ns;
        let fixes = finding(record).expect("a finding").fixes;
        fixes.into_iter().filter(|fix| fix.why.contains("JDK-8335181")).count()
    };
    let closed = || CloseReason::Local { why: "the client closed it".to_owned() };
    assert_eq!(fixes(closed(), 0), 1);
    assert_eq!(fixes(closed(), 1), 0, "the client is our own");
    assert_eq!(fixes(CloseReason::Server, 0), 0, "the server cut them off");
}

#[test]
fn the_only_end_may_be_that_of_a_limit_and_of_several_conn101_tells() {
    let limits = |last: u32, ends: u32, server: &str| {
        let mut record = scene(last, 0, &[Outcome::GoAway; 5], 1);
        record.connections[0].server_software = Some(server.into());
        if ends > 1 {
            record.connections[1].goaways = record.connections[0].goaways.clone();
        }
        let fixes = finding(record).expect("a finding").fixes;
        let of_limit = fixes.into_iter().filter(|fix| fix.why.contains("if it is a limit"));
        of_limit.map(|fix| (fix.setting, fix.why)).collect::<Vec<_>>()
    };
    let found = limits(11, 1, "h2lab/0.1.0");
    let (setting, why) = found.first().expect("its own name");
    assert_eq!(setting, "--max-requests-per-connection 100000");
    assert!(why.contains("ended after 6 requests"), "{why}");
    assert!(limits(ANNOUNCEMENT, 1, "h2lab/0.1.0").is_empty(), "the last stream is not named");
    assert!(!limits(1, 1, "h2lab/0.1.0").is_empty());
    assert!(limits(0, 1, "h2lab/0.1.0").is_empty(), "it processed none");
    assert!(limits(11, 2, "h2lab/0.1.0").is_empty());
    assert!(limits(11, 1, "unheard of").is_empty(), "there is no setting to name");
}

#[test]
fn one_lost_request_or_one_in_a_thousand_is_none() {
    assert_eq!(finding(scene(99, 0, &[Outcome::Refused], 1)), None);
    assert!(finding(scene(99, 0, &[Outcome::Refused; 2], 1_998)).is_some());
    assert_eq!(finding(scene(99, 0, &[Outcome::Refused; 2], 1_999)), None);
}

#[test]
fn streams_that_were_refused_before_the_goaway_are_none() {
    let refused = |at: u64| {
        let mut record = scene(99, 0, &[Outcome::Refused; 3], 1);
        for sample in record.samples.edit().iter_mut().take(3) {
            (sample.code, sample.completed_at) = (ErrorCode::REFUSED_STREAM.0, Time::from_millis(at));
        }
        finding(record).is_some()
    };
    assert!(!refused(999), "for another reason");
    assert!(refused(1_000));
}

#[test]
fn other_failures_and_requests_that_were_sent_again_are_none() {
    assert_eq!(finding(scene(99, 0, &[Outcome::Succeeded; 3], 1)), None);
    assert_eq!(finding(scene(99, 0, &[Outcome::Timeout; 3], 1)), None);
    let mut given_up = scene(99, 0, &[Outcome::Refused; 3], 1);
    given_up.samples.edit().iter_mut().for_each(|sample| sample.replays = 1);
    assert_eq!(finding(given_up), None, "it was sent again");
    assert_eq!(finding(scene(99, 11, &[Outcome::Refused; 3], 1)), None, "ENHANCE_YOUR_CALM has other causes");
    let mut elsewhere = scene(99, 0, &[Outcome::Refused; 3], 1);
    elsewhere.samples.edit().iter_mut().for_each(|sample| sample.connection = 1);
    assert_eq!(finding(elsewhere), None, "their connection had no GOAWAY");
}
