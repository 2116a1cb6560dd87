//! How what several threads measured becomes one result.

use std::time::Duration;

use h2lab_base::counters::TcpTick;
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, measured_time};
use h2lab_model::record::merge::{Beside, Measured};
use h2lab_model::record::{ConnectionRecord, GeneratorSummary, Sample, Tally};
use h2lab_wire::trace::FrameEvent;

use super::recorder::{FULL_RATE, MOST_SAMPLES, Recorder};
use crate::client::slots::OpenSessions;
use h2lab_net::clock::Clock;

/// What one thread has measured.
pub(super) struct Done {
    pub started_at: Time,
    pub recorder: Recorder,
    pub connections: Vec<ConnectionRecord>,
    /// In no order.
    pub frames: Vec<FrameEvent>,
    pub frames_lost: u64,
    pub tcp: Vec<TcpTick>,
    pub generator: GeneratorSummary,
    pub interrupted: bool,
    /// The connections that are still open.
    pub open: OpenSessions,
    pub clock: Clock,
}

/// What a cell gave, as the record has it.
#[derive(Debug, Clone, Default)]
pub struct LoadResult {
    /// When the first request was due.
    pub started_at: Time,
    /// Every request, in the order of `scheduled_at`; below [`Level::Full`] those that were kept.
    pub samples: Vec<Sample>,
    /// Every request, counted: below [`Level::Full`], else empty.
    pub tallies: Vec<Tally>,
    /// Every connection, by index.
    pub connections: Vec<ConnectionRecord>,
    /// Every frame, in the order of `at`.
    pub frames: Vec<FrameEvent>,
    /// `TCP_INFO` of our ends over time.
    pub tcp: Vec<TcpTick>,
    /// How the generator did.
    pub generator: GeneratorSummary,
    /// Doubts that arose, in sentences.
    pub warnings: Vec<String>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// A finished cell. Its connections stay open until this is closed or dropped, so that the server's ends of them can be
/// inspected first.
#[derive(Debug)]
pub struct Finished {
    /// What was measured.
    pub result: LoadResult,
    open: OpenSessions,
    clock: Clock,
}

impl Finished {
    /// Closes the connections that are still open, in order.
    pub fn close(mut self) -> LoadResult {
        let now = self.clock.now();
        for session in &mut self.open {
            session.close_gracefully(now);
        }
        self.result
    }
}

/// One result of what the threads measured, see [`Measured::together`].
pub(super) fn merge(parts: Vec<Done>) -> Finished {
    let (clock, started_at) = (parts[0].clock, parts[0].started_at);
    let interrupted = parts.iter().any(|part| part.interrupted);
    let level = parts.iter().map(|part| part.recorder.level()).max().unwrap_or_default();
    let slice_ns = parts.iter().map(|part| part.recorder.slice_ns()).max().unwrap_or_default();
    let warnings = warnings(&parts);
    let mut open = Vec::new();
    let measured = parts.into_iter().map(|mut part| {
        open.append(&mut part.open);
        let (samples, tallies) = part.recorder.finish(level, slice_ns);
        Measured {
            samples,
            tallies,
            connections: part.connections,
            frames: part.frames,
            tcp: part.tcp,
            generator: GeneratorSummary { level, ..part.generator },
        }
    });
    let all = Measured::together(measured, Beside::Threads);
    let result = LoadResult {
        started_at,
        samples: all.samples,
        tallies: all.tallies,
        connections: all.connections,
        frames: all.frames,
        tcp: all.tcp,
        generator: all.generator,
        warnings,
        interrupted,
    };
    Finished { result, open, clock }
}

/// Doubts in what the threads recorded.
fn warnings(parts: &[Done]) -> Vec<String> {
    let switches: Vec<_> = parts.iter().map(|part| part.recorder.went_over).collect();
    let mut warnings: Vec<String> = went_over(&switches).into_iter().collect();
    let frames_lost = parts.iter().map(|part| part.frames_lost).sum::<u64>();
    if frames_lost > 0 {
        let why = "the cell has more of them than are kept";
        warnings.push(format!("{frames_lost} frames were not recorded: {why}"));
    }
    let kept_one_in = parts.iter().map(|part| part.recorder.kept_one_in()).max().unwrap_or(1);
    if kept_one_in > 1 {
        warnings.push(format!(
            "one in {kept_one_in} of the slow and failed requests was kept as a sample; all are counted, and in the histograms"
        ));
    }
    warnings
}

/// That requests were too many to keep each of them, if a thread found that: after how long, and how many the first that did had
/// kept by then. How many all had is not known: they are not equally fast.
fn went_over(threads: &[Option<(Duration, usize)>]) -> Option<String> {
    let (after, kept) = threads.iter().copied().flatten().min()?;
    let by = if threads.len() > 1 { format!(" on one of {} threads", threads.len()) } else { String::new() };
    Some(format!(
        "recording switched from full to tail after {} and {}{by}: above {}/s, or {} in all, not every request is kept, and \
         rules that need each of them find nothing; --record full keeps all",
        measured_time(after),
        plural(kept as u64, "request"),
        count(FULL_RATE as u64),
        count(MOST_SAMPLES as u64),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_over_to_a_tail_is_reported_with_the_figures_of_the_first_thread_that_did() {
        assert_eq!(went_over(&[None, None]), None);
        let reported =
            went_over(&[Some((Duration::from_secs(9), 10)), None, Some((Duration::from_secs(4), 400_000))]);
        let reported = reported.expect("two went over");
        for words in [
            "from full to tail",
            "after 4 s and 400,000 requests on one of 3 threads",
            "above 50,000/s, or 400,000 in all",
            "--record full",
        ] {
            assert!(reported.contains(words), "{words}: {reported}");
        }
    }
}
