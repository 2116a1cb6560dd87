//! Packets captured at the link: tshark opens the file decrypted, and it has every packet that the packet log has.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use h2lab::run::store;
use h2lab_model::record::{CellRecord, PacketFate};
use h2lab_wire::trace::Direction;

use crate::support::{DRAIN, Finished, binary, folder, h2lab, need, run_program};

/// The rows that tshark prints of these fields for the frames that pass `filter`.
#[track_caller]
fn table(tshark: &Path, file: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new(tshark);
    // The ports of a lab, for which Wireshark has no protocol.
    command.args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
    command.args([
        "-n",
        "-d",
        "tcp.port==8443,tls",
        "-d",
        "tcp.port==8081,http2",
        "-Y",
        filter,
        "-T",
        "fields",
    ]);
    command.arg("-r").arg(file);
    for field in fields {
        command.args(["-e", field]);
    }
    let finished: Finished = command.output().expect("tshark starts").into();
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    finished.stdout.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Frames of each interface.
fn interfaces(tshark: &Path, file: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for row in table(tshark, file, "", &["frame.interface_name"]) {
        *counts.entry(row[0].clone()).or_default() += 1;
    }
    counts
}

/// The statuses that were decrypted from TLS.
fn statuses(tshark: &Path, file: &Path) -> Vec<Vec<String>> {
    table(tshark, file, "tls && http2.headers.status && frame.interface_id == 2", &["http2.headers.status"])
}

#[test]
fn what_curl_and_a_server_said_is_read_and_a_dropped_packet_is_only_where_it_entered() {
    let (Some(tshark), Some(_)) = (need("tshark"), need("curl")) else { return };
    let folder = folder();
    let server = format!("exec {} origin --tls-listen 10.9.0.2:8443", binary().display());
    let client = "curl -sk --http2 -o /dev/null -w '%{http_code}' https://server:8443/bytes/100k";
    let arguments = [
        "link",
        "--json",
        "--down=script=data 9 of flow 1",
        "--pcap=link.pcapng",
        "--server",
        &server,
        "--client",
        client,
    ];
    let done = run_program(&binary(), folder.path(), &arguments);
    assert!(done.code == Some(0) && done.stderr.contains("200"), "{}", done.transcript());
    let document = done.json();
    let file = folder.path().join("link.pcapng");
    let counted = interfaces(&tshark, &file);
    for (name, way, key) in [
        ("uplink in", "up", "packets_in"),
        ("uplink out", "up", "delivered"),
        ("downlink in", "down", "packets_in"),
        ("downlink out", "down", "delivered"),
    ] {
        let report = document["summary"][way][key].as_u64();
        assert_eq!(counted.get(name).copied(), report, "{name}: {counted:?}\n{}", done.transcript());
    }
    assert_eq!(statuses(&tshark, &file), [["200"]], "in clear");

    let dropped = table(
        &tshark,
        &file,
        "frame.comment",
        &["frame.interface_name", "frame.comment", "tcp.seq_raw", "ip.id"],
    );
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    assert_eq!(dropped[0][0], "downlink in");
    assert!(dropped[0][1].starts_with("dropped: scripted; packet "), "{dropped:?}");
    let out = |field: &str, value: &str| {
        table(&tshark, &file, &format!("frame.interface_id == 3 && {field} == {value}"), &["frame.number"])
            .len()
    };
    assert_eq!(out("ip.id", &dropped[0][3]), 0, "it did not come");
    // A busy machine may delay its acknowledgement so long that it is sent once more.
    assert!(out("tcp.seq_raw", &dropped[0][2]) >= 1, "its retransmission did");
    // Checksums are those that a receiver would check, whether computed or offloaded.
    let wrong =
        table(&tshark, &file, "tcp.checksum.status == 0 || ip.checksum.status == 0", &["frame.number"]);
    assert!(wrong.is_empty());
    let left: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["link.pcapng"], "nothing else is left");
}

