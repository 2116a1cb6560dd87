//! Conditions on two runs: `p99 > 1.1*base.p99` compares a cell's figure with that of the same cell in the first run,
//! the base.

use super::{
    Bound, CellSummary, Fit, Judged, METRICS, Metric, MetricFigure, Relation, Threshold, ThresholdError,
    Unit, fits, without_latency,
};
use crate::stats::Tail;
use h2lab_base::counts::{count, plural};

/// All requests, in ten-thousandths.
const ALL: u32 = 10_000;
/// The lowest percentile that needs many requests, in ten-thousandths.
const P99: u32 = 9_900;

/// The name of the first run.
const BASE: &str = "base";

/// The figures of a cell that a condition can use, whatever their source.
#[derive(Debug, Clone, PartialEq)]
pub struct CellFigures {
    /// The cell's label.
    pub label: String,
    /// The name of its protocol.
    pub protocol: String,
    /// Why it has no response times; then those below are infinite.
    pub without: Option<String>,
    /// Successful and unfinished requests, on which the percentiles are based.
    pub requests: u64,
    /// A figure for each of [`CellFigures::NAMES`]: times in ms, errors as a share of 1, throughput in requests per
    /// second; NaN if it is unknown.
    pub values: [f64; METRICS.len()],
}

impl CellFigures {
    /// The names of the figures, in their order.
    pub const NAMES: [&'static str; METRICS.len()] = {
        let mut names = [""; METRICS.len()];
        let mut k = 0;
        while k < names.len() {
            names[k] = METRICS[k].0;
            k += 1;
        }
        names
    };

    /// From a cell of a run.
    pub fn of(summary: &CellSummary) -> Self {
        Self {
            label: summary.label.clone(),
            protocol: summary.cell.protocol.name().to_owned(),
            without: without_latency(summary).map(str::to_owned),
            requests: summary.response.n(),
            values: METRICS.map(|(_, metric)| metric.of(summary)),
        }
    }

    /// The figure with this name.
    pub fn value(&self, name: &str) -> Option<f64> {
        Self::NAMES.iter().position(|known| *known == name).map(|place| self.values[place])
    }

    /// How many requests this figure needs, if reports leave it out because there are fewer: then it rests on a few
    /// requests of one stall. A collapsed cell has no response times, whatever their number.
    fn lacks(&self, metric: Metric) -> Option<u64> {
        let Metric::Quantile(share) = metric else { return None };
        let needed =
            Tail::NEEDED_ABOVE * u64::from(ALL).div_ceil(u64::from(ALL.saturating_sub(share)).max(1));
        let is_few = share >= P99 && self.requests < needed;
        (is_few && self.without.is_none()).then_some(needed)
    }

    fn get(&self, metric: Metric) -> f64 {
        self.value(metric.name()).unwrap_or(f64::NAN)
    }
}

/// Whose figure a side of the condition refers to.
#[derive(Clone, Copy)]
struct Whose<'a> {
    is_base: bool,
    /// The cells' name without the prefix `base`.
    name: Option<&'a str>,
}

impl MetricFigure {
    fn whose(&self) -> Whose<'_> {
        match self.cells.as_deref() {
            Some(BASE) => Whose { is_base: true, name: None },
            Some(cells) => match cells.strip_prefix("base.") {
                Some(name) => Whose { is_base: true, name: Some(name) },
                None => Whose { is_base: false, name: Some(cells) },
            },
            None => Whose { is_base: false, name: None },
        }
    }

    fn of_figures(&self, figures: &CellFigures) -> f64 {
        self.factor * figures.get(self.metric)
    }

    /// `base.p99 61.2 ms`, with the factor's product if there is one.
    fn print(&self, figures: &CellFigures) -> String {
        let value = figures.get(self.metric);
        let is_base = self.whose().is_base;
        match &figures.without {
            Some(why) if value.is_infinite() => format!("{}{why}", if is_base { "base " } else { "" }),
            _ => format!("{}{} {}", if is_base { "base." } else { "" }, self.name, self.print_value(value)),
        }
    }
}

