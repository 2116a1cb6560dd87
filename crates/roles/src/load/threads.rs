//! Several threads that generate one load together, and how what they measured becomes one result.
//!
//! Each thread is a generator of its own, with its share of the connections, of a closed loop's requests in flight, of a
//! number of requests and of an open loop's schedule; they share nothing while they run but two flags. They begin at the
//! same moment, so that their schedules, phases and slices of time are one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

use h2lab_base::units::{Time, format_duration};
use h2lab_model::record::{GeneratorSummary, Sample, tally};
use h2lab_model::workload::Arrival;

use super::driver::{Done, Driver, LEAD};
use super::recorder::{FULL_RATE, MOST_SAMPLES};
use super::{Finished, Listener, LoadError, LoadResult, LoadSpec, Progress};
use crate::client::{Kind, Prepared};
use h2lab_net::clock::Clock;
use h2lab_net::resources;
use h2lab_net::resources::Memory;

/// One thread's part of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// Its number, from 0.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// Where they meet; `None` for one that is alone.
    pub team: Option<&'a Team>,
}

impl Part<'_> {
    /// The only one.
    pub const WHOLE: Self = Self { number: 0, of: 1, team: None };

    /// Whether there is a CPU on which no thread of this load runs. Only then may ours stay awake while nothing is due: a
    /// real-time thread that does not sleep leaves nothing to others on its CPU, such as a server on the same machine.
    pub fn leaves_a_cpu(&self) -> bool {
        (self.of as usize) < resources::online_cpus()
    }
}

/// What the threads of a load share.
#[derive(Debug)]
pub(super) struct Team {
    size: u32,
    ready: Mutex<Ready>,
    changed: Condvar,
    /// One of them has failed: the others end too.
    failed: AtomicBool,
}

#[derive(Debug, Default)]
struct Ready {
    /// Threads whose connections are up.
    threads: u32,
    /// When the first request is due, once all are ready.
    start: Option<Time>,
}

impl Team {
    fn new(size: u32) -> Self {
        Self {
            size,
            ready: Mutex::new(Ready::default()),
            changed: Condvar::new(),
            failed: AtomicBool::new(false),
        }
    }

    /// Waits until all threads are ready and returns the time at which all begin. If one has failed it returns at once.
    pub fn meet(&self, clock: Clock) -> Time {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.threads += 1;
        if ready.threads == self.size {
            ready.start = Some(clock.now() + LEAD);
            self.changed.notify_all();
        }
        loop {
            match ready.start {
                Some(start) => return start,
                None if self.has_failed() => return clock.now(),
                None => ready = self.changed.wait(ready).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Whether one of the threads has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Has all threads end.
    fn fail(&self) {
        // Under the lock, so that no thread checks before it and waits after it.
        let _ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        self.failed.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }
}

/// Fails the team unless it is disarmed first: on a panic of its thread too.
struct FailOnPanic<'a>(Option<&'a Team>);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if let Some(team) = self.0 {
            team.fail();
        }
    }
}

/// How many threads a load has: as asked for, but each has a connection and, in closed loop, a request.
pub(super) fn count(spec: &LoadSpec<'_>) -> u32 {
    let concurrency = match spec.cell.work.arrival {
        Arrival::Closed { concurrency } => concurrency,
        _ => u32::MAX,
    };
    spec.threads.min(spec.cell.connections).min(concurrency).max(1)
}

/// What part `number` of `of` gets of `total` things: as much as its share of `weight` by those weights, so that all parts
/// together get all of them.
fn share(total: u64, weight: u32, number: u32, of: u32) -> u64 {
    let before = |parts: u32| even_share_below(weight, parts, of);
    let upto = |weighed: u64| (u128::from(total) * u128::from(weighed) / u128::from(weight.max(1))) as u64;
    upto(before(number + 1)) - upto(before(number))
}

