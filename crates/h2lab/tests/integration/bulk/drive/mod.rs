//! `h2lab bulk drive`: several clients and servers, some of which die, stop responding or never exist.

/// `h2lab agent --stdio`, spoken to over pipes.
mod agent;

/// Agents in other places: behind ssh, in network namespaces.
mod far;

/// Servers that hang or die before they have reported what they spent.
mod servers;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use h2lab_model::workload::Protocol;
use h2lab_net::process::Child;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use super::{Server, document};
use crate::support::{DEADLINE, Finished, binary, closed_port, folder, h2lab};

/// The arguments of a drive with a JSON document; a short one with small transfers, unless `more` changes that.
fn words(more: &[&str]) -> Vec<String> {
    let usual = [("-z", "-z3s"), ("--size", "--size=1M"), ("--concurrency", "--concurrency=4")];
    let is_given = |flag: &str| more.iter().any(|word| word.starts_with(flag));
    let usual = usual.iter().filter(|(flag, _)| !is_given(flag)).map(|(_, word)| word);
    ["bulk", "drive", "--json"].iter().chain(usual).chain(more).map(|word| (*word).to_owned()).collect()
}

#[track_caller]
fn drive(more: &[&str]) -> Finished {
    h2lab(&words(more))
}

/// A program in place of ssh, in its own folder: it gets a host and a command, as ssh does.
struct FakeSsh {
    folder: tempfile::TempDir,
}

