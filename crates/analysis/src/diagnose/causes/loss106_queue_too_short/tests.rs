//! Both sides of every threshold.

use std::time::Duration;

use crate::diagnose::causes::views::transfer::Transfer;
use crate::diagnose::testing::Scene;
use crate::diagnose::{Finding, run};
use h2lab_link::QueueDiscipline;
use h2lab_model::record::{CellRecord, PacketFate, PacketRecord};
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::{Direction, FrameKind};

const DOWN: Direction = Direction::Down;

fn finding(record: &CellRecord) -> Option<Finding> {
    run(std::slice::from_ref(record)).into_iter().find(|finding| finding.rule == "LOSS106")
}

fn rules(record: &CellRecord) -> Vec<String> {
    run(std::slice::from_ref(record)).into_iter().map(|finding| finding.rule).collect()
}

/// The same behind a queue of 10,000 bytes before a downlink of 20 Mbit/s, which carries 62,500 in the round trip of 25
/// ms; all but the first `random` drops are at that queue.
fn behind_short_queue(mut record: CellRecord, random: usize) -> CellRecord {
    let downlink = &mut record.cell.link.as_mut().expect("a link").downlink;
    (downlink.bandwidth, downlink.queue_bytes) = ("20mbit".parse().ok(), Some(10_000));
    let dropped = record.packets.iter_mut().filter(|packet| packet.fate == PacketFate::Lost);
    dropped.skip(random).for_each(|packet| packet.fate = PacketFate::TailDropped);
    record
}

/// Two responses at a time wait `stalls` times for 29.5 ms behind a dropped segment.
fn stalled(protocol: Protocol, stalls: u32) -> Scene {
    let quickest = Scene::new(protocol).request(0, 4 * stalls + 1, 100, 125, 125);
    (0..stalls).fold(quickest, |scene, n| {
        let (at, seq) = (1_000 + 100 * u64::from(n), 5_000 * n);
        let scene =
            scene.request(0, 4 * n + 1, at, at + 55, at + 55).request(0, 4 * n + 3, at, at + 55, at + 55);
        scene.drop(DOWN, 0, at + 13, seq).deliver(DOWN, 0, at + 42, seq)
    })
}

fn short(stalls: u32, random: usize) -> CellRecord {
    behind_short_queue(stalled(Protocol::H2c, stalls).record(), random)
}

#[test]
fn drops_at_a_queue_shorter_than_a_round_trip_are_its_and_not_those_of_random_loss() {
    let record = short(12, 0);
    let found = finding(&record).expect("a finding");
    assert!(
        found.symptom.starts_with(
            "12 of 24 packets on the downlink found its queue of 9.766 KiB full, at 12 times; 61.04 KiB pass"
        ),
        "{}",
        found.symptom
    );
    // 12 × 2 × 29.5 ms of 12 × 2 × 55 ms and 25 ms.
    assert!((found.cost_share - 708.0 / 1_345.0).abs() < 1e-6, "{}", found.cost_share);
    assert!(found.fixes[0].setting.contains("--queue 62500"), "{:?}", found.fixes);
    assert!(found.confirm.contains("--bandwidth 20mbit --queue 10000,62500"), "{}", found.confirm);
    let names = rules(&record);
    assert!(!names.iter().any(|rule| rule == "LOSS101" || rule == "LOSS102"), "{names:?}");
}

#[test]
fn random_loss_beside_the_same_queue_keeps_its_name() {
    // Of 20 drops, 18 at the queue are nine of ten.
    assert!(finding(&short(20, 2)).is_some());
    let random = short(20, 3);
    assert_eq!(finding(&random), None);
    assert!(rules(&random).iter().any(|rule| rule == "LOSS101"), "{:?}", rules(&random));
}

