//! What happens to requests that an instance of HTTP/2 does not process, and how many connections are dialled for
//! requests that come at once.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{PREFACE, flag, kind};
use h2lab_wire::h2::inspect::FieldBlocks;
use socket2::{Domain, Socket, Type};

use crate::hostile::attacker::{Frames, frame, window_update};
use crate::hostile::server::served;
use crate::origin::Origin;
use crate::sidecar::{Sidecar, assert_none_lost, post};
use crate::sidecar_admin::Watched;
use crate::support::{DEADLINE, Gate, folder};

/// What an instance does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Served,
    /// RST_STREAM with `REFUSED_STREAM`, once all of it has come.
    Refused,
    /// GOAWAY while its body is on its way: this request is the first one that is not processed, and this connection
    /// takes no more.
    Beyond,
}

/// What an instance has recorded on all its connections.
#[derive(Default)]
struct Ledger {
    connections: AtomicUsize,
    /// Requests so far.
    begun: AtomicUsize,
    /// How often each one was processed, by its `x-id`.
    processed: Mutex<BTreeMap<String, u32>>,
    /// Nothing is answered until it is open.
    gate: Gate,
}

/// An instance whose n-th request of a connection, from 1, has this fate. Nothing is answered until the ledger's gate is open.
fn instance(fate: fn(usize) -> Fate) -> (String, Arc<Ledger>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("h2c://{}", listener.local_addr().expect("an address"));
    let ledger = Arc::new(Ledger::default());
    let all = Arc::clone(&ledger);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, ledger) = (stream.expect("a connection"), Arc::clone(&all));
            ledger.connections.fetch_add(1, Ordering::SeqCst);
            // It ends with the sidecar.
            thread::spawn(move || serve(stream, fate, &ledger));
        }
    });
    (url, ledger)
}

fn serve(mut stream: TcpStream, fate: fn(usize) -> Fate, ledger: &Arc<Ledger>) {
    let mut answers = stream.try_clone().expect("a descriptor");
    if stream.read_exact(&mut [0; PREFACE.len()]).is_err() {
        return;
    }
    let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    let greeting = [frame(kind::SETTINGS, 0, 0, &[]), ack, window_update(0, 1 << 30)];
    let _ = answers.write_all(&greeting.concat());
    let (mut blocks, mut begun, mut last) = (FieldBlocks::default(), 0, u32::MAX);
    let mut under_way: BTreeMap<u32, (String, Fate)> = BTreeMap::new();
    for (header, payload) in Frames(stream) {
        if header.kind == kind::HEADERS {
            begun += 1;
            ledger.begun.fetch_add(1, Ordering::SeqCst);
            let (fields, _) = blocks.decode(&payload).expect("a field block");
            let id = fields.iter().find(|field| field.name == b"x-id");
            let id = id.map(|field| String::from_utf8_lossy(field.value).into_owned()).unwrap_or_default();
            if fate(begun) == Fate::Beyond && header.stream < last {
                last = header.stream - 2;
                let told = [last.to_be_bytes(), ErrorCode::NO_ERROR.0.to_be_bytes()].concat();
                let _ = answers.write_all(&frame(kind::GOAWAY, 0, 0, &told));
            }
            if header.stream <= last {
                under_way.insert(header.stream, (id, fate(begun)));
            }
        }
        let may_end = matches!(header.kind, kind::HEADERS | kind::DATA);
        if !may_end || header.flags & flag::END_STREAM == 0 {
            continue;
        }
        let Some((id, fate)) = under_way.remove(&header.stream) else { continue };
        let (ledger, mut answers) = (Arc::clone(ledger), answers.try_clone().expect("a descriptor"));
        thread::spawn(move || {
            ledger.gate.wait();
            let answer = if fate == Fate::Refused {
                frame(kind::RST_STREAM, 0, header.stream, &ErrorCode::REFUSED_STREAM.0.to_be_bytes())
            } else {
                *ledger.processed.lock().expect("no panic").entry(id).or_default() += 1;
                served(header.stream)
            };
            let _ = answers.write_all(&answer);
        });
    }
}

/// A POST that carries its own id, on a connection of its own; its head and its body are sent one after the other.
fn post_of(sidecar: &Sidecar, id: &str) -> String {
    let mut stream = sidecar.connect();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: a\r\nx-id: {id}\r\nconnection: close\r\ncontent-length: 40000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    stream.write_all(&vec![b'x'; 40_000]).expect("it reads");
    let mut told = String::new();
    let _ = stream.read_to_string(&mut told);
    told
}