/// What the first `parts` of `of` get of `total`, the first ones one more if it does not divide evenly.
fn even_share_below(total: u32, parts: u32, of: u32) -> u64 {
    u64::from(total / of) * u64::from(parts) + u64::from(parts.min(total % of))
}

/// What one thread is to do.
fn spec_of_part<'s>(spec: &LoadSpec<'s>, number: u32, of: u32) -> LoadSpec<'s> {
    let mut part = spec.clone();
    let connections = spec.cell.connections;
    let even = |total| (even_share_below(total, number + 1, of) - even_share_below(total, number, of)) as u32;
    let by_connections = |total| share(total, connections, number, of);
    part.cell.connections = even(connections);
    part.cell.max_connections = even(spec.cell.max_connections.max(connections));
    part.requests = spec.requests.map(|requests| by_connections(requests as u64) as usize);
    if let Arrival::Closed { concurrency } = &mut part.cell.work.arrival {
        *concurrency = by_connections(u64::from(*concurrency)) as u32;
    }
    part
}

/// Generates the load of one thread from dialling to the cut.
fn one(
    spec: &LoadSpec<'_>,
    part: Part<'_>,
    listener: Option<&Arc<dyn Listener>>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Done, LoadError> {
    let work = &spec.cell.work;
    let kinds = Kind::all(work);
    let prepared = Prepared::new(work, &kinds, &spec.authority, spec.cell.seed)?;
    let mut driver = Driver::new(spec, &prepared, part)?;
    if let Some(listener) = listener {
        driver.listen(Arc::clone(listener));
    }
    driver.dial()?;
    driver.measure(progress)?;
    Ok(driver.finish())
}

/// Generates the load with as many threads as it has. The calling thread is one of them only if it is the only one.
pub(super) fn run(
    spec: &LoadSpec<'_>,
    listener: Option<&Arc<dyn Listener>>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Finished, LoadError> {
    let before = Memory::now().resident;
    let mut finished = merge(parts(spec, listener, progress)?);
    finished.result.generator.memory.before = before;
    Ok(finished)
}

/// What each thread has measured.
fn parts(
    spec: &LoadSpec<'_>,
    listener: Option<&Arc<dyn Listener>>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Vec<Done>, LoadError> {
    let of = count(spec);
    if of == 1 {
        return Ok(vec![one(spec, Part::WHOLE, listener, progress)?]);
    }
    let team = Team::new(of);
    let (sender, updates) = mpsc::channel();
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..of)
            .map(|number| {
                let (part, sender) = (Part { number, of, team: Some(&team) }, sender.clone());
                scope.spawn(move || {
                    let mut guard = FailOnPanic(part.team);
                    if let Some(begin) = spec.on_thread {
                        begin();
                    }
                    let spec = spec_of_part(spec, number, of);
                    // Fails only if the receiver is gone.
                    let result = one(&spec, part, listener, &mut |now| {
                        let _ = sender.send((number, *now));
                    });
                    if result.is_ok() {
                        guard.0 = None;
                    }
                    result
                })
            })
            .collect();
        drop(sender);
        report(&updates, of, progress);
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Vec<_>>()
    });
    // Those that ended because another had failed ended well: the first error is the reason.
    results.into_iter().collect()
}

/// Adds up what the threads report until all have ended.
fn report(updates: &mpsc::Receiver<(u32, Progress)>, of: u32, progress: &mut dyn FnMut(&Progress)) {
    /// Threads report ten times per second each; so does their sum.
    const EVERY: Duration = Duration::from_millis(90);
    let mut latest = vec![Progress::default(); of as usize];
    let mut next = Duration::ZERO;
    for (number, update) in updates {
        latest[number as usize] = update;
        if update.elapsed >= next {
            next = update.elapsed + EVERY;
            progress(&sum(&latest));
        }
    }
}

