//! Clients that stay connected while one sidecar replaces another: their connections continue, and nothing on them
//! fails.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use h2lab_net::handover::ask;
use h2lab_net::process::Child;

use crate::hostile::tunnel::over_tls;
use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_handover::{ended, under_load_at, wait_for};
use crate::sidecar_requests::told_whole;
use crate::support::{DEADLINE, binary, folder, free_ports};

/// How often a process is replaced.
const TIMES: usize = 20;
/// A request without content.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
/// Clients that make requests at any time.
const CLIENTS: u64 = 6;

/// One connection over HTTP/1.1, which is never made again.
struct Client {
    stream: TcpStream,
    number: u64,
    /// Requests so far.
    asked: u64,
}

impl Client {
    fn of(address: SocketAddr, number: u64) -> Self {
        let stream = TcpStream::connect(address).expect("it accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
        Self { stream, number, asked: 0 }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it reads");
    }

    /// The next request, whose body is sent back. It is one that a client may send only once.
    fn request(&mut self) -> (Vec<u8>, Vec<u8>) {
        self.asked += 1;
        let length = (self.asked * 7_919 + self.number * 104_729) % 20_000 + 1;
        let body: Vec<u8> = (0..length).map(|n| (n * self.asked + self.number) as u8).collect();
        let head = format!("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
        (head.into_bytes(), body)
    }

    /// The next response: its head, in lower case, and its body.
    fn receive(&mut self) -> (String, Vec<u8>) {
        let (mut told, mut byte) = (Vec::new(), [0]);
        while !told.ends_with(b"\r\n\r\n") {
            let read = self.stream.read_exact(&mut byte); // a signal may interrupt a single read
            assert!(
                read.is_ok(),
                "request {} was lost: {read:?} {:?}",
                self.asked,
                String::from_utf8_lossy(&told)
            );
            told.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&told).to_lowercase();
        let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next());
        let mut body = vec![0; length.expect("a length").parse().expect("a number")];
        self.stream.read_exact(&mut body).expect("in time");
        (head, body)
    }

    /// Fails unless the answer is right and does not end the connection.
    fn receive_echo(&mut self, body: &[u8]) {
        let (head, echo) = self.receive();
        assert!(head.starts_with("http/1.1 200 ") && !head.contains("connection: close"), "{head}");
        assert!(echo == body, "another body came back");
    }

    fn ask(&mut self) {
        let (head, body) = self.request();
        self.send(&[head, body.clone()].concat());
        self.receive_echo(&body);
    }

    /// Sends this request again and again until a response says that it is the last: the process learns only some time
    /// after its successor listens that it is to end. Each request is answered.
    fn ask_until_told(&mut self, request: &[u8]) {
        let end = Instant::now() + DEADLINE;
        loop {
            self.send(request);
            let (head, _) = self.receive();
            assert!(head.starts_with("http/1.1 200 "), "{head}");
            if head.contains("connection: close") {
                return;
            }
            assert!(Instant::now() < end, "it does not end");
        }
    }

    /// Makes requests until `stop`, with pauses of different lengths.
    fn ask_until(mut self, stop: &AtomicBool, answered: &AtomicU64) {
        while !stop.load(Ordering::Relaxed) {
            self.ask();
            answered.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(self.asked * 7_919 % 20_000));
        }
    }
}

/// Generations of a sidecar in one folder.
struct Generations<'a> {
    folder: &'a Path,
    /// The rest of the configuration, after the listeners.
    rest: String,
    count: usize,
}

impl Generations<'_> {
    /// Starts the next one, with these listeners. The number of its threads differs from that of the one before.
    fn start(&mut self, listeners: &str) -> Sidecar {
        self.count += 1;
        let config = self.folder.join("sidecar.toml");
        let text = format!("threads = {}\n{listeners}\n{}", 1 + self.count % 3, self.rest);
        fs::write(&config, text).expect("a file");
        let mut command = Command::new(binary());
        command.arg("sidecar").arg("--config").arg(config).arg("--take-over").arg(self.socket());
        Sidecar::run(command)
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.join("handover")
    }
}

fn listener(port: u16, more: &str) -> String {
    format!("[[listen]]\naddress = \"127.0.0.1:{port}\"\nservice = \"a\"\n{more}\n")
}

/// The number of connections that this process has handed over; it has ended.
fn handed_over(child: &mut Child) -> u64 {
    let last = ended(child);
    assert!(last.contains("; none failed"), "{last}");
    let count = last.split(", ").find(|part| part.contains(" handed over"));
    count.map_or(0, |count| count.split(' ').next().expect("a word").parse().expect("a number"))
}