/// The best fit of a name to any cell.
fn best(name: &str, pairs: &[(CellFigures, CellFigures)]) -> Option<Fit> {
    pairs.iter().filter_map(|(_, now)| fits(name, &now.label, &now.protocol)).max()
}

/// The result of a condition on two runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checked {
    /// The pairs for which it is true.
    pub violations: Vec<Judged>,
    /// The pairs for which it is not.
    pub others: Vec<Judged>,
    /// The pairs that are not decided, since a figure rests on too few requests: the reason for each, in a sentence.
    pub undecided: Vec<String>,
}

impl Threshold {
    /// Checks every pair of a cell of the base and the same cell of the run that is compared with it. A cell that
    /// collapsed meets no upper bound, even if the base's did, too. A figure that reports leave out for lack of
    /// requests decides nothing.
    pub fn check_against(&self, pairs: &[(CellFigures, CellFigures)]) -> Result<Checked, ThresholdError> {
        let bound = match &self.bound {
            Bound::Number(_) => None,
            Bound::MetricFigure(figure) => Some(figure),
        };
        let sides: Vec<Whose<'_>> =
            [Some(&self.figure), bound].into_iter().flatten().map(MetricFigure::whose).collect();
        let is_of_one_run = bound.is_some() && sides[0].is_base == sides[1].is_base;
        if is_of_one_run && sides[0].name != sides[1].name {
            return Err(ThresholdError::NoBase(self.text.clone()));
        }
        let names: Vec<&str> = sides.iter().filter_map(|side| side.name).collect();
        self.refuse_unnamed(&names, pairs)?;
        let is_meant = |(_, now): &&(CellFigures, CellFigures)| {
            names.iter().all(|name| best(name, pairs) == fits(name, &now.label, &now.protocol))
        };
        let meant: Vec<_> = pairs.iter().filter(is_meant).collect();
        for figure in [Some(&self.figure), bound].into_iter().flatten() {
            let side = |(base, now): &(CellFigures, CellFigures)| {
                figure.of_figures(if figure.whose().is_base { base } else { now })
            };
            if meant.iter().any(|pair| side(pair).is_nan()) {
                let (condition, metric) = (self.text.clone(), figure.name);
                return Err(ThresholdError::NoFigure { condition, metric });
            }
        }
        let mut checked = Checked::default();
        for pair in meant {
            match self.undecided(pair) {
                Some(why) => checked.undecided.push(why),
                None => {
                    let judged = self.judge_pair(pair);
                    let of = if judged.is_true { &mut checked.violations } else { &mut checked.others };
                    of.push(judged);
                }
            }
        }
        Ok(checked)
    }

    /// Why a pair is not decided, if so.
    fn undecided(&self, (base, now): &(CellFigures, CellFigures)) -> Option<String> {
        let bound = match &self.bound {
            Bound::Number(_) => None,
            Bound::MetricFigure(figure) => Some(figure),
        };
        let side = |figure: &MetricFigure| if figure.whose().is_base { base } else { now };
        let figures = || [Some(&self.figure), bound].into_iter().flatten();
        // A cell that collapsed meets no upper bound, whatever the other side is.
        if figures().any(|figure| side(figure).without.is_some()) {
            return None;
        }
        let (figure, needed) =
            figures().find_map(|figure| Some((figure, side(figure).lacks(figure.metric)?)))?;
        Some(format!(
            "{}: {}: {}{} needs {}, and there are {}: measure for longer, or use p95",
            self.text,
            now.label,
            if figure.whose().is_base { "base." } else { "" },
            figure.name,
            plural(needed, "request"),
            count(side(figure).requests)
        ))
    }

