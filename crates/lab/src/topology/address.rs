//! How the two ends of a link are addressed.
//!
//! Between network namespaces both ends are in one network. With a reflector both are in one namespace, whose kernel
//! would deliver packets between its own addresses without any device. So each end dials an unassigned address behind
//! the TUN device, which stands in for the other end, and the reflector translates between the two on the way:
//!
//! ```text
//!   client 198.18.n.4 dials 198.19.n.1 ══ reflector ══ server 198.18.n.2 is dialled by 198.19.n.3
//! ```
//!
//! An address and its stand-in have the same checksum (RFC 1071), since one 16-bit word grows by as much as the other shrinks: no
//! checksum has to be changed, computed or still offloaded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::side::Side;

/// The addresses of a link's ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addressing {
    /// IPv4.
    #[default]
    V4,
    /// IPv6, with IPv4 beside it for programs that support nothing else.
    V6,
    /// IPv4 in one namespace, with stand-ins (RFC 2544's benchmarking network, which no real one uses). The number is the lab's:
    /// leftover connections of an earlier lab then have no address to send from, and stay off this one's link.
    Reflected(u8),
}

/// What is added to an address for its stand-in: one more in the upper word, one less in the lower.
const TO_STAND_IN: u32 = 0x0001_0000 - 1;
/// The upper half of the reflector's addresses, and of their stand-ins.
const OWN: [u8; 2] = [198, 18];
const STAND_IN: [u8; 2] = [198, 19];

impl Addressing {
    /// The address that `side` has.
    pub const fn own(self, side: Side) -> IpAddr {
        match (self, side) {
            (Self::V4, _) => IpAddr::V4(side.address()),
            (Self::V6, Side::Client) => IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 9, 0, 0, 0, 0, 1)),
            (Self::V6, Side::Server) => IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 9, 0, 0, 0, 0, 2)),
            (Self::Reflected(n), Side::Client) => IpAddr::V4(Ipv4Addr::new(OWN[0], OWN[1], n, 4)),
            (Self::Reflected(n), Side::Server) => IpAddr::V4(Ipv4Addr::new(OWN[0], OWN[1], n, 2)),
        }
    }

    /// The address by which the other end reaches `side`.
    pub const fn from_afar(self, side: Side) -> IpAddr {
        match self.own(side) {
            IpAddr::V4(own) if matches!(self, Self::Reflected(_)) => {
                IpAddr::V4(Ipv4Addr::from_bits(own.to_bits().wrapping_add(TO_STAND_IN)))
            }
            own => own,
        }
    }

    /// Every address that `side` has, the first being [`Addressing::own`].
    pub fn all(self, side: Side) -> Vec<IpAddr> {
        let mut all = vec![self.own(side)];
        if self == Self::V6 {
            all.push(Self::V4.own(side));
        }
        all
    }
}

/// Replaces the destination of a packet to a stand-in with the receiver's own address; returns whether it did.
pub(super) fn admit(packet: &mut [u8]) -> bool {
    let Some(destination) = packet.get_mut(..20).filter(|ip| ip[0] >> 4 == 4).map(|ip| &mut ip[16..20])
    else {
        return false;
    };
    is_in(destination, STAND_IN) && add(destination, TO_STAND_IN.wrapping_neg())
}

/// Replaces the sender's address with its stand-in, in the headers of a packet that [`admit`] accepted.
pub(super) fn release(headers: &mut [u8]) {
    if let Some(source) = headers.get_mut(12..16).filter(|source| is_in(source, OWN)) {
        add(source, TO_STAND_IN);
    }
}

fn is_in(address: &[u8], network: [u8; 2]) -> bool {
    address.starts_with(&network)
}

/// Adds to an address of four bytes; always true.
fn add(address: &mut [u8], by: u32) -> bool {
    let bits = address.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte));
    address.copy_from_slice(&bits.wrapping_add(by).to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header with nothing but addresses.
    fn header(source: IpAddr, destination: IpAddr) -> Vec<u8> {
        let octets = |address| match address {
            IpAddr::V4(v4) => v4.octets(),
            IpAddr::V6(_) => unreachable!("reflectors speak IPv4"),
        };
        let mut bytes = vec![0; 12];
        bytes[0] = 0x45;
        bytes.extend_from_slice(&octets(source));
        bytes.extend_from_slice(&octets(destination));
        bytes
    }

    /// The sum of RFC 1071, a word at a time.
    fn sum(bytes: &[u8]) -> u16 {
        bytes.chunks(2).fold(0, |sum: u16, word| {
            let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([word[0], word[1]]));
            sum + u16::from(carry)
        })
    }

    #[test]
    fn a_reflected_packet_comes_from_whom_its_receiver_would_answer_and_keeps_its_checksum() {
        let link = Addressing::Reflected(255);
        for side in Side::BOTH {
            let (here, there) = (side, side.opposite());
            let sent = header(link.own(here), link.from_afar(there));
            let mut packet = sent.clone();
            assert!(admit(&mut packet));
            assert_eq!(
                packet,
                header(link.own(here), link.own(there)),
                "inside both directions are one flow"
            );
            assert_eq!(sum(&packet), sum(&sent));
            release(&mut packet);
            assert_eq!(packet, header(link.from_afar(here), link.own(there)));
            assert_eq!(sum(&packet), sum(&sent));
        }
    }

    #[test]
    fn what_was_not_sent_to_a_stand_in_is_not_taken() {
        let link = Addressing::Reflected(255);
        let own = link.own(Side::Server);
        assert!(!admit(&mut header(link.own(Side::Client), own)), "nobody's stand-in");
        assert!(!admit(&mut header(own, Ipv4Addr::BROADCAST.into())));
        let mut v6 = header(link.own(Side::Client), link.from_afar(Side::Server));
        v6[0] = 0x60;
        assert!(!admit(&mut v6) && !admit(&mut v6[..19]) && !admit(&mut []));
    }

    #[test]
    fn only_a_reflector_has_stand_ins() {
        for side in Side::BOTH {
            for plain in [Addressing::V4, Addressing::V6] {
                assert_eq!(plain.own(side), plain.from_afar(side));
            }
            assert_ne!(Addressing::Reflected(0).own(side), Addressing::Reflected(0).from_afar(side));
        }
    }
}
