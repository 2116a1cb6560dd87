//! `--fail-if`: a condition on the figures of a run, such as `h2c.p99 > 1.2*h1.p99` or `errors > 0.1%`.
//!
//! A side is a number with its unit or a metric, and at least one is a metric. Times are in ms (`50ms`, or plain `50`);
//! `errors` is a share (`0.1%`, or plain `0.001`), `throughput` in requests per second. A metric may have a factor before
//! it and may name its cells, by label (`h2c × 4.p99`, also `h2cx4.p99`) or by protocol (`h2c.p99`: all of that protocol,
//! unless a cell has just this label); without a name it applies to every cell.
//!
//! A metric against a number is checked for each cell that it names. Two metrics are checked for each pair of different
//! cells of a group, or, if both name the same cells, for each cell separately: `h1.max > 10*h1.p50`. Cells of
//! different groups are not compared with each other. If both sides collapsed, neither can be compared with the other:
//! the condition counts as met.

mod against;
mod parse;
#[cfg(test)]
mod tests;

pub use against::{CellFigures, Checked};

use std::fmt;
use std::time::Duration;

use super::{Analysis, CellState, CellSummary};
use h2lab_base::units::{format_duration, measured_time, millis_f64};
use h2lab_model::scenario::{Cell, labels};

/// A figure of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    /// A quantile of the response time in ms, by its ten-thousandths: 9900 is p99.
    Quantile(u32),
    /// The longest response time, in ms.
    Max,
    /// The mean response time, in ms.
    Mean,
    /// Requests without a successful response, failed or unfinished at the cut, as a share of those sent.
    Errors,
    /// Successful responses per second.
    Throughput,
}

/// The names of the metrics.
const METRICS: [(&str, Metric); 10] = [
    ("p50", Metric::Quantile(5000)),
    ("p90", Metric::Quantile(9000)),
    ("p95", Metric::Quantile(9500)),
    ("p99", Metric::Quantile(9900)),
    ("p999", Metric::Quantile(9990)),
    ("p9999", Metric::Quantile(9999)),
    ("max", Metric::Max),
    ("mean", Metric::Mean),
    ("errors", Metric::Errors),
    ("throughput", Metric::Throughput),
];

/// Other spellings of some of them.
const SPELLINGS: [(&str, Metric); 2] =
    [("p99.9", Metric::Quantile(9990)), ("p99.99", Metric::Quantile(9999))];

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Milliseconds.
    Time,
    /// 0 to 1.
    Share,
    /// Requests per second.
    PerSecond,
}

impl Unit {
    /// As in error messages.
    const fn name(self) -> &'static str {
        match self {
            Self::Time => "a time (such as 50ms)",
            Self::Share => "a share from 0 % to 100 % (such as 0.1%)",
            Self::PerSecond => "a number of requests per second (such as 950)",
        }
    }

    /// A bound, as it is typed.
    fn print_bound(self, value: f64) -> String {
        self.print_with(value, format_duration)
    }

    /// A figure for users.
    fn print(self, value: f64) -> String {
        self.print_with(value, measured_time)
    }

    fn print_with(self, value: f64, time: fn(Duration) -> String) -> String {
        match self {
            // A factor may make it larger than a duration can be.
            Self::Time => {
                Duration::try_from_secs_f64(value / 1e3).map_or_else(|_| format!("{value:e} ms"), time)
            }
            Self::Share => format!("{:.3} %", value * 100.0),
            Self::PerSecond => format!("{value:.1}/s"),
        }
    }
}

impl Metric {
    const fn unit(self) -> Unit {
        match self {
            Self::Quantile(_) | Self::Max | Self::Mean => Unit::Time,
            Self::Errors => Unit::Share,
            Self::Throughput => Unit::PerSecond,
        }
    }

    fn name(self) -> &'static str {
        METRICS.iter().find(|(_, metric)| *metric == self).map_or("", |(name, _)| name)
    }

    /// The figure. A cell that does not carry its load or has no answer has no meaningful response times: they are
    /// infinite, so that a server that does not answer meets no upper bound. A cell that sent nothing has only errors.
    fn of(self, cell: &CellSummary) -> f64 {
        match self {
            Self::Quantile(_) | Self::Max | Self::Mean if without_latency(cell).is_some() => f64::INFINITY,
            Self::Quantile(share) => millis_f64(cell.response.quantile(f64::from(share) / 1e4)),
            Self::Max => millis_f64(cell.response.quantile(1.0)),
            Self::Mean => millis_f64(cell.response.mean()),
            Self::Errors if cell.requests.sent == 0 => 1.0,
            Self::Errors => {
                (cell.requests.failed + cell.requests.unfinished) as f64 / cell.requests.sent as f64
            }
            Self::Throughput => cell.served_rps,
        }
    }
}

/// Why a cell has no meaningful response times.
fn without_latency(cell: &CellSummary) -> Option<&'static str> {
    match cell.state {
        _ if cell.requests.sent == 0 => Some("was not measured"),
        CellState::Unstable { .. } => Some("does not carry the load"),
        _ if cell.requests.succeeded == 0 => Some("has no successful response"),
        _ => None,
    }
}

