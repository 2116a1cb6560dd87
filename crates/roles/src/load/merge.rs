//! How what several threads measured becomes one result.

use std::time::Duration;

use h2lab_base::counters::TcpTick;
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, measured_time};
use h2lab_model::record::{ConnectionRecord, GeneratorSummary, Sample, Tally, tally};
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

/// One result of what the threads measured: connections numbered on, samples in the order of `scheduled_at`, frames and
/// ticks in the order of time, tallies joined.
pub(super) fn merge(parts: Vec<Done>) -> Finished {
    let clock = parts[0].clock;
    let level = parts.iter().map(|part| part.recorder.level()).max().unwrap_or_default();
    let mut result = LoadResult { started_at: parts[0].started_at, ..LoadResult::default() };
    let (mut open, mut tallies) = (Vec::new(), Vec::new());
    let (mut frames_lost, mut kept_one_in) = (0, 1);
    let switches: Vec<_> = parts.iter().map(|part| part.recorder.went_over).collect();
    result.warnings.extend(went_over(&switches));
    let slice_ns = parts.iter().map(|part| part.recorder.slice_ns()).max().unwrap_or_default();
    for mut part in parts {
        let before = result.connections.len() as u32;
        frames_lost += part.frames_lost;
        kept_one_in = kept_one_in.max(part.recorder.kept_one_in());
        let (mut samples, counted) = part.recorder.finish(level, slice_ns);
        if before > 0 {
            let assigned = samples.iter_mut().filter(|sample| sample.connection != Sample::NO_CONNECTION);
            assigned.for_each(|sample| sample.connection += before);
            part.connections.iter_mut().for_each(|connection| connection.index += before);
            part.frames.iter_mut().for_each(|frame| frame.connection += before);
            part.tcp.iter_mut().for_each(|tick| tick.connection += before);
        }
        join(&mut result.samples, &mut samples);
        tallies.push(counted);
        join(&mut result.connections, &mut part.connections);
        join(&mut result.frames, &mut part.frames);
        join(&mut result.tcp, &mut part.tcp);
        open.append(&mut part.open);
        add(&mut result.generator, &part.generator);
        result.interrupted |= part.interrupted;
    }
    put_in_order(&mut result.samples);
    result.frames.sort_by_key(|frame| frame.at);
    result.tcp.sort_by_key(|tick| tick.at);
    result.tallies = tally::merge(tallies);
    result.generator.level = level;
    if frames_lost > 0 {
        let why = "the cell has more of them than are kept";
        result.warnings.push(format!("{frames_lost} frames were not recorded: {why}"));
    }
    if kept_one_in > 1 {
        result.warnings.push(format!(
            "one in {kept_one_in} of the slow and failed requests was kept as a sample; all are counted, and in the histograms"
        ));
    }
    Finished { result, open, clock }
}

/// Orders samples by `scheduled_at`, and by their numbers those that were due together, as requests of a closed loop are.
///
/// Numbers are given in the order in which requests become due. Where one thread kept each of them, a sample's number is its
/// place, and nothing is sorted. Elsewhere what is sorted is their keys: a sample is so large that moving it at each step of a
/// sort took a sixth of all instructions of a load.
fn put_in_order(samples: &mut [Sample]) {
    if let Some(order) = order_of_numbers(samples) {
        move_to(samples, order);
    }
    let key = |sample: &Sample| (sample.scheduled_at, sample.number);
    if !samples.is_sorted_by_key(key) {
        let mut keys: Vec<_> =
            samples.iter().enumerate().map(|(index, sample)| (key(sample), index as u32)).collect();
        keys.sort_unstable();
        move_to(samples, keys.into_iter().map(|(_, index)| index).collect());
    }
}

/// The indices of samples in the order of their numbers; `None` unless those are all from 0 on.
fn order_of_numbers(samples: &[Sample]) -> Option<Vec<u32>> {
    let mut order = vec![u32::MAX; samples.len()];
    for (index, sample) in samples.iter().enumerate() {
        let place = order.get_mut(sample.number as usize)?;
        if *place != u32::MAX {
            return None;
        }
        *place = index as u32;
    }
    Some(order)
}

