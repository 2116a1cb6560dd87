//! Shows how a run goes: a bar on a terminal, nothing when piped. Everything goes to stderr.

use std::io::IsTerminal;
use std::time::Duration;

use h2lab_core::record::CellRecord;
use h2lab_core::scenario::Cell;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::run::execute::Observer;
use crate::run::messages::{Failure, Progress};

/// A progress bar over all visits.
#[derive(Debug)]
pub struct Bar {
    shown: ProgressBar,
    label: String,
    /// Milliseconds of all visits before the running one.
    before: u64,
    /// Milliseconds of each visit, by its place in the plan.
    visits: Vec<u64>,
}

/// Time that a visit takes besides its phases: namespaces, processes, handshakes.
const SETUP: Duration = Duration::from_millis(250);

impl Bar {
    /// A bar for these visits.
    pub fn new(plan: &[Cell]) -> Self {
        let visits: Vec<u64> = plan.iter().map(|cell| millis(length_of(cell))).collect();
        let bar = ProgressBar::new(visits.iter().sum());
        if !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{bar:24} {percent:>3}%  {msg}  (ready in about {eta})")
            .expect("the template is a constant");
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        Self { shown: bar, label: String::new(), before: 0, visits }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.shown.finish_and_clear();
    }
}

/// How long a visit takes at most.
pub fn length_of(cell: &Cell) -> Duration {
    let phases = cell.work.phases;
    phases.warmup + phases.measure + phases.drain + SETUP
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What tells a cell from all others in one line.
pub fn describe(cell: &Cell) -> String {
    match &cell.link {
        None => format!("{} {}", cell.parties(), cell.label()),
        Some(link) => format!("{} over {}: {}", cell.parties(), link.uplink, cell.label()),
    }
}

impl Observer for Bar {
    fn begins(&mut self, k: usize, n: usize, cell: &Cell, attempt: u32) {
        let again = if attempt == 0 { String::new() } else { format!(" (try {})", attempt + 1) };
        self.label = format!("{}/{n} {}{again}", k + 1, describe(cell));
        self.before = self.visits[..k].iter().sum();
        self.shown.set_position(self.before);
        self.shown.set_message(self.label.clone());
    }

    fn progress(&mut self, progress: &Progress) {
        self.shown.set_position(self.before + (progress.elapsed_s.max(0.0) * 1e3) as u64);
        let open = progress.sent.saturating_sub(progress.completed + progress.failed);
        self.shown.set_message(format!("{}: {} answered, {open} open", self.label, progress.completed));
    }

    fn ended(&mut self, record: &CellRecord, doubts: &[String]) {
        if !doubts.is_empty() {
            self.shown.suspend(|| {
                eprintln!("note: the visit to {} is invalid: {}", describe(&record.cell), doubts.join("; "));
            });
        }
    }

    fn failed(&mut self, cell: &Cell, failure: &Failure) {
        self.shown.suspend(|| eprintln!("note: {}: unsupported: {failure}", describe(cell)));
    }
}
