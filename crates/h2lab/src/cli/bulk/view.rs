//! How far a transfer is: a bar on a terminal, nothing when stderr is piped.

use std::fmt::Write as _;
use std::time::Duration;

use h2lab_base::units::{Time, format_bytes, format_duration};
use h2lab_model::bulk::rate::bits_text;

use super::super::progress::ProgressLine;
use h2lab_roles::bulk::BulkProgress;

/// Over which time the rate is shown.
const RECENT: Duration = Duration::from_secs(2);

/// A bar over the bytes of all files; over time, if it ends by time.
#[derive(Debug)]
pub struct BulkView {
    line: ProgressLine,
    duration: Option<Duration>,
}

impl BulkView {
    /// A bar, unless it would not be seen.
    pub fn new(is_quiet: bool, duration: Option<Duration>) -> Self {
        Self { line: ProgressLine::new(is_quiet), duration }
    }

    /// Shows how far it is.
    pub fn show(&self, progress: &BulkProgress<'_>) {
        if !self.line.is_hidden() {
            let (share, words) = self.words(progress);
            self.line.show_share(share, &words);
        }
    }

    /// How far it is, of 1, and `1.2 GiB of 10 GiB, 8.41 Gbit/s, 9s left`.
    fn words(&self, progress: &BulkProgress<'_>) -> (f64, String) {
        let BulkProgress { now, meter, transfers } = progress;
        let (here, total) = transfers.amount();
        let (share, mut words, left) = match self.duration {
            Some(duration) => by_time(now.since(Time::ZERO), duration, here),
            None => (
                here as f64 / total as f64,
                format!("{} of {}", format_bytes(here), format_bytes(total)),
                meter.time_left(*now, total.saturating_sub(here)),
            ),
        };
        if let Some(rate) = meter.recent(*now, RECENT) {
            let _ = write!(words, ", {}", bits_text(rate));
        }
        if let Some(left) = left {
            let _ = write!(words, ", {} left", format_duration(Duration::from_secs(left.as_secs())));
        }
        let (files, over) = transfers.count();
        if files > 1 && self.duration.is_none() {
            let _ = write!(words, "; {over} of {files} files");
        }
        (share, words)
    }
}

/// The same of work that ends by time: how many bytes will have moved is not known.
fn by_time(passed: Duration, all: Duration, here: u64) -> (f64, String, Option<Duration>) {
    let share = passed.as_secs_f64() / all.as_secs_f64();
    (share, format_bytes(here), Some(all.saturating_sub(passed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_ends_by_time_is_as_far_as_its_time() {
        let second = Duration::from_secs(1);
        assert_eq!(by_time(second, 4 * second, 1 << 30), (0.25, "1 GiB".to_owned(), Some(3 * second)));
        assert_eq!(by_time(5 * second, 4 * second, 0), (1.25, "0 B".to_owned(), Some(Duration::ZERO)));
    }
}
