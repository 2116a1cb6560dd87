//! A packet's metadata for the link, read from its bytes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::num::NonZeroU16;

/// One end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowEndpoint {
    /// Address at the network layer.
    pub address: IpAddr,
    /// TCP or UDP port; 0 for other protocols and for fragments after the first.
    pub port: u16,
}

/// A flow: both directions have the same key, so that a packet and its acknowledgement match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The smaller endpoint.
    pub low: FlowEndpoint,
    /// The larger endpoint.
    pub high: FlowEndpoint,
    /// IP protocol number: 6 is TCP, 17 is UDP.
    pub protocol: u8,
}

/// Which flow of the link a packet belongs to, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FlowNumber(u32);

impl FlowNumber {
    /// No flow: neither TCP nor UDP, or flows need not be distinguished.
    pub const NONE: Self = Self(0);

    /// The flow with this number; 0 is none.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number; 0 is none.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Its place in a list of all flows.
    pub(super) fn index(self) -> Option<usize> {
        self.0.checked_sub(1).map(|index| index as usize)
    }
}

impl fmt::Display for FlowNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The state of the transport checksum (`VIRTIO_NET_HDR_F_NEEDS_CSUM` and `_DATA_VALID`; virtio 1.2 §5.1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ChecksumState {
    /// In the packet, to be checked by the receiver.
    #[default]
    Complete,
    /// Only the pseudo-header's sum is in the packet; the last device completes it.
    Partial {
        /// Where summing starts, in bytes from the start of the network header.
        start: u16,
        /// Where the sum is stored, in bytes from `start`.
        offset: u16,
    },
    /// Known to be right; needs no check.
    Verified,
}

/// What is left to a device: the fields of a `virtio_net_hdr`. The default is an ordinary packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Offload {
    /// Payload bytes of each segment into which the packet must be segmented; `None`: it is one packet.
    pub segment: Option<NonZeroU16>,
    /// The transport checksum.
    pub checksum: ChecksumState,
}

/// A packet's metadata. Its bytes travel beside it, opaque to the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Sender.
    pub source: FlowEndpoint,
    /// Receiver.
    pub destination: FlowEndpoint,
    /// IP protocol number.
    pub protocol: u8,
    /// Bytes at the network layer: IP header and all after it. This is what bandwidth and queue count.
    pub bytes: u32,
    /// Bytes after the TCP or UDP header; for other protocols after the IP header.
    pub payload: u32,
    /// TCP sequence number; 0 otherwise.
    pub seq: u32,
    /// TCP flags, byte 13 of its header (RFC 9293 §3.1); 0 otherwise.
    pub flags: u8,
    /// Segmentation and checksum that are still to be done.
    pub offload: Offload,
}

/// TCP (RFC 9293).
pub(super) const TCP: u8 = 6;
/// UDP (RFC 768).
pub(super) const UDP: u8 = 17;

/// TCP flags (RFC 9293 §3.1, RFC 3168 §6.1).
pub(super) mod flag {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const ECE: u8 = 0x40;
    pub const CWR: u8 = 0x80;
}

impl Packet {
    /// Reads a packet that starts with its IPv4 (RFC 791) or IPv6 (RFC 8200) header.
    ///
    /// `None` if it is neither or ends before its headers do. The sizes are those in the headers, limited to the bytes that are
    /// there; bytes after the packet (Ethernet padding) do not count.
    pub fn parse(bytes: &[u8], offload: Offload) -> Option<Self> {
        let network = match bytes.first()? >> 4 {
            4 => Network::parse_v4(bytes)?,
            6 => Network::parse_v6(bytes)?,
            _ => return None,
        };
        let body = bytes.get(network.header..network.end)?;
        let transport = Transport::parse(&network, body)?;
        Some(Self {
            source: FlowEndpoint { address: network.source, port: transport.source_port },
            destination: FlowEndpoint { address: network.destination, port: transport.destination_port },
            protocol: network.protocol,
            bytes: u32::try_from(network.end).ok()?,
            payload: u32::try_from(body.len() - transport.header).ok()?,
            seq: transport.seq,
            flags: transport.flags,
            offload,
        })
    }

