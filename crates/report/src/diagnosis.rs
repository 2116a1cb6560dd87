//! `diagnose`: what HTTP/2 costs here, why, which change was shown to help, and what was ruled out.

mod document;
mod hop;
mod interchange;
mod open;
mod remedy;
mod repeat;
mod said;
mod since;

use std::fmt::Write;

use h2lab_analysis::diagnose::{Confidence, Finding};
use h2lab_analysis::experiment::{Effect, Experiment, Metric, Outcome, Trial};
use h2lab_analysis::stats::{CellState, CellSummary, CellVerdict, Conclusion, Failed, redirect, refusal};
use h2lab_model::Fix;
use h2lab_model::experiment::Knob;
use std::time::Duration;

use super::format::{NOT_RESOLVED, interval_of, millis_unit, plural, rate, ratio};
use super::style::{Paint, TextStyle, painted, paragraph};
use super::table::{Column, name, number};
use super::{Report, fold, sentences, text};

pub use document::{CauseDocument, DiagnosisDocument, TrialDocument};
pub(crate) use interchange::rules;
pub use interchange::{junit_of_findings, sarif_of_findings};
pub use open::UncheckedDocument;
pub use remedy::{FixDocument, Fixing};
pub use said::Said;
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
    /// For a user's client (`--run`): on how many of its connections no request could be read; `None` for work of ours.
    pub unread: Option<u64>,
    /// How long the command took until its results were written; `None` where it is only read.
    pub took: Option<Duration>,
    /// Why the run ended before its end, where that was not the user: `No space left on device`.
    pub failure: Option<&'a str>,
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
/// An observation that takes this share of the response time is part of the answer.
const MOST: f64 = 0.5;

/// Causes of connections that HTTP/1.1 has as well: dials at once, connections that fall silent, what was dialled, idle connections
/// that end, and TLS sessions.
const OF_ANY_CONNECTION: [&str; 5] = ["CONN104", "CONN106", "CONN108", "CONN110", "CONN111"];

/// Whether a cause is one of HTTP/2's own mechanisms, so that it cannot be why HTTP/1.1 takes as long.
fn is_of_http2(rule: &str) -> bool {
    let is_own = ["MUX", "FLOW", "HPACK", "FRAME"].iter().any(|family| rule.starts_with(family));
    is_own || (rule.starts_with("CONN") && !OF_ANY_CONNECTION.contains(&rule))
}

/// What effects and their intervals mean.
pub(super) const CORRECTED: &str = "Effects above 1 are better. The intervals are corrected for all changes and looks together: the chance of one \
     false claim among these changes is at most 5 %.";

/// What the records of a run show, for a terminal: the findings, and how many causes were looked for.
pub fn of_run(report: &Report<'_>, style: TextStyle) -> String {
    let mut out = String::new();
    text::findings(&mut out, report, style);
    if report.findings.is_empty() {
        let _ = write!(out, "\n{NONE}\n");
    }
    out.push('\n');
    paragraph(&mut out, style, "", &Said::of_run(report).looked);
    text::places(&mut out, report, style);
    out.push('\n');
    super::answer::text(&mut out, report, style);
    style.printable(out)
}

/// What a capture shows, for a terminal: the findings, what cannot be known from it, what was seen in it, and how many causes were
/// looked for. No request was read on `unread` connections of it.
pub fn of_capture(report: &Report<'_>, unread: u64, style: TextStyle) -> String {
    let said = Said::of_capture(report, unread);
    of_packets(report, said.none, &said.looked, style)
}

/// What the connections of a client that the user named show, for a terminal; `is_ours` says that warnings name what
/// our own server did. No request was read on `unread` connections of it.
pub fn of_client(report: &Report<'_>, unread: u64, is_ours: bool, style: TextStyle) -> String {
    let said = Said::of_client(report, unread, is_ours);
    of_packets(report, said.none, &said.looked, style)
}

