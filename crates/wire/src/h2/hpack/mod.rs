//! HPACK, the header compression of HTTP/2 (RFC 7541), in both directions.
//!
//! Decoded fields land in one reusable `FieldList`; nothing is allocated per field. A field's kind, found when it was
//! first seen as a literal, is stored with its table entry.

#[cfg(test)]
mod cost;
mod decoder;
mod dynamic_table;
mod encoder;
#[cfg(test)]
mod oracles;
mod static_table;
#[cfg(test)]
mod tests;

pub(super) use decoder::Decoder;
pub(super) use encoder::Encoder;
