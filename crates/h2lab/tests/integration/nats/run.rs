//! Runs whose cells agents measure: each repetition is there once, whoever is killed on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use h2lab::run::remote::KeptRun;
use h2lab::run::store;
use h2lab_net::process::Child;
use rustix::process::Signal;

use super::server::eventually;
use super::{Hub, assert_measured, await_line, code};
use crate::support::{DEADLINE, Finished};

/// The agents.
pub(super) const LAB: [&str; 2] = ["kek-1", "kek-2"];

/// What they permit.
pub(super) const ALLOW: [&str; 2] = ["--allow", "lab"];

/// Writes a scenario in which each delay is a unit, of two cells with a repetition that measures for so long each.
pub(super) fn write_study(hub: &Hub, delays: &str, measure: &str) {
    let text = format!(
        "repetitions = 1\n[work]\nrate = 100\nwarmup = '100ms'\nmeasure = '{measure}'\ndrain = '60s'\n\
         [link]\ndelay = [{delays}]\nloss = '0%'\n[matrix]\nprotocols = ['h1', 'h2c']\nconnections = 1\n"
    );
    fs::write(hub.path("study.toml"), text).expect("a temporary folder");
}

/// Starts a run by both agents, and waits until it has begun; its folder.
#[track_caller]
pub(super) fn begin_run(hub: &Hub) -> (Child, String) {
    for attempt in 1.. {
        let out = format!("run-{attempt}");
        let words = ["run", "study.toml", "--agents", "kek-1,kek-2", "-o", "run.json", "--out", &out];
        let mut driver = Child::spawn(hub.command(&words), None).expect("the binary starts");
        let begins = |line: &str| {
            let is_begun = line.contains("repetitions by 2 agents (kek-1, kek-2)");
            // On a machine that is busy an agent may answer late.
            (is_begun || line.contains("does not answer")).then_some(is_begun)
        };
        let begun = driver.wait_for_line(DEADLINE, begins);
        if begun.unwrap_or_else(|error| panic!("{error}: {}", driver.log())) {
            return (driver, out);
        }
        // It closes the run that it may have opened: agents measure nothing of it beside the next one.
        driver.stop(Signal::INT, DEADLINE).expect("it is ours");
    }
    unreachable!("it is tried until both answer")
}

/// The number of a run.
#[track_caller]
fn number(hub: &Hub, out: &str) -> String {
    let kept: Option<KeptRun> = store::read_agents(&hub.path(out)).unwrap();
    kept.expect("agents make it").run.to_string()
}

/// Waits until each of so many units of a run is in the queue, or is reported; the number of the run.
#[track_caller]
pub(super) fn await_queue(hub: &Hub, out: &str, units: usize) -> String {
    let has_number = || matches!(store::read_agents::<KeptRun>(&hub.path(out)), Ok(Some(_)));
    eventually("the run has a number", has_number);
    let (nats, run) = (hub.server.connect(), number(hub, out));
    eventually("all units are in the queue", || {
        let reported = nats.reports().read(&run, 0, Duration::ZERO).map_or(0, |reports| reports.len());
        nats.cells().waiting(&run).is_ok_and(|waiting| waiting.len() + reported >= units)
    });
    run
}

/// Resumes a run by both agents, once one of them answers.
#[track_caller]
pub(super) fn resume(hub: &Hub, out: &str) -> Finished {
    let words = ["run", "--json", "--resume", out, "--agents", "kek-1,kek-2"];
    hub.h2lab_again(&words, &["none of these agents answers"])
}

/// Fails unless nothing of a run is left at the server.
#[track_caller]
pub(super) fn assert_nothing_left(hub: &Hub, out: &str) {
    let (nats, run) = (hub.server.connect(), number(hub, out));
    assert!(nats.runs().all().unwrap().is_empty(), "no run is open");
    assert!(nats.cells().waiting(&run).unwrap().is_empty());
    assert!(nats.reports().read(&run, 0, Duration::ZERO).unwrap().is_empty());
    assert_eq!(nats.parts().names("").unwrap(), [""; 0]);
}

