//! Heads: start lines and field lines (RFC 9112 §2 to §5). `httparse` finds the tokens, this module decides what is
//! legal.
//!
//! What is accepted although other parsers refuse it has only one meaning, and is never passed on as it came: engines
//! write each message anew. What two parsers may read differently is refused, above all a line that ends with LF alone.
//! RFC 9112 §2.2 allows a recipient to take LF for CRLF, and nginx and Go do so. Envoy and Node refuse it, and others
//! take it as a part of the value. Each attack by bare LF uses two parsers that differ in this, and no client in use
//! sends it.

use std::mem::MaybeUninit;

use httparse::{Header, Status};

use super::buffer::Span;
use crate::event::FieldSpan;
use crate::{Error, is_authority};

/// More field lines than any real message has; bounds the stack that a head takes.
const MAX_FIELDS: usize = 256;

/// A message that we refuse: what is wrong with it, and the status with which a server answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) status: u16,
}

impl Refusal {
    /// The message is malformed: 400.
    pub(super) const fn bad(reason: &'static str) -> Self {
        Self { reason, status: 400 }
    }

    pub(super) const fn with_status(reason: &'static str, status: u16) -> Self {
        Self { reason, status }
    }

    /// The head or the trailers exceed `max_header_list_size`: 431.
    pub(super) const TOO_LARGE: Self = Self::with_status("header fields larger than our limit", 431);

    /// The request line alone exceeds it: 414 (RFC 9112 §3).
    pub(super) const LONG_TARGET: Self =
        Self::with_status("the request target is longer than our limit", 414);
}

impl From<httparse::Error> for Refusal {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::HeaderName => {
                Self::bad("a field name holds an illegal byte or is followed by white space")
            }
            httparse::Error::HeaderValue => Self::bad("a field value holds a control character"),
            httparse::Error::NewLine => Self::bad("a line does not end with CRLF"),
            httparse::Error::Status => Self::bad("the status line is malformed"),
            httparse::Error::Token => Self::bad("the request line is malformed"),
            httparse::Error::TooManyHeaders => Self::with_status("too many header fields", 431),
            httparse::Error::Version => Self::with_status("not HTTP/1.x", 505),
        }
    }
}

/// What the first bytes of a connection are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// They can be HTTP/1.1.
    Http,
    /// Too few bytes to decide.
    Unclear,
    /// They are of another protocol.
    Foreign(Error),
}

/// Classifies the first bytes of a connection; `server` is our role. Two bytes are enough to recognise TLS (RFC 8446
/// §5.1), four for an HTTP/2 frame (RFC 9113 §4.1), sixteen for its preface.
pub(super) fn opening(bytes: &[u8], server: bool) -> Opening {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
    const GREETINGS: [&[u8]; 3] = [b"SSH-", b"220 ", b"220-"];
    let foreign = |hint| Opening::Foreign(Error::WrongProtocol { expected: "HTTP/1.1", hint });
    match *bytes {
        [] | [0x15 | 0x16 | 0] | [0, _] | [0, _, _] => Opening::Unclear,
        [0x15 | 0x16, 3, ..] if server => {
            foreign("it opened with a TLS handshake; this port is cleartext, use http://")
        }
        [0x15 | 0x16, 3, ..] => foreign("it answered with a TLS record; try https://"),
        [b'S', b'S', b'H', b'-', ..] if !server => foreign("it sent \"SSH-…\": an SSH server"),
        [b'2', b'2', b'0', b' ' | b'-', ..] if !server => foreign("it sent \"220 …\": a mail or FTP server"),
        _ if !server && GREETINGS.iter().any(|greeting| greeting.starts_with(bytes)) => Opening::Unclear,
        [0, _, _, 4 | 7, ..] => foreign("it answered with an HTTP/2 frame; try h2c (prior knowledge)"),
        _ if server && bytes.starts_with(PREFACE) => {
            foreign("it opened with the HTTP/2 preface; this port is HTTP/1.1")
        }
        _ if server && PREFACE.starts_with(bytes) => Opening::Unclear,
        _ => Opening::Http,
    }
}

/// Whether no word of the first line, from the third on, can be a version of HTTP. In a request the third is the
/// version. A space in a request target makes more words, and is an error in HTTP.
pub(super) fn names_another_protocol(bytes: &[u8]) -> bool {
    const HTTP: &[u8] = b"HTTP/";
    // An extra space makes no word.
    let mut words = first_line(bytes).split(|byte| *byte == b' ').filter(|word| !word.is_empty()).skip(2);
    let is_version = |word: &[u8]| {
        let known = word.len().min(HTTP.len());
        word[..known] == HTTP[..known]
    };
    let third = words.next().unwrap_or_default();
    !is_version(third) && !words.any(|word| word.starts_with(HTTP))
}

