//! `diagnose`: what HTTP/2 costs here, why, which change was shown to help, and what was ruled out.

use std::fmt::Write;

use h2lab_analysis::diagnose::{CAUSES, Finding};
use h2lab_analysis::experiment::{Effect, Experiment, Metric, Outcome, Since, Trial};
use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::document::round::rounded;
use super::format::{millis_unit, plural, rate, ratio};
use super::style::{Paint, TextStyle, painted, paragraph};
use super::table::{self, Column, name, number};
use super::{Report, sentences, text};

/// A run of `diagnose` and what its experiment shows.
#[derive(Debug, Clone, Copy)]
pub struct Diagnosis<'a> {
    /// The run, with the findings in it.
    pub report: Report<'a>,
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The index of the cell that was asked about.
    pub subject: u32,
    /// The command that compares the subject with one changed cell, without the change.
    pub repeat: &'a str,
}

/// The columns of the table of trials.
const COLUMNS: [Column; 6] = [
    name("change").rank(0),
    number("before", "").rank(5),
    number("after", "").rank(4),
    number("effect", "").rank(1),
    name("interval").rank(3),
    name("result").rank(0),
];

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
    /// The ends of its interval: the chance of one false claim in the whole run is at most 5 %.
    pub interval: Option<[f64; 2]>,
    /// The part of the difference from the other protocol that it closes, 0 to 1; null without a difference.
    pub closes: Option<f64>,
}

/// A cause in the document of `diagnose --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseDocument {
    /// Its id in the catalogue: `LOSS101`.
    pub id: String,
    /// `confirmed` by a change, else `observed` or `inferred` from the records.
    pub confidence: String,
    /// The part of the difference from the other protocol that it explains, 0 to 1; null if that is not known.
    pub explains: Option<f64>,
}

/// The document of `diagnose --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiagnosisDocument {
    /// The answer in a few sentences.
    pub answer: Vec<String>,
    /// What the effects are effects on: `requests/s`, `p99` or `p95`.
    pub metric: String,
    /// The index of the cell that was asked about.
    pub subject: u32,
    /// What its protocol does against the other one: as in the verdicts of `compare`; null if only one is spoken.
    pub verdict: Option<String>,
    /// The same in a sentence.
    pub statement: Option<String>,
    /// The causes, the most important first: what an experiment confirmed, then what the records show.
    pub causes: Vec<CauseDocument>,
    /// The findings in it.
    pub findings: Vec<Finding>,
    /// What was tried.
    pub trials: Vec<TrialDocument>,
    /// The run: its cells, figures and warnings.
    pub run: super::Document,
}

/// What the records of a run show, for a terminal: the findings, and how many causes were looked for.
pub fn of_run(report: &Report<'_>, style: TextStyle) -> String {
    let mut out = String::new();
    text::findings(&mut out, report, style);
    let rules = CAUSES.iter().filter(|cause| cause.rule().is_some()).count();
    out.push('\n');
    let looked = format!(
        "Looked for {} of the {} causes in the catalogue; the others take a capture or a view of the server: `h2lab explain` says \
         what each needs. Nothing was changed, so nothing is confirmed: `h2lab diagnose` without a run folder does that.",
        rules,
        CAUSES.len()
    );
    paragraph(&mut out, style, "", &looked);
    text::places(&mut out, report, style);
    out.push('\n');
    super::answer::text(&mut out, report, style);
    style.printable(out)
}

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
    pub run: super::Document,
}

/// How much of a difference is gone, for programs.
pub fn since_document(report: &Report<'_>, since: Option<&Since>) -> SinceDocument {
    let numbers = |effect: Effect| [effect.ratio, effect.low, effect.high].map(rounded);
    SinceDocument {
        answer: since_sentence(since),
        metric: since.map(|since| since.metric.name().to_owned()),
        before: since.map(|since| numbers(since.before)),
        now: since.map(|since| numbers(since.now)),
        closed: since.and_then(|since| since.closed).map(rounded),
        run: super::document(report),
    }
}

