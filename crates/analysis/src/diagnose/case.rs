//! What rules get of a cell: a [`Case`].

use std::cell::OnceCell;
use std::time::Duration;

use super::causes::views::missing::{self, Blocked};
use super::causes::views::windows::{self, Stop};
use super::waits::{Split, Waits};
use super::{CauseMeta, Finding, facts, hop};
use crate::stats::{CellState, CellSummary, CellVerdict, Conclusion, lower_rate};
use h2lab_base::units::measured_time;
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, ConnectionRecord, Sample};
use h2lab_model::scenario::{Cell, Target};
use h2lab_model::settings::{Knob, Peer, Role, Version, Wish, advise};
use h2lab_wire::trace::Facts;

/// A repetition, as a rule sees it.
#[derive(Debug)]
pub struct Repetition<'a> {
    /// Its record.
    pub record: &'a CellRecord,
    /// What its slow requests waited for, where that was asked (`--causes`).
    pub waits: Option<&'a Waits>,
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
            waits: None,
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

/// A rate that is lost against another cell: requests per second, of bulk work bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LostRate {
    /// What is left of the other cell's rate, 0 to 1.
    kept: f64,
}

impl LostRate {
    /// A cell that keeps more of a rate has lost nothing: one that carries its load may serve as little.
    const KEPT: f64 = 0.98;

    /// `own` of the rate `other`; `None` if nothing is lost.
    fn new(other: f64, own: f64) -> Option<Self> {
        (own < other * Self::KEPT).then(|| Self { kept: own.max(0.0) / other })
    }

    /// Which part of it causes explain that took this share of the time of requests in flight, 0 to 1. By Little's law
    /// as many requests in flight, each for that much less time, are a rate that is that much higher; the other cell's
    /// rate is the most that is explained.
    pub(super) fn explained(self, share: f64) -> f64 {
        // Where nothing is left, any rate is infinitely higher: the time is all that is known.
        let without = if self.kept > 0.0 { self.kept / (1.0 - share.min(1.0)) } else { share };
        (without.min(1.0) - self.kept) / (1.0 - self.kept)
    }
}

