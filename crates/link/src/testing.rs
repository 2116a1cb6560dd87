//! Super-packets for tests.

use std::num::NonZeroU16;

use proptest::prelude::*;

use super::packet::TCP;
use super::{ChecksumState, FlowEndpoint, IpPacket, Offload, Packet};

/// A TCP packet from 10.9.0.1:40000 to 10.9.0.2:80 as the link sees it.
pub fn tcp_packet(flags: u8, seq: u32, payload: u32) -> Packet {
    let end = |host, port| FlowEndpoint { address: [10, 9, 0, host].into(), port };
    Packet {
        source: end(1, 40_000),
        destination: end(2, 80),
        protocol: TCP,
        bytes: 52 + payload,
        payload,
        seq,
        flags,
        offload: Offload::default(),
    }
}

/// The same packet in the other direction.
pub fn back(packet: Packet) -> Packet {
    Packet { source: packet.destination, destination: packet.source, ..packet }
}

/// A test's TCP or UDP packet from 10.9.0.1:40000 to 10.9.0.2:80, or from `fd09::1` to `fd09::2`.
#[derive(Debug, Clone)]
pub struct Sample {
    pub is_tcp: bool,
    pub is_v6: bool,
    /// 32-bit words of IP options; over IPv6 as many destination options as they fit into, with their header.
    pub ip_options: u8,
    /// 32-bit words of TCP options.
    pub tcp_options: u8,
    /// Identification; over IPv6 the flow label.
    pub id: u16,
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    pub flags: u8,
    /// Payload bytes of each segment; `None` makes an ordinary packet.
    pub segment: Option<u16>,
    pub payload: Vec<u8>,
    /// Whether the checksum is left to the device.
    pub is_partial: bool,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            is_tcp: true,
            is_v6: false,
            ip_options: 0,
            tcp_options: 3,
            id: 7,
            seq: 1000,
            ack: 1,
            flags: 0x10,
            segment: Some(1448),
            payload: (0..4000_u32).map(|k| (k * 31 % 251) as u8).collect(),
            is_partial: true,
        }
    }
}

impl Sample {
    /// Bytes before the transport header.
    pub fn network(&self) -> usize {
        let options = 4 * usize::from(self.ip_options);
        if self.is_v6 { 40 + options.next_multiple_of(8) } else { 20 + options }
    }

    fn protocol(&self) -> u8 {
        if self.is_tcp { 6 } else { 17 }
    }

    /// The network header before `length` bytes of transport.
    fn network_header(&self, length: usize) -> Vec<u8> {
        if self.is_v6 { self.v6_header(length) } else { self.v4_header(length) }
    }

    fn v4_header(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0x45 + self.ip_options, 0];
        bytes.extend_from_slice(&((self.network() + length) as u16).to_be_bytes());
        bytes.extend_from_slice(&self.id.to_be_bytes());
        bytes.extend_from_slice(&[0x40, 0, 64, self.protocol(), 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
        bytes.resize(self.network(), 1);
        let header_sum = !sum(&bytes);
        bytes[10..12].copy_from_slice(&header_sum.to_be_bytes());
        bytes
    }

    fn v6_header(&self, length: usize) -> Vec<u8> {
        let options = self.network() - 40;
        let mut bytes = vec![0x60, 0];
        bytes.extend_from_slice(&self.id.to_be_bytes());
        bytes.extend_from_slice(&((options + length) as u16).to_be_bytes());
        bytes.extend_from_slice(&[if options > 0 { 60 } else { self.protocol() }, 64]);
        for host in [1, 2] {
            bytes.extend_from_slice(&[0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        if options > 0 {
            // One option that is to be skipped if unknown (RFC 8200 §4.2).
            bytes.extend_from_slice(&[self.protocol(), (options / 8 - 1) as u8, 0x1e, options as u8 - 4]);
            bytes.resize(self.network(), 0xa5);
        }
        bytes
    }

    fn transport(&self) -> Vec<u8> {
        let mut bytes = [40_000_u16.to_be_bytes(), 80_u16.to_be_bytes()].concat();
        if self.is_tcp {
            bytes.extend_from_slice(&self.seq.to_be_bytes());
            bytes.extend_from_slice(&self.ack.to_be_bytes());
            bytes.extend_from_slice(&[(5 + self.tcp_options) << 4, self.flags, 0x20, 0, 0xba, 0xad, 0, 0]);
            bytes.extend((0..4 * self.tcp_options).map(|k| k ^ 0x5a));
        } else {
            bytes.extend_from_slice(&((8 + self.payload.len()) as u16).to_be_bytes());
            bytes.extend_from_slice(&[0xba, 0xad]);
        }
        bytes
    }

    /// Its bytes as the sender's kernel hands them over.
    pub fn bytes(&self) -> Vec<u8> {
        let transport = self.transport();
        let mut bytes = self.network_header(transport.len() + self.payload.len());
        bytes.extend_from_slice(&transport);
        let pseudo = self.pseudo_sum(&bytes, transport.len() + self.payload.len());
        let at = self.network() + if self.is_tcp { 16 } else { 6 };
        bytes[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        if !self.is_partial {
            // The pseudo-header's sum is in its place already.
            let sum = !sum(&bytes[self.network()..]);
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    }

    /// The work left to the device.
    pub fn offload(&self) -> Offload {
        let (start, offset) = (self.network() as u16, if self.is_tcp { 16 } else { 6 });
        let checksum =
            if self.is_partial { ChecksumState::Partial { start, offset } } else { ChecksumState::Complete };
        Offload { segment: self.segment.and_then(NonZeroU16::new), checksum }
    }

    /// The folded sum of the pseudo-header of `packet`, which has this one's network header and `length` bytes after it.
    pub fn pseudo_sum(&self, packet: &[u8], length: usize) -> u16 {
        let mut pseudo = if self.is_v6 { packet[8..40].to_vec() } else { packet[12..20].to_vec() };
        pseudo.extend_from_slice(&(length as u32).to_be_bytes());
        pseudo.extend_from_slice(&[0, self.protocol()]);
        sum(&pseudo)
    }

    pub fn frame(&self) -> IpPacket {
        IpPacket::read(self.bytes(), self.offload()).unwrap()
    }
}

/// The folded sum of 16-bit words, a word at a time as RFC 1071 describes it: unlike the code under test.
pub fn sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0_u16, |sum, word| {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

/// Super-packets of all shapes: with options, with one byte per segment, with tiny and no remainders.
pub fn samples() -> impl Strategy<Value = Sample> {
    let sizes = (prop_oneof![Just(1_u16), 1_u16..40, 500_u16..2000], 1_u32..12, 0_u16..2000);
    let header =
        ((any::<bool>(), any::<bool>()), 0_u8..=10, 0_u8..=10, any::<u16>(), any::<u32>(), any::<u8>());
    (sizes, header, any::<bool>(), any::<u8>()).prop_map(
        |(
            (segment, count, rest),
            ((is_tcp, is_v6), ip_options, tcp_options, id, seq, flags),
            is_partial,
            salt,
        )| {
            let length = usize::from(segment) * count as usize + usize::from(rest % segment);
            let payload = (0..length).map(|k| (k * 7 % 253) as u8 ^ salt).collect();
            let segment = Some(segment);
            Sample {
                is_tcp,
                is_v6,
                ip_options,
                tcp_options,
                id,
                seq,
                ack: 9,
                flags,
                segment,
                payload,
                is_partial,
            }
        },
    )
}
