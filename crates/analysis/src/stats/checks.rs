//! Self-checks: identities that hold in a sound measurement. A violation becomes a warning beside the figures.

use std::time::Duration;

use super::status::{doubt_of_status, redirect};
use super::summary::CellSummary;
use super::tallied::{self, Tallies};
use super::{shares, silence, transfer};
use h2lab_base::counts::{count, number, plural};
use h2lab_base::units::measured_time;
use h2lab_model::record::CellRecord;
use h2lab_model::record::tally::Counts;
use h2lab_model::scenario::Target;
use h2lab_model::workload::Arrival;

/// A closed loop's requests in flight may differ from throughput × response time by this share.
const LITTLE: f64 = 0.10;
/// Little's law needs this many requests per request in flight: in a shorter closed loop its beginning and its end
/// dominate.
const LEAST_ROUNDS: u64 = 20;
/// In a shorter measurement, opening and closing the connections dominates.
const LEAST_MEASURED: Duration = Duration::from_millis(100);
/// A constant schedule may miss its rate by this share.
const OFFERED: f64 = 0.01;

/// The doubts about a cell, as sentences.
pub(super) fn warnings(
    summary: &CellSummary,
    repetitions: &[&CellRecord],
    tallies: &Tallies<'_>,
) -> Vec<String> {
    let checks = [
        little(summary, repetitions),
        offered(summary),
        begun(repetitions, tallies),
        backlog(summary, repetitions),
        keep_alive(summary),
        unasked(summary, repetitions),
        held(summary),
        congestion(summary, repetitions),
        redirected(summary, repetitions),
        silence::warning(summary),
        refused(summary),
        transfer::warning(summary),
    ];
    checks.into_iter().flatten().collect()
}

