//! What the client does by its policy, and what its records say of it.

use std::time::Duration;

use h2lab_base::units::Ratio;
use h2lab_link::{Impairment, LinkSpec, LossModel};
use h2lab_model::record::{CloseReason, ConnectionRecord, Fault, Outcome, Sample};
use h2lab_model::workload::{Arrival, DialPolicy, Draw, MixEntry, Protocol};

use super::server::{Behaviour, Server};
use super::{BOTH, DEADLINE, count, once_begun, refusal, result, spec, together};
use crate::client::{ConnectError, Outgoing as _, Prepared, RequestKind};
use crate::load::{LoadError, LoadResult, LoadSpec, run};
use h2lab_net::tls::TlsError;

/// So many requests, `concurrency` at a time, over one connection that is replaced when it ends.
fn callers(protocol: Protocol, server: &Server, concurrency: u32, requests: usize) -> LoadSpec<'static> {
    let mut spec = together(protocol, server, concurrency);
    spec.requests = Some(requests);
    spec.cell.work.phases.measure = Duration::from_secs(3600); // ends with the last request
    spec
}

fn useless(result: &LoadResult) -> usize {
    result.connections.iter().filter(|connection| connection.is_useless_dial()).count()
}

/// The connections that we ended ourselves because of what `flag` says.
fn ended_by<'a>(result: &'a LoadResult, flag: &'a str) -> impl Iterator<Item = &'a ConnectionRecord> {
    let ours = move |connection: &&ConnectionRecord| match &connection.closed {
        CloseReason::Local { why } => why.contains(flag),
        _ => false,
    };
    result.connections.iter().filter(ours)
}

/// A connection takes 100 requests. Of forty callers, twenty are refused and twenty are answered last, all in one message.
const ROUNDS: Behaviour = Behaviour::EndsInRounds { quota: 100, round: 40 };

#[test]
fn a_quota_on_a_shared_connection_makes_a_stampede_and_a_single_flight_dials_once() {
    for protocol in [Protocol::H2c, Protocol::H2] {
        for dial in DialPolicy::ALL {
            let server = Server::start(protocol, ROUNDS);
            let mut spec = callers(protocol, &server, 40, 500);
            spec.cell.dial = dial;
            let result = result(&spec);
            assert_eq!(count(&result, Outcome::Succeeded), 500, "{protocol} {dial:?}: nothing is lost");
            let carrying = result.connections.len() - useless(&result);
            // Over TLS any of forty handshakes may end before the connection in use is full: requests then share them.
            let most = if (protocol, dial) == (Protocol::H2, DialPolicy::Stampede) { usize::MAX } else { 6 };
            assert!((5..=most).contains(&carrying), "{protocol} {dial:?}: {carrying} of 100 requests each");
            match dial {
                DialPolicy::SingleFlight => assert_eq!(useless(&result), 0, "{protocol}"),
                // All forty dial at the first change, and for each dial that one change uses up, there is another at the next.
                // How many handshakes end before the last request is a matter of speed.
                DialPolicy::Stampede if protocol == Protocol::H2 => server.until_accepted(1 + 40 + 3),
                // In clear a dial is over when it has begun.
                DialPolicy::Stampede => {
                    assert!(useless(&result) >= 4 * 10, "{protocol}: {} useless dials", useless(&result));
                    let reported = ended_by(&result, "--dial-policy").count();
                    assert!(reported > 0, "{:?}", result.connections);
                }
            }
        }
    }
}

#[test]
fn without_replay_what_a_quota_cuts_off_is_the_servers_fault() {
    let server = Server::start(Protocol::H2c, ROUNDS);
    let mut spec = callers(Protocol::H2c, &server, 40, 4 * 120);
    spec.cell.work.replay = false;
    let result = result(&spec);
    let lost = result.samples.iter().filter(|sample| sample.outcome != Outcome::Succeeded);
    let lost: Vec<_> = lost.map(|sample| (sample.outcome, sample.outcome.fault(), sample.replays)).collect();
    assert_eq!(lost.len(), 4 * 20);
    assert!(lost.iter().all(|reported| *reported == (Outcome::Refused, Some(Fault::Sut), 0)), "{lost:?}");
}