/// Puts at each place the sample whose index `order` has there. Each moves once, and not far, since requests end nearly in the
/// order in which they were due.
fn move_to(samples: &mut [Sample], mut order: Vec<u32>) {
    for first in 0..samples.len() {
        let waiting = samples[first];
        let mut place = first;
        // Around the circle of those that take each other's places.
        loop {
            let from = std::mem::replace(&mut order[place], place as u32) as usize;
            if from == first {
                samples[place] = waiting;
                break;
            }
            samples[place] = samples[from];
            place = from;
        }
    }
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

/// Appends `more`; what is alone, as often it is, is not copied.
fn join<T>(all: &mut Vec<T>, more: &mut Vec<T>) {
    if all.is_empty() {
        std::mem::swap(all, more);
    } else {
        all.append(more);
    }
}

/// Adds what another thread used.
fn add(sum: &mut GeneratorSummary, part: &GeneratorSummary) {
    sum.threads += part.threads;
    sum.cpu_ns += part.cpu_ns;
    sum.wall_ns = sum.wall_ns.max(part.wall_ns);
    sum.awake_ns += part.awake_ns;
    sum.stolen_ns = sum.stolen_ns.max(part.stolen_ns);
    sum.busiest_ns = sum.busiest_ns.max(part.cpu_ns.saturating_sub(part.awake_ns));
    sum.backlog_at_cut += part.backlog_at_cut;
    // A process that is stopped stops all of them at a time.
    sum.paused_ns = sum.paused_ns.max(part.paused_ns);
    sum.longest_pause_ns = sum.longest_pause_ns.max(part.longest_pause_ns);
    // It is one process: the last measurement covers all of it.
    sum.memory.connected = sum.memory.connected.max(part.memory.connected);
    sum.memory.peak = sum.memory.peak.max(part.memory.peak);
}

#[cfg(test)]
mod tests {
    use h2lab_wire::StreamId;

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

    #[test]
    fn samples_are_ordered_by_when_they_were_due_and_then_by_their_numbers() {
        let in_order = |samples: &[(u64, u32)]| {
            let sample =
                |&(ms, number): &(u64, u32)| Sample { number, ..Sample::due(Time::from_millis(ms), true) };
            let mut samples: Vec<Sample> = samples.iter().map(sample).collect();
            put_in_order(&mut samples);
            let places = samples.iter().map(|sample| (sample.scheduled_at, sample.number));
            places.collect::<Vec<_>>()
        };
        let assert_order = |given: &[(u64, u32)], expected: &[(u64, u32)]| {
            let due = |&(ms, number): &(u64, u32)| (Time::from_millis(ms), number);
            assert_eq!(in_order(given), expected.iter().map(due).collect::<Vec<_>>());
        };
        // Each was kept, by one thread.
        assert_order(&[(1, 1), (2, 2), (1, 0), (3, 3)], &[(1, 0), (1, 1), (2, 2), (3, 3)]);
        // By two threads, the second of which was late.
        assert_order(&[(1, 0), (2, 2), (3, 1), (4, 3)], &[(1, 0), (2, 2), (3, 1), (4, 3)]);
        // Not each was kept.
        assert_order(&[(2, 9), (2, 4), (1, 2)], &[(1, 2), (2, 4), (2, 9)]);
        // Two are from elsewhere, without a number.
        assert_order(&[(2, 0), (1, 0)], &[(1, 0), (2, 0)]);
        assert_order(&[], &[]);
    }

    #[test]
    fn each_sample_is_still_there_once_it_is_in_order() {
        for of in [1, 2, 997] {
            // 7 generates all remainders of 997, so that the places change in long circles; some are due together.
            let places = (0..of).map(|number: u32| number * 7 % of);
            for (each, together) in [(1, 1), (1, 3), (2, 1), (2, 3)] {
                let sample = |number: u32| Sample {
                    number: number * each,
                    stream: StreamId(number),
                    ..Sample::due(Time::from_millis(u64::from(number / together)), true)
                };
                let mut samples: Vec<Sample> = places.clone().map(sample).collect();
                put_in_order(&mut samples);
                assert!(samples == (0..of).map(sample).collect::<Vec<_>>(), "{of} {each} {together}");
            }
        }
    }
}
