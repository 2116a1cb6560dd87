//! What `diagnose --again` says: how much of a difference is gone, and how much better HTTP/2 itself is.

use h2lab_analysis::experiment::{Effect, Gap, Metric, Since};
use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::round::rounded;
use crate::format::ratio;
use crate::style::TextStyle;
use crate::{Report, answer, text};

/// The document of `diagnose --again --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SinceDocument {
    /// The answer in a sentence.
    pub answer: String,
    /// What is compared: `requests/s`, `p99` or `p95`; null where a run has too few requests.
    pub metric: Option<String>,
    /// How many times better than in the earlier run HTTP/2 itself is, with its interval.
    pub subject: Option<[f64; 3]>,
    /// How many times better HTTP/1.1 was, with its interval; null where a run lacks it.
    pub before: Option<[f64; 3]>,
    /// How many times better it is now.
    pub now: Option<[f64; 3]>,
    /// The part of the difference that is gone: 1 if all is, below 0 if it has grown; null if there was none.
    pub closed: Option<f64>,
    /// Why one of the runs is no sound measurement, so that nothing follows; null if both are.
    pub doubt: Option<String>,
    /// The run: its cells, figures and warnings.
    pub run: crate::Document,
}

/// How much of a difference is gone, for programs.
pub fn since_document(report: &Report<'_>, since: Option<&Since>) -> SinceDocument {
    let numbers = |effect: Effect| [effect.ratio, effect.low, effect.high].map(rounded);
    let gap = since.and_then(|since| since.gap.as_ref());
    SinceDocument {
        answer: since_sentence(report, since),
        metric: since.map(|since| since.metric.name().to_owned()),
        subject: since.map(|since| numbers(since.subject)),
        before: gap.map(|gap| numbers(gap.before)),
        now: gap.map(|gap| numbers(gap.now)),
        closed: gap.and_then(|gap| gap.closed).map(rounded),
        doubt: since.and_then(|since| since.doubt.clone()),
        run: crate::document(report),
    }
}

/// The same for a terminal.
pub fn since_text(report: &Report<'_>, since: Option<&Since>, style: TextStyle) -> String {
    let mut out = String::new();
    text::findings(&mut out, report, style);
    text::places(&mut out, report, style);
    out.push('\n');
    answer::lines(&mut out, &[since_sentence(report, since)], style);
    style.printable(out)
}

fn since_sentence(report: &Report<'_>, since: Option<&Since>) -> String {
    let lead =
        if report.run.interrupted { "Interrupted: this is what was measured until then. " } else { "" };
    format!("{lead}{}", gone(since))
}

fn gone(since: Option<&Since>) -> String {
    let Some(since) = since else {
        return "Nothing is known of the difference: a run lacks one of the two protocols, or has too few requests.".to_owned();
    };
    if let Some(doubt) = &since.doubt {
        return format!(
            "Nothing is known of the difference, one of the runs is no sound measurement: {doubt}."
        );
    }
    let own = own(since);
    let Some(gap @ Gap { now, closed, .. }) = &since.gap else {
        return format!("{own}; nothing is known of a difference.");
    };
    let figures = format!("{}; {own}", figures(since.metric, gap));
    match closed {
        None => format!("There was no difference to close: {figures}."),
        Some(_) if now.low <= 1.0 && now.ratio < 1.1 => format!("All of the difference is gone: {figures}."),
        Some(part) if *part < 0.0 => format!("The difference has grown: {figures}."),
        Some(part) => format!("{:.0} % of the difference is gone: {figures}.", part * 100.0),
    }
}

/// `3.70 × (3.1–4.2)`, in two parts.
fn of(effect: &Effect) -> [String; 2] {
    let Effect { ratio: times, low, high, .. } = *effect;
    [ratio(times), format!("({}–{})", ratio(low), ratio(high))]
}

/// What became of HTTP/2 itself.
fn own(since: &Since) -> String {
    let [times, interval] = of(&since.subject);
    let metric = since.metric.name();
    format!("HTTP/2 itself is {times} × as good as then in {metric} {interval}")
}

/// `p95 was 3.70 × that of HTTP/1.1 (3.1–4.2), and is 1.02 × now (0.95–1.1)`.
fn figures(metric: Metric, gap: &Gap) -> String {
    let ([before, before_interval], [now, now_interval]) = (of(&gap.before), of(&gap.now));
    match metric {
        Metric::Served => format!(
            "HTTP/1.1 served {before} × as many requests/s {before_interval}, and serves {now} × as many now {now_interval}"
        ),
        Metric::Response(_) | Metric::Median | Metric::Run => {
            let name = metric.name();
            format!(
                "{name} was {before} × that of HTTP/1.1 {before_interval}, and is {now} × now {now_interval}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_analysis::stats::Tail;

    fn effect(ratio: f64) -> Effect {
        Effect { ratio, low: ratio * 0.9, high: ratio * 1.1, before: ratio, after: 1.0 }
    }

    fn sentence(since: &Since) -> String {
        gone(Some(since))
    }

    #[test]
    fn a_ratio_is_told_of_what_it_is_a_ratio() {
        let since = |metric, now, closed| Since {
            metric,
            subject: effect(3.0),
            gap: Some(Gap { before: effect(3.7), now: effect(now), closed }),
            doubt: None,
        };
        assert_eq!(
            sentence(&since(Metric::Response(Tail::P95), 0.99, Some(1.0))),
            "All of the difference is gone: p95 was 3.70 × that of HTTP/1.1 (3.33–4.07), and is 0.99 × now (0.89–1.09); HTTP/2 itself is 3.00 × as good as then in p95 (2.70–3.30)."
        );
        assert_eq!(
            sentence(&since(Metric::Served, 2.0, Some(0.7))),
            "70 % of the difference is gone: HTTP/1.1 served 3.70 × as many requests/s (3.33–4.07), and serves 2.00 × as many now (1.80–2.20); HTTP/2 itself is 3.00 × as good as then in requests/s (2.70–3.30)."
        );
    }

    #[test]
    fn nothing_follows_from_runs_that_are_not_sound() {
        let doubt = Some("now, the generator was late".to_owned());
        let since = Since { metric: Metric::Served, subject: effect(3.0), gap: None, doubt };
        assert_eq!(
            sentence(&since),
            "Nothing is known of the difference, one of the runs is no sound measurement: now, the generator was late."
        );
    }
}
