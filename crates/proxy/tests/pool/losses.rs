//! Against fixed numbers and HTTP/1.1 on the same path, with losses that come singly and in bursts, begin and end.

use std::time::Duration;

use h2lab_link::LossModel;

use crate::plan::{Kind, Plan, Step, ratio};
use crate::world::World;
use crate::{number_at, p99};

#[test]
fn with_losses_it_is_as_good_as_the_best_fixed_number_and_better_than_http1() {
    for (rtt, seed) in [(10, 1), (25, 2)] {
        let settled = |kind| p99(&World::run(Plan::new(kind, rtt, 40.0, seed).losing(0.0, 0.03)), 8.0, 40.0);
        let adaptive = settled(Kind::Adaptive);
        let fixed = [4, 8, 16, 32].map(|n| settled(Kind::Fixed(n)));
        let best = fixed.into_iter().fold(f64::INFINITY, f64::min);
        let http1 = settled(Kind::Http1);
        let told =
            format!("RTT {rtt}: adaptive {adaptive:.1} ms, 4/8/16/32 {fixed:.1?}, HTTP/1.1 {http1:.1}");
        eprintln!("{told}");
        assert!(adaptive <= 1.05 * best && adaptive <= 0.4 * http1, "{told}");
    }
}

/// Losses of packets that follow each other on the link, and times in which nothing passes. Such a burst hits several
/// segments of one connection, or all connections at once, against which more connections do not help.
#[test]
fn with_bursts_it_is_near_the_best_fixed_number_and_not_worse_than_http1() {
    let by_time = LossModel::GilbertElliottByTime { share: ratio(0.03), burst: Duration::from_millis(5) };
    for (what, model, of_best, of_http1) in [
        ("3 packets", LossModel::gilbert_elliott(ratio(0.03), 3.0), 1.05, 0.4),
        ("8 packets", LossModel::gilbert_elliott(ratio(0.03), 8.0), 1.05, 0.5),
        ("5 ms", by_time, 1.1, 1.0),
    ] {
        let run = |kind| World::run(Plan::new(kind, 25, 28.0, 5).at(0.0, Step::Loss(model)));
        let world = run(Kind::Adaptive);
        let adaptive = p99(&world, 8.0, 28.0);
        let fixed = [8, 16, 32].map(|n| p99(&run(Kind::Fixed(n)), 8.0, 28.0));
        let best = fixed.into_iter().fold(f64::INFINITY, f64::min);
        let http1 = p99(&run(Kind::Http1), 8.0, 28.0);
        let number: Vec<u32> = world.wanted.iter().skip(80).map(|(_, wanted)| *wanted).collect();
        let mean = f64::from(number.iter().sum::<u32>()) / number.len() as f64;
        let changes = number.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let told = format!(
            "bursts of {what}: adaptive {adaptive:.0} ms, 8/16/32 {fixed:.0?}, HTTP/1.1 {http1:.0}; {mean:.0} connections, \
             {changes} changes"
        );
        eprintln!("{told}");
        assert!(adaptive <= of_best * best && adaptive <= of_http1 * http1, "{told}");
        assert!(mean <= 60.0 && changes <= 2, "{told}");
    }
}

#[test]
fn without_losses_one_connection_is_enough() {
    let world = World::run(Plan::new(Kind::Adaptive, 25, 20.0, 3));
    // A second one while the first congestion window still grows.
    assert!(world.wanted.iter().all(|(_, wanted)| *wanted <= 2), "{:?}", world.wanted.iter().max());
    assert!(p99(&world, 0.0, 20.0) < 30.0);
}

#[test]
fn after_losses_begin_it_is_soon_as_good_as_settled_and_after_they_end_it_shrinks() {
    let plan = Plan::new(Kind::Adaptive, 25, 120.0, 4);
    let world = World::run(plan.losing(10.0, 0.03).losing(50.0, 0.0));
    let settled = p99(&world, 25.0, 50.0);
    let soon = p99(&world, 12.0, 20.0);
    assert!(soon <= 1.2 * settled, "{soon:.0} ms from 2 to 10 s after the step, {settled:.0} settled");
    assert!(number_at(&world, 110.0) <= 2, "{} a minute after the last loss", number_at(&world, 110.0));
    let after: Vec<u32> = world.wanted.iter().map(|(_, wanted)| *wanted).skip(520).collect();
    assert!(after.is_sorted_by(|before, after| before >= after), "it only falls: {after:?}");
}
