//! `bulk drive` by agents over NATS.

use h2lab_net::process::Child;
use rustix::process::Signal;
use serde_json::Value;

use super::refused::Untouched;
use super::server::eventually;
use super::{ANY, BUSY, Hub, OVERLOOKED, USER};
use crate::support::DEADLINE;

/// A short drive with a document.
const DRIVE: [&str; 7] = ["bulk", "drive", "--json", "--h2c", "-z3s", "--size=1M", "--concurrency=2"];

#[test]
fn agents_fetch_and_upload_as_over_ssh() {
    let Some(hub) = Hub::start() else { return };
    let (_client, _server) = (hub.agent("kek-1", &ANY), hub.agent("lyon-1", &["--allow", "serve"]));
    let places = ["--clients=kek-1", "--servers=lyon-1=127.0.0.1"];
    let ways: [(&[&str], &str, &str); 2] =
        [(&[], "get", "sent_bytes"), (&["--put"], "put", "received_bytes")];
    for (way, direction, moved) in ways {
        let finished = hub.drive(&[&DRIVE[..], &places, way].concat());
        finished.assert_measured();
        let document = finished.json();
        assert_eq!(document["asked"]["direction"], direction);
        let [pair] = &document["pairs"].as_array().unwrap()[..] else { panic!("one pair: {document:#}") };
        assert_eq!((&pair["client"], &pair["server"]), (&"kek-1".into(), &"lyon-1".into()));
        // Invalid: it worked until its time was over, on a machine that was busy.
        assert!(["complete", "invalid"].contains(&pair["state"].as_str().unwrap()), "{document:#}");
        assert!(pair["bytes"].as_u64() > Some(0) && document["bytes"] == pair["bytes"], "{document:#}");
        let served = &document["servers"][0]["served"];
        assert!(served[moved].as_u64() > Some(0), "both ends count: {document:#}");
        assert!(document["start"]["clock_uncertainty_ms"].is_number(), "{document:#}");
    }
}

#[test]
fn what_an_agent_does_not_permit_is_refused_at_either_end() {
    let Some(hub) = Hub::start() else { return };
    let target = Untouched::start();
    let (_client, _server) = (hub.agent("kek-1", &ANY), hub.agent("lyon-1", &["--allow", "serve"]));
    let running = format!("--servers={}", target.url.trim_end_matches('/'));
    for (places, told) in [
        (["--clients=lyon-1", &running], "is not permitted here; the agent's --allow has serve"),
        (
            ["--clients=local", "--servers=kek-1=127.0.0.1"],
            "a server of bytes is not permitted here: start the agent with --allow serve",
        ),
    ] {
        let finished = hub.drive(&[&DRIVE[..], &places].concat());
        assert_eq!(finished.code, Some(3), "{}", finished.transcript());
        let document = finished.json();
        let has_failed = |pair: &Value| pair["state"] != "complete" && pair["bytes"] == 0;
        assert!(document["pairs"].as_array().unwrap().iter().all(has_failed), "{document:#}");
        assert!(document.to_string().contains(told), "{told}: {document:#}");
    }
    // For people it is one line, without tables of what was not measured.
    let words = [&DRIVE[..2], &DRIVE[3..], &["--clients=local", "--servers=kek-1=127.0.0.1"]].concat();
    let finished = hub.drive(&words);
    let told = "the drive was not begun: kek-1: a server of bytes is not permitted here";
    assert!(finished.stderr.contains(told) && finished.stdout.is_empty(), "{}", finished.transcript());
    assert_eq!(finished.code, Some(3), "{}", finished.transcript());
    target.assert_untouched();
}

#[test]
fn an_agent_that_is_not_there_or_stays_busy_is_told_before_a_drive_begins() {
    let Some(hub) = Hub::start() else { return };
    // It never answers: whoever transfers from it stays busy, and measures nothing.
    let target = Untouched::start();
    let running = format!("--servers={}", target.url.trim_end_matches('/'));
    let _agent = hub.agent("kek-1", &ANY);
    let missing = hub.h2lab(&[&DRIVE[..], &["--clients=kek-1,kek-9", &running]].concat());
    let is_told = missing.stderr.contains("kek-9 did not answer (agents that answered: ");
    assert!(missing.code == Some(3) && is_told && missing.stdout.is_empty(), "{}", missing.transcript());
    target.assert_untouched();

    let long = ["bulk", "drive", "--http1", "-z1h", "--timeout=1h", "--html=page.html"];
    let words = [&long[..], &["--clients=kek-1", &running]].concat();
    let mut first = Child::spawn(hub.command(&words), None).expect("the binary starts");
    let is_busy = || {
        let listed = hub.h2lab(&["agents", "--json"]).json();
        listed["agents"][0]["busy"].as_str().is_some_and(|with| with.starts_with(USER))
    };
    eventually("the agent is busy", is_busy);
    let second =
        hub.h2lab_again(&[&DRIVE[..], &["--clients=kek-1", "--servers=local"]].concat(), &[OVERLOOKED]);
    let told = second.stderr.matches(&format!("kek-1 is busy with {USER} at ")).count();
    assert_eq!((second.code, told), (Some(3), 1), "{}", second.transcript());
    assert!(second.stderr.contains(&format!("kek-1: {BUSY} {USER} at ")), "{}", second.transcript());
    assert!(second.stdout.is_empty(), "nothing was begun: {}", second.transcript());

    let ended = first.stop(Signal::INT, DEADLINE).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", first.log());
    assert!(!hub.path("page.html").exists(), "nothing was measured: {}", first.log());
    let third = hub.drive(&[&DRIVE[..], &["--clients=kek-1", "--servers=local"]].concat());
    third.assert_measured();
    assert!(third.json()["bytes"].as_u64() > Some(0), "the agent is free again: {}", third.transcript());
}
