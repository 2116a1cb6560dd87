//! Base 64 for URLs (RFC 4648 §5), with padding: how object stores write names and digests.

use h2lab_base::units;

/// `bytes` in it.
pub(crate) fn encode(bytes: &[u8]) -> String {
    units::base64(bytes).replace('+', "-").replace('/', "_")
}

/// The bytes of `text`; `None` if it is anything else.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let has_other_alphabet = text.contains(['+', '/']);
    (!has_other_alphabet).then(|| units::from_base64(&text.replace('-', "+").replace('_', "/"))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_last_digits_are_those_for_urls() {
        assert_eq!(encode(&[0xfb, 0xff, 0xfe]), "-__-");
        assert_eq!(decode("-__-"), Some(vec![0xfb, 0xff, 0xfe]));
        assert_eq!(decode("+//+"), None);
    }

    #[test]
    fn padding_is_written_and_needed() {
        assert_eq!((encode(b"a"), encode(b"ab"), encode(b"")), ("YQ==".into(), "YWI=".into(), String::new()));
        assert_eq!((decode("YQ=="), decode("YQ")), (Some(b"a".to_vec()), None));
    }
}
