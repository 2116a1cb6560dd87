//! Bulk work as a scenario: what its run leaves and reports. The tests check what was counted, never how fast it was.

use std::fs;

use crate::support::{folder, h2lab};

/// Two protocols over 10 ms, of a second each, and HTTP/2 with short frames.
const TINY: &str = "claim = 'tiny'\nrepetitions = 1\n[work]\nbulk = true\nmethod = 'GET'\npath = '/bytes/1000G'\nbody-bytes = 0\n\
    concurrency = 2\nwarmup = '300ms'\nmeasure = '700ms'\ndrain = '0s'\n[link]\ndelay = '5ms'\nbandwidth = '50mbit'\n\
    [matrix]\nprotocols = ['tcp', 'h2c']\n[[vary]]\nclient.max-frame-size = 16384\nmatrix.protocols = 'h2c'\n\
    [[vary]]\nclient = { max-frame-size = 1048576, window-update-bytes = 262144 }\nmatrix.protocols = 'h2c'\n\
    [[vary]]\nserver.max-frame-size = 1048576\nmatrix.protocols = 'h2c'\n";

#[test]
fn a_run_of_bulk_work_has_the_figures_of_both_ends_and_reports_them_again_from_its_folder() {
    let place = folder();
    let file = place.path().join("tiny.toml");
    fs::write(&file, TINY).expect("the folder is ours");
    let out = place.path().join("run");
    let done = h2lab(&["run", &file.display().to_string(), &format!("--out={}", out.display()), "--json"]);
    done.assert_measured();
    let document = done.json();
    let cells = document["cells"].as_array().expect("a list");
    assert_eq!(cells.len(), 5, "{}", done.transcript());
    for cell in cells {
        let bulk = &cell["bulk"];
        let is_framed = cell["protocol"] == "h2c";
        assert!(bulk["bytes"].as_u64() > Some(100_000), "{cell:#}");
        assert!(bulk["intervals"][0]["bytes"].as_array().is_some_and(|all| all.len() >= 9), "{bulk:#}");
        assert_eq!(bulk["frames"].is_null(), !is_framed);
        assert_eq!(bulk["responses"]["failed"], 0, "{bulk:#}");
        assert_eq!(bulk["responses"]["partial"], 2, "both were cut off when the time was over: {bulk:#}");
        // The server's end, which only the lab can see.
        assert!(bulk["retransmits"].is_u64() && !bulk["server_cpu_s_per_gb"].is_null(), "{bulk:#}");
        assert!(!bulk["stalls_s"]["send_buffer"].is_null(), "{bulk:#}");
        assert!(bulk["limit"]["sentence"].is_string(), "{bulk:#}");
        let connections = bulk["connections"].as_array().map(Vec::len);
        assert_eq!(connections, Some(if is_framed { 1 } else { 2 }), "one for each response without HTTP/2");
    }
    let largest = |at: usize| cells[at]["bulk"]["frames"]["largest_data"].as_u64();
    assert!(largest(1) > Some(16_384) && largest(2) == Some(16_384), "{:?} {:?}", largest(1), largest(2));
    assert_eq!(cells[2]["bulk"]["factor"], "frames up to 16 KiB");
    // The receiving end limits the length of frames; the same knob of the other end has no effect.
    assert_eq!((largest(3), largest(4)), (Some(1 << 20), largest(1)));
    assert_eq!(cells[3]["bulk"]["factor"], "credit every 256 KiB, frames up to 1 MiB");
    assert_eq!(cells[3]["bulk"]["asked"]["window_update_bytes"], 262_144, "{:#}", cells[3]["bulk"]["asked"]);

    let again = h2lab(&["report", &out.display().to_string()]);
    again.assert_measured();
    for words in ["baseline", "frames up to 16 KiB", "tcp × 2", "h2c × 1", "over time"] {
        assert!(again.stdout.contains(words), "{words}\n{}", again.transcript());
    }
    let page = fs::read_to_string(out.join("report.html")).expect("stored");
    // Cells that a late link made invalid have no line in the picture.
    let lines = cells[..2].iter().filter(|cell| cell["state"] == "ok").count();
    assert_eq!(page.matches("class=\"baseline way-").count(), 2 * lines, "in both forms of the picture");
    assert!(page.contains("Rate over time"));
}

#[test]
fn over_the_loopback_device_there_is_no_link_and_a_server_may_be_configured_how_it_writes() {
    let place = folder();
    let file = place.path().join("loopback.toml");
    let text = TINY
        .replace("delay = '5ms'\nbandwidth = '50mbit'", "loopback = true\ncongestion = 'reno'")
        .replace("client.max-frame-size = 16384", "server.no-coalesce = true\nclient.max-frame-size = 16384");
    fs::write(&file, text).expect("the folder is ours");
    let done = h2lab(&[
        "run",
        &file.display().to_string(),
        "--json",
        &format!("--out={}", place.path().join("run").display()),
    ]);
    done.assert_measured();
    for cell in done.json()["cells"].as_array().expect("a list") {
        // Reno is what every user may have.
        assert!(cell["link"].is_null() && cell["bulk"]["bytes"].as_u64() > Some(1_000_000), "{cell:#}");
        assert_eq!(cell["tcp"]["server"]["congestion_control"], "reno", "{}", cell["tcp"]);
    }
}
