//! A TCP segment, read from the bytes of its packet (RFC 9293 §3.1).

use h2lab_link::{Offload, Packet};

/// IP protocol number of TCP.
const TCP: u8 = 6;

/// Flags, as defined for byte 13.
pub(in crate::diagnose) mod flag {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const ACK: u8 = 0x10;
}

/// Kinds of options (RFC 9293 §3.1, RFC 2018 §3).
mod kind {
    pub const END: u8 = 0;
    pub const NOTHING: u8 = 1;
    pub const MAX_SEGMENT: u8 = 2;
    pub const SACK: u8 = 5;
}

/// Blocks of selective acknowledgement that fit into a header.
const SACKS: usize = 4;

/// The fields of a segment that the attribution needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::diagnose) struct Segment<'a> {
    /// The sequence number of its first byte, or of its SYN.
    pub seq: u32,
    /// The next byte that its sender expects; `None` without ACK.
    pub ack: Option<u32>,
    /// Its flags.
    pub flags: u8,
    /// Selective acknowledgements: edges of up to four blocks (RFC 2018 §3), the rest empty.
    pub sacks: [(u32, u32); SACKS],
    /// How many of them there are.
    pub sack_count: usize,
    /// In a SYN or SYN-ACK: the largest segment that its sender accepts (RFC 9293 §3.7.1).
    pub mss: Option<u16>,
    /// Bytes of its options, which reduce its payload (RFC 6691).
    pub options: usize,
    /// Its payload.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Reads a packet from its IP header on; `None` if it is not a whole TCP segment.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let packet = Packet::parse(bytes, Offload::default())?;
        if packet.protocol != TCP {
            return None;
        }
        let end = packet.bytes as usize;
        let behind = end.checked_sub(packet.payload as usize)?;
        let header = tcp_header(bytes.get(..behind)?)?;
        let ack = (packet.flags & flag::ACK != 0).then(|| be32(header, 8)).flatten();
        let options = header.get(20..)?;
        let (sacks, sack_count) = sacks(options);
        Some(Self {
            seq: packet.seq,
            ack,
            flags: packet.flags,
            sacks,
            sack_count,
            mss: (packet.flags & flag::SYN != 0).then(|| mss(options)).flatten(),
            options: options.len(),
            payload: bytes.get(behind..end)?,
        })
    }

    /// Whether it has the most bytes that its receiver accepts in one segment: `most` minus the options.
    pub const fn is_full(&self, most: u16) -> bool {
        !self.payload.is_empty() && self.payload.len() + self.options >= most as usize
    }

    /// Whether it opens a connection, rather than answering one that does.
    pub const fn is_opening(&self) -> bool {
        self.flags & flag::SYN != 0 && self.flags & flag::ACK == 0
    }

    /// Its blocks of selective acknowledgement.
    pub fn sacks(&self) -> &[(u32, u32)] {
        &self.sacks[..self.sack_count]
    }
}

/// The TCP header at the end of `headers`, which are all bytes before the payload.
fn tcp_header(headers: &[u8]) -> Option<&[u8]> {
    let network = match headers.first()? >> 4 {
        4 => usize::from(headers[0] & 0x0f) * 4,
        // With extension headers the TCP header's length field locates it; `Packet::parse` has walked them.
        _ => (40..headers.len()).step_by(4).find(|&at| {
            headers.get(at + 12).is_some_and(|byte| usize::from(byte >> 4) * 4 == headers.len() - at)
        })?,
    };
    headers.get(network..).filter(|header| header.len() >= 20)
}

/// The blocks of the SACK option, if there is one.
fn sacks(options: &[u8]) -> ([(u32, u32); SACKS], usize) {
    let mut blocks = [(0, 0); SACKS];
    let Some(body) = option(options, kind::SACK) else { return (blocks, 0) };
    let (edges, _) = body.as_chunks::<8>();
    for (block, edges) in blocks.iter_mut().zip(edges) {
        *block = (be32(edges, 0).unwrap_or(0), be32(edges, 4).unwrap_or(0));
    }
    (blocks, edges.len().min(SACKS))
}

/// The value of the maximum segment size option.
fn mss(options: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(option(options, kind::MAX_SEGMENT)?.try_into().ok()?))
}

