//! Corruption: one bit of the payload is flipped, and the checksum is not updated, so that the receiver drops the packet.
//!
//! The packet uses bandwidth and is delivered; the receiver's kernel drops and counts it
//! (`TcpInCsumErrors`, `UdpInCsumErrors`), unless it carries no checksum (UDP over IPv4 may do without): then the
//! application gets the wrong bit. Packets without payload stay intact, as bit errors hit long packets more often than short
//! ones.

use super::checksum::{fold, sum_of};
use super::segment::{Segment, write_header};
use super::{ChecksumState, Offload};

/// Writes one packet of the wire with bit `bit` of its payload flipped: headers and checksum to `header`, payload to
/// `payload`, ready to send.
///
/// A checksum left to the device is completed here, over the unchanged payload: a device would sum up the flipped bit, and the
/// corruption would go undetected.
pub fn write_corrupted(
    segment: Segment<'_>,
    bit: u32,
    header: &mut Vec<u8>,
    payload: &mut Vec<u8>,
) -> Offload {
    let start = header.len();
    let offload = write_header(segment, segment, header);
    payload.clear();
    payload.extend_from_slice(segment.payload());
    if let ChecksumState::Partial { start: from, offset } = offload.checksum {
        complete(&mut header[start..], payload, usize::from(from), usize::from(offset));
    }
    if let Some(byte) = payload.get_mut(bit as usize / 8) {
        *byte ^= 0x80 >> (bit % 8);
    }
    Offload { segment: None, checksum: ChecksumState::Complete }
}

/// Writes one packet of the wire to `out` as a capture sees it: whole, its checksum complete, and with this bit of its payload
/// flipped, if any.
pub fn write_packet(segment: Segment<'_>, corrupt: Option<u32>, out: &mut Vec<u8>) {
    let start = out.len();
    let Some(bit) = corrupt else {
        let offload = write_header(segment, segment, out);
        if let ChecksumState::Partial { start: from, offset } = offload.checksum {
            complete(&mut out[start..], segment.payload(), usize::from(from), usize::from(offset));
        }
        out.extend_from_slice(segment.payload());
        return;
    };
    let mut payload = Vec::new();
    write_corrupted(segment, bit, out, &mut payload);
    out.append(&mut payload);
}

/// Completes a checksum as a device does (virtio 1.2 §5.1.6.2): the sum from `from` on, which includes that of the
/// pseudo-header where it is stored, `offset` bytes later.
fn complete(header: &mut [u8], payload: &[u8], from: usize, offset: usize) {
    let (Some(summed), at) = (header.get(from..), from + offset) else { return };
    // The transport headers that leave checksums to devices have an even length, so that words do not shift.
    let sum = match !fold(sum_of(summed) + sum_of(payload)) {
        // In UDP 0 means that there is no checksum; both are the same number in ones' complement.
        0 => 0xffff,
        sum => sum,
    };
    if let Some(place) = header.get_mut(at..at + 2) {
        place.copy_from_slice(&u16::to_be_bytes(sum));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::IpPacket;
    use super::super::testing::{Sample, samples, sum};
    use super::*;

    /// Whether the transport checksum of a packet that was cut out of `sample` is right.
    fn is_intact(sample: &Sample, packet: &[u8]) -> bool {
        let transport = &packet[sample.network()..];
        let mut all = sample.pseudo_sum(packet, transport.len()).to_be_bytes().to_vec();
        all.extend_from_slice(transport);
        sum(&all) == 0xffff
    }

    #[test]
    fn what_an_ipv6_sender_left_to_the_device_is_done_over_the_payload_as_it_was() {
        // fd00::…fd to itself, UDP, 4 bytes; the pseudo-header's sum is in the checksum's place (RFC 8200 §8.1).
        let mut packet = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
        packet.extend_from_slice(&[0xfd; 32]);
        let pseudo = [&packet[8..40], &[0, 0, 0, 12, 0, 0, 0, 17]].concat();
        packet.extend_from_slice(&[0, 53, 0, 80, 0, 12]);
        packet.extend_from_slice(&sum(&pseudo).to_be_bytes());
        packet.extend_from_slice(&[1, 2, 3, 4]);
        let checksum = ChecksumState::Partial { start: 40, offset: 6 };
        let frame = IpPacket::read(packet, Offload { segment: None, checksum }).unwrap();
        let (mut header, mut payload) = (Vec::new(), Vec::new());
        write_corrupted(frame.segment(0), 15, &mut header, &mut payload);
        assert_eq!(payload, [1, 3, 3, 4]);
        let all = [&pseudo[..], &header[40..], &[1, 2, 3, 4]].concat();
        assert_eq!(sum(&all), 0xffff, "the checksum is that of the payload before");
    }

    proptest! {
        #[test]
        fn exactly_one_bit_is_wrong_and_the_checksum_shows_it(sample in samples(), bit in any::<u32>()) {
            let frame = sample.frame();
            for index in 0..frame.segments() {
                let segment = frame.segment(index);
                let bit = bit % (segment.payload().len() as u32 * 8);
                let (mut header, mut payload) = (Vec::new(), Vec::new());
                let offload = write_corrupted(segment, bit, &mut header, &mut payload);
                prop_assert_eq!(offload, Offload::default());
                let mut packet = [header, payload.clone()].concat();
                prop_assert!(!is_intact(&sample, &packet));
                let at = packet.len() - payload.len() + bit as usize / 8;
                packet[at] ^= 0x80 >> (bit % 8);
                prop_assert!(is_intact(&sample, &packet), "the rest is as it was sent");
                prop_assert_eq!(&packet[packet.len() - payload.len()..], segment.payload());
                let (mut whole, mut wrong) = (Vec::new(), Vec::new());
                write_packet(segment, None, &mut whole);
                write_packet(segment, Some(bit), &mut wrong);
                prop_assert!(is_intact(&sample, &whole) && !is_intact(&sample, &wrong), "captured");
                prop_assert_eq!(&whole, &packet);
            }
        }
    }
}
