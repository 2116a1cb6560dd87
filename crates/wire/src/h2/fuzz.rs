//! Frames and field blocks under arbitrary input ([`h2lab_model::fuzz`]).

use super::frame::{Frame, FrameHeader, HEADER_LENGTH};
use super::hpack::{Decoder, Encoder};
use crate::compression::{FieldEncoder, FieldList};

/// Frame after frame: all parsed ranges lie within the payload, and headers survive a round trip.
pub fn frames(mut data: &[u8]) {
    while let Some((header, rest)) = data.split_first_chunk::<HEADER_LENGTH>() {
        let header = FrameHeader::parse(header);
        assert_eq!(FrameHeader::parse(&header.encode()), header);
        let (payload, rest) = rest.split_at(rest.len().min(header.length as usize));
        // The engine hands over only whole payloads: here a short one counts as whole.
        let header = FrameHeader { length: payload.len() as u32, ..header };
        match Frame::parse(header, payload) {
            Ok(Frame::Data { body: range, .. }) => {
                assert!(payload.get(range.clone()).is_some(), "{header:?}");
                assert!(
                    payload.len() - range.len() <= 1 + 255,
                    "no more than a pad length and its padding goes"
                );
            }
            Ok(
                Frame::Headers { fragment: range, .. }
                | Frame::PushPromise { fragment: range, .. }
                | Frame::GoAway { debug: range, .. },
            ) => assert!(payload.get(range).is_some(), "{header:?}"),
            Ok(_) | Err(_) => {}
        }
        data = rest;
    }
}

/// Block after block, each after its length, through one decoder: lists keep to their limit, and decoded fields survive
/// a round trip.
pub fn hpack(data: &[u8]) {
    const LIMIT: u32 = 4_096;
    let Some((sizes, mut data)) = data.split_first() else { return };
    let announced = [0, 1, 4_095, 4_096, 65_536][usize::from(*sizes % 5)];
    let mut decoder = Decoder::new(announced);
    if *sizes & 0x80 != 0 {
        decoder.acknowledge_limit(announced);
    }
    let (mut again, mut encoder) = (Decoder::new(65_536), Encoder::new());
    encoder.set_limit([0, 4_096, 65_536][usize::from(*sizes >> 4) % 3]);
    let mut list = FieldList::with_most_decoded(LIMIT, 4);
    while let Some((length, rest)) = data.split_first_chunk() {
        let (block, rest) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes(*length))));
        data = rest;
        if decoder.decode(block, &mut list).is_err() {
            return; // the connection would end
        }
        let size: usize =
            list.starting_at(0).iter().map(|field| field.name.len() + field.value.len() + 32).sum();
        assert!(size <= LIMIT as usize, "{size}");
        assert!(
            list.held() <= 512 * 1024 && decoder.held() <= 512 * 1024,
            "{} {}",
            list.held(),
            decoder.held()
        );
        let mut coded = Vec::new();
        encoder.begin(&mut coded);
        for field in list.starting_at(0).iter() {
            encoder.field(field.name, field.value, &mut coded);
        }
        let mut read = FieldList::new(LIMIT);
        again.decode(&coded, &mut read).expect("what we encode can be decoded");
        assert!(list.starting_at(0).iter().eq(read.starting_at(0).iter()), "a field changed on its way");
        assert_eq!(list.kinds(), read.kinds());
    }
}
