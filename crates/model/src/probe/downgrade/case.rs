//! One request that an HTTP/2 client can send and should not.

use h2lab_wire::h2::frame::{PREFACE, flag, kind};
use h2lab_wire::h2::raw::{field_block, frame};

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
    /// Connection-specific fields (§8.2.2).
    ConnectionSpecific,
    /// Pseudo-header fields where none may be, and trailers that affect framing (§8.1, §8.3).
    Trailers,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct DowngradeTarget<'a> {
    /// `:scheme`.
    pub scheme: &'a str,
    /// `:authority`, unless a case has its own.
    pub authority: &'a str,
    /// A path that the proxy forwards.
    pub path: &'a str,
}

/// A name and a value, as bytes.
pub type RawField = (&'static [u8], &'static [u8]);

/// How the bytes at the backend show that a case was forwarded unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// These bytes, case-insensitively.
    Bytes(&'static [u8]),
    /// These bytes, case-sensitively.
    Exact(&'static [u8]),
    /// A field with this name has this value.
    Field(&'static str, &'static str),
    /// A field with this name lists this token, whatever its case.
    Token(&'static str, &'static str),
    /// Two fields with this name in a head.
    Twice(&'static str),
    /// `Host` differs from `:authority`, or there are two `Host` fields.
    Host,
    /// A second request follows the first, or bytes that are not a request.
    Second,
    /// The content-length differs from the length of the body that came.
    Length,
    /// Nothing: every proxy forwards this request.
    Never,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct DowngradeCase {
    /// Its name in reports.
    pub id: &'static str,
    /// What it is about.
    pub topic: Topic,
    /// What is wrong with it, in a few words.
    pub about: &'static str,
    /// `:method`.
    pub method: &'static [u8],
    /// `:path`, where `{}` stands for the path that the proxy forwards, and `{/}` for the same with a slash at its end.
    pub path: &'static str,
    /// `:authority`; `None`: that of the URL.
    pub authority: Option<&'static [u8]>,
    /// Fields after the pseudo-header fields.
    pub fields: &'static [RawField],
    /// The body, in one DATA frame; empty: none.
    pub body: &'static [u8],
    /// Trailers; empty: none.
    pub trailers: &'static [RawField],
    /// How it is recognised at the backend.
    pub sign: Sign,
    /// Whether it is malformed in HTTP/2 and nearly harmless in HTTP/1.1, where any client could send the same.
    pub is_mild: bool,
}

impl DowngradeCase {
    /// A well-formed request, the base of all cases.
    pub(super) const PLAIN: Self = Self {
        id: "",
        topic: Topic::FieldValue,
        about: "",
        method: b"GET",
        path: "{}",
        authority: None,
        fields: &[],
        body: b"",
        trailers: &[],
        sign: Sign::Never,
        is_mild: false,
    };

    /// `:path` where the proxy forwards `allowed`.
    fn path_below(&self, allowed: &str) -> String {
        let folder = allowed.split('?').next().unwrap_or_default().trim_end_matches('/');
        self.path.replace("{/}", &format!("{folder}/")).replace("{}", allowed)
    }

    /// All bytes of a connection that sends this case: preface, SETTINGS, and the request on stream 1.
    pub fn bytes(&self, aim: &DowngradeTarget<'_>, attempt: &str) -> Vec<u8> {
        let authority = self.authority.unwrap_or(aim.authority.as_bytes());
        let path = self.path_below(aim.path);
        let head: [(&[u8], &[u8]); 5] = [
            (b":method", self.method),
            (b":scheme", aim.scheme.as_bytes()),
            (b":authority", authority),
            (b":path", path.as_bytes()),
            // First of the ordinary fields: it must arrive however a proxy treats the others.
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

#[cfg(test)]
mod tests {
    use super::super::CASES;
    use super::*;

    #[test]
    fn every_path_lies_where_the_proxy_forwards() {
        let of = |path| DowngradeCase { path, ..DowngradeCase::PLAIN };
        for (path, below_root, below) in [
            ("{}", "/", "/app?x=1"),
            ("{/}x smuggled", "/x smuggled", "/app/x smuggled"),
            ("{} HTTP/1.1", "/ HTTP/1.1", "/app?x=1 HTTP/1.1"),
        ] {
            assert_eq!(
                (of(path).path_below("/"), of(path).path_below("/app?x=1")),
                (below_root.into(), below.into())
            );
        }
        for case in CASES {
            assert!(case.path.contains('{') || case.id == "path-without-slash", "{}", case.id);
        }
    }
}