impl Against<'_> {
    /// The rate that the case loses against this cell, if that is what they differ in: in bulk work, and where the case
    /// does not carry its load. A cell whose response times only grow serves what it is offered, and of one whose requests
    /// fail, no time that it could save is the reason.
    pub(super) fn lost_rate(&self, case: &Case<'_>) -> Option<LostRate> {
        let [other, own] = match self.verdict.conclusion {
            Conclusion::Slower => self.verdict.bytes.map(|of| [of.baseline_rps, of.cell_rps])?,
            Conclusion::Unstable { .. } | Conclusion::BothUnstable if case.is_failing() => return None,
            // The other cell carries the same load.
            Conclusion::Unstable { offered_rps, served_rps } => [offered_rps, served_rps],
            Conclusion::BothUnstable => {
                let own: Vec<&CellRecord> = case.records().collect();
                let of = lower_rate(&self.repetitions, &own, 1)?;
                [of.baseline_rps, of.cell_rps]
            }
            _ => return None,
        };
        LostRate::new(other, own)
    }

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

    /// The same with what slow requests waited for, by repetition.
    #[must_use]
    pub fn explained(mut self, waits: impl Fn(u32) -> Option<&'a Waits>) -> Self {
        for repetition in &mut self.repetitions {
            repetition.waits = waits(repetition.record.cell.repetition);
        }
        self
    }

    /// What its slow requests waited for, of all repetitions of which that is known; `None` if it is of none.
    pub fn waits(&self) -> Option<Split> {
        let known: Vec<&Waits> = self.repetitions.iter().filter_map(|repetition| repetition.waits).collect();
        let mut split = Split::default();
        for waits in &known {
            split.merge(&waits.split);
        }
        (!known.is_empty()).then_some(split)
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

    /// The time for which its requests were in flight, all together: each from when it was sent.
    pub(super) fn time_in_flight(&self) -> Duration {
        self.samples().filter(|sample| sample.sent_at.happened()).map(|sample| sample.service_time()).sum()
    }

    /// Whether it does not carry its load since requests fail.
    fn is_failing(&self) -> bool {
        let records: Vec<&CellRecord> = self.records().collect();
        matches!(CellSummary::of(&records).state, CellState::Unstable { why, .. } if why.is_of_failures())
    }

    /// Whether this share of the response time, or of the work, is worth a finding: 5 %, or 2 % where the cell is known to be slower
    /// than what it is compared with.
    pub fn is_worth(&self, share: f64) -> bool {
        share >= self.least_share()
    }

    /// The share from which on [`is_worth`](Self::is_worth) is true.
    pub fn least_share(&self) -> f64 {
        let is_slower = self.against.as_ref().is_some_and(|against| against.verdict.is_slower());
        if is_slower { 0.02 } else { 0.05 }
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

    /// The setting of that program, to at least `value`.
    pub(super) fn advise(&self, knob: Knob, value: Option<u64>) -> Fix {
        advise(&self.peer(), Wish { knob, role: Role::Front, value })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::verdict_on;
    use h2lab_model::record::Outcome;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::workload::Protocol;

    #[test]
    fn causes_explain_as_much_of_a_lost_rate_as_requests_without_them_would_regain() {
        let explained = |kept: f64, share: f64| LostRate::new(1.0, kept).map(|lost| lost.explained(share));
        let close = |one: Option<f64>, other: f64| one.is_some_and(|one| (one - other).abs() < 1e-9);
        assert!(close(explained(0.25, 0.0), 0.0));
        assert!(close(explained(0.25, 0.5), 1.0 / 3.0), "half of the rate, of which a quarter was kept");
        assert!(close(explained(0.25, 0.75), 1.0) && close(explained(0.25, 2.0), 1.0), "never more than all");
        assert!(close(explained(0.0, 0.4), 0.4), "nothing is served");
        assert!(explained(0.979, 0.1).is_some() && explained(0.98, 0.1).is_none());
    }

    /// A cell that serves one of `every` requests in time.
    fn overloaded(index: u32, round: u32, every: usize) -> CellRecord {
        let mut record = one_repetition(&cell(index, 0, Protocol::H2c, 4, 0.0), round, &Model::CLEAN);
        let cut = record.cell.work.phases.cut(record.started_at);
        for (n, sample) in record.samples.edit().iter_mut().enumerate() {
            if n % every > 0 {
                sample.completed_at = cut;
            }
        }
        record
    }

    #[test]
    fn of_two_cells_that_do_not_carry_the_load_one_may_lose_against_the_other() {
        let lost = |rounds: u32, every: usize| {
            let of = |index: u32, every: usize| -> Vec<CellRecord> {
                (0..rounds).map(|round| overloaded(index, round, every)).collect()
            };
            let (twin, own) = (of(0, 2), of(1, every));
            let [twin, own] = [&twin, &own].map(|records| records.iter().collect::<Vec<&CellRecord>>());
            let verdict = verdict_on(&CellSummary::of(&twin), &CellSummary::of(&own), 1);
            assert_eq!(verdict.conclusion, Conclusion::BothUnstable);
            let against = Against { label: "h1", repetitions: twin, verdict: &verdict };
            against.lost_rate(&Case::new("h2c × 4", own, None)).map(|lost| lost.kept)
        };
        assert!(lost(2, 4).is_some_and(|kept| (kept - 0.5).abs() < 0.02), "{:?}", lost(2, 4));
        assert_eq!(lost(2, 2), None);
        assert_eq!(lost(1, 4), None, "how far a rate varies is not known of one round");
    }

    #[test]
    fn a_rate_is_not_lost_by_time_where_requests_fail() {
        let twin = one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN);
        let lost = |own: &CellRecord| {
            let verdict = verdict_on(&CellSummary::of(&[&twin]), &CellSummary::of(&[own]), 1);
            assert!(matches!(verdict.conclusion, Conclusion::Unstable { .. }), "{verdict:?}");
            let against = Against { label: "h1", repetitions: vec![&twin], verdict: &verdict };
            against.lost_rate(&Case::new("h2c × 4", vec![own], None)).is_some()
        };
        assert!(lost(&overloaded(1, 0, 2)));
        let mut failing = one_repetition(&cell(1, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN);
        for sample in failing.samples.edit().iter_mut().step_by(2) {
            (sample.outcome, sample.status) = (Outcome::Status, 500);
        }
        assert!(!lost(&failing));
    }
}
