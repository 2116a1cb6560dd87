//! The cases. The injected line or request has the same name in all of them: `x-smuggled`.

use super::case::{DowngradeCase, Sign, Topic};

/// A line of its own at the backend.
const INJECTED: Sign = Sign::Bytes(b"\nx-smuggled:");

/// A whole request as a body: if a backend reads it as a request, it was smuggled.
const CHUNKED_PREFIX: &[u8] = b"0\r\n\r\nGET /x-smuggled HTTP/1.1\r\nHost: x-smuggled\r\n\r\n";

/// A well-formed request: unless it arrives, no case can be judged.
pub const CONTROL: DowngradeCase =
    DowngradeCase { id: "control", about: "a proper request", ..DowngradeCase::PLAIN };

macro_rules! cases {
    ($($topic:ident, $id:literal, $about:literal, $sign:expr $(, $key:ident: $value:expr)*;)*) => {
        /// Every case, in the order of their topics.
        pub const CASES: &[DowngradeCase] = &[$(
            DowngradeCase { topic: Topic::$topic, id: $id, about: $about, sign: $sign, $($key: $value,)* ..DowngradeCase::PLAIN },
        )*];
    };
}

cases! {
    FieldValue, "value-crlf", "CR LF and a line in a value", INJECTED, fields: &[(b"x-a", b"b\r\nx-smuggled: 1")];
    FieldValue, "value-lf", "LF and a line in a value", INJECTED, fields: &[(b"x-a", b"b\nx-smuggled: 1")];
    FieldValue, "value-cr", "CR in a value", Sign::Bytes(b"b\rx-smuggled"), fields: &[(b"x-a", b"b\rx-smuggled: 1")];
    FieldValue, "value-nul", "NUL in a value", Sign::Bytes(b"b\0x-smuggled"), fields: &[(b"x-a", b"b\0x-smuggled")];

    FieldName, "name-crlf", "CR LF and a line in a name", INJECTED, fields: &[(b"x-a: b\r\nx-smuggled", b"1")];
    FieldName, "name-lf", "LF and a line in a name", INJECTED, fields: &[(b"x-a: b\nx-smuggled", b"1")];
    FieldName, "name-nul", "NUL in a name", Sign::Bytes(b"x-\0smuggled"), fields: &[(b"x-\0smuggled", b"1")];
    FieldName, "name-space", "a space in a name", Sign::Bytes(b"x-smuggled :"), fields: &[(b"x-smuggled ", b"1")];
    FieldName, "name-colon", "a colon in a name", Sign::Bytes(b"x-smuggled:y:"), fields: &[(b"x-smuggled:y", b"1")];
    FieldName, "name-empty", "a name of no length", Sign::Bytes(b"\n: x-smuggled"), fields: &[(b"", b"x-smuggled")];
    FieldName, "name-upper-case", "a name in upper case", Sign::Exact(b"\nX-sMUGGLED:"),
        fields: &[(b"X-sMUGGLED", b"1")], is_mild: true;

    RequestLine, "path-crlf", "CR LF and a line in :path", INJECTED, path: "{} HTTP/1.1\r\nx-smuggled: 1\r\nx-a: b";
    RequestLine, "path-space", "spaces in :path", Sign::Bytes(b"/x smuggled "), path: "{/}x smuggled";
    RequestLine, "path-version", "a second version in :path", Sign::Bytes(b"/x-smuggled HTTP/1.1 /"),
        path: "{/}x-smuggled HTTP/1.1 /y";
    RequestLine, "path-absolute", "another host's absolute form in :path", Sign::Bytes(b" http://x-smuggled.test/"),
        path: "http://x-smuggled.test{}";
    RequestLine, "path-without-slash", "a :path that does not begin with a slash", Sign::Bytes(b"GET x-smuggled "),
        path: "x-smuggled";
    RequestLine, "path-authority", "a :path that extends the host in front of it",
        Sign::Bytes(b"GET @x-smuggled.test/ "), path: "@x-smuggled.test{}";
    RequestLine, "method-crlf", "CR LF and a line in :method", INJECTED,
        method: b"GET / HTTP/1.1\r\nx-smuggled: 1\r\nx-a: b";
    RequestLine, "method-space", "spaces in :method", Sign::Bytes(b"GET /x-smuggled HTTP/1.1 /"),
        method: b"GET /x-smuggled HTTP/1.1";

    Authority, "host-differs", "a host field that differs from :authority", Sign::Host,
        fields: &[(b"host", b"x-smuggled.test")];
    Authority, "host-twice", "two host fields beside :authority", Sign::Host,
        fields: &[(b"host", b"x-smuggled.test"), (b"host", b"y-smuggled.test")];
    Authority, "authority-crlf", "CR LF and a line in :authority", INJECTED, authority: Some(b"a.test\r\nx-smuggled: 1");
    Authority, "authority-path", "a path in :authority", Sign::Field("host", "a.test/x-smuggled"),
        authority: Some(b"a.test/x-smuggled"), is_mild: true;

    ContentLength, "length-too-small", "more DATA than content-length", Sign::Second, method: b"POST",
        fields: &[(b"content-length", b"5")], body: b"12345GET /x-smuggled HTTP/1.1\r\nHost: x-smuggled\r\n\r\n";
    ContentLength, "length-too-large", "less DATA than content-length", Sign::Length, method: b"POST",
        fields: &[(b"content-length", b"50")], body: b"12345";
    ContentLength, "length-without-data", "content-length and no DATA", Sign::Length, method: b"POST",
        fields: &[(b"content-length", b"5")];
    ContentLength, "length-twice", "two content-length fields", Sign::Twice("content-length"), method: b"POST",
        fields: &[(b"content-length", b"5"), (b"content-length", b"6")], body: b"12345";
    ContentLength, "length-no-number", "a content-length that is not a number", Sign::Field("content-length", "+5"),
        method: b"POST", fields: &[(b"content-length", b"+5")], body: b"12345";

    TransferEncoding, "chunked", "transfer-encoding: chunked, and a body that ends in it", Sign::Second,
        method: b"POST", fields: &[(b"transfer-encoding", b"chunked")], body: CHUNKED_PREFIX;
    TransferEncoding, "chunked-with-length", "transfer-encoding beside content-length", Sign::Second, method: b"POST",
        fields: &[(b"content-length", b"51"), (b"transfer-encoding", b"chunked")], body: CHUNKED_PREFIX;
    TransferEncoding, "unknown-coding", "an invalid transfer-encoding", Sign::Token("transfer-encoding", "x-smuggled"),
        method: b"POST", fields: &[(b"transfer-encoding", b"x-smuggled")], body: b"12345";
    TransferEncoding, "injected", "transfer-encoding after CR LF in a value", Sign::Second, method: b"POST",
        fields: &[(b"x-a", b"b\r\ntransfer-encoding: chunked")], body: CHUNKED_PREFIX;

    ConnectionSpecific, "connection", "connection names a field", Sign::Token("connection", "x-smuggled"),
        fields: &[(b"connection", b"x-smuggled"), (b"x-smuggled", b"1")];
    ConnectionSpecific, "upgrade", "upgrade: h2c", Sign::Token("upgrade", "h2c"), fields: &[(b"upgrade", b"h2c")];
    ConnectionSpecific, "keep-alive", "keep-alive", Sign::Field("keep-alive", "timeout=77"), fields: &[(b"keep-alive", b"timeout=77")], is_mild: true;
    ConnectionSpecific, "proxy-connection", "proxy-connection", Sign::Field("proxy-connection", "x-smuggled"),
        fields: &[(b"proxy-connection", b"x-smuggled")], is_mild: true;
    ConnectionSpecific, "te", "te with a value other than trailers", Sign::Token("te", "x-smuggled"),
        fields: &[(b"te", b"x-smuggled")], is_mild: true;

    Trailers, "pseudo-in-trailers", "a pseudo-header field in trailers", Sign::Bytes(b"\n:path:"), method: b"POST",
        body: b"12345", trailers: &[(b":path", b"/x-smuggled")];
    Trailers, "pseudo-behind-fields", "a pseudo-header field after regular ones", Sign::Bytes(b"x-smuggled"),
        fields: &[(b"x-a", b"b"), (b":path", b"/x-smuggled")];
    Trailers, "pseudo-unknown", "an undefined pseudo-header field", Sign::Bytes(b":x-smuggled"),
        fields: &[(b":x-smuggled", b"1")];
    Trailers, "framing-in-trailers", "content-length in trailers", Sign::Bytes(b"content-length: 7777"), method: b"POST",
        body: b"12345", trailers: &[(b"content-length", b"7777")];
    Trailers, "crlf-in-trailers", "CR LF and a line in a trailer's value", INJECTED, method: b"POST", body: b"12345",
        trailers: &[(b"x-a", b"b\r\nx-smuggled: 1")];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_names_of_their_own_and_stand_in_the_order_of_topics() {
        for case in CASES {
            assert_eq!(CASES.iter().filter(|other| other.id == case.id).count(), 1, "{}", case.id);
            assert_ne!(case.sign, Sign::Never, "{}", case.id);
        }
        assert!(CASES.is_sorted_by_key(|case| case.topic));
    }

    #[test]
    fn the_prefix_is_as_long_as_its_content_length_says() {
        assert_eq!(CHUNKED_PREFIX.len(), 51);
    }
}
