use proptest::prelude::*;

use super::super::packet::flag;
use super::super::testing::tcp_packet;
use super::super::{JitterOrder, LossModel, LossPer, LossShape};
use super::*;
use h2lab_base::units::Ratio;

const MS: Duration = Duration::from_millis(1);

/// A packet of `bytes` bytes.
fn packet(bytes: u32) -> Packet {
    tcp_packet(flag::ACK, 0, bytes - 52)
}

fn share(value: f64) -> Ratio {
    Ratio::new(value).unwrap()
}

fn lossy(loss: f64) -> Impairment {
    Impairment { delay: 10 * MS, loss: LossModel::bernoulli(share(loss)), ..Impairment::default() }
}

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// Puts a packet in, and its copy if it is duplicated; returns its drop cause, or its marks if it passes.
fn push<T: Clone>(pipe: &mut Pipe<T>, now: Time, packet: &Packet, payload: T) -> Fate {
    match pipe.admit(now, packet, FlowNumber::new(1)) {
        Admission::Dropped { cause, .. } => Err(cause),
        Admission::Passes { original, copy } => {
            let marks = original.marks;
            let fate = pipe.enqueue(original, payload.clone());
            if let Some(copy) = copy {
                // Its fate is in the totals.
                let _ = pipe.enqueue(copy, payload);
            }
            fate.map(|()| marks)
        }
    }
}

/// The marks of a packet that passes, or its drop cause.
type Fate = Result<Marks, DropCause>;

/// All that comes out.
fn out<T>(pipe: &mut Pipe<T>) -> Vec<(Time, T)> {
    std::iter::from_fn(|| pipe.poll(Time::NEVER)).collect()
}

/// Pushes `n` packets a microsecond apart: their fates, and what came out with its due time.
fn run(impairment: &Impairment, seed: u64, n: u64) -> (Vec<Fate>, Vec<(Time, u64)>) {
    let mut pipe = Pipe::new(impairment, seed, Time::ZERO);
    let fates = (0..n).map(|k| push(&mut pipe, Time::from_micros(k), &packet(1500), k)).collect();
    (fates, out(&mut pipe))
}

/// Which of `n` packets are dropped.
fn dropped(impairment: &Impairment, seed: u64, n: u64) -> Vec<usize> {
    let (fates, _) = run(impairment, seed, n);
    (0..fates.len()).filter(|&k| fates[k].is_err()).collect()
}

#[test]
fn a_packet_comes_out_when_its_delay_is_over_and_not_before() {
    let mut pipe = Pipe::new(&lossy(0.0), 1, Time::ZERO);
    assert_eq!(pipe.next_at(), Time::NEVER);
    assert_eq!(push(&mut pipe, at(5), &packet(100), 'x'), Ok(Marks::default()));
    assert_eq!(pipe.next_at(), at(15));
    assert_eq!(pipe.poll(Time::from_nanos(14_999_999)), None);
    assert_eq!(pipe.poll(at(15)), Some((at(15), 'x')));
    assert_eq!(pipe.poll(at(99)), None);
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    let first = dropped(&lossy(0.03), 7, 10_000);
    assert_eq!(first, dropped(&lossy(0.03), 7, 10_000));
    assert_ne!(first, dropped(&lossy(0.03), 8, 10_000));
}

#[test]
fn turning_on_an_impairment_does_not_move_the_draws_of_another() {
    let base = lossy(0.03);
    let lost = dropped(&base, 7, 10_000);
    let marks = |impairment: &Impairment| run(impairment, 7, 10_000).0;
    let others = [
        Impairment { jitter: 3 * MS, ..base.clone() },
        Impairment { jitter: 3 * MS, jitter_order: JitterOrder::Free, ..base.clone() },
        Impairment { duplicate: share(0.1), ..base.clone() },
        Impairment { corrupt: share(0.1), ..base.clone() },
        Impairment { reorder: "10%:1ms".parse().unwrap(), ..base.clone() },
    ];
    for other in &others {
        assert_eq!(dropped(other, 7, 10_000), lost, "{other}");
    }
    // Further causes of drops add to the lost packets and remove none.
    for more in [
        Impairment { script: vec!["any 5 of flow 1".parse().unwrap()], ..base.clone() },
        Impairment { blackouts: vec!["1ms..2ms".parse().unwrap()], ..base.clone() },
    ] {
        let dropped = dropped(&more, 7, 10_000);
        assert!(lost.iter().all(|k| dropped.contains(k)) && dropped.len() > lost.len(), "{more}");
    }
    // The marks of those that pass do not move either.
    let (alone, both) = (
        marks(&Impairment { corrupt: share(0.1), ..Impairment::default() }),
        marks(&Impairment { corrupt: share(0.1), duplicate: share(0.5), ..lossy(0.3) }),
    );
    assert!(alone.iter().zip(&both).all(|(alone, both)| both.is_err() || alone == both));
}

