//! Outputs that nobody reads: a command that serves continues, and ends when it is told to.

use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use crate::origin::Origin;
use crate::support::{DEADLINE, binary, closed_port, folder};

/// A process that is killed when the value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    /// Stops it in good order.
    #[track_caller]
    fn ends(&mut self) {
        let until = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.0.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(0));
    }
}

/// A pipe that is full: the end to read from, and the other end for a child.
fn full() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&writer).expect("it is open");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("it is a pipe");
    for part in [4_096, 1] {
        while writer.write(&vec![b'.'; part]).is_ok() {}
    }
    fcntl_setfl(&writer, flags).expect("it is a pipe");
    (reader, writer.into())
}

/// The address in the first line that has one, after `prefix`.
#[track_caller]
fn listening(out: &mut impl BufRead, prefix: &str) -> SocketAddr {
    let mut line = String::new();
    out.read_line(&mut line).expect("text");
    line.trim_end().strip_prefix(prefix).unwrap_or_else(|| panic!("{line}")).parse().expect("an address")
}

/// The first line of the answer to a GET on a connection of its own.
fn status(to: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(to).expect("it accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("in time");
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_sidecar_whose_stderr_is_full_answers_reloads_and_ends() {
    let (origin, (_dead, closed), folder) = (Origin::start(&[]), closed_port(), folder());
    let path = folder.path().join("sidecar.toml");
    let text = format!(
        "landlock = false\n[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\nroute = [{{ path = '/down', service = 'b' }}]\n\
         [service.a]\ninstances = ['http://{}']\n[service.b]\ninstances = ['http://{closed}']\n",
        origin.clear
    );
    for is_read in [false, true] {
        std::fs::write(&path, &text).expect("a file");
        let (mut errors, stderr) = full();
        let mut command = Command::new(binary());
        command.arg("sidecar").arg("--config").arg(&path).stdout(Stdio::piped()).stderr(stderr);
        let mut sidecar = Running(command.spawn().expect("the binary starts"));
        drop(command); // holds the pipe, too
        let mut out = BufReader::new(sidecar.0.stdout.take().expect("it is piped"));
        let to = listening(&mut out, "listening http://");
        // Messages of an event loop, of a signal handler and of another thread.
        for _ in 0..2 {
            assert!(status(to, "/down").contains(" 502 "));
            sidecar.signal(Signal::USR2);
            assert!(status(to, "/").contains(" 200 "));
        }
        std::fs::write(&path, "x = [").expect("a file");
        sidecar.signal(Signal::HUP);
        assert!(status(to, "/").contains(" 200 "));
        let reading = is_read.then(|| {
            thread::spawn(move || {
                let mut said = String::new();
                errors.read_to_string(&mut said).expect("text");
                said
            })
        });
        sidecar.signal(Signal::TERM);
        sidecar.ends();
        let mut last = String::new();
        out.read_to_string(&mut last).expect("text");
        assert!(last.contains("5 requests from "), "{last}");
        if let Some(reading) = reading {
            let said = reading.join().expect("it reads");
            assert!(said.trim_start_matches('.').starts_with("service b: "), "{said}");
        }
    }
}

#[test]
fn an_access_log_whose_reader_stops_does_not_keep_a_sidecar_from_ending_and_lost_lines_are_counted() {
    let origin = Origin::start(&[]);
    let mut command = Command::new(binary());
    let to = format!("http://{}", origin.clear);
    command.args(["sidecar", "--listen", "127.0.0.1:0", "--to", &to, "--access-log", "-"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sidecar = Running(command.spawn().expect("the binary starts"));
    let mut out = BufReader::new(sidecar.0.stdout.take().expect("it is piped"));
    let to = listening(&mut out, "listening http://");
    // More than a pipe holds that nobody reads: 64 KiB.
    let count = 200;
    let path = format!("/bytes/1?{}", "x".repeat(2_000));
    for _ in 0..count {
        assert!(status(to, &path).contains(" 200 "));
    }
    sidecar.signal(Signal::TERM);
    sidecar.ends();
    let (mut said, mut log) = (String::new(), String::new());
    sidecar.0.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    out.read_to_string(&mut log).expect("text");
    let lost = said.lines().find_map(|line| {
        let (_, rest) = line.split_once("the access log took nothing until the end: ")?;
        rest.strip_suffix(" lines lost")?.parse::<usize>().ok()
    });
    let lost = lost.unwrap_or_else(|| panic!("{said}"));
    let written = log.lines().filter(|line| line.contains(&path)).count(); // the last line of all may be there, too
    assert!(lost > 0, "{said}");
    assert_eq!(written + lost, count, "{log}");
}

#[test]
fn an_origin_whose_stderr_is_full_cuts_off_answers_and_ends() {
    let (_errors, stderr) = full();
    let mut command = Command::new(binary());
    command.args(["origin", "--listen", "127.0.0.1:0", "--limit", "settings=1/1"]);
    command.stdout(Stdio::piped()).stderr(stderr);
    let mut origin = Running(command.spawn().expect("the binary starts"));
    let mut out = BufReader::new(origin.0.stdout.take().expect("it is piped"));
    let to = listening(&mut out, "listening http://");
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    flood.extend([0, 0, 0, 4, 0, 0, 0, 0, 0].repeat(100));
    let mut stream = TcpStream::connect(to).expect("it accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
    stream.write_all(&flood).expect("it reads");
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told); // it may be reset
    assert!(status(to, "/").contains(" 200 "));
    origin.signal(Signal::TERM);
    origin.ends();
}

#[test]
fn an_agent_whose_driver_does_not_read_ends_with_its_input() {
    let (_unread, stdout) = full();
    let mut command = Command::new(binary());
    command.args(["agent", "--stdio"]).stdin(Stdio::piped()).stdout(stdout);
    let mut agent = Running(command.spawn().expect("the binary starts"));
    drop(agent.0.stdin.take());
    agent.ends();
}
