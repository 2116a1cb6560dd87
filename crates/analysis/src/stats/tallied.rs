//! The requests of repetitions in whichever form they were recorded: each as a sample, or counted in tallies.
//!
//! Counts come from tallies in either case, so that each has one definition: if every request was kept, the tallies are
//! made from the samples here. Then latencies are exact; otherwise they come from the histograms.

use std::borrow::Cow;
use std::time::Duration;

use super::Latency;
use super::latency::nearest_rank;
use h2lab_base::packed::Packed;
use h2lab_base::units::{Time, nanos};
use h2lab_model::record::tally::Tallier;
use h2lab_model::record::{CellRecord, Histogram, Outcome, Sample, Tally};

/// When the measured time of the repetition began and ended.
pub(super) fn window(repetition: &CellRecord) -> (Time, Time) {
    let phases = &repetition.cell.work.phases;
    (phases.measure_from(repetition.started_at), phases.measure_until(repetition.started_at))
}

/// The tallies of a repetition: its own, or made from its samples.
fn tallies(repetition: &CellRecord) -> Cow<'_, [Tally]> {
    if !repetition.tallies.is_empty() {
        return Cow::Borrowed(&repetition.tallies);
    }
    let mut tallier = Tallier::counting(repetition.cell.work.phases, repetition.started_at);
    repetition.samples.iter().for_each(|sample| tallier.add(&sample));
    Cow::Owned(tallier.finish(0))
}

/// The tallies of some repetitions, by repetition. They are made once, since if every request was kept it takes a pass
/// over all requests.
#[derive(Debug)]
pub(super) struct Tallies<'a>(Vec<Cow<'a, [Tally]>>);

impl<'a> Tallies<'a> {
    /// The tallies of these repetitions.
    pub fn of(repetitions: &[&'a CellRecord]) -> Self {
        Self(repetitions.iter().map(|repetition| tallies(repetition)).collect())
    }

    /// The tallies of each repetition, in the order of the repetitions.
    pub fn by_repetition(&self) -> impl Iterator<Item = &[Tally]> {
        self.0.iter().map(|of_repetition| &**of_repetition)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Tally> {
        self.0.iter().flat_map(|of_repetition| of_repetition.iter())
    }

    /// The tallies of requests that were due inside the measured time.
    pub fn measured(&self) -> impl Iterator<Item = &Tally> {
        self.all().filter(|tally| tally.class.part.is_measured())
    }
}

/// How often the measured requests of a repetition were sent again.
pub fn replays(repetition: &CellRecord) -> u64 {
    Tallies::of(&[repetition]).measured().map(|tally| tally.counts.replays).sum()
}

/// Whether the response time of a request with this outcome is a latency: that of a success is, and so is the age of an
/// unfinished one at the cut.
pub(super) const fn is_latency(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Succeeded | Outcome::Unfinished)
}

/// The response time that counts as latency: that of a success, or the age that an unfinished request reached.
pub(super) fn response_time(sample: &Sample) -> Option<Duration> {
    is_latency(sample.outcome).then(|| sample.response_time())
}

/// A kind of latency: its value for a sample, if any, and its histogram.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    of_sample: fn(&Sample) -> Option<Duration>,
    counts: fn(Outcome) -> bool,
    of_tally: fn(&Tally) -> &Histogram,
}

/// Completed − scheduled, see [`is_latency`].
pub(super) const RESPONSE: Kind = Kind {
    of_sample: |sample| Some(sample.response_time()),
    counts: is_latency,
    of_tally: |tally| &tally.response,
};

/// Completed − scheduled of successes.
pub(super) const ANSWERED: Kind = Kind { counts: Outcome::is_success, ..RESPONSE };

/// Completed − scheduled of failures: not a latency, but time in which they were in flight.
pub(super) const FAILURE: Kind = Kind { counts: Outcome::is_failure, ..RESPONSE };

/// Completed − sent of successes.
pub(super) const SERVICE: Kind = Kind {
    of_sample: |sample| Some(sample.service_time()),
    counts: Outcome::is_success,
    of_tally: |tally| &tally.service,
};

/// First byte − sent of successes.
pub(super) const TTFB: Kind = Kind {
    of_sample: Sample::time_to_first_byte,
    counts: Outcome::is_success,
    of_tally: |tally| &tally.ttfb,
};

/// How late the generator was.
pub(super) const LATENESS: Kind =
    Kind { of_sample: Sample::lateness, counts: |_| true, of_tally: |tally| &tally.lateness };

impl Kind {
    /// The latencies of all measured requests of these repetitions. If one repetition has only histograms, all are
    /// counted in histograms.
    pub fn of(self, repetitions: &[&CellRecord]) -> Latency {
        if repetitions.iter().all(|repetition| repetition.tallies.is_empty()) {
            return Latency::new(repetitions.iter().flat_map(|repetition| self.of_samples(repetition)));
        }
        let mut all = Histogram::default();
        for repetition in repetitions {
            if repetition.tallies.is_empty() {
                all.merge(&Histogram::of(self.of_samples(repetition)));
            } else {
                self.measured(repetition).for_each(|histogram| all.merge(histogram));
            }
        }
        Latency::counted(all)
    }

    /// [`Latency::quantile`] of one repetition, at lower cost: a single quantile needs no sorting.
    pub fn quantile(self, repetition: &CellRecord, share: f64) -> Duration {
        if !repetition.tallies.is_empty() {
            return self.of(&[repetition]).quantile(share);
        }
        let mut all: Vec<u64> = self.of_samples(repetition).map(nanos).collect();
        let Some(index) = (nearest_rank(share, all.len() as u64) as usize).checked_sub(1) else {
            return Duration::ZERO;
        };
        Duration::from_nanos(*all.select_nth_unstable(index).1)
    }

