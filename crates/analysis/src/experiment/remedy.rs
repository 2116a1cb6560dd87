//! What a fix changed: the cells of a diagnosis again, each with and without the fix, in rounds of their own.

use std::ops::RangeFrom;

use h2lab_model::record::{CellRecord, RunRecord};

use super::{EFFECT, Effect, Metric, Outcome, effect, metric, outcome, repetitions_of, summary, unsound};
use crate::stats::{CellSummary, interval_of_rates, interval_of_times, spread_of_repetitions};

/// Quantiles that a fix may make worse.
const SHARES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];
/// How many figures of a cell a fix may make worse: these, the rate, memory and CPU.
const FIGURES: u32 = SHARES.len() as u32 + 3;
/// Memory below this is noise of the allocator.
const LEAST_BYTES: u64 = 1 << 20;

/// The cells of a fix, by their indices in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Again {
    /// The cell that was examined.
    pub subject: u32,
    /// The same work over another protocol, if there is one.
    pub twin: Option<u32>,
    /// Subject and twin with the fix.
    pub fixed: [u32; 2],
    /// The rounds of the fix: earlier rounds were used to choose it, and would be biased in its favour.
    pub rounds: RangeFrom<u32>,
}

/// A figure that the fix made worse.
#[derive(Debug, Clone, PartialEq)]
pub struct Harm {
    /// The index of the cell without the fix.
    pub cell: u32,
    /// What: `p99`, `requests/s`, `memory`, `CPU per request`.
    pub what: &'static str,
    /// How many times worse.
    pub ratio: f64,
    /// The interval of that, from the repetitions: above 1, corrected for all figures that may have got worse.
    pub interval: [f64; 2],
}

/// The effects of a fix.
#[derive(Debug, Clone, PartialEq)]
pub struct Remedy {
    /// What is compared.
    pub metric: Metric,
    /// How many times better the twin is than the subject, without the fix; `None` without a twin.
    pub before: Option<Effect>,
    /// The same for the subject with the fix.
    pub after: Option<Effect>,
    /// How many times better the fix makes the subject.
    pub effect: Effect,
    /// What these rounds show of the fix, judged as a change of the experiment is; void where they are not sound.
    pub outcome: Outcome,
    /// The part of the difference that is gone, with its interval of 95 %: 1 if all of it is, above 1 if the subject is
    /// now better than its twin. `None` if these rounds show no difference.
    pub closed: Option<[f64; 3]>,
    /// What it made worse.
    pub harm: Vec<Harm>,
    /// How often each cell was measured.
    pub rounds: u32,
    /// Why these rounds are not a sound measurement, if so.
    pub doubt: Option<String>,
}

impl Remedy {
    /// The results of the repetitions in these rounds; `None` before both cells were measured.
    pub fn of(run: &RunRecord, again: &Again) -> Option<Self> {
        let of = |index: u32| -> Vec<&CellRecord> {
            let all = repetitions_of(run, index).into_iter();
            all.filter(|one| again.rounds.contains(&one.cell.repetition) && one.unsupported.is_none())
                .collect()
        };
        let (subject, fixed) = (summary(&of(again.subject))?, summary(&of(again.fixed[0]))?);
        let twin = again.twin.and_then(|twin| summary(&of(twin)));
        let metric = metric(&subject, twin.as_ref(), run.seed);
        let gain_in = |metric: Metric| effect(&subject, &fixed, metric, run.seed);
        let gain = gain_in(metric)?;
        let gap = |slow: &CellSummary| twin.as_ref().and_then(|twin| effect(slow, twin, metric, run.seed));
        let (before, after) = (gap(&subject), gap(&fixed));
        let cells = [Some((again.subject, again.fixed[0])), again.twin.map(|twin| (twin, again.fixed[1]))];
        let looks = cells.iter().flatten().count() as u32 * FIGURES;
        let harm = |(cell, fixed): (u32, u32)| harm((cell, &of(cell)), &of(fixed), run.seed, looks);
        let harm = cells.into_iter().flatten().flat_map(harm).collect();
        let doubt = [Some(&subject), Some(&fixed), twin.as_ref()].into_iter().flatten().find_map(unsound);
        let effects = [Some(gain), gain_in(Metric::Served)];
        Some(Self {
            outcome: match &doubt {
                Some(why) => Outcome::Void(why.clone()),
                None => outcome([&subject, &fixed], metric, effects),
            },
            doubt,
            metric,
            before,
            after,
            effect: gain,
            closed: before.zip(after).and_then(|(before, after)| closed(metric, gain, before, after)),
            harm,
            rounds: fixed.repetitions,
        })
    }
}

/// The variance of the logarithm of a ratio, in squares of half the width of its interval: an interval of what follows from
/// several ratios is then by the distribution that theirs are by.
fn variance(effect: Effect) -> f64 {
    ((effect.high / effect.low).ln() / 2.0).powi(2)
}

