//! MUX101: the server's limit of concurrent streams is reached, and requests wait in the client.

mod held;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(in crate::diagnose) use self::held::held_at_limit;
use super::mux::MUX101 as META;
use super::views::slots::{Slots, slots};
use super::views::{mean, more_connections};
use crate::diagnose::{Case, Evidence, Finding, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::settings::Knob;
use h2lab_model::workload::Arrival;

/// Fewer requests that waited may be chance.
const LEAST_REQUESTS: u64 = 10;
/// If requests take more than this many times longer while all streams are in use, the server or the path has no room
/// for more of them.
const CROWDED: u32 = 2;
/// The lowest limit that RFC 9113 §6.5.2 recommends.
const LEAST_RECOMMENDED: u32 = 100;
/// The smallest limit that is advised (RFC 9113 §6.5.2 recommends 100 or more).
const LEAST_LIMIT: u64 = 128;
/// By which factor more connections are advised.
const MANY: u32 = 4;

/// The rule.
#[derive(Debug)]
pub(super) struct StreamLimit;

impl Rule for StreamLimit {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let slots = joined(&case.records().filter_map(slots).collect::<Vec<_>>());
        let is_it = |slots: &Slots| {
            slots.requests >= LEAST_REQUESTS && !is_crowded(case, slots) && case.is_worth_time(slots.waited)
        };
        let waited = slots.filter(is_it).map(|slots| finding(case, &slots));
        waited.or_else(|| held::refused_at_limit(case)).into_iter().collect()
    }
}

/// Whether requests that have all other streams open beside them take so much longer that more streams would not help.
/// A closed loop with more requests than streams uses all streams from beginning to end: none of its requests shows how
/// long one takes alone, and the time of the quickest is chance. There a limit below the RFC's recommendation is too
/// low by itself.
fn is_crowded(case: &Case<'_>, slots: &Slots) -> bool {
    let in_flight = match case.cell().work.arrival {
        Arrival::Closed { concurrency } => concurrency,
        _ => 0,
    };
    let streams = slots.limit.saturating_mul(case.cell().connections.max(1));
    let is_always_full = in_flight > streams && slots.limit < LEAST_RECOMMENDED;
    !is_always_full && slots.service > slots.unhindered * CROWDED
}

/// All repetitions together; the averages are weighted by requests.
fn joined(each: &[Slots]) -> Option<Slots> {
    let limit = each.iter().map(|slots| slots.limit).min()?;
    let sum = |of: fn(&Slots) -> Duration| each.iter().map(of).sum::<Duration>();
    let [requests, waiters] = [|slots: &Slots| slots.requests, |slots: &Slots| slots.waiters]
        .map(|of| each.iter().map(of).sum::<u64>());
    let share = |slots: &Slots| slots.requests as f64 / requests.max(1) as f64;
    let mean = |of: fn(&Slots) -> Duration| each.iter().map(|slots| of(slots).mul_f64(share(slots))).sum();
    Some(Slots {
        limit,
        requests,
        waiters,
        waited: sum(|slots| slots.waited),
        full: sum(|slots| slots.full),
        all: sum(|slots| slots.all),
        service: mean(|slots| slots.service),
        unhindered: mean(|slots| slots.unhindered),
    })
}

fn finding(case: &Case<'_>, slots: &Slots) -> Finding {
    let full = slots.full.as_secs_f64() / slots.all.as_secs_f64().max(f64::MIN_POSITIVE) * 100.0;
    let streams = plural(slots.limit.into(), "stream");
    Finding {
        symptom: format!(
            "{} waited in the client for {} on average, since the server allows {streams} on a connection and all were taken \
             ({full:.0} % of the time)",
            plural(slots.waiters, "request"),
            measured_time(mean(slots.waited, slots.waiters)),
        ),
        evidence: Evidence::list([
            ("streams that the server allows on a connection", slots.limit.into(), "streams"),
            ("requests that waited while all were taken", slots.waiters as f64, "requests"),
            ("time in which all were taken and requests waited", full, "%"),
            ("the server's time for those that had waited, on average", millis_f64(slots.service), "ms"),
            ("the same where few streams were open", millis_f64(slots.unhindered), "ms"),
        ]),
        fixes: fixes(case, slots.limit),
        confirm: format!(
            "{}: with more connections no request waits before it is sent",
            case.compare(&format!("-c {0},{1}", case.cell().connections, case.cell().connections * MANY))
        ),
        ..case.finding(&META, slots.waited, "waiting for one of the streams that the server allows")
    }
}

/// What to change where the server allows so few streams on a connection.
fn fixes(case: &Case<'_>, limit: u32) -> Vec<Fix> {
    vec![
        case.advise(Knob::MaxConcurrentStreams, Some(LEAST_LIMIT.max(u64::from(limit) * 8))),
        more_connections(
            Some(u64::from(case.cell().connections * MANY)),
            format!("each has {} streams of its own; costs handshakes and memory", count(limit.into())),
        ),
    ]
}
