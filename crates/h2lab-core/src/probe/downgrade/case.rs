//! One request that an HTTP/2 client can send and should not.

use crate::wire::h2::frame::{PREFACE, flag, kind};
use crate::wire::h2::raw::{field_block, frame};

use super::super::smuggling::offer::ATTEMPT;

/// Which rule a case is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// CR, LF and NUL in values (RFC 9113 §8.2.1).
    FieldValue,
    /// The same, spaces, colons and upper case in names.
    FieldName,
    /// What stands in the request line of HTTP/1.1: method and path (§8.3.1).
    RequestLine,
    /// `:authority` and `host` (§8.3.1).
    Authority,
    /// `content-length` and the DATA that comes (§8.1.1).
    ContentLength,
    /// `transfer-encoding` (§8.2.2).
    TransferEncoding,
    /// Fields that are for one connection only (§8.2.2).
    ConnectionSpecific,
    /// Pseudo-header fields where none may be, and trailers that frame a message (§8.1, §8.3).
    Trailers,
}

/// A name and a value, as bytes.
pub type RawField = (&'static [u8], &'static [u8]);

/// How it is known, from the bytes at the backend, that a case was forwarded as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// These bytes stand in it, whatever their case.
    Bytes(&'static [u8]),
    /// A field with this name has this value, or any, if it is empty.
    Field(&'static str, &'static str),
    /// Two fields with this name stand in a head.
    Twice(&'static str),
    /// Behind the first request a second one stands, or something that is none.
    Second,
    /// The content-length is not that of the body that came.
    Length,
    /// Nothing: it is the request that every proxy forwards.
    Never,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name in reports.
    pub id: &'static str,
    /// What it is about.
    pub topic: Topic,
    /// What is wrong with it, in a few words.
    pub about: &'static str,
    /// `:method`.
    pub method: &'static [u8],
    /// `:path`.
    pub path: &'static [u8],
    /// `:authority`; `None`: that of the URL.
    pub authority: Option<&'static [u8]>,
    /// Fields behind the pseudo-header fields.
    pub fields: &'static [RawField],
    /// The body, in one DATA frame; empty: none.
    pub body: &'static [u8],
    /// Trailers; empty: none.
    pub trailers: &'static [RawField],
    /// How it is recognised at the backend.
    pub sign: Sign,
    /// Whether it is malformed in HTTP/2 and does little harm in HTTP/1.1, where any client could say the same.
    pub is_mild: bool,
}

impl Case {
    /// A proper request, to be changed.
    pub(super) const PLAIN: Self = Self {
        id: "",
        topic: Topic::FieldValue,
        about: "",
        method: b"GET",
        path: b"/",
        authority: None,
        fields: &[],
        body: b"",
        trailers: &[],
        sign: Sign::Never,
        is_mild: false,
    };

    /// All bytes of a connection that asks this: preface, SETTINGS, and the request on stream 1.
    pub fn bytes(&self, scheme: &str, authority: &str, attempt: &str) -> Vec<u8> {
        let authority = self.authority.unwrap_or(authority.as_bytes());
        let head: [(&[u8], &[u8]); 5] = [
            (b":method", self.method),
            (b":scheme", scheme.as_bytes()),
            (b":authority", authority),
            (b":path", self.path),
            // First of the ordinary ones: it must arrive whatever a proxy makes of the others.
            (ATTEMPT.as_bytes(), attempt.as_bytes()),
        ];
        let block = field_block(head.into_iter().chain(self.fields.iter().copied()));
        let has_more = !self.body.is_empty() || !self.trailers.is_empty();
        let end = |last: bool| if last { flag::END_STREAM } else { 0 };
        let mut bytes = [&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[])].concat();
        bytes.extend(frame(kind::HEADERS, flag::END_HEADERS | end(!has_more), 1, &block));
        if !self.body.is_empty() {
            bytes.extend(frame(kind::DATA, end(self.trailers.is_empty()), 1, self.body));
        }
        if !self.trailers.is_empty() {
            let block = field_block(self.trailers.iter().copied());
            bytes.extend(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block));
        }
        bytes
    }
}
