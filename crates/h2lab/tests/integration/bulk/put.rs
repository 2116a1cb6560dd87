//! `bulk put`: whole and in parts over every protocol, resumed, checked, refused; and uploads by curl.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use h2lab_model::workload::Protocol;
use h2lab_net::process::Child;
use rustix::process::Signal;
use serde_json::Value;

use super::relay::Relay;
use super::{Server, bytes, document, names, url};
use crate::curl::Curl;
use crate::peers::Peer;
use crate::support::{DEADLINE, Finished, binary, folder, run_program};

/// Bytes of the file.
const TOTAL: usize = 8_000_000;
/// Bytes that pass before something happens.
const PASSED: u64 = 3_000_000;

/// `bulk put --json` in `folder`, over `protocol`.
#[track_caller]
pub(super) fn put(folder: &Path, protocol: Protocol, more: &[&str]) -> Finished {
    let proto = format!("--proto={protocol}");
    let arguments = [&["bulk", "put", "--json", "-k", &proto][..], more].concat();
    run_program(&binary(), folder, &arguments)
}

/// A folder with a file `data`.
pub(super) fn source(content: &[u8]) -> tempfile::TempDir {
    let here = folder();
    fs::write(here.path().join("data"), content).unwrap();
    here
}

#[test]
fn a_file_goes_whole_and_in_parts_over_every_protocol() {
    let content = bytes(5_000_003);
    let here = source(&content);
    fs::write(here.path().join("empty"), b"").unwrap();
    for protocol in Protocol::ALL {
        let parts: &[&str] = if protocol.is_multiplexed() { &["-c2", "-m3"] } else { &["-c3"] };
        for way in
            [&[][..], &[parts, &["--part=300k"]].concat(), &["--checksum=sha-256"], &["--checksum=none"]]
        {
            let site = folder();
            let server = Server::writable(site.path());
            let url = server.url(protocol, "/");
            let report = document(&put(here.path(), protocol, &[way, &["data", &url]].concat()), 0);
            assert!(fs::read(site.path().join("data")).unwrap() == content, "{protocol} {way:?}");
            assert_eq!(names(site.path()), ["data"], "{protocol} {way:?}");
            let transfer = &report["transfers"][0];
            assert_eq!(transfer["outcome"], "complete", "{report:#}");
            let verdict = if way.contains(&"--checksum=none") { "none" } else { "matches" };
            assert_eq!(transfer["checksum"]["verdict"], verdict, "{report:#}");
            assert_eq!(
                (&report["bytes"], &report["held_bytes"]),
                (&5_000_003.into(), &0.into()),
                "{report:#}"
            );
            assert_eq!(report["direction"], "put", "{report:#}");
            assert!(
                report["stalls_s"]["disk"].is_number(),
                "{protocol} {way:?}: the disk is seen: {report:#}"
            );
            let streams = report["streams"]["count"].as_u64().unwrap();
            assert_eq!(streams > 1, way.len() > 1, "{report:#}");
        }
        let site = folder();
        let server = Server::writable(site.path());
        document(&put(here.path(), protocol, &["empty", &server.url(protocol, "/")]), 0);
        assert_eq!(fs::read(site.path().join("empty")).unwrap(), b"", "{protocol}");
    }
}

#[test]
fn memory_goes_to_memory_over_every_protocol_and_is_counted() {
    let here = folder();
    for protocol in Protocol::ALL {
        let server = Server::start(Path::new("--memory"));
        let url = server.url(protocol, "/x");
        let arguments = ["--memory=20M", "--checksum=crc32c", "-c2", "--part=3M", &url];
        let report = document(&put(here.path(), protocol, &arguments), 0);
        assert_eq!(report["bytes"], 20 << 20, "{report:#}");
        assert_eq!(report["transfers"][0]["checksum"]["verdict"], "matches", "{report:#}");
        let report = document(&put(here.path(), protocol, &["--memory=1M", "--checksum=sha-512", &url]), 0);
        assert_eq!(report["transfers"][0]["checksum"]["verdict"], "matches", "{report:#}");
        let taken: u64 = server.rendered("PUT").iter().map(|(_, from, until)| until - from).sum();
        assert_eq!(taken, 21 << 20, "{protocol}");
    }
}

#[test]
fn a_run_of_a_given_time_sends_over_and_over() {
    let server = Server::start(Path::new("--memory"));
    let url = server.url(Protocol::H2c, "/x");
    let report = document(&put(folder().path(), Protocol::H2c, &["--memory=100k", "-z5s", "-m2", &url]), 0);
    assert!(report["files"]["complete"].as_u64().unwrap() > 2, "{report:#}");
    assert_eq!(report["files"]["failed"], 0, "{report:#}");
}

