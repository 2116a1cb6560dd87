//! Encoding of field sections (RFC 9204 §4.5).

use super::PREFIX;
use super::static_table::TABLE;
use crate::compression::table::Found;
use crate::compression::{FieldEncoder, integer, put_string};

/// Encodes fields by the static table and as literals. It has no state: the same fields always give the same bytes.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Encoder;

impl Encoder {
    /// Begins a section.
    pub(in super::super) fn begin(out: &mut Vec<u8>) {
        out.extend_from_slice(&PREFIX);
    }
}

impl FieldEncoder for Encoder {
    fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match TABLE.find(name, value) {
            // Indexed field line, static (§4.5.2).
            Some(Found::Field(index)) => integer::encode(index, 6, 0xc0, out),
            // Literal field line with name reference, static (§4.5.4).
            Some(Found::Name(index)) => {
                integer::encode(index, 4, 0x50, out);
                put_string(value, 7, 0, out);
            }
            // Literal field line with literal name (§4.5.6).
            None => {
                put_string(name, 3, 0x20, out);
                put_string(value, 7, 0, out);
            }
        }
    }
}
