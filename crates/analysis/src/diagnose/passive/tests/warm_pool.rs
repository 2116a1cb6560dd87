//! Connections that a client opened before it had a request for them.

use super::*;

use crate::diagnose::waits::tls::testing::{
    APPLICATION, CLIENT as RANDOM, Ends, HANDSHAKE, SERVER as ANSWER, hello_of, record,
};
use h2lab_wire::trace::Direction::{Down, Up};

/// For how long the first request of HTTP/1.1 is taken to have waited for its connection, in milliseconds, if it is
/// sent at `at`. The connection is dialled at 100 ms, established at 120 ms, and ready at 140 ms over TLS 1.3, or at
/// 160 ms over TLS 1.2.
fn waited(at: u64, suite: Option<u16>) -> u128 {
    waited_after(at, suite, None)
}

/// The same where the server acknowledges the end of the client's handshake at `acked`.
fn waited_after(at: u64, suite: Option<u16>, acked: Option<u64>) -> u128 {
    let mut ends = Ends::new(suite.unwrap_or(0x1301));
    let mut scene = Scene { capture: Capture::new(&ends.key_log()), ..Scene::new(0) };
    scene.packet(Up, 100, 0, SYN, &[2, 4, 5, 180], &[]);
    scene.packet(Down, 120, 0, SYN | ACK, &[2, 4, 5, 180], &[]);
    scene.packet(Up, 120, 1, ACK, &[], &[]);
    let mut request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let mut answer = b"HTTP/1.1 204 No Content\r\n\r\n".to_vec();
    if let Some(suite) = suite {
        scene.say(Up, 120, &hello_of(1, RANDOM, 0, false));
        scene.say(Down, 140, &hello_of(2, ANSWER, suite, ends.is_tls13));
        let change = record(20, &[1]);
        if ends.is_tls13 {
            scene.say(Up, 140, &change);
        } else {
            for (way, at) in [(Up, 140), (Down, 160)] {
                let finished = ends.seal(way, HANDSHAKE, &[20; 16]);
                scene.say(way, at, &[change.clone(), finished].concat());
            }
        }
        request = ends.seal(Up, APPLICATION, &request);
        answer = ends.seal(Down, APPLICATION, &answer);
    }
    if let Some(acked) = acked {
        let place = scene.next(Down, &[]);
        scene.packet(Down, acked, place, ACK, &[], &[]);
    }
    scene.say(Up, at, &request);
    scene.say(Down, at + 20, &answer);
    let captured = scene.finish();
    let sample = captured.records[0].samples.iter().next().expect("a request");
    sample.sent_at.since(sample.scheduled_at).as_millis()
}

#[test]
fn a_request_of_http1_waited_for_a_connection_that_became_ready_just_before() {
    // The round trip is 20 ms.
    assert_eq!([120, 140, 141, 400].map(|at| waited(at, None)), [20, 40, 0, 0]);
    assert_eq!([140, 160, 161, 400].map(|at| waited(at, Some(0x1301))), [40, 60, 0, 0]);
    assert_eq!([160, 180, 181, 400].map(|at| waited(at, Some(0xc02f))), [60, 80, 0, 0]);
}

#[test]
fn a_request_that_the_kernel_held_until_the_handshake_was_acknowledged_waited_for_its_connection() {
    let held = |at| waited_after(at, Some(0x1301), Some(200));
    assert_eq!([200, 205, 206, 400].map(held), [100, 105, 0, 0]);
    assert_eq!(waited_after(200, None, Some(200)), 0, "without TLS nothing was sent before");
}
