//! When a server waits for a delayed acknowledgement, and when it has nothing to send.

use crate::diagnose::testing::{self, Scene, says};
use crate::diagnose::{Confidence, Finding, findings};
use crate::stats::{CellSummary, CellVerdict, Conclusion, verdict_on};
use h2lab_base::counters::TcpTick;
use h2lab_base::units::Time;
use h2lab_model::experiment::Knob;
use h2lab_model::record::{CellRecord, PacketFate};
use h2lab_model::scenario::Sidecar;
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::{Direction, FrameKind};

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("LOSS104", record)
}

/// `count` responses over a round trip of 25 ms. Each body arrives `after` ms after its head, and a bare
/// acknowledgement is sent `ack` ms after each head.
fn bodies(count: u32, after: impl Fn(u32) -> u64, ack: u64) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c);
    for n in 0..count {
        let sent = 100 + 200 * u64::from(n);
        let (head, body) = (sent + 25, sent + 25 + after(n));
        scene = scene.frame(0, 2 * n + 1, head).request(0, 2 * n + 1, sent, head, body);
        scene = scene.deliver(Direction::Up, 0, head + ack, 1);
    }
    let mut record = scene.record();
    for (n, frame) in record.frames.iter_mut().enumerate() {
        if n % 2 == 1 {
            frame.kind = FrameKind::DATA;
        }
    }
    for packet in &mut record.packets {
        (packet.payload, packet.fate) = (0, PacketFate::Delivered);
    }
    record
}

#[test]
fn bodies_that_follow_a_delayed_acknowledgement_were_held_back() {
    let mut record = bodies(30, |_| 66, 41);
    record.connections[0].server_software = Some("HAProxy/2.6".into());
    let found = finding(record).expect("a finding");
    says(&found.symptom, "30 pauses in the middle of a response, 66 ms on average…");
    assert_eq!(found.confidence, Confidence::Observed);
    assert_eq!(found.fixes[0].setting, "option http-no-delay");
    assert!((found.cost_share - 66.0 / 91.0).abs() < 0.01, "{}", found.cost);
}

#[test]
fn without_a_packet_log_their_length_tells() {
    let mut record = bodies(30, |_| 66, 41);
    record.link = None;
    record.packets.clear();
    assert_eq!(finding(record).expect("a finding").confidence, Confidence::Inferred);
}

#[test]
fn pauses_of_another_length_are_those_of_the_server() {
    let of = |after| finding(bodies(30, |_| after, after - 25));
    // A round trip of 25 ms and 36 to 48.
    assert!(of(61).is_some() && of(73).is_some());
    assert!(of(60).is_none() && of(74).is_none());
    let vary = finding(bodies(30, |n| 45 + 2 * u64::from(n), 41));
    assert_eq!(vary, None, "a handler whose time varies");
}

#[test]
fn a_request_takes_the_acknowledgement_along_before_it_is_due() {
    // Each body arrives a round trip after the next request, which is sent `after` ms after the head arrived.
    let of = |after: u64, late: u64| {
        let mut scene = Scene::new(Protocol::H2c);
        for n in 0..30 {
            let sent = 100 + (25 + after) * u64::from(n);
            let (head, body) = (sent + 25, sent + 25 + after + 25 + late);
            scene = scene.frame(0, 2 * n + 1, head).request(0, 2 * n + 1, sent, head, body);
        }
        let mut record = scene.record();
        for (n, frame) in record.frames.iter_mut().enumerate() {
            if n % 2 == 1 {
                frame.kind = FrameKind::DATA;
            }
        }
        record.frames.sort_by_key(|frame| frame.at);
        finding(record)
    };
    assert!(of(27, 0).is_some());
    assert_eq!(of(27, 6), None, "it comes after another time");
    assert_eq!(of(9, 0), None, "no pause beyond the round trip");
}

/// The findings about a record that is slower than one of HTTP/1.1, or equal to it.
fn against_http1(record: CellRecord, conclusion: Conclusion) -> Vec<Finding> {
    let mut other = Scene::new(Protocol::H1).request(0, 1, 100, 125, 125).record();
    other.cell.index = record.cell.index + 1;
    let [of_other, of_record] = [&other, &record].map(|one| CellSummary::of(&[one]));
    let verdict = CellVerdict { conclusion, ..verdict_on(&of_other, &of_record, 1) };
    findings(&[record, other], &[verdict])
}

#[test]
fn a_response_that_comes_with_the_answer_to_the_next_request_was_held_back_whole() {
    // The round trip is 25 ms, a request is sent every 52 ms, and its response comes `late` ms later than one of the next could.
    let of_sent = |late: u64, conclusion, replays: u8| {
        let mut scene = Scene::new(Protocol::H2c);
        for n in 0..30 {
            let sent = 100 + 52 * u64::from(n);
            let came = sent + 52 + 25 + late;
            scene = scene.request(0, 2 * n + 1, sent, came, came);
        }
        let mut record = scene.record();
        record.samples.edit().iter_mut().for_each(|sample| sample.replays = replays);
        against_http1(record, conclusion).into_iter().find(|finding| finding.rule == "LOSS104")
    };
    let of = |late: u64, conclusion| of_sent(late, conclusion, 0);
    let found = of(0, Conclusion::Slower).expect("a finding");
    assert!(found.symptom.starts_with("29 pauses before a response, 52 ms on average"), "{}", found.symptom);
    assert_eq!(of(6, Conclusion::Slower), None, "it comes after another time");
    assert_eq!(of(0, Conclusion::NoDifference), None, "HTTP/1.1 is no quicker: the server takes that long");
    assert_eq!(of_sent(0, Conclusion::Slower, 1), None, "they were sent again");
}

