//! The generator against a small server, over loopback: one body per claim, instantiated per engine, or per protocol where
//! TLS could make a difference.

mod moved;
mod policies;
mod server;
mod shares;
mod threads;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use h2lab_base::units::Time;
use h2lab_model::record::{CloseReason, Outcome, Sample};
use h2lab_model::scenario::{Cell, Target};
use h2lab_model::workload::{Arrival, EngineSettings, H2cMode, Phases, Protocol, RequestShape, Share, Work};

use super::driver::longest_spin;
use super::team::Part;
use super::{LoadError, LoadProgress, LoadResult, LoadSpec, preflight, run};
use crate::client::ConnectError;
use h2lab_net::clock::Clock;
use h2lab_net::tls::TlsOptions;
use server::{Behaviour, Server};

const BOTH: [Protocol; 2] = [Protocol::H1, Protocol::H2c];

/// No test takes so long: only a hang meets it, on however busy a machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// 200 requests/s for 50 ms of warm-up and 200 ms: 50 requests of which 40 count. POST with 64 bytes, two connections.
fn spec(protocol: Protocol, server: &Server) -> LoadSpec<'static> {
    let phases = Phases {
        warmup: Duration::from_millis(50),
        measure: Duration::from_millis(200),
        drain: DEADLINE, // ends as soon as all is answered
    };
    let work = Work {
        method: "POST".to_owned(),
        path: "/".to_owned(),
        shape: RequestShape::Mesh,
        headers: Vec::new(),
        body_bytes: 64,
        body: None,
        mix: Vec::new(),
        template: false,
        secrets: false,
        bulk: false,
        arrival: Arrival::Constant { rate: 200.0 },
        phases,
        timeout: DEADLINE,
        replay: true,
    };
    let cell = Cell {
        index: 0,
        group: 0,
        repetition: 0,
        seed: 1,
        request_seed: 1,
        target: Target::Origin,
        sidecar: None,
        protocol,
        h2c_mode: H2cMode::default(),
        client: EngineSettings::default(),
        server: h2lab_model::workload::EngineSettings::default(),
        setup: h2lab_model::scenario::ServerSetup::default(),
        max_requests_per_connection: None,
        dial: h2lab_model::workload::DialPolicy::default(),
        policy: h2lab_model::workload::ClientPolicy::default(),
        twin: 0,
        connections: 2,
        max_connections: 2,
        streams: 100,
        link: None,
        congestion: None,
        sysctls: h2lab_model::scenario::Sysctls::default(),
        capture: h2lab_model::scenario::CaptureOptions::default(),
        work,
    };
    LoadSpec {
        cell,
        address: server.address.into(),
        authority: "localhost".to_owned(),
        server_name: "localhost".to_owned(),
        tls: TlsOptions { ca_pem: server.certificate_pem.clone(), ..TlsOptions::default() },
        clock_origin_ns: Clock::start().origin_ns(),
        requests: None,
        threads: 1,
        record: None,
        tap: true,
        on_thread: None,
        sharp: true,
        share: Share::default(),
        start: None,
        stop: None,
    }
}

fn result(spec: &LoadSpec<'_>) -> LoadResult {
    run(spec, &mut |_| ()).unwrap().close()
}

/// What `run` yields with the first of these timeouts for which `has_begun` holds. Where the side that waits is held up for longer
/// than its timeout, nothing has begun when that is over: such a run says nothing.
fn once_begun(run: impl Fn(Duration) -> LoadResult, has_begun: impl Fn(&LoadResult) -> bool) -> LoadResult {
    let timeouts = [Duration::from_millis(400), Duration::from_secs(5), DEADLINE];
    timeouts.into_iter().map(run).find(has_begun).expect("it begins within the longest timeout")
}

fn count(result: &LoadResult, outcome: Outcome) -> usize {
    result.samples.iter().filter(|sample| sample.outcome == outcome).count()
}