/// What a running sidecar has seen on its connections lately, for a terminal; `looked` says what that is and what was looked for.
/// `has_noted`: warnings name what no rule is about, such as an instance that fails.
pub fn of_sidecar(report: &Report<'_>, has_noted: bool, looked: &str, style: TextStyle) -> String {
    let none = if has_noted { "No cause of the catalogue was found, but see the warnings." } else { NONE };
    of_packets(report, none, looked, style)
}

/// From this share of failed requests on, why they fail matters more than what is slow.
const FAILS: f64 = 0.1;
/// The share of a difference with which one part of a request is where it arises.
const MOST_OF_IT: f64 = 0.8;

/// What is said where no rule found anything.
const NONE: &str = "No cause was found.";

/// How many causes were looked for, in a user's client or elsewhere, and what it takes to check the others.
fn looked_for(is_of_client: bool) -> String {
    open::unchecked(is_of_client).join(" ")
}

/// What was seen in packets, as a sentence.
fn seen(report: &Report<'_>, unread: u64) -> String {
    let others = (unread > 0).then(|| format!(", no request on {}", plural(unread, "other connection")));
    format!("Seen: {}{}.", sentences::seen(report), others.unwrap_or_default())
}

fn of_packets(report: &Report<'_>, none: &str, looked: &str, style: TextStyle) -> String {
    let mut out = String::new();
    text::findings(&mut out, report, style);
    if report.findings.is_empty() {
        let _ = write!(out, "\n{none}\n");
    }
    text::warnings(&mut out, report, style);
    out.push('\n');
    paragraph(&mut out, style, "", looked);
    out.push('\n');
    super::answer::text(&mut out, report, style);
    style.printable(out)
}

