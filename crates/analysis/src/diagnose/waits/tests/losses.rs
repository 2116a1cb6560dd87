//! Lost segments: whose bytes they had, and how they were repaired.

use super::*;
use crate::diagnose::waits::{Cause, CauseKind, Repair, Whose};
use h2lab_model::record::PacketFate;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::Direction::{Down, Up};

/// A connection with HTTP/2's preface exchanged; what follows may begin at 50 ms.
fn http2() -> Scene {
    let mut scene = Scene::connected();
    scene.send(Up, 20, &hello());
    scene.send(Down, 30, &settings(setting::MAX_CONCURRENT_STREAMS, 100));
    scene.ack(Up, 40, true);
    scene
}

#[test]
fn a_request_that_nothing_holds_up_is_propagation_and_server() {
    let mut scene = http2();
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 115, &[headers(1, None, false), data(1, 100, true)].concat());
    scene.request(1, 100, 125);
    assert_eq!(
        scene.rendered(0),
        ["100..110 the propagation", "110..115 the server", "115..125 the propagation"]
    );
    assert_eq!(scene.dominant(0), CauseKind::Server);
}

#[test]
fn an_own_segment_that_later_ones_reveal_is_a_fast_retransmit() {
    let mut scene = http2();
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 110, &[headers(1, None, false), data(1, 100, false)].concat());
    let lost = scene.lose(Down, 110, &data(1, 1000, false));
    scene.send(Down, 110, &data(1, 1000, false));
    scene.send(Down, 110, &data(1, 1000, true));
    scene.ack(Up, 120, true);
    scene.again(&lost, 130, true);
    scene.request(1, 100, 140);
    let expected = ["100..120 the propagation", "120..140 its own lost segment (down 3), fast retransmit"];
    assert_eq!(scene.rendered(0), expected, "up and down without a pause are one");
    assert_eq!(scene.dominant(0), CauseKind::OwnLoss);
}

#[test]
fn bytes_behind_another_streams_lost_segment_wait_for_it() {
    let mut scene = http2();
    let lost = scene.lose(Up, 100, &headers(1, Some(0), true));
    scene.request(1, 100, 163);
    scene.send(Up, 103, &headers(3, Some(1), true));
    scene.request(3, 103, 163);
    scene.ack(Down, 113, true);
    scene.again(&lost, 123, true);
    scene.send(Down, 135, &[headers(1, None, true), headers(3, None, true)].concat());
    scene.send(Up, 140, &headers(5, Some(2), true));
    scene.request(5, 140, 160);
    scene.send(Down, 150, &headers(5, None, true));
    let own = "110..133 its own lost segment (up 4), fast retransmit";
    let other = "113..133 stream 1's lost segment (up 4), fast retransmit";
    assert_eq!(scene.rendered(0)[..2], ["100..110 the propagation", own]);
    assert_eq!(scene.rendered(1)[..2], ["103..113 the propagation", other]);
    assert_eq!(
        scene.rendered(1)[2..],
        ["133..135 the server", "135..145 the propagation", "145..163 the client"]
    );
    assert_eq!(scene.rendered(2), ["140..160 the propagation"], "it came behind the repair");
    let waits = scene.waits();
    assert_eq!(
        (waits.breakdowns[0].dominant, waits.breakdowns[1].dominant),
        (CauseKind::OwnLoss, CauseKind::HeadOfLine)
    );
    let main = waits.breakdowns[1].main().unwrap().cause;
    assert_eq!(main.drop().map(|drop| (drop.direction, drop.index)), Some((Up, lost.index)));
    let whose = Whose::Other { stream: 1, id: Some(0) };
    assert!(matches!(main, Cause::Loss { whose: rendered, .. } if rendered == whose));
}

#[test]
fn bytes_before_a_lost_segment_do_not_wait_for_it() {
    let mut scene = http2();
    scene.send(Up, 100, &[headers(1, Some(0), true), headers(3, Some(1), true)].concat());
    scene.send(Down, 110, &headers(1, None, true));
    let lost = scene.lose(Down, 111, &headers(3, None, true));
    scene.request(1, 100, 120);
    scene.request(3, 100, 350);
    scene.again(&lost, 340, true);
    assert_eq!(scene.rendered(0), ["100..120 the propagation"]);
    let own = "121..350 its own lost segment (down 3), retransmission timeout";
    assert_eq!(scene.rendered(1).last().unwrap(), own);
}