/// The drops at the short queue of the downlink, and these on the uplink, of which the first `random` are random loss.
fn short_both_ways(up: u32, random: usize, is_short: bool) -> CellRecord {
    let drop = |scene: Scene, n: u32| scene.drop(Direction::Up, 0, 5_000 + u64::from(n), 1_400 * n);
    let scene = (0..up).fold(stalled(Protocol::H2c, 12), drop);
    let mut record = behind_short_queue(scene.record(), 0);
    let link = record.cell.link.as_mut().expect("a link");
    if is_short {
        link.uplink = link.downlink.clone();
    }
    let of_up = record.packets.iter_mut().filter(|packet| packet.direction == Direction::Up);
    of_up.take(random).for_each(|packet| packet.fate = PacketFate::Lost);
    record
}

#[test]
fn drops_at_a_short_queue_of_the_other_direction_are_no_random_loss() {
    let found = finding(&short_both_ways(3, 0, true)).expect("a finding");
    assert!(found.symptom.starts_with("12 of 24 packets on the downlink"), "{}", found.symptom);
    assert!(rules(&short_both_ways(3, 0, true)).iter().all(|rule| rule != "LOSS101"));
    // Of 20 drops, 18 are at one of both queues.
    assert!(finding(&short_both_ways(8, 2, true)).is_some());
    assert_eq!(finding(&short_both_ways(8, 3, true)), None);
    assert_eq!(finding(&short_both_ways(3, 0, false)), None, "the other queue is not too short");
}

#[test]
fn ten_packets_are_wanted() {
    assert!(finding(&short(10, 0)).is_some());
    assert_eq!(finding(&short(9, 0)), None);
}

#[test]
fn a_queue_that_holds_a_round_trip_or_that_drops_on_purpose_is_not_too_short() {
    let with = |limit: u64, discipline: QueueDiscipline| {
        let mut record = short(12, 0);
        let downlink = &mut record.cell.link.as_mut().expect("a link").downlink;
        (downlink.queue_bytes, downlink.queue_discipline) = (Some(limit), discipline);
        finding(&record)
    };
    assert!(with(62_499, QueueDiscipline::DropTail).is_some());
    assert_eq!(with(62_500, QueueDiscipline::DropTail), None);
    assert_eq!(with(62_499, QueueDiscipline::CODEL), None);
}

#[test]
fn a_link_that_is_full_needs_no_longer_queue() {
    // Requests are under way for 685 ms, of which 1,061 packets of 1,452 bytes take nine tenths; 12 are there already.
    let with = |more: u32| {
        let scene = (0..more).fold(stalled(Protocol::H2c, 12), |scene, n| {
            scene.deliver(DOWN, 0, 3_000 + u64::from(n), 1_000_000 + 1_400 * n)
        });
        finding(&behind_short_queue(scene.record(), 0))
    };
    assert!(with(1_049).is_some());
    assert_eq!(with(1_050), None);
}

/// A body that takes a second on a link that is used for three tenths of it, with drops at these milliseconds.
fn download(drops: &[u64]) -> CellRecord {
    let scene = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 1_125);
    let scene = (0..500).fold(scene, |scene, n| scene.deliver(DOWN, 0, 113 + 2 * u64::from(n), 1_400 * n));
    let scene = (5_000_000..).zip(drops).fold(scene, |scene, (seq, at)| scene.drop(DOWN, 0, *at, seq));
    behind_short_queue(scene.record(), 0)
}

#[test]
fn a_link_that_idles_after_its_queue_was_full_costs_a_single_body_time_as_well() {
    let drops: Vec<u64> = (0..10).map(|n| 200 + 50 * n).collect();
    let found = finding(&download(&drops)).expect("a finding");
    // From 200 to 1,111 ms the link sent 456 packets of 0.5808 ms.
    let idle = 911.0 - 456.0 * 0.5808;
    assert!((found.cost_share - idle / 1_025.0).abs() < 2e-3, "{}", found.cost_share);
}

