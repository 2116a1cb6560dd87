//! A session against a socket that has more than it will read at a time.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Instant;

use h2lab_model::scenario::Scenario;
use h2lab_model::workload::Protocol;

use super::*;
use crate::client::connect::{Dial, DialState};
use crate::client::request::{Prepared, RequestKind};
use h2lab_net::reactor::{Completion, Reactor, Token};
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::TlsOptions;

/// Far above what any step takes.
const DEADLINE: Duration = Duration::from_secs(60);
/// What a session may read in one turn: 1 MiB, and the read that goes beyond it.
const MOST: u64 = (1 << 20) + (256 << 10);

/// Dials `address` and opens a session on it, in clear, with this bound on what may wait for the server to read it.
fn open(
    clock: Clock,
    address: std::net::SocketAddr,
    protocol: Protocol,
    unread_output: usize,
) -> ClientSession {
    let endpoint = Endpoint::from(address);
    let mut target = DialTarget::new(endpoint, protocol, "localhost", &TlsOptions::default(), None).unwrap();
    target.tap = false;
    target.engine.limits.unread_output = unread_output;
    let mut reactor = Reactor::new(clock).unwrap();
    let DialState::Pending(dial) = Dial::begin(&mut reactor, Token(0), 0, &target, u32::MAX, clock.now())
    else {
        panic!("it cannot be dialled");
    };
    let result = loop {
        reactor.wait(clock.now() + DEADLINE).unwrap();
        if let Some(Completion::Connected { result, .. }) = reactor.next_completion() {
            break result;
        }
    };
    let DialState::Established(established) = dial.connected(result, &target, clock.now()) else {
        panic!("it is not connected");
    };
    ClientSession::open(established, &target, 100, u32::MAX, clock.now())
}

/// How many bytes the kernel holds for the session once no more arrive, because the server's writes wait for room.
fn piled_up(session: &ClientSession) -> u64 {
    let mut before = 0;
    loop {
        (0..1_000).for_each(|_| std::thread::yield_now());
        let waiting = rustix::io::ioctl_fionread(session.transport.tcp().expect("it is TCP")).unwrap();
        if waiting == before {
            return waiting;
        }
        before = waiting;
    }
}

#[test]
fn a_server_that_never_stops_sending_is_left_after_a_mebibyte() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        let mut taken = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while taken.is_ok() {
            taken = stream.write_all(&vec![b'!'; 64 << 10]);
        }
    });
    let clock = Clock::start();
    let mut session = open(clock, address, Protocol::H1, 1 << 20);
    let work = Scenario::default().plan().remove(0).work;
    let kinds = RequestKind::all(&work);
    let prepared = Prepared::new(&work, &kinds, "localhost", 1).unwrap();
    session.begin(clock.now(), 0, 0, &prepared, &mut NoObserver).expect("it is idle");
    session.flush(clock, &prepared, &mut NoObserver);
    let until = Instant::now() + DEADLINE;
    loop {
        let waiting = piled_up(&session);
        let before = session.bytes_received();
        session.receive(clock, false, &prepared, &mut NoObserver);
        let read = session.bytes_received() - before;
        assert!(read <= MOST, "{read} bytes in one turn");
        // The kernel makes room for this much only if the reader reads a lot, and only gradually.
        if waiting > MOST {
            assert!(read > 1 << 20 && session.has_unread(), "{read} of {waiting} bytes");
            break;
        }
        assert!(Instant::now() < until, "the kernel never had more than {waiting} bytes for us");
    }
    drop(session);
    server.join().unwrap();
}

#[test]
fn no_request_is_begun_while_too_much_of_those_before_it_was_not_taken() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let clock = Clock::start();
    let mut session = open(clock, listener.local_addr().unwrap(), Protocol::H2c, 500);
    let work = Scenario::default().plan().remove(0).work;
    let kinds = RequestKind::all(&work);
    let prepared = Prepared::new(&work, &kinds, "localhost", 1).unwrap();
    let begin_all = |session: &mut ClientSession, from: u32| {
        let mut begun = 0;
        while session.begin(clock.now(), from + begun, 0, &prepared, &mut NoObserver).is_some() {
            assert!(session.engine.unsent() < 2_000, "{begun} have been begun");
            begun += 1;
        }
        begun
    };
    let first = begin_all(&mut session, 0);
    assert!((1..100).contains(&first) && session.available() == 0, "{first} of 100 streams");
    session.flush(clock, &prepared, &mut NoObserver);
    assert!(session.available() > 0, "the socket took all");
    assert!(begin_all(&mut session, first) > 0);
}

/// Notes how each request ended.
#[derive(Default)]
struct Ends(Vec<RequestEnd>);

impl RequestObserver for Ends {
    fn sent(&mut self, _: u32, _: Time, _: Duration) {}
    fn head(&mut self, _: u32, _: Time, _: &h2lab_wire::ResponseHead<'_>) {}
    fn body(&mut self, _: u32, _: &[u8]) {}
    fn ended(&mut self, _: u32, _: Time, end: RequestEnd) {
        self.0.push(end);
    }
}

/// How a second request ends if its connection is closed before it is sent, or as soon as the server has read it.
fn second_end(reads_it: bool) -> RequestEnd {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let clock = Clock::start();
    let mut session = open(clock, listener.local_addr().unwrap(), Protocol::H1, 1 << 20);
    let (mut server, _) = listener.accept().unwrap();
    let work = Scenario::default().plan().remove(0).work;
    let kinds = RequestKind::all(&work);
    let prepared = Prepared::new(&work, &kinds, "localhost", 1).unwrap();
    let (mut ends, mut head) = (Ends::default(), vec![0; 1 << 16]);
    let ask = |session: &mut ClientSession, ends: &mut Ends, number| {
        session.begin(clock.now(), number, 0, &prepared, ends).expect("it is idle");
        session.flush(clock, &prepared, ends);
    };
    ask(&mut session, &mut ends, 0);
    let asked = server.read(&mut head).unwrap();
    server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    session.receive(clock, false, &prepared, &mut ends);
    assert_eq!(ends.0, [RequestEnd::Complete]);
    if reads_it {
        ask(&mut session, &mut ends, 1);
        server.read_exact(&mut head[..asked]).unwrap();
    }
    drop(server);
    if !reads_it {
        ask(&mut session, &mut ends, 1);
    }
    session.receive(clock, true, &prepared, &mut ends);
    assert!(session.end().is_some());
    ends.0[1]
}

#[test]
fn a_request_has_certainly_not_arrived_only_if_the_server_had_closed_before_it_was_sent() {
    for may_have_arrived in [false, true] {
        let end = RequestEnd::Unanswered { outcome: Outcome::Closed, may_have_arrived };
        assert_eq!(second_end(may_have_arrived), end);
    }
}
