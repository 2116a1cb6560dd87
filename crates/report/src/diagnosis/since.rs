//! What `diagnose --again` says: how much of a difference is gone, and how much better HTTP/2 itself is.

use h2lab_analysis::experiment::{Effect, Gap, Since};
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
    /// The run: its cells, figures and warnings.
    pub run: crate::Document,
}

/// How much of a difference is gone, for programs.
pub fn since_document(report: &Report<'_>, since: Option<&Since>) -> SinceDocument {
    let numbers = |effect: Effect| [effect.ratio, effect.low, effect.high].map(rounded);
    let gap = since.and_then(|since| since.gap.as_ref());
    SinceDocument {
        answer: since_sentence(since),
        metric: since.map(|since| since.metric.name().to_owned()),
        subject: since.map(|since| numbers(since.subject)),
        before: gap.map(|gap| numbers(gap.before)),
        now: gap.map(|gap| numbers(gap.now)),
        closed: gap.and_then(|gap| gap.closed).map(rounded),
        run: crate::document(report),
    }
}

/// The same for a terminal.
pub fn since_text(report: &Report<'_>, since: Option<&Since>, style: TextStyle) -> String {
    let mut out = String::new();
    text::findings(&mut out, report, style);
    text::places(&mut out, report, style);
    out.push('\n');
    answer::lines(&mut out, &[since_sentence(since)], style);
    style.printable(out)
}

fn since_sentence(since: Option<&Since>) -> String {
    let Some(since) = since else {
        return "Nothing is known of the difference: a run lacks one of the two protocols, or has too few requests.".to_owned();
    };
    let of =
        |effect: &Effect| format!("{} × ({}–{})", ratio(effect.ratio), ratio(effect.low), ratio(effect.high));
    let metric = since.metric.name();
    let own = format!("HTTP/2 itself is better than then by {} in {metric}", of(&since.subject));
    let Some(Gap { before, now, closed }) = &since.gap else {
        return format!("{own}; nothing is known of a difference.");
    };
    let figures =
        format!("HTTP/1.1 was better by {} in {metric}, and is now by {}; {own}", of(before), of(now));
    match closed {
        None => format!("There was no difference to close: {figures}."),
        Some(_) if now.low <= 1.0 && now.ratio < 1.1 => format!("All of the difference is gone: {figures}."),
        Some(part) if *part < 0.0 => format!("The difference has grown: {figures}."),
        Some(part) => format!("{:.0} % of the difference is gone: {figures}.", part * 100.0),
    }
}
