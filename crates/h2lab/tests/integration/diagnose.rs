//! `h2lab diagnose`: what it measures, what it changes, and that it reports no more than that. Whether a change helps
//! depends on the machine, and no test depends on it.

use serde_json::{Value, json};

use crate::origin::Origin;
use crate::support::{binary, folder, h2lab, run_program};

fn trials(document: &Value) -> Vec<(&str, &str)> {
    let text = |value: &'_ Value| value.as_str().map(str::to_owned);
    let trials = document["trials"].as_array().expect("a list");
    assert!(trials.iter().all(|trial| text(&trial["change"]).is_some()), "{document:#}");
    trials
        .iter()
        .map(|trial| (trial["change"].as_str().unwrap(), trial["outcome"].as_str().unwrap()))
        .collect()
}

#[test]
fn each_changed_cell_differs_in_one_setting_and_is_measured_beside_the_unchanged_one() {
    let folder = folder();
    // A client that dials anew for each request: HTTP/2 cannot be as good.
    let arguments = [
        "diagnose",
        "--json",
        "--out=run",
        "--budget=1ms",
        "--loss=0%",
        "--delay=20ms",
        "-q50",
        "-z1s",
        "--reconnect-every=1",
        "--no-coalesce",
    ];
    let finished = run_program(&binary(), folder.path(), &arguments);
    finished.assert_measured();
    let document = finished.json();
    let cells = document["run"]["cells"].as_array().expect("a list");
    assert_eq!(cells.len(), 2, "the budget allows no change: {document:#}");
    assert!(document["verdict"].is_string(), "{document:#}");
    assert_eq!(trials(&document), []);
    // What was measured is a run like any other.
    let report = run_program(&binary(), folder.path(), &["report", "run"]);
    report.assert_measured();
}

