//! The static table (RFC 7541 Appendix A).

use crate::compression::FieldKind::{
    Authority, ConnectionSpecific, ContentLength, Host, Method, Path, Regular, Scheme, Status,
};
use crate::compression::table::{Entry, Found, StaticTable};

/// How many entries there are; the dynamic table's indices begin after them.
pub(super) const LENGTH: u32 = StaticTable::<61>::LENGTH;

/// Index 1 stands first.
static TABLE: StaticTable<61> = StaticTable::new([
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
]);

/// The entry with this index, counted from 1.
pub(super) fn get(index: u32) -> Option<&'static Entry> {
    TABLE.get(index.checked_sub(1)?)
}

/// Looks up a field; the result holds its index, counted from 1.
pub(super) fn find(name: &[u8], value: &[u8]) -> Option<Found> {
    Some(match TABLE.find(name, value)? {
        Found::Field(place) => Found::Field(place + 1),
        Found::Name(place) => Found::Name(place + 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::FieldKind;

    #[test]
    fn every_entry_is_found_by_name_and_by_value() {
        for index in 1..=LENGTH {
            let &(name, value, kind) = get(index).unwrap();
            let expected = if value.is_empty() { Found::Name(index) } else { Found::Field(index) };
            assert_eq!(find(name, value), Some(expected));
            assert_eq!(FieldKind::of(name, value), kind);
        }
    }

    #[test]
    fn unknown_values_give_the_first_index_of_the_name_and_unknown_names_nothing() {
        assert_eq!(find(b":status", b"201"), Some(Found::Name(8)));
        assert_eq!(find(b":path", b"/x"), Some(Found::Name(4)));
        assert_eq!(find(b"x-request-id", b"1"), None);
        assert_eq!(find(b"", b""), None);
    }

    #[test]
    fn the_table_ends_at_61() {
        assert_eq!(LENGTH, 61);
        assert!(get(0).is_none() && get(62).is_none());
        assert_eq!(get(61).unwrap().0, b"www-authenticate");
    }
}