    /// The flow that it belongs to.
    pub fn flow(&self) -> Flow {
        let (low, high) = if self.source <= self.destination {
            (self.source, self.destination)
        } else {
            (self.destination, self.source)
        };
        Flow { low, high, protocol: self.protocol }
    }

    /// How many packets it stands for on the wire: 1, or more before segmentation.
    pub fn segments(&self) -> u32 {
        self.offload.segment.map_or(1, |size| self.payload.div_ceil(u32::from(size.get())).max(1))
    }
}

/// The contents of the network header.
struct Network {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// Bytes of the header, options and extension headers included.
    header: usize,
    /// Where the packet ends.
    end: usize,
    /// Whether the transport header is here: not in fragments after the first.
    is_first_fragment: bool,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

impl Network {
    /// The fragment offset is the lower 13 bits of its field; the flags before it do not count.
    fn parse_v4(bytes: &[u8]) -> Option<Self> {
        let header = usize::from(bytes.first()? & 0x0f) * 4;
        let end = usize::from(be16(bytes, 2)?).min(bytes.len());
        if header < 20 || end < header {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        };
        Some(Self {
            source: address(12)?,
            destination: address(16)?,
            protocol: *bytes.get(9)?,
            header,
            end,
            is_first_fragment: be16(bytes, 6)? << 3 == 0,
        })
    }

    fn parse_v6(bytes: &[u8]) -> Option<Self> {
        const FIXED: usize = 40;
        let end = (FIXED + usize::from(be16(bytes, 4)?)).min(bytes.len());
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        };
        let mut network = Self {
            source: address(8)?,
            destination: address(24)?,
            protocol: *bytes.get(6)?,
            header: FIXED,
            end,
            is_first_fragment: true,
        };
        network.skip_extensions(bytes)?;
        (network.header <= end).then_some(network)
    }

    /// Skips the extension headers of RFC 8200 §4 that may stand before a transport header.
    fn skip_extensions(&mut self, bytes: &[u8]) -> Option<()> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const DESTINATION: u8 = 60;
        while self.is_first_fragment {
            let at = self.header;
            match self.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => {
                    self.header += (usize::from(*bytes.get(at + 1)?) + 1) * 8;
                }
                FRAGMENT => {
                    self.is_first_fragment = be16(bytes, at + 2)? >> 3 == 0;
                    self.header += 8;
                }
                _ => break,
            }
            self.protocol = *bytes.get(at)?;
        }
        Some(())
    }
}

/// The contents of the transport header; zeros where there is none.
#[derive(Default)]
struct Transport {
    source_port: u16,
    destination_port: u16,
    seq: u32,
    flags: u8,
    header: usize,
}