    /// The latencies of the measured requests of a repetition that were kept.
    fn of_samples(self, repetition: &CellRecord) -> impl Iterator<Item = Duration> {
        let measured = repetition.samples.iter().filter(move |s| s.measured && (self.counts)(s.outcome));
        measured.filter_map(move |sample| (self.of_sample)(&sample))
    }

    /// The histograms of the measured requests of a repetition that has tallies.
    fn measured(self, repetition: &CellRecord) -> impl Iterator<Item = &Histogram> {
        let measured = repetition
            .tallies
            .iter()
            .filter(move |t| t.class.part.is_measured() && (self.counts)(t.class.outcome));
        measured.map(move |tally| (self.of_tally)(tally))
    }
}

/// Points that represent the response times of a repetition that has only histograms: for each slice, evenly spaced
/// quantiles, as many as its share of all requests. Their time is the time at which the requests ended, one response
/// time after they were due; this moves none of them out of a block of 250 ms that matters.
pub(super) fn points(repetition: &CellRecord) -> Packed<(Duration, Duration), 2> {
    /// The number of points in total: as many as three minutes have at 1,000 requests per second; a bootstrap processes
    /// them in a second.
    const POINTS: u64 = 200_000;
    let counted =
        || repetition.tallies.iter().filter(|t| t.class.part.is_measured() && is_latency(t.class.outcome));
    let all: u64 = counted().map(|tally| tally.response.n()).sum();
    let (from, until) = window(repetition);
    let mut points = Packed::new();
    for tally in counted() {
        let n = tally.response.n();
        let wanted = (u128::from(n) * u128::from(POINTS)).div_ceil(u128::from(all.max(POINTS))) as u64;
        // Requests that end in the drain were due before the end.
        let at = tally.at.max(from).min(until - Duration::from_nanos(1)).since(from);
        let ranks = (0..wanted).map(|k| (2 * k + 1) * n / (2 * wanted) + 1);
        points.extend(tally.response.at_ranks(ranks).map(|time| (at, time)));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::CellSummary;
    use h2lab_model::record::testing::{Model, cell, counted, one_repetition};
    use h2lab_model::workload::Protocol;

    /// A lossy repetition with some failures, and the same with tallies only.
    fn both() -> [CellRecord; 2] {
        let mut full = one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.02), 0, &Model::LOSSY_SHARED);
        for (n, sample) in full.samples.edit().iter_mut().enumerate() {
            if n % 50 == 7 {
                (sample.outcome, sample.status) = (Outcome::Status, 503);
            }
            if n % 500 == 11 {
                (sample.outcome, sample.status, sample.code) = (Outcome::Reset, 0, 8);
            }
        }
        [full.clone(), counted(full)]
    }

    #[test]
    fn tallies_and_samples_give_the_same_summary() {
        let [full, tallied] = both();
        let [exact, counted] = [CellSummary::of(&[&full]), CellSummary::of(&[&tallied])];
        assert_eq!(counted.requests, exact.requests);
        assert_eq!((&counted.statuses, &counted.errors), (&exact.statuses, &exact.errors));
        assert_eq!(
            (counted.served_rps, counted.goodput_bytes_per_s),
            (exact.served_rps, exact.goodput_bytes_per_s)
        );
        assert_eq!((&counted.state, &counted.warnings), (&exact.state, &exact.warnings));
        assert!(exact.requests.failed > 60 && exact.errors.len() == 2);
        let pairs = [
            (&exact.response, &counted.response),
            (&exact.service, &counted.service),
            (&exact.ttfb, &counted.ttfb),
            (&exact.generator.lateness, &counted.generator.lateness),
        ];
        for (exact, counted) in pairs {
            assert_eq!((exact.n(), exact.mean()), (counted.n(), counted.mean()));
            let (p, q) = (exact.quantile(0.99).as_secs_f64(), counted.quantile(0.99).as_secs_f64());
            assert!(q >= p && q <= p * 1.001, "{p} {q}");
        }
    }

    #[test]
    fn a_single_quantile_is_that_of_the_sorted_latencies() {
        for record in both() {
            for (kind, share) in [(RESPONSE, 0.5), (LATENESS, 0.99), (SERVICE, 0.0), (TTFB, 1.0)] {
                assert_eq!(kind.quantile(&record, share), kind.of(&[&record]).quantile(share), "{share}");
            }
        }
        let [mut none, _] = both();
        none.samples.clear();
        assert_eq!(RESPONSE.quantile(&none, 0.5), Duration::ZERO);
    }

    #[test]
    fn repetitions_of_either_form_are_pooled() {
        let [full, tallied] = both();
        let pooled = CellSummary::of(&[&full, &tallied]);
        let alone = CellSummary::of(&[&full]);
        assert_eq!(pooled.response.n(), 2 * alone.response.n());
        assert_eq!(pooled.requests.sent, 2 * alone.requests.sent);
        assert_eq!(pooled.response.mean(), alone.response.mean());
    }

    #[test]
    fn the_points_of_a_tallied_repetition_have_the_quantiles_of_its_samples() {
        let [full, tallied] = both();
        let of = |record: &CellRecord| {
            let series = &CellSummary::of(&[record]).series[0];
            Latency::new(series.points.iter().map(|(_, time)| time))
        };
        let (exact, counted) = (of(&full), of(&tallied));
        assert_eq!(exact.n(), counted.n());
        for share in [0.5, 0.9, 0.99] {
            let (p, q) = (exact.quantile(share).as_secs_f64(), counted.quantile(share).as_secs_f64());
            assert!((q / p - 1.0).abs() < 0.01, "{share}: {p} {q}");
        }
    }
}
