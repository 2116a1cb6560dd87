//! Reads a condition from the command line.

use std::str::FromStr;

use super::{Bound, METRICS, MetricFigure, Relation, Threshold, ThresholdError, Unit};
use h2lab_base::units::{Ratio, millis_f64, parse_duration};

/// One side of a condition, as written.
enum Side {
    /// A number without unit: it takes that of the other side.
    Plain(f64),
    /// A time in ms, or a share.
    Number(f64, Unit),
    /// A metric.
    MetricFigure(MetricFigure),
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let refuse = || ThresholdError::Syntax(text.to_owned());
        let (spelling, relation) =
            Relation::ALL.into_iter().find(|(spelling, _)| text.contains(spelling)).ok_or_else(refuse)?;
        let (left, right) = text.split_once(spelling).ok_or_else(refuse)?;
        let unread = |part: &str| match unknown_metric(part) {
            Some(name) => ThresholdError::NoSuchMetric { condition: text.to_owned(), name: name.to_owned() },
            None => refuse(),
        };
        let (left, right) =
            (side(left).ok_or_else(|| unread(left))?, side(right).ok_or_else(|| unread(right))?);
        let (figure, relation, other) = match (left, right) {
            (Side::MetricFigure(figure), other) => (figure, relation, other),
            (other, Side::MetricFigure(figure)) => (figure, relation.turned(), other),
            _ => return Err(refuse()),
        };
        if matches!(&other, Side::MetricFigure(other) if other.metric == figure.metric && other.cells == figure.cells)
        {
            return Err(ThresholdError::SameFigure {
                condition: text.to_owned(),
                metric: figure.metric.name(),
            });
        }
        let assumed = match (&other, figure.metric.unit()) {
            (Side::Plain(number), unit) if *number > 0.0 => Some(unit.print(*number)),
            _ => None,
        };
        let bound = bound(other, figure.metric.unit()).ok_or_else(|| ThresholdError::Unit {
            condition: text.to_owned(),
            metric: figure.metric.name(),
            expected: figure.metric.unit().name(),
        })?;
        Ok(Self { text: text.to_owned(), assumed, figure, relation, bound })
    }
}

/// A side as the bound of a figure in `unit`; `None` if they cannot be compared.
fn bound(side: Side, unit: Unit) -> Option<Bound> {
    match side {
        // 5 is no share: `errors > 5` could mean 5 % or five requests.
        Side::Plain(number) if unit == Unit::Share => Some(Bound::Number(Ratio::new(number)?.get())),
        Side::Plain(number) => Some(Bound::Number(number)),
        Side::Number(number, of) => (of == unit).then_some(Bound::Number(number)),
        Side::MetricFigure(figure) => (figure.metric.unit() == unit).then_some(Bound::MetricFigure(figure)),
    }
}

fn side(text: &str) -> Option<Side> {
    let text = text.trim();
    // Plain numbers come first: `0` and `0.5` also parse as a duration and a share.
    if let Some(number) = number(text) {
        return Some(Side::Plain(number));
    }
    if let Ok(duration) = parse_duration(text) {
        return Some(Side::Number(millis_f64(duration), Unit::Time));
    }
    if let Ok(share) = text.parse::<Ratio>() {
        return Some(Side::Number(share.get(), Unit::Share));
    }
    let (factor, name) = match text.split_once('*') {
        Some((factor, name)) => (number(factor.trim()).filter(|factor| *factor > 0.0)?, name.trim()),
        None => (1.0, text),
    };
    let (cells, metric) = match name.rsplit_once('.') {
        Some((cells, metric)) => (Some(cells.trim()).filter(|cells| !cells.is_empty())?, metric),
        None => return Some(Side::MetricFigure(figure(factor, None, name)?)),
    };
    Some(Side::MetricFigure(figure(factor, Some(cells), metric)?))
}

/// The name that stands where a metric should, if `text` has that form: `h1.p98`, `2*latency`.
fn unknown_metric(text: &str) -> Option<&str> {
    let name = text.rsplit(['.', '*']).next().unwrap_or_default().trim();
    let is_name = name.starts_with(|character: char| character.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-%".contains(&byte))
        && !matches!(name, "nan" | "inf" | "infinity");
    (is_name && !METRICS.iter().any(|(known, _)| *known == name)).then_some(name)
}

fn figure(factor: f64, cells: Option<&str>, metric: &str) -> Option<MetricFigure> {
    let (_, metric) = METRICS.into_iter().find(|(spelling, _)| *spelling == metric)?;
    Some(MetricFigure { factor, cells: cells.map(str::to_owned), metric })
}

/// A number of at least 0. Infinity and what is no number at all would make a condition that always or never holds.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}
