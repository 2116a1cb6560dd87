//! Decoding of field blocks (RFC 7541 §3, §6).

use super::dynamic_table::DynamicTable;
use super::static_table;
use crate::compression::{CompressionError, FieldKind, FieldList, Reader};

/// What a peer may use before it has seen our SETTINGS (RFC 9113 §6.5.2).
const INITIAL_CAPACITY: u32 = 4_096;

/// The decoding half of a connection's header compression.
#[derive(Debug)]
pub(in super::super) struct Decoder {
    table: DynamicTable,
    /// The largest capacity that the peer may choose.
    limit: u32,
    /// The peer has acknowledged a limit below its capacity, so that its next block must begin by reducing it.
    reduction_due: bool,
}

impl Decoder {
    /// A decoder for a peer to which we announce `announced` bytes. It may use the default until it acknowledges that.
    pub(in super::super) fn new(announced: u32) -> Self {
        Self {
            table: DynamicTable::new(INITIAL_CAPACITY),
            limit: announced.max(INITIAL_CAPACITY),
            reduction_due: false,
        }
    }

    /// The peer has acknowledged that its table may have `announced` bytes (RFC 9113 §4.3.1).
    pub(in super::super) fn acknowledge_limit(&mut self, announced: u32) {
        self.limit = announced;
        self.reduction_due = self.table.capacity() > announced as usize;
    }

    /// The memory that it takes, in bytes.
    pub(in super::super) fn held(&self) -> usize {
        self.table.held()
    }

    /// Decodes one whole block into `fields`. Fields beyond the list's limit are dropped, but the table stays in step;
    /// a block that is far too large is an error.
    ///
    /// Traffic repeats: if the list already holds the fields of the same bytes, and the table has not changed since,
    /// the list is kept.
    pub(in super::super) fn decode(
        &mut self,
        block: &[u8],
        fields: &mut FieldList,
    ) -> Result<(), CompressionError> {
        let version = self.table.version();
        if fields.repeats(block, version) && !self.reduction_due {
            return Ok(());
        }
        fields.clear();
        self.decode_anew(block, fields)?;
        if self.table.version() == version {
            fields.set_origin(block, version);
        }
        Ok(())
    }

    fn decode_anew(&mut self, block: &[u8], fields: &mut FieldList) -> Result<(), CompressionError> {
        let mut reader = Reader::new(block);
        while matches!(reader.peek(), Some(byte) if byte & 0xe0 == 0x20) {
            self.update_capacity(reader.integer(5)?)?;
        }
        if self.reduction_due {
            return Err(CompressionError(
                "no table size update after a reduced table size (RFC 9113 §4.3.1)",
            ));
        }
        while let Some(first) = reader.peek() {
            if fields.is_beyond_measure() {
                return Err(CompressionError("a field block exceeds our limit"));
            }
            if first & 0x80 != 0 {
                self.indexed(reader.integer(7)?, fields)?;
            } else if first & 0x40 != 0 {
                self.literal(&mut reader, 6, true, fields)?;
            } else if first & 0x20 != 0 {
                return Err(CompressionError("a table size update between fields (RFC 7541 §4.2)"));
            } else {
                // Without indexing and never indexed (§6.2.2, §6.2.3) differ for intermediaries only.
                self.literal(&mut reader, 4, false, fields)?;
            }
        }
        Ok(())
    }

    fn update_capacity(&mut self, capacity: u32) -> Result<(), CompressionError> {
        if capacity > self.limit {
            return Err(CompressionError("a table size update exceeds SETTINGS_HEADER_TABLE_SIZE"));
        }
        self.table.set_capacity(capacity);
        self.reduction_due = false;
        Ok(())
    }

    fn indexed(&self, index: u32, fields: &mut FieldList) -> Result<(), CompressionError> {
        let (name, value, kind) = self.entry(index)?;
        fields.push(name, value, kind);
        Ok(())
    }

    fn entry(&self, index: u32) -> Result<(&[u8], &[u8], FieldKind), CompressionError> {
        if let Some(&entry) = static_table::get(index) {
            return Ok(entry);
        }
        let dynamic = index.checked_sub(static_table::LENGTH + 1);
        dynamic
            .and_then(|index| self.table.get(index as usize))
            .ok_or(CompressionError("an index is beyond the tables (RFC 7541 §2.3.3)"))
    }

    /// A literal field line (§6.2); `bits` is the prefix of its name's index.
    fn literal(
        &mut self,
        reader: &mut Reader<'_>,
        bits: u32,
        keep: bool,
        fields: &mut FieldList,
    ) -> Result<(), CompressionError> {
        let start = fields.mark();
        match reader.integer(bits)? {
            0 => reader.string(7, fields.scratch())?,
            index => fields.scratch().extend_from_slice(self.entry(index)?.0),
        }
        let middle = fields.mark();
        reader.string(7, fields.scratch())?;
        let (name, value) = (fields.slice(start, middle), fields.slice(middle, fields.mark()));
        let kind = FieldKind::of(name, value);
        if keep {
            self.table.insert(name, value, kind);
        }
        fields.commit(start, middle, kind);
        Ok(())
    }
}
