//! What HPACK (RFC 7541) and QPACK (RFC 9204) share: integers, the Huffman code, strings, how a static table is
//! searched, the list that decoded fields land in, and the heads that are written.
//!
//! Nothing is allocated per field. Every field carries a [`FieldKind`], so that what was validated once, as an entry of
//! a table, is neither validated nor compared again.

mod block;
mod field;
mod huffman;
pub(crate) mod integer;
pub(crate) mod table;

pub(crate) use block::{Block, FieldEncoder};
pub(crate) use field::{FieldKind, FieldList};
pub(crate) use integer::{Reader, put_plain_string, put_string};

/// A block that cannot be decoded; holds the reason. In HTTP/2 a connection error of type `COMPRESSION_ERROR` (RFC 9113
/// §4.3), because the two dynamic tables may differ from here on; in HTTP/3 of type `QPACK_DECOMPRESSION_FAILED` (RFC
/// 9204 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompressionError(pub(crate) &'static str);

/// What an entry counts beyond its name and value (RFC 7541 §4.1, RFC 9113 §6.5.2, RFC 9114 §4.2.2).
pub(crate) const ENTRY_OVERHEAD: usize = 32;
