//! Header-field decoding for an observer of a connection that is neither of its ends.

use super::hpack::Decoder;
use crate::Fields;
use crate::compression::FieldList;

/// The dynamic table that an observed peer may choose at most, in bytes. The engine at its other end holds it to what
/// was announced; this only bounds what an observer holds, far above what any implementation uses.
const TABLE_LIMIT: u32 = 1 << 20;

/// What is kept of the fields of one block, in bytes as RFC 9113 §6.5.2 counts them.
const FIELDS_LIMIT: u32 = 1 << 18;

/// How many times that limit is decoded at most, so that the table stays in step with blocks that are only partly kept.
const DECODED_FACTOR: u32 = 64;

/// One direction's header compression (RFC 7541) as an observer follows it: it must see every block from the first one
/// on.
///
/// A block that cannot be decoded ends the observation, since the table may differ from the sender's from there on.
#[derive(Debug)]
pub struct FieldBlocks {
    decoder: Decoder,
    fields: FieldList,
    lost: Option<&'static str>,
}

impl Default for FieldBlocks {
    fn default() -> Self {
        let fields = FieldList::with_most_decoded(FIELDS_LIMIT, DECODED_FACTOR);
        Self { decoder: Decoder::new(TABLE_LIMIT), fields, lost: None }
    }
}

impl FieldBlocks {
    /// The fields of the next whole block, pseudo-header fields among them, and whether all of them were kept. The
    /// error is why this block or an earlier one could not be decoded.
    pub fn decode(&mut self, block: &[u8]) -> Result<(Fields<'_>, bool), &'static str> {
        if let Some(why) = self.lost {
            return Err(why);
        }
        if let Err(error) = self.decoder.decode(block, &mut self.fields) {
            return Err(self.lose(error.0));
        }
        Ok((self.fields.starting_at(0), !self.fields.is_too_large()))
    }

    /// A block was not seen as a whole: no later one can be decoded. Returns the reason that all later calls will give.
    pub fn lose(&mut self, why: &'static str) -> &'static str {
        self.lost.get_or_insert(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(blocks: &mut FieldBlocks, block: &[u8]) -> Vec<String> {
        let (fields, _) = blocks.decode(block).unwrap();
        fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect()
    }

    #[test]
    fn an_observer_follows_the_table_from_block_to_block() {
        let mut blocks = FieldBlocks::default();
        let first = [b"\x82\x40\x04x-id\x01a".as_slice()].concat(); // :method GET, then a literal that is indexed
        assert_eq!(names(&mut blocks, &first), [":method", "x-id"]);
        assert_eq!(names(&mut blocks, &[0xbe]), ["x-id"], "the first entry of the dynamic table");
    }

    #[test]
    fn a_block_that_cannot_be_decoded_ends_the_observation() {
        let mut blocks = FieldBlocks::default();
        let why = blocks.decode(&[0xbe]).unwrap_err();
        assert!(why.contains("beyond the tables"), "{why}");
        assert_eq!(blocks.decode(&[0x82]).unwrap_err(), why, "the tables may differ now");
    }

    #[test]
    fn the_table_grows_up_to_a_bound() {
        // Size updates (RFC 7541 §6.3) to 1 MiB and to one byte more: 31 in the prefix, then 7 bits at a time.
        let update = |size: u32| {
            let rest = size - 31;
            [0x3f, rest as u8 | 0x80, (rest >> 7) as u8 | 0x80, (rest >> 14) as u8]
        };
        assert!(FieldBlocks::default().decode(&update(1 << 20)).is_ok());
        assert!(FieldBlocks::default().decode(&update((1 << 20) + 1)).is_err());
    }
}
