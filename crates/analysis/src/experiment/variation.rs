//! How much the cells of an experiment vary from round to round.
//!
//! Two rounds of a change say little about its variation, and Student's t for so few, corrected for many looks, would be
//! twice as wide as it is for many. So the variation is that of the unchanged cell and all changed ones together, each
//! about its own mean, with the sum of their degrees of freedom: they are the same work on the same machines in the same
//! rounds. A cell that varies more than the others is judged by its own variation, as soon as it has rounds enough to
//! show it. Whatever these say, the interval is no narrower than that of the two cells alone.

#[cfg(test)]
mod tests;

use std::mem::discriminant;
use std::time::Duration;

use h2lab_model::record::RunRecord;

use super::{Metric, Setup, summary};
use crate::stats::{CellSummary, RepetitionSeries, correction, repetitions_of};

/// From this many degrees of freedom, three rounds, a cell's own variation counts if it is the larger one.
const OWN_FREEDOM: usize = 2;

/// The cells of an experiment in the rounds up to one.
pub(super) struct Known {
    /// Without a change.
    pub unchanged: CellSummary,
    /// With one; only those that were measured.
    changed: Vec<CellSummary>,
}

impl Known {
    /// Up to the round `last`; `None` if the unchanged cell has no repetition in these.
    pub fn until(run: &RunRecord, setup: &Setup, last: u32) -> Option<Self> {
        let of = |index: u32| {
            let mut until = repetitions_of(run, index);
            until.retain(|one| one.cell.repetition <= last);
            summary(&until)
        };
        let changed = setup.knobs.iter().filter_map(|(index, _)| of(*index)).collect();
        Some(Self { unchanged: of(setup.subject)?, changed })
    }

    /// The changed cell with this index.
    pub fn changed(&self, index: u32) -> Option<&CellSummary> {
        self.changed.iter().find(|one| one.cell.index == index)
    }

    /// How far two cells may differ by the variation from round to round alone, in the logarithm of their ratio, at each
    /// of `looks` looks: the unchanged cell in the rounds that are `compared`, and the changed one. 0 if no cell has two
    /// repetitions.
    pub fn spread(&self, metric: Metric, compared: [&CellSummary; 2], looks: u32) -> f64 {
        let changed = compared[1];
        // A cell that breaks down varies in its own way.
        let is_like = |one: &&CellSummary| {
            one.cell.index == changed.cell.index
                || discriminant(&one.state) == discriminant(&self.unchanged.state)
        };
        let squares = |one: &CellSummary| Squares::of(&figures(metric, one));
        let all = self.changed.iter().filter(is_like).map(squares);
        let own = [squares(&self.unchanged), squares(changed)];
        let pooled = all.fold(own[0], Squares::and);
        spread(pooled, own, compared.map(|cell| cell.series.len()), looks)
    }
}

/// The squares of figures about their mean.
#[derive(Debug, Clone, Copy)]
struct Squares {
    sum: f64,
    freedom: usize,
}

impl Squares {
    /// Of the logarithms of these.
    fn of(figures: &[f64]) -> Self {
        let n = figures.len().max(1);
        let mean = figures.iter().map(|figure| figure.ln()).sum::<f64>() / n as f64;
        Self { sum: figures.iter().map(|figure| (figure.ln() - mean).powi(2)).sum(), freedom: n - 1 }
    }

    fn and(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, freedom: self.freedom + other.freedom }
    }

    fn variance(self) -> f64 {
        self.sum / self.freedom.max(1) as f64
    }
}

/// The same from the variation of all cells, `pooled`, and that of each of the two, of which this many repetitions are
/// compared.
fn spread(pooled: Squares, own: [Squares; 2], compared: [usize; 2], looks: u32) -> f64 {
    if pooled.freedom == 0 {
        return 0.0;
    }
    let variance = |(own, compared): (Squares, usize)| {
        let own = if own.freedom >= OWN_FREEDOM { own.variance() } else { 0.0 };
        own.max(pooled.variance()) / compared.max(1) as f64
    };
    let of_difference: f64 = own.into_iter().zip(compared).map(variance).sum();
    correction::half_width(looks, pooled.freedom) * of_difference.sqrt()
}

/// The figure of each repetition of a cell that has one above 0.
fn figures(metric: Metric, cell: &CellSummary) -> Vec<f64> {
    cell.series.iter().filter_map(|one| figure(metric, one)).collect()
}

/// The figure of one repetition, if it has one above 0.
fn figure(metric: Metric, repetition: &RepetitionSeries) -> Option<f64> {
    let figure = match metric {
        Metric::Served => {
            repetition.served.iter().map(|(_, count)| *count as f64).sum::<f64>()
                / repetition.duration.as_secs_f64()
        }
        Metric::Response(_) | Metric::Median | Metric::Run => {
            let mut times: Vec<Duration> = repetition.points.iter().map(|(_, response)| response).collect();
            let rank =
                ((metric.share() * times.len() as f64).ceil() as usize).clamp(1, times.len().max(1)) - 1;
            (!times.is_empty()).then(|| times.select_nth_unstable(rank).1.as_secs_f64())?
        }
    };
    (figure > 0.0).then_some(figure)
}
