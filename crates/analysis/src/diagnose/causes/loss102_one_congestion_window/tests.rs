//! Both sides of every threshold.

use std::time::Duration;

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene};
use h2lab_base::counters::TcpTick;
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, PacketFate};
use h2lab_model::scenario::Sidecar;
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::Direction;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("LOSS102", record)
}

/// `bodies` responses arrive from the 125th to the 325th millisecond over a path of 25 ms. The server's congestion
/// window of 10 segments is full, after a loss; data comes every 10 ms.
fn scene(protocol: Protocol, bodies: u32) -> CellRecord {
    let scene = (0..bodies).fold(Scene::new(protocol), |scene, n| scene.request(0, 2 * n + 1, 100, 125, 325));
    let scene = (0..20).fold(scene, |scene, n| scene.frame(0, 1, 130 + 10 * n));
    let scene = (0..40).fold(scene, |scene, n| scene.tick(0, 10 * n, 1, true));
    let mut record = scene.record();
    record.tcp.iter_mut().for_each(|tick| tick.unacked = 9);
    record
}

fn share(record: CellRecord) -> f64 {
    finding(record).expect("a finding").cost_share
}

#[test]
fn bodies_on_one_full_window_take_as_many_times_as_long_as_on_one_each() {
    let found = finding(scene(Protocol::H2c, 4)).expect("a finding");
    // Three quarters of 190 ms, in a response time of 225 ms.
    assert!((found.cost_share - 0.75 * 190.0 / 225.0).abs() < 1e-6, "{}", found.cost_share);
    assert_eq!(
        found.symptom,
        "after a loss, 4.0 bodies at a time shared one full congestion window of 10 segments for 190 ms in all"
    );
    assert!(share(scene(Protocol::H2c, 2)) < share(scene(Protocol::H2c, 3)));
}

#[test]
fn one_body_and_other_protocols_share_nothing() {
    assert_eq!(finding(scene(Protocol::H2c, 1)), None);
    assert_eq!(finding(scene(Protocol::H1, 4)), None);
}

#[test]
fn over_http3_requests_that_are_due_wait_for_the_window_of_either_end() {
    let of_ends = |ends: &[bool], change: fn(&mut h2lab_base::counters::TcpTick)| {
        let mut record = scene(Protocol::H3, 4);
        let end = record.tcp.clone();
        record.tcp =
            end.iter().flat_map(|tick| ends.iter().map(|&server| TcpTick { server, ..*tick })).collect();
        record.tcp.iter_mut().for_each(change);
        finding(record)
    };
    let ours = of_ends(&[false], |_| {}).expect("a finding");
    assert!(ours.symptom.starts_with("after a loss, 4.0 requests at a time"), "{}", ours.symptom);
    assert!(ours.symptom.contains("10 datagrams"), "{}", ours.symptom);
    assert!(ours.fixes.iter().all(|fix| fix.product != "kernel"), "{:?}", ours.fixes);
    // Due at 100 ms and answered at 325 ms; the answer was sent 12.5 ms before that: 21 steps of 10 ms, of each of
    // which a quarter would remain.
    assert!((ours.cost_share - 0.75 * 210.0 / 225.0).abs() < 1e-6, "{}", ours.cost_share);
    let both = of_ends(&[false, true], |_| {}).expect("a finding");
    assert!((both.cost_share - ours.cost_share).abs() < 1e-9, "time counts once: {}", both.cost_share);
    assert_eq!(of_ends(&[true], |tick| tick.unacked = 8), None, "the window is not full");
    assert_eq!(of_ends(&[true], |tick| tick.retransmits = 0), None, "slow start is no loss");
}

#[test]
fn bbr_is_advised_only_where_it_is_not_in_force() {
    let bbr = |protocol, congestion: &str| {
        let mut record = scene(protocol, 4);
        record.cell.congestion = Some(congestion.to_owned());
        let fixes = finding(record).expect("a finding").fixes;
        let mut settings = fixes.into_iter().map(|fix| format!("{}: {}", fix.product, fix.setting));
        settings.find(|setting| setting.contains("bbr"))
    };
    let kernel = "kernel: sysctl -w net.ipv4.tcp_congestion_control=bbr";
    assert_eq!(bbr(Protocol::H2c, "cubic").as_deref(), Some(kernel));
    let library = "QUIC library: congestion control bbr (--congestion bbr)";
    assert_eq!(bbr(Protocol::H3, "cubic").as_deref(), Some(library));
    assert_eq!([Protocol::H2c, Protocol::H3].map(|protocol| bbr(protocol, "bbr")), [None, None]);
}

