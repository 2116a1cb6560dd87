//! What rules get of a cell: a [`Case`].

use std::cell::OnceCell;
use std::time::Duration;

use super::causes::views::missing::{self, Blocked};
use super::causes::views::windows::{self, Stop};
use super::{CauseMeta, Finding, facts, hop};
use crate::stats::CellVerdict;
use h2lab_base::units::measured_time;
use h2lab_model::record::{CellRecord, ConnectionRecord, Sample};
use h2lab_model::scenario::{Cell, Target};
use h2lab_model::settings::{Peer, Version};
use h2lab_wire::trace::Facts;

/// A repetition, as a rule sees it.
#[derive(Debug)]
pub struct Repetition<'a> {
    /// Its record.
    pub record: &'a CellRecord,
    facts: OnceCell<Facts>,
    hop: OnceCell<Option<Facts>>,
    stops: OnceCell<Vec<Stop>>,
    blocked: OnceCell<Vec<Blocked>>,
}

impl<'a> Repetition<'a> {
    /// A repetition with this record.
    pub const fn new(record: &'a CellRecord) -> Self {
        Self {
            record,
            facts: OnceCell::new(),
            hop: OnceCell::new(),
            stops: OnceCell::new(),
            blocked: OnceCell::new(),
        }
    }

    /// Its facts, computed when a rule first asks.
    pub fn facts(&self) -> &Facts {
        self.facts.get_or_init(|| facts::of(self.record))
    }

    /// The facts of the hop that crosses the link: those of the sidecar's connection where there is a sidecar, if they are known.
    pub fn hop(&self) -> &Facts {
        self.hop.get_or_init(|| hop::of(self.record)).as_ref().unwrap_or_else(|| self.facts())
    }

    /// When streams of the connection that crosses the link waited together for missing segments.
    pub(super) fn blocked(&self) -> &[Blocked] {
        self.blocked.get_or_init(|| missing::blocked(self.record, self.hop()))
    }

    /// When data waited for flow-control credit.
    pub(super) fn stops(&self) -> &[Stop] {
        self.stops.get_or_init(|| windows::stops(self.record, self.facts().rtt))
    }
}

/// A cell with all its repetitions, and the cell that it is compared with.
#[derive(Debug)]
pub struct Case<'a> {
    /// The label of the cell in its group.
    pub label: &'a str,
    /// At least one, of one cell.
    pub repetitions: Vec<Repetition<'a>>,
    /// What it is compared with; `None` where nothing was measured for that.
    pub against: Option<Against<'a>>,
    /// Whether the `server` field is the same as at an earlier URL: a proxy in between passes the field on, and names
    /// itself nowhere.
    pub is_field_passed_on: bool,
    response_time: OnceCell<Duration>,
}

/// The cell that another one is compared with: usually the same work over HTTP/1.1.
#[derive(Debug)]
pub struct Against<'a> {
    /// Its label.
    pub label: &'a str,
    /// Its repetitions, at least one.
    pub repetitions: Vec<&'a CellRecord>,
    /// The verdict on the other one.
    pub verdict: &'a CellVerdict,
}

impl Against<'_> {
    /// Whether the response times of both are known, so that the gap is meaningful.
    pub fn has_times(&self, case: &Case<'_>) -> bool {
        case.samples().next().is_some() && self.repetitions.iter().any(|record| !record.samples.is_empty())
    }

    /// How much longer the requests of the case took: the area by which its quantile function lies above this cell's. A
    /// request of the case is paired with the request of this cell at the same quantile.
    pub fn gap(&self, case: &Case<'_>) -> Duration {
        let [cell, other] = [times(case.records()), times(self.repetitions.iter().copied())];
        if other.is_empty() {
            return Duration::ZERO;
        }
        let of_other = |n: usize| other[(2 * n + 1) * other.len() / (2 * cell.len())];
        cell.iter().enumerate().map(|(n, time)| time.saturating_sub(of_other(n))).sum()
    }
}

impl<'a> Case<'a> {
    /// A case of these repetitions of one cell, at least one.
    pub fn new(label: &'a str, records: Vec<&'a CellRecord>, against: Option<Against<'a>>) -> Self {
        let repetitions = records.into_iter().map(Repetition::new).collect();
        Self { label, repetitions, against, is_field_passed_on: false, response_time: OnceCell::new() }
    }

