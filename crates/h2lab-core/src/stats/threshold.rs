//! `--fail-if`: a condition on the figures of a run, such as `h2c.p99 > 1.2*h1.p99` or `errors > 0.1%`.
//!
//! A side is a number, a time (`50ms`), a share (`0.1%`), or a metric with an optional factor. A metric may name its
//! cells by protocol (`h2c.p99`) or label (`h2c×4.p99`); without a name it speaks of every cell. Each group is checked
//! by itself: cells under different links are not compared with each other.

use std::fmt;
use std::str::FromStr;

use super::{Analysis, CellState, CellSummary};
use crate::units::{Ratio, millis_f64, parse_duration};

/// A figure of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    /// A quantile of the response time in ms, by its thousandths: 990 is p99.
    Quantile(u32),
    /// The longest response time, in ms.
    Max,
    /// The mean response time, in ms.
    Mean,
    /// Failed requests as a share of those sent.
    Errors,
    /// Successful responses per second.
    Throughput,
}

/// The names of the metrics.
const METRICS: [(&str, Metric); 9] = [
    ("p50", Metric::Quantile(500)),
    ("p90", Metric::Quantile(900)),
    ("p95", Metric::Quantile(950)),
    ("p99", Metric::Quantile(990)),
    ("p999", Metric::Quantile(999)),
    ("max", Metric::Max),
    ("mean", Metric::Mean),
    ("errors", Metric::Errors),
    ("throughput", Metric::Throughput),
];

impl Metric {
    /// The figure. A cell that is unstable has no response times worth the name: they count as infinite.
    fn of(self, cell: &CellSummary) -> f64 {
        let unstable = matches!(cell.state, CellState::Unstable { .. });
        match self {
            Self::Quantile(_) | Self::Max | Self::Mean if unstable => f64::INFINITY,
            Self::Quantile(thousandths) => {
                millis_f64(cell.response.quantile(f64::from(thousandths) / 1000.0))
            }
            Self::Max => millis_f64(cell.response.quantile(1.0)),
            Self::Mean => millis_f64(cell.response.mean()),
            Self::Errors => cell.requests.failed as f64 / cell.requests.sent.max(1) as f64,
            Self::Throughput => cell.served_rps,
        }
    }
}

/// One side of a condition.
#[derive(Debug, Clone, PartialEq)]
enum Side {
    /// A plain number: ms for times, a share for errors, per second for throughput.
    Number(f64),
    /// A metric, of the cells with this protocol or label, or of every cell.
    Metric { factor: f64, cells: Option<String>, metric: Metric },
}

impl Side {
    /// Whether this side speaks of `cell`.
    fn names(&self, cell: &CellSummary) -> bool {
        let Self::Metric { cells: Some(name), .. } = self else { return true };
        let label: String = cell.label.chars().filter(|c| !c.is_whitespace()).collect();
        cell.cell.protocol.name() == name || label == name.replace('x', "×")
    }

    fn of(&self, cell: &CellSummary) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Metric { factor, metric, .. } => factor * metric.of(cell),
        }
    }
}

/// How the sides must stand to each other for the run to fail.
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
}

/// A condition under which a run fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    text: String,
    left: Side,
    relation: Relation,
    right: Side,
}

/// Why a condition cannot be read or applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// It is not of the form that we read.
    #[error("`{0}` is not a condition (such as h2c.p99 > 1.2*h1.p99, or errors > 0.1%)")]
    Syntax(String),
    /// It speaks of cells that the run does not have.
    #[error("`{condition}` names `{name}`, but no cell of this run is called so")]
    NoSuchCell {
        /// The condition.
        condition: String,
        /// The name that fits no cell.
        name: String,
    },
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ThresholdError::Syntax(text.to_owned());
        let (spelling, relation) =
            Relation::ALL.into_iter().find(|(spelling, _)| text.contains(spelling)).ok_or_else(refuse)?;
        let (left, right) = text.split_once(spelling).ok_or_else(refuse)?;
        let left = side(left).ok_or_else(refuse)?;
        let right = side(right).ok_or_else(refuse)?;
        if matches!((&left, &right), (Side::Number(_), Side::Number(_))) {
            return Err(refuse());
        }
        Ok(Self { text: text.trim().to_owned(), left, relation, right })
    }
}

