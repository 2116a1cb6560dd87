//! LIMIT105: the server refuses requests above a rate.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::limit::LIMIT105 as META;
use super::views::median;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, Outcome, Sample};
use h2lab_model::settings::Knob;
use h2lab_wire::h1::reason_phrase;

/// "Too Many Requests" (RFC 6585 §4): the server states the reason.
const TOO_MANY: u16 = 429;
/// "Service Unavailable" (RFC 9110 §15.6.4): nginx answers with it above a rate, other servers when something is
/// broken.
const UNAVAILABLE: u16 = 503;
/// At least this many requests must have been refused, and at least as many served.
const LEAST: usize = 10;
/// The same as a share of all requests: with fewer failures a cell does not count as unstable, either.
const LEAST_SHARE: f64 = 0.02;
/// The median refusal may come later than the median success by this part of it, and by [`SLACK`].
const LATER: f64 = 0.1;
/// By how much our own lateness may separate two equal times.
const SLACK: Duration = Duration::from_micros(500);
/// Successes are counted in at least this many equal parts of the time: with fewer, chance is too likely.
const LEAST_PARTS: usize = 10;
/// In each part at least this variance must be expected from chance, so that one request more or less at its ends
/// matters little.
const VARIANCE: f64 = 2.0;
/// A limit on the rate serves more evenly than chance: with at most this part of the variance. With 10 parts, chance
/// alone is below that in 1 of 40 cases.
const EVEN: f64 = 0.25;

/// The rule.
#[derive(Debug)]
pub(super) struct RateLimit;

impl Rule for RateLimit {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let [said, unsaid] = [TOO_MANY, UNAVAILABLE].map(|status| Answers::of(case, status));
        let is_said = said.refused.len() >= unsaid.refused.len();
        let answers = if is_said { said } else { unsaid };
        if !answers.are_of_a_limit() || !(is_said || answers.depend_on_the_rate()) {
            return Vec::new();
        }
        let (refused, share) = (answers.refused.len(), answers.share(answers.refused.len()));
        let rate = answers.served_per_second();
        let what = format!("requests answered with {}", answers.status);
        let phrase = reason_phrase(answers.status);
        vec![Finding {
            symptom: format!(
                "the server answered {} {phrase} to {} of {}, no later than it served the others, {rate:.0} per second",
                answers.status,
                count(refused as u64),
                plural(answers.all as u64, "request"),
            ),
            evidence: Evidence::list([
                (what.as_str(), refused as f64, "requests"),
                ("requests served since the first of them", rate, "requests/s"),
                ("requests sent since the first of them", answers.sent_per_second(), "requests/s"),
                ("the median refusal began after", millis_f64(median(&answers.refused)), "ms"),
                ("the median success began after", millis_f64(median(&answers.served)), "ms"),
            ]),
            cost: format!(
                "{} of {} ({:.0} %) were refused{}",
                count(refused as u64),
                plural(answers.all as u64, "request"),
                share * 100.0,
                also(case, answers.status)
            ),
            confidence: if is_said { Confidence::Observed } else { Confidence::Inferred },
            of_failures: true,
            fixes: vec![
                case.advise(Knob::RequestRate, None),
                Fix::new(
                    "client",
                    "fewer requests per second, or later again",
                    "a refusal may say when, in Retry-After; such a limit is there on purpose",
                ),
            ],
            confirm: case.compare(&format!("-q {}", (rate / 2.0).floor().max(1.0)))
                + ": at half the rate no request is refused",
            ..case.finding_of_share(&META, share)
        }]
    }
}

/// That requests of the other protocol were refused as well, if so.
fn also(case: &Case<'_>, status: u16) -> String {
    let Some(against) = &case.against else { return String::new() };
    let mut other = Answers { status, ..Answers::default() };
    against.repetitions.iter().for_each(|record| other.add(record));
    if other.refused.len() < LEAST {
        return String::new();
    }
    format!(", and {:.0} % over {}", other.share(other.refused.len()) * 100.0, against.label)
}

/// The answer to a request: when it was sent, and whether it was served.
type Answer = (Time, bool);

/// The successes of a cell and its refusals with one status.
#[derive(Debug, Default)]
struct Answers {
    status: u16,
    all: usize,
    /// Times to the first byte of the refusals.
    refused: Vec<Duration>,
    /// The same for the successes.
    served: Vec<Duration>,
    /// Whether each repetition began with a success: a limit refuses no request after a pause.
    begins_served: bool,
    /// The answers of each repetition from the first refusal on: those before it were below the limit, or in its burst.
    limited: Vec<Vec<Answer>>,
}

impl Answers {
    fn of(case: &Case<'_>, status: u16) -> Self {
        let mut answers = Self { status, begins_served: true, ..Self::default() };
        case.records().for_each(|record| answers.add(record));
        answers
    }

