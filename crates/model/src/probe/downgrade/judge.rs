//! What a proxy did with a case, from its answer and the bytes at the backend.

use super::super::smuggling::backend::attempt;
use super::super::smuggling::backend_request::{self, BackendBytes};
use super::case::{DowngradeCase, Sign, Topic};
use super::exchange::ProxyAnswer;
use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the proxy did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Handling {
    /// Refused; nothing of it was answered by the backend.
    Rejected,
    /// Forwarded without what is wrong with it.
    Normalised,
    /// Forwarded as it was sent.
    Raw,
    /// Neither forwarded nor refused for what is wrong with it.
    Unknown,
}

impl Handling {
    /// `forwarded raw` …
    pub const fn words(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Normalised => "normalised",
            Self::Raw => "forwarded raw",
            Self::Unknown => "neither forwarded nor refused by the proxy itself",
        }
    }
}

/// What was done, and the bytes that show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// What.
    pub handling: Handling,
    /// All bytes received at the backend, in lines, escaped; empty if nothing did.
    pub backend_saw: Vec<String>,
}

/// Judges a `case` by the proxy's `answer` and the connection at the backend that its attempt came over, if any.
pub fn judge(case: &DowngradeCase, answer: &ProxyAnswer, arrived: Option<&BackendBytes>) -> Judged {
    let Some(backend_request) = arrived else {
        let handling = if answer.is_refusal() { Handling::Rejected } else { Handling::Unknown };
        return Judged { handling, backend_saw: Vec::new() };
    };
    let frames_a_message = matches!(case.topic, Topic::ContentLength | Topic::TransferEncoding);
    let handling = if shows(case.sign, backend_request, answer)
        || frames_a_message && is_contradictory(backend_request, answer)
    {
        Handling::Raw
    } else if backend_request.requests().is_empty() {
        // The head was forwarded before the proxy noticed the violation, and then it dropped the connection.
        if answer.is_refusal() { Handling::Rejected } else { Handling::Unknown }
    } else {
        Handling::Normalised
    };
    Judged { handling, backend_saw: backend_request::shown(backend_request.bytes()) }
}

/// Whether the message at the backend can be read in two ways, or contradicts its length: `content-length` beside
/// `transfer-encoding` (RFC 9112 §6.3), several lengths, or another length than that of the body.
fn is_contradictory(backend_request: &BackendBytes, answer: &ProxyAnswer) -> bool {
    let bytes = backend_request.bytes();
    let Some(length) = backend_request::head_length(bytes) else { return false };
    let lengths = backend_request::values(&bytes[..length], "content-length");
    let has_coding = !backend_request::values(&bytes[..length], "transfer-encoding").is_empty();
    !lengths.is_empty()
        && (has_coding
            || lengths.len() > 1
            || shows(Sign::Length, backend_request, answer)
            || shows(Sign::Second, backend_request, answer))
}

