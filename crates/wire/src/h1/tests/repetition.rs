//! Repeated heads look the same, on the wire and to the role, as if each were the first.

use super::*;
use crate::Field;

const ANSWER: &str = "HTTP/1.1 200 OK\r\nServer: a\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn a_request_that_is_sent_again_has_the_same_bytes_and_counts_the_same() {
    let fields = [Field::new("x-a", "1")];
    let post = Request { fields: &fields, body_length: Some(2), ..POST };
    for request in [Request { fields: &fields, ..GET }, post, Request { method: "HEAD", ..GET }] {
        let (mut fresh, mut again) = (client(), client());
        let mut seen = Vec::new();
        for n in 0..4 {
            fresh.send_request(NOW, &request).unwrap();
            let stream = if n == 0 {
                again.send_request(NOW, &request)
            } else {
                again.send_request_again(NOW, &request)
            };
            for client in [&mut fresh, &mut again] {
                client.send_data(NOW, stream.unwrap(), b"ok", !request.end_stream);
            }
            assert_eq!(text(&sent(&mut again)), text(&sent(&mut fresh)), "request {n}");
            let answer = if request.method == "HEAD" { ANSWER.trim_end_matches("ok") } else { ANSWER };
            feed(&mut fresh, answer.as_bytes(), &mut Vec::new());
            feed(&mut again, answer.as_bytes(), &mut seen);
            assert!(seen.contains(&Seen::End(stream.unwrap())));
        }
        assert_eq!(again.counters(), fresh.counters());
    }
}

#[test]
fn another_request_in_between_is_not_taken_for_the_one_before() {
    let mut client = client();
    let mut paths = Vec::new();
    for (path, again) in
        [("/a", false), ("/a", true), ("/a", true), ("/b", false), ("/b", true), ("/b", true)]
    {
        let request = Request { path, ..GET };
        if again { client.send_request_again(NOW, &request) } else { client.send_request(NOW, &request) }
            .unwrap();
        paths.push(text(&sent(&mut client)).split(' ').nth(1).unwrap_or_default().to_owned());
        feed(&mut client, ANSWER.as_bytes(), &mut Vec::new());
    }
    assert_eq!(paths, ["/a", "/a", "/a", "/b", "/b", "/b"]);
}

#[test]
fn a_response_that_differs_in_a_single_byte_is_read_anew_and_trailers_disturb_nothing() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n";
    let responses = [
        ANSWER.to_owned(),
        ANSWER.to_owned(),
        ANSWER.replace("Server: a", "Server: b"),
        ANSWER.replace("length: 2", "length: 1").trim_end_matches('k').to_owned(),
        ANSWER.replace("200", "404"),
        chunked.to_owned(),
        chunked.to_owned(),
        ANSWER.to_owned(),
        format!("HTTP/1.1 103 x\r\nlink: a\r\n\r\n{ANSWER}"),
        ANSWER.to_owned(),
    ];
    for step in 1..ANSWER.len() {
        let mut again = client();
        for response in &responses {
            // What a fresh client sees.
            let mut fresh = client();
            let [one, other] = [&mut again, &mut fresh].map(|client| {
                client.send_request(NOW, &GET).unwrap();
                sent(client);
                let mut seen = Vec::new();
                response.as_bytes().chunks(step).for_each(|piece| feed(client, piece, &mut seen));
                seen.retain(|seen| !matches!(seen, Seen::End(_)));
                seen
            });
            assert_eq!(one, other, "{response:?} in steps of {step}");
            assert_eq!(again.available_streams(), 1);
        }
    }
}
