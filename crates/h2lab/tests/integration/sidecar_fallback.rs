//! Instances that are configured for HTTP/2 and close the connection instead.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::sidecar::{Sidecar, scripted_by_head};
use crate::sidecar_reload::until_it_says;
use crate::support::DEADLINE;

/// The first bytes of HTTP/2.
const PREFACE: &str = "PRI ";

fn answer(mut stream: &TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\none");
}

/// Reads all that comes until the client has ended its direction, so that the close is a FIN and no reset.
fn close_in_good_order(mut stream: TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

fn request(method: &str) -> String {
    format!("{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx")
}

#[test]
fn an_instance_that_closes_without_a_byte_gets_http1_and_no_unsafe_request_twice() {
    let (url, heads) = scripted_by_head(|stream, head| {
        if head.starts_with(PREFACE) {
            return close_in_good_order(stream);
        }
        answer(&stream);
    });
    let sidecar = Sidecar::to(&[url.replace("http://", "h2c://")], &[]);
    // An HTTP/2 server that dies before it sends SETTINGS looks the same, and may have processed the request.
    assert!(sidecar.ask(&request("POST")).starts_with("HTTP/1.1 502 "));
    for n in 0..3 {
        let told = sidecar.ask(&request("POST"));
        assert!(told.starts_with("HTTP/1.1 200 ") && told.ends_with("one"), "{n}: {told}");
    }
    let words = "does not support HTTP/2: falling back to HTTP/1.1";
    until_it_says(&sidecar, words, 1);
    assert_eq!(sidecar.child.log().matches(words).count(), 1, "{}", sidecar.child.log());
    let asked: Vec<String> = heads.try_iter().collect();
    assert_eq!(
        asked.iter().filter(|head| head.starts_with(PREFACE)).count(),
        1,
        "it is remembered: {asked:?}"
    );
}

#[test]
fn one_that_resets_the_connection_gets_http1_and_what_may_be_sent_twice_is() {
    // Closing with unread bytes causes a reset.
    let (url, heads) = scripted_by_head(|stream, head| {
        if !head.starts_with(PREFACE) {
            answer(&stream);
        }
    });
    let sidecar = Sidecar::to(&[url.replace("http://", "h2c://")], &[]);
    let told = sidecar.ask(&request("PUT"));
    assert!(told.starts_with("HTTP/1.1 200 ") && told.ends_with("one"), "{told}");
    let told = sidecar.ask(&request("POST"));
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    let asked: Vec<String> = heads.try_iter().collect();
    assert_eq!(asked.iter().filter(|head| head.starts_with(PREFACE)).count(), 1, "{asked:?}");
}

#[test]
fn one_that_closes_whatever_it_is_asked_is_asked_in_http2_again() {
    let (url, heads) = scripted_by_head(|stream, _| close_in_good_order(stream));
    let sidecar = Sidecar::to(&[url.replace("http://", "h2c://")], &[]);
    let until = Instant::now() + DEADLINE;
    let mut prefaces = 0;
    while prefaces < 2 {
        assert!(Instant::now() < until, "HTTP/2 is tried again");
        assert!(sidecar.ask(&request("POST")).starts_with("HTTP/1.1 502 "));
        prefaces += heads.try_iter().filter(|head| head.starts_with(PREFACE)).count();
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!sidecar.child.log().contains("gets HTTP/1.1"), "{}", sidecar.child.log());
}
