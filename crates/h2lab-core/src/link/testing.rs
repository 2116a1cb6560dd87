//! Super-packets for tests.

use std::num::NonZeroU16;

use proptest::prelude::*;

use super::packet::TCP;
use super::{Checksum, Endpoint, Frame, Offload, Packet};

/// A TCP packet from 10.9.0.1:40000 to 10.9.0.2:80 as the link sees it.
pub fn tcp_packet(flags: u8, seq: u32, payload: u32) -> Packet {
    let end = |host, port| Endpoint { address: [10, 9, 0, host].into(), port };
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

/// The same packet the other way.
pub fn back(packet: Packet) -> Packet {
    Packet { source: packet.destination, destination: packet.source, ..packet }
}

/// What a test wants of a TCP or UDP packet from 10.9.0.1:40000 to 10.9.0.2:80.
#[derive(Debug, Clone)]
pub struct Sample {
    pub is_tcp: bool,
    /// 32-bit words of IP options.
    pub ip_options: u8,
    /// 32-bit words of TCP options.
    pub tcp_options: u8,
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
    fn network(&self) -> usize {
        20 + 4 * usize::from(self.ip_options)
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
        let length = self.network() + transport.len() + self.payload.len();
        let mut bytes = vec![0x45 + self.ip_options, 0];
        bytes.extend_from_slice(&(length as u16).to_be_bytes());
        bytes.extend_from_slice(&self.id.to_be_bytes());
        bytes.extend_from_slice(&[
            0x40,
            0,
            64,
            if self.is_tcp { 6 } else { 17 },
            0,
            0,
            10,
            9,
            0,
            1,
            10,
            9,
            0,
            2,
        ]);
        bytes.resize(self.network(), 1);
        let header_sum = !sum(&bytes);
        bytes[10..12].copy_from_slice(&header_sum.to_be_bytes());
        bytes.extend_from_slice(&transport);
        let pseudo = pseudo_sum(&bytes);
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

    /// What is left to the device.
    pub fn offload(&self) -> Offload {
        let (start, offset) = (self.network() as u16, if self.is_tcp { 16 } else { 6 });
        let checksum = if self.is_partial { Checksum::Partial { start, offset } } else { Checksum::Complete };
        Offload { segment: self.segment.and_then(NonZeroU16::new), checksum }
    }

    pub fn frame(&self) -> Frame {
        Frame::read(self.bytes(), self.offload()).unwrap()
    }
}

/// The folded sum of 16-bit words, a word at a time as RFC 1071 describes it: another way than the code under test.
pub fn sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0_u16, |sum, word| {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

/// The folded sum of the pseudo-header of an IPv4 packet.
pub fn pseudo_sum(packet: &[u8]) -> u16 {
    let network = usize::from(packet[0] & 0x0f) * 4;
    let length = u16::from_be_bytes([packet[2], packet[3]]) - network as u16;
    let mut pseudo = packet[12..20].to_vec();
    pseudo.extend_from_slice(&[0, packet[9]]);
    pseudo.extend_from_slice(&length.to_be_bytes());
    sum(&pseudo)
}

/// Super-packets of all shapes: with options, with one byte per segment, with tiny and no remainders.
pub fn samples() -> impl Strategy<Value = Sample> {
    let sizes = (prop_oneof![Just(1_u16), 1_u16..40, 500_u16..2000], 1_u32..12, 0_u16..2000);
    let header = (any::<bool>(), 0_u8..=10, 0_u8..=10, any::<u16>(), any::<u32>(), any::<u8>());
    (sizes, header, any::<bool>(), any::<u8>()).prop_map(
        |((segment, count, rest), (is_tcp, ip_options, tcp_options, id, seq, flags), is_partial, salt)| {
            let length = usize::from(segment) * count as usize + usize::from(rest % segment);
            let payload = (0..length).map(|k| (k * 7 % 253) as u8 ^ salt).collect();
            let segment = Some(segment);
            Sample { is_tcp, ip_options, tcp_options, id, seq, ack: 9, flags, segment, payload, is_partial }
        },
    )
}
