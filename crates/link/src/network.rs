//! What segmentation and merging change in an IP header, and what they do not.

use super::checksum::{fold, sum_of};
use super::packet::TCP;

/// Bytes of the fixed header of IPv6 (RFC 8200 §3).
const FIXED_V6: usize = 40;

/// The network header of a packet whose transport header follows in full: such a packet may be segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    is_v4: bool,
    /// Bytes before the transport header, options and extension headers included.
    pub length: usize,
}

impl Network {
    /// The header of `bytes`, which are a whole packet; `None` if it must not be segmented: a fragment, or IPv6 with an
    /// extension header that is not options. With a routing header, the checksum is for another destination (RFC 8200
    /// §8.1).
    pub fn of_cuttable(bytes: &[u8]) -> Option<Self> {
        /// All of the fragment field except "don't fragment" (RFC 791 §3.1).
        const FRAGMENT: u16 = 0xbfff;
        if bytes.first()? >> 4 == 4 {
            let length = usize::from(bytes[0] & 0x0f) * 4;
            return (be16(bytes, 6)? & FRAGMENT == 0).then_some(Self { is_v4: true, length });
        }
        Some(Self { is_v4: false, length: behind_options(bytes)? })
    }

    /// Bytes of the whole packet by its header.
    pub fn claimed(self, bytes: &[u8]) -> usize {
        let (at, before) = if self.is_v4 { (2, 0) } else { (4, FIXED_V6) };
        before + be16(bytes, at).map_or(0, usize::from)
    }

    /// Identification of an IPv4 packet. IPv6 has it only in fragments: 0.
    pub fn id(self, bytes: &[u8]) -> u16 {
        if self.is_v4 { be16(bytes, 4).unwrap_or(0) } else { 0 }
    }

    /// Whether a packet with identification `next` may be the segment after that with `last`.
    pub fn may_follow(self, last: u16, next: u16) -> bool {
        !self.is_v4 || next == last.wrapping_add(1)
    }

    /// Makes `ip` the header of a packet of `bytes` bytes with this identification.
    pub fn rewrite(self, ip: &mut [u8], bytes: usize, id: u16) {
        if !self.is_v4 {
            ip[4..6].copy_from_slice(&((bytes - FIXED_V6) as u16).to_be_bytes());
            return;
        }
        ip[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        ip[10..12].fill(0);
        let sum = !fold(sum_of(ip));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    /// The sum over the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1), not yet folded, of `length` bytes of transport.
    pub fn pseudo_header(self, ip: &[u8], protocol: u8, length: usize) -> u64 {
        let addresses = if self.is_v4 { &ip[12..20] } else { &ip[8..FIXED_V6] };
        sum_of(addresses) + u64::from(protocol) + length as u64
    }

    /// Whether two headers agree in all that segmentation does not change: version, class, flow label, hops, addresses, options.
    pub fn is_alike(self, one: &[u8], other: &[u8]) -> bool {
        if one.len() != other.len() || one[0] != other[0] {
            return false;
        }
        if self.is_v4 {
            // Left out: total length, identification, checksum.
            return one[1] == other[1] && one[6..10] == other[6..10] && one[12..] == other[12..];
        }
        // Left out: payload length.
        one[1..4] == other[1..4] && one[6..] == other[6..]
    }
}

/// Where the transport header of an IPv6 packet begins, after hop-by-hop and destination options, which each
/// segment repeats; `None` after any other extension header.
fn behind_options(bytes: &[u8]) -> Option<usize> {
    const HOP_BY_HOP: u8 = 0;
    const DESTINATION: u8 = 60;
    const UDP: u8 = super::packet::UDP;
    let (mut next, mut at) = (*bytes.get(6)?, FIXED_V6);
    loop {
        match next {
            TCP | UDP => return Some(at),
            HOP_BY_HOP | DESTINATION => {
                next = *bytes.get(at)?;
                at += (usize::from(*bytes.get(at + 1)?) + 1) * 8;
            }
            _ => return None,
        }
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
