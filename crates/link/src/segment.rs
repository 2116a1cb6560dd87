//! Segmentation: splits a super-packet of a device into the packets of the wire.
//!
//! With segmentation offload (TSO, UDP GSO) a sender's kernel passes down up to 64 KiB under one header and leaves the
//! segmentation to the device. The link must do it before the loss model: otherwise one draw takes up to 44 packets. A
//! [`Segment`] is only a view: nothing is copied until its header is written, and its payload never is.

use std::num::NonZeroU16;

use super::checksum::{fold, sum_of};
use super::network::Network;
use super::packet::{TCP, UDP, flag};
use super::{ChecksumState, Offload, Packet};

/// Bytes of the largest packet at the network layer (RFC 791 §3.1).
const LARGEST: usize = 65_535;

/// Why a packet cannot cross the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IpPacketError {
    /// Neither IPv4 nor IPv6, or it ends before its headers do.
    #[error("not an IP packet")]
    NotIp,
    /// To be segmented, but neither TCP nor UDP, or a fragment, or routed by its sender.
    #[error("only whole TCP and UDP packets without a routing header can be cut into segments")]
    NotCuttable,
    /// To be segmented, but its checksum is not where TCP or UDP have it, or bytes are missing.
    #[error("the description of the super-packet does not fit its bytes")]
    Inconsistent,
}

/// A packet as a device hands it over: one packet of the wire, or a super-packet, which stands for several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpPacket {
    /// The bytes from the network header on.
    bytes: Vec<u8>,
    packet: Packet,
    segments: u32,
    /// Its network header, if it may be segmented: then its headers are where [`Segment`] and [`super::merge`] expect
    /// them.
    pub(super) network: Option<Network>,
}

impl IpPacket {
    /// Takes a packet that starts with its IP header. Bytes behind it (Ethernet padding) are removed.
    pub fn read(mut bytes: Vec<u8>, offload: Offload) -> Result<Self, IpPacketError> {
        let packet = Packet::parse(&bytes, offload).ok_or(IpPacketError::NotIp)?;
        bytes.truncate(packet.bytes as usize);
        let mut frame = Self { segments: packet.segments(), bytes, packet, network: None };
        let verdict = frame.cuttable();
        frame.network = verdict.ok();
        // An ordinary packet crosses unchanged, whatever it is.
        if offload.segment.is_some() { verdict.map(|_| frame) } else { Ok(frame) }
    }

    /// Its network header if it is of a kind that can be segmented.
    fn cuttable(&self) -> Result<Network, IpPacketError> {
        let network = Network::of_cuttable(&self.bytes).ok_or(IpPacketError::NotCuttable)?;
        if ![TCP, UDP].contains(&self.packet.protocol) {
            return Err(IpPacketError::NotCuttable);
        }
        let is_placed = match self.packet.offload.checksum {
            ChecksumState::Complete | ChecksumState::Verified => true,
            ChecksumState::Partial { start, offset } => {
                (usize::from(start), usize::from(offset)) == (network.length, self.checksum_offset())
            }
        };
        let is_whole = network.claimed(&self.bytes) == self.bytes.len();
        if is_placed && is_whole { Ok(network) } else { Err(IpPacketError::Inconsistent) }
    }

    /// How many packets of the wire it stands for, at least 1.
    pub const fn segments(&self) -> u32 {
        self.segments
    }

    /// The packet of the wire with this number, from 0 to [`IpPacket::segments`] - 1.
    pub fn segment(&self, index: u32) -> Segment<'_> {
        debug_assert!(index < self.segments, "a frame has no such segment");
        Segment { frame: self, index }
    }

    /// The payload of all segments from `first` to `last`, not copied.
    pub fn payload(&self, first: u32, last: u32) -> &[u8] {
        let payload = &self.bytes[self.header().len()..];
        let (start, end) = (first as usize * self.stride(), (last as usize + 1) * self.stride());
        &payload[start..payload.len().min(end)]
    }

    /// Its buffer, to be used again.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// All bytes before the payload.
    pub(super) fn header(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - self.packet.payload as usize]
    }

    pub(super) const fn is_tcp(&self) -> bool {
        self.packet.protocol == TCP
    }

    /// Whether its segments are TCP that a device segments and checksums: only those can be merged.
    pub(super) const fn is_mergeable(&self) -> bool {
        let is_left_to_device = matches!(self.packet.offload.checksum, ChecksumState::Partial { .. });
        self.network.is_some() && self.is_tcp() && self.packet.payload > 0 && is_left_to_device
    }

    /// Where the checksum is in the transport header.
    fn checksum_offset(&self) -> usize {
        if self.is_tcp() { 16 } else { 6 }
    }

    /// Payload bytes of every segment but the last.
    fn stride(&self) -> usize {
        self.packet.offload.segment.map_or(LARGEST, |size| usize::from(size.get()))
    }
}

