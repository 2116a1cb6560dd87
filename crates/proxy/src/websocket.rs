//! The handshake of WebSocket on its way between HTTP/1.1 (RFC 6455 §4) and HTTP/2 (RFC 8441 §5), which has no key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use h2lab_base::random::Counter;
use sha1::{Digest as _, Sha1};

/// The field with the client's key in HTTP/1.1.
pub const KEY: &str = "sec-websocket-key";
/// The field with the answer to it.
pub const ACCEPT: &str = "sec-websocket-accept";

/// What is appended to the key before it is hashed (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The answer to a key.
pub fn accept(key: &[u8]) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

/// A key of 16 random bytes.
pub fn key(random: &mut Counter) -> String {
    let halves = [random.next_u64(), random.next_u64()].map(u64::to_be_bytes);
    STANDARD.encode(halves.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_answered_so() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn keys_differ_and_have_sixteen_bytes() {
        let mut random = Counter::new(1, "keys");
        let keys = [key(&mut random), key(&mut random)];
        assert!(
            keys[0] != keys[1]
                && keys.iter().all(|key| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16))
        );
    }
}
