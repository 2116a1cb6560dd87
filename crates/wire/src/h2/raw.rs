//! Frames and field blocks as no engine would send them, for roles that test how the peer reacts.

use super::frame::FrameHeader;
use crate::compression;

/// A frame with any payload. Payloads above 2^24 − 1 bytes cannot be described in its header.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader { length: payload.len() as u32, kind, flags, stream };
    [&header.encode()[..], payload].concat()
}

/// A field block of literals that no table keeps (RFC 7541 §6.2.2), names and values as they are, legal or not.
pub fn field_block<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    const LITERAL_WITH_NEW_NAME: u8 = 0;
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(LITERAL_WITH_NEW_NAME);
        for text in [name, value] {
            compression::put_string(text, 7, 0, &mut block);
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::frame::kind;
    use crate::h2::inspect::FieldBlocks;

    #[test]
    fn any_bytes_go_as_names_and_values() {
        let fields: [(&[u8], &[u8]); 3] = [(b":path", b"/a b\r\n"), (b"X\0", b""), (b"x", &[b'v'; 300])];
        let block = field_block(fields);
        let mut blocks = FieldBlocks::default();
        let (read, _) = blocks.decode(&block).unwrap();
        let read: Vec<(&[u8], &[u8])> = read.iter().map(|field| (field.name, field.value)).collect();
        assert_eq!(read, fields);
        assert_eq!(frame(kind::PING, 1, 0, b"12345678")[..9], [0, 0, 8, 6, 1, 0, 0, 0, 0]);
    }
}
