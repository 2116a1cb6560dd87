//! A sidecar with several threads: each of them works, limits apply to all threads together, and no request is lost.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Instant;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_admin::Watched;
use crate::sidecar_guard::{CODE_OF_RELEASE, response, server};
use crate::sidecar_handover::{ended, under_load, wait_for};
use crate::sidecar_reload::{until, until_it_says};
use crate::support::{DEADLINE, allocated_bytes, binary, folder, free_ports, h2lab};

/// How many threads a sidecar has in these tests.
const THREADS: [usize; 2] = [2, 4];

/// The command of a sidecar with this many threads and this configuration: `top` is before all tables, `more` of
/// `[service.users]`.
fn command(folder: &Path, threads: usize, top: &str, instances: &[&str], more: &str) -> Command {
    let config = folder.join("sidecar.toml");
    let text = format!(
        "threads = {threads}\n{top}\n[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"users\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [service.users]\ninstances = {instances:?}\n{more}\n"
    );
    fs::write(&config, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(config);
    command
}

fn sidecar(threads: usize, instances: &[&str], more: &str) -> Watched {
    let folder = folder();
    Watched::run(command(folder.path(), threads, "", instances, more)) // it has read the file once it listens
}

/// A client that keeps its connection, and so its thread.
struct Client(TcpStream);

impl Client {
    fn of(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
        Self(stream)
    }

    /// This many clients, spread evenly over all threads: each new one goes to the thread with the fewest.
    fn several(address: SocketAddr, count: usize) -> Vec<Self> {
        (0..count).map(|_| Self::of(address)).collect()
    }

    fn send(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        self.0.write_all(request.as_bytes()).expect("it reads");
    }

    /// Status and body of the next response.
    fn receive(&mut self) -> (u16, String) {
        let (mut told, mut byte) = (Vec::new(), [0]);
        while !told.ends_with(b"\r\n\r\n") {
            let n = self.0.read(&mut byte).expect("in time");
            assert!(n == 1, "the connection ended: {:?}", String::from_utf8_lossy(&told));
            told.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&told).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let length =
            head.split_once("content-length: ").map_or("0", |(_, rest)| rest.lines().next().unwrap_or("0"));
        let mut body = vec![0; length.parse().expect("a number")];
        self.0.read_exact(&mut body).expect("in time");
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    fn ask(&mut self, path: &str) -> (u16, String) {
        self.send(path);
        self.receive()
    }
}

/// What a sidecar reports for each of its threads: clients and requests.
fn by_thread(sidecar: &Watched) -> Vec<(u64, u64)> {
    let status: Value = serde_json::from_str(&sidecar.get("/status").1).expect("JSON");
    let threads = status["by_thread"].as_array().expect("a list");
    let number = |thread: &Value, key: &str| thread[key].as_u64().expect("a number");
    threads.iter().map(|thread| (number(thread, "clients_open"), number(thread, "requests"))).collect()
}

/// Stops it in good order; returns its last line.
fn stop(mut sidecar: Watched) -> String {
    kill_process(sidecar.child.pid(), Signal::TERM).expect("it runs");
    ended(&mut sidecar.child)
}

#[test]
fn clients_are_spread_over_all_threads_and_the_figures_are_those_of_all() {
    let origin = Origin::start(&[]);
    for threads in THREADS {
        let folder = folder();
        let top = "log = { file = \"access.log\" }";
        let url = format!("h2c://{}", origin.clear);
        let more = format!("policy = \"fixed:{threads}\"");
        let sidecar = Watched::run(command(folder.path(), threads, top, &[&url], &more));
        let mut clients = Client::several(sidecar.clear, 2 * threads);
        for _ in 0..3 {
            for client in &mut clients {
                assert_eq!(client.ask("/status/200").0, 200);
            }
        }
        assert_eq!(by_thread(&sidecar), vec![(2, 6); threads]);
        let metrics = sidecar.get("/metrics").1;
        let requests = 6 * threads;
        for line in [
            format!(
                "h2lab_sidecar_requests_total{{service=\"users\",protocol=\"h1\",code=\"200\"}} {requests}"
            ),
            format!("h2lab_sidecar_clients_open {}", 2 * threads),
            format!("h2lab_sidecar_threads {threads}"),
            "h2lab_sidecar_thread_requests_total{thread=\"1\"} 6".to_owned(),
        ] {
            assert!(metrics.lines().any(|other| other == line), "{line}: {metrics}");
        }
        // One connection for each thread: a thread cannot use the connections of another.
        let last = stop(sidecar);
        let clients = 2 * threads;
        let words =
            format!("{requests} requests from {clients} client connections over {threads} connections to");
        assert!(last.contains(&words), "{words}: {last}");
        let log = fs::read_to_string(folder.path().join("access.log")).expect("a log");
        assert_eq!(
            log.lines().filter(|line| line.contains("\"GET a /status/200 HTTP/1.1\" 200 ")).count(),
            requests
        );
        assert_eq!(log.lines().count(), requests, "{log}");
    }
}

#[test]
fn the_connections_of_one_peer_are_spread_too() {
    // It answers once two requests have arrived: both are under way at the same time, so that the first sidecar opens a
    // second connection.
    let pairs = Arc::new((Mutex::new(0_usize), Condvar::new()));
    let url = server(move |_| {
        let (count, changed) = &*pairs;
        let mut arrived = count.lock().expect("no panic");
        *arrived += 1;
        let whole = arrived.div_ceil(2) * 2;
        changed.notify_all();
        let _both = changed.wait_while(arrived, |arrived| *arrived < whole).expect("no panic");
        Some(response(200, "ok"))
    });
    let second = sidecar(2, &[&url], "");
    let first = sidecar(1, &[&format!("h2c://{}", second.clear)], "policy = \"fixed:2\"");
    let mut clients = Client::several(first.clear, 2);
    until(
        || {
            for client in &mut clients {
                client.send("/");
            }
            for client in &mut clients {
                assert_eq!(client.receive().0, 200);
            }
            by_thread(&second).iter().all(|(clients, requests)| *clients == 1 && *requests > 0)
        },
        || format!("{:?}", by_thread(&second)),
    );
    assert_eq!(by_thread(&first).len(), 1);
}

#[test]
fn a_rate_is_that_of_all_threads() {
    let url = server(|_| Some(response(200, "ok")));
    let rate = |key: &str| format!("rate = {{ per-second = 1, burst = 20{key} }}");
    let of_client = rate(", key = \"client\"");
    for threads in THREADS {
        for of_listener in [false, true] {
            for rate in [rate(""), of_client.clone()] {
                let folder = folder();
                let more = if of_listener { String::new() } else { rate.clone() };
                let command = command(folder.path(), threads, "", &[&url], &more);
                let path = folder.path().join("sidecar.toml");
                if of_listener {
                    let text = fs::read_to_string(&path).expect("it was written");
                    fs::write(
                        &path,
                        text.replace("service = \"users\"", &format!("service = \"users\"\n{rate}")),
                    )
                    .expect("a file");
                }
                let sidecar = Watched::run(command);
                let mut clients = Client::several(sidecar.clear, 2 * threads);
                let began = Instant::now();
                let mut statuses = [0, 0];
                for _ in 0..25 {
                    for client in &mut clients {
                        match client.ask("/").0 {
                            200 => statuses[0] += 1,
                            429 => statuses[1] += 1,
                            other => panic!("{other}"),
                        }
                    }
                }
                let most = 20 + began.elapsed().as_secs() + 1;
                assert!(
                    (20..=most).contains(&statuses[0]),
                    "{threads} threads, {rate}: {statuses:?} of {most}"
                );
            }
        }
    }
}

#[test]
fn requests_under_way_are_bounded_for_all_threads() {
    for threads in THREADS {
        let (seen, arrived) = mpsc::channel();
        let url = server(move |_| {
            seen.send(()).expect("the test waits");
            None
        });
        let sidecar = sidecar(threads, &[&url], "limits = { open = 3 }");
        let mut clients = Client::several(sidecar.clear, 3 * threads);
        for client in clients.iter_mut().take(3) {
            client.send("/");
            arrived.recv_timeout(DEADLINE).expect("three may");
        }
        for client in clients.iter_mut().skip(3) {
            let (status, body) = client.ask("/");
            assert!(status == 503 && body.contains("3 in progress (limits.open)"), "{status} {body}");
        }
        assert!(arrived.try_recv().is_err());
        // Clients that close make room, on any thread.
        clients.truncate(1);
        let mut others = Client::several(sidecar.clear, 2 * threads);
        let end = Instant::now() + DEADLINE;
        let mut taken = 0;
        while taken < 2 {
            let client = &mut others[taken];
            client.send("/");
            client.0.set_nonblocking(true).expect("a socket");
            // It is refused, or it is connected.
            let is_refused = loop {
                assert!(Instant::now() < end, "they are over, and still count");
                if arrived.try_recv().is_ok() {
                    break false;
                }
                if client.0.peek(&mut [0]).is_ok() {
                    break true;
                }
                thread::yield_now();
            };
            client.0.set_nonblocking(false).expect("a socket");
            if is_refused {
                assert_eq!(client.receive().0, 503);
            } else {
                taken += 1;
            }
        }
    }
}

/// A server of HTTP/1.1 that answers nothing until this many requests have arrived; the counter counts connections.
fn gate(requests: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let gate = Arc::new((Mutex::new(0_usize), Condvar::new()));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut client, gate) = (Client(stream.expect("a connection")), Arc::clone(&gate));
            count.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || {
                let (arrived, changed) = &*gate;
                let (mut head, mut byte) = (Vec::new(), [0]);
                while let Ok(1) = client.0.read(&mut byte) {
                    head.push(byte[0]);
                    if !head.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    head.clear();
                    let mut arrived = arrived.lock().expect("no panic");
                    *arrived += 1;
                    changed.notify_all();
                    drop(changed.wait_while(arrived, |arrived| *arrived < requests).expect("no panic"));
                    if client.0.write_all(response(200, "ok").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, connections)
}

#[test]
fn connections_to_an_instance_are_bounded_for_all_threads() {
    for threads in THREADS {
        // One more than there are threads, so that they cannot be divided evenly.
        let most = threads + 1;
        let (url, connections) = gate(most);
        let sidecar = sidecar(threads, &[&url], &format!("limits = {{ connections = {most} }}"));
        let clients = Client::several(sidecar.clear, 6 * threads);
        thread::scope(|scope| {
            for mut client in clients {
                scope.spawn(move || (0..10).for_each(|_| assert_eq!(client.ask("/").0, 200)));
            }
        });
        assert_eq!(connections.load(Ordering::SeqCst), most, "as many as there may be, and none more");
        let fixed = format!("policy = \"fixed:{most}\"");
        let origin = Origin::start(&["--handler-delay", "5ms"]);
        let sidecar = self::sidecar(threads, &[&format!("h2c://{}", origin.clear)], &fixed);
        let clients = Client::several(sidecar.clear, 6 * threads);
        thread::scope(|scope| {
            for mut client in clients {
                scope.spawn(move || (0..10).for_each(|_| assert_eq!(client.ask("/status/200").0, 200)));
            }
        });
        let last = stop(sidecar);
        let over = last.split(" over ").nth(1).and_then(|rest| rest.split(' ').next());
        let over: usize = over.and_then(|count| count.parse().ok()).expect("a number");
        assert!((threads..=most).contains(&over), "{last}");
    }
}

#[test]
fn requests_that_wait_are_bounded_for_all_threads() {
    for threads in THREADS {
        let (seen, arrived) = mpsc::channel();
        let is_free = Arc::new(AtomicBool::new(false));
        let (open, opened) = (Arc::new((Mutex::new(()), Condvar::new())), Arc::clone(&is_free));
        let at_gate = Arc::clone(&open);
        let url = server(move |head| {
            if head.starts_with("GET /first ") {
                return Some(response(200, "ok"));
            }
            seen.send(()).expect("the test waits");
            let (lock, changed) = &*at_gate;
            let held = lock.lock().expect("no panic");
            drop(changed.wait_while(held, |()| !opened.load(Ordering::SeqCst)).expect("no panic"));
            Some(response(200, "ok"))
        });
        let limits = format!("limits = {{ connections = {threads}, waiting = 2, wait = \"1h\" }}");
        let sidecar = sidecar(threads, &[&url], &limits);
        let mut clients = Client::several(sidecar.clear, 3 * threads);
        for client in &mut clients {
            client.ask("/first"); // a silent client is closed after ten seconds, which a busy machine may take
        }
        for client in clients.iter_mut().take(threads) {
            client.send("/"); // on each thread one client has the only connection
            arrived.recv_timeout(DEADLINE).expect("each has one");
        }
        let (answer, answers) = mpsc::channel();
        thread::scope(|scope| {
            for client in clients.iter_mut().skip(threads) {
                client.send("/");
                let answer = answer.clone();
                scope.spawn(move || answer.send(client.receive()).expect("the test waits"));
            }
            for _ in 0..2 * threads - 2 {
                let (status, body) = answers.recv_timeout(DEADLINE).expect("all but two are refused");
                assert!(
                    status == 503 && body.contains("2 waiting for a connection (limits.waiting)"),
                    "{status} {body}"
                );
            }
            let held = open.0.lock().expect("no panic");
            is_free.store(true, Ordering::SeqCst);
            drop(held);
            open.1.notify_all();
            for _ in 0..2 {
                assert_eq!(answers.recv_timeout(DEADLINE).expect("two wait").0, 200);
            }
        });
        // None waits any more: on each thread two clients may wait again, one after the other.
        let mut others = Client::several(sidecar.clear, threads);
        for client in &mut others {
            assert_eq!(client.ask("/").0, 200);
        }
    }
}

#[test]
fn what_is_sent_again_has_one_budget() {
    for threads in THREADS {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let url = server(move |_| {
            seen.fetch_add(1, Ordering::SeqCst);
            Some(response(503, "no"))
        });
        let retry = "retry = { on = [\"503\"], budget = 0, per-second = 1, attempts = 1 }";
        let sidecar = sidecar(threads, &[&url], retry);
        let mut clients = Client::several(sidecar.clear, threads);
        let began = Instant::now();
        for _ in 0..30 {
            for client in &mut clients {
                assert_eq!(client.ask("/").0, 503);
            }
        }
        // Ten in ten seconds; the first and the last interval are not whole.
        let most = 10 * (1 + began.elapsed().as_secs() / 9) as usize;
        let retries = count.load(Ordering::SeqCst) - 30 * threads;
        assert!((10..=most).contains(&retries), "{retries} of {most}");
    }
}

#[test]
fn an_instance_that_one_thread_leaves_out_is_left_out_by_all() {
    for threads in THREADS {
        let bad = server(|_| Some(response(503, "bad")));
        let good = server(|_| Some(response(200, "good")));
        let outlier = "outlier = { consecutive = 3, base = \"1h\", most = \"1h\" }";
        let sidecar = sidecar(threads, &[&bad, &good], outlier);
        let mut clients = Client::several(sidecar.clear, threads);
        let is_out = || sidecar.child.log().contains("ejected for");
        let end = Instant::now() + DEADLINE;
        while !is_out() {
            assert!(Instant::now() < end);
            clients[0].ask("/"); // all on one thread
        }
        for _ in 0..10 {
            for client in &mut clients {
                assert_eq!(client.ask("/"), (200, "good".to_owned()));
            }
        }
        let log = sidecar.child.log();
        assert_eq!(log.lines().filter(|line| line.contains("ejected for")).count(), 1, "{log}");
    }
}

#[test]
fn instances_are_checked_once_and_all_threads_know() {
    for threads in THREADS {
        let (checks, is_well) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let (count, says) = (Arc::clone(&checks), Arc::clone(&is_well));
        let sick = server(move |head| {
            let is_check = head.starts_with("GET /healthz ");
            count.fetch_add(usize::from(is_check), Ordering::SeqCst);
            Some(response(if is_check && !says.load(Ordering::SeqCst) { 500 } else { 200 }, "sick"))
        });
        let (failures, other_is_well) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let (failed, says) = (Arc::clone(&failures), Arc::clone(&other_is_well));
        let other = server(move |head| {
            let fails = head.starts_with("GET /healthz ") && !says.load(Ordering::SeqCst);
            failed.fetch_add(usize::from(fails), Ordering::SeqCst);
            Some(response(if fails { 500 } else { 200 }, "other"))
        });
        let began = Instant::now();
        let health = "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"1h\", healthy = 2, unhealthy = 2 }";
        let sidecar = sidecar(threads, &[&sick, &other], health);
        let mut clients = Client::several(sidecar.clear, 2 * threads);
        until(|| checks.load(Ordering::SeqCst) >= 20, || "it is not checked".to_owned());
        let (lasted, made) = (began.elapsed(), checks.load(Ordering::SeqCst));
        assert!(lasted.as_millis() as usize / 100 + 1 >= made, "{made} checks in {lasted:?}");
        is_well.store(false, Ordering::SeqCst);
        until(|| sidecar.child.log().contains("health check failed"), || sidecar.child.log());
        for _ in 0..5 {
            for client in &mut clients {
                assert_eq!(client.ask("/"), (200, "other".to_owned()));
            }
        }
        is_well.store(true, Ordering::SeqCst);
        until(|| sidecar.child.log().contains("health check passed"), || sidecar.child.log());
        other_is_well.store(false, Ordering::SeqCst);
        // Checks follow one another: when the third arrives, the second was counted.
        until(|| failures.load(Ordering::SeqCst) >= 3, || sidecar.child.log());
        for _ in 0..5 {
            for client in &mut clients {
                assert_eq!(client.ask("/"), (200, "sick".to_owned()));
            }
        }
    }
}

#[test]
fn memory_is_that_of_all_threads() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let url = format!("h2c://{}", origin.clear);
    let sidecar = Watched::run(command(folder.path(), 4, "memory = \"96M\"", &[&url], ""));
    // Threads do not keep the memory that they have freed.
    for wave in 0..2 {
        let mut readers = Vec::new();
        let (mut largest, mut refused) = (0, 0);
        for _ in 0..500 {
            let mut reader = Client::of(sidecar.clear);
            if reader.0.write_all(b"GET /bytes/300000000 HTTP/1.1\r\nhost: a\r\n\r\n").is_ok() {
                readers.push(reader);
            }
            largest = allocated_bytes(&sidecar.child).max(largest);
            let mut last = TcpStream::connect(sidecar.clear).expect("it accepts");
            let mut told = String::new();
            let asked = last.write_all(b"GET /status/200 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            let _ = asked.and_then(|()| last.read_to_string(&mut told));
            refused += usize::from(told.contains("memory limit reached"));
        }
        assert!(refused < 100, "{refused} of 500 who ask little were refused in wave {wave}");
        assert!(largest + CODE_OF_RELEASE < 96 << 20, "{largest} bytes in wave {wave}");
        drop(readers);
        until(|| Client::of(sidecar.clear).ask("/status/200").0 == 200, || "memory is free again".to_owned());
    }
}

#[test]
fn no_request_is_lost_when_it_ends() {
    for threads in THREADS {
        let (seen, arrived) = mpsc::channel();
        let (say, said) = mpsc::channel::<()>();
        let said = Mutex::new(said);
        let url = server(move |_| {
            seen.send(()).expect("the test waits");
            said.lock().expect("no panic").recv().expect("the test says so");
            Some(response(200, "ok"))
        });
        let sidecar = sidecar(threads, &[&url], "");
        let mut clients = Client::several(sidecar.clear, 2 * threads);
        for client in &mut clients {
            client.send("/");
            arrived.recv_timeout(DEADLINE).expect("it is under way");
        }
        kill_process(sidecar.child.pid(), Signal::TERM).expect("it runs");
        until(|| sidecar.get("/ready").0.starts_with("HTTP/1.1 503 "), || sidecar.child.log());
        for _ in &clients {
            say.send(()).expect("the server waits");
        }
        for client in &mut clients {
            assert_eq!(client.receive(), (200, "ok".to_owned()));
        }
        let mut sidecar = sidecar;
        let last = ended(&mut sidecar.child);
        assert!(last.contains("; none failed"), "{last}");
    }
}

#[test]
fn successors_and_reloads_lose_no_request_whatever_the_number_of_threads() {
    let (origin, folder, port) = (Origin::start(&[]), folder(), free_ports(1));
    let socket = folder.path().join("handover");
    let start = |threads: usize| {
        let path = folder.path().join("sidecar.toml");
        let text = format!(
            "threads = {threads}\n[[listen]]\naddress = \"127.0.0.1:{port}\"\nservice = \"a\"\n[service.a]\ninstances = [\"h2c://{}\"]\n",
            origin.clear
        );
        fs::write(&path, text).expect("a file");
        let mut command = Command::new(binary());
        command.arg("sidecar").arg("--config").arg(&path).arg("--take-over").arg(&socket);
        Sidecar::run(command)
    };
    let mut current = start(2);
    let total = under_load(&format!("127.0.0.1:{port}"), |answered| {
        for threads in [4, 2, 1] {
            wait_for(200, answered);
            for times in 1..=2 {
                kill_process(current.child.pid(), Signal::HUP).expect("it runs");
                until_it_says(&current, "reloaded: 1 listener", times);
                wait_for(50, answered);
            }
            let successor = start(threads);
            let last = ended(&mut current.child);
            assert!(last.contains("; none failed"), "{last}");
            current = successor;
        }
        wait_for(200, answered);
    });
    assert!(total >= 1_100);
    assert!(current.stop().contains("; none failed"));
}

#[test]
fn listeners_and_services_that_come_and_go_do_so_on_all_threads() {
    let one = server(|_| Some(response(200, "one")));
    let two = server(|_| Some(response(200, "two")));
    for threads in THREADS {
        let (folder, port) = (folder(), free_ports(1));
        let path = folder.path().join("sidecar.toml");
        let write = |threads: usize, more: &str| {
            let text = format!(
                "threads = {threads}\n[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n[service.a]\ninstances = [\"{one}\"]\n{more}"
            );
            fs::write(&path, text).expect("a file");
        };
        write(threads, "");
        let sidecar = Sidecar::with(&path);
        let hangup = || kill_process(sidecar.child.pid(), Signal::HUP).expect("it runs");
        let mut first = Client::several(sidecar.clear, threads);
        // It comes first in the order of services by name; its rate applies to all threads together.
        let rate = "rate = { per-second = 1, burst = 20 }";
        let more = format!(
            "[[listen]]\naddress = \"127.0.0.1:{port}\"\nservice = \"0\"\n{rate}\n[service.0]\ninstances = [\"{two}\"]\n"
        );
        write(threads, &more);
        hangup();
        until_it_says(&sidecar, &format!("listening http://127.0.0.1:{port}"), 1);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut second = Client::several(address, 2 * threads);
        let began = Instant::now();
        let mut taken = 0;
        for _ in 0..20 {
            for client in &mut second {
                match client.ask("/") {
                    (200, body) => {
                        assert_eq!(body, "two");
                        taken += 1;
                    }
                    (status, _) => assert_eq!(status, 429),
                }
            }
            for client in &mut first {
                assert_eq!(client.ask("/"), (200, "one".to_owned()));
            }
        }
        let most = 20 + began.elapsed().as_secs() + 1;
        assert!((20..=most).contains(&taken), "{taken} of {most}");
        // Its clients are told on all threads; other clients stay connected.
        write(threads, "");
        hangup();
        until_it_says(&sidecar, ": reloaded: ", 2);
        for client in &mut second {
            assert_eq!(client.0.read(&mut [0; 64]).expect("in good order"), 0);
        }
        for client in &mut first {
            assert_eq!(client.ask("/"), (200, "one".to_owned()));
        }
        // The number of threads is set at the start.
        write(1, "policy = \"fixed:1\"\n");
        hangup();
        until_it_says(&sidecar, "the previous configuration stays in effect", 1);
        until_it_says(&sidecar, "is too low for", 1);
        assert_eq!(first[0].ask("/").0, 200);
        assert!(
            sidecar.stop().contains("; none failed") || taken > 0,
            "those that came too fast are refused"
        );
    }
}

#[test]
fn a_wrong_number_of_threads_is_said_so() {
    let with = |threads: &str, policy: &str| {
        let arguments =
            ["sidecar", "--listen", "127.0.0.1:0", "--to", "h2c://127.0.0.1:1", "--policy", policy];
        h2lab(&[&arguments[..], &["--threads", threads]].concat())
    };
    for (threads, policy, words) in [
        ("many", "adaptive", "invalid thread count \"many\": expected a number from 1 to 64, or"),
        ("65", "adaptive", "invalid thread count \"65\""),
        ("4", "fixed:3", "policy = fixed:3 of service \"service\" is too low for 4 threads"),
    ] {
        let told = with(threads, policy);
        assert!(told.code == Some(2) && told.stderr.contains(words), "{}", told.transcript());
    }
    let origin = Origin::start(&[]);
    let sidecar = Sidecar::to(&[format!("h2c://{}", origin.clear)], &["--threads", "auto"]);
    assert_eq!(Client::of(sidecar.clear).ask("/status/200").0, 200);
    sidecar.stop();
}