    /// The same beside all other cells of the run.
    #[must_use]
    pub fn beside<'b>(mut self, others: impl Iterator<Item = &'b CellRecord>) -> Self {
        let Target::Url { url } = &self.cell().target else { return self };
        let Some(own) = self.server_field() else { return self };
        // The server itself is measured first: `compare DIRECT PROXY`, `diagnose DIRECT --via PROXY`.
        let mut before = others.filter(|other| other.cell.index < self.cell().index);
        self.is_field_passed_on = before.any(|other| {
            let is_elsewhere = matches!(&other.cell.target, Target::Url { url: other } if other != url);
            is_elsewhere && server_field(other) == Some(own)
        });
        self
    }

    fn server_field(&self) -> Option<&'a str> {
        self.records().find_map(server_field)
    }

    /// The cell.
    pub fn cell(&self) -> &'a Cell {
        &self.repetitions[0].record.cell
    }

    /// Its records.
    pub fn records(&self) -> impl Iterator<Item = &'a CellRecord> {
        self.repetitions.iter().map(|repetition| repetition.record)
    }

    /// Its connections, of all repetitions.
    pub fn connections(&self) -> impl Iterator<Item = &'a ConnectionRecord> {
        self.records().flat_map(|record| &record.connections)
    }

    /// Its requests, of all repetitions.
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        self.records().flat_map(|record| record.samples.iter())
    }

    /// All of their response times together.
    pub fn response_time(&self) -> Duration {
        *self.response_time.get_or_init(|| self.samples().map(|sample| sample.response_time()).sum())
    }

    /// Whether this share of the response time, or of the work, is worth a finding: 5 %, or 2 % where the cell is known to be slower
    /// than what it is compared with.
    pub fn is_worth(&self, share: f64) -> bool {
        let is_slower = self.against.as_ref().is_some_and(|against| against.verdict.is_slower());
        share >= if is_slower { 0.02 } else { 0.05 }
    }

    /// The same for a part of the response time.
    pub fn is_worth_time(&self, cost: Duration) -> bool {
        !cost.is_zero() && self.is_worth(cost.as_secs_f64() / self.response_time().as_secs_f64())
    }

    /// The program that answers the client's connections: the one that we started, or whatever the `server` field
    /// names; unknown where the field may come from a server behind it.
    pub fn peer(&self) -> Peer {
        let field = self.server_field().filter(|_| !self.is_field_passed_on);
        let peer = Peer::seen(started(self.cell()), field);
        // Few proxies state their version in a response; we queried the version of those that we started.
        let server = self.records().find_map(|record| record.server.as_ref());
        let ours = server.filter(|server| started(self.cell()) == Some(server.name.as_str()));
        Peer { version: peer.version.or_else(|| Version::parse(&ours?.version)), ..peer }
    }

    /// A finding of this cell that explains `cost` of its response time, spent `how` ("behind a missing segment").
    pub fn finding(&self, meta: &CauseMeta, cost: Duration, how: &str) -> Finding {
        let all = self.response_time();
        let finding =
            self.finding_of_share(meta, cost.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE));
        Finding {
            cost: format!(
                "{} of all {} of response time ({:.1} %) were spent {how}",
                measured_time(cost),
                measured_time(all),
                finding.cost_share * 100.0
            ),
            ..finding
        }
    }

    /// Like [`finding`](Self::finding), for a share of the response time, or of the work where requests were not
    /// served.
    pub fn finding_of_share(&self, meta: &CauseMeta, share: f64) -> Finding {
        Finding {
            rule: meta.id.to_owned(),
            name: meta.name.to_owned(),
            cell: self.cell().index,
            label: self.label.to_owned(),
            cost_share: share.clamp(0.0, 1.0),
            ..Finding::default()
        }
    }

    /// The command that measures the same cell, and beside it the cell with other flags.
    pub fn compare(&self, flags: &str) -> String {
        let cell = self.cell();
        let target = match &cell.target {
            Target::Origin => String::new(),
            Target::Sut { name } => format!(" --origin {name}"),
            Target::Url { url } => format!(" {url}"),
        };
        let sidecars = cell.sidecar.as_ref().map_or(String::new(), |sidecar| {
            format!(" --topology {} --sidecar {}", cell.topology().name(), sidecar.name)
        });
        let other = if cell.protocol.is_multiplexed() { "h1," } else { "" };
        format!("h2lab compare{target}{sidecars} --proto {other}{} {flags}", cell.protocol)
    }
}

/// What ends the client's connections, if we started it: its sidecar, else the server.
pub(super) fn started(cell: &Cell) -> Option<&str> {
    if let Some(sidecar) = &cell.sidecar {
        return Some(&sidecar.name);
    }
    match &cell.target {
        Target::Sut { name } => Some(name),
        Target::Origin | Target::Url { .. } => None,
    }
}

/// What the `server` field of its responses says.
fn server_field(record: &CellRecord) -> Option<&str> {
    record.connections.iter().find_map(|connection| connection.server_software.as_deref())
}

/// All response times, the shortest first.
fn times<'a>(records: impl Iterator<Item = &'a CellRecord>) -> Vec<Duration> {
    let mut times: Vec<Duration> =
        records.flat_map(|record| record.samples.iter()).map(|sample| sample.response_time()).collect();
    times.sort_unstable();
    times
}
