//! Instances that start cold, die and come back.

use std::time::Duration;

use crate::plan::{Kind, Plan, Server, Step};
use crate::world::{FROM, World};
use crate::{longest, p99};

/// Takes 5,000 requests a second, when it is warm, and 250 at first.
const COLD: Server =
    Server { quota: None, warm: Duration::from_micros(200), cold: Duration::from_millis(4), warms_up: 1_000 };
const WARM: Server = Server { cold: Duration::from_micros(200), ..COLD };

/// Requests that went to an instance in a part of a run, and all of them.
fn share(world: &World, instance: usize, from: f64, to: f64) -> (usize, usize) {
    let is_in = |at: f64| (from..to).contains(&at);
    let placed = world.placed.iter().filter(|(at, _)| is_in(at.since(FROM).as_secs_f64()));
    let to = placed.clone().filter(|(_, to)| *to == instance).count();
    (to, placed.count())
}

/// The most requests that went to an instance within a tenth of a second.
fn rush(world: &World, instance: usize, from: f64, to: f64) -> usize {
    let tenths = (0..((to - from) * 10.0) as u32).map(|n| from + f64::from(n) / 10.0);
    tenths.map(|from| share(world, instance, from, from + 0.1).0).max().unwrap_or(0)
}

#[test]
fn one_that_joins_cold_is_not_run_down_and_has_its_share_later() {
    let plan = Plan::new(Kind::Adaptive, 10, 40.0, 10).with(WARM);
    let world = World::run(plan.at(10.0, Step::Join(COLD)));
    let first = share(&world, 1, 10.0, 11.0);
    let later = share(&world, 1, 30.0, 40.0);
    let (before, after) = (p99(&world, 2.0, 10.0), p99(&world, 10.0, 20.0));
    let told = format!(
        "{first:?} in the first second, {} in a tenth, {later:?} later; {before:.1} ms before, {after:.1} after",
        rush(&world, 1, 10.0, 20.0)
    );
    eprintln!("{told}");
    assert!(first.0 > 20 && first.0 * 4 <= first.1, "{told}");
    // Half of what comes in a tenth of a second is 50, and varies by 7.
    assert!(rush(&world, 1, 10.0, 20.0) <= 75, "{told}");
    assert!(later.0 * 5 >= later.1 * 2 && later.0 * 5 <= later.1 * 3, "{told}");
    assert!(after <= 3.0 * before, "{told}");
    assert_eq!((world.failed, world.unanswered()), (0, 0));
}

#[test]
fn of_one_that_dies_only_what_was_under_way_is_lost_and_it_is_back_without_a_rush() {
    let plan = Plan::new(Kind::Adaptive, 10, 40.0, 11).with(WARM).at(0.0, Step::Join(WARM));
    let world = World::run(plan.at(15.0, Step::Die(1)).at(20.0, Step::Return(1)));
    let (before, without) = (p99(&world, 10.0, 15.0), p99(&world, 15.5, 20.0));
    let back = share(&world, 1, 30.0, 40.0);
    let told = format!(
        "{} failed, {} sent again; {before:.1} ms before, {without:.1} while it is dead, {:.1} after; {:.0} at the longest; \
         {} in a tenth of a second, {back:?} later",
        world.failed,
        world.repeated,
        p99(&world, 20.0, 30.0),
        longest(&world, 14.0, 21.0),
        rush(&world, 1, 20.0, 25.0)
    );
    eprintln!("{told}");
    // 500 requests a second, each for a little more than 10 ms; half of them are POSTs, which may have been processed.
    assert!(world.failed <= 10 && world.unanswered() == 0, "{told}");
    let twice = world.processed.iter().enumerate().filter(|(_, processed)| **processed > 1);
    assert!(twice.into_iter().all(|(number, _)| number % 2 == 0), "only what is idempotent: {told}");
    assert!(without <= 2.0 * before && longest(&world, 14.0, 21.0) <= 300.0, "{told}");
    assert!(rush(&world, 1, 20.0, 25.0) <= 75, "{told}");
    assert!(back.0 * 5 >= back.1 * 2 && back.0 * 5 <= back.1 * 3, "{told}");
}

#[test]
fn one_that_comes_back_cold_is_not_run_down() {
    let plan = Plan::new(Kind::Adaptive, 10, 40.0, 12).with(WARM).at(0.0, Step::Join(COLD));
    let world = World::run(plan.at(15.0, Step::Die(1)).at(17.0, Step::Return(1)));
    let (before, after) = (p99(&world, 10.0, 15.0), p99(&world, 17.0, 27.0));
    let back = share(&world, 1, 30.0, 40.0);
    let told = format!(
        "{} in a tenth, {:?} in a second, {back:?} later; {before:.1} ms before, {after:.1} after, {:.0} at the longest",
        rush(&world, 1, 17.0, 22.0),
        share(&world, 1, 17.0, 18.0),
        longest(&world, 17.0, 27.0)
    );
    eprintln!("{told}");
    assert!(rush(&world, 1, 17.0, 22.0) <= 75, "{told}");
    assert!(back.0 * 5 >= back.1 * 2, "{told}");
    assert!(after <= 4.0 * before, "{told}");
    assert_eq!(world.unanswered(), 0);
}

#[test]
fn while_the_only_one_restarts_requests_wait() {
    let plan = Plan::new(Kind::Adaptive, 10, 15.0, 13).with(WARM);
    let world = World::run(plan.at(8.0, Step::Die(0)).at(8.3, Step::Return(0)));
    let longest = longest(&world, 7.5, 10.0);
    let told = format!("{} failed, {} sent again, {longest:.0} ms", world.failed, world.repeated);
    eprintln!("{told}");
    // 1,000 requests a second, each for a little more than 10 ms, half of them POSTs.
    assert!(world.failed <= 20 && world.unanswered() == 0, "{told}");
    assert!(longest <= 300.0 + 500.0 + 100.0, "{told}");
    assert!(p99(&world, 10.0, 15.0) <= 20.0, "{told}");
}
