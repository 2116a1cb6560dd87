//! Clients of HTTP/3 where the sidecar has several threads.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::client::{Client, Seen};
use super::handover::{ask, ended, wait_for};
use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_admin::Watched;
use crate::sidecar_reload::until_it_says;
use crate::support::{DEADLINE, binary, folder, free_ports};

/// The command of a sidecar with this many threads, with HTTP/3 on `port`.
fn command(folder: &Path, threads: usize, port: u16, instance: &str) -> Command {
    let config = folder.join("sidecar.toml");
    let text = format!(
        "threads = {threads}\n[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n\
         [[listen]]\naddress = '127.0.0.1:{port}'\ntls = true\nh3 = true\nservice = 'a'\n\
         [service.a]\ninsecure = true\ninstances = ['{instance}']\n[admin]\naddress = '127.0.0.1:0'\n"
    );
    fs::write(&config, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(config);
    command
}

#[test]
fn all_threads_work_beside_clients_of_http3_and_their_end_loses_nothing() {
    let origin = Origin::start(&["--h3"]);
    for (threads, instance) in [(2, format!("h2c://{}", origin.clear)), (4, format!("h3://{}", origin.tls))] {
        let (folder, port) = (folder(), free_ports(1));
        let mut watched = Watched::run(command(folder.path(), threads, port, &instance));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut clients: Vec<Client> = (0..threads).map(|_| Client::connect(address, false)).collect();
        for client in &mut clients {
            let stream = client.begin("POST", "/echo", b"some", true).expect("room");
            assert_eq!(client.whole(stream), (200, 4));
        }
        // All QUIC connections are on the first thread, and TCP connections are assigned to the others.
        let mut tcp: Vec<_> = (1..threads).map(|_| KeptAlive::connect(watched.clear)).collect();
        for client in &mut tcp {
            assert_eq!(client.ask("GET"), 200);
        }
        let status: Value = serde_json::from_str(&watched.get("/status").1).expect("JSON");
        let number = |thread: &Value, key: &str| thread[key].as_u64().expect("a number");
        let by_thread = status["by_thread"].as_array().expect("a list");
        let seen: Vec<(u64, u64)> = by_thread
            .iter()
            .map(|thread| (number(thread, "clients_open"), number(thread, "requests")))
            .collect();
        let mut expected = vec![(1, 1); threads];
        expected[0] = (threads as u64, threads as u64);
        assert_eq!(seen, expected);
        drop(tcp);
        let slow: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let stream = client.begin("GET", "/drip?bytes=1000&ms=2000", b"", true).expect("room");
                let has_begun = |seen: &[_]| {
                    seen.iter().any(|(its, seen)| (*its, seen) == (stream, &Seen::Response(200)))
                };
                client.until(has_begun);
                stream
            })
            .collect();
        kill_process(watched.child.pid(), Signal::TERM).expect("it runs");
        for (client, stream) in clients.iter_mut().zip(slow) {
            assert_eq!(client.whole(stream), (200, 1_000));
            while !client.is_over {
                client.turn();
            }
            assert!(client.seen.iter().any(|(_, seen)| *seen == Seen::GoAway), "{:?}", client.seen);
        }
        let last = ended(&mut watched.child);
        assert!(last.contains("; none failed"), "{last}");
    }
}

/// A client of HTTP/1.1 whose connection stays.
pub struct KeptAlive(TcpStream);

impl KeptAlive {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
        Self(stream)
    }

    /// Sends a request without a body, and waits for the answer; returns its status.
    #[track_caller]
    pub fn ask(&mut self, method: &str) -> u16 {
        self.send(method);
        self.status()
    }

    pub fn send(&mut self, method: &str) {
        let request = format!("{method} /bytes/10 HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
        self.0.write_all(request.as_bytes()).expect("it reads");
    }

    /// Reads the whole answer; returns its status.
    #[track_caller]
    pub fn status(&mut self) -> u16 {
        let (mut told, mut byte) = (Vec::new(), [0]);
        while !told.ends_with(b"\r\n\r\n") {
            assert_eq!(self.0.read(&mut byte).expect("in time"), 1, "{}", String::from_utf8_lossy(&told));
            told.push(byte[0]);
        }
        let told = String::from_utf8(told).expect("ASCII");
        let length = told.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        self.0.read_exact(&mut vec![0; length.unwrap_or(0)]).expect("its body");
        told.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }
}

#[test]
fn reloads_and_successors_lose_no_request_of_http3_whatever_the_number_of_threads() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(1));
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let instance = format!("h2c://{}", origin.clear);
    let start = |threads: usize| {
        let mut command = command(folder.path(), threads, port, &instance);
        command.arg("--take-over").arg(folder.path().join("handover"));
        Sidecar::run(command)
    };
    let mut current = start(2);
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| ask(address, &stop, &answered));
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for threads in [4, 2, 1] {
                wait_for(100, &answered);
                kill_process(current.child.pid(), Signal::HUP).expect("it runs");
                until_it_says(&current, "reloaded: 2 listeners", 1);
                wait_for(50, &answered);
                let successor = start(threads);
                let last = ended(&mut current.child);
                assert!(last.contains("; none failed"), "{last}");
                current = successor;
            }
            wait_for(100, &answered);
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(answered.into_inner() >= 550);
    assert!(current.stop().contains("; none failed"));
}
