//! `bulk drive` by agents over NATS.

use serde_json::Value;

use super::refused::Untouched;
use super::{ANY, Hub};

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
    target.assert_untouched();
}