/// The value of the first option of this kind; `None` if there is none, or if an option before it has an impossible
/// length.
fn option(mut options: &[u8], wanted: u8) -> Option<&[u8]> {
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            kind::END => return None,
            kind::NOTHING => options = rest,
            _ => {
                let length = usize::from(*rest.first()?);
                let body = options.get(2..length)?;
                if kind == wanted {
                    return Some(body);
                }
                options = &options[length..];
            }
        }
    }
    None
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A TCP header with these options, and a payload of two bytes.
    fn tcp(flags: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes =
            vec![0x9c, 0x40, 0x1f, 0x90, 0, 0, 0, 5, 0, 0, 1, 0, 0, flags, 0xff, 0xff, 0, 0, 0, 0];
        bytes[12] = ((20 + options.len()) * 4) as u8;
        [&bytes, options, b"ab"].concat()
    }

    fn v4(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, TCP, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        bytes[3] = (20 + body.len()) as u8;
        [&bytes, body].concat()
    }

    /// IPv6 with an extension header of destination options.
    fn v6(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, (8 + body.len()) as u8, 60, 64];
        bytes.extend([0xfd; 32]);
        bytes.extend([TCP, 0, 1, 4, 0, 0, 0, 0]);
        [&bytes, body].concat()
    }

    #[test]
    fn acknowledgements_blocks_and_payload_are_found_in_both_versions_of_ip() {
        let sack = [1, 1, 5, 18, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0];
        for bytes in [v4(&tcp(0x18, &sack)), v6(&tcp(0x18, &sack))] {
            let segment = Segment::parse(&bytes).unwrap();
            assert_eq!((segment.seq, segment.ack, segment.payload), (5, Some(0x100), &b"ab"[..]));
            assert_eq!(segment.sacks(), [(0x200, 0x300), (0x400, 0x500)]);
            assert!(!segment.is_opening());
        }
    }

    #[test]
    fn only_a_syn_without_an_acknowledgement_opens() {
        let is_opening = |flags| Segment::parse(&v4(&tcp(flags, &[]))).unwrap().is_opening();
        assert_eq!([0x02, 0x12, 0x10].map(is_opening), [true, false, false]);
        let bytes = v4(&tcp(0x02, &[]));
        assert_eq!(Segment::parse(&bytes).unwrap().ack, None);
    }

    #[test]
    fn a_segment_is_full_when_payload_and_options_come_to_what_the_other_side_takes() {
        let syn = v4(&tcp(0x12, &[1, 1, 4, 2, 2, 4, 0x05, 0xb4]));
        assert_eq!(Segment::parse(&syn).unwrap().mss, Some(1460));
        let no_syn = v4(&tcp(0x10, &[2, 4, 0x05, 0xb4]));
        assert_eq!(Segment::parse(&no_syn).unwrap().mss, None, "only a SYN says it");
        let bytes = v4(&tcp(0x10, &[1; 12]));
        let segment = Segment::parse(&bytes).unwrap();
        assert_eq!([13, 14, 15].map(|most| segment.is_full(most)), [true, true, false]);
    }

    #[test]
    fn options_of_impossible_lengths_end_the_search() {
        for options in [[5, 0, 0, 0], [8, 1, 5, 2], [5, 200, 0, 0], [0, 5, 10, 0], [2, 3, 5, 0], [2, 1, 2, 4]]
        {
            let bytes = v4(&tcp(0x12, &options));
            let segment = Segment::parse(&bytes).unwrap();
            assert_eq!((segment.sacks(), segment.mss), (&[][..], None));
        }
        assert_eq!(Segment::parse(&v4(&[0; 8])), None, "no whole header");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(first in prop_oneof![Just(0x45_u8), Just(0x60)], mut bytes in prop::collection::vec(any::<u8>(), 1..120)) {
            bytes[0] = first;
            if let Some(protocol) = bytes.get_mut(if first == 0x45 { 9 } else { 6 }) {
                *protocol = TCP;
            }
            if let Some(segment) = Segment::parse(&bytes) {
                prop_assert!(segment.payload.len() < bytes.len() && segment.sacks().len() <= SACKS);
            }
        }
    }
}
