//! The measurement of a situation: its diagnosis, and what really taking the cause away does.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;

use super::fix::Fixed;
use super::situation::{SHARED, Situation, filled};
use super::{Change, Found};
use crate::verify::binary::H2lab;

/// No situation takes as long: the budget of its diagnosis is below a minute.
const DEADLINE_S: &str = "240";
/// The run folder of a diagnosis.
const RUN: &str = "run";

/// The parts of a diagnosis that are read.
#[derive(Debug, Deserialize)]
struct Document {
    #[serde(flatten)]
    said: Said,
    verdict: Option<String>,
    /// None where no experiment is made.
    metric: Option<String>,
    /// None where no experiment is made (`--run`, a transfer): all findings are causes there.
    causes: Option<Vec<Cause>>,
    #[serde(default)]
    trials: Vec<Trial>,
    fix: Option<Fixed>,
    /// What was measured; its cells name a server that h2lab started.
    #[serde(default)]
    run: Value,
}

/// The answer, and what it rests on.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Said {
    /// Of a cell.
    Findings { answer: Answer, findings: Vec<Finding> },
    /// Of a transfer: the one limit that it had.
    Limit { limit: Limit },
}

impl Said {
    /// The sentences, and the findings: a limit is one if it is evidence for a cause.
    fn parts(self) -> (Vec<String>, Vec<Finding>) {
        match self {
            Self::Findings { answer: Answer::Line(line), findings } => (vec![line], findings),
            Self::Findings { answer: Answer::Sentences(sentences), findings } => (sentences, findings),
            Self::Limit { limit: Limit { cause, sentence } } => {
                let finding = |rule| Finding { rule, explains: None };
                (vec![sentence], cause.map(finding).into_iter().collect())
            }
        }
    }
}

/// What held a transfer back.
#[derive(Debug, Deserialize)]
struct Limit {
    cause: Option<String>,
    sentence: String,
}

/// An experiment has a list of sentences.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Line(String),
    Sentences(Vec<String>),
}

#[derive(Debug, Deserialize)]
struct Cause {
    id: String,
}

