//! What the slow requests of a cell waited for, as scripts read it.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::round::rounded;
use crate::Report;
use crate::causes::Tail;
use h2lab_analysis::diagnose::of_wait;
use h2lab_analysis::diagnose::waits::{CauseKind, Doubt, Interval, LatencyBreakdown, Repair};
use h2lab_analysis::stats::CellSummary;
use h2lab_base::units::millis_f64;
use h2lab_wire::trace::Direction;

/// Latency breakdowns of a cell in the document: the slowest. The run folder has all.
const MAX_BREAKDOWNS: usize = 20;

/// What the slow requests of a cell, those above the 95th percentile of their repetition, waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CausesDocument {
    /// The 95th percentile of each repetition, in milliseconds.
    pub slower_than_ms: Vec<f64>,
    /// Slow requests, those above the p95 of their repetition, of all repetitions.
    pub requests: u64,
    /// The time of all of them, in milliseconds.
    pub time_ms: f64,
    /// That time by cause; causes that took nothing are left out.
    pub parts: Vec<PartDocument>,
    /// Why the causes of this cell are not known; null if they are. Then there are no parts, and nothing is counted as unknown.
    pub unsupported: Option<String>,
    /// The share of that time whose cause is unknown, 0 to 1.
    pub unknown_share: f64,
    /// How the waits for lost segments ended.
    pub repairs: Vec<RepairDocument>,
    /// Why less is known than could be.
    pub doubts: Vec<Doubt>,
    /// The slowest requests, 20 at most.
    pub slowest: Vec<LatencyBreakdownDocument>,
}

/// What one cause took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartDocument {
    /// The cause.
    pub cause: CauseKind,
    /// The id of the cause of the catalogue that it is evidence for (`h2lab explain`): `LOSS101`; absent if it is for none or
    /// several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<String>,
    /// Its share of the time of all slow requests, 0 to 1.
    pub share: f64,
    /// The time itself, in milliseconds.
    pub time_ms: f64,
    /// Requests of which it is the main cause.
    pub requests: u64,
}

/// Waits for lost segments that ended alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepairDocument {
    /// How the sender found out.
    pub repair: Repair,
    /// Their time, in milliseconds.
    pub time_ms: f64,
}

/// A slow request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyBreakdownDocument {
    /// The repetition, from 0.
    pub repetition: u32,
    /// Its row among the repetition's samples.
    pub sample: u32,
    /// What it waited, in milliseconds.
    pub response_ms: f64,
    /// What most of it was spent on.
    pub main_cause: CauseKind,
    /// The client's port of the TCP connection over the link; null if it was not found there.
    pub client_port: Option<u16>,
    /// Its stream there; null if the connection could not be read.
    pub stream: Option<u32>,
    /// Its time, in order and without gaps.
    pub intervals: Vec<IntervalDocument>,
}

/// A part of a request's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IntervalDocument {
    /// When it began, in milliseconds since the request was due.
    pub from_ms: f64,
    /// How long it took, in milliseconds.
    pub ms: f64,
    /// What it was spent on.
    pub cause: CauseKind,
    /// The same in words, with its circumstances.
    pub words: String,
    /// The packet whose loss it was spent on: direction and index in the packet log; null if there is none.
    pub drop: Option<DropDocument>,
}

/// A packet that the link dropped, by its name in the packet log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DropDocument {
    /// Which way it went: `up` or `down`.
    pub direction: Direction,
    /// Its index among all packets of its direction.
    pub index: u64,
}

/// What the slow requests of a cell waited for, if that was analysed.
pub(super) fn document(report: &Report<'_>, summary: &CellSummary) -> Option<CausesDocument> {
    let tail = Tail::of(report, summary.cell.index)?;
    let split = &tail.split;
    let part = |(kind, part): (&CauseKind, &h2lab_analysis::diagnose::waits::CauseShare)| PartDocument {
        cause: *kind,
        explain: of_wait(*kind).map(|cause| cause.id.to_owned()),
        share: rounded(split.share(*kind)),
        time_ms: rounded(part.time_ns as f64 / 1e6),
        requests: part.requests,
    };
    let repair = |(repair, time): (&Repair, &u64)| RepairDocument {
        repair: *repair,
        time_ms: rounded(*time as f64 / 1e6),
    };
    let bounds = tail.repetitions.iter().map(|measured| rounded(millis_f64(measured.waits.slower_than())));
    Some(CausesDocument {
        slower_than_ms: bounds.collect(),
        requests: split.requests,
        time_ms: rounded(split.total_ns as f64 / 1e6),
        parts: split.parts.iter().map(part).collect(),
        unsupported: tail.unsupported(),
        unknown_share: rounded(split.share(CauseKind::Unknown)),
        repairs: split.repairs_ns.iter().map(repair).collect(),
        doubts: tail.doubts(),
        slowest: tail.slowest().into_iter().take(MAX_BREAKDOWNS).map(breakdown).collect(),
    })
}

fn breakdown((repetition, breakdown): (u32, &LatencyBreakdown)) -> LatencyBreakdownDocument {
    let interval = |interval: &Interval| IntervalDocument {
        from_ms: rounded(millis_f64(interval.from.since(breakdown.scheduled_at))),
        ms: rounded(millis_f64(interval.length())),
        cause: interval.cause.kind(),
        words: interval.cause.to_string(),
        drop: interval.cause.drop().map(|drop| DropDocument { direction: drop.direction, index: drop.index }),
    };
    LatencyBreakdownDocument {
        repetition,
        sample: breakdown.sample,
        response_ms: rounded(millis_f64(breakdown.completed_at.since(breakdown.scheduled_at))),
        main_cause: breakdown.dominant,
        client_port: breakdown.place.map(|place| place.client_port),
        stream: breakdown.place.and_then(|place| place.stream),
        intervals: breakdown.intervals.iter().map(interval).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::document;
    use crate::testing::Fixture;

    #[test]
    fn a_cell_without_a_breakdown_says_why_and_has_no_unknown_time() {
        for (fixture, is_reported) in [(Fixture::explained(), true), (Fixture::unsupported(), false)] {
            let report = fixture.report();
            let summary = report.analysis.cells.iter().find(|summary| summary.cell.index == 5).unwrap();
            let causes = document(&report, summary).unwrap();
            assert_eq!((causes.unsupported.is_none(), !causes.parts.is_empty()), (is_reported, is_reported));
            assert_eq!(causes.unknown_share > 0.0, is_reported, "the fixture has some");
        }
    }
}
