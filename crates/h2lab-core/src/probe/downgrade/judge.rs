//! What a proxy did with a case, from its answer and the bytes behind it.

use super::super::smuggling::backend::attempt;
use super::super::smuggling::hop::{self, Hop};
use super::ask::Answer;
use super::case::{Case, Sign};
use schemars::JsonSchema;
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
    /// Neither answered nor forwarded in time.
    Unknown,
}

impl Handling {
    /// `forwarded raw` …
    pub const fn words(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Normalised => "normalised",
            Self::Raw => "forwarded raw",
            Self::Unknown => "neither answered nor forwarded in time",
        }
    }
}

/// What was done, and the bytes that show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// What.
    pub handling: Handling,
    /// All that came over the connection at the backend, in lines, escaped; empty if nothing did.
    pub backend_saw: Vec<String>,
}

/// Judges a `case` by the proxy's `answer` and the connection at the backend that its attempt came over, if any.
pub fn judge(case: &Case, answer: &Answer, arrived: Option<&Hop>) -> Judged {
    let Some(hop) = arrived else {
        let handling = if answer.is_refusal() { Handling::Rejected } else { Handling::Unknown };
        return Judged { handling, backend_saw: Vec::new() };
    };
    let handling = if shows(case.sign, hop, answer) {
        Handling::Raw
    } else if hop.requests().is_empty() {
        // The head went on before the proxy saw what is wrong, and then it gave the connection up.
        if answer.is_refusal() { Handling::Rejected } else { Handling::Unknown }
    } else {
        Handling::Normalised
    };
    Judged { handling, backend_saw: hop::shown(hop.bytes()) }
}

/// Whether the bytes at the backend have the sign of a case that was forwarded as it is.
fn shows(sign: Sign, hop: &Hop, answer: &Answer) -> bool {
    let bytes = hop.bytes();
    let head = hop::head_length(bytes).map_or(bytes, |length| &bytes[..length]);
    match sign {
        Sign::Bytes(needle) => bytes.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle)),
        Sign::Field(name, "") => !hop::values(head, name).is_empty(),
        Sign::Field(name, value) => hop::values(head, name).contains(&value.as_bytes()),
        Sign::Twice(name) => hop::values(head, name).len() > 1,
        // On a connection that a proxy keeps, requests of others may follow: they name attempts of their own.
        Sign::Second => {
            let first = hop.requests().first().map_or(0, |request| request.body.end);
            let rest = &bytes[first..];
            first > 0 && !rest.is_empty() && attempt(rest).is_none()
        }
        // It waits for what will never come, and nobody tells it so.
        Sign::Length => {
            hop.requests().is_empty() && hop::head_length(bytes).is_some() && !answer.is_refusal()
        }
        Sign::Never => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CASES, CONTROL};
    use super::*;

    fn judged(id: &str, answer: &Answer, bytes: &[u8]) -> Handling {
        let case = CASES.iter().chain([&CONTROL]).find(|case| case.id == id).expect("a case");
        let mut hop = Hop::default();
        hop.receive(bytes);
        judge(case, answer, (!bytes.is_empty()).then_some(&hop)).handling
    }

    #[test]
    fn bytes_at_the_backend_decide() {
        let ok = Answer { status: Some(200), ..Answer::default() };
        let refused = Answer { status: Some(400), ..Answer::default() };
        let silent = Answer::default();
        let get = |rest: &str| format!("GET / HTTP/1.1\r\nhost: a\r\n{rest}\r\n").into_bytes();
        let post = |rest: &str| format!("POST / HTTP/1.1\r\nhost: a\r\n{rest}").into_bytes();
        for (id, answer, bytes, handling) in [
            ("control", &ok, get(""), Handling::Normalised),
            ("value-crlf", &refused, vec![], Handling::Rejected),
            ("value-crlf", &silent, vec![], Handling::Unknown),
            ("value-crlf", &ok, get("x-a: bx-smuggled: 1\r\n"), Handling::Normalised),
            ("value-crlf", &ok, get("x-a: b\r\nX-Smuggled: 1\r\n"), Handling::Raw),
            ("path-space", &ok, b"GET /x%20smuggled HTTP/1.1\r\n\r\n".to_vec(), Handling::Normalised),
            ("path-space", &ok, b"GET /x smuggled HTTP/1.1\r\n\r\n".to_vec(), Handling::Raw),
            ("host-differs", &ok, get(""), Handling::Normalised),
            ("host-differs", &ok, get("host: x-smuggled.test\r\n"), Handling::Raw),
            ("host-twice", &ok, get(""), Handling::Normalised),
            ("host-twice", &ok, get("Host: b\r\n"), Handling::Raw),
            ("length-too-small", &ok, post("content-length: 5\r\n\r\n12345GET /x"), Handling::Raw),
            ("length-too-small", &refused, post("content-length: 5\r\n\r\n1"), Handling::Rejected),
            ("length-too-small", &ok, post("content-length: 5\r\n\r\n12345"), Handling::Normalised),
            ("length-too-large", &refused, post("content-length: 50\r\n\r\n12345"), Handling::Rejected),
            ("length-too-large", &silent, post("content-length: 50\r\n\r\n12345"), Handling::Raw),
            ("chunked", &ok, post("transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /x-"), Handling::Raw),
            (
                "chunked",
                &ok,
                post("transfer-encoding: chunked\r\n\r\n3\r\n0\r\n\r\n0\r\n\r\n"),
                Handling::Normalised,
            ),
        ] {
            assert_eq!(judged(id, answer, &bytes), handling, "{id}: {}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_request_of_somebody_else_on_the_same_connection_is_no_second_one() {
        let ok = Answer { status: Some(200), ..Answer::default() };
        let mut bytes = b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\n12345".to_vec();
        bytes.extend_from_slice(b"GET / HTTP/1.1\r\nx-h2lab-attempt: down-2\r\n\r\n");
        assert_eq!(judged("length-too-small", &ok, &bytes), Handling::Normalised);
    }
}
