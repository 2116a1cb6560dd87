//! What is illegal, beside the nearest form that is legal: a table for each role. `¶` stands for CRLF.
//!
//! A refusal needs a test that it happens, and one that the nearest legal form passes: else it breaks real peers.

use super::*;

/// One rule.
struct Rule {
    /// What breaks it.
    illegal: &'static str,
    /// The nearest form that keeps it.
    legal: &'static str,
    /// The status with which a server answers the illegal form.
    status: u16,
    /// The reason in the refusal.
    reason: &'static str,
}

const fn rule(illegal: &'static str, legal: &'static str, status: u16, reason: &'static str) -> Rule {
    Rule { illegal, legal, status, reason }
}

const LINE_END: &str = "a line does not end with CRLF";
const NAME: &str = "a field name holds an illegal byte or is followed by white space";
const VALUE: &str = "a field value holds a control character";
const REQUEST_LINE: &str = "the request line is malformed";
const STATUS_LINE: &str = "the status line is malformed";
const VERSION: &str = "not HTTP/1.x";
const TARGET: &str = "the request target is malformed";
const HOST: &str = "the host holds an illegal byte";
const NO_HOST: &str = "the host or its port is invalid";
const LENGTH: &str = "content-length is not a number";
const LENGTHS: &str = "two different content-lengths";
const BOTH: &str = "both content-length and transfer-encoding";
const CODING: &str = "transfer-encoding other than `chunked`";
const CODING_1_0: &str = "an HTTP/1.0 message has a transfer-encoding";
const EMPTY_LINE: &str = "an empty line where a message should begin";
const SIZE: &str = "a chunk's size is not a hexadecimal number";
const SIZE_END: &str = "a chunk's size line does not end with CRLF";
const DATA_END: &str = "a chunk's data does not end with CRLF";

