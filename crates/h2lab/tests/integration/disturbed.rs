//! Disturbances of a measurement while it runs: processes that are killed, stopped, or crash. None of them becomes a
//! verdict.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use h2lab_model::workload::Protocol;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bulk::Server;
use crate::origin::Origin;
use crate::support::{DEADLINE, Finished, binary, folder, need};

const CHECK_FAILED: i32 = 1;
const INVALID: i32 = 5;

/// How long a process is stopped: most of a second of measured time. Scheduling on a busy machine does not add up to
/// that.
const STOP: Duration = Duration::from_millis(700);

/// A run of h2lab that something happens to.
struct Run {
    child: Child,
    folder: tempfile::TempDir,
}

impl Run {
    fn begin(arguments: &[&str]) -> Self {
        let folder = folder();
        let file = |name: &str| File::create(folder.path().join(name)).expect("a temporary file");
        let child = Command::new(binary())
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .expect("the binary starts");
        Self { child, folder }
    }

    /// A comparison behind a link without loss, one repetition of each cell. A repetition lasts for much longer than it takes to
    /// find its processes, however late this test runs.
    fn comparison() -> Self {
        Self::begin(&[
            "compare",
            "--json",
            "-q50",
            "-z6s",
            "-c1",
            "--proto=h1,h2c",
            "--loss=0%",
            "--delay=5ms",
            "--repetitions=1",
            "--drain=20s",
        ])
    }

    /// The first of its descendants with `word` among its arguments, once the network namespace of that one has a connection.
    fn serving(&self, word: &str) -> Pid {
        let until = Instant::now() + DEADLINE;
        loop {
            let found = descendants(self.child.id()).into_iter().find(|pid| {
                let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                words.split(|byte| *byte == 0).any(|one| one == word.as_bytes()) && is_connected(*pid)
            });
            if let Some(pid) = found.and_then(|pid| Pid::from_raw(pid.cast_signed())) {
                return pid;
            }
            assert!(Instant::now() < until, "no {word} serves");
            yield_now();
        }
    }

    /// Waits until it has written `words` to stderr, or has ended.
    fn until_it_says(&mut self, words: &str) {
        // Beside many other tests a process that yields to all of them gets hardly any time.
        let until = Instant::now() + 3 * DEADLINE;
        while !self.said("stderr").contains(words) && self.child.try_wait().expect("it is ours").is_none() {
            assert!(Instant::now() < until, "it does not say {words:?}");
            sleep(Duration::from_millis(5)); // polling interval
        }
    }

    fn end(mut self) -> Finished {
        let until = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            sleep(Duration::from_millis(5)); // polling interval
        };
        Finished { code: status.code(), stdout: self.said("stdout"), stderr: self.said("stderr") }
    }

    /// What it has written so far.
    fn said(&self, stream: &str) -> String {
        fs::read_to_string(self.folder.path().join(stream)).expect("a temporary file")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// Processes below this one, as `/proc` has it.
fn descendants(pid: u32) -> Vec<u32> {
    let mut pids = vec![pid];
    let mut next = 0;
    while let Some(&pid) = pids.get(next) {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            pids.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
        next += 1;
    }
    pids
}

/// Whether there is an established TCP connection in the process's network namespace: state 01 in `/proc/PID/net/tcp`.
fn is_connected(pid: u32) -> bool {
    let table = fs::read_to_string(Path::new(&format!("/proc/{pid}/net/tcp"))).unwrap_or_default();
    table.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some("01"))
}

/// Fails unless every cell was measured soundly in the end, and the disturbance is in the notes.
#[track_caller]
fn assert_measured_again(finished: &Finished, noted: &str) {
    let words = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("is invalid") && words.contains(noted), "{}", finished.transcript());
    finished.assert_measured();
    let document: Value = finished.json();
    for cell in document["cells"].as_array().expect("a list") {
        assert_eq!(cell["requests"]["failed"], 0, "{}", finished.transcript());
    }
    let verdicts = document["verdicts"].as_array().expect("a list");
    let unstable = |verdict: &&Value| verdict["verdict"].as_str().is_some_and(|it| it.contains("unstable"));
    assert_eq!(verdicts.iter().find(unstable), None, "{}", finished.transcript());
}

#[test]
fn a_server_that_is_killed_is_measured_again() {
    let run = Run::comparison();
    kill_process(run.serving("origin"), Signal::KILL).expect("it is ours");
    assert_measured_again(&run.end(), "origin was killed by signal 9");
}

#[test]
fn a_server_that_is_stopped_is_measured_again() {
    let run = Run::comparison();
    let origin = run.serving("origin");
    kill_process(origin, Signal::STOP).expect("it is ours");
    sleep(STOP);
    kill_process(origin, Signal::CONT).expect("it is ours");
    assert_measured_again(&run.end(), "origin was stopped by a signal for");
}

#[test]
fn a_generator_that_is_killed_is_started_again() {
    let run = Run::comparison();
    kill_process(run.serving("__load"), Signal::KILL).expect("it is ours");
    assert_measured_again(&run.end(), "ended without a result (signal: 9");
}

#[test]
fn a_server_that_crashes_is_the_result_and_no_verdict_on_speed() {
    let run = Run::comparison();
    // As abort(3) does.
    kill_process(run.serving("origin"), Signal::ABORT).expect("it is ours");
    let finished = run.end();
    assert_eq!(finished.code, Some(CHECK_FAILED), "{}", finished.transcript());
    let document = finished.json();
    let verdict = &document["verdicts"][0];
    assert_eq!(verdict["verdict"], "failed", "{}", finished.transcript());
    assert!(finished.stdout.contains("origin crashed (signal 6)"), "{}", finished.transcript());
}

