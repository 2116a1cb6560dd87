//! Requests that failed in one way: how many, which, and whether they are enough for a finding.

use std::collections::BTreeSet;

use super::ends::Ends;
use crate::diagnose::{Case, Evidence, Repetition};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::Time;
use h2lab_model::record::{Outcome, Sample};
use h2lab_wire::ErrorCode;

/// A single request may have failed for another reason.
const LEAST: usize = 2;
/// A smaller share of all requests is within the failures of any network.
const LEAST_SHARE: f64 = 0.001;
/// So many paths of a mix are named.
const MOST_PATHS: usize = 3;

/// Requests of a cell that failed in one way.
#[derive(Debug)]
pub(in crate::diagnose::causes) struct Failed {
    /// How many.
    n: usize,
    /// All requests of the cell.
    all: usize,
    /// The entries of the work's mix that they are.
    kinds: BTreeSet<u16>,
    /// The connection of the first, and when it ended.
    first: (u32, Time),
}

impl Failed {
    /// These requests; `None` if they are too few for a finding.
    pub fn of(case: &Case<'_>, failed: impl Iterator<Item = Sample>) -> Option<Self> {
        let mut failed = failed.peekable();
        let first = failed.peek().map(|sample| (sample.connection, sample.completed_at))?;
        let (mut n, mut kinds) = (0, BTreeSet::new());
        for sample in failed {
            n += 1;
            kinds.insert(sample.kind);
        }
        let found = Self { n, all: case.samples().count(), kinds, first };
        (n >= LEAST && found.share() >= LEAST_SHARE).then_some(found)
    }

    /// Their share of all requests.
    pub fn share(&self) -> f64 {
        self.n as f64 / self.all.max(1) as f64
    }

    /// `2 of 10 requests`.
    pub fn of_all(&self) -> String {
        format!("{} of {}", count(self.n as u64), plural(self.all as u64, "request"))
    }

    /// Their number, and where the first is.
    pub fn evidence(&self, what: &str) -> Evidence {
        let (connection, at) = self.first;
        Evidence::new(what, self.n as f64, "requests").seen(connection, at)
    }

    /// ` for /login, /files`, or nothing where all requests have one path.
    pub fn paths(&self, case: &Case<'_>) -> String {
        let work = &case.cell().work;
        let path = |kind: &u16| work.mix.get(usize::from(*kind)).map(|entry| work.url_as_shown(&entry.path));
        let named: Vec<_> = self.kinds.iter().filter_map(path).take(MOST_PATHS).collect();
        let more = if self.kinds.len() > named.len() { " and others" } else { "" };
        if named.is_empty() { String::new() } else { format!(" for {}{more}", named.join(", ")) }
    }
}

/// Requests that the server ended with this code of HTTP/2: it reset their stream, or ended their connection.
pub(in crate::diagnose::causes) fn ended_by_server(
    repetition: &Repetition<'_>,
    code: ErrorCode,
) -> impl Iterator<Item = Sample> {
    let ends = Ends::by_goaway(repetition, code.0);
    repetition.record.samples.iter().filter(move |sample| {
        let is_reset = sample.outcome == Outcome::Reset && sample.code == code.0;
        is_reset || ends.lost(sample)
    })
}
