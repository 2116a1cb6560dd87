//! A summary of a run's verdicts: the one that loses most, the one that wins most, and the number of the others.

use super::{Analysis, CellVerdict, Conclusion};

/// The verdicts that answer the question of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Answer<'a> {
    /// The cell that loses most against its baseline: a cell that does not carry the load counts as losing more than a
    /// slower one.
    pub worst: Option<&'a CellVerdict>,
    /// The cell that wins most, by the same order.
    pub best: Option<&'a CellVerdict>,
    /// The first pair in which neither carries the load.
    pub both_unstable: Option<&'a CellVerdict>,
    /// The first pair with no sound measurement, or none at all.
    pub void: Option<&'a CellVerdict>,
    /// How many verdicts there are.
    pub all: usize,
    /// How many of them are a loss or a win.
    pub decided: usize,
    /// How many find no difference.
    pub alike: usize,
    /// How many resolved nothing.
    pub undecided: usize,
    /// How many have no sound measurement.
    pub voids: usize,
}

impl<'a> Answer<'a> {
    /// The answer of these verdicts.
    pub fn of(analysis: &'a Analysis) -> Self {
        let mut answer = Self { all: analysis.verdicts.len(), ..Self::default() };
        for verdict in &analysis.verdicts {
            answer.add(verdict);
        }
        answer
    }

    fn add(&mut self, verdict: &'a CellVerdict) {
        let larger = |known: Option<&'a CellVerdict>| match known {
            Some(known) if effect(known) >= effect(verdict) => Some(known),
            _ => Some(verdict),
        };
        match verdict.conclusion {
            Conclusion::Slower | Conclusion::Unstable { .. } => {
                self.decided += 1;
                self.worst = larger(self.worst);
            }
            Conclusion::Faster | Conclusion::BaselineUnstable { .. } => {
                self.decided += 1;
                self.best = larger(self.best);
            }
            Conclusion::BothUnstable => self.both_unstable = self.both_unstable.or(Some(verdict)),
            Conclusion::Failed
            | Conclusion::Invalid
            | Conclusion::Unsupported
            | Conclusion::UnlikeMachines => {
                self.voids += 1;
                self.void = self.void.or(Some(verdict));
            }
            Conclusion::NoDifference if verdict.unclaimed().is_some_and(super::Unclaimed::is_alike) => {
                self.alike += 1;
            }
            Conclusion::NoDifference => self.undecided += 1,
        }
    }
}

/// How much one of the two loses, as the logarithm of a ratio. A cell that cannot carry a load gets slower the longer
/// the load lasts: it loses more than any that can.
fn effect(verdict: &CellVerdict) -> (bool, f64) {
    let of_load = |offered: f64, served: f64| (true, offered.max(1.0).ln() - served.max(1.0).ln());
    match verdict.conclusion {
        Conclusion::Unstable { offered_rps, served_rps }
        | Conclusion::BaselineUnstable { offered_rps, served_rps } => of_load(offered_rps, served_rps),
        _ => (false, verdict.tail_ratio.map_or(0.0, |tail| tail.ratio.ln().abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Tail, analyse};
    use h2lab_model::record::testing::compare;

    /// The run of the report tests with these conclusions and, where there are any, ratios of the tails.
    fn with(conclusions: &[(Conclusion, f64)]) -> Analysis {
        let mut analysis = analyse(&compare(true));
        let pattern = analysis.verdicts.iter().find(|v| v.tail_ratio.is_some()).expect("one is").clone();
        let verdict = |&(conclusion, ratio): &(Conclusion, f64)| {
            let mut verdict = pattern.clone();
            verdict.conclusion = conclusion;
            verdict.tail = Tail::P99;
            let tail = verdict.tail_ratio.as_mut().expect("it has one");
            (tail.ratio, tail.low, tail.high) = (ratio, ratio * 0.5, ratio * 2.0);
            tail.longest_stall = std::time::Duration::ZERO;
            tail.candidate = tail.baseline.mul_f64(ratio);
            verdict
        };
        analysis.verdicts = conclusions.iter().map(verdict).collect();
        analysis
    }

    const fn unstable(served_rps: f64) -> Conclusion {
        Conclusion::Unstable { offered_rps: 1000.0, served_rps }
    }

    #[test]
    fn the_worst_is_what_loses_most_and_not_what_comes_first() {
        let analysis = with(&[
            (Conclusion::Slower, 9.0),
            (unstable(807.0), 1.0),
            (unstable(257.0), 1.0),
            (unstable(916.0), 1.0),
        ]);
        assert_eq!(Answer::of(&analysis).worst, Some(&analysis.verdicts[2]));
        let analysis =
            with(&[(Conclusion::Slower, 1.2), (Conclusion::Slower, 3.0), (Conclusion::Slower, 1.5)]);
        assert_eq!(Answer::of(&analysis).worst, Some(&analysis.verdicts[1]));
    }

    #[test]
    fn wins_are_kept_beside_losses() {
        let analysis = with(&[(unstable(300.0), 1.0), (Conclusion::Faster, 0.8), (Conclusion::Faster, 0.44)]);
        let answer = Answer::of(&analysis);
        assert_eq!((answer.worst, answer.best), (Some(&analysis.verdicts[0]), Some(&analysis.verdicts[2])));
        assert_eq!((answer.decided, answer.all), (3, 3));
    }

    #[test]
    fn what_was_not_measured_soundly_never_becomes_the_worst_or_the_best() {
        let analysis = with(&[
            (Conclusion::Failed, 1.0),
            (Conclusion::Invalid, 1.0),
            (Conclusion::Unsupported, 1.0),
            (Conclusion::BothUnstable, 1.0),
            (Conclusion::NoDifference, 1.3),
        ]);
        let answer = Answer::of(&analysis);
        assert_eq!((answer.worst, answer.best, answer.decided), (None, None, 0));
        assert_eq!((answer.voids, answer.undecided, answer.alike), (3, 1, 0));
        assert_eq!(answer.void, Some(&analysis.verdicts[0]));
        assert_eq!(answer.both_unstable, Some(&analysis.verdicts[3]));
    }
}
