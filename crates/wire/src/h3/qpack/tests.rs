//! Sections and instructions against RFC 9204.

use proptest::prelude::*;

use super::{DecoderStream, Encoder, check_encoder_stream, decode};
use crate::ErrorCode;
use crate::compression::{FieldEncoder, FieldList};
use crate::fault::Fault;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn encoded(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut section = Vec::new();
    Encoder::begin(&mut section);
    for (name, value) in fields {
        Encoder.field(name, value, &mut section);
    }
    section
}

fn decoded(section: &[u8]) -> Result<Fields, &'static str> {
    let mut list = FieldList::new(65_536);
    decode(section, &mut list).map_err(|error| error.0)?;
    Ok(list.starting_at(0).iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect())
}

fn one(name: &str, value: &str) -> Fields {
    vec![(name.as_bytes().to_vec(), value.as_bytes().to_vec())]
}

#[test]
fn the_example_of_rfc_9204_appendix_b_1_holds() {
    // A literal with a name reference, without the Huffman code as in the RFC's example.
    let section = b"\x00\x00\x51\x0b/index.html";
    assert_eq!(decoded(section).unwrap(), one(":path", "/index.html"));
    let ours = encoded(&one(":path", "/index.html"));
    assert_eq!(ours[..3], [0, 0, 0x51]);
    assert!(ours.len() < section.len(), "ours is Huffman-coded");
    assert_eq!(decoded(&ours).unwrap(), one(":path", "/index.html"));
}

#[test]
fn the_examples_that_need_a_dynamic_table_are_refused() {
    // Appendix B.2 to B.5: Required Insert Count 2, a post-base index; and the instructions that fill the table.
    assert!(decoded(b"\x03\x81\x10\x11").unwrap_err().contains("dynamic table"));
    assert!(decoded(b"\x05\x00\x80\xc1\x81").unwrap_err().contains("dynamic table"));
    for instruction in [&b"\x3f\xbd\x01"[..], b"\xc0\x0fwww.example.com", b"\x4acustom-key", b"\x02"] {
        assert!(check_encoder_stream(instruction).is_err(), "{instruction:?}");
    }
}

#[test]
fn each_representation_takes_the_bytes_that_the_rfc_gives_it() {
    assert_eq!(encoded(&one(":method", "GET")), [0, 0, 0xc0 + 17]);
    assert_eq!(encoded(&one(":status", "500")), [0, 0, 0xff, 71 - 63], "an index above the prefix of 6 bits");
    assert_eq!(encoded(&one("user-agent", "~"))[..4], [0, 0, 0x5f, 95 - 15], "above the prefix of 4 bits");
    assert_eq!(
        encoded(&one("~", "~")),
        [0, 0, 0x21, b'~', 1, b'~'],
        "too short for the Huffman code to gain"
    );
    assert_eq!(encoded(&one("x-name", ""))[2] & 0xf8, 0x28, "a name in the Huffman code");
}

#[test]
fn every_reference_to_the_dynamic_table_fails() {
    for (line, what) in [
        (&[0x80][..], "indexed (§4.5.2)"),
        (&[0xbf, 0], "indexed, above the prefix"),
        (&[0x10], "indexed, post-base (§4.5.3)"),
        (&[0x40, 0], "name reference (§4.5.4)"),
        (&[0x60, 0], "name reference, never indexed"),
        (&[0x00, 0], "name reference, post-base (§4.5.5)"),
        (&[0x08, 0], "the same, never indexed"),
    ] {
        let section = [&[0, 0][..], line].concat();
        assert!(decoded(&section).unwrap_err().contains("dynamic table"), "{what}");
    }
}