/// Whether the first line has more words than a request line.
pub(super) fn has_space_in_target(bytes: &[u8]) -> bool {
    first_line(bytes).split(|byte| *byte == b' ').filter(|word| !word.is_empty()).count() > 3
}

/// Whether the first line is complete.
pub(super) fn has_first_line(bytes: &[u8]) -> bool {
    first_line(bytes).len() < bytes.len()
}

/// The part of the first line that has arrived, without its end.
pub(super) fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default()
}

/// The version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http10,
    Http11,
}

/// Decoded field lines: names in lower case. Kept from message to message for its allocation.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) bytes: Vec<u8>,
    pub(super) spans: Vec<FieldSpan>,
}

impl Scratch {
    /// The memory that it takes, in bytes.
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<FieldSpan>()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Adds a field line and returns its name, lower case.
    fn push(&mut self, field: &Header<'_>) -> &[u8] {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(field.name.as_bytes());
        self.bytes[start..].make_ascii_lowercase();
        let value_start = self.bytes.len();
        self.bytes.extend_from_slice(field.value);
        let end = self.bytes.len();
        self.spans.push(FieldSpan { start: start as u32, value_start: value_start as u32, end: end as u32 });
        &self.bytes[start..value_start]
    }

    /// Removes the last field line.
    fn pop(&mut self) {
        if let Some(span) = self.spans.pop() {
            self.bytes.truncate(span.start as usize);
        }
    }
}

/// Whether the sender of a message wants to keep the connection; `close` wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Persistence {
    /// It does not say: HTTP/1.1 keeps the connection, HTTP/1.0 does not.
    #[default]
    Default,
    /// `keep-alive`.
    KeepAlive,
    /// `close`.
    Close,
}

/// What the field lines say about the message itself and the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Framing {
    pub(super) content_length: Option<u64>,
    pub(super) chunked: bool,
    /// What the Connection field says.
    pub(super) persistence: Persistence,
    /// `Expect: 100-continue`.
    pub(super) expects_continue: bool,
}

impl Framing {
    /// Whether the connection ends with this message (RFC 9112 §9.3).
    pub(super) fn ends_connection(&self, version: Version) -> bool {
        match self.persistence {
            Persistence::Default => version == Version::Http10,
            Persistence::KeepAlive => false,
            Persistence::Close => true,
        }
    }
}

/// Where the parts of a request line and the Host field lie, counted from the first byte of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Target {
    pub(super) method: Span,
    pub(super) scheme: Span,
    pub(super) authority: Span,
    pub(super) path: Span,
}

/// A complete head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head<Line> {
    /// Bytes up to and including the empty line.
    pub(super) length: usize,
    /// What its start line says.
    pub(super) line: Line,
    pub(super) version: Version,
    pub(super) framing: Framing,
}

/// Reads a request head from the front of `bytes`; `None` while it is incomplete. Field lines go to `scratch`, except
/// Host, which becomes the authority.
pub(super) fn parse_request(bytes: &[u8], scratch: &mut Scratch) -> Result<Option<Head<Target>>, Refusal> {
    let version_at = || Some(words_before_version(first_line(bytes))?.len());
    match read_request(bytes, scratch) {
        Err(refusal) if refusal.status == 505 => match version_at().and_then(|at| as_http11(bytes, at)) {
            Some(bytes) => read_request(&bytes, scratch),
            None => Err(refusal),
        },
        head => head,
    }
}

/// The method, the target, and the spaces behind them.
fn words_before_version(line: &[u8]) -> Option<&[u8]> {
    let mut spaces = line.iter().enumerate().filter(|(_, byte)| **byte == b' ').map(|(at, _)| at);
    line.get(..=spaces.nth(1)?)
}

/// The same bytes with HTTP/1.1 in place of a higher minor version at `at`: such a message is read like one of the
/// highest minor version that is known (RFC 9110 §2.5). `None` for any other version.
fn as_http11(bytes: &[u8], at: usize) -> Option<Vec<u8>> {
    let minor = at + b"HTTP/1.".len();
    let is_higher = bytes.get(at..minor) == Some(b"HTTP/1.") && matches!(bytes.get(minor), Some(b'2'..=b'9'));
    is_higher.then(|| [&bytes[..minor], b"1", &bytes[minor + 1..]].concat())
}