#[test]
fn at_many_requests_per_second_one_of_them_is_near_any_time_and_says_nothing() {
    // Responses that wait for 60 ms behind a lost segment, a request every `apart` ms, over a round trip of 25 ms.
    let of = |apart: u64, late: u64| {
        let mut scene = Scene::new(Protocol::H2c);
        for n in 0..200 {
            let sent = 100 + apart * u64::from(n);
            scene = scene.request(0, 2 * n + 1, sent, sent + 25 + late, sent + 25 + late);
        }
        let found = against_http1(scene.record(), Conclusion::Slower);
        found.into_iter().any(|finding| finding.rule == "LOSS104")
    };
    assert!(of(60, 60), "each comes with the answer to the next");
    assert!(!of(3, 60) && !of(6, 60));
    assert!(!of(75, 75), "no acknowledgement is delayed for so long");
}

#[test]
fn a_pause_that_no_acknowledgement_ends_is_the_servers() {
    assert!(finding(bodies(30, |_| 66, 37)).is_some());
    assert_eq!(finding(bodies(30, |_| 66, 36)), None, "it came 5 ms before");
    assert_eq!(finding(bodies(30, |_| 66, 46)), None, "and 5 ms after");
}

#[test]
fn twenty_pauses_that_cost_a_twentieth_are_wanted() {
    assert!(finding(bodies(20, |_| 66, 41)).is_some());
    assert_eq!(finding(bodies(19, |_| 66, 41)), None);
    let mut cheap = bodies(20, |_| 66, 41);
    cheap.samples.edit()[0].completed_at = Time::from_millis(60_000);
    assert_eq!(finding(cheap), None, "20 × 66 ms of a minute");
}

/// The same as [`bodies`] over a live network whose lowest round trip is `rtt_us`.
fn live(rtt_us: u32, count: u32, after: impl Fn(u32) -> u64) -> CellRecord {
    let mut record = bodies(count, after, 0);
    let at = Time::from_millis(50);
    record.tcp =
        vec![TcpTick { at, connection: 0, retransmits: 0, cwnd: 10, rtt_us, unacked: 0, server: false }];
    (record.cell.link, record.link) = (None, None);
    record.packets.clear();
    record
}

#[test]
fn bodies_one_round_trip_after_their_heads_waited_for_a_prompt_acknowledgement() {
    let found = finding(live(5_900, 19, |_| 6)).expect("a finding");
    says(&found.symptom, "the bodies of 19 small responses came one round trip after their heads, 6…ms on…");
    assert_eq!((found.confidence, found.fixes.len()), (Confidence::Inferred, 1));
    assert_eq!(found.unaffected_by, Some(Knob::QuickAcks));
    assert!((found.cost_share - 6.0 / 31.0).abs() < 0.01, "{}", found.cost);
    let delayed = finding(live(6_000, 20, |_| 46)).expect("a finding");
    says(&delayed.symptom, "20 pauses in the middle of a response…");
    assert_eq!(delayed.unaffected_by, None);
}

#[test]
fn a_handler_takes_a_time_that_is_not_the_round_trip() {
    let of = |rtt_us| finding(live(rtt_us, 19, |_| 6)).is_some();
    assert!(!of(20_000));
    assert!(of(5_300) && of(7_000), "15 %");
    assert!(!of(5_200) && !of(7_100));
    let short = |rtt_us| finding(live(rtt_us, 19, |_| 2)).is_some();
    assert!(short(2_000) && short(2_500), "half a millisecond");
    assert!(!short(1_999) && !short(2_501));
}

#[test]
fn ten_late_bodies_among_most_of_the_small_responses_are_wanted() {
    assert!(finding(live(6_000, 10, |_| 6)).is_some());
    assert_eq!(finding(live(6_000, 9, |_| 6)), None);
    let late = |count: u32| finding(live(6_000, 20, |n| if n < count { 6 } else { 0 })).is_some();
    assert!(late(12) && !late(11));
}

#[test]
fn bodies_of_several_segments_and_those_that_a_sidecar_passes_on_are_late_for_other_reasons() {
    let with = |length: u32, direction: Direction| {
        let mut record = live(6_000, 19, |_| 6);
        let mut data: Vec<_> =
            record.frames.iter().filter(|frame| frame.kind == FrameKind::DATA).copied().collect();
        for frame in &mut data {
            (frame.length, frame.direction) = (length, direction);
        }
        if direction == Direction::Down {
            record.frames.retain(|frame| frame.kind != FrameKind::DATA);
        }
        record.frames.extend(data);
        record.frames.sort_by_key(|frame| frame.at);
        finding(record).is_some()
    };
    for direction in [Direction::Down, Direction::Up] {
        assert!(with(1_400, direction) && !with(1_401, direction), "{direction:?}");
    }
    let mut behind = live(6_000, 19, |_| 6);
    let name = "envoy".to_owned();
    behind.cell.sidecar = Some(Sidecar { name, warm_pool: 1, max_connections: 1 });
    assert_eq!(finding(behind), None);
}

#[test]
fn in_a_packet_log_the_acknowledgement_of_the_head_left_at_once() {
    let found = finding(bodies(19, |_| 25, 4)).expect("a finding");
    assert_eq!(found.confidence, Confidence::Observed);
    assert_eq!(finding(bodies(19, |_| 25, 5)), None, "the body left before it");
}

#[test]
fn healthy_responses_have_no_pauses() {
    assert_eq!(finding(bodies(30, |_| 1, 41)), None);
}
