//! `--causes`: what slow requests waited for is named in the report, and kept.
//!
//! Which packet is dropped is scripted, so that the expected result is known.

use std::fs;
use std::path::Path;

use h2lab::run::store;
use h2lab_model::record::{PacketFate, PacketRecord};
use h2lab_wire::trace::Direction;
use serde_json::Value;

use crate::support::{binary, folder, h2lab, need, run_program};

/// A short run over a link that drops one packet of the downlink, long after the warm-up: the document of its only cell, and
/// that packet.
#[track_caller]
fn dropped(folder: &Path, more: &[&str]) -> (Value, PacketRecord) {
    let arguments = [
        "compare",
        "--json",
        "--out=run",
        "--causes",
        "--proto=h2c",
        "-c=1",
        "--loss=0%",
        "--delay=100ms",
        "--down=script=data 260 of flow 1",
        "-q=100",
        "-z=2s",
        // Proxies need some time until their connection carries enough.
        "--warmup=1500ms",
        "--repetitions=1",
    ];
    let done = run_program(&binary(), folder, &[&arguments[..], more].concat());
    done.assert_measured();
    let repetitions = store::read(&folder.join("run")).expect("the run folder is whole").repetitions;
    let packets = repetitions[0].packets.iter();
    let scripted: Vec<&PacketRecord> = packets.filter(|packet| packet.fate == PacketFate::Scripted).collect();
    assert_eq!(scripted.len(), 1, "{}", done.transcript());
    (done.json()["cells"][0].clone(), *scripted[0])
}

/// Whether an interval names this packet as lost.
fn names(interval: &Value, packet: &PacketRecord) -> bool {
    assert_eq!(packet.direction, Direction::Down);
    interval["drop"]["direction"] == "down" && interval["drop"]["index"] == packet.index
}

/// Fails unless the slowest request waited most for the dropped packet, and no request waited for another one.
/// Repairing the loss takes a round trip, which is longer than any pause in a cell that is measured soundly; in other
/// cells, requests may wait for the machine.
#[track_caller]
fn assert_named(cell: &Value, packet: &PacketRecord) {
    let slowest = cell["causes"]["slowest"].as_array().expect("there are latency breakdowns");
    let waits = |breakdown: &Value| breakdown["intervals"].as_array().expect("a list").clone();
    if cell["state"] == "ok" {
        let longest = waits(&slowest[0])
            .into_iter()
            .max_by(|a, b| a["ms"].as_f64().unwrap().total_cmp(&b["ms"].as_f64().unwrap()))
            .expect("it took time");
        assert!(names(&longest, packet), "{longest:#} is not {packet:?}");
        let is_loss = |cause: &Value| cause == "own-loss" || cause == "head-of-line";
        assert!(is_loss(&longest["cause"]) && is_loss(&slowest[0]["main_cause"]), "{longest:#}");
    }
    for interval in slowest.iter().flat_map(waits).filter(|interval| !interval["drop"].is_null()) {
        assert!(names(&interval, packet), "no other packet was lost: {interval:#}");
    }
    // The parts of a latency breakdown add up to all of its time.
    for breakdown in slowest {
        let sum: f64 = waits(breakdown).iter().map(|interval| interval["ms"].as_f64().unwrap()).sum();
        assert!((sum - breakdown["response_ms"].as_f64().unwrap()).abs() < 0.1, "{breakdown:#}");
    }
}

#[test]
fn over_http_3_each_drop_that_is_named_is_one_and_nothing_is_unknown() {
    let folder = folder();
    let arguments =
        ["compare", "--json", "--out=run", "--causes", "--proto=h3", "-c=1", "--loss=3%", "--delay=25ms"];
    let more = ["-q=100", "-z=2s", "--repetitions=1", "--seed=5"];
    let done = run_program(&binary(), folder.path(), &[&arguments[..], &more].concat());
    done.assert_measured();
    let repetitions = store::read(&folder.path().join("run")).expect("the run folder is whole").repetitions;
    let lost: Vec<u64> = repetitions[0]
        .packets
        .iter()
        .filter(|packet| packet.direction == Direction::Down && packet.fate.is_drop())
        .map(|packet| packet.index)
        .collect();
    let document = done.json();
    let cell = &document["cells"][0];
    let breakdowns = cell["causes"]["slowest"].as_array().expect("there are latency breakdowns");
    let intervals: Vec<&Value> =
        breakdowns.iter().flat_map(|one| one["intervals"].as_array().expect("a list")).collect();
    assert!(!intervals.is_empty(), "{cell:#}");
    assert!(intervals.iter().all(|interval| interval["cause"] != "unknown"), "{breakdowns:#?}");
    let named = intervals.iter().filter(|interval| interval["drop"]["direction"] == "down");
    let named: Vec<u64> = named.filter_map(|interval| interval["drop"]["index"].as_u64()).collect();
    assert!(named.iter().all(|index| lost.contains(index)), "{named:?} of {lost:?}");
    // In a cell that is not measured soundly, requests may wait for the machine instead.
    assert!(cell["state"] != "ok" || !named.is_empty(), "{breakdowns:#?}");
}