fn read_request(bytes: &[u8], scratch: &mut Scratch) -> Result<Option<Head<Target>>, Refusal> {
    let mut storage = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request { method: None, path: None, version: None, headers: &mut [] };
    let Status::Complete(length) = request.parse_with_uninit_headers(bytes, &mut storage)? else {
        return Ok(None);
    };
    let version = version(request.version)?;
    let (method, path) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let (framing, host) = read_fields(&bytes[..length], request.headers, scratch)?;
    if framing.chunked && version == Version::Http10 {
        return Err(Refusal::bad("an HTTP/1.0 message has a transfer-encoding"));
    }
    if version == Version::Http11 && host.is_none() {
        return Err(Refusal::bad("the Host field is missing"));
    }
    let mut line = split_target(bytes, method, path)?;
    if line.authority == Span::default() {
        line.authority = host.unwrap_or_default();
    }
    line.method = span_of(bytes, method.as_bytes());
    Ok(Some(Head { length, line, version, framing }))
}

/// Reads a response head from the front of `bytes`; `None` while it is incomplete. Its line is the status.
pub(super) fn parse_response(bytes: &[u8], scratch: &mut Scratch) -> Result<Option<Head<u16>>, Refusal> {
    match read_response(bytes, scratch) {
        Err(refusal) if refusal.status == 505 => match as_http11(bytes, 0) {
            Some(bytes) => read_response(&bytes, scratch),
            None => Err(refusal),
        },
        head => head,
    }
}

fn read_response(bytes: &[u8], scratch: &mut Scratch) -> Result<Option<Head<u16>>, Refusal> {
    let mut storage = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response { version: None, code: None, reason: None, headers: &mut [] };
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut storage,
    )?;
    let Status::Complete(length) = parsed else { return Ok(None) };
    let version = version(response.version)?;
    let status = response.code.unwrap_or_default();
    // Statuses above 599 are in use; a recipient that does not know one treats it as 500 (RFC 9110 §15).
    if status < 100 {
        return Err(Refusal::bad("the status is below 100"));
    }
    let (framing, _) = read_fields(&bytes[..length], response.headers, scratch)?;
    if framing.chunked && version == Version::Http10 {
        return Err(Refusal::bad("an HTTP/1.0 message has a transfer-encoding"));
    }
    Ok(Some(Head { length, line: status, version, framing }))
}

/// Reads trailer fields up to and including the empty line; `None` while they are incomplete. Fields that would frame
/// or route the message are left out (RFC 9110 §6.5.1): its end and its target are known.
pub(super) fn parse_trailers(bytes: &[u8], scratch: &mut Scratch) -> Result<Option<usize>, Refusal> {
    let mut storage = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let Status::Complete((length, fields)) = httparse::parse_headers(bytes, &mut storage)? else {
        return Ok(None);
    };
    check_line_ends(&bytes[..length], fields)?;
    scratch.clear();
    for field in fields {
        let name = scratch.push(field);
        if matches!(name, b"content-length" | b"transfer-encoding" | b"host") {
            scratch.pop();
        }
    }
    Ok(Some(length))
}

/// Whether a head or trailer section that was incomplete before could be complete now: an empty line stands at or after
/// `from`. Avoids parsing slowly arriving input from its beginning for every byte.
pub(super) fn may_be_complete(bytes: &[u8], from: usize) -> bool {
    let tail = &bytes[from.saturating_sub(3).min(bytes.len())..];
    // A trailer section may consist of its empty line alone.
    bytes.starts_with(b"\r\n") || tail.windows(2).any(|pair| pair == b"\n\n" || pair == b"\n\r")
}

fn version(version: Option<u8>) -> Result<Version, Refusal> {
    match version {
        Some(0) => Ok(Version::Http10),
        Some(1) => Ok(Version::Http11),
        _ => Err(httparse::Error::Version.into()),
    }
}

