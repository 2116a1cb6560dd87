//! Decoded fields, what kind each is, and whether RFC 9113 allows it at all.

use super::ENTRY_OVERHEAD;
use crate::event::{FieldSpan, Fields};

/// What kind of field this is, for validation of the message (RFC 9113 §8.2, §8.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// Nothing special.
    Regular,
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:status`
    Status,
    /// `content-length`
    ContentLength,
    /// `host`
    Host,
    /// `priority` (RFC 9218 §5)
    Priority,
    /// `:protocol` (RFC 8441 §4). Whether it is allowed depends on the connection.
    Protocol,
    /// A pseudo-header field that does not exist.
    UnknownPseudo,
    /// `connection` and similar fields, or `te` with anything but `trailers` (§8.2.2).
    ConnectionSpecific,
    /// Empty, upper-case or impossible name (§8.2.1).
    BadName,
    /// A value with NUL, CR or LF in it, or white space around it (§8.2.1).
    BadValue,
}

impl FieldKind {
    /// The kind of the field line `name: value`.
    pub(crate) fn of(name: &[u8], value: &[u8]) -> Self {
        if !is_value(value) {
            return Self::BadValue;
        }
        match name {
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":authority" => Self::Authority,
            b":path" => Self::Path,
            b":status" => Self::Status,
            b":protocol" => Self::Protocol,
            [b':', ..] => Self::UnknownPseudo,
            b"content-length" => Self::ContentLength,
            b"host" => Self::Host,
            b"priority" => Self::Priority,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                Self::ConnectionSpecific
            }
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => Self::ConnectionSpecific,
            _ if is_lower_case_token(name) => Self::Regular,
            _ => Self::BadName,
        }
    }
}

/// Whether `name` is a token (RFC 9110 §5.6.2) without upper-case letters. RFC 9113 §8.2.1 demands less, but a proxy
/// would have to pass the name on over HTTP/1.1, which can carry no other.
fn is_lower_case_token(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|byte| {
            matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`'
                | b'|' | b'~')
        })
}

/// Whether `value` has no surrounding space and no control character but the tab (RFC 9110 §5.5). RFC 9113 §8.2.1
/// demands less, but HTTP/1.1 refuses the others.
fn is_value(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !blank(value.first())
        && !blank(value.last())
        && !value.iter().any(|byte| matches!(byte, 0..=8 | 10..=31 | 127))
}

/// The fields of one block, in storage that is used again for the next.
#[derive(Debug, Default)]
pub(crate) struct FieldList {
    bytes: Vec<u8>,
    spans: Vec<FieldSpan>,
    kinds: Vec<FieldKind>,
    /// The size of all fields of the block, kept or not.
    size: usize,
    limit: usize,
    most_decoded: usize,
    too_large: bool,
    /// The block that these fields were decoded from, if decoding it again gives the same fields; else empty.
    origin: Vec<u8>,
    /// The state of the dynamic table before and after decoding it.
    version: u64,
    /// The last block was the same as the one before it.
    repeated: bool,
}

/// Blocks up to this length, in bytes, are compared with their successors: blocks that repeat consist of indexes.
const LONGEST_ORIGIN: usize = 256;

