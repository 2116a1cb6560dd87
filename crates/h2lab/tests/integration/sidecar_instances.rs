//! Instances that attack: each hostile server of `cargo xtask verify faults`, and more, is an instance of one sidecar,
//! over every protocol that it speaks.
//!
//! What is asserted: their clients, over HTTP/1.1 and HTTP/2, get an answer within the sidecar's timeouts, and never a
//! complete one if the instance sent none; a client of a well-behaved service is served all the while without a single
//! failure; memory is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use h2lab_wire::h2::frame::{PREFACE, flag, kind};
use h2lab_wire::h2::inspect::FieldBlocks;
use serde::Deserialize;

use crate::hostile::attacker::{Frames, frame, initial_window, request, window_update};
use crate::hostile::bystander::Bystander;
use crate::hostile_servers::{Draws, Row, Speech, start};
use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::support::{DEADLINE, allocated_bytes, folder};

const SERVERS: [&str; 2] =
    [include_str!("../../examples/hostile/servers.toml"), include_str!("hostile/instances.toml")];

/// How much the sidecar may grow while [`AT_ONCE`] instances attack it.
const GROWTH: u64 = 96 << 20;
/// Attacks that are under way at once.
const AT_ONCE: usize = 12;
/// Timeouts of services that answer nothing. Services that do answer have the default timeouts of a sidecar.
const TIMES: &str = "timeouts = { connect = '1s', response = '1s', stream = '1s', request = '3s' }\n";
/// How long a client of such a service waits at most: thirty times as long as it may take, and less than the two
/// minutes after which a hostile server ends a connection itself. Such an end would not be the sidecar's.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(90);

/// How a server may answer, as its row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answers {
    None,
    Some,
    All,
    Refused,
    Redirect,
}

#[derive(Deserialize)]
struct Listed {
    speaks: Vec<String>,
    answers: Answers,
}

/// A service whose only instance attacks.
struct Attack {
    name: String,
    url: String,
    answers: Answers,
}

/// Starts them all. Servers that end their process are left out: they would end this process.
fn attacks() -> Vec<Attack> {
    let mut attacks = Vec::new();
    for text in SERVERS {
        let rows: BTreeMap<String, Row> = toml::from_str(text).expect("rows of servers");
        let listed: BTreeMap<String, Listed> = toml::from_str(text).expect("the same rows");
        for (name, listed) in listed.into_iter().filter(|(name, _)| !name.starts_with("exits-")) {
            for speaks in listed.speaks {
                let speech = Speech::from_str(&speaks, false).expect("a protocol");
                let address = start(&rows[&name], speech, 0, &mut Draws::new(1, &name)).expect("a free port");
                let scheme = if speech == Speech::H1 { "http" } else { &speaks };
                // None of them respects a window, and some files are larger than one.
                let is_overflowing = name.starts_with("file") && matches!(speech, Speech::H2 | Speech::H2c);
                attacks.push(Attack {
                    name: format!("{name}.{speaks}"),
                    url: format!("{scheme}://{address}"),
                    answers: if is_overflowing { Answers::Some } else { listed.answers },
                });
            }
        }
    }
    attacks
}

/// A sidecar for the well-behaved service, and for each of the others below a path with its name.
fn sidecar(good: &str, attacks: &[Attack]) -> Sidecar {
    let mut text = "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'good'\nroute = [\n".to_owned();
    for Attack { name, .. } in attacks {
        writeln!(text, "{{ path = '/{name}', service = '{name}' }},").expect("a String takes everything");
    }
    writeln!(text, "]\n[service.good]\ninstances = ['{good}']").expect("as above");
    for Attack { name, url, answers } in attacks {
        let times = if *answers == Answers::None { TIMES } else { "" };
        writeln!(text, "[service.'{name}']\ninstances = ['{url}']\ninsecure = true\n{times}")
            .expect("as above");
    }
    let folder = folder();
    let file = folder.path().join("sidecar.toml");
    fs::write(&file, text).expect("a file");
    Sidecar::with(&file)
}

/// What a client received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    /// The status of the final response; 0 without one.
    status: u16,
    /// All of it arrived, as announced.
    is_whole: bool,
    /// It had to wait longer than any client may.
    has_waited: bool,
}

impl Told {
    fn is_right(self, answers: Answers) -> bool {
        let Self { status, is_whole, has_waited } = self;
        if has_waited {
            return false;
        }
        match answers {
            Answers::None => status == 0 || status >= 500 || !is_whole,
            Answers::Some => true,
            Answers::All => is_whole && status == 200,
            Answers::Refused => is_whole && status == 500,
            Answers::Redirect => is_whole && status == 302,
        }
    }
}

/// A client's connection, with `patience` as its read timeout.
fn connect(address: SocketAddr, patience: Duration) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(patience)).expect("a timeout above zero");
    stream
}

