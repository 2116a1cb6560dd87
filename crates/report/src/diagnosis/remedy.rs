//! What `diagnose --fix` says: what was changed, how much of the difference that closed, and what it made worse.

use std::fmt::Write as _;

use h2lab_analysis::experiment::{Effect, Harm, Outcome, Remedy};
use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Diagnosis, figure_of, sentence};
use crate::document::round::rounded;
use crate::format::ratio;
use crate::sentences;

/// What became of `--fix`.
#[derive(Debug, Clone, PartialEq)]
pub enum Fixing {
    /// Nothing was changed; why, and what the user may do.
    Not(String),
    /// A setting was changed in a copy of the configuration.
    Made {
        /// The product and the line.
        words: String,
        /// The cause that it takes away, and whether the experiment had confirmed it.
        cause: Option<(String, bool)>,
        /// What it did; `None` if not all of its rounds were measured, or too few of their requests were answered for an
        /// effect: it is undecided.
        remedy: Option<Box<Remedy>>,
        /// The unified diff of the configuration.
        diff: String,
        /// The changed files.
        files: Vec<String>,
    },
}

impl Fixing {
    /// The id of the cause that the rounds of the fix confirm, whatever the experiment had shown of it.
    pub fn confirmed(&self) -> Option<&str> {
        match self {
            Self::Made { cause: Some((id, _)), remedy: Some(remedy), .. } => {
                (remedy.outcome == Outcome::Confirmed).then_some(id.as_str())
            }
            _ => None,
        }
    }
}

/// The fix in the document of `diagnose --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixDocument {
    /// What was changed and what it did, in sentences; or why nothing was.
    pub says: Vec<String>,
    /// The setting, as its product writes it; null if nothing was changed. Likewise all below.
    pub setting: Option<String>,
    /// The id of the cause that it takes away.
    pub cause: Option<String>,
    /// How many times better the other protocol is without the fix, with its interval; null without another protocol.
    pub before: Option<[f64; 3]>,
    /// The same with the fix.
    pub after: Option<[f64; 3]>,
    /// How many times better the fix makes it, with its interval.
    pub effect: Option<[f64; 3]>,
    /// The part of the difference that is gone, with its interval: 1 if all is; null if these rounds showed no difference.
    pub closed: Option<[f64; 3]>,
    /// What it made worse.
    pub worse: Vec<String>,
    /// Why these rounds are no sound measurement; null if they are one.
    pub doubt: Option<String>,
    /// The unified diff of the configuration.
    pub diff: Option<String>,
    /// The changed files.
    pub files: Vec<String>,
}

/// What is said where no figure was shown to be worse: which were compared.
const NO_HARM: &str = "Nothing was shown to be worse by 10 % or more: quantiles, requests/s, the server's memory and CPU per request.";

/// Whether the other protocol is known to be worse.
fn is_ahead(gap: &Effect) -> bool {
    gap.high < 1.0
}

/// That a fix was not shown to help, if so.
fn not_shown(remedy: &Remedy) -> Option<String> {
    let shown = match &remedy.outcome {
        Outcome::Worse => "It was shown to make this worse",
        Outcome::Refuted => "It was shown to have no effect of 15 % or more",
        Outcome::Undecided if remedy.effect.low > 1.0 => "It was not shown to help by 10 % or more",
        Outcome::Undecided => "It was not shown to help",
        Outcome::Void(why) if remedy.doubt.is_none() => {
            return Some(format!("Whether it helps could not be judged: {why}."));
        }
        Outcome::Confirmed | Outcome::Void(_) => return None,
    };
    Some(format!("{shown}, in {} rounds of their own.", remedy.rounds))
}