#[test]
fn the_prefix_has_no_insertions_and_a_base_that_is_not_negative() {
    assert!(decoded(&[0, 0]).unwrap().is_empty());
    assert!(decoded(&[0, 0x7f, 3]).unwrap().is_empty(), "a Base that nothing uses");
    assert!(decoded(&[1, 0]).is_err(), "Required Insert Count 1");
    assert!(decoded(&[0, 0x80]).unwrap_err().contains("negative"));
    for cut in [&[][..], &[0], &[0, 0x7f], &[0xff]] {
        assert!(decoded(cut).is_err(), "{cut:?}");
    }
}

#[test]
fn the_static_table_ends_at_98() {
    assert_eq!(decoded(&[0, 0, 0xff, 98 - 63]).unwrap(), one("x-frame-options", "sameorigin"));
    assert!(decoded(&[0, 0, 0xff, 99 - 63]).is_err());
    assert!(decoded(&[0, 0, 0x5f, 99 - 15, 0]).is_err(), "as a name");
}

#[test]
fn a_line_that_is_cut_short_fails_wherever_it_is_cut() {
    let section = encoded(&[one("x-some-name", "some value"), one("location", "/elsewhere")].concat());
    let first = encoded(&one("x-some-name", "some value")).len();
    for length in (3..section.len()).filter(|length| *length != first) {
        assert!(decoded(&section[..length]).is_err(), "{length}");
    }
}

#[test]
fn a_list_that_is_too_large_is_reported_and_one_beyond_measure_is_an_error() {
    let fields: Fields = (0..8).map(|_| one("a", "b").remove(0)).collect();
    let section = encoded(&fields);
    let (mut fits, mut large, mut bomb) =
        (FieldList::new(8 * 34), FieldList::new(8 * 34 - 1), FieldList::with_most_decoded(34, 4));
    assert!(decode(&section, &mut fits).is_ok() && !fits.is_too_large());
    assert!(decode(&section, &mut large).is_ok() && large.is_too_large());
    assert!(decode(&section, &mut bomb).is_err() && bomb.is_beyond_measure());
}

#[test]
fn an_encoder_may_set_the_capacity_to_0_and_nothing_else() {
    assert_eq!(check_encoder_stream(&[0x20, 0x20]), Ok(()));
    let code = |bytes: &[u8]| match check_encoder_stream(bytes) {
        Err(Fault::Connection { code, .. }) => code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(&[0x21]), ErrorCode::QPACK_ENCODER_STREAM_ERROR, "capacity 1 (RFC 9204 §4.3.1)");
    assert_eq!(code(&[0x20, 0x3f]), ErrorCode::QPACK_ENCODER_STREAM_ERROR);
}

#[test]
fn a_decoder_may_cancel_streams_and_nothing_else() {
    let check = |bytes: &[u8]| DecoderStream::default().check(bytes);
    assert_eq!(check(&[0x40, 0x7e, 0x7f, 0x80, 0x01]), Ok(()));
    assert!(check(&[0x80]).is_err(), "Section Acknowledgment (RFC 9204 §4.4.1)");
    assert!(check(&[0x00]).is_err(), "Insert Count Increment of 0 (§4.4.3)");
    assert!(check(&[0x01]).is_err(), "Insert Count Increment of 1");
    let longest = [&[0x7f][..], &[0xff; 8], &[0x3f]].concat();
    assert_eq!(check(&longest), Ok(()));
    assert!(check(&[&[0x7f][..], &[0xff; 9], &[0]].concat()).is_err(), "an integer without end");
    let mut cut = DecoderStream::default();
    assert!(longest.iter().all(|byte| cut.check(&[*byte]).is_ok()), "cut anywhere");
    assert!(cut.check(&[0x80]).is_err(), "and then the next instruction");
}

proptest! {
    #[test]
    fn fields_survive_a_round_trip(
        fields in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..300)), 0..20)
    ) {
        prop_assert_eq!(decoded(&encoded(&fields)).unwrap(), fields);
    }

    #[test]
    fn any_bytes_decode_or_are_refused(section: Vec<u8>) {
        let _ = decoded(&section);
    }
}