#[test]
fn an_open_loop_yields_one_sample_per_scheduled_request() {
    for protocol in Protocol::ALL {
        let server = Server::start(protocol, Behaviour::Serves);
        let mut updates = 0;
        let finished = run(&spec(protocol, &server), &mut |_| updates += 1).unwrap();
        let result = finished.close();
        assert_eq!(count(&result, Outcome::Succeeded), 50, "{protocol}");
        assert_eq!(result.samples.iter().filter(|sample| sample.measured).count(), 40);
        for (k, sample) in result.samples.iter().enumerate() {
            assert_eq!(sample.scheduled_at, result.started_at + Duration::from_millis(5) * k as u32);
            assert!(
                sample.scheduled_at <= sample.sent_at && sample.sent_at <= sample.first_byte_at,
                "{sample:?}"
            );
            assert!(
                sample.first_byte_at <= sample.completed_at && sample.completed_at.happened(),
                "{sample:?}"
            );
            assert_eq!((sample.status, sample.body_bytes, sample.replays), (200, 5, 0));
        }
        assert!(updates > 0);
    }
}

#[test]
fn the_connections_are_recorded_with_what_they_carried() {
    for protocol in BOTH {
        let server = Server::start(protocol, Behaviour::InStep(10));
        let result = result(&spec(protocol, &server));
        assert_eq!(result.connections.len(), 2, "{protocol}");
        assert_eq!(result.connections.iter().map(|connection| connection.requests).sum::<u32>(), 50);
        for (index, connection) in result.connections.iter().enumerate() {
            assert_eq!(connection.index as usize, index);
            assert!((10..=40).contains(&connection.requests), "the work spreads: {}", connection.requests);
            assert_eq!(connection.server_software.as_deref(), Some("test/1"));
            assert_eq!((&connection.closed, connection.closed_at), (&CloseReason::Cell, Time::NEVER));
            assert!(
                connection.dialled_at <= connection.connected_at
                    && connection.connected_at <= connection.ready_at
            );
            assert!(connection.local_port > 0 && connection.remote_port == server.address.port());
            assert!(connection.tcp_client.as_ref().is_some_and(|tcp| !tcp.congestion_control.is_empty()));
        }
        assert!(result.frames.is_sorted_by_key(|frame| frame.at) && result.frames.len() >= 200);
        assert!(!result.tcp.is_empty() && result.generator.cpu_ns > 0);
    }
}

#[test]
fn the_urgency_that_a_request_states_is_recorded_by_its_stream() {
    for (protocol, stated) in [(Protocol::H2c, true), (Protocol::H2c, false), (Protocol::H1, true)] {
        let server = Server::start(protocol, Behaviour::Serves);
        let mut spec = spec(protocol, &server);
        if stated {
            spec.cell.work.headers = vec![("priority".to_owned(), "u=1, i".to_owned())];
        }
        for connection in result(&spec).connections {
            let urgencies = &connection.http.priorities;
            let expected = if stated && protocol.is_multiplexed() { connection.requests } else { 0 };
            assert_eq!(urgencies.len(), expected as usize, "{protocol}, {stated}");
            assert!(
                urgencies.is_sorted() && urgencies.iter().all(|(_, urgency)| *urgency == 1),
                "{urgencies:?}"
            );
        }
    }
}

#[test]
fn quic_connections_are_recorded_as_such_and_not_as_tcp() {
    let server = Server::start(Protocol::H3, Behaviour::Serves);
    let mut spec = spec(Protocol::H3, &server);
    spec.cell.congestion = Some("bbr".to_owned());
    let result = result(&spec);
    assert_eq!(result.connections.len(), 2);
    assert!(result.tcp.iter().all(|tick| !tick.server && tick.cwnd > 0), "samples of our end of the path");
    for connection in &result.connections {
        assert!(connection.tcp_client.is_none());
        let quic = connection.quic_client.as_ref().expect("our end is known");
        assert_eq!(quic.congestion_control, "bbr");
        assert!(quic.packets_sent > 0 && quic.datagrams_sent > 0 && quic.datagrams_received > 0, "{quic:?}");
        assert!(quic.rtt_us > 0 && quic.cwnd_bytes > 0 && quic.mtu >= 1_200, "{quic:?}");
        assert!(connection.local_port > 0 && connection.connected_at == connection.ready_at);
    }
    let ports: Vec<u16> = result.connections.iter().map(|connection| connection.local_port).collect();
    assert_ne!(ports[0], ports[1], "the link's packet log distinguishes flows by them");
    // HEADERS and DATA each way for each request, SETTINGS each way for each connection.
    assert_eq!(result.frames.len(), 4 * 50 + 2 * 2);
}

