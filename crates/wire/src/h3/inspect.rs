//! Stream parsing for an observer of a connection that is neither of its ends.

use super::control::stream_type;
use super::stream::QuicStreamId;
use super::{qpack, varint};
use crate::compression::FieldList;
use crate::{Fields, StreamId};

pub use super::frame::LONGEST_HEADER;

/// The type of control streams (RFC 9114 §6.2.1).
pub const CONTROL_STREAM: u64 = stream_type::CONTROL;

/// What is kept of the fields of one section, in bytes as RFC 9114 §4.2.2 counts them.
const FIELDS_LIMIT: u32 = 1 << 18;

/// How many times that limit is decoded at most.
const DECODED_FACTOR: u32 = 4;

/// Reads field sections that refer to no dynamic table: those of our connections, which have none.
#[derive(Debug)]
pub struct FieldSections(FieldList);

impl Default for FieldSections {
    fn default() -> Self {
        Self(FieldList::with_most_decoded(FIELDS_LIMIT, DECODED_FACTOR))
    }
}

impl FieldSections {
    /// The fields of a whole section, pseudo-header fields among them, and whether all of them were kept. The error is
    /// why it could not be decoded; the next one may be.
    pub fn decode(&mut self, section: &[u8]) -> Result<(Fields<'_>, bool), &'static str> {
        qpack::decode(section, &mut self.0).map_err(|error| error.0)?;
        Ok((self.0.starting_at(0), !self.0.is_too_large()))
    }
}

/// The integer (RFC 9000 §16) at the front of `bytes`, and what follows it; `None` if they end before it does.
pub fn integer(mut bytes: &[u8]) -> Option<(u64, &[u8])> {
    let value = varint::take(&mut bytes)?;
    Some((value, bytes))
}

/// The protocol-independent id of the request on a stream; `None` on one that carries none.
pub fn request_on(stream: QuicStreamId) -> Option<StreamId> {
    stream.request().map(StreamId::of_request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_on_the_streams_that_a_client_begins_and_that_go_both_ways() {
        let on = |stream| request_on(QuicStreamId(stream)).map(|stream| stream.0);
        assert_eq!([on(0), on(4)], [Some(1), Some(3)]);
        assert_eq!([on(1), on(2), on(3), on(1 << 40)], [None; 4]);
    }

    #[test]
    fn a_section_that_cannot_be_read_does_not_keep_the_next_from_it() {
        let mut sections = FieldSections::default();
        assert!(sections.decode(&[0, 0, 0x80]).is_err(), "the dynamic table");
        let (fields, all) = sections.decode(&[0, 0, 0xd1]).unwrap();
        assert_eq!((fields.get(":method"), fields.len(), all), (Some(&b"GET"[..]), 1, true));
    }

    #[test]
    fn an_integer_says_what_follows_it() {
        assert_eq!(integer(&[0x40, 0x25, 7]), Some((37, &[7][..])));
        assert_eq!(integer(&[0x40]), None);
    }
}
