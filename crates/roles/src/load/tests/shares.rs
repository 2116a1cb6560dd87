//! Several processes make one load, each its share; and a load begins at an instant that is given when it is ready.

use std::collections::BTreeSet;

use h2lab_model::record::Level;

use super::*;
use crate::load::{Readiness, StartGate};

/// A closed loop of seven connections with two requests each, of which one share of three is made.
fn shared(server: &Server, number: u32) -> LoadSpec<'static> {
    let share = Share { number, of: 3 };
    let mut spec = LoadSpec { threads: 2, share, record: Some(Level::Full), ..spec(Protocol::H2c, server) };
    (spec.cell.connections, spec.cell.max_connections) = (7, 7);
    spec.cell.work.arrival = Arrival::Closed { concurrency: 14 };
    spec.cell.work.phases.measure = Duration::from_secs(3600);
    spec.requests = Some(101);
    spec
}

#[test]
fn shares_make_together_each_request_once_over_each_connection_once() {
    let server = Server::start(Protocol::H2c, Behaviour::Serves);
    let results: Vec<LoadResult> = (0..3).map(|number| result(&shared(&server, number))).collect();
    let numbers: BTreeSet<u32> =
        results.iter().flat_map(|result| &result.samples).map(|sample| sample.number).collect();
    assert_eq!(numbers.len(), 101, "each number is one request's");
    assert_eq!(results.iter().map(|result| result.samples.len()).sum::<usize>(), 101);
    let connections: Vec<usize> = results.iter().map(|result| result.connections.len()).collect();
    assert_eq!(connections, [3, 2, 2]);
    assert!(results.iter().all(|result| result.generator.threads == 2));
}

#[test]
fn shares_of_an_open_loop_are_due_when_it_is() {
    let server = Server::start(Protocol::H2c, Behaviour::Serves);
    let of = 2;
    for number in 0..of {
        let mut spec = LoadSpec { share: Share { number, of }, ..spec(Protocol::H2c, &server) };
        spec.record = Some(Level::Full);
        let result = result(&spec);
        let due = result.samples.iter().map(|sample| sample.scheduled_at);
        // Every second one of those that are due each 5 ms.
        let expected = (0..25).map(|k| result.started_at + Duration::from_millis(5) * (k * of + number));
        assert!(due.eq(expected), "share {number}");
        assert_eq!(result.connections.len(), 1);
    }
}

#[test]
fn a_share_without_a_connection_is_refused_with_what_to_do() {
    let server = Server::start(Protocol::H2c, Behaviour::Serves);
    for (connections, of, is_refused) in [(7, 7, false), (7, 8, true)] {
        let mut spec = shared(&server, 6);
        spec.share.of = of;
        spec.cell.connections = connections;
        match run(&spec, &mut |_| ()) {
            Ok(_) => assert!(!is_refused, "{connections} connections for {of}"),
            Err(error) => {
                let error = error.to_string();
                assert!(is_refused && error.contains("share 6 of 8") && error.contains("-c"), "{error}");
            }
        }
    }
}

/// What the load gives that `gate` lets begin with what `begin` does once it is ready.
fn gated(spec: &LoadSpec<'_>, gate: &StartGate, begin: impl FnOnce()) -> Result<LoadResult, LoadError> {
    std::thread::scope(|scope| {
        let load = scope.spawn(|| run(spec, &mut |_| ()));
        assert_eq!(gate.wait_ready(DEADLINE), Readiness::Ready);
        begin();
        load.join().unwrap().map(super::super::merge::Finished::close)
    })
}

#[test]
fn a_load_with_a_gate_dials_and_begins_no_sooner_than_at_its_instant() {
    for (protocol, threads) in [(Protocol::H1, 1), (Protocol::H2c, 1), (Protocol::H2c, 2)] {
        let server = Server::start(protocol, Behaviour::Serves);
        let gate = StartGate::new();
        let spec = LoadSpec { threads, start: Some(&gate), ..spec(protocol, &server) };
        let clock = Clock::new(spec.clock_origin_ns);
        let mut instant = Time::ZERO;
        let result = gated(&spec, &gate, || {
            server.until_accepted(2);
            instant = clock.now() + Duration::from_millis(50);
            gate.begin_at(instant);
        });
        let result = result.unwrap();
        assert!(result.started_at >= instant, "{} is before {instant}", result.started_at);
        assert_eq!(count(&result, Outcome::Succeeded), 50, "{protocol}");
        assert!(result.connections.iter().all(|connection| connection.ready_at < instant));
        assert_eq!(gate.wait_ready(Duration::ZERO), Readiness::Ended);
    }
}

#[test]
fn an_instant_that_has_passed_is_no_reason_to_be_late_from_the_beginning() {
    let server = Server::start(Protocol::H2c, Behaviour::Serves);
    let gate = StartGate::new();
    let spec = LoadSpec { start: Some(&gate), ..spec(Protocol::H2c, &server) };
    let clock = Clock::new(spec.clock_origin_ns);
    let mut begun = Time::ZERO;
    let result = gated(&spec, &gate, || {
        begun = clock.now();
        gate.begin_at(Time::ZERO);
    });
    let result = result.unwrap();
    assert!(result.started_at > begun, "all that is due is due from now on");
    assert_eq!(result.samples[0].scheduled_at, result.started_at);
}

#[test]
fn a_load_that_is_stopped_at_its_gate_sends_nothing() {
    for threads in [1, 2] {
        let server = Server::start(Protocol::H2c, Behaviour::Serves);
        let (gate, stop) = (StartGate::new(), AtomicBool::new(false));
        let spec =
            LoadSpec { threads, start: Some(&gate), stop: Some(&stop), ..spec(Protocol::H2c, &server) };
        let result = gated(&spec, &gate, || stop.store(true, Ordering::Relaxed)).unwrap();
        assert!(result.interrupted && result.samples.is_empty() && result.tallies.is_empty());
        assert_eq!(result.connections.len(), 2);
        assert!(result.connections.iter().all(|connection| connection.requests == 0));
    }
}

#[test]
fn a_connection_that_the_server_closes_at_the_gate_is_dialled_again() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (gate, stop) = (StartGate::new(), AtomicBool::new(false));
    let server = Server::start(Protocol::H1, Behaviour::Serves);
    let mut spec = LoadSpec { start: Some(&gate), stop: Some(&stop), ..spec(Protocol::H1, &server) };
    spec.address = listener.local_addr().unwrap().into();
    (spec.cell.connections, spec.cell.max_connections) = (1, 1);
    let result = gated(&spec, &gate, || {
        let (first, _) = listener.accept().unwrap();
        drop(first);
        // Returns once there is a second one.
        let second = listener.accept().unwrap();
        stop.store(true, Ordering::Relaxed);
        drop(second);
    });
    assert!(result.unwrap().connections.len() >= 2);
}

#[test]
fn whoever_waits_at_the_gate_of_a_load_that_fails_is_told_and_so_are_its_other_threads() {
    let server = Server::start(Protocol::H2c, Behaviour::Serves);
    let gate = StartGate::new();
    let mut spec = LoadSpec { threads: 2, start: Some(&gate), ..spec(Protocol::H2c, &server) };
    spec.address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().into();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| run(&spec, &mut |_| ()));
        assert_eq!(gate.wait_ready(DEADLINE), Readiness::Ended);
        assert!(matches!(load.join().unwrap(), Err(LoadError::Unreachable { .. })));
    });
}