impl Transport {
    fn parse(network: &Network, body: &[u8]) -> Option<Self> {
        let header = match network.protocol {
            _ if !network.is_first_fragment => return Some(Self::default()),
            TCP => usize::from(body.get(12)? >> 4) * 4,
            UDP => 8,
            _ => return Some(Self::default()),
        };
        let minimum = if network.protocol == TCP { 20 } else { 8 };
        if header < minimum || header > body.len() {
            return None;
        }
        let (seq, flags) = match network.protocol {
            TCP => (u32::from_be_bytes(body.get(4..8)?.try_into().ok()?), *body.get(13)?),
            _ => (0, 0),
        };
        Some(Self { source_port: be16(body, 0)?, destination_port: be16(body, 2)?, seq, flags, header })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An IPv4 packet from 10.9.0.1 to 10.9.0.2.
    fn v4(protocol: u8, fragment: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        let total = (bytes.len() + body.len()) as u16;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    /// A TCP header with 12 bytes of options, and `payload` bytes after it.
    fn tcp(source: u16, destination: u16, seq: u32, payload: usize) -> Vec<u8> {
        let mut body = vec![0; 32 + payload];
        body[0..2].copy_from_slice(&source.to_be_bytes());
        body[2..4].copy_from_slice(&destination.to_be_bytes());
        body[4..8].copy_from_slice(&seq.to_be_bytes());
        body[12] = 8 << 4;
        body[13] = flag::PSH | flag::ACK;
        body
    }

    #[test]
    fn a_tcp_segment_shows_its_ports_sequence_and_payload() {
        let packet = Packet::parse(&v4(TCP, 0, &tcp(40_000, 80, 7, 1000)), Offload::default()).unwrap();
        assert_eq!((packet.source.port, packet.destination.port, packet.seq), (40_000, 80, 7));
        assert_eq!((packet.bytes, packet.payload, packet.segments()), (1052, 1000, 1));
        assert_eq!(packet.flags, flag::PSH | flag::ACK);
    }

    #[test]
    fn both_directions_have_one_flow() {
        let there = Packet::parse(&v4(TCP, 0, &tcp(40_000, 80, 7, 0)), Offload::default()).unwrap();
        let back = Packet { source: there.destination, destination: there.source, ..there };
        assert_eq!(there.flow(), back.flow());
        let other = Packet { source: FlowEndpoint { port: 40_001, ..there.source }, ..there };
        assert_ne!(there.flow(), other.flow());
    }

    #[test]
    fn ethernet_padding_is_not_part_of_the_packet() {
        let mut bytes = v4(TCP, 0, &tcp(1, 2, 3, 0));
        bytes.extend_from_slice(&[0; 6]);
        assert_eq!(Packet::parse(&bytes, Offload::default()).unwrap().bytes, 52);
    }

    #[test]
    fn a_later_fragment_has_no_ports() {
        let packet = Packet::parse(&v4(UDP, 185, &[0xff; 100]), Offload::default()).unwrap();
        assert_eq!((packet.source.port, packet.payload), (0, 100));
        let first = Packet::parse(&v4(UDP, 0x2000, &[0xff; 100]), Offload::default()).unwrap();
        assert_eq!((first.source.port, first.payload), (0xffff, 92));
    }

    #[test]
    fn ipv6_extension_headers_are_stepped_over() {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 16, 0, 64];
        bytes.extend_from_slice(&[0xfd; 32]);
        bytes.extend_from_slice(&[UDP, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&[0, 53, 0, 80, 0, 8, 0, 0]);
        let packet = Packet::parse(&bytes, Offload::default()).unwrap();
        assert_eq!((packet.protocol, packet.source.port, packet.destination.port), (UDP, 53, 80));
        assert_eq!((packet.bytes, packet.payload), (56, 0));
    }

    #[test]
    fn a_super_packet_counts_as_its_segments() {
        let offload = Offload { segment: NonZeroU16::new(1448), checksum: ChecksumState::Verified };
        let segments =
            |payload| Packet::parse(&v4(TCP, 0, &tcp(1, 2, 3, payload)), offload).unwrap().segments();
        assert_eq!((segments(0), segments(1448), segments(1449), segments(14_480)), (1, 1, 2, 10));
    }

    #[test]
    fn a_header_that_is_cut_short_is_no_packet() {
        let whole = v4(TCP, 0, &tcp(1, 2, 3, 0));
        assert!(Packet::parse(&whole, Offload::default()).is_some());
        assert!((0..whole.len()).all(|n| Packet::parse(&whole[..n], Offload::default()).is_none()));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(version in prop_oneof![Just(0x45_u8), Just(0x60), Just(0x4f), any::<u8>()],
                          mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            if let Some(packet) = Packet::parse(&bytes, Offload::default()) {
                prop_assert!(packet.bytes as usize <= bytes.len());
                prop_assert!(packet.payload < packet.bytes);
            }
        }
    }
}
