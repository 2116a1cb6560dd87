//! What shares instances get, in virtual time: equal ones, of different weights, ones that fail, are slow, cold, or have recovered.
//!
//! Requests come at random, and each instance answers some at a time. What is known of an instance is what the proxy knows: what is under
//! way, what responses took, and how they ended.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use h2lab_base::random::Counter;
use h2lab_base::units::Time;
use h2lab_proxy::pool::choice;
use h2lab_proxy::pool::place::{self, Load};
use h2lab_proxy::pool::ramp;

/// What an instance does with requests that come at this second.
type Does = fn(f64) -> (Duration, bool);

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// An instance.
#[derive(Clone, Copy)]
struct Instance {
    weight: u32,
    /// What a response takes on average, and whether it is a failure.
    does: Does,
    /// Requests that it works on at a time.
    at_once: usize,
    /// When it appears, in seconds.
    from: f64,
    /// Whether it is in the proxy's own zone.
    is_near: bool,
}

impl Instance {
    const fn new(does: Does) -> Self {
        Self { weight: 1, does, at_once: 1_000, from: 0.0, is_near: false }
    }

    const fn weighs(self, weight: u32) -> Self {
        Self { weight, ..self }
    }

    const fn near(self) -> Self {
        Self { is_near: true, ..self }
    }
}

/// A request that was answered.
#[derive(Clone, Copy)]
struct Answered {
    /// When it came, in seconds.
    came: f64,
    to: usize,
    took: Duration,
    failed: bool,
}

/// What is known of an instance.
struct Known {
    load: Load,
    answered_at: Time,
    ended_at: Time,
    /// When each of its workers is free.
    workers: BinaryHeap<Reverse<Time>>,
}

impl Known {
    fn load(&self, instance: &Instance, now: Time) -> Load {
        let age = (instance.from > 0.0).then(|| now.since(at(instance.from)));
        let takes = self.load.takes.map(|takes| place::remembered(takes, now.since(self.answered_at)));
        let fails = choice::failing_after(self.load.fails, now.since(self.ended_at));
        let weight = ramp::weight(instance.weight, age, Duration::from_secs(10));
        let (is_down, is_near) = (now < at(instance.from), instance.is_near);
        Load { takes, fails, weight, is_down, is_near, ..self.load }
    }

    fn ended(&mut self, took: Duration, failed: bool, now: Time) {
        self.load.open -= 1;
        self.load.fails =
            choice::failing(choice::failing_after(self.load.fails, now.since(self.ended_at)), failed);
        self.ended_at = now;
        if !failed {
            let before = self.load.takes.map(|takes| place::remembered(takes, now.since(self.answered_at)));
            self.load.takes = Some(place::smoothed(before, took));
            self.answered_at = now;
        }
    }
}

fn at(second: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(second)
}

/// A time that varies as many do (exponentially), of this mean.
fn about(mean: Duration, random: &mut Counter) -> Duration {
    mean.mul_f64(-(1.0 - random.next_f64()).ln())
}

/// All requests of `seconds` seconds, `per_second` of them on average.
fn run(instances: &[Instance], per_second: f64, seconds: f64, seed: u64) -> Vec<Answered> {
    let (mut random, mut choices) = (Counter::new(seed, "balance"), Counter::new(seed, "instances"));
    let mut known: Vec<Known> = instances
        .iter()
        .map(|instance| Known {
            load: Load::default(),
            answered_at: Time::ZERO,
            ended_at: Time::ZERO,
            workers: std::iter::repeat_n(Reverse(Time::ZERO), instance.at_once).collect(),
        })
        .collect();
    let mut under_way: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
    let mut all: Vec<Answered> = Vec::new();
    let mut came = 0.0;
    loop {
        came += about(Duration::from_secs_f64(1.0 / per_second), &mut random).as_secs_f64();
        let now = at(came);
        while let Some(&Reverse((end, number))) = under_way.peek().filter(|next| next.0.0 <= now) {
            under_way.pop();
            let Answered { to, took, failed, .. } = all[number];
            known[to].ended(took, failed, end);
        }
        if came >= seconds {
            return all;
        }
        let loads: Vec<Load> = known.iter().zip(instances).map(|(known, one)| known.load(one, now)).collect();
        let to = place::instance(&loads, &mut choices).expect("there is one");
        let (mean, failed) = (instances[to].does)(came);
        let of = &mut known[to];
        of.load.open += 1;
        let Reverse(free) = of.workers.pop().expect("it has some");
        let end = free.max(now) + about(mean, &mut random);
        of.workers.push(Reverse(end));
        under_way.push(Reverse((end, all.len())));
        all.push(Answered { came, to, took: end.since(now), failed });
    }
}