#[test]
fn silence_distinguishes_a_timeout_from_a_probe() {
    for (again, repair) in [(150, "tail-loss probe"), (321, "retransmission timeout")] {
        let mut scene = http2();
        let lost = scene.lose(Up, 100, &headers(1, Some(0), true));
        scene.again(&lost, again, true);
        scene.send(Down, again + 10, &headers(1, None, true));
        scene.request(1, 100, again + 20);
        let expected = format!("110..{} its own lost segment (up 4), {repair}", again + 10);
        assert_eq!(scene.rendered(0)[1], expected);
    }
}

#[test]
fn a_revealed_loss_may_wait_for_the_time_of_reordering_and_is_no_probe() {
    for (again, repair) in [(134, "fast retransmit"), (320, "retransmission timeout")] {
        let mut scene = http2();
        let lost = scene.lose(Up, 100, &headers(1, Some(0), true));
        scene.send(Up, 100, &headers(3, Some(1), true));
        scene.ack(Down, 110, true);
        scene.again(&lost, again, true);
        scene.send(Down, again + 10, &headers(1, None, true));
        scene.request(1, 100, again + 20);
        let expected = format!("110..{} its own lost segment (up 4), {repair}", again + 10);
        assert_eq!(scene.rendered(0)[1], expected);
    }
}

#[test]
fn a_loss_that_is_revealed_late_is_a_fast_retransmit_all_the_same() {
    let mut scene = http2();
    let lost = scene.lose(Up, 100, &headers(1, Some(0), true));
    scene.request(1, 100, 322);
    scene.send(Up, 282, &headers(3, Some(1), true));
    scene.ack(Down, 292, true);
    scene.again(&lost, 302, true);
    scene.send(Down, 312, &headers(1, None, true));
    assert_eq!(scene.rendered(0)[1], "110..312 its own lost segment (up 4), fast retransmit");
}

#[test]
fn a_retransmission_that_is_lost_too_is_a_cause_of_its_own() {
    let mut scene = http2();
    let lost = scene.lose(Up, 100, &headers(1, Some(0), true));
    scene.send(Up, 100, &headers(3, Some(1), true));
    scene.ack(Down, 110, true);
    scene.again(&lost, 120, false);
    scene.again(&lost, 345, true);
    scene.send(Down, 355, &[headers(1, None, true), headers(3, None, true)].concat());
    scene.request(1, 100, 365);
    scene.request(3, 100, 365);
    let own = [
        "100..110 the propagation",
        "110..130 its own lost segment (up 4), fast retransmit",
        "130..355 its own lost segment (up 6), retransmission timeout",
        "355..365 the propagation",
    ];
    assert_eq!(scene.rendered(0), own);
    let other = "130..355 stream 1's lost segment (up 6), retransmission timeout";
    assert_eq!(scene.rendered(1)[2], other);
    assert_eq!(scene.waits().split.repairs_ns[&Repair::Timeout], 2 * 225_000_000);
}

#[test]
fn a_loss_that_was_never_repaired_lasts_to_the_end() {
    let mut scene = http2();
    scene.lose(Up, 100, &headers(1, Some(0), true));
    scene.request(1, 100, 900);
    assert_eq!(
        scene.rendered(0),
        ["100..110 the propagation", "110..900 its own lost segment (up 4), no repair"]
    );
}

#[test]
fn a_damaged_packet_is_a_lost_one() {
    let mut scene = http2();
    let damaged = scene.send(Up, 100, &headers(1, Some(0), true));
    scene.packets().last_mut().unwrap().0.marks.corrupt = Some(77);
    scene.again(&damaged, 330, true);
    scene.send(Down, 340, &headers(1, None, true));
    scene.request(1, 100, 350);
    assert_eq!(scene.rendered(0)[1], "110..340 its own lost segment (up 4), retransmission timeout");
}