/// Requests the metrics until `stop`, each time on a connection of its own; returns the last ones.
fn scrape(port: u16, stop: &AtomicBool) -> String {
    let mut told = String::new();
    while !stop.load(Ordering::Relaxed) {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it reads");
        told.clear();
        stream.read_to_string(&mut told).expect("metrics");
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    }
    told
}

#[test]
fn connections_of_clients_outlive_twenty_processes_and_no_post_is_lost() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(2));
    let admin = port + 1;
    let rest = format!(
        "[service.a]\ninstances = [\"h2c://{}\"]\n[timeouts]\ndrain = \"60s\"\n[admin]\naddress = \"127.0.0.1:{admin}\"\n",
        origin.clear
    );
    let mut generations = Generations { folder: folder.path(), rest, count: 0 };
    let listeners = listener(port, "");
    let mut current = generations.start(&listeners);
    let address = current.clear;
    let (stop, answered, mut replaced) = (AtomicBool::new(false), AtomicU64::new(0), Vec::new());
    let metrics = thread::scope(|scope| {
        let (stop, answered) = (&stop, &answered);
        for number in 0..CLIENTS {
            scope.spawn(move || Client::of(address, number).ask_until(stop, answered));
        }
        let scraper = scope.spawn(move || scrape(admin, stop));
        let work = std::panic::AssertUnwindSafe(|| {
            // This client makes one request between two replacements; the others are in the middle of a request
            // whenever a process ends.
            let mut rare = Client::of(address, CLIENTS);
            // The process that has read this much keeps the connection for several replacements; then the last of the
            // new processes has it.
            let mut slow = Client::of(address, CLIENTS + 1);
            let (head, body) = slow.request();
            slow.send(&[&head, &body[..1]].concat());
            for time in 0..TIMES {
                let mut begun = Client::of(address, CLIENTS + 2);
                begun.ask();
                let (head, late) = begun.request();
                begun.send(&head[..10]);
                let mut new = Client::of(address, CLIENTS + 3);
                wait_for(5, answered);
                let next = generations.start(&listeners);
                replaced.push(std::mem::replace(&mut current, next).child);
                rare.ask();
                begun.send(&[&head[10..], &late[..]].concat());
                begun.receive_echo(&late);
                new.ask();
                if time == TIMES / 2 {
                    slow.send(&body[1..]);
                    slow.receive_echo(&body);
                }
                if time >= TIMES / 2 {
                    slow.ask();
                }
                wait_for(5, answered);
            }
            (rare, slow)
        });
        let result = std::panic::catch_unwind(work);
        stop.store(true, Ordering::Relaxed);
        let metrics = scraper.join().expect("each scrape is answered");
        drop(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        metrics
    });
    for child in &mut replaced {
        // The clients that make requests at any time, the rare one, the one that has begun a request, and the new one.
        let count = handed_over(child);
        assert!(count >= CLIENTS + 3, "{count}");
    }
    let taken = metrics.lines().find_map(|line| line.strip_prefix("h2lab_sidecar_clients_taken_over_total "));
    assert!(taken.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count >= CLIENTS)), "{taken:?}");
    assert!(current.stop().contains("; none failed"));
}

/// Their TLS keys stay with the old process, so they are told to open new connections: clients that make requests
/// without a pause lose nothing.
#[test]
fn clients_over_tls_are_told_the_end_of_their_connections_and_lose_no_post() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(2));
    let rest =
        format!("[service.a]\ninstances = [\"h2c://{}\"]\n[timeouts]\ndrain = \"60s\"\n", origin.clear);
    let mut generations = Generations { folder: folder.path(), rest, count: 0 };
    let listeners = [listener(port, ""), listener(port + 1, "tls = true")].concat();
    let mut current = generations.start(&listeners);
    let tls = SocketAddr::from(([127, 0, 0, 1], port + 1));
    let [h1, h2] = ["http/1.1", "h2"].map(|alpn| over_tls(tls, alpn).to_string());
    let total = under_load_at([&h1, &h2], |answered| {
        for _ in 0..5 {
            wait_for(100, answered);
            let successor = generations.start(&listeners);
            let mut before = std::mem::replace(&mut current, successor);
            assert_eq!(handed_over(&mut before.child), 0, "it ends once all of them have left");
        }
        wait_for(100, answered);
    });
    assert!(total >= 600, "{total}");
    assert!(current.stop().contains("; none failed"));
}

