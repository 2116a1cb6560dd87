//! Merging: survivors that are due together leave as one super-packet again.
//!
//! The rules are those of GRO in a receiving kernel: packets that leave here as one would have been merged by a network
//! card's driver. Each packet has had its own draw, queue and packet log entry before, and none is delayed for merging.

use super::packet::flag;
use super::segment::Segment;

/// Bytes at the network layer of the largest super-packet. Linux cuts one in software when its frame has 64 KiB or more
/// (`gso_max_size`), and the frame has an Ethernet header of 14 bytes too.
pub const LARGEST_MERGED: usize = 65_535 - 14;

/// Whether `next` can leave in one super-packet with the segments from `first` to `last`, after `last`.
///
/// That requires TCP, headers that differ only where segmentation makes them differ, checksums left to the device, and equal
/// sizes: only the last segment may be shorter. Nothing follows a segment with PSH, FIN or CWR, so that no flag moves to another
/// one.
pub fn may_follow(first: Segment<'_>, last: Segment<'_>, next: Segment<'_>) -> bool {
    if !last.frame.is_mergeable() || !next.frame.is_mergeable() {
        return false;
    }
    let stride = first.payload().len();
    let before = next.seq().wrapping_sub(first.seq()) as usize;
    let bytes = first.frame.header().len().saturating_add(before).saturating_add(next.payload().len());
    if last.payload().len() != stride || next.payload().len() > stride || bytes > LARGEST_MERGED {
        return false;
    }
    let is_same_frame = std::ptr::eq(last.frame, next.frame) && next.index == last.index + 1;
    let is_plain = last.flags() & !(flag::ACK | flag::ECE) == 0;
    is_plain && (is_same_frame || (is_contiguous(last, next) && is_alike(last, next)))
}

fn is_contiguous(last: Segment<'_>, next: Segment<'_>) -> bool {
    next.seq() == last.seq().wrapping_add(last.payload().len() as u32)
}

