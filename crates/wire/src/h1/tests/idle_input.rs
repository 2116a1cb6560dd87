//! A server's engine that is replaced by another one whenever it is idle, as when another process takes over the
//! connection.

use super::*;
use crate::ErrorCode;

const REQUEST: &[u8] =
    b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nhost: h\r\n\r\n";

/// The paths and bodies of the requests if the client's bytes arrive in pieces of `piece` bytes, and how often the
/// engine was replaced.
fn served(piece: usize, is_replaced: bool) -> (Vec<Seen>, usize) {
    let (mut engine, mut seen, mut times, mut answered) = (server(), Vec::new(), 0, 0);
    for bytes in REQUEST.chunks(piece) {
        let mut bytes = bytes.to_vec();
        if is_replaced && let Some(input) = engine.idle_input() {
            bytes.splice(0..0, input.to_vec());
            engine = server();
            (times, answered) = (times + 1, 0);
        }
        let mut new = Vec::new();
        feed(&mut engine, &bytes, &mut new);
        loop {
            let ends = new.iter().filter(|seen| matches!(seen, Seen::End(_))).count();
            seen.append(&mut new);
            for _ in 0..ends {
                assert!(engine.idle_input().is_none(), "a response is owed");
                let stream = StreamId::of_request(answered);
                answered += 1;
                let response = Response { status: 200, fields: &[], body_length: Some(2), end_stream: false };
                engine.send_response(NOW, stream, &response);
                engine.send_data(NOW, stream, b"ok", true);
                assert!(engine.idle_input().is_none(), "a response waits");
                sent(&mut engine);
                drain(&mut engine, &mut new);
            }
            if new.is_empty() {
                break;
            }
        }
    }
    assert!(engine.idle_input().is_some_and(<[u8]>::is_empty), "all was answered");
    (seen, times)
}

#[test]
fn another_engine_goes_on_wherever_one_is_idle() {
    let nothing_of_streams = |seen: Vec<Seen>| {
        let text = |seen: Seen| format!("{seen:?}").replace("StreamId(3)", "StreamId(1)");
        seen.into_iter().map(text).collect::<Vec<_>>()
    };
    for piece in 1..=REQUEST.len() {
        let ((other, times), (same, never)) = (served(piece, true), served(piece, false));
        assert_eq!(nothing_of_streams(other), nothing_of_streams(same), "pieces of {piece}");
        assert!(times > 0 && never == 0);
    }
}

#[test]
fn what_has_ended_or_is_to_end_is_not_idle() {
    let mut ended = server();
    ended.handle_eof(NOW);
    assert!(ended.idle_input().is_none());
    let mut ending = server();
    ending.goaway(NOW, ErrorCode::NO_ERROR, b"");
    assert!(ending.idle_input().is_none());
    let mut announced = server();
    announced.announce_end();
    assert!(announced.idle_input().is_some(), "its next response would have said so");
    assert!(client().idle_input().is_none());
}
