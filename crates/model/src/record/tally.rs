//! Requests counted instead of kept: for cells with too many of them for one sample each.
//!
//! A [`Tally`] stands for all requests of one kind that ended in one slice of time in the same way. Counts, bytes and sums
//! are exact; histograms keep durations to three digits.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::histogram::{DurationMeter, Histogram};
use super::{Outcome, Sample};
use crate::workload::Phases;
use h2lab_base::units::{Time, nanos};

/// The part of a cell in which a request was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TallyPhase {
    /// Warm-up, not measured.
    Warmup,
    /// The first half of the measured time.
    First,
    /// The second half.
    Second,
}

impl TallyPhase {
    /// All parts, in order.
    pub const ALL: [Self; 3] = [Self::Warmup, Self::First, Self::Second];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warmup => "warmup",
            Self::First => "first",
            Self::Second => "second",
        }
    }

    /// Whether requests of this part count.
    pub const fn is_measured(self) -> bool {
        !matches!(self, Self::Warmup)
    }
}

/// What the requests of a [`Tally`] have in common, besides the slice in which they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Class {
    /// When they were due.
    pub part: TallyPhase,
    /// Which entry of the work's mix they are; 0 without a mix.
    pub kind: u16,
    /// How they ended.
    pub outcome: Outcome,
    /// The status of their response, 0 if none came.
    pub status: u16,
    /// The HTTP/2 error code that ended them, else 0; all codes above 255, which no RFC has, are 256.
    pub code: u32,
}

/// Exact counts of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Those that were given to a connection.
    pub assigned: u64,
    /// Those whose head was handed to a socket.
    pub sent: u64,
    /// Replays, in all.
    pub replays: u64,
    /// Bytes of response bodies.
    pub body_bytes: u64,
    /// Those that succeeded inside the measured time, whenever they were due.
    pub served: u64,
    /// Body bytes of these.
    pub served_bytes: u64,
    /// Time for which they waited for a connection or a stream, in nanoseconds.
    pub stall_open_ns: u64,
    /// Time for which their heads waited for the socket.
    pub stall_socket_ns: u64,
    /// Time for which their bodies waited for a flow-control window.
    pub stall_window_ns: u64,
}

impl Counts {
    /// The sum of these.
    pub fn total<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Self {
        let mut total = Self::default();
        tallies.into_iter().for_each(|tally| total.add(&tally.counts));
        total
    }

    /// Adds the counts of others. They stay at the largest number: those of another machine may be any.
    pub const fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.assigned = self.assigned.saturating_add(other.assigned);
        self.sent = self.sent.saturating_add(other.sent);
        self.replays = self.replays.saturating_add(other.replays);
        self.body_bytes = self.body_bytes.saturating_add(other.body_bytes);
        self.served = self.served.saturating_add(other.served);
        self.served_bytes = self.served_bytes.saturating_add(other.served_bytes);
        self.stall_open_ns = self.stall_open_ns.saturating_add(other.stall_open_ns);
        self.stall_socket_ns = self.stall_socket_ns.saturating_add(other.stall_socket_ns);
        self.stall_window_ns = self.stall_window_ns.saturating_add(other.stall_window_ns);
    }

    fn add_sample(&mut self, sample: &Sample, served: bool) {
        self.add(&Self {
            requests: 1,
            assigned: u64::from(sample.connection != Sample::NO_CONNECTION),
            sent: u64::from(sample.sent_at.happened()),
            replays: u64::from(sample.replays),
            body_bytes: sample.body_bytes,
            served: u64::from(served),
            served_bytes: if served { sample.body_bytes } else { 0 },
            stall_open_ns: sample.stall_open_ns,
            stall_socket_ns: sample.stall_socket_ns,
            stall_window_ns: sample.stall_window_ns,
        });
    }
}

/// The requests of one class that ended in one slice of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The beginning of the slice.
    pub at: Time,
    /// Their class.
    pub class: Class,
    /// Their counts.
    pub counts: Counts,
    /// Completed − scheduled.
    pub response: Histogram,
    /// Completed − sent, of those that were sent.
    pub service: Histogram,
    /// First byte − sent, of those that were answered.
    pub ttfb: Histogram,
    /// How late the generator sent them, see [`Sample::lateness`].
    pub lateness: Histogram,
}

