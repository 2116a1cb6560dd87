//! A diagnosis for other programs and for issues: SARIF, `JUnit`, Markdown.

use std::fmt::Write;

use h2lab_analysis::diagnose::{CAUSES, CauseMeta, Finding};
use h2lab_analysis::experiment::{Effect, Outcome, Trial};
use h2lab_analysis::stats::{CellState, CellSummary};
use h2lab_model::scenario::Target;
use serde_json::{Value, json};

use super::{COLUMNS, CauseDocument, Diagnosis};
use crate::Report;
use crate::answer::{self, LEAST_COST};
use crate::document::round::rounded;
use crate::format::{NOT_RESOLVED, count, interval_of, plural, shell_line};
use crate::junit::{Case, CaseOutcome, Suites};
use crate::markdown::{self, escaped};
use crate::sarif::{SarifResult, log};

/// The class of the cases of what was measured.
const MEASUREMENT: &str = "h2lab.diagnose.measurement";

/// The cause with this id.
fn cause(id: &str) -> Option<&'static CauseMeta> {
    CAUSES.iter().copied().find(|cause| cause.id == id)
}

impl Diagnosis<'_> {
    /// As a SARIF log: causes that an experiment confirmed `fail`, what the records show is for `review`, and causes
    /// whose change had no effect `pass`. Causes whose change is undecided are `open`, unless a rule looks for them:
    /// what rules look for and did not find is not there.
    pub fn sarif(&self) -> Value {
        let causes = self.causes();
        let mut results: Vec<SarifResult> = causes.iter().map(|cause| self.result(cause)).collect();
        for trial in &self.experiment.trials {
            let kind = match trial.outcome {
                Outcome::Refuted | Outcome::Worse => "pass",
                Outcome::Undecided | Outcome::Void(_) => "open",
                Outcome::Confirmed => continue,
            };
            let is_looked_for = |id: &str| cause(id).is_some_and(|meta| meta.rule().is_some());
            for id in trial.knob.causes() {
                let is_absent = kind == "open" && is_looked_for(id);
                if !is_absent && results.iter().all(|result| result.rule != id) {
                    let message = self.of_trial(trial);
                    results.push(SarifResult {
                        rule: id.to_owned(),
                        kind,
                        level: "none",
                        target: self.target(),
                        message,
                        properties: Value::Null,
                    });
                }
            }
        }
        let failures: Vec<String> = self.unsound().map(|(label, _, why)| format!("{label}: {why}")).collect();
        log(&self.report.run.version, &rules(&results), &results, &failures)
    }

    /// As a `JUnit` document: a case for each cause that was found and each change that was tried. A cause that an experiment
    /// confirmed fails; what was not decided is skipped. What could not be measured is an error. If all was measured and no cause
    /// was found, one case says so and passes.
    pub fn junit(&self) -> String {
        let measurement = self.measurement();
        let causes = self.causes().iter().map(|cause| self.case(cause)).collect();
        let causes = or_none(causes, &measurement);
        let suites = Suites {
            name: match self.unread {
                // The address that the lab gave to the server says nothing of a client.
                Some(_) => suites_name(&self.report),
                None => format!("h2lab diagnose {}", self.target()),
            },
            seconds: self.took.map_or_else(|| seconds(&self.report), |took| took.as_secs_f64()),
            all: vec![
                ("Measurement".to_owned(), measurement),
                ("Causes".to_owned(), causes),
                (
                    "Changes".to_owned(),
                    self.experiment.trials.iter().map(|trial| self.change(trial)).collect(),
                ),
            ],
        };
        suites.xml()
    }

    /// To paste into an issue: the answer, the experiments, the findings.
    pub fn markdown(&self) -> String {
        let mut out = String::from("# h2lab diagnose\n\n");
        for sentence in self.answer() {
            let _ = writeln!(out, "**{}**\n", escaped(&sentence));
        }
        if !self.experiment.trials.is_empty() {
            let _ = writeln!(out, "## Experiments: {}\n", escaped(self.experiment.metric.name()));
            let (titles, sides) = markdown::titled(&COLUMNS);
            markdown::table(&mut out, &titles, &sides, &self.rows());
            let _ = writeln!(out, "\n{}\n", escaped(super::CORRECTED));
            let _ = writeln!(out, "Repeat it: `{}`\n", self.repeated());
        }
        if let Some(diff) = self.diff() {
            let _ = writeln!(out, "## Fix\n\n```diff\n{}\n```\n", diff.trim_end().replace("```", "` ` `"));
        }
        let findings = self.own_findings();
        markdown::findings(&mut out, &self.of_subject(&findings));
        let open = self.ruled_out();
        if !open.is_empty() {
            out.push_str("\n## Ruled out and open\n\n");
            for line in open {
                let _ = writeln!(out, "- {}", escaped(&line));
            }
        }
        markdown::warnings(&mut out, &self.report);
        out
    }

    /// What was asked: the URL, or the server that h2lab started.
    fn target(&self) -> String {
        target(&self.report, self.subject)
    }

    /// The cells that the verdict is about.
    fn compared(&self) -> impl Iterator<Item = &CellSummary> {
        let twin = self.experiment.verdict.as_ref().map(|verdict| verdict.baseline);
        let cells = self.report.analysis.cells.iter();
        cells.filter(move |one| one.cell.index == self.subject || Some(one.cell.index) == twin)
    }

    /// What was not measured as it was meant to be: its name, its kind, and why.
    fn unsound(&self) -> impl Iterator<Item = (String, &'static str, String)> {
        let is_interrupted = self.report.run.interrupted;
        let run = || {
            let by_user = || ("run".to_owned(), "interrupted", "the run was interrupted".to_owned());
            failure(&self.report).unwrap_or_else(by_user)
        };
        let is_outlived = self.invalid_first_run().is_some();
        let left = self.compared().filter(move |one| !is_outlived || one.cell.index != self.subject);
        let cells = left.filter_map(|one| {
            let (kind, why) = unsound(one)?;
            Some((one.label.clone(), kind, why))
        });
        is_interrupted.then(run).into_iter().chain(cells)
    }

    /// A case for each cell that the verdict is about, and for what was not measured.
    fn measurement(&self) -> Vec<Case> {
        let case = |name: String, outcome| Case { class: MEASUREMENT.to_owned(), name, outcome };
        let errors = self
            .unsound()
            .map(|(name, kind, message)| case(name, CaseOutcome::Errored { kind: kind.to_owned(), message }));
        let skipped = |why: String| case("first run".to_owned(), CaseOutcome::Skipped(why));
        let first = self.invalid_first_run().map(skipped);
        let sound = self.compared().filter(|one| unsound(one).is_none());
        let said = |one: &CellSummary| match self.unread {
            // How many requests a client makes in a second is its own.
            Some(_) => {
                let requests = &one.requests;
                format!("{} of {} succeeded", count(requests.succeeded), plural(requests.sent, "request"))
            }
            None => format!("served {}/s", crate::format::rate(one.served_rps)),
        };
        let passed = sound.map(|one| case(one.label.clone(), CaseOutcome::Passed(said(one))));
        errors.chain(first).chain(passed).collect()
    }

    /// What is known of a cause, in sentences, with what to change; behind it the changes that were without effect.
    fn known(&self, cause: &CauseDocument) -> String {
        let confirmed = self.experiment.confirmed();
        let own = self.own_findings();
        let finding = own.iter().find(|finding| finding.rule == cause.id);
        let is_its = |trial: &&&Trial| match finding {
            Some(finding) => trial.shows(finding, &own),
            None => trial.knob.causes().contains(&cause.id.as_str()),
        };
        let trial = confirmed.iter().find(is_its).map(|trial| self.of_trial(trial));
        let without_effect = finding.map_or_else(Vec::new, |finding| self.experiment.without_effect(finding));
        let without_effect = without_effect.into_iter().map(|trial| self.of_trial(trial));
        trial.into_iter().chain(finding.map(shown)).chain(without_effect).collect::<Vec<_>>().join("\n")
    }

    fn result(&self, cause: &CauseDocument) -> SarifResult {
        SarifResult {
            rule: cause.id.clone(),
            kind: if cause.is_confirmed() { "fail" } else { "review" },
            level: "warning",
            target: self.target(),
            message: self.known(cause),
            properties: json!({
                "confidence": cause.confidence,
                "explains": cause.explains,
                "closes": cause.closes,
            }),
        }
    }

    fn case(&self, one: &CauseDocument) -> Case {
        let (known, name) = (self.known(one), cause(&one.id).map_or("", |cause| cause.name));
        let message = known.lines().next().unwrap_or_default().to_owned();
        Case {
            class: format!("h2lab.diagnose.{}", one.id),
            name: format!("{} {name}", one.id),
            outcome: if one.is_confirmed() {
                CaseOutcome::Failed { kind: one.confidence.clone(), message, details: known }
            } else {
                CaseOutcome::Skipped(format!("{}, not confirmed: {message}", one.confidence))
            },
        }
    }

    fn change(&self, trial: &Trial) -> Case {
        let said = self.of_trial(trial);
        Case {
            class: "h2lab.diagnose.change".to_owned(),
            name: trial.knob.words(),
            outcome: match trial.outcome {
                Outcome::Undecided | Outcome::Void(_) => CaseOutcome::Skipped(said),
                // That a change helps is the failure of its cause, above.
                _ => CaseOutcome::Passed(said),
            },
        }
    }

    /// `refuted: 4 connections: p99 is 1.02 × as good (…)`.
    fn of_trial(&self, trial: &Trial) -> String {
        let of = |effect: &Effect| match interval_of([effect.ratio, effect.low, effect.high], "") {
            Some(_) => self.effect(effect),
            None => NOT_RESOLVED.to_owned(),
        };
        // What is void has not been measured.
        let known = trial.effect.filter(|_| !matches!(trial.outcome, Outcome::Void(_)));
        let effect = known.map_or(String::new(), |effect| format!(": {}", of(&effect)));
        let why = match &trial.outcome {
            Outcome::Void(why) => format!(": {why}"),
            _ => String::new(),
        };
        format!("{}: {}{effect}{why}", trial.outcome.name(), trial.knob.words())
    }
}

