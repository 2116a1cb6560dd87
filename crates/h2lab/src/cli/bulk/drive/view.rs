//! How far a drive is: a line on a terminal, nothing when stderr is piped.

use std::time::Duration;

use super::super::super::progress::ProgressLine;
use h2lab_base::units::{Time, format_bytes, format_duration};
use h2lab_model::bulk::ByteMeter;
use h2lab_model::fleet::{Coordinator, Stage};

/// Over which time the rate is shown.
const RECENT: Duration = Duration::from_secs(2);

/// A line that changes.
#[derive(Debug)]
pub struct DriveView {
    line: ProgressLine,
    meter: Option<ByteMeter>,
}

impl DriveView {
    /// A line, unless it would not be seen.
    pub fn new(is_quiet: bool) -> Self {
        Self { line: ProgressLine::new(is_quiet), meter: None }
    }

    /// Shows how far it is.
    pub fn show(&mut self, coordinator: &Coordinator, now: Time) {
        if self.line.is_hidden() {
            return;
        }
        let words = match coordinator.stage() {
            Stage::Comparing(_) => "starting the agents".to_owned(),
            Stage::Planning(_) => "sending the plan".to_owned(),
            Stage::Running { start, .. } => self.running(coordinator, start, now),
            Stage::Closing(_) => "collecting the servers' figures".to_owned(),
            Stage::Over => String::new(),
        };
        self.line.show(&words);
    }

    /// `1.2 GiB, 8.41 Gbit/s, 9s left; 1 of 4 pairs done`.
    fn running(&mut self, coordinator: &Coordinator, start: Time, now: Time) -> String {
        let (bytes, over) = coordinator.progress();
        let meter = self.meter.get_or_insert_with(|| ByteMeter::new(start));
        meter.add(now, bytes.saturating_sub(meter.total()));
        let rate = meter.recent(now, RECENT).unwrap_or(0.0) / 1e9;
        let job = coordinator.job();
        let left = Duration::from_secs((start + job.duration).since(now).as_secs());
        let pairs = job.plan.pairs.len();
        format!(
            "{}, {rate:.2} Gbit/s, {} left; {over} of {pairs} pairs done",
            format_bytes(bytes),
            format_duration(left)
        )
    }
}