fn sum(parts: &[Progress]) -> Progress {
    parts.iter().fold(Progress::default(), |sum, part| Progress {
        elapsed: sum.elapsed.max(part.elapsed),
        total: sum.total.max(part.total),
        due: sum.due + part.due,
        succeeded: sum.succeeded + part.succeeded,
        failed: sum.failed + part.failed,
        waiting: sum.waiting + part.waiting,
        in_flight: sum.in_flight + part.in_flight,
        connections: sum.connections + part.connections,
        opened: sum.opened + part.opened,
        recent: sum.recent.and(part.recent),
    })
}

/// One result of what the threads measured: connections numbered on, samples in the order of `scheduled_at`, frames and
/// ticks in the order of time, tallies joined.
pub(super) fn merge(parts: Vec<Done>) -> Finished {
    let clock = parts[0].clock;
    let level = parts.iter().map(|part| part.recorder.level()).max().unwrap_or_default();
    let mut result = LoadResult { started_at: parts[0].started_at, ..LoadResult::default() };
    let (mut open, mut tallies) = (Vec::new(), Vec::new());
    let (mut frames_lost, mut not_kept) = (0, 0);
    let switches: Vec<_> = parts.iter().map(|part| part.recorder.went_over).collect();
    result.warnings.extend(went_over(&switches));
    for mut part in parts {
        let before = result.connections.len() as u32;
        frames_lost += part.frames_lost;
        not_kept += part.recorder.not_kept;
        let (mut samples, counted) = part.recorder.finish(level);
        if before > 0 {
            let assigned = samples.iter_mut().filter(|sample| sample.connection != Sample::NO_CONNECTION);
            assigned.for_each(|sample| sample.connection += before);
            part.connections.iter_mut().for_each(|connection| connection.index += before);
            part.frames.iter_mut().for_each(|frame| frame.connection += before);
            part.tcp.iter_mut().for_each(|tick| tick.connection += before);
        }
        join(&mut result.samples, &mut samples);
        tallies.push(counted);
        join(&mut result.connections, &mut part.connections);
        join(&mut result.frames, &mut part.frames);
        join(&mut result.tcp, &mut part.tcp);
        open.append(&mut part.open);
        add(&mut result.generator, &part.generator);
        result.interrupted |= part.interrupted;
    }
    put_in_order(&mut result.samples);
    result.frames.sort_by_key(|frame| frame.at);
    result.tcp.sort_by_key(|tick| tick.at);
    result.tallies = tally::merge(tallies);
    result.generator.level = level;
    if frames_lost > 0 {
        let why = "the cell has more of them than are kept";
        result.warnings.push(format!("{frames_lost} frames were not recorded: {why}"));
    }
    if not_kept > 0 {
        let why = "they are counted, and in the histograms";
        result.warnings.push(format!("{not_kept} slow or failed requests were not kept as samples: {why}"));
    }
    Finished { result, open, clock }
}

/// Orders samples by `scheduled_at`, and by their numbers those that were due together, as requests of a closed loop are.
///
/// Numbers are given in the order in which requests become due. Where one thread kept each of them, a sample's number is its
/// place, and nothing is sorted. Elsewhere what is sorted is their keys: a sample is so large that moving it at each step of a
/// sort took a sixth of all instructions of a load.
fn put_in_order(samples: &mut [Sample]) {
    if let Some(order) = order_of_numbers(samples) {
        move_to(samples, order);
    }
    let key = |sample: &Sample| (sample.scheduled_at, sample.number);
    if !samples.is_sorted_by_key(key) {
        let mut keys: Vec<_> =
            samples.iter().enumerate().map(|(index, sample)| (key(sample), index as u32)).collect();
        keys.sort_unstable();
        move_to(samples, keys.into_iter().map(|(_, index)| index).collect());
    }
}

/// The indices of samples in the order of their numbers; `None` unless those are all from 0 on.
fn order_of_numbers(samples: &[Sample]) -> Option<Vec<u32>> {
    let mut order = vec![u32::MAX; samples.len()];
    for (index, sample) in samples.iter().enumerate() {
        let place = order.get_mut(sample.number as usize)?;
        if *place != u32::MAX {
            return None;
        }
        *place = index as u32;
    }
    Some(order)
}