/// Fails unless a run folder has each repetition of so many units once, and those of a unit are of one agent. The agent of
/// each repetition.
#[track_caller]
pub(super) fn assert_whole(hub: &Hub, out: &str, units: usize) -> Vec<String> {
    let run = store::read_heads(&hub.path(out)).unwrap();
    assert!(!run.interrupted, "{out} is not whole");
    let made: BTreeSet<(u32, u32)> =
        run.repetitions.iter().map(|one| (one.cell.index, one.cell.repetition)).collect();
    assert_eq!((made.len(), run.repetitions.len()), (2 * units, 2 * units), "each repetition once: {made:?}");
    let mut of_groups: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    let mut all = Vec::new();
    for one in &run.repetitions {
        let agent = one.machine.as_ref().expect("an agent made it").agent.clone();
        of_groups.entry(one.cell.group).or_default().insert(agent.clone());
        all.push(agent);
    }
    assert!(
        of_groups.values().all(|agents| agents.len() == 1),
        "a comparison is one machine's: {of_groups:?}"
    );
    all
}

/// Whether an agent measures a unit now: then it has a folder for that.
pub(super) fn has_unit(hub: &Hub, agent: &str) -> bool {
    let entries = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    let is_unit =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("unit-"));
    entries(hub.path(agent)).into_iter().any(|own| entries(own).iter().any(is_unit))
}

#[test]
fn two_agents_measure_each_repetition_once_and_nothing_is_left_at_the_server() {
    let Some(hub) = Hub::start() else { return };
    let _agents = hub.agents(LAB, &ALLOW);
    write_study(&hub, "'1ms', '5ms'", "2s");
    let finished =
        hub.drive(&["run", "study.toml", "--json", "--quiet", "--agents", "kek-1,kek-2", "--out", "run"]);
    finished.assert_measured();
    let agents = assert_whole(&hub, "run", 2);
    let document = finished.json();
    assert!(
        document["cells"].as_array().unwrap().iter().all(|cell| cell["repetitions"] == 1),
        "{document:#}"
    );
    let mut named: Vec<&str> = Vec::new();
    for machine in document["machines"].as_array().expect("machines are named") {
        named.push(machine["agent"].as_str().unwrap());
        assert!(!machine["groups"].as_array().unwrap().is_empty(), "{machine:#}");
    }
    let made: BTreeSet<&str> = agents.iter().map(String::as_str).collect();
    assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), made, "{document:#}");

    assert_nothing_left(&hub, "run");
    let text = hub.h2lab(&["report", "run"]);
    text.assert_measured();
    assert!(made.iter().all(|name| text.stdout.contains(name)), "{}", text.transcript());
    let whole = hub.h2lab(&["run", "--resume", "run", "--agents", "kek-1"]);
    assert!(whole.code == Some(2) && whole.stderr.contains("is complete"), "{}", whole.transcript());
}

#[test]
fn agents_go_on_without_their_driver_and_the_run_is_resumed() {
    let Some(hub) = Hub::start() else { return };
    let _agents = hub.agents(LAB, &ALLOW);
    write_study(&hub, "'1ms', '5ms'", "2s");
    let (mut driver, out) = begin_run(&hub);
    let run = await_queue(&hub, &out, 2);
    driver.kill().unwrap();
    let reports = hub.server.connect().reports();
    eventually("a unit is measured", || {
        reports.read(&run, 0, Duration::ZERO).is_ok_and(|reports| !reports.is_empty())
    });
    let alone = hub.h2lab(&["run", "--resume", &out]);
    let told = alone.code == Some(2) && alone.stderr.contains("this run is made by agents");
    assert!(told, "{}", alone.transcript());
    let resumed = resume(&hub, &out);
    resumed.assert_measured();
    assert_whole(&hub, &out, 2);
    assert_eq!(resumed.json()["resumed"].as_array().map(Vec::len), Some(1), "{}", resumed.transcript());
    assert_nothing_left(&hub, &out);
}

#[test]
fn a_run_that_is_reported_as_a_whole_is_fetched_without_any_agent() {
    let Some(hub) = Hub::start() else { return };
    let agents = hub.agents(LAB, &ALLOW);
    write_study(&hub, "'1ms', '5ms'", "2s");
    let (mut driver, out) = begin_run(&hub);
    let run = await_queue(&hub, &out, 2);
    driver.kill().unwrap();
    let nats = hub.server.connect();
    eventually("all units are reported", || {
        let reports = nats.reports().read(&run, 0, Duration::ZERO).map_or(0, |reports| reports.len());
        reports == 2 && nats.cells().waiting(&run).is_ok_and(|waiting| waiting.is_empty())
    });
    for mut agent in agents {
        agent.stop(Signal::INT, DEADLINE).expect("it is ours");
    }
    let resumed = hub.h2lab(&["run", "--json", "--resume", &out, "--agents", "kek-9"]);
    resumed.assert_measured();
    assert_whole(&hub, &out, 2);
    assert_nothing_left(&hub, &out);
}

