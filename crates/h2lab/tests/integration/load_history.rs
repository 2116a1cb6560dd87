//! What is kept of loads: `runs` lists it, `diff A B` says whether two of them differ.

use std::path::Path;

use serde_json::Value;

use crate::origin::Origin;
use crate::support::{Finished, binary, folder, run_program};

/// Runs h2lab in `folder`; it must exit with `code`, or with 5 for a load that the machine was too busy for, and its report.
#[track_caller]
fn run(folder: &Path, code: i32, arguments: &[&str]) -> Finished {
    let finished = run_program(&binary(), folder, arguments);
    let is_doubtful = matches!(arguments[0], "load" | "report") && finished.code == Some(5);
    assert!(finished.code == Some(code) || is_doubtful, "{arguments:?}: {}", finished.transcript());
    finished
}

/// A closed loop of `n` requests whose run folder is `out`; its document.
#[track_caller]
fn load(folder: &Path, out: &str, n: u32, url: &str) -> Value {
    let n = format!("-n={n}");
    let arguments = ["load", "--json", "--quiet", &n, "-c=30", "--proto=h1", "--out", out, url];
    run(folder, 0, &arguments).json()
}

/// A copy of a run folder.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("room");
    for entry in std::fs::read_dir(from).expect("it was kept") {
        let entry = entry.expect("it can be read");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("room");
        }
    }
}

