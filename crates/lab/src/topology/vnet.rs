//! The header in front of each packet (`struct virtio_net_hdr`, virtio 1.2 §5.1.6), which packet sockets and TUN devices share:
//! whether a packet is to be segmented, and whether its checksum is still to be completed.

use std::num::NonZeroU16;

use h2lab_link::{ChecksumState, Offload};

/// Bytes of the header, in its first form, without `num_buffers`.
pub(super) const LENGTH: usize = 10;

/// `VIRTIO_NET_HDR_F_…`.
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
/// `VIRTIO_NET_HDR_GSO_…`.
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Set beside the type when the first segment has CWR. Merged packets never have it.
const GSO_ECN: u8 = 0x80;

/// The offload of a packet behind `link_layer` bytes of Ethernet header; `None` if it is of an unknown kind.
pub(super) fn decode(header: [u8; LENGTH], link_layer: u16) -> Option<Offload> {
    let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let segment = match header[1] & !GSO_ECN {
        GSO_NONE => None,
        GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4 => Some(NonZeroU16::new(field(4))?),
        _ => return None,
    };
    let checksum = match header[0] {
        flags if flags & NEEDS_CSUM != 0 => {
            ChecksumState::Partial { start: field(6).checked_sub(link_layer)?, offset: field(8) }
        }
        flags if flags & DATA_VALID != 0 => ChecksumState::Verified,
        _ => ChecksumState::Complete,
    };
    Some(Offload { segment, checksum })
}

/// The header of a packet with these network and transport headers behind `link_layer` bytes of Ethernet header. Only TCP is
/// segmented.
pub(super) fn encode(offload: Offload, headers: &[u8], link_layer: u16) -> [u8; LENGTH] {
    let mut header = [0; LENGTH];
    let mut set = |at: usize, value: u16| header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    // How much the kernel keeps contiguous: the headers, so that it need not gather them.
    set(2, link_layer + headers.len() as u16);
    if let Some(size) = offload.segment {
        set(4, size.get());
    }
    if let ChecksumState::Partial { start, offset } = offload.checksum {
        set(6, link_layer + start);
        set(8, offset);
        header[0] = NEEDS_CSUM;
    }
    header[1] = match offload.segment {
        None => GSO_NONE,
        Some(_) if is_v6(headers) => GSO_TCPV6,
        Some(_) => GSO_TCPV4,
    };
    header
}

/// Whether a packet that begins with these bytes is IPv6.
pub(super) fn is_v6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers of IPv4 and TCP, and of IPv6 and TCP, of which only the version matters.
    const V4: [u8; 52] = [0x45; 52];
    const V6: [u8; 72] = [0x60; 72];

    #[test]
    fn what_is_encoded_is_decoded() {
        let partial = ChecksumState::Partial { start: 20, offset: 16 };
        for (segment, checksum) in [(None, ChecksumState::Complete), (None, partial), (Some(1448), partial)] {
            let offload = Offload { segment: segment.and_then(NonZeroU16::new), checksum };
            for (link_layer, headers) in [(0, &V4[..]), (14, &V4), (0, &V6), (14, &V6)] {
                assert_eq!(decode(encode(offload, headers, link_layer), link_layer), Some(offload));
            }
        }
    }

    #[test]
    fn the_checksum_is_found_behind_the_ethernet_header() {
        let offload = Offload { segment: None, checksum: ChecksumState::Partial { start: 20, offset: 16 } };
        let header = encode(offload, &V4, 14);
        assert_eq!(header[6..8], 34_u16.to_ne_bytes());
        assert_eq!(decode(header, 35), None, "it would begin before the packet");
    }

    #[test]
    fn the_kind_is_that_of_the_family() {
        let offload = Offload { segment: NonZeroU16::new(1), checksum: ChecksumState::Complete };
        assert_eq!((encode(offload, &V4, 0)[1], encode(offload, &V6, 0)[1]), (GSO_TCPV4, GSO_TCPV6));
    }

    #[test]
    fn only_known_kinds_are_taken() {
        for kind in 0..=u8::MAX {
            let mut header = encode(Offload::default(), &V4[..40], 0);
            (header[1], header[4]) = (kind, 1);
            let is_known = [GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4].contains(&(kind & !GSO_ECN));
            assert_eq!(decode(header, 0).is_some(), is_known, "kind {kind}");
        }
    }

    #[test]
    fn a_super_packet_without_a_size_is_refused() {
        let mut header = [0; LENGTH];
        header[1] = GSO_TCPV4;
        assert_eq!(decode(header, 0), None);
    }
}