/// Requests; the legal form of each is a complete message.
const REQUESTS: &[Rule] = &[
    // Lines (RFC 9112 §2.2): no bare LF, no bare CR, no folding.
    rule("GET / HTTP/1.1\nhost: a¶¶", "GET / HTTP/1.1¶host: a¶¶", 400, LINE_END),
    rule("GET / HTTP/1.1¶host: a\n¶", "GET / HTTP/1.1¶host: a¶¶", 400, LINE_END),
    rule("GET / HTTP/1.1¶host: a¶\n", "GET / HTTP/1.1¶host: a¶¶", 400, LINE_END),
    rule("GET / HTTP/1.1¶host: a\n\n", "GET / HTTP/1.1¶host: a¶¶", 400, LINE_END),
    rule("GET / HTTP/1.1\n\n", "GET / HTTP/1.0¶¶", 400, LINE_END),
    rule("\nGET / HTTP/1.1¶host: a¶¶", "¶¶GET / HTTP/1.1¶host: a¶¶", 400, EMPTY_LINE),
    rule("GET / HTTP/1.1¶host: a¶x: 1¶ 2¶¶", "GET / HTTP/1.1¶host: a¶x: 1 2¶¶", 400, NAME),
    rule("GET / HTTP/1.1¶host: a¶x: 1¶\t2¶¶", "GET / HTTP/1.1¶host: a¶x: 1\t2¶¶", 400, NAME),
    rule("GET / HTTP/1.1¶ host: a¶¶", "GET / HTTP/1.1¶host: a¶¶", 400, NAME),
    // Request lines (§3).
    rule("GET /¶¶", "GET / HTTP/1.0¶¶", 400, REQUEST_LINE),
    rule("G@T / HTTP/1.1¶host: a¶¶", "G!T / HTTP/1.1¶host: a¶¶", 400, REQUEST_LINE),
    rule("GET /\0 HTTP/1.1¶host: a¶¶", "GET /%00 HTTP/1.1¶host: a¶¶", 400, REQUEST_LINE),
    rule("GET / HTTP/2.0¶host: a¶¶", "GET / HTTP/1.1¶host: a¶¶", 505, VERSION),
    rule("GET / HTTP/0.9¶host: a¶¶", "GET / HTTP/1.2¶host: a¶¶", 505, VERSION),
    rule("GET / HTTP/1.x¶host: a¶¶", "GET / HTTP/1.9¶host: a¶¶", 505, VERSION),
    rule("GET / HTTP/1.2¶¶", "GET / HTTP/1.2¶host: a¶¶", 400, "the Host field is missing"),
    rule("GET a HTTP/1.1¶host: a¶¶", "GET /a HTTP/1.1¶host: a¶¶", 400, TARGET),
    rule("GET * HTTP/1.1¶host: a¶¶", "OPTIONS * HTTP/1.1¶host: a¶¶", 400, TARGET),
    rule("GET ftp://a/ HTTP/1.1¶host: a¶¶", "GET HTTPS://b/ HTTP/1.1¶host: a¶¶", 400, TARGET),
    rule("GET http:///c HTTP/1.1¶host: a¶¶", "GET http://b/c HTTP/1.1¶host: a¶¶", 400, TARGET),
    rule("GET http://u@b/ HTTP/1.1¶host: a¶¶", "GET http://b:80/ HTTP/1.1¶host: a¶¶", 400, HOST),
    rule("CONNECT a/b HTTP/1.1¶host: a¶¶", "CONNECT a:443 HTTP/1.1¶host: a¶¶", 400, HOST),
    rule("CONNECT a:65536 HTTP/1.1¶host: a¶¶", "CONNECT a:65535 HTTP/1.1¶host: a¶¶", 400, NO_HOST),
    rule("GET http://b:x/ HTTP/1.1¶host: a¶¶", "GET http://b:/ HTTP/1.1¶host: a¶¶", 400, NO_HOST),
    rule("GET http://?a HTTP/1.1¶host: a¶¶", "GET http://b?a HTTP/1.1¶host: a¶¶", 400, TARGET),
    rule("GET http://b/ HTTP/1.1¶host: a:x¶¶", "GET http://b/ HTTP/1.1¶host: a¶¶", 400, NO_HOST),
    // Fields (§5) and Host (§3.2).
    rule("GET / HTTP/1.1¶host : a¶¶", "GET / HTTP/1.1¶host: \t a¶¶", 400, NAME),
    rule("GET / HTTP/1.1¶host: a¶x y: 1¶¶", "GET / HTTP/1.1¶host: a¶x-y: 1¶¶", 400, NAME),
    rule("GET / HTTP/1.1¶host: a¶: 1¶¶", "GET / HTTP/1.1¶host: a¶x:¶¶", 400, NAME),
    rule("GET / HTTP/1.1¶host: a¶x¶¶", "GET / HTTP/1.1¶host: a¶x:¶¶", 400, NAME),
    rule("GET / HTTP/1.1¶host: a¶x\0: 1¶¶", "GET / HTTP/1.1¶host: a¶x0: 1¶¶", 400, NAME),
    rule("GET / HTTP/1.1¶host: a¶x: a\0b¶¶", "GET / HTTP/1.1¶host: a¶x: a\tb¶¶", 400, VALUE),
    rule("GET / HTTP/1.1¶host: a¶x: a\rb¶¶", "GET / HTTP/1.1¶host: a¶x: a b¶¶", 400, VALUE),
    rule("GET / HTTP/1.1¶host: a¶x: a\x7fb¶¶", "GET / HTTP/1.1¶host: a¶x: aéb¶¶", 400, VALUE),
    rule("GET / HTTP/1.1¶¶", "GET / HTTP/1.1¶host:¶¶", 400, "the Host field is missing"),
    rule("GET / HTTP/1.1¶host: a¶host: a¶¶", "GET / HTTP/1.1¶host: a¶¶", 400, "duplicate Host header"),
    rule("GET / HTTP/1.1¶host: a/b¶¶", "GET / HTTP/1.1¶host: [::1]:80¶¶", 400, HOST),
    rule("GET / HTTP/1.1¶host: a b¶¶", "GET / HTTP/1.1¶host: a.b¶¶", 400, HOST),
    rule("GET / HTTP/1.1¶host: [::1¶¶", "GET / HTTP/1.1¶host: [::1]¶¶", 400, NO_HOST),
    rule("GET / HTTP/1.1¶host: a:99999¶¶", "GET / HTTP/1.1¶host: a:9999¶¶", 400, NO_HOST),
    rule("GET / HTTP/1.1¶host: :80¶¶", "GET / HTTP/1.1¶host:¶¶", 400, NO_HOST),
    rule("GET / HTTP/1.0¶host: a%4¶¶", "GET / HTTP/1.0¶host: a%41¶¶", 400, NO_HOST),
    // Framing (§6).
    rule(
        "POST / HTTP/1.1¶host: a¶content-length: 1¶content-length: 2¶¶xy",
        "POST / HTTP/1.1¶host: a¶content-length: 1¶content-length: 1¶¶x",
        400,
        LENGTHS,
    ),
    rule(
        "POST / HTTP/1.1¶host: a¶content-length: +1¶¶x",
        "POST / HTTP/1.1¶host: a¶content-length: 01¶¶x",
        400,
        LENGTH,
    ),
    rule(
        "POST / HTTP/1.1¶host: a¶content-length: 1, 1¶¶x",
        "POST / HTTP/1.1¶host: a¶content-length:  1 ¶¶x",
        400,
        LENGTH,
    ),
    rule("POST / HTTP/1.1¶host: a¶content-length: 0x1¶¶x", "POST / HTTP/1.1¶host: a¶¶", 400, LENGTH),
    rule(
        "POST / HTTP/1.1¶host: a¶content-length:¶¶",
        "POST / HTTP/1.1¶host: a¶content-length: 0¶¶",
        400,
        LENGTH,
    ),
    rule(
        "POST / HTTP/1.1¶host: a¶content-length: 18446744073709551616¶¶",
        "POST / HTTP/1.1¶host: a¶content-length: 000000000000000000000¶¶",
        400,
        LENGTH,
    ),
    rule(
        "POST / HTTP/1.1¶host: a¶content-length: 5¶transfer-encoding: chunked¶¶0¶¶",
        "POST / HTTP/1.1¶host: a¶transfer-encoding: chunked¶¶0¶¶",
        400,
        BOTH,
    ),
    rule(
        "POST / HTTP/1.1¶host: a¶transfer-encoding: gzip, chunked¶¶0¶¶",
        "POST / HTTP/1.1¶host: a¶transfer-encoding: Chunked¶¶0¶¶",
        501,
        CODING,
    ),
    rule(
        "POST / HTTP/1.1¶host: a¶transfer-encoding: identity¶¶",
        "POST / HTTP/1.1¶host: a¶te: identity¶¶",
        501,
        CODING,
    ),
    rule(
        "POST / HTTP/1.1¶host: a¶transfer-encoding: chunked¶transfer-encoding: chunked¶¶0¶¶",
        "POST / HTTP/1.1¶host: a¶transfer-encoding: chunked¶te: chunked¶¶0¶¶",
        501,
        CODING,
    ),
    rule(
        "POST / HTTP/1.1¶host: a¶transfer-encoding: \x0bchunked¶¶0¶¶",
        "POST / HTTP/1.1¶host: a¶transfer-encoding: \tchunked¶¶0¶¶",
        400,
        VALUE,
    ),
    rule(
        "POST / HTTP/1.0¶transfer-encoding: chunked¶¶0¶¶",
        "POST / HTTP/1.0¶content-length: 5¶¶0¶¶",
        400,
        CODING_1_0,
    ),
];

