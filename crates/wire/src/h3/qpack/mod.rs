//! QPACK, the header compression of HTTP/3 (RFC 9204), with a dynamic table of capacity 0 on both sides.
//!
//! Without a dynamic table no field section depends on another, so that none ever waits for a lost packet: what remains
//! is the static table and the Huffman code. This also suits measurements: a block's size does not depend on what was
//! sent before. We announce no capacity (0 is the default) and use none that a peer announces. A connection then needs
//! neither an encoder nor a decoder stream (RFC 9204 §4.2 lets us leave them out); those of the peer are checked.

mod decoder;
mod encoder;
mod instructions;
mod static_table;
#[cfg(test)]
mod tests;

pub(super) use decoder::decode;
pub(super) use encoder::Encoder;
pub(super) use instructions::{DecoderStream, check_encoder_stream};

/// The two integers that a field section begins with, Required Insert Count and Base, which are 0 without a dynamic
/// table (RFC 9204 §4.5.1).
const PREFIX: [u8; 2] = [0, 0];