/// One packet of the wire, a segment of an [`IpPacket`].
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    pub(super) frame: &'a IpPacket,
    pub(super) index: u32,
}

impl<'a> Segment<'a> {
    /// Its payload, not copied.
    pub fn payload(self) -> &'a [u8] {
        self.frame.payload(self.index, self.index)
    }

    /// Its metadata, as of any other packet.
    pub fn packet(self) -> Packet {
        let whole = self.frame.packet;
        let payload = self.payload().len() as u32;
        Packet {
            bytes: self.frame.header().len() as u32 + payload,
            payload,
            seq: self.seq(),
            flags: if self.is_cut() && self.frame.is_tcp() { self.flags() } else { whole.flags },
            offload: Offload { segment: None, checksum: self.checksum() },
            ..whole
        }
    }

    /// TCP sequence number of its first byte; 0 if it is not TCP.
    pub(super) fn seq(self) -> u32 {
        let before = self.index * self.frame.stride() as u32;
        if self.frame.is_tcp() { self.frame.packet.seq.wrapping_add(before) } else { 0 }
    }

    /// The state of its checksum: what was left to the device stays so, anything else is computed.
    pub(super) const fn checksum(self) -> ChecksumState {
        match self.frame.packet.offload.checksum {
            ChecksumState::Verified if self.is_cut() => ChecksumState::Complete,
            other => other,
        }
    }

    /// Identification of the IPv4 packet: a super-packet stands for that many consecutive ones.
    pub(super) fn id(self, network: Network) -> u16 {
        network.id(&self.frame.bytes).wrapping_add(self.index as u16)
    }

    /// Its TCP flags: CWR belongs to the first segment (RFC 3168 §6.1.2), PSH and FIN to the last.
    pub(super) fn flags(self) -> u8 {
        let all = self.frame.packet.flags;
        let not_first = if self.index == 0 { 0 } else { flag::CWR };
        let not_last = if self.is_last() { 0 } else { flag::PSH | flag::FIN };
        all & !not_first & !not_last
    }

    /// Whether its frame has other segments too.
    const fn is_cut(self) -> bool {
        self.frame.segments > 1
    }

    const fn is_last(self) -> bool {
        self.index + 1 == self.frame.segments
    }
}