    fn add(&mut self, record: &CellRecord) {
        let mut seen: Vec<Answer> = Vec::new();
        for sample in &record.samples {
            self.all += 1;
            let (Some(is_served), Some(began)) = (self.is_served(&sample), sample.time_to_first_byte())
            else {
                continue;
            };
            let times = if is_served { &mut self.served } else { &mut self.refused };
            times.push(began);
            seen.push((sample.sent_at, is_served));
        }
        seen.sort_unstable();
        self.begins_served &= seen.first().is_none_or(|(_, is_served)| *is_served);
        let first = seen.iter().position(|(_, is_served)| !is_served).unwrap_or(seen.len());
        self.limited.push(seen.split_off(first));
    }

    /// Whether a request was served or refused; `None` if it had another outcome.
    fn is_served(&self, sample: &Sample) -> Option<bool> {
        let is_refused = sample.outcome == Outcome::Status && sample.status == self.status;
        (sample.outcome.is_success() || is_refused).then_some(!is_refused)
    }

    fn share(&self, n: usize) -> f64 {
        n as f64 / self.all.max(1) as f64
    }

    /// Whether there are enough of both, and refusals come at once: with an overloaded server they come late.
    fn are_of_a_limit(&self) -> bool {
        let is_enough =
            |times: &Vec<Duration>| times.len() >= LEAST && self.share(times.len()) >= LEAST_SHARE;
        let latest = median(&self.served).mul_f64(1.0 + LATER) + SLACK;
        is_enough(&self.refused) && is_enough(&self.served) && median(&self.refused) <= latest
    }

    /// Whether the server decides by the rate, as far as answers at one rate can show it.
    fn depend_on_the_rate(&self) -> bool {
        self.begins_served && self.unevenness().is_some_and(|unevenness| unevenness <= EVEN)
    }

    /// For how long, in seconds, requests were sent while some were refused.
    fn seconds(&self) -> f64 {
        self.limited.iter().map(|answers| span(answers).as_secs_f64()).sum::<f64>().max(f64::MIN_POSITIVE)
    }

    fn sent_per_second(&self) -> f64 {
        self.limited.iter().flatten().count() as f64 / self.seconds()
    }

    fn served_per_second(&self) -> f64 {
        self.limited.iter().flatten().filter(|(_, is_served)| *is_served).count() as f64 / self.seconds()
    }

    /// The variance of what is served in equal parts of the time, divided by the variance if chance refused as many.
    /// The smaller one of two: that of the number of successes, which a limit keeps constant whatever is sent, and that
    /// of their share of what is sent, which a limit without a burst keeps at one half, a third … if requests come at a
    /// constant distance. `None` if there are too few requests.
    fn unevenness(&self) -> Option<f64> {
        let share = self.served_per_second() / self.sent_per_second();
        let seconds = VARIANCE / (self.sent_per_second() * share * (1.0 - share));
        let width = Duration::try_from_secs_f64(seconds).ok().filter(|width| !width.is_zero())?;
        let parts: Vec<[f64; 2]> = self.limited.iter().flat_map(|answers| parts(answers, width)).collect();
        if parts.len() < LEAST_PARTS {
            return None;
        }
        let mean = |of: &dyn Fn(&[f64; 2]) -> f64| parts.iter().map(of).sum::<f64>() / parts.len() as f64;
        let [sent, served] = [0, 1].map(|n| mean(&|part| part[n]));
        let variance = |of: &dyn Fn(&[f64; 2]) -> f64| {
            mean(&|part| of(part).powi(2)) * parts.len() as f64 / (parts.len() - 1) as f64
        };
        let share = served / sent;
        let by_chance = sent * share * (1.0 - share);
        let of_sent = variance(&|part| part[0] - sent);
        let of_served = variance(&|part| part[1] - served) / (share * share * of_sent + by_chance);
        let of_share = variance(&|part| part[1] - share * part[0]) / by_chance;
        Some(of_served.min(of_share))
    }
}

/// The time from the first to the last of these.
fn span(answers: &[Answer]) -> Duration {
    answers.first().zip(answers.last()).map_or(Duration::ZERO, |(first, last)| last.0.since(first.0))
}

/// How many were sent, and how many of those were served, in each whole part of the time.
fn parts(answers: &[Answer], width: Duration) -> Vec<[f64; 2]> {
    let whole = (span(answers).as_nanos() / width.as_nanos()) as usize;
    let mut parts = vec![[0.0; 2]; whole];
    for (at, is_served) in answers {
        let n = (at.since(answers[0].0).as_nanos() / width.as_nanos()) as usize;
        if let Some([sent, served]) = parts.get_mut(n) {
            *sent += 1.0;
            *served += f64::from(u8::from(*is_served));
        }
    }
    parts
}
