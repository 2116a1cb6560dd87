//! Finished requests: kept one by one, or counted once they are too many.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::histogram::{DurationMeter, Histogram};
use h2lab_model::record::tally;
use h2lab_model::record::tally::Tallier;
use h2lab_model::record::{Level, Sample, TailSample, Tally};
use h2lab_model::workload::Phases;

/// The rate up to which every request is kept by default, per second and over all threads.
pub const FULL_RATE: f64 = 50_000.0;

/// So many requests are kept at any rate, over all threads: a short run is known exactly. More would have a cost: a kept request
/// takes a third of a microsecond afterwards, for the run folder and the report.
pub const FULL_BURST: usize = 1 << 17;

/// More are kept only where [`Level::Full`] was asked for, over all threads: 100 bytes each, so 40 MB. A load may last for hours.
pub const MOST_SAMPLES: usize = 400_000;

/// At [`Level::Tail`] so many are kept, over all threads, before the choice becomes stricter: 10 MB.
const MOST_OF_TAIL: usize = 100_000;

/// So many of the first samples are counted at a time after the change to [`Level::Tail`]: a millisecond, so that no request is late
/// for it.
const COUNTED_AT_A_TIME: usize = 10_000;

/// How to record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recording {
    /// The level asked for; `None` begins with [`Level::Full`] and goes over to [`Level::Tail`] when requests are too many.
    pub level: Option<Level>,
    /// How many threads share the bounds.
    pub threads: u32,
    /// Of the uniform sample.
    pub seed: u64,
    /// Of the cell.
    pub phases: Phases,
}

/// Records the finished requests of one thread.
#[derive(Debug)]
pub(super) struct Recorder {
    recording: Recording,
    level: Level,
    start: Time,
    samples: Vec<Sample>,
    /// Below [`Level::Full`].
    tallier: Option<Tallier>,
    /// What was recorded before that, if it changed by itself.
    first: Option<First>,
    tail: TailSample,
    /// Response times of successes since the last [`Recorder::look`], below [`Level::Full`].
    recent: DurationMeter,
    /// Samples before this one have been processed.
    looked_at: usize,
    /// When it switched to [`Level::Tail`] by itself, and how many requests it had kept by then.
    pub went_over: Option<(Duration, usize)>,
}

/// The samples that were recorded before the recording changed to [`Level::Tail`]. They are counted a part at a time.
#[derive(Debug)]
struct First {
    samples: Vec<Sample>,
    /// So many are counted.
    counted: usize,
    tallier: Tallier,
    /// Those of them that are kept.
    kept: Vec<Sample>,
}

impl First {
    /// Counts at most so many.
    fn count(&mut self, most: usize, tail: &mut TailSample) {
        let until = self.samples.len().min(self.counted.saturating_add(most));
        tail.count(&self.samples[self.counted..until], &mut self.tallier, &mut self.kept);
        self.counted = until;
        if until == self.samples.len() {
            (self.samples, self.counted) = (Vec::new(), 0);
        }
    }
}

impl Recorder {
    /// Makes room for so many requests, as far as each will be kept.
    pub fn new(recording: Recording, expected: usize) -> Self {
        let level = recording.level.unwrap_or(Level::Full);
        let room = if level == Level::Full { expected } else { 0 };
        Self {
            recording,
            level,
            start: Time::ZERO,
            samples: Vec::with_capacity(room.min(MOST_SAMPLES)),
            tallier: None,
            first: None,
            tail: TailSample::new(recording.seed),
            recent: DurationMeter::default(),
            looked_at: 0,
            went_over: None,
        }
    }

    /// The cell begins at `start`.
    pub fn begin(&mut self, start: Time) {
        self.start = start;
        if self.level != Level::Full {
            self.tallier = Some(Tallier::new(self.recording.phases, start));
        }
    }