impl FieldList {
    /// An empty list that keeps at most `limit` bytes, as RFC 9113 §6.5.2 counts them.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn new(limit: u32) -> Self {
        Self::with_most_decoded(limit, u32::MAX)
    }

    /// The same, but at most `factor` times `limit` of a block is decoded.
    pub(crate) fn with_most_decoded(limit: u32, factor: u32) -> Self {
        Self {
            most_decoded: limit as usize * factor.max(1) as usize,
            limit: limit as usize,
            ..Self::default()
        }
    }

    /// Whether these are the fields of the previous block: what was derived from them is still valid.
    pub(crate) const fn is_repeated(&self) -> bool {
        self.repeated
    }

    /// Whether these already are the fields of `block` decoded with a table of this version.
    pub(crate) fn repeats(&mut self, block: &[u8], version: u64) -> bool {
        self.repeated = self.version == version && !block.is_empty() && self.origin == block;
        self.repeated
    }

    /// These are the fields of `block`, whose decoding left the table at `version` as it was before.
    pub(crate) fn set_origin(&mut self, block: &[u8], version: u64) {
        if block.len() <= LONGEST_ORIGIN {
            self.origin.extend_from_slice(block);
            self.version = version;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.kinds.clear();
        self.size = 0;
        self.too_large = false;
        self.origin.clear();
    }

    /// Drops the last block, and frees the memory of its fields.
    pub(crate) fn release_memory(&mut self) {
        *self = Self { limit: self.limit, most_decoded: self.most_decoded, ..Self::default() };
    }

    /// Whether the block is so far above the limit that decoding the rest is a waste: a two-byte reference to a large
    /// entry costs a copy of the entry.
    pub(crate) const fn is_beyond_measure(&self) -> bool {
        self.size > self.most_decoded
    }

    /// How much of a block is decoded, in bytes as RFC 9113 §6.5.2 counts them.
    pub(crate) const fn most_decoded(&self) -> usize {
        self.most_decoded
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn held(&self) -> usize {
        let field = size_of::<FieldSpan>() + size_of::<FieldKind>();
        self.bytes.capacity() + self.spans.capacity() * field
    }

    /// Whether the list was larger than its limit; then the fields beyond it are missing.
    pub(crate) const fn is_too_large(&self) -> bool {
        self.too_large
    }

    pub(crate) fn kinds(&self) -> &[FieldKind] {
        &self.kinds
    }

    /// The value of the `index`-th field.
    pub(crate) fn value(&self, index: usize) -> &[u8] {
        let span = &self.spans[index];
        &self.bytes[span.value_start as usize..span.end as usize]
    }

    /// The fields from the `first`-th on.
    pub(crate) fn starting_at(&self, first: usize) -> Fields<'_> {
        Fields::new(&self.bytes, &self.spans[first..])
    }

    /// Where the next field's bytes go, name first; [`FieldList::commit`] makes a field of them.
    pub(crate) const fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// How many bytes the scratch holds.
    pub(crate) const fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes from `start` to `end`.
    pub(crate) fn slice(&self, start: usize, end: usize) -> &[u8] {
        &self.bytes[start..end]
    }

    /// Makes the bytes from `start` on a field whose value begins at `value_start`, or drops them if the list is full.
    pub(crate) fn commit(&mut self, start: usize, value_start: usize, kind: FieldKind) {
        let end = self.bytes.len();
        if self.admit(end - start) {
            self.spans.push(FieldSpan {
                start: start as u32,
                value_start: value_start as u32,
                end: end as u32,
            });
            self.kinds.push(kind);
        } else {
            self.bytes.truncate(start);
        }
    }

    /// Appends a known field. Checked before it is copied: a block of one-byte references to a large entry must not
    /// cost a copy each.
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8], kind: FieldKind) {
        if !self.admit(name.len() + value.len()) {
            return;
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.spans.push(FieldSpan {
            start,
            value_start: start + name.len() as u32,
            end: self.bytes.len() as u32,
        });
        self.kinds.push(kind);
    }

    const fn admit(&mut self, length: usize) -> bool {
        self.size += length + ENTRY_OVERHEAD;
        self.too_large |= self.size > self.limit;
        !self.too_large
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_tokens() {
        for good in ["x", "x-request-id", "sec-ch-ua", "a1!#$%&'*+.^_`|~"] {
            assert_eq!(FieldKind::of(good.as_bytes(), b"v"), FieldKind::Regular, "{good}");
        }
        for bad in ["", "X-Upper", "with space", "a:b", "a\u{7f}", "naïve", "a(b)", "a\"b", "a/b", "a,b"] {
            assert_eq!(FieldKind::of(bad.as_bytes(), b"v"), FieldKind::BadName, "{bad}");
        }
    }

    #[test]
    fn values_carry_no_control_character_and_no_surrounding_space() {
        for good in ["", "a b", "a\tb", "naïve", "\u{80}"] {
            assert_eq!(FieldKind::of(b"x", good.as_bytes()), FieldKind::Regular, "{good}");
        }
        for bad in [" a", "a ", "\ta", "a\r\nb", "a\0b", "a\nb", "\u{1b}[2J", "\u{7f}"] {
            assert_eq!(FieldKind::of(b"x", bad.as_bytes()), FieldKind::BadValue, "{bad:?}");
        }
    }

    #[test]
    fn connection_specific_fields_are_recognised_and_te_may_say_trailers() {
        assert_eq!(FieldKind::of(b"te", b"trailers"), FieldKind::Regular);
        assert_eq!(FieldKind::of(b"te", b"gzip"), FieldKind::ConnectionSpecific);
        assert_eq!(FieldKind::of(b"upgrade", b"h2c"), FieldKind::ConnectionSpecific);
        assert_eq!(FieldKind::of(b":protocol", b"websocket"), FieldKind::Protocol);
        assert_eq!(FieldKind::of(b":protocols", b"websocket"), FieldKind::UnknownPseudo);
    }

    #[test]
    fn a_list_holds_its_limit_and_not_a_byte_more() {
        let mut list = FieldList::new(2 * (32 + 3));
        list.push(b"a", b"12", FieldKind::Regular);
        list.push(b"b", b"34", FieldKind::Regular);
        assert!(!list.is_too_large());
        list.clear();
        list.push(b"a", b"12", FieldKind::Regular);
        list.push(b"b", b"345", FieldKind::Regular);
        assert!(list.is_too_large());
        assert_eq!(list.starting_at(0).len(), 1);
    }
}