fn side(text: &str) -> Option<Side> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(Side::Number(number));
    }
    if let Ok(duration) = parse_duration(text) {
        return Some(Side::Number(millis_f64(duration)));
    }
    if let Ok(share) = text.parse::<Ratio>() {
        return Some(Side::Number(share.get()));
    }
    let (factor, name) = match text.split_once('*') {
        Some((factor, name)) => (factor.trim().parse().ok()?, name.trim()),
        None => (1.0, text),
    };
    let (cells, metric) = match name.rsplit_once('.') {
        Some((cells, metric)) => (Some(cells.to_owned()), metric),
        None => (None, name),
    };
    let (_, metric) = METRICS.into_iter().find(|(spelling, _)| *spelling == metric)?;
    Some(Side::Metric { factor, cells, metric })
}

/// A condition that held.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    condition: String,
    cells: String,
    left: f64,
    right: f64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({} against {})", self.condition, self.cells, figure(self.left), figure(self.right))
    }
}

fn figure(value: f64) -> String {
    if value.is_finite() { format!("{value:.4}") } else { "unstable".to_owned() }
}

impl Threshold {
    /// Every pair of cells of one group for which the condition holds.
    pub fn check(&self, analysis: &Analysis) -> Result<Vec<Violation>, ThresholdError> {
        for side in [&self.left, &self.right] {
            if let Side::Metric { cells: Some(name), .. } = side
                && !analysis.cells.iter().any(|cell| side.names(cell))
            {
                return Err(ThresholdError::NoSuchCell { condition: self.text.clone(), name: name.clone() });
            }
        }
        let mut violations = Vec::new();
        for group in analysis.groups() {
            for &left in group.iter().filter(|cell| self.left.names(cell)) {
                for &right in group.iter().filter(|cell| self.concerns(left, cell)) {
                    let (a, b) = (self.left.of(left), self.right.of(right));
                    if self.relation.holds(a, b) {
                        violations.push(Violation {
                            condition: self.text.clone(),
                            cells: if std::ptr::eq(left, right) {
                                left.label.clone()
                            } else {
                                format!("{} against {}", left.label, right.label)
                            },
                            left: a,
                            right: b,
                        });
                    }
                }
            }
        }
        Ok(violations)
    }

    /// Whether `right` is to be set against `left`: the named cells, or `left` itself where nothing is named.
    fn concerns(&self, left: &CellSummary, right: &CellSummary) -> bool {
        match &self.right {
            Side::Metric { cells: Some(_), .. } => self.right.names(right),
            Side::Number(_) | Side::Metric { .. } => std::ptr::eq(left, right),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::CellRecord;
    use crate::record::testing::{Model, cell, visit};
    use crate::workload::Protocol;

    fn analysis(visits: &[CellRecord]) -> Analysis {
        let cells = visits.iter().map(|visit| CellSummary::of(&[visit])).collect();
        Analysis { cells, verdicts: Vec::new(), warnings: Vec::new() }
    }

    fn two_cells() -> Analysis {
        analysis(&[
            visit(&cell(0, 0, Protocol::H1, 32, 0.0), 0, &Model::CLEAN),
            visit(&cell(1, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN),
        ])
    }

    fn violations(condition: &str) -> usize {
        condition.parse::<Threshold>().unwrap().check(&two_cells()).unwrap().len()
    }

    #[test]
    fn both_sides_of_a_threshold_are_told_apart() {
        assert_eq!(violations("h2c.p99 > 2*h1.p99"), 0);
        assert_eq!(violations("h2c.p99 > 0.5*h1.p99"), 1);
        assert_eq!(violations("p50 < 1ms"), 0);
        assert_eq!(violations("p50 > 1ms"), 2, "without a name every cell is meant");
        assert_eq!(violations("errors > 0.1%"), 0);
        assert_eq!(violations("errors >= 0"), 2);
        assert_eq!(violations("h2c×4.throughput > 1"), 1);
        assert_eq!(violations("h2cx4.throughput > 1"), 1);
    }

    #[test]
    fn a_condition_that_cannot_be_read_or_names_nothing_is_refused() {
        for bad in ["", "p99", "p99 > ", "p98 > 3", "1 > 2", "h1.p99 = 3", "x*h1.p99 > 1"] {
            assert!(bad.parse::<Threshold>().is_err(), "{bad}");
        }
        let error = "h2.p99 > 1".parse::<Threshold>().unwrap().check(&two_cells()).unwrap_err();
        assert!(matches!(error, ThresholdError::NoSuchCell { name, .. } if name == "h2"));
    }
}