/// Chunked bodies in either direction, and their trailers (§7.1); the legal form of each is complete.
const CHUNKED: &[Rule] = &[
    rule("x¶", "a¶0123456789¶0¶¶", 400, SIZE),
    rule("¶", "0¶¶", 400, SIZE),
    rule("1 a¶x¶0¶¶", "1 ;¶x¶0¶¶", 400, SIZE),
    rule(" 1¶x¶0¶¶", "1 \t¶x¶0¶¶", 400, SIZE),
    rule("0x1¶x¶0¶¶", "01¶x¶0¶¶", 400, SIZE),
    rule("-1¶", "1¶x¶0¶¶", 400, SIZE),
    rule(
        "10000000000000001¶x",
        "00000000000000001¶x¶0¶¶",
        400,
        "a chunk's size is above 16 hexadecimal digits",
    ),
    rule("1\nx¶0¶¶", "1¶x¶0¶¶", 400, SIZE),
    rule("1\rx¶0¶¶", "1¶x¶0¶¶", 400, SIZE_END),
    rule("1;a=b\nx¶0¶¶", "1;a=\"b\"¶x¶0;c¶¶", 400, SIZE_END),
    rule("1¶xy¶0¶¶", "2¶xy¶0¶¶", 400, DATA_END),
    rule("1¶x\n0¶¶", "1¶x¶0¶¶", 400, DATA_END),
    rule("0¶x: 1\n¶", "0¶x: 1¶¶", 400, LINE_END),
    rule("0¶x: 1¶ 2¶¶", "0¶x: 1 2¶¶", 400, NAME),
    rule("0¶x : 1¶¶", "0¶x: 1¶¶", 400, NAME),
    rule("0¶x: \0¶¶", "0¶x: 0¶¶", 400, VALUE),
];

