//! HOST102 for a user's client: it has no request in flight because it is busy itself.

use std::time::Duration;

use super::{AGAIN, Client};
use crate::diagnose::{Confidence, Evidence, Finding, cause};
use h2lab_base::units::{Time, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::CellRecord;

/// A client that has no request in flight for this part of the time between its first and its last is the limit itself.
const IDLE: f64 = 0.5;
/// In a shorter time a process is busy with its start, and a few requests prove nothing.
const SHORTEST: Duration = Duration::from_millis(500);
/// A client without a request for this part of the time gets a remark, whatever it did: any program spends less than
/// that between two requests.
const REMARKED: f64 = 0.2;
/// A shorter time proves nothing.
const LEAST_REMARKED: Duration = Duration::from_millis(100);
/// The client used a CPU for at least this part of all time without a request: otherwise it waited, for a timer or for
/// something that we do not see.
const BUSY: f64 = 0.7;

/// The finding, if the client is the limit.
pub(super) fn finding(records: &[CellRecord], client: &Client<'_>) -> Option<Finding> {
    let seen = Seen::of(records)?;
    let (idle, span) = (seen.idle.as_secs_f64(), seen.span.as_secs_f64());
    let without = client.took.saturating_sub(seen.under_way);
    let cpus = client.cpu.as_secs_f64() / without.as_secs_f64().max(f64::MIN_POSITIVE);
    if seen.idle < SHORTEST || idle < IDLE * span || cpus < BUSY {
        return None;
    }
    let (meta, share) = (cause("HOST102")?, idle / span);
    Some(Finding {
        rule: meta.id.to_owned(),
        name: meta.name.to_owned(),
        cell: records.first()?.cell.index,
        label: records.first()?.cell.protocol.to_string(),
        symptom: format!(
            "the client itself is the limit, not the server: for {:.0} % of the time from its first request to the last answer none was \
             under way, although its connection was free, and it used a CPU",
            share * 100.0
        ),
        evidence: vec![
            Evidence::new(
                "time without a request, on connections that were free",
                millis_f64(seen.idle),
                "ms",
            ),
            Evidence::new("time from the first request to the last answer", millis_f64(seen.span), "ms"),
            Evidence::new("CPU time of the command", millis_f64(client.cpu), "ms"),
            Evidence::new("its CPUs in all time without a request", cpus, "CPUs"),
        ],
        cost: format!(
            "{} of {} ({:.0} %): no server and no protocol changes that",
            measured_time(seen.idle),
            measured_time(seen.span),
            share * 100.0
        ),
        cost_share: share,
        confidence: Confidence::Observed,
        fixes: vec![Fix::new(
            "client",
            "less work between requests, or several threads or processes that do it",
            "the server and the connection have nothing to do meanwhile",
        )],
        confirm: AGAIN.to_owned(),
        ..Finding::default()
    })
}

/// The remark about a client that had no request for part of the time but is not known to be the limit itself: no rule
/// judges what it did.
pub(super) fn remark(records: &[CellRecord]) -> Option<String> {
    let seen = Seen::of(records)?;
    let (idle, span) = (seen.idle.as_secs_f64(), seen.span.as_secs_f64());
    (seen.idle >= LEAST_REMARKED && idle >= REMARKED * span).then(|| {
        format!(
            "the client had no request under way for {:.0} % of the time from its first request to the last answer ({} of {}), on \
             connections that were free: what it did meanwhile is in none of these findings",
            idle / span * 100.0,
            measured_time(seen.idle),
            measured_time(seen.span)
        )
    })
}

/// When requests were in flight, and when none was although one could have been.
#[derive(Debug)]
struct Seen {
    /// From the first request to the last answer.
    span: Duration,
    /// Time with a request in flight, or with a connection being made for the next: that is another cause (CONN107).
    under_way: Duration,
    /// The rest of the span.
    idle: Duration,
}

impl Seen {
    fn of(records: &[CellRecord]) -> Option<Self> {
        // For each request: when it was sent, when it ended, and when its connection was ready.
        let of_record = |record: &CellRecord| {
            let mut requests = Vec::with_capacity(record.samples.len());
            for sample in record.samples.iter().filter(|sample| sample.sent_at.happened()) {
                let ready = record.connection(sample.connection).map_or(Time::NEVER, |it| it.ready_at);
                requests.push((sample.sent_at, sample.completed_at, ready));
            }
            requests
        };
        let mut requests: Vec<(Time, Time, Time)> = records.iter().flat_map(of_record).collect();
        requests.retain(|(_, over, _)| over.happened());
        requests.sort_unstable();
        let first = requests.first()?.0;
        let (mut until, mut idle) = (first, Duration::ZERO);
        for (sent, over, ready) in requests {
            if ready <= until {
                idle += sent.since(until);
            }
            until = until.max(over);
        }
        let span = until.since(first);
        Some(Self { span, under_way: span.saturating_sub(idle), idle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::Scene;
    use h2lab_model::workload::Protocol;

    /// Eleven requests of 25 ms on one connection, with `between` milliseconds between them, of a client that ran 200
    /// ms longer and used `cpu` ms of CPU time.
    fn found(between: u64, cpu: u64) -> Option<Finding> {
        let scene = (0..11).fold(Scene::new(Protocol::H2), |scene, n| {
            let at = 1_000 + (25 + between) * u64::from(n);
            scene.request(0, 2 * n + 1, at, at + 25, at + 25)
        });
        let took = Duration::from_millis(200 + 11 * 25 + 10 * between);
        finding(&[scene.record()], &Client { took, cpu: Duration::from_millis(cpu), ..Client::default() })
    }

    #[test]
    fn a_client_that_uses_its_cpu_between_requests_is_the_limit() {
        let found = found(100, 1_150).expect("a finding");
        // 1,000 ms of 1,275.
        assert!((found.cost_share - 1_000.0 / 1_275.0).abs() < 1e-9, "{}", found.cost);
        assert!(found.symptom.contains("for 78 % of the time"), "{}", found.symptom);
        assert_eq!(found.rule, "HOST102");
    }

    #[test]
    fn little_idle_time_and_an_idle_cpu_are_no_limit() {
        assert!(found(50, 650).is_some(), "500 ms in all");
        assert!(found(49, 650).is_none());
        // 1,200 ms without a request: 70 % of them.
        assert!(found(100, 840).is_some());
        assert!(found(100, 839).is_none(), "it slept");
    }

    #[test]
    fn time_without_a_request_is_told_where_it_is_no_finding() {
        let told = |between: u64| {
            let scene = (0..11).fold(Scene::new(Protocol::H2), |scene, n| {
                let at = 1_000 + (25 + between) * u64::from(n);
                scene.request(0, 2 * n + 1, at, at + 25, at + 25)
            });
            remark(&[scene.record()])
        };
        let said = told(60).expect("600 of 875 ms");
        assert!(said.contains("for 69 % of the time") && said.contains("(600 ms of 875 ms)"), "{said}");
        assert!(told(10).is_some(), "100 of 375 ms");
        assert_eq!(told(9), None);
        assert_eq!(told(6), None, "18 %");
        assert_eq!(remark(&[]), None);
    }

    #[test]
    fn half_of_the_time_must_be_without_a_request() {
        let of = |length: u64| {
            let scene = Scene::new(Protocol::H2).request(0, 1, 1_000, 1_000 + length, 1_000 + length);
            let next = 1_000 + length + 600;
            let record = scene.request(0, 3, next, next + 25, next + 25).record();
            let took = Duration::from_secs(9);
            finding(&[record], &Client { took, cpu: took, ..Client::default() })
        };
        assert!(of(575).is_some());
        assert!(of(576).is_none());
    }

    #[test]
    fn a_connection_for_each_request_is_another_cause() {
        let mut scene = Scene::new(Protocol::H2).connections(11);
        for n in 0..11 {
            let at = 1_000 + 125 * u64::from(n);
            scene = scene.request(n, 1, at, at + 25, at + 25);
        }
        let mut record = scene.record();
        for (connection, n) in record.connections.iter_mut().zip(0..) {
            connection.ready_at = Time::from_millis(1_000 + 125 * n);
        }
        let took = Duration::from_secs(2);
        assert_eq!(finding(&[record], &Client { took, cpu: took, ..Client::default() }), None);
        assert_eq!(finding(&[], &Client::default()), None);
    }
}
