//! What `diagnose --again` says: how much of a difference is gone.

use h2lab_analysis::experiment::{Effect, Since};
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
    /// How many times better HTTP/1.1 was, with its interval.
    pub before: Option<[f64; 3]>,
    /// How many times better it is now.
    pub now: Option<[f64; 3]>,
    /// The part of the difference that is gone: 1 if all is, below 0 if it has grown; null if there was none.
    pub closed: Option<f64>,
    /// The run: its cells, figures and warnings.
    pub run: crate::Document,
}

/// How much of a difference is gone, for programs.
pub fn since_document(report: &Report<'_>, since: Option<&Since>) -> SinceDocument {
    let numbers = |effect: Effect| [effect.ratio, effect.low, effect.high].map(rounded);
    SinceDocument {
        answer: since_sentence(report, since),
        metric: since.map(|since| since.metric.name().to_owned()),
        before: since.map(|since| numbers(since.before)),
        now: since.map(|since| numbers(since.now)),
        closed: since.and_then(|since| since.closed).map(rounded),
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
    let of =
        |effect: &Effect| format!("{} × ({}–{})", ratio(effect.ratio), ratio(effect.low), ratio(effect.high));
    let (metric, before, now) = (since.metric.name(), of(&since.before), of(&since.now));
    let figures = format!("HTTP/1.1 was better by {before} in {metric}, and is now by {now}");
    match since.closed {
        None => format!("There was no difference to close: {figures}."),
        Some(_) if since.now.low <= 1.0 && since.now.ratio < 1.1 => {
            format!("All of the difference is gone: {figures}.")
        }
        Some(part) if part < 0.0 => format!("The difference has grown: {figures}."),
        Some(part) => format!("{:.0} % of the difference is gone: {figures}.", part * 100.0),
    }
}