#[test]
fn runs_lists_what_was_kept_in_the_order_in_which_it_began_with_its_figures() {
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = format!("http://{}/", origin.clear);
    let report: Vec<Value> = ["7", "8"]
        .map(|seed| {
            let arguments =
                ["load", "--json", "--quiet", "-n=60", "-c=2", "--seed", seed, "-u=me:secret", &url];
            run(folder.path(), 0, &arguments).json()
        })
        .to_vec();
    let listed = run(folder.path(), 0, &["runs", "--json"]).json();
    let runs = listed["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 2, "{listed:#}");
    for (listed, report) in runs.iter().zip(&report) {
        assert_eq!(listed["folder"], report["run_folder"], "the newest is last: next to the prompt");
        let (cell, p50) = (&listed["cells"][0], &report["latency_us"]["response"]["p50"]);
        assert_eq!((&cell["protocol"], &cell["failed"]), (&report["protocol"], &0.into()));
        assert!((cell["p50_us"].as_f64().unwrap() - p50.as_f64().unwrap()).abs() < 0.1, "{cell} {p50}");
        let [kept, said] = [cell, report].map(|of| of["throughput_rps"].as_f64().expect("a number"));
        assert!((kept - said).abs() < 0.01, "{kept} {said}");
    }
    let text = run(folder.path(), 0, &["runs"]).stdout;
    let newest = report[1]["run_folder"].as_str().expect("it was kept");
    assert!(text.lines().rev().take(4).any(|line| line.contains(newest)), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_damaged_or_empty_folder_is_named_and_hides_no_other() {
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = format!("http://{}/", origin.clear);
    for out in ["all/good", "all/cut"] {
        run(folder.path(), 0, &["load", "--quiet", "-n=10", "--out", out, &url]);
    }
    std::fs::create_dir(folder.path().join("all/empty")).expect("room");
    let head = folder.path().join("all/cut/run.json");
    let text = std::fs::read(&head).expect("it was kept");
    std::fs::write(&head, &text[..100]).expect("room");
    let listed = run(folder.path(), 0, &["runs", "--json", "--dir=all"]).json();
    assert_eq!(listed["runs"].as_array().map(Vec::len), Some(1), "{listed:#}");
    let errors = listed["unreadable"].to_string();
    assert!(errors.contains("all/cut/run.json is damaged") && errors.contains("all/empty"), "{errors}");
    let report = run(folder.path(), 0, &["runs", "--dir=all"]);
    assert!(
        report.stdout.contains("all/good") && report.stderr.contains("all/cut"),
        "{}",
        report.transcript()
    );
    std::fs::create_dir(folder.path().join("nothing")).expect("room");
    assert!(run(folder.path(), 0, &["runs", "--dir=nothing"]).stdout.contains("No stored runs"));
    let missing = run(folder.path(), 2, &["runs", "--dir=missing"]);
    assert!(missing.stderr.contains("missing: there is no such folder"), "{}", missing.transcript());
    let cut = run(folder.path(), 2, &["report", "all/cut"]);
    assert!(cut.stderr.contains("all/cut/run.json is damaged"), "{}", cut.transcript());
}

/// The server's delays are 1 s and 10 ms, which differ by far more than any machine adds to most requests. The run that
/// must be the same is a copy and not a second run: on a busy machine two loads really differ, which is rightly
/// reported. Both last at least 3 s, a dozen blocks of the bootstrap: with two blocks, a stall in one makes the
/// interval as wide as the difference.
#[test]
fn two_runs_differ_where_the_server_does_and_not_where_it_is_the_same() {
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = |ms: u32| format!("http://{}/delay/{ms}", origin.clear);
    let measured =
        [("a", 9_000, 10), ("slow", 300, 1_000)].map(|(out, n, ms)| load(folder.path(), out, n, &url(ms)));
    copy(&folder.path().join("a"), &folder.path().join("again"));
    let compared = |first: &str, second: &str| {
        run_diff(folder.path(), &[first, second, "--json"]).json()["cells"][0].clone()
    };
    let diff = |first: &str, second: &str| {
        let finished = run_diff(folder.path(), &[first, second]);
        finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (same, slower) = (compared("a", "again"), compared("a", "slow"));
    let text = diff("a", "slow");
    assert!(text.contains("the two runs differ in") && text.contains("/delay/1000"), "{text}");
    let states = measured.each_ref().map(|document| document["state"].as_str().expect("a word"));
    let bound = |of: &Value, name: &str| of["median"][name].as_f64().unwrap_or_else(|| panic!("{of:#}"));
    if states[0] == "ok" {
        assert!(diff("a", "again").contains("again against a: no difference"));
        assert_eq!(
            (&same["median_verdict"], &same["throughput_verdict"]),
            (&"no-difference".into(), &"no-difference".into())
        );
        assert!(
            bound(&same, "low") <= bound(&same, "ratio") && bound(&same, "ratio") <= bound(&same, "high"),
            "{same:#}"
        );
    }
    if states.contains(&"invalid") {
        // Too busy: then no difference may be claimed, however large it is.
        assert_eq!((&slower["real"], &slower["median_verdict"]), (&false.into(), &"invalid".into()));
    }
    if states != ["ok"; 2] {
        return; // a server that did not run may also have fallen behind
    }
    if slower["median"]["blocks"].as_u64() < Some(6) {
        // Blocks are twice as long as the longest stall, so this few blocks mean a stall of a good part of a second.
        assert!(
            ["slower", "no-difference"].contains(&slower["median_verdict"].as_str().unwrap()),
            "{slower:#}"
        );
        return;
    }
    assert_eq!((&slower["real"], &slower["median_verdict"]), (&true.into(), &"slower".into()), "{slower:#}");
    let medians = measured.each_ref().map(|document| document["latency_us"]["response"]["p50"].as_f64());
    let ratio = medians[1].expect("a number") / medians[0].expect("a number");
    assert!((bound(&slower, "ratio") / ratio - 1.0).abs() < 0.01, "{ratio} is true: {slower:#}");
    assert!(bound(&slower, "low") > 1.5, "{slower:#}");
    assert!(text.contains("slow against a: slower: "), "{text}");
}

/// `diff`, which ends with 5 if a load was invalid.
#[track_caller]
fn run_diff(folder: &Path, arguments: &[&str]) -> Finished {
    let finished = run_program(&binary(), folder, &[&["diff"], arguments].concat());
    assert!(matches!(finished.code, Some(0 | 5)), "{arguments:?}: {}", finished.transcript());
    finished
}

/// Half of the server's 2 s is a bound that no machine reaches with half of the 300 requests that take a millisecond.
#[test]
fn a_condition_on_two_runs_decides_the_exit_code_whether_they_are_folders_or_documents() {
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = |ms: u32| format!("http://{}/delay/{ms}", origin.clear);
    let is_sound = [("quick", 300, 1), ("slow", 60, 2_000)].map(|(out, n, ms)| {
        let document = load(folder.path(), out, n, &url(ms));
        std::fs::write(folder.path().join(format!("{out}.json")), document.to_string()).expect("room");
        document["state"] == "ok"
    });
    let diff = |arguments: &[&str]| run_program(&binary(), folder.path(), &[&["diff"], arguments].concat());
    // For an invalid run, the condition does not set the exit code.
    let assert_code = |finished: &Finished, code: i32| {
        finished.assert_code_unless_busy(code);
        assert!(!finished.is_busy() || is_sound != [true; 2], "{}", finished.transcript());
    };
    let condition = "--fail-if=p50 > 2*base.p50";
    for ending in ["", ".json"] {
        let [quick, slow] = ["quick", "slow"].map(|name| format!("{name}{ending}"));
        let failed = diff(&[&quick, &slow, condition]);
        assert_code(&failed, 1);
        let says = |words| is_sound != [true; 2] || failed.stderr.contains(words);
        assert!(
            says("failed, since this is true: p50 > 2*base.p50: ") && says("; base.p50 "),
            "{}",
            failed.transcript()
        );
        assert_code(&diff(&[&slow, &quick, condition]), 0);
    }
    let printed = diff(&["quick.json", "slow"]);
    assert_code(&printed, 0);
    let flat = printed.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    // No tail is shown for a run that was not measured soundly.
    let tail = if is_sound == [true; 2] { ": p95 is " } else { "" };
    assert!(
        flat.contains(&format!("slow against quick.json, 1 pair of cells{tail}"))
            && flat.contains("cannot be told from files of --json"),
        "{flat}"
    );
    let figures = diff(&["quick.json", "slow.json", "--json"]).json()["figures"][0].clone();
    let is_slower = figures["then"]["p50"].as_f64() > figures["first"]["p50"].as_f64();
    assert!(is_slower || is_sound != [true; 2], "{figures:#}");
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_reason() {
    let (origin, folder) = (Origin::start(&[]), folder());
    load(folder.path(), "run", 10, &format!("http://{}/", origin.clear));
    std::fs::write(folder.path().join("other.json"), "{\"a\": 1}").expect("room");
    for (arguments, reason) in [
        (["run", "missing"], "missing"),
        (["run", "other.json"], "other.json is neither a run folder nor --json output"),
        (["run", "run"], "names `h3`, but"),
    ] {
        let more = if arguments[1] == "run" { "--fail-if=h3.p99 > base.p99" } else { "--json" };
        let finished = run(folder.path(), 2, &[&["diff"], &arguments[..], &[more]].concat());
        assert!(finished.stderr.contains(reason), "{reason}: {}", finished.transcript());
    }
    let files = run(folder.path(), 2, &["diff", "run", "run", "-o=x.csv"]);
    assert!(files.stderr.contains("write the comparison as .md, .json or .html"), "{}", files.transcript());
}

#[test]
fn a_run_ends_with_the_answer_with_which_its_report_begins() {
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = format!("http://{}/", origin.clear);
    let done = run(folder.path(), 0, &["load", "--quiet", "-n=60", "-c=2", "--out=run", &url]);
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, ending) =
        done.stdout.rsplit_once("\nAnswer: ").unwrap_or_else(|| panic!("{}", done.transcript()));
    let report = run_program(&binary(), folder.path(), &["report", "run"]);
    let beginning = report.stdout.strip_prefix("Answer: ").and_then(|text| text.split("\n\n").next());
    assert_eq!(beginning.map(flat), Some(flat(ending)), "{}", report.transcript());
    let document = run_program(&binary(), folder.path(), &["report", "run", "--json"]).json();
    assert_eq!(document["answer"].as_str().map(flat), Some(flat(ending)), "{document:#}");
}
