//! Lines of a key log: the secrets that decrypt a connection's packets.

/// Whether a line, with its line end, belongs to a key log (RFC 9850 §2): a label, and two hexadecimal strings.
pub fn is_secret(line: &[u8]) -> bool {
    let Some(line) = line.strip_suffix(b"\n") else { return false };
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [label, random, secret] = words.as_slice() else { return false };
    let is_label = |&byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let is_hex = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_hexdigit);
    !label.is_empty() && label.iter().all(is_label) && is_hex(random) && is_hex(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_secrets_is_distinguished_from_what_programs_say() {
        assert!(is_secret(b"CLIENT_TRAFFIC_SECRET_0 3a ff\n"));
        assert!(!is_secret(b"CLIENT_TRAFFIC_SECRET_0 3a ff"), "half of a line");
        assert!(!is_secret(b"CLIENT_TRAFFIC_SECRET_0 - -\n"), "a connection in clear");
        assert!(!is_secret(b"CLIENT_TRAFFIC_SECRET_0 3a\n"));
        assert!(!is_secret(b"# comment\n") && !is_secret(b"\n") && !is_secret(b"server is ready\n"));
    }
}
