//! The static table (RFC 9204 Appendix A).

use crate::compression::FieldKind::{Authority, ContentLength, Method, Path, Regular, Scheme, Status};
use crate::compression::table::StaticTable;

/// Index 0 stands first.
pub(super) static TABLE: StaticTable<99> = StaticTable::new([
    (b":authority", b"", Authority),
    (b":path", b"/", Path),
    (b"age", b"0", Regular),
    (b"content-disposition", b"", Regular),
    (b"content-length", b"0", ContentLength),
    (b"cookie", b"", Regular),
    (b"date", b"", Regular),
    (b"etag", b"", Regular),
    (b"if-modified-since", b"", Regular),
    (b"if-none-match", b"", Regular),
    (b"last-modified", b"", Regular),
    (b"link", b"", Regular),
    (b"location", b"", Regular),
    (b"referer", b"", Regular),
    (b"set-cookie", b"", Regular),
    (b":method", b"CONNECT", Method),
    (b":method", b"DELETE", Method),
    (b":method", b"GET", Method),
    (b":method", b"HEAD", Method),
    (b":method", b"OPTIONS", Method),
    (b":method", b"POST", Method),
    (b":method", b"PUT", Method),
    (b":scheme", b"http", Scheme),
    (b":scheme", b"https", Scheme),
    (b":status", b"103", Status),
    (b":status", b"200", Status),
    (b":status", b"304", Status),
    (b":status", b"404", Status),
    (b":status", b"503", Status),
    (b"accept", b"*/*", Regular),
    (b"accept", b"application/dns-message", Regular),
    (b"accept-encoding", b"gzip, deflate, br", Regular),
    (b"accept-ranges", b"bytes", Regular),
    (b"access-control-allow-headers", b"cache-control", Regular),
    (b"access-control-allow-headers", b"content-type", Regular),
    (b"access-control-allow-origin", b"*", Regular),
    (b"cache-control", b"max-age=0", Regular),
    (b"cache-control", b"max-age=2592000", Regular),
    (b"cache-control", b"max-age=604800", Regular),
    (b"cache-control", b"no-cache", Regular),
    (b"cache-control", b"no-store", Regular),
    (b"cache-control", b"public, max-age=31536000", Regular),
    (b"content-encoding", b"br", Regular),
    (b"content-encoding", b"gzip", Regular),
    (b"content-type", b"application/dns-message", Regular),
    (b"content-type", b"application/javascript", Regular),
    (b"content-type", b"application/json", Regular),
    (b"content-type", b"application/x-www-form-urlencoded", Regular),
    (b"content-type", b"image/gif", Regular),
    (b"content-type", b"image/jpeg", Regular),
    (b"content-type", b"image/png", Regular),
    (b"content-type", b"text/css", Regular),
    (b"content-type", b"text/html; charset=utf-8", Regular),
    (b"content-type", b"text/plain", Regular),
    (b"content-type", b"text/plain;charset=utf-8", Regular),
    (b"range", b"bytes=0-", Regular),
    (b"strict-transport-security", b"max-age=31536000", Regular),
    (b"strict-transport-security", b"max-age=31536000; includesubdomains", Regular),
    (b"strict-transport-security", b"max-age=31536000; includesubdomains; preload", Regular),
    (b"vary", b"accept-encoding", Regular),
    (b"vary", b"origin", Regular),
    (b"x-content-type-options", b"nosniff", Regular),
    (b"x-xss-protection", b"1; mode=block", Regular),
    (b":status", b"100", Status),
    (b":status", b"204", Status),
    (b":status", b"206", Status),
    (b":status", b"302", Status),
    (b":status", b"400", Status),
    (b":status", b"403", Status),
    (b":status", b"421", Status),
    (b":status", b"425", Status),
    (b":status", b"500", Status),
    (b"accept-language", b"", Regular),
    (b"access-control-allow-credentials", b"FALSE", Regular),
    (b"access-control-allow-credentials", b"TRUE", Regular),
    (b"access-control-allow-headers", b"*", Regular),
    (b"access-control-allow-methods", b"get", Regular),
    (b"access-control-allow-methods", b"get, post, options", Regular),
    (b"access-control-allow-methods", b"options", Regular),
    (b"access-control-expose-headers", b"content-length", Regular),
    (b"access-control-request-headers", b"content-type", Regular),
    (b"access-control-request-method", b"get", Regular),
    (b"access-control-request-method", b"post", Regular),
    (b"alt-svc", b"clear", Regular),
    (b"authorization", b"", Regular),
    (b"content-security-policy", b"script-src 'none'; object-src 'none'; base-uri 'none'", Regular),
    (b"early-data", b"1", Regular),
    (b"expect-ct", b"", Regular),
    (b"forwarded", b"", Regular),
    (b"if-range", b"", Regular),
    (b"origin", b"", Regular),
    (b"purpose", b"prefetch", Regular),
    (b"server", b"", Regular),
    (b"timing-allow-origin", b"*", Regular),
    (b"upgrade-insecure-requests", b"1", Regular),
    (b"user-agent", b"", Regular),
    (b"x-forwarded-for", b"", Regular),
    (b"x-frame-options", b"deny", Regular),
    (b"x-frame-options", b"sameorigin", Regular),
]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::FieldKind;
    use crate::compression::table::Found;

    #[test]
    fn the_table_is_that_of_the_rfc() {
        assert!(TABLE.get(98).is_some() && TABLE.get(99).is_none());
        // FNV-1a over each name, NUL, its value and a line feed, computed elsewhere from the RFC's table.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for (name, value, _) in (0..99).filter_map(|place| TABLE.get(place)) {
            for byte in [name, &b"\0"[..], value, b"\n"].concat() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        assert_eq!(hash, 0xab61_362f_a119_c56f);
    }

    #[test]
    fn every_entry_is_found_by_name_and_by_value() {
        for place in 0..99 {
            let &(name, value, kind) = TABLE.get(place).unwrap();
            let expected = if value.is_empty() { Found::Name(place) } else { Found::Field(place) };
            assert_eq!(TABLE.find(name, value), Some(expected), "{place}");
            assert_eq!(FieldKind::of(name, value), kind, "{place}");
        }
    }

    #[test]
    fn entries_of_one_name_need_not_be_neighbours() {
        let found = |name: &str, value: &str| TABLE.find(name.as_bytes(), value.as_bytes());
        assert_eq!(found(":status", "103"), Some(Found::Field(24)));
        assert_eq!(found(":status", "500"), Some(Found::Field(71)));
        assert_eq!(found(":status", "418"), Some(Found::Name(24)));
        assert_eq!(found("access-control-allow-headers", "*"), Some(Found::Field(75)));
        assert_eq!(found("x-request-id", "1"), None);
    }
}