/// Responses to a GET; the legal form of each is complete, at the latest when the server closes.
const RESPONSES: &[Rule] = &[
    rule("HTTP/1.1 200 OK\ncontent-length: 0¶¶", "HTTP/1.1 200 OK¶content-length: 0¶¶", 0, LINE_END),
    rule("HTTP/1.1 200 OK¶content-length: 0\n¶", "HTTP/1.1 200¶content-length: 0¶¶", 0, LINE_END),
    rule("HTTP/1.1 200 OK¶x: 1¶ 2¶¶", "HTTP/1.1 200 OK¶x: 1 2¶¶", 0, NAME),
    rule("HTTP/1.1 200 OK¶x : 1¶¶", "HTTP/1.1 200 OK¶x: 1¶¶", 0, NAME),
    rule("HTTP/1.1 200 OK¶x: \0¶¶", "HTTP/1.1 200 OK¶x: \t¶¶", 0, VALUE),
    rule("¶HTTP/1.1 200 OK¶¶", "HTTP/1.1 200 OK¶¶", 0, EMPTY_LINE),
    rule("HTTP/1.1 99 ¶¶", "HTTP/1.1 200 ¶¶", 0, STATUS_LINE),
    rule("HTTP/1.1 2000 OK¶¶", "HTTP/1.1 200 0K¶¶", 0, STATUS_LINE),
    rule("HTTP/1.1 099 x¶¶", "HTTP/1.1 600 x¶¶", 0, "the status is below 100"),
    rule("HTTP/1.1 1000 x¶¶", "HTTP/1.1 999 x¶¶", 0, STATUS_LINE),
    rule("HTTP/2 200 OK¶¶", "HTTP/1.0 200 OK¶¶", 0, VERSION),
    rule("HTTP/1.x 200 OK¶¶", "HTTP/1.2 200 OK¶¶", 0, VERSION),
    rule("RTSP/1.0 200 OK¶", "HTTP/1.1 200 RTSP/1.0¶¶", 0, VERSION),
    rule(
        "HTTP/1.1 101 x¶¶",
        "HTTP/1.1 102 x¶¶HTTP/1.1 204 x¶¶",
        0,
        "it switches protocols without a request to",
    ),
    rule(
        "HTTP/1.1 200 OK¶content-length: 1¶content-length: 2¶¶xy",
        "HTTP/1.1 200 OK¶content-length: 1¶content-length: 1¶¶x",
        0,
        LENGTHS,
    ),
    rule(
        "HTTP/1.1 200 OK¶content-length: 1¶transfer-encoding: chunked¶¶0¶¶",
        "HTTP/1.1 200 OK¶transfer-encoding: chunked¶¶0¶¶",
        0,
        BOTH,
    ),
    rule(
        "HTTP/1.1 200 OK¶transfer-encoding: gzip, chunked¶¶0¶¶",
        "HTTP/1.1 200 OK¶content-encoding: gzip¶transfer-encoding: chunked¶¶0¶¶",
        0,
        CODING,
    ),
    rule(
        "HTTP/1.0 200 OK¶transfer-encoding: chunked¶¶0¶¶",
        "HTTP/1.0 200 OK¶content-length: 5¶¶0¶¶",
        0,
        CODING_1_0,
    ),
    rule(
        "HTTP/1.1 204 x¶content-length: 1¶content-length: 2¶¶",
        "HTTP/1.1 204 x¶transfer-encoding: chunked¶¶",
        0,
        LENGTHS,
    ),
];