#[test]
fn the_directions_lose_different_packets() {
    let (mut up, mut down) = LinkSpec::symmetric(lossy(0.5)).pipes::<()>(1, Time::ZERO);
    let mut same =
        || push(&mut up, Time::ZERO, &packet(100), ()) == push(&mut down, Time::ZERO, &packet(100), ());
    let same = (0..1000).filter(|_| same()).count();
    assert!((400..600).contains(&same), "{same}");
}

#[test]
fn jitter_beyond_the_delay_never_sends_a_packet_back_in_time() {
    let impairment = Impairment { jitter: 1000 * MS, ..lossy(0.0) };
    let (_, out) = run(&impairment, 3, 1000);
    assert!(out.iter().all(|(due, k)| *due >= Time::from_micros(*k)));
}

#[test]
fn a_lost_packet_uses_no_bandwidth_and_a_copy_does() {
    let rate = Bandwidth::from_bits_per_second(12_000_000);
    let shaped = |impairment| Impairment { bandwidth: rate, queue_bytes: Some(1 << 30), ..impairment };
    let last = |impairment: &Impairment| {
        let mut pipe = Pipe::new(impairment, 4, Time::ZERO);
        for _ in 0..100 {
            let _ = push(&mut pipe, Time::ZERO, &packet(1500), ());
        }
        let last = out(&mut pipe).last().unwrap().0;
        (last, pipe.totals().delivered)
    };
    // A millisecond of transmission each, and 10 ms of delay.
    let (halved, survivors) = last(&shaped(lossy(0.5)));
    assert_eq!(halved, at(survivors + 10));
    let (doubled, copies) = last(&shaped(Impairment { duplicate: Ratio::ONE, ..lossy(0.0) }));
    assert_eq!((doubled, copies), (at(210), 200));
}

#[test]
fn a_copy_follows_its_original_and_is_as_it_was() {
    let impairment = Impairment { duplicate: Ratio::ONE, corrupt: Ratio::ONE, ..lossy(0.0) };
    let mut pipe = Pipe::new(&impairment, 4, Time::ZERO);
    let Admission::Passes { original, copy } = pipe.admit(at(1), &packet(100), FlowNumber::NONE) else {
        panic!("nothing is dropped")
    };
    let copy = copy.unwrap();
    assert_eq!((original.index, copy.index), (0, 0));
    assert!(original.marks.corrupt.is_some_and(|bit| bit < 48 * 8) && !original.marks.is_copy);
    assert_eq!(copy.marks, Marks { is_copy: true, ..Marks::default() });
    pipe.enqueue(original, 'o').unwrap();
    pipe.enqueue(copy, 'c').unwrap();
    assert_eq!(out(&mut pipe), [(at(11), 'o'), (at(11), 'c')]);
    let totals = pipe.totals();
    assert_eq!((totals.packets_in, totals.duplicated, totals.delivered), (1, 1, 2));
    assert!(totals.adds_up());
}

