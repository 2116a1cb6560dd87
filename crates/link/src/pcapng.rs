//! Packets as a file that Wireshark opens: pcapng (draft-ietf-opsawg-pcapng), with the secrets of TLS inside.
//!
//! Only encodes; the caller writes the bytes. A packet's interface says where on the link it was seen (before the loss draw,
//! after the delay); its comment says why it was dropped.

/// Packets that begin with their IP header (`LINKTYPE_RAW`).
const LINK_TYPE: u16 = 101;
/// Section header: the byte order of all that follows.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Options (§3.5, §4.2, §4.3): a comment, an interface's name and description, the resolution of its times.
const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_DESCRIPTION: u16 = 3;
const OPTION_RESOLUTION: u16 = 9;
/// Times in 10^-9 s.
const NANOSECONDS: u8 = 9;
/// The kind of secrets: lines of an NSS key log ("TLSK").
const KEY_LOG: u32 = 0x544c_534b;

/// Types of blocks (§4).
mod block {
    pub const SECTION: u32 = 0x0a0d_0d0a;
    pub const INTERFACE: u32 = 1;
    pub const PACKET: u32 = 6;
    pub const SECRETS: u32 = 10;
}

/// A packet as seen at one interface.
#[derive(Debug, Clone, Copy)]
pub struct EnhancedPacket<'a> {
    /// The interface, as numbered by [`begin`].
    pub interface: u32,
    /// When, in nanoseconds since 1970.
    pub at_nanos: u64,
    /// From the IP header on: all of it, or its beginning.
    pub bytes: &'a [u8],
    /// Bytes of the whole packet.
    pub length: u32,
    /// Its comment.
    pub comment: Option<&'a str>,
}

/// Begins a file whose packets are of these interfaces, numbered from 0, each with its name and description.
pub fn begin(out: &mut Vec<u8>, interfaces: &[(&str, &str)]) {
    write_block(out, block::SECTION, |out| {
        out.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        out.extend_from_slice(&[1, 0, 0, 0]); // version 1.0
        out.extend_from_slice(&u64::MAX.to_le_bytes()); // the section's length is not specified
    });
    for (name, description) in interfaces {
        write_block(out, block::INTERFACE, |out| {
            out.extend_from_slice(&LINK_TYPE.to_le_bytes());
            out.extend_from_slice(&[0; 6]); // reserved; no limit of a packet's length
            write_option(out, OPTION_NAME, name.as_bytes());
            write_option(out, OPTION_DESCRIPTION, description.as_bytes());
            write_option(out, OPTION_RESOLUTION, &[NANOSECONDS]);
            write_option(out, 0, &[]);
        });
    }
}

/// Adds lines of a key log (`SSLKEYLOGFILE`). They must precede the first packet that they decrypt.
pub fn secrets(out: &mut Vec<u8>, key_log: &[u8]) {
    write_block(out, block::SECRETS, |out| {
        out.extend_from_slice(&KEY_LOG.to_le_bytes());
        out.extend_from_slice(&length(key_log).to_le_bytes());
        write_padded(out, key_log);
    });
}

/// Adds a packet.
pub fn packet(out: &mut Vec<u8>, seen: &EnhancedPacket<'_>) {
    write_block(out, block::PACKET, |out| {
        for word in [
            seen.interface,
            (seen.at_nanos >> 32) as u32,
            seen.at_nanos as u32, // the lower half
            length(seen.bytes),
            seen.length,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        write_padded(out, seen.bytes);
        if let Some(comment) = seen.comment {
            write_option(out, OPTION_COMMENT, comment.as_bytes());
            write_option(out, 0, &[]);
        }
    });
}

/// A block has its length before and after its body (§3.1).
fn write_block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let total = length(&out[start..]) + 4;
    out[start + 4..start + 8].copy_from_slice(&total.to_le_bytes());
    out.extend_from_slice(&total.to_le_bytes());
}

/// An option's value is truncated to the largest length that fits its field.
fn write_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    write_padded(out, value);
}

/// Pads to a multiple of 4 bytes.
fn write_padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + bytes.len().wrapping_neg() % 4, 0);
}

/// No packet, key log or block approaches 4 GiB.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// Type and content of each block; both lengths must agree.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut blocks = Vec::new();
        while !bytes.is_empty() {
            let total = word(bytes, 4) as usize;
            assert!(total.is_multiple_of(4) && word(bytes, total - 4) as usize == total);
            blocks.push((word(bytes, 0), bytes[8..total - 4].to_vec()));
            bytes = &bytes[total..];
        }
        blocks
    }

    #[test]
    fn a_file_is_blocks_whose_lengths_agree_whatever_they_hold() {
        for extra in 0..5 {
            let (data, text) = (vec![0x45; 20 + extra], "x".repeat(extra));
            let mut file = Vec::new();
            begin(&mut file, &[("uplink", "x"), (&text, &text)]);
            secrets(&mut file, text.as_bytes());
            let seen = EnhancedPacket {
                interface: 1,
                at_nanos: 0x0123_4567_89ab_cdef,
                bytes: &data,
                length: 1500,
                comment: Some(&text),
            };
            packet(&mut file, &seen);
            packet(&mut file, &EnhancedPacket { comment: None, ..seen });
            let blocks = blocks(&file);
            let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 10, 6, 6]);
            let (_, first) = &blocks[4];
            assert_eq!((word(first, 0), word(first, 4), word(first, 8)), (1, 0x0123_4567, 0x89ab_cdef));
            assert_eq!((word(first, 12), word(first, 16)), (20 + extra as u32, 1500), "a part of it");
            assert_eq!(first[20..40 + extra], data);
            let (_, secret) = &blocks[3];
            assert_eq!((&secret[..4], word(secret, 4)), (&b"KSLT"[..], extra as u32));
        }
    }
}