/// Whether the headers agree in all fields that segmentation does not change.
fn is_alike(last: Segment<'_>, next: Segment<'_>) -> bool {
    let (Some(network), Some(next_network)) = (last.frame.network, next.frame.network) else { return false };
    if network != next_network || last.frame.header().len() != next.frame.header().len() {
        return false;
    }
    let (ip, tcp) = last.frame.header().split_at(network.length);
    let (next_ip, next_tcp) = next.frame.header().split_at(network.length);
    let is_ip_alike = network.is_alike(ip, next_ip) && network.may_follow(last.id(network), next.id(network));
    // Left out: sequence number, flags, checksum. The window, the acknowledgement and the options must agree.
    let is_tcp_alike = tcp[..4] == next_tcp[..4]
        && tcp[8..13] == next_tcp[8..13]
        && tcp[14..16] == next_tcp[14..16]
        && tcp[18..] == next_tcp[18..];
    is_ip_alike && is_tcp_alike && next.flags() & !(flag::PSH | flag::FIN) == last.flags()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use proptest::prelude::*;

    use super::super::testing::{Sample, samples};
    use super::super::{IpPacket, Offload, write_header};
    use super::*;

    /// Merges what may be merged, in order; returns the resulting packets with what is left to the device.
    fn merge(segments: &[Segment<'_>]) -> Vec<(Vec<u8>, Offload)> {
        let mut packets = Vec::new();
        let mut rest = segments;
        while let [first, ..] = rest {
            let run = 1 + rest.windows(2).take_while(|pair| may_follow(*first, pair[0], pair[1])).count();
            let mut bytes = Vec::new();
            let offload = write_header(*first, rest[run - 1], &mut bytes);
            rest[..run].iter().for_each(|segment| bytes.extend_from_slice(segment.payload()));
            packets.push((bytes, offload));
            rest = &rest[run..];
        }
        packets
    }

    fn segments(frames: &[IpPacket]) -> Vec<Segment<'_>> {
        frames.iter().flat_map(|frame| (0..frame.segments()).map(|index| frame.segment(index))).collect()
    }

    /// Two super-packets of three full segments each; the second, which follows the first, is changed.
    fn pair(change: impl Fn(&mut Sample)) -> usize {
        let first = Sample { payload: vec![1; 3 * 1448], ..Sample::default() };
        let mut second = Sample {
            id: first.id + 3,
            seq: first.seq + 3 * 1448,
            payload: vec![2; 3 * 1448],
            ..first.clone()
        };
        change(&mut second);
        merge(&segments(&[first.frame(), second.frame()])).len()
    }

    #[test]
    fn super_packets_that_follow_each_other_leave_as_one() {
        assert_eq!(pair(|_| {}), 1);
        assert_eq!(pair(|second| second.flags |= flag::PSH), 1, "a last one may be pushed");
    }

    #[test]
    fn headers_that_differ_keep_packets_apart() {
        assert_eq!(pair(|second| second.ack += 1), 2, "another acknowledgement");
        assert_eq!(pair(|second| second.seq += 1), 2, "a hole");
        assert_eq!(pair(|second| second.id += 1), 2, "another identification");
        assert_eq!(pair(|second| second.tcp_options = 2), 2, "other options");
        assert_eq!(pair(|second| second.ip_options = 1), 2, "other options of IP");
        assert_eq!(pair(|second| second.is_v6 = true), 2, "another family");
        assert_eq!(pair(|second| second.is_tcp = false), 4, "UDP is never merged");
        assert_eq!(pair(|second| second.is_partial = false), 4, "checksums that are complete");
        assert_eq!(pair(|second| second.flags |= flag::ECE), 2, "an echo of congestion");
        // CWR keeps its segment apart from both sides.
        assert_eq!(pair(|second| second.flags |= flag::CWR), 3);
    }

    #[test]
    fn super_packets_of_ipv6_merge_within_their_flow_label() {
        let first = Sample { is_v6: true, payload: vec![1; 3 * 1448], ..Sample::default() };
        // IPv6 has no identification: `id` is the flow label here.
        let second = Sample { seq: first.seq + 3 * 1448, payload: vec![2; 3 * 1448], ..first.clone() };
        let other_label = Sample { id: second.id + 1, ..second.clone() };
        for (second, packets) in [(second, 1), (other_label, 2)] {
            assert_eq!(merge(&segments(&[first.frame(), second.frame()])).len(), packets);
        }
    }

    #[test]
    fn nothing_follows_a_short_or_pushed_segment() {
        for (payload, flags, packets) in
            [(2896, flag::ACK, 1), (2895, flag::ACK, 2), (2896, flag::ACK | flag::PSH, 2)]
        {
            let first = Sample { payload: vec![1; payload], flags, ..Sample::default() };
            let seq = first.seq + payload as u32;
            let second = Sample { id: first.id + 2, seq, flags: flag::ACK, ..first.clone() };
            assert_eq!(
                merge(&segments(&[first.frame(), second.frame()])).len(),
                packets,
                "{payload} {flags:#x}"
            );
        }
    }

    #[test]
    fn a_larger_segment_does_not_follow_a_smaller_one() {
        let small = Sample { segment: None, payload: vec![1; 100], ..Sample::default() };
        for (payload, packets) in [(100, 1), (101, 2)] {
            let (id, seq) = (small.id + 1, small.seq + 100);
            let next = Sample { id, seq, payload: vec![2; payload], ..small.clone() };
            assert_eq!(merge(&segments(&[small.frame(), next.frame()])).len(), packets, "{payload} bytes");
        }
    }

    #[test]
    fn bare_acknowledgements_are_never_merged() {
        let ack = Sample { segment: None, payload: Vec::new(), ..Sample::default() };
        let next = Sample { id: ack.id + 1, ..ack.clone() };
        assert_eq!(merge(&segments(&[ack.frame(), next.frame()])).len(), 2);
    }

    #[test]
    fn a_super_packet_grows_to_the_limit_and_not_beyond() {
        // Headers of 52 bytes; the last segment makes the difference.
        for (rest, packets) in
            [(LARGEST_MERGED - 52 - 45 * 1448, 1), (LARGEST_MERGED - 52 - 45 * 1448 + 1, 2)]
        {
            let first = Sample { payload: vec![1; 45 * 1448], ..Sample::default() };
            let (id, seq) = (first.id + 45, first.seq + 45 * 1448);
            let second = Sample { id, seq, payload: vec![2; rest], ..first.clone() };
            let merged = merge(&segments(&[first.frame(), second.frame()]));
            assert_eq!(merged.len(), packets, "{rest} bytes");
            assert!(merged.iter().all(|(bytes, _)| bytes.len() <= LARGEST_MERGED));
        }
    }

    #[test]
    fn a_run_is_one_packet_or_to_be_cut() {
        let sample = Sample::default();
        let frame = sample.frame();
        let first = merge(&[frame.segment(0)]);
        assert_eq!((first.len(), first[0].1.segment), (1, None));
        let both = merge(&[frame.segment(0), frame.segment(1)]);
        assert_eq!((both.len(), both[0].1.segment), (1, NonZeroU16::new(1448)));
    }

    proptest! {
        #[test]
        fn without_loss_a_super_packet_leaves_as_it_came(sample in samples()) {
            let sample = Sample { is_tcp: true, is_partial: true, flags: sample.flags & 0x59, ..sample };
            let frame = sample.frame();
            let offload = if frame.segments() > 1 {
                sample.offload()
            } else {
                Offload { segment: None, ..sample.offload() }
            };
            prop_assert_eq!(merge(&segments(&[frame])), [(sample.bytes(), offload)]);
        }

        #[test]
        fn survivors_are_the_same_packets_of_the_wire_after_merging(
            (sample, losses) in (samples(), proptest::collection::vec(proptest::bool::weighted(0.2), 12 * 2))
        ) {
            let count = sample.payload.len().div_ceil(usize::from(sample.segment.unwrap()));
            let id = if sample.is_v6 { sample.id } else { sample.id.wrapping_add(count as u16) };
            let seq = sample.seq.wrapping_add(sample.payload.len() as u32);
            let frames = [sample.frame(), Sample { id, seq, ..sample.clone() }.frame()];
            let all = segments(&frames);
            let survivors: Vec<_> =
                all.iter().zip(losses.iter().cycle()).filter(|(_, lost)| !**lost).map(|(s, _)| *s).collect();
            let wire = |segment: &Segment<'_>| {
                let mut bytes = Vec::new();
                let offload = write_header(*segment, *segment, &mut bytes);
                bytes.extend_from_slice(segment.payload());
                (bytes, offload)
            };
            let expected: Vec<_> = survivors.iter().map(wire).collect();
            let merged = merge(&survivors);
            prop_assert!(merged.len() <= expected.len());
            let frames: Vec<_> = merged.into_iter().map(|(b, o)| IpPacket::read(b, o).unwrap()).collect();
            let again: Vec<_> = segments(&frames).iter().map(wire).collect();
            prop_assert_eq!(again, expected);
        }
    }
}
