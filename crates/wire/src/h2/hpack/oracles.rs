//! Appendix C.2 of RFC 7541, and tables whose size changes between blocks, with another implementation as the oracle in
//! both directions. nghttp2 is one more oracle, over real connections: see the integration tests of the binary.

use proptest::prelude::*;

use super::tests::{Field, any_field, bytes, decoded, encoded, fields};
use super::{Decoder, Encoder};

/// Table sizes on both sides of every boundary: nothing, less than an entry, the default, the largest that we use.
const SIZES: [u32; 5] = [0, 1, 4_095, 4_096, 65_536];

#[test]
fn the_literals_of_appendix_c_2_decode_and_only_the_indexed_one_is_remembered() {
    let cases = [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", ("custom-key", "custom-header"), true),
        ("040c2f73616d706c652f70617468", (":path", "/sample/path"), false),
        ("100870617373776f726406736563726574", ("password", "secret"), false),
        ("82", (":method", "GET"), false),
    ];
    for (block, field, remembered) in cases {
        let mut decoder = Decoder::new(4_096);
        assert_eq!(decoded(&mut decoder, &bytes(block)).unwrap(), fields(&[field]), "{block}");
        let newest = decoded(&mut decoder, &[0xbe]); // index 62
        assert_eq!(newest.ok(), remembered.then(|| fields(&[field])), "{block}");
    }
}

#[test]
fn a_change_of_size_is_announced_by_the_smallest_and_the_last_and_nothing_is_sent_without_one() {
    for (sizes, reported) in [
        (&[4_096][..], &[][..]),
        (&[0], &[0x20][..]),
        (&[1], &[0x21]),
        (&[4_095], &[0x3f, 0xe0, 0x1f]),
        (&[65_536], &[0x3f, 0xe1, 0xff, 0x03]),
        (&[u32::MAX], &[0x3f, 0xe1, 0xff, 0x03]),
        (&[0, 4_096], &[0x20, 0x3f, 0xe1, 0x1f]),
        (&[100, 1, 4_095], &[0x21, 0x3f, 0xe0, 0x1f]),
    ] {
        let mut encoder = Encoder::new();
        for size in sizes {
            encoder.set_limit(*size);
        }
        assert_eq!(encoded(&mut encoder, &[]), reported, "{sizes:?}");
        assert!(encoded(&mut encoder, &[]).is_empty(), "{sizes:?}: once");
    }
}

#[test]
fn an_update_up_to_the_announced_size_is_taken_and_one_byte_more_is_refused() {
    for announced in SIZES {
        let mut decoder = Decoder::new(announced);
        decoder.acknowledge_limit(announced);
        let update = |size: u32| {
            let mut block = Vec::new();
            crate::compression::integer::encode(size, 5, 0x20, &mut block);
            block
        };
        assert!(decoded(&mut decoder, &update(announced)).is_ok(), "{announced}");
        assert!(decoded(&mut decoder, &update(announced + 1)).is_err(), "{announced}");
    }
}

/// Blocks, with the table size that is announced before each.
fn any_blocks_and_sizes() -> impl Strategy<Value = Vec<(Vec<Field>, u32)>> {
    let block = prop::collection::vec(any_field(), 0..12);
    prop::collection::vec((block, prop::sample::select(SIZES.to_vec())), 1..12)
}

proptest! {
    #[test]
    fn another_decoder_follows_our_changes_of_size(blocks in any_blocks_and_sizes()) {
        let mut ours = Encoder::new();
        let mut theirs = httlib_hpack::Decoder::with_dynamic_size(65_536);
        for (block, size) in blocks {
            ours.set_limit(size);
            let mut coded = encoded(&mut ours, &block);
            let mut read = Vec::new();
            theirs.decode(&mut coded, &mut read).unwrap();
            let read: Vec<Field> = read.into_iter().map(|(name, value, _)| (name, value)).collect();
            prop_assert_eq!(read, block);
        }
    }

    #[test]
    fn our_decoder_follows_another_encoders_changes_of_size(blocks in any_blocks_and_sizes()) {
        let mut theirs = httlib_hpack::Encoder::with_dynamic_size(4_096);
        let mut ours = Decoder::new(65_536);
        ours.acknowledge_limit(65_536);
        for (block, size) in blocks {
            let mut coded = Vec::new();
            theirs.update_max_dynamic_size(size, &mut coded).unwrap();
            for (name, value) in &block {
                theirs.encode((name.clone(), value.clone(), 0x17), &mut coded).unwrap();
            }
            prop_assert_eq!(decoded(&mut ours, &coded).unwrap(), block);
        }
    }
}
