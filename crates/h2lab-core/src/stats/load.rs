//! What a load tells beyond a cell's summary: how each connection ended, what requests waited for, how response times are
//! spread.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Latency, tallied};
use crate::record::{CellRecord, CloseReason, ConnectionRecord};

/// How connections ended, in one way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndCount {
    /// `open`, `goaway`, `server`, `broken`, `local` or `not-established`.
    pub kind: &'static str,
    /// The error, or whose it was; empty where the kind says it all.
    pub why: String,
    /// How many connections.
    pub count: u64,
}

/// A bar of the histogram of response times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    /// Response times up to this, and above the bar before.
    pub up_to: Duration,
    /// How many.
    pub count: u64,
}

/// What a load tells beyond [`CellSummary`](super::CellSummary).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadFigures {
    /// How connections ended, the most frequent first.
    pub ends: Vec<EndCount>,
    /// Connections that were established and carried no request.
    pub useless_dials: u64,
    /// The fewest and the most requests on one connection that carried any.
    pub requests_per_connection: Option<(u32, u32)>,
    /// How often requests were sent again.
    pub replayed: u64,
    /// Time that requests waited for a connection or a stream, added up.
    pub waited_open: Duration,
    /// For a flow-control window.
    pub waited_window: Duration,
    /// For room in the socket.
    pub waited_socket: Duration,
    /// Response times of equal widths from the shortest to the longest, as hey has them.
    pub histogram: Vec<Bar>,
}

impl LoadFigures {
    /// The figures of these visits to one cell, whose response times are `response`.
    pub fn of(visits: &[&CellRecord], response: &Latency) -> Self {
        let connections = || visits.iter().flat_map(|visit| &visit.connections);
        let used = || connections().map(|c| c.requests).filter(|&requests| requests > 0);
        let mut figures = Self {
            ends: ends(connections()),
            useless_dials: connections().filter(|c| c.ready_at.happened() && c.requests == 0).count() as u64,
            requests_per_connection: used().min().zip(used().max()),
            histogram: histogram(response),
            ..Self::default()
        };
        for tally in tallied::all(visits).iter().filter(|tally| tally.class.part.is_measured()) {
            let counts = &tally.counts;
            figures.replayed += counts.replays;
            figures.waited_open += Duration::from_nanos(counts.stall_open_ns);
            figures.waited_window += Duration::from_nanos(counts.stall_window_ns);
            figures.waited_socket += Duration::from_nanos(counts.stall_socket_ns);
        }
        figures
    }
}

fn ends<'a>(connections: impl Iterator<Item = &'a ConnectionRecord>) -> Vec<EndCount> {
    let mut counts: BTreeMap<(&'static str, &str), u64> = BTreeMap::new();
    for connection in connections {
        let end = match &connection.closed {
            CloseReason::Cell => ("open", ""),
            CloseReason::Server if connection.goaways.is_empty() => ("server", ""),
            CloseReason::Server => ("goaway", ""),
            CloseReason::Local { why } => ("local", why.as_str()),
            CloseReason::Broken { why } => ("broken", why.as_str()),
            CloseReason::NotEstablished { why } => ("not-established", why.as_str()),
        };
        *counts.entry(end).or_insert(0) += 1;
    }
    let mut ends: Vec<EndCount> = counts
        .into_iter()
        .map(|((kind, why), count)| EndCount { kind, why: why.to_owned(), count })
        .collect();
    ends.sort_by_key(|end| std::cmp::Reverse(end.count));
    ends
}

/// Ten bars of equal width; one if all times are the same.
fn histogram(response: &Latency) -> Vec<Bar> {
    const BARS: u32 = 10;
    let counted = response.histogram();
    let Some((shortest, longest)) = counted.extremes() else { return Vec::new() };
    let width = longest.saturating_sub(shortest) / BARS;
    if width.is_zero() {
        return vec![Bar { up_to: longest, count: counted.n() }];
    }
    let mut bars: Vec<Bar> = (1..=BARS).map(|k| Bar { up_to: shortest + width * k, count: 0 }).collect();
    bars[BARS as usize - 1].up_to = longest;
    for &(from_ns, count) in counted.buckets() {
        let above = Duration::from_nanos(from_ns).saturating_sub(shortest);
        let bar = above.as_nanos() / width.as_nanos();
        bars[(bar as usize).min(BARS as usize - 1)].count += count;
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::GoAwayRecord;
    use crate::record::testing::{Model, cell, visit};
    use crate::units::Time;
    use crate::workload::Protocol;

    fn figures(record: &CellRecord) -> LoadFigures {
        let response = crate::stats::CellSummary::of(&[record]).response;
        LoadFigures::of(&[record], &response)
    }

    #[test]
    fn every_request_is_in_one_bar_and_bars_are_equally_wide() {
        let bars = figures(&visit(&cell(0, 0, Protocol::H2c, 4, 0.03), 0, &Model::LOSSY_SHARED)).histogram;
        assert_eq!((bars.len(), bars.iter().map(|bar| bar.count).sum::<u64>()), (10, 3000));
        let widths: Vec<u128> =
            bars.windows(2).map(|pair| (pair[1].up_to - pair[0].up_to).as_micros()).collect();
        assert!(widths.iter().all(|width| width.abs_diff(widths[0]) <= 1), "{widths:?}");
        assert_eq!(histogram(&Latency::new([Duration::from_millis(3); 5])).len(), 1);
        assert_eq!(histogram(&Latency::default()), []);
    }

    #[test]
    fn connections_are_counted_by_how_they_ended() {
        let mut record = visit(&cell(0, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN);
        record.connections[0].closed = CloseReason::Server;
        let goaway = GoAwayRecord { at: Time::ZERO, code: 0, last_stream: 1999, debug: String::new() };
        record.connections[1].goaways.push(goaway);
        record.connections[1].closed = CloseReason::Server;
        record.connections[2].requests = 0;
        let figures = figures(&record);
        let ends: Vec<_> = figures.ends.iter().map(|end| (end.kind, end.count)).collect();
        assert_eq!(ends, [("open", 2), ("goaway", 1), ("server", 1)]);
        assert_eq!(figures.useless_dials, 1);
    }
}
