//! Both sides of every threshold. The link's round trip is 25 ms, so the least stall is 12.5 ms and the slack 6.25 ms.
#![allow(clippy::float_cmp, reason = "counts and halves of milliseconds are exact in binary")]

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Confidence, Finding, findings, run};
use crate::stats::{CellSummary, CellVerdict, Conclusion, verdict_on};
use h2lab_model::Fix;
use h2lab_model::record::testing::cell;
use h2lab_model::record::{Level, PacketFate};
use h2lab_model::scenario::{Sidecar, Target};
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::Direction;

const UP: Direction = Direction::Up;
const DOWN: Direction = Direction::Down;

fn finding(scene: Scene) -> Option<Finding> {
    testing::found("LOSS101", scene.record())
}

fn value(finding: &Finding, what: &str) -> f64 {
    finding.evidence.iter().find(|evidence| evidence.what.contains(what)).expect(what).value
}

#[test]
fn a_drop_that_stalls_two_streams_is_found_with_its_cost() {
    let finding = finding(Scene::with_shared_stall()).expect("a finding");
    // Streams 3 and 5 were due at 125 ms; the hole delays frames from 125.5 ms to 154.5 ms; frames come at 155 ms.
    assert_eq!(value(&finding, "shared stalls"), 1.0);
    assert_eq!(value(&finding, "in flight per shared stall"), 2.0);
    assert_eq!(value(&finding, "dropped segments"), 1.0);
    assert_eq!(value(&finding, "stream-time"), 59.0);
    assert_eq!(finding.symptom, "1 stall, 29.5 ms long and shared by 2 streams, began at 1 drop");
    assert!((finding.cost_share - 59.0 / 135.0).abs() < 1e-9, "{}", finding.cost_share);
    assert_eq!(finding.confidence, Confidence::Observed);
    let longest = finding.evidence.last().unwrap();
    assert_eq!((longest.connection, longest.value), (Some(0), 29.5));
    assert!(finding.confirm.starts_with("h2lab compare --proto h1,h2c -c 1,4,16: "), "{}", finding.confirm);
}

#[test]
fn the_confirming_experiment_names_the_target_and_the_loss() {
    let mut record = Scene::with_shared_stall().record();
    record.cell = cell(0, 0, Protocol::H2, 2, 0.03);
    record.cell.target = Target::Sut { name: "nginx".to_owned() };
    let confirm = run(&[record]).remove(0).confirm;
    let command = "h2lab compare --origin nginx --proto h1,h2 -c 2,8,32 --loss 0%,3%: ";
    assert!(confirm.starts_with(command), "{confirm}");
}

#[test]
fn a_lost_request_segment_stalls_the_answers_behind_it() {
    let scene = Scene::new(Protocol::H2c)
        .request(0, 1, 50, 75, 75)
        .request(0, 3, 100, 155, 155)
        .request(0, 5, 101, 155, 155)
        .drop(UP, 0, 100, 9)
        .deliver(UP, 0, 130, 9);
    assert_eq!(value(&finding(scene).expect("a finding"), "dropped segments"), 1.0);
}

/// Two bodies of `bytes` bytes come from 1 s to 6 s without a record of frames, while the server sends a segment again.
fn long_bodies(bytes: u64, is_bulk: bool) -> Option<Finding> {
    let scene =
        Scene::new(Protocol::H2c).no_link().request(0, 1, 975, 1_000, 6_000).request(0, 3, 975, 1_000, 6_000);
    let mut record = scene.tick(0, 5_900, 0, true).tick(0, 6_000, 1, true).record();
    record.frames.clear();
    record.generator.level = Level::Full;
    record.cell.work.bulk = is_bulk;
    record.samples.edit().iter_mut().for_each(|sample| sample.body_bytes = bytes);
    testing::found("LOSS101", record)
}

#[test]
fn bodies_that_came_meanwhile_did_not_wait_for_a_segment() {
    assert!(long_bodies(200_000, false).is_some(), "40 kB/s may be a stall of seconds");
    assert_eq!(long_bodies(1 << 30, false), None, "1.7 Gbit/s are none");
    assert_eq!(long_bodies(200_000, true), None, "bulk work has no waiting requests");
}

#[test]
fn the_same_stall_without_a_drop_is_the_servers() {
    let scene = Scene::new(Protocol::H2c)
        .request(0, 1, 100, 125, 125)
        .request(0, 3, 100, 155, 155)
        .request(0, 5, 100, 155, 155);
    assert_eq!(finding(scene), None);
}