#[test]
fn the_dropped_packet_is_named_and_the_run_folder_keeps_the_latency_breakdowns() {
    let folder = folder();
    let (cell, packet) = dropped(folder.path(), &[]);
    assert_named(&cell, &packet);
    let run = folder.path().join("run");
    let kept = store::read_waits(&run).expect("they are kept");
    assert_eq!((kept.len(), kept[0].cell, kept[0].repetition), (1, 0, 0));
    assert_eq!(cell["causes"]["requests"], kept[0].waits.breakdowns.len());
    assert!(run.join("waits.parquet").exists());
    let again = run_program(&binary(), folder.path(), &["report", "run", "--json"]);
    assert_eq!(again.json()["cells"][0]["causes"], cell["causes"], "from the folder alone");
    let text = run_program(&binary(), folder.path(), &["report", "run"]);
    assert!(text.stdout.contains("Where the time of slow requests went"), "{}", text.transcript());
}

#[test]
fn behind_two_sidecars_it_is_named_by_the_requests_own_number() {
    if need("haproxy").is_none() {
        return;
    }
    let folder = folder();
    let (cell, packet) = dropped(folder.path(), &["--topology=two-sidecars", "--sidecar=haproxy"]);
    assert_named(&cell, &packet);
    let doubts = cell["causes"]["doubts"].as_array().expect("a list");
    assert!(doubts.is_empty() || cell["state"] != "ok", "{cell:#}");
}

#[test]
fn behind_two_sidecars_the_loss_of_the_link_is_found_and_no_hop_is_blamed_for_it() {
    if need("haproxy").is_none() {
        return;
    }
    let folder = folder();
    let arguments = [
        "compare",
        "--json",
        "--out=run",
        "--topology=direct,two-sidecars",
        "--sidecar=haproxy",
        "--proto=h1,h2c",
        "-c=1",
        "--loss=4%",
        "-z=3s",
        "--repetitions=1",
    ];
    let done = run_program(&binary(), folder.path(), &arguments);
    done.assert_measured();
    let document = done.json();
    let is_its = |cell: &&Value| cell["topology"] == "two-sidecars" && cell["protocol"] == "h2c";
    let cell = document["cells"].as_array().and_then(|cells| cells.iter().find(is_its)).expect("its cell");
    // 1,000 requests per second are several times what one connection carries at this loss.
    let findings = cell["findings"].as_array().expect("a list");
    let is_loss = |finding: &Value| finding["rule"] == "LOSS101" || finding["rule"] == "LOSS102";
    assert!(findings.iter().any(is_loss), "{findings:#?}");
    let report = run_program(&binary(), folder.path(), &["report", "run"]);
    let words = report.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!words.contains("at haproxy in none"), "{}", report.transcript());
}

/// A short run with `more` arguments whose packets are kept, in a protocol whose fields are literal in them: its only cell, and
/// whether requests carry numbers.
#[track_caller]
fn numbered(folder: &Path, more: &[&str]) -> (Value, bool) {
    let arguments = [
        "compare",
        "--json",
        "--out=run",
        "--pcap",
        "--proto=h1",
        "--loss=0%",
        "-q=50",
        "-z=2s",
        "--repetitions=1",
    ];
    let done = run_program(&binary(), folder, &[&arguments[..], more].concat());
    let captures = fs::read_dir(folder.join("run/pcap")).expect("there are captures");
    let packets: Vec<u8> = captures.flat_map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    let has = |field: &[u8]| packets.windows(field.len()).any(|bytes| bytes.eq_ignore_ascii_case(field));
    assert!(has(b"\r\nhost: "), "fields can be read\n{}", done.transcript());
    (done.json()["cells"][0].clone(), has(b"\r\nx-h2lab-id: "))
}

#[test]
fn only_a_run_that_is_asked_has_latency_breakdowns_and_numbers_on_its_requests() {
    let [asked, other] = [folder(), folder()];
    let (cell, has_numbers) = numbered(asked.path(), &["--causes"]);
    assert!(has_numbers && !cell["causes"].is_null(), "{cell:#}");
    let (cell, has_numbers) = numbered(other.path(), &[]);
    assert!(!has_numbers && cell["causes"].is_null(), "{cell:#}");
    let run = other.path().join("run");
    assert!(!run.join("waits.parquet").exists());
    assert!(store::read_waits(&run).unwrap().is_empty());
}

#[test]
fn causes_of_a_live_server_cannot_be_found() {
    let done = h2lab(&["compare", "--causes", "http://127.0.0.1:9/"]);
    assert_eq!(done.code, Some(2), "{}", done.transcript());
    assert!(done.stderr.contains("--causes is for the emulated link"), "{}", done.transcript());
}