/// Why a cell has no sound measurement of the work that was asked for, with the kind of that; `None` if it has one.
pub(super) fn unsound(summary: &CellSummary) -> Option<(&'static str, String)> {
    match &summary.state {
        CellState::Invalid { reasons } => Some(("invalid", reasons.join("; "))),
        CellState::Failed { why, .. } => Some(("failed", why.clone())),
        CellState::Unsupported { why } => Some(("unsupported", why.clone())),
        CellState::Ok | CellState::Unstable { .. } => summary.no_success().map(|why| ("failed", why)),
    }
}

/// What the records of any run show, as a SARIF log: each finding is for `review`, since nothing was changed to confirm it.
pub fn sarif_of_findings(report: &Report<'_>) -> Value {
    let result = |finding: &Finding| SarifResult {
        rule: finding.rule.clone(),
        kind: "review",
        level: "warning",
        target: target(report, finding.cell),
        message: shown(finding),
        properties: json!({
            "cell": placed(report, finding.cell, &finding.label),
            "confidence": finding.confidence.name(),
            "explains": finding.explains.map(rounded),
        }),
    };
    let results: Vec<SarifResult> = causes_of(report).map(result).collect();
    let failures: Vec<String> = unmeasured(report).map(|(label, _, why)| format!("{label}: {why}")).collect();
    log(&report.run.version, &rules(&results), &results, &failures)
}

