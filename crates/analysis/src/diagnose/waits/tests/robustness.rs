//! For any input, every latency breakdown is a partition of its request's time.

use proptest::prelude::*;

use super::*;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::Direction;
use h2lab_wire::trace::Direction::{Down, Up};

/// What a scene does next.
#[derive(Debug, Clone)]
enum Step {
    Send(Direction, bool, Vec<u8>),
    Again(usize, bool),
    Ack(Direction, bool),
}

fn messages() -> impl Strategy<Value = Vec<u8>> {
    let stream = (0..6_u32).prop_map(|n| 2 * n + 1);
    prop_oneof![
        (stream.clone(), 0..6_u64, any::<bool>()).prop_map(|(stream, id, ends)| headers(
            stream,
            Some(id),
            ends
        )),
        (stream.clone(), 0..3000_usize, any::<bool>()).prop_map(|(stream, n, ends)| data(stream, n, ends)),
        (0..7_u32, any::<u32>()).prop_map(|(stream, increment)| window_update(stream, increment)),
        any::<u32>().prop_map(|value| settings(setting::INITIAL_WINDOW_SIZE, value)),
        prop::collection::vec(any::<u8>(), 1..100),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let way = prop_oneof![Just(Up), Just(Down)];
    prop_oneof![
        4 => (way.clone(), prop::bool::weighted(0.8), messages()).prop_map(|(w, arrives, bytes)| Step::Send(w, arrives, bytes)),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(n, arrives)| Step::Again(n, arrives)),
        1 => (way, any::<bool>()).prop_map(|(w, arrives)| Step::Ack(w, arrives)),
    ]
}

proptest! {
    #[test]
    fn latency_breakdowns_have_no_gaps_and_no_bytes_panic(
        steps in prop::collection::vec((0..40_u64, steps()), 0..60),
        requests in prop::collection::vec((0..6_u32, 0..900_u64, 0..500_u64, any::<bool>()), 1..6),
        has_sidecar in any::<bool>(),
        has_begin in prop::bool::weighted(0.8),
    ) {
        let mut scene = if has_sidecar { Scene::with_sidecar() } else { Scene::new() };
        if has_begin {
            scene.connect(0, 0);
            scene.send(Up, 20, &hello());
        }
        let (mut now, mut sent) = (30, Vec::new());
        for (pause, step) in steps {
            now += pause;
            match step {
                Step::Send(way, true, bytes) => sent.push(scene.send(way, now, &bytes)),
                Step::Send(way, false, bytes) => sent.push(scene.lose(way, now, &bytes)),
                Step::Again(n, arrives) if !sent.is_empty() => {
                    scene.again(&sent[n % sent.len()], now, arrives);
                }
                Step::Again(..) => {}
                Step::Ack(way, arrives) => {
                    scene.ack(way, now, arrives);
                }
            }
        }
        for (n, due, took, is_unfinished) in requests {
            let sample = scene.request(2 * n + 1, due, due + took);
            if is_unfinished {
                sample.sent_at = h2lab_base::units::Time::NEVER;
            }
        }
        let waits = scene.waits();
        for breakdown in &waits.breakdowns {
            let parts = &breakdown.intervals;
            prop_assert_eq!(parts.first().map(|part| part.from), Some(breakdown.scheduled_at));
            prop_assert_eq!(parts.last().map(|part| part.until), Some(breakdown.completed_at));
            prop_assert!(parts.iter().all(|part| part.from < part.until));
            prop_assert!(parts.is_sorted_by(|a, b| a.until == b.from));
        }
        let total: u64 = waits.split.parts.values().map(|part| part.time_ns).sum();
        prop_assert_eq!(total, waits.split.total_ns);
    }

    #[test]
    fn packets_of_any_bytes_do_no_harm(
        packets in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..120)), 0..30),
    ) {
        let mut scene = Scene::connected();
        scene.request(1, 0, 100);
        for (is_up, bytes) in packets {
            let way = if is_up { Up } else { Down };
            scene.send(way, 50, b"payload");
            let mut head = vec![0x45, 0, 0, bytes.len() as u8];
            head.extend(bytes);
            scene.packets().last_mut().unwrap().1 = head;
        }
        prop_assert_eq!(scene.waits().breakdowns.len(), 1);
    }
}
