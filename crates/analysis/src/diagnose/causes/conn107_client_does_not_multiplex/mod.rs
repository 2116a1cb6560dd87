//! CONN107: the client uses a connection for one or a few requests, although it could carry all of them.

#[cfg(test)]
mod tests;
mod unkept;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(in crate::diagnose) use self::unkept::unkept;
use super::conn::CONN107 as META;
use super::views::waiting::Waiting;
use super::views::{dials, mean, streams_allowed};
use crate::diagnose::{Case, Evidence, Finding, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, CloseReason, ConnectionRecord, Sample};

/// A client that ends connections after more requests than this on average does so for another reason than their
/// number.
const FEW: f64 = 10.0;
/// At least this many connections must have ended: fewer are not a pattern.
const LEAST_ENDS: usize = 4;
/// At least this many requests must each have a connection of its own: fewer may be chance.
const LEAST_SINGLE: usize = 6;
/// This many connections, those that became ready last, are searched for one that made a dial needless.
const RECENT: usize = 16;

/// The rule.
#[derive(Debug)]
pub(super) struct ClientDoesNotMultiplex;

impl Rule for ClientDoesNotMultiplex {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        if !case.cell().protocol.is_multiplexed() || case.cell().sidecar.is_some() {
            return Vec::new();
        }
        reconnecting(case).or_else(|| one_at_a_time(case)).into_iter().collect()
    }
}

/// Connections that carried requests.
fn used<'a>(case: &Case<'a>) -> Vec<&'a ConnectionRecord> {
    case.connections().filter(|one| one.requests > 0).collect()
}

/// How many requests these connections carried, and how many each of them on average.
fn requests_on(connections: &[&ConnectionRecord]) -> (f64, f64) {
    let requests: f64 = connections.iter().map(|one| f64::from(one.requests)).sum();
    (requests, requests / connections.len().max(1) as f64)
}

/// The client ends its connections itself, and requests wait for the next.
fn reconnecting(case: &Case<'_>) -> Option<Finding> {
    let (mut ends, mut followed): (Vec<&ConnectionRecord>, Vec<&ConnectionRecord>) = (Vec::new(), Vec::new());
    for record in case.records() {
        // A connection that ends with the client's work has no successor, so it could not have been kept for one.
        let last_dial = record.connections.iter().map(|connection| connection.dialled_at).max();
        let is_followed = |one: &&ConnectionRecord| last_dial.is_some_and(|dial| one.closed_at <= dial);
        followed.extend(ended_by_us(record).filter(is_followed));
        // One without a successor is counted where it is like the others: the list of connections has it, too.
        ends.extend(ended_by_us(record).filter(|one| is_followed(one) || f64::from(one.requests) <= FEW));
    }
    let (_, each) = requests_on(&followed);
    if followed.len() < LEAST_ENDS || followed.len() * 2 < used(case).len() || each > FEW {
        return None;
    }
    let (requests, each) = requests_on(&ends);
    let waits = case.records().flat_map(|record| {
        record.samples.iter().map(|sample| match sample.connection {
            // A request that never got a connection waited for one all the time.
            Sample::NO_CONNECTION => Duration::from_nanos(sample.stall_open_ns),
            _ => dials::waited(record, &sample),
        })
    });
    let waiting: Waiting = waits.collect();
    let finding =
        case.finding(&META, waiting.time, "waiting for connections, where one could have been kept");
    let seen = [
        ("connections that the client ended", ends.len() as f64, "connections"),
        ("requests that they had carried", requests, "requests"),
    ];
    case.is_worth(finding.cost_share).then(|| Finding {
        symptom: format!(
            "the client ended {} itself, after {each:.1} requests each on average; {} for theirs",
            plural(ends.len() as u64, "connection"),
            waiting.words()
        ),
        evidence: [Evidence::list(seen), waiting.evidence("requests that waited for the next")].concat(),
        fixes: vec![keep(case)],
        confirm: case.compare("-c 1")
            + ": without --reconnect-every and --pool-size no request waits for a dial",
        ..finding
    })
}

/// Connections that the client ended although all their requests had been answered.
fn ended_by_us(record: &CellRecord) -> impl Iterator<Item = &ConnectionRecord> {
    let is_failure = |sample: &Sample| sample.outcome.is_failure();
    let failed: BTreeSet<u32> =
        record.samples.iter().filter(is_failure).map(|sample| sample.connection).collect();
    record.connections.iter().filter(move |connection| {
        let is_ours = matches!(connection.closed, CloseReason::Local { .. }) && connection.goaways.is_empty();
        is_ours && connection.requests > 0 && !failed.contains(&connection.index)
    })
}

/// The client leaves open connections unused and dials another, and requests wait for that. Only where all connections
/// belong to one client: in a capture at a server they may belong to many, which cannot share them.
pub(in crate::diagnose) fn abandoning(case: &Case<'_>) -> Option<Finding> {
    let used = used(case);
    let (requests, each) = requests_on(&used);
    if used.len() < LEAST_ENDS || each > FEW {
        return None;
    }
    let (mut dials, mut waiting) = (0, Waiting::default());
    for record in case.records() {
        let needless = needless(record);
        dials += needless.len();
        for sample in record.samples.iter().filter(|sample| needless.contains(&sample.connection)) {
            waiting.add(dials::waited(record, &sample));
        }
    }
    let finding = case.finding(&META, waiting.time, "waiting for a connection although another one was free");
    let seen = [
        ("connections dialled while another was free", dials as f64, "connections"),
        ("connections that carried requests", used.len() as f64, "connections"),
        ("requests on them", requests, "requests"),
    ];
    let is_frequent = dials >= LEAST_ENDS && dials * 2 >= used.len();
    (is_frequent && case.is_worth(finding.cost_share)).then(|| Finding {
        symptom: format!(
            "the client dialled {} of {} although another one was open with no request on it; {} for theirs",
            count(dials as u64),
            plural(used.len() as u64, "connection"),
            waiting.words()
        ),
        evidence: [Evidence::list(seen), waiting.evidence("requests that waited for a needless dial")]
            .concat(),
        fixes: vec![keep(case)],
        confirm: case.compare("-c 1") + ": with one connection for all requests none waits for a dial",
        ..finding
    })
}

