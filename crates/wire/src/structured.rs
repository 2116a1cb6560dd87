//! Strings of structured fields (RFC 8941), as `Proxy-Status` has them.

/// A string of a structured field (RFC 8941 §3.3.3): printable ASCII, other characters as `?`.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}

/// The value of `Proxy-Status` (RFC 9209) that begins so and ends with why a request was refused.
pub(crate) fn proxy_status(value: &str, reason: &str) -> String {
    format!("{value}; details={}", quoted(reason))
}
