//! What an experiment leaves: what it ruled out, what it left undecided, and for which causes nothing was looked for.

use h2lab_analysis::diagnose::{CAUSES, Status};
use h2lab_analysis::experiment::{Outcome, Trial};
use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Diagnosis;

/// A cause that no rule looks for in such records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UncheckedDocument {
    /// Its id in the catalogue: `MUX102`.
    pub id: String,
    /// What would show it.
    pub needs: String,
}

impl Diagnosis<'_> {
    /// The changes with this outcome.
    fn with(&self, outcome: &Outcome) -> Vec<String> {
        let trials = self.experiment.trials.iter().filter(|trial| trial.outcome == *outcome);
        trials.map(|trial| trial.knob.words()).collect()
    }

    /// What was ruled out, what is still open, and what could not be checked.
    pub(crate) fn ruled_out(&self) -> Vec<String> {
        let refuted = self.with(&Outcome::Refuted);
        let these = match refuted.len() {
            1 => "this one".to_owned(),
            n => format!("these {n}"),
        };
        let list = |lead: &str, words: &[String]| {
            (!words.is_empty()).then(|| format!("{lead}: {}.", words.join(", ")))
        };
        let lists = [
            list(&format!("No effect of 15 % or more, or none above our own lateness, in {these}"), &refuted),
            list("Undecided, a larger --budget may decide", &self.with(&Outcome::Undecided)),
        ];
        let void = self.experiment.trials.iter().filter_map(|trial| match &trial.outcome {
            Outcome::Void(why) => Some(format!("Void: {}: {why}.", trial.knob.words())),
            _ => None,
        });
        let seen = self.unread.map(|unread| super::seen(&self.report, unread));
        let unchecked = if self.experiment.is_healthy() { Vec::new() } else { unchecked(seen.is_some()) };
        lists.into_iter().flatten().chain(void).chain(seen).chain(unchecked).collect()
    }

    /// The causes that could not be looked for, for programs; none where there is nothing to look for.
    pub(super) fn unchecked_document(&self) -> Vec<UncheckedDocument> {
        let needs = CAUSES.iter().filter_map(|cause| {
            let needs = cause.status.needs()?.to_owned();
            Some(UncheckedDocument { id: cause.id.to_owned(), needs })
        });
        needs.filter(|_| !self.experiment.is_healthy()).collect()
    }
}

/// A change that was tried and did not help.
pub(super) fn tried(trial: &Trial) -> String {
    let words = trial.knob.words();
    match trial.outcome {
        Outcome::Worse => format!("worse here with {words}"),
        _ => format!("tried here: no effect of 15 % or more with {words}"),
    }
}

/// For how many causes rules look, in the connections of a user's client or in others, and what it takes to check the
/// others: a sentence each.
pub(super) fn unchecked(is_of_client: bool) -> Vec<String> {
    let is_looked_for = |status: Status| match status {
        Status::OfClient(_) => is_of_client,
        other => other.is_found(),
    };
    let rules = CAUSES.iter().filter(|cause| is_looked_for(cause.status)).count();
    let looked = format!("Looked for {rules} of the {} causes in the catalogue.", CAUSES.len());
    let of = |lead: &str, is_its: fn(Status) -> bool| {
        let its = CAUSES.iter().filter(|cause| is_its(cause.status));
        let ids: Vec<&str> = its.map(|cause| cause.id).collect();
        (!ids.is_empty()).then(|| format!("{lead}: {} (`h2lab explain ID`).", ids.join(", ")))
    };
    let others = [
        of("Looked for in a client of yours only, by `h2lab diagnose --run`", |status| {
            matches!(status, Status::OfClient(_))
        })
        .filter(|_| !is_of_client),
        of(
            "Could not be checked without a view of the server, of a proxy or of another client (CPU, memory, threads, logs, \
             both sides of the proxy)",
            |status| matches!(status, Status::NeedsServer(_)),
        ),
        of("Not checked, since no rule reads it from records or a capture yet", |status| {
            matches!(status, Status::Page(_))
        }),
    ];
    std::iter::once(looked).chain(others.into_iter().flatten()).collect()
}
