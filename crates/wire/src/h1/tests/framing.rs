//! Where messages end: every framing of RFC 9112 §6.3, whether the connection stays open, and what surrounds a message
//! on the wire.

use super::*;
use crate::Field;

/// A response and what a client makes of it.
struct Case {
    method: &'static str,
    response: &'static str,
    body: &'static str,
    /// The connection takes another request afterwards.
    stays: bool,
}

const fn case(method: &'static str, response: &'static str, body: &'static str, stays: bool) -> Case {
    Case { method, response, body, stays }
}

const CASES: &[Case] = &[
    case("GET", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", "abc", true),
    case("GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc", true),
    case("GET", "HTTP/1.1 200 OK\r\n\r\nabc", "abc", false),
    case("GET", "HTTP/1.1 200 OK\r\nconnection: keep-alive\r\n\r\nabc", "abc", false),
    case("GET", "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc", "abc", false),
    case("GET", "HTTP/1.0 200 OK\r\n\r\nabc", "abc", false),
    case("GET", "HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nabc", "abc", false),
    case("GET", "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nabc", "abc", true),
    case("GET", "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n\r\nabc", "abc", false),
    // No body, whatever the fields say (RFC 9112 §6.3, rule 1).
    case("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", "", true),
    case("HEAD", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "", true),
    case("HEAD", "HTTP/1.1 200 OK\r\n\r\n", "", true),
    case("GET", "HTTP/1.1 204 No Content\r\n\r\n", "", true),
    case("GET", "HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\n", "", true),
    case("GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 3\r\n\r\n", "", true),
    case("GET", "HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n", "", true),
    // The framing of an interim response is ignored, too.
    case(
        "GET",
        "HTTP/1.1 103 Early Hints\r\ncontent-length: 9\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        "abc",
        true,
    ),
];

#[test]
fn each_response_ends_where_its_framing_says_however_it_is_cut() {
    for case in CASES {
        for step in 1..=case.response.len() {
            let (mut client, mut seen) = (client(), Vec::new());
            client.send_request(NOW, &Request { method: case.method, ..GET }).unwrap();
            sent(&mut client);
            case.response.as_bytes().chunks(step).for_each(|piece| feed(&mut client, piece, &mut seen));
            if !case.stays && !seen.contains(&Seen::End(FIRST)) {
                client.handle_eof(NOW);
                drain(&mut client, &mut seen);
            }
            let body: Vec<u8> = seen
                .iter()
                .filter_map(|seen| if let Seen::Body(body) = seen { Some(body.as_slice()) } else { None })
                .flatten()
                .copied()
                .collect();
            assert_eq!(text(&body), case.body, "{} {:?}", case.method, case.response);
            assert!(seen.contains(&Seen::End(FIRST)), "{:?} in steps of {step}", case.response);
            assert_eq!(client.available_streams(), u32::from(case.stays), "{:?}", case.response);
            assert_eq!(seen.contains(&Seen::Closed(None)), !case.stays, "{:?}", case.response);
        }
    }
}

/// Requests of every framing in a row; the last closes the connection.
const PIPELINE: &[u8] = b"HEAD /1 HTTP/1.1\r\nhost: a\r\n\r\n\
    POST /2 HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc\
    POST /3 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1;x=y\r\nd\r\n2\r\nef\r\n0\r\nx-sum: 6\r\n\r\n\
    GET /4 HTTP/1.0\r\nconnection: keep-alive\r\n\r\n\
    GET /5 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n\
    GET /6 HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn pipelined_requests_of_every_framing_are_answered_in_order_until_one_ends_the_connection() {
    for step in (1..60).chain([PIPELINE.len()]) {
        let (mut server, mut seen, mut answers) = (server(), Vec::new(), Vec::new());
        let mut answered = 0;
        for piece in PIPELINE.chunks(step) {
            feed(&mut server, piece, &mut seen);
            // The role answers each complete request before it looks for the next.
            while seen.contains(&Seen::End(StreamId::of_request(answered))) {
                let stream = StreamId::of_request(answered);
                let body = [b'a' + answered as u8];
                let response = Response { body_length: Some(1), end_stream: false, ..OK };
                server.send_response(NOW, stream, &response);
                server.send_data(NOW, stream, &body, true);
                answers.extend(sent(&mut server));
                answered += 1;
                drain(&mut server, &mut seen);
            }
        }
        let paths: Vec<&str> = seen
            .iter()
            .filter_map(|seen| if let Seen::Request { path, .. } = seen { Some(path.as_str()) } else { None })
            .collect();
        assert_eq!(paths, ["/1", "/2", "/3", "/4", "/5"], "in steps of {step}");
        for body in ["abc", "def"] {
            assert!(seen.contains(&Seen::Body(body.into())), "in steps of {step}: {seen:?}");
        }
        assert!(seen.contains(&Seen::Trailers(vec![("x-sum".to_owned(), "6".to_owned())])));
        assert_eq!(seen.last(), Some(&Seen::Closed(None)), "nothing after the last is read");
        let wire = text(&answers);
        let bodies: Vec<&str> = wire
            .split("\r\n\r\n")
            .skip(1)
            .map(|rest| rest.split("HTTP/").next().unwrap_or_default())
            .collect();
        assert_eq!(bodies, ["", "b", "c", "d", "e"], "HEAD has none, the others follow in order");
        assert_eq!(
            (wire.matches("connection: keep-alive").count(), wire.matches("connection: close").count()),
            (1, 1)
        );
    }
}

#[test]
fn a_client_holds_its_body_back_until_it_is_invited_or_gives_up_on_the_final_word() {
    let request = Request { body_length: Some(4), fields: &[Field::new("expect", "100-continue")], ..POST };
    for (word, invited) in [
        ("HTTP/1.1 100 Continue\r\n\r\n", true),
        ("HTTP/1.1 417 Expectation Failed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", false),
    ] {
        let (mut client, mut seen) = (client(), Vec::new());
        client.send_request(NOW, &request).unwrap();
        let head = text(&sent(&mut client));
        assert!(head.contains("expect: 100-continue\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        feed(&mut client, word.as_bytes(), &mut seen);
        assert_eq!(seen.contains(&Seen::Interim(100)), invited);
        // A refusal that ends the connection leaves no connection to send the body on.
        assert_eq!(client.send_data(NOW, FIRST, b"body", true), if invited { 4 } else { 0 });
        assert_eq!(text(&sent(&mut client)), if invited { "body" } else { "" });
        if invited {
            feed(&mut client, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", &mut seen);
        }
        assert!(seen.contains(&Seen::End(FIRST)));
        assert_eq!(client.available_streams(), u32::from(invited));
    }
}

/// The number of bytes that is expected after each byte of a response.
fn expected(response: &str) -> Vec<u64> {
    let (mut client, mut seen) = (client(), Vec::new());
    client.send_request(NOW, &GET).unwrap();
    sent(&mut client);
    let mut after = |byte: &u8| {
        feed(&mut client, &[*byte], &mut seen);
        client.expected()
    };
    response.as_bytes().iter().map(&mut after).collect()
}

#[test]
fn what_is_left_of_a_body_or_of_its_chunk_is_known() {
    let whole = expected("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc");
    assert_eq!(whole[whole.len() - 5..], [0, 3, 2, 1, 0]);
    let chunks = expected("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(chunks[chunks.len() - 13..], [0, 0, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(expected("HTTP/1.1 200 OK\r\n\r\nabc").iter().all(|left| *left == 0), "until it closes");
}