#[test]
fn congestion_control_that_quic_does_not_have_is_named() {
    let server = Server::start(Protocol::H3, Behaviour::Serves);
    let mut spec = spec(Protocol::H3, &server);
    spec.cell.congestion = Some("vegas".to_owned());
    let error = run(&spec, &mut |_| ()).expect_err("there is no such thing").to_string();
    assert!(error.contains("`vegas`") && error.contains("reno, cubic and bbr"), "{error}");
}

#[test]
fn only_an_open_loop_with_a_cpu_to_spare_stays_awake_and_reports_for_how_long() {
    let server = Server::start(Protocol::H2c, Behaviour::Serves);
    let awake = |sharp, arrival| {
        let mut spec = LoadSpec { sharp, ..spec(Protocol::H2c, &server) };
        spec.cell.work.arrival = arrival;
        Duration::from_nanos(result(&spec).generator.awake_ns)
    };
    // 500 in all, from some dozens of which the generator learns how long waking takes.
    let rate = |rate| Arrival::Constant { rate };
    assert_eq!(awake(false, rate(2_000.0)), Duration::ZERO);
    assert_eq!(awake(true, Arrival::Closed { concurrency: 4 }), Duration::ZERO);
    if h2lab_net::resources::online_cpus() == 1 {
        assert_eq!(awake(true, rate(2_000.0)), Duration::ZERO, "its CPU is the server's too");
    } else {
        // Whoever finds every request overdue has nothing to stay awake for: a slow machine needs fewer, and more time.
        let until = Instant::now() + DEADLINE;
        for requests in [2_000.0, 200.0].into_iter().cycle() {
            if awake(true, rate(requests)) > Duration::ZERO {
                break;
            }
            assert!(Instant::now() < until, "it never stays awake");
        }
    }
}

#[test]
fn a_thread_may_spin_for_an_open_loop_and_beside_a_free_cpu() {
    let server = Server::start(Protocol::H2c, Behaviour::Serves);
    let (open, closed) = (Arrival::Constant { rate: 2_000.0 }, Arrival::Closed { concurrency: 4 });
    for (sharp, arrival, of, cpus, expected) in [
        (false, open, 1, 8, None),
        (true, closed, 1, 8, None),
        (true, open, 1, 1, Some(false)),
        (true, open, 8, 8, Some(false)),
        (true, open, 7, 8, Some(true)),
        (true, open, 1, 2, Some(true)),
    ] {
        let mut spec = LoadSpec { sharp, ..spec(Protocol::H2c, &server) };
        spec.cell.work.arrival = arrival;
        let longest = longest_spin(&spec, Part { threads: of, ..Part::WHOLE }, cpus);
        assert_eq!(longest.map(|longest| longest > Duration::ZERO), expected, "{of} threads, {cpus} CPUs");
    }
}

#[test]
fn a_closed_loop_keeps_its_number_in_flight_and_never_more() {
    for protocol in BOTH {
        let server = Server::start(protocol, Behaviour::Serves);
        let mut spec = LoadSpec { requests: Some(50), ..spec(protocol, &server) };
        spec.cell.work.arrival = Arrival::Closed { concurrency: 2 };
        spec.cell.work.phases.measure = DEADLINE;
        let result = result(&spec);
        assert_eq!((result.samples.len(), count(&result, Outcome::Succeeded)), (50, 50), "{protocol}");
        assert!(result.samples.is_sorted_by_key(|sample| sample.scheduled_at));
        for (k, sample) in result.samples.iter().enumerate().skip(2) {
            let ended =
                result.samples[..k].iter().filter(|other| other.completed_at <= sample.scheduled_at).count();
            assert!(ended + 2 > k, "request {k} began with {} others under way", k - ended);
        }
    }
}

