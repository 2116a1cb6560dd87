//! Connections that a client opened before it had a request for them.

use super::*;

/// For how long the first request of HTTP/1.1 is taken to have waited for its connection, in milliseconds, if it is sent at `at`:
/// the connection is dialled at 100 ms, established at 120 ms, and with TLS ready at 140 ms.
fn waited(at: u64, is_tls: bool) -> u128 {
    use crate::diagnose::waits::tls::testing::{
        APPLICATION, CLIENT as RANDOM, Ends, SERVER as ANSWER, hello_of,
    };
    let mut ends = Ends::new(0x1301);
    let mut scene = Scene { capture: Capture::new(&ends.key_log()), ..Scene::new(0) };
    scene.packet(Direction::Up, 100, 0, SYN, &[2, 4, 5, 180], &[]);
    scene.packet(Direction::Down, 120, 0, SYN | ACK, &[2, 4, 5, 180], &[]);
    scene.packet(Direction::Up, 120, 1, ACK, &[], &[]);
    let (request, answer) =
        (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &b"HTTP/1.1 204 No Content\r\n\r\n"[..]);
    if is_tls {
        scene.say(Direction::Up, 120, &hello_of(1, RANDOM, 0, false));
        scene.say(Direction::Down, 140, &hello_of(2, ANSWER, 0x1301, true));
        scene.say(Direction::Up, 140, &[20, 3, 3, 0, 1, 1]);
        scene.say(Direction::Up, at, &ends.seal(Direction::Up, APPLICATION, request));
        scene.say(Direction::Down, at + 20, &ends.seal(Direction::Down, APPLICATION, answer));
    } else {
        scene.say(Direction::Up, at, request);
        scene.say(Direction::Down, at + 20, answer);
    }
    let captured = scene.finish();
    let sample = captured.records[0].samples.iter().next().expect("a request");
    sample.sent_at.since(sample.scheduled_at).as_millis()
}

#[test]
fn a_request_of_http1_waited_for_a_connection_that_became_ready_just_before() {
    // The round trip is 20 ms.
    assert_eq!([120, 140, 141, 400].map(|at| waited(at, false)), [20, 40, 0, 0]);
    assert_eq!([140, 160, 161, 400].map(|at| waited(at, true)), [40, 60, 0, 0]);
}