    /// The level of recording at present.
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Records a request that has ended.
    #[inline]
    pub fn record(&mut self, sample: &Sample) {
        match &mut self.tallier {
            None => self.samples.push(*sample),
            Some(tallier) => {
                tallier.add(sample);
                self.keep(sample);
            }
        }
    }

    /// Keeps a counted request, if it is to be kept.
    fn keep(&mut self, sample: &Sample) {
        if sample.outcome.is_success() {
            self.recent.record(sample.response_ns());
        }
        if self.level == Level::Tail && self.tail.wants(sample) {
            self.samples.push(*sample);
            if self.samples.len() > MOST_OF_TAIL / self.recording.threads as usize {
                self.tail.become_stricter();
                self.tail.thin(&mut self.samples);
                self.first.iter_mut().for_each(|first| self.tail.thin(&mut first.kept));
            }
        }
    }

    /// Processes what came since the last call, and switches to counting if requests are too many to keep. Returns the response
    /// times of what succeeded since, from at most a thousand evenly chosen requests where all are kept: this must not make a
    /// request late. Each of those counts for as many as it was chosen from.
    pub fn look(&mut self, now: Time) -> Histogram {
        const LOOKED_AT: usize = 1_000;
        if self.tallier.is_none() {
            let since = &self.samples[self.looked_at..];
            let one_of = since.len().div_ceil(LOOKED_AT).max(1);
            let chosen = since.iter().step_by(one_of).filter(|sample| sample.outcome.is_success());
            chosen.for_each(|sample| self.recent.record_times(sample.response_ns(), one_of as u32));
        }
        let recent = self.recent.take();
        self.looked_at = self.samples.len();
        if self.tallier.is_some() {
            self.tail.learn(&recent);
            self.first.iter_mut().for_each(|first| first.count(COUNTED_AT_A_TIME, &mut self.tail));
        } else if self.recording.level.is_none() && self.is_too_much(now) {
            self.tail.learn(&recent);
            self.went_over = Some((now.since(self.start), self.samples.len()));
            self.go_over();
        }
        recent
    }

    /// From now on requests are counted.
    fn go_over(&mut self) {
        self.level = Level::Tail;
        let tallier = || Tallier::new(self.recording.phases, self.start);
        let samples = std::mem::take(&mut self.samples);
        self.first = Some(First { samples, counted: 0, tallier: tallier(), kept: Vec::new() });
        self.tallier = Some(tallier());
    }

    fn is_too_much(&self, now: Time) -> bool {
        let share = |all: f64| (all / f64::from(self.recording.threads)) as usize;
        let at_full_rate = FULL_RATE * now.since(self.start).as_secs_f64();
        let kept = self.samples.len();
        kept >= share(MOST_SAMPLES as f64) || kept > share(at_full_rate.max(FULL_BURST as f64))
    }

    /// How strict the choice of samples became at [`Level::Tail`], see [`TailSample::kept_one_in`].
    pub const fn kept_one_in(&self) -> u64 {
        self.tail.kept_one_in()
    }

    /// The length of the tallies' slices, in nanoseconds; 0 if it has none.
    pub fn slice_ns(&self) -> u64 {
        self.tallier.as_ref().map_or(0, Tallier::width_ns)
    }

    /// The samples in the order in which they ended, and the tallies in slices of `slice_ns` or more: those of `level`, the coarsest
    /// of any thread's.
    pub fn finish(mut self, level: Level, slice_ns: u64) -> (Vec<Sample>, Vec<Tally>) {
        if level == Level::Full {
            return (self.samples, Vec::new());
        }
        if self.level == Level::Full {
            self.tail.learn(&Histogram::of(self.samples.iter().map(Sample::response_time)));
            self.go_over();
        }
        let (mut samples, mut tallies) = (Vec::new(), Vec::new());
        if let Some(mut first) = self.first {
            first.count(usize::MAX, &mut self.tail);
            samples = first.kept;
            tallies.push(first.tallier.finish(slice_ns));
        }
        samples.append(&mut self.samples);
        tallies.extend(self.tallier.map(|tallier| tallier.finish(slice_ns)));
        if level == Level::Hist {
            samples = Vec::new();
        }
        (samples, tally::merge(tallies))
    }
}