#[test]
fn a_run_that_is_interrupted_twice_is_closed_and_a_driver_is_130() {
    let Some(hub) = Hub::start() else { return };
    let _agents = hub.agents(LAB, &ALLOW);
    write_study(&hub, "'1ms', '5ms', '20ms'", "5s");
    let (mut driver, out) = begin_run(&hub);
    await_queue(&hub, &out, 3);
    driver.signal(Signal::INT).unwrap();
    // Two signals that are pending together are one. If they were, this would be the test of one.
    std::thread::sleep(Duration::from_millis(100));
    driver.signal(Signal::INT).unwrap();
    assert_eq!(code(&mut driver), Some(130), "{}", driver.log());
    let open = hub.server.connect().runs().all().unwrap();
    assert!(open.is_empty(), "agents go on with {open:?}: {}", driver.log());
    if hub.path(&out).join("run.json").exists() {
        assert!(driver.log().contains("--agents kek-1,kek-2"), "{}", driver.log());
    } else {
        assert!(driver.log().contains("nothing was measured, and no run folder is kept"), "{}", driver.log());
    }
}

#[test]
fn the_unit_of_an_agent_that_is_killed_goes_to_another_one() {
    let Some(hub) = Hub::start() else { return };
    let [mut killed, _other] = hub.agents(LAB, &ALLOW);
    write_study(&hub, "'1ms', '5ms'", "2s");
    let (mut driver, out) = begin_run(&hub);
    eventually("kek-1 has a unit", || has_unit(&hub, "kek-1"));
    killed.kill().unwrap();
    // The queue waits 30 s for it; a class that is opened again takes another time.
    let soon = Duration::from_secs(5);
    hub.server.connect().cells().open_class(&number(&hub, &out), 0, soon).unwrap();
    assert_measured(&mut driver);
    assert_eq!(assert_whole(&hub, &out, 2), ["kek-2"; 4]);
    let document = hub.document("run.json");
    assert_eq!(document["interrupted"], false, "{document:#}");
}

#[test]
fn units_of_an_agent_that_fails_at_each_are_measured_by_another_one() {
    let Some(hub) = Hub::start() else { return };
    let [_failing, healthy] = hub.agents(LAB, &ALLOW);
    // Without the folder in which it measures kek-1 fails at each unit that it takes.
    for entry in fs::read_dir(hub.path("kek-1")).expect("the agent was started with it") {
        fs::remove_dir_all(entry.expect("it can be read").path()).expect("it is ours");
    }
    write_study(&hub, "'1ms', '5ms'", "1s");
    let (mut driver, out) = begin_run(&hub);
    // It has one of the two units at most: kek-1 takes the other one.
    healthy.signal(Signal::STOP).unwrap();
    let failure = "by kek-1, failed: no folder can be made in ";
    await_line(&driver, failure);
    healthy.signal(Signal::CONT).unwrap();
    assert_measured(&mut driver);
    assert_eq!(assert_whole(&hub, &out, 2), ["kek-2"; 4]);
    let told = driver.log();
    let mut cells = BTreeSet::new();
    for line in told.lines().filter(|line| line.contains(failure)) {
        assert!(line.ends_with("; it is measured again"), "{told}");
        let cell = line.split_once(": attempt ").map(|(cell, _)| cell);
        assert!(cells.insert(cell), "it is not given a unit again at which it has failed: {told}");
    }
    assert_nothing_left(&hub, &out);
}