/// Sends `data` through a relay until it holds, lets `happen` happen then, and returns how the client ended.
#[track_caller]
fn held(
    server: &Server,
    here: &Path,
    protocol: Protocol,
    more: &[&str],
    happen: impl FnOnce(&mut Child),
) -> Child {
    let relay = Relay::of_requests(server.address(protocol), PASSED);
    let mut command = Command::new(binary());
    command
        .current_dir(here)
        .args(["bulk", "put", "--json", "-k", &format!("--proto={protocol}")])
        .args(more)
        .args(["data", &url(protocol, relay.address, "/")]);
    let mut child = Child::spawn(command, None).expect("the binary starts");
    relay.wait();
    happen(&mut child);
    drop(relay);
    child
}

/// Fails unless the only transfer of a run that resumed another sent nothing twice, by the client's count.
#[track_caller]
fn assert_resumed(report: &Value) -> u64 {
    let held = report["held_bytes"].as_u64().unwrap();
    assert!(held > 0, "{report:#}");
    assert_eq!(held + report["bytes"].as_u64().unwrap(), TOTAL as u64, "{report:#}");
    assert_eq!(report["transfers"][0]["checksum"]["verdict"], "matches", "{report:#}");
    held
}

#[test]
fn what_ctrl_c_interrupted_is_resumed_and_nothing_goes_twice() {
    let content = bytes(TOTAL);
    let here = source(&content);
    for (protocol, more) in [
        (Protocol::H1, &[][..]),
        (Protocol::H1s, &["-c2", "--part=500k"]),
        (Protocol::H2, &["-m3", "--part=1M"]),
        (Protocol::H2c, &["-c2", "-m2", "--part=700k"]),
    ] {
        let site = folder();
        let server = Server::writable(site.path());
        let mut child = held(&server, here.path(), protocol, more, |child| {
            let ended = child.stop(Signal::INT, DEADLINE).expect("it ends");
            assert_eq!(ended.status.code(), Some(130), "{protocol}: {}", child.log());
        });
        let is_reported = |line: &str| line.contains("resumes the transfer").then_some(());
        child.wait_for_line(DEADLINE, is_reported).expect("it says that it can be resumed");
        drop(child.kill());
        // The server reads what was in flight, and then the end of the connection.
        let is_broken = |line: &str| line.starts_with("0 PUT ").then_some(());
        server.child.wait_for_line(DEADLINE, is_broken).expect("it hears that the client has gone");
        let first = server.rendered("PUT");
        assert_eq!(names(site.path()), ["data.part", "data.part.journal"], "{protocol}");
        let server = Server::writable(site.path());
        let url = server.url(protocol, "/");
        let report = document(&put(here.path(), protocol, &[more, &["data", &url]].concat()), 0);
        assert!(fs::read(site.path().join("data")).unwrap() == content, "{protocol}");
        assert_eq!(names(site.path()), ["data"], "{protocol}");
        let held = assert_resumed(&report);
        let arrived = |log: &[(u16, u64, u64)]| log.iter().map(|(_, from, until)| until - from).sum::<u64>();
        assert_eq!(arrived(&first), held, "{protocol}: {first:?}");
        assert_eq!(arrived(&server.rendered("PUT")), TOTAL as u64 - held, "{protocol}");
    }
}

#[test]
fn a_server_that_is_killed_goes_on_with_what_its_journal_records() {
    let content = bytes(TOTAL);
    let here = source(&content);
    for protocol in [Protocol::H1, Protocol::H2c] {
        let site = folder();
        let mut first = Server::writable(site.path());
        let address = first.address(protocol);
        let relay = Relay::of_requests(address, PASSED);
        let mut command = Command::new(binary());
        command
            .current_dir(here.path())
            .args(["bulk", "put", "--json", &format!("--proto={protocol}")])
            .args(["data", &url(protocol, relay.address, "/")]);
        let mut child = Child::spawn(command, None).expect("the binary starts");
        relay.wait();
        let until = Instant::now() + DEADLINE;
        while !site.path().join("data.part.journal").exists() {
            assert!(Instant::now() < until, "there is no journal");
            std::thread::yield_now();
        }
        first.child.kill().expect("it is ours");
        drop(relay);
        let ended = child.wait(DEADLINE).expect("it can be waited for").expect("it gives up");
        assert_eq!(ended.status.code(), Some(3), "{}", child.log());
        let second = Server::writable(site.path());
        let url = second.url(protocol, "/");
        let report = document(&put(here.path(), protocol, &["data", &url]), 0);
        assert!(fs::read(site.path().join("data")).unwrap() == content, "{protocol}");
        assert_resumed(&report);
    }
}