#[cfg(test)]
mod tests {
    use h2lab_model::record::Outcome;
    use h2lab_model::record::tally::Counts;

    use super::*;

    const PHASES: Phases =
        Phases { warmup: Duration::ZERO, measure: Duration::from_secs(3_600), drain: Duration::from_secs(1) };

    fn recorder(level: Option<Level>, threads: u32) -> Recorder {
        let mut recorder = Recorder::new(Recording { level, threads, seed: 1, phases: PHASES }, 0);
        recorder.begin(Time::ZERO);
        recorder
    }

    /// Request `n` of a million per second: 1 ms, one in a hundred 20 ms, one in a thousand fails.
    fn sample(n: u64) -> Sample {
        let due = Time::from_micros(n);
        let time = Duration::from_millis(if n % 100 == 37 { 20 } else { 1 });
        let failed = n % 1_000 == 1;
        Sample {
            connection: (n % 7) as u32,
            sent_at: due,
            first_byte_at: due + time,
            completed_at: due + time,
            outcome: if failed { Outcome::Status } else { Outcome::Succeeded },
            status: if failed { 500 } else { 200 },
            body_bytes: 3,
            ..Sample::due(due, true)
        }
    }

    fn fill(recorder: &mut Recorder, range: std::ops::Range<u64>) {
        for n in range {
            recorder.record(&sample(n));
            if n % 100_000 == 99_999 {
                recorder.look(Time::from_micros(n));
            }
        }
    }

    #[test]
    fn more_than_a_million_results_are_counted_exactly_and_take_bounded_memory() {
        const N: u64 = 2_500_000;
        let mut recorder = recorder(None, 1);
        fill(&mut recorder, 0..FULL_BURST as u64);
        assert_eq!(recorder.level(), Level::Full);
        fill(&mut recorder, FULL_BURST as u64..N);
        assert_eq!(recorder.level(), Level::Tail, "a million per second is more than 50,000");
        let (after, kept) = recorder.went_over.expect("it went over by itself");
        assert!(
            kept > FULL_BURST && after.as_micros() as usize + 1 == kept,
            "{after:?}, {kept}: one each microsecond"
        );
        let (samples, tallies) = recorder.finish(Level::Tail, 0);
        let all = Counts::total(&tallies);
        assert_eq!((all.requests, all.sent, all.body_bytes), (N, N, 3 * N));
        let failed = tallies.iter().filter(|tally| tally.class.status == 500);
        assert_eq!(failed.map(|tally| tally.counts.requests).sum::<u64>(), N / 1_000);
        let uniform = N / TailSample::UNIFORM;
        let least = N / 1_000 + uniform / 2;
        let most = N / 50 + N / 1_000 + uniform * 2 + FULL_BURST as u64 / 5;
        assert!((least..most).contains(&(samples.len() as u64)), "{} kept", samples.len());
        // All failures were kept, and the last one is among them.
        let kept = samples.iter().filter(|s| s.status == 500).map(|s| s.scheduled_at.as_nanos() / 1_000);
        assert!(kept.eq((1..N).step_by(1_000)), "failures are kept, in order");
    }