#[test]
fn a_quota_per_connection_costs_connections_but_no_request() {
    for protocol in Protocol::ALL {
        let server = Server::start(protocol, Behaviour::EndsAfter(10));
        let result = result(&spec(protocol, &server));
        assert_eq!(count(&result, Outcome::Succeeded), 50, "{protocol}: {:?}", result.connections);
        let ended =
            || result.connections.iter().filter(|connection| connection.closed == CloseReason::Server);
        // Whether all of them have ended by the last answer is a matter of speed.
        assert!(ended().count() > 0, "{protocol}: {:?}", result.connections);
        for connection in &result.connections {
            let carried = |sample: &&Sample| sample.connection == connection.index;
            assert!(result.samples.iter().filter(carried).count() <= 10, "{protocol}: {connection:?}");
        }
        assert!(ended().all(|connection| connection.requests >= 10 && connection.counters.requests >= 10));
        if protocol.is_multiplexed() {
            assert!(
                ended()
                    .all(|connection| connection.goaways.last().is_some_and(|last| last.last_stream == 19))
            );
        }
    }
}

#[test]
fn a_refused_stream_is_sent_again_and_counted() {
    let server = Server::start(Protocol::H2c, Behaviour::RefusesFirst);
    let result = result(&spec(Protocol::H2c, &server));
    assert_eq!(count(&result, Outcome::Succeeded), 50);
    // Both connections refuse their first stream; one request may meet both.
    assert_eq!(result.samples.iter().map(|sample| sample.replays).sum::<u8>(), 2);
    assert!(result.connections.iter().all(|connection| connection.resets_received == [(7, 1)]));
}

/// `concurrency` requests at once on one connection, which is replaced when it ends.
fn together(protocol: Protocol, server: &Server, concurrency: u32) -> LoadSpec<'static> {
    let mut spec = spec(protocol, server);
    (spec.cell.connections, spec.cell.max_connections) = (1, 1);
    spec.cell.work.arrival = Arrival::Closed { concurrency };
    spec
}

#[test]
fn what_a_goaway_leaves_unprocessed_is_sent_again_elsewhere_unless_that_is_off() {
    for (replay, outcome) in [(true, Outcome::Succeeded), (false, Outcome::Refused)] {
        let server = Server::start(Protocol::H2c, Behaviour::LeavesAfterFirst);
        let mut spec = together(Protocol::H2c, &server, 3);
        spec.cell.work.replay = replay;
        let result = result(&spec);
        let reported = |k: usize| (result.samples[k].outcome, result.samples[k].replays);
        assert_eq!(reported(0), (Outcome::Succeeded, 0), "the last stream is answered");
        // POST is not idempotent: it may be sent again all the same, since it was not processed.
        assert_eq!([reported(1), reported(2)], [(outcome, u8::from(replay)); 2]);
        assert_eq!(result.connections[0].goaways.last().map(|goaway| goaway.last_stream), Some(1));
        let failed = result.samples.iter().filter(|sample| sample.outcome.is_failure()).count();
        assert_eq!(failed, if replay { 0 } else { 2 });
    }
}

#[test]
fn a_connection_closed_without_a_goaway_is_a_failure_whatever_the_method() {
    for protocol in BOTH {
        for (method, body_bytes) in [("GET", 0), ("POST", 64)] {
            let server = Server::start(protocol, Behaviour::HangsUpOnce);
            let mut spec = together(protocol, &server, 3);
            (spec.cell.work.method, spec.cell.work.body_bytes) = (method.to_owned(), body_bytes);
            let result = result(&spec);
            let (lost, rest): (Vec<&Sample>, Vec<&Sample>) =
                result.samples.iter().partition(|sample| sample.connection == 0);
            assert_eq!(lost.len(), if protocol.is_multiplexed() { 3 } else { 1 }, "{protocol} {method}");
            assert!(lost.iter().all(|sample| (sample.outcome, sample.replays) == (Outcome::Closed, 0)));
            assert!(rest.iter().all(|sample| sample.outcome == Outcome::Succeeded));
        }
    }
}

