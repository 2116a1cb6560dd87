//! What a diagnosis says of an experiment.

mod fixes;
mod hop;

use super::remedy::Fixing;
use super::*;
use crate::testing::Fixture;
use h2lab_analysis::diagnose::{CAUSES, Status};
use h2lab_analysis::experiment::{Harm, Hop, Remedy};
use h2lab_analysis::stats::{ErrorCount, Latency, Silence};
use h2lab_model::Fix;
use h2lab_model::experiment::ServerSetting;
use h2lab_model::record::{Fault, RunRecord};
use h2lab_model::scenario::Change;
use h2lab_model::settings::{self, Role, Wish};
use h2lab_model::workload::Protocol;

const TOOK: Option<Duration> = Some(Duration::from_millis(61_500));

fn trial(knob: Knob, outcome: Outcome, ratio: f64) -> Trial {
    let effect = Effect { ratio, low: ratio * 0.9, high: ratio * 1.1, before: 0.12, after: 0.12 / ratio };
    Trial { knob, cell: 9, rounds: 3, effect: Some(effect), outcome, closes: Some([0.88, 0.8, 0.96]) }
}

pub fn experiment(fixture: &Fixture) -> Experiment {
    Experiment {
        verdict: fixture.analysis.verdicts.iter().find(|one| one.cell == fixture.findings[0].cell).cloned(),
        direct: None,
        hops: vec![Hop {
            protocols: [Protocol::H1, Protocol::H1s],
            medians: Ok([50, 60].map(Duration::from_millis)),
        }],
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
    Diagnosis {
        report: fixture.report(),
        experiment,
        subject,
        repeat: &repeat,
        fix: None,
        is_via: true,
        unread: None,
        took: TOOK,
        failure: None,
    }
    .text(TextStyle::default())
}

#[test]
fn the_page_has_the_experiment_the_finding_and_the_answer() {
    let fixture = Fixture::new();
    let text = text(&experiment(&fixture), &fixture);
    // How many causes have rules is no matter of this page.
    let (before, rest) = text.split_once("- Looked for ").expect("what was not checked");
    let (_, behind) = rest.split_once("\n\n").expect("its end");
    insta::assert_snapshot!(format!("{before}- Looked for …\n\n{behind}"));
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
    let mut said_of = |rule: &str, is_compared: bool| {
        fixture.findings[0].rule = rule.to_owned();
        let mut experiment = Experiment { trials: Vec::new(), ..experiment(&fixture) };
        experiment.verdict = experiment.verdict.filter(|_| is_compared);
        text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for rule in ["HOST106", "MUX101"] {
        let alone = said_of(rule, false);
        assert!(alone.contains(&format!("Most of the time goes there ({rule}): ")), "{alone}");
    }
    let mut said = |rule: &str| said_of(rule, true);
    assert!(said("HOST106").contains("Most of the time goes there over any protocol (HOST106)"));
    assert!(said("CONN110").contains("over any protocol (CONN110)"));
    for rule in ["MUX101", "FLOW101", "HPACK101", "FRAME102", "CONN101"] {
        let said = said(rule);
        assert!(
            said.contains("over HTTP/2, though HTTP/1.1 is no faster (") && !said.contains("any protocol"),
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
    let said = text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ");
    // A server that hangs has not ended.
    let gone = "The server stopped answering (connection refused): this is what";
    assert!(said.contains(gone) && !said.contains("nterrupted"), "{said}");
    assert!(said.contains("No change was tried: the server had stopped answering before."), "{said}");
}

#[test]
fn an_invalid_first_run_of_a_client_does_not_void_what_its_experiment_shows() {
    let mut fixture = Fixture::new();
    let mut experiment = experiment(&fixture);
    (experiment.verdict, experiment.hops, experiment.metric) = (None, Vec::new(), Metric::Run);
    let subject = fixture.findings[0].cell;
    let cell = fixture.analysis.cells.iter_mut().find(|cell| cell.cell.index == subject).unwrap();
    cell.state = CellState::Invalid { reasons: vec!["the link was late".to_owned()] };
    let of = |experiment: &Experiment| {
        let diagnosis =
            Diagnosis { unread: Some(0), is_via: false, ..diagnosis(&fixture, experiment, subject) };
        let invocation = &diagnosis.sarif()["runs"][0]["invocations"][0];
        let is_successful = invocation["executionSuccessful"] == true;
        (diagnosis.answer(), diagnosis.junit(), is_successful)
    };
    let (answer, junit, is_successful) = of(&experiment);
    assert!(answer[0].starts_with("Confirmed (LOSS101)"), "{answer:?}");
    let last =
        "The first run is no valid measurement (the link was late); the experiment compares later runs.";
    assert!(answer.iter().any(|sentence| sentence == last), "{answer:?}");
    assert!(junit.contains("errors=\"0\"") && !junit.contains("<error"), "{junit}");
    assert!(junit.contains("<skipped message=\"the link was late\"/>"), "{junit}");
    assert!(is_successful);
    // Without a change that helps it is all that is known.
    experiment.trials.remove(0);
    let (answer, junit, is_successful) = of(&experiment);
    assert!(!answer.join(" ").contains("later runs") && junit.contains("<error"), "{answer:?} {junit}");
    assert!(!is_successful);
}

#[test]
fn a_void_change_was_not_judged() {
    let fixture = Fixture::new();
    let subject = fixture.findings[0].cell;
    let said = |outcomes: &[Outcome]| {
        let trials = outcomes.iter().map(|outcome| trial(Knob::NoPush, outcome.clone(), 1.0)).collect();
        let experiment = Experiment { trials, ..experiment(&fixture) };
        diagnosis(&fixture, &experiment, subject).answer().join(" ")
    };
    let void = || Outcome::Void("the client failed".to_owned());
    assert!(said(&[void()]).contains("The one change that was tried could not be judged: the client f"));
    assert!(said(&[Outcome::Refuted]).contains("The one change that was tried was not shown to help."));
    assert!(said(&[void(), void()]).contains("None of 2 changes could be judged; the first: the client "));
    let some = said(&[void(), Outcome::Undecided]);
    assert!(some.contains("None of 2 changes was shown to help; 1 of them could not be judged."), "{some}");
    let none = said(&[Outcome::Refuted, Outcome::Undecided]);
    assert!(none.contains("None of 2 changes was shown to help.") && !none.contains("judged"), "{none}");
}

#[test]
fn a_run_that_failed_was_not_interrupted_and_says_why_it_ended() {
    let mut fixture = Fixture::new();
    fixture.run.interrupted = true;
    let mut experiment = experiment(&fixture);
    (experiment.trials, experiment.untried) = (Vec::new(), 3);
    let subject = fixture.findings[0].cell;
    let failure = Some("no space left");
    let said = Diagnosis { failure, ..diagnosis(&fixture, &experiment, subject) }.answer().join(" ");
    assert!(said.starts_with("The run could not go on (no space left): this is what"), "{said}");
    assert!(said.contains("the run had ended before.") && !said.contains("nterrupted"), "{said}");
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
        unread: None,
        took: TOOK,
        failure: None,
    }
    .document();
    let outcomes: Vec<&str> = document.trials.iter().map(|trial| trial.outcome.as_str()).collect();
    assert_eq!(outcomes, ["confirmed", "refuted", "undecided", "void"]);
    assert_eq!(document.trials[3].why.as_deref(), Some("9 of 10 requests failed"));
    let closes = (document.trials[0].closes, document.trials[0].closes_interval);
    assert_eq!(closes, (Some(0.88), Some([0.8, 0.96])));
    assert_eq!(document.findings.len(), 1);
    let causes: Vec<(&str, &str)> =
        document.causes.iter().map(|cause| (cause.id.as_str(), cause.confidence.as_str())).collect();
    assert_eq!(causes, [("LOSS101", "confirmed")]);
}

fn diagnosis<'a>(fixture: &'a Fixture, experiment: &'a Experiment, subject: u32) -> Diagnosis<'a> {
    Diagnosis {
        report: fixture.report(),
        experiment,
        subject,
        repeat: &[],
        fix: None,
        is_via: true,
        unread: None,
        took: TOOK,
        failure: None,
    }
}

#[test]
fn on_a_narrow_terminal_each_change_is_a_block_of_lines() {
    let fixture = Fixture::new();
    let experiment = experiment(&fixture);
    let subject = fixture.findings[0].cell;
    let at =
        |width| diagnosis(&fixture, &experiment, subject).text(TextStyle { width, ..TextStyle::default() });
    let narrow = at(40);
    let block = "\n4 connections\n  before: 120 ms\n  after: 66.7 ms\n  effect: 1.80 ×\n  interval: 1.62–1.98\n  \
                 result: confirmed, closes 88 %\nframes up to 64 KiB\n  before: 120 ms\n";
    assert!(narrow.contains(block), "{narrow}");
    // Paths and commands are to be copied.
    let long = narrow.lines().find(|line| line.chars().count() > 40 && !line.contains("h2lab"));
    assert!(long.is_none(), "{long:?}");
    let wide = at(80);
    assert!(wide.contains("\n4 connections ") && !wide.contains("result: "), "{wide}");
}

#[test]
fn of_a_client_all_findings_are_told_with_what_was_seen_and_nothing_of_another_protocol() {
    let fixture = Fixture::new();
    let mut experiment = experiment(&fixture);
    (experiment.verdict, experiment.hops, experiment.metric) = (None, Vec::new(), Metric::Run);
    let other = fixture.analysis.cells[0].cell.index;
    assert_ne!(fixture.findings[0].cell, other, "the finding is about another of its cells");
    let of = |unread: Option<u64>| {
        let client = Diagnosis { is_via: false, unread, ..diagnosis(&fixture, &experiment, other) };
        client.text(TextStyle::default()).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let said = of(Some(2));
    for words in [
        "one setting changed at a time, time of a run",
        "Confirmed (LOSS101): with 4 connections, time of a run improves",
        "no request on 2 other connections.",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("another protocol"), "{said}");
    let ours = of(None);
    assert!(!ours.contains("LOSS101 tcp") && ours.contains("another protocol"), "{ours}");
}

#[test]
fn without_a_cause_the_part_of_a_request_in_which_a_difference_arises_is_told() {
    let mut fixture = Fixture::new();
    let subject = fixture.findings[0].cell;
    let mut experiment = experiment(&fixture);
    fixture.findings.clear();
    experiment.trials.clear();
    experiment.verdict.as_mut().unwrap().conclusion = Conclusion::Slower;
    let twin = experiment.verdict.as_ref().unwrap().baseline;
    let of = |fixture: &Fixture, index| fixture.analysis.cell(index).unwrap().clone();
    let slow = of(&fixture, subject).response;
    let quick = of(&fixture, twin);
    let said = |service: &Latency, ttfb: &Latency, body_bytes| {
        let mut fixture = Fixture::new();
        fixture.findings.clear();
        let cell = fixture.analysis.cells.iter_mut().find(|one| one.cell.index == subject).unwrap();
        (cell.service, cell.ttfb) = (service.clone(), ttfb.clone());
        cell.cell.work.body_bytes = body_bytes;
        diagnosis(&fixture, &experiment, subject).answer().join(" ")
    };
    for (service, ttfb, body_bytes, part) in [
        (&quick.service, &quick.ttfb, 0, "before requests are sent"),
        (&slow, &slow, 0, "first byte of its response: in the server, or what is between"),
        (&slow, &slow, 1, "first byte of its response: while its body was sent, or in the server"),
        (&slow, &quick.ttfb, 0, "in the transfer of its body"),
    ] {
        let answer = said(service, ttfb, body_bytes);
        assert!(answer.contains("No cause is known;") && answer.contains(part), "{part}: {answer}");
    }
}

#[test]
fn a_fix_that_closes_more_than_all_of_a_difference_closes_all_of_it() {
    let fixture = Fixture::new();
    let experiment = experiment(&fixture);
    let effect = |ratio: f64| Effect { ratio, low: ratio * 0.9, high: ratio * 1.1, before: 10.0, after: 5.0 };
    let says_of = |closed, harm| {
        let remedy = Remedy {
            metric: Metric::Median,
            before: Some(effect(1.2)),
            after: Some(effect(0.5)),
            effect: effect(2.4),
            outcome: Outcome::Confirmed,
            closed: Some(closed),
            harm,
            rounds: 4,
            doubt: None,
        };
        let fix = Fixing::Made {
            words: "nginx: `http2_chunk_size 16k;`".to_owned(),
            cause: None,
            remedy: Some(Box::new(remedy)),
            diff: String::new(),
            files: Vec::new(),
        };
        Diagnosis { fix: Some(&fix), ..diagnosis(&fixture, &experiment, 1) }.fix_says().join("\n")
    };
    let says = |closed| says_of(closed, Vec::new());
    let all = says([6.38, 4.0, 9.0]);
    assert!(all.contains("closes all of the difference (at least 100 %") && !all.contains("638"), "{all}");
    let part = says([0.88, 0.8, 0.96]);
    assert!(part.contains("closes 88 % of the difference (95 % interval 80 to 96 %)"), "{part}");
    assert!(part.contains("Nothing was shown to be worse by 10 % or more"), "{part}");
    let harm = Harm { cell: 0, what: "CPU per request", ratio: 1.5, interval: [1.25, 1.75] };
    let worse = says_of([0.88, 0.8, 0.96], vec![harm]);
    assert!(worse.contains("CPU per request of ") && worse.contains(" (1.50 ×, 1.25–1.75)."), "{worse}");
    let unfinished = Fixing::Made {
        words: "nginx: x".to_owned(),
        cause: None,
        remedy: None,
        diff: String::new(),
        files: Vec::new(),
    };
    let open = Diagnosis { fix: Some(&unfinished), ..diagnosis(&fixture, &experiment, 1) }.fix_says();
    assert!(open[0].starts_with("Fix nginx: x: undecided, since not all of its rounds were"), "{open:?}");
    assert!(open[0].ends_with("or too few of their requests were answered."), "{open:?}");
}

#[test]
fn what_was_not_measured_is_an_error_for_other_programs_and_said_in_the_answer() {
    let mut fixture = Fixture::new();
    let experiment = experiment(&fixture);
    let subject = fixture.findings[0].cell;
    let run = |fixture: &Fixture| diagnosis(fixture, &experiment, subject).sarif()["runs"][0].clone();
    assert_eq!(run(&fixture)["invocations"][0]["executionSuccessful"], true);
    let why = "no response was a success: 168 × 500".to_owned();
    let its = fixture.analysis.cells.iter_mut().find(|one| one.cell.index == subject);
    let its = its.expect("it was measured");
    its.state = CellState::Failed { why: why.clone(), how: Failed::NoSuccess };
    its.statuses = std::iter::once((500, 168)).collect();
    let invocation = &run(&fixture)["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], false);
    let said = invocation["toolExecutionNotifications"][0]["message"]["text"].as_str().unwrap();
    assert!(said.ends_with(&why), "{said}");
    let junit = diagnosis(&fixture, &experiment, subject).junit();
    let error = format!("<error type=\"failed\" message=\"{why}\"/>");
    assert!(junit.contains("errors=\"1\"") && junit.contains(&error), "{junit}");
    // Without another protocol there is no verdict that would say it.
    let alone = Experiment { verdict: None, ..experiment.clone() };
    let said = diagnosis(&fixture, &alone, subject).answer().join(" ");
    assert!(said.contains("answers 500 Internal Server Error to every request"), "{said}");
}

#[test]
fn a_run_that_was_interrupted_before_its_subject_tells_what_was_measured() {
    let fixture = Fixture::new();
    let run = RunRecord { interrupted: true, ..fixture.run.clone() };
    let experiment = Experiment::unmeasured();
    let diagnosis = Diagnosis {
        report: Report { run: &run, ..fixture.report() },
        ..diagnosis(&fixture, &experiment, 99)
    };
    let answer = diagnosis.answer();
    assert!(answer[0].starts_with("Interrupted: ") && answer[1].contains("was not measured"), "{answer:?}");
    assert!(!answer.join(" ").contains("none applies"), "{answer:?}");
    let junit = diagnosis.junit();
    assert!(junit.contains("<error type=\"interrupted\""), "{junit}");
}

#[test]
fn of_a_client_what_our_own_server_did_is_not_no_cause() {
    let fixture = Fixture::new();
    let report = Report { findings: &[], ..fixture.report() };
    let of = |is_ours| of_client(&report, 0, is_ours, TextStyle::default());
    assert!(of(false).contains("No cause was found.") && !of(true).contains("No cause was found."));
    assert!(of(true).contains("the client could change: see the warnings"));
    assert!(of(true).contains("Seen: ") && !of(true).contains("no request on"), "{}", of(true));
    let others = of_capture(&report, 2, TextStyle::default());
    assert!(others.contains("no request on 2 other connections."), "{others}");
    assert!(others.contains("CONN108"), "looked for in a client only: {others}");
    assert!(!of(false).contains("CONN108"), "{}", of(false));
}

#[test]
fn what_a_sidecar_notes_is_not_contradicted() {
    let fixture = Fixture::new();
    let report = Report { findings: &[], ..fixture.report() };
    let of = |has_noted| of_sidecar(&report, has_noted, "Seen.", TextStyle::default());
    assert!(of(false).contains("No cause was found."), "{}", of(false));
    assert!(
        of(true).contains("was found, but see the warnings.") && !of(true).contains(NONE),
        "{}",
        of(true)
    );
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
                let rule = &run["tool"]["driver"]["rules"][result["ruleIndex"].as_u64().unwrap() as usize];
                assert_eq!(rule["id"], result["ruleId"]);
                assert_eq!(result["kind"] == "fail", result["level"] != "none", "{result}");
                (result["ruleId"].as_str().unwrap().to_owned(), result["kind"].as_str().unwrap().to_owned())
            })
            .collect()
    };
    let pair = |rule: &str, kind: &str| (rule.to_owned(), kind.to_owned());
    let seen = kinds(diagnosis(&fixture, &experiment, subject).sarif());
    assert!(seen.contains(&pair("LOSS101", "fail")), "{seen:?}");
    assert!(seen.iter().any(|(_, kind)| kind == "pass"), "{seen:?}");
    let is_looked_for = |id: &str| CAUSES.iter().any(|meta| meta.id == id && meta.rule().is_some());
    let open: Vec<_> = seen.iter().filter(|(id, kind)| kind == "open" && is_looked_for(id)).collect();
    assert!(open.is_empty(), "what rules look for and did not find is not there: {open:?}");
    let junit = diagnosis(&fixture, &experiment, subject).junit();
    assert!(
        junit.contains("failures=\"1\" errors=\"0\" time=\"61.500\"")
            && junit.contains("classname=\"h2lab.diagnose.LOSS101\""),
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

#[test]
fn a_server_that_refuses_everything_is_the_first_thing_that_is_said() {
    let mut fixture = Fixture::new();
    let subject = fixture.findings[0].cell;
    let mut experiment = experiment(&fixture);
    experiment.trials.clear();
    let twin = experiment.verdict.as_ref().unwrap().baseline;
    let refuses = |cell: &mut CellSummary, status| {
        cell.state = CellState::Failed { why: "none".to_owned(), how: Failed::NoSuccess };
        cell.statuses = std::iter::once((status, 50)).collect();
    };
    let of = |fixture: &mut Fixture, index: u32, status| {
        refuses(fixture.analysis.cells.iter_mut().find(|one| one.cell.index == index).unwrap(), status);
    };
    of(&mut fixture, subject, 500);
    let alone = diagnosis(&fixture, &experiment, subject).answer().join(" ");
    assert!(
        alone.contains("with a success (status 500); over HTTP/1.1 it does: HTTP/2 fails there"),
        "{alone}"
    );
    of(&mut fixture, subject, 404);
    of(&mut fixture, twin, 404);
    let answer = diagnosis(&fixture, &experiment, subject).answer();
    let expected = "origin answers 404 Not Found to every request: all times are of that answer; is the path right? \
                    No change was tried.";
    assert_eq!(answer, [expected], "the other protocol was not asked, or fails as well");
    let cell = fixture.analysis.cells.iter_mut().find(|one| one.cell.index == subject).unwrap();
    cell.state = CellState::Failed { why: "it ended".to_owned(), how: Failed::ServerEnded };
    assert!(!diagnosis(&fixture, &experiment, subject).answer()[0].contains("404"));
}

#[test]
fn the_findings_of_a_run_without_an_experiment_are_for_review_and_name_their_cell() {
    let mut fixture = Fixture::new();
    let log = sarif_of_findings(&fixture.report());
    let result = &log["runs"][0]["results"][0];
    assert_eq!((&result["kind"], &result["ruleId"]), (&"review".into(), &"LOSS101".into()));
    assert_eq!(log["runs"][0]["tool"]["driver"]["rules"][0]["id"], "LOSS101");
    assert_eq!(result["properties"]["cell"], "h2c × 1 at 3% loss");
    let uri = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    assert_eq!(*uri, "origin");
    let junit = junit_of_findings(&fixture.report());
    assert!(junit.contains("tests=\"1\" failures=\"0\"") && junit.contains("not confirmed"), "{junit}");
    // Cells of one label have conditions of their own, or servers.
    assert!(junit.contains("tcp-head-of-line-blocking: h2c × 1 at 3% loss\""), "{junit}");
    assert!(junit.contains("<testsuites name=\"h2lab diagnose: a run of compare\""), "{junit}");
    fixture.run.command = ["h2lab", "diagnose", "a.pcap"].map(str::to_owned).to_vec();
    let junit = junit_of_findings(&fixture.report());
    assert!(junit.contains("<testsuites name=\"h2lab diagnose a.pcap\""), "{junit}");
    fixture.findings[0].explains = Some(0.0);
    assert_eq!(sarif_of_findings(&fixture.report())["runs"][0]["results"], serde_json::json!([]));
    let none = junit_of_findings(&fixture.report());
    let passed = "<testcase classname=\"h2lab.diagnose\" name=\"no cause was found\">\n      <system-out>";
    assert!(none.contains("tests=\"1\" failures=\"0\" errors=\"0\"") && none.contains(passed), "{none}");
}

#[test]
fn why_a_run_could_not_go_on_is_told_when_its_folder_is_read() {
    let mut fixture = Fixture::new();
    fixture.findings.clear();
    let text = |fixture: &Fixture| of_run(&fixture.report(), TextStyle::default());
    assert!(!text(&fixture).contains("could not go on"));
    fixture.run.interrupted = true;
    fixture.run.failure = Some("server gone".to_owned());
    let said = text(&fixture);
    assert!(said.contains("Answer: The run could not go on (server gone): this is what was"), "{said}");
    let junit = junit_of_findings(&fixture.report());
    assert!(junit.contains("errors=\"1\"") && !junit.contains("no cause was found"), "{junit}");
    let log = sarif_of_findings(&fixture.report())["runs"][0]["invocations"].to_string();
    assert!(log.contains("run: the run could not go on: server gone"), "{log}");
}

#[test]
fn requests_that_all_failed_are_an_error_and_not_the_absence_of_a_cause() {
    let mut fixture = Fixture::new();
    fixture.findings.clear();
    let of = |fixture: &Fixture| junit_of_findings(&fixture.report());
    let cell = &mut fixture.analysis.cells[0];
    (cell.requests.sent, cell.requests.succeeded, cell.requests.failed) = (9, 1, 8);
    assert!(of(&fixture).contains("no cause was found") && !of(&fixture).contains("<error"));
    let cell = &mut fixture.analysis.cells[0];
    (cell.requests.succeeded, cell.requests.failed, cell.served_rps) = (0, 9, 0.0);
    cell.statuses.clear();
    cell.errors.clear();
    (cell.requests.unfinished, cell.state) = (0, CellState::Ok);
    let cancelled = of(&fixture);
    let error = "<error type=\"failed\" message=\"none of 9 requests succeeded\"/>";
    assert!(cancelled.contains(error) && !cancelled.contains("no cause was found"), "{cancelled}");
    let why = "no response to 9 requests; all ended as `reset`".to_owned();
    fixture.analysis.cells[0].state = CellState::Failed { why, how: Failed::NoResponse };
    let reset = of(&fixture);
    assert!(reset.contains("errors=\"1\"") && reset.contains("all ended as `reset`"), "{reset}");
}

#[test]
fn of_a_change_that_is_void_or_not_resolved_other_programs_get_no_interval() {
    let fixture = Fixture::new();
    let mut experiment = experiment(&fixture);
    let subject = fixture.findings[0].cell;
    let effect = Effect { ratio: 3.4, low: 3.6e-6, high: 3.2e6, before: 2.0, after: 0.6 };
    experiment.trials[2].effect = Some(effect);
    let junit = diagnosis(&fixture, &experiment, subject).junit();
    assert!(junit.contains(": not resolved\""), "{junit}");
    assert!(junit.contains("message=\"void: no push: 9 of 10 requests failed\""), "{junit}");
    assert!(junit.contains("refuted: ") && junit.contains(" is 1.00 × as good ("), "{junit}");
}

#[test]
fn a_client_is_not_judged_by_its_rate_and_without_a_cause_a_case_passes() {
    let mut fixture = Fixture::new();
    let experiment = experiment(&fixture);
    let subject = fixture.findings[0].cell;
    let of = |fixture: &Fixture, unread| {
        let diagnosis = diagnosis(fixture, &experiment, subject);
        Diagnosis { unread, ..diagnosis }.junit()
    };
    assert!(of(&fixture, None).contains("served ") && of(&fixture, Some(0)).contains(" requests succeeded"));
    assert!(!of(&fixture, Some(0)).contains("served ") && !of(&fixture, None).contains("no cause was found"));
    fixture.findings.clear();
    let alone = Experiment { trials: Vec::new(), ..experiment.clone() };
    assert!(diagnosis(&fixture, &alone, subject).junit().contains("no cause was found"));
}

#[test]
fn without_loss_the_loss_is_shown_to_be_the_cause_and_the_change_was_not_tried() {
    let mut fixture = Fixture::new();
    let other = Finding { rule: "LOSS102".to_owned(), ..fixture.findings[0].clone() };
    fixture.findings.push(other);
    let subject = fixture.findings[0].cell;
    let with = |knob: Knob| {
        let trials = vec![trial(knob, Outcome::Confirmed, 6.78)];
        let experiment = Experiment { trials, ..experiment(&fixture) };
        diagnosis(&fixture, &experiment, subject).answer().join(" ")
    };
    let said = with(Knob::NoLoss);
    for words in [
        "Confirmed (LOSS101, LOSS102): with a link that loses nothing, ",
        ": the loss is the cause. Cause: ",
        "). That change follows from the cause; it is not what was tried.",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let of_one = with(Knob::Connections(4));
    assert!(of_one.contains("Confirmed (LOSS101): with 4 connections"), "{of_one}");
    assert!(!of_one.contains("follows from") && !of_one.contains("is the cause"), "{of_one}");
}

#[test]
fn shares_of_causes_add_up_to_no_more_than_the_difference_whatever_a_change_closes() {
    let mut fixture = Fixture::new();
    fixture.findings[0].explains = Some(0.28);
    let other = Finding { rule: "MUX101".to_owned(), explains: Some(0.5), ..fixture.findings[0].clone() };
    fixture.findings.push(other);
    let experiment = experiment(&fixture);
    let diagnosis = diagnosis(&fixture, &experiment, fixture.findings[0].cell);
    let causes = diagnosis.document().causes;
    let shares: Vec<Option<f64>> = causes.iter().map(|cause| cause.explains).collect();
    assert_eq!(shares, [Some(0.28), Some(0.5)]);
    assert!(shares.iter().flatten().sum::<f64>() <= 1.0, "{causes:?}");
    let closes: Vec<Option<f64>> = causes.iter().map(|cause| cause.closes).collect();
    assert_eq!(closes, [Some(0.88), None]);
    let sarif = diagnosis.sarif();
    let properties = &sarif["runs"][0]["results"][0]["properties"];
    assert_eq!(properties["explains"].as_f64(), Some(0.28));
    assert_eq!(properties["closes"].as_f64(), Some(0.88));
}

#[test]
fn what_no_finding_explains_is_told_in_every_form_unless_it_is_a_hundredth() {
    let mut fixture = Fixture::new();
    let experiment = experiment(&fixture);
    let subject = fixture.findings[0].cell;
    let mut of = |explains| {
        fixture.findings[0].explains = explains;
        let diagnosis = diagnosis(&fixture, &experiment, subject);
        let forms =
            [diagnosis.text(TextStyle::default()), diagnosis.markdown(), crate::diagnosis_page(&diagnosis)];
        let document = diagnosis.document();
        (forms, document.unexplained, document.run.unexplained.len())
    };
    let (forms, part, of_run) = of(Some(0.59));
    let line = "unexplained: 41 % of the difference of h2c × 1 at 3% loss";
    assert!(forms[0].contains(&format!("\n- {line}\n")), "{}", forms[0]);
    assert!(forms.iter().all(|form| form.contains("unexplained: ")), "{forms:#?}");
    assert_eq!((part, of_run), (Some(0.41), 1));
    assert_eq!(of(Some(0.98)).1, Some(0.02));
    // Nothing is left, nothing is divided, or it is not known.
    for explains in [Some(0.99), Some(0.0), None] {
        let (forms, part, of_run) = of(explains);
        assert!(forms.iter().all(|form| !form.contains("unexplained: ")), "{explains:?}: {forms:#?}");
        assert_eq!((part, of_run), (None, 0), "{explains:?}");
    }
}

#[test]
fn an_experiment_that_no_flag_of_compare_repeats_is_repeated_by_the_same_command() {
    let mut fixture = Fixture::new();
    let words = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
    fixture.run.command = words(
        "/bin/h2lab|diagnose|--origin|nginx|--config|my site.conf|--budget|20s|--json|-o|a.html|--out=run",
    );
    let experiment = experiment(&fixture);
    let subject = fixture.findings[0].cell;
    let compare = words("h2lab|compare|--loss|3%");
    let repeated = |fixture: &Fixture, experiment: &Experiment, repeat: &[String]| {
        let diagnosis = Diagnosis { repeat, ..diagnosis(fixture, experiment, subject) };
        let (command, markdown) = (diagnosis.repeated(), diagnosis.markdown());
        assert!(markdown.contains(&format!("Repeat it: `{command}`")), "{markdown}");
        assert_eq!(diagnosis.document().repeat.as_ref(), Some(&command));
        command
    };
    assert_eq!(repeated(&fixture, &experiment, &compare), "h2lab compare --loss 3% -c 4");
    let whole = "h2lab diagnose --origin nginx --config 'my site.conf' --budget 20s";
    // No other command takes the user's configuration, or the setting of a server.
    assert_eq!(repeated(&fixture, &experiment, &[]), format!("{whole} --seed 42"));
    let change = Change { knob: settings::Knob::H2Requests, value: Some(9) };
    let setting = ServerSetting { change, words: "x".to_owned(), causes: vec!["LOSS101".to_owned()] };
    let trials = vec![trial(Knob::Server(setting), Outcome::Confirmed, 1.8)];
    let of_server = Experiment { trials, ..experiment.clone() };
    assert_eq!(repeated(&fixture, &of_server, &compare), format!("{whole} --seed 42"));
    fixture.run.command.push("--seed=7".to_owned());
    assert_eq!(repeated(&fixture, &of_server, &compare), format!("{whole} --seed=7"));
    fixture.run.command.extend(words("-d|(not kept)"));
    fixture.run.repetitions.iter_mut().for_each(|one| one.cell.work.body_bytes = 70_000);
    assert_eq!(repeated(&fixture, &of_server, &compare), format!("{whole} --seed=7 --body-bytes 70000"));
    let untried = Experiment { trials: Vec::new(), ..experiment };
    assert_eq!(diagnosis(&fixture, &untried, subject).document().repeat, None);
}

#[test]
fn what_was_ruled_out_is_counted() {
    let fixture = Fixture::new();
    let mut experiment = experiment(&fixture);
    let said = |experiment: &Experiment| {
        diagnosis(&fixture, experiment, fixture.findings[0].cell).ruled_out().join("\n")
    };
    let one = "lateness, in this one: frames up to 64 KiB.";
    assert!(said(&experiment).contains(one), "{}", said(&experiment));
    experiment.trials.push(trial(Knob::SingleFlight, Outcome::Refuted, 1.0));
    let two = "lateness, in these 2: frames up to 64 KiB, one dial for all that wait.";
    assert!(said(&experiment).contains(two), "{}", said(&experiment));
}

#[test]
fn each_cause_without_a_rule_is_listed_under_what_it_needs_where_there_is_something_to_explain() {
    let fixture = Fixture::new();
    let mut experiment = experiment(&fixture);
    let subject = fixture.findings[0].cell;
    let said = diagnosis(&fixture, &experiment, subject).ruled_out();
    let line = |words: &str| said.iter().find(|line| line.contains(words)).map_or("", String::as_str);
    let (view, rule) = (line("without a view of the server"), line("no rule reads it"));
    let client = line("in a client of yours only");
    let unchecked = diagnosis(&fixture, &experiment, subject).document().unchecked;
    for cause in CAUSES {
        assert_eq!(view.contains(cause.id), matches!(cause.status, Status::NeedsServer(_)), "{}", cause.id);
        assert_eq!(rule.contains(cause.id), matches!(cause.status, Status::Page(_)), "{}", cause.id);
        assert_eq!(client.contains(cause.id), matches!(cause.status, Status::OfClient(_)), "{}", cause.id);
        let its = unchecked.iter().find(|one| one.id == cause.id).map(|one| one.needs.as_str());
        assert_eq!(its, cause.status.needs(), "{}", cause.id);
    }
    experiment.verdict = fixture.analysis.verdicts.iter().find(|one| one.is_no_slower()).cloned();
    let healthy = diagnosis(&fixture, &experiment, subject);
    assert!(healthy.document().unchecked.is_empty());
    assert!(healthy.ruled_out().iter().all(|line| !line.contains("a view of the server")));
}