/// The part of a gap that a gain closes, in milliseconds or requests/s, and its interval, by the delta method on the
/// logarithms of both ratios. Both share the noise of the subject; its variance follows from the three ratios between
/// the three cells.
fn closed(metric: Metric, gain: Effect, before: Effect, after: Effect) -> Option<[f64; 3]> {
    if before.low <= 1.0 {
        return None;
    }
    let rest = before.ratio / gain.ratio;
    let gap = metric.excess(before.ratio);
    let part = 1.0 - metric.excess(rest) / gap;
    // How the part changes with the logarithms of the gain and of the gap.
    let by_gain = metric.slope(rest) / gap;
    let by_gap = (1.0 - part) * metric.slope(before.ratio) / gap - by_gain;
    let [of_gain, of_gap, of_rest] = [gain, before, after].map(variance);
    let shared = ((of_gain + of_gap - of_rest) / 2.0).clamp(0.0, of_gain.min(of_gap));
    let spread = by_gain * by_gain * of_gain + by_gap * by_gap * of_gap + 2.0 * by_gain * by_gap * shared;
    let spread = spread.max(0.0).sqrt();
    Some([part, part - spread, part + spread])
}

/// What is worse in the repetitions with the fix than in those of `cell` without it. Each figure is one of `looks`.
fn harm((cell, without): (u32, &[&CellRecord]), with: &[&CellRecord], seed: u64, looks: u32) -> Vec<Harm> {
    let (Some(before), Some(after)) = (summary(without), summary(with)) else { return Vec::new() };
    let mut found = Vec::new();
    let mut add = |what, ratio: f64, interval: [f64; 2]| {
        if ratio >= EFFECT && interval[0] > 1.0 {
            found.push(Harm { cell, what, ratio, interval });
        }
    };
    for (name, share) in SHARES {
        if let Some(of) = interval_of_times(share, &before, &after, seed, looks) {
            add(name, of.ratio, [of.low, of.high]);
        }
    }
    if let Some(of) = interval_of_rates(&after, &before, seed, looks) {
        add("requests/s", of.ratio, [of.low, of.high]);
    }
    let memory = |one: &CellRecord| Some(one.server.as_ref()?.rss_peak_bytes as f64);
    let cpu = |one: &CellRecord| {
        let answered = one.samples.iter().filter(|sample| sample.outcome.is_complete()).count();
        (answered > 0).then_some(one.server.as_ref()?.cpu_ns as f64 / answered as f64)
    };
    let values = |all: &[&CellRecord], of: &dyn Fn(&CellRecord) -> Option<f64>| -> Vec<f64> {
        all.iter().filter_map(|one| of(one)).filter(|value| *value > 0.0).collect()
    };
    for (what, of, least) in [
        ("memory", &memory as &dyn Fn(&CellRecord) -> Option<f64>, LEAST_BYTES as f64),
        ("CPU per request", &cpu, 0.0),
    ] {
        let (old, new) = (values(without, of), values(with, of));
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len().max(1) as f64;
        // One repetition says nothing of how far a figure varies.
        if old.len() > 1 && new.len() > 1 && mean(&new) - mean(&old) > least {
            let ratio = mean(&new) / mean(&old);
            let by = spread_of_repetitions([old, new], looks).exp();
            add(what, ratio, [ratio / by, ratio * by]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::workload::Protocol;

    /// Four rounds of the twin, the subject, and both with the fix; each cell is this many times as slow as the twin.
    fn measured(subject: f64, fixed: f64, fixed_twin: f64) -> RunRecord {
        let mut repetitions = Vec::new();
        for round in 2..6 {
            for (index, protocol, factor) in [
                (0, Protocol::H1, 1.0),
                (1, Protocol::H2c, subject),
                (8, Protocol::H2c, fixed),
                (9, Protocol::H1, fixed_twin),
            ] {
                let model = Model { factor, ..Model::CLEAN };
                repetitions.push(one_repetition(&cell(index, 0, protocol, 1, 0.0), round, &model));
            }
        }
        run(repetitions)
    }

    fn again() -> Again {
        Again { subject: 1, twin: Some(0), fixed: [8, 9], rounds: 2.. }
    }

    #[test]
    fn what_a_fix_closes_has_an_interval_around_it() {
        for (fixed, part) in [(1.0, 1.0), (2.0, 2.0 / 3.0), (4.0, 0.0), (0.5, 7.0 / 6.0)] {
            let remedy = Remedy::of(&measured(4.0, fixed, 1.0), &again()).unwrap();
            let [closed, low, high] = remedy.closed.unwrap();
            assert!((closed - part).abs() < 0.05 && low <= closed && closed <= high, "{remedy:?}");
            assert!(high - low < 0.3, "{remedy:?}");
        }
        assert_eq!(
            Remedy::of(&measured(1.0, 1.0, 1.0), &again()).unwrap().closed,
            None,
            "there was no difference"
        );
    }

    #[test]
    fn rounds_that_were_not_measured_soundly_say_so() {
        let mut run = measured(4.0, 1.0, 1.0);
        assert_eq!(Remedy::of(&run, &again()).unwrap().doubt, None);
        let fixed = run.repetitions.iter_mut().find(|one| one.cell.index == 8).unwrap();
        fixed.link.as_mut().unwrap().device_drops = 9;
        assert!(Remedy::of(&run, &again()).unwrap().doubt.is_some());
    }

    #[test]
    fn the_rounds_of_a_fix_show_by_themselves_whether_it_helps() {
        let outcome = |fixed: f64| Remedy::of(&measured(4.0, fixed, 1.0), &again()).unwrap().outcome;
        assert_eq!(outcome(1.0), Outcome::Confirmed);
        assert_eq!(outcome(4.0), Outcome::Refuted);
        assert_eq!(outcome(8.0), Outcome::Worse);
        let mut run = measured(4.0, 1.0, 1.0);
        let fixed = run.repetitions.iter_mut().find(|one| one.cell.index == 8).unwrap();
        fixed.link.as_mut().unwrap().device_drops = 9;
        assert!(matches!(Remedy::of(&run, &again()).unwrap().outcome, Outcome::Void(_)));
    }

    #[test]
    fn rounds_that_chose_the_fix_do_not_count() {
        let later = Again { rounds: 4.., ..again() };
        let run = measured(4.0, 1.0, 1.0);
        assert_eq!(Remedy::of(&run, &later).unwrap().rounds, 2);
        assert_eq!(Remedy::of(&run, &Again { rounds: 9.., ..again() }), None);
        let alone = Remedy::of(&run, &Again { twin: None, ..again() }).unwrap();
        assert!(alone.closed.is_none() && alone.effect.ratio > 3.5, "{alone:?}");
    }

    #[test]
    fn what_gets_worse_is_said_of_either_cell() {
        let harmed = Remedy::of(&measured(4.0, 1.0, 2.0), &again()).unwrap();
        assert!(
            harmed.harm.iter().any(|harm| harm.cell == 0 && harm.what == "p95" && harm.ratio > 1.8),
            "{harmed:?}"
        );
        assert!(harmed.harm.iter().all(|harm| harm.cell == 0), "{harmed:?}");
        assert_eq!(Remedy::of(&measured(4.0, 1.0, 1.0), &again()).unwrap().harm, []);
    }

    #[test]
    fn memory_is_worse_where_it_varies_by_less_than_the_difference() {
        let with = |megabytes: [u64; 4]| {
            let mut run = measured(4.0, 1.0, 1.0);
            for one in &mut run.repetitions {
                let round = one.cell.repetition as usize - 2;
                let bytes = if one.cell.index == 8 { megabytes[round] << 20 } else { 10 << 20 };
                one.server =
                    Some(h2lab_model::record::ServerSummary { rss_peak_bytes: bytes, ..Default::default() });
            }
            Remedy::of(&run, &again()).unwrap().harm
        };
        let harm = with([20; 4]);
        assert!(
            matches!(&harm[..], [Harm { cell: 1, what: "memory", ratio, .. }] if (*ratio - 2.0).abs() < 0.01),
            "{harm:?}"
        );
        assert_eq!(with([20, 20, 20, 9]), []);
        assert_eq!(with([11, 30, 11, 30]), [], "more in each round, and by less than it varies");
        assert_eq!(with([20, 21, 22, 21]).len(), 1);
    }

    #[test]
    fn cpu_per_request_is_worse_where_its_interval_over_the_repetitions_is_clear_of_1() {
        let with = |microseconds: &[u64]| {
            let mut run = measured(4.0, 1.0, 1.0);
            for one in &mut run.repetitions {
                let with_fix = microseconds.get(one.cell.repetition as usize - 2);
                let answered = one.samples.iter().filter(|sample| sample.outcome.is_complete()).count();
                one.server = with_fix.map(|with_fix| {
                    let each = if one.cell.index == 8 { *with_fix } else { 100 };
                    let cpu_ns = each * 1_000 * answered as u64;
                    h2lab_model::record::ServerSummary { cpu_ns, ..Default::default() }
                });
            }
            Remedy::of(&run, &again()).unwrap().harm
        };
        assert_eq!(with(&[112]), [], "one repetition says nothing of how far it varies");
        assert_eq!(with(&[100, 124, 98, 126]), [], "by less than it varies");
        assert_eq!(with(&[109; 4]), [], "less than 10 %");
        let harm = with(&[112, 113, 112, 111]);
        let [Harm { cell: 1, what: "CPU per request", ratio, interval: [low, high] }] = harm[..] else {
            panic!("{harm:?}")
        };
        assert!(1.0 < low && low < ratio && ratio < high && (ratio - 1.12).abs() < 0.001, "{harm:?}");
    }
}