/// Puts at each place the sample whose index `order` has there. Each moves once, and not far, since requests end nearly in the
/// order in which they were due.
fn move_to(samples: &mut [Sample], mut order: Vec<u32>) {
    for first in 0..samples.len() {
        let waiting = samples[first];
        let mut place = first;
        // Around the circle of those that take each other's places.
        loop {
            let from = std::mem::replace(&mut order[place], place as u32) as usize;
            if from == first {
                samples[place] = waiting;
                break;
            }
            samples[place] = samples[from];
            place = from;
        }
    }
}

/// That requests were too many to keep each of them, if a thread found that: after how long, and how many it had kept by then.
/// The first one is taken for all.
fn went_over(threads: &[Option<(Duration, usize)>]) -> Option<String> {
    let (after, kept) = threads.iter().copied().flatten().min()?;
    let kept = (kept * threads.len()) as f64;
    Some(format!(
        "recording went from full to tail by itself after {} and about {kept} requests ({:.0}/s): above {FULL_RATE:.0}/s, or \
         {MOST_SAMPLES} in all, not every request is kept by itself; --record full keeps all",
        format_duration(Duration::from_millis(after.as_millis() as u64)),
        kept / after.as_secs_f64().max(f64::MIN_POSITIVE),
    ))
}

/// Appends `more`; what is alone, as often it is, is not copied.
fn join<T>(all: &mut Vec<T>, more: &mut Vec<T>) {
    if all.is_empty() {
        std::mem::swap(all, more);
    } else {
        all.append(more);
    }
}

/// Adds what another thread used.
fn add(sum: &mut GeneratorSummary, part: &GeneratorSummary) {
    sum.threads += part.threads;
    sum.cpu_ns += part.cpu_ns;
    sum.wall_ns = sum.wall_ns.max(part.wall_ns);
    sum.awake_ns += part.awake_ns;
    sum.stolen_ns = sum.stolen_ns.max(part.stolen_ns);
    sum.busiest_ns = sum.busiest_ns.max(part.cpu_ns.saturating_sub(part.awake_ns));
    sum.backlog_at_cut += part.backlog_at_cut;
    // It is one process: the last measurement covers all of it.
    sum.memory.connected = sum.memory.connected.max(part.memory.connected);
    sum.memory.peak = sum.memory.peak.max(part.memory.peak);
}

#[cfg(test)]
mod tests {
    use h2lab_wire::StreamId;

    use super::*;

    #[test]
    fn going_over_to_a_tail_is_reported_with_the_figures_of_the_first_thread_that_did() {
        assert_eq!(went_over(&[None, None]), None);
        let reported =
            went_over(&[Some((Duration::from_secs(9), 10)), None, Some((Duration::from_secs(4), 400_000))]);
        let reported = reported.expect("two went over");
        for words in [
            "from full to tail",
            "after 4s",
            "1200000 requests",
            "(300000/s)",
            "above 50000/s",
            "--record full",
        ] {
            assert!(reported.contains(words), "{words}: {reported}");
        }
    }

