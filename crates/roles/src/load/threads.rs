//! Several threads that generate one load together.
//!
//! Each thread is a generator of its own, with its share of the connections, of a closed loop's requests in flight, of a
//! number of requests and of an open loop's schedule; they share nothing while they run but two flags. They begin at the
//! same moment, so that their schedules, phases and slices of time are one.
//!
//! Processes on several machines divide a load in the same way, each into threads: what one thread has is its part of the whole
//! load, see [`Part`].

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use h2lab_model::record::Histogram;
use h2lab_model::workload::{Arrival, Share};

use super::driver::Driver;
use super::merge::{Done, Finished, merge};
use super::spec::{LoadError, LoadProgress, LoadSpec, SampleListener};
use super::team::{FailOnPanic, Part, Team};
use crate::client::{Prepared, RequestKind};
use h2lab_net::resources::Memory;

/// How many threads each share of a load has: as asked for, but each has a connection and, in closed loop, a request. It depends on
/// nothing that differs between the shares.
pub(super) fn count(spec: &LoadSpec<'_>) -> u32 {
    spec.threads.min(most_parts(spec) / spec.share.of.max(1)).max(1)
}

/// Into how many parts a load can be divided so that each has a connection and, in closed loop, a request.
fn most_parts(spec: &LoadSpec<'_>) -> u32 {
    spec.cell.connections.min(spec.cell.work.concurrency().unwrap_or(u32::MAX)).max(1)
}

