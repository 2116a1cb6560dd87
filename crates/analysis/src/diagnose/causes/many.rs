//! Repetitions with many thousands of requests and events: each rule must visit both only once, or it would never
//! finish.

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene, frame};
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::{Direction, FrameKind};

const DOWN: Direction = Direction::Down;

fn found(record: CellRecord, rule: &str) -> Finding {
    testing::found(rule, record).expect(rule)
}

#[test]
fn a_stall_for_every_second_request() {
    // Looking at all requests and holes for each stall would take some 10^10 steps, and so would looking at all for each tick.
    const STALLS: u32 = 30_000;
    let quickest = Scene::new(Protocol::H2c).request(0, 4 * STALLS + 1, 100, 125, 125);
    let scene = (0..STALLS).fold(quickest, |scene, n| {
        let at = 1_000 + 100 * u64::from(n);
        let seq = n.wrapping_mul(3_000_000);
        let scene =
            scene.request(0, 4 * n + 1, at, at + 55, at + 55).request(0, 4 * n + 3, at, at + 55, at + 55);
        let scene = scene.drop(DOWN, 0, at + 13, seq).deliver(DOWN, 0, at + 42, seq);
        scene.tick(0, at + 45, n + 1, true).tick(0, at + 60, n + 1, true)
    });
    let mut record = scene.record();
    record.tcp.iter_mut().for_each(|tick| tick.unacked = tick.cwnd);
    let stalls = found(record.clone(), "LOSS101");
    assert!(
        stalls.symptom.starts_with("30,000 stalls, on average 29.5 ms long and shared by 2 streams"),
        "{}",
        stalls.symptom
    );
    assert!((stalls.evidence[2].value - f64::from(STALLS)).abs() < 1e-9, "{:?}", stalls.evidence);
    // Over a network that we do not observe: the window was full as well, but those stalls are already explained.
    (record.link, record.cell.link) = (None, None);
    record.packets.clear();
    let inferred = found(record, "LOSS101");
    assert!(inferred.symptom.contains("ended with 30,000 retransmissions"), "{}", inferred.symptom);
}

#[test]
fn a_response_that_is_not_read_beside_every_other() {
    const HOLDS: u32 = 20_000;
    let scene = (0..HOLDS).fold(Scene::new(Protocol::H2c), |scene, n| {
        let at = 1_000 * u64::from(n);
        let scene = scene.request(0, 4 * n + 1, at + 100, at + 125, at + 750);
        scene.request(0, 4 * n + 3, at + 100, at + 125, at + 725)
    });
    let mut record = scene.record();
    record.frames.clear();
    for n in 0..HOLDS {
        let at = 1_000 * u64::from(n);
        let (slow, other) = (4 * n + 1, 4 * n + 3);
        record.frames.push(frame(FrameKind::DATA, slow, 60_000, at + 199));
        record.frames.push(frame(FrameKind::DATA, other, 5_535, at + 200));
        for (stream, bytes) in [(slow, 60_000), (other, 5_535), (0, 65_535)] {
            record.frames.push(frame(FrameKind::WINDOW_UPDATE, stream, bytes, at + 700));
        }
    }
    let held = found(record, "FLOW108");
    assert!(held.symptom.ends_with("20,000 other requests waited"), "{}", held.symptom);
    assert!((held.cost_share - 500.0 / 1_275.0).abs() < 1e-6, "{}", held.cost_share);
}
