//! What a connection begins with where its protocol is not known: HTTP, or anything else.

/// The longest method that is taken for one.
const LONGEST_METHOD: usize = 24;
/// A first line that is longer than this, and has not ended, is HTTP: nothing else has so long a target.
const LONGEST_LINE: usize = 16 * 1024;
/// The most empty lines that are tolerated before a request.
const EMPTY_LINES: usize = 4;
/// The beginning of HTTP/2 by prior knowledge (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// What the first bytes of a connection belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// They are too few to tell.
    Unclear,
    /// A request of HTTP/1 to a server: its target is a path or `*`.
    Http1,
    /// HTTP/2 by prior knowledge.
    Http2,
    /// Not HTTP; or a request to a proxy (CONNECT, or a target with a scheme), whose sender has chosen that proxy.
    Other,
}

/// What these first bytes of a connection belong to.
pub fn of(bytes: &[u8]) -> Beginning {
    let known = bytes.len().min(PREFACE.len());
    if !bytes.is_empty() && bytes[..known] == PREFACE[..known] {
        return if known == PREFACE.len() { Beginning::Http2 } else { Beginning::Unclear };
    }
    // Some clients send an empty line first (RFC 9112 §2.2).
    let mut rest = bytes;
    for _ in 0..EMPTY_LINES {
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
    }
    if rest.is_empty() || rest == b"\r" {
        return Beginning::Unclear;
    }
    let method = rest.iter().take_while(|byte| is_of_token(**byte)).count();
    if method > LONGEST_METHOD {
        return Beginning::Other;
    }
    let Some(after) = rest.get(method..).filter(|after| !after.is_empty()) else { return Beginning::Unclear };
    if method == 0 || after[0] != b' ' || &rest[..method] == b"CONNECT" {
        return Beginning::Other;
    }
    let after = &after[1..];
    if after.first().is_some_and(|first| !b"/*".contains(first)) {
        return Beginning::Other;
    }
    let end = after.iter().position(|byte| *byte == b'\n');
    let line = &after[..end.unwrap_or(after.len())];
    let line = if end.is_some() { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
    match end {
        Some(_) if is_versioned(line) => Beginning::Http1,
        Some(_) => Beginning::Other,
        None if line.iter().any(|byte| *byte < b' ' && *byte != b'\r') => Beginning::Other,
        None if line.len() > LONGEST_LINE => Beginning::Http1,
        None => Beginning::Unclear,
    }
}

const fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// Whether a line ends in ` HTTP/1.0` or another version 1.
fn is_versioned(line: &[u8]) -> bool {
    let Some((digit, rest)) = line.split_last() else { return false };
    digit.is_ascii_digit() && rest.ends_with(b" HTTP/1.") && !rest.iter().any(|byte| *byte < b' ')
}

#[cfg(test)]
mod tests {
    use super::Beginning::{Http1, Http2, Other, Unclear};
    use super::*;

    #[test]
    fn http_is_told_from_all_else_as_soon_as_it_can_be() {
        for (bytes, what) in [
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Http1),
            ("\r\nPURGE /a?b HTTP/1.0\n", Http1),
            ("OPTIONS * HTTP/1.1\r\n", Http1),
            ("PROPPATCH /a HTTP/1.1\r\n", Http1),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Http2),
            ("", Unclear),
            ("\r\n", Unclear),
            ("\r\n\r\n\r\n\r\n\r", Unclear),
            ("\r\n\r\n\r\n\r\n\r\n", Other),
            ("\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n", Http1),
            ("PRI * HTT", Unclear),
            ("GET", Unclear),
            ("GET ", Unclear),
            ("GET /a", Unclear),
            ("GET /a HTTP/1.1\r", Unclear),
            ("PRIVATE / HTTP/1.1\r\n", Http1),
            ("PRI * HTTP/1.1\r\n", Http1),
            // To a proxy, which may want the target as it is.
            ("GET http://a/ HTTP/1.1\r\n", Other),
            ("CONNECT a:443 HTTP/1.1\r\n", Other),
            // HTTP/0.9, memcached, Redis twice, SSH, SMTP, TLS, PostgreSQL.
            ("GET /\r\n", Other),
            ("get key\r\n", Other),
            ("*1\r\n$4\r\nPING\r\n", Other),
            ("PING\r\n", Other),
            ("SSH-2.0-x\r\n", Other),
            ("EHLO a\r\n", Other),
            ("\u{16}\u{3}\u{1}", Other),
            ("\0\0\0\u{8}", Other),
            ("GET /a\0", Other),
            ("abcdefghijklmnopqrstuvwxyz", Other),
        ] {
            assert_eq!(of(bytes.as_bytes()), what, "{bytes:?}");
        }
        let long = format!("GET /{}", "a".repeat(LONGEST_LINE));
        assert_eq!((of(long.as_bytes()), of(&long.as_bytes()[..LONGEST_LINE])), (Http1, Unclear));
    }

    #[test]
    fn more_bytes_never_change_what_is_known() {
        for bytes in [
            "GET /a HTTP/1.1\r\nhost: a\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM",
            "EHLO a\r\n",
            "*1\r\n$4\r\nPING\r\n",
        ] {
            let all: Vec<Beginning> = (0..=bytes.len()).map(|n| of(&bytes.as_bytes()[..n])).collect();
            let known = all.iter().position(|what| *what != Unclear).expect("it becomes known");
            assert!(all[known..].iter().all(|what| *what == all[known]), "{all:?}");
        }
    }
}