/// A short run of h2 over TLS with `more` arguments: its captures, and its repetitions.
#[track_caller]
fn captured(folder: &Path, more: &[&str]) -> (Vec<PathBuf>, Vec<CellRecord>) {
    let run = folder.join("run");
    let arguments = [
        "compare",
        "--out=run",
        "--pcap",
        "--proto=h2",
        "--loss=3%",
        "--delay=5ms",
        "-q=25",
        "-z=2s",
        "--repetitions=1",
        DRAIN,
    ];
    let done = run_program(&binary(), folder, &[&arguments[..], more].concat());
    done.assert_measured();
    let entries = run.join("pcap").read_dir().expect("there are captures");
    let files = entries.map(|entry| entry.unwrap().path()).collect();
    let repetitions = store::read(&run).expect("the run folder is whole").repetitions;
    assert!(
        repetitions.iter().all(|repetition| repetition.warnings.is_empty()),
        "{:?}",
        repetitions[0].warnings
    );
    (files, repetitions)
}

/// Fails unless the file is decrypted and has each packet of the packet log on each interface that it passed.
#[track_caller]
fn assert_whole(tshark: &Path, file: &Path, repetition: &CellRecord) {
    let counted = interfaces(tshark, file);
    for (direction, way) in [(Direction::Up, "uplink"), (Direction::Down, "downlink")] {
        let mine = || repetition.packets.iter().filter(|packet| packet.direction == direction);
        let delivered = mine().filter(|packet| packet.fate == PacketFate::Delivered).count() as u64;
        assert_eq!(counted[&format!("{way} in")], mine().count() as u64);
        assert_eq!(counted[&format!("{way} out")], delivered);
    }
    let answered = repetition.samples.iter().filter(|sample| sample.status == 200).count();
    let seen = table(
        tshark,
        file,
        "tls && http2.headers.status == 200 && frame.interface_id == 2",
        &["http2.streamid"],
    );
    assert!(answered > 50 && !seen.is_empty(), "{answered} answers, {} packets with some", seen.len());
}

#[test]
fn a_run_has_a_file_of_each_repetition() {
    let Some(tshark) = need("tshark") else { return };
    let folder = folder();
    let (files, repetitions) = captured(folder.path(), &["-c=2"]);
    assert_eq!((files.len(), repetitions.len()), (1, 1));
    assert!(files[0].ends_with("run/pcap/0000-h2-2.pcapng"), "{files:?}");
    assert_whole(&tshark, &files[0], &repetitions[0]);
}

#[test]
fn tls_between_two_proxies_is_decrypted() {
    for proxy in ["envoy", "haproxy"] {
        let (Some(tshark), Some(_)) = (need("tshark"), need(proxy)) else { return };
        let folder = folder();
        // Only Envoy can be configured to hold two connections.
        let more = ["--topology=two-sidecars", "--sidecar", proxy, "-c=1"];
        let (files, repetitions) = captured(folder.path(), &more);
        assert_whole(&tshark, &files[0], &repetitions[0]);
        assert_no_secrets(&folder.path().join("run/logs"));
    }
}

/// Fails if a log that stays in the run folder contains the secrets of the capture, or if there is no log.
#[track_caller]
fn assert_no_secrets(logs: &Path) {
    let mut folders = vec![logs.to_owned()];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("it is there").map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                // Its configuration has the same labels, with format fields instead of numbers.
                let is_secret = |line: &str| line.contains("TRAFFIC_SECRET") && !line.contains("%[");
                assert!(!text.lines().any(is_secret), "{}:\n{text}", path.display());
                read += 1;
            }
        }
    }
    assert!(read > 0, "a server keeps its configuration");
}

#[test]
fn a_short_snaplen_keeps_the_heads_and_records_the_lengths() {
    let Some(tshark) = need("tshark") else { return };
    let folder = folder();
    let (files, _) = captured(folder.path(), &["-c=1", "--snaplen=60"]);
    let lengths = table(&tshark, &files[0], "", &["frame.cap_len", "frame.len"]);
    assert!(lengths.iter().any(|row| row == &["60", "1500"]), "{:?}", lengths.first());
    assert!(lengths.iter().all(|row| row[0].parse::<u32>().unwrap() <= 60));
}

#[test]
fn a_live_server_is_captured_by_others() {
    let done = h2lab(&["compare", "--pcap", "http://127.0.0.1:9/"]);
    assert_eq!(done.code, Some(2), "{}", done.transcript());
    assert!(done.stderr.contains("--pcap is for the emulated link"), "{}", done.transcript());
}
