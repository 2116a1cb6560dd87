//! Shows the progress of a run: a bar on a terminal, a line per repetition when piped. Everything goes to stderr.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, RunRecord};
use h2lab_model::scenario::{Cell, Estimate};
use h2lab_report::repetition_figures;

use super::note;
use crate::run::execute::RunObserver;
use crate::run::messages::{Failure, RepetitionProgress};
use crate::stderr::draw;
use crate::terminal::Terminal;
use h2lab_net::clock::Clock;

/// Columns of a bar.
const BAR: usize = 24;

/// A progress line on stderr, which is removed when this value is dropped. Nothing is shown where a line cannot be
/// overwritten.
#[derive(Debug)]
pub struct ProgressLine {
    is_hidden: bool,
}

impl ProgressLine {
    /// A line, unless it is not wanted or not visible.
    pub fn new(is_quiet: bool) -> Self {
        Self { is_hidden: is_quiet || !Terminal::stderr().takes_escapes }
    }

    /// Whether it is not visible.
    pub const fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// Shows `words` instead of what was there.
    pub fn show(&self, words: &str) {
        if !self.is_hidden {
            draw(words);
        }
    }

    /// Shows a bar, filled so far of 1, before the `words`.
    pub fn show_share(&self, share: f64, words: &str) {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.show(&format!("{} {:>3.0}%  {words}", bar(share, BAR), (share * 100.0).floor()));
    }

    /// Removes it.
    pub fn clear(&self) {
        self.show("");
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A bar of `room` columns.
pub fn bar(share: f64, room: usize) -> String {
    let filled = (share * room as f64).round() as usize;
    format!("{}{}", "━".repeat(filled), "─".repeat(room.saturating_sub(filled)))
}

/// A progress bar over all repetitions, or a line for each where there is no terminal.
#[derive(Debug)]
pub struct PlanProgressBar {
    shown: ProgressLine,
    /// Whether each repetition has a line.
    has_lines: bool,
    label: String,
    /// The running repetition's place in the plan, of how many, and when its first try began.
    running: (usize, usize),
    began: Time,
    clock: Clock,
    estimate: Estimate,
}

impl PlanProgressBar {
    /// A bar for the repetitions of `plan` that `run` does not have yet. A quiet one prints only what is wrong with them.
    pub fn new(plan: &[Cell], run: &RunRecord, is_quiet: bool) -> Self {
        let estimate = estimate(plan, run);
        let shown = ProgressLine::new(is_quiet);
        let has_lines = shown.is_hidden() && !is_quiet;
        let clock = Clock::start();
        Self {
            shown,
            has_lines,
            label: String::new(),
            running: (0, plan.len()),
            began: clock.now(),
            clock,
            estimate,
        }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.shown.clear();
    }

    /// Shows the progress of the run: the time that has passed, as a share of that and the time that is left.
    fn show(&self, words: &str) {
        let left = self.estimate.left(self.clock.now().since(self.began));
        let passed = self.clock.now().since(Time::ZERO).as_secs_f64();
        // The cell's name may be long: what changes comes first.
        let message = format!("about {} left; {}{words}", about(left), self.label);
        self.shown.show_share(passed / (passed + left.as_secs_f64()), &message);
    }
}

/// How long the repetitions of `plan` take that `run` does not have yet.
pub fn estimate(plan: &[Cell], run: &RunRecord) -> Estimate {
    let mut estimate = Estimate::new(plan);
    let made = plan.iter().enumerate().filter(|(_, cell)| run.has(cell));
    made.for_each(|(k, _)| estimate.skip(k));
    estimate
}

/// An approximate time: `84 s`, `12 min`, `3.5 h`.
pub fn about(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 99.5 {
        format!("{seconds:.0} s")
    } else if seconds < 99.5 * 60.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// What distinguishes a cell from most others, in one line; the values of its sysctls are in the report.
pub fn describe(cell: &Cell) -> String {
    match &cell.link {
        None => format!("{} {}", cell.parties(), cell.label()),
        Some(link) => {
            let sysctls: Vec<String> = cell.sysctls.rendered().collect();
            let sysctls = match sysctls.as_slice() {
                [] => String::new(),
                [one] => format!(", {one}"),
                several => format!(", {} sysctls", several.len()),
            };
            let congestion = cell.congestion.as_ref().map_or(String::new(), |name| format!(", {name}"));
            format!("{} over {}{congestion}{sysctls}: {}", cell.parties(), link.uplink, cell.label())
        }
    }
}

impl RunObserver for PlanProgressBar {
    fn begins(&mut self, k: usize, n: usize, cell: &Cell, attempt: u32) {
        if attempt == 0 {
            (self.running, self.began) = ((k, n), self.clock.now());
        }
        let again = if attempt == 0 { String::new() } else { format!(" (try {})", attempt + 1) };
        self.label = format!("{}/{n} {}{again}", k + 1, describe(cell));
        self.show("");
    }

    fn progress(&mut self, progress: &RepetitionProgress) {
        let open = progress.sent.saturating_sub(progress.completed + progress.failed);
        self.show(&format!(": {} answered, {open} open", progress.completed));
    }

    fn invalid(&mut self, cell: &Cell, doubts: &[String]) {
        let (cell, doubts) = (describe(cell), doubts.join("; "));
        note(&format_args!("the repetition of {cell} is invalid: {doubts}"));
    }

    fn finished(&mut self, k: usize, record: &CellRecord) {
        let took = self.clock.now().since(self.began);
        self.estimate.finished(k, record.attempt + 1, took);
        self.began = self.clock.now();
        let figures = repetition_figures(record).map_or(String::new(), |figures| format!(": {figures}"));
        if self.has_lines {
            let left = about(self.estimate.left(Duration::ZERO));
            let took = took.as_secs_f64();
            let line = format!("{}{figures}; in {took:.1} s, about {left} left", self.label);
            say!("{line}");
        } else if !self.shown.is_hidden() && !figures.is_empty() {
            say!("{}{figures}", self.label);
        }
    }

    fn failed(&mut self, cell: &Cell, failure: &Failure) {
        self.estimate.skip_cell(cell.index);
        note(&format_args!("{}: unsupported: {failure}", describe(cell)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        assert_eq!([bar(0.0, 4), bar(0.5, 4), bar(1.0, 4)], ["────", "━━──", "━━━━"]);
    }

    #[test]
    fn times_are_reported_as_exactly_as_they_are_known() {
        let reported = |seconds| about(Duration::from_secs(seconds));
        assert_eq!(
            [reported(0), reported(99), reported(100), reported(5_940)],
            ["0 s", "99 s", "2 min", "99 min"]
        );
        assert_eq!([reported(6_000), reported(86_400)], ["1.7 h", "24.0 h"]);
    }
}
