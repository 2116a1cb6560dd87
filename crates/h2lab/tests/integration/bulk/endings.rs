//! Files that do not arrive at once, or at all: what is kept, what is reported, and that nothing is fetched twice.

use std::fs;
use std::path::Path;
use std::process::Command;

use h2lab_model::workload::Protocol;
use h2lab_net::process::Child;
use rustix::process::Signal;
use serde_json::Value;

use super::relay::Relay;
use super::{Server, bytes, document, get, names, url};
use crate::support::{DEADLINE, binary, folder, is_root, run_program};

/// Bytes of the file.
const TOTAL: usize = 8_000_000;
/// Bytes that pass before something happens.
const PASSED: u64 = 3_000_000;

/// Fetches `/data` through a relay until it holds, lets `happen` happen then, and interrupts the client.
#[track_caller]
fn interrupted(server: &Server, here: &Path, protocol: Protocol, more: &[&str], happen: impl FnOnce()) {
    let relay = Relay::start(server.address(protocol), PASSED);
    let mut command = Command::new(binary());
    command
        .current_dir(here)
        .args(["bulk", "get", "--json", "-k", &format!("--proto={protocol}")])
        .args(more)
        .arg(url(protocol, relay.address, "/data"));
    let mut child = Child::spawn(command, None).expect("the binary starts");
    relay.wait();
    happen();
    let ended = child.stop(Signal::INT, DEADLINE).expect("it ends");
    assert_eq!(ended.status.code(), Some(130), "{protocol}: {}", child.log());
    let is_reported = |line: &str| line.contains("resumes the transfer").then_some(());
    child.wait_for_line(DEADLINE, is_reported).expect("it says that it can be resumed");
}

/// Fails unless exactly the bytes that were missing were requested, by the server's own count.
#[track_caller]
fn assert_nothing_twice(answered: &[(u16, u64, u64)], report: &Value) {
    let held = report["held_bytes"].as_u64().unwrap();
    assert!(held > 0, "{report:#}");
    assert_eq!(held + report["bytes"].as_u64().unwrap(), TOTAL as u64, "{report:#}");
    let sent: u64 = answered.iter().map(|(_, from, until)| until - from).sum();
    assert_eq!(sent, TOTAL as u64 - held, "{answered:?}");
    assert!(answered.iter().all(|(status, ..)| *status == 206), "{answered:?}");
}

fn site(content: &[u8]) -> tempfile::TempDir {
    let site = folder();
    fs::write(site.path().join("data"), content).unwrap();
    site
}

#[test]
fn what_ctrl_c_interrupted_is_resumed_and_nothing_comes_twice() {
    let content = bytes(TOTAL);
    let site = site(&content);
    for (protocol, more) in [
        (Protocol::H1, &[][..]),
        (Protocol::H1s, &["-c2", "--part=500k"]),
        (Protocol::H2, &["-m3", "--part=1M"]),
        (Protocol::H2c, &["-c2", "-m2", "--part=700k"]),
    ] {
        let here = folder();
        let first = Server::start(site.path());
        interrupted(&first, here.path(), protocol, more, || ());
        assert_eq!(names(here.path()), ["data.part", "data.part.journal"], "{protocol}");
        drop(first);
        let second = Server::start(site.path());
        let url = second.url(protocol, "/data");
        let report = document(&get(here.path(), protocol, &[more, &[&url]].concat()), 0);
        assert!(fs::read(here.path().join("data")).unwrap() == content, "{protocol}");
        assert_eq!(names(here.path()), ["data"], "{protocol}");
        assert_eq!(report["transfers"][0]["checksum"]["verdict"], "matches", "{report:#}");
        assert_nothing_twice(&second.answered(), &report);
    }
}

