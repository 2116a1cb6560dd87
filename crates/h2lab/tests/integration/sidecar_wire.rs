//! The sidecar at the level of bytes: what follows a request at once, what is tolerated and never passed on, listeners
//! that are removed, signals.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use h2lab_base::units::Time;
use h2lab_wire::{Config, Connection, Event, Role, StreamId};
use rustix::process::Signal;

use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_handover::ONE_BYTE;
use crate::sidecar_reload::{ASK, one, until, until_it_says};
use crate::support::{DEADLINE, binary, folder, free_ports};

const NOW: Time = Time::from_millis(1);
const POST: &[u8] = b"POST /anything HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx";

/// Only bytes from the client itself end its connection here.
#[test]
fn what_is_no_request_behind_one_is_answered_at_once() {
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['{}']\n[timeouts]\nclient-idle = '0'\n",
        one()
    );
    fs::write(&path, text).expect("a file");
    let sidecar = Sidecar::with(&path);
    let told = sidecar.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nbad field: 1\r\n\r\n");
    let (first, second) = told.split_once("one").expect("the first is answered");
    assert!(first.starts_with("HTTP/1.1 200 ") && second.starts_with("HTTP/1.1 400 "), "{told}");
    assert!(second.contains("\r\ndate: ") && second.contains("\r\nconnection: close\r\n"), "{told}");
}

/// Reads until these bytes have arrived; returns all of it.
#[track_caller]
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
    let (mut all, mut space) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if text.contains(end) {
            return text;
        }
        let n = stream.read(&mut space).expect("in time");
        assert!(n > 0, "it ended: {text}");
        all.extend_from_slice(&space[..n]);
    }
}

#[test]
fn what_is_tolerated_is_never_passed_on_as_it_came() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let instance = format!("http://{}", listener.local_addr().expect("an address"));
    let (seen, is_seen) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        drop(seen.send(read_until(&mut stream, "x-end: 1\r\n\r\n")));
        let answer = "HTTP/1.2 799 Odd\r\ntransfer-encoding: chunked\r\n\r\n0003 ; a = b\r\none\r\n0 \r\n\
                      content-length: 9\r\nx-last: 1\r\n\r\n";
        drop(stream.write_all(answer.as_bytes()));
        drop(stream.read(&mut [0])); // until it is closed
    });
    let sidecar = Sidecar::to(&[instance], &[]);
    let told = sidecar.ask(
        "POST / HTTP/1.3\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
         00000000000000000001\t;a=b\r\nx\r\n0\r\ncontent-length: 7\r\nhost: b\r\nx-end: 1\r\n\r\n",
    );
    let asked = is_seen.recv_timeout(DEADLINE).expect("the instance is asked");
    assert!(asked.starts_with("POST / HTTP/1.1\r\nhost: a\r\n"), "{asked}");
    assert!(asked.ends_with("\r\n\r\n1\r\nx\r\n0\r\nx-end: 1\r\n\r\n"), "{asked}");
    assert!(!asked.contains("content-length") && !asked.contains("host: b"), "{asked}");
    assert!(told.starts_with("HTTP/1.1 799 \r\n") && !told.contains("content-length"), "{told}");
    assert!(told.ends_with("\r\n\r\n3\r\none\r\n0\r\nx-last: 1\r\n\r\n"), "{told}");
}

/// A client of HTTP/2 that reads only when it is asked to, and never sends a request again.
struct Client {
    stream: TcpStream,
    engine: Connection,
    answered: u32,
    goaways: Vec<u32>,
}

impl Client {
    /// Begins a request; its body is one byte.
    fn begin(&mut self) -> StreamId {
        self.engine.send_request(NOW, &ONE_BYTE).expect("there is room")
    }

    fn end(&mut self, stream: StreamId) {
        assert_eq!(self.engine.send_data(NOW, stream, b"x", true), 1);
        self.stream.write_all(&self.engine.take_transmit(NOW)).expect("it reads");
    }

    /// Reads once; `false` at the end.
    fn read(&mut self) -> bool {
        let mut space = [0; 4096];
        let n = self.stream.read(&mut space).expect("in time");
        self.engine.handle_input(NOW, &space[..n]);
        while let Some(event) = self.engine.poll_event(NOW) {
            match event {
                Event::Response { head, .. } => {
                    assert_eq!(head.status, 200);
                    self.answered += 1;
                }
                Event::GoAway { last_stream, .. } => self.goaways.push(last_stream.0),
                Event::Reset { code, .. } => panic!("a request was lost: {code}"),
                _ => {}
            }
        }
        drop(self.stream.write_all(&self.engine.take_transmit(NOW)));
        n > 0
    }
}

#[test]
fn a_listener_that_a_reload_takes_out_loses_no_request() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let second = format!("127.0.0.1:{}", free_ports(1));
    let listen = |address: &str| format!("[[listen]]\naddress = '{address}'\nservice = 'a'\n");
    let rest = format!("[service.a]\ninstances = ['h2c://{}']\n[timeouts]\ndrain = '1h'\n", origin.clear);
    fs::write(&path, listen("127.0.0.1:0") + &listen(&second) + &rest).expect("a file");
    let sidecar = Sidecar::with(&path);
    until_it_says(&sidecar, &format!("listening http://{second}"), 1);
    let connect = || {
        let stream = TcpStream::connect(&second).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
        stream
    };
    let mut idle = connect();
    idle.write_all(POST).expect("it reads");
    read_until(&mut idle, "HTTP/1.1 200 ");
    let mut client = Client {
        stream: connect(),
        engine: Connection::h2(Config::new(Role::Client), NOW),
        answered: 0,
        goaways: Vec::new(),
    };
    let first = client.begin();
    client.end(first);
    while client.answered == 0 {
        assert!(client.read(), "it ended");
    }
    let mut silent = connect();

    fs::write(&path, listen("127.0.0.1:0") + &rest).expect("a file");
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until(|| TcpStream::connect(&second).is_err(), || sidecar.child.log());
    // Each of these clients has not read yet that its connection is to end, or cannot be told.
    let late = client.begin();
    for stream in [&mut idle, &mut silent] {
        stream.write_all(POST).expect("it is open");
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("the response, and the end");
        let told = &told[told.find("HTTP/1.1 200 ").unwrap_or_else(|| panic!("no response: {told}"))..];
        assert!(told.contains("\r\nconnection: close\r\n"), "{told}");
    }
    let last = client.begin();
    client.end(late);
    while client.goaways.len() < 2 {
        assert!(client.read(), "it ended");
    }
    client.end(last);
    while client.read() {}
    assert_eq!((client.answered, &client.goaways[..]), (3, &[i32::MAX as u32, last.0][..]));
    assert!(sidecar.ask(ASK).starts_with("HTTP/1.1 200 "));
    sidecar.stop();
}

#[test]
fn signals_of_other_servers_do_not_end_it() {
    let folder = folder();
    let log = folder.path().join("log");
    let mut command = Command::new(binary());
    command.args(["sidecar", "--listen", "127.0.0.1:0", "--to", &one(), "--access-log"]).arg(&log);
    let sidecar = Sidecar::run(command);
    fs::rename(&log, folder.path().join("log.1")).expect("it is open");
    for signal in [Signal::USR1, Signal::USR2, Signal::PIPE, Signal::HUP] {
        sidecar.child.signal(signal).expect("it runs");
    }
    until_it_says(&sidecar, "SIGUSR2 is ignored", 1);
    assert!(sidecar.ask(ASK).ends_with("one"));
    until(|| fs::read_to_string(&log).is_ok_and(|text| text.contains("GET")), || sidecar.child.log());
    sidecar.stop();
}
