//! What clients may store on `bulk serve --writable`: limits, and the answers beyond them.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use h2lab_model::workload::Protocol;
use rustix::process::Signal;

use super::put::{put, source};
use super::{Server, bytes, document, get, names};
use crate::support::{DEADLINE, binary, folder, run_program};

/// Bytes of the file.
const TOTAL: usize = 600_000;

#[test]
fn what_exceeds_a_limit_is_refused_and_the_answer_names_the_flag() {
    let content = bytes(TOTAL);
    let here = source(&content);
    for protocol in [Protocol::H1, Protocol::H2c] {
        for (flag, status) in
            [("--max-upload=500k", "413"), ("--max-total=500k", "507"), ("--reserve=1000000G", "507")]
        {
            let site = folder();
            let server = Server::start_with(Command::new(binary()), &["--writable", flag], site.path());
            let url = server.url(protocol, "/");
            let why = |way: &[&str]| {
                let report = document(&put(here.path(), protocol, &[way, &["data", &url]].concat()), 1);
                report["transfers"][0]["why"].as_str().unwrap().to_owned()
            };
            let name = flag.split_once('=').unwrap().0;
            for way in [&[][..], &["-c2", "--part=100k"]] {
                let why = why(way);
                assert!(why.contains(status) && why.contains(name), "{protocol} {flag} {way:?}: {why}");
            }
            assert!(names(site.path()).is_empty(), "{protocol} {flag}");
        }
    }
}

#[test]
fn what_was_stored_counts_for_the_uploads_behind_it() {
    let here = source(&bytes(TOTAL));
    let site = folder();
    let server = Server::start_with(Command::new(binary()), &["--writable", "--max-total=1M"], site.path());
    let url = |name: &str| server.url(Protocol::H2c, name);
    document(&put(here.path(), Protocol::H2c, &["data", &url("/first")]), 0);
    let report = document(&put(here.path(), Protocol::H2c, &["data", &url("/second")]), 1);
    let why = report["transfers"][0]["why"].as_str().unwrap();
    assert!(why.contains("507") && why.contains("--max-total"), "{why}");
    assert_eq!(names(site.path()), ["first"]);
    assert_eq!(fs::read(site.path().join("first")).unwrap().len(), TOTAL);
}

#[test]
fn a_file_that_is_there_is_kept_unless_the_server_lets_uploads_replace_it() {
    let here = source(&bytes(TOTAL));
    for protocol in Protocol::ALL {
        let site = folder();
        fs::write(site.path().join("data"), "ours").unwrap();
        let server = Server::writable(site.path());
        for way in [&[][..], &["--no-resume"]] {
            let url = server.url(protocol, "/");
            let report = document(&put(here.path(), protocol, &[way, &["data", &url]].concat()), 1);
            let why = report["transfers"][0]["why"].as_str().unwrap();
            assert!(why.contains("412") && why.contains("--overwrite"), "{protocol} {way:?}: {why}");
        }
        assert_eq!(fs::read_to_string(site.path().join("data")).unwrap(), "ours", "{protocol}");
        assert_eq!(names(site.path()), ["data"], "{protocol}");
        let server = Server::replacing(site.path());
        document(&put(here.path(), protocol, &["data", &server.url(protocol, "/")]), 0);
        assert_eq!(fs::read(site.path().join("data")).unwrap().len(), TOTAL, "{protocol}");
        // The same command again finds that all is there, and replaces nothing.
        let report = document(&put(here.path(), protocol, &["data", &server.url(protocol, "/")]), 0);
        assert_eq!(report["bytes"], 0, "{report:#}");
    }
}

/// Sets the age of the remains of the upload `name` in `site` to this many hours.
fn age(site: &Path, name: &str, hours: u64) {
    for ending in ["part", "part.journal"] {
        let left = File::options().write(true).open(site.join(format!("{name}.{ending}"))).unwrap();
        left.set_modified(SystemTime::now() - Duration::from_secs(3_600 * hours)).unwrap();
    }
}

