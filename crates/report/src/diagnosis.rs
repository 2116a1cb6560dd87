//! `diagnose`: what HTTP/2 costs here, why, which change was shown to help, and what was ruled out.

mod document;
mod interchange;
mod remedy;
mod since;

use std::fmt::Write;

use h2lab_analysis::diagnose::{CAUSES, Finding};
use h2lab_analysis::experiment::{Effect, Experiment, Metric, Outcome, Trial};
use h2lab_analysis::stats::{CellState, CellVerdict, Conclusion, Failed};
use std::time::Duration;

use super::format::{NOT_RESOLVED, interval_of, millis_unit, plural, rate, ratio, shell_line, without_flags};
use super::style::{Paint, TextStyle, painted, paragraph};
use super::table::{self, Column, name, number};
use super::{Report, sentences, text};

pub use document::{CauseDocument, DiagnosisDocument, TrialDocument};
pub use remedy::{FixDocument, Fixing};
pub use since::{SinceDocument, since_document, since_text};

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
    pub repeat: &'a [String],
    /// What became of `--fix`; `None` if it was not asked for.
    pub fix: Option<&'a Fixing>,
    /// Whether it goes through a proxy in front of a server that was to be measured, too.
    pub is_via: bool,
}

/// The columns of the table of trials.
pub(super) const COLUMNS: [Column; 6] = [
    name("change").rank(0),
    number("before", "").rank(5),
    number("after", "").rank(4),
    number("effect", "").rank(1),
    name("interval").rank(3),
    name("result").rank(0),
];

/// What costs less of the response time is not named as the suspect.
const LEAST_SUSPECT: f64 = 0.02;
/// An observation of so much of the response time is part of the answer.
const MOST: f64 = 0.5;
/// The flags of changes that have two names.
const NAMES: [(&str, &str); 4] =
    [("-c", "--connections"), ("-w", "--stream-window"), ("-f", "--max-frame-size"), ("-m", "--streams")];

/// Causes of connections that HTTP/1.1 has as well: dials at once, what was dialled, idle connections that end, and TLS sessions.
const OF_ANY_CONNECTION: [&str; 4] = ["CONN104", "CONN108", "CONN110", "CONN111"];

/// Whether a cause is one of HTTP/2's own mechanisms, so that it cannot be why HTTP/1.1 takes as long.
fn is_of_http2(rule: &str) -> bool {
    let is_own = ["MUX", "FLOW", "HPACK", "FRAME"].iter().any(|family| rule.starts_with(family));
    is_own || (rule.starts_with("CONN") && !OF_ANY_CONNECTION.contains(&rule))
}

/// What effects and their intervals mean.
pub(super) const CORRECTED: &str = "Effects above 1 are better. The intervals are corrected for all changes and looks together: the chance of one \
     false claim in this run is at most 5 %.";

/// What the records of a run show, for a terminal: the findings, and how many causes were looked for.
pub fn of_run(report: &Report<'_>, style: TextStyle) -> String {
    let mut out = String::new();
    text::findings(&mut out, report, style);
    out.push('\n');
    let is_diagnose = report.run.command.get(1).is_some_and(|word| word == "diagnose");
    let looked = if is_diagnose {
        format!("{} The experiments of this run are in its report.html.", unchecked())
    } else {
        format!(
            "{} Nothing was changed, so nothing is confirmed: `h2lab diagnose` without a run folder does that.",
            unchecked()
        )
    };
    paragraph(&mut out, style, "", &looked);
    text::places(&mut out, report, style);
    out.push('\n');
    super::answer::text(&mut out, report, style);
    style.printable(out)
}

/// What a capture shows, for a terminal: the findings, what cannot be known from it, and how many causes were looked for.
pub fn of_capture(report: &Report<'_>, style: TextStyle) -> String {
    let looked = format!("{} Nothing was measured, changed or compared.", unchecked());
    of_packets(report, &looked, style)
}

/// What the connections of a client show that the user named, for a terminal; `seen` is what came from it.
pub fn of_client(report: &Report<'_>, seen: &str, style: TextStyle) -> String {
    let looked = format!(
        "Seen: {seen}. {} The client was run once and nothing was changed: what was found is observed, not confirmed. To confirm it, \
         change the client as the fix says, and run the same command again.",
        unchecked()
    );
    of_packets(report, &looked, style)
}

