//! Refusals that need more than a line to show: sizes, foreign protocols, ends in the middle. The others: `legality`.

use super::*;
use crate::own_answers::OwnAnswers;
use crate::{Exceeded, Limit};

/// The error with which a server refuses `request`, and the status that it answers.
fn refused(request: &[u8]) -> (Option<Error>, String) {
    let mut server = server();
    let mut seen = Vec::new();
    feed(&mut server, request, &mut seen);
    let answer = text(&sent(&mut server));
    drain(&mut server, &mut seen);
    match seen.pop() {
        Some(Seen::Closed(error)) => (error, answer.get(9..12).unwrap_or_default().to_owned()),
        other => panic!("{other:?} after {}", request.escape_ascii()),
    }
}

/// What a client sees when `response` answers its GET and the server closes.
fn answered(response: &[u8]) -> Vec<Seen> {
    let mut client = client();
    client.send_request(NOW, &GET).unwrap();
    sent(&mut client);
    let mut seen = Vec::new();
    feed(&mut client, response, &mut seen);
    client.handle_eof(NOW);
    drain(&mut client, &mut seen);
    seen
}

#[test]
fn a_head_of_just_the_allowed_size_passes_and_one_byte_more_is_431() {
    let head = |size: usize| {
        let frame = "GET / HTTP/1.1\r\nhost: a\r\nx: \r\n\r\n";
        frame.replace("x: ", &format!("x: {}", "y".repeat(size - frame.len()))).into_bytes()
    };
    for step in [7, usize::MAX] {
        for (size, accepted) in [(500, true), (501, false)] {
            let mut server =
                Connection::new(Config { max_header_list_size: 500, ..Config::new(Role::Server) });
            let mut seen = Vec::new();
            head(size).chunks(step).for_each(|piece| feed(&mut server, piece, &mut seen));
            assert_eq!(seen.contains(&Seen::End(FIRST)), accepted, "{size} bytes in steps of {step}");
            assert_eq!(text(&sent(&mut server)).starts_with("HTTP/1.1 431 "), !accepted);
        }
    }
    let endless = [b"GET / HTTP/1.1\r\nhost: a\r\nx: ".to_vec(), vec![b'y'; 70_000]].concat();
    let too_large = Error::BadHttp1("header fields larger than our limit");
    assert_eq!(refused(&endless), (Some(too_large), "431".to_owned()));
}