impl FakeSsh {
    /// `script` is the shell's; `$1` is the host, `$2` the command, `$here` the folder.
    fn new(script: &str) -> Self {
        let folder = folder();
        let path = folder.path().join("ssh");
        fs::write(&path, format!("#!/bin/sh\nhere={}\n{script}\n", folder.path().display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    /// The flags that make h2lab use it, with the binary under test at the far end.
    fn flags(&self) -> [String; 2] {
        let agent = binary();
        [
            format!("--ssh={}", self.folder.path().join("ssh").display()),
            format!("--agent-path={}", agent.display()),
        ]
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A drive that uses it.
    fn drive(&self, more: &[&str]) -> Finished {
        let flags = self.flags();
        drive(&[&[flags[0].as_str(), flags[1].as_str()], more].concat())
    }

    /// The same as a child that is not waited for.
    fn begin(&self, more: &[&str]) -> Child {
        let flags = self.flags();
        let mut command = Command::new(binary());
        command.args(words(&[&[flags[0].as_str(), flags[1].as_str()], more].concat()));
        Child::spawn(command, None).expect("the binary starts")
    }
}

/// Runs the agent itself, after its process id was written to a file.
const WITH_PID: &str = "echo $$ > $here/$1.tmp; mv $here/$1.tmp $here/$1.pid; exec $2";

/// The process whose id is in this file, which is written before its first output, so there is no need to wait for it.
fn pid(path: &Path) -> Pid {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// Waits until a process is gone.
#[track_caller]
fn wait_for_end(pidfd: &std::os::fd::OwnedFd) {
    let timeout = Timespec { tv_sec: i64::try_from(DEADLINE.as_secs()).unwrap(), tv_nsec: 0 };
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let ended = retry_on_intr(|| poll(&mut fds, Some(&timeout)));
    assert_eq!(ended.unwrap(), 1, "it still lives");
}

/// The document that a child has printed.
#[track_caller]
fn report(child: &Child) -> Value {
    let log = child.log();
    let from = log.find("{\n").unwrap_or_else(|| panic!("no document: {log}"));
    let mut documents = serde_json::Deserializer::from_str(&log[from..]).into_iter::<Value>();
    documents.next().expect("there is one").unwrap_or_else(|error| panic!("{error}: {log}"))
}

/// The states of the pairs.
#[track_caller]
fn reported_states(report: &Value) -> Vec<&str> {
    let pairs = report["pairs"].as_array().expect("there are pairs");
    pairs.iter().map(|pair| pair["state"].as_str().expect("each has a state")).collect()
}

/// The same, with `invalid` as `complete`: such a pair fetched until its time was over, on a machine that was busy or
/// stopped.
#[track_caller]
fn states(report: &Value) -> Vec<&str> {
    let is_over = |state: &'_ str| matches!(state, "complete" | "invalid");
    reported_states(report).into_iter().map(|state| if is_over(state) { "complete" } else { state }).collect()
}

/// What must hold of every document: the sum is that of its rows, and nothing is left out of the counts.
#[track_caller]
fn assert_adds_up(report: &Value) {
    let pairs = report["pairs"].as_array().unwrap();
    let sum: u64 = pairs.iter().map(|pair| pair["bytes"].as_u64().unwrap()).sum();
    assert_eq!(report["bytes"], sum, "{report:#}");
    let tally = report["tally"].as_object().unwrap();
    assert_eq!(tally.values().map(|n| n.as_u64().unwrap()).sum::<u64>(), pairs.len() as u64, "{report:#}");
    for pair in pairs.iter().filter(|pair| pair["files"].is_object()) {
        let ended: u64 =
            pair["endings"].as_array().unwrap().iter().map(|one| one["files"].as_u64().unwrap()).sum();
        let files: u64 = pair["files"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(ended, files, "{pair:#}");
    }
}

/// What must hold of every document if all agents of the servers survived: they have reported what they spent, and
/// plausibly.
#[track_caller]
fn assert_servers_reported(report: &Value) {
    let pairs = report["pairs"].as_array().unwrap();
    for server in report["servers"].as_array().unwrap() {
        let its = || pairs.iter().filter(|pair| pair["server"] == server["name"]);
        let sum = |key: &str| its().map(|pair| pair[key].as_u64().unwrap()).sum::<u64>();
        let served = &server["served"];
        assert!(served["cpu_s"].as_f64().unwrap() > 0.0, "{server:#}");
        assert!(served["cpu_s_per_gb"].as_f64().unwrap() > 0.0, "{server:#}");
        assert!(
            served["sent_bytes"].as_u64().unwrap() >= sum("bytes"),
            "nothing came that was not sent: {report:#}"
        );
        assert_eq!(served["connections"], sum("dialled"), "{report:#}");
        assert!(served["congestion_control"].is_string(), "{server:#}");
        assert_eq!(
            served["retransmits"].is_u64(),
            report["protocol"] != "h3",
            "QUIC's are not counted: {server:#}"
        );
    }
    assert!(
        report["clients"].as_array().unwrap().iter().all(|client| client["served"].is_null()),
        "{report:#}"
    );
    assert!(pairs.iter().all(|pair| pair["cpu_s_per_gb"].as_f64().unwrap() > 0.0), "{report:#}");
}

#[test]
fn two_clients_fetch_from_two_servers_over_every_protocol() {
    for protocol in Protocol::ALL {
        let proto = format!("--proto={protocol}");
        let report = document(&drive(&["--clients=local,local", "--servers=local,local", &proto]), 0);
        assert_eq!(states(&report), ["complete"; 4], "{report:#}");
        assert_adds_up(&report);
        assert_servers_reported(&report);
        assert!(report["rate_bps"].as_f64().unwrap() > 0.0);
        for pair in report["pairs"].as_array().unwrap() {
            assert!(pair["bytes"].as_u64().unwrap() > 0, "{protocol}: {pair:#}");
            // HTTP/1.1 has one connection per transfer, the other protocols have one for all.
            let (connections, streams) = if protocol.is_multiplexed() { (1, 2) } else { (2, 1) };
            assert_eq!((&pair["connections"], &pair["streams"]), (&connections.into(), &streams.into()));
            assert_eq!(pair["dialled"], connections, "{protocol}: {pair:#}");
            assert_eq!(pair["frames"].is_object(), protocol.is_multiplexed(), "{protocol}: {pair:#}");
        }
        let names: Vec<&Value> =
            report["clients"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["local", "local#2"], "who is named twice is there twice");
        assert!(
            report["start"]["latest_ms"].is_number() && report["start"]["clock_uncertainty_ms"].is_number()
        );
    }
}

#[test]
fn both_knobs_of_the_original_are_in_force() {
    let knobs = ["--plain-http", "--max-frame-size=1M", "--win-update-interval=1M", "--size=64M"];
    let report = document(&drive(&[&["--clients=local", "--servers=local"][..], &knobs].concat()), 0);
    let pair = &report["pairs"][0];
    assert_eq!(
        (&pair["max_frame_size"], &pair["window_update_bytes"]),
        (&(1 << 20).into(), &(1 << 20).into())
    );
    assert_eq!(report["protocol"], "h2c");
    assert_eq!(
        pair["frames"]["largest_data"],
        1 << 20,
        "the sender has room for them, and makes use of it: {pair:#}"
    );
    let mean = pair["frames"]["mean_increment"].as_f64().unwrap();
    assert!(
        (1_048_576.0..2_200_000.0).contains(&mean),
        "each update returns a little more than 1 MiB: {pair:#}"
    );
}

#[test]
fn a_refused_connection_of_one_pair_does_not_end_the_others() {
    let (_socket, closed) = closed_port();
    let report = document(
        &drive(&["--clients=local,local", &format!("--servers=local,{closed}"), "--http1", "--plain-http"]),
        3,
    );
    assert_eq!(states(&report), ["complete", "failed", "complete", "failed"], "{report:#}");
    assert!(report["pairs"][1]["why"].as_str().unwrap().contains("refused"), "{report:#}");
    assert_adds_up(&report);
    assert!(report["servers"][0]["served"].is_object(), "{report:#}");
    assert!(report["servers"][1]["served"].is_null(), "nobody could ask it: {report:#}");
}

#[test]
fn a_server_that_runs_already_serves_and_one_that_dies_is_reported_by_its_clients() {
    let mut server = Server::start(Path::new("--memory"));
    let url = server.url(Protocol::H2c, "");
    let mut command = Command::new(binary());
    let servers = format!("--servers={url},{}", server.url(Protocol::H2c, "/bytes/1000G"));
    command.args(words(&["--clients=local", &servers, "-z1h"]));
    let mut child = Child::spawn(command, None).expect("the binary starts");
    server.wait_for_requests(4);
    server.child.kill().unwrap();
    let ended = child.wait(DEADLINE).unwrap().expect("it ends when there is nothing more to be had");
    assert_eq!(ended.status.code(), Some(3), "{}", child.log());
    let report = report(&child);
    assert_eq!(states(&report), ["failed"; 2], "{report:#}");
    assert!(
        report["files"]["failed"].as_u64().unwrap() > 0 && report["elapsed_s"].as_f64().unwrap() < 3600.0
    );
    assert_adds_up(&report);
}

#[test]
fn a_server_that_sends_other_files_than_were_asked_for_completes_nothing() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
                while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) && stream.write_all(answer).is_ok() {}
            });
        }
    });
    let finished = drive(&["--clients=local", &format!("--servers=http://{address}"), "--proto=h1"]);
    let report = document(&finished, 3);
    assert_eq!(states(&report), ["failed"], "{report:#}");
    let why = report["pairs"][0]["endings"].to_string();
    assert!(why.contains("sends 3 B where 1048576 B were asked for"), "{why}");
}

