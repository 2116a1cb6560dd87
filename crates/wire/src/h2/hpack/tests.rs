//! The vectors of RFC 7541 Appendix C, and another implementation as the oracle in both directions.

use proptest::prelude::*;

use super::{Decoder, Encoder};
use crate::compression::{CompressionError, FieldEncoder, FieldList};

pub(super) type Field = (Vec<u8>, Vec<u8>);

pub(super) fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Field>, CompressionError> {
    let mut list = FieldList::new(u32::MAX);
    decoder.decode(block, &mut list)?;
    Ok(list.starting_at(0).iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect())
}

pub(super) fn encoded(encoder: &mut Encoder, fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    for (name, value) in fields {
        encoder.field(name, value, &mut out);
    }
    out
}

pub(super) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

pub(super) fn fields(lines: &[(&str, &str)]) -> Vec<Field> {
    lines.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

/// The requests of Appendix C.3 and C.4.
fn requests() -> [Vec<Field>; 3] {
    let first = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
    let second = [&first[..], &[("cache-control", "no-cache")]].concat();
    let third = [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ];
    [fields(&first), fields(&second), fields(&third)]
}

/// The responses of Appendix C.5 and C.6.
fn responses() -> [Vec<Field>; 3] {
    let head = |status, date| {
        [
            (":status", status),
            ("cache-control", "private"),
            ("date", date),
            ("location", "https://www.example.com"),
        ]
    };
    let (date, later) = ("Mon, 21 Oct 2013 20:13:21 GMT", "Mon, 21 Oct 2013 20:13:22 GMT");
    let cookie = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    let third = [&head("200", later)[..], &[("content-encoding", "gzip"), ("set-cookie", cookie)]].concat();
    [fields(&head("302", date)), fields(&head("307", date)), fields(&third)]
}

const C_4: [&str; 3] = [
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
];

#[test]
fn the_requests_of_appendix_c_decode() {
    let plain = [
        "828684410f7777772e6578616d706c652e636f6d",
        "828684be58086e6f2d6361636865",
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
    ];
    for blocks in [plain, C_4] {
        let mut decoder = Decoder::new(4_096);
        for (block, expected) in blocks.iter().zip(requests()) {
            assert_eq!(decoded(&mut decoder, &bytes(block)).unwrap(), expected, "{block}");
        }
    }
}

#[test]
fn the_requests_of_appendix_c_4_encode() {
    let mut encoder = Encoder::new();
    for (block, request) in C_4.iter().zip(requests()) {
        assert_eq!(encoded(&mut encoder, &request), bytes(block));
    }
}

#[test]
fn the_responses_of_appendix_c_decode_with_evictions() {
    let plain = [
        "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54
         6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
        "4803333037c1c0bf",
        "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d41
         53444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b207665727369
         6f6e3d31",
    ];
    let coded = [
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8
         e9ae82ae43d3",
        "4883640effc1c0bf",
        "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b
         3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::new(4_096);
        // The examples assume a table of 256 bytes: 3f e1 01 chooses it.
        decoded(&mut decoder, &[0x3f, 0xe1, 0x01]).unwrap();
        for (block, expected) in blocks.iter().zip(responses()) {
            assert_eq!(decoded(&mut decoder, &bytes(block)).unwrap(), expected, "{block}");
        }
    }
}

#[test]
fn what_a_block_must_not_contain_is_refused() {
    let cases = [
        ("80", "index 0"),
        ("be", "an empty dynamic table"),
        ("7f00", "a name index beyond the tables"),
        ("400a6375", "a truncated name"),
        ("40", "no name"),
        ("8220", "a size update behind a field"),
        ("3fe21f", "a size update above the announced size"),
        ("ff80808080808000", "an endless integer"),
        ("4001ff", "no value"),
        ("4081ff8100", "a Huffman string of padding only"),
    ];
    for (block, what) in cases {
        assert!(decoded(&mut Decoder::new(4_096), &bytes(block)).is_err(), "{what}");
    }
    assert!(decoded(&mut Decoder::new(4_096), &bytes("3fe11f")).is_ok(), "the announced size itself");
}

#[test]
fn a_reduced_table_must_be_taken_up_by_the_next_block() {
    let block_without_update = [0x82];
    let mut decoder = Decoder::new(0);
    assert!(decoded(&mut decoder, &block_without_update).is_ok(), "not acknowledged yet");
    decoder.acknowledge_limit(0);
    assert!(decoded(&mut decoder, &block_without_update).is_err());
    assert!(decoded(&mut decoder, &[0x20, 0x82]).is_ok());
    assert!(decoded(&mut decoder, &block_without_update).is_ok(), "once is enough");
}

#[test]
fn a_list_above_the_limit_is_cut_but_the_table_stays_in_step() {
    let mut encoder = Encoder::new();
    let first = encoded(&mut encoder, &fields(&[("a", "1"), ("large", &"x".repeat(200)), ("b", "2")]));
    let second = encoded(&mut encoder, &fields(&[("b", "2")]));
    let (mut decoder, mut list) = (Decoder::new(4_096), FieldList::new(100));
    decoder.decode(&first, &mut list).unwrap();
    assert!(list.is_too_large());
    assert_eq!(list.starting_at(0).len(), 1);
    decoder.decode(&second, &mut list).unwrap();
    assert_eq!(list.starting_at(0).get("b"), Some(&b"2"[..]));
}

#[test]
fn a_value_that_changes_every_time_pushes_nothing_out() {
    let mut encoder = Encoder::new();
    let mut sizes = Vec::new();
    for n in 0..500 {
        let id = format!("{n:032x}");
        let request = fields(&[("x-tenant", "blue"), ("x-request-id", &id), (":path", "/api")]);
        sizes.push(encoded(&mut encoder, &request).len());
    }
    // One byte for the tenant and for the path, one or two for the name, the rest is the id.
    assert!(sizes[1..].iter().all(|&size| size <= 1 + 2 + 1 + 32 + 1), "{sizes:?}");
}

#[test]
fn a_value_that_repeats_is_indexed_the_second_time() {
    let mut encoder = Encoder::new();
    let mut size = |path: &str| encoded(&mut encoder, &fields(&[(":path", path)])).len();
    assert!(size("/first") > 1);
    assert_eq!(size("/first"), 1, "a name that the dynamic table did not know");
    assert!(size("/second") > 1);
    assert!(size("/second") > 1, "indexed now");
    assert_eq!(size("/second"), 1);
    assert_eq!(size("/first"), 1);
}

#[test]
fn an_encoder_without_a_table_or_without_the_huffman_code_sends_in_full_whatever_the_peer_allows() {
    let request = fields(&[("cookie", "a=b"), ("x-tenant", "blue")]);
    let blocks = |mut encoder: Encoder| {
        encoder.set_limit(65_536);
        let mut decoder = Decoder::new(65_536);
        [(); 2].map(|()| {
            let block = encoded(&mut encoder, &request);
            assert_eq!(decoded(&mut decoder, &block).unwrap(), request);
            block
        })
    };
    let has_plain = |block: &[u8]| block.windows(4).any(|text| text == b"blue");
    let [first, second] = blocks(Encoder::with(65_536, true));
    assert_eq!((second.len(), has_plain(&first)), (2, false), "two indexes");
    let [_, second] = blocks(Encoder::with(0, true));
    assert!(second.len() > 10 && !has_plain(&second), "{second:?}");
    let [first, second] = blocks(Encoder::with(65_536, false));
    assert_eq!((second.len(), has_plain(&first)), (2, true), "the table is another setting");
}

/// Names and values that repeat often enough to meet the tables.
pub(super) fn any_field() -> impl Strategy<Value = Field> {
    let name = prop_oneof![
        Just(b":path".to_vec()),
        Just(b":method".to_vec()),
        Just(b"cookie".to_vec()),
        "[a-d]{1,3}".prop_map(String::into_bytes),
        "x-[a-z]{1,40}".prop_map(String::into_bytes),
    ];
    let value = prop_oneof![
        Just(b"GET".to_vec()),
        "[0-3]{0,2}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..80),
        "[a-z/=;]{0,2000}".prop_map(String::into_bytes),
    ];
    (name, value)
}

fn any_blocks() -> impl Strategy<Value = Vec<Vec<Field>>> {
    prop::collection::vec(prop::collection::vec(any_field(), 0..12), 1..12)
}

proptest! {
    #[test]
    fn another_decoder_reads_our_blocks(blocks in any_blocks()) {
        let mut ours = Encoder::new();
        let mut theirs = httlib_hpack::Decoder::with_dynamic_size(4_096);
        for block in blocks {
            let mut coded = encoded(&mut ours, &block);
            let mut read = Vec::new();
            theirs.decode(&mut coded, &mut read).unwrap();
            let read: Vec<Field> = read.into_iter().map(|(name, value, _)| (name, value)).collect();
            prop_assert_eq!(read, block);
        }
    }

    #[test]
    fn our_decoder_reads_another_encoders_blocks(blocks in any_blocks(), flags: Vec<u8>) {
        let mut theirs = httlib_hpack::Encoder::with_dynamic_size(4_096);
        let mut ours = Decoder::new(4_096);
        let mut flags = flags.iter().cycle();
        for block in blocks {
            let mut coded = Vec::new();
            for (name, value) in &block {
                // Bits 0 to 4 choose Huffman, indexing and the best form; "never indexed" excludes indexing.
                let flags = flags.next().map_or(0x17, |flags| flags & 0x17);
                theirs.encode((name.clone(), value.clone(), flags), &mut coded).unwrap();
            }
            prop_assert_eq!(decoded(&mut ours, &coded).unwrap(), block);
        }
    }

    #[test]
    fn tables_stay_in_step_whatever_size_is_announced(
        blocks in prop::collection::vec(
            (prop::collection::vec(any_field(), 0..12), prop::sample::select(vec![0, 1, 40, 4_095, 4_096, 65_536])),
            1..12,
        ),
    ) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(65_536));
        for (block, size) in blocks {
            decoder.acknowledge_limit(size);
            encoder.set_limit(size);
            let coded = encoded(&mut encoder, &block);
            prop_assert_eq!(decoded(&mut decoder, &coded).unwrap(), block);
        }
    }

    #[test]
    fn random_blocks_never_panic(blocks: Vec<Vec<u8>>) {
        let (mut decoder, mut list) = (Decoder::new(4_096), FieldList::new(4_096));
        for block in blocks {
            let _ = decoder.decode(&block, &mut list);
        }
    }
}