/// Whether there is something to do for each share.
fn check_share(spec: &LoadSpec<'_>) -> io::Result<()> {
    let (Share { number, of }, most) = (spec.share, most_parts(spec));
    if number < of && of <= most {
        return Ok(());
    }
    let why = format!(
        "there is no share {number} of {of}: each needs a connection and, in closed loop, a request in \
         flight, and the load has {most}; divide it into fewer, or give it more connections (-c)"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
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

/// What part `number` of `of` gets of `total`.
fn even_share(total: u32, number: u32, of: u32) -> u32 {
    (even_share_below(total, number + 1, of) - even_share_below(total, number, of)) as u32
}

/// How many of a load's number of requests part `number` of `of` makes. An open loop is divided by phase, whatever connections its
/// parts have: so is the number, and the parts together make the first requests of the schedule. A closed loop is divided as its
/// connections are.
fn requests_of(requests: usize, arrival: Arrival, connections: u32, number: u32, of: u32) -> usize {
    match arrival {
        Arrival::Closed { .. } => share(requests as u64, connections, number, of) as usize,
        _ => {
            let (number, of) = (number as usize, of as usize);
            requests / of + usize::from(number < requests % of)
        }
    }
}

/// How many requests of a closed loop part `number` of `of` keeps in flight: as its connections have it, or, where not each of them
/// has one, as many as the others, so that no part is without.
fn concurrency_of(concurrency: u32, connections: u32, number: u32, of: u32) -> u32 {
    if concurrency < connections {
        even_share(concurrency, number, of)
    } else {
        share(u64::from(concurrency), connections, number, of) as u32
    }
}

/// What one thread is to do.
fn spec_of_part<'s>(spec: &LoadSpec<'s>, part: Part<'_>) -> LoadSpec<'s> {
    let mut own = spec.clone();
    let (connections, Part { number, of, .. }) = (spec.cell.connections, part);
    own.cell.connections = even_share(connections, number, of);
    own.cell.max_connections = even_share(spec.cell.max_connections.max(connections), number, of);
    let arrival = spec.cell.work.arrival;
    own.requests = spec.requests.map(|requests| requests_of(requests, arrival, connections, number, of));
    if let Arrival::Closed { concurrency } = &mut own.cell.work.arrival {
        *concurrency = concurrency_of(*concurrency, connections, number, of);
    }
    own
}

/// Generates one thread's part of a load from dialling to the cut.
fn one(
    spec: &LoadSpec<'_>,
    part: Part<'_>,
    listener: Option<&Arc<dyn SampleListener>>,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<Done, LoadError> {
    let spec = &spec_of_part(spec, part);
    let work = &spec.cell.work;
    let kinds = RequestKind::all(work);
    let prepared = Prepared::new(work, &kinds, &spec.authority, spec.cell.request_seed)?;
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
    listener: Option<&Arc<dyn SampleListener>>,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<Finished, LoadError> {
    let before = Memory::now().resident;
    let mut finished = merge(parts(spec, listener, progress)?);
    finished.result.generator.memory.before = before;
    Ok(finished)
}

/// What each thread has measured.
fn parts(
    spec: &LoadSpec<'_>,
    listener: Option<&Arc<dyn SampleListener>>,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<Vec<Done>, LoadError> {
    let threads = count(spec);
    let _open = spec.start.map(|gate| gate.open(threads));
    check_share(spec)?;
    if threads == 1 {
        return Ok(vec![one(spec, Part::of_share(spec.share, 0, 1, None), listener, progress)?]);
    }
    let team = Team::new(threads);
    let (sender, updates) = mpsc::channel();
    let results = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let part = Part::of_share(spec.share, thread, threads, Some(&team));
                let sender = sender.clone();
                let work = move || {
                    let mut guard = FailOnPanic(part.team);
                    if let Some(begin) = spec.on_thread {
                        begin();
                    }
                    // Fails only if the receiver is gone.
                    let result = one(spec, part, listener, &mut |now| {
                        let _ = sender.send((thread, now.clone()));
                    });
                    if result.is_ok() {
                        guard.0 = None;
                    }
                    result
                };
                let builder = std::thread::Builder::new().name("load".to_owned());
                builder.spawn_scoped(scope, work).map_err(|error| {
                    team.fail();
                    io::Error::new(error.kind(), format!("cannot start a thread: {error}"))
                })
            })
            .collect();
        drop(sender);
        report(&updates, threads, progress);
        let joined = handles.into_iter().map(|handle| match handle?.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Vec<_>>()
    });
    // Those that ended because another had failed ended well: the first error is the reason.
    results.into_iter().collect()
}

/// Adds up what the threads report until all have ended.
fn report(updates: &mpsc::Receiver<(u32, LoadProgress)>, of: u32, progress: &mut dyn FnMut(&LoadProgress)) {
    /// Threads report ten times per second each; so does their sum.
    const EVERY: Duration = Duration::from_millis(90);
    let mut latest = vec![LoadProgress::default(); of as usize];
    let (mut next, mut recent) = (Duration::ZERO, Histogram::default());
    for (number, update) in updates {
        let elapsed = update.elapsed;
        // Each thread's report has the response times since its last one: all of them count once.
        recent.merge(&update.recent);
        latest[number as usize] = update;
        if elapsed >= next {
            next = elapsed + EVERY;
            progress(&LoadProgress { recent: std::mem::take(&mut recent), ..sum(&latest) });
        }
    }
}

fn sum(parts: &[LoadProgress]) -> LoadProgress {
    parts.iter().fold(LoadProgress::default(), |sum, part| LoadProgress {
        elapsed: sum.elapsed.max(part.elapsed),
        total: sum.total.max(part.total),
        due: sum.due + part.due,
        succeeded: sum.succeeded + part.succeeded,
        failed: sum.failed + part.failed,
        waiting: sum.waiting + part.waiting,
        in_flight: sum.in_flight + part.in_flight,
        connections: sum.connections + part.connections,
        opened: sum.opened + part.opened,
        recent: Histogram::default(),
    })
}

#[cfg(test)]
mod tests {
    use h2lab_base::units::Time;
    use h2lab_model::workload::Schedule;

    use super::*;

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
    fn each_part_of_a_closed_loop_has_a_request_wherever_that_can_be() {
        for connections in 1..40 {
            for concurrency in 1..100 {
                for of in 1..=connections.min(concurrency) {
                    let parts = (0..of).map(|number| concurrency_of(concurrency, connections, number, of));
                    let (sum, least) = parts.fold((0, u32::MAX), |(sum, least), n| (sum + n, least.min(n)));
                    assert_eq!(sum, concurrency, "over {connections} for {of}");
                    assert!(least > 0, "{concurrency} over {connections} for {of}");
                }
            }
        }
    }

    /// When the requests of part `number` of `of` are due before `until`.
    fn dues(arrival: Arrival, number: u32, of: u32, until: Time) -> Vec<Time> {
        let mut schedule = Schedule::part(arrival, Time::from_millis(3), 7, number, of);
        std::iter::from_fn(|| Some(schedule.advance())).take_while(|due| *due < until).collect()
    }

    /// The same of all threads of all shares, each with its own.
    fn dues_of_shares(arrival: Arrival, shares: u32, threads: u32, until: Time) -> Vec<Vec<Time>> {
        let shares = (0..shares).map(|number| Share { number, of: shares });
        let parts = shares
            .flat_map(|share| (0..threads).map(move |thread| Part::of_share(share, thread, threads, None)));
        parts.map(|part| dues(arrival, part.number, part.of, until)).collect()
    }

    /// Which requests of an open loop of `requests` the parts make that have its `connections`.
    fn made(arrival: Arrival, requests: usize, connections: u32, of: u32) -> Vec<Vec<Time>> {
        let part = |number| {
            let own = requests_of(requests, arrival, connections, number, of);
            let mut schedule = Schedule::part(arrival, Time::from_millis(3), 7, number, of);
            (0..own).map(|_| schedule.advance()).collect()
        };
        (0..of).map(part).collect()
    }

    #[test]
    fn a_number_of_requests_is_the_beginning_of_an_open_loops_schedule_for_any_connections() {
        let constant = Arrival::Constant { rate: 300.0 };
        let ramp = Arrival::Ramp { from: 10.0, to: 500.0, over: Duration::from_secs(1), steps: 0 };
        // Three parts of four connections: the first one has two of them.
        for (requests, connections, of) in [(600, 4, 3), (600, 3, 2), (601, 4, 3), (2, 4, 3), (0, 4, 3)] {
            for arrival in [constant, ramp, Arrival::Poisson { rate: 300.0 }] {
                let mut one = Schedule::new(arrival, Time::from_millis(3), 7);
                let first: Vec<Time> = (0..requests).map(|_| one.advance()).collect();
                let all = in_order(&made(arrival, requests, connections, of));
                assert_eq!(all, first, "{arrival:?}: {requests} over {connections} for {of}");
            }
        }
        assert_eq!(made(constant, 600, 4, 3).iter().map(Vec::len).collect::<Vec<_>>(), [200; 3]);
    }

    #[test]
    fn a_number_of_requests_of_a_closed_loop_is_divided_as_its_connections_are() {
        let closed = Arrival::Closed { concurrency: 4 };
        let parts = [0, 1, 2].map(|number| requests_of(600, closed, 4, number, 3));
        assert_eq!(parts, [300, 150, 150]);
    }

    fn in_order(dues: &[Vec<Time>]) -> Vec<Time> {
        let mut all = dues.concat();
        all.sort_unstable();
        all
    }

    #[test]
    fn shares_are_due_when_one_generator_is_whatever_threads_they_have() {
        let (over, until) = (Duration::from_secs(1), Time::from_millis(2_003));
        let poisson = Arrival::Poisson { rate: 3_000.0 };
        let constant = Arrival::Constant { rate: 3_000.0 };
        let ramp = |steps| Arrival::Ramp { from: 10.0, to: 5_000.0, over, steps };
        for arrival in [constant, poisson, ramp(0), ramp(4)] {
            for (shares, threads) in [(1, 1), (1, 6), (6, 1), (3, 2), (7, 5)] {
                let all = in_order(&dues_of_shares(arrival, shares, threads, until));
                let one = dues(arrival, 0, 1, until);
                assert_eq!(all, one, "{arrival:?}, {shares} shares of {threads} threads");
            }
        }
    }

    #[test]
    fn three_hundred_shares_send_thirty_thousand_per_second_each_its_hundred() {
        let until = Time::from_millis(5_003);
        let rate = 30_000.0;
        let constant = dues_of_shares(Arrival::Constant { rate }, 300, 1, until);
        assert!(constant.iter().all(|share| share.len() == 500), "100/s for five seconds");
        assert_eq!(in_order(&constant), dues(Arrival::Constant { rate }, 0, 1, until));
        let soon = Time::from_millis(103);
        let poisson = |until| in_order(&dues_of_shares(Arrival::Poisson { rate }, 300, 4, until));
        assert_eq!(poisson(soon), dues(Arrival::Poisson { rate }, 0, 1, soon));
        let poisson = dues(Arrival::Poisson { rate }, 0, 1, until);
        let sent = poisson.len() as f64;
        assert!((sent - 150_000.0).abs() < 5.0 * 150_000_f64.sqrt(), "{sent}");
        // Of a Poisson process the variance of the counts is their mean, however many make it together.
        let mut counts = vec![0_u32; 5_000];
        for due in &poisson {
            counts[(due.nanos_since(Time::from_millis(3)) / 1_000_000) as usize] += 1;
        }
        let variance = counts.iter().map(|n| (f64::from(*n) - 30.0).powi(2)).sum::<f64>() / 5_000.0;
        assert!((variance / 30.0 - 1.0).abs() < 0.1, "{variance}: five standard deviations are 10 %");
    }

    #[test]
    fn a_closed_loop_is_shared_so_that_each_connection_keeps_its_streams() {
        for (number, own) in [(0, 3), (1, 2)] {
            assert_eq!(share(5 * 100, 5, number, 2), own * 100);
        }
    }

    #[test]
    fn progress_is_the_sum_of_what_the_threads_last_reported() {
        let (sender, updates) = mpsc::channel();
        let update = |succeeded, ms| LoadProgress {
            elapsed: Duration::from_millis(ms),
            succeeded,
            ..LoadProgress::default()
        };
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