#[test]
fn a_plan_is_printed_and_nothing_is_done() {
    let finished =
        h2lab(&["bulk", "drive", "--clients=local,ssh:nowhere", "--servers=a:1,b:1", "--dry-run", "--http1"]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let rows: Vec<Vec<&str>> = finished
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(|row: &Vec<_>| row.len() == 4)
        .collect();
    assert!(rows.contains(&vec!["ssh:nowhere", "b:1", "4", "1"]), "{}", finished.transcript());
}

#[test]
fn what_people_read_has_a_row_for_each_pair_and_the_sum() {
    let words =
        ["bulk", "drive", "--clients=local,local", "--servers=local", "--plain-http", "-z3s", "--size=1M"];
    let finished = h2lab(&words);
    finished.assert_measured();
    let text = &finished.stdout;
    let pairs = if finished.is_busy() { "2 pairs, " } else { "2 pairs, 2 complete" };
    assert!(text.starts_with("Received ") && text.contains(pairs), "{}", finished.transcript());
    assert!(
        ["\nlocal ", "\nlocal#2 ", "\nsum ", "\nEach server, as it reported\n"]
            .iter()
            .all(|row| text.contains(row)),
        "{}",
        finished.transcript()
    );
}

#[test]
fn an_agent_that_is_killed_is_lost_and_the_rest_is_kept() {
    let ssh = FakeSsh::new(WITH_PID);
    let server = Server::start(Path::new("--memory"));
    let servers = format!("--servers={}", server.url(Protocol::H1, "/bytes/1000G"));
    let mut child = ssh.begin(&["--clients=ssh:one,ssh:two", &servers, "--http1", "-z10s", "--grace=60s"]);
    server.wait_for_requests(8);
    kill_process(pid(&ssh.file("two.pid")), Signal::KILL).unwrap();
    let ended = child.wait(DEADLINE).unwrap().expect("it ends in time");
    assert_eq!(ended.status.code(), Some(3), "{}", child.log());
    let report = report(&child);
    assert_eq!(states(&report), ["complete", "lost"], "{report:#}");
    assert!(report["pairs"][0]["bytes"].as_u64().unwrap() > 0);
    assert!(report["clients"][1]["lost"].as_str().unwrap().contains("signal: 9"), "{report:#}");
    assert_adds_up(&report);
}

#[test]
fn an_agent_that_was_stopped_for_a_while_is_invalid() {
    let ssh = FakeSsh::new(WITH_PID);
    let server = Server::start(Path::new("--memory"));
    let servers = format!("--servers={}", server.url(Protocol::H1, "/bytes/1000G"));
    // The stop is more than a tenth of the time, however late this test or the work begins.
    let mut child = ssh.begin(&["--clients=ssh:one,ssh:two", &servers, "--http1", "-z12s", "--grace=60s"]);
    server.wait_for_requests(8);
    let stopped = pid(&ssh.file("two.pid"));
    kill_process(stopped, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_secs(3)); // this is measured
    kill_process(stopped, Signal::CONT).unwrap();
    let ended = child.wait(DEADLINE).unwrap().expect("it ends in time");
    assert_eq!(ended.status.code(), Some(5), "{}", child.log());
    let report = report(&child);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("two did not run for"), "{report:#}");
    // The other one ran, unless the whole machine was stopped.
    let is_other = |state: &str| state == "complete" || warnings.contains("one did not run for");
    let reported = reported_states(&report);
    assert!(is_other(reported[0]) && reported[1] == "invalid", "{report:#}");
    assert_eq!(states(&report), ["complete"; 2], "{report:#}");
}