/// A metric of some cells, times a factor.
#[derive(Debug, Clone, PartialEq)]
struct MetricFigure {
    factor: f64,
    /// The cells with this label or protocol, as given; `None` for every cell.
    cells: Option<String>,
    metric: Metric,
    /// The metric's name, as given.
    name: &'static str,
}

/// Whether a cell has no figure that could be compared.
fn has_collapsed(cell: &CellSummary, metric: Metric) -> bool {
    match metric.unit() {
        Unit::Time => without_latency(cell).is_some(),
        Unit::Share | Unit::PerSecond => cell.requests.succeeded == 0,
    }
}

impl MetricFigure {
    fn of(&self, cell: &CellSummary) -> f64 {
        self.factor * self.metric.of(cell)
    }

    /// The cells of a group that it applies to.
    fn named<'a>(&self, group: &[&'a CellSummary]) -> Vec<&'a CellSummary> {
        let Some(name) = &self.cells else { return group.to_vec() };
        let fits = |cell: &&&CellSummary| name_fits(name, &cell.label, &cell.cell);
        let best = group.iter().filter_map(|cell| fits(&cell)).max();
        group.iter().filter(|cell| best.is_some() && fits(cell) == best).copied().collect()
    }

    /// `h2c × 4 has p99 61.2 ms`, with the factor's product if there is one.
    fn describe(&self, cell: &CellSummary) -> String {
        let value = self.metric.of(cell);
        if value.is_infinite() || cell.requests.sent == 0 {
            return format!("{} {}", cell.label, without_latency(cell).unwrap_or("has no figure"));
        }
        format!("{} has {} {}", cell.label, self.name, self.print_value(value))
    }

    /// `61.2 ms`, with the factor's product if there is one.
    fn print_value(&self, value: f64) -> String {
        let unit = self.metric.unit();
        if (self.factor - 1.0).abs() < f64::EPSILON {
            return unit.print(value);
        }
        format!("{}, times {} is {}", unit.print(value), self.factor, unit.print(self.factor * value))
    }
}

/// How well a name fits a cell: a label takes precedence over a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Protocol,
    Label,
}

/// Whether `name` fits a cell. Spaces are ignored, and `x` stands for `×`, which few keyboards have.
fn name_fits(name: &str, label: &str, cell: &Cell) -> Option<Fit> {
    fits(name, label, cell.protocol.name())
}

/// The same with the protocol's name.
fn fits(name: &str, label: &str, protocol: &str) -> Option<Fit> {
    let plain = |text: &str| -> String {
        text.chars().filter(|c| !c.is_whitespace()).map(|c| if c == '×' { 'x' } else { c }).collect()
    };
    match plain(name) {
        name if name == plain(label) => Some(Fit::Label),
        name if name == protocol => Some(Fit::Protocol),
        _ => None,
    }
}

/// The relation of the sides for which the run fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl Relation {
    /// The spellings, the longer ones first.
    const ALL: [(&'static str, Self); 4] =
        [(">=", Self::GreaterOrEqual), ("<=", Self::LessOrEqual), (">", Self::Greater), ("<", Self::Less)];

    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
        }
    }

    /// The same relation with the sides exchanged.
    const fn turned(self) -> Self {
        match self {
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
        }
    }
}

/// The bound of a figure.
#[derive(Debug, Clone, PartialEq)]
enum Bound {
    /// A number in the figure's unit.
    Number(f64),
    /// Another figure of the same unit.
    MetricFigure(MetricFigure),
}

/// A condition under which a run fails. `50ms < h2c.p99` is kept as `h2c.p99 > 50ms`.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// The text of the condition.
    text: String,
    /// The assumed unit of a number without one, as text.
    assumed: Option<String>,
    figure: MetricFigure,
    relation: Relation,
    bound: Bound,
}

/// Why a condition cannot be read or applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// It does not have the required form.
    #[error("`{0}` is not a condition (such as h2c.p99 > 1.2*h1.p99, or errors > 0.1%)")]
    Syntax(String),
    /// It has the form, but a name that is not a metric.
    #[error(
        "`{condition}`: there is no metric `{name}`; write METRIC > BOUND or CELL.METRIC > BOUND (h2c.p99 > 50ms) with one of {} \
         (p99.9 is p999, p99.99 is p9999)",
        METRICS.map(|(name, _)| name).join(", ")
    )]
    NoSuchMetric {
        /// The condition.
        condition: String,
        /// The name that is not a metric.
        name: String,
    },
    /// Its sides cannot be compared.
    #[error("`{condition}`: `{metric}` can only be compared with {expected}")]
    Unit {
        /// The condition.
        condition: String,
        /// The metric.
        metric: &'static str,
        /// What would be valid.
        expected: &'static str,
    },
    /// Its sides are the same figure of the same cells.
    #[error(
        "`{condition}` compares `{metric}` with itself: name other cells (h1.{metric}), or with `h2lab diff` the first run (base.{metric})"
    )]
    SameFigure {
        /// The condition.
        condition: String,
        /// The metric.
        metric: &'static str,
    },
    /// It compares cells of one run, but two runs are compared.
    #[error(
        "`{0}` compares cells of one run: compare a figure with `base.p99`, the same cell of the first run, or with a number"
    )]
    NoBase(String),
    /// It uses a figure that the document of `--json` does not have.
    #[error("`{condition}`: a file of --json has no `{metric}`: give the run folders")]
    NoFigure {
        /// The condition.
        condition: String,
        /// The metric.
        metric: &'static str,
    },
    /// It names cells that the run does not have.
    #[error("`{condition}` names `{name}`, but this run has no such cell; it has {known}")]
    NoSuchCell {
        /// The condition.
        condition: String,
        /// The name that fits no cell.
        name: String,
        /// The existing names.
        known: String,
    },
}