impl Diagnosis<'_> {
    /// What is said of the fix; nothing if none was asked for.
    pub(crate) fn fix_says(&self) -> Vec<String> {
        match self.fix {
            None => Vec::new(),
            Some(Fixing::Not(why)) => vec![format!("No fix was made: {why}.")],
            Some(Fixing::Made { words, cause, remedy, files, .. }) => {
                let by_fix = self.fix.and_then(Fixing::confirmed);
                let cause = match cause {
                    Some((id, true)) => format!(" ({id}, confirmed)"),
                    Some((id, false)) if by_fix.is_some() => format!(" ({id}, confirmed by these rounds)"),
                    Some((id, false)) => format!(" ({id}, not confirmed)"),
                    None => String::new(),
                };
                let mut says = match remedy {
                    Some(remedy) => self.remedy_says(&format!("Fix {words}{cause}"), remedy),
                    None => vec![format!(
                        "Fix {words}{cause}: undecided, since not all of its rounds were measured (they were ended, or took too \
                         long), or too few of their requests were answered."
                    )],
                };
                says.push(format!(
                    "The changed configuration is {}; nothing of yours was changed.",
                    files.join(", ")
                ));
                says
            }
        }
    }

    fn remedy_says(&self, lead: &str, remedy: &Remedy) -> Vec<String> {
        let effect = &remedy.effect;
        let mut first = format!(
            "{lead}: {} from {} to {}, {} × ({}–{})",
            remedy.metric.name(),
            figure_of(remedy.metric, effect.before),
            figure_of(remedy.metric, effect.after),
            ratio(effect.ratio),
            ratio(effect.low),
            ratio(effect.high),
        );
        let gaps = remedy.before.zip(remedy.after);
        if let Some((before, after)) = gaps.filter(|(before, _)| !is_ahead(before)) {
            let _ = write!(
                first,
                "; the difference was {} × ({}–{}), and is {} × ({}–{})",
                ratio(before.ratio),
                ratio(before.low),
                ratio(before.high),
                ratio(after.ratio),
                ratio(after.low),
                ratio(after.high)
            );
        }
        first.push('.');
        let harm = self.harm(remedy);
        let third = if !harm.is_empty() {
            let harm = harm.join("; ");
            Some(format!("It made worse (with intervals of 95 %, corrected for all figures): {harm}."))
        } else if matches!(remedy.outcome, Outcome::Void(_)) || effect.high < 1.0 {
            // No such claim follows from unsound rounds, nor beside an effect for the worse.
            None
        } else {
            Some(NO_HARM.to_owned())
        };
        let doubt = remedy.doubt.as_ref();
        let doubt = doubt
            .map(|why| format!("The rounds of the fix are no sound measurement, and may mislead: {why}."));
        let closed = self.closed_says(remedy);
        [doubt, Some(first), not_shown(remedy), closed, third].into_iter().flatten().collect()
    }

    /// How much of the difference a fix closes, or that there was none; nothing where it was not shown to help.
    fn closed_says(&self, remedy: &Remedy) -> Option<String> {
        Some(match remedy.closed {
            Some(_) if remedy.effect.low <= 1.0 || matches!(remedy.outcome, Outcome::Void(_)) => return None,
            // Beyond the other protocol: of a small difference that is many times as much, which says nothing.
            Some([part, low, _]) if part > 1.0 => format!(
                "That closes all of the difference (at least {:.0} %, of an interval of 95 %), in {} rounds of their own.",
                low.min(1.0) * 100.0,
                remedy.rounds
            ),
            Some([part, low, high]) => format!(
                "That closes {:.0} % of the difference (95 % interval {:.0} to {:.0} %), in {} rounds of their own.",
                part * 100.0,
                low * 100.0,
                high * 100.0,
                remedy.rounds
            ),
            None => match remedy.before {
                Some(before) if is_ahead(&before) => self.ahead_says(&before),
                Some(_) => "These rounds showed no difference to close.".to_owned(),
                None => "There is no other protocol, so there is no difference to close.".to_owned(),
            },
        })
    }

    /// That the subject was better than its twin already without the fix, from the effect of the twin on it.
    fn ahead_says(&self, before: &Effect) -> String {
        let its = self.report.analysis.cell(self.subject).map(sentences::name);
        let other = self.twin().map(sentences::name);
        format!(
            "Without the fix, {} was better already, {} × ({}–{}) as good as {}: there was no difference to close.",
            its.as_deref().unwrap_or("what was examined"),
            ratio(before.ratio.recip()),
            ratio(before.high.recip()),
            ratio(before.low.recip()),
            other.as_deref().unwrap_or("the other protocol"),
        )
    }

    /// That the rounds of the fix confirm a cause which the experiment had left open, if they do.
    pub(super) fn fix_confirms(&self) -> Option<String> {
        let id = self.fix?.confirmed()?;
        let finding = self.findings().find(|finding| finding.rule == id && !finding.is_observation());
        let symptom = finding.map_or_else(|| ".".to_owned(), |one| format!(": {}", sentence(&one.symptom)));
        Some(format!(
            "Confirmed ({id}) by the rounds of the fix; the experiment alone had left it open{symptom}"
        ))
    }

    fn harm(&self, remedy: &Remedy) -> Vec<String> {
        let label = |index: u32| {
            let mut cells = self.report.run.repetitions.iter().map(|one| &one.cell);
            cells
                .find(|cell| cell.index == index)
                .map_or_else(String::new, h2lab_model::scenario::Cell::label)
        };
        let words = |harm: &Harm| {
            let [low, high] = harm.interval.map(ratio);
            format!("{} of {} ({} ×, {low}–{high})", harm.what, label(harm.cell), ratio(harm.ratio))
        };
        remedy.harm.iter().map(words).collect()
    }

    /// The diff, if a fix was made.
    pub(crate) fn diff(&self) -> Option<&str> {
        match self.fix {
            Some(Fixing::Made { diff, .. }) => Some(diff),
            _ => None,
        }
    }

    /// The fix for programs.
    pub(super) fn fix_document(&self) -> Option<FixDocument> {
        let says = self.fix_says();
        let mut document = FixDocument {
            says,
            setting: None,
            cause: None,
            before: None,
            after: None,
            effect: None,
            closed: None,
            worse: Vec::new(),
            doubt: None,
            diff: None,
            files: Vec::new(),
        };
        if let Fixing::Made { words, cause, remedy, diff, files } = self.fix? {
            document.setting = Some(words.clone());
            document.cause = cause.as_ref().map(|(id, _)| id.clone());
            (document.diff, document.files) = (Some(diff.clone()), files.clone());
            if let Some(remedy) = remedy {
                let numbers = |effect: Effect| [effect.ratio, effect.low, effect.high].map(rounded);
                (document.before, document.after) = (remedy.before.map(numbers), remedy.after.map(numbers));
                document.effect = Some(numbers(remedy.effect));
                document.closed = remedy.closed.map(|closed| closed.map(rounded));
                document.worse = self.harm(remedy);
                document.doubt.clone_from(&remedy.doubt);
            }
        }
        Some(document)
    }
}