#[test]
fn a_connection_that_we_end_after_a_number_of_requests_costs_none_of_them() {
    for protocol in Protocol::ALL {
        let server = Server::start(protocol, Behaviour::Serves);
        let mut spec = callers(protocol, &server, 4, 50);
        spec.cell.policy.reconnect_every = Some(10);
        let result = result(&spec);
        assert_eq!(count(&result, Outcome::Succeeded), 50, "{protocol}: {:?}", result.connections);
        assert!(result.samples.iter().all(|sample| sample.replays == 0), "{protocol}");
        assert_eq!(ended_by(&result, "--reconnect-every").count(), 5, "{protocol}: {:?}", result.connections);
        assert!(ended_by(&result, "--reconnect-every").all(|connection| connection.requests == 10));
    }
}

#[test]
fn idle_connections_beyond_the_pools_size_are_closed_as_soon_as_they_are_idle() {
    for (pool_size, closed, kept) in [(Some(2), 6, 2), (Some(8), 0, 8), (None, 0, 8)] {
        let server = Server::start(Protocol::H1, Behaviour::Serves);
        let mut spec = callers(Protocol::H1, &server, 8, 200);
        spec.cell.max_connections = 8;
        spec.cell.policy.pool_size = pool_size;
        let result = result(&spec);
        assert_eq!(count(&result, Outcome::Succeeded), 200);
        let open = result.connections.iter().filter(|connection| connection.closed == CloseReason::Cell);
        assert!(open.count() <= kept, "{pool_size:?}: {:?}", result.connections);
        assert!(ended_by(&result, "--pool-size").count() >= closed.min(1), "{pool_size:?}");
        assert_eq!(ended_by(&result, "--pool-size").count() == 0, closed == 0);
    }
}

#[test]
fn cancel_after_cancels_as_the_protocol_does() {
    let (short, long) = (Duration::from_millis(20), Duration::from_millis(30));
    for protocol in BOTH {
        for (cancel_after, timeout, outcome) in [
            (Some(short), long, Outcome::Cancelled),
            (Some(long), short, Outcome::Timeout),
            (None, short, Outcome::Timeout),
        ] {
            let server = Server::start(protocol, Behaviour::IsSilent);
            let mut spec = spec(protocol, &server);
            (spec.cell.policy.cancel_after, spec.cell.work.timeout) = (cancel_after, timeout);
            let result = result(&spec);
            let ended = result.samples.iter().filter(|sample| sample.outcome.kind() == outcome);
            assert_eq!(ended.count(), 50, "{protocol} {cancel_after:?}");
            assert!(result.samples.iter().all(|sample| sample.response_time() >= short));
            let resets = |connection: &ConnectionRecord| connection.http.resets_sent.clone();
            let resets: Vec<(u32, u32)> = result.connections.iter().flat_map(resets).collect();
            if protocol.is_multiplexed() {
                assert!(resets.iter().all(|&(code, _)| code == 8), "{resets:?}");
                assert_eq!(resets.iter().map(|&(_, count)| count).sum::<u32>(), 50);
            } else {
                let why = if outcome == Outcome::Cancelled { "was cancelled" } else { "in time" };
                assert!(resets.is_empty() && ended_by(&result, why).count() > 0);
            }
        }
    }
}

/// The kernel may delay an acknowledgement by 40 ms.
const ACKNOWLEDGED: Duration = Duration::from_millis(100);