    fn refuse_unnamed(
        &self,
        names: &[&str],
        pairs: &[(CellFigures, CellFigures)],
    ) -> Result<(), ThresholdError> {
        let Some(name) = names.iter().find(|name| best(name, pairs).is_none()) else { return Ok(()) };
        let known: std::collections::BTreeSet<&str> =
            pairs.iter().flat_map(|(_, now)| [now.label.as_str(), now.protocol.as_str()]).collect();
        Err(ThresholdError::NoSuchCell {
            condition: self.text.clone(),
            name: (*name).to_owned(),
            known: known.into_iter().collect::<Vec<_>>().join(", "),
        })
    }

    fn judge_pair(&self, (base, now): &(CellFigures, CellFigures)) -> Judged {
        let side = |figure: &MetricFigure| if figure.whose().is_base { base } else { now };
        let value = self.figure.of_figures(side(&self.figure));
        let (bound, other) = match &self.bound {
            Bound::Number(number) => (*number, String::new()),
            Bound::MetricFigure(figure) => {
                let of = side(figure);
                (figure.of_figures(of), format!("; {}", figure.print(of)))
            }
        };
        let is_upper = matches!(self.relation, Relation::Greater | Relation::GreaterOrEqual);
        let has_collapsed = is_upper && value.is_infinite() && self.figure.metric.unit() == Unit::Time;
        Judged {
            is_true: has_collapsed || self.relation.holds(value, bound),
            group: 0,
            condition: self.text.clone(),
            measured: format!("{}: {}{other}", now.label, self.figure.print(side(&self.figure))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(label: &str, p99: f64, throughput: f64) -> CellFigures {
        let protocol = label.split(' ').next().unwrap().to_owned();
        let mut values = [p99; METRICS.len()];
        (values[8], values[9]) = (0.0, throughput);
        let without = p99.is_infinite().then(|| "does not carry the load".to_owned());
        CellFigures { label: label.to_owned(), protocol, without, requests: 500_000, values }
    }

    fn pair(label: &str, base: f64, now: f64) -> (CellFigures, CellFigures) {
        (figures(label, base, 1000.0), figures(label, now, 900.0))
    }

    fn held(condition: &str, pairs: &[(CellFigures, CellFigures)]) -> Vec<String> {
        let threshold: Threshold = condition.parse().unwrap();
        let checked = threshold.check_against(pairs).unwrap();
        assert_eq!(checked.undecided, Vec::<String>::new());
        checked.violations.into_iter().map(|violation| violation.measured).collect()
    }

    #[test]
    fn a_percentile_of_too_few_requests_decides_nothing_and_says_how_many_it_needs() {
        let checked = |condition: &str, requests: [u64; 2]| {
            let mut pair = pair("h1", 10.0, 20.0);
            (pair.0.requests, pair.1.requests) = (requests[0], requests[1]);
            condition.parse::<Threshold>().unwrap().check_against(&[pair]).unwrap()
        };
        let decided = |condition, requests| {
            let Checked { violations, others, undecided } = checked(condition, requests);
            assert_eq!(violations.len() + others.len() + undecided.len(), 1, "{violations:?}, {undecided:?}");
            undecided.is_empty()
        };
        assert!(decided("p99 > 1.1*base.p99", [5_000, 5_000]));
        assert!(!decided("p99 > 1.1*base.p99", [5_000, 4_999]));
        assert!(!decided("p99 > 1.1*base.p99", [4_999, 5_000]));
        assert!(decided("p99 > 15ms", [3, 5_000]), "the base is not asked");
        assert!(decided("p95 > 1.1*base.p95", [3, 3]) && decided("max > base.max", [3, 3]));
        assert!(!decided("p99.9 > 15ms", [0, 49_999]) && decided("p99.9 > 15ms", [0, 50_000]));
        assert_eq!(
            checked("p99 > 1.1*base.p99", [600, 5_000]).undecided,
            [
                "p99 > 1.1*base.p99: h1: base.p99 needs 5,000 requests, and there are 600: measure for longer, or use p95"
            ]
        );
        let mut collapsed = pair("h1", 10.0, f64::INFINITY);
        collapsed.1.requests = 0;
        let condition: Threshold = "p99 > 1.1*base.p99".parse().unwrap();
        assert_eq!(condition.check_against(&[collapsed]).unwrap().violations.len(), 1);
    }

    #[test]
    fn a_figure_is_held_against_that_of_the_same_cell_in_the_base() {
        let pairs = [pair("h1", 10.0, 10.9), pair("h2c × 4", 100.0, 111.0)];
        assert_eq!(
            held("p99 > 1.1*base.p99", &pairs),
            ["h2c × 4: p99 111 ms; base.p99 100 ms, times 1.1 is 110 ms"]
        );
        assert_eq!(held("base.p99 > 95ms", &pairs), ["h2c × 4: base.p99 100 ms"]);
        assert_eq!(
            held("base.p99.9 > 0.9*p999", &pairs)[1],
            "h2c × 4: base.p99.9 100 ms; p999 111 ms, times 0.9 is 99.9 ms"
        );
        assert_eq!(held("p99 > 1.05*base.p99", &pairs).len(), 2);
        assert_eq!(held("1.1*base.p99 < p99", &pairs).len(), 1, "sides may change places");
        assert_eq!(held("throughput < 0.95*base.throughput", &pairs).len(), 2);
        assert_eq!(held("throughput < 0.9*base.throughput", &pairs), Vec::<String>::new());
    }

    #[test]
    fn cells_are_named_as_elsewhere() {
        let pairs = [pair("h1", 10.0, 20.0), pair("h2c × 1", 10.0, 20.0), pair("h2c × 4", 10.0, 20.0)];
        assert_eq!(held("h2c.p99 > base.p99", &pairs).len(), 2);
        assert_eq!(held("h2cx4.p99 > base.p99", &pairs).len(), 1);
        assert_eq!(held("p99 > 1.1*base.h1.p99", &pairs).len(), 1);
        assert_eq!(held("p99 > 15ms", &pairs).len(), 3, "a number is for the second run alone");
        assert_eq!(held("base.p99 > 15ms", &pairs).len(), 0);
        assert_eq!(held("h1.max > 3*h1.p50", &pairs).len(), 0);
    }

    #[test]
    fn what_collapsed_fails_even_beside_a_base_that_did() {
        assert_eq!(
            held("p99 > 1.1*base.p99", &[pair("h1", f64::INFINITY, f64::INFINITY)]),
            ["h1: does not carry the load; base does not carry the load"]
        );
        assert_eq!(held("p99 > 1.1*base.p99", &[pair("h1", f64::INFINITY, 10.0)]), Vec::<String>::new());
    }

    #[test]
    fn a_figure_that_a_file_does_not_have_is_refused() {
        let mut pairs = [pair("h1", 10.0, 20.0)];
        pairs[0].1.values[5] = f64::NAN;
        let check = |condition: &str| condition.parse::<Threshold>().unwrap().check_against(&pairs);
        for condition in ["p99.99 > 5ms", "p9999 > base.p9999", "base.p99 < p9999"] {
            assert!(matches!(check(condition), Err(ThresholdError::NoFigure { .. })), "{condition}");
        }
        assert_eq!(check("base.p9999 > 5ms").unwrap().violations.len(), 1, "the base has it");
    }

    #[test]
    fn unknown_cells_and_two_cells_of_one_run_are_refused() {
        let pairs = [pair("h1", 10.0, 20.0), pair("h2c × 1", 10.0, 20.0)];
        let refused =
            |condition: &str| condition.parse::<Threshold>().unwrap().check_against(&pairs).unwrap_err();
        assert!(matches!(refused("h3.p99 > base.p99"), ThresholdError::NoSuchCell { .. }));
        assert!(matches!(refused("h2c.p99 > h1.p99"), ThresholdError::NoBase(_)));
    }
}