fn wire(text: &str) -> Vec<u8> {
    text.replace('¶', "\r\n").into_bytes()
}

/// What `connection` sees of `bytes` in pieces of `step`, and what it answers.
fn seen_of(mut connection: Connection, bytes: &[u8], step: usize) -> (Vec<Seen>, Vec<u8>) {
    let mut seen = Vec::new();
    bytes.chunks(step).for_each(|piece| feed(&mut connection, piece, &mut seen));
    let answer = sent(&mut connection);
    drain(&mut connection, &mut seen);
    (seen, answer)
}

/// Tests a rule on a fresh connection; its forms come after `prefix`. `closes`: the peer closes after the legal form.
fn hold(rule: &Rule, prefix: &str, fresh: fn() -> Connection, closes: bool) {
    let illegal = wire(&format!("{prefix}{}", rule.illegal));
    let legal = wire(&format!("{prefix}{}", rule.legal));
    for step in [1, 7, usize::MAX] {
        let (seen, answer) = seen_of(fresh(), &illegal, step);
        let refusal = Seen::Closed(Some(Error::BadHttp1(rule.reason)));
        assert_eq!(seen.last(), Some(&refusal), "{:?} in steps of {step}", rule.illegal);
        let status = rule.status.to_string();
        let answered = text(&answer).get(9..12).map(str::to_owned).unwrap_or_default();
        assert_eq!(answered, if rule.status == 0 { "" } else { &status }, "{:?}", rule.illegal);

        let mut connection = fresh();
        let mut seen = Vec::new();
        legal.chunks(step).for_each(|piece| feed(&mut connection, piece, &mut seen));
        if closes {
            connection.handle_eof(NOW);
            drain(&mut connection, &mut seen);
        }
        assert!(seen.contains(&Seen::End(FIRST)), "{:?} in steps of {step}: {seen:?}", rule.legal);
        let faults = |seen: &Seen| matches!(seen, Seen::Closed(Some(_)));
        assert!(!seen.iter().any(faults), "{:?} in steps of {step}: {seen:?}", rule.legal);
    }
}

/// A client whose GET is out.
fn waiting() -> Connection {
    let mut client = client();
    client.send_request(NOW, &GET).unwrap();
    sent(&mut client);
    client
}

#[test]
fn a_server_refuses_every_illegal_request_by_its_name_and_takes_its_legal_neighbour() {
    for rule in REQUESTS {
        hold(rule, "", server, false);
    }
}

#[test]
fn both_roles_refuse_every_illegal_chunk_by_its_name_and_take_its_legal_neighbour() {
    for rule in CHUNKED {
        hold(rule, "POST / HTTP/1.1¶host: a¶transfer-encoding: chunked¶¶", server, false);
        let response = Rule { status: 0, ..*rule };
        hold(&response, "HTTP/1.1 200 OK¶transfer-encoding: chunked¶¶", waiting, true);
    }
}

