//! Buffers that are lent to a server's connection.

use super::*;
use crate::h1::Buffers;

const REQUEST: &[u8] =
    b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nhost: h\r\n\r\n";

/// What a role sees and what the server sends if the requests arrive in pieces of `piece` bytes. `lends`: the buffers
/// are taken back and lent again between the pieces.
fn served(piece: usize, lends: bool) -> (Vec<Seen>, String) {
    let mut server = server();
    let (mut seen, mut answers, mut spare) = (Vec::new(), Vec::new(), Buffers::default());
    for bytes in REQUEST.chunks(piece) {
        if lends && server.wants_buffers() {
            server.lend_buffers(std::mem::take(&mut spare));
        }
        feed(&mut server, bytes, &mut seen);
        spare = server.take_buffers().filter(|_| lends).unwrap_or(spare);
        let ends = seen.iter().filter(|seen| matches!(seen, Seen::End(_))).count();
        for answered in answers.len()..ends {
            let stream = StreamId::of_request(answered as u32);
            let response = Response { status: 200, fields: &[], body_length: Some(2), end_stream: false };
            server.send_response(NOW, stream, &response);
            assert!(server.take_buffers().is_none(), "a response waits");
            server.send_data(NOW, stream, b"ok", true);
            answers.push(text(&sent(&mut server)));
            drain(&mut server, &mut seen);
            if lends {
                spare = server.take_buffers().unwrap_or(spare);
            }
        }
    }
    (seen, answers.concat())
}

#[test]
fn a_server_says_the_same_whether_its_memory_is_lent_or_its_own() {
    for piece in 1..=REQUEST.len() {
        assert_eq!(served(piece, true), served(piece, false), "pieces of {piece}");
    }
}

#[test]
fn an_idle_server_holds_nothing_but_itself_and_is_small() {
    let mut server = server();
    feed(&mut server, b"GET / HTTP/1.1\r\nhost: h\r\n\r\n", &mut Vec::new());
    assert!(server.take_buffers().is_some(), "it waits for us");
    let response = Response { status: 200, fields: &[], body_length: None, end_stream: true };
    server.send_response(NOW, StreamId::of_request(0), &response);
    sent(&mut server);
    server.lend_buffers(Buffers::default());
    let _ = server.take_buffers();
    server.release_memory();
    assert_eq!(server.held_bytes(), size_of::<crate::h1::Connection>());
    assert!(size_of::<crate::h1::Connection>() <= 600, "{}", size_of::<crate::h1::Connection>());
}

#[test]
fn what_is_under_way_keeps_its_memory() {
    let mut server = server();
    feed(&mut server, b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\n", &mut Vec::new());
    assert!(server.take_buffers().is_none(), "a body comes");
    feed(&mut server, b"abcGE", &mut Vec::new());
    assert!(server.take_buffers().is_none(), "the next request has begun to come");
    let mut client = client();
    client.send_request(NOW, &GET).unwrap();
    sent(&mut client);
    client.recv_space();
    assert!(!client.wants_buffers() && client.take_buffers().is_none(), "it is a client's");
}