/// The same as a `JUnit` document: each finding is a case that is skipped, since nothing was changed to confirm it. Cells without
/// a success are errors.
pub fn junit_of_findings(report: &Report<'_>) -> String {
    let case = |finding: &Finding| Case {
        class: format!("h2lab.diagnose.{}", finding.rule),
        name: format!("{} {}: {}", finding.rule, finding.name, placed(report, finding.cell, &finding.label)),
        outcome: CaseOutcome::Skipped(format!(
            "{}, not confirmed: {}",
            finding.confidence.name(),
            finding.symptom
        )),
    };
    let errored = |(name, kind, message): (String, &str, String)| Case {
        class: MEASUREMENT.to_owned(),
        name,
        outcome: CaseOutcome::Errored { kind: kind.to_owned(), message },
    };
    let failed: Vec<Case> = unmeasured(report).map(errored).collect();
    let cases = or_none(causes_of(report).map(case).collect(), &failed);
    let name = suites_name(report);
    let suites = vec![("Measurement".to_owned(), failed), ("Causes".to_owned(), cases)];
    Suites { name, seconds: seconds(report), all: suites }.xml()
}

/// The cells that have no sound measurement, or of which no request succeeded: label, kind, and why. What a server does not speak
/// is no failure.
fn unmeasured<'a>(report: &'a Report<'_>) -> impl Iterator<Item = (String, &'static str, String)> + 'a {
    let cells = report.analysis.cells.iter().filter_map(|summary| {
        let unsound = unsound(summary).filter(|(kind, _)| *kind != "unsupported");
        let (kind, why) = unsound.or_else(|| Some(("failed", summary.without_success()?)))?;
        Some((placed(report, summary.cell.index, &summary.label), kind, why))
    });
    failure(report).into_iter().chain(cells)
}

