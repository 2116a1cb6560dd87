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