/// Little's law: requests in flight = throughput × mean response time. Only in a closed loop is the left side known.
/// Failed requests were in flight too, although they do not count as throughput.
fn little(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<String> {
    let Arrival::Closed { concurrency } = summary.cell.work.arrival else { return None };
    let has_rounds = summary.requests.succeeded >= LEAST_ROUNDS * u64::from(concurrency);
    if !has_rounds || summary.measured < LEAST_MEASURED {
        return None;
    }
    let served = Flow { rate: summary.served_rps, mean: summary.response.mean() };
    let failed = failed_in_flight(repetitions)?;
    if breaks_littles_law(served.in_flight() + failed, concurrency) {
        let and = if failed > 0.0 { format!(", failures {failed:.1}") } else { String::new() };
        return Some(format!(
            "Little's law: {} requests/s × {} means {:.1} in flight{and}, but {concurrency} were configured",
            number(served.rate.round()),
            measured_time(served.mean),
            served.in_flight()
        ));
    }
    None
}

/// Warns if most responses are redirects, names their target, and states that they were not followed: they count as
/// successes, and fast ones.
fn redirected(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<String> {
    let status = redirect(&summary.statuses)?;
    let mut connections = repetitions.iter().flat_map(|repetition| &repetition.connections);
    let location = connections.find_map(|connection| connection.http.location.as_deref())?;
    let to = located(&summary.cell.target, location);
    Some(format!(
        "the server redirects to {to} (status {status}), and redirects are not followed: to measure what is \
         there, give that URL"
    ))
}

/// Warns if every response of a live server has the same status, which is not a success: the request is probably not
/// the intended one.
fn refused(summary: &CellSummary) -> Option<String> {
    let (status, _) = summary.statuses.iter().next().filter(|_| summary.statuses.len() == 1)?;
    let doubt = doubt_of_status(*status)?;
    let Target::Url { url } = &summary.cell.target else { return None };
    Some(format!("{url} answers {doubt}"))
}

/// The URL that a `location` field refers to; unchanged if it is relative to a path.
fn located(target: &Target, location: &str) -> String {
    let origin = match target {
        Target::Url { url } => url.find("://").map(|at| {
            let (scheme, rest) = url.split_at(at + "://".len());
            (scheme, rest.split(['/', '?', '#']).next().unwrap_or_default())
        }),
        _ => None,
    };
    match origin {
        Some((scheme, _)) if location.starts_with("//") => {
            format!("{}{}", scheme.trim_end_matches('/'), location)
        }
        Some((scheme, authority)) if location.starts_with('/') => format!("{scheme}{authority}{location}"),
        _ => location.to_owned(),
    }
}

/// A flow of requests.
#[derive(Debug, Clone, Copy)]
struct Flow {
    /// Requests per second.
    rate: f64,
    /// Their mean time in the system.
    mean: Duration,
}

impl Flow {
    /// The number in flight.
    fn in_flight(self) -> f64 {
        self.rate * self.mean.as_secs_f64()
    }
}

/// How many of the requests in flight were to fail later, on average over the measured time: some of them fail only
/// after it. `None` if only the number of failures is known.
fn failed_in_flight(repetitions: &[&CellRecord]) -> Option<f64> {
    let (mut busy, mut measured) = (Duration::ZERO, Duration::ZERO);
    for repetition in repetitions {
        let (from, until) = tallied::window(repetition);
        measured += until.since(from);
        if repetition.tallies.is_empty() {
            let failed = repetition.samples.iter().filter(|sample| sample.outcome.is_failure());
            busy += failed
                .map(|sample| sample.completed_at.min(until).since(sample.scheduled_at.max(from)))
                .sum::<Duration>();
        } else if tallied::FAILURE.of(&[repetition]).n() > 0 {
            return None;
        }
    }
    Some(busy.as_secs_f64() / measured.as_secs_f64().max(f64::MIN_POSITIVE))
}

/// Whether this many in flight contradict the requested concurrency.
fn breaks_littles_law(in_flight: f64, concurrency: u32) -> bool {
    (in_flight / f64::from(concurrency.max(1)) - 1.0).abs() > LITTLE
}

/// Requests due, compared with the requested rate: within 1 % for a constant one, within four standard deviations for a
/// Poisson one. Where shares of the load are missing, that is said already.
fn offered(summary: &CellSummary) -> Option<String> {
    if summary.lost_shares.is_some() {
        return None;
    }
    let work = &summary.cell.work;
    let each = shares::due_in_measured_time(&work.phases, work.arrival)?;
    let expected = each * f64::from(summary.repetitions);
    let allowed = match summary.cell.work.arrival {
        Arrival::Poisson { .. } => 4.0 * expected.sqrt(),
        _ => (OFFERED * expected).max(f64::from(summary.repetitions)),
    };
    let sent = summary.requests.sent;
    ((sent as f64 - expected).abs() > allowed).then(|| {
        format!(
            "{} were due in the measured time, but the schedule has {}",
            plural(sent, "request"),
            count(expected.round() as u64)
        )
    })
}

/// Every request that was sent was begun on some connection, once and once more per replay. A request that was begun
/// may not have been sent: at the cut it still waits for room in the socket.
fn begun(repetitions: &[&CellRecord], tallies: &Tallies<'_>) -> Option<String> {
    let Counts { assigned, sent, replays, .. } = Counts::total(tallies.all());
    let begun: u64 = repetitions
        .iter()
        .flat_map(|repetition| &repetition.connections)
        .map(|c| u64::from(c.requests))
        .sum();
    (begun < sent || begun > assigned + replays)
        .then(|| format!("connections began {begun} requests, but {sent} were sent ({replays} replays)"))
}

/// In an open loop, requests that still waited for a connection or a stream at the cut were offered and not sent.
fn backlog(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<String> {
    let waited: u64 = repetitions.iter().map(|repetition| repetition.generator.backlog_at_cut).sum();
    let open_loop = !matches!(summary.cell.work.arrival, Arrival::Closed { .. });
    (open_loop && waited > 0).then(|| {
        format!(
            "{} still waiting for a connection or a stream at the end: {} requests/s offered, {} served",
            plural(waited, "request"),
            number(summary.offered_rps.round()),
            number(summary.served_rps.round())
        )
    })
}

/// A connection per request measures connecting, not the protocol.
fn keep_alive(summary: &CellSummary) -> Option<String> {
    let opened = summary.connections.opened;
    let is_asked_for = summary.cell.policy.reconnect_every == Some(1);
    let is_one_each = opened
        > u64::from(summary.cell.as_generated().connections) * u64::from(summary.repetitions)
        && summary.requests_per_connection() < 2.0;
    if is_asked_for || !is_one_each {
        return None;
    }
    let ended = |by: &[&str]| -> u64 {
        let ends = summary.connections.closed.iter();
        ends.filter(|end| by.contains(&&*end.reason)).map(|end| end.count).sum()
    };
    let why = if 2 * ended(&["ours"]) > opened {
        "we closed most of them because their requests failed"
    } else if 2 * ended(&["server", "goaway", "reset"]) > opened {
        "the server does not keep connections open"
    } else {
        return None; // The pool grew with the requests in flight.
    };
    let (opened, requests) = (plural(opened, "connection"), plural(summary.connections.requests, "request"));
    Some(format!("{opened} for {requests}: {why}"))
}

/// A multiplexed cell opens exactly the requested connections, and others only after some have ended. If the server
/// ended them the figures are just as valid: the report shows it beside them.
fn unasked(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<String> {
    let asked: u64 = repetitions.iter().map(|repetition| u64::from(repetition.cell.connections)).sum();
    let opened = summary.connections.opened;
    let ends = summary
        .connections
        .closed
        .iter()
        .filter(|end| end.reason != "cell" && end.reason != "not-established");
    let ended: u64 = ends.map(|end| end.count).sum();
    let useless = summary.connections.useless_dials;
    (summary.cell.as_generated().protocol.is_multiplexed() && opened > asked + ended + useless).then(|| {
        format!(
            "{opened} connections were opened where {asked} were configured; {ended} ended and {useless} carried no request"
        )
    })
}

/// A sidecar may hold a different number of connections over the link than it was configured for, or could be.
fn held(summary: &CellSummary) -> Option<String> {
    let (sidecar, held) = (summary.cell.sidecar.as_ref()?, summary.hop_connections?);
    let asked = u64::from(summary.cell.connections) * u64::from(summary.repetitions);
    (summary.cell.protocol.is_multiplexed() && held != asked).then(|| {
        format!(
            "{} held {} over the link, but {asked} were configured",
            sidecar.name,
            plural(held, "connection")
        )
    })
}

/// The kernel must run the requested congestion control.
fn congestion(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<String> {
    let asked = summary.cell.congestion.as_deref()?;
    let environments = repetitions.iter().map(|repetition| &repetition.environment);
    let ends = environments.flat_map(|e| [&e.congestion_client, &e.congestion_server]);
    let other = ends.into_iter().find(|name| !name.is_empty() && *name != asked)?;
    Some(format!("congestion control {asked} was requested, but the kernel used {other}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_base::units::Time;
    use h2lab_model::record::testing::{Model, cell, counted, one_repetition};
    use h2lab_model::record::{
        CloseReason, ConnectionRecord, Outcome, Sample, ServerSummary, SidecarSummary,
    };
    use h2lab_model::scenario::Sidecar;
    use h2lab_model::workload::Protocol;

    fn record(protocol: Protocol) -> CellRecord {
        one_repetition(&cell(0, 0, protocol, 4, 0.0), 0, &Model::CLEAN)
    }

    fn doubts(record: &CellRecord) -> Vec<String> {
        CellSummary::of(&[record]).warnings
    }

    #[test]
    fn a_sound_repetition_raises_no_doubt() {
        assert_eq!(doubts(&record(Protocol::H1)), Vec::<String>::new());
        assert_eq!(doubts(&record(Protocol::H2c)), Vec::<String>::new());
    }

    #[test]
    fn a_server_that_mostly_redirects_is_reported_with_the_url_to_give() {
        let redirecting = |url: &str, location: Option<&str>, share: usize| {
            let mut record = record(Protocol::H1);
            record.cell.target = Target::Url { url: url.to_owned() };
            record.connections[0].http.location = location.map(Into::into);
            for (n, sample) in record.samples.edit().iter_mut().enumerate() {
                sample.status = if n % 10 < share { 301 } else { 200 };
            }
            doubts(&record)
        };
        for (location, to) in
            [("https://b/x", "https://b/x"), ("/x", "http://a:8080/x"), ("//b/x", "http://b/x"), ("x", "x")]
        {
            let told = redirecting("http://a:8080/y?z", Some(location), 10);
            let expected =
                format!("the server redirects to {to} (status 301), and redirects are not followed");
            assert!(told[0].starts_with(&expected), "{told:?}");
        }
        assert_eq!(redirecting("http://a/", Some("/x"), 6).len(), 1);
        assert_eq!(redirecting("http://a/", Some("/x"), 4), Vec::<String>::new());
        assert_eq!(redirecting("http://a/", None, 10), Vec::<String>::new());
    }

    #[test]
    fn a_live_server_that_answers_404_to_every_request_is_told_with_a_question() {
        let answering = |url: Option<&str>, statuses: &[u16]| {
            let mut record = record(Protocol::H1);
            if let Some(url) = url {
                record.cell.target = Target::Url { url: url.to_owned() };
            }
            for (n, sample) in record.samples.edit().iter_mut().enumerate() {
                sample.status = statuses[n % statuses.len()];
                sample.outcome = if sample.status < 400 { Outcome::Succeeded } else { Outcome::Status };
            }
            doubts(&record).into_iter().find(|doubt| doubt.contains(" answers "))
        };
        assert_eq!(
            answering(Some("http://a/x"), &[404]).as_deref(),
            Some("http://a/x answers 404 Not Found: measured as it is; is the path right?")
        );
        assert_eq!(answering(Some("http://a/x"), &[200]), None);
        assert_eq!(answering(Some("http://a/x"), &[200, 404]), None, "some succeed");
        assert_eq!(answering(None, &[404]), None, "our own server");
    }

    #[test]
    fn littles_law_holds_or_is_named() {
        let closed = |concurrency| {
            let mut record = record(Protocol::H2c);
            record.cell.work.arrival = Arrival::Closed { concurrency };
            doubts(&record)
        };
        assert_eq!(closed(25), Vec::<String>::new()); // 1000/s × 25.1 ms
        assert!(closed(32)[0].starts_with("Little's law"));
    }

    #[test]
    fn littles_law_is_not_checked_on_a_short_closed_loop() {
        let first = |requests| {
            let mut record = record(Protocol::H2c);
            record.cell.work.arrival = Arrival::Closed { concurrency: 100 };
            let measured = record.samples.iter().filter(|sample| sample.measured).take(requests);
            let kept: Vec<Sample> = measured.collect();
            record.samples = kept.into_iter().collect();
            doubts(&record).iter().any(|doubt| doubt.starts_with("Little's law"))
        };
        assert_eq!([first(5), first(1_999), first(2_000)], [false, false, true]);
    }

    #[test]
    fn the_figures_of_the_study_are_found_out() {
        // Runs A, B and C of the study's comparison, as its tool printed them: 100 workers each.
        let run = |rate, seconds| Flow { rate, mean: Duration::from_secs_f64(seconds) }.in_flight();
        assert!(breaks_littles_law(run(9899.78, 0.0147), 100), "145 busy of 100 workers");
        assert!(!breaks_littles_law(run(4046.83, 0.0254), 100), "102.8");
        assert!(!breaks_littles_law(run(9725.29, 0.0103), 100), "100.2");
        // Lost results or uncounted time are detected too.
        assert!(breaks_littles_law(run(9725.29, 0.0092), 100), "89.5");
    }

    #[test]
    fn requests_that_fail_after_the_measured_time_count_for_as_long_as_it_lasted() {
        let mut record = record(Protocol::H2c);
        record.cell.work.arrival = Arrival::Closed { concurrency: 35 };
        let (from, until) = tallied::window(&record);
        // Ten in flight from before the measured time until after it, in addition to the 25 that get responses.
        let lost = Sample {
            outcome: Outcome::Timeout,
            completed_at: until + Duration::from_secs(30),
            ..Sample::due(from, true)
        };
        record.samples.extend([lost; 10]);
        let doubts = doubts(&record);
        assert!(!doubts.iter().any(|doubt| doubt.starts_with("Little's law")), "{doubts:?}");
    }

    #[test]
    fn requests_that_failed_were_in_flight_too() {
        let mut record = record(Protocol::H2c);
        record.cell.work.arrival = Arrival::Closed { concurrency: 25 };
        for sample in record.samples.edit().iter_mut().step_by(3) {
            (sample.outcome, sample.status) = (Outcome::Status, 503);
        }
        assert_eq!(doubts(&record), Vec::<String>::new());
        record.cell.work.arrival = Arrival::Closed { concurrency: 50 };
        assert!(doubts(&record)[0].contains("in flight, failures 8."), "{:?}", doubts(&record));
    }

    #[test]
    fn what_does_not_add_up_is_found_where_requests_are_only_counted() {
        assert_eq!(doubts(&counted(record(Protocol::H2c))), Vec::<String>::new());
        let mut closed = record(Protocol::H2c);
        closed.cell.work.arrival = Arrival::Closed { concurrency: 32 };
        assert!(doubts(&counted(closed))[0].starts_with("Little's law"));
        let mut begun = record(Protocol::H1);
        begun.connections[0].requests -= 1;
        assert!(
            doubts(&counted(begun))[0].starts_with("connections began 3499 requests, but 3500 were sent")
        );
        let mut offered = record(Protocol::H1);
        offered.cell.work.arrival = Arrival::Constant { rate: 1011.0 };
        assert!(doubts(&counted(offered))[0].contains("but the schedule has 3,033"));
    }

    #[test]
    fn requests_that_were_never_due_are_noticed() {
        let mut record = record(Protocol::H1);
        record.cell.work.arrival = Arrival::Constant { rate: 1009.0 };
        assert_eq!(doubts(&record), Vec::<String>::new());
        record.cell.work.arrival = Arrival::Constant { rate: 1011.0 };
        assert_eq!(
            doubts(&record),
            ["3,000 requests were due in the measured time, but the schedule has 3,033"]
        );
    }

    #[test]
    fn a_request_that_waits_for_the_socket_at_the_cut_is_no_contradiction() {
        let mut record = record(Protocol::H2c);
        for sample in record.samples.edit().iter_mut().take(100) {
            (sample.sent_at, sample.outcome) = (Time::NEVER, Outcome::Unfinished);
        }
        assert_eq!(doubts(&record), Vec::<String>::new());
    }

    #[test]
    fn a_backlog_at_the_end_of_an_open_loop_is_reported_with_its_numbers() {
        let mut record = record(Protocol::H1);
        record.generator.backlog_at_cut = 7;
        assert!(doubts(&record)[0].starts_with("7 requests still waiting"), "{:?}", doubts(&record));
        record.cell.work.arrival = Arrival::Closed { concurrency: 25 };
        assert_eq!(doubts(&record), Vec::<String>::new());
    }

    #[test]
    fn requests_that_no_connection_began_are_noticed() {
        let mut record = record(Protocol::H1);
        record.connections[0].requests -= 1;
        assert!(doubts(&record)[0].starts_with("connections began 3499 requests, but 3500 were sent"));
        record.connections[0].requests += 2;
        assert_eq!(doubts(&record).len(), 1);
        record.samples.edit()[0].replays = 1;
        assert_eq!(doubts(&record), Vec::<String>::new());
    }

    #[test]
    fn more_connections_than_asked_for_are_noticed_where_the_number_is_fixed_and_none_ended() {
        let with_extra = |protocol, ended: usize| {
            let mut record = record(protocol);
            let taken = 2; // requests of the first one
            let extra = ConnectionRecord { requests: taken, ..record.connections[0].clone() };
            record.connections[0].requests -= taken * (40 - record.connections.len() as u32);
            record.connections.resize(40, extra);
            record.connections.iter_mut().take(ended).for_each(|c| c.closed = CloseReason::Server);
            doubts(&record)
        };
        assert_eq!(
            with_extra(Protocol::H2c, 35),
            ["40 connections were opened where 4 were configured; 35 ended and 0 carried no request"]
        );
        assert_eq!(with_extra(Protocol::H2c, 36), Vec::<String>::new());
        assert_eq!(with_extra(Protocol::H1, 0), Vec::<String>::new());
    }

    #[test]
    fn a_connection_for_each_request_is_the_servers_doing_unless_we_ended_them() {
        let with = |closed: CloseReason| {
            let mut record = record(Protocol::H1);
            let one = ConnectionRecord { requests: 1, closed, ..record.connections[0].clone() };
            record.connections = vec![one; 3500];
            doubts(&record)
        };
        let server = "3,500 connections for 3,500 requests: the server does not keep connections open";
        assert_eq!(with(CloseReason::Server), [server]);
        let ours =
            "3,500 connections for 3,500 requests: we closed most of them because their requests failed";
        assert_eq!(with(CloseReason::Local { why: "a request was not answered in time".to_owned() }), [ours]);
        assert_eq!(with(CloseReason::Cell), [""; 0], "the pool grew with the requests in flight");
        let mut record = record(Protocol::H1);
        let one =
            ConnectionRecord { requests: 1, closed: CloseReason::Server, ..record.connections[0].clone() };
        record.connections = vec![one; 3500];
        record.cell.policy.reconnect_every = Some(1);
        assert_eq!(doubts(&record), [""; 0], "it was asked for");
    }

    #[test]
    fn another_congestion_control_than_asked_for_is_noticed() {
        let mut record = record(Protocol::H2c);
        record.environment.congestion_server = "reno".to_owned();
        assert_eq!(doubts(&record), ["congestion control cubic was requested, but the kernel used reno"]);
    }

    #[test]
    fn a_sidecar_that_holds_as_many_connections_as_asked_is_no_doubt_and_one_that_does_not_is() {
        let mut cell = h2lab_model::record::testing::cell(0, 0, h2lab_model::workload::Protocol::H2c, 2, 0.0);
        cell.sidecar = Some(Sidecar { name: "envoy".to_owned(), warm_pool: 32, max_connections: 512 });
        let reported = |connections| {
            let mut repetition = h2lab_model::record::testing::one_repetition(
                &cell,
                0,
                &h2lab_model::record::testing::Model::CLEAN,
            );
            repetition.sidecar = Some(SidecarSummary { process: ServerSummary::default(), connections });
            held(&CellSummary::of(&[&repetition]))
        };
        assert_eq!(reported(2), None);
        assert_eq!(reported(3).unwrap(), "envoy held 3 connections over the link, but 2 were configured");
    }
}
