//! Connections that a client established and never used.

use super::*;

/// What is found of a client that dials this many connections 1 ms apart, asks on the one at this place, and closes the
/// others without a byte.
fn found(capture: Capture, dialled: u16, used: u16) -> (usize, bool) {
    let mut scene = Scene { capture, ..Scene::new(0) };
    for n in 0..dialled {
        scene.port = CLIENT + n;
        scene.packet(Direction::Up, 100 + u64::from(n), 0, SYN, &[2, 4, 5, 180], &[]);
    }
    for n in 0..dialled {
        let at = 120 + u64::from(n);
        scene.port = CLIENT + n;
        scene.packet(Direction::Down, at, 0, SYN | ACK, &[2, 4, 5, 180], &[]);
        scene.packet(Direction::Up, at, 1, ACK, &[], &[]);
    }
    scene.port = CLIENT + used;
    let mut scene = scene.asked(&[1, 3]);
    for n in (0..dialled).filter(|n| *n != used) {
        scene.port = CLIENT + n;
        scene.packet(Direction::Up, 126 + u64::from(n), 1, FIN | ACK, &[], &[]);
    }
    scene.port = CLIENT + used;
    scene.say(Direction::Down, 160, &[answer(1), answer(3)].concat());
    let captured = scene.finish();
    let [record] = &captured.records[..] else { panic!("{:?}", captured.notes) };
    assert_eq!(record.cell.connections, 1, "one was used");
    let findings = diagnose::run(&captured.records);
    (record.connections.len(), findings.iter().any(|finding| finding.rule == "CONN104"))
}

#[test]
fn connections_that_carry_no_byte_are_a_stampede_of_a_client_that_was_alone() {
    let own = || Capture::of_run(LinkSpec::default());
    for used in [0, 2, 4] {
        assert_eq!(found(own(), 5, used), (5, true), "whichever of them is used");
    }
    assert_eq!(found(own(), 4, 3), (4, false), "three needless ones may be chance");
    assert_eq!(found(Capture::new(""), 5, 0), (1, false), "they may be of anybody");
}