#[test]
fn a_run_is_read_without_measuring_and_measured_again_by_its_name() {
    let folder = folder();
    let work = ["--loss=5%", "--delay=20ms", "-q300", "-z1s", "-Hx-token: secret"];
    let first = ["diagnose", "--json", "--budget=1ms", "--out=h2lab-runs/first"];
    run_program(&binary(), folder.path(), &[&first[..], &work].concat()).assert_measured();
    let read = run_program(&binary(), folder.path(), &["diagnose", "latest"]);
    assert_eq!(read.code, Some(0), "{}", read.transcript());
    let words = read.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Answer:") && !words.contains("Nothing was changed"), "{}", read.transcript());
    let refused = run_program(&binary(), folder.path(), &["diagnose", "latest", "-q5"]);
    assert_eq!(refused.code, Some(2), "{}", refused.transcript());
    assert!(
        refused.stderr.contains("is for a measurement, and a run folder is only read"),
        "{}",
        refused.transcript()
    );
    let refused = run_program(&binary(), folder.path(), &["diagnose", "latest", "--budget=3s"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--budget is"), "{}", refused.transcript());
    let judged = run_program(&binary(), folder.path(), &["diagnose", "latest", "--fail-on=confirmed"]);
    assert_eq!(judged.code, Some(0), "nothing was changed\n{}", judged.transcript());
    let again = ["diagnose", "--again", "latest", "--json", "--budget=1ms"];
    let masked = run_program(&binary(), folder.path(), &again);
    assert_eq!(masked.code, Some(2), "its values are in no folder\n{}", masked.transcript());
    assert!(masked.stderr.contains("give -H 'x-token: …' again"), "{}", masked.transcript());
    // Nothing was fixed; a budget that is spent allows one round.
    let again = [&again[..], &["-Hx-token: secret"]].concat();
    let again = run_program(&binary(), folder.path(), &again);
    again.assert_measured();
    let document = again.json();
    assert!(document["answer"].as_str().is_some_and(|text| text.contains("difference")), "{document:#}");
    let cells = document["run"]["cells"].as_array().expect("a list");
    assert_eq!(cells.len(), 2, "{document:#}");
}

#[test]
fn a_scenario_is_diagnosed_by_its_name() {
    let folder = folder();
    let refused = run_program(&binary(), folder.path(), &["diagnose", "compare"]);
    assert_eq!(refused.code, Some(2), "{}", refused.transcript());
    assert!(refused.stderr.contains("give one value to each flag"), "{}", refused.transcript());
}

#[test]
fn what_is_changed_is_named_and_every_trial_has_an_outcome() {
    let folder = folder();
    let arguments =
        ["diagnose", "--json", "--out=run", "--budget=8s", "--loss=5%", "--delay=20ms", "-q300", "-z1s"];
    let finished = run_program(&binary(), folder.path(), &arguments);
    finished.assert_measured();
    let document = finished.json();
    for (change, outcome) in trials(&document) {
        let known = ["confirmed", "worse", "refuted", "undecided", "void"];
        assert!(known.contains(&outcome), "{change}: {outcome}");
    }
    let report = run_program(&binary(), folder.path(), &["report", "run", "--json"]);
    let measured = report.json()["cells"].as_array().expect("a list").len();
    assert_eq!(measured, 2 + trials(&document).len(), "each change has a cell");
}

#[test]
fn a_diagnosis_is_a_page_and_documents_for_ci_and_so_is_its_run_folder() {
    let folder = folder();
    let first = ["diagnose", "--junit", "--budget=1ms", "--out=h2lab-runs/first", "-o=a.sarif", "-o=a.html"];
    let work = ["-o=a.md", "-o=a.json", "--loss=5%", "--delay=20ms", "-q300", "-z1s"];
    let finished = run_program(&binary(), folder.path(), &[&first[..], &work].concat());
    finished.assert_measured();
    let file = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("it is written");
    assert!(
        finished.stdout.contains("<testsuites name=\"h2lab diagnose origin\""),
        "{}",
        finished.transcript()
    );
    let log: Value = serde_json::from_str(&file("a.sarif")).expect("JSON");
    assert_eq!(log["version"], "2.1.0", "{log:#}");
    let document: Value = serde_json::from_str(&file("a.json")).expect("JSON");
    let causes = document["causes"].as_array().expect("a list").len();
    // Nothing was tried: each cause is for review.
    let results = log["runs"][0]["results"].as_array().expect("a list");
    assert_eq!(results.len(), causes, "{log:#}");
    assert!(results.iter().all(|result| result["kind"] == "review"), "{log:#}");
    assert!(file("a.md").starts_with("# h2lab diagnose\n"));
    // The page of the folder is that of the diagnosis.
    let answer = document["answer"][0].as_str().expect("a sentence");
    let title = answer.split(['<', '>', '&', '\'', '/', '"']).next().expect("a part");
    assert!(
        file("a.html").contains(title) && file("h2lab-runs/first/report.html").contains(title),
        "{title}"
    );
    // The folder gives the same: the document except its place, and the files for CI.
    let again = ["diagnose", "latest", "--junit", "-o=b.sarif", "-o=b.json", "-o=b.html"];
    let read = run_program(&binary(), folder.path(), &again);
    assert_eq!(read.code, Some(0), "{}", read.transcript());
    // The duration of the command is only in the first one; the other has the measuring time.
    let without_time = |junit: &str| {
        let (before, rest) = junit.split_once(" time=\"").expect("a time");
        format!("{before}{}", rest.split_once('"').expect("its end").1)
    };
    assert_eq!(without_time(&read.stdout), without_time(&finished.stdout));
    let read: Value = serde_json::from_str(&file("b.sarif")).expect("JSON");
    assert_eq!(read, log);
    let read: Value = serde_json::from_str(&file("b.json")).expect("JSON");
    for key in ["answer", "metric", "subject", "verdict", "causes", "findings", "trials"] {
        assert_eq!(read[key], document[key], "{key}");
    }
}

#[test]
fn findings_in_run_folders_of_other_commands_are_documents_for_ci_too() {
    let folder = folder();
    let run = |arguments: &[&str]| run_program(&binary(), folder.path(), arguments);
    let work = ["--loss=5%", "--delay=20ms", "-q300", "-z1s", "--out=compared"];
    run(&[&["compare", "--proto=h1,h2c", "-c1", "--repetitions=1"][..], &work].concat()).assert_measured();
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    run(&["load", "-z1s", "-c2", "--out=loaded", &url]).assert_measured();
    for name in ["compared", "loaded"] {
        let read = run(&["diagnose", name, "--sarif", "-o=a.xml"]);
        assert_eq!(read.code, Some(0), "{}", read.transcript());
        let results = read.json()["runs"][0]["results"].as_array().expect("a list").clone();
        assert!(results.iter().all(|result| result["kind"] == "review"), "{results:#?}");
        let junit = std::fs::read_to_string(folder.path().join("a.xml")).expect("it is written");
        // Without a finding there is one case that says so.
        let cases = results.len().max(1);
        assert!(junit.contains(&format!("tests=\"{cases}\" failures=\"0\"")), "{junit}");
        let judged = run(&["diagnose", name, "--fail-on=confirmed"]);
        assert_eq!(judged.code, Some(2), "nothing is confirmed by it\n{}", judged.transcript());
    }
}

#[test]
fn one_http_3_connection_that_cannot_carry_its_load_at_loss_is_told_of_its_congestion_control() {
    // As scenarios/h3.toml: 1,000 requests per second are several times what it carries.
    let condition = ["--proto=h3", "-c=1", "--loss=3%", "--delay=12.5ms", "-q=1000", "-z=4s"];
    let finished = h2lab(&[&["compare", "--json", "--repetitions=1"][..], &condition].concat());
    finished.assert_measured();
    if finished.is_busy() {
        return;
    }
    let document = finished.json();
    let findings = document["cells"][0]["findings"].as_array().expect("a list");
    let found = findings.iter().find(|finding| finding["rule"] == "LOSS102");
    let found = found.unwrap_or_else(|| panic!("{document:#}"));
    let fixes = found["fixes"].as_array().expect("a list");
    let is_controller = |fix: &Value| fix["setting"] == "congestion control bbr (--congestion bbr)";
    assert!(fixes.iter().any(is_controller), "{found:#}");
}

#[test]
fn a_server_that_refuses_everything_is_said_first_and_nothing_is_changed() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let url = format!("http://{}/status/404", origin.clear);
    let arguments = ["diagnose", "--json", "-z1s", "--budget=30s", "--out=run", &url];
    let finished = run_program(&binary(), folder.path(), &arguments);
    assert_eq!(finished.code, Some(1), "{}", finished.transcript());
    assert!(finished.stderr.contains("answers 404 Not Found"), "{}", finished.transcript());
    let document = finished.json();
    let first = document["answer"][0].as_str().expect("a sentence");
    assert!(first.contains("answers 404 Not Found to every request"), "{first}");
    assert_eq!(trials(&document), []);
}

#[test]
fn a_service_is_measured_at_the_server_and_through_its_proxy() {
    let (server, proxy) = (Origin::start(&[]), Origin::start(&["--handler-delay=20ms"]));
    let [direct, via] = [&server, &proxy].map(|origin| format!("http://{}/", origin.clear));
    let folder = folder();
    let arguments =
        ["diagnose", &direct, "--via", &via, "--json", "--budget=1ms", "-q50", "-z1s", "--out=run", "-c1"];
    let finished = run_program(&binary(), folder.path(), &arguments);
    finished.assert_measured();
    let document = finished.json();
    let cells = document["run"]["cells"].as_array().expect("a list");
    assert_eq!(cells.len(), 4, "{document:#}");
    assert!(document["direct"].is_string() && document["verdict"].is_string(), "{document:#}");
    let subject = cells.iter().find(|cell| cell["index"] == document["subject"]).expect("it is one of them");
    assert!(subject.to_string().contains(&via), "{subject:#}");
    let answer = document["answer"].to_string();
    assert!(answer.contains("At the server itself"), "{answer}");
    // After a fix, the same cells are measured again: the proxy's are compared, the server's own are beside them.
    let again = ["diagnose", "--again", "run", "--json", "--budget=1ms", "--out=again"];
    let again = run_program(&binary(), folder.path(), &again);
    again.assert_measured();
    let now = again.json();
    let known = |cells: &Value| {
        let cells = cells.as_array().expect("a list").iter();
        cells.map(|cell| (cell["index"].clone(), cell["target"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(known(&now["run"]["cells"]), known(&document["run"]["cells"]), "{now:#}");
    assert!(now["answer"].as_str().is_some_and(|text| text.contains("difference")), "{now:#}");
    let emulated = h2lab(&["diagnose", "--via", &via]);
    assert_eq!(emulated.code, Some(2), "{}", emulated.transcript());
}

#[test]
fn what_cannot_be_diagnosed_is_refused_with_the_reason() {
    let several = h2lab(&["diagnose", "-c", "1,4"]);
    assert_eq!(several.code, Some(2), "{}", several.transcript());
    assert!(several.stderr.contains("give one value to each flag"), "{}", several.transcript());
    let origin = Origin::start(&[]);
    let only_h1 = h2lab(&["diagnose", "--http1.1", &format!("http://{}/", origin.clear)]);
    assert_eq!(only_h1.code, Some(2), "{}", only_h1.transcript());
    assert!(only_h1.stderr.contains("no HTTP/2 to diagnose"), "{}", only_h1.transcript());
}

#[test]
fn a_live_server_is_asked_as_often_as_it_answers_in_a_ramp() {
    let origin = Origin::start(&["--handler-delay=100ms"]);
    let url = format!("http://{}/", origin.clear);
    let folder = folder();
    let arguments = ["diagnose", "--json", "--out=run", "--budget=1ms", "-z1s", "--max-connections=2", &url];
    let finished = run_program(&binary(), folder.path(), &arguments);
    finished.assert_measured();
    // Two connections carry 20 requests per second, with one after the other on each.
    assert!(finished.stderr.contains("was too much over at most 2 connections"), "{}", finished.stderr);
    let rate =
        finished.stderr.split("rate: ").nth(1).and_then(|rest| rest.split("/s").next()).expect("it is told");
    assert!(rate.parse::<f64>().expect("a number") < 50.0, "{rate}");
    let given = [&arguments[..], &["--i-own-this-host", "-q5"]].concat();
    let refused = run_program(&binary(), folder.path(), &given);
    assert_eq!(refused.code, Some(2), "{}", refused.transcript());
    assert!(refused.stderr.contains("the load is given"), "{}", refused.transcript());
}

#[test]
fn a_response_that_takes_longer_than_the_run_is_no_silence_and_nothing_is_blamed_for_it() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/drip?bytes=1000&ms=1200", origin.clear);
    let diagnosed = h2lab(&["diagnose", "-z1s", &url]);
    assert_eq!(diagnosed.code, Some(5), "{}", diagnosed.transcript());
    assert!(diagnosed.stderr.contains("a single response takes 1."), "{}", diagnosed.transcript());
    assert!(diagnosed.stderr.contains("measure for longer (-z "), "{}", diagnosed.transcript());
    assert_eq!(diagnosed.stdout, "", "no cause is named: {}", diagnosed.transcript());
    let loaded = h2lab(&["load", "--no-store", "-z500ms", "-c2", &url]);
    assert_eq!(loaded.code, Some(5), "{}", loaded.transcript());
    let words = loaded.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("and 500 ms are measured: too short to tell requests per second"), "{words}");
}

#[test]
fn a_status_that_is_no_success_is_noted_before_it_is_measured() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/status/404", origin.clear);
    let told = "404 Not Found: measured as it is; is the path right?";
    let compared = h2lab(&["compare", "--out=run", "-z200ms", "--repetitions=1", &url]);
    compared.assert_code_unless_busy(1);
    let (noted, _) = compared.stderr.split_once("cells, ").expect("the plan is told");
    assert!(
        noted.split_whitespace().collect::<Vec<_>>().join(" ").contains(told),
        "{}",
        compared.transcript()
    );
    let loaded = h2lab(&["load", "--no-store", "-n20", "-c2", &url]);
    assert!(loaded.stderr.contains(told), "{}", loaded.transcript());
    let words = loaded.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(told), "in the report's warnings: {words}");
}

/// Requests of h2load, nghttp and curl to nginx, on loopback.
const CAPTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../analysis/src/diagnose/passive/data/nginx.pcapng");

#[test]
fn a_capture_is_read_and_what_it_cannot_tell_is_told() {
    let read = h2lab(&["diagnose", CAPTURE, "--json"]);
    assert_eq!(read.code, Some(0), "{}", read.transcript());
    let document = read.json();
    let cells = document["cells"].as_array().expect("a list");
    let protocols: Vec<&str> = cells.iter().map(|cell| cell["protocol"].as_str().expect("text")).collect();
    assert_eq!(protocols, ["h2c", "h2", "h1", "h1s"], "{document:#}");
    assert_eq!((&document["findings"], &document["verdicts"]), (&json!([]), &json!([])), "{document:#}");
    let text = h2lab(&["diagnose", CAPTURE]);
    assert_eq!(text.code, Some(0), "{}", text.transcript());
    assert!(text.stdout.contains("No cause was found."), "{}", text.stdout);
    assert!(text.stdout.contains("Warnings") && text.stdout.contains("near both"), "{}", text.stdout);
    assert!(!text.stdout.contains("configured"), "nothing was measured: {}", text.stdout);
}

#[test]
fn a_capture_is_not_measured_and_one_without_http_says_what_is_missing() {
    for flags in [&["--fail-on", "confirmed"][..], &["-q", "50"], &["--loss", "3%"], &["--budget", "60s"]] {
        let refused = h2lab(&[&["diagnose", CAPTURE], flags].concat());
        assert_eq!(refused.code, Some(2), "{}", refused.transcript());
    }
    let keys = h2lab(&["diagnose", "http://127.0.0.1:9/", "--keylog", CAPTURE]);
    assert!(keys.code == Some(2) && keys.stderr.contains("for a capture"), "{}", keys.transcript());
    let folder = folder();
    let empty = folder.path().join("empty.pcapng");
    std::fs::write(&empty, &std::fs::read(CAPTURE).expect("it is there")[..200]).expect("a file");
    let none = run_program(&binary(), folder.path(), &["diagnose", "empty.pcapng"]);
    assert!(none.code == Some(2) && none.stderr.contains("no request of HTTP"), "{}", none.transcript());
}