impl Tally {
    fn empty(at: Time, class: Class) -> Self {
        Self {
            at,
            class,
            counts: Counts::default(),
            response: Histogram::default(),
            service: Histogram::default(),
            ttfb: Histogram::default(),
            lateness: Histogram::default(),
        }
    }

    /// Adds another tally of the same slice and class.
    fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.ttfb.merge(&other.ttfb);
        self.lateness.merge(&other.lateness);
    }

    /// Whether its counts and its histograms are of the same requests.
    fn adds_up(&self) -> bool {
        let Counts { requests, assigned, sent, served, .. } = self.counts;
        let histograms = [&self.response, &self.service, &self.ttfb, &self.lateness];
        histograms.into_iter().all(Histogram::adds_up)
            && [assigned, sent, served, self.ttfb.n()].into_iter().all(|part| part <= requests)
            && self.response.n() == requests
            && [self.service.n(), self.lateness.n()] == [sent; 2]
    }
}

/// The most requests that one generator can have made: a thousand million per second for three days. Those of ten
/// thousand of them can be added up.
const MOST_REQUESTS: u64 = 1 << 48;

/// Whether tallies that another machine has recorded can be: the counts of each agree with its histograms, and all
/// together are no more than can be added to those of others.
pub fn add_up(tallies: &[Tally]) -> bool {
    let Counts { requests, replays, .. } = Counts::total(tallies);
    tallies.iter().all(Tally::adds_up) && requests.max(replays) <= MOST_REQUESTS
}

/// Joins the tallies of several recorders, with slices of the same length: one per slice and class, in the order of time.
pub fn merge(parts: impl IntoIterator<Item = Vec<Tally>>) -> Vec<Tally> {
    by_slice_and_class(parts).into_values().collect()
}

/// [`merge`] for recorders whose times are of several clocks: each part begins at a time of its own, from which its slices count. All
/// become slices of a cell that begins at `start`, as long as those of the part with the longest.
pub(super) fn merge_aligned(parts: Vec<(Time, Vec<Tally>)>, start: Time) -> Vec<Tally> {
    let offset = |began: Time| move |tally: &Tally| tally.at.nanos_since(began);
    let offsets = parts.iter().flat_map(|(began, tallies)| tallies.iter().map(offset(*began)));
    // A tallier whose last slice begins there has slices of this length: they are longer only where there would be too many.
    let width = Tallier::width_for(offsets.max().unwrap_or_default(), nanos(Tallier::SLICE));
    merge(parts.into_iter().map(|(began, tallies)| {
        let aligned = tallies.into_iter().map(|tally| {
            let slice = offset(began)(&tally) / width * width;
            Tally { at: start + Duration::from_nanos(slice), ..tally }
        });
        aligned.collect::<Vec<_>>()
    }))
}

fn by_slice_and_class(parts: impl IntoIterator<Item = Vec<Tally>>) -> BTreeMap<(Time, Class), Tally> {
    let mut merged: BTreeMap<(Time, Class), Tally> = BTreeMap::new();
    for tally in parts.into_iter().flatten() {
        merged.entry((tally.at, tally.class)).and_modify(|known| known.merge(&tally)).or_insert(tally);
    }
    merged
}

/// Counts finished requests.
#[derive(Debug)]
pub struct Tallier {
    start: Time,
    /// The measured time, and where its second half begins.
    measured: Range<Time>,
    middle: Time,
    width_ns: u64,
    /// The current slice, and its end.
    slice: Time,
    until: Time,
    live: Vec<Live>,
    /// Where in `live` the last request was counted.
    last: usize,
    /// Whether durations are counted too.
    durations: bool,
    done: BTreeMap<(Time, Class), Tally>,
}

/// A class with requests in the current slice.
#[derive(Debug)]
struct Live {
    class: Class,
    counts: Counts,
    response: DurationMeter,
    service: DurationMeter,
    ttfb: DurationMeter,
    lateness: DurationMeter,
}

impl Tallier {
    /// The shortest slice.
    const SLICE: Duration = Duration::from_millis(100);
    /// The most slices of a cell: in one that lasts longer they are twice as long, four times …, so that tallies are bounded. At
    /// 100,000 requests/s a slice takes 150 KB.
    const SLICES: u64 = 256;
    /// The most classes with arrays at the same time. A server with ever new statuses recycles them.
    const LIVE: usize = 16;
    /// At this many tallies the current slice stays: further requests are counted in it, exact in number but not in time.
    const TALLIES: usize = 65_536;

