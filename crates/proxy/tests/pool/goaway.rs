//! Servers that end connections.

use crate::plan::{Kind, Plan, Server, Step};
use crate::world::World;
use crate::{longest, p99};

/// Each request has been answered, and reached a server that processes it once.
fn assert_whole(world: &World, told: &str) {
    assert_eq!((world.failed, world.unanswered()), (0, 0), "{told}");
    assert!(world.processed.iter().all(|processed| *processed == 1), "{told}");
    assert_eq!(world.answered.len(), world.processed.len(), "{told}");
}

/// At most one of this many connections may check whether a quota still holds: if it does, a round trip's requests are
/// sent again.
const RARELY: u32 = 40;

/// Runs at `rtt`; the p99 may be at most what `limit` makes of the p99 without a quota.
fn learn(rtt: u32, loss: f64, quota: u32, limit: impl Fn(f64) -> f64) {
    let run = |quota| {
        let server = Server { quota, ..Server::default() };
        World::run(Plan::new(Kind::Adaptive, rtt.into(), 25.0, 8).with(server).losing(0.0, loss))
    };
    let (world, without) = (run(Some(quota)), p99(&run(None), 5.0, 25.0));
    let (with, dialled) = (p99(&world, 5.0, 25.0), world.dialled() as u32);
    let most = world.there.iter().map(|(_, there)| *there).max().unwrap_or(0);
    let told = format!(
        "RTT {rtt}, {loss} lost, quota {quota}: {with:.1} ms, {without:.1} without it; {dialled} dialled, {most} at once, \
         {} sent again",
        world.repeated
    );
    eprintln!("{told}");
    assert_whole(&world, &told);
    assert!(with <= limit(without), "{told}");
    assert!(dialled >= 25_000 / quota && dialled <= 25_000 / quota * 3 / 2 + 20, "{told}");
    assert!(most <= 16, "{told}");
    // At a GOAWAY without notice, what was sent in the last round trip is under way. So it is at the first two, from
    // which the quota is learned, and at few after that, which check whether it still holds.
    assert!(world.repeated > 0 && world.repeated <= rtt * (4 + dialled / RARELY), "{told}");
}

#[test]
fn a_quota_is_learned_and_costs_no_request_and_little_time() {
    for quota in [137, 1_000] {
        learn(5, 0.0, quota, |without| 1.2 * without);
        // A connection lasts for some round trips then, of which the first few have small windows.
        learn(25, 0.0, quota, |without| without + 25.0);
        learn(25, 0.01, quota, |without| 1.2 * without);
    }
}

#[test]
fn what_a_goaway_in_the_middle_leaves_out_is_answered_elsewhere() {
    for (loss, most, limit) in [(0.0, 2, 150.0), (0.02, 30, 800.0)] {
        let plan = Plan::new(Kind::Adaptive, 25, 24.0, 9).losing(0.0, loss);
        let ends = [8.0, 12.0, 12.02, 16.0];
        let world = World::run(ends.iter().fold(plan, |plan, at| plan.at(*at, Step::GoAway(0))));
        let slowest = ends.map(|at| longest(&world, at - 0.1, at + 1.0));
        let there = world.there.iter().map(|(_, there)| *there).max().unwrap_or(0);
        let told = format!("{loss} lost: {slowest:.0?} ms, {} sent again, {there} at once", world.repeated);
        eprintln!("{told}");
        assert_whole(&world, &told);
        assert!(world.repeated >= 30, "it was in the middle: {told}");
        assert!(slowest.iter().all(|slowest| *slowest <= limit), "{told}");
        assert!(there <= most, "{told}");
    }
}
