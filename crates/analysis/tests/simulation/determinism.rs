//! The same seed, the same bytes.

use std::time::Duration;

use h2lab_model::scenario::{Axis, Scenario};
use h2lab_model::workload::Protocol;
use h2lab_wire::ErrorCode;

use crate::model::{self, Disturbance, DisturbanceKind, Setup, Side};
use crate::trial;

/// Everything that a repetition records, as text.
fn bytes(scenario: &Scenario, setup: &Setup<'_>) -> Vec<u8> {
    let record = model::repetition(&trial::cell(scenario), setup).record;
    assert!(record.samples.len() > 500 && record.packets.len() > 1_000 && record.frames.len() > 1_000);
    serde_json::to_vec(&record).expect("a record is plain data")
}

fn scenario(protocol: Protocol, seed: u64) -> Scenario {
    let mut scenario = trial::one(protocol, 2, 0.03);
    scenario.seed = Axis::one(seed);
    scenario.work.measure = Axis::one(Duration::from_millis(300));
    scenario
}

#[test]
fn the_same_seed_gives_the_same_record_byte_for_byte_and_another_one_does_not() {
    for protocol in [Protocol::H1, Protocol::H2c] {
        let first = bytes(&scenario(protocol, 7), &Setup::new());
        assert!(first == bytes(&scenario(protocol, 7), &Setup::new()), "{protocol}");
        assert!(first != bytes(&scenario(protocol, 8), &Setup::new()), "{protocol}");
    }
}

#[test]
fn disturbances_and_shredded_streams_repeat_too() {
    let mut setup = Setup::new();
    setup.client_tcp.shred = Some(1);
    setup.server_tcp.shred = Some(2);
    let kinds = [
        DisturbanceKind::Cancel(3),
        DisturbanceKind::Reset(1, ErrorCode::INTERNAL_ERROR),
        DisturbanceKind::GoAway(Side::Server, ErrorCode::NO_ERROR),
    ];
    for (n, kind) in kinds.into_iter().enumerate() {
        let after = Duration::from_millis(100 * (n as u64 + 1));
        setup.disturbances.push(Disturbance { after, connection: n, kind });
    }
    let scenario = scenario(Protocol::H2c, 7);
    assert!(bytes(&scenario, &setup) == bytes(&scenario, &setup));
}