#[test]
fn a_refusal_after_the_answer_has_begun_is_a_reset_and_not_sent_again() {
    let server = Server::start(Protocol::H2c, Behaviour::RefusesTooLate);
    let result = result(&together(Protocol::H2c, &server, 1));
    let first = result.samples[0];
    assert_eq!((first.outcome, first.code, first.replays), (Outcome::Reset, 7, 0));
    assert_eq!(count(&result, Outcome::Succeeded), result.samples.len() - 1);
}

#[test]
fn streams_beyond_the_servers_limit_wait_and_their_wait_is_a_stall() {
    let server = Server::start(Protocol::H2c, Behaviour::Takes(2));
    let result = result(&together(Protocol::H2c, &server, 6));
    assert_eq!(count(&result, Outcome::Succeeded), result.samples.len());
    assert_eq!(result.connections.len(), 1);
    assert!(result.connections[0].resets_received.is_empty(), "none was refused");
    let freed_at = result.samples.iter().map(|sample| sample.completed_at).min().unwrap();
    let [begun, waited] = [&result.samples[..2], &result.samples[2..6]];
    assert!(begun.iter().all(|sample| sample.sent_at <= freed_at));
    for sample in waited {
        let began_to_wait = sample.sent_at - Duration::from_nanos(sample.stall_open_ns);
        assert!(sample.sent_at >= freed_at && sample.stall_open_ns > 0, "{sample:?}");
        assert!(began_to_wait <= freed_at, "all of its wait is counted: {sample:?}");
    }
}

#[test]
fn a_connection_that_was_closed_before_a_request_arrived_costs_nothing_whatever_the_method() {
    for (method, body_bytes) in [("GET", 0), ("POST", 64)] {
        let server = Server::start(Protocol::H1, Behaviour::ClosesAfter(3));
        let mut spec = spec(Protocol::H1, &server);
        (spec.cell.work.method, spec.cell.work.body_bytes) = (method.to_owned(), body_bytes);
        let result = result(&spec);
        assert_eq!(count(&result, Outcome::Succeeded), 50, "{:?}", result.connections);
        // Both connections may have been closed before a request learns of the first.
        assert!(result.samples.iter().all(|sample| sample.replays <= 2));
        assert!(result.connections.len() >= 50 / 3);
    }
}

#[test]
fn a_request_that_a_server_read_and_aborted_has_failed_over_every_protocol() {
    for protocol in [Protocol::H1, Protocol::H1s, Protocol::H2c, Protocol::H2] {
        let server = Server::start(protocol, Behaviour::AbortsAfter(5));
        let mut spec = together(protocol, &server, 1);
        (spec.cell.work.method, spec.cell.work.body_bytes) = ("GET".to_owned(), 0);
        (spec.requests, spec.cell.work.phases.measure) = (Some(12), DEADLINE);
        let result = result(&spec);
        let failed: Vec<usize> = (0..12).filter(|&k| result.samples[k].outcome.is_failure()).collect();
        assert_eq!(failed, [5, 11], "{protocol}: the sixth request of each connection");
        assert!(result.samples.iter().all(|sample| sample.replays == 0), "{protocol}");
    }
}

#[test]
fn a_connection_that_breaks_fails_what_it_carried_and_nothing_is_lost() {
    let server = Server::start(Protocol::H2c, Behaviour::ClosesAfter(10));
    let result = result(&spec(Protocol::H2c, &server));
    assert_eq!(result.samples.len(), 50);
    assert!(result.samples.iter().all(|sample| sample.completed_at.happened()));
    let accounted = count(&result, Outcome::Succeeded)
        + count(&result, Outcome::Closed)
        + count(&result, Outcome::GoAway);
    assert_eq!(accounted, 50);
}

