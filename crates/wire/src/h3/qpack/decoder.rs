//! Decoding of field sections (RFC 9204 §4.5).

use super::static_table::TABLE;
use crate::compression::table::Entry;
use crate::compression::{CompressionError, FieldKind, FieldList, Reader};

const DYNAMIC: CompressionError =
    CompressionError("a reference to the dynamic table, whose capacity is 0 (RFC 9204 §3.2.3)");

/// Decodes one whole section into `fields`. Fields beyond the list's limit are dropped; a section that is far too large
/// is an error. If the list already holds the fields of the same bytes, it is kept.
pub(in super::super) fn decode(section: &[u8], fields: &mut FieldList) -> Result<(), CompressionError> {
    // Without a dynamic table sections never change their meaning: the version is constant.
    const VERSION: u64 = 0;
    if fields.repeats(section, VERSION) {
        return Ok(());
    }
    fields.clear();
    let mut reader = Reader::new(section);
    take_prefix(&mut reader)?;
    while let Some(first) = reader.peek() {
        if fields.is_beyond_measure() {
            return Err(CompressionError("a field section exceeds our limit"));
        }
        line(first, &mut reader, fields)?;
    }
    fields.set_origin(section, VERSION);
    Ok(())
}

/// Required Insert Count and Base (§4.5.1).
fn take_prefix(reader: &mut Reader<'_>) -> Result<(), CompressionError> {
    if reader.integer(8)? != 0 {
        return Err(DYNAMIC);
    }
    let is_negative = reader.peek().is_some_and(|byte| byte & 0x80 != 0);
    reader.integer(7)?;
    // A Base that nothing refers to may have any value but one below 0 (§4.5.1.2).
    if is_negative { Err(CompressionError("a negative Base (RFC 9204 §4.5.1.2)")) } else { Ok(()) }
}

fn line(first: u8, reader: &mut Reader<'_>, fields: &mut FieldList) -> Result<(), CompressionError> {
    match first {
        // Indexed, static (§4.5.2).
        0xc0.. => {
            let (name, value, kind) = *entry(reader.integer(6)?)?;
            fields.push(name, value, kind);
            Ok(())
        }
        // Literal with name reference, static (§4.5.4).
        _ if first & 0xd0 == 0x50 => {
            let name = entry(reader.integer(4)?)?.0;
            let start = fields.mark();
            fields.scratch().extend_from_slice(name);
            literal(start, reader, fields)
        }
        // Literal with literal name (§4.5.6).
        _ if first & 0xe0 == 0x20 => {
            let start = fields.mark();
            reader.string(3, fields.scratch())?;
            literal(start, reader, fields)
        }
        // Indexed, with name reference, and with post-base index: all dynamic (§4.5.2 to §4.5.5).
        _ => Err(DYNAMIC),
    }
}

/// The value of the field whose name lies in the scratch from `start` on.
fn literal(start: usize, reader: &mut Reader<'_>, fields: &mut FieldList) -> Result<(), CompressionError> {
    let middle = fields.mark();
    reader.string(7, fields.scratch())?;
    let kind = FieldKind::of(fields.slice(start, middle), fields.slice(middle, fields.mark()));
    fields.commit(start, middle, kind);
    Ok(())
}

fn entry(index: u32) -> Result<&'static Entry, CompressionError> {
    TABLE.get(index).ok_or(CompressionError("an index is beyond the static table (RFC 9204 §3.1)"))
}