#[test]
fn bits_are_flipped_all_over_the_payload_and_in_packets_that_have_one() {
    let impairment = Impairment { corrupt: Ratio::ONE, ..lossy(0.0) };
    let mut pipe = Pipe::new(&impairment, 4, Time::ZERO);
    let bits: Vec<u32> = (0..10_000)
        .map(|_| push(&mut pipe, Time::ZERO, &packet(152), ()).unwrap().corrupt.unwrap())
        .collect();
    let mean = f64::from(bits.iter().sum::<u32>()) / 1e4;
    // Uniform over 0..800: deviation 800 / sqrt(12).
    assert!((mean - 399.5).abs() < 3.0 * 231.0 / 100.0, "{mean}");
    assert!(bits.iter().any(|&bit| bit < 8) && bits.iter().any(|&bit| bit >= 792));
    assert_eq!(push(&mut pipe, Time::ZERO, &packet(52), ()), Ok(Marks::default()), "a bare acknowledgement");
    assert_eq!(pipe.totals().corrupted, 10_000);
}

#[test]
fn the_cause_is_the_first_that_takes_a_packet() {
    let all = Impairment {
        loss: LossModel::Bernoulli { p: Ratio::ONE },
        script: vec!["any 2".parse().unwrap(), "any 3".parse().unwrap()],
        blackouts: vec!["2us..3us".parse().unwrap()],
        ..Impairment::default()
    };
    let (fates, _) = run(&all, 1, 4);
    let causes: Vec<DropCause> = fates.into_iter().map(|fate| fate.unwrap_err()).collect();
    assert_eq!(causes, [DropCause::Lost, DropCause::Scripted, DropCause::BlackOut, DropCause::Lost]);
}

#[test]
fn a_blackout_and_a_step_count_from_when_the_link_began() {
    let start = Time::from_millis(1_000_000);
    let impairment = Impairment {
        blackouts: vec!["5ms..6ms".parse().unwrap()],
        steps: vec![Step { at: 20 * MS, delay: Some(3 * MS), ..Step::default() }],
        ..lossy(0.0)
    };
    let mut pipe = Pipe::new(&impairment, 1, start);
    let mut fate = |micros| push(&mut pipe, start + Duration::from_micros(micros), &packet(100), micros);
    assert!(fate(4_999).is_ok());
    assert_eq!(fate(5_000), Err(DropCause::BlackOut));
    assert_eq!(fate(5_999), Err(DropCause::BlackOut));
    assert!(fate(6_000).is_ok() && fate(19_999).is_ok() && fate(20_000).is_ok());
    let delays: Vec<Duration> = out(&mut pipe)
        .into_iter()
        .map(|(due, entered)| due.since(start + Duration::from_micros(entered)))
        .collect();
    // The last one must not overtake the one before, which was still under the long delay.
    let last = Duration::from_micros(9_999);
    assert_eq!(delays, [10 * MS, 10 * MS, 10 * MS, last]);
}

#[test]
fn every_value_that_a_step_names_changes_and_no_other_does() {
    let everything = Step {
        at: 10 * MS,
        delay: Some(2 * MS),
        jitter: Some(Duration::ZERO),
        loss: Some(LossModel::None),
        bandwidth: "12mbit".parse().ok(),
        reorder: "100%".parse().ok(),
        duplicate: Some(Ratio::ONE),
        corrupt: Some(Ratio::ONE),
    };
    let before = Impairment { steps: vec![everything], ..lossy(1.0) };
    let mut pipe = Pipe::new(&before, 1, Time::ZERO);
    assert_eq!(push(&mut pipe, Time::from_nanos(9_999_999), &packet(1500), 0), Err(DropCause::Lost));
    let marks = push(&mut pipe, at(10), &packet(1500), 1).unwrap();
    assert!(marks.is_reordered && marks.corrupt.is_some());
    // A millisecond each to send, and no delay for those that skip it.
    assert_eq!(out(&mut pipe), [(at(11), 1), (at(12), 1)]);

    let mut pipe = Pipe::new(
        &Impairment {
            steps: vec![Step { at: 10 * MS, duplicate: Some(Ratio::ONE), ..Step::default() }],
            ..lossy(1.0)
        },
        1,
        Time::ZERO,
    );
    assert_eq!(push(&mut pipe, at(11), &packet(1500), 0), Err(DropCause::Lost));
}