#[test]
fn a_silent_agent_is_given_up_in_time() {
    // It answers until it has its plan, and is then stopped: alive, but not reading.
    let ssh = FakeSsh::new(WITH_PID);
    let server = Server::start(Path::new("--memory"));
    let servers = format!("--servers={}", server.url(Protocol::H1, "/bytes/1000G"));
    let mut child = ssh.begin(&["--clients=ssh:one,ssh:two", &servers, "--http1", "-z10s", "--grace=10s"]);
    server.wait_for_requests(8);
    let silent = pid(&ssh.file("two.pid"));
    let end_of = pidfd_open(silent, PidfdFlags::empty()).unwrap();
    kill_process(silent, Signal::STOP).unwrap();
    let ended = child.wait(DEADLINE).unwrap().expect("it ends in time");
    assert_eq!(ended.status.code(), Some(3), "{}", child.log());
    let report = report(&child);
    assert_eq!(states(&report), ["complete", "lost"], "{report:#}");
    assert!(report["pairs"][1]["why"].as_str().unwrap().contains("no result within 20s"), "{report:#}");
    wait_for_end(&end_of);
}

#[test]
fn ctrl_c_collects_what_there_is() {
    let ssh = FakeSsh::new(WITH_PID);
    let server = Server::start(Path::new("--memory"));
    let servers = format!("--servers={}", server.url(Protocol::H1, "/bytes/1000G"));
    let mut child = ssh.begin(&["--clients=local,ssh:two", &servers, "--http1", "-z1h"]);
    server.wait_for_requests(8);
    let end_of = pidfd_open(pid(&ssh.file("two.pid")), PidfdFlags::empty()).unwrap();
    let ended = child.stop(Signal::INT, DEADLINE).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", child.log());
    let report = report(&child);
    assert_eq!(states(&report), ["partial"; 2], "{report:#}");
    assert_eq!(report["interrupted"], true);
    assert_adds_up(&report);
    assert!(report["servers"][0]["served"].is_null(), "it ran before: {report:#}");
    wait_for_end(&end_of);
}

