//! Reads a condition from the command line.

use std::str::FromStr;

use super::{Bound, METRICS, Metric, MetricFigure, Relation, SPELLINGS, Threshold, ThresholdError, Unit};
use h2lab_base::units::{Ratio, millis_f64, parse_duration};

/// One side of a condition, as written.
enum Side {
    /// A number without a unit: it gets the unit of the other side.
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
            return Err(ThresholdError::SameFigure { condition: text.to_owned(), metric: figure.name });
        }
        let assumed = match (&other, figure.metric.unit()) {
            (Side::Plain(number), unit) if *number > 0.0 => Some(unit.print_bound(*number)),
            _ => None,
        };
        let bound = bound(other, figure.metric.unit()).ok_or_else(|| ThresholdError::Unit {
            condition: text.to_owned(),
            metric: figure.name,
            expected: figure.metric.unit().name(),
        })?;
        Ok(Self { text: text.to_owned(), assumed, figure, relation, bound })
    }
}

/// A side as the bound of a figure in `unit`; `None` if they cannot be compared.
fn bound(side: Side, unit: Unit) -> Option<Bound> {
    match side {
        // 5 is not a share: `errors > 5` could mean 5 % or five requests.
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
    let (cells, (spelling, metric)) = spelled(name)?;
    let cells = match cells {
        Some(cells) => Some(cells.trim().to_owned()).filter(|cells| !cells.is_empty()).map(Some)?,
        None => None,
    };
    Some(Side::MetricFigure(MetricFigure { factor, cells, metric, name: spelling }))
}

/// The metric at the end of `name`, and what precedes its point: `p99.9` contains a point itself.
fn spelled(name: &str) -> Option<(Option<&str>, (&'static str, Metric))> {
    let read = |known: (&'static str, Metric)| match name.strip_suffix(known.0)? {
        "" => Some((None, known)),
        before => Some((Some(before.strip_suffix('.')?), known)),
    };
    METRICS.into_iter().chain(SPELLINGS).find_map(read)
}

/// The name in the place of a metric, if `text` has that form: `h1.p98`, `p98.7`, `2*latency`.
fn unknown_metric(text: &str) -> Option<&str> {
    let text = text.rsplit('*').next().unwrap_or_default().trim();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let points: Vec<usize> = text.match_indices('.').map(|(place, _)| place + 1).rev().collect();
    let after = |nth: usize| &text[points.get(nth).copied().unwrap_or(0)..];
    // The point in a percentile does not separate a cell from its metric.
    let with_point = after(1).strip_prefix('p').and_then(|percent| percent.split_once('.'));
    let name = match with_point {
        Some((whole, rest)) if is_number(whole) && is_number(rest) => after(1),
        _ => after(0),
    };
    let is_name = name.starts_with(|character: char| character.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-%.".contains(&byte))
        && !matches!(name, "nan" | "inf" | "infinity");
    (is_name && spelled(name).is_none()).then_some(name)
}

/// A number of at least 0. Infinity or NaN would make a condition that always or never holds.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}
