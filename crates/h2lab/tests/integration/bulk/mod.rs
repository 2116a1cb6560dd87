//! `h2lab bulk`: files over every protocol, interrupted, resumed and checked.

/// A relay that stops a transfer in its middle. No tests.
mod relay;

/// Several clients and servers: `bulk drive`.
mod drive;

/// Files that do not arrive: servers that die, disks that are full, files that change.
mod endings;

/// What clients may store.
mod limits;

/// Servers and clients that are not ours.
mod others;

/// The other way: uploads.
mod put;

/// As the work of a scenario.
mod scenario;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use h2lab_model::workload::Protocol;
use h2lab_net::process::Child;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{DEADLINE, Finished, binary, folder, run_program};

/// A running `h2lab bulk serve`.
pub struct Server {
    pub child: Child,
    clear: SocketAddr,
    tls: SocketAddr,
}

impl Server {
    /// Serves `what`: a folder, or `--memory`.
    pub fn start(what: &Path) -> Self {
        Self::start_with(Command::new(binary()), &[], what)
    }

    /// Serves a folder that takes files.
    pub fn writable(folder: &Path) -> Self {
        Self::start_with(Command::new(binary()), &["--writable"], folder)
    }

    /// The same, which may replace those that are there.
    fn replacing(folder: &Path) -> Self {
        Self::start_with(Command::new(binary()), &["--writable", "--overwrite"], folder)
    }

    /// The same, by a command that ends with the binary, and with more flags.
    fn start_with(mut command: Command, more: &[&str], what: &Path) -> Self {
        command
            .args([
                "bulk",
                "serve",
                "--log",
                "--listen",
                "127.0.0.1:0",
                "--tls-listen",
                "127.0.0.1:0",
                "--h3",
            ])
            .args(more)
            .arg(what);
        let child = Child::spawn(command, None).expect("the binary starts");
        let listening = |scheme: &str| {
            let prefix = format!("listening {scheme}://");
            let address = |line: &str| line.strip_prefix(&prefix)?.split(' ').next()?.parse().ok();
            child.wait_for_line(DEADLINE, address).unwrap_or_else(|error| panic!("{error}: {}", child.log()))
        };
        let (clear, tls) = (listening("http"), listening("https"));
        Self { child, clear, tls }
    }

    fn address(&self, protocol: Protocol) -> SocketAddr {
        if protocol.is_tls() { self.tls } else { self.clear }
    }

    pub fn url(&self, protocol: Protocol, path: &str) -> String {
        url(protocol, self.address(protocol), path)
    }

    /// Waits until it has answered this many requests for bytes out of memory.
    #[track_caller]
    pub fn wait_for_requests(&self, count: usize) {
        let mut seen = 0;
        let is_last = |line: &str| {
            seen += usize::from(line.contains(" GET /bytes/"));
            (seen >= count).then_some(())
        };
        self.child.wait_for_line(DEADLINE, is_last).expect("clients fetch");
    }

    /// The requests for bytes that it has answered: status, first byte, one past the last. It is stopped first, so that
    /// none is missing.
    fn answered(self) -> Vec<(u16, u64, u64)> {
        self.rendered("GET")
    }

    /// Those with this method.
    fn rendered(mut self, method: &str) -> Vec<(u16, u64, u64)> {
        self.child.stop(Signal::TERM, DEADLINE).expect("it ends");
        // When its end is seen, its last line may or may not have been read.
        let is_last = |line: &str| line.starts_with("served ").then_some(());
        self.child.wait_for_line(DEADLINE, is_last).expect("it tells what it has served");
        let log = self.child.log();
        let line = |line: &str| {
            let mut words = line.split(' ');
            let status = words.next()?.parse().ok()?;
            let (from, until) =
                words.nth(2).filter(|_| line.contains(&format!(" {method} ")))?.split_once('-')?;
            Some((status, from.parse().ok()?, until.parse().ok()?))
        };
        log.lines().filter_map(line).collect()
    }
}

fn url(protocol: Protocol, address: SocketAddr, path: &str) -> String {
    format!("{}://{address}{path}", if protocol.is_tls() { "https" } else { "http" })
}