#[test]
fn a_closed_loop_knows_that_it_was_stopped() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/delay/5", origin.clear);
    let run = Run::begin(&["load", "-c1", "-z10s", "--http1.1", "--json", &url]);
    let until = Instant::now() + DEADLINE;
    while !run.said("stderr").contains(" answered") {
        assert!(Instant::now() < until, "it reports no progress");
        yield_now();
    }
    let generator = Pid::from_child(&run.child);
    kill_process(generator, Signal::STOP).expect("it is ours");
    sleep(STOP);
    kill_process(generator, Signal::CONT).expect("it is ours");
    let finished = run.end();
    assert_eq!(finished.code, Some(INVALID), "{}", finished.transcript());
    assert!(finished.stdout.contains("the generator did not run for"), "{}", finished.transcript());
}

#[test]
fn a_server_that_can_no_longer_be_reached_is_what_a_load_reports() {
    for flags in [&["--http1.1"][..], &["--http2-prior-knowledge"], &["-q200"]] {
        let origin = Origin::start(&[]);
        let url = format!("http://{}/delay/5", origin.clear);
        let run = Run::begin(&[&["load", "-c2", "-z6s", "--json"], flags, &[&url]].concat());
        let until = Instant::now() + DEADLINE;
        while !run.said("stderr").contains(" answered") {
            assert!(Instant::now() < until, "it reports no progress");
            yield_now();
        }
        drop(origin);
        let finished = run.end();
        assert_eq!(finished.code, Some(CHECK_FAILED), "{}", finished.transcript());
        let document = finished.json();
        assert_eq!(document["state"], "failed", "{}", finished.transcript());
        let why = document["reasons"][0].as_str().unwrap_or_default();
        assert!(why.contains("no connection succeeded from"), "{}", finished.transcript());
    }
}

#[test]
fn a_timed_transfer_that_was_stopped_has_no_valid_rate() {
    for flags in [&["-z12s", "--discard"][..], &["-z12s", "--discard", "--json"]] {
        let server = Server::start(Path::new("--memory"));
        let url = server.url(Protocol::H1, "/bytes/1M");
        let run = Run::begin(&[&["bulk", "get", "--http1.1"], flags, &[&url]].concat());
        let client = Pid::from_child(&run.child);
        server.wait_for_requests(1); // until it begins to transfer
        kill_process(client, Signal::STOP).expect("it is ours");
        sleep(4 * STOP); // more than a tenth of its time
        kill_process(client, Signal::CONT).expect("it is ours");
        let finished = run.end();
        assert_eq!(finished.code, Some(INVALID), "{}", finished.transcript());
        assert!(finished.stdout.contains("h2lab did not run for"), "{}", finished.transcript());
    }
}

/// A process that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_that_waits_for_a_cpu_that_others_use_is_measured_again() {
    if [need("taskset"), need("chrt")].iter().any(Option::is_none) {
        return;
    }
    let command = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    let status = fs::read_to_string("/proc/self/status").expect("the kernel's");
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("it has one");
    let cpu = cpus.trim().rsplit([',', '-']).next().expect("at least one");
    let mut run = Run::comparison();
    let origin = run.serving("origin").as_raw_nonzero().to_string();
    let origin = origin.as_str();
    // It yields to every other program, and other programs keep its CPU busy without a pause.
    for words in
        [&["taskset", "-a", "-c", "-p", cpu, origin][..], &["chrt", "-a", "--idle", "-p", "0", origin]]
    {
        assert!(command(words).status().expect("it starts").success(), "{words:?}");
    }
    let busy = ["while :; do :; done"; 2]
        .map(|script| command(&["taskset", "-c", cpu, "sh", "-c", script]).spawn().expect("it starts"))
        .map(Killed);
    run.until_it_says("is invalid");
    drop(busy);
    assert_measured_again(&run.end(), "for a CPU used by other programs");
}

/// Runs `h2lab` with these flags, and stops it for [`STOP`] before the server answers its request.
fn stopped_while_it_waits(flags: &[&str]) -> Finished {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    let url = format!("http://{}/file", listener.local_addr().expect("a socket"));
    let mut run = Run::begin(&[flags, &["--http1.1", url.as_str()]].concat());
    let until = Instant::now() + DEADLINE;
    let mut client = loop {
        match listener.accept() {
            Ok((client, _)) => break client,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        assert!(run.child.try_wait().expect("it is ours").is_none(), "{}", run.said("stderr"));
        assert!(Instant::now() < until, "it does not connect");
        yield_now();
    };
    client.set_nonblocking(false).expect("a socket");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a request");
        head.extend(byte);
    }
    let asking = Pid::from_child(&run.child);
    kill_process(asking, Signal::STOP).expect("it is ours");
    sleep(STOP);
    kill_process(asking, Signal::CONT).expect("it is ours");
    client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").expect("it reads");
    run.end()
}

#[test]
fn whoever_shows_times_of_a_server_says_that_it_was_stopped_itself() {
    for flags in [&["timeline"][..], &["trace"], &["bulk", "get", "--discard"]] {
        let finished = stopped_while_it_waits(flags);
        let words = finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("h2lab did not run for"), "{flags:?}: {}", finished.transcript());
    }
}