#[test]
fn a_bandwidth_that_changes_holds_for_what_waits() {
    let impairment = Impairment {
        bandwidth: "12mbit".parse().ok(),
        steps: vec![Step { at: 2 * MS, bandwidth: "120mbit".parse().ok(), ..Step::default() }],
        ..lossy(0.0)
    };
    let mut pipe = Pipe::new(&impairment, 1, Time::ZERO);
    for k in 0..4 {
        let _ = push(&mut pipe, Time::ZERO, &packet(1500), k);
    }
    assert_eq!(pipe.next_at(), at(2), "then what waits will leave sooner");
    let due: Vec<Time> = out(&mut pipe).into_iter().map(|(due, _)| due).collect();
    assert_eq!(due, [11_000, 12_000, 12_100, 12_200].map(Time::from_micros));
}

#[test]
fn a_pump_that_sleeps_until_next_at_is_never_late() {
    let steps = vec![
        Step { at: 5 * MS, delay: Some(MS), ..Step::default() },
        Step { at: 7 * MS, bandwidth: "100mbit".parse().ok(), ..Step::default() },
    ];
    for reorder in ["0%", "30%", "30%:3ms"] {
        let impairment = Impairment {
            bandwidth: "10mbit".parse().ok(),
            jitter: MS,
            jitter_order: JitterOrder::Free,
            reorder: reorder.parse().unwrap(),
            steps: steps.clone(),
            ..lossy(0.0)
        };
        let mut pipe = Pipe::new(&impairment, 1, Time::ZERO);
        for k in 0..50 {
            let _ = push(&mut pipe, Time::ZERO, &packet(1500), k);
        }
        let mut count = 0;
        while pipe.next_at().happened() {
            let now = pipe.next_at();
            while let Some((due, _)) = pipe.poll(now) {
                assert_eq!(due, now, "{reorder}");
                count += 1;
            }
        }
        assert_eq!(count, 50);
    }
}

#[test]
fn what_codel_drops_is_reported_with_the_index_that_it_had() {
    let impairment = Impairment {
        bandwidth: "12mbit".parse().ok(),
        queue_discipline: QueueDiscipline::CODEL,
        queue_bytes: Some(1_500_000),
        ..Impairment::default()
    };
    let mut pipe = Pipe::new(&impairment, 1, Time::ZERO);
    for k in 0..500 {
        let _ = push(&mut pipe, Time::from_micros(100 * k), &packet(1500), k);
    }
    let delivered: Vec<u64> = out(&mut pipe).into_iter().map(|(_, k)| k).collect();
    let dropped: Vec<u64> = std::iter::from_fn(|| pipe.poll_dropped())
        .map(|(passage, cause, k)| {
            assert_eq!((passage.index, cause), (k, DropCause::CodelDropped));
            assert_eq!(passage.at, Time::from_micros(100 * k));
            k
        })
        .collect();
    assert!(!dropped.is_empty());
    assert_eq!(pipe.totals().codel_dropped, dropped.len() as u64);
    let mut all = [delivered, dropped].concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..500));
}

/// Steps that each change one value.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0_u64..200, 0_u8..6, 0.0..0.9_f64).prop_map(|(at, what, value)| {
        let (mut step, share) = (Step { at: at as u32 * MS, ..Step::default() }, Ratio::new(value).unwrap());
        match what {
            0 => step.delay = Some(20 * MS),
            1 => step.loss = Some(LossModel::bernoulli(share)),
            2 => step.bandwidth = Bandwidth::from_bits_per_second(1 + (value * 1e8) as u64),
            3 => step.reorder = "20%:1ms".parse().ok(),
            4 => step.duplicate = Some(share),
            _ => step.corrupt = Some(share),
        }
        step
    });
    proptest::collection::vec(step, 0..3)
}