#[test]
fn cells_of_a_server_that_no_agent_has_are_unsupported_and_the_others_are_measured() {
    let Some(hub) = Hub::start() else { return };
    let agents = LAB.map(|name| {
        let mut command = hub.command(&["agent", "--name", name, "--nats", &hub.url()]);
        // The places where h2lab looks for programs, except those of administrators.
        command.args(ALLOW).env("PATH", hub.path("none")).env("HOME", hub.path("none"));
        Child::spawn(command, None).expect("the binary starts")
    });
    for agent in &agents {
        await_line(agent, "waits for drivers");
    }
    let study = |origins: &str| {
        let text = format!(
            "repetitions = 2\n[work]\nrate = 100\nwarmup = '100ms'\nmeasure = '1s'\ndrain = '60s'\n\
             [link]\ndelay = '1ms'\nloss = '0%'\n\
             [matrix]\norigin = [{origins}]\nprotocols = ['h1', 'h2c']\nconnections = 1\n"
        );
        fs::write(hub.path("study.toml"), text).expect("a temporary folder");
    };
    let words = ["run", "study.toml", "--json", "--quiet", "--agents", "kek-1,kek-2", "--out", "run"];
    // An agent that answers late is not one without the server.
    let run = || hub.h2lab_again(&words, &["does not answer", "none of these agents answers"]);

    study("'caddy'");
    let refused = run();
    let is_told = refused.stderr.contains("no agent can measure ");
    assert!(refused.code == Some(4) && is_told, "{}", refused.transcript());
    assert!(refused.stderr.contains("kek-2: caddy is not installed"), "{}", refused.transcript());
    assert!(!hub.path("run").exists(), "nothing was measured");

    study("'origin', 'caddy'");
    let finished = run();
    finished.assert_measured();
    let why = "no agent has `caddy`: install it on one of kek-1, kek-2";
    let told = format!("2 cells unsupported, also if the run is resumed: {why}");
    assert_eq!(finished.stderr.matches(&told).count(), 1, "{}", finished.transcript());
    let stored = store::read_heads(&hub.path("run")).unwrap();
    assert!(!stored.interrupted);
    for one in &stored.repetitions {
        let expected = (one.cell.target.name() == "caddy").then_some(why);
        assert_eq!(one.unsupported.as_deref(), expected, "{:?}", one.cell);
    }
    let unsupported = stored.repetitions.iter().filter(|one| one.unsupported.is_some()).count();
    let counts = (stored.repetitions.len(), unsupported);
    assert_eq!(counts, (6, 2), "one record stands for all repetitions of a cell that is unsupported");
    let again = hub.h2lab(&["run", "--resume", "run", "--agents", "kek-1"]);
    assert!(again.code == Some(2) && again.stderr.contains("is complete"), "{}", again.transcript());
    assert_nothing_left(&hub, "run");
}

#[test]
fn a_comparison_that_a_second_agent_of_one_machine_measures_is_a_repetition_and_not_pooled() {
    let Some(hub) = Hub::start() else { return };
    let _agents = hub.agents(LAB, &ALLOW);
    write_study(&hub, "'1ms'", "2s");
    let words = ["run", "study.toml", "--json", "--quiet", "--reproduce=2", "--out=run", "--agents"];
    let alone = hub.h2lab_again(&[&words[..], &["kek-1"]].concat(), &["none of these agents answers"]);
    let told = "--reproduce 2 needs 2 agents, one for each measurement; 1 answered";
    assert!(alone.code == Some(4) && alone.stderr.contains(told), "{}", alone.transcript());
    let finished = hub.drive(&[&words[..], &["kek-1,kek-2"]].concat());
    finished.assert_measured();
    assert_eq!(assert_whole(&hub, "run", 1), ["kek-1"; 2]);
    let others = store::read_reproductions(&hub.path("run")).unwrap();
    let [other] = &others[..] else { panic!("one further measurement") };
    let agents: Vec<&str> =
        other.repetitions.iter().filter_map(|one| Some(one.machine.as_ref()?.agent.as_str())).collect();
    assert_eq!(agents, ["kek-2"; 2]);
    if finished.is_busy() {
        return; // an invalid cell may have no verdict
    }
    let document = finished.json();
    let [reproduction] = &document["reproductions"].as_array().unwrap()[..] else {
        panic!("one: {document:#}")
    };
    let found = reproduction["found"].as_array().unwrap();
    assert!(found.iter().map(|one| one["agent"].as_str().unwrap()).eq(LAB), "{document:#}");
    assert_eq!(reproduction["agreement"], "one-machine", "both have its boot ID: {document:#}");
}
