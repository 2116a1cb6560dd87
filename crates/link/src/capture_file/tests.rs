use proptest::prelude::*;

use super::*;
use crate::pcapng;
use crate::pcapng::EnhancedPacket;

/// An IP packet of `length` bytes.
fn ip(length: usize) -> Vec<u8> {
    let mut bytes = vec![0x45; length];
    bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    bytes
}

/// The elements of a file, read in pieces of `step` bytes, and why it could not be read further.
fn read(file: &[u8], step: usize) -> (Vec<String>, Result<(), CaptureError>, bool) {
    let (mut reader, mut seen) = (CaptureFile::default(), Vec::new());
    let mut sink = |entry: Entry<'_>| {
        seen.push(match entry {
            Entry::Packet(packet) => {
                let CapturedPacket { interface, name, at_nanos, bytes, length } = packet;
                format!("{interface} {name} {at_nanos} {}/{length}", bytes.len())
            }
            Entry::Secrets(lines) => String::from_utf8_lossy(lines).into_owned(),
            Entry::Untimed => "untimed".to_owned(),
        });
    };
    let read = file.chunks(step).try_for_each(|piece| reader.feed(piece, &mut sink));
    let is_whole = reader.is_whole();
    (seen, read, is_whole)
}

fn pcapng_file() -> Vec<u8> {
    let mut file = Vec::new();
    pcapng::begin(&mut file, &[("uplink in", "a"), ("uplink out", "b")]);
    pcapng::secrets(&mut file, b"CLIENT_RANDOM 00 11");
    let packet = ip(40);
    let seen = EnhancedPacket {
        interface: 1,
        at_nanos: 5_000_000_007,
        bytes: &packet,
        length: 1_500,
        comment: Some("lost"),
    };
    pcapng::packet(&mut file, &seen);
    file
}

/// A pcap of one Ethernet frame with a VLAN tag, 1.000002 s or ns after 1970.
fn pcap_file(order: Order, magic: u32) -> Vec<u8> {
    let word = |word: u32| match order {
        Order::Little => word.to_le_bytes(),
        Order::Big => word.to_be_bytes(),
    };
    let mut file = word(magic).to_vec();
    for value in [0x0002_0004, 0, 0, 65_535, 1, 1, 2, 38, 60] {
        file.extend(word(value));
    }
    let frame = [&[0; 12][..], &[0x81, 0, 0, 1, 8, 0], &ip(20)].concat();
    [file, frame].concat()
}

#[test]
fn what_was_written_is_read_back_however_it_is_cut() {
    let file = pcapng_file();
    for step in [1, 7, 100, usize::MAX] {
        let (seen, read, is_whole) = read(&file, step);
        assert_eq!(seen, ["CLIENT_RANDOM 00 11", "1 uplink out 5000000007 40/1500"], "{step}");
        assert!(read.is_ok() && is_whole);
    }
    let (seen, result, is_whole) = read(&file[..file.len() - 1], 9);
    assert_eq!((seen.len(), result.is_ok(), is_whole), (1, true, false), "its last packet is cut");
}

#[test]
fn a_pcap_is_read_in_either_byte_order_and_resolution() {
    for order in [Order::Little, Order::Big] {
        for (magic, at) in [(0xa1b2_c3d4, 1_000_002_000_u64), (0xa1b2_3c4d, 1_000_000_002)] {
            let (seen, read, is_whole) = read(&pcap_file(order, magic), 5);
            assert_eq!(seen, [format!("0  {at} 20/42")], "18 bytes are the frame's");
            assert!(read.is_ok() && is_whole);
        }
    }
}

#[test]
fn what_is_no_capture_is_refused_with_the_reason() {
    let error = |file: &[u8]| read(file, 3).1.unwrap_err().to_string();
    assert_eq!(error(b"GET / HTTP/1.1\r\n"), "it is neither pcap nor pcapng");
    assert!(error(&[0x1f, 0x8b, 8, 0]).contains("gzip -d"));
    let mut file = pcapng_file();
    file[4] += 1;
    assert_eq!(error(&file), "a block of an impossible length at byte 0");
    assert!(!read(b"\x0a", 1).2, "nothing is known of it");
}

#[test]
fn frames_of_each_link_layer_have_their_packet_found() {
    let mut any = vec![0; 16];
    any[14..].copy_from_slice(&[0x86, 0xdd]);
    let mut any2 = vec![0; 20];
    any2[..2].copy_from_slice(&[8, 0]);
    let arp = [&[0; 12][..], &[8, 6]].concat();
    for (link_type, header, expected) in [
        (0, &[2, 0, 0, 0][..], Some(4)),
        (101, &[], Some(0)),
        (113, &any, Some(16)),
        (276, &any2, Some(20)),
        (1, &arp, None),
        (147, &[], None),
    ] {
        let frame = [header, &ip(20)].concat();
        assert_eq!(link_layer::network(link_type, &frame), expected, "{link_type}");
        assert_eq!(link_layer::network(link_type, header), None, "nothing follows the header");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        step in 1_usize..50,
        is_pcap in any::<bool>(),
    ) {
        let mut file = if is_pcap { pcap_file(Order::Little, 0xa1b2_c3d4) } else { pcapng_file() };
        for (place, byte) in flips {
            let place = place.index(file.len());
            file[place] = byte;
        }
        file.truncate(cut.index(file.len()) + 1);
        let (seen, ..) = read(&file, step);
        prop_assert!(seen.len() <= file.len());
    }
}