/// The result of a condition for a cell, or for two cells that it compares.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// Whether it is true of them.
    pub is_true: bool,
    /// The group of the cells.
    pub group: u32,
    /// The condition, as given.
    pub condition: String,
    /// What was measured: `h1 has errors 1.200 %`.
    pub measured: String,
}

impl fmt::Display for Judged {
    /// The condition and what was measured. `report::judged` also names the group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.condition, self.measured)
    }
}

impl Threshold {
    /// The names of cells that it uses, as given: labels or protocols.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let other = match &self.bound {
            Bound::MetricFigure(figure) => figure.cells.as_deref(),
            Bound::Number(_) => None,
        };
        [self.figure.cells.as_deref(), other].into_iter().flatten()
    }

    /// The unit assumed for a bare number, in a sentence: `p99 > 1` is p99 > 1ms.
    pub fn assumed_unit(&self) -> Option<String> {
        self.assumed.as_ref().map(|bound| format!("in `{}` the bound is {bound}", self.text))
    }

    /// Refuses a condition that names cells which a plan does not have: call it before measuring.
    pub fn check_names(&self, plan: &[Cell]) -> Result<(), ThresholdError> {
        let labels = labels(plan);
        self.refuse_unknown(&plan.iter().map(|cell| (labels[&cell.index].as_str(), cell)))
    }

    fn refuse_unknown<'a>(
        &self,
        cells: &(impl Iterator<Item = (&'a str, &'a Cell)> + Clone),
    ) -> Result<(), ThresholdError> {
        let is_unknown =
            |name: &&str| !cells.clone().any(|(label, cell)| name_fits(name, label, cell).is_some());
        let Some(name) = self.names().find(is_unknown) else { return Ok(()) };
        let known: std::collections::BTreeSet<String> =
            cells.clone().flat_map(|(label, cell)| [label.to_owned(), cell.protocol.to_string()]).collect();
        Err(ThresholdError::NoSuchCell {
            condition: self.text.clone(),
            name: name.to_owned(),
            known: known.into_iter().collect::<Vec<_>>().join(", "),
        })
    }

    /// Every cell, or pair of cells of one group, for which the condition is true.
    pub fn check(&self, analysis: &Analysis) -> Result<Vec<Judged>, ThresholdError> {
        let mut all = self.judge(analysis)?;
        all.retain(|judged| judged.is_true);
        Ok(all)
    }

    /// Every cell, or pair of cells of one group, that the condition applies to, and whether it is true there.
    pub fn judge(&self, analysis: &Analysis) -> Result<Vec<Judged>, ThresholdError> {
        self.refuse_unknown(&analysis.cells.iter().map(|summary| (summary.label.as_str(), &summary.cell)))?;
        Ok(analysis.groups().iter().flat_map(|group| self.judge_group(group)).collect())
    }

    fn judge_group(&self, group: &[&CellSummary]) -> Vec<Judged> {
        let mut all = Vec::new();
        let mut check = |cell: &CellSummary, bound: f64, other: Option<(&MetricFigure, &CellSummary)>| {
            let have_collapsed = other.is_some_and(|(figure, against)| {
                has_collapsed(cell, self.figure.metric) && has_collapsed(against, figure.metric)
            });
            let beside =
                |(figure, against): (&MetricFigure, &CellSummary)| format!("; {}", figure.describe(against));
            all.push(Judged {
                is_true: have_collapsed || self.relation.holds(self.figure.of(cell), bound),
                group: cell.cell.group,
                condition: self.text.clone(),
                measured: format!("{}{}", self.figure.describe(cell), other.map_or(String::new(), beside)),
            });
        };
        for cell in self.figure.named(group) {
            match &self.bound {
                Bound::Number(number) => check(cell, *number, None),
                Bound::MetricFigure(other) if other.cells == self.figure.cells => {
                    check(cell, other.of(cell), Some((other, cell)));
                }
                Bound::MetricFigure(other) => {
                    let others = other.named(group);
                    for against in others.into_iter().filter(|against| against.cell.index != cell.cell.index)
                    {
                        check(cell, other.of(against), Some((other, against)));
                    }
                }
            }
        }
        all
    }
}