    /// A tallier for a cell of these phases that begins at `start`.
    pub fn new(phases: Phases, start: Time) -> Self {
        let width = nanos(Self::SLICE);
        let measured = phases.measure_from(start)..phases.measure_until(start);
        Self {
            start,
            middle: measured.start + phases.measure / 2,
            measured,
            width_ns: width,
            slice: start,
            until: start + Duration::from_nanos(width),
            live: Vec::new(),
            last: 0,
            durations: true,
            done: BTreeMap::new(),
        }
    }

    /// As [`Tallier::new`], without histograms: for readers of samples, which have each duration. Requests may come in any order:
    /// each is counted in the slice in which it ended.
    pub fn counting(phases: Phases, start: Time) -> Self {
        Self { durations: false, ..Self::new(phases, start) }
    }

    /// Counts a request that has ended. They come in the order in which they ended, or nearly.
    pub fn add(&mut self, sample: &Sample) {
        if sample.completed_at >= self.until {
            self.next_slice(sample.completed_at);
        }
        let class = self.class(sample);
        let served = sample.outcome.is_success() && self.measured.contains(&sample.completed_at);
        if !self.durations && sample.completed_at < self.slice && self.done.len() < Self::TALLIES {
            let at = self.slice_of(sample.completed_at);
            let earlier = self.done.entry((at, class)).or_insert_with(|| Tally::empty(at, class));
            return earlier.counts.add_sample(sample, served);
        }
        if self.live.get(self.last).is_none_or(|live| live.class != class) {
            self.last = self.find(class);
        }
        let live = &mut self.live[self.last];
        live.counts.add_sample(sample, served);
        if !self.durations {
            return;
        }
        live.response.record(sample.response_ns());
        if sample.sent_at.happened() {
            live.service.record(sample.completed_at.nanos_since(sample.sent_at));
            let waited = sample.stall_open_ns.saturating_add(sample.stall_socket_ns);
            live.lateness.record(sample.sent_at.nanos_since(sample.scheduled_at).saturating_sub(waited));
        }
        if sample.first_byte_at.happened() {
            live.ttfb.record(sample.first_byte_at.nanos_since(sample.sent_at));
        }
    }

    fn class(&self, sample: &Sample) -> Class {
        let part = match sample.measured {
            false => TallyPhase::Warmup,
            true if sample.scheduled_at < self.middle => TallyPhase::First,
            true => TallyPhase::Second,
        };
        Class {
            part,
            kind: sample.kind,
            outcome: sample.outcome,
            status: sample.status,
            code: sample.code.min(256),
        }
    }

    /// The place of a class among the live ones; makes one if needed.
    fn find(&mut self, class: Class) -> usize {
        if let Some(place) = self.live.iter().position(|live| live.class == class) {
            return place;
        }
        if self.live.len() == Self::LIVE {
            self.settle();
        }
        // The arrays of an idle one already have the right size.
        if let Some(idle) = self.live.iter().position(|live| live.counts.requests == 0) {
            self.live[idle].class = class;
            return idle;
        }
        self.live.push(Live {
            class,
            counts: Counts::default(),
            response: DurationMeter::default(),
            service: DurationMeter::default(),
            ttfb: DurationMeter::default(),
            lateness: DurationMeter::default(),
        });
        self.live.len() - 1
    }

    /// Begins the slice in which `now` lies.
    fn next_slice(&mut self, now: Time) {
        self.settle();
        let passed = nanos(now.since(self.start));
        let width = Self::width_for(passed, self.width_ns);
        if width > self.width_ns {
            self.widen(width);
        }
        let slice = self.slice_of(now);
        if self.done.len() < Self::TALLIES {
            self.slice = slice;
        }
        self.until = slice + Duration::from_nanos(self.width_ns);
    }

    /// The length of slices of which there are no more than [`Tallier::SLICES`] once so many nanoseconds have passed: `width_ns`,
    /// twice, four times … that.
    const fn width_for(passed_ns: u64, mut width_ns: u64) -> u64 {
        while passed_ns / width_ns >= Self::SLICES {
            width_ns *= 2;
        }
        width_ns
    }