/// The same for a terminal.
pub fn since_text(report: &Report<'_>, since: Option<&Since>, style: TextStyle) -> String {
    let mut out = String::new();
    text::findings(&mut out, report, style);
    text::places(&mut out, report, style);
    out.push('\n');
    super::answer::lines(&mut out, &[since_sentence(since)], style);
    style.printable(out)
}

fn since_sentence(since: Option<&Since>) -> String {
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

impl Diagnosis<'_> {
    /// The findings about the subject.
    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.report.findings.iter().filter(|finding| finding.cell == self.subject)
    }

    /// The causes, the most important first. What a change takes away without a finding for it counts if it is one cause alone.
    /// Observations are none.
    fn causes(&self) -> Vec<CauseDocument> {
        let findings: Vec<&Finding> = self.findings().filter(|finding| !finding.is_observation()).collect();
        let mut causes: Vec<CauseDocument> = Vec::new();
        let mut add = |id: &str, confidence: &str, explains: Option<f64>| {
            if causes.iter().all(|cause| cause.id != id) {
                causes.push(CauseDocument { id: id.to_owned(), confidence: confidence.to_owned(), explains });
            }
        };
        for trial in self.experiment.confirmed() {
            let taken = trial.knob.causes();
            let found = findings.iter().find(|finding| taken.contains(&finding.rule.as_str()));
            match (found, taken) {
                (Some(finding), _) => add(&finding.rule, "confirmed", trial.closes.map(rounded)),
                (None, [only]) => add(only, "confirmed", trial.closes.map(rounded)),
                (None, _) => {}
            }
        }
        for finding in findings {
            add(&finding.rule, finding.confidence.name(), finding.explains.map(rounded));
        }
        causes
    }

    fn with(&self, outcome: fn(&Outcome) -> bool) -> Vec<String> {
        let trials = self.experiment.trials.iter().filter(|trial| outcome(&trial.outcome));
        trials.map(|trial| trial.knob.words()).collect()
    }

    /// What the subject's protocol costs, in a sentence.
    fn statement(&self) -> Option<String> {
        self.experiment.verdict.as_ref().map(|verdict| sentences::headline(&self.report, verdict))
    }

    /// The answer: what it costs, the cause, what helps.
    pub fn answer(&self) -> Vec<String> {
        let mut answer: Vec<String> =
            self.statement().map(|statement| format!("{statement}.")).into_iter().collect();
        let confirmed = self.experiment.confirmed();
        if let Some(best) = confirmed.first() {
            answer.push(self.confirmed(best));
        } else if self.experiment.trials.is_empty() {
            if self.experiment.is_healthy() {
                answer.push("There is nothing to explain: no experiment was made.".to_owned());
            }
        } else {
            let tried = plural(self.experiment.trials.len() as u64, "change");
            answer.push(format!("None of {tried} on the client's side was shown to help."));
            answer.extend(self.findings().next().map(|finding| {
                format!("Suspect ({}, not confirmed): {}", finding.rule, sentence(&finding.symptom))
            }));
        }
        answer
    }

    /// `Confirmed (LOSS101): 4 connections: requests/s 3.3 × (3.0–3.7), 98 % of the difference. Change: …`
    fn confirmed(&self, best: &Trial) -> String {
        let its = |finding: &&Finding| best.knob.causes().contains(&finding.rule.as_str());
        let finding = self.findings().find(its);
        let cause = finding.map_or(String::new(), |finding| format!(" ({})", finding.rule));
        let effect = best.effect.map_or(String::new(), |effect| self.effect(&effect));
        let closes = best.closes.map_or(String::new(), |closes| {
            format!(", which closes {:.0} % of the difference", closes * 100.0)
        });
        let why = finding.map_or(String::new(), |finding| format!(" Cause: {}", sentence(&finding.symptom)));
        format!("Confirmed{cause}: with {}, {effect}{closes}.{why}", best.knob.words())
    }

    /// `p99 improves 1.8 × (1.6–2.1; 120 ms to 66 ms)`.
    fn effect(&self, effect: &Effect) -> String {
        format!(
            "{} improves {} × ({}–{}; {} to {})",
            self.experiment.metric.name(),
            ratio(effect.ratio),
            ratio(effect.low),
            ratio(effect.high),
            self.figure(effect.before),
            self.figure(effect.after)
        )
    }

    fn figure(&self, value: f64) -> String {
        match self.experiment.metric {
            Metric::Served => rate(value),
            Metric::Response(_) => millis_unit(Duration::from_secs_f64(value.clamp(0.0, 1e9))),
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |trial: &Trial| {
            let of = |field: fn(&Effect) -> f64| trial.effect.as_ref().map(field);
            let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let closes = trial.closes.filter(|_| trial.outcome == Outcome::Confirmed);
            let closes = closes.map_or(String::new(), |part| format!(", closes {:.0} %", part * 100.0));
            vec![
                trial.knob.words(),
                dash(of(|effect| effect.before).map(|value| self.figure(value))),
                dash(of(|effect| effect.after).map(|value| self.figure(value))),
                dash(of(|effect| effect.ratio).map(|value| format!("{} ×", ratio(value)))),
                dash(trial.effect.map(|effect| format!("{}–{}", ratio(effect.low), ratio(effect.high)))),
                format!("{}{closes}", trial.outcome.name()),
            ]
        };
        self.experiment.trials.iter().map(row).collect()
    }

    /// For a terminal.
    pub fn text(&self, style: TextStyle) -> String {
        let mut out = String::new();
        self.trials(&mut out, style);
        text::findings(&mut out, &self.of_subject(&self.own_findings()), style);
        self.ruled_out(&mut out, style);
        text::places(&mut out, &self.report, style);
        out.push('\n');
        super::answer::lines(&mut out, &self.answer(), style);
        style.printable(out)
    }

    fn own_findings(&self) -> Vec<Finding> {
        self.findings().cloned().collect()
    }

    /// The report with these findings alone.
    fn of_subject<'a>(&'a self, findings: &'a [Finding]) -> Report<'a> {
        Report { findings, ..self.report }
    }

    fn trials(&self, out: &mut String, style: TextStyle) {
        if self.experiment.trials.is_empty() {
            return;
        }
        let title = format!("Experiments: one setting changed at a time, {}", self.experiment.metric.name());
        let _ = writeln!(out, "{}", style.paint(Paint::Bold, &title));
        let rows = self.rows();
        let lines = table::lay_out(&COLUMNS, &rows, style.limit());
        let _ = writeln!(out, "{}", style.paint(Paint::Dim, &lines[0]));
        for (line, trial) in lines[2..].iter().zip(&self.experiment.trials) {
            let paint = match trial.outcome {
                Outcome::Confirmed => Some(Paint::Green),
                Outcome::Worse => Some(Paint::Red),
                _ => None,
            };
            let _ = writeln!(out, "{}", paint.map_or_else(|| line.clone(), |paint| style.paint(paint, line)));
        }
        if let Some(note) = table::left_out(&COLUMNS, &rows, style.limit()) {
            painted(out, style, Paint::Dim, "", &note);
        }
        paragraph(
            out,
            style,
            "",
            "Effects above 1 are better. The intervals are corrected for all changes and looks together: the chance of one \
             false claim in this run is at most 5 %.",
        );
        let repeated = self.experiment.confirmed().first().and_then(|best| best.knob.flags());
        if let Some(flags) = repeated {
            let _ = writeln!(out, "repeat: {} {flags}", self.repeat);
        }
    }

    fn ruled_out(&self, out: &mut String, style: TextStyle) {
        let lists = [
            ("No effect of 15 % or more: ", self.with(|outcome| *outcome == Outcome::Refuted)),
            (
                "Undecided, a larger --budget may decide: ",
                self.with(|outcome| *outcome == Outcome::Undecided),
            ),
        ];
        let said: Vec<String> = lists
            .into_iter()
            .filter(|(_, words)| !words.is_empty())
            .map(|(lead, words)| format!("{lead}{}.", words.join(", ")))
            .collect();
        if !said.is_empty() {
            let _ = writeln!(out, "\n{}", style.paint(Paint::Bold, "Ruled out and open"));
            for line in &said {
                paragraph(out, style, "- ", line);
            }
        }
        for trial in &self.experiment.trials {
            if let Outcome::Void(why) = &trial.outcome {
                paragraph(out, style, "- ", &format!("not measured: {}: {why}", trial.knob.words()));
            }
        }
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
            closes: trial.closes.map(rounded),
        };
        DiagnosisDocument {
            answer: self.answer(),
            metric: self.experiment.metric.name().to_owned(),
            subject: self.subject,
            verdict: self.experiment.verdict.as_ref().map(|verdict| verdict.conclusion.name().to_owned()),
            statement: self.statement(),
            causes: self.causes(),
            findings: self.own_findings(),
            trials: self.experiment.trials.iter().map(trial).collect(),
            run: super::document(&self.report),
        }
    }
}

