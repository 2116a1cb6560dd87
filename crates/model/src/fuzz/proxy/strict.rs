//! A strict parser of HTTP/1.1 (RFC 9112): whatever two parsers could read differently is a failure.

/// What a request should be.
pub(super) struct Meant<'a> {
    pub(super) authority: &'a str,
    /// Its body, as far as it has come.
    pub(super) body: &'a [u8],
    /// All of it has come.
    pub(super) is_whole: bool,
    /// It asks for a WebSocket.
    pub(super) is_websocket: bool,
}

/// What may follow a head.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    /// Nothing, whatever the head says of a length.
    None,
    /// This body.
    Any(&'a [u8]),
}

/// The lines of a head, and what follows it.
struct Message<'a> {
    first: &'a str,
    fields: Vec<(&'a str, &'a str)>,
    rest: &'a [u8],
}

impl<'a> Message<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head ends");
        let (head, rest) = (&bytes[..end + 2], &bytes[end + 4..]);
        let mut lines = Vec::new();
        let mut left = head;
        while !left.is_empty() {
            let at = left.windows(2).position(|two| two == b"\r\n").expect("every line ends");
            let line = &left[..at];
            assert!(
                !line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
                "a bare CR, LF or NUL: {}",
                line.escape_ascii()
            );
            lines.push(line);
            left = &left[at + 2..];
        }
        // Bytes above ASCII may be in values only.
        let text = |bytes: &'a [u8]| str::from_utf8(bytes).unwrap_or("\u{fffd}");
        let fields = lines[1..].iter().map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').expect("a field has a colon");
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
            assert!(!name.is_empty() && name.iter().all(is_token), "a name: {}", line.escape_ascii());
            (text(name), text(value).trim_matches([' ', '\t']))
        });
        Self { first: text(lines[0]), fields: fields.collect(), rest }
    }

    fn all(&self, name: &str) -> Vec<&'a str> {
        let has = |field: &&(&str, &str)| field.0.eq_ignore_ascii_case(name);
        self.fields.iter().filter(has).map(|field| field.1).collect()
    }

    /// The length that the head gives, or `None` for chunks; `otherwise` if it says neither.
    fn framing(&self, otherwise: Option<usize>) -> Option<usize> {
        let (lengths, codings) = (self.all("content-length"), self.all("transfer-encoding"));
        assert!(lengths.len() + codings.len() <= 1, "framed twice: {:?}", self.fields);
        if let [coding] = codings[..] {
            assert_eq!(coding, "chunked");
            return None;
        }
        let Some(length) = lengths.first() else { return otherwise };
        assert!(length.bytes().all(|byte| byte.is_ascii_digit()), "{length}");
        Some(length.parse().unwrap_or(usize::MAX))
    }

    /// Fails on connection-specific fields, except for our own.
    fn check_hop(&self, may_connect: &[&str]) {
        for gone in ["http2-settings", "proxy-connection", "keep-alive"] {
            assert!(self.all(gone).is_empty(), "{gone}: {:?}", self.fields);
        }
        for option in self.all("connection").iter().flat_map(|line| line.split(',')) {
            let option = option.trim().to_ascii_lowercase();
            assert!(may_connect.contains(&&option[..]), "connection: {option}");
        }
    }

    /// The body, by chunks or by `length`; whether it is complete. Nothing may follow it.
    fn body(&self, length: Option<usize>) -> (Vec<u8>, bool) {
        let Some(length) = length else { return chunks(self.rest) };
        assert!(self.rest.len() <= length, "{} bytes follow a body of {length}", self.rest.len() - length);
        (self.rest.to_vec(), self.rest.len() == length)
    }
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[..at], &bytes[at + 2..]))
}

fn chunks(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some((size, after)) = line(rest) {
        assert!(!size.is_empty() && size.iter().all(u8::is_ascii_hexdigit), "{}", size.escape_ascii());
        let size =
            str::from_utf8(size).ok().and_then(|size| usize::from_str_radix(size, 16).ok()).expect("a size");
        if size == 0 {
            let mut trailers = after;
            while let Some((field, after)) = line(trailers) {
                if field.is_empty() {
                    assert!(after.is_empty(), "{} follows the end", after.escape_ascii());
                    return (body, true);
                }
                trailers = after;
            }
            return (body, false);
        }
        let there = after.len().min(size);
        body.extend_from_slice(&after[..there]);
        let Some((end, next)) = after[there..].split_first_chunk::<2>() else { return (body, false) };
        assert_eq!(end, b"\r\n", "a chunk is longer than its size");
        rest = next;
    }
    assert!(rest.len() < 20, "no size of a chunk: {}", rest.escape_ascii());
    (body, false)
}

/// Fails unless `bytes` are exactly the request that was meant, or its beginning.
pub(super) fn request(bytes: &[u8], method: &str, path: &str, meant: &Meant<'_>) {
    let message = Message::read(bytes);
    assert_eq!(message.first, format!("{method} {path} HTTP/1.1"));
    assert_eq!(message.all("host"), [meant.authority], "one Host: {:?}", message.fields);
    let may: &[&str] = if meant.is_websocket { &["upgrade"] } else { &["te", "close", "keep-alive"] };
    message.check_hop(may);
    let upgrades = message.all("upgrade");
    assert!(if meant.is_websocket { upgrades == ["websocket"] } else { upgrades.is_empty() }, "{upgrades:?}");
    let (body, is_complete) = message.body(message.framing(Some(0)));
    let expected = if meant.is_websocket { &[] } else { meant.body };
    assert!(body == expected, "another body: {}", bytes.escape_ascii());
    // A request that was cut must not look like a whole one.
    let is_long = !meant.body.is_empty() || message.framing(Some(0)) != Some(0);
    assert!(!is_long || is_complete == meant.is_whole, "whole or not: {}", bytes.escape_ascii());
}

/// Fails unless `bytes` are this many interim responses and this response, or its beginning.
pub(super) fn response(bytes: &[u8], interims: usize, status: u16, content: Content<'_>, is_whole: bool) {
    let mut rest = bytes;
    for _ in 0..interims {
        let interim = Message::read(rest);
        // HTTP/1.0 clients get none.
        if !interim.first.starts_with("HTTP/1.1 1") {
            break;
        }
        assert!(interim.all("content-length").is_empty() && interim.all("transfer-encoding").is_empty());
        rest = interim.rest;
    }
    let message = Message::read(rest);
    assert!(message.first.starts_with(&format!("HTTP/1.1 {status:03} ")), "{}", message.first);
    message.check_hop(&["close", "keep-alive"]);
    let Content::Any(expected) = content else {
        assert!(message.rest.is_empty(), "a body where none is: {}", rest.escape_ascii());
        return;
    };
    // Without either field, the end of the connection ends the body.
    let until_close = message.all("content-length").is_empty() && message.all("transfer-encoding").is_empty();
    if until_close {
        assert!(
            message.rest == expected && message.all("connection").contains(&"close"),
            "{}",
            rest.escape_ascii()
        );
        return;
    }
    let (body, is_complete) = message.body(message.framing(None));
    assert!(body == expected, "another body: {}", rest.escape_ascii());
    assert_eq!(is_complete, is_whole, "{}", rest.escape_ascii());
}
