//! Loads that several agents make together.

use h2lab::run::store;

use super::{ANY, Hub, assert_adds_up, await_line, origin, shares};
use crate::support::DRAIN;

#[test]
fn three_agents_make_one_load_of_the_rate_that_was_asked_for() {
    let Some(hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let names = ["kek-1", "kek-2", "kek-3"];
    let _agents = hub.agents(names, &ANY);
    let load = ["load", "--json", "--agents", "kek-1,kek-2,kek-3", "-q60", "-z2s", "-c6", DRAIN, "--out=run"];
    let finished = hub.drive(&[&load[..], &[&url]].concat());
    finished.assert_measured();
    let document = finished.json();
    let sent = assert_adds_up(&document);
    assert!(sent.abs_diff(120) <= 3, "60 per second for 2 s: {document:#}");
    assert_eq!(document["requests"]["succeeded"], sent, "{document:#}");
    assert_eq!(document["agents"]["asked"], 120);
    for (number, (share, name)) in shares(&document).iter().zip(names).enumerate() {
        assert_eq!(
            (&share["agent"], &share["number"], &share["of"]),
            (&name.into(), &number.into(), &3.into())
        );
        assert!(share["due"].as_u64().unwrap().abs_diff(40) <= 1, "every third request: {share:#}");
        assert!(share["lost"].is_null() && share["clock"].is_object(), "{share:#}");
        assert!(share["generator"].is_object() && share["start_late_ns"].is_u64(), "{share:#}");
    }

    let reported = hub.h2lab(&["report", "--json", "run"]);
    reported.assert_measured();
    assert_eq!(reported.json()["cells"][0]["requests"]["sent"], sent, "{}", reported.transcript());
    let stored = store::read(&hub.path("run")).unwrap();
    let [record] = &stored.repetitions[..] else { panic!("one repetition") };
    assert_eq!((record.agents.len(), record.samples.len() as u64), (3, sent));
    let left = hub.server.connect().parts().names("").unwrap();
    assert!(left.is_empty(), "parts are deleted once they are fetched: {left:?}");
}

#[test]
fn a_closed_loop_is_divided_by_requests_and_by_connections() {
    let Some(hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let _agents = hub.agents(["kek-1", "kek-2"], &ANY);
    let load = ["load", "--json", "--no-store", "--agents", "kek-1,kek-2", "-n41", "-c4", DRAIN, &url];
    let finished = hub.drive(&load);
    finished.assert_measured();
    let document = finished.json();
    assert_eq!(assert_adds_up(&document), 41, "{document:#}");
    assert_eq!(document["requests"]["succeeded"], 41, "{document:#}");
    assert_eq!(document["connections_opened"], 4, "{document:#}");
    assert!(document["agents"]["asked"].is_null(), "it offers what is answered: {document:#}");
    let due = |share: &serde_json::Value| share["due"].as_u64();
    assert!(shares(&document).iter().all(|share| due(share) >= Some(20)), "{document:#}");
}

#[test]
fn an_agent_fills_placeholders_of_a_path_and_logs_what_its_share_made() {
    let Some(hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let agents = hub.agents(["kek-1"], &ANY);
    let url = format!("{url}?r={{{{random 1..9}}}}");
    let load =
        ["load", "--json", "--no-store", "--agents", "kek-1", "-n41", "-c4", "--template", DRAIN, &url];
    let finished = hub.drive(&load);
    finished.assert_measured();
    assert_eq!(finished.json()["requests"]["succeeded"], 41, "{}", finished.transcript());
    await_line(&agents[0], "share 1 of 1 is over: 41 requests succeeded, 0 failed");
}

#[test]
fn a_condition_is_about_the_sum_and_people_read_a_row_for_each_agent() {
    let Some(hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let _agents = hub.agents(["kek-1", "kek-2"], &ANY);
    let url = format!("{url}status/503");
    let load = ["load", "--no-store", "--agents", "kek-1,kek-2", "-n40", "-c4", DRAIN];
    let finished = hub.drive(&[&load[..], &["--fail-if=errors > 1%", &url]].concat());
    finished.assert_code_unless_busy(1);
    let is_said = finished.stderr.contains("failed, since this is true: ");
    assert!(is_said || finished.is_busy(), "{}", finished.transcript());
    assert!(finished.stdout.contains("40 failed"), "{}", finished.transcript());
    let rows = finished.stdout.split_once("\nAgents\n").expect("a section on agents").1;
    for name in ["kek-1 ", "kek-2 "] {
        assert!(rows.lines().any(|line| line.starts_with(name)), "{}", finished.transcript());
    }
}
