//! CONN105: the server ends connections at a maximum age.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::conn::CONN105 as META;
use super::views::ends::{self, Cost, End, Ends, LONG_AGE_MS, SHORTEST_AGE, has_several_moments};
use super::views::quota::quota;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::plural;
use h2lab_base::units::{measured_time, millis_f64};
use h2lab_model::settings::Knob;

/// At least this many connections must have ended.
const LEAST_ENDS: usize = 3;
/// The standard deviation of the ages must be below this part of their mean.
const SPREAD: f64 = 0.1;

/// The rule.
#[derive(Debug)]
pub(super) struct PeriodicDrain;

impl Rule for PeriodicDrain {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        // Behind a sidecar the ends are those of the sidecar's connections, which have their own age.
        let ends = ends::all(&case.repetitions);
        let Some(age) = age(&ends).filter(|_| quota(&case.repetitions).is_none()) else { return Vec::new() };
        let cost = Cost::of(&case.repetitions, Ends::by_server);
        if !case.is_worth(cost.whole()) {
            return Vec::new();
        }
        let least = ends.iter().map(|(_, end)| end.requests).min().unwrap_or_default();
        let most = ends.iter().map(|(_, end)| end.requests).max().unwrap_or_default();
        let mut evidence = vec![
            Evidence::new("connections that the server ended", ends.len() as f64, "connections"),
            Evidence::new("their age on average", millis_f64(age.mean), "ms"),
            Evidence::new("the deviation of their ages", age.spread * 100.0, "%"),
            Evidence::new("requests of the one that had the fewest", least.into(), "requests"),
            Evidence::new("requests of the one that had the most", most.into(), "requests"),
        ];
        evidence.extend(cost.evidence());
        vec![Finding {
            symptom: format!(
                "the server ended {} at an age of {} (deviation {:.1} %), after {least} to {most} requests",
                plural(ends.len() as u64, "connection"),
                measured_time(age.mean),
                age.spread * 100.0
            ),
            evidence,
            cost: cost.sentence(),
            confidence: Confidence::Observed,
            fixes: vec![case.advise(Knob::ConnectionAge, Some(LONG_AGE_MS))],
            confirm: "run the same cell at half the rate: connections end at the same age, after half as many requests".to_owned(),
            ..case.finding_of_share(&META, cost.whole())
        }]
    }
}

/// The age at which connections ended.
struct Age {
    mean: Duration,
    /// The standard deviation as a part of the mean.
    spread: f64,
}

/// The age at which all connections ended, if it is a maximum age. It is not if all ended at one moment, since a
/// restart ends connections that were opened together at one age, nor if one number of requests explains their ends as
/// well.
fn age(ends: &[End<'_>]) -> Option<Age> {
    let ages: Vec<f64> = ends.iter().map(|(_, end)| end.age.as_secs_f64()).collect();
    let mean = ages.iter().sum::<f64>() / ages.len().max(1) as f64;
    let deviation = ages.iter().map(|age| (age - mean).powi(2)).sum::<f64>() / ages.len().max(1) as f64;
    let age =
        Age { mean: Duration::from_secs_f64(mean), spread: deviation.sqrt() / mean.max(f64::MIN_POSITIVE) };
    let least = ends.iter().map(|(_, end)| end.least).max()?;
    let most = ends.iter().map(|(_, end)| end.requests).min()?;
    let is_age = ends.len() >= LEAST_ENDS && age.mean >= SHORTEST_AGE && age.spread < SPREAD;
    (is_age && least > most && has_several_moments(ends)).then_some(age)
}
