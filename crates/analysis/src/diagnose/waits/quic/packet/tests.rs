//! The vectors of RFC 9001, and packets that both sides make.

use proptest::prelude::*;

use super::*;

fn unhex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[track_caller]
fn protected<'a>(datagram: &mut &'a [u8], id_length: usize) -> Protected<'a> {
    match next(datagram, id_length) {
        Some(Packet::Protected(packet)) => packet,
        other => panic!("{other:?}"),
    }
}

/// The connection id that the client chose in RFC 9001 §A.1.
const CHOSEN: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

#[test]
fn initial_keys_are_those_of_rfc_9001_a_1() {
    let up = Keys::initial(&CHOSEN, Direction::Up).unwrap();
    assert_eq!(up.key, unhex("1f369613dd76d5467730efcbe3b1a22d"));
    assert_eq!(up.iv[..], unhex("fa044b2f42a3fd3b46fb255c"));
    assert_eq!(up.header_key, unhex("9f50449e04a0e810283a1e9933adedd2"));
    // §A.2: the sample of the client's Initial.
    let sample = unhex("d1b1c98dd7689fb8ec11d242b123dc9b").try_into().unwrap();
    assert_eq!(up.cipher.mask(&up.header_key, sample).unwrap()[..5], unhex("437b9aec36"));
}

#[test]
fn the_servers_initial_of_rfc_9001_a_3_is_opened() {
    let datagram = unhex(
        "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b6394100f37a1c69797554780bb3
         8cc5a99f5ede4cf73c3ec2493a1839b3dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84
         022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc42158407dd074ee",
    );
    let mut rest = &datagram[..];
    let packet = protected(&mut rest, 0);
    assert_eq!((packet.level, packet.to, rest.len()), (Level::Initial, &[][..], 0));
    assert_eq!(packet.from, unhex("f067a5502a4262b5"));
    let (number, frames) = Keys::initial(&CHOSEN, Direction::Down).unwrap().open(&packet, None).unwrap();
    assert_eq!((number, &frames[..8]), (1, &unhex("0200000000060040")[..]));
    assert_eq!(Keys::initial(&CHOSEN, Direction::Up).unwrap().open(&packet, None), None, "the other's keys");
}

#[test]
fn the_packet_under_chacha20_of_rfc_9001_a_5_is_opened() {
    let secret = unhex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b");
    let mut keys = Keys::new(0x1303, &secret).unwrap();
    assert_eq!(keys.header_key, unhex("25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4"));
    let next = keys.next().unwrap();
    assert_eq!(next.secret, unhex("1223504755036d556342ee9361d253421a826c9ecdf3c7148684b36b714881f9"));
    let datagram = unhex("4cfe4189655e5cd55c41f69080575d7999c25a5bfb");
    let packet = protected(&mut &datagram[..], 0);
    assert_eq!(keys.open(&packet, Some(654_360_563)), Some((654_360_564, vec![1])));
    assert_eq!(keys.open(&packet, Some(1 << 40)), None, "another number");
}

#[test]
fn keys_may_be_updated_and_packets_may_share_a_datagram() {
    for (suite, length) in [(0x1301, 32), (0x1302, 48), (0x1303, 32)] {
        let mut sender = Keys::new(suite, &vec![7; length]).unwrap();
        let mut receiver = sender.clone();
        let mut sent = Vec::new();
        for number in [5, 6, 700] {
            sent.push(sender.seal(&[0x40, 9, 9], number, b"\x01\x01\x01"));
            sender.update();
        }
        // A packet with a long header before one with a short one.
        let mut long = vec![0xe0, 0, 0, 0, 1, 2, 9, 9, 0, 0x40, 4 + 3 + 16];
        long = receiver.seal(&long, 4, b"\x01\x01\x01");
        let datagram = [&long[..], &sent[0]].concat();
        let mut rest = &datagram[..];
        let first = protected(&mut rest, 2);
        assert_eq!((first.level, first.to), (Level::Handshake, &[9, 9][..]));
        assert_eq!(receiver.open(&first, None), Some((4, vec![1; 3])));
        assert_eq!(rest, sent[0]);
        for (number, sent) in [5, 6, 700].into_iter().zip(&sent) {
            let packet = protected(&mut &sent[..], 2);
            assert_eq!(receiver.open(&packet, Some(number - 1)), Some((number, vec![1; 3])), "{suite:x}");
        }
    }
    assert!(Keys::new(0x1302, &[7; 32]).is_none(), "too short for the hash");
}

#[test]
fn packet_numbers_are_completed_as_in_rfc_9000_a_3() {
    assert_eq!(full_number(0x9b32, 2, Some(0xa82f_30ea)), 0xa82f_9b32);
    assert_eq!(full_number(0x02, 1, Some(0xff)), 0x102);
    assert_eq!(full_number(0xfe, 1, Some(0x101)), 0xfe);
    assert_eq!(full_number(3, 1, None), 3);
}

#[test]
fn what_is_no_packet_of_version_1_is_told_apart() {
    let next_of = |bytes: &'static [u8]| next(&mut { bytes }, 0);
    let retry = [0xf0, 0, 0, 0, 1, 0, 2, 7, 8, 1, 1];
    assert_eq!(next(&mut &retry[..], 0), Some(Packet::Retry { server_id: &[7, 8] }));
    assert_eq!(next_of(&[0x80, 0, 0, 0, 2, 0, 0, 1]), Some(Packet::Other), "another version");
    assert_eq!(next_of(&[0xd0, 0, 0, 0, 1, 0, 0, 1, 9]), Some(Packet::Other), "0-RTT");
    assert_eq!(next_of(&[0xe0, 0, 0, 0, 1, 0, 0, 2, 9]), None, "cut short");
    assert_eq!(next_of(&[0xe0, 0, 0, 0, 1, 21, 0, 2, 9]), None, "an id of 21 bytes");
    assert_eq!(next_of(&[]), None);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), is_v1: bool, id_length in 0_usize..21) {
        let mut bytes = bytes;
        if is_v1 && bytes.len() > 5 {
            bytes[1..5].copy_from_slice(&VERSION);
        }
        let mut keys = Keys::initial(&CHOSEN, Direction::Up).unwrap();
        let mut rest = &bytes[..];
        while let Some(packet) = next(&mut rest, id_length) {
            if let Packet::Protected(packet) = packet {
                prop_assert_eq!(keys.open(&packet, Some(9)), None);
            }
        }
    }
}