/// The share of an instance in a part of a run, in percent.
fn share(all: &[Answered], to: usize, from: f64, until: f64) -> f64 {
    let came = all.iter().filter(|one| (from..until).contains(&one.came));
    let (own, all) =
        came.fold((0.0, 0.0), |(own, all), one| (own + f64::from(u8::from(one.to == to)), all + 1.0));
    100.0 * own / all
}

fn p99(all: &[Answered]) -> Duration {
    let mut times: Vec<Duration> = all.iter().map(|one| one.took).collect();
    times.sort_unstable();
    times[(times.len() - 1) * 99 / 100]
}

#[test]
fn equal_instances_get_equal_shares_however_quick_they_are_and_however_many_requests_there_are() {
    for (does, per_second) in [
        ((|_| (us(300), false)) as Does, 50.0),
        (|_| (us(300), false), 3_000.0),
        (|_| (us(8_000), false), 20.0),
        (|_| (us(8_000), false), 300.0),
        (|_| (us(8_000), false), 5_000.0),
    ] {
        let all = run(&[Instance::new(does); 2], per_second, 6_000.0 / per_second + 20.0, 1);
        let half = share(&all, 0, 0.0, f64::MAX);
        assert!((46.0..54.0).contains(&half), "{half:.1} % at {per_second}/s of {:?}", does(0.0));
        // In no part of it is one of them left out: 500 requests, of which half are 250 ± 11 by chance.
        for n in 0..all.len() / 500 {
            let part = share(&all[n * 500..(n + 1) * 500], 0, 0.0, f64::MAX);
            assert!((25.0..75.0).contains(&part), "{part:.1} % in part {n} at {per_second}/s");
        }
    }
}

#[test]
fn shares_of_quick_instances_are_those_of_their_weights() {
    let does: Does = |_| (us(5_000), false);
    for per_second in [10.0, 200.0, 1_000.0, 10_000.0] {
        let heavy = Instance::new(does).weighs(9);
        let light = Instance::new(does);
        let two = share(&run(&[heavy, light], per_second, 20.0 + 10_000.0 / per_second, 2), 1, 0.0, f64::MAX);
        assert!((8.0..13.0).contains(&two), "{two:.1} % of two, at {per_second}/s");
        let four = run(&[heavy, light, light, heavy], per_second, 20.0 + 10_000.0 / per_second, 3);
        let light = share(&four, 1, 0.0, f64::MAX) + share(&four, 2, 0.0, f64::MAX);
        assert!((8.0..13.0).contains(&light), "{light:.1} % of four, at {per_second}/s");
    }
}

#[test]
fn one_that_fails_at_once_attracts_nothing_and_comes_back_when_it_has_recovered() {
    let fails: Does =
        |second| if (5.0..15.0).contains(&second) { (us(100), true) } else { (us(10_000), false) };
    let well: Does = |_| (us(10_000), false);
    // Few under way, and more than the failing one's part of the odds would leave to the other one.
    for per_second in [50.0, 500.0, 20_000.0] {
        let all = run(&[Instance::new(fails), Instance::new(well)], per_second, 40.0, 4);
        let failed = all.iter().filter(|one| one.failed).count();
        let (first, later) = (share(&all, 0, 5.0, 7.0), share(&all, 0, 8.0, 15.0));
        let back = share(&all, 0, 30.0, 40.0);
        let told = format!(
            "{failed} failed, {first:.1} % at first, {later:.1} % later, {back:.1} % at last; {per_second}/s"
        );
        assert!(first < 30.0 && later < 6.0 && (40.0..60.0).contains(&back), "{told}");
    }
    let all = run(&[Instance::new(|_| (us(100), true)); 2], 500.0, 10.0, 5);
    assert!((45.0..55.0).contains(&share(&all, 0, 0.0, 10.0)), "where all fail none is better");
}