    /// Turns the live classes into tallies.
    fn settle(&mut self) {
        for live in self.live.iter_mut().filter(|live| live.counts.requests > 0) {
            let tally = Tally {
                at: self.slice,
                class: live.class,
                counts: std::mem::take(&mut live.counts),
                response: live.response.take(),
                service: live.service.take(),
                ttfb: live.ttfb.take(),
                lateness: live.lateness.take(),
            };
            let key = (tally.at, tally.class);
            self.done.entry(key).and_modify(|known| known.merge(&tally)).or_insert(tally);
        }
    }

    /// The beginning of the slice in which `at` lies.
    fn slice_of(&self, at: Time) -> Time {
        self.start + Duration::from_nanos(nanos(at.since(self.start)) / self.width_ns * self.width_ns)
    }

    /// The length of its slices at present, in nanoseconds.
    pub const fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Joins neighbouring slices to slices of this length, a multiple of the present one.
    fn widen(&mut self, width_ns: u64) {
        self.width_ns = width_ns;
        let tallies = std::mem::take(&mut self.done).into_values();
        let widened = tallies.map(|tally| Tally { at: self.slice_of(tally.at), ..tally }).collect();
        self.done = by_slice_and_class([widened]);
        self.slice = self.slice_of(self.slice);
    }

