//! Shows how a run goes: a bar on a terminal, a line per repetition when piped. Everything goes to stderr.

use std::io::IsTerminal;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, RunRecord};
use h2lab_model::scenario::{Cell, Estimate};
use h2lab_report::{TextStyle, repetition_figures};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::note;
use super::output::takes_unicode;
use crate::run::execute::RunObserver;
use crate::run::messages::{Failure, RepetitionProgress};
use h2lab_net::clock::Clock;

/// Columns of a bar, its percentage, and the spaces between.
pub const BAR: usize = 24 + 1 + 4 + 2;
/// Columns that stay free behind it: a terminal echoes Ctrl-C there, and what is echoed must not wrap.
const FREE: usize = 3;

/// A bar on stderr that no line of it outlasts; nothing if it `is_hidden` or stderr is no terminal.
pub fn bar(is_hidden: bool) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let is_terminal = std::io::stderr().is_terminal();
    if is_hidden || !is_terminal {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let chars = if takes_unicode(is_terminal) { "█▉▊▋▌▍▎▏ " } else { "=> " };
    let style = ProgressStyle::with_template("{bar:24} {percent:>3}%  {msg}").expect("it is a constant");
    bar.set_style(style.progress_chars(chars));
    bar
}

/// As much of `words` as has room in a line, behind a bar of so many columns: what wraps is not removed again.
pub fn fitted(words: &str, bar: usize) -> String {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).map(|size| usize::from(size.ws_col));
    let columns = size.ok().filter(|columns| *columns > 0).unwrap_or(80);
    let style = TextStyle { unicode: takes_unicode(std::io::stderr().is_terminal()), ..TextStyle::default() };
    cut(style.printable(words.to_owned()), columns.saturating_sub(bar + FREE))
}

/// The first `room` characters, the last of them dots if there are more.
fn cut(words: String, room: usize) -> String {
    if words.chars().count() <= room {
        return words;
    }
    let dots = "...".chars().take(room);
    words.chars().take(room.saturating_sub(3)).chain(dots).collect()
}

/// A progress bar over all repetitions, or a line for each where there is no terminal.
#[derive(Debug)]
pub struct PlanProgressBar {
    shown: ProgressBar,
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
        let bar = bar(is_quiet);
        bar.set_length(millis(estimate.left(Duration::ZERO)));
        let is_piped = !std::io::stderr().is_terminal();
        let clock = Clock::start();
        Self {
            shown: bar,
            has_lines: is_piped && !is_quiet,
            label: String::new(),
            running: (0, plan.len()),
            began: clock.now(),
            clock,
            estimate,
        }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.shown.finish_and_clear();
    }

    /// Shows how far the run is: the time that has passed, of that and the time that is left.
    fn show(&self, words: &str) {
        let left = self.estimate.left(self.clock.now().since(self.began));
        let passed = millis(self.clock.now().since(Time::ZERO));
        self.shown.set_length(passed + millis(left));
        self.shown.set_position(passed);
        // The cell's name may be long: what changes comes first.
        let message = format!("about {} left; {}{words}", about(left), self.label);
        self.shown.set_message(fitted(&message, BAR));
    }
}

/// How long the repetitions of `plan` take that `run` has not.
pub fn estimate(plan: &[Cell], run: &RunRecord) -> Estimate {
    let mut estimate = Estimate::new(plan);
    let made = plan.iter().enumerate().filter(|(_, cell)| run.has(cell));
    made.for_each(|(k, _)| estimate.skip(k));
    estimate
}

/// A time that is not meant exactly: `84 s`, `12 min`, `3.5 h`.
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
            format!("{} over {}{sysctls}: {}", cell.parties(), link.uplink, cell.label())
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
        self.shown.suspend(|| note(&format_args!("the repetition of {cell} is invalid: {doubts}")));
    }

    fn finished(&mut self, k: usize, record: &CellRecord) {
        let took = self.clock.now().since(self.began);
        self.estimate.finished(k, record.attempt + 1, took);
        self.began = self.clock.now();
        let figures = repetition_figures(record).map_or(String::new(), |figures| format!(": {figures}"));
        if self.has_lines {
            let left = about(self.estimate.left(Duration::ZERO));
            say!("{}{figures}; in {:.1} s, about {left} left", self.label, took.as_secs_f64());
        } else if !self.shown.is_hidden() && !figures.is_empty() {
            self.shown.suspend(|| say!("{}{figures}", self.label));
        }
    }

    fn failed(&mut self, cell: &Cell, failure: &Failure) {
        self.estimate.skip_cell(cell.index);
        self.shown.suspend(|| note(&format_args!("{}: unsupported: {failure}", describe(cell))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_where_the_terminal_ends() {
        let words = || "3/16 direct over RTT 25ms: h2c × 1".to_owned();
        assert_eq!(cut(words(), 34), words());
        assert_eq!(cut(words(), 12), "3/16 dire...");
        assert_eq!((cut(words(), 2), cut(words(), 0)), ("..".to_owned(), String::new()));
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
