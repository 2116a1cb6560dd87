//! An agent from its start to its end: who it is, for whom it works, when it leaves.

use std::fs;

use rustix::process::Signal;

use super::server::eventually;
use super::{
    ANY, BUSY, Hub, OVERLOOKED, USER, assert_adds_up, assert_measured, await_line, code, origin, shares,
};
use crate::support::{DEADLINE, DRAIN};

#[test]
fn agents_are_listed_with_what_they_permit_until_they_leave() {
    let Some(hub) = Hub::start() else { return };
    let mut leaves = hub.agent("kek-1", &["--allow", "serve", "--max-rate", "5", "--max-time", "1m"]);
    let _stays = hub.agent("kek-2", &ANY);
    let document = hub.listed(&["kek-1", "kek-2"]);
    let [agent, other] = &document["agents"].as_array().unwrap()[..] else { panic!("two agents") };
    assert_eq!((&agent["allow"], &agent["busy"]), (&serde_json::json!(["serve"]), &serde_json::Value::Null));
    let limits = &agent["limits"];
    assert_eq!((&limits["rate_rps"], &limits["time_s"]), (&5.0.into(), &60.0.into()), "{agent:#}");
    assert!(limits["bytes"].is_null() && limits["connections"].is_null(), "{agent:#}");
    assert_eq!(agent["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(agent["likeness"], other["likeness"], "they are on one machine");
    let clock = |name: &str| agent["clock"][name].as_f64().unwrap();
    // Figures are rounded.
    assert!(
        clock("offset_ms").abs() <= clock("uncertainty_ms") * 1.01 + 0.01,
        "it is the same clock: {agent:#}"
    );
    eventually("people read a line for each", || {
        let text = hub.h2lab(&["agents"]).stdout;
        ["kek-1 ", "kek-2 "].iter().all(|name| text.lines().any(|line| line.starts_with(name)))
    });

    let ended = leaves.stop(Signal::TERM, DEADLINE).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", leaves.log());
    await_line(&leaves, "kek-1 has ended");
    hub.listed(&["kek-2"]);
}

#[test]
fn a_name_is_one_agents() {
    let Some(hub) = Hub::start() else { return };
    let first = hub.agent("kek-1", &["--allow", "serve"]);
    let second = hub.h2lab(&["agent", "--name", "kek-1", "--allow", "lab"]);
    assert_eq!(second.code, Some(2), "{}", second.transcript());
    let words = "--name kek-1: another agent of this name is connected";
    assert!(second.stderr.contains(words), "{}", second.transcript());
    let document = hub.listed(&["kek-1"]);
    assert_eq!(document["agents"][0]["allow"], serde_json::json!(["serve"]), "the first one stays");
    assert!(!first.log().contains("has ended"), "{}", first.log());
}

#[test]
fn what_an_agent_that_was_killed_has_left_is_removed_by_the_next_one() {
    let Some(hub) = Hub::start() else { return };
    let folders = || {
        let entries = fs::read_dir(hub.path("kek-1")).expect("the agent was started with it");
        entries.map(|entry| entry.expect("it can be read").file_name()).collect::<Vec<_>>()
    };
    let mut killed = hub.agent("kek-1", &ANY);
    let left = folders();
    assert_eq!(left.len(), 1, "{left:?}");
    killed.kill().unwrap();
    assert_eq!(folders(), left, "it could remove nothing");
    let mut next = hub.agent("kek-1", &ANY);
    await_line(&next, "which an agent that was killed has left");
    let own = folders();
    assert!(own.len() == 1 && own != left, "{own:?}");
    assert_eq!(next.stop(Signal::TERM, DEADLINE).unwrap().status.code(), Some(0), "{}", next.log());
    assert!(folders().is_empty(), "{:?}", folders());
}

#[test]
fn an_agent_waits_for_a_server_that_is_absent_and_a_driver_says_so() {
    let Some(mut hub) = Hub::start() else { return };
    hub.server.stop();
    let agent = hub.begin_agent("kek-1", &["--allow", "serve"]);
    let mut leaves = hub.begin_agent("kek-2", &["--allow", "serve"]);
    await_line(&agent, "waits for the NATS server: no connection to NATS at nats://127.0.0.1:");
    await_line(&leaves, "waits for the NATS server");
    let ended = leaves.stop(Signal::TERM, DEADLINE).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", leaves.log());
    let driver = hub.h2lab(&["agents"]);
    assert_eq!(driver.code, Some(3), "{}", driver.transcript());
    assert!(driver.stderr.contains("no connection to NATS at nats://127.0.0.1:"), "{}", driver.transcript());
    hub.server.start_again();
    await_line(&agent, "waits for drivers");
    hub.listed(&["kek-1"]);
}

#[test]
fn nobody_there_and_a_name_that_nobody_has_are_exit_code_3() {
    let Some(hub) = Hub::start() else { return };
    for (words, told) in [
        (&["agents"][..], "none answered within 1s"),
        (
            &["load", "--agents", "kek-9", "-n1", "http://127.0.0.1:1/"],
            "kek-9 did not answer (agents that answered: none)",
        ),
        (&["run", "compare", "--agents", "kek-9"], "none of these agents answers"),
        (
            &[
                "bulk",
                "drive",
                "--json",
                "--clients=kek-9",
                "--servers=local",
                "--http1",
                "--setup-timeout=1s",
            ],
            "kek-9 did not answer (agents that answered: ",
        ),
    ] {
        let finished = hub.h2lab(words);
        let transcript = finished.transcript();
        assert!(finished.code == Some(3) && transcript.contains(told), "{words:?}: {transcript}");
    }
    assert!(!hub.path("h2lab-runs").exists(), "nothing was begun");
}

#[test]
fn a_second_driver_is_told_who_has_the_agent_and_the_first_goes_on() {
    let Some(hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let _agent = hub.agent("kek-1", &ANY);
    let load = ["load", "--agents", "kek-1", "-q20", "-z1h", "-c1", "-o", "first.json"];
    let mut first = hub.begin_load(&[&load[..], &[&url]].concat());
    let listed = hub.listed(&["kek-1"]);
    let busy = listed["agents"][0]["busy"].as_str().unwrap_or_default();
    assert!(busy.starts_with(&format!("{USER} at ")), "{listed:#}");
    let small = ["load", "--agents", "kek-1", "-n5", "-c1", DRAIN, "--no-store", "--json", &url];
    let second = hub.h2lab_again(&small, &[OVERLOOKED]);
    let told = second.stderr.contains(&format!("kek-1: {BUSY} {USER} at "));
    assert!(second.code == Some(3) && told, "{}", second.transcript());

    let ended = first.stop(Signal::INT, DEADLINE).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", first.log());
    let document = hub.document("first.json");
    assert_eq!(document["interrupted"], true, "{document:#}");
    let sent = document["requests"]["sent"].as_u64();
    assert!(
        shares(&document)[0]["lost"].is_null() && sent > Some(0),
        "what was measured is kept: {document:#}"
    );
    let third = hub.drive(&small);
    third.assert_measured();
    assert_eq!(assert_adds_up(&third.json()), 5, "the agent is free again");
}

#[test]
fn an_agent_that_is_told_to_end_finishes_its_share() {
    let Some(hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let mut agent = hub.agent("kek-1", &ANY);
    let load = ["load", "--agents", "kek-1", "-q20", "-z3s", "-c1", DRAIN, "-o", "load.json"];
    let mut driver = hub.begin_load(&[&load[..], &[&url]].concat());
    agent.signal(Signal::TERM).unwrap();
    await_line(&agent, &format!("stopping: finishes its work for {USER} at "));
    assert_measured(&mut driver);
    let document = hub.document("load.json");
    assert!(shares(&document)[0]["lost"].is_null(), "{document:#}");
    assert!(assert_adds_up(&document).abs_diff(60) <= 1, "20 per second for 3 s: {document:#}");
    assert_eq!(code(&mut agent), Some(0), "{}", agent.log());
}

#[test]
fn a_share_that_is_not_done_in_time_ends_with_its_agent_and_the_driver_is_told() {
    let Some(hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let mut agent = hub.agent("kek-1", &[&ANY[..], &["--drain-time", "1s"]].concat());
    let load = ["load", "--agents", "kek-1", "-q20", "-z1h", "-c1", "--out=run"];
    let mut driver = hub.begin_load(&[&load[..], &[&url]].concat());
    agent.signal(Signal::TERM).unwrap();
    assert_eq!(code(&mut driver), Some(3), "{}", driver.log());
    await_line(&driver, "kek-1: the agent was ended");
    assert_eq!(code(&mut agent), Some(0), "{}", agent.log());
    assert!(!hub.path("run").exists(), "a run folder is whole, or is not there");
}