/// 20 requests to a server that never answers, with this timeout, behind an emulated link that loses so much or none.
fn unanswered(protocol: Protocol, timeout: Duration, loss: Option<LossModel>) -> LoadResult {
    let server = Server::start(protocol, Behaviour::IsSilent);
    let mut spec = callers(protocol, &server, 20, 20);
    spec.cell.work.timeout = timeout;
    spec.cell.link = loss.map(|loss| LinkSpec::symmetric(Impairment { loss, ..Impairment::default() }));
    result(&spec)
}

#[test]
fn a_server_that_has_the_request_and_stays_silent_is_to_blame_for_the_timeout() {
    for protocol in BOTH {
        let carried = |sample: &&Sample| sample.connection != Sample::NO_CONNECTION;
        let are_acknowledged = |result: &LoadResult| {
            let mut sent = result.samples.iter().filter(|sample| carried(sample)).peekable();
            sent.peek().is_some() && sent.all(|one| one.completed_at.since(one.sent_at) > ACKNOWLEDGED)
        };
        let silent = once_begun(|timeout| unanswered(protocol, timeout, None), are_acknowledged);
        let faults = || silent.samples.iter().map(|sample| sample.outcome.fault());
        let blamed = faults().filter(|fault| *fault == Some(Fault::Sut)).count();
        let on_a_connection = silent.samples.iter().filter(carried).count();
        assert_eq!(blamed, on_a_connection, "{protocol}: those that it was sent");
        assert!(blamed > 0 && faults().all(|fault| fault.is_some()));
        // What is lost on a link cannot be distinguished from what was never said; on one that loses nothing it can.
        let loss = LossModel::bernoulli(Ratio::new(0.01).unwrap());
        let behind_a_link = unanswered(protocol, 2 * ACKNOWLEDGED, Some(loss));
        assert_eq!(count(&behind_a_link, Outcome::Timeout), 20, "{protocol}");
        let clean =
            once_begun(|timeout| unanswered(protocol, timeout, Some(LossModel::None)), are_acknowledged);
        assert!(count(&clean, Outcome::Unanswered) > 0, "{protocol}");
    }
}

#[test]
fn a_server_that_withholds_credit_is_not_blamed_for_what_it_was_never_sent() {
    let server = Server::start(Protocol::H2c, Behaviour::KeepsCredit);
    let mut spec = callers(Protocol::H2c, &server, 2, 2);
    spec.cell.work.body_bytes = 1 << 20;
    spec.cell.work.timeout = Duration::from_millis(300);
    let result = result(&spec);
    assert_eq!(count(&result, Outcome::Timeout), 2);
}

#[test]
fn cancel_after_that_is_not_reached_cancels_nothing() {
    for protocol in BOTH {
        let server = Server::start(protocol, Behaviour::Serves);
        let mut spec = spec(protocol, &server);
        spec.cell.policy.cancel_after = Some(DEADLINE / 2);
        let result = result(&spec);
        assert_eq!(count(&result, Outcome::Succeeded), 50);
        assert!(result.connections.iter().all(|connection| connection.http.resets_sent.is_empty()));
    }
}

#[test]
fn a_mix_of_templates_asks_for_the_same_in_every_protocol_also_when_it_is_sent_again() {
    for protocol in Protocol::ALL {
        let server = Server::start(protocol, Behaviour::MeasuresPaths);
        let mut spec = callers(protocol, &server, 4, 100);
        let work = &mut spec.cell.work;
        (work.method, work.body_bytes, work.template) = ("GET".to_owned(), 0, true);
        work.mix = ["/a{{pick b|cde|fghijk}}", "/{{counter}}/long/path"]
            .map(|path| MixEntry { weight: 1, path: path.to_owned(), ..MixEntry::default() })
            .to_vec();
        let (work, seed) = (spec.cell.work.clone(), spec.cell.seed);
        let kinds = RequestKind::all(&work);
        let prepared = Prepared::new(&work, &kinds, "localhost", seed).unwrap();
        let draw = Draw::new(&work.mix, seed);
        let result = result(&spec);
        assert_eq!(count(&result, Outcome::Succeeded), 100, "{protocol}");
        for (request, sample) in (0..).zip(&result.samples) {
            assert_eq!(sample.kind, draw.kind(request));
            assert_eq!(sample.body_bytes, prepared.with_head(request, |head| head.path.len() as u64));
        }
        assert!([0, 1].iter().all(|kind| result.samples.iter().any(|sample| sample.kind == *kind)));
    }
}