#[test]
fn a_file_that_has_changed_is_not_joined_with_a_part_of_the_old_one() {
    let here = source(&bytes(TOTAL));
    let site = folder();
    let server = Server::writable(site.path());
    held(&server, here.path(), Protocol::H1, &[], |child| {
        child.stop(Signal::INT, DEADLINE).expect("it ends");
    });
    server
        .child
        .wait_for_line(DEADLINE, |line| line.starts_with("0 PUT ").then_some(()))
        .expect("it hears of it");
    let other: Vec<u8> = bytes(TOTAL).iter().map(|byte| !byte).collect();
    fs::write(here.path().join("data"), &other).unwrap();
    let report = document(&put(here.path(), Protocol::H1, &["data", &server.url(Protocol::H1, "/")]), 0);
    assert_eq!((&report["held_bytes"], &report["bytes"]), (&0.into(), &TOTAL.into()), "{report:#}");
    assert!(fs::read(site.path().join("data")).unwrap() == other);
}

#[test]
fn a_second_run_finds_that_all_is_there() {
    let (here, site) = (source(&bytes(100_000)), folder());
    let server = Server::replacing(site.path());
    let url = server.url(Protocol::H2c, "/");
    document(&put(here.path(), Protocol::H2c, &["data", &url]), 0);
    let report = document(&put(here.path(), Protocol::H2c, &["data", &url]), 0);
    assert_eq!((&report["held_bytes"], &report["bytes"]), (&100_000.into(), &0.into()), "{report:#}");
    // A file that another program has put there since is not mistaken for it.
    fs::write(site.path().join("data"), "other").unwrap();
    let report = document(&put(here.path(), Protocol::H2c, &["data", &url]), 0);
    assert_eq!((&report["held_bytes"], &report["bytes"]), (&0.into(), &100_000.into()), "{report:#}");
    let report = document(&put(here.path(), Protocol::H2c, &["--no-resume", "data", &url]), 0);
    assert_eq!((&report["held_bytes"], &report["bytes"]), (&0.into(), &100_000.into()), "{report:#}");
}

#[test]
fn a_disk_that_is_too_small_says_so_before_the_first_byte() {
    let (here, site) = (source(&bytes(TOTAL)), folder());
    let mut command = Command::new("sh");
    // This has the effect of a full disk: the server may not write more than this many blocks of 512 bytes into a file.
    command.args(["-c", "ulimit -f 1000; exec \"$0\" \"$@\""]).arg(binary());
    let server = Server::start_with(command, &["--writable"], site.path());
    for protocol in [Protocol::H1, Protocol::H2c] {
        let report = document(&put(here.path(), protocol, &["data", &server.url(protocol, "/")]), 1);
        let why = report["transfers"][0]["why"].as_str().unwrap();
        assert!(why.contains("507") && why.contains("ulimit -f"), "{report:#}");
        assert!(names(site.path()).is_empty(), "{protocol}");
    }
}

#[test]
fn a_server_that_takes_nothing_and_a_file_that_is_not_there_say_so() {
    let (here, site) = (source(&bytes(TOTAL)), folder());
    let server = Server::start(site.path());
    for protocol in [Protocol::H1, Protocol::H2c] {
        let report = document(&put(here.path(), protocol, &["data", &server.url(protocol, "/")]), 1);
        let why = report["transfers"][0]["why"].as_str().unwrap();
        assert!(why.contains("405"), "{report:#}");
    }
    let finished = put(here.path(), Protocol::H1, &["nothing", &server.url(Protocol::H1, "/")]);
    assert_eq!(finished.code, Some(2), "{}", finished.transcript());
    assert!(finished.stderr.contains("nothing: cannot be read"), "{}", finished.transcript());
    assert!(names(site.path()).is_empty());
}