fn of_packets(report: &Report<'_>, looked: &str, style: TextStyle) -> String {
    let mut out = String::new();
    text::findings(&mut out, report, style);
    if report.findings.is_empty() {
        out.push_str("\nNo cause was found.\n");
    }
    text::warnings(&mut out, report, style);
    out.push('\n');
    paragraph(&mut out, style, "", looked);
    out.push('\n');
    super::answer::text(&mut out, report, style);
    style.printable(out)
}

impl Diagnosis<'_> {
    /// The findings about the subject.
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.report.findings.iter().filter(|finding| finding.cell == self.subject)
    }

    fn with(&self, outcome: fn(&Outcome) -> bool) -> Vec<String> {
        let trials = self.experiment.trials.iter().filter(|trial| outcome(&trial.outcome));
        trials.map(|trial| trial.knob.words()).collect()
    }

    /// What the subject's protocol costs, in a sentence.
    fn statement(&self) -> Option<String> {
        self.experiment.verdict.as_ref().map(|verdict| sentences::headline(&self.report, verdict))
    }

    /// That there is nothing to compare the subject with.
    fn alone(&self) -> String {
        let cell = self.report.analysis.cell(self.subject);
        let protocol = cell.map_or_else(|| "HTTP/2".to_owned(), |summary| summary.cell.protocol.to_string());
        format!("Only {protocol} was measured: whether another protocol is faster here is not known.")
    }

    /// Where the difference arises, if the server itself was measured too.
    fn hop(&self) -> Option<String> {
        let via = self.experiment.verdict.as_ref().filter(|_| self.is_via)?;
        let Some(direct) = self.experiment.direct.as_ref() else {
            let why = "The server itself speaks HTTP/1.1 alone: HTTP/2 ends at the proxy, and its difference arises there or before it.";
            return via.is_slower().then(|| why.to_owned());
        };
        let carries = direct.conclusion != Conclusion::BothUnstable;
        let place = match (via.is_slower(), direct.is_slower()) {
            _ if via.conclusion == Conclusion::BothUnstable && carries => {
                "the proxy, or what is between it and the client, does not carry this load in either protocol"
            }
            (true, false) if direct.is_no_slower() => {
                "the difference arises at the proxy, or between it and the client"
            }
            (true, true) => "it is so without the proxy as well, which is not the only cause",
            (false, true) if via.is_no_slower() => {
                "clients of the proxy do not notice, since it is the proxy that speaks to the server"
            }
            _ => "nothing is known of where a difference arises",
        };
        Some(format!("At the server itself: {}; {place}.", sentences::headline(&self.report, direct)))
    }

    /// The answer: what it costs, the cause, what helps.
    pub fn answer(&self) -> Vec<String> {
        let mut answer: Vec<String> = Vec::new();
        if self.report.run.interrupted {
            let what = if self.is_server_gone() { "The server ended" } else { "Interrupted" };
            answer.push(format!("{what}: this is what was measured until then."));
        }
        answer.push(self.statement().map_or_else(|| self.alone(), |statement| format!("{statement}.")));
        answer.extend(self.failing());
        answer.extend(self.silences());
        answer.extend(self.hop());
        let trials = self.experiment.trials.len() as u64;
        if let Some(best) = self.best() {
            answer.push(self.confirmed(best));
        } else if trials > 0 {
            answer.push(match trials {
                1 => "The one change that was tried was not shown to help.".to_owned(),
                _ => format!("None of {trials} changes was shown to help."),
            });
            answer.extend(self.suspect());
        } else if self.experiment.is_healthy() {
            let found = self.failures().or_else(|| self.observed());
            answer.push(found.unwrap_or_else(|| "There is nothing to explain.".to_owned()));
        } else {
            answer.push(match self.experiment.untried as u64 {
                _ if self.report.run.interrupted && self.is_server_gone() => {
                    "No change was tried: the server had ended before.".to_owned()
                }
                _ if self.report.run.interrupted => {
                    "No change was tried: the run was interrupted before.".to_owned()
                }
                0 => "No change was tried: none applies here.".to_owned(),
                n => format!(
                    "No change was tried: the budget was spent on the unchanged cells; a larger --budget tries {}.",
                    plural(n, "change")
                ),
            });
            answer.extend(self.suspect());
        }
        answer.extend(self.fix_says());
        answer.iter().map(|sentence| sentences::capitalised(sentence)).collect()
    }

    /// Whether a cell ended with its server: then nobody interrupted the run.
    fn is_server_gone(&self) -> bool {
        let is_gone = |state: &CellState| matches!(state, CellState::Failed { how: Failed::ServerEnded, .. });
        self.report.analysis.cells.iter().any(|summary| is_gone(&summary.state))
    }

    /// In which times nothing arrived, over each protocol without a change: whatever the percentiles are, that is no matter of a protocol.
    fn silences(&self) -> Option<String> {
        let twin = self.experiment.verdict.as_ref().map(|verdict| verdict.baseline);
        let cells = twin.into_iter().chain([self.subject]).filter_map(|cell| self.report.analysis.cell(cell));
        let said: Vec<String> =
            cells.filter_map(|cell| Some(format!("{}: {}", sentences::name(cell), cell.silence?))).collect();
        (!said.is_empty()).then(|| format!("{}.", said.join("; ")))
    }

    /// Which share of the requests failed without a change, over which protocol, and how.
    fn failing(&self) -> Option<String> {
        let twin = self.experiment.verdict.as_ref().map(|verdict| verdict.baseline);
        super::answer::failing(&self.report, twin.into_iter().chain([self.subject]))
    }

    /// The cause that the records show and no change confirmed.
    fn suspect(&self) -> Option<String> {
        let is_suspect = |finding: &&Finding| {
            !finding.is_observation()
                && finding.cost_share >= LEAST_SUSPECT
                && !self.is_refuted(&finding.rule)
        };
        let found = self.findings().find(is_suspect);
        let suspect = |finding: &Finding| {
            format!("Suspect ({}, not confirmed): {}", finding.rule, sentence(&finding.symptom))
        };
        found.map(suspect).or_else(|| self.observed())
    }

    /// Whether a change that takes this cause away was tried, and none of these helped.
    fn is_refuted(&self, rule: &str) -> bool {
        let tried = || self.experiment.trials.iter().filter(|trial| trial.knob.causes().contains(&rule));
        tried().next().is_some()
            && tried().all(|trial| matches!(trial.outcome, Outcome::Refuted | Outcome::Worse))
    }

    /// Where most of the time goes, though not because of HTTP/2.
    fn observed(&self) -> Option<String> {
        let found = self.findings().find(|finding| finding.is_observation() && finding.cost_share >= MOST)?;
        let where_else = if is_of_http2(&found.rule) {
            let baseline = self.experiment.verdict.as_ref().map(|verdict| verdict.baseline);
            let twin = baseline.and_then(|cell| self.report.analysis.cell(cell));
            twin.map_or(String::new(), |twin| {
                format!(" over HTTP/2, though {} is no faster", sentences::name(twin))
            })
        } else {
            " over any protocol".to_owned()
        };
        Some(format!(
            "Most of the time goes there{where_else} ({}): {}",
            found.rule,
            sentence(&found.symptom)
        ))
    }

    /// Why requests failed, or would at another rate, where no protocol is slower.
    fn failures(&self) -> Option<String> {
        let found = self.findings().find(|finding| finding.of_failures && !finding.is_observation())?;
        Some(format!("Found ({}): {}", found.rule, sentence(&found.symptom)))
    }

    /// The change that the answer names: the most effective one whose cause was found, since that is what can be fixed; else the most
    /// effective one.
    fn best(&self) -> Option<&Trial> {
        let confirmed = self.experiment.confirmed();
        let takes_away = |trial: &Trial, rule: &str| trial.knob.causes().contains(&rule);
        let is_found = |trial: &&&Trial| {
            self.findings().any(|finding| !finding.is_observation() && takes_away(trial, &finding.rule))
        };
        confirmed.iter().find(is_found).or(confirmed.first()).copied()
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
        // Nothing that has to be explained, and yet there is something to gain.
        let is_alike = |verdict: &CellVerdict| {
            matches!(
                verdict.conclusion,
                Conclusion::Faster | Conclusion::NoDifference | Conclusion::BaselineUnstable { .. }
            )
        };
        let is_alike = self.experiment.verdict.as_ref().is_some_and(is_alike);
        let lead = if is_alike { "It can be faster all the same" } else { "Confirmed" };
        format!("{lead}{cause}: with {}, {effect}{closes}.{why}", best.knob.words())
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
        figure_of(self.experiment.metric, value)
    }

    pub(super) fn rows(&self) -> Vec<Vec<String>> {
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
                dash(trial.effect.map(|effect| {
                    let interval = interval_of([effect.ratio, effect.low, effect.high], "–");
                    interval.unwrap_or_else(|| NOT_RESOLVED.to_owned())
                })),
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
        self.ruled_out_text(&mut out, style);
        if let Some(diff) = self.diff() {
            let _ = writeln!(out, "\n{}\n{}", style.paint(Paint::Bold, "Fix"), diff.trim_end());
        }
        text::warnings(&mut out, &self.report, style);
        text::places(&mut out, &self.report, style);
        out.push('\n');
        super::answer::lines(&mut out, &self.answer(), style);
        style.printable(out)
    }

    pub(super) fn own_findings(&self) -> Vec<Finding> {
        self.findings().cloned().collect()
    }

    /// The report with these findings alone.
    pub(super) fn of_subject<'a>(&'a self, findings: &'a [Finding]) -> Report<'a> {
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
        paragraph(out, style, "", CORRECTED);
        if let Some(command) = self.repeated() {
            let _ = writeln!(out, "repeat: {command}");
        }
    }

    /// The command that repeats the experiment with the largest effect.
    pub(super) fn repeated(&self) -> Option<String> {
        let flags = self.best().filter(|_| !self.repeat.is_empty())?.knob.flags()?;
        let name = flags.split(' ').next()?;
        let names = NAMES.iter().find(|(short, _)| *short == name).map_or(vec![name], |(a, b)| vec![a, b]);
        Some(format!("{} {flags}", shell_line(&without_flags(self.repeat, &names))))
    }

    /// What was ruled out, what is still open, and what could not be checked.
    pub(super) fn ruled_out(&self) -> Vec<String> {
        let list = |lead: &str, outcome: fn(&Outcome) -> bool| {
            let words = self.with(outcome);
            (!words.is_empty()).then(|| format!("{lead}{}.", words.join(", ")))
        };
        let lists = [
            list("No effect of 15 % or more, or none above our own lateness: ", |outcome| {
                *outcome == Outcome::Refuted
            }),
            list("Undecided, a larger --budget may decide: ", |outcome| *outcome == Outcome::Undecided),
        ];
        let void = self.experiment.trials.iter().filter_map(|trial| match &trial.outcome {
            Outcome::Void(why) => Some(format!("Void: {}: {why}.", trial.knob.words())),
            _ => None,
        });
        let unchecked = (!self.experiment.is_healthy()).then(unchecked);
        lists.into_iter().flatten().chain(void).chain(unchecked).collect()
    }

    fn ruled_out_text(&self, out: &mut String, style: TextStyle) {
        let said = self.ruled_out();
        if !said.is_empty() {
            let _ = writeln!(out, "\n{}", style.paint(Paint::Bold, "Ruled out and open"));
        }
        for line in &said {
            paragraph(out, style, "- ", line);
        }
    }
}

