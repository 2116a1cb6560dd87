//! A run that was killed or interrupted, and resumed: every repetition once, nothing lost, nothing else measured.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::leftovers::Watched;
use crate::support::{DEADLINE, Finished, folder, h2lab};

/// A run of four repetitions, in the order h1 h2c h2c h1, each of more than four seconds.
const FOUR_REPETITIONS: [&str; 7] =
    ["compare", "--proto=h1,h2c", "-c=1", "--loss=0%", "-q=200", "-z=4s", "--repetitions=2"];

/// How far into a repetition it is killed: within its warm-up or its measured time.
const INTO: Duration = Duration::from_millis(700);

/// `run.json`; `None` while there is none.
fn head(out: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(out.join("run.json")).ok()?).ok()
}

/// Cell and repetition of every repetition that is stored, in the order of the file.
fn stored(out: &Path) -> Vec<(u64, u64)> {
    let head = head(out).unwrap_or_default();
    let repetitions = head["repetitions"].as_array().cloned().unwrap_or_default();
    let number = |repetition: &Value, key: &str| repetition["cell"][key].as_u64().expect("a number");
    repetitions
        .iter()
        .map(|repetition| (number(repetition, "index"), number(repetition, "repetition")))
        .collect()
}

/// Runs `arguments` into `out` and ends it by `signal` in the middle of its second repetition; only the folder remains
/// of it.
#[track_caller]
fn ended_in_its_second_repetition(arguments: &[&str], out: &Path, signal: Signal) {
    let out_flag = format!("--out={}", out.display());
    let mut run = Watched::start(&[arguments, &[&out_flag]].concat());
    let until = Instant::now() + DEADLINE;
    while stored(out).is_empty() {
        assert!(Instant::now() < until, "no repetition was stored within {DEADLINE:?}");
        run.look_for(Duration::from_millis(10));
    }
    run.look_for(INTO);
    run.signal(signal);
    run.wait();
    run.assert_nothing_left();
    assert_eq!(stored(out), [(0, 0)]);
}

#[track_caller]
fn resume(out: &Path, words: &[&str]) -> Finished {
    h2lab(&[words, &["--resume", out.to_str().expect("UTF-8")]].concat())
}

/// Fails unless `done` says that the whole plan was measured; on a busy machine the figures may be invalid.
#[track_caller]
fn assert_complete(done: &Finished, out: &Path) {
    done.assert_measured();
    let head = head(out).expect("run.json");
    assert_eq!(head["interrupted"], Value::Bool(false));
    assert!(!out.join("visits").exists(), "the parts are joined");
    let made = stored(out);
    assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), made.len(), "each repetition once: {made:?}");
}

#[track_caller]
fn assert_refused(done: &Finished, words: &str) {
    assert_eq!(done.code, Some(2), "{}", done.transcript());
    assert!(done.stderr.contains(words), "{words}\n{}", done.transcript());
}

#[test]
fn a_killed_run_is_resumed_and_has_every_repetition_once() {
    let parent = folder();
    let out = parent.path().join("killed");
    ended_in_its_second_repetition(&FOUR_REPETITIONS, &out, Signal::KILL);

    let listed = h2lab(&["runs", "--json", "--dir", parent.path().to_str().expect("UTF-8")]).json();
    assert_eq!(listed["runs"][0]["missing"], 3);
    assert_eq!(listed["runs"][0]["resume"], format!("h2lab run --resume {}", out.display()));
    let other = resume(&out, &["compare", "--loss=5%", "-z=2s"]);
    assert_refused(
        &other,
        "this is not the run that was started: link.loss was 0%, is 5%; work.measure was 4s, is 2s",
    );
    assert_eq!(stored(&out), [(0, 0)], "a refusal changes nothing");

    let done = resume(&out, &["run", "--json"]);
    assert_complete(&done, &out);
    assert!(done.stderr.contains("3 of 4 repetitions to be made"), "{}", done.transcript());
    assert_eq!(
        done.stderr.matches(" left\n").count(),
        3,
        "a line per repetition made\n{}",
        done.transcript()
    );
    let document = done.json();
    assert_eq!(document["resumed"].as_array().map(Vec::len), Some(1));
    assert!(document["cells"].as_array().expect("cells").iter().all(|cell| cell["repetitions"] == 2));

    let uninterrupted = parent.path().join("whole");
    let out_flag = format!("--out={}", uninterrupted.display());
    let whole = h2lab(&[&FOUR_REPETITIONS[..], &[&out_flag, "--quiet"]].concat());
    assert_complete(&whole, &uninterrupted);
    assert!(
        !whole.stderr.contains(" left") && !whole.stderr.contains("4 repetitions"),
        "{}",
        whole.transcript()
    );
    assert_eq!(stored(&out), stored(&uninterrupted), "the same repetitions, in the same order");

    assert_refused(&resume(&out, &["run"]), "this run is complete");
}