#[test]
fn only_random_loss_is_called_so() {
    let why = |fate: PacketFate| {
        let down = Direction::Down;
        let dropped = Scene::new(Protocol::H2c).drop(down, 0, 80, 1_000).drop(down, 0, 81, 3_000);
        let mut record = scene(Protocol::H2c, 4);
        record.packets = dropped.deliver(down, 0, 90, 1_000).deliver(down, 0, 91, 3_000).record().packets;
        record.packets[0].fate = PacketFate::TailDropped;
        record.packets[1].fate = fate;
        let fixes = finding(record).expect("a finding").fixes;
        fixes.into_iter().find(|fix| fix.product == "kernel").expect("bbr").why
    };
    assert!(why(PacketFate::Lost).contains("random loss"));
    assert!(why(PacketFate::TailDropped).contains("does not fill the queue"));
}

#[test]
fn more_connections_are_advised_than_there_are() {
    let advised = |connections: u32| {
        let mut record = scene(Protocol::H2c, 4);
        record.cell.connections = connections;
        finding(record).expect("a finding").fixes.remove(0).setting
    };
    assert_eq!([1, 4, 5].map(advised), [8, 8, 10].map(|many| format!("more connections (-c {many})")));
}

/// Four requests through a sidecar take from the 100th to the 308th millisecond. From the 139th on, the server sends a
/// segment on the sidecar's connection in each round trip, when the one before is acknowledged. Its first segment was
/// lost, or one of another connection.
fn behind_a_sidecar(is_lost: bool) -> Scene {
    let down = Direction::Down;
    let scene = Scene::new(Protocol::H2c).request(0, 1, 50, 75, 75);
    let scene = (1..5).fold(scene, |scene, n| scene.request(n, 1, 100, 308, 308));
    let scene = if is_lost {
        scene.drop(down, 9, 88, 0).deliver(down, 9, 113, 0)
    } else {
        scene.drop(down, 10, 60, 0).deliver(down, 9, 88, 0)
    };
    (0..7_u32).fold(scene, |scene, n| {
        let at = 139 + 26 * u64::from(n);
        // An acknowledgement is on its way for 12.5 ms.
        let scene = scene.deliver(Direction::Up, 9, at - 13, 100_000 + 1_400 * n);
        scene.deliver(down, 9, at, 1_400 * (n + 1))
    })
}

fn at_the_hop(mut record: CellRecord) -> Option<Finding> {
    record.cell.sidecar = Some(Sidecar { name: "haproxy".to_owned(), warm_pool: 3, max_connections: 3 });
    finding(record)
}

#[test]
fn behind_a_sidecar_the_packets_of_the_hop_that_crosses_the_link_show_the_full_window() {
    let found = at_the_hop(behind_a_sidecar(true).record()).expect("a finding");
    assert_eq!(
        found.symptom,
        "after a loss, 4.0 requests at a time shared one full congestion window of 1 segments for 156 ms in all, on \
         the sidecar's connection over the link"
    );
    // Three quarters of 156 ms of four requests; the response times are 25 ms, and four times 208 ms.
    assert!((found.cost_share - 0.75 * 4.0 * 156.0 / 857.0).abs() < 1e-6, "{}", found.cost_share);
    assert!(found.confirm.contains("--topology sidecar --sidecar haproxy"), "{}", found.confirm);
    assert_eq!(at_the_hop(behind_a_sidecar(false).record()), None, "no loss had reduced this window");
}

#[test]
fn behind_a_sidecar_with_several_connections_at_a_time_nothing_is_said() {
    let before = behind_a_sidecar(true).deliver(Direction::Down, 10, 80, 0);
    let beside = before.clone().deliver(Direction::Down, 10, 200, 1_400);
    assert!(at_the_hop(before.record()).is_some(), "the first was not used any more");
    assert_eq!(at_the_hop(beside.record()), None, "which of them a request was sent on is not known");
}

#[test]
fn at_the_hop_segments_must_be_full_and_fewer_than_credit_allows() {
    let of = |payload: u32| {
        let mut record = behind_a_sidecar(true).record();
        for packet in record.packets.iter_mut().filter(|packet| packet.direction == Direction::Down) {
            packet.seq = packet.seq / packet.payload * payload;
            packet.payload = payload;
        }
        at_the_hop(record).is_some()
    };
    assert_eq!([999, 1_000, 32_768, 32_769].map(of), [false, true, true, false]);
}