#[test]
fn what_an_instance_refuses_or_goes_away_from_is_sent_again_and_done_once() {
    const CALLERS: usize = 8;
    const EACH: usize = 30;
    let third: fn(usize) -> Fate = |n| if n % 3 == 0 { Fate::Refused } else { Fate::Served };
    let fifth: fn(usize) -> Fate = |n| if n >= 5 { Fate::Beyond } else { Fate::Served };
    // The sidecar learns after how many requests an instance sends GOAWAY: after that, few requests are too late.
    for (name, fate, fewest) in [("refused", third, CALLERS * EACH / 3), ("beyond", fifth, 1)] {
        for policy in ["adaptive", "fixed:2"] {
            let (url, ledger) = instance(fate);
            ledger.gate.open();
            let sidecar = Sidecar::to(&[url], &["--policy", policy]);
            thread::scope(|scope| {
                for caller in 0..CALLERS {
                    let sidecar = &sidecar;
                    scope.spawn(move || {
                        for n in 0..EACH {
                            let told = post_of(sidecar, &format!("{caller}-{n}"));
                            assert!(told.starts_with("HTTP/1.1 200 ") && told.contains("hello"), "{told}");
                        }
                    });
                }
            });
            let processed = ledger.processed.lock().expect("no panic").clone();
            assert_eq!(processed.len(), CALLERS * EACH, "{name} {policy}");
            assert!(processed.values().all(|times| *times == 1), "{name} {policy}: {processed:?}");
            let last = sidecar.stop();
            let again = last.strip_suffix(" retried").and_then(|rest| rest.rsplit(' ').next()?.parse().ok());
            let again: usize = again.unwrap_or_default();
            println!("{name} {policy}: {last}");
            assert!(last.contains("; none failed") && again >= fewest, "{name} {policy}: {last}");
        }
    }
}

#[test]
fn those_who_come_at_once_share_what_is_dialled_and_one_after_the_other_needs_one_connection() {
    const CALLERS: usize = 16;
    for (policy, fewest, most) in [("adaptive", 1, 1), ("fixed:4", 1, 4), ("per-request", CALLERS, CALLERS)] {
        let (url, ledger) = instance(|_| Fate::Served);
        let sidecar = Sidecar::to(&[url], &["--policy", policy]);
        let together = Barrier::new(CALLERS);
        thread::scope(|scope| {
            for n in 0..CALLERS {
                let (sidecar, together) = (&sidecar, &together);
                scope.spawn(move || {
                    together.wait();
                    let told = post_of(sidecar, &n.to_string());
                    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
                });
            }
            // None is answered before all are under way.
            let until = std::time::Instant::now() + DEADLINE;
            while ledger.begun.load(Ordering::SeqCst) < CALLERS && std::time::Instant::now() < until {
                thread::yield_now();
            }
            ledger.gate.open();
        });
        let opened = ledger.connections.load(Ordering::SeqCst);
        println!("{policy}: {opened} connections for {CALLERS} at once");
        assert!((fewest..=most).contains(&opened), "{policy}: {opened} connections");
    }
    let (url, ledger) = instance(|_| Fate::Served);
    ledger.gate.open();
    let sidecar = Sidecar::to(&[url], &["--policy", "fixed:8"]);
    for n in 0..20 {
        assert!(post_of(&sidecar, &n.to_string()).starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(ledger.connections.load(Ordering::SeqCst), 1, "none of them found another one under way");
}

/// The sum of an integer metric over all labels.
pub fn sum(sidecar: &Watched, name: &str) -> u64 {
    let metrics = sidecar.get("/metrics").1;
    let of = |line: &str| {
        let rest = line.strip_prefix("h2lab_sidecar_")?.strip_prefix(name)?;
        rest.starts_with(['{', ' ']).then(|| line.rsplit(' ').next()?.parse::<u64>().ok())?
    };
    metrics.lines().filter_map(of).sum()
}

#[test]
fn once_a_quota_was_learned_nothing_is_sent_again() {
    let origin = Origin::start(&["--max-requests-per-connection", "137"]);
    let sidecar = Watched::to(&format!("h2c://{}", origin.clear), &["--policy", "adaptive"]);
    let load = |requests: &str| {
        let finished = post(&format!("http://{}/anything", sidecar.clear), &["-c", "24", "-n", requests]);
        finished.assert_code_unless_busy(0);
        assert_none_lost(&finished);
    };
    while sum(&sidecar, "request_quota") != 137 {
        load("100");
    }
    let before = sum(&sidecar, "retries_total");
    // Sometimes a connection is used beyond the quota, in case the quota was raised: none of the first fifty is.
    let spent = sum(&sidecar, "dials_total");
    load("4000");
    let (again, dialled) = (sum(&sidecar, "retries_total") - before, sum(&sidecar, "dials_total") - spent);
    println!("{before} sent again before, {again} since; {dialled} connections for 4000 requests");
    assert!(spent + dialled < 50, "{spent} and {dialled} connections");
    assert!((28..33).contains(&dialled), "one connection behind the other: {dialled}");
    assert_eq!(again, 0, "{again} were sent again");
    sidecar.stop();
}

#[test]
fn a_connection_that_is_not_made_in_time_is_given_up_and_another_instance_is_asked() {
    // Its accept queue is full: the kernel ignores further connections.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
    socket.listen(0).expect("it is bound");
    let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("it listens");
    let mut filling = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
        filling.push(stream);
        assert!(filling.len() < 100, "its queue has an end");
    }
    let folder = folder();
    let start = |name: &str, instances: &[&str]| {
        let file = folder.path().join(name);
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = {instances:?}\n[timeouts]\nconnect = '1s'\n"
        );
        fs::write(&file, text).expect("a file");
        Sidecar::with(&file)
    };
    let silent = format!("http://{address}");
    let request = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx";
    let told = start("alone", &[&silent]).ask(request);
    assert!(told.starts_with("HTTP/1.1 502 ") || told.starts_with("HTTP/1.1 504 "), "{told}");
    assert!(told.to_lowercase().contains("error=connection_timeout"), "{told}");
    let origin = Origin::start(&[]);
    let both = start("both", &[&silent, &format!("h2c://{}", origin.clear)]);
    for _ in 0..8 {
        let told = both.ask(request);
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    }
}