#[test]
fn curl_sends_files_and_wrong_or_outlandish_ones_are_refused() {
    let content = bytes(1_000_000);
    let here = source(&content);
    let site = folder();
    fs::create_dir(site.path().join("in")).unwrap();
    fs::write(site.path().join("secret"), "ours").unwrap();
    let server = Server::replacing(&site.path().join("in"));
    for protocol in Protocol::OVER_TCP {
        let Some(curl) = Curl::new(here.path(), protocol, server.address(protocol)) else { return };
        let name = format!("/a%20{protocol}");
        let place = site.path().join(format!("in/a {protocol}"));
        let sum = "Repr-Digest: sha-256=:RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=:";
        let wrong = curl.get(&name, &["-T", "data", "-H", sum]);
        assert_eq!(wrong.status, 400, "{protocol}");
        assert!(String::from_utf8_lossy(&wrong.body).contains("checksum"), "{protocol}");
        assert!(names(&site.path().join("in")).iter().all(|name| !name.contains(&protocol.to_string())));
        assert_eq!(curl.get(&name, &["-T", "data"]).status, 201, "{protocol}");
        assert!(fs::read(&place).unwrap() == content, "{protocol}");
        let again = curl.get(&name, &["-T", "data", "-H", "Want-Repr-Digest: crc32c=10"]);
        assert_eq!(again.status, 204, "{protocol}");
        assert!(again.heads.to_ascii_lowercase().contains("repr-digest: crc32c=:"), "{}", again.heads);
        let back = curl.get(&name, &[]);
        assert!(back.body == content, "{protocol}");
        // Without a length, and in parts that the server joins.
        assert_eq!(curl.get("/chunked", &["-T", "data", "-H", "Transfer-Encoding: chunked"]).status / 100, 2);
        assert!(fs::read(site.path().join("in/chunked")).unwrap() == content, "{protocol}");
        for (from, until, status) in [(500_000, 1_000_000, 204), (0, 500_000, 201)] {
            fs::write(here.path().join("part"), &content[from..until]).unwrap();
            let range = format!("Content-Range: bytes {from}-{}/1000000", until - 1);
            let joined = format!("/joined{protocol}");
            assert_eq!(curl.get(&joined, &["-T", "part", "-H", &range]).status, status, "{protocol} {from}");
        }
        assert!(fs::read(site.path().join(format!("in/joined{protocol}"))).unwrap() == content, "{protocol}");
        for (path, status) in
            [("/../secret", 400), ("/%2e%2e/secret", 400), ("/none/x", 409), ("/x.part", 403)]
        {
            let refused = curl.get(path, &["--path-as-is", "-T", "data"]);
            assert_eq!(refused.status, status, "{protocol} {path}");
        }
        let post = curl.get("/x", &["-X", "POST", "-d", "x"]);
        assert_eq!(post.status, 405, "{protocol}");
        assert!(post.heads.to_ascii_lowercase().contains("allow: get, head, put"), "{}", post.heads);
    }
    assert_eq!(fs::read_to_string(site.path().join("secret")).unwrap(), "ours");
}

#[test]
fn nginx_takes_a_plain_put() {
    let Some(nginx) = Peer::nginx() else { return };
    let content = bytes(3_000_000);
    let here = source(&content);
    for way in [&[][..], &["-c3", "--part=200k"]] {
        let url = url(Protocol::H1, nginx.address, "/taken");
        let report = document(&put(here.path(), Protocol::H1, &[way, &["data", &url]].concat()), 0);
        assert!(nginx.document("taken") == content, "{way:?}");
        assert_eq!(report["transfers"][0]["checksum"]["verdict"], "undeclared", "{report:#}");
        assert_eq!(report["streams"]["count"], 1, "{report:#}");
    }
}

#[test]
fn frames_are_as_long_as_the_peer_and_the_chunk_let_them_be() {
    let here = folder();
    for (size, largest) in
        [("16k", 16 << 10), ("64k", 64 << 10), ("1M", 1 << 20), ("16777215", 16_777_215_u64)]
    {
        let chunk = format!("--chunk={size}");
        let server =
            Server::start_with(Command::new(binary()), &[&chunk, "-f", "16777215"], Path::new("--memory"));
        let (to, from) = (server.url(Protocol::H2c, "/x"), server.url(Protocol::H2c, "/bytes/64M"));
        let sent = document(&put(here.path(), Protocol::H2c, &["--memory=64M", &chunk, &to]), 0);
        assert_eq!(sent["frames"]["largest_data"], largest, "put {size}: {sent:#}");
        let got = super::get(here.path(), Protocol::H2c, &["--discard", "-f", size, &from]);
        let got = document(&got, 0);
        assert_eq!(got["frames"]["largest_data"], largest, "get {size}: {got:#}");
    }
}

/// A server of HTTP/1.1 that answers as soon as it has a head: HEAD with 404, PUT with 200, which is all that it says.
fn hasty() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/data", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            loop {
                let (mut request, mut byte) = (Vec::new(), [0]);
                while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                    request.push(byte[0]);
                }
                let status = if request.starts_with(b"HEAD ") { "404 Not Found" } else { "200 OK" };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                if request.is_empty() || stream.write_all(answer.as_bytes()).is_err() || status == "200 OK" {
                    break;
                }
            }
            // It stays open and reads nothing more.
            held.push(stream);
        }
    });
    url
}

#[test]
fn a_server_that_answers_before_it_has_read_all_is_an_error_and_no_wait() {
    let here = source(&bytes(50_000_000));
    let report = document(&put(here.path(), Protocol::H1, &["data", &hasty()]), 3);
    assert_eq!(report["transfers"][0]["outcome"], "failed", "{report:#}");
    let why = report["transfers"][0]["why"].as_str().unwrap();
    assert!(why.contains("reports a complete file"), "{why}");
}