#[derive(Debug, Deserialize)]
struct Finding {
    rule: String,
    explains: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Trial {
    change: String,
    causes: Vec<String>,
    outcome: String,
    effect: Option<f64>,
    interval: Option<[f64; 2]>,
}

/// The parts of `diagnose --again` that are read.
#[derive(Debug, Default, Deserialize)]
struct Since {
    /// How many times better HTTP/2 itself is than before, with an interval.
    subject: Option<[f64; 3]>,
    /// How many times better the other protocol was.
    before: Option<[f64; 3]>,
    /// How many times better it is.
    now: Option<[f64; 3]>,
    /// What was measured.
    #[serde(default)]
    run: Value,
}

impl Since {
    /// How many times better it is without the cause: HTTP/2 itself, or the difference. `None` where h2lab could not measure.
    fn effect(&self, of_difference: bool) -> Option<[f64; 3]> {
        let is_invalid = |cell: &Value| cell["state"] == "invalid";
        if self.run["cells"].as_array().is_some_and(|cells| cells.iter().any(is_invalid)) {
            return None;
        }
        if of_difference {
            self.before.zip(self.now).map(|(before, now)| quotient(before, now))
        } else {
            self.subject
        }
    }
}

/// How often a situation is staged whose measurement h2lab itself calls unsound: that says nothing of its answers.
const TRIES: u32 = 3;

/// The diagnosis of a situation, staged again while it has no sound measurement.
pub(super) fn measured(h2lab: &H2lab, name: &str, situation: &Situation, seed: u64) -> Result<Found> {
    let mut tries = 1;
    loop {
        let found = once(h2lab, name, situation, seed)?;
        if !found.unsound || tries == TRIES {
            return Ok(found);
        }
        tries += 1;
    }
}

/// The diagnosis of a situation, in a folder of its own.
pub(super) fn once(h2lab: &H2lab, name: &str, situation: &Situation, seed: u64) -> Result<Found> {
    let drawn = situation.drawn(seed, name);
    let program = h2lab.path().to_str().context("the path of h2lab is not text")?;
    let stage = Stage::new(situation, program)?;
    // A client of --run leaves no run.
    let out = if situation.diagnose.contains("--run ") { String::new() } else { format!("--out {RUN} ") };
    let flags = format!("--json --quiet {out}--seed {}", seed % 1_000 + 1);
    let diagnose = format!("{} {flags}", filled(&situation.diagnose, &drawn)?);
    let document: Document = stage.run(&drawn, &diagnose)?;
    let fixed = document.fix.as_ref().and_then(|fix| fix.setting.as_deref());
    let change = fixed.and_then(|setting| called(&document.trials, setting));
    let change = change.or_else(|| largest(&document.trials, &situation.planted));
    let is_confirmed = change.as_ref().is_some_and(|change| change.is_confirmed);
    let removed = if is_confirmed && situation.is_removable() {
        let mut values = drawn.clone();
        values.extend(situation.removed.clone());
        let run = stage.place.path().join(RUN);
        let again = format!("--again {} {} --json --quiet", run.display(), situation.again);
        // Where the server of before was, it left what another one stumbles over: the number of its process.
        let since: Since = Stage::new(situation, program)?.run(&values, &again)?;
        since.effect(situation.of_difference)
    } else {
        None
    };
    let (answer, findings) = document.said.parts();
    let causes: Vec<String> = match document.causes {
        Some(causes) => causes.into_iter().map(|cause| cause.id).collect(),
        None => findings.iter().map(|finding| finding.rule.clone()).collect(),
    };
    let observations = findings.into_iter().filter(|finding| is_observation(finding, &causes));
    let observed = observations.map(|finding| finding.rule).collect();
    let unsound = document.verdict.as_deref() == Some("invalid");
    let server = server_of(&document.run);
    let (metric, fix) = (document.metric, document.fix);
    Ok(Found { causes, observed, answer, drawn, server, metric, change, removed, unsound, fix })
}

impl Trial {
    /// What was changed, if it was measured.
    fn change(&self) -> Option<Change> {
        let (ratio, [low, high]) = (self.effect?, self.interval?);
        let effect = [ratio, low, high];
        Some(Change { what: self.change.clone(), is_confirmed: self.outcome == "confirmed", effect })
    }
}

/// The change with this name.
fn called(trials: &[Trial], name: &str) -> Option<Change> {
    trials.iter().find(|trial| trial.change == name).and_then(Trial::change)
}

/// Of the changes that take one of these causes away, the one that does most: some take a part of it away.
fn largest(trials: &[Trial], planted: &[String]) -> Option<Change> {
    let is_planted = |id: &String| planted.iter().any(|cause| cause.split('|').any(|one| one == id));
    let its = trials.iter().filter(|trial| trial.causes.iter().any(is_planted));
    its.filter_map(Trial::change).max_by(|a, b| {
        (a.is_confirmed, a.effect[0]).partial_cmp(&(b.is_confirmed, b.effect[0])).unwrap_or(Ordering::Equal)
    })
}

/// The server that h2lab started, with its version; `None` where it did not.
fn server_of(run: &Value) -> Option<String> {
    let mut servers = run["cells"].as_array()?.iter().map(|cell| &cell["server"]);
    let server = servers.find(|server| server["name"].is_string())?;
    let version = server["version"].as_str().unwrap_or_default();
    // Without Debian's revision, which `2.6.12-1+deb12u4` has.
    let version = version.split('-').next().unwrap_or_default();
    Some(format!("{} {version}", server["name"].as_str()?).trim_end().to_owned())
}

/// Whether it costs as much over the other protocol, so that it is no cause of a difference.
fn is_observation(finding: &Finding, causes: &[String]) -> bool {
    finding.explains == Some(0.0) && !causes.contains(&finding.rule)
}

/// How many times larger the first of two ratios is, which are of two runs: their logarithms' deviations add up in squares.
fn quotient([of, of_low, of_high]: [f64; 3], [by, by_low, by_high]: [f64; 3]) -> [f64; 3] {
    let ratio = of / by;
    let below = (of / of_low).ln().hypot((by_high / by).ln());
    let above = (of_high / of).ln().hypot((by / by_low).ln());
    [ratio, ratio * (-below).exp(), ratio * above.exp()]
}

/// Where a situation is staged: a folder that goes with it.
struct Stage<'a> {
    situation: &'a Situation,
    program: &'a str,
    place: TempDir,
}