#[test]
fn a_server_that_is_killed_leaves_what_it_sent() {
    let content = bytes(TOTAL);
    let site = site(&content);
    for protocol in [Protocol::H1, Protocol::H2c] {
        let here = folder();
        let mut first = Server::start(site.path());
        let address = first.address(protocol);
        let relay = Relay::start(address, PASSED);
        let mut command = Command::new(binary());
        command
            .current_dir(here.path())
            .args(["bulk", "get", "--json", &format!("--proto={protocol}")])
            .arg(url(protocol, relay.address, "/data"));
        let mut child = Child::spawn(command, None).expect("the binary starts");
        relay.wait();
        first.child.kill().expect("it is ours");
        drop(relay);
        let ended = child.wait(DEADLINE).expect("it can be waited for").expect("it gives up");
        assert_eq!(ended.status.code(), Some(3), "{}", child.log());
        let second = Server::start(site.path());
        let url = second.url(protocol, "/data");
        let report = document(&get(here.path(), protocol, &[&url]), 0);
        assert!(fs::read(here.path().join("data")).unwrap() == content, "{protocol}");
        assert_nothing_twice(&second.answered(), &report);
    }
}

#[test]
fn a_file_that_has_changed_is_not_joined_with_a_part_of_the_old_one() {
    let content = bytes(TOTAL);
    let site = site(&content);
    let server = Server::start(site.path());
    let here = folder();
    interrupted(&server, here.path(), Protocol::H1, &[], || ());
    fs::write(site.path().join("data"), bytes(TOTAL - 1)).unwrap();
    let url = server.url(Protocol::H1, "/data");
    let report = document(&get(here.path(), Protocol::H1, &[&url]), 3);
    let why = report["transfers"][0]["why"].as_str().unwrap();
    assert!(why.contains("changed") && why.contains("--no-resume"), "{report:#}");
    assert_eq!(names(here.path()), ["data.part", "data.part.journal"], "the old part is still there");
    document(&get(here.path(), Protocol::H1, &["--no-resume", &url]), 0);
    assert_eq!(fs::read(here.path().join("data")).unwrap().len(), TOTAL - 1);
}

#[test]
fn a_disk_that_is_too_small_says_so_before_the_first_byte() {
    let site = site(&bytes(TOTAL));
    let server = Server::start(site.path());
    let (here, url) = (folder(), server.url(Protocol::H1, "/data"));
    // In a mount namespace of its own: a file system of 4 MB.
    let flags = if is_root() { "-m" } else { "-rm" };
    let script = format!(
        "exec unshare {flags} sh -c 'mount -t tmpfs -o size=4m none . && cd \"$PWD\" && exec \"$0\" bulk get --json {url}' '{}'",
        binary().display()
    );
    let finished = run_program(Path::new("sh"), here.path(), &["-c", &script]);
    let report = document(&finished, 4);
    let why = report["transfers"][0]["why"].as_str().unwrap();
    assert!(why.contains("not enough space"), "{report:#}");
    assert_eq!(report["bytes"], 0, "{report:#}");
}

#[test]
fn a_file_that_is_larger_than_may_be_is_an_error_and_no_signal() {
    let site = site(&bytes(TOTAL));
    let server = Server::start(site.path());
    let here = folder();
    let url = server.url(Protocol::H1, "/data");
    let script = format!("ulimit -f 1000; exec '{}' bulk get --json {url}", binary().display());
    let finished = run_program(Path::new("sh"), here.path(), &["-c", &script]);
    let report = document(&finished, 4);
    let why = report["transfers"][0]["why"].as_str().unwrap();
    assert!(why.contains("ulimit -f"), "{report:#}");
}

#[test]
fn two_that_write_one_file_do_not_mix() {
    let site = site(&bytes(TOTAL));
    let server = Server::start(site.path());
    let here = folder();
    interrupted(&server, here.path(), Protocol::H1, &[], || {
        let url = server.url(Protocol::H1, "/data");
        let report = document(&get(here.path(), Protocol::H1, &[&url]), 4);
        let why = report["transfers"][0]["why"].as_str().unwrap();
        assert!(why.contains("another process is writing it"), "{report:#}");
    });
}