#[test]
fn one_stream_per_connection_shares_nothing() {
    let scene = Scene::new(Protocol::H1)
        .request(0, 1, 100, 155, 155)
        .request(1, 1, 100, 155, 155)
        .drop(DOWN, 0, 113, 5)
        .deliver(DOWN, 0, 142, 5)
        .drop(DOWN, 1, 113, 5)
        .deliver(DOWN, 1, 142, 5);
    assert_eq!(finding(scene), None);
}

#[test]
fn a_drop_on_another_connection_explains_nothing() {
    let scene = Scene::new(Protocol::H2c)
        .connections(2)
        .request(0, 1, 100, 125, 125)
        .request(0, 3, 100, 155, 155)
        .request(0, 5, 100, 155, 155)
        .drop(DOWN, 1, 113, 5)
        .deliver(DOWN, 1, 142, 5);
    assert_eq!(finding(scene), None);
}

/// The server pauses from 125 ms to 625 ms with two open streams; a drop in either direction happens at `at` and is
/// repaired 30 ms later.
fn pause_with_drop(direction: Direction, at: u64) -> Scene {
    Scene::new(Protocol::H2c)
        .request(0, 1, 90, 115, 115)
        .request(0, 3, 100, 625, 625)
        .request(0, 5, 100, 625, 625)
        .drop(direction, 0, at, 5)
        .deliver(direction, 0, at + 30, 5)
}

#[test]
fn a_drop_at_the_begin_in_the_middle_or_at_the_end_of_a_pause_is_not_blamed_for_it() {
    for direction in [UP, DOWN] {
        for at in [100, 113, 300, 570, 580, 583, 590, 600] {
            assert_eq!(finding(pause_with_drop(direction, at)), None, "a drop at {at} ms, {direction:?}");
        }
    }
}

#[test]
fn a_stall_must_end_when_the_hole_is_repaired() {
    // The repair takes effect at 154.5 ms; the slack is 6.25 ms.
    let resumed_at = |at| {
        Scene::new(Protocol::H2c)
            .request(0, 1, 100, 125, 125)
            .request(0, 3, 100, at, at)
            .request(0, 5, 100, at, at)
            .drop(DOWN, 0, 113, 5)
            .deliver(DOWN, 0, 142, 5)
    };
    assert!(finding(resumed_at(160)).is_some());
    assert_eq!(finding(resumed_at(161)), None);
    assert!(finding(resumed_at(149)).is_some(), "we may have read a little earlier than the link says");
    assert_eq!(finding(resumed_at(148)), None);
}

#[test]
fn holes_must_cover_half_of_the_stall() {
    // The streams are due at 125 ms; the dropped segment would have arrived 12.5 ms after `at`; frames come again at
    // 175 ms.
    let dropped_at = |at| {
        Scene::new(Protocol::H2c)
            .request(0, 1, 100, 125, 125)
            .request(0, 3, 100, 175, 175)
            .request(0, 5, 100, 175, 175)
            .drop(DOWN, 0, at, 5)
            .deliver(DOWN, 0, 162, 5)
    };
    assert!(finding(dropped_at(137)).is_some());
    assert_eq!(finding(dropped_at(138)), None);
}

#[test]
fn a_stall_shorter_than_half_a_round_trip_is_none() {
    let length = |ms: u64| {
        Scene::new(Protocol::H2c)
            .request(0, 1, 100, 125, 125)
            .request(0, 3, 100, 125 + ms, 125 + ms)
            .request(0, 5, 100, 125 + ms, 125 + ms)
            .drop(DOWN, 0, 112, 5)
            .deliver(DOWN, 0, 112 + ms, 5)
    };
    assert!(finding(length(13)).is_some());
    assert_eq!(finding(length(12)), None);
}

#[test]
fn a_second_hole_behind_the_first_goes_on_with_the_stall() {
    // Two segments are lost together; the first repair brings a frame, the second the other two.
    let scene = Scene::new(Protocol::H2c)
        .request(0, 1, 100, 125, 125)
        .request(0, 3, 100, 155, 155)
        .request(0, 5, 100, 255, 255)
        .request(0, 7, 100, 255, 255)
        .drop(DOWN, 0, 113, 10_000)
        .drop(DOWN, 0, 114, 20_000)
        .deliver(DOWN, 0, 142, 10_000)
        .deliver(DOWN, 0, 242, 20_000);
    let finding = finding(scene).expect("a finding");
    assert_eq!((value(&finding, "shared stalls"), value(&finding, "dropped segments")), (2.0, 3.0));
    // 29.5 ms on three streams and 100 ms on two.
    assert_eq!(value(&finding, "stream-time"), 3.0 * 29.5 + 2.0 * 100.0);
}