impl<'a> Stage<'a> {
    fn new(situation: &'a Situation, program: &'a str) -> Result<Self> {
        let place = tempfile::Builder::new().prefix("h2lab-verify-").tempdir()?;
        if situation.certificate {
            crate::verify::nginx::make_certificate(place.path())?;
        }
        let (script, text) = SHARED;
        fs::write(place.path().join(script), text)?;
        Ok(Self { situation, program, place })
    }

    /// The document of `h2lab diagnose` with these arguments, with a server and a link of these values.
    fn run<T: DeserializeOwned>(&self, drawn: &BTreeMap<String, String>, arguments: &str) -> Result<T> {
        for (file, text) in &self.situation.files {
            fs::write(self.place.path().join(file), filled(text, drawn)?)?;
        }
        let program = self.program;
        let words = match &self.situation.server {
            None => format!("{program} diagnose {arguments}"),
            Some(server) => {
                let server = filled(server, drawn)?.replace("H2LAB", program);
                let link = filled(&self.situation.link, drawn)?;
                format!("{program} link {link} --server '{server}' --client '{program} diagnose {arguments}'")
            }
        };
        let words = format!("{} {words}", filled(&self.situation.machine, drawn)?);
        let output = Command::new("timeout")
            .args(["--kill-after=10", DEADLINE_S, "sh", "-c", words.trim_start()])
            .current_dir(self.place.path())
            .env("PATH", path()?)
            .stdin(Stdio::null())
            .output()
            .context("cannot start `timeout` of coreutils")?;
        let [stdout, stderr] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let Ok(document) = serde_json::from_str(&stdout) else {
            bail!("`{words}` ended with {:?}: {}", output.status.code(), stderr.trim());
        };
        Ok(document)
    }
}