    /// All tallies, in the order of time, in slices of at least `width_ns`: what another recorder of the same cell has come to.
    pub fn finish(mut self, width_ns: u64) -> Vec<Tally> {
        self.settle();
        if width_ns > self.width_ns {
            self.widen(width_ns);
        }
        self.done.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: Phases = Phases {
        warmup: Duration::from_millis(500),
        measure: Duration::from_secs(2),
        drain: Duration::from_secs(1),
    };

    fn at(us: u64) -> Time {
        Time::from_micros(us)
    }

    /// Request `n` of 1,000 per second, answered after 3 ms; every tenth fails with 503.
    fn sample(n: u64) -> Sample {
        let due = at(n * 1_000);
        let failed = n % 10 == 9;
        Sample {
            connection: 0,
            sent_at: due + Duration::from_micros(20),
            first_byte_at: due + Duration::from_millis(2),
            completed_at: due + Duration::from_millis(3),
            outcome: if failed { Outcome::Status } else { Outcome::Succeeded },
            status: if failed { 503 } else { 200 },
            body_bytes: 10,
            stall_open_ns: 5_000,
            ..Sample::due(due, due >= Time::ZERO + PHASES.warmup)
        }
    }

    fn tallied(samples: impl IntoIterator<Item = Sample>) -> Vec<Tally> {
        let mut counter = Tallier::new(PHASES, Time::ZERO);
        samples.into_iter().for_each(|sample| counter.add(&sample));
        counter.finish(0)
    }

    #[test]
    fn counts_are_exact_and_apart_by_slice_part_and_status() {
        let tallies = tallied((0..2_500).map(sample));
        let all = Counts::total(&tallies);
        assert_eq!((all.requests, all.sent, all.body_bytes), (2_500, 2_500, 25_000));
        assert_eq!(all.stall_open_ns, 2_500 * 5_000);
        let of = |part| {
            let parts = tallies.iter().filter(move |tally| tally.class.part == part);
            parts.map(|tally| tally.counts.requests).sum::<u64>()
        };
        assert_eq!(TallyPhase::ALL.map(of), [500, 1_000, 1_000]);
        let failed = tallies.iter().filter(|tally| tally.class.status == 503);
        assert_eq!(failed.map(|tally| tally.counts.requests).sum::<u64>(), 250);
        // Succeeded between 500 ms and 2,500 ms: due from 497 ms to 2,496 ms, nine of ten.
        assert_eq!(all.served, 1_800);
        assert!(tallies.is_sorted_by_key(|tally| tally.at));
        assert!(tallies.iter().all(|tally| tally.at.as_nanos() % 100_000_000 == 0));
        for tally in &tallies {
            assert_eq!(tally.response.n(), tally.counts.requests);
            assert_eq!(tally.response.sum_ns(), u128::from(tally.counts.requests) * 3_000_000);
            assert_eq!(tally.lateness.at_rank(1), Duration::from_micros(15));
        }
    }

    /// A tally of so many requests, of which none was sent.
    fn unsent(n: u64) -> Tally {
        let response = format!(r#"{{"buckets":[[1,{n}]],"n":{n},"sum_ns":{n},"min_ns":1,"max_ns":1}}"#);
        let response = serde_json::from_str(&response).unwrap();
        let counts = Counts { requests: n, ..Counts::default() };
        let known = tallied([sample(0)]).remove(0);
        Tally { counts, response, ..Tally::empty(known.at, known.class) }
    }

    #[test]
    fn tallies_of_another_machine_add_up_if_they_count_the_same_requests() {
        let sound = tallied((0..2_500).map(sample));
        assert!(add_up(&sound) && add_up(&[]));
        let changes: [fn(&mut Tally); 8] = [
            |tally| tally.counts.requests += 1,
            |tally| tally.counts.sent -= 1,
            |tally| tally.counts.served = tally.counts.requests + 1,
            |tally| tally.counts.assigned = tally.counts.requests + 1,
            |tally| tally.response = Histogram::default(),
            |tally| tally.service = Histogram::default(),
            |tally| tally.lateness = Histogram::default(),
            |tally| tally.ttfb.merge(&tally.response),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut tallies = sound.clone();
            change(&mut tallies[3]);
            assert!(!add_up(&tallies), "change {number}");
        }
        let broken = r#"{"buckets":[[1,0]],"n":1,"sum_ns":1,"min_ns":1,"max_ns":1}"#;
        let mut tally = unsent(1);
        assert!(add_up(&[tally.clone()]));
        tally.response = serde_json::from_str(broken).unwrap();
        assert!(!add_up(&[tally]));
    }

    #[test]
    fn tallies_of_another_machine_are_bounded_in_sum() {
        assert!(add_up(&[unsent(MOST_REQUESTS - 1), unsent(1)]));
        assert!(!add_up(&[unsent(MOST_REQUESTS), unsent(1)]));
        assert!(!add_up(&[unsent(u64::MAX), unsent(u64::MAX)]), "the sum does not wrap");
        let mut replayed = unsent(1);
        replayed.counts.replays = MOST_REQUESTS;
        assert!(add_up(&[replayed.clone()]));
        replayed.counts.replays += 1;
        assert!(!add_up(&[replayed]));
    }

    #[test]
    fn counts_that_are_too_large_together_stay_at_the_largest_number() {
        let whole = |n| Counts {
            requests: n,
            assigned: n,
            sent: n,
            replays: n,
            body_bytes: n,
            served: n,
            served_bytes: n,
            stall_open_ns: n,
            stall_socket_ns: n,
            stall_window_ns: n,
        };
        for (one, other, sum) in [
            (u64::MAX - 2, 1, u64::MAX - 1),
            (u64::MAX - 1, 1, u64::MAX),
            (u64::MAX, 1, u64::MAX),
            (u64::MAX, u64::MAX, u64::MAX),
        ] {
            let mut counts = whole(one);
            counts.add(&whole(other));
            assert_eq!(counts, whole(sum));
        }
        let most = u64::MAX;
        let long = Sample { body_bytes: most, stall_open_ns: most, stall_socket_ns: most, ..sample(0) };
        let counts = Counts::total(&tallied([long, long]));
        assert_eq!((counts.requests, counts.body_bytes, counts.stall_open_ns), (2, u64::MAX, u64::MAX));
    }

    #[test]
    fn the_tallies_of_several_threads_are_those_of_one() {
        let whole = tallied((0..2_500).map(sample));
        let parts = (0..3).map(|part| tallied((part..2_500).step_by(3).map(sample)));
        assert_eq!(merge(parts), whole);
    }

    #[test]
    fn a_reader_counts_requests_in_any_order_in_the_slices_in_which_they_ended() {
        let hours = Phases { measure: Duration::from_secs(7_200), ..PHASES };
        let counted = |order: &mut dyn Iterator<Item = u64>| {
            let mut counter = Tallier::counting(hours, Time::ZERO);
            // Every 50th takes 40 s, and is so in a slice far behind that of the next one; slices get longer meanwhile.
            let slow = |n: u64| Duration::from_secs(if n.is_multiple_of(50) { 40 } else { 0 });
            order.for_each(|n| {
                let usual = sample(n);
                counter.add(&Sample { completed_at: usual.completed_at + slow(n), ..usual });
            });
            counter.finish(0)
        };
        let mut by_end: Vec<u64> = (0..5_000).collect();
        by_end.sort_by_key(|n| n + if n % 50 == 0 { 40_000 } else { 0 });
        let expected = counted(&mut by_end.into_iter());
        assert!(expected.iter().map(|tally| tally.at).max() > Some(at(40_000_000)));
        assert_eq!(counted(&mut (0..5_000)), expected);
        assert_eq!(counted(&mut (0..5_000).rev()), expected);
    }

    #[test]
    fn a_server_with_ever_new_statuses_is_counted_exactly_and_takes_no_more_room() {
        let strange = |n: u64| Sample { status: (n % 900) as u16 + 100, ..sample(n) };
        let mut counter = Tallier::new(PHASES, Time::ZERO);
        for n in 0..2_500 {
            counter.add(&strange(n));
        }
        assert!(counter.live.len() <= Tallier::LIVE);
        let tallies = counter.finish(0);
        assert_eq!(Counts::total(&tallies).requests, 2_500);
        let statuses: std::collections::BTreeSet<u16> = tallies.iter().map(|t| t.class.status).collect();
        assert_eq!(statuses.len(), 900);
    }

    #[test]
    fn threads_that_end_beside_a_boundary_have_the_same_slices() {
        let hours = Phases { measure: Duration::from_secs(7_200), ..PHASES };
        // Thread 0 has its last request when 256 slices of 100 ms are over, thread 1 just before.
        let parts = [25_610, 25_590].map(|until| {
            let mut counter = Tallier::new(hours, Time::ZERO);
            (0..until).step_by(10).for_each(|n| counter.add(&sample(n)));
            counter
        });
        assert_eq!([&parts[0], &parts[1]].map(|part| part.width_ns() / 100_000_000), [2, 1]);
        let tallies = merge(parts.map(|part| part.finish(200_000_000)));
        assert!(tallies.iter().all(|tally| tally.at.as_nanos() % 200_000_000 == 0));
        assert_eq!(Counts::total(&tallies).requests, 2_561 + 2_559);
    }

    #[test]
    fn tallies_of_several_clocks_are_those_of_one_cell_with_the_longest_slices_of_any() {
        let hours = Phases { measure: Duration::from_secs(7_200), ..PHASES };
        // The second clock is 7 s ahead, and its requests end before 25.6 s, after which slices are longer than 100 ms.
        let counted = |numbers: &mut dyn Iterator<Item = u64>, ahead: Duration| {
            let start = Time::ZERO + ahead;
            let mut counter = Tallier::new(hours, start);
            for n in numbers {
                let sample = sample(n);
                counter.add(&Sample {
                    scheduled_at: sample.scheduled_at + ahead,
                    sent_at: sample.sent_at + ahead,
                    first_byte_at: sample.first_byte_at + ahead,
                    completed_at: sample.completed_at + ahead,
                    ..sample
                });
            }
            (start, counter.finish(0))
        };
        for until in [20_000, 25_590, 25_610, 60_000] {
            let first = counted(&mut (0..until).step_by(20), Duration::ZERO);
            let second = counted(&mut (10..20_000).step_by(20), Duration::from_secs(7));
            let mut all = (0..until).step_by(10).filter(|n| n % 20 == 0 || *n < 20_000);
            let (start, expected) = counted(&mut all, Duration::from_secs(3));
            assert_eq!(merge_aligned(vec![first, second], start), expected, "{until}");
        }
        assert_eq!(merge_aligned(Vec::new(), Time::ZERO), []);
    }

    #[test]
    fn a_long_cell_has_longer_slices_instead_of_more() {
        let hours = Phases { measure: Duration::from_secs(7_200), ..PHASES };
        let mut counter = Tallier::new(hours, Time::ZERO);
        (0..7_200_000).step_by(100).for_each(|n| counter.add(&sample(n)));
        let tallies = counter.finish(0);
        // One or two classes each.
        assert!((128..=512).contains(&tallies.len()), "{}", tallies.len());
        assert_eq!(Counts::total(&tallies).requests, 72_000);
    }
}
