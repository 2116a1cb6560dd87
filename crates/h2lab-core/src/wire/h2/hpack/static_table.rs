//! The static table (RFC 7541 Appendix A).

use super::FieldKind::{
    self, Authority, ConnectionSpecific, ContentLength, Host, Method, Path, Regular, Scheme, Status,
};

/// How many entries there are; the dynamic table's indices begin after them.
pub(super) const LENGTH: u32 = ENTRIES.len() as u32;

/// Name, value and kind; index 1 stands first. Entries of one name are neighbours.
pub(super) static ENTRIES: [(&[u8], &[u8], FieldKind); 61] = [
    (b":authority", b"", Authority),
    (b":method", b"GET", Method),
    (b":method", b"POST", Method),
    (b":path", b"/", Path),
    (b":path", b"/index.html", Path),
    (b":scheme", b"http", Scheme),
    (b":scheme", b"https", Scheme),
    (b":status", b"200", Status),
    (b":status", b"204", Status),
    (b":status", b"206", Status),
    (b":status", b"304", Status),
    (b":status", b"400", Status),
    (b":status", b"404", Status),
    (b":status", b"500", Status),
    (b"accept-charset", b"", Regular),
    (b"accept-encoding", b"gzip, deflate", Regular),
    (b"accept-language", b"", Regular),
    (b"accept-ranges", b"", Regular),
    (b"accept", b"", Regular),
    (b"access-control-allow-origin", b"", Regular),
    (b"age", b"", Regular),
    (b"allow", b"", Regular),
    (b"authorization", b"", Regular),
    (b"cache-control", b"", Regular),
    (b"content-disposition", b"", Regular),
    (b"content-encoding", b"", Regular),
    (b"content-language", b"", Regular),
    (b"content-length", b"", ContentLength),
    (b"content-location", b"", Regular),
    (b"content-range", b"", Regular),
    (b"content-type", b"", Regular),
    (b"cookie", b"", Regular),
    (b"date", b"", Regular),
    (b"etag", b"", Regular),
    (b"expect", b"", Regular),
    (b"expires", b"", Regular),
    (b"from", b"", Regular),
    (b"host", b"", Host),
    (b"if-match", b"", Regular),
    (b"if-modified-since", b"", Regular),
    (b"if-none-match", b"", Regular),
    (b"if-range", b"", Regular),
    (b"if-unmodified-since", b"", Regular),
    (b"last-modified", b"", Regular),
    (b"link", b"", Regular),
    (b"location", b"", Regular),
    (b"max-forwards", b"", Regular),
    (b"proxy-authenticate", b"", Regular),
    (b"proxy-authorization", b"", Regular),
    (b"range", b"", Regular),
    (b"referer", b"", Regular),
    (b"refresh", b"", Regular),
    (b"retry-after", b"", Regular),
    (b"server", b"", Regular),
    (b"set-cookie", b"", Regular),
    (b"strict-transport-security", b"", Regular),
    (b"transfer-encoding", b"", ConnectionSpecific),
    (b"user-agent", b"", Regular),
    (b"vary", b"", Regular),
    (b"via", b"", Regular),
    (b"www-authenticate", b"", Regular),
];

/// The entry with this index, counted from 1.
pub(super) fn get(index: u32) -> Option<&'static (&'static [u8], &'static [u8], FieldKind)> {
    ENTRIES.get((index as usize).checked_sub(1)?)
}

/// What the static table knows of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Name and value, by index.
    Field(u32),
    /// The name alone, by its first index.
    Name(u32),
}

/// Looks up `name` whose [`name_hash`] is `hash`, and `value`.
pub(super) fn find(hash: u32, name: &[u8], value: &[u8]) -> Option<Found> {
    let mut slot = hash as usize % SLOTS;
    loop {
        let first = usize::from(FIRST_BY_NAME[slot]).checked_sub(1)?;
        if ENTRIES[first].0 == name {
            let same_name = ENTRIES[first..].iter().take_while(|entry| entry.0 == name);
            let exact = same_name.zip(first + 1..).find(|(entry, _)| entry.1 == value && !value.is_empty());
            return Some(
                exact.map_or(Found::Name(first as u32 + 1), |(_, index)| Found::Field(index as u32)),
            );
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// Slots of the name index: a power of two, more than twice the 52 names.
const SLOTS: usize = 128;

/// Open addressing over the names: the index of the first entry of a name, 0 for an empty slot.
static FIRST_BY_NAME: [u8; SLOTS] = index_names();

const fn index_names() -> [u8; SLOTS] {
    let mut slots = [0; SLOTS];
    let mut entry = 0;
    while entry < ENTRIES.len() {
        if entry == 0 || !same(ENTRIES[entry].0, ENTRIES[entry - 1].0) {
            let mut slot = name_hash(ENTRIES[entry].0) as usize % SLOTS;
            while slots[slot] != 0 {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = entry as u8 + 1;
        }
        entry += 1;
    }
    slots
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// A hash that tells names apart: length, first, middle and last bytes. Names are short and known; hashing all their
/// bytes would cost more than the rare comparison that it saves.
pub(super) const fn name_hash(name: &[u8]) -> u32 {
    if name.is_empty() {
        return 0;
    }
    let (first, middle, last) = (name[0], name[name.len() / 2], name[name.len() - 1]);
    let key = name.len() as u32 | (first as u32) << 8 | (middle as u32) << 16 | (last as u32) << 24;
    let mixed = key.wrapping_mul(0x9e37_79b1);
    mixed ^ mixed >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_up(name: &str, value: &str) -> Option<Found> {
        find(name_hash(name.as_bytes()), name.as_bytes(), value.as_bytes())
    }

    #[test]
    fn every_entry_is_found_by_name_and_by_value() {
        for (index, (name, value, kind)) in (1..).zip(ENTRIES) {
            assert_eq!(get(index), Some(&(name, value, kind)));
            let found = find(name_hash(name), name, value).unwrap();
            if value.is_empty() {
                assert_eq!(found, Found::Name(index));
            } else {
                assert_eq!(found, Found::Field(index));
            }
            assert_eq!(FieldKind::of(name, value), kind);
        }
    }

    #[test]
    fn unknown_values_give_the_first_index_of_the_name_and_unknown_names_nothing() {
        assert_eq!(look_up(":status", "201"), Some(Found::Name(8)));
        assert_eq!(look_up(":path", "/x"), Some(Found::Name(4)));
        assert_eq!(look_up("x-request-id", "1"), None);
        assert_eq!(look_up("", ""), None);
    }

    #[test]
    fn the_table_ends_at_61() {
        assert_eq!(LENGTH, 61);
        assert!(get(0).is_none() && get(62).is_none());
        assert_eq!(get(61).unwrap().0, b"www-authenticate");
    }
}
