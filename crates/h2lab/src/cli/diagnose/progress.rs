//! How a diagnosis shows its progress.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::scenario::Cell;
use h2lab_model::workload::Arrival;
use h2lab_net::clock::Clock;
use h2lab_report::repetition_figures;

use crate::cli::note;
use crate::cli::progress::{ProgressLine, describe};
use crate::run::execute::RunObserver;
use crate::run::messages::{Failure, RepetitionProgress};

/// A bar of the budget on a terminal, a line for each repetition elsewhere.
pub(super) struct Progress {
    pub line: ProgressLine,
    has_lines: bool,
    budget: Duration,
    label: String,
    clock: Clock,
}

impl Progress {
    pub fn new(is_quiet: bool, budget: Duration) -> Self {
        let line = ProgressLine::new(is_quiet);
        let has_lines = line.is_hidden() && !is_quiet;
        Self { line, has_lines, budget, label: String::new(), clock: Clock::start() }
    }

    fn show(&self, words: &str) {
        let passed = self.clock.now().since(Time::ZERO);
        let share = passed.as_secs_f64() / self.budget.as_secs_f64().max(f64::MIN_POSITIVE);
        self.line.show_share(share, &format!("{}{words}", self.label));
    }
}

impl RunObserver for Progress {
    fn begins(&mut self, _: usize, _: usize, cell: &Cell, attempt: u32) {
        let again = if attempt == 0 { String::new() } else { format!(" (try {})", attempt + 1) };
        let stage = match cell.work.arrival {
            Arrival::Ramp { from, to, .. } => format!("ramp {from:.0} to {to:.0}/s"),
            _ => format!("round {}", cell.repetition + 1),
        };
        self.label = format!("{stage} {}{again}", describe(cell));
        self.show("");
    }

    fn progress(&mut self, progress: &RepetitionProgress) {
        self.show(&format!(": {} answered", progress.completed));
    }

    fn invalid(&mut self, cell: &Cell, doubts: &[String]) {
        self.line.clear();
        note(&format_args!("the repetition of {} is invalid: {}", describe(cell), doubts.join("; ")));
    }

    fn finished(&mut self, _: usize, record: &CellRecord) {
        if self.has_lines {
            let figures = repetition_figures(record).map_or(String::new(), |figures| format!(": {figures}"));
            say!("{}{figures}", self.label);
        }
    }

    fn failed(&mut self, cell: &Cell, failure: &Failure) {
        self.line.clear();
        note(&format_args!("{}: unsupported: {failure}", describe(cell)));
    }
}
