//! How often the number of connections changes while the path and the load stay as they are, where arrivals and losses come by chance.

use std::time::Duration;

use h2lab_base::random::Counter;
use h2lab_base::units::Time;
use h2lab_proxy::pool::estimate::{Estimate, Interval};
use h2lab_proxy::pool::path::PathReading;

use crate::plan::{Kind, Plan};
use crate::world::World;

/// Changes in a minute at most, after the first [`BEGINNING`]: one in ten seconds. Each costs what a connection costs: one that is new
/// needs some round trips until its window has grown, one that ends takes its window with it. Ten seconds are a hundred of the longest
/// round trips here, so that nine tenths of the time and more are spent with windows that have settled.
const CHANGES: usize = 6;
/// Looks until averages of eight seconds have something to say.
const BEGINNING: usize = 100;
const CHECK_PERIOD: Duration = Duration::from_millis(100);
const MINUTE: usize = 600;

/// Changes in each minute after the beginning.
fn changes(wanted: &[u32]) -> impl Iterator<Item = usize> {
    let minutes = wanted[BEGINNING..].chunks(MINUTE);
    minutes.map(|minute| minute.windows(2).filter(|pair| pair[0] != pair[1]).count())
}

/// What the estimate wants at each look, where a share of the segments of requests is lost, each as often as it is sent.
fn wanted(rate: f64, rtt_ms: u64, loss: f64, seconds: u64, seed: u64) -> Vec<u32> {
    let (mut arrivals, mut losses) = (Counter::new(seed, "arrivals"), Counter::new(seed, "losses"));
    let (mut now, mut estimate, mut due) = (Time::ZERO, Estimate::new(Time::ZERO), 0.0);
    let rtt = Duration::from_millis(rtt_ms);
    let before = PathReading { min_rtt: rtt, rtt, window: 10, ..PathReading::default() };
    let mut look = |_| {
        now += CHECK_PERIOD;
        let mut after = before;
        while due < now.since(Time::ZERO).as_secs_f64() {
            due += -(1.0 - arrivals.next_f64()).ln() / rate;
            after.requests += 1;
            after.sent += 1;
            while losses.next_f64() < loss {
                (after.sent, after.lost) = (after.sent + 1, after.lost + 1);
            }
        }
        let mut interval = Interval::default();
        interval.add(&before, &after);
        estimate.look(now, interval, 64)
    };
    (0..seconds * 10).map(&mut look).collect()
}

#[test]
fn chance_does_not_make_the_number_swing() {
    let mut all = 0;
    for rate in [10.0, 100.0, 1_000.0] {
        for loss in [0.0, 0.001, 0.01, 0.03, 0.05] {
            for rtt in [1, 10, 25, 100] {
                for seed in 0..5 {
                    let wanted = wanted(rate, rtt, loss, 190, seed);
                    let changes: Vec<usize> = changes(&wanted).collect();
                    let told = format!("{rate}/s, RTT {rtt} ms, {loss} lost, seed {seed}: {changes:?}");
                    assert!(changes.iter().all(|changes| *changes <= CHANGES), "{told}");
                    assert!(loss > 0.0 || wanted.iter().all(|wanted| *wanted == 1), "{told}");
                    all += changes.iter().sum::<usize>();
                }
            }
        }
    }
    assert!(all > 0, "chance was at work");
}

/// The same with TCP, its windows, and its probes, which increase with the number of connections.
#[test]
fn over_tcp_neither() {
    for (rate, loss, rtt, seconds, seeds) in [
        (1_000.0, 0.03, 25, 70, 1),
        (1_000.0, 0.01, 100, 70, 1),
        (1_000.0, 0.001, 100, 70, 1),
        (1_000.0, 0.05, 1, 70, 1),
        (100.0, 0.03, 25, 130, 2),
        (100.0, 0.01, 100, 130, 2),
        (10.0, 0.05, 100, 190, 3),
        (10.0, 0.03, 25, 190, 2),
    ] {
        for seed in 0..seeds {
            let plan = Plan::new(Kind::Adaptive, rtt, f64::from(seconds), seed);
            let world = World::run(plan.rate(0.0, rate).losing(0.0, loss));
            let wanted: Vec<u32> = world.wanted.iter().map(|(_, wanted)| *wanted).collect();
            let whole = BEGINNING + (wanted.len() - BEGINNING) / MINUTE * MINUTE;
            let changes: Vec<usize> = changes(&wanted[..whole]).collect();
            let range = (wanted[BEGINNING..].iter().min(), wanted[BEGINNING..].iter().max());
            let told = format!("{rate}/s, RTT {rtt}, {loss} lost, seed {seed}: {changes:?} in {range:?}");
            eprintln!("{told}");
            assert!(changes.iter().all(|changes| *changes <= CHANGES), "{told}");
        }
    }
}