/// The folders of programs, with those of installers that need no privileges.
fn path() -> Result<OsString> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/bin"));
    let folders = std::env::split_paths(&folders).chain(["/usr/sbin".into()]).chain(own);
    std::env::join_paths(folders).context("PATH")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviations_of_a_quotient_add_up_in_squares() {
        let [ratio, low, high] = quotient([6.0, 3.0, 12.0], [2.0, 2.0, 2.0]);
        assert!((ratio - 3.0).abs() < 1e-9 && (low - 1.5).abs() < 1e-9 && (high - 6.0).abs() < 1e-9);
        let [_, low, high] = quotient([6.0, 3.0, 12.0], [2.0, 1.0, 4.0]);
        let factor = (2.0_f64.ln() * 2.0_f64.sqrt()).exp();
        assert!((low - 3.0 / factor).abs() < 1e-9 && (high - 3.0 * factor).abs() < 1e-9, "{low} {high}");
    }

    #[test]
    fn what_taking_a_cause_away_does_is_of_the_subject_or_of_the_difference_and_of_sound_runs() {
        let [subject, before, now] = [[5.0, 4.0, 6.0], [6.0, 5.0, 7.0], [2.0, 1.5, 2.5]];
        let since = |state: &str| Since {
            subject: Some(subject),
            before: Some(before),
            now: Some(now),
            run: serde_json::json!({ "cells": [{ "state": "ok" }, { "state": state }] }),
        };
        assert_eq!(since("unstable").effect(false), Some(subject));
        assert_eq!(since("ok").effect(true), Some(quotient(before, now)));
        assert_eq!(Since { now: None, ..since("ok") }.effect(true), None);
        assert_eq!([false, true].map(|of_difference| since("invalid").effect(of_difference)), [None; 2]);
    }

    #[test]
    fn the_change_of_a_planted_cause_is_one_that_was_measured() {
        let trial = |change: &str, causes: &[&str], outcome: &str, effect: Option<f64>| Trial {
            change: change.to_owned(),
            causes: causes.iter().map(|cause| (*cause).to_owned()).collect(),
            outcome: outcome.to_owned(),
            effect,
            interval: effect.map(|effect| [effect / 2.0, effect * 2.0]),
        };
        let planted = ["LOSS101|LOSS102".to_owned()];
        let trials = [
            trial("another cause", &["CONN101"], "confirmed", Some(9.0)),
            trial("not measured", &["LOSS102"], "void", None),
            trial("less", &["CONN101", "LOSS102"], "confirmed", Some(2.0)),
            trial("most", &["LOSS101"], "confirmed", Some(3.0)),
            trial("undecided", &["LOSS101"], "undecided", Some(40.0)),
        ];
        let change = largest(&trials, &planted).unwrap();
        assert_eq!((change.what.as_str(), change.effect), ("most", [3.0, 1.5, 6.0]));
        assert!(!largest(&trials[4..], &planted).unwrap().is_confirmed);
        assert!(largest(&trials[..2], &planted).is_none());
        assert_eq!(called(&trials, "less").map(|change| change.effect), Some([2.0, 1.0, 4.0]));
        assert_eq!([called(&trials, "not measured"), called(&trials, "other")], [None, None]);
    }

    #[test]
    fn a_transfer_has_one_finding_if_its_limit_is_evidence_for_a_cause() {
        let parts = |text: &str| {
            let document: Document = serde_json::from_str(text).unwrap();
            let (answer, findings) = document.said.parts();
            (answer, findings.into_iter().map(|finding| finding.rule).collect::<Vec<_>>())
        };
        let limit = r#"{"version":"1","limit":{"kind":"disk","cause":"HOST107","sentence":"It waited."}}"#;
        assert_eq!(parts(limit), (vec!["It waited.".to_owned()], vec!["HOST107".to_owned()]));
        let unknown = r#"{"limit":{"kind":"unknown","sentence":"Nothing was seen."}}"#;
        assert_eq!(parts(unknown), (vec!["Nothing was seen.".to_owned()], Vec::new()));
        let of_a_cell = r#"{"answer":["A.","B."],"findings":[{"rule":"LOSS101","explains":0.5}]}"#;
        assert_eq!(parts(of_a_cell).1, ["LOSS101"]);
        assert!(serde_json::from_str::<Document>(r#"{"limit":null}"#).is_err(), "nothing was transferred");
    }

    #[test]
    fn the_server_that_was_started_has_a_version() {
        let run = |server: &str| serde_json::from_str(&format!(r#"{{"cells":[{{}},{server}]}}"#)).unwrap();
        let nginx = run(r#"{"server":{"name":"nginx","version":"1.22.1"}}"#);
        assert_eq!(server_of(&nginx).as_deref(), Some("nginx 1.22.1"));
        let haproxy = run(r#"{"server":{"name":"haproxy","version":"2.6.12-1+deb12u4"}}"#);
        assert_eq!(server_of(&haproxy).as_deref(), Some("haproxy 2.6.12"));
        assert_eq!(server_of(&run(r#"{"server":{"name":"go"}}"#)).as_deref(), Some("go"));
        assert_eq!(server_of(&run(r#"{"server":null}"#)), None);
        assert_eq!(server_of(&Value::Null), None);
    }

    #[test]
    fn what_explains_no_difference_is_observed_if_it_is_no_cause() {
        let finding = |explains| Finding { rule: "HOST106".to_owned(), explains };
        assert!(is_observation(&finding(Some(0.0)), &[]));
        assert!(!is_observation(&finding(Some(0.1)), &[]) && !is_observation(&finding(None), &[]));
        assert!(!is_observation(&finding(Some(0.0)), &["HOST106".to_owned()]));
    }
}