#[test]
fn an_interrupted_run_with_a_torn_repetition_measures_that_one_again() {
    let parent = folder();
    let out = parent.path().join("torn");
    ended_in_its_second_repetition(&FOUR_REPETITIONS, &out, Signal::KILL);
    let part = out.join("visits/0000.samples.parquet");
    let whole = fs::read(&part).expect("it is stored");
    fs::write(&part, &whole[..whole.len() / 2]).expect("it is ours");
    let done = resume(&out, &["compare", "--json"]);
    assert_complete(&done, &out);
    assert!(
        done.stderr.contains("to be measured again, since it cannot be read: repetition 0"),
        "{}",
        done.transcript()
    );
    assert_eq!(stored(&out), [(0, 0), (1, 0), (1, 1), (0, 1)]);
}

#[test]
fn ctrl_c_says_what_to_type_and_secrets_are_given_again() {
    let parent = folder();
    let out = parent.path().join("secret");
    let secrets = ["-H=x-secret: a", "-d=hello"];
    ended_in_its_second_repetition(&[&FOUR_REPETITIONS[..], &secrets].concat(), &out, Signal::INT);
    assert!(out.join("samples.parquet").exists(), "an orderly end joins what there is");
    assert_refused(&resume(&out, &["run"]), "give -H 'x-secret: …' -d … again");
    assert_refused(&resume(&out, &["run", secrets[0], "-d=longer"]), "work.body-bytes was 5, is 6");
    let done = resume(&out, &[&["run", "--json"], &secrets[..]].concat());
    assert_complete(&done, &out);
    assert_eq!(stored(&out).len(), 4);
}

#[test]
fn ctrl_c_before_the_first_repetition_leaves_no_folder_unless_others_have_put_something_there() {
    // Its first repetition does not end within this test.
    let arguments = ["compare", "--proto=h1,h2c", "-c=1", "--loss=0%", "-q=200", "-z=300s"];
    let parent = folder();
    for (name, others) in [("alone", &[][..]), ("shared", &["thesis.txt"])] {
        let out = parent.path().join(name);
        let out_flag = format!("--out={}", out.display());
        let mut run = Watched::start(&[&arguments[..], &[&out_flag]].concat());
        let until = Instant::now() + DEADLINE;
        while head(&out).is_none() {
            assert!(Instant::now() < until, "no run was begun within {DEADLINE:?}");
            run.look_for(Duration::from_millis(10));
        }
        for file in others {
            fs::write(out.join(file), "mine").expect("the folder is there");
        }
        run.signal(Signal::INT);
        assert_eq!(run.wait(), Some(130));
        run.assert_nothing_left();
        let entries = fs::read_dir(&out).into_iter().flatten();
        let left: Vec<_> = entries.map(|entry| entry.expect("it can be read").file_name()).collect();
        assert_eq!(left, others);
        assert_eq!(out.exists(), !others.is_empty());
    }
}

#[test]
fn a_folder_that_is_no_run_and_a_run_without_a_scenario_are_refused() {
    let parent = folder();
    assert_refused(&resume(parent.path(), &["run"]), "is not a run folder");
    assert_eq!(h2lab(&["run"]).code, Some(2));
    assert_refused(&resume(parent.path(), &["run", "--out=x"]), "cannot be used with");
}
