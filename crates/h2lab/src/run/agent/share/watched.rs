//! What is watched of a share while it runs: its bytes, and how late its first request is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use h2lab_base::units::{Time, format_bytes};
use h2lab_model::record::Sample;

use super::RunningShare;
use h2lab_net::lock::lock;
use h2lab_roles::load::SampleListener;

/// Adds up the bytes of a share, and remembers its first request.
#[derive(Debug)]
pub(super) struct Watched {
    running: Arc<RunningShare>,
    /// The most bytes that it may move.
    most: Option<u64>,
    /// When the first request was due, in nanoseconds.
    earliest: AtomicU64,
    /// When it was due, and when it was sent.
    first: Mutex<Option<(Time, Time)>>,
}

impl Watched {
    pub(super) fn new(running: &Arc<RunningShare>, most: Option<u64>) -> Self {
        let running = Arc::clone(running);
        Self { running, most, earliest: AtomicU64::new(u64::MAX), first: Mutex::new(None) }
    }

    /// How long after it was due the first request was sent; zero if none was.
    pub(super) fn late(&self) -> Duration {
        let first = lock(&self.first).filter(|(_, sent)| sent.happened());
        first.map_or(Duration::ZERO, |(due, sent)| sent.since(due))
    }
}

impl SampleListener for Watched {
    fn ended(&self, _: u32, sample: &Sample) {
        let due = sample.scheduled_at.as_nanos();
        // Seldom: of the first requests, some may end before the very first.
        if due < self.earliest.load(Ordering::Relaxed) {
            let mut first = lock(&self.first);
            if first.is_none_or(|(earliest, _)| sample.scheduled_at < earliest) {
                *first = Some((sample.scheduled_at, sample.sent_at));
                self.earliest.store(due, Ordering::Relaxed);
            }
        }
    }

    fn moved(&self, bytes: u64) {
        let Some(most) = self.most else { return };
        let before = self.running.moved.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > most {
            self.running.end(|| format!("--max-bytes {} was reached", format_bytes(most)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(due: u64, sent: u64) -> Sample {
        Sample { sent_at: Time::from_millis(sent), ..Sample::due(Time::from_millis(due), true) }
    }

    #[test]
    fn a_share_is_as_late_as_its_first_request_and_not_as_the_one_that_ends_first() {
        let watched = Watched::new(&Arc::default(), None);
        assert_eq!(watched.late(), Duration::ZERO);
        watched.ended(0, &sample(5, 5));
        watched.ended(1, &sample(2, 5));
        watched.ended(0, &sample(7, 99));
        assert_eq!(watched.late(), Duration::from_millis(3));
    }

    /// Why a share has ended that may move `most` bytes, and has moved these: each attempt has a listener of its own.
    fn ended_by(most: Option<u64>, moved: &[u64]) -> Option<String> {
        let running = Arc::<RunningShare>::default();
        for bytes in moved {
            Watched::new(&running, most).moved(*bytes);
        }
        let why = running.limit.get().cloned();
        assert_eq!(running.stop.load(Ordering::Relaxed), why.is_some());
        why
    }

    #[test]
    fn a_share_ends_with_the_first_byte_above_what_the_agent_may_move() {
        assert_eq!(ended_by(Some(1_000), &[400, 600]), None);
        let why = ended_by(Some(1_000), &[400, 601, u64::MAX]).unwrap();
        assert_eq!(why, "--max-bytes 1000 B was reached");
        assert_eq!(ended_by(None, &[u64::MAX, 1]), None);
    }
}