/// Downloads through a window of 64 KiB over a path of 40 ms and 1 Gbit/s, of which packets found the queue full twice.
fn through_a_small_window() -> CellRecord {
    let mut record = Transfer::new(DOWN).with_stream_window(64 << 10).record();
    let drops = [101, 700].into_iter().flat_map(|at| (0..5).map(move |_| at));
    let scene = Scene::new(Protocol::H2c).deliver(DOWN, 0, 20, 0);
    let scene = (5_000_000..).zip(drops).fold(scene, |scene, (seq, at)| scene.drop(DOWN, 0, at, seq));
    let short = behind_short_queue(scene.record(), 0);
    (record.cell.link, record.link) = (short.cell.link, short.link);
    let link = record.cell.link.as_mut().expect("a link");
    let delay = Duration::from_millis(20);
    (link.uplink.delay, link.downlink.delay) = (delay, delay);
    link.downlink.bandwidth = "1gbit".parse().ok();
    let data = record.frames.iter().filter(|frame| frame.kind == FrameKind::DATA);
    let delivered = (0_u32..).zip(data).map(|(n, frame)| PacketRecord {
        at: frame.at - delay,
        out_at: frame.at,
        bytes: frame.length,
        payload: frame.length,
        seq: n * 16_384,
        ..short.packets[0]
    });
    record.packets = delivered.chain(short.packets[1..].iter().copied()).collect();
    record.packets.sort_by_key(|packet| packet.at);
    record
}

#[test]
fn the_time_without_credit_is_that_of_a_window() {
    let mut record = through_a_small_window();
    assert_eq!(finding(&record), None);
    record.frames.clear();
    assert!(finding(&record).is_some(), "credit is not known");
}

#[test]
fn what_a_server_takes_when_it_has_the_whole_body_is_not_the_links() {
    let up = Direction::Up;
    let scene = Scene::new(Protocol::H2c).request(0, 1, 100, 1_100, 1_100);
    let scene = (0..100).fold(scene, |scene, n| scene.deliver(up, 0, 100 + 2 * u64::from(n), 1_400 * n));
    let scene = (0..10).fold(scene, |scene, n| scene.drop(up, 0, 110 + 15 * u64::from(n), 5_000_000 + n));
    let mut record = behind_short_queue(scene.record(), 0);
    let link = record.cell.link.as_mut().expect("a link");
    std::mem::swap(&mut link.uplink, &mut link.downlink);
    let share = finding(&record).expect("a finding").cost_share;
    // From 110 to 298 ms, less 94 packets of 0.5808 ms, of a second.
    assert!((share - (0.188 - 94.0 * 0.5808e-3)).abs() < 2e-3, "{share}");
}

#[test]
fn a_queue_that_is_full_in_one_round_trip_only_was_filled_by_slow_start() {
    let drops = |later: u64| [[200; 5], [later; 5]].concat();
    // 25 ms on the path, and 4 ms in the full queue.
    assert_eq!(finding(&download(&drops(228))), None);
    assert!(finding(&download(&drops(229))).is_some());
}

#[test]
fn what_looks_alike_is_silent() {
    assert_eq!(finding(&behind_short_queue(stalled(Protocol::H1, 12).record(), 0)), None, "nothing shares");
    let live = stalled(Protocol::H2c, 12).no_link().record();
    assert_eq!(finding(&live), None, "where it was dropped is not known");
    // 708 ms of 21.3 s.
    let rare = stalled(Protocol::H2c, 12).request(0, 99_991, 5_000, 25_000, 25_000).record();
    assert_eq!(finding(&behind_short_queue(rare, 0)), None, "not worth it");
}

#[test]
fn without_bbr_it_is_offered_and_connections_whose_first_windows_overflow_the_queue_are_named() {
    let fixes = |connections: u32, congestion: &str| {
        let mut record = short(12, 0);
        (record.cell.connections, record.cell.congestion) = (connections, Some(congestion.to_owned()));
        let found = finding(&record).expect("a finding");
        found.fixes.into_iter().map(|fix| fix.product).collect::<Vec<_>>()
    };
    assert_eq!(fixes(1, "cubic"), ["network", "kernel"]);
    assert_eq!(fixes(1, "bbr"), ["network"]);
    assert_eq!(fixes(4, "bbr"), ["network", "client"]);
}