/// A figure of a metric as it is written.
fn figure_of(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Served => rate(value),
        Metric::Response(_) => millis_unit(Duration::from_secs_f64(value.clamp(0.0, 1e9))),
    }
}

/// What no rule looks for, and where it is said what that takes.
fn unchecked() -> String {
    let rules = CAUSES.iter().filter(|cause| cause.rule().is_some()).count();
    format!(
        "Looked for {rules} of the {} causes in the catalogue; the others take a capture or a view of the server: `h2lab explain` \
         says what each needs.",
        CAUSES.len()
    )
}

/// A sentence with one full stop at its end.
fn sentence(text: &str) -> String {
    format!("{}.", sentences::lower_first(text.trim_end_matches('.')))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::Fixture;
    use super::*;
    use h2lab_analysis::stats::{ErrorCount, Silence};
    use h2lab_model::experiment::Knob;
    use h2lab_model::record::Fault;

    fn trial(knob: Knob, outcome: Outcome, ratio: f64) -> Trial {
        let effect = Effect { ratio, low: ratio * 0.9, high: ratio * 1.1, before: 0.12, after: 0.12 / ratio };
        Trial { knob, cell: 9, rounds: 3, effect: Some(effect), outcome, closes: Some(0.88) }
    }

    pub fn experiment(fixture: &Fixture) -> Experiment {
        Experiment {
            verdict: fixture
                .analysis
                .verdicts
                .iter()
                .find(|one| one.cell == fixture.findings[0].cell)
                .cloned(),
            direct: None,
            metric: Metric::Response(h2lab_analysis::stats::Tail::P99),
            untried: 0,
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
        let repeat = ["h2lab", "compare", "--loss", "3%", "-c1"].map(str::to_owned);
        Diagnosis { report: fixture.report(), experiment, subject, repeat: &repeat, fix: None, is_via: true }
            .text(TextStyle::default())
    }

    #[test]
    fn the_page_has_the_experiment_the_finding_and_the_answer() {
        let fixture = Fixture::new();
        let text = text(&experiment(&fixture), &fixture);
        // How many causes have rules is no matter of this page.
        let (before, rest) = text.split_once("- Looked for ").expect("what was not checked");
        let (_, behind) = rest.split_once("needs.").expect("its end");
        insta::assert_snapshot!(format!("{before}- Looked for …{behind}"));
    }

    #[test]
    fn of_two_changes_that_help_the_one_whose_cause_was_found_is_the_answer() {
        let fixture = Fixture::new();
        let mut experiment = experiment(&fixture);
        experiment.trials.push(trial(Knob::NoPush, Outcome::Confirmed, 2.5));
        let text = text(&experiment, &fixture);
        assert!(text.contains("Confirmed (LOSS101): with 4 connections"), "{text}");
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
    fn where_no_protocol_is_slower_the_answer_says_why_requests_fail() {
        let mut fixture = Fixture::new();
        let alike = fixture.analysis.verdicts.iter().find(|one| one.is_no_slower()).cloned();
        let experiment = Experiment { verdict: alike, trials: Vec::new(), ..experiment(&fixture) };
        assert!(text(&experiment, &fixture).contains("There is nothing to explain"));
        fixture.findings[0].of_failures = true;
        let said = text(&experiment, &fixture);
        assert!(said.contains("Found (LOSS101): ") && !said.contains("nothing to explain"), "{said}");
    }

    #[test]
    fn a_cause_that_a_change_refutes_is_no_suspect() {
        let fixture = Fixture::new();
        let mut experiment = experiment(&fixture);
        experiment.trials[0].outcome = Outcome::Refuted;
        let said = text(&experiment, &fixture);
        assert!(!said.contains("Suspect"), "{said}");
    }

    #[test]
    fn what_only_http2_has_is_not_told_of_every_protocol() {
        let mut fixture = Fixture::new();
        let finding = &mut fixture.findings[0];
        (finding.explains, finding.cost_share) = (Some(0.0), 0.9);
        let mut said = |rule: &str| {
            fixture.findings[0].rule = rule.to_owned();
            let experiment = Experiment { trials: Vec::new(), ..experiment(&fixture) };
            text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(said("HOST106").contains("Most of the time goes there over any protocol (HOST106)"));
        assert!(said("CONN110").contains("over any protocol (CONN110)"));
        for rule in ["MUX101", "FLOW101", "HPACK101", "FRAME102", "CONN101"] {
            let said = said(rule);
            assert!(
                said.contains("over HTTP/2, though HTTP/1.1 is no faster (")
                    && !said.contains("any protocol"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_run_that_ended_with_its_server_was_not_interrupted() {
        let mut fixture = Fixture::new();
        fixture.run.interrupted = true;
        let mut experiment = experiment(&fixture);
        (experiment.trials, experiment.untried) = (Vec::new(), 3);
        let said = text(&experiment, &fixture);
        assert!(
            said.contains("Interrupted: ") && said.contains("No change was tried: the run was interrupted"),
            "{said}"
        );
        let why = "connection refused".to_owned();
        fixture.analysis.cells[0].state = CellState::Failed { why, how: Failed::ServerEnded };
        let said = text(&experiment, &fixture);
        assert!(said.contains("The server ended: ") && !said.contains("nterrupted"), "{said}");
        assert!(said.contains("No change was tried: the server had ended before."), "{said}");
    }

    #[test]
    fn failures_and_pauses_are_told_by_protocol() {
        let mut fixture = Fixture::new();
        let error =
            ErrorCount { kind: h2lab_model::record::Outcome::Reset, code: 2, fault: Fault::Sut, count: 100 };
        let silence = Silence {
            from: Duration::from_secs(1),
            until: Duration::from_millis(1_500),
            repetition: None,
            times: 12,
            total: Duration::from_secs(4),
        };
        let subject = fixture.findings[0].cell;
        let cell = fixture.analysis.cells.iter_mut().find(|cell| cell.cell.index == subject).unwrap();
        (cell.requests.sent, cell.requests.failed, cell.errors) = (1_000, 100, vec![error]);
        (cell.state, cell.silence) = (CellState::Ok, Some(silence));
        let said = text(&experiment(&fixture), &fixture).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("10.0 % of 1,000 requests failed (the stream was reset with INTERNAL_ERROR)."),
            "{said}"
        );
        assert!(
            said.contains("from 1.00 s to 1.50 s, the longest of 12 such pauses, 4.00 s together."),
            "{said}"
        );
    }

    #[test]
    fn a_server_without_the_difference_leaves_the_proxy() {
        let fixture = Fixture::new();
        let verdict = |is_wanted: fn(&CellVerdict) -> bool| {
            fixture.analysis.verdicts.iter().find(|one| is_wanted(one)).cloned().expect("the fixture has one")
        };
        let slower =
            verdict(|one| matches!(one.conclusion, Conclusion::Slower | Conclusion::Unstable { .. }));
        let alike = verdict(CellVerdict::is_no_slower);
        let said = |via: &CellVerdict, direct: &CellVerdict| {
            let mut experiment = experiment(&fixture);
            (experiment.verdict, experiment.direct) = (Some(via.clone()), Some(direct.clone()));
            text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(said(&slower, &alike).contains("the difference arises at the proxy"));
        assert!(said(&slower, &slower).contains("it is so without the proxy as well"));
        assert!(said(&alike, &slower).contains("clients of the proxy do not notice"));
        let stuck = CellVerdict { conclusion: Conclusion::BothUnstable, ..slower.clone() };
        assert!(said(&stuck, &alike).contains("does not carry this load in either protocol"));
    }

    #[test]
    fn the_document_has_what_the_page_has() {
        let fixture = Fixture::new();
        let experiment = experiment(&fixture);
        let subject = fixture.findings[0].cell;
        let document = Diagnosis {
            report: fixture.report(),
            experiment: &experiment,
            subject,
            repeat: &[],
            fix: None,
            is_via: true,
        }
        .document();
        let outcomes: Vec<&str> = document.trials.iter().map(|trial| trial.outcome.as_str()).collect();
        assert_eq!(outcomes, ["confirmed", "refuted", "undecided", "void"]);
        assert_eq!(document.trials[3].why.as_deref(), Some("9 of 10 requests failed"));
        assert_eq!(document.findings.len(), 1);
        let causes: Vec<(&str, &str)> =
            document.causes.iter().map(|cause| (cause.id.as_str(), cause.confidence.as_str())).collect();
        assert_eq!(causes, [("LOSS101", "confirmed")]);
    }

    fn diagnosis<'a>(fixture: &'a Fixture, experiment: &'a Experiment, subject: u32) -> Diagnosis<'a> {
        Diagnosis { report: fixture.report(), experiment, subject, repeat: &[], fix: None, is_via: true }
    }

    #[test]
    fn other_programs_learn_what_is_confirmed_and_what_is_not() {
        let fixture = Fixture::new();
        let mut experiment = experiment(&fixture);
        let subject = fixture.findings[0].cell;
        let kinds = |log: serde_json::Value| -> Vec<(String, String)> {
            let run = &log["runs"][0];
            let results = run["results"].as_array().unwrap().iter();
            results
                .map(|result| {
                    let rule =
                        &run["tool"]["driver"]["rules"][result["ruleIndex"].as_u64().unwrap() as usize];
                    assert_eq!(rule["id"], result["ruleId"]);
                    assert_eq!(result["kind"] == "fail", result["level"] != "none", "{result}");
                    (
                        result["ruleId"].as_str().unwrap().to_owned(),
                        result["kind"].as_str().unwrap().to_owned(),
                    )
                })
                .collect()
        };
        let pair = |rule: &str, kind: &str| (rule.to_owned(), kind.to_owned());
        let seen = kinds(diagnosis(&fixture, &experiment, subject).sarif());
        assert!(seen.contains(&pair("LOSS101", "fail")), "{seen:?}");
        assert!(seen.iter().any(|(_, kind)| kind == "pass") && seen.iter().any(|(_, kind)| kind == "open"));
        let junit = diagnosis(&fixture, &experiment, subject).junit();
        assert!(
            junit.contains("failures=\"1\"") && junit.contains("classname=\"h2lab.diagnose.LOSS101\""),
            "{junit}"
        );
        let markdown = diagnosis(&fixture, &experiment, subject).markdown();
        assert!(
            markdown.contains("| 4 connections |") && markdown.contains("confirmed, closes 88 %"),
            "{markdown}"
        );
        // Without the experiment it is a suspect.
        experiment.trials.clear();
        let seen = kinds(diagnosis(&fixture, &experiment, subject).sarif());
        assert_eq!(seen, [pair("LOSS101", "review")]);
        let junit = diagnosis(&fixture, &experiment, subject).junit();
        assert!(junit.contains("failures=\"0\"") && junit.contains("observed, not confirmed"), "{junit}");
    }
}
