//! Connections of HTTP/1.1 that one client does not keep for its next request.

use super::{LEAST_ENDS, LEAST_SINGLE, META, used};
use crate::diagnose::causes::views::dials;
use crate::diagnose::causes::views::waiting::Waiting;
use crate::diagnose::{Case, Evidence, Finding};
use h2lab_base::counts::{count, plural};
use h2lab_base::spans::most_at_once;
use h2lab_model::Fix;

/// Each request of HTTP/1.1 has a connection of its own, fewer were needed at a time, and the dials cost time. Only
/// where all connections belong to one client, and the server would have kept them.
pub(in crate::diagnose) fn unkept(case: &Case<'_>) -> Option<Finding> {
    let used = used(case);
    if used.len() < LEAST_SINGLE || used.iter().any(|one| one.requests > 1) {
        return None;
    }
    let record = case.records().next()?;
    let spans = record.samples.iter().filter_map(|sample| {
        let dialled_at = record.connection(sample.connection)?.dialled_at;
        Some((dialled_at, sample.completed_at))
    });
    let needed = most_at_once(spans) as usize;
    let needless = used.len().saturating_sub(needed);
    if needless < LEAST_ENDS || needless * 2 < used.len() {
        return None;
    }
    let waiting: Waiting = record.samples.iter().map(|sample| dials::waited(record, &sample)).collect();
    let cost = waiting.time.mul_f64(needless as f64 / used.len() as f64);
    let seen = [
        ("connections that carried a single request", used.len() as f64, "connections"),
        ("connections in use at a time, at most", needed as f64, "connections"),
    ];
    case.is_worth_time(cost).then(|| Finding {
        symptom: format!(
            "each of {} of HTTP/1.1 had a connection of its own, although {} at a time would have sufficed; {} for theirs",
            plural(used.len() as u64, "request"),
            count(needed as u64),
            waiting.words()
        ),
        evidence: [Evidence::list(seen), waiting.evidence("requests that waited for theirs")].concat(),
        fixes: vec![Fix::new(
            "client",
            "keep connections: one client object or session for all requests, and no `connection: close`",
            "a connection of HTTP/1.1 carries one request after another; each dial costs its round trips and CPU",
        )],
        confirm: case.compare("-c 1") + ": on connections that are kept no request waits for a dial",
        ..case.finding(&META, cost, "waiting for connections, where one could have been kept")
    })
}
