//! The pool of connections over TCP with losses, in virtual time: `estimate` says how many there are, `place` which one
//! carries a request, against fixed numbers and HTTP/1.1 on the same path with the same arrivals. `traps` lists the
//! traps of other pools, and where each is tested.

mod balance;
mod goaway;
mod instances;
mod load;
mod losses;
mod plan;
mod steady;
mod traps;
mod wire;
mod world;

use world::{FROM, World};

/// What responses to requests due in a part of a run took, in milliseconds, the shortest first. Times in seconds.
fn times(world: &World, from: f64, to: f64) -> Vec<f64> {
    let is_in = |due: f64| (from..to).contains(&due);
    let due = world.answered.iter().filter(|answered| is_in(answered.due.since(FROM).as_secs_f64()));
    let mut times: Vec<f64> = due.map(|answered| answered.took.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn p99(world: &World, from: f64, to: f64) -> f64 {
    let times = times(world, from, to);
    times[(times.len() - 1) * 99 / 100]
}

fn longest(world: &World, from: f64, to: f64) -> f64 {
    times(world, from, to).last().copied().unwrap_or(0.0)
}

/// How many connections the pool wanted at this time, in seconds.
fn number_at(world: &World, second: f64) -> u32 {
    let before = world.wanted.iter().take_while(|(at, _)| at.since(FROM).as_secs_f64() <= second);
    before.last().map_or(0, |(_, wanted)| *wanted)
}
