//! What a proxy needs of gRPC over HTTP/2 (the specification is PROTOCOL-HTTP2.md of gRPC): its deadlines, and how the
//! failure of a call is reported.

use std::fmt::Write as _;
use std::time::Duration;

/// The deadline was exceeded.
pub const DEADLINE_EXCEEDED: u32 = 4;
/// The service cannot be reached; the call may be made again.
pub const UNAVAILABLE: u32 = 14;

/// Whether a message with this `content-type` is gRPC's: `application/grpc`, `application/grpc+proto`.
pub fn is_grpc(content_type: Option<&[u8]>) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    let Some(content_type) = content_type else { return false };
    content_type.len() >= TYPE.len()
        && content_type[..TYPE.len()].eq_ignore_ascii_case(TYPE)
        && matches!(content_type.get(TYPE.len()), None | Some(b'+' | b';' | b' '))
}

/// The value of `grpc-timeout`: at most eight digits and a unit. `None` if it is malformed.
pub fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(n * 3_600),
        b'M' => Duration::from_secs(n * 60),
        b'S' => Duration::from_secs(n),
        b'm' => Duration::from_millis(n),
        b'u' => Duration::from_micros(n),
        b'n' => Duration::from_nanos(n),
        _ => return None,
    })
}

/// The `grpc-status` that stands for a status of HTTP, by gRPC's "HTTP to gRPC Status Code Mapping"; 408 and 504 are deadlines of the
/// proxy's.
pub const fn status(http: u16) -> u32 {
    match http {
        400 | 431 => 13, // INTERNAL
        401 => 16,       // UNAUTHENTICATED
        403 => 7,        // PERMISSION_DENIED
        404 | 501 => 12, // UNIMPLEMENTED
        408 | 504 => DEADLINE_EXCEEDED,
        429 | 502 | 503 => UNAVAILABLE,
        _ => 2, // UNKNOWN
    }
}

/// The names of status codes, by number ("Status codes and their use in gRPC", statuscodes.md).
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The name of a status code: `UNAVAILABLE`; `OTHER` for codes without a name, so that peers cannot make up any number
/// of names.
pub fn name(status: u32) -> &'static str {
    NAMES.get(status as usize).copied().unwrap_or("OTHER")
}

/// The code that a value of `grpc-status` stands for; UNKNOWN where it is not a number, as gRPC's clients read it.
pub fn status_of(value: &[u8]) -> u32 {
    let number = str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    number.and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// Whether a status code says that the instance has failed. These are the codes that Envoy's outlier detection maps to
/// 5xx (UNKNOWN, INTERNAL, `DATA_LOSS`: 500; UNAVAILABLE: 503), except those that only the request decides:
/// UNIMPLEMENTED (501), and `DEADLINE_EXCEEDED` (504), since the deadline is the caller's own. `RESOURCE_EXHAUSTED` is
/// 429 there: a caller's quota.
pub const fn is_failure(status: u32) -> bool {
    matches!(status, 2 | 13 | UNAVAILABLE | 15)
}

/// The value of `grpc-message`: what is not printable ASCII, and `%`, as `%XX`.
pub fn message(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}"); // writing to a String cannot fail
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read() {
        for (text, known) in [
            ("1S", Some(Duration::from_secs(1))),
            ("100m", Some(Duration::from_millis(100))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("5u", Some(Duration::from_micros(5))),
            ("0n", Some(Duration::ZERO)),
            ("2M", Some(Duration::from_secs(120))),
            ("", None),
            ("S", None),
            ("1", None),
            ("-1S", None),
            ("123456789S", None),
            ("1 S", None),
        ] {
            assert_eq!(timeout(text.as_bytes()), known, "{text}");
        }
    }

    #[test]
    fn statuses_have_names_and_some_are_failures() {
        assert_eq!([name(0), name(14), name(16)], ["OK", "UNAVAILABLE", "UNAUTHENTICATED"]);
        assert_eq!([name(17), name(u32::MAX)], ["OTHER"; 2]);
        assert_eq!([&b"0"[..], b"14", b"", b"-1", b"x", b"99999999999"].map(status_of), [0, 14, 2, 2, 2, 2]);
        let failures: Vec<&str> = (0..20).filter(|code| is_failure(*code)).map(name).collect();
        assert_eq!(failures, ["UNKNOWN", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"]);
    }

    #[test]
    fn types_and_messages() {
        for (text, known) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC; x=y", true),
            ("application/grpc-web", false),
            ("application/grpcfoo", false),
            ("application/json", false),
        ] {
            assert_eq!(is_grpc(Some(text.as_bytes())), known, "{text}");
        }
        assert!(!is_grpc(None));
        assert_eq!(message("50 % of ü\n"), "50 %25 of %C3%BC%0A");
        assert_eq!([502, 429, 504, 408, 404].map(status), [14, 14, 4, 4, 12]);
    }
}