#[test]
fn a_client_refuses_every_illegal_response_by_its_name_and_takes_its_legal_neighbour() {
    for rule in RESPONSES {
        hold(rule, "", waiting, true);
    }
}

/// RFC 9110 §6.5.1: they are ignored. The message ends where its chunks do, and what follows is the next one.
#[test]
fn trailers_that_would_frame_or_route_the_message_are_left_out() {
    let head = "POST / HTTP/1.1¶host: a¶transfer-encoding: chunked¶¶0¶";
    let next = "GET /next HTTP/1.1¶host: a¶¶";
    for (trailers, left) in [
        ("content-length: 9¶", vec![]),
        ("Transfer-Encoding: gzip¶x: 1¶host: b¶", vec![("x".to_owned(), "1".to_owned())]),
    ] {
        for step in [1, usize::MAX] {
            let (mut server, mut seen) = (server(), Vec::new());
            let bytes = wire(&format!("{head}{trailers}¶{next}"));
            bytes.chunks(step).for_each(|piece| feed(&mut server, piece, &mut seen));
            let is_left = |seen: &Seen| matches!(seen, Seen::Trailers(all) if *all == left);
            assert_eq!(seen.iter().any(is_left), !left.is_empty(), "{trailers}: {seen:?}");
            assert_eq!(seen.last(), Some(&Seen::End(FIRST)), "{trailers}: {seen:?}");
            server.send_response(NOW, FIRST, &OK);
            sent(&mut server);
            drain(&mut server, &mut seen);
            let is_next = |seen: &Seen| matches!(seen, Seen::Request { path, .. } if path == "/next");
            assert!(seen.iter().any(is_next), "{trailers}: {seen:?}");
        }
    }
}

#[test]
fn as_many_fields_as_there_is_room_for_are_taken_and_one_more_is_431() {
    for (fields, status) in [(255, ""), (256, "431")] {
        let head = format!("GET / HTTP/1.1¶host: a¶{}¶", "x: y¶".repeat(fields));
        let (seen, answer) = seen_of(server(), &wire(&head), usize::MAX);
        assert_eq!(text(&answer).get(9..12).unwrap_or_default(), status, "{fields} fields beside Host");
        assert_eq!(seen.contains(&Seen::End(FIRST)), status.is_empty());
        let refused = Seen::Closed(Some(Error::BadHttp1("too many header fields")));
        assert_eq!(seen.contains(&refused), !status.is_empty());
    }
}

/// Every reason with which this engine refuses a peer's message appears in a test here or in one of the files below: a
/// new refusal needs its test.
#[test]
fn no_refusal_is_without_a_test() {
    let sources = [include_str!("../head.rs"), include_str!("../receive.rs"), include_str!("../body.rs")];
    let tests = [
        include_str!("legality.rs"),
        include_str!("refusals.rs"),
        include_str!("scripted.rs"),
        include_str!("tunnel.rs"),
    ]
    .concat()
        + include_str!("../body.rs").split_once("mod tests").map_or("", |(_, tests)| tests);
    let calls = ["bad(", "with_status(", "return Err("];
    let mut found = 0;
    for source in sources {
        let code = source.split("mod tests").next().unwrap_or_default();
        for reason in calls.iter().flat_map(|call| code.split(call).skip(1)) {
            let Some(reason) = reason.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next())
            else {
                continue;
            };
            // Impossible reasons, and those that only the role can cause.
            let is_ours = reason == "chunk framing in a message without it"
                || reason == "a body shorter than its content-length";
            assert!(is_ours || tests.contains(reason), "no test shows the refusal {reason:?}");
            found += 1;
        }
    }
    assert!(found >= 25, "only {found} refusals were found in the sources");
}
