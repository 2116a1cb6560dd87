//! The pool of connections over TCP with losses, in virtual time: `estimate` says how many there are, `place` which one carries a
//! request, against fixed numbers and HTTP/1.1 on the same path with the same arrivals.

mod world;

use std::time::Duration;

use h2lab_base::units::Time;

use world::{Kind, World};

/// Requests are due from here on.
const FROM: Time = Time::from_millis(3_000);

/// The p99, in milliseconds, of requests due in a part of a run.
fn p99(world: &World, from: Duration, to: Duration) -> f64 {
    let is_in = |due: &Time| (from..to).contains(&due.since(FROM));
    let mut times: Vec<f64> = world
        .answered
        .iter()
        .filter(|(due, _)| is_in(due))
        .map(|(_, took)| took.as_secs_f64() * 1e3)
        .collect();
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * 99 / 100]
}

/// A run of `seconds` at 1,000 requests per second over this round trip and loss.
fn run(kind: Kind, rtt_ms: u64, losses: &[(u64, f64)], seconds: u64, seed: u64) -> World {
    let mut world = World::new(kind, Duration::from_micros(rtt_ms * 500), losses, seed);
    world.run(FROM, 1_000.0, Duration::from_secs(seconds));
    world
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn with_losses_it_is_as_good_as_the_best_fixed_number_and_better_than_http1() {
    for (rtt, seed) in [(10, 1), (25, 2)] {
        let settled = |kind| p99(&run(kind, rtt, &[(0, 0.03)], 40, seed), 8 * SECOND, 40 * SECOND);
        let adaptive = settled(Kind::Adaptive);
        let fixed = [4, 8, 16, 32].map(|n| settled(Kind::Fixed(n)));
        let best = fixed.into_iter().fold(f64::INFINITY, f64::min);
        let http1 = settled(Kind::Http1);
        let told =
            format!("RTT {rtt}: adaptive {adaptive:.0} ms, 4/8/16/32 {fixed:.0?}, HTTP/1.1 {http1:.0}");
        assert!(adaptive <= 1.05 * best && adaptive <= 0.4 * http1, "{told}");
    }
}

#[test]
fn without_losses_one_connection_is_enough() {
    let world = run(Kind::Adaptive, 25, &[(0, 0.0)], 20, 3);
    // A second one while the first congestion window still grows.
    assert!(world.wanted.iter().all(|(_, wanted)| *wanted <= 2), "{:?}", world.wanted.iter().max());
    assert!(p99(&world, Duration::ZERO, 20 * SECOND) < 30.0);
}

#[test]
fn after_losses_begin_it_is_soon_as_good_as_settled_and_after_they_end_it_shrinks() {
    let world = run(Kind::Adaptive, 25, &[(0, 0.0), (10, 0.03), (50, 0.0)], 120, 4);
    let settled = p99(&world, 25 * SECOND, 50 * SECOND);
    let soon = p99(&world, 12 * SECOND, 20 * SECOND);
    assert!(soon <= 1.2 * settled, "{soon:.0} ms from 2 to 10 s after the step, {settled:.0} settled");
    let at = |second: u64| {
        let until = FROM + Duration::from_secs(second);
        world.wanted.iter().take_while(|(at, _)| *at <= until).last().map_or(0, |(_, wanted)| *wanted)
    };
    assert!(at(110) <= 2, "{} a minute after the last loss", at(110));
    let changes = world.wanted.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    assert!(changes <= 60, "{changes} changes in two minutes");
}