    #[test]
    fn samples_are_ordered_by_when_they_were_due_and_then_by_their_numbers() {
        let in_order = |samples: &[(u64, u32)]| {
            let sample =
                |&(ms, number): &(u64, u32)| Sample { number, ..Sample::due(Time::from_millis(ms), true) };
            let mut samples: Vec<Sample> = samples.iter().map(sample).collect();
            put_in_order(&mut samples);
            let places = samples.iter().map(|sample| (sample.scheduled_at, sample.number));
            places.collect::<Vec<_>>()
        };
        let assert_order = |given: &[(u64, u32)], expected: &[(u64, u32)]| {
            let due = |&(ms, number): &(u64, u32)| (Time::from_millis(ms), number);
            assert_eq!(in_order(given), expected.iter().map(due).collect::<Vec<_>>());
        };
        // Each was kept, by one thread.
        assert_order(&[(1, 1), (2, 2), (1, 0), (3, 3)], &[(1, 0), (1, 1), (2, 2), (3, 3)]);
        // By two threads, the second of which was late.
        assert_order(&[(1, 0), (2, 2), (3, 1), (4, 3)], &[(1, 0), (2, 2), (3, 1), (4, 3)]);
        // Not each was kept.
        assert_order(&[(2, 9), (2, 4), (1, 2)], &[(1, 2), (2, 4), (2, 9)]);
        // Two are from elsewhere, without a number.
        assert_order(&[(2, 0), (1, 0)], &[(1, 0), (2, 0)]);
        assert_order(&[], &[]);
    }

    #[test]
    fn each_sample_is_still_there_once_it_is_in_order() {
        for of in [1, 2, 997] {
            // 7 generates all remainders of 997, so that the places change in long circles; some are due together.
            let places = (0..of).map(|number: u32| number * 7 % of);
            for (each, together) in [(1, 1), (1, 3), (2, 1), (2, 3)] {
                let sample = |number: u32| Sample {
                    number: number * each,
                    stream: StreamId(number),
                    ..Sample::due(Time::from_millis(u64::from(number / together)), true)
                };
                let mut samples: Vec<Sample> = places.clone().map(sample).collect();
                put_in_order(&mut samples);
                assert!(samples == (0..of).map(sample).collect::<Vec<_>>(), "{of} {each} {together}");
            }
        }
    }

    #[test]
    fn shares_add_up_exactly_and_follow_the_connections() {
        for of in 1..=9 {
            for connections in of..40 {
                for total in [0, 1, 7, 100, 999_983, u64::from(connections) * 100] {
                    let parts: Vec<u64> =
                        (0..of).map(|number| share(total, connections, number, of)).collect();
                    assert_eq!(parts.iter().sum::<u64>(), total, "{total} over {connections} for {of}");
                    for (number, part) in parts.iter().enumerate() {
                        let number = number as u32;
                        let own = even_share_below(connections, number + 1, of)
                            - even_share_below(connections, number, of);
                        assert!(own > 0, "each has a connection");
                        let exact = total as f64 * own as f64 / f64::from(connections);
                        assert!((*part as f64 - exact).abs() < 1.0, "{part} where {exact} is fair");
                    }
                }
            }
        }
    }

    #[test]
    fn a_closed_loop_is_shared_so_that_each_connection_keeps_its_streams() {
        for (number, own) in [(0, 3), (1, 2)] {
            assert_eq!(share(5 * 100, 5, number, 2), own * 100);
        }
    }

    #[test]
    fn a_team_that_fails_waits_for_nobody() {
        let team = Team::new(3);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| team.meet(Clock::start()));
            drop(FailOnPanic(Some(&team)));
            waiting.join().unwrap();
        });
        assert!(team.has_failed());
    }

    #[test]
    fn a_team_begins_at_one_time_when_the_last_is_ready() {
        let (team, clock) = (Team::new(4), Clock::start());
        let starts: Vec<Time> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| team.meet(clock))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
    }

    #[test]
    fn progress_is_the_sum_of_what_the_threads_last_told() {
        let (sender, updates) = mpsc::channel();
        let update =
            |succeeded, ms| Progress { elapsed: Duration::from_millis(ms), succeeded, ..Progress::default() };
        for (number, update) in
            [(0, update(5, 0)), (1, update(7, 100)), (0, update(9, 101)), (1, update(20, 200))]
        {
            sender.send((number, update)).unwrap();
        }
        drop(sender);
        let mut reported = Vec::new();
        report(&updates, 2, &mut |progress| reported.push(progress.succeeded));
        assert_eq!(reported, [5, 12, 29]);
    }
}