impl Diagnosis<'_> {
    /// The findings about the subject; all of a user's client, whatever protocols it spoke.
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        let is_all = self.unread.is_some();
        self.report.findings.iter().filter(move |finding| is_all || finding.cell == self.subject)
    }

    /// What the subject's protocol costs, in a sentence.
    fn statement(&self) -> Option<String> {
        self.experiment.verdict.as_ref().map(|verdict| sentences::headline(&self.report, verdict))
    }

    /// That no request of the subject was a success, or no request of either protocol had a response, and what the figures are of.
    fn refused(&self) -> Option<String> {
        let cell = self.report.analysis.cell(self.subject)?;
        let is_refused = matches!(cell.state, CellState::Failed { how: Failed::NoSuccess, .. });
        let target = cell.cell.target.name();
        let said = match (self.unanswered(cell), self.twin()) {
            (Some(unanswered), _) => unanswered,
            (None, Some(twin))
                if is_refused && matches!(twin.state, CellState::Ok | CellState::Unstable { .. }) =>
            {
                let all = plural(cell.requests.sent, "request");
                let statuses: Vec<String> = cell.statuses.keys().map(u16::to_string).collect();
                format!(
                    "{}: {target} answers none of {all} with a success (status {}); over {} it does: HTTP/2 fails there, whatever \
                     its speed",
                    sentences::name(cell),
                    statuses.join(", "),
                    sentences::name(twin)
                )
            }
            (None, _) => refusal(target, &cell.statuses).filter(|_| is_refused)?,
        };
        let tried = if self.experiment.trials.is_empty() { " No change was tried." } else { "" };
        let stop = if said.ends_with('?') { "" } else { "." };
        Some(format!("{said}{stop}{tried}"))
    }

    /// The same work over another protocol.
    fn twin(&self) -> Option<&CellSummary> {
        let verdict = self.experiment.verdict.as_ref()?;
        self.report.analysis.cell(verdict.baseline)
    }

    /// That what is measured are redirects: they are successes, and quick ones.
    fn redirected(&self) -> Option<String> {
        let cell = self.report.analysis.cell(self.subject)?;
        redirect(&cell.statuses).map(|_| {
            "All times are of redirects, which are not followed: the warning says where they lead.".to_owned()
        })
    }

    /// That the server answers nothing: its default server may reject requests that do not ask for one of its names.
    fn unanswered(&self, subject: &CellSummary) -> Option<String> {
        fn unanswered(summary: &CellSummary) -> Option<&String> {
            match &summary.state {
                CellState::Failed { why, how: Failed::NoResponse } => Some(why),
                _ => None,
            }
        }
        let why =
            unanswered(subject).filter(|_| self.twin().is_none_or(|twin| unanswered(twin).is_some()))?;
        let asks_for_a_name = subject.cell.work.headers.iter().any(|(name, _)| name == "host");
        let name = if subject.cell.setup.config.is_some() && !asks_for_a_name {
            "; requests ask for its address: must they ask for a name, with -H 'Host: NAME'?"
        } else {
            ""
        };
        Some(format!("{} answers nothing, over any protocol: {why}{name}", subject.cell.target.name()))
    }

    /// That there is nothing to compare the subject with, and why nothing is known of itself, if so.
    fn alone(&self) -> Vec<String> {
        let Some(summary) = self.report.analysis.cell(self.subject) else {
            let lead = "What was to be examined was not measured before that: nothing is known of it.";
            let measured = super::answer::of_measured(&self.report);
            return std::iter::once(lead.to_owned()).chain(measured).collect();
        };
        let protocol = summary.cell.protocol;
        let failed = interchange::unsound(summary).map(|(_, why)| format!("{}: {why}.", summary.label));
        let only =
            format!("Only {protocol} was measured: whether another protocol is faster here is not known.");
        failed.into_iter().chain([only]).collect()
    }

    /// The answer: what it costs, the cause, what helps.
    pub fn answer(&self) -> Vec<String> {
        let mut answer: Vec<String> = Vec::new();
        if self.report.run.interrupted {
            let what = match (self.server_gone(), self.failure) {
                // Whether it ended or hangs is in the reason, as far as that is known.
                (Some(why), _) => format!("The server stopped answering ({why})"),
                (None, Some(why)) => format!("The run could not go on ({why})"),
                (None, None) => "Interrupted".to_owned(),
            };
            answer.push(format!("{what}: this is what was measured until then."));
        }
        if let Some(refused) = self.refused() {
            // A difference between two ways to refuse is not what was asked about.
            answer.push(refused);
            return answer;
        }
        let invalid_first = self.invalid_first_run();
        answer.extend(match self.statement() {
            Some(statement) => vec![format!("{statement}.")],
            // Said behind what the experiment shows.
            None if invalid_first.is_some() => Vec::new(),
            // What the requests of a client took; nothing else was measured.
            None if self.unread.is_some() => super::answer::of(&self.report).into_iter().take(1).collect(),
            None => self.alone(),
        });
        answer.extend(self.redirected());
        answer.extend(self.failing());
        answer.extend(self.silences());
        answer.extend(self.hop());
        if let Some(best) = self.best() {
            answer.push(self.confirmed(best));
            let first = |why: String| {
                format!("The first run is no valid measurement ({why}); the experiment compares later runs.")
            };
            answer.extend(invalid_first.map(first));
        } else if let Some(confirmed) = self.fix_confirms() {
            answer.push(confirmed);
        } else if !self.experiment.trials.is_empty() {
            answer.push(self.none_helped());
            answer.extend(self.suspect());
        } else if self.experiment.is_healthy() {
            let found = self.failures().or_else(|| self.observed());
            answer.push(found.unwrap_or_else(|| "There is nothing to explain.".to_owned()));
            answer.extend(self.why_untried());
        } else {
            answer.push(match self.experiment.untried as u64 {
                _ if self.report.run.interrupted && self.server_gone().is_some() => {
                    "No change was tried: the server had stopped answering before.".to_owned()
                }
                _ if self.report.run.interrupted && self.failure.is_some() => {
                    "No change was tried: the run had ended before.".to_owned()
                }
                _ if self.report.run.interrupted => {
                    "No change was tried: the run was interrupted before.".to_owned()
                }
                0 => "No change was tried: none that h2lab can make changes anything here.".to_owned(),
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

    /// How a cell's server was lost, by its end or otherwise: then nobody interrupted the run.
    fn server_gone(&self) -> Option<&str> {
        self.report.analysis.cells.iter().find_map(|summary| match &summary.state {
            CellState::Failed { why, how: Failed::ServerEnded } => Some(why.as_str()),
            _ => None,
        })
    }

    /// Why the first run of a client is no valid measurement, although its experiment, which has runs of its own, shows
    /// that a change helps.
    fn invalid_first_run(&self) -> Option<String> {
        let cell = self.report.analysis.cell(self.subject)?;
        let is_its = matches!(cell.state, CellState::Invalid { .. });
        let is_outlived = is_its && self.unread.is_some() && self.best().is_some();
        sentences::no_result(cell).filter(|_| is_outlived)
    }

    /// That no change that was tried was shown to help, and how many could not be judged.
    fn none_helped(&self) -> String {
        let trials = &self.experiment.trials;
        let why = |trial: &Trial| match &trial.outcome {
            Outcome::Void(why) => Some(why.clone()),
            _ => None,
        };
        let void: Vec<String> = trials.iter().filter_map(why).collect();
        match (trials.len(), void.as_slice()) {
            (1, [why]) => format!("The one change that was tried could not be judged: {why}."),
            (1, _) => "The one change that was tried was not shown to help.".to_owned(),
            (all, []) => format!("None of {all} changes was shown to help."),
            (all, [first, ..]) if void.len() == all => {
                format!("None of {all} changes could be judged; the first: {first}.")
            }
            (all, some) => {
                let void = some.len();
                format!("None of {all} changes was shown to help; {void} of them could not be judged.")
            }
        }
    }

    /// When nothing arrived, over each protocol without a change: whatever the percentiles are, no protocol is the
    /// reason for that.
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
                && self.experiment.without_effect(finding).is_empty()
        };
        // Where many requests fail, why they fail comes first.
        let cell = self.report.analysis.cell(self.subject);
        let fails = cell.is_some_and(|cell| cell.requests.failed as f64 >= FAILS * cell.requests.sent as f64);
        let of_failures = |finding: &&Finding| fails && finding.of_failures;
        let found = self.findings().filter(is_suspect).find(of_failures);
        let found = found.or_else(|| self.findings().find(is_suspect));
        let suspect = |finding: &Finding| {
            let change = super::answer::change(&self.report, finding);
            format!("Suspect ({}, not confirmed): {}{change}", finding.rule, sentence(&finding.symptom))
        };
        found.map(suspect).or_else(|| self.observed()).or_else(|| self.where_it_arises())
    }

    /// In which part of a request the difference from the other protocol arises, where no cause is known.
    fn where_it_arises(&self) -> Option<String> {
        let (subject, twin) = (self.report.analysis.cell(self.subject)?, self.twin()?);
        let is_slower = self.experiment.verdict.as_ref()?.conclusion == Conclusion::Slower;
        let share = subject.response.tail().share();
        let more = |of: &dyn Fn(&CellSummary) -> Duration| of(subject).saturating_sub(of(twin));
        let [response, service, first_byte]: [&dyn Fn(&CellSummary) -> Duration; 3] =
            [&|cell| cell.response.quantile(share), &|cell| cell.service.quantile(share), &|cell| {
                cell.ttfb.quantile(share)
            }];
        let (all, sent, byte) = (more(response), more(service), more(first_byte));
        // Few servers respond before they have the whole body.
        let until_response = if subject.cell.work.body_length() > 0 {
            "between a request and the first byte of its response: while its body was sent, or in the server"
        } else {
            "between a request and the first byte of its response: in the server, or what is between"
        };
        let parts = [
            (all.saturating_sub(sent), "before requests are sent, waiting for a connection or a stream"),
            (byte.min(sent), until_response),
            (sent.saturating_sub(byte), "after the first byte of a response: in the transfer of its body"),
        ];
        let (part, place) = parts.into_iter().find(|(part, _)| *part >= all.mul_f64(MOST_OF_IT))?;
        (is_slower && !all.is_zero()).then(|| {
            let (part, all) = (millis_unit(part), millis_unit(all));
            format!("No cause is known; {part} of the {all} more arise {place}.")
        })
    }

    /// Where most of the time goes, though not because of HTTP/2.
    fn observed(&self) -> Option<String> {
        let found = self.findings().find(|finding| finding.is_observation() && finding.cost_share >= MOST)?;
        let where_else = match self.twin() {
            // Of one protocol alone nothing is known of the others.
            None => String::new(),
            Some(twin) if is_of_http2(&found.rule) => {
                format!(" over HTTP/2, though {} is no faster", sentences::name(twin))
            }
            Some(_) => " over any protocol".to_owned(),
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
        let its = |finding: &&Finding| best.shows(finding, self.findings());
        let finding = self.findings().find(its);
        // No setting takes loss away: the experiment shows the cause, and the fixes follow from it.
        let is_condition = best.knob == Knob::NoLoss;
        let mut rules: Vec<&str> = self.findings().filter(its).map(|finding| finding.rule.as_str()).collect();
        rules.truncate(if is_condition { rules.len() } else { 1 });
        rules.sort_unstable();
        rules.dedup();
        let cause = if rules.is_empty() { String::new() } else { format!(" ({})", rules.join(", ")) };
        let effect = best.effect.map_or(String::new(), |effect| self.effect(&effect));
        let closes = best.closes.map_or(String::new(), |closes| {
            let [part, low, high] = closes.map(|part| part * 100.0);
            format!(", which closes {part:.0} % ({low:.0}–{high:.0} %) of the difference")
        });
        let why = finding.map_or(String::new(), |finding| {
            let mut own = self.own(finding);
            // What was shown to help comes before what would help as well.
            if own.fixes.iter().any(|fix| best.tries(fix)) {
                own.fixes.retain(|fix| best.tries(fix));
            }
            let change = super::answer::change(&self.report, &own);
            let untried = if is_condition && !change.is_empty() {
                " That change follows from the cause; it is not what was tried."
            } else {
                ""
            };
            format!(" Cause: {}{change}{untried}", sentence(&finding.symptom))
        });
        let shown = if is_condition { ": the loss is the cause" } else { "" };
        // Nothing that has to be explained, and yet there is something to gain.
        let is_alike = |verdict: &CellVerdict| {
            matches!(
                verdict.conclusion,
                Conclusion::Faster | Conclusion::NoDifference | Conclusion::BaselineUnstable { .. }
            )
        };
        let is_alike = |verdict: &CellVerdict| is_alike(verdict) && !verdict.is_slower_in_median_only();
        let is_alike = self.experiment.verdict.as_ref().is_some_and(is_alike);
        let lead = if is_alike { "It can be faster all the same" } else { "Confirmed" };
        format!("{lead}{cause}: with {}, {effect}{closes}{shown}.{why}", best.knob.words())
    }

    /// `p99 improves 1.8 × (1.6–2.1; 120 ms to 66 ms)`.
    fn effect(&self, effect: &Effect) -> String {
        let is_better = effect.low > 1.0;
        format!(
            "{} {} {}{} ({}–{}; {} to {})",
            self.experiment.metric.name(),
            if is_better { "improves" } else { "is" },
            ratio(effect.ratio),
            if is_better { " ×" } else { " × as good" },
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
            let closes = closes.map_or(String::new(), |[part, ..]| format!(", closes {:.0} %", part * 100.0));
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

    /// The findings about the subject, as the experiment leaves them: those whose cause a change took away are
    /// confirmed; those for which every change was without effect say so, have only the fixes that were not tried, and come
    /// last if no change had any.
    pub(super) fn own_findings(&self) -> Vec<Finding> {
        let mut findings: Vec<&Finding> = self.findings().collect();
        findings.sort_by_key(|finding| self.is_disproved(finding));
        findings.into_iter().map(|finding| self.own(finding)).collect()
    }

    /// Whether each change that takes the finding's cause away was measured, and none had an effect.
    fn is_disproved(&self, finding: &Finding) -> bool {
        let tried = self.experiment.without_effect(finding);
        let is_refuted = |trial: &&Trial| trial.outcome == Outcome::Refuted;
        !tried.is_empty() && tried.iter().all(is_refuted)
    }

    /// A finding as the experiment leaves it.
    fn own(&self, finding: &Finding) -> Finding {
        let mut own = finding.clone();
        if finding.is_observation() {
            return own;
        }
        let confirmed = self.experiment.confirmed();
        let instead =
            |trial: &Trial| finding.shown_instead(&trial.knob, self.findings()).map(|other| &other.rule);
        if let Some(trial) = confirmed.iter().find(|trial| trial.shows(finding, self.findings())) {
            own.confidence = Confidence::Confirmed;
            own.cost = self.shown_cost(finding, trial).unwrap_or(own.cost);
            // Of several settings that may be the reason, the experiment shows which one it is.
            own.fixes.retain(|fix| finding.of_failures || !self.is_refuted(fix));
        } else if let Some((words, other)) =
            confirmed.iter().find_map(|trial| Some((trial.knob.words(), instead(trial)?)))
        {
            own.cost = format!(
                "{}; not confirmed: \"{words}\" takes {other} away as well, and shows that one",
                own.cost.trim_end_matches('.')
            );
        }
        if self.fix.and_then(Fixing::confirmed) == Some(finding.rule.as_str()) {
            own.confidence = Confidence::Confirmed;
        }
        let without_effect = self.experiment.without_effect(finding);
        if !without_effect.is_empty() {
            own.fixes = self.experiment.fixes_left(finding).into_iter().cloned().collect();
            let tried: Vec<String> = without_effect.into_iter().map(open::tried).collect();
            own.cost = format!("{}; {}", own.cost.trim_end_matches('.'), tried.join("; "));
        }
        own
    }

    /// What a confirmed cause costs, where the record alone does not say it, or says less than the change shows.
    fn shown_cost(&self, finding: &Finding, trial: &Trial) -> Option<String> {
        let effect = trial.effect.as_ref()?;
        // The part of the time, or of the rate, that is known to be gained.
        let is_less = finding.cost_share < 1.0 - effect.low.recip();
        let is_said = finding.confidence != Confidence::Inferred && !is_less;
        let how = self.effect(effect);
        (!is_said && !finding.of_failures)
            .then(|| format!("with {}, {how}; by the record alone: {}", trial.knob.words(), finding.cost))
    }

    /// Whether the setting of the server that a fix advises was changed without effect.
    fn is_refuted(&self, fix: &Fix) -> bool {
        let is_its = |trial: &&Trial| matches!(trial.knob, Knob::Server(_)) && trial.tries(fix);
        let mut tried = self.experiment.trials.iter().filter(is_its);
        tried.any(|trial| matches!(trial.outcome, Outcome::Refuted | Outcome::Worse))
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
        painted(out, style, Paint::Bold, "", &title);
        let rows = self.rows();
        let table = fold::fold(&COLUMNS, &rows, style);
        for line in &table.header {
            let _ = writeln!(out, "{}", style.paint(Paint::Dim, line));
        }
        for (line, trial) in table.rows.iter().zip(&self.experiment.trials) {
            let paint = match trial.outcome {
                Outcome::Confirmed => Some(Paint::Green),
                Outcome::Worse => Some(Paint::Red),
                _ => None,
            };
            let _ = writeln!(out, "{}", paint.map_or_else(|| line.clone(), |paint| style.paint(paint, line)));
        }
        if let Some(note) = &table.note {
            painted(out, style, Paint::Dim, "", note);
        }
        paragraph(out, style, "", CORRECTED);
        let _ = writeln!(out, "repeat: {}", self.repeated());
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
        Metric::Response(_) | Metric::Median | Metric::Run => {
            millis_unit(Duration::from_secs_f64(value.clamp(0.0, 1e9)))
        }
    }
}

/// A sentence with one full stop at its end.
fn sentence(text: &str) -> String {
    format!("{}.", sentences::lower_first(text.trim_end_matches('.')))
}

#[cfg(test)]
pub(super) mod tests;
