//! Several threads make one load: nothing lost, nothing twice, and all begin and end together.

use h2lab_model::record::Level;
use h2lab_model::record::tally::Counts;

use super::*;

/// The open loop of [`spec`] over three connections and two threads.
fn shared<'a>(protocol: Protocol, server: &Server) -> LoadSpec<'a> {
    let mut spec = LoadSpec { threads: 2, ..spec(protocol, server) };
    (spec.cell.connections, spec.cell.max_connections) = (3, 3);
    spec
}

#[test]
fn threads_send_together_what_one_would_send() {
    for protocol in BOTH {
        let server = Server::start(protocol, Behaviour::Serves);
        let mut updates = Vec::new();
        let finished = run(&shared(protocol, &server), &mut |now| updates.push(now.clone())).unwrap();
        let result = finished.close();
        assert_eq!((result.samples.len(), count(&result, Outcome::Succeeded)), (50, 50), "{protocol}");
        for (k, sample) in result.samples.iter().enumerate() {
            assert_eq!(sample.scheduled_at, result.started_at + Duration::from_millis(5) * k as u32);
        }
        assert_eq!((result.generator.threads, result.connections.len()), (2, 3));
        let carried = |index: u32| result.samples.iter().filter(|s| s.connection == index).count() as u32;
        for (index, connection) in result.connections.iter().enumerate() {
            assert_eq!(connection.index as usize, index);
            assert_eq!(connection.requests, carried(connection.index), "{protocol}: names do not clash");
            assert!(result.frames.iter().any(|frame| frame.connection == connection.index));
        }
        assert!(result.frames.is_sorted_by_key(|frame| frame.at));
        let generator = result.generator;
        assert!(generator.busiest_ns > 0 && generator.busiest_ns <= generator.cpu_ns);
        assert!(updates.is_sorted_by_key(|now| now.succeeded) && !updates.is_empty());
        assert!(updates.iter().all(|now| now.due <= 50));
    }
}

#[test]
fn a_number_of_requests_is_shared_exactly_and_all_of_them_are_made() {
    let server = Server::start(Protocol::H2c, Behaviour::Serves);
    for (threads, requests, level) in [(3, 100, Level::Full), (2, 101, Level::Tail), (64, 7, Level::Hist)] {
        let mut spec = shared(Protocol::H2c, &server);
        (spec.threads, spec.requests, spec.record) = (threads, Some(requests), Some(level));
        spec.cell.work.arrival = Arrival::Closed { concurrency: 9 };
        spec.cell.work.phases.measure = Duration::from_secs(3600);
        let result = result(&spec);
        let counts = Counts::total(&result.tallies);
        let counted = if level == Level::Full { result.samples.len() as u64 } else { counts.requests };
        assert_eq!(counted, requests as u64, "{threads} threads");
        assert_eq!(result.generator.threads, threads.min(3), "never more than connections");
        assert_eq!((result.generator.level, result.tallies.is_empty()), (level, level == Level::Full));
        let begun: u32 = result.connections.iter().map(|connection| connection.requests).sum();
        assert_eq!(begun, requests as u32);
    }
}

#[test]
fn a_thread_that_fails_ends_all_with_its_error() {
    let mut spec = shared(Protocol::H2c, &Server::start(Protocol::H2c, Behaviour::Serves));
    spec.address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().into();
    match run(&spec, &mut |_| ()) {
        Err(LoadError::Unreachable { why: ConnectError::Refused, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stop_ends_every_thread_and_keeps_what_all_have_measured() {
    let stop = AtomicBool::new(false);
    let server = Server::start(Protocol::H1, Behaviour::Serves);
    let mut spec = LoadSpec { stop: Some(&stop), ..shared(Protocol::H1, &server) };
    spec.cell.work.phases.measure = Duration::from_secs(3600);
    let finished = run(&spec, &mut |progress| stop.store(progress.succeeded > 2, Ordering::Relaxed)).unwrap();
    let result = finished.close();
    assert!(result.interrupted && count(&result, Outcome::Succeeded) > 2);
    assert!(result.samples.iter().all(|sample| sample.completed_at.happened()));
}

#[test]
fn errors_are_counted_as_errors_in_every_level_and_never_as_throughput() {
    for level in Level::ALL {
        let server = Server::start(Protocol::H2c, Behaviour::RefusesTooLate);
        let mut spec = LoadSpec { record: Some(level), ..spec(Protocol::H2c, &server) };
        spec.cell.work.replay = false;
        let finished = run(&spec, &mut |_| ()).unwrap();
        let result = finished.close();
        let failed: u64 = match level {
            Level::Full => result.samples.iter().filter(|s| s.outcome.is_failure()).count() as u64,
            _ => {
                let failures = result.tallies.iter().filter(|tally| tally.class.outcome.is_failure());
                assert!(failures.clone().all(|tally| tally.counts.served == 0));
                failures.map(|tally| tally.counts.requests).sum()
            }
        };
        assert_eq!(failed, 2, "{level}: the first stream of each of two connections");
    }
}
