//! The limit of streams as the packets of one client show it: what waits in an unknown program is in none of them.

use super::{LEAST_RECOMMENDED, LEAST_REQUESTS, META, fixes};
use crate::diagnose::causes::views::streams_allowed;
use crate::diagnose::{Case, Confidence, Evidence, Finding};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, millis_f64};
use h2lab_model::record::CellRecord;
use h2lab_wire::ErrorCode;

/// A client that sends one request after another never has two in flight, so that a limit of one is not seen to hold it
/// back.
const LEAST_STREAMS: u32 = 2;
/// One stream that was refused may be chance.
const LEAST_REFUSED: u32 = 2;
/// The limit must be reached for at least this part of the time from the first request to the last answer.
const MOSTLY: f64 = 0.5;

/// The finding about a client whose only connection has as many streams open as the server allows, most of the time, and
/// which opens the next one when one of them ends. A client that wants no more than that looks the same unless streams of
/// it were refused: the cause is inferred, and a run with a higher limit shows which it is. A client that opens another
/// connection instead does not wait.
pub(in crate::diagnose) fn held_at_limit(case: &Case<'_>) -> Option<Finding> {
    if case.cell().connections > 1 {
        return None;
    }
    let used = case.connections().filter(|connection| connection.requests > 0);
    let limit = used.filter_map(streams_allowed).min()?;
    if !(LEAST_STREAMS..LEAST_RECOMMENDED).contains(&limit) {
        return None;
    }
    let mut held = Held::default();
    for record in case.records() {
        held.add(record, limit);
    }
    let share = held.full / held.all.max(f64::MIN_POSITIVE);
    (held.refills >= LEAST_REQUESTS && share >= MOSTLY).then(|| Finding {
        symptom: format!(
            "the client had as many requests in flight as the server allows on a connection, {}, for {:.0} % of the time, and sent {} \
             only when one of these had ended",
            count(limit.into()),
            share * 100.0,
            plural(held.followed, "request")
        ),
        evidence: Evidence::list([
            ("streams that the server allows on a connection", limit.into(), "streams"),
            ("requests that took the places of those that had ended", held.followed as f64, "requests"),
            ("time in which all streams were taken", held.full, "ms"),
            ("time from the first request to the last answer", held.all, "ms"),
        ]),
        cost: cost(refused(case)),
        confidence: Confidence::Inferred,
        fixes: fixes(case, limit),
        confirm: "allow more streams: the run must take less time".to_owned(),
        ..case.finding_of_share(&META, share)
    })
}

/// The same finding in a capture, where little is known of the client: streams that the server refused show that it
/// wanted more than the limit.
pub(super) fn refused_at_limit(case: &Case<'_>) -> Option<Finding> {
    // Our own client shows how long its requests waited.
    let is_foreign = case.records().all(|record| record.generator.wall_ns == 0);
    (is_foreign && refused(case) >= LEAST_REFUSED).then(|| held_at_limit(case)).flatten()
}

/// Streams that the server refused.
fn refused(case: &Case<'_>) -> u32 {
    let is_refusal = |(code, _): &&(u32, u32)| ErrorCode(*code) == ErrorCode::REFUSED_STREAM;
    let resets = case.connections().flat_map(|connection| &connection.resets_received);
    resets.filter(is_refusal).map(|(_, count)| *count).sum()
}

/// What is known of the cost, if so many streams were refused.
fn cost(refused: u32) -> String {
    let streams = plural(refused.into(), "stream");
    let wanted = if refused >= LEAST_REFUSED {
        format!("{streams} that the server refused show that it wanted more at a time")
    } else {
        "a client that never wants more at a time looks the same, and a higher limit does not help it".into()
    };
    format!("how many requests waited in the client, and for how long, no packet shows: {wanted}")
}

/// How long the limit was reached. Times are milliseconds.
#[derive(Debug, Default)]
struct Held {
    full: f64,
    all: f64,
    /// How often all streams were taken again after requests had ended.
    refills: u64,
    /// Requests that took the places of those that ended, until all were taken again: several, if several had ended.
    followed: u64,
}

impl Held {
    fn add(&mut self, record: &CellRecord, limit: u32) {
        // At equal times, ends come first.
        let mut events: Vec<(Time, bool)> = Vec::with_capacity(2 * record.samples.len());
        for sample in record.samples.iter().filter(|sample| sample.sent_at.happened()) {
            events.extend([(sample.sent_at, true), (sample.completed_at, false)]);
        }
        events.retain(|(at, _)| at.happened());
        events.sort_unstable();
        let (mut open, mut last) = (0_u32, events.first().map(|(at, _)| *at));
        // Requests that were sent since all streams were taken; `None` until they are for the first time.
        let mut since_full: Option<u64> = None;
        for (at, is_sent) in events {
            let passed = last.replace(at).map_or(0.0, |last| millis_f64(at.since(last)));
            self.all += passed;
            self.full += if open >= limit { passed } else { 0.0 };
            open = if is_sent { open + 1 } else { open.saturating_sub(1) };
            if !is_sent {
                continue;
            }
            let sent = since_full.map(|sent| sent + 1);
            if open == limit {
                self.refills += u64::from(sent.is_some());
                self.followed += sent.unwrap_or_default();
            }
            since_full = if open >= limit { Some(0) } else { sent };
        }
    }
}