#[test]
fn a_proxy_says_in_each_refusal_that_it_was_the_one_and_when() {
    for (request, details) in [
        (&b"GET / HTTP/1.1\r\nbad header: 1\r\n\r\n"[..], "a field name holds"),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n",
            "transfer-encoding other than `chunked`",
        ),
        (
            b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\ncontent-length: 1\r\n\r\n",
            "CONNECT with content (RFC 9110 ?9.3.6)",
        ),
    ] {
        let mut server = server();
        let proxy_status = Some("a; error=http_request_error".to_owned());
        server.own_answers = Some(OwnAnswers { proxy_status, unix_s: Some(|| 784_111_777) }.into());
        feed(&mut server, request, &mut Vec::new());
        let answer = text(&sent(&mut server));
        let said = answer.split("proxy-status: a; error=http_request_error; details=\"").nth(1);
        assert!(said.is_some_and(|said| said.starts_with(details)), "{answer}");
        assert!(answer.contains("\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "{answer}");
    }
}

#[test]
fn another_protocol_is_named_with_what_to_try() {
    let hint = |seen: &[Seen]| match seen {
        [Seen::Closed(Some(Error::WrongProtocol { expected: "HTTP/1.1", hint }))] => *hint,
        other => panic!("{other:?}"),
    };
    let alert = b"\x15\x03\x01\x00\x02\x02\x46";
    assert!(hint(&answered(alert)).contains("https://"));
    let settings = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64";
    assert!(hint(&answered(settings)).contains("h2c"));
    let goaway = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01";
    assert!(hint(&answered(goaway)).contains("h2c"));
    for (opening, word) in
        [(&b"\x16\x03\x01\x02\x00\x01"[..], "TLS"), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2")]
    {
        match refused(opening) {
            (Some(Error::WrongProtocol { hint, .. }), status) => {
                assert!(hint.contains(word));
                assert_eq!(status, "400");
            }
            other => panic!("{other:?}"),
        }
        let (mut server, mut seen) = (server(), Vec::new());
        feed(&mut server, opening, &mut seen);
        assert!(text(&sent(&mut server)).ends_with("\r\n\r\nthis is not HTTP/1.1\n"));
    }
}

#[test]
fn a_first_line_of_an_unknown_protocol_is_not_answered_and_a_wrong_version_is() {
    let answer = |line: &str| refused(format!("{line}\r\nhost: a\r\n\r\n").as_bytes());
    for unknown in ["INVALID CONNECTION PREFACE", "GET / SPDY/3", "PRI * HTPP/2.0"] {
        let (error, status) = answer(unknown);
        assert!(matches!(error, Some(Error::WrongProtocol { .. })), "{unknown}: {error:?}");
        assert_eq!(status, "", "{unknown}");
    }
    let long = format!("GET /{} HTTP/1.1", "x".repeat(70_000));
    for (wrong, status) in [
        ("GET / HTTP/3.0", "505"),
        ("GET /", "400"),
        ("GET", "400"),
        ("GET  / HTTP/1.1", "400"),
        ("GET /a b HTTP/1.1", "400"),
        ("GET /a b c HTTP/1.0", "400"),
        (&long, "414"),
    ] {
        assert_eq!(answer(wrong).1, status, "{wrong:.40}");
    }
    let told = Error::BadHttp1("the request target is longer than our limit");
    assert_eq!(refused(&long.as_bytes()[..66_000]), (Some(told), "414".to_owned()));
    assert_eq!(answer("GET /a b HTTP/1.1").0, Some(Error::BadHttp1("white space in the request target")));
    // The version may still come.
    let mut server = server();
    feed(&mut server, b"GET /a b", &mut Vec::new());
    assert!(sent(&mut server).is_empty());
    feed(&mut server, b" HTTP/1.1\r\n", &mut Vec::new());
    assert!(text(&sent(&mut server)).starts_with("HTTP/1.1 400 "));
}

#[test]
fn a_plain_request_to_a_tls_port_is_answered_as_any_other() {
    // nginx: 400 with this text, in clear.
    let seen = answered(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 5\r\nConnection: close\r\n\r\nplain");
    assert!(matches!(seen[0], Seen::Response { status: 400, .. }));
    assert_eq!(seen[1..], [Seen::Body(b"plain".to_vec()), Seen::End(FIRST), Seen::Closed(None)]);
}

#[test]
fn an_end_in_the_middle_names_the_part_that_is_missing() {
    for (response, part) in [
        ("", "an exchange, before any of the response"),
        ("HTTP/1.1 200 OK\r\n", "a message head"),
        ("HTTP/1.1 100 Continue\r\n\r\n", "an exchange, before any of the response"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nx", "a message body"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n", "a message body"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", "a message body"),
    ] {
        let last = answered(response.as_bytes()).pop();
        assert_eq!(last, Some(Seen::Closed(Some(Error::UnexpectedEof(part)))), "{}", response.escape_debug());
    }
}

#[test]
fn a_hundred_interim_responses_may_come_before_the_final_one() {
    let early = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let last = "HTTP/1.1 204 No Content\r\n\r\n";
    let seen = answered(format!("{}{last}", early.repeat(100)).as_bytes());
    assert_eq!((seen.len(), &seen[101..]), (103, &[Seen::End(FIRST), Seen::Closed(None)][..]));
    let seen = answered(format!("{}{last}", early.repeat(101)).as_bytes());
    let exceeded = Exceeded { limit: Limit::Interims, allowed: 100 };
    assert_eq!((seen.len(), seen.last()), (101, Some(&Seen::Closed(Some(Error::Exceeded(exceeded))))));
}