/// Makes a request over HTTP/1.1, and reads to the end of the connection.
fn over_http1(address: SocketAddr, path: &str, patience: Duration) -> Told {
    let (began, mut stream) = (Instant::now(), connect(address, patience));
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let (mut beginning, mut last, mut all) = (Vec::new(), Vec::new(), 0);
    let mut space = vec![0; 64 * 1024];
    while began.elapsed() < patience
        && let Ok(n @ 1..) = stream.read(&mut space)
    {
        all += n;
        // Some of these bodies have no end.
        beginning.extend_from_slice(&space[..n.min((1_usize << 20).saturating_sub(beginning.len()))]);
        last.extend_from_slice(&space[n.saturating_sub(8)..n]);
        last.drain(..last.len().saturating_sub(8));
    }
    let has_waited = began.elapsed() >= patience;
    let mut at = 0;
    while let Some(length) = beginning[at..].windows(4).position(|end| end == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&beginning[at..at + length]).to_lowercase();
        at += length + 4;
        let status: u16 = head.get(9..12).and_then(|text| text.parse().ok()).unwrap_or(0);
        if (102..200).contains(&status) {
            continue;
        }
        let length: Option<usize> =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let is_whole = match length {
            Some(length) => all - at == length,
            None => head.contains("transfer-encoding: chunked") && last.ends_with(b"0\r\n\r\n"),
        };
        return Told { status, is_whole, has_waited };
    }
    Told { status: 0, is_whole: false, has_waited }
}

/// Makes a request over HTTP/2, and reads until the stream or the connection ends.
fn over_http2(address: SocketAddr, path: &str, patience: Duration) -> Told {
    let (began, mut stream) = (Instant::now(), connect(address, patience));
    let greeting = [&PREFACE[..], &initial_window(1 << 30), &frame(kind::SETTINGS, flag::ACK, 0, &[])];
    let credit = window_update(0, 1 << 30);
    let asked = request(1, flag::END_STREAM, "GET", path);
    stream.write_all(&[&greeting.concat()[..], &credit, &asked].concat()).expect("it reads");
    let (mut status, mut blocks) = (0, FieldBlocks::default());
    for (header, payload) in Frames(stream).take_while(|_| began.elapsed() < patience) {
        if header.kind == kind::HEADERS {
            let (fields, _) = blocks.decode(&payload).expect("a field block");
            let of = fields.iter().find(|field| field.name == b":status");
            let text = of.map(|field| String::from_utf8_lossy(field.value).into_owned());
            status = text.and_then(|text| text.parse().ok()).unwrap_or(status);
        }
        let may_end = matches!(header.kind, kind::HEADERS | kind::DATA);
        let is_whole = may_end && header.flags & flag::END_STREAM != 0;
        if is_whole || (header.kind == kind::RST_STREAM && header.stream == 1) {
            return Told { status, is_whole, has_waited: false };
        }
    }
    Told { status, is_whole: false, has_waited: began.elapsed() >= patience }
}

#[test]
fn instances_that_attack_keep_no_client_waiting_and_disturb_nobody_else() {
    let origin = Origin::start(&[]);
    let attacks = attacks();
    let sidecar = sidecar(&format!("h2c://{}", origin.clear), &attacks);
    let before = allocated_bytes(&sidecar.child);
    let bystander = Bystander::begin(sidecar.clear);
    let left: Mutex<VecDeque<&Attack>> = Mutex::new(attacks.iter().collect());
    let (wrong, under_way) = (Mutex::new(Vec::new()), AtomicUsize::new(AT_ONCE));
    let meet = || {
        loop {
            let next = left.lock().expect("no panic").pop_front();
            let Some(Attack { name, answers, .. }) = next else { break };
            let path = format!("/{name}");
            let patience = if *answers == Answers::None { CLIENT_TIMEOUT } else { DEADLINE };
            for ask in [over_http1, over_http2] {
                let told = ask(sidecar.clear, &path, patience);
                if !told.is_right(*answers) {
                    wrong.lock().expect("no panic").push(format!("{name} ({answers:?}): {told:?}"));
                }
            }
        }
        under_way.fetch_sub(1, Ordering::Relaxed);
    };
    let mut largest = before;
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(meet);
        }
        while under_way.load(Ordering::Relaxed) > 0 {
            largest = allocated_bytes(&sidecar.child).max(largest);
            thread::sleep(Duration::from_millis(20)); // between two looks at its memory
        }
    });
    let served = bystander.end();
    let grown = largest.saturating_sub(before) / 1024;
    assert!(attacks.len() > 180, "{} attacks", attacks.len());
    println!("{} attacks; {served} served; it grew by {grown} KiB at most", attacks.len());
    assert!(largest < before + GROWTH, "it grew by {grown} KiB");
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), sidecar.child.log());
    sidecar.stop();
}