/// `bulk get --json` in `folder`, over `protocol`.
#[track_caller]
fn get(folder: &Path, protocol: Protocol, more: &[&str]) -> Finished {
    let proto = format!("--proto={protocol}");
    let arguments = [&["bulk", "get", "--json", "-k", &proto][..], more].concat();
    run_program(&binary(), folder, &arguments)
}

/// The document of a run that ended with this exit code. Instead of 0 it may be 5: everything arrived, but a busy
/// machine influenced the rate.
#[track_caller]
fn document(finished: &Finished, code: i32) -> Value {
    let is_busy = code == 0 && finished.is_busy();
    assert!(finished.code == Some(code) || is_busy, "{code} is expected: {}", finished.transcript());
    finished.json()
}

/// Bytes that differ from place to place, so that a part in a wrong place is detected.
fn bytes(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// What is left in a folder, by name.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_arrives_whole_and_in_parts_over_every_protocol() {
    let (site, content) = (folder(), bytes(5_000_003));
    fs::write(site.path().join("data"), &content).unwrap();
    fs::write(site.path().join("empty"), b"").unwrap();
    let server = Server::start(site.path());
    for protocol in Protocol::ALL {
        let url = server.url(protocol, "/data");
        let parts: &[&str] = if protocol.is_multiplexed() { &["-c2", "-m3"] } else { &["-c3"] };
        for way in [&[][..], &[parts, &["--part=300k"]].concat(), &["--checksum=sha-256"]] {
            let here = folder();
            let report = document(&get(here.path(), protocol, &[way, &[&url]].concat()), 0);
            assert!(fs::read(here.path().join("data")).unwrap() == content, "{protocol} {way:?}");
            assert_eq!(names(here.path()), ["data"], "{protocol} {way:?}");
            let transfer = &report["transfers"][0];
            assert_eq!(transfer["outcome"], "complete", "{report:#}");
            assert_eq!(transfer["checksum"]["verdict"], "matches", "{report:#}");
            assert_eq!(
                (&report["bytes"], &report["held_bytes"]),
                (&5_000_003.into(), &0.into()),
                "{report:#}"
            );
            let streams = report["streams"]["count"].as_u64().unwrap();
            assert_eq!(streams > 1, way.len() > 1, "{report:#}");
            assert!(
                report["stalls_s"]["disk"].is_number(),
                "{protocol} {way:?}: the disk is seen: {report:#}"
            );
        }
        let here = folder();
        document(&get(here.path(), protocol, &[parts, &[&server.url(protocol, "/empty")]].concat()), 0);
        assert_eq!(names(here.path()), ["empty"], "{protocol}");
    }
}

#[test]
fn memory_goes_to_nowhere_over_every_protocol_and_its_checksum_is_right() {
    let server = Server::start(Path::new("--memory"));
    for protocol in Protocol::ALL {
        let url = server.url(protocol, "/bytes/20M");
        let here = folder();
        let arguments = ["--discard", "--checksum=crc32c", "-c2", "--part=3M", &url];
        let report = document(&get(here.path(), protocol, &arguments), 0);
        assert_eq!(report["bytes"], 20 << 20, "{report:#}");
        assert_eq!(report["transfers"][0]["checksum"]["verdict"], "matches", "{report:#}");
        assert!(names(here.path()).is_empty());
        if protocol.is_multiplexed() {
            let largest = report["frames"]["largest_data"].as_u64().unwrap();
            assert!((16_384..=65_536).contains(&largest), "{report:#}");
        }
    }
}