#[test]
fn uploads_that_an_earlier_server_left_expire_after_a_day_and_not_before() {
    let site = folder();
    let mut server = Server::writable(site.path());
    for name in ["late", "soon"] {
        let mut client = TcpStream::connect(server.address(Protocol::H1)).unwrap();
        let head = format!(
            "PUT /{name} HTTP/1.1\r\nhost: h\r\nh2lab-upload: \"t\"\r\ncontent-length: 10\r\n\r\n01234"
        );
        client.write_all(head.as_bytes()).unwrap();
        drop(client);
        let broke = format!("0 PUT /{name} 0-5");
        let is_broken = |line: &str| (line == broke).then_some(());
        server.child.wait_for_line(DEADLINE, is_broken).expect("it hears that the client has gone");
    }
    server.child.stop(Signal::TERM, DEADLINE).expect("it ends");
    assert_eq!(names(site.path()), ["late.part", "late.part.journal", "soon.part", "soon.part.journal"]);
    age(site.path(), "late", 25);
    age(site.path(), "soon", 23);
    let server = Server::writable(site.path());
    let is_expired = |line: &str| line.starts_with("expired ").then(|| line.to_owned());
    let expired = server.child.wait_for_line(DEADLINE, is_expired).expect("it says what it removes");
    assert_eq!(expired, "expired late");
    assert_eq!(names(site.path()), ["soon.part", "soon.part.journal"]);
}

#[test]
fn a_token_lets_transfers_through_that_show_it_and_appears_nowhere() {
    const TOKEN: &str = "hunter2.hunter2";
    let (here, content) = (source(&bytes(TOTAL)), bytes(TOTAL));
    fs::write(here.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let file = format!("--token-file={}", here.path().join("token").display());
    let flags = [file.as_str(), "--token=hunter2.hunter2"].into_iter().cycle();
    for (protocol, flag) in Protocol::ALL.into_iter().zip(flags) {
        let site = folder();
        let server = Server::start_with(Command::new(binary()), &["--writable", flag], site.path());
        let (url, from) = (server.url(protocol, "/"), server.url(protocol, "/data"));
        for way in [&[][..], &["--oauth2-bearer=wrong"]] {
            let report = document(&put(here.path(), protocol, &[way, &["data", &url]].concat()), 1);
            let why = report["transfers"][0]["why"].as_str().unwrap();
            assert!(why.contains("401") && why.contains("token"), "{protocol} {way:?}: {why}");
        }
        assert!(names(site.path()).is_empty(), "{protocol}");
        let field = format!("authorization: Bearer {TOKEN}");
        let sent = put(here.path(), protocol, &["-H", &field, "-c2", "--part=100k", "data", &url]);
        document(&sent, 0);
        assert!(!sent.transcript().contains(TOKEN), "{protocol}: {}", sent.transcript());
        let there = folder();
        document(&get(there.path(), protocol, &[&from]), 1);
        let got = get(there.path(), protocol, &["--oauth2-bearer", TOKEN, &from]);
        let report = document(&got, 0);
        assert!(report["command"].to_string().contains("(not kept)"), "{report:#}");
        assert!(!got.transcript().contains(TOKEN), "{protocol}: {}", got.transcript());
        assert!(fs::read(there.path().join("data")).unwrap() == content, "{protocol}");
        assert!(!server.child.log().contains(TOKEN), "{protocol}: {}", server.child.log());
    }
}

#[test]
fn a_token_that_no_request_can_show_is_refused_and_not_repeated() {
    let site = folder();
    fs::write(site.path().join("token"), "hunter2 and more\n").unwrap();
    fs::write(site.path().join("empty"), "").unwrap();
    for flag in [
        "--token=hunter2 and more",
        "--token=",
        "--token-file=token",
        "--token-file=empty",
        "--token-file=none",
    ] {
        let arguments = ["bulk", "serve", "--listen=127.0.0.1:0", "--memory", flag];
        let finished = run_program(&binary(), site.path(), &arguments);
        assert_eq!(finished.code, Some(2), "{flag}: {}", finished.transcript());
        let words = &finished.stderr;
        assert!(words.contains("--token") && !words.contains("hunter2"), "{flag}: {words}");
    }
}
