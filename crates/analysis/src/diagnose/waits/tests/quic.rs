//! HTTP/3: only the reason and the simultaneous losses are reported.

use super::*;
use crate::diagnose::waits::{Doubt, Split};
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::Direction::{Down, Up};

/// A connection of HTTP/3 with a request from 100 to 200 ms, and drops at these times: its own, and another connection's.
fn with_drops(own: &[u64], others: &[u64]) -> Scene {
    let mut scene = Scene::new();
    scene.record.cell.protocol = Protocol::H3;
    scene.on(1);
    for at in others {
        scene.lose(Down, *at, b"x");
    }
    scene.on(0);
    for at in own {
        scene.lose(Up, *at, b"x");
    }
    scene.send(Up, 150, b"x");
    scene.request(0, 100, 200);
    scene
}

#[test]
fn what_was_lost_on_its_connection_while_a_request_lasted_is_reported_as_that() {
    let beside = |own: &[u64], others: &[u64]| with_drops(own, others).waits().doubts;
    let rendered = |beside_drops| [Doubt::Quic { requests: 1, beside_drops }];
    assert_eq!(beside(&[100], &[]), rendered(1));
    assert_eq!(beside(&[200], &[]), rendered(1));
    assert_eq!(beside(&[99, 201], &[]), rendered(0));
    assert_eq!(beside(&[], &[150]), rendered(0));
}

#[test]
fn no_time_is_given_to_anything_so_that_none_is_unknown() {
    let waits = with_drops(&[150], &[]).waits();
    assert_eq!((waits.breakdowns.len(), waits.split), (0, Split::default()));
    let mut none_slow = with_drops(&[150], &[]);
    none_slow.samples.clear();
    assert_eq!(none_slow.waits().doubts, []);
}