#[test]
fn bodies_larger_than_our_own_buffers_are_sent_whole() {
    for protocol in Protocol::ALL {
        let server = Server::start(protocol, Behaviour::Serves);
        let mut spec = spec(protocol, &server);
        spec.requests = Some(20);
        spec.cell.work.body_bytes = 1 << 20;
        spec.cell.work.arrival = Arrival::Closed { concurrency: 4 };
        spec.cell.work.phases.measure = DEADLINE;
        let result = result(&spec);
        assert_eq!(count(&result, Outcome::Succeeded), 20, "{protocol}: {:?}", result.connections);
        let waited_for_window = result.samples.iter().any(|sample| sample.stall_window_ns > 0);
        let has_windows = protocol.is_multiplexed() && !protocol.is_quic();
        assert_eq!(waited_for_window, has_windows, "HTTP/1.1 has none, and HTTP/3 knows of none: {protocol}");
    }
}

#[test]
fn bodies_that_wait_for_the_connections_window_all_continue_when_it_opens() {
    // The first 65,535 bytes go at once. The rest waits for turns, of which the engine grants a few at a time.
    const REQUESTS: u32 = 100;
    let server = Server::start(Protocol::H2c, Behaviour::WaitsFor(REQUESTS));
    let mut spec = together(Protocol::H2c, &server, REQUESTS);
    spec.requests = Some(REQUESTS as usize);
    spec.cell.work.body_bytes = 1_000;
    let result = result(&spec);
    assert_eq!(count(&result, Outcome::Succeeded), REQUESTS as usize);
}

#[test]
fn a_request_that_ends_while_it_waits_for_a_window_has_waited_for_it() {
    let server = Server::start(Protocol::H2c, Behaviour::KeepsCredit);
    let run = |timeout| {
        let mut spec = together(Protocol::H2c, &server, 1);
        spec.requests = Some(1);
        spec.cell.work.body_bytes = 100_000;
        spec.cell.work.timeout = timeout;
        result(&spec)
    };
    let used_up = |result: &LoadResult| result.connections[0].bytes_sent > 65_535;
    let sample = once_begun(run, used_up).samples[0];
    assert_eq!(sample.outcome, Outcome::Timeout);
    assert!(sample.stall_window_ns > 0, "{sample:?}");
}

#[test]
fn a_server_that_asks_without_end_holds_up_nothing_but_its_own_requests() {
    let server = Server::start(Protocol::H2c, Behaviour::AsksWithoutEnd);
    let mut spec = together(Protocol::H2c, &server, 1);
    spec.requests = Some(1);
    spec.tap = false;
    spec.cell.work.timeout = Duration::from_secs(1);
    // That it ends at all: the requests' deadlines are kept however much there is to read.
    assert_eq!(result(&spec).samples.iter().filter(|sample| sample.outcome.is_failure()).count(), 1);
}

#[test]
fn requests_beyond_the_last_connection_wait_and_say_so() {
    // 10 requests against a silent server, with room for 3 × 1 and for 2 × 3 at a time.
    for (protocol, max_connections, streams, room) in [(Protocol::H1, 3, 1, 3), (Protocol::H2c, 2, 3, 6_u64)]
    {
        let server = Server::start(protocol, Behaviour::IsSilent);
        let stop = AtomicBool::new(false);
        let mut spec = LoadSpec { requests: Some(10), stop: Some(&stop), ..spec(protocol, &server) };
        spec.cell.max_connections = max_connections;
        spec.cell.streams = streams;
        spec.cell.work.arrival = Arrival::Constant { rate: 50.0 };
        spec.cell.work.phases.measure = DEADLINE;
        spec.cell.work.timeout = 10 * DEADLINE;
        let is_full = |now: &LoadProgress| (now.in_flight, now.waiting) == (room, 10 - room);
        let finished = run(&spec, &mut |now| stop.store(is_full(now), Ordering::Relaxed)).unwrap();
        let result = finished.close();
        let carried = |sample: &&Sample| sample.connection != Sample::NO_CONNECTION;
        assert_eq!(count(&result, Outcome::Unfinished), 10, "{protocol}");
        assert_eq!(result.samples.iter().filter(carried).count() as u64, room);
        assert_eq!(result.generator.backlog_at_cut, 10 - room);
        assert_eq!(result.connections.len(), max_connections as usize);
        let waited = result.samples.last().unwrap();
        let late = waited.response_time().saturating_sub(Duration::from_nanos(waited.stall_open_ns));
        assert_eq!(
            waited.scheduled_at + late + Duration::from_nanos(waited.stall_open_ns),
            waited.completed_at
        );
        assert!(waited.stall_open_ns > 0 && !waited.sent_at.happened());
    }
}

