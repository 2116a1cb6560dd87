//! The first bytes of a connection (RFC 9113 §3.4), and what they look like if they are not HTTP/2.

use super::frame::{FrameHeader, PREFACE, flag, kind};

/// What the first bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// What HTTP/2 demands.
    Right,
    /// Too few to decide.
    Incomplete,
    /// Another protocol; holds what it looks like and what to try instead.
    Foreign(&'static str),
    /// HTTP/2, but not what must come first.
    Wrong,
}

/// Looks at what a client sent first.
pub(super) fn of_client(bytes: &[u8]) -> Beginning {
    let compared = bytes.len().min(PREFACE.len());
    if bytes[..compared] == PREFACE[..compared] {
        return if compared == PREFACE.len() { Beginning::Right } else { Beginning::Incomplete };
    }
    match bytes {
        [0x16, ..] => {
            Beginning::Foreign("it sent a TLS handshake; this port speaks cleartext, use http:// (h2c)")
        }
        [b'A'..=b'Z', ..] if bytes.starts_with(b"PRI") => Beginning::Wrong,
        [b'A'..=b'Z', ..] => {
            Beginning::Foreign("it sent what looks like an HTTP/1.1 request; use prior knowledge or h1")
        }
        _ => Beginning::Wrong,
    }
}

/// Looks at what a server sent first: it must be a SETTINGS frame.
pub(super) fn of_server(bytes: &[u8]) -> Beginning {
    const HTTP1: &[u8] = b"HTTP/";
    let compared = bytes.len().min(HTTP1.len());
    if compared > 0 && bytes[..compared] == HTTP1[..compared] {
        return match compared {
            5 => Beginning::Foreign(
                "it answered in HTTP/1.1; the port does not take HTTP/2 by prior knowledge, use h1",
            ),
            _ => Beginning::Incomplete,
        };
    }
    match bytes {
        [0x15, 0x03, ..] => {
            return Beginning::Foreign("it answered with a TLS alert; the port wants TLS, use https://");
        }
        [0x16, 0x03, ..] => return Beginning::Foreign("it answered with a TLS handshake; use https://"),
        [b'S', b'S', b'H', b'-', ..] => return Beginning::Foreign("it sent \"SSH-…\": an SSH server"),
        _ => {}
    }
    let Some(header) = bytes.first_chunk().map(FrameHeader::parse) else { return Beginning::Incomplete };
    match header.kind {
        kind::SETTINGS if header.stream == 0 && !header.has(flag::ACK) => Beginning::Right,
        kind::DATA..=kind::CONTINUATION if header.length <= super::settings::MIN_FRAME_SIZE => {
            Beginning::Wrong
        }
        _ => Beginning::Foreign("its first bytes are not an HTTP/2 frame"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preface_is_recognised_in_any_pieces() {
        for cut in 0..PREFACE.len() {
            assert_eq!(of_client(&PREFACE[..cut]), Beginning::Incomplete, "{cut}");
        }
        assert_eq!(of_client(PREFACE), Beginning::Right);
        assert_eq!(of_client(b"PRI * HTTP/1"), Beginning::Wrong);
        assert_eq!(of_client(b"\0\0\0"), Beginning::Wrong);
    }

    #[test]
    fn other_protocols_are_named() {
        assert!(
            matches!(of_client(b"GET / HTTP/1.1\r\n"), Beginning::Foreign(hint) if hint.contains("HTTP/1.1"))
        );
        assert!(
            matches!(of_client(b"POST /"), Beginning::Foreign(_)),
            "shares its first letter with the preface"
        );
        assert!(matches!(of_client(&[0x16, 3, 1, 2]), Beginning::Foreign(hint) if hint.contains("TLS")));
        assert!(
            matches!(of_server(b"HTTP/1.1 400 Bad Request"), Beginning::Foreign(hint) if hint.contains("HTTP/1.1"))
        );
        assert!(
            matches!(of_server(&[0x15, 3, 1, 0, 2, 2, 40]), Beginning::Foreign(hint) if hint.contains("TLS"))
        );
        assert!(matches!(of_server(b"SSH-2.0-OpenSSH"), Beginning::Foreign(hint) if hint.contains("SSH")));
        assert!(matches!(of_server(b"220 mail.test ESMTP"), Beginning::Foreign(_)));
    }

    #[test]
    fn a_server_begins_with_settings() {
        let first = |kind, flags| of_server(&FrameHeader { length: 0, kind, flags, stream: 0 }.encode());
        assert_eq!(first(kind::SETTINGS, 0), Beginning::Right);
        assert_eq!(first(kind::SETTINGS, flag::ACK), Beginning::Wrong);
        assert_eq!(first(kind::PING, 0), Beginning::Wrong);
        assert_eq!(of_server(b"HTT"), Beginning::Incomplete);
        assert_eq!(of_server(&[]), Beginning::Incomplete);
    }
}