/// Whether the bytes at the backend have the sign of a case that was forwarded unchanged.
fn shows(sign: Sign, backend_request: &BackendBytes, answer: &ProxyAnswer) -> bool {
    let bytes = backend_request.bytes();
    let head = backend_request::head_length(bytes).map_or(bytes, |length| &bytes[..length]);
    match sign {
        Sign::Bytes(needle) => bytes.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle)),
        Sign::Exact(needle) => bytes.windows(needle.len()).any(|window| window == needle),
        Sign::Field(name, value) => backend_request::values(head, name).contains(&value.as_bytes()),
        Sign::Token(name, token) => backend_request::has_token(head, name, token),
        Sign::Host => {
            let hosts = backend_request::values(head, "host");
            hosts.len() > 1 || hosts.iter().any(|host| host.ends_with(b"-smuggled.test"))
        }
        Sign::Twice(name) => backend_request::values(head, name).len() > 1,
        // On a reused connection requests of others may follow: they have attempt fields of their own.
        Sign::Second => {
            let first = backend_request.requests().first().map_or(0, |request| request.body.end);
            let rest = &bytes[first..];
            first > 0 && !rest.is_empty() && attempt(rest).is_none()
        }
        // The backend waits for bytes that never come.
        Sign::Length => {
            backend_request.requests().is_empty()
                && backend_request::head_length(bytes).is_some()
                && !answer.is_refusal()
        }
        Sign::Never => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CASES, CONTROL};
    use super::*;

    fn judged(id: &str, answer: &ProxyAnswer, bytes: &[u8]) -> Handling {
        let case = CASES.iter().chain([&CONTROL]).find(|case| case.id == id).expect("a case");
        let mut backend_request = BackendBytes::default();
        backend_request.receive(bytes);
        judge(case, answer, (!bytes.is_empty()).then_some(&backend_request)).handling
    }

    fn get(rest: &str) -> Vec<u8> {
        format!("GET / HTTP/1.1\r\nhost: a\r\n{rest}\r\n").into_bytes()
    }

    fn line(line: &str) -> Vec<u8> {
        format!("{line}\r\nhost: a\r\n\r\n").into_bytes()
    }

    fn post(rest: &str) -> Vec<u8> {
        format!("POST / HTTP/1.1\r\nhost: a\r\n{rest}").into_bytes()
    }

    fn chunked(rest: &str) -> Vec<u8> {
        post(&format!("transfer-encoding: chunked\r\n\r\n{rest}"))
    }

    /// What a backend sees of each case when forwarded raw, and when normalised.
    fn samples() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
        let injected = || get("x-a: b\r\nX-Smuggled: 1\r\n");
        let plain = || get("");
        let five = || post("content-length: 5\r\n\r\n12345");
        let in_chunks = || chunked("3\r\n0\r\n\r\n0\r\n\r\n");
        vec![
            ("value-crlf", injected(), get("x-a: bx-smuggled: 1\r\n")),
            ("value-lf", get("x-a: b\nx-smuggled: 1\r\n"), get("x-a: b x-smuggled: 1\r\n")),
            ("value-cr", get("x-a: b\rx-smuggled: 1\r\n"), get("x-a: b x-smuggled: 1\r\n")),
            ("value-nul", get("x-a: b\0x-smuggled\r\n"), get("x-a: bx-smuggled\r\n")),
            ("name-crlf", injected(), plain()),
            ("name-lf", get("x-a: b\nx-smuggled: 1\r\n"), plain()),
            ("name-nul", get("x-\0smuggled: 1\r\n"), get("x-smuggled: 1\r\n")),
            ("name-space", get("x-smuggled : 1\r\n"), get("x-smuggled: 1\r\n")),
            ("name-colon", get("x-smuggled:y: 1\r\n"), get("x-smuggled-y: 1\r\n")),
            ("name-empty", get(": x-smuggled\r\n"), plain()),
            ("name-upper-case", get("X-sMUGGLED: 1\r\n"), get("X-Smuggled: 1\r\n")),
            ("path-crlf", injected(), line("GET /%20HTTP/1.1%0d%0ax-smuggled:%201 HTTP/1.1")),
            ("path-space", line("GET /x smuggled HTTP/1.1"), line("GET /x%20smuggled HTTP/1.1")),
            (
                "path-version",
                line("GET /x-smuggled HTTP/1.1 /y HTTP/1.1"),
                line("GET /x-smuggled%20HTTP/1.1%20/y HTTP/1.1"),
            ),
            ("path-absolute", line("GET http://x-smuggled.test/ HTTP/1.1"), line("GET / HTTP/1.1")),
            ("path-without-slash", line("GET x-smuggled HTTP/1.1"), line("GET /x-smuggled HTTP/1.1")),
            (
                "path-authority",
                line("GET @x-smuggled.test/ HTTP/1.1"),
                line("GET /@x-smuggled.test/ HTTP/1.1"),
            ),
            ("method-crlf", injected(), plain()),
            ("method-space", line("GET /x-smuggled HTTP/1.1 / HTTP/1.1"), line("GET / HTTP/1.1")),
            ("host-differs", b"GET / HTTP/1.1\r\nHost: x-smuggled.test\r\n\r\n".to_vec(), plain()),
            ("host-twice", get("Host: b\r\n"), plain()),
            ("host-twice", b"GET / HTTP/1.1\r\nHost: y-smuggled.test\r\n\r\n".to_vec(), plain()),
            ("authority-crlf", injected(), plain()),
            ("authority-path", b"GET / HTTP/1.1\r\nHost:a.test/x-smuggled\r\n\r\n".to_vec(), plain()),
            ("length-too-small", post("content-length: 5\r\n\r\n12345GET /x"), five()),
            (
                "length-too-small",
                post("content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
                in_chunks(),
            ),
            ("length-too-large", post("content-length: 50\r\n\r\n12345"), five()),
            ("length-without-data", post("content-length: 5\r\n\r\n"), post("content-length: 0\r\n\r\n")),
            ("length-twice", post("content-length: 5\r\ncontent-length: 6\r\n\r\n12345"), five()),
            ("length-no-number", post("content-length: +5\r\n\r\n12345"), five()),
            ("chunked", chunked("0\r\n\r\nGET /x-"), in_chunks()),
            (
                "chunked",
                post("content-length: 51\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
                in_chunks(),
            ),
            ("chunked-with-length", chunked("0\r\n\r\nGET /x-"), in_chunks()),
            (
                "chunked-with-length",
                post("content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
                five(),
            ),
            ("unknown-coding", post("transfer-encoding: chunked, x-smuggled\r\n\r\n"), in_chunks()),
            ("injected", chunked("0\r\n\r\nGET /x-"), five()),
            ("connection", get("Connection: keep-alive, X-Smuggled\r\n"), get("Connection: keep-alive\r\n")),
            ("upgrade", get("Upgrade: h2c\r\n"), plain()),
            ("keep-alive", get("Keep-Alive: timeout=77\r\n"), get("Keep-Alive: timeout=5\r\n")),
            (
                "proxy-connection",
                get("proxy-connection: x-smuggled\r\n"),
                get("proxy-connection: keep-alive\r\n"),
            ),
            ("te", get("TE: trailers, x-smuggled\r\n"), get("TE: trailers\r\n")),
            ("pseudo-in-trailers", chunked("1\r\na\r\n0\r\n:path: /x-smuggled\r\n\r\n"), five()),
            ("pseudo-behind-fields", get(":path: /x-smuggled\r\n"), plain()),
            ("pseudo-unknown", get(":x-smuggled: 1\r\n"), plain()),
            ("framing-in-trailers", chunked("1\r\na\r\n0\r\nContent-Length: 7777\r\n\r\n"), five()),
            ("crlf-in-trailers", chunked("1\r\na\r\n0\r\nx-a: b\r\nx-smuggled: 1\r\n\r\n"), five()),
        ]
    }

    #[test]
    fn every_case_is_classified_as_raw_or_normalised() {
        let ok = ProxyAnswer { status: Some(200), ..ProxyAnswer::default() };
        let samples = samples();
        for (id, raw, normalised) in &samples {
            for (bytes, handling) in [(raw, Handling::Raw), (normalised, Handling::Normalised)] {
                assert_eq!(judged(id, &ok, bytes), handling, "{id}: {}", bytes.escape_ascii());
            }
        }
        for case in CASES {
            assert!(samples.iter().any(|(id, ..)| *id == case.id), "no sample of {}", case.id);
        }
    }

    #[test]
    fn without_the_bytes_the_answer_decides() {
        let ok = ProxyAnswer { status: Some(200), ..ProxyAnswer::default() };
        let refused = ProxyAnswer { status: Some(400), ..ProxyAnswer::default() };
        let unavailable = ProxyAnswer { status: Some(503), ..ProxyAnswer::default() };
        let silent = ProxyAnswer::default();
        for (id, answer, bytes, handling) in [
            ("control", &ok, get(""), Handling::Normalised),
            ("value-crlf", &refused, vec![], Handling::Rejected),
            ("value-crlf", &silent, vec![], Handling::Unknown),
            ("value-crlf", &unavailable, vec![], Handling::Unknown),
            ("value-crlf", &ok, vec![], Handling::Unknown),
            ("length-too-small", &refused, post("content-length: 5\r\n\r\n1"), Handling::Rejected),
            ("length-too-large", &refused, post("content-length: 50\r\n\r\n12345"), Handling::Rejected),
            ("length-too-large", &silent, post("content-length: 50\r\n\r\n12345"), Handling::Raw),
        ] {
            assert_eq!(judged(id, answer, &bytes), handling, "{id}: {}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_request_of_somebody_else_on_the_same_connection_is_no_second_one() {
        let ok = ProxyAnswer { status: Some(200), ..ProxyAnswer::default() };
        let mut bytes = b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\n12345".to_vec();
        bytes.extend_from_slice(b"GET / HTTP/1.1\r\nx-h2lab-attempt: down-2\r\n\r\n");
        assert_eq!(judged("length-too-small", &ok, &bytes), Handling::Normalised);
    }
}
