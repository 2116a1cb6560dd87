//! The records of a stream of ciphertext, counted by their headers.

use h2lab_base::counters::TlsRecords;

/// Bytes of a record's header (RFC 8446 §5.1).
const HEADER: usize = 5;
/// The type of records with application data; in TLS 1.3 of all that are protected.
const APPLICATION_DATA: u8 = 23;

/// Counts records while their bytes come in, in pieces of any length.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecordMeter {
    /// The header of the record under way, as far as it has come.
    header: [u8; HEADER],
    header_bytes: usize,
    /// Bytes of its body that are still to come.
    body_left: usize,
    counted: TlsRecords,
}

impl RecordMeter {
    /// What has been counted: a record as soon as its header is whole.
    pub const fn counted(&self) -> TlsRecords {
        self.counted
    }

    /// The next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let body = self.body_left.min(bytes.len());
            self.body_left -= body;
            bytes = &bytes[body..];
            let taken = (HEADER - self.header_bytes).min(bytes.len());
            let (header, rest) = bytes.split_at(taken);
            self.header[self.header_bytes..][..taken].copy_from_slice(header);
            self.header_bytes += taken;
            bytes = rest;
            if self.header_bytes == HEADER {
                self.begin();
            }
        }
    }

    /// The header is whole.
    fn begin(&mut self) {
        self.header_bytes = 0;
        let [kind, _, _, high, low] = self.header;
        self.body_left = usize::from(u16::from_be_bytes([high, low]));
        if kind == APPLICATION_DATA {
            self.counted.add((HEADER + self.body_left) as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, body: usize) -> Vec<u8> {
        let length = u16::try_from(body).unwrap().to_be_bytes();
        let header = [kind, 3, 3, length[0], length[1]];
        header.into_iter().chain(std::iter::repeat_n(APPLICATION_DATA, body)).collect()
    }

    #[test]
    fn records_are_counted_whatever_the_pieces_they_come_in() {
        let early = (0..65).flat_map(|_| record(APPLICATION_DATA, 1 << 14));
        let late = [record(APPLICATION_DATA, 0), record(22, 300), record(APPLICATION_DATA, 417)];
        let bytes: Vec<u8> = early.chain(late.into_iter().flatten()).collect();
        for piece in [1, 3, 7, 4_096, bytes.len()] {
            let mut meter = RecordMeter::default();
            bytes.chunks(piece).for_each(|piece| meter.feed(piece));
            let counted = meter.counted();
            assert_eq!((counted.records, counted.bytes), (3, 5 + 16_389 + 422), "pieces of {piece} bytes");
            assert_eq!((counted.early_records, counted.early_bytes), (64, 64 * 16_389));
        }
    }
}
