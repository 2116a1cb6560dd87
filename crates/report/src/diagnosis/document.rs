//! What `diagnose --json` prints.

use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::experiment::{Outcome, Trial};
use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Diagnosis, FixDocument, Fixing, UncheckedDocument};
use crate::document::round::rounded;
use crate::sentences;

/// A trial as a program reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialDocument {
    /// What was changed, in words.
    pub change: String,
    /// The flags of `compare` that change it; null where there are none.
    pub flags: Option<String>,
    /// The ids of the causes that it takes away.
    pub causes: Vec<String>,
    /// The index of the changed cell.
    pub cell: u32,
    /// How often it was measured beside the unchanged one.
    pub rounds: u32,
    /// `confirmed`, `worse`, `refuted`, `undecided` or `void`.
    pub outcome: String,
    /// Why there is no sound measurement of it; null otherwise.
    pub why: Option<String>,
    /// How many times better it is; below 1 it is worse. Null if unknown.
    pub effect: Option<f64>,
    /// The ends of its interval: the chance of one false claim among all changes of a run is at most 5 %.
    pub interval: Option<[f64; 2]>,
    /// The part of the difference from the other protocol that it closes, 0 to 1; null without a difference.
    pub closes: Option<f64>,
    /// The ends of its interval, from those of the effect's interval and of the difference's; null without a difference.
    #[serde(default)]
    pub closes_interval: Option<[f64; 2]>,
}

/// A cause in the document of `diagnose --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseDocument {
    /// Its id in the catalogue: `LOSS101`.
    pub id: String,
    /// `confirmed` by a change, else `observed` or `inferred` from the records.
    pub confidence: String,
    /// The part of the difference from the other protocol that it explains, 0 to 1; null if that is not known. Those of
    /// all causes add up to at most 1.
    pub explains: Option<f64>,
    /// The part of that difference that the change closes which confirmed it, 0 to 1: a change may take several causes
    /// away. Null for a cause that is not confirmed.
    #[serde(default)]
    pub closes: Option<f64>,
}

/// The document of `diagnose --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiagnosisDocument {
    /// The answer in a few sentences.
    pub answer: Vec<String>,
    /// What the effects are effects on: `requests/s`, `p99`, `p95`, or `p50` where only the usual request differs; of a
    /// user's client `time of a run`, `p95` or `p50`.
    pub metric: String,
    /// The index of the cell that was asked about.
    pub subject: u32,
    /// What its protocol does against the other one: as in the verdicts of `compare`; null if only one is spoken.
    pub verdict: Option<String>,
    /// The same at the server itself, where the subject goes through a proxy (`--via`); null otherwise.
    #[serde(default)]
    pub direct: Option<String>,
    /// The subject's verdict in a sentence.
    pub statement: Option<String>,
    /// The causes, the most important first: what an experiment confirmed, then what the records show.
    pub causes: Vec<CauseDocument>,
    /// The findings in it.
    pub findings: Vec<Finding>,
    /// The part of the difference that these leave unexplained, 0 to 1; null where they divide none, or explain 99 % or
    /// more.
    #[serde(default)]
    pub unexplained: Option<f64>,
    /// What was tried.
    pub trials: Vec<TrialDocument>,
    /// The command that repeats this; null if nothing was tried.
    #[serde(default)]
    pub repeat: Option<String>,
    /// The causes that could not be looked for, with what that needs; none if HTTP/2 is no slower.
    #[serde(default)]
    pub unchecked: Vec<UncheckedDocument>,
    /// What became of `--fix`; null if it was not asked for.
    #[serde(default)]
    pub fix: Option<FixDocument>,
    /// The run: its cells, figures and warnings.
    pub run: crate::Document,
}

impl Diagnosis<'_> {
    /// The causes, the most important first. What a change takes away without a finding for it comes last, if it is one cause alone.
    /// Observations are none.
    pub(crate) fn causes(&self) -> Vec<CauseDocument> {
        let findings = self.own_findings();
        let findings: Vec<&Finding> = findings.iter().filter(|finding| !finding.is_observation()).collect();
        let mut causes: Vec<CauseDocument> = Vec::new();
        let mut add = |id: &str, confidence: &str, closes: Option<f64>| {
            if causes.iter().all(|cause| cause.id != id) {
                let (id, confidence) = (id.to_owned(), confidence.to_owned());
                // A rule may have several findings.
                let its = findings.iter().filter(|finding| finding.rule == id);
                let explains = its.filter_map(|finding| finding.explains).reduce(|a, b| a + b);
                let [explains, closes] = [explains, closes].map(|part| part.map(rounded));
                causes.push(CauseDocument { id, confidence, explains, closes });
            }
        };
        let confirmed = self.experiment.confirmed();
        for trial in &confirmed {
            let is_shown = |finding: &&&Finding| trial.shows(finding, findings.iter().copied());
            if let Some(finding) = findings.iter().find(is_shown) {
                add(&finding.rule, "confirmed", trial.closes.map(|[part, ..]| part));
            }
        }
        let by_fix = self.fix.and_then(Fixing::confirmed);
        if let Some(finding) = findings.iter().find(|finding| by_fix == Some(finding.rule.as_str())) {
            add(&finding.rule, "confirmed", None);
        }
        for finding in &findings {
            add(&finding.rule, finding.confidence.name(), None);
        }
        // That a change helps shows its cause less than a record does.
        for trial in &confirmed {
            if let [only] = trial.knob.causes()[..] {
                add(only, "confirmed", trial.closes.map(|[part, ..]| part));
            }
        }
        causes
    }

    /// For programs.
    pub fn document(&self) -> DiagnosisDocument {
        let trial = |trial: &Trial| TrialDocument {
            change: trial.knob.words(),
            flags: trial.knob.flags(),
            causes: trial.knob.causes().iter().map(|id| (*id).to_owned()).collect(),
            cell: trial.cell,
            rounds: trial.rounds,
            outcome: trial.outcome.name().to_owned(),
            why: match &trial.outcome {
                Outcome::Void(why) => Some(why.clone()),
                _ => None,
            },
            effect: trial.effect.map(|effect| rounded(effect.ratio)),
            interval: trial.effect.map(|effect| [effect.low, effect.high].map(rounded)),
            closes: trial.closes.map(|[part, ..]| rounded(part)),
            closes_interval: trial.closes.map(|[_, low, high]| [low, high].map(rounded)),
        };
        let own = self.own_findings();
        let unexplained = sentences::unexplained(&self.of_subject(&own));
        DiagnosisDocument {
            answer: self.answer(),
            metric: self.experiment.metric.name().to_owned(),
            subject: self.subject,
            verdict: self.experiment.verdict.as_ref().map(|verdict| verdict.conclusion.name().to_owned()),
            direct: self.experiment.direct.as_ref().map(|verdict| verdict.conclusion.name().to_owned()),
            statement: self.statement(),
            causes: self.causes(),
            findings: own,
            unexplained: unexplained.first().map(|(_, part)| rounded(*part)),
            trials: self.experiment.trials.iter().map(trial).collect(),
            repeat: (!self.experiment.trials.is_empty()).then(|| self.repeated()),
            unchecked: self.unchecked_document(),
            fix: self.fix_document(),
            run: crate::document(&self.report),
        }
    }
}