/// Writes the header of one packet that holds the payloads of all segments from `first` to `last` to `out`, and returns what
/// is left to the device: its segmentation, if it is more than one, and its checksum.
///
/// Adjacent segments must satisfy [`super::merge::may_follow`]; a single one is `first` and `last`.
pub fn write_header(first: Segment<'_>, last: Segment<'_>, out: &mut Vec<u8>) -> Offload {
    let frame = first.frame;
    let start = out.len();
    out.extend_from_slice(frame.header());
    let is_one = std::ptr::eq(frame, last.frame) && first.index == last.index;
    let Some(network) = frame.network.filter(|_| !is_one || first.is_cut()) else {
        return Offload { segment: None, ..frame.packet.offload };
    };
    let stride = first.payload().len();
    let payload =
        if is_one { stride } else { last.seq().wrapping_sub(first.seq()) as usize + last.payload().len() };
    let (ip, transport) = out[start..].split_at_mut(network.length);
    let length = transport.len() + payload;
    network.rewrite(ip, network.length + length, first.id(network));
    if frame.is_tcp() {
        transport[4..8].copy_from_slice(&first.seq().to_be_bytes());
        transport[13] = first.flags() | last.flags();
    } else {
        transport[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    }
    write_checksum(first, network.pseudo_header(ip, frame.packet.protocol, length), transport);
    let segment = if is_one { None } else { NonZeroU16::new(stride as u16) };
    Offload { segment, checksum: first.checksum() }
}

/// Writes the checksum of TCP or UDP, or, if the device completes it, the pseudo-header's sum.
fn write_checksum(first: Segment<'_>, pseudo_header: u64, transport: &mut [u8]) {
    let at = first.frame.checksum_offset();
    let sum = match first.checksum() {
        ChecksumState::Partial { .. } => fold(pseudo_header),
        // UDP without a checksum (RFC 768).
        _ if !first.frame.is_tcp() && transport[at..at + 2] == [0, 0] => 0,
        ChecksumState::Complete | ChecksumState::Verified => {
            transport[at..at + 2].fill(0);
            match !fold(pseudo_header + sum_of(transport) + sum_of(first.payload())) {
                // 0 means that there is none; both are the same number in ones' complement.
                0 if !first.frame.is_tcp() => 0xffff,
                sum => sum,
            }
        }
    };
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{Sample, samples, sum};
    use super::*;

    /// The packet of the wire that a segment is, with its bytes.
    fn whole(segment: Segment<'_>) -> (Vec<u8>, Offload) {
        let mut bytes = Vec::new();
        let offload = write_header(segment, segment, &mut bytes);
        bytes.extend_from_slice(segment.payload());
        (bytes, offload)
    }

    fn all(frame: &IpPacket) -> Vec<(Vec<u8>, Offload)> {
        (0..frame.segments()).map(|index| whole(frame.segment(index))).collect()
    }

    #[test]
    fn an_ordinary_packet_crosses_as_it_is() {
        for is_partial in [false, true] {
            let sample = Sample { segment: None, is_partial, ..Sample::default() };
            let frame = sample.frame();
            assert_eq!(all(&frame), [(sample.bytes(), sample.offload())]);
            assert_eq!(frame.segment(0).packet(), Packet::parse(&sample.bytes(), sample.offload()).unwrap());
        }
    }

    #[test]
    fn packets_that_are_neither_tcp_nor_udp_cross_as_they_are() {
        let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        bytes.extend_from_slice(&[8, 0, 0, 0, 0, 1, 0, 1]);
        let frame = IpPacket::read(bytes.clone(), Offload::default()).unwrap();
        assert_eq!(all(&frame), [(bytes, Offload::default())]);
    }

    #[test]
    fn ethernet_padding_is_cut_off() {
        let sample = Sample { segment: None, payload: vec![1, 2], ..Sample::default() };
        let padded = [sample.bytes(), vec![0; 4]].concat();
        let frame = IpPacket::read(padded, sample.offload()).unwrap();
        assert_eq!(all(&frame)[0].0, sample.bytes());
    }

    #[test]
    fn flags_go_to_the_segment_that_they_belong_to() {
        let sample =
            Sample { flags: flag::CWR | flag::ECE | flag::ACK | flag::PSH | flag::FIN, ..Sample::default() };
        let flags: Vec<u8> = all(&sample.frame()).iter().map(|(bytes, _)| bytes[33]).collect();
        let middle = flag::ECE | flag::ACK;
        assert_eq!(flags, [flag::CWR | middle, middle, flag::FIN | flag::PSH | middle]);
    }

    #[test]
    fn a_super_packet_of_exactly_one_segment_is_one_packet() {
        for (payload, segments) in [(0, 1), (1448, 1), (1449, 2), (2896, 2), (2897, 3)] {
            let sample = Sample { payload: vec![1; payload], ..Sample::default() };
            assert_eq!(sample.frame().segments(), segments, "{payload} bytes");
        }
    }

    #[test]
    fn udp_without_a_checksum_stays_so() {
        let sample = Sample { is_tcp: false, is_partial: false, ..Sample::default() };
        let mut bytes = sample.bytes();
        bytes[26..28].fill(0);
        let frame = IpPacket::read(bytes, sample.offload()).unwrap();
        assert!(all(&frame).iter().all(|(bytes, _)| bytes[26..28] == [0, 0]));
    }

    #[test]
    fn a_checksum_that_somebody_has_verified_is_computed_anew_when_cut() {
        let sample = Sample { is_partial: false, ..Sample::default() };
        let verified = Offload { checksum: ChecksumState::Verified, ..sample.offload() };
        let (verified, complete) = (IpPacket::read(sample.bytes(), verified).unwrap(), sample.frame());
        assert_eq!(all(&verified), all(&complete));
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let sample = Sample::default();
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = sample.bytes();
            change(&mut bytes);
            IpPacket::read(bytes, sample.offload()).map(drop)
        };
        assert_eq!(with(&|_| {}), Ok(()));
        assert_eq!(with(&|bytes| bytes.truncate(19)), Err(IpPacketError::NotIp));
        assert_eq!(with(&|bytes| bytes[9] = 1), Err(IpPacketError::NotCuttable), "ICMP");
        assert_eq!(with(&|bytes| bytes[6] |= 0x20), Err(IpPacketError::NotCuttable), "more fragments");
        assert_eq!(with(&|bytes| bytes[7] = 1), Err(IpPacketError::NotCuttable), "a later fragment");
        assert_eq!(
            with(&|bytes| bytes.truncate(bytes.len() - 1)),
            Err(IpPacketError::Inconsistent),
            "a byte is missing"
        );
        let checksum = ChecksumState::Partial { start: 24, offset: 16 };
        let misplaced = Offload { checksum, ..sample.offload() };
        assert_eq!(IpPacket::read(sample.bytes(), misplaced).map(drop), Err(IpPacketError::Inconsistent));
        // The same packets cross if none needs segmentation.
        assert!(IpPacket::read(sample.bytes(), Offload { segment: None, ..misplaced }).is_ok());
    }

    #[test]
    fn options_of_ipv6_are_cut_with_their_packet_and_a_routing_header_keeps_it_whole() {
        let sample = Sample { is_v6: true, ip_options: 2, ..Sample::default() };
        assert_eq!(all(&sample.frame()).len(), 3);
        // The same bytes with another type: a routing header, a fragment header, an unknown one.
        for kind in [43, 44, 99] {
            let mut bytes = sample.bytes();
            bytes[6] = kind;
            assert_eq!(
                IpPacket::read(bytes.clone(), sample.offload()),
                Err(IpPacketError::NotCuttable),
                "{kind}"
            );
            let ordinary = Offload { segment: None, ..sample.offload() };
            let frame = IpPacket::read(bytes.clone(), ordinary).unwrap();
            assert_eq!(all(&frame), [(bytes, ordinary)]);
        }
    }

    #[test]
    fn a_segment_of_ipv6_keeps_its_flow_label() {
        let sample = Sample { is_v6: true, ..Sample::default() };
        let first_words =
            all(&sample.frame()).iter().map(|(bytes, _)| bytes[..4].to_vec()).collect::<Vec<_>>();
        assert_eq!(first_words, vec![sample.bytes()[..4].to_vec(); 3]);
    }

    proptest! {
        #[test]
        fn segments_are_the_super_packet_again(sample in samples()) {
            let frame = sample.frame();
            let stride = usize::from(sample.segment.unwrap());
            prop_assert_eq!(frame.segments() as usize, sample.payload.len().div_ceil(stride));
            let mut payload = Vec::new();
            for index in 0..frame.segments() {
                let segment = frame.segment(index);
                let (bytes, offload) = whole(segment);
                let packet = Packet::parse(&bytes, offload).unwrap();
                prop_assert_eq!(packet, segment.packet());
                prop_assert_eq!(packet.bytes as usize, bytes.len());
                let seq = if sample.is_tcp { sample.seq.wrapping_add(payload.len() as u32) } else { 0 };
                prop_assert_eq!(packet.seq, seq);
                if !sample.is_v6 {
                    prop_assert_eq!(&bytes[4..6], &sample.id.wrapping_add(index as u16).to_be_bytes());
                }
                payload.extend_from_slice(segment.payload());
                prop_assert!(segment.payload().len() <= stride && !segment.payload().is_empty());
                // All but the last are full.
                prop_assert!(segment.payload().len() == stride || payload.len() == sample.payload.len());
            }
            prop_assert_eq!(payload, sample.payload);
        }

        #[test]
        fn every_segment_has_true_checksums(sample in samples()) {
            for (bytes, offload) in all(&sample.frame()) {
                let network = sample.network();
                prop_assert!(sample.is_v6 || sum(&bytes[..network]) == 0xffff);
                let pseudo = sample.pseudo_sum(&bytes, bytes.len() - network);
                match offload.checksum {
                    ChecksumState::Partial { start, offset } => {
                        let at = usize::from(start + offset);
                        prop_assert!(sample.is_partial);
                        prop_assert_eq!(&bytes[at..at + 2], &pseudo.to_be_bytes());
                    }
                    ChecksumState::Complete => {
                        let mut all = pseudo.to_be_bytes().to_vec();
                        all.extend_from_slice(&bytes[network..]);
                        prop_assert_eq!(sum(&all), 0xffff);
                    }
                    ChecksumState::Verified => prop_assert!(false, "nobody has verified it"),
                }
            }
        }

        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), segment in any::<u16>(),
                          start in any::<u16>(), offset in any::<u16>(), is_v4 in any::<bool>(), is_v6 in any::<bool>(),
                          is_tcp in any::<bool>()) {
            if is_v4 && bytes.len() > 10 {
                let length = bytes.len() as u16;
                bytes[0] = 0x45;
                bytes[2..4].copy_from_slice(&length.to_be_bytes());
                bytes[6..8].fill(0);
                bytes[9] = if is_tcp { 6 } else { 17 };
            } else if is_v6 && bytes.len() > 40 {
                let length = bytes.len() as u16 - 40;
                bytes[0] = 0x60;
                bytes[4..6].copy_from_slice(&length.to_be_bytes());
                bytes[6] = if is_tcp { 6 } else { 60 };
            }
            let partial = |start, offset| ChecksumState::Partial { start, offset };
            for checksum in [ChecksumState::Complete, partial(start, offset), partial(20, 16), partial(40, 16), partial(48, 16)] {
                let offload = Offload { segment: NonZeroU16::new(segment), checksum };
                if let Ok(frame) = IpPacket::read(bytes.clone(), offload) {
                    prop_assert_eq!(all(&frame).len(), frame.segments() as usize);
                }
            }
        }
    }
}