/// Each request of one client has a connection of its own, whenever it was dialled: this is seen without any timing.
pub(in crate::diagnose) fn single_requests(case: &Case<'_>) -> Option<Finding> {
    let used = used(case);
    let first = used.iter().min_by_key(|one| one.ready_at)?;
    let is_alike = |one: &&ConnectionRecord| {
        one.requests == 1
            && one.remote_port == first.remote_port
            && one.goaways.is_empty()
            && !matches!(one.closed, CloseReason::Server)
    };
    let is_shareable = streams_allowed(first).is_none_or(|most| most > 1);
    if used.len() < LEAST_SINGLE || !used.iter().all(is_alike) || !is_shareable {
        return None;
    }
    let others = used.iter().filter(|one| one.index != first.index && one.ready_at.happened());
    let opening: Duration = others.map(|one| one.ready_at.since(one.dialled_at)).sum();
    let response = case.response_time();
    let share = opening.as_secs_f64() / (opening + response).as_secs_f64().max(f64::MIN_POSITIVE);
    Some(Finding {
        symptom: format!(
            "each of {} had a connection of its own, which took {} to open on average: none carried a second request",
            plural(used.len() as u64, "request"),
            measured_time(mean(opening, used.len() as u64 - 1))
        ),
        cost: format!(
            "{} spent on opening connections after the first, beside {} of response time",
            measured_time(opening),
            measured_time(response)
        ),
        evidence: Evidence::list([
            ("connections that carried a single request", used.len() as f64, "connections"),
            ("time until those after the first were ready", millis_f64(opening), "ms"),
        ]),
        fixes: vec![keep(case)],
        confirm: case.compare("-c 1") + ": one connection carries all requests",
        ..case.finding_of_share(&META, share)
    })
}

/// Connections that were dialled while another one had carried requests, was idle, and stayed usable until the new one
/// was ready.
fn needless(record: &CellRecord) -> BTreeSet<u32> {
    let mut used: Vec<&ConnectionRecord> =
        record.connections.iter().filter(|one| one.requests > 0 && one.ready_at.happened()).collect();
    used.sort_by_key(|one| one.ready_at);
    // When the requests of each connection were sent, and ended.
    let mut requests: BTreeMap<u32, Vec<(Time, Time)>> = BTreeMap::new();
    for sample in record.samples.iter().filter(|sample| sample.sent_at.happened()) {
        requests.entry(sample.connection).or_default().push((sample.sent_at, sample.completed_at));
    }
    let is_free = |one: &ConnectionRecord, at: Time| {
        let begun = requests.get(&one.index).into_iter().flatten().filter(|(sent, _)| *sent <= at);
        let (n, open) = begun.fold((0, 0), |(n, open), (_, ended)| (n + 1, open + usize::from(*ended > at)));
        n > 0 && open == 0
    };
    let is_needless = |dial: &&ConnectionRecord| {
        let before = used.partition_point(|one| one.ready_at <= dial.dialled_at);
        used[..before].iter().rev().take(RECENT).any(|one| {
            one.remote_port == dial.remote_port
                && one.usable_until() > dial.ready_at
                && is_free(one, dial.dialled_at)
        })
    };
    used.iter().copied().filter(is_needless).map(|dial| dial.index).collect()
}

fn keep(case: &Case<'_>) -> Fix {
    let policy = &case.cell().policy;
    let setting = if policy.reconnect_every.is_some() {
        "keep connections (remove --reconnect-every)"
    } else if policy.pool_size.is_some() {
        "keep connections (raise or remove --pool-size)"
    } else {
        "keep connections, and share one client object between callers"
    };
    let why = "one connection carries many requests at a time; each dial costs its round trips and CPU";
    Fix::new("client", setting, why)
}

/// The client limits itself to one stream on each connection: requests wait for a free connection, as over HTTP/1.1.
fn one_at_a_time(case: &Case<'_>) -> Option<Finding> {
    let cell = case.cell();
    let allowed = case.connections().filter_map(streams_allowed).min()?;
    if cell.streams > 1 || allowed < 2 {
        return None;
    }
    // The wait for a dial has other causes.
    let waits = case.records().flat_map(|record| {
        record.samples.iter().map(|sample| {
            Duration::from_nanos(sample.stall_open_ns).saturating_sub(dials::waited(record, &sample))
        })
    });
    let waiting: Waiting = waits.collect();
    let finding = case.finding(&META, waiting.time, "waiting for a connection without a request on it");
    let seen = [
        ("streams that the client allows itself", f64::from(cell.streams), "streams"),
        ("streams that the server allows", f64::from(allowed), "streams"),
    ];
    case.is_worth(finding.cost_share).then(|| Finding {
        symptom: format!(
            "the client carries one request at a time on each of {}, and the server allows {}; {}",
            plural(cell.connections.into(), "connection"),
            if allowed == u32::MAX { "any number".to_owned() } else { count(allowed.into()) },
            waiting.words()
        ),
        evidence: [Evidence::list(seen), waiting.evidence("requests that waited")].concat(),
        fixes: vec![Fix::new(
            "client",
            "many streams on each connection (-m 100)",
            "requests no longer wait for one another",
        )],
        confirm: case.compare("-m 1,100") + ": with more streams no request waits for a connection",
        ..finding
    })
}