fn impairments() -> impl Strategy<Value = Impairment> {
    const SHAPES: [&str; 5] =
        ["bernoulli", "gilbert-elliott:4", "gilbert-elliott:5ms", "burst:3", "burst:5ms"];
    const QUEUES: [&str; 3] = ["drop-tail", "codel", "codel:100us/1ms"];
    const REORDERS: [&str; 4] = ["0%", "10%", "10%:3ms", "50%:1ms:gap3"];
    (
        (0_u32..50, 0_u32..60, any::<bool>()),
        (0.0..0.9_f64, proptest::sample::select(&SHAPES[..]), any::<bool>()),
        (proptest::option::of(1_u64..100_000_000), 0_u64..100_000, proptest::sample::select(&QUEUES[..])),
        (proptest::sample::select(&REORDERS[..]), 0.0..0.5_f64, 0.0..0.5_f64),
        (any::<bool>(), any::<bool>(), steps()),
    )
        .prop_map(
            |((delay, jitter, is_free), (loss, shape, is_own), queue, marks, (script, dark, steps))| {
                Impairment {
                    delay: delay * MS,
                    jitter: jitter * MS,
                    jitter_order: if is_free { JitterOrder::Free } else { JitterOrder::Kept },
                    loss: shape.parse::<LossShape>().unwrap().with_share(share(loss)),
                    loss_per: if is_own { LossPer::Connection } else { LossPer::Link },
                    bandwidth: queue.0.and_then(Bandwidth::from_bits_per_second),
                    queue_bytes: Some(queue.1),
                    queue_discipline: queue.2.parse().unwrap(),
                    reorder: marks.0.parse().unwrap(),
                    duplicate: share(marks.1),
                    corrupt: share(marks.2),
                    script: if script { vec!["any 3 of each flow".parse().unwrap()] } else { vec![] },
                    blackouts: if dark { vec!["20ms..30ms".parse().unwrap()] } else { vec![] },
                    steps,
                }
            },
        )
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for_and_none_is_early(
        impairment in impairments(),
        seed in any::<u64>(),
        packets in proptest::collection::vec((0_u64..2_000, 52_u32..1501, 1_u32..4, any::<bool>()), 1..400),
    ) {
        let mut pipe = Pipe::new(&impairment, seed, Time::ZERO);
        let (mut now, mut came_out, mut bytes_in) = (Time::ZERO, Vec::new(), 0);
        let (mut refused, mut entered, mut copies) = (0, 0, 0);
        for (gap, bytes, flow, poll) in &packets {
            now += Duration::from_micros(*gap);
            bytes_in += u64::from(*bytes);
            match pipe.admit(now, &packet(*bytes), FlowNumber::new(*flow)) {
                Admission::Dropped { .. } => refused += 1,
                Admission::Passes { original, copy } => {
                    copies += u64::from(copy.is_some());
                    for passage in std::iter::once(original).chain(copy) {
                        let payload = (passage.index, now, passage.marks.is_reordered);
                        match pipe.enqueue(passage, payload) {
                            Ok(()) => entered += 1,
                            Err(_) => refused += 1,
                        }
                    }
                }
            }
            if *poll {
                came_out.extend(std::iter::from_fn(|| pipe.poll(now)));
                prop_assert!(pipe.next_at() > now);
            }
            prop_assert!(pipe.totals().adds_up(), "{:?}", pipe.totals());
        }
        came_out.extend(out(&mut pipe));
        let dropped_inside = std::iter::from_fn(|| pipe.poll_dropped()).count() as u64;
        let totals = pipe.totals();
        prop_assert!(totals.adds_up() && totals.in_flight == 0, "{totals:?}");
        prop_assert_eq!((totals.packets_in, totals.bytes_in), (packets.len() as u64, bytes_in));
        prop_assert_eq!(totals.delivered, came_out.len() as u64);
        prop_assert_eq!(totals.dropped(), refused + dropped_inside);
        prop_assert_eq!((totals.duplicated, totals.delivered + dropped_inside), (copies, entered));
        // Within one poll and among the last ones packets come out by their due time.
        prop_assert!(came_out.iter().all(|(due, (_, at, _))| due >= at));
        let steady = impairment.steps.is_empty() && impairment.jitter_order == JitterOrder::Kept;
        if steady {
            let floor = impairment.delay.saturating_sub(impairment.jitter);
            let in_place: Vec<_> = came_out.iter().filter(|(_, (_, _, moved))| !moved).collect();
            prop_assert!(in_place.is_sorted_by_key(|(due, (index, ..))| (*due, *index)));
            prop_assert!(in_place.iter().all(|(due, (_, at, _))| *due >= *at + floor));
        }
    }
}
