//! Steps of load.

use crate::plan::{Kind, Plan};
use crate::world::World;
use crate::{longest, number_at, p99};

#[test]
fn ten_times_as_many_requests_get_their_connections_and_later_they_are_given_up() {
    let plan = Plan::new(Kind::Adaptive, 25, 120.0, 6).losing(0.0, 0.01);
    let world = World::run(plan.rate(0.0, 100.0).rate(20.0, 1_000.0).rate(50.0, 100.0));
    let [few, many] = [20.0, 50.0].map(|second| number_at(&world, second));
    assert!(few <= 3 && (6..=13).contains(&many), "{few}, {many}");
    assert!(number_at(&world, 23.0) * 4 >= many * 3, "three quarters of it after three seconds");
    let (settled, soon) = (p99(&world, 32.0, 50.0), p99(&world, 22.0, 30.0));
    assert!(soon <= 1.2 * settled, "{soon:.0} ms from 2 to 10 s after the step, {settled:.0} settled");
    let at_once = p99(&world, 20.0, 22.0);
    eprintln!("{few}, {many}; {at_once:.0} ms in the first two seconds, {soon:.0}, {settled:.0} settled");
    assert!(at_once <= 2.0 * settled, "{at_once:.0} ms in the first two seconds, {settled:.0} settled");
    assert!(number_at(&world, 110.0) <= 3, "{} a minute after the step down", number_at(&world, 110.0));
    let after: Vec<u32> = world.wanted.iter().map(|(_, wanted)| *wanted).skip(520).collect();
    let rises = after.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!(rises <= 2, "it falls: {after:?}");
    assert_eq!((world.failed, world.unanswered()), (0, 0));
}

#[test]
fn without_losses_a_step_takes_no_more_than_a_second_connection() {
    let plan = Plan::new(Kind::Adaptive, 25, 30.0, 7).rate(0.0, 10.0);
    let world = World::run(plan.rate(5.0, 2_000.0).rate(15.0, 10.0).rate(20.0, 2_000.0));
    let most = world.there.iter().map(|(_, there)| *there).max().unwrap_or(0);
    let (first, second) = (longest(&world, 5.0, 15.0), longest(&world, 20.0, 30.0));
    let settled = p99(&world, 6.0, 15.0);
    let told = format!("{most}; {first:.0} and {second:.0} ms at the longest, {settled:.0} settled");
    eprintln!("{told}");
    assert!(most <= 2, "{told}");
    // Slow start: the first window has ten segments, and 50 are due in each round trip.
    assert!(first <= 100.0 && second <= 60.0 && settled <= 40.0, "{told}");
    assert_eq!((world.failed, world.unanswered()), (0, 0));
}