/// A sentence with one full stop at its end.
fn sentence(text: &str) -> String {
    format!("{}.", sentences::lower_first(text.trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::*;
    use h2lab_model::experiment::Knob;

    fn trial(knob: Knob, outcome: Outcome, ratio: f64) -> Trial {
        let effect = Effect { ratio, low: ratio * 0.9, high: ratio * 1.1, before: 0.12, after: 0.12 / ratio };
        Trial { knob, cell: 9, rounds: 3, effect: Some(effect), outcome, closes: Some(0.88) }
    }

    fn experiment(fixture: &Fixture) -> Experiment {
        Experiment {
            verdict: fixture
                .analysis
                .verdicts
                .iter()
                .find(|one| one.cell == fixture.findings[0].cell)
                .cloned(),
            metric: Metric::Response(h2lab_analysis::stats::Tail::P99),
            trials: vec![
                trial(Knob::Connections(4), Outcome::Confirmed, 1.8),
                trial(Knob::LongFrames, Outcome::Refuted, 1.0),
                trial(Knob::LargeWindows, Outcome::Undecided, 1.2),
                trial(Knob::NoPush, Outcome::Void("9 of 10 requests failed".to_owned()), 0.1),
            ],
        }
    }

    fn text(experiment: &Experiment, fixture: &Fixture) -> String {
        let subject = fixture.findings[0].cell;
        Diagnosis { report: fixture.report(), experiment, subject, repeat: "h2lab compare --loss 3%" }
            .text(TextStyle::default())
    }

    #[test]
    fn the_page_has_the_experiment_the_finding_and_the_answer() {
        let fixture = Fixture::new();
        insta::assert_snapshot!(text(&experiment(&fixture), &fixture));
    }

    #[test]
    fn without_a_confirmed_change_the_finding_stays_a_suspect() {
        let fixture = Fixture::new();
        let mut experiment = experiment(&fixture);
        experiment.trials.remove(0);
        let text = text(&experiment, &fixture);
        assert!(text.contains("Suspect (LOSS101, not confirmed)"), "{text}");
        assert!(!text.contains("Confirmed"), "{text}");
    }

    #[test]
    fn the_document_has_what_the_page_has() {
        let fixture = Fixture::new();
        let experiment = experiment(&fixture);
        let subject = fixture.findings[0].cell;
        let document =
            Diagnosis { report: fixture.report(), experiment: &experiment, subject, repeat: "" }.document();
        let outcomes: Vec<&str> = document.trials.iter().map(|trial| trial.outcome.as_str()).collect();
        assert_eq!(outcomes, ["confirmed", "refuted", "undecided", "void"]);
        assert_eq!(document.trials[3].why.as_deref(), Some("9 of 10 requests failed"));
        assert_eq!(document.findings.len(), 1);
        let causes: Vec<(&str, &str)> =
            document.causes.iter().map(|cause| (cause.id.as_str(), cause.confidence.as_str())).collect();
        assert_eq!(causes, [("LOSS101", "confirmed")]);
    }
}
