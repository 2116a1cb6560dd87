//! How long a connection may send nothing.

use std::net::Ipv4Addr;
use std::time::Duration;

use h2lab_net::tcp::{ConnectOptions, Listener};
use h2lab_wire::Role;

use super::super::threads::Shared;
use super::*;

/// A connection in clear of which nothing is known, and its client's end.
fn opening() -> (Opening, StreamSocket) {
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
    let address = listener.local_address().expect("an address");
    let client = StreamSocket::connect(&address.into(), &ConnectOptions::default()).expect("it accepts");
    let stream = listener.accept().expect("a connection").expect("it is established");
    let opening = Opening {
        transport: Transport::Stream(ByteStream::clear(stream)),
        first_bytes: Vec::new(),
        listener: 0,
        assignment: Shared::new(1).expect("a wakeup").assign(0),
        client: address,
        named: None,
        is_header_due: false,
        takes_upgrade: true,
        intercepted: None,
        is_idle: false,
        timeout_at: at(10),
    };
    (opening, client)
}

fn at(secs: u64) -> Time {
    Time::from_millis(secs * 1_000)
}

#[test]
fn a_first_request_has_the_time_of_any_other_one_and_its_head_that_of_any_head() {
    let mut limits = Limits::new(Role::Server);
    for (idle, until) in [(Some(75), at(75)), (Some(1), at(1)), (None, Time::NEVER)] {
        limits.idle = idle.map(Duration::from_secs);
        let (mut opening, _client) = opening();
        assert!(opening.wait(&limits, Time::ZERO));
        assert_eq!(opening.timeout_at, until, "{idle:?}");
        assert!(!opening.wait(&limits, at(1)), "it has begun already");
        // As much of a request as of the preface of HTTP/2.
        opening.first_bytes.push(b'P');
        assert!(opening.wait(&limits, at(2)));
        assert_eq!(opening.timeout_at, at(12), "{idle:?}");
        opening.first_bytes.push(b'R');
        assert!(!opening.wait(&limits, at(3)), "no byte makes it longer");
    }
}

#[test]
fn what_comes_before_the_first_request_has_ten_seconds() {
    let limits = Limits::new(Role::Server);
    let (mut opening, _client) = opening();
    opening.is_header_due = true;
    assert!(!opening.wait(&limits, Time::ZERO));
    assert_eq!(opening.timeout_at, at(10));
    opening.is_header_due = false;
    assert!(opening.wait(&limits, at(3)));
    assert_eq!(opening.timeout_at, at(78));
}