/// Copies the field lines and picks out what frames the message; also returns where the Host value lies.
fn read_fields(
    head: &[u8],
    fields: &[Header<'_>],
    scratch: &mut Scratch,
) -> Result<(Framing, Option<Span>), Refusal> {
    check_line_ends(head, fields)?;
    scratch.clear();
    let mut framing = Framing::default();
    let mut host = None;
    for field in fields {
        match scratch.push(field) {
            b"host" => {
                check_host(field.value)?;
                if host.replace(span_of(head, field.value)).is_some() {
                    return Err(Refusal::bad("duplicate Host header"));
                }
                scratch.pop();
            }
            b"content-length" => {
                let length = parse_length(field.value)?;
                if framing.content_length.replace(length).is_some_and(|other| other != length) {
                    return Err(Refusal::bad("two different content-lengths"));
                }
            }
            b"transfer-encoding" => {
                if framing.chunked || !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal::with_status("transfer-encoding other than `chunked`", 501));
                }
                framing.chunked = true;
            }
            b"connection" => {
                for (token, meaning) in
                    [(&b"close"[..], Persistence::Close), (b"keep-alive", Persistence::KeepAlive)]
                {
                    if has_token(field.value, token) {
                        framing.persistence = framing.persistence.max(meaning);
                    }
                }
            }
            b"expect" => framing.expects_continue |= has_token(field.value, b"100-continue"),
            _ => {}
        }
    }
    if framing.chunked && framing.content_length.is_some() {
        return Err(Refusal::bad("both content-length and transfer-encoding"));
    }
    Ok((framing, host))
}

/// `httparse` forgives a bare LF. Every line but the last ends right before a field's name, so two bytes per field
/// decide.
fn check_line_ends(head: &[u8], fields: &[Header<'_>]) -> Result<(), Refusal> {
    let bare = |end: usize| end >= 1 && !head[..end].ends_with(b"\r\n");
    let lines = fields.iter().map(|field| offset_of(head, field.name.as_bytes()));
    // The last field line, or the start line, and the empty line.
    if lines.chain([head.len() - head.len().min(2), head.len()]).any(bare) {
        return Err(Refusal::bad("a line does not end with CRLF"));
    }
    Ok(())
}

/// Splits a request target (RFC 9112 §3.2) into scheme, authority and path, as far as it has them.
fn split_target(bytes: &[u8], method: &str, target: &str) -> Result<Target, Refusal> {
    let at = offset_of(bytes, target.as_bytes());
    let whole = Span::new(at, target.len());
    if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        return Ok(Target { path: whole, ..Target::default() });
    }
    if method == "CONNECT" && !target.is_empty() {
        check_host(target.as_bytes())?;
        return Ok(Target { authority: whole, ..Target::default() });
    }
    let absolute = target.split_once("://").filter(|(scheme, rest)| {
        ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
            && !rest.is_empty()
            && !rest.starts_with(['/', '?'])
    });
    let Some((scheme, rest)) = absolute else { return Err(Refusal::bad("the request target is malformed")) };
    let authority = rest.find(['/', '?']).unwrap_or(rest.len());
    check_host(&rest.as_bytes()[..authority])?;
    let authority_at = at + scheme.len() + "://".len();
    Ok(Target {
        scheme: Span::new(at, scheme.len()),
        authority: Span::new(authority_at, authority),
        path: Span::new(authority_at + authority, rest.len() - authority),
        ..Target::default()
    })
}

/// Refuses what is not a host and a port. Bytes that neither may contain (RFC 3986 §3.2.2) are refused first, since
/// that says more about what is wrong.
fn check_host(value: &[u8]) -> Result<(), Refusal> {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(byte);
    if !value.iter().all(legal) {
        return Err(Refusal::bad("the host holds an illegal byte"));
    }
    if is_authority(value) { Ok(()) } else { Err(Refusal::bad("the host or its port is invalid")) }
}

/// A content-length: digits alone (RFC 9110 §8.6). A list of equal lengths is refused too: no real peer sends it.
fn parse_length(value: &[u8]) -> Result<u64, Refusal> {
    const BAD: Refusal = Refusal::bad("content-length is not a number");
    if value.is_empty() {
        return Err(BAD);
    }
    value.iter().try_fold(0_u64, |length, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0')).ok_or(BAD)?;
        length.checked_mul(10).and_then(|length| length.checked_add(digit)).ok_or(BAD)
    })
}

/// Whether a comma-separated list holds `token`, in any case.
pub(super) fn has_token(list: &[u8], token: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
}

/// Where `part`, a slice of `whole`, begins in it.
fn offset_of(whole: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize)
}

fn span_of(whole: &[u8], part: &[u8]) -> Span {
    Span::new(offset_of(whole, part), part.len())
}

/// The reason phrase for a status, by IANA's registry of them; empty for one that is not in it, which RFC 9112 §4
/// allows.
pub const fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}
