//! Several threads that generate one load together.
//!
//! Each thread is a generator of its own, with its share of the connections, of a closed loop's requests in flight, of a
//! number of requests and of an open loop's schedule; they share nothing while they run but two flags. They begin at the
//! same moment, so that their schedules, phases and slices of time are one.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use h2lab_model::record::Histogram;
use h2lab_model::workload::Arrival;

use super::driver::Driver;
use super::merge::{Done, Finished, merge};
use super::spec::{LoadError, LoadProgress, LoadSpec, SampleListener};
use super::team::{FailOnPanic, Part, Team};
use crate::client::{Prepared, RequestKind};
use h2lab_net::resources::Memory;

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
    listener: Option<&Arc<dyn SampleListener>>,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<Done, LoadError> {
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
                let work = move || {
                    let mut guard = FailOnPanic(part.team);
                    if let Some(begin) = spec.on_thread {
                        begin();
                    }
                    let spec = spec_of_part(spec, number, of);
                    // Fails only if the receiver is gone.
                    let result = one(&spec, part, listener, &mut |now| {
                        let _ = sender.send((number, now.clone()));
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
        report(&updates, of, progress);
        let joined = threads.into_iter().map(|thread| match thread?.join() {
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