#[test]
fn of_one_that_fails_half_of_what_it_gets_others_take_over_most() {
    // By the time of arrival: every other millisecond.
    let half: Does = |second| (us(5_000), ((second * 1_000.0) as u64).is_multiple_of(2));
    let well = Instance::new(|_| (us(5_000), false));
    let all = run(&[Instance::new(half), well, well], 500.0, 20.0, 6);
    let got = share(&all, 0, 2.0, 20.0);
    assert!((3.0..20.0).contains(&got), "{got:.1} %");
    let rarely: Does = |second| (us(5_000), ((second * 1_000.0) as u64).is_multiple_of(100));
    let all = run(&[Instance::new(rarely), well, well], 500.0, 40.0, 7);
    let got = share(&all, 0, 2.0, 40.0);
    assert!((25.0..36.0).contains(&got), "one failure in a hundred is no reason to leave it: {got:.1} %");
}

#[test]
fn a_slow_one_is_avoided_and_comes_back_when_it_has_recovered() {
    let slow: Does =
        |second| if (5.0..15.0).contains(&second) { (us(250_000), false) } else { (us(5_000), false) };
    let quick = Instance::new(|_| (us(5_000), false));
    for per_second in [50.0, 500.0] {
        let all = run(&[Instance::new(slow), quick], per_second, 90.0, 8);
        let (slow, back) = (share(&all, 0, 8.0, 15.0), share(&all, 0, 70.0, 90.0));
        assert!(slow < 2.0 && (40.0..60.0).contains(&back), "{slow:.1} %, {back:.1} % later; {per_second}/s");
    }
    let always = Instance::new(|_| (us(250_000), false));
    let all = run(&[always, quick], 500.0, 60.0, 9);
    assert!(p99(&all) < Duration::from_millis(40), "{:?}: less than one in a hundred is slow", p99(&all));
}

#[test]
fn a_cold_one_begins_with_a_little_and_a_busy_one_is_left_alone() {
    let quick = Instance::new(|_| (us(5_000), false));
    let all = run(&[quick, Instance { from: 10.0, ..quick }], 500.0, 40.0, 10);
    let [none, first, later] =
        [(0.0, 10.0), (10.0, 11.0), (25.0, 40.0)].map(|(from, until)| share(&all, 1, from, until));
    assert!(
        none == 0.0 && (3.0..25.0).contains(&first) && (45.0..55.0).contains(&later),
        "{first:.1} %, {later:.1} %"
    );
    // One worker each, busy for 80 % of the time: where chance alone decides a request waits for 21 ms in one of a hundred cases.
    let single = Instance { at_once: 1, ..Instance::new(|_| (us(1_000), false)) };
    let all = run(&[single; 2], 1_600.0, 60.0, 11);
    assert!(p99(&all) < Duration::from_millis(14), "{:?}", p99(&all));
}

#[test]
fn requests_leave_a_zone_that_fails_and_come_back_when_it_has_recovered() {
    let fails: Does =
        |second| if (5.0..20.0).contains(&second) { (us(100), true) } else { (us(5_000), false) };
    let well = Instance::new(|_| (us(5_000), false));
    for per_second in [50.0, 500.0] {
        let all = run(&[Instance::new(fails).near(), well, well], per_second, 60.0, 12);
        let [before, meanwhile, back] =
            [(0.0, 5.0), (8.0, 20.0), (45.0, 60.0)].map(|(from, until)| share(&all, 0, from, until));
        let told =
            format!("{before:.1} %, {meanwhile:.1} % while it fails, {back:.1} % later; {per_second}/s");
        assert!(before > 99.9 && meanwhile < 10.0 && back > 99.0, "{told}");
    }
    // A half of it that fails is as good as down: 1 - 50 / 71 of the requests leave.
    let always = Instance::new(|_| (us(100), true));
    let all = run(&[always.near(), well.near(), well], 500.0, 30.0, 13);
    let (bad, far) = (share(&all, 0, 5.0, 30.0), share(&all, 2, 5.0, 30.0));
    assert!(bad < 3.0 && (22.0..36.0).contains(&far), "{bad:.1} % to the one that fails, {far:.1} % far");
    // An occasional failure is no reason to go elsewhere, nor are failures that all others have as well.
    let rarely: Does = |second| (us(5_000), ((second * 1_000.0) as u64).is_multiple_of(50));
    for near in [[Instance::new(rarely).near(), well], [always.near(), always]] {
        let all = run(&near, 500.0, 30.0, 14);
        let own = share(&all, 0, 5.0, 30.0);
        assert!(own > 90.0, "{own:.1} %");
    }
}