#[test]
fn what_a_proxy_has_said_of_a_connection_is_known_to_the_successor() {
    let (folder, port) = (folder(), free_ports(1));
    let (url, heads) = told_whole();
    let rest = format!(
        "[service.a]\ninstances = [\"{url}\"]\nproxy-protocol = \"v1\"\n[timeouts]\ndrain = \"60s\"\n"
    );
    let mut generations = Generations { folder: folder.path(), rest, count: 0 };
    let listeners = listener(port, "proxy-protocol = true");
    let mut first = generations.start(&listeners);
    let is_of = |client: &str| {
        let head = heads.recv_timeout(DEADLINE).expect("it was asked").to_lowercase();
        assert!(head.contains(&format!("x-forwarded-for: {client}\r\n")), "{head}");
        assert!(head.starts_with(&format!("proxy tcp4 {client} 192.0.2.9 1000 80\r\n")), "{head}");
    };
    let mut known = Client::of(first.clear, 0);
    known.send(b"PROXY TCP4 192.0.2.1 192.0.2.9 1000 80\r\n");
    known.send(REQUEST);
    known.receive();
    is_of("192.0.2.1");
    // This client has not sent its PROXY header yet.
    let mut silent = Client::of(first.clear, 1);
    let mut second = generations.start(&listeners);
    assert_eq!(handed_over(&mut first.child), 2);
    known.send(REQUEST);
    known.receive();
    is_of("192.0.2.1");
    silent.send(b"PROXY TCP4 192.0.2.2 192.0.2.9 1000 80\r\n");
    silent.send(REQUEST);
    silent.receive();
    is_of("192.0.2.2");
    // The third process expects no PROXY header: it does not take over the connections made so far.
    let third = generations.start(&listener(port, ""));
    known.ask_until_told(REQUEST);
    drop(silent);
    assert_eq!(handed_over(&mut second.child), 0);
    third.stop();
}

#[test]
fn a_client_is_told_the_end_where_the_successor_does_not_go_on() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(2));
    let rest =
        format!("[service.a]\ninstances = [\"h2c://{}\"]\n[timeouts]\ndrain = \"60s\"\n", origin.clear);
    let mut generations = Generations { folder: folder.path(), rest, count: 0 };
    let both = [listener(port, ""), listener(port + 1, "")].concat();
    let mut first = generations.start(&both);
    let [mut stays, mut goes] = [0, 1].map(|n| Client::of(([127, 0, 0, 1], port + n).into(), n.into()));
    stays.ask();
    goes.ask();
    // The second listener now has TLS, and serves nothing in clear.
    let tls = [listener(port, ""), listener(port + 1, "tls = true")].concat();
    let mut second = generations.start(&tls);
    stays.ask();
    goes.ask_until_told(REQUEST);
    assert_eq!(handed_over(&mut first.child), 1);
    // A process that takes the sockets and does not support the hand-over of clients, as in earlier versions.
    let (predecessor, sockets) = ask(&generations.socket()).expect("it answers").expect("it is there");
    let conversation = predecessor.is_replaced("").expect("it listens");
    stays.ask_until_told(REQUEST);
    assert_eq!(handed_over(&mut second.child), 0);
    drop((conversation, sockets));
}

#[test]
fn a_successor_that_is_killed_with_all_connections_waiting_gives_none_away() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(1));
    let rest =
        format!("[service.a]\ninstances = [\"h2c://{}\"]\n[timeouts]\ndrain = \"60s\"\n", origin.clear);
    let mut generations = Generations { folder: folder.path(), rest, count: 0 };
    let mut first = generations.start(&listener(port, ""));
    let mut clients: Vec<Client> = (0..100).map(|number| Client::of(first.clear, number)).collect();
    clients.iter_mut().for_each(Client::ask);
    // It gets the sockets of connections, does not confirm that it takes them, and ends.
    let (predecessor, sockets) = ask(&generations.socket()).expect("it answers").expect("it is there");
    let takes = format!("clients 1 {}", first.clear);
    let mut conversation = predecessor.is_replaced(&takes).expect("it listens");
    let (given, _) = conversation.receive().expect("a message").expect("no end");
    assert!(!given.is_empty());
    drop((given, conversation));
    for client in &mut clients {
        let (head, body) = client.request();
        client.send(&[head, body.clone()].concat());
        let (head, echo) = client.receive();
        assert!(head.starts_with("http/1.1 200 ") && echo == body, "{head}");
    }
    drop((clients, sockets));
    assert_eq!(handed_over(&mut first.child), 0);
}