#[test]
fn a_copy_of_a_lost_packet_stands_for_it() {
    let mut scene = http2();
    let lost = scene.lose(Up, 100, &headers(1, Some(0), true));
    let (mut copy, bytes) = scene.packets().last().unwrap().clone();
    (copy.out_at, copy.fate, copy.marks.is_copy) = (ms(112), PacketFate::Delivered, true);
    assert_eq!(copy.index, lost.index);
    scene.packets().push((copy, bytes));
    scene.send(Down, 112, &headers(1, None, true));
    scene.request(1, 100, 122);
    let expected = ["100..110 the propagation", "110..112 the link queue", "112..122 the propagation"];
    assert_eq!(scene.rendered(0), expected);
}

#[test]
fn an_acknowledgement_that_is_lost_is_nobodys_cause() {
    let mut scene = http2();
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.ack(Down, 110, false);
    scene.send(Down, 150, &headers(1, None, true));
    scene.ack(Up, 160, false);
    scene.request(1, 100, 160);
    assert_eq!(
        scene.rendered(0),
        ["100..110 the propagation", "110..150 the server", "150..160 the propagation"]
    );
}

#[test]
fn a_lost_frame_of_the_connection_blocks_streams_too() {
    let mut scene = http2();
    let lost = scene.lose(Down, 90, &settings(setting::MAX_CONCURRENT_STREAMS, 50));
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 110, &headers(1, None, true));
    scene.ack(Up, 120, true);
    scene.again(&lost, 130, true);
    scene.request(1, 100, 140);
    let expected = "120..140 a lost segment of the connection's frames (down 2), fast retransmit";
    assert_eq!(scene.rendered(0)[1], expected);
}

#[test]
fn a_packet_that_was_overtaken_holds_up_what_came_before_it() {
    let mut scene = http2();
    scene.send_until(Up, 100, Some(140), &headers(1, Some(0), true));
    scene.send(Up, 101, &headers(3, Some(1), true));
    scene.send(Down, 140, &[headers(1, None, true), headers(3, None, true)].concat());
    scene.request(1, 100, 150);
    scene.request(3, 101, 150);
    let own = ["100..110 the propagation", "110..140 the link queue", "140..150 the propagation"];
    assert_eq!(scene.rendered(0), own);
    let other = ["101..111 the propagation", "111..140 the link queue", "140..150 the propagation"];
    assert_eq!(scene.rendered(1), other);
}

#[test]
fn what_the_link_takes_beyond_its_delay_is_its_queue() {
    let mut scene = http2();
    scene.send_until(Up, 100, Some(135), &headers(1, Some(0), true));
    scene.send_until(Down, 135, Some(150), &headers(1, None, true));
    scene.request(1, 100, 150);
    let expected = [
        "100..110 the propagation",
        "110..135 the link queue",
        "135..145 the propagation",
        "145..150 the link queue",
    ];
    assert_eq!(scene.rendered(0), expected);
    assert_eq!(scene.dominant(0), CauseKind::Queue);
}

#[test]
fn a_probe_of_the_last_segment_reveals_the_loss_of_the_one_before() {
    let mut scene = http2();
    let first = scene.lose(Up, 100, &headers(1, Some(0), true));
    let second = scene.lose(Up, 101, &headers(3, Some(1), true));
    scene.again(&second, 143, true);
    scene.ack(Down, 153, true);
    scene.again(&first, 163, true);
    scene.send(Down, 173, &[headers(1, None, true), headers(3, None, true)].concat());
    scene.request(1, 100, 183);
    scene.request(3, 101, 183);
    assert_eq!(scene.rendered(0)[1], "110..173 its own lost segment (up 4), fast retransmit");
    let expected = [
        "111..153 its own lost segment (up 5), tail-loss probe",
        "153..173 stream 1's lost segment (up 4), fast retransmit",
    ];
    assert_eq!(scene.rendered(1)[1..3], expected);
}

#[test]
fn what_follows_a_timeout_step_by_step_is_its_doing() {
    let mut scene = http2();
    let first = scene.lose(Up, 100, &headers(1, Some(0), true));
    let second = scene.lose(Up, 100, &headers(3, Some(1), true));
    scene.again(&first, 325, true);
    scene.ack(Down, 335, true);
    scene.again(&second, 345, true);
    scene.send(Down, 355, &[headers(1, None, true), headers(3, None, true)].concat());
    scene.request(3, 100, 365);
    assert_eq!(scene.rendered(0)[1], "110..355 its own lost segment (up 5), retransmission timeout");
}
