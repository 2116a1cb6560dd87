//! A request as it arrived at the last hop, byte for byte, read as leniently as the most careless server would.
//!
//! Our HTTP/1.1 engine refuses what is malformed, which must be visible here.

use std::ops::Range;

use h2lab_base::text::printable;

/// The bytes kept of one connection: our requests are below a kilobyte, proxies add little.
const KEPT: usize = 64 * 1024;

/// The bytes of one connection at the backend, and the requests in it.
#[derive(Debug, Default)]
pub struct BackendBytes {
    bytes: Vec<u8>,
    /// Complete requests, heads and bodies.
    requests: Vec<BackendRequest>,
    /// Up to where requests have been parsed.
    read: usize,
}

/// The place of a request in the bytes of its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendRequest {
    /// From the request line to the empty line.
    pub head: Range<usize>,
    /// What follows as its body, as sent: with chunk framing, if there is any.
    pub body: Range<usize>,
}

impl BackendBytes {
    /// Takes bytes that arrived. Returns the requests that they complete.
    pub fn receive(&mut self, bytes: &[u8]) -> Vec<BackendRequest> {
        let room = KEPT.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let mut complete = Vec::new();
        while let Some(request) = self.next_request() {
            self.read = request.body.end;
            self.requests.push(request.clone());
            complete.push(request);
        }
        complete
    }

    /// All bytes received, as far as kept.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The complete requests.
    pub fn requests(&self) -> &[BackendRequest] {
        &self.requests
    }

    /// The bytes after the last complete request: an incomplete one, or another protocol.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    fn next_request(&self) -> Option<BackendRequest> {
        let rest = &self.bytes[self.read..];
        let head = head_length(rest)?;
        let body = body_length(&rest[..head], &rest[head..])?;
        let (start, middle) = (self.read, self.read + head);
        Some(BackendRequest { head: start..middle, body: middle..middle + body })
    }

    /// The field values with this lower-case name in `request`'s head, in their order.
    pub fn values(&self, request: &BackendRequest, name: &str) -> Vec<&[u8]> {
        values(&self.bytes[request.head.clone()], name)
    }
}

/// The length of the head at the front of `bytes`, with its empty line; a bare LF counts as a line end.
pub fn head_length(bytes: &[u8]) -> Option<usize> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut length = 0;
    for line in lines {
        length += line.len();
        if matches!(line, b"\r\n" | b"\n") && length > line.len() {
            return Some(length);
        }
    }
    None
}

/// The values of the fields with this lower-case name in a head.
pub fn values<'a>(head: &'a [u8], name: &str) -> Vec<&'a [u8]> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let field = |line: &'a [u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let is_it = line[..colon].trim_ascii().eq_ignore_ascii_case(name.as_bytes());
        is_it.then(|| line[colon + 1..].trim_ascii())
    };
    lines.filter_map(field).collect()
}

/// Whether any of the fields with this lower-case name lists `token`, ignoring case.
pub fn has_token(head: &[u8], name: &str, token: &str) -> bool {
    let lists = |value: &&[u8]| {
        value.split(|byte| *byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    };
    values(head, name).iter().any(lists)
}

/// Whether a status is about the connection to the backend, or a limit, and not about the request.
pub const fn is_gateway_trouble(status: u16) -> bool {
    matches!(status, 429 | 502..=504)
}

/// The path of a head's request line: its second word.
pub fn path(head: &[u8]) -> Option<&[u8]> {
    head.split(|byte| matches!(byte, b' ' | b'\r' | b'\n')).nth(1)
}

/// How many bytes of `rest` are the body of `head`; `None` while it is incomplete.
fn body_length(head: &[u8], rest: &[u8]) -> Option<usize> {
    if has_token(head, "transfer-encoding", "chunked") {
        return chunked_length(rest);
    }
    let length = values(head, "content-length")
        .first()
        .and_then(|value| std::str::from_utf8(value).ok()?.parse::<usize>().ok());
    let length = length.unwrap_or(0);
    (rest.len() >= length).then_some(length)
}

/// The length of a body in chunks with its trailer section; `None` while it is incomplete.
fn chunked_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = at + bytes.get(at..)?.iter().position(|byte| *byte == b'\n')? + 1;
        let size = bytes[at..line].split(|byte| matches!(byte, b';' | b'\r' | b'\n')).next()?;
        // An invalid size ends the body: the next reader decides what the rest is.
        let Ok(size) = usize::from_str_radix(std::str::from_utf8(size).ok()?.trim(), 16) else {
            return Some(at);
        };
        if size == 0 {
            // The empty line at once, or after trailers.
            let trailers = &bytes[line..];
            if trailers.starts_with(b"\r\n") {
                return Some(line + 2);
            }
            return Some(line + head_length(trailers)?);
        }
        at = line.checked_add(size)?.checked_add(2)?;
    }
}

/// Bytes in readable form, line by line, with their line ends: what is not printable is escaped.
pub fn shown(bytes: &[u8]) -> Vec<String> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_reported_when_they_are_complete_and_what_follows_is_the_rest() {
        let mut backend_request = BackendBytes::default();
        assert!(backend_request.receive(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na").is_empty());
        assert_eq!(backend_request.receive(b"bcGET /sm").len(), 1);
        assert_eq!(backend_request.rest(), b"GET /sm");
        let request = backend_request.requests()[0].clone();
        assert_eq!(&backend_request.bytes()[request.body.clone()], b"abc");
        assert_eq!(backend_request.values(&request, "content-length"), [b"3"]);
        assert_eq!(path(&backend_request.bytes()[request.head.clone()]), Some(&b"/"[..]));
    }

    #[test]
    fn a_body_in_chunks_ends_behind_its_trailers() {
        let head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        for (body, ends) in [
            (&b"3\r\nabc\r\n0\r\n\r\nX"[..], Some(13)),
            (b"0\r\nx: y\r\n\r\nX", Some(11)),
            (b"3;a=b\r\nabc\r\n0\r\n", None),
            (b"3\r\nab", None),
            (b"zz\r\n", Some(0)),
        ] {
            assert_eq!(body_length(head, body), ends, "{}", body.escape_ascii());
        }
    }

    #[test]
    fn tokens_are_found_in_any_of_several_fields_and_in_any_case() {
        let head = b"GET / HTTP/1.1\r\nConnection: keep-alive\r\nCONNECTION: x , HTTP2-settings\r\n\r\n";
        assert!(has_token(head, "connection", "http2-settings") && has_token(head, "connection", "x"));
        assert!(!has_token(head, "connection", "upgrade"));
    }

    #[test]
    fn bare_line_feeds_end_lines_and_what_is_no_text_is_escaped() {
        assert_eq!(head_length(b"GET / HTTP/1.1\nx: y\n\nz"), Some(21));
        assert_eq!(head_length(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(shown(b"a: b\r\n\0"), ["a: b\\r\\n", "\\u{0}"]);
    }

    #[test]
    fn what_is_beyond_the_bound_is_not_kept() {
        let mut backend_request = BackendBytes::default();
        backend_request.receive(&vec![b'x'; KEPT]);
        backend_request.receive(b"x");
        assert_eq!(backend_request.bytes().len(), KEPT);
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_arrives_makes_it_panic(pieces: Vec<Vec<u8>>) {
            let mut backend_request = BackendBytes::default();
            for piece in pieces {
                backend_request.receive(&piece);
                backend_request.receive(b"\r\n\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n");
            }
        }
    }
}
