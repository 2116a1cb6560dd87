//! What a load tells beyond a cell's summary: how each connection ended, what requests waited for, how response times are
//! spread.

use std::collections::BTreeMap;
use std::time::Duration;

use super::summary::{measured_samples, response_time};
use crate::record::{CellRecord, CloseReason, ConnectionRecord, Sample};

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

/// Time that requests waited for one thing, of those that waited at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waited {
    /// Requests that waited.
    pub requests: u64,
    /// The time of all of them.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
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
    /// Requests that were sent again at least once.
    pub replayed: u64,
    /// For a connection or a stream.
    pub waited_open: Waited,
    /// For a flow-control window.
    pub waited_window: Waited,
    /// For room in the socket.
    pub waited_socket: Waited,
    /// Response times of equal widths from the shortest to the longest, as hey has them.
    pub histogram: Vec<Bar>,
}

impl LoadFigures {
    /// The figures of these visits to one cell.
    pub fn of(visits: &[&CellRecord]) -> Self {
        let connections = || visits.iter().flat_map(|visit| &visit.connections);
        let used = || connections().map(|c| c.requests).filter(|&requests| requests > 0);
        let mut figures = Self {
            ends: ends(connections()),
            useless_dials: connections().filter(|c| c.ready_at.happened() && c.requests == 0).count() as u64,
            requests_per_connection: used().min().zip(used().max()),
            histogram: histogram(&measured_samples(visits).filter_map(response_time).collect::<Vec<_>>()),
            ..Self::default()
        };
        for sample in measured_samples(visits) {
            figures.add(sample);
        }
        figures
    }

    fn add(&mut self, sample: &Sample) {
        self.replayed += u64::from(sample.replays > 0);
        self.waited_open.add(sample.stall_open_ns);
        self.waited_window.add(sample.stall_window_ns);
        self.waited_socket.add(sample.stall_socket_ns);
    }
}

impl Waited {
    fn add(&mut self, nanos: u64) {
        let waited = Duration::from_nanos(nanos);
        self.requests += u64::from(nanos > 0);
        self.total += waited;
        self.longest = self.longest.max(waited);
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

/// Ten bars of equal width; fewer if all times are the same.
fn histogram(times: &[Duration]) -> Vec<Bar> {
    const BARS: u32 = 10;
    let (Some(&shortest), Some(&longest)) = (times.iter().min(), times.iter().max()) else {
        return Vec::new();
    };
    let width = (longest - shortest) / BARS;
    if width.is_zero() {
        return vec![Bar { up_to: longest, count: times.len() as u64 }];
    }
    let mut bars: Vec<Bar> = (1..=BARS).map(|k| Bar { up_to: shortest + width * k, count: 0 }).collect();
    bars[BARS as usize - 1].up_to = longest;
    for time in times {
        let bar = (*time - shortest).as_nanos().saturating_sub(1) / width.as_nanos();
        bars[(bar as usize).min(BARS as usize - 1)].count += 1;
    }
    bars
}