#[test]
fn a_hole_that_is_never_repaired_stalls_to_the_end() {
    let scene = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 125).drop(DOWN, 0, 113, 5);
    let mut record = scene.request(0, 3, 100, 900, 900).request(0, 5, 100, 900, 900).record();
    record.frames.truncate(1);
    let findings = run(&[record]);
    assert_eq!(value(&findings[0], "stream-time"), 2.0 * 774.5);
}

/// Over a live network: two streams wait from 125 ms to `until` ms; the retransmission counter of one end rises between
/// 140 and 150 ms.
fn live(until: u64, server: bool) -> Scene {
    Scene::new(Protocol::H2)
        .no_link()
        .request(0, 1, 100, 125, 125)
        .request(0, 3, 100, until, until)
        .request(0, 5, 100, until, until)
        .tick(0, 140, 0, server)
        .tick(0, 150, 1, server)
}

#[test]
fn without_a_packet_log_a_retransmission_one_way_before_the_end_infers_it() {
    let finding = finding(live(160, true)).expect("a finding");
    assert_eq!(finding.confidence, Confidence::Inferred);
    assert_eq!(finding.symptom, "1 stall, 35 ms long and shared by 2 streams, ended with 1 retransmission");
    assert_eq!(value(&finding, "retransmitted segments"), 1.0);
}

#[test]
fn without_a_packet_log_the_time_of_the_retransmission_must_fit() {
    // A segment from the server takes 12.5 ms to us, and a segment from the client 25 ms until its answer, with 6.25 ms
    // of slack.
    for (server, latest) in [(true, 168), (false, 181)] {
        assert!(finding(live(latest, server)).is_some());
        assert_eq!(finding(live(latest + 1, server)), None);
    }
    assert_eq!(finding(live(149, true)), None, "less than a round trip: too soon for a loss to be noticed");
    assert!(finding(live(150, true)).is_some());
}

#[test]
fn with_a_packet_log_retransmissions_prove_nothing() {
    let scene = Scene::new(Protocol::H2c)
        .request(0, 1, 100, 125, 125)
        .request(0, 3, 100, 160, 160)
        .request(0, 5, 100, 160, 160)
        .tick(0, 140, 0, true)
        .tick(0, 150, 1, true);
    assert_eq!(finding(scene), None);
}

#[test]
fn bbr_is_advised_only_where_it_is_not_in_force() {
    let settings = |congestion: Option<&str>| {
        let mut record = Scene::with_shared_stall().record();
        record.cell.congestion = congestion.map(str::to_owned);
        let found = run(&[record]).remove(0);
        found.fixes.into_iter().map(|fix| fix.setting).collect::<Vec<_>>()
    };
    let bbr = "sysctl -w net.ipv4.tcp_congestion_control=bbr";
    assert_eq!(settings(None), ["more connections (-c 16)", bbr, "HTTP/1.1 on lossy paths (--proto h1)"]);
    assert!(settings(Some("cubic")).iter().any(|setting| setting == bbr));
    assert_eq!(settings(Some("bbr")).len(), 2);
}

#[test]
fn drops_of_a_full_queue_make_no_lossy_path() {
    let of = |fate: PacketFate| {
        let mut record = Scene::with_shared_stall().drop(DOWN, 0, 1_000, 90_000).record();
        let mut dropped = record.packets.iter_mut().filter(|packet| packet.fate == PacketFate::Lost);
        dropped.next().expect("there are two").fate = PacketFate::TailDropped;
        dropped.next().expect("there are two").fate = fate;
        testing::found("LOSS101", record).expect("a finding")
    };
    let full = of(PacketFate::TailDropped);
    assert!(full.symptom.ends_with("began at 1 drop at a full queue"), "{}", full.symptom);
    let words = |found: &Finding| found.fixes.iter().map(Fix::line).collect::<Vec<_>>().join("\n");
    assert!(words(&full).contains("does not fill the queue"), "{}", words(&full));
    assert!(!words(&full).contains("loss") && full.fixes.len() == 2, "{}", words(&full));
    let random = of(PacketFate::Lost);
    assert!(random.symptom.ends_with("began at 1 drop"), "{}", random.symptom);
    assert!(words(&random).contains("HTTP/1.1 on lossy paths"), "{}", words(&random));
}

#[test]
fn without_recorded_frames_the_answers_show_the_stall_if_all_requests_were_recorded() {
    let found = |level: Level| {
        let mut record = live(160, false).request(0, 7, 300, 325, 325).record();
        record.frames.clear();
        record.generator.level = level;
        testing::found("LOSS101", record)
    };
    assert_eq!(found(Level::Full).expect("a finding").confidence, Confidence::Inferred);
    assert_eq!(found(Level::Tail), None, "what was not recorded may have come in between");
}

