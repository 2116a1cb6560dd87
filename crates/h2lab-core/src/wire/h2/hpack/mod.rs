//! HPACK, the header compression of HTTP/2 (RFC 7541), in both directions.
//!
//! Decoded fields land in one reusable [`FieldList`]; nothing is allocated per field. Every field carries a
//! [`FieldKind`], found when it was first seen as a literal and remembered with its table entry, so that a field that
//! comes by index is neither validated nor compared again.

#[cfg(test)]
mod cost;
mod decoder;
mod dynamic_table;
mod encoder;
mod field;
mod huffman;
mod integer;
#[cfg(test)]
mod oracles;
mod static_table;
#[cfg(test)]
mod tests;

pub(super) use decoder::Decoder;
pub(super) use encoder::Encoder;
pub(super) use field::{FieldKind, FieldList};

/// A block that cannot be decoded: a connection error of type `COMPRESSION_ERROR` (RFC 9113 §4.3), because the two
/// dynamic tables may differ from here on. Holds the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CompressionError(pub(super) &'static str);

/// What an entry counts beyond its name and value (RFC 7541 §4.1, RFC 9113 §6.5.2).
const ENTRY_OVERHEAD: usize = 32;