#[test]
fn a_driver_that_is_killed_leaves_no_agent_behind() {
    // Behind ssh no signal of the kernel reaches it: only the end of its input.
    let in_a_session_of_its_own =
        r#"exec setsid -w sh -c "echo \$\$ > $here/$1.tmp; mv $here/$1.tmp $here/$1.pid; exec $2""#;
    let ssh = FakeSsh::new(in_a_session_of_its_own);
    let server = Server::start(Path::new("--memory"));
    let servers = format!("--servers={}", server.url(Protocol::H1, "/bytes/1000G"));
    let child = ssh.begin(&["--clients=ssh:one", &servers, "--http1", "-z1h"]);
    server.wait_for_requests(4);
    let agent = pid(&ssh.file("one.pid"));
    let end_of = pidfd_open(agent, PidfdFlags::empty()).unwrap();
    kill_process(child.pid(), Signal::KILL).unwrap();
    wait_for_end(&end_of);
}

#[test]
fn agents_that_are_none_are_lost_with_what_they_said() {
    for (script, word) in [
        ("echo 'Permission denied (publickey).' >&2; exit 255", "Permission denied (publickey)."),
        ("echo \"sh: 1: h2lab: not found\" >&2; exit 127", "exit status: 127"),
        ("echo 'Welcome to kek-1'; exec sleep 1000", "Welcome to kek-1"),
        ("echo '{\"agent\":99,\"message\":{}}'; exec sleep 1000", "version 99"),
    ] {
        let ssh = FakeSsh::new(script);
        let report = document(&ssh.drive(&["--clients=local,ssh:far", "--servers=local", "--http1"]), 3);
        assert_eq!(states(&report), ["complete", "lost"], "{report:#}");
        let why = report["pairs"][1]["why"].as_str().unwrap();
        assert!(why.starts_with("ssh:far: ") && why.contains(word), "{why}");
    }
}

#[test]
fn an_agent_that_never_speaks_is_not_waited_for_for_ever() {
    let ssh = FakeSsh::new("exec sleep 1000");
    let clients = ["--clients=local,ssh:far", "--servers=local", "--http1", "--setup-timeout=10s"];
    let report = document(&ssh.drive(&clients), 3);
    assert_eq!(states(&report), ["complete", "lost"], "{report:#}");
    assert!(report["pairs"][1]["why"].as_str().unwrap().contains("not ready within 10s"), "{report:#}");
}

#[test]
fn if_nobody_is_there_that_is_said_at_once() {
    let ssh = FakeSsh::new("exit 255");
    let report = document(&ssh.drive(&["--clients=ssh:a,ssh:b", "--servers=local", "-z1h"]), 3);
    assert_eq!(states(&report), ["lost"; 2], "{report:#}");
    assert!(report["start"].is_null() && report["rate_bps"].is_null(), "{report:#}");
}

/// Far above what an agent takes to end.
const TIMEOUT: Duration = DEADLINE;
