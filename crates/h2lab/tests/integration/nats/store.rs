//! What is stored is not as its driver has left it: the server has lost it, or the run folder was copied.

use std::fs;
use std::path::Path;
use std::time::Duration;

use h2lab_model::fleet::UnitReport;
use h2lab_model::fleet::messages::decode_printable;
use rustix::process::Signal;

use super::run::{
    ALLOW, LAB, assert_nothing_left, assert_whole, await_queue, begin_run, has_unit, resume, write_study,
};
use super::server::eventually;
use super::{ANY, Hub, assert_adds_up, await_line, code, origin, shares};
use crate::support::{DEADLINE, run_program};

/// Starts the server again without anything that it has stored.
fn lose_store(hub: &mut Hub) {
    hub.server.stop();
    fs::remove_dir_all(hub.server.file("store")).expect("the server that has ended made it");
    hub.server.start_again();
}

#[test]
fn a_run_whose_server_has_lost_its_units_ends_and_says_so_and_is_resumed() {
    let Some(mut hub) = Hub::start() else { return };
    let agents = hub.agents(LAB, &ALLOW);
    write_study(&hub, "'1ms', '5ms', '20ms'", "1s");
    let (mut driver, out) = begin_run(&hub);
    await_queue(&hub, &out, 3);
    eventually("a unit is being measured", || LAB.iter().any(|agent| has_unit(&hub, agent)));
    lose_store(&mut hub);
    for agent in &agents {
        await_line(agent, "connected again");
    }
    let ended = code(&mut driver);
    let log = driver.log();
    // A driver that puts the units back ends as any other one.
    if !matches!(ended, Some(0 | 5)) {
        assert_eq!(ended, Some(3), "{log}");
        let words = ["its units are no longer at NATS", "--resume", out.as_str()];
        let is_told = |line: &str| words.iter().all(|words| line.contains(words));
        assert!(log.lines().any(is_told), "{log}");
        eventually("agents let their units go", || !LAB.iter().any(|agent| has_unit(&hub, agent)));
        resume(&hub, &out).assert_measured();
    }
    assert_whole(&hub, &out, 3);
    assert_nothing_left(&hub, &out);
    for agent in &agents {
        assert!(!agent.log().contains("panicked"), "{}", agent.log());
    }
}

#[test]
fn a_copy_of_a_run_that_was_finished_since_is_measured_by_itself() {
    let Some(hub) = Hub::start() else { return };
    let _agents = hub.agents(LAB, &ALLOW);
    write_study(&hub, "'1ms', '5ms'", "1s");
    let (mut driver, out) = begin_run(&hub);
    let run = await_queue(&hub, &out, 2);
    driver.kill().unwrap();
    let copied = run_program(Path::new("cp"), hub.folder.path(), &["-r", out.as_str(), "copy"]);
    assert_eq!(copied.code, Some(0), "{}", copied.transcript());
    let reports = hub.server.connect().reports();
    let mut former = Vec::new();
    eventually("a unit is reported", || {
        former = reports.read(&run, 0, Duration::ZERO).unwrap_or_default();
        !former.is_empty()
    });
    resume(&hub, &out).assert_measured();
    assert_whole(&hub, &out, 2);
    assert_nothing_left(&hub, &out);

    // As if the original had not been able to delete them: their parts are gone.
    for report in former {
        let told = decode_printable::<UnitReport>(&String::from_utf8_lossy(&report.payload));
        let unit = told.expect("an agent has written it").unit;
        reports.add(&run, unit, &report.agent, report.payload).unwrap();
    }
    let head = hub.path(&out).join("run.json");
    let original = fs::read(&head).unwrap();
    let resumed = resume(&hub, "copy");
    resumed.assert_measured();
    assert!(!resumed.stderr.contains("panicked"), "{}", resumed.transcript());
    assert_whole(&hub, "copy", 2);
    assert!(fs::read(&head).unwrap() == original, "nothing of the copy comes into the original");
    assert_nothing_left(&hub, "copy");
    let whole = hub.h2lab(&["run", "--resume", "copy", "--agents", "kek-1,kek-2"]);
    assert!(whole.code == Some(2) && whole.stderr.contains("is complete"), "{}", whole.transcript());
}

#[test]
fn shares_are_kept_of_a_load_whose_server_has_lost_its_store_meanwhile() {
    let Some(mut hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let agents = hub.agents(LAB, &ANY);
    // It cannot be over before the server is back.
    let load = ["load", "--agents", "kek-1,kek-2", "-q20", "-z1h", "-c2", "-o", "load.json", url.as_str()];
    let mut driver = hub.begin_load(&load);
    let is_answered = |line: &str| line.contains(" answered, ") && !line.contains(" 0 answered, ");
    let answered = driver.wait_for_line(DEADLINE, |line| is_answered(line).then_some(()));
    answered.unwrap_or_else(|error| panic!("{error}: {}", driver.log()));
    lose_store(&mut hub);
    for agent in &agents {
        await_line(agent, "connected again");
    }
    let ended = driver.stop(Signal::INT, DEADLINE).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", driver.log());
    assert!(hub.path("load.json").exists(), "what agents have measured is lost: {}", driver.log());
    let document = hub.document("load.json");
    assert_eq!(document["interrupted"], true, "{document:#}");
    assert!(shares(&document).iter().all(|share| share["lost"].is_null()), "{document:#}");
    assert!(assert_adds_up(&document) > 0, "{document:#}");
    let left = hub.server.connect().parts().names("").unwrap();
    assert!(left.is_empty(), "parts are deleted once they are fetched: {left:?}");
    hub.listed(&LAB);
}