/// The label of a cell with its condition or server: other cells may have that label, and CI merges cases of one name.
fn placed(report: &Report<'_>, cell: u32, label: &str) -> String {
    let at = report.analysis.cell(cell).map(|summary| answer::at(report, summary.cell.group));
    format!("{label}{}", at.unwrap_or_default())
}

/// The name of a document about a run: of one of `diagnose` the command, which names the capture or the client.
fn suites_name(report: &Report<'_>) -> String {
    match report.run.command.get(1).map(String::as_str) {
        Some("diagnose") => shell_line(&report.run.command),
        command => format!("h2lab diagnose: a run of {}", command.unwrap_or("run")),
    }
}

/// Why a run could not go on to its end, in the form of [`unmeasured`].
fn failure(report: &Report<'_>) -> Option<(String, &'static str, String)> {
    let why = report.run.failure.as_ref()?;
    Some(("run".to_owned(), "failed", format!("the run could not go on: {why}")))
}

/// These cases of causes; without one, and if all was measured, a case that passes: a document without a case looks like a tool that
/// did not run.
fn or_none(mut causes: Vec<Case>, measurement: &[Case]) -> Vec<Case> {
    if causes.is_empty() && !measurement.iter().any(Case::is_error) {
        let (class, name) = ("h2lab.diagnose".to_owned(), "no cause was found".to_owned());
        causes.push(Case { class, name, outcome: CaseOutcome::Passed(String::new()) });
    }
    causes
}

/// The findings that name a cause of slowness. Where a cell is compared with nothing, that is where its time goes.
fn causes_of<'a>(report: &'a Report<'_>) -> impl Iterator<Item = &'a Finding> {
    let is_alone = |cell: u32| {
        report.analysis.verdicts.iter().all(|verdict| verdict.cell != cell && verdict.baseline != cell)
    };
    let is_cause = move |finding: &&Finding| {
        !finding.is_observation() || finding.cost_share >= LEAST_COST && is_alone(finding.cell)
    };
    report.findings.iter().filter(is_cause)
}

/// What a finding says, and what to change.
fn shown(finding: &Finding) -> String {
    let fixes = finding.fixes.iter();
    let fixes = fixes.map(|fix| format!("fix, {}: {} ({})", fix.product, fix.setting, fix.why));
    std::iter::once(finding.symptom.clone()).chain(fixes).collect::<Vec<_>>().join("\n")
}

/// What a cell asks: the URL, or the server that h2lab started.
fn target(report: &Report<'_>, index: u32) -> String {
    let mut cells = report.run.repetitions.iter().map(|one| &one.cell);
    match cells.find(|cell| cell.index == index).map(|cell| &cell.target) {
        Some(Target::Url { url }) => url.clone(),
        Some(Target::Sut { name }) => name.clone(),
        Some(Target::Origin) | None => "origin".to_owned(),
    }
}

/// Measured time, warm-ups without.
fn seconds(report: &Report<'_>) -> f64 {
    report.run.repetitions.iter().map(|one| one.cell.work.phases.measure.as_secs_f64()).sum()
}

/// The rules of these results.
pub(crate) fn rules(results: &[SarifResult]) -> Vec<Value> {
    let mut ids: Vec<&str> = results.iter().map(|result| result.rule.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().filter_map(cause).map(rule).collect()
}

impl CauseDocument {
    fn is_confirmed(&self) -> bool {
        self.confidence == "confirmed"
    }
}

fn rule(meta: &CauseMeta) -> Value {
    let text = meta.text();
    json!({
        "id": meta.id,
        "name": meta.name,
        "shortDescription": { "text": meta.summary },
        "help": { "text": text, "markdown": text },
        "defaultConfiguration": { "level": "warning" },
    })
}