#[test]
fn several_files_are_fetched_at_a_time_and_each_is_counted() {
    let site = folder();
    let contents: Vec<Vec<u8>> = (0..7).map(|n| bytes(100_000 + n)).collect();
    for (n, content) in contents.iter().enumerate() {
        fs::write(site.path().join(format!("f{n}")), content).unwrap();
    }
    let server = Server::start(site.path());
    let urls: Vec<String> = (0..8).map(|n| server.url(Protocol::H2c, &format!("/f{n}"))).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let here = folder();
    let report =
        document(&get(here.path(), Protocol::H2c, &[&["-m4", "--out-dir=in"], &urls[..]].concat()), 1);
    for (n, content) in contents.iter().enumerate() {
        assert!(fs::read(here.path().join(format!("in/f{n}"))).unwrap() == *content, "f{n}");
    }
    assert_eq!(
        (&report["files"]["complete"], &report["files"]["failed"]),
        (&7.into(), &1.into()),
        "{report:#}"
    );
    let why = report["transfers"][7]["why"].as_str().unwrap();
    assert!(why.contains("404"), "{report:#}");
    assert_eq!(names(&here.path().join("in")).len(), 7, "nothing is left of the one that is not there");
}

#[test]
fn a_run_of_a_given_time_is_cut_and_counts_what_came() {
    let server = Server::start(Path::new("--memory"));
    let url = server.url(Protocol::H2c, "/bytes/1000G");
    let report = document(&get(folder().path(), Protocol::H2c, &["--discard", "-z5s", "-m2", &url]), 0);
    assert_eq!(report["files"]["partial"], 1, "{report:#}");
    let arrived: u64 =
        report["transfers"].as_array().unwrap().iter().map(|one| one["bytes"].as_u64().unwrap()).sum();
    assert!(arrived > 0 && report["bytes"] == arrived, "{report:#}");
    assert_eq!(report["transfers"][0]["why"], "the time was over", "{report:#}");
}

#[test]
fn a_checksum_comes_behind_the_bytes_and_is_asked_for_only_where_it_cannot() {
    for protocol in Protocol::ALL {
        let server = Server::start(Path::new("--memory"));
        let url = server.url(protocol, "/bytes/30M");
        let report = document(&get(folder().path(), protocol, &["--discard", "--checksum=sha-256", &url]), 0);
        assert_eq!(report["transfers"][0]["checksum"]["verdict"], "matches", "{report:#}");
        let heads = server.rendered("HEAD").len();
        assert_eq!(heads, usize::from(!protocol.is_multiplexed()), "{protocol}");
    }
}

#[test]
fn a_transfer_that_was_kept_is_told_again_in_the_same_words_by_report_and_by_diagnose() {
    let place = folder();
    let server = Server::start(Path::new("--memory"));
    let url = server.url(Protocol::H2c, "/bytes/3M");
    let h2lab = |arguments: &[&str]| run_program(&binary(), place.path(), arguments);
    let get = ["bulk", "get", "--discard", "--proto=h2c", url.as_str()];
    let done = h2lab(&[&get[..], &["--out=kept"]].concat());
    assert!(done.code == Some(0) || done.is_busy(), "{}", done.transcript());
    assert!(done.stdout.contains("\nLimit"), "{}", done.transcript());
    for command in ["report", "diagnose"] {
        let again = h2lab(&[command, "kept"]);
        assert_eq!((again.code, &again.stdout), (Some(0), &done.stdout), "{}", again.transcript());
    }
    let document = h2lab(&["report", "kept", "--json", "-o", "kept.html"]).json();
    let sarif = h2lab(&["diagnose", "kept", "--sarif"]).json();
    let known = usize::from(document["limit"]["kind"] != "unknown");
    let results = sarif["runs"][0]["results"].as_array().map(Vec::len);
    assert_eq!(results, Some(known), "{document:#}\n{sarif:#}");
    assert_eq!(names(place.path()), ["kept", "kept.html"]);
    let junit = h2lab(&[&get[..], &["--junit"]].concat());
    assert!(junit.stdout.contains("<testsuites name=\"h2lab bulk get http://"), "{}", junit.transcript());
    // It has no cells, and its folder is not written twice.
    assert_eq!(h2lab(&["report", "kept", "--verdicts"]).code, Some(2));
    assert!(h2lab(&[&get[..], &["--out=kept"]].concat()).stderr.contains("not empty"));
    // Without a result there is no folder.
    assert_eq!(h2lab(&["bulk", "get", "--discard", "--out=gone", "http://127.0.0.1:1/x"]).code, Some(3));
    assert_eq!(names(place.path()), ["kept", "kept.html"]);
}