#[test]
fn what_is_not_answered_in_time_is_cancelled_and_recorded() {
    for protocol in BOTH {
        let server = Server::start(protocol, Behaviour::IsSilent);
        let mut spec = spec(protocol, &server);
        spec.cell.work.timeout = Duration::from_millis(20);
        let result = result(&spec);
        let timed_out = result.samples.iter().filter(|sample| sample.outcome.kind() == Outcome::Timeout);
        assert_eq!(timed_out.count(), 50, "{protocol}");
        assert!(result.samples.iter().all(|sample| sample.response_time() >= Duration::from_millis(20)));
        let cancelled =
            result.connections.iter().filter(|connection| connection.closed != CloseReason::Cell).count();
        // HTTP/2 gives up a stream, HTTP/1.1 can only give up its connection.
        assert_eq!(cancelled > 0, !protocol.is_multiplexed());
    }
}

#[test]
fn a_server_that_dies_fails_the_rest_without_being_hammered() {
    for protocol in BOTH {
        let server = Server::start(protocol, Behaviour::DiesAfter(5));
        let mut spec = spec(protocol, &server);
        (spec.cell.connections, spec.cell.max_connections) = (1, 1);
        spec.cell.streams = 1; // all but the one in flight outlive the server, also where all are due at once
        let result = result(&spec);
        assert_eq!(result.samples.len(), 50, "{protocol}");
        assert_eq!(count(&result, Outcome::Succeeded), 5);
        assert!(count(&result, Outcome::Connect) > 0);
        assert_eq!(count(&result, Outcome::Unfinished), 0);
        // So many would take half a minute.
        assert!(result.connections.len() < 40, "{} dials", result.connections.len());
    }
}

#[test]
fn a_stop_ends_the_cell_and_keeps_what_was_measured() {
    let stop = AtomicBool::new(false);
    let server = Server::start(Protocol::H1, Behaviour::Serves);
    let mut spec = LoadSpec { stop: Some(&stop), ..spec(Protocol::H1, &server) };
    spec.cell.work.phases.measure = Duration::from_secs(3600);
    let result =
        run(&spec, &mut |progress| stop.store(progress.succeeded > 0, Ordering::Relaxed)).unwrap().close();
    assert!(result.interrupted && count(&result, Outcome::Succeeded) > 0);
    assert!(result.samples.iter().all(|sample| sample.completed_at.happened()));
}

#[test]
fn a_number_of_requests_ends_a_closed_loop_and_without_the_tap_nothing_but_its_frames_is_missing() {
    for (protocol, tap) in
        [(Protocol::H1, true), (Protocol::H2c, true), (Protocol::H1, false), (Protocol::H2c, false)]
    {
        let server = Server::start(protocol, Behaviour::Serves);
        let mut spec = LoadSpec { requests: Some(123), tap, ..spec(protocol, &server) };
        spec.cell.work.arrival = Arrival::Closed { concurrency: 10 };
        spec.cell.work.phases.measure = Duration::from_secs(3600);
        let result = result(&spec);
        assert_eq!((result.samples.len(), count(&result, Outcome::Succeeded)), (123, 123), "{protocol}");
        assert_eq!(result.frames.len() >= 2 * 123, tap, "{protocol}");
        assert_eq!(result.frames.is_empty(), !tap, "{protocol}");
        let requests: u64 = result.connections.iter().map(|connection| connection.counters.requests).sum();
        assert_eq!(requests, 123, "the engines count for themselves");
    }
}

#[test]
fn an_answer_is_an_answer_and_makes_one_connection_and_one_request() {
    for protocol in BOTH {
        let server = Server::start(protocol, Behaviour::Serves);
        let answer = preflight(&spec(protocol, &server)).unwrap();
        assert_eq!((answer.status, answer.server.as_deref()), (200, Some("test/1")));
        assert_eq!(server.accepted.load(Ordering::SeqCst), 1);
    }
}

