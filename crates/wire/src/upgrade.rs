//! The switch from HTTP/1.1 to HTTP/2 in clear by `Upgrade: h2c` (RFC 7540 §3.2; RFC 9113 §3.1 made it historic,
//! proxies and clients in use still make it): what the two engines hand over, and the coding of `HTTP2-Settings`.

use std::sync::Arc;

use super::connection::{Config, Counters};

/// What an HTTP/2 connection takes over from the HTTP/1.1 connection that it begins as.
#[derive(Debug)]
pub(crate) struct Handover {
    /// How the connection behaves.
    pub(crate) config: Arc<Config>,
    /// What was counted so far.
    pub(crate) counters: Counters,
    /// Bytes received and not read: those of HTTP/2.
    pub(crate) unread: Vec<u8>,
    /// Bytes that must be sent before any of HTTP/2.
    pub(crate) unsent: Vec<u8>,
    /// The payload of the client's `HTTP2-Settings`.
    pub(crate) settings: Vec<u8>,
    /// The request that asked for the switch was HEAD: its response has no content, whatever length it announces.
    pub(crate) is_head: bool,
    /// The transport will deliver no more.
    pub(crate) eof: bool,
    /// No further request will be accepted.
    pub(crate) draining: bool,
}

/// The alphabet of base64url (RFC 4648 §5).
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// `bytes` in base64url without padding, as RFC 7540 §3.2.1 asks for.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..=group.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}

/// Decodes `text`; `None` unless it is canonical base64url without padding.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            bits = bits << 6 | ALPHABET.iter().position(|known| known == digit)? as u32;
        }
        let (whole, spare) = (group.len() * 6 / 8, group.len() * 6 % 8);
        if whole == 0 || bits & ((1 << spare) - 1) != 0 {
            return None;
        }
        let bits = bits >> spare;
        bytes.extend_from_slice(&bits.to_be_bytes()[4 - whole..]);
    }
    Some(bytes)
}

#[cfg(test)]
mod conversations;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_settings_that_nghttp_sends_decode() {
        // MAX_CONCURRENT_STREAMS 100, INITIAL_WINDOW_SIZE 2^30 - 1.
        let settings = [0, 3, 0, 0, 0, 100, 0, 4, 0x3f, 0xff, 0xff, 0xff];
        assert_eq!(encode(&settings), "AAMAAABkAAQ_____");
        assert_eq!(decode(b"AAMAAABkAAQ_____"), Some(settings.to_vec()));
        assert_eq!(decode(b""), Some(vec![]));
    }

    #[test]
    fn what_is_not_base64url_in_its_shortest_form_is_refused() {
        for bad in ["A", "AAAAA", "AA=", "AA==", "AAM/", "AA+A", "A A", "AB", "AAB", "\u{e9}A"] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_value_survives_a_round_trip(bytes: Vec<u8>) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
        }

        #[test]
        fn what_decodes_is_what_it_would_be_encoded_as(text in "[A-Za-z0-9_=/-]{0,24}") {
            if let Some(bytes) = decode(text.as_bytes()) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