#[test]
fn at_the_hop_a_queue_in_the_path_means_that_the_path_is_full() {
    let of = |transit: u64| {
        let mut record = behind_a_sidecar(true).record();
        let from_server = record.packets.iter_mut().filter(|packet| packet.direction == Direction::Down);
        for packet in from_server.filter(|packet| packet.out_at.happened()) {
            packet.out_at = packet.at + Duration::from_micros(transit);
        }
        at_the_hop(record)
    };
    assert!(of(25_000).is_some());
    assert_eq!(of(25_001), None);
}

#[test]
fn a_window_that_is_not_full_was_never_cut_or_fills_a_queue_is_not_meant() {
    let with = |change: fn(&mut h2lab_base::counters::TcpTick)| {
        let mut record = scene(Protocol::H2c, 4);
        record.tcp.iter_mut().for_each(change);
        finding(record)
    };
    assert_eq!(with(|tick| tick.unacked = 8), None);
    assert_eq!(with(|tick| tick.retransmits = 0), None);
    assert!(with(|tick| tick.rtt_us = 37_500).is_some());
    assert_eq!(with(|tick| tick.rtt_us = 37_501), None);
}

#[test]
fn of_uploads_our_end_is_the_sender() {
    let ours = |body: u64| {
        let mut record = scene(Protocol::H2c, 4);
        record.cell.work.body_bytes = body;
        record.tcp.iter_mut().for_each(|tick| tick.server = false);
        for sample in record.samples.edit().iter_mut() {
            sample.first_byte_at = sample.completed_at;
        }
        finding(record)
    };
    assert!(ours(100_000).is_some());
    assert!(ours(14_481).is_some());
    assert_eq!(ours(14_480), None, "it fits into the window");
}

#[test]
fn a_link_without_room_carries_no_more_with_many_windows() {
    let over = |rate: &str| {
        let mut record = scene(Protocol::H2c, 4);
        let link = record.cell.link.as_mut().expect("a link");
        link.downlink.bandwidth = Some(rate.parse().expect("a rate"));
        finding(record)
    };
    // 10 segments in 25 ms are 4.6 Mbit/s.
    assert!(over("100mbit").is_some_and(|found| found.cost_share > 0.6));
    assert!(over("9mbit").is_some_and(|found| found.cost_share < 0.5));
    assert_eq!(over("4800kbit"), None);
}

#[test]
fn what_was_sent_again_though_nothing_was_lost_is_of_a_busy_machine() {
    let mut record = scene(Protocol::H2c, 4);
    record.packets = Scene::new(Protocol::H2c).deliver(Direction::Down, 0, 90, 1_000).record().packets;
    assert_eq!(finding(record.clone()), None);
    let lost =
        Scene::new(Protocol::H2c).deliver(Direction::Down, 0, 90, 1_000).drop(Direction::Down, 0, 80, 1_000);
    record.packets = lost.record().packets;
    assert!(finding(record).is_some());
}

#[test]
fn the_time_of_a_missing_segment_is_of_another_cause() {
    let lost =
        |scene: Scene| scene.drop(Direction::Down, 0, 140, 1_000).deliver(Direction::Down, 0, 240, 1_000);
    let mut record = scene(Protocol::H2c, 4);
    record.packets = lost(Scene::new(Protocol::H2c)).record().packets;
    let left = share(record);
    // From 152.5 to 252.5 ms, in steps of 10 ms.
    assert!((left - 0.75 * 80.0 / 225.0).abs() < 1e-6, "{left}");
}

#[test]
fn without_a_packet_log_stalls_that_retransmissions_may_end_are_left_out() {
    let mut record = scene(Protocol::H2c, 4);
    (record.link, record.cell.link) = (None, None);
    let all = share(record.clone());
    record.frames.retain(|frame| frame.at <= Time::from_millis(140) || frame.at >= Time::from_millis(240));
    record
        .tcp
        .iter_mut()
        .filter(|tick| tick.at >= Time::from_millis(220))
        .for_each(|tick| tick.retransmits = 2);
    assert!(share(record) < all - 0.25);
}

#[test]
fn ticks_that_are_far_apart_say_nothing() {
    let every = |n: usize| {
        let mut record = scene(Protocol::H2c, 4);
        record.tcp = record.tcp.iter().copied().step_by(n).collect();
        finding(record)
    };
    assert!(every(5).is_some());
    assert_eq!(every(6), None);
}
