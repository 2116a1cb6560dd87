//! The client is run again: with one setting of our end changed, and without.

use std::time::Duration;

use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::experiment::Experiment;
use h2lab_analysis::experiment::client::{self, ClientRun};
use h2lab_base::units::{Time, format_duration, measured_time};
use h2lab_model::experiment::Knob;
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::Cell;
use h2lab_net::clock::Clock;

use super::super::{DiagnoseArgs, fix, plan};
use super::server::{Made, Runs};
use crate::run::messages::{Failure, FailureKind, with_causes};

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// `None` if nothing was changed.
    pub experiment: Option<Experiment>,
    /// Why nothing, or not everything, was changed that could be.
    pub note: Option<String>,
    pub is_interrupted: bool,
}

impl DiagnoseArgs {
    /// Tries the changes that remove `findings` about the first run of the client, which took `took`. The budget counts from
    /// the beginning of `clock`, and `ours` has the settings of our end.
    pub(super) fn try_changes(
        &self,
        runs: &mut Runs<'_>,
        ours: &Cell,
        (run, findings): (&RunRecord, &[Finding]),
        took: Duration,
        clock: Clock,
    ) -> Tried {
        let mut samples = run.repetitions.iter().flat_map(|record| record.samples.iter());
        // Without a success there is no work whose speed a change could show.
        if self.budget().is_zero() || !samples.any(|sample| sample.outcome.is_success()) {
            return Tried::default();
        }
        let work = run.repetitions.first().map_or(&ours.work, |record| &record.cell.work);
        let ours = Cell { work: work.clone(), ..ours.clone() };
        let mut knobs = client::suspects(findings, &ours, fix::settings(run, findings, &ours, None));
        if knobs.is_empty() {
            return Tried::default();
        }
        if let Some(why) = client::too_long(took, self.budget()) {
            let note = format!("no change was tried ({}), since {why}", words(&knobs));
            return Tried { note: Some(note), ..Tried::default() };
        }
        let left = self.budget().saturating_sub(clock.now().since(Time::ZERO));
        let others = knobs.split_off(client::fitting(left, took).min(knobs.len()));
        let note = (!others.is_empty()).then(|| {
            format!("not tried within the budget: {}; a larger --budget tries them", words(&others))
        });
        if !self.quiet {
            let (budget, took) = (format_duration(self.budget()), measured_time(took));
            let knobs = words(&knobs);
            say!(
                "the client is run again, for {took} or so, with and without: {knobs}; no round begins after {budget}"
            );
        }
        let first = run.repetitions.len() as u32;
        let knobs: Vec<(u32, Knob)> = (first..).zip(knobs).collect();
        let is_spent = || clock.now().since(Time::ZERO) >= self.budget();
        let (experiment, is_interrupted) = runs.rounds(&ours, &knobs, &is_spent);
        Tried { experiment: Some(experiment), note, is_interrupted }
    }
}

fn words(knobs: &[Knob]) -> String {
    knobs.iter().map(Knob::words).collect::<Vec<_>>().join(", ")
}

impl Runs<'_> {
    /// Rounds of the unchanged settings and of each change, until all are decided or the budget `is_spent`; and whether the
    /// user interrupted them.
    fn rounds(
        &mut self,
        ours: &Cell,
        knobs: &[(u32, Knob)],
        is_spent: &dyn Fn() -> bool,
    ) -> (Experiment, bool) {
        let mut runs: Vec<ClientRun> = Vec::new();
        let mut round = 0;
        loop {
            let experiment = client::experiment(&runs, ours.index, knobs);
            let open = experiment.open(knobs, round);
            if open.is_empty() || is_spent() {
                return (experiment, false);
            }
            let open = experiment.promising(open);
            let changed = open.iter().map(|(index, knob)| Cell { index: *index, ..knob.apply(ours) });
            let cells: Vec<Cell> = std::iter::once(ours.clone()).chain(changed).collect();
            for cell in plan::in_round(cells, round) {
                let (run, is_interrupted) = self.again(&cell);
                if is_interrupted {
                    // This run was cut short.
                    return (client::experiment(&runs, ours.index, knobs), true);
                }
                runs.push(run);
            }
            round += 1;
        }
    }

    /// One run more; and whether the user interrupted it. One that could not be made has no figures.
    fn again(&mut self, cell: &Cell) -> (ClientRun, bool) {
        let Made { done, captured, mut doubts, .. } = match self.make(cell) {
            Ok(made) => made,
            Err(error) => {
                let failure = error.downcast_ref::<Failure>();
                let is_interrupted = failure.is_some_and(|failure| failure.kind == FailureKind::Interrupted);
                let doubts = vec![with_causes(&error)];
                return (ClientRun { doubts, ..ClientRun::of(cell, &[]) }, is_interrupted);
            }
        };
        let killed = "the client was killed when its --time-limit was over";
        doubts.extend(done.ran_out.then(|| killed.to_owned()));
        let has_failed = !done.client.success();
        let run = ClientRun { took: done.took, has_failed, doubts, ..ClientRun::of(cell, &captured.records) };
        (run, done.is_interrupted)
    }
}
