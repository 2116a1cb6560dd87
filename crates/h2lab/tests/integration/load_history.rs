//! What is kept of loads: `runs` lists it, `report A B` says whether two of them differ.

use std::path::Path;

use serde_json::Value;

use crate::origin::Origin;
use crate::support::{Finished, binary, folder, run_program};

/// Runs h2lab in `folder`; it must exit with `code`, or with 5 for a load that the machine was too busy for.
#[track_caller]
fn run(folder: &Path, code: i32, arguments: &[&str]) -> Finished {
    let finished = run_program(&binary(), folder, arguments);
    let is_doubtful = arguments[0] == "load" && finished.code == Some(5);
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
    assert!(run(folder.path(), 0, &["runs", "--dir=nothing"]).stdout.contains("No run was kept"));
    let missing = run(folder.path(), 2, &["runs", "--dir=missing"]);
    assert!(missing.stderr.contains("missing: there is no such folder"), "{}", missing.transcript());
    let cut = run(folder.path(), 2, &["report", "all/cut"]);
    assert!(cut.stderr.contains("all/cut/run.json is damaged"), "{}", cut.transcript());
}

/// A server's second against its 10 ms is far above what any machine adds to most requests. What is the same is a copy of the run, not
/// a second one: a busy machine makes a real difference between two loads, which is rightly reported. Both last for 3 s at least,
/// a dozen blocks of the bootstrap: of two, one with a stall in it makes the interval as wide as the difference.
#[test]
fn two_runs_differ_where_the_server_does_and_not_where_it_is_the_same() {
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = |ms: u32| format!("http://{}/delay/{ms}", origin.clear);
    let measured =
        [("a", 9_000, 10), ("slow", 300, 1_000)].map(|(out, n, ms)| load(folder.path(), out, n, &url(ms)));
    copy(&folder.path().join("a"), &folder.path().join("again"));
    let compared = |first: &str, second: &str| {
        let document = run(folder.path(), 0, &["report", "--json", first, second]).json();
        document["comparisons"][0]["cells"][0].clone()
    };
    let report = |first: &str, second: &str| run(folder.path(), 0, &["report", first, second]).stdout;
    let (same, slower) = (compared("a", "again"), compared("a", "slow"));
    let text = report("a", "slow");
    assert!(text.contains("the two runs differ in") && text.contains("/delay/1000"), "{text}");
    assert!(report("a", "again").contains("again against a"));
    if measured.iter().any(|document| document["state"] != "ok") {
        // Too busy: then nothing may be claimed, however large the difference is.
        assert_eq!((&slower["real"], &slower["median_verdict"]), (&false.into(), &"invalid".into()));
        return;
    }
    let bound = |of: &Value, name: &str| of["median"][name].as_f64().unwrap_or_else(|| panic!("{of:#}"));
    assert_eq!(
        (&same["median_verdict"], &same["throughput_verdict"]),
        (&"no-difference".into(), &"no-difference".into())
    );
    assert!(
        bound(&same, "low") <= bound(&same, "ratio") && bound(&same, "ratio") <= bound(&same, "high"),
        "{same:#}"
    );
    if slower["median"]["blocks"].as_u64() < Some(6) {
        // Blocks are twice as long as the longest stall, and so few mean one of a good part of a second.
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
    assert!(text.contains("slow against a: the difference is real"), "{text}");
}