/// One drop and one stall of 45 ms, in which two streams wait 44.5 ms each, and `others` requests of 25 ms that have
/// nothing to do with it.
fn one_stall_beside(others: u32) -> Scene {
    let scene = Scene::new(Protocol::H2c)
        .request(0, 1, 100, 125, 125)
        .request(0, 3, 100, 170, 170)
        .request(0, 5, 100, 170, 170)
        .drop(DOWN, 0, 113, 5_000)
        .deliver(DOWN, 0, 157, 5_000);
    (0..others).fold(scene, |scene, n| {
        let at = 1_000 + 30 * u64::from(n);
        scene.request(1, 2 * n + 1, at, at + 25, at + 25)
    })
}

#[test]
fn one_drop_and_one_stall_are_a_finding_only_if_they_cost_a_twentieth_of_the_response_time() {
    // 89 ms of 165 ms and 25 ms for each other request: 5.04 % beside 64 of them, and 4.97 % beside 65.
    let found = finding(one_stall_beside(64)).expect("a finding");
    assert_eq!((value(&found, "shared stalls"), value(&found, "stream-time")), (1.0, 89.0));
    assert_eq!(finding(one_stall_beside(65)), None);
}

#[test]
fn where_http1_was_quicker_a_fiftieth_is_enough() {
    let mut twin = Scene::new(Protocol::H1).request(0, 1, 100, 125, 125).record();
    twin.cell.index = 1;
    let is_found = |others| {
        let record = one_stall_beside(others).record();
        let [of_twin, of_record] = [&twin, &record].map(|record| CellSummary::of(&[record]));
        let verdict = CellVerdict { conclusion: Conclusion::Slower, ..verdict_on(&of_twin, &of_record, 1) };
        findings(&[record, twin.clone()], &[verdict]).iter().any(|finding| finding.rule == "LOSS101")
    };
    // 2.005 % and 1.993 %.
    assert_eq!([171, 172].map(is_found), [true, false]);
}

#[test]
fn http1_is_a_fix_only_where_its_tail_was_shorter() {
    let is_offered = |http1_took: u64| {
        let mut twin =
            Scene::new(Protocol::H1).request(0, 1, 100, 100 + http1_took, 100 + http1_took).record();
        twin.cell.index = 1;
        let record = one_stall_beside(0).record();
        let [of_twin, of_record] = [&twin, &record].map(|record| CellSummary::of(&[record]));
        let verdict = CellVerdict { conclusion: Conclusion::Slower, ..verdict_on(&of_twin, &of_record, 1) };
        let found = findings(&[record, twin], &[verdict]);
        let found = found.iter().find(|finding| finding.rule == "LOSS101").expect("a finding");
        found.fixes.iter().any(|fix| fix.setting.starts_with("HTTP/1.1"))
    };
    assert_eq!([69, 70, 71].map(is_offered), [true, false, false], "the slowest take 70 ms");
}

/// Requests on three connections to a sidecar, whose connection over the link, on another port, loses a segment or not;
/// a second one carries a segment at `other` ms.
fn behind_a_sidecar(is_lost: bool, other: Option<u64>) -> Option<Finding> {
    let scene = Scene::new(Protocol::H2c).connections(10).request(0, 1, 100, 125, 125);
    let scene = scene.request(1, 1, 100, 155, 155).request(2, 1, 100, 155, 155);
    let scene = scene.deliver(Direction::Up, 9, 100, 300).deliver(Direction::Down, 9, 112, 3_000);
    let scene = if is_lost { scene.drop(Direction::Down, 9, 113, 5_000) } else { scene };
    let scene = scene.deliver(Direction::Down, 9, 142, 5_000);
    let scene = other.into_iter().fold(scene, |scene, at| scene.deliver(Direction::Down, 10, at, 700));
    let mut record = scene.record();
    record.cell.sidecar = Some(Sidecar { name: "haproxy".to_owned(), warm_pool: 3, max_connections: 3 });
    testing::found("LOSS101", record)
}

#[test]
fn a_cell_with_a_sidecar_gets_its_diagnosis_from_the_hop_that_crosses_the_link() {
    let finding = behind_a_sidecar(true, None).unwrap();
    assert_eq!(finding.confidence, Confidence::Observed);
    assert!(finding.symptom.ends_with("on the sidecar's connection over the link"), "{}", finding.symptom);
    assert!(finding.confirm.contains("--topology sidecar --sidecar haproxy"), "{}", finding.confirm);
    assert_eq!(behind_a_sidecar(false, None), None, "the server paused");
    assert_eq!(behind_a_sidecar(true, Some(130)), None, "which connection a request went over is not known");
    assert!(behind_a_sidecar(true, Some(90)).is_some(), "the other had been used before");
}