#[test]
fn a_placeholder_that_is_none_is_an_error_before_anything_is_sent() {
    let server = Server::start(Protocol::H1, Behaviour::Serves);
    let mut spec = spec(Protocol::H1, &server);
    (spec.cell.work.template, spec.cell.work.path) = (true, "/{{date}}".to_owned());
    let error = run(&spec, &mut |_| ()).unwrap_err();
    assert!(matches!(error, LoadError::Template(_)), "{error}");
    assert!(error.to_string().contains("`date` at position 2"), "{error}");
    assert_eq!(server.accepted.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn interim_responses_are_counted_and_change_nothing_else() {
    for protocol in BOTH {
        let server = Server::start(protocol, Behaviour::HintsEarly);
        let result = result(&spec(protocol, &server));
        assert_eq!(count(&result, Outcome::Succeeded), 50, "{protocol}");
        for connection in &result.connections {
            assert_eq!(connection.http.interim, [(103, connection.requests)]);
        }
    }
}

#[test]
fn pushes_are_forbidden_unless_they_are_asked_for_and_then_counted() {
    for push in [false, true] {
        let server = Server::start(Protocol::H2c, Behaviour::Pushes);
        let mut spec = callers(Protocol::H2c, &server, 2, 50);
        spec.cell.client.push = push;
        let result = result(&spec);
        assert_eq!(count(&result, Outcome::Succeeded), 50, "{push}");
        let http = &result.connections[0].http;
        assert_eq!((http.pushes_accepted, http.pushes_refused), (if push { 50 } else { 0 }, 0));
        assert!(http.settings_local.contains(&(2, u32::from(push))), "{http:?}");
    }
}

#[test]
fn the_settings_of_both_sides_are_recorded() {
    for protocol in Protocol::OVER_TCP {
        let server = Server::start(protocol, Behaviour::Takes(7));
        let mut spec = callers(protocol, &server, 2, 10);
        spec.cell.client.max_frame_size = Some(20_000);
        let result = result(&spec);
        let http = &result.connections[0].http;
        assert_eq!(http.settings_remote.contains(&(3, 7)), protocol.is_multiplexed(), "{http:?}");
        assert_eq!(http.settings_local.contains(&(5, 20_000)), protocol.is_multiplexed());
        assert_eq!(http.settings_local.is_empty(), !protocol.is_multiplexed());
    }
}

#[test]
fn another_protocol_than_asked_by_alpn_is_an_error_that_names_both_and_no_fallback() {
    for (asked, spoken, named) in
        [(Protocol::H2, Protocol::H1s, "`h2`"), (Protocol::H1s, Protocol::H2, "`http/1.1`")]
    {
        let why = refusal(asked, &Server::start(spoken, Behaviour::Serves));
        assert!(matches!(why, ConnectError::Tls(TlsError::Alpn { .. })), "{asked}: {why:?}");
        let text = why.to_string();
        assert!(text.contains(named) && text.contains("it chose"), "{text}");
    }
}

#[test]
fn an_open_loop_may_stampede_too() {
    let server = Server::start(Protocol::H2c, Behaviour::EndsAfter(10));
    let mut spec = spec(Protocol::H2c, &server);
    (spec.cell.connections, spec.cell.max_connections) = (1, 1);
    spec.cell.dial = DialPolicy::Stampede;
    spec.cell.work.arrival = Arrival::Constant { rate: 200.0 };
    let result = result(&spec);
    assert_eq!(count(&result, Outcome::Succeeded), 50, "{:?}", result.connections);
}
