//! CONN110: a request is sent at the moment at which the other end closes the idle connection.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::conn::CONN110 as META;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{Outcome, Sample};
use h2lab_model::settings::Knob;

/// At least this many requests must have met the timeout …
const LEAST: usize = 2;
/// … and this share of all.
const LEAST_SHARE: f64 = 0.001;
/// Shorter times without a request do not count as idle.
const IDLE: Duration = Duration::from_millis(500);
/// The idle times before these requests may differ by this part of the shortest.
const ALIKE: f64 = 0.1;
/// The status with which a proxy answers if its backend closed the connection on which it sent the request.
const BAD_GATEWAY: u16 = 502;
/// An idle timeout that is longer than that of common clients and proxies.
const LONG_MS: u64 = 75_000;

/// The rule.
#[derive(Debug)]
pub(super) struct IdleTimeoutRace;

impl Rule for IdleTimeoutRace {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let races: Vec<Race> = case.repetitions.iter().flat_map(races).collect();
        let requests = case.samples().count();
        let gaps = || races.iter().map(|race| race.idle);
        let (Some(shortest), Some(longest)) = (gaps().min(), gaps().max()) else { return Vec::new() };
        let rtt = case.repetitions.iter().map(|one| one.facts().rtt).max().unwrap_or_default();
        let is_one_timeout = longest <= shortest + shortest.mul_f64(ALIKE).max(2 * rtt);
        let share = races.len() as f64 / requests.max(1) as f64;
        if races.len() < LEAST || share < LEAST_SHARE || !is_one_timeout {
            return Vec::new();
        }
        let by_proxy = races.iter().filter(|race| race.by_proxy).count();
        let first = &races[0];
        vec![Finding {
            symptom: format!(
                "{} failed that followed on {} to {} without one: {}",
                plural(races.len() as u64, "request"),
                measured_time(shortest),
                measured_time(longest),
                if by_proxy * 2 > races.len() {
                    "a proxy answered 502, since its backend had closed the connection"
                } else {
                    "the server closed the idle connection at that time"
                }
            ),
            evidence: vec![
                Evidence::new("requests that failed on an idle connection", races.len() as f64, "requests")
                    .seen(first.connection, first.at),
                Evidence::new("the shortest idle time before one", millis_f64(shortest), "ms"),
                Evidence::new("the longest", millis_f64(longest), "ms"),
                Evidence::new("of these, answered with 502", by_proxy as f64, "requests"),
            ],
            cost: format!("{} of {} failed", count(races.len() as u64), plural(requests as u64, "request")),
            confidence: if by_proxy > 0 { Confidence::Inferred } else { Confidence::Observed },
            fixes: fixes(case, by_proxy > 0, shortest),
            confirm: "run the same cell at another rate: failures come only where requests are about that far apart".to_owned(),
            ..case.finding_of_share(&META, share)
        }]
    }
}

/// A request that met an idle timeout.
#[derive(Debug, Clone, Copy)]
pub(in crate::diagnose::causes) struct Race {
    pub connection: u32,
    pub stream: u32,
    at: Time,
    /// For how long no request had been sent before.
    idle: Duration,
    by_proxy: bool,
}

/// Requests that failed with their connection, which had been idle and ended within two round trips after they were
/// sent, or by a GOAWAY that excludes them; and those answered with 502 after a time in which no request at all was
/// sent.
pub(in crate::diagnose::causes) fn races(repetition: &Repetition<'_>) -> Vec<Race> {
    let (record, rtt) = (repetition.record, repetition.facts().rtt);
    let mut busy_until: BTreeMap<u32, Time> = BTreeMap::new();
    let mut any_until = Time::ZERO;
    let mut races = Vec::new();
    for sample in &record.samples {
        if !sample.sent_at.happened() {
            continue;
        }
        let closes = match sample.outcome {
            Outcome::Closed | Outcome::GoAway | Outcome::Reset => true,
            // A request that was sent again met more than one GOAWAY.
            Outcome::Refused => sample.replays == 0,
            _ => false,
        };
        let connection = record.connection(sample.connection);
        // After a GOAWAY a server may wait for the client to close.
        let ended = connection.is_some_and(|it| {
            it.usable_until().since(sample.sent_at) <= 2 * rtt.max(Duration::from_millis(1))
        });
        let until = busy_until.get(&sample.connection).copied();
        let idle = until.map_or(Duration::ZERO, |until| sample.sent_at.since(until));
        let idle_of_all =
            if any_until > Time::ZERO { sample.sent_at.since(any_until) } else { Duration::ZERO };
        let race = |idle, by_proxy| Race {
            connection: sample.connection,
            stream: sample.stream.0,
            at: sample.sent_at,
            idle,
            by_proxy,
        };
        if closes && ended && idle >= IDLE {
            races.push(race(idle, false));
        } else if sample.status == BAD_GATEWAY && idle_of_all >= IDLE {
            races.push(race(idle_of_all, true));
        }
        note(&mut busy_until, &mut any_until, &sample);
    }
    races
}

fn note(busy_until: &mut BTreeMap<u32, Time>, any_until: &mut Time, sample: &Sample) {
    let ended = if sample.completed_at.happened() { sample.completed_at } else { sample.sent_at };
    let until = busy_until.entry(sample.connection).or_default();
    *until = ended.max(*until);
    *any_until = ended.max(*any_until);
}

fn fixes(case: &Case<'_>, has_proxy: bool, idle: Duration) -> Vec<Fix> {
    let knob = if case.cell().protocol.is_multiplexed() { Knob::H2IdleTimeout } else { Knob::H1IdleTimeout };
    let below = format!("an idle timeout below {}", measured_time(idle));
    if has_proxy {
        let why =
            "so that the proxy, and not the backend, closes idle connections: no request is on its way then";
        return vec![Fix::new("proxy", &format!("{below} towards its backend"), why)];
    }
    let why = "so that the client closes idle connections, and no request is on its way then";
    vec![case.advise(knob, Some(LONG_MS)), Fix::new("client", &below, why)]
}
