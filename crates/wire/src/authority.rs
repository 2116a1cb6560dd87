//! Hosts and ports in `Host`, `:authority` and request targets (RFC 9110 §7.2).

use std::net::Ipv6Addr;

/// Whether this is `uri-host [ ":" port ]` (RFC 9110 §7.2, RFC 3986 §3.2.2), or empty, as in an HTTP/1.0 request that
/// names no host. A host with a port must not be empty (RFC 9110 §4.2.1), and no port is above 65535. An IPv6 address
/// may have a zone, since some clients send theirs (RFC 6874).
pub fn is_authority(bytes: &[u8]) -> bool {
    let host_and_port = match bytes.strip_prefix(b"[") {
        Some(rest) => split_at(rest, b']').map(|(literal, after)| (is_ip_literal(literal), after)),
        None => {
            let end = bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len());
            Some((is_text(&bytes[..end], b""), &bytes[end..]))
        }
    };
    bytes.is_empty() || host_and_port.is_some_and(|(is_host, after)| is_host && is_port(after))
}

/// What comes before the first `separator`, and what comes after it.
fn split_at(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// What follows a host: nothing, or a colon and a number, which may be missing (RFC 3986 §3.2.3).
fn is_port(bytes: &[u8]) -> bool {
    let Some(digits) = bytes.strip_prefix(b":") else { return bytes.is_empty() };
    let append = |number: u16, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    digits.iter().try_fold(0, append).is_some()
}

/// The contents of brackets: an IPv6 address, or `v`, a version and an address of that version (RFC 3986 §3.2.2).
fn is_ip_literal(bytes: &[u8]) -> bool {
    if let [b'v' | b'V', rest @ ..] = bytes {
        let is_version = |version: &[u8]| !version.is_empty() && version.iter().all(u8::is_ascii_hexdigit);
        return split_at(rest, b'.')
            .is_some_and(|(version, address)| is_version(version) && is_text(address, b":"));
    }
    let (address, is_zone) = match split_at(bytes, b'%') {
        Some((address, zone)) => (address, is_text(zone, b"")),
        None => (bytes, true),
    };
    is_zone && str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// Which bytes are unreserved or sub-delims (RFC 3986 §2). A table, since the host of each request is checked byte by
/// byte.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let character = byte as u8;
        plain[byte] = character.is_ascii_alphanumeric()
            || matches!(
                character,
                b'-' | b'.'
                    | b'_'
                    | b'~'
                    | b'!'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b'+'
                    | b','
                    | b';'
                    | b'='
            );
        byte += 1;
    }
    plain
};

/// Plain characters ([`PLAIN`]), percent-encoded ones, and `more`; at least one.
fn is_text(bytes: &[u8], more: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (byte, after) if PLAIN[usize::from(*byte)] || more.contains(byte) => after,
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => after,
            _ => return false,
        };
    }
    !bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_a_port_a_number_that_there_is() {
        for right in [
            "",
            "a",
            "a.test.",
            "a_b.c%41:80",
            "a,b",
            "1.2.3.4:8080",
            "999.1",
            "a:",
            "a:0",
            "a:00080",
            "a:65535",
            "[::1]",
            "[::1]:443",
            "[::ffff:1.2.3.4]:1",
            "[fe80::1%eth0]",
            "[fe80::1%25eth0]:80",
            "[v1.a:b]",
        ] {
            assert!(is_authority(right.as_bytes()), "{right}");
        }
        for wrong in [
            "a:65536",
            "a:99999",
            "a:abc",
            "a:1:2",
            "a:-1",
            "a:+1",
            ":80",
            ":",
            "[::1",
            "::1",
            "[]",
            "[a]",
            "[1.2.3.4]",
            "[::1]a",
            "[::1]80",
            "[::1]:x",
            "[::1]]",
            "a[",
            "a]",
            "a%",
            "a%4",
            "a%4g",
            "[::1%]",
            "[v1.]",
            "[v.a]",
            "[vg.a]",
            "[v1]",
            "u@a",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "a\\b",
            "a\"b",
            "bücher.de",
            "a\0",
        ] {
            assert!(!is_authority(wrong.as_bytes()), "{wrong}");
        }
    }
}
