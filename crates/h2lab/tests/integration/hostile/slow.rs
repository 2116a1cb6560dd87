use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{flag, kind};

use super::attacker::{block, frame, initial_window, request, window_update};
use super::{Attacker, attack};
use crate::support::DEADLINE;

const END: u8 = flag::END_STREAM;

/// The short value of the bound under test. It also applies to the well-behaved client, however long that is delayed.
const SHORT: Duration = Duration::from_secs(3);
/// The bound of a connection without requests, in tests of another bound.
const LONGER: &str = "--limit=idle=6s";

/// `--limit NAME=…` with the short bound.
fn short(name: &str) -> String {
    format!("--limit={name}={}ms", SHORT.as_millis())
}

/// All that the origin sends until it closes.
fn read_to_end(mut stream: &TcpStream) -> String {
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("the origin closes in good order");
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn heads_that_never_end() {
    let headers = frame(kind::HEADERS, END, 1, &block("GET", "/")[..5]);
    let begun = request(1, END, "GET", "/")[..12].to_vec();
    for bytes in [headers, begun] {
        let received = attack(&[&short("head")], |origin| {
            let mut attacker = Attacker::new(origin.clear);
            attacker.send(&bytes);
            attacker.until_closed()
        });
        received.assert_calmed("slow-head: a head took more than 3000 ms");
    }
    let answer = attack(&[&short("head")], |origin| {
        let mut stream = origin.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").unwrap();
        read_to_end(&stream)
    });
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn connections_on_which_nothing_comes() {
    for preface in [&b""[..], b"PR"] {
        let said = attack(&[&short("head")], |origin| {
            let mut stream = origin.connect();
            stream.write_all(preface).unwrap();
            read_to_end(&stream)
        });
        assert_eq!(said, "");
    }
    attack(&[&short("head")], |origin| {
        let mut stream = TcpStream::connect(origin.tls).unwrap();
        stream.write_all(&[0x16, 3, 1]).unwrap(); // the beginning of a TLS record
        assert_eq!(read_to_end(&stream), "");
    });
}

#[test]
fn connections_without_requests() {
    let received = attack(&[&short("idle")], |origin| Attacker::new(origin.clear).until_closed());
    assert_eq!(received.goaway, Some((ErrorCode::NO_ERROR, "idle: nothing happened for 3000 ms".to_owned())));
    let said = attack(&[&short("idle")], |origin| {
        let mut stream = origin.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        read_to_end(&stream)
    });
    assert!(said.starts_with("HTTP/1.1 200 ") && said.matches("HTTP/1.1").count() == 1, "{said}");
}

#[test]
fn bodies_that_come_too_slowly() {
    let received = attack(&[&short("body-period"), LONGER], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        attacker.send(&[request(1, 0, "POST", "/echo"), frame(kind::DATA, 0, 1, b"x")].concat());
        attacker.until_closed()
    });
    assert_eq!(received.resets, [(1, ErrorCode::ENHANCE_YOUR_CALM)]);
    assert_eq!(received.goaway.map(|goaway| goaway.0), Some(ErrorCode::NO_ERROR), "the connection went on");
    let answer = attack(&[&short("body-period")], |origin| {
        let mut stream = origin.connect();
        stream.write_all(b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nx").unwrap();
        read_to_end(&stream)
    });
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn windows_that_stay_closed() {
    let received = attack(&[&short("stall"), LONGER], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        attacker.send(&[initial_window(0), request(1, END, "GET", "/stream/100000")].concat());
        attacker.until_closed()
    });
    assert_eq!((received.resets, received.data.len()), (vec![(1, ErrorCode::ENHANCE_YOUR_CALM)], 0));
    assert_eq!(received.goaway.map(|goaway| goaway.0), Some(ErrorCode::NO_ERROR), "the connection went on");
}

#[test]
fn windows_that_open_byte_by_byte() {
    let received = attack(&[&short("stall"), "--limit=small-data-frames=50", LONGER], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        attacker.send(&[initial_window(1), request(1, END, "GET", "/bytes/1M")].concat());
        attacker.flood(1_000, |_| window_update(1, 1));
        attacker.until_closed()
    });
    assert_eq!(received.resets, [(1, ErrorCode::ENHANCE_YOUR_CALM)]);
    let (fair, small_data_frames): (Vec<usize>, Vec<usize>) =
        received.data.iter().partition(|length| **length >= 1_024);
    println!("{} dribbles, {} fair pieces", small_data_frames.len(), fair.len());
    assert!(small_data_frames.len() <= 51, "{small_data_frames:?}");
}