/// Why the preflight rejects the server.
fn refusal(protocol: Protocol, server: &Server) -> ConnectError {
    refusal_of(&spec(protocol, server))
}

fn refusal_of(spec: &LoadSpec<'_>) -> ConnectError {
    match preflight(spec) {
        Err(LoadError::Unreachable { why, .. }) => why,
        other => panic!("{}: {other:?}", spec.cell.protocol),
    }
}

#[test]
fn each_way_of_being_unreachable_has_its_own_error() {
    for protocol in BOTH {
        let why = refusal(protocol, &Server::start(protocol, Behaviour::ClosesAtOnce));
        assert!(matches!(why, ConnectError::Closed(_)), "{protocol}: {why:?}");
        let why = refusal(protocol, &Server::start(protocol, Behaviour::TalksNonsense));
        assert!(
            matches!(why, ConnectError::WrongProtocol { .. } | ConnectError::Protocol(_)),
            "{protocol}: {why:?}"
        );

        let mut spec = spec(protocol, &Server::start(protocol, Behaviour::Serves));
        spec.address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().into();
        assert!(matches!(refusal_of(&spec), ConnectError::Refused), "{protocol}");
    }
}

/// Where a server listens that reads a request and answers with a frame of HTTP/2, as nginx does on ports of h2c, and how many
/// connections it has accepted.
fn answers_in_h2c() -> (std::net::SocketAddr, Arc<AtomicU32>) {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (address, accepted) = (listener.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&accepted);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(&SETTINGS));
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            });
        }
    });
    (address, accepted)
}

#[test]
fn a_load_whose_server_answers_in_another_protocol_ends_and_dials_it_no_more() {
    let server = Server::start(Protocol::H1, Behaviour::Serves);
    for (threads, arrival) in [
        (1, Arrival::Closed { concurrency: 8 }),
        (2, Arrival::Closed { concurrency: 8 }),
        (1, Arrival::Constant { rate: 200.0 }),
    ] {
        let (address, accepted) = answers_in_h2c();
        let mut spec = spec(Protocol::H1, &server);
        (spec.address, spec.threads, spec.cell.work.arrival) = (address.into(), threads, arrival);
        (spec.cell.connections, spec.cell.max_connections) = (8, 8);
        match run(&spec, &mut |_| ()) {
            Err(LoadError::Unreachable { why: why @ ConnectError::WrongProtocol { .. }, .. }) => {
                assert!(why.to_string().contains("try h2c"), "{why}");
            }
            other => panic!("{arrival:?}: {other:?}"),
        }
        assert!(accepted.load(Ordering::SeqCst) <= 8, "{arrival:?}");
    }
}

#[test]
fn a_preflight_waits_no_longer_than_the_timeout_of_the_work() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for protocol in BOTH {
        let mut spec = spec(protocol, &Server::start(protocol, Behaviour::Serves));
        spec.address = silent.local_addr().unwrap().into();
        spec.cell.work.timeout = Duration::from_millis(1_200);
        let why = refusal_of(&spec);
        let words = why.to_string();
        assert!(words.ends_with("does not respond within 1.2s"), "{protocol}: {words}");
    }
}

#[test]
fn asking_one_protocol_of_a_server_of_the_other_is_an_error_and_no_fallback() {
    for (asked, spoken) in [(Protocol::H1, Protocol::H2c), (Protocol::H2c, Protocol::H1)] {
        let why = refusal(asked, &Server::start(spoken, Behaviour::Serves));
        assert!(
            matches!(
                why,
                ConnectError::WrongProtocol { .. } | ConnectError::Protocol(_) | ConnectError::Closed(_)
            ),
            "{asked} asked of {spoken}: {why:?}"
        );
    }
    for asked in [Protocol::H1s, Protocol::H2] {
        let server = Server::start(Protocol::H1, Behaviour::TalksNonsense);
        let mut spec = spec(asked, &server);
        spec.tls.insecure = true;
        match preflight(&spec) {
            Err(LoadError::Unreachable { why: ConnectError::Tls(_), .. }) => {}
            other => panic!("{asked}: {other:?}"),
        }
    }
}
