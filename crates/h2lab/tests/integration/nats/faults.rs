//! What fails in the middle of a load: the rest is kept, nothing is counted twice, and words say what happened.

use super::{ANY, Hub, assert_adds_up, assert_measured, await_line, code, origin, shares};
use crate::support::DRAIN;

#[test]
fn the_share_of_an_agent_that_is_killed_is_lost_and_the_others_are_kept() {
    let Some(hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let [_kept, mut killed] = hub.agents(["kek-1", "kek-2"], &ANY);
    let load =
        ["load", "--agents", "kek-1,kek-2", "-q40", "-z5s", "-c2", DRAIN, "--out=run", "-o", "load.json"];
    let mut driver = hub.begin_load(&[&load[..], &[&url]].concat());
    killed.kill().unwrap();
    // Of one that is gone the driver hears nothing, for a minute. One that was started again does not go on with the
    // session.
    let _again = hub.agent("kek-2", &ANY);
    assert_eq!(code(&mut driver), Some(5), "{}", driver.log());
    let document = hub.document("load.json");
    let [kept, lost] = shares(&document) else { panic!("two shares: {document:#}") };
    assert!(kept["lost"].is_null() && kept["due"].as_u64() > Some(0), "{document:#}");
    assert_eq!(lost["state"], "lost", "{document:#}");
    assert_eq!(document["rate_rps"], 40.0, "what was due of all: {document:#}");
    assert!(lost["lost"]["why"].as_str().unwrap().contains("was restarted"), "{document:#}");
    assert_adds_up(&document);
    assert_eq!((&document["state"], &document["agents"]["lost"]), (&"invalid".into(), &1.into()));
    assert!(document.to_string().contains("1 of 2 shares is missing"), "{document:#}");
    let reported = hub.h2lab(&["report", "--json", "run"]);
    assert_eq!(reported.code, Some(5), "the run folder is whole: {}", reported.transcript());
    // It is a new agent, and works for others.
    let next = hub.drive(&["load", "--json", "--no-store", "--agents", "kek-2", "-n5", "-c1", DRAIN, &url]);
    next.assert_measured();
    assert_eq!(assert_adds_up(&next.json()), 5);
}

#[test]
fn a_load_goes_on_while_the_server_is_started_again() {
    let Some(mut hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let agents = hub.agents(["kek-1", "kek-2"], &ANY);
    let load =
        ["load", "--agents", "kek-1,kek-2", "-q40", "-z8s", "-c2", DRAIN, "--out=run", "-o", "load.json"];
    let mut driver = hub.begin_load(&[&load[..], &[&url]].concat());
    hub.server.stop();
    hub.server.start_again();
    for agent in &agents {
        await_line(agent, "disconnected from NATS");
        await_line(agent, "connected again");
    }
    assert_measured(&mut driver);
    let document = hub.document("load.json");
    assert!(shares(&document).iter().all(|share| share["lost"].is_null()), "{document:#}");
    assert!(assert_adds_up(&document).abs_diff(320) <= 2, "40 per second for 8 s: {document:#}");
    hub.h2lab(&["report", "--json", "run"]).assert_measured();
    hub.listed(&["kek-1", "kek-2"]);
}
