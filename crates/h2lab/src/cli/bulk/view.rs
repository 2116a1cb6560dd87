//! How far a transfer is: a bar on a terminal, nothing when stderr is piped.

use std::fmt::Write as _;
use std::time::Duration;

use h2lab_base::units::{format_bytes, format_duration};
use h2lab_model::bulk::rate::bits_text;
use indicatif::ProgressBar;

use super::super::progress::{BAR, bar, fitted};
use h2lab_roles::bulk::BulkProgress;

/// Over which time the rate is shown.
const RECENT: Duration = Duration::from_secs(2);

/// A bar over the bytes of all files.
#[derive(Debug)]
pub struct BulkView {
    bar: ProgressBar,
}

impl BulkView {
    /// A bar, unless it would not be seen.
    pub fn new(is_quiet: bool) -> Self {
        Self { bar: bar(is_quiet) }
    }

    /// Shows how far it is.
    pub fn show(&self, progress: &BulkProgress<'_>) {
        if self.bar.is_hidden() {
            return;
        }
        let (here, total) = progress.transfers.amount();
        self.bar.set_length(total);
        self.bar.set_position(here);
        self.bar.set_message(fitted(&words(progress, here, total), BAR));
    }
}

impl Drop for BulkView {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// `1.2 GiB of 10 GiB, 8.41 Gbit/s, 9s left`.
fn words(progress: &BulkProgress<'_>, here: u64, total: u64) -> String {
    let BulkProgress { now, meter, transfers } = progress;
    let mut words = format!("{} of {}", format_bytes(here), format_bytes(total));
    if let Some(rate) = meter.recent(*now, RECENT) {
        let _ = write!(words, ", {}", bits_text(rate));
    }
    if let Some(left) = meter.time_left(*now, total.saturating_sub(here)) {
        let _ = write!(words, ", {} left", format_duration(Duration::from_secs(left.as_secs())));
    }
    let (files, over) = transfers.count();
    if files > 1 {
        let _ = write!(words, "; {over} of {files} files");
    }
    words
}
