//! A slow peer, on both sides of each bound, in virtual time.

use std::time::Duration;

use super::*;
use crate::{Exceeded, Limit};

/// A server and its clock.
struct Waiting {
    server: Connection,
    now: Time,
    seen: Vec<Seen>,
}

impl Waiting {
    fn new() -> Self {
        let mut waiting = Self { server: server(), now: Time::from_millis(5), seen: Vec::new() };
        waiting.server.poll_transmit(waiting.now);
        waiting
    }

    fn receive(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(1024) {
            let space = self.server.recv_space();
            space[..piece.len()].copy_from_slice(piece);
            self.server.handle_received(self.now, piece.len());
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(event) = self.server.poll_event(self.now) {
            match event {
                Event::Closed { error } => self.seen.push(Seen::Closed(error)),
                Event::Request { stream, .. } | Event::Data { stream, .. } => {
                    self.seen.push(Seen::End(stream));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Lets time pass; returns what the server then sends.
    fn wait(&mut self, time: Duration) -> String {
        self.now += time;
        if self.server.poll_timeout() <= self.now {
            self.server.handle_timeout(self.now);
        }
        self.drain();
        let bytes = self.server.poll_transmit(self.now).to_vec();
        self.server.handle_transmitted(self.now, bytes.len());
        self.drain();
        text(&bytes)
    }

    #[track_caller]
    fn assert_exceeded(&self, limit: Limit, allowed: u64) {
        assert_eq!(self.seen.last(), Some(&Seen::Closed(Some(Error::Exceeded(Exceeded { limit, allowed })))));
        assert_eq!(self.server.counters().limits_hit[limit as usize], 1);
        assert_eq!(self.server.poll_timeout(), Time::NEVER);
    }
}

const MS: Duration = Duration::from_millis(1);

/// A millisecond less than `n` seconds.
const fn just_below(n: u64) -> Duration {
    Duration::from_millis(n * 1_000 - 1)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n";

#[test]
fn a_head_has_ten_seconds_however_many_bytes_come() {
    let mut peer = Waiting::new();
    peer.receive(b"GET / HTTP/1.1\r\n");
    for _ in 0..9 {
        assert_eq!(peer.wait(seconds(1)), "");
        peer.receive(b"x: 1\r\n");
    }
    assert_eq!(peer.wait(just_below(1)), "");
    assert!(peer.wait(MS).starts_with("HTTP/1.1 408 Request Timeout\r\n"));
    peer.assert_exceeded(Limit::SlowHead, 10_000);
}

#[test]
fn a_head_that_is_complete_in_time_and_trailers_of_their_own_time_are_fine() {
    let mut peer = Waiting::new();
    peer.receive(b"POST / HTTP/1.1\r\nhost: a\r\n");
    peer.wait(seconds(9));
    peer.receive(b"transfer-encoding: chunked\r\n\r\n0\r\n");
    assert_eq!(peer.wait(seconds(9)), "");
    assert!(peer.wait(seconds(1)).contains(" 408 "));
    peer.assert_exceeded(Limit::SlowHead, 10_000);
}

#[test]
fn a_body_must_keep_to_240_bytes_a_second() {
    for (bytes, fate) in [(2_400, ""), (2_399, "HTTP/1.1 408 Request Timeout\r\n")] {
        let mut peer = Waiting::new();
        peer.receive(HEAD);
        peer.receive(&vec![b'x'; bytes]);
        assert_eq!(peer.wait(just_below(10)), "");
        assert!(peer.wait(MS).starts_with(fate));
        assert_eq!(peer.server.counters().limits_hit[Limit::SlowBody as usize], u32::from(!fate.is_empty()));
    }
}

#[test]
fn a_client_that_waits_for_our_100_or_has_its_answer_is_not_slow() {
    let mut peer = Waiting::new();
    peer.receive(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n");
    assert_eq!(peer.wait(seconds(60)), "");

    let mut peer = Waiting::new();
    peer.receive(HEAD);
    peer.server.send_response(peer.now, FIRST, &Response { body_length: None, end_stream: false, ..OK });
    peer.wait(Duration::ZERO);
    assert_eq!(peer.wait(seconds(60)), "");
}

#[test]
fn a_connection_between_requests_ends_after_75_seconds_without_a_word() {
    let mut peer = Waiting::new();
    assert_eq!(peer.wait(just_below(75)), "");
    assert_eq!(peer.seen, []);
    assert_eq!(peer.wait(MS), "");
    assert_eq!(peer.seen, [Seen::Closed(None)]);
    assert_eq!(peer.server.counters().limits_hit[Limit::Idle as usize], 1);
}

#[test]
fn output_that_nobody_takes_ends_the_connection_after_30_seconds() {
    let mut peer = Waiting::new();
    peer.receive(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    peer.server.send_response(peer.now, FIRST, &OK);
    assert!(!peer.server.poll_transmit(peer.now).is_empty());
    peer.now += seconds(30);
    assert_eq!(peer.server.poll_timeout(), peer.now);
    peer.server.handle_timeout(peer.now);
    peer.drain();
    peer.assert_exceeded(Limit::Stall, 30_000);
}

#[test]
fn a_client_leaves_it_to_its_role_how_long_it_waits() {
    let mut client = client();
    client.send_request(NOW, &GET).unwrap();
    feed(&mut client, b"HTTP/1.1 200 OK\r\n", &mut Vec::new());
    assert!(!client.poll_transmit(NOW).is_empty());
    assert_eq!(client.poll_timeout(), Time::NEVER);
}