    #[test]
    fn however_many_are_slow_or_fail_so_many_are_kept_evenly_and_the_slowest_always() {
        const N: u64 = 4 * MOST_OF_TAIL as u64;
        let mut recorder = recorder(Some(Level::Tail), 1);
        for n in 0..N {
            // Half of them fail, and each success is slower than all before it.
            let mut sample = sample(n);
            sample.completed_at = sample.scheduled_at + Duration::from_nanos(1_000_000 + n);
            (sample.outcome, sample.status) =
                if n % 2 == 0 { (Outcome::Status, 500) } else { (Outcome::Succeeded, 200) };
            recorder.record(&sample);
            if n % 10_000 == 9_999 {
                recorder.look(Time::from_micros(n));
            }
        }
        let every = recorder.kept_one_in();
        assert!((4..=16).contains(&every), "{every}");
        let (samples, tallies) = recorder.finish(Level::Tail, 0);
        assert!((MOST_OF_TAIL / 4..=MOST_OF_TAIL).contains(&samples.len()), "{} kept", samples.len());
        assert_eq!(Counts::total(&tallies).requests, N);
        let failed = |range: std::ops::Range<u64>| {
            let is_in = |sample: &&Sample| range.contains(&(sample.scheduled_at.as_nanos() / 1_000));
            samples.iter().filter(is_in).filter(|sample| sample.status == 500).count() as f64
        };
        let ratio = failed(0..N / 2) / failed(N / 2..N);
        assert!((0.4..2.5).contains(&ratio), "{ratio}: neither the first nor the last ones alone");
        assert!(samples.iter().any(|sample| sample.scheduled_at == Time::from_micros(N - 1)), "the slowest");
    }

    #[test]
    fn the_percentiles_of_a_tail_recording_are_those_of_all_requests() {
        let mut recorder = recorder(Some(Level::Tail), 1);
        fill(&mut recorder, 0..300_000);
        let (samples, tallies) = recorder.finish(Level::Tail, 0);
        let mut all = Histogram::default();
        for tally in &tallies {
            all.merge(&tally.response);
        }
        let millis = |rank| all.at_rank(rank).as_secs_f64() * 1e3;
        assert!((millis(150_000) - 1.0).abs() < 1e-3 && (millis(297_100) - 20.0).abs() < 2e-2);
        assert!(samples.len() < 10_000, "{} kept", samples.len());
        assert_eq!(Counts::total(&tallies).requests, 300_000);
    }

    #[test]
    fn fifty_thousand_per_second_are_kept_for_seconds_and_no_more() {
        let mut recorder = recorder(None, 2);
        recorder.samples = vec![sample(0); FULL_BURST / 2];
        recorder.look(Time::from_millis(1));
        assert_eq!(recorder.level(), Level::Full, "a thread's share of the burst");
        recorder.samples = vec![sample(0); MOST_SAMPLES / 2 - 1];
        recorder.look(Time::from_millis(10_000));
        assert_eq!(recorder.level(), Level::Full);
        recorder.record(&sample(0));
        recorder.look(Time::from_millis(10_000));
        assert_eq!(recorder.level(), Level::Tail);
    }

    #[test]
    fn a_thread_that_kept_all_gives_tallies_where_another_did_not() {
        let mut full = recorder(None, 2);
        fill(&mut full, 0..10_000);
        assert_eq!(full.level(), Level::Full);
        let (samples, tallies) = full.finish(Level::Tail, 0);
        assert_eq!(Counts::total(&tallies).requests, 10_000);
        assert!(samples.len() < 500);
        let mut hist = recorder(Some(Level::Hist), 1);
        fill(&mut hist, 0..10_000);
        let (samples, counted) = hist.finish(Level::Hist, 0);
        assert!(samples.is_empty());
        assert_eq!(counted, tallies);
    }

    #[test]
    fn what_is_shown_while_it_runs_is_of_late_and_does_not_collapse() {
        for level in [None, Some(Level::Tail)] {
            let mut recorder = recorder(level, 1);
            for round in 0..5_u64 {
                for n in 0..2_000 {
                    recorder.record(&sample(round * 2_000 + n));
                }
                let recent = recorder.look(Time::from_millis(round));
                // One in a thousand fails.
                let (n, median) = (recent.n(), recent.at_rank(recent.n() / 2));
                assert!((1_900..=2_000).contains(&n), "{level:?} round {round}: {n} of 2,000");
                assert!((median.as_secs_f64() - 1e-3).abs() < 2e-6, "{level:?} round {round}: {median:?}");
            }
            assert_eq!(recorder.look(Time::from_millis(9)), Histogram::default(), "nothing came since");
        }
    }
}
