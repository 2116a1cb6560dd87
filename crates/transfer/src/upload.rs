//! The fields of a resumable upload, and their meaning.
//!
//! `Upload-Offset`, `Upload-Length` and `Upload-Complete` are those of draft-ietf-httpbis-resumable-upload, which has
//! one appending request at a time. Parts over several streams leave gaps, which the draft cannot express:
//! [`HELD_FIELD`] is ours, and so is [`TAG_FIELD`], since a server must know that parts are of one file before it joins
//! them. See `docs/bulk.md`.

use super::{Extents, content_range};
use h2lab_wire::Fields;

/// Identifies an upload: a string that the client chooses and that changes when its file changes, in quotes like an
/// entity tag.
pub const TAG_FIELD: &str = "h2lab-upload";
/// The ranges that a server has of an upload, as `0-99, 200-299`; the first [`MOST_RANGES`].
pub const HELD_FIELD: &str = "h2lab-upload-held";
/// How many bytes from the first on the server has without a gap.
pub const OFFSET_FIELD: &str = "upload-offset";
/// The length of the whole, in bytes.
pub const LENGTH_FIELD: &str = "upload-length";
/// `?1`: the whole is complete with this request, or on this server. `?0`: it is not.
pub const COMPLETE_FIELD: &str = "upload-complete";

/// The most ranges declared, so that they fit into a head. Undeclared ranges are sent again.
pub const MOST_RANGES: usize = 1_000;

/// The longest tag, in bytes.
const LONGEST_TAG: usize = 256;

/// The tag in `fields`, verbatim: printable ASCII in quotes, without an escape. `None` if there is none, or it is no
/// tag.
pub fn tag(fields: Fields<'_>) -> Option<&str> {
    let text = std::str::from_utf8(fields.get(TAG_FIELD)?).ok()?;
    let inner = text.strip_prefix('"')?.strip_suffix('"').filter(|_| text.len() <= LONGEST_TAG)?;
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    inner.bytes().all(is_plain).then_some(text)
}

/// The value of a boolean field (RFC 9651 §3.3.6); `None` if it is not there, or no boolean.
pub fn flag(fields: Fields<'_>, name: &str) -> Option<bool> {
    match fields.get(name)? {
        b"?1" => Some(true),
        b"?0" => Some(false),
        _ => None,
    }
}

/// The value of a number field; `None` if it is not there, or no number.
pub fn number(fields: Fields<'_>, name: &str) -> Option<u64> {
    let text = std::str::from_utf8(fields.get(name)?).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The fields by which a server declares the ranges `held` of an upload, with lower-case names.
pub fn to_fields(held: &Extents) -> Vec<(&'static str, String)> {
    let mut fields = vec![(COMPLETE_FIELD, "?0".to_owned()), (OFFSET_FIELD, held.contiguous().to_string())];
    let ranges: Vec<String> =
        (held.iter().take(MOST_RANGES)).map(|range| format!("{}-{}", range.start, range.end - 1)).collect();
    if held.held() > held.contiguous() {
        fields.push((HELD_FIELD, ranges.join(", ")));
    }
    fields
}

/// The ranges that a server declares to hold of an upload of `total` bytes; `None` if it cannot resume uploads. Ranges
/// past the end count as nothing: those bytes are not ours.
pub fn from_fields(fields: Fields<'_>, total: u64) -> Option<Extents> {
    let offset = number(fields, OFFSET_FIELD)?.min(total);
    let mut held: Extents = std::iter::once(0..offset).collect();
    let text = fields.get(HELD_FIELD).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    for range in text.split(',').filter_map(|range| content_range::inclusive(range.trim_matches(' '))) {
        held.insert(range.start..range.end.min(total));
    }
    Some(held)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tag_is_printable_text_in_quotes() {
        let read = |text: &str| Fields::of(&[(TAG_FIELD, text)], |fields| tag(fields).map(str::to_owned));
        assert_eq!(read("\"a-1\""), Some("\"a-1\"".to_owned()));
        let long = format!("\"{}\"", "x".repeat(LONGEST_TAG - 1));
        for bad in ["", "a", "\"", "\"a", "\"a\"b\"", "\"a\\\"", "\"a\tb\"", "\"ä\"", &long] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_server_that_sends_no_offset_cannot_be_resumed() {
        let read = |fields: &[(&str, &str)]| Fields::of(fields, |fields| from_fields(fields, 100));
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[(OFFSET_FIELD, "-1")]), None);
        assert_eq!(read(&[(OFFSET_FIELD, "0")]), Some(Extents::new()));
        // Its claims are clamped to the total, and nonsense is ignored.
        let declared = [(OFFSET_FIELD, "10"), (HELD_FIELD, "20-29, x, 9-5, 90-200")];
        assert_eq!(read(&declared), Some([0..10, 20..30, 90..100].into_iter().collect()));
        assert_eq!(read(&[(OFFSET_FIELD, "1000")]), Some(Extents::all(100)));
    }

    #[test]
    fn flags_are_those_of_structured_fields() {
        let read = |text: &str| Fields::of(&[(COMPLETE_FIELD, text)], |fields| flag(fields, COMPLETE_FIELD));
        assert_eq!((read("?1"), read("?0"), read("1")), (Some(true), Some(false), None));
    }

    proptest! {
        #[test]
        fn what_is_held_reads_back(ranges in prop::collection::vec((0_u64..900, 1_u64..100), 0..20)) {
            let held: Extents = ranges.into_iter().map(|(from, length)| from..from + length).collect();
            let fields = to_fields(&held);
            let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            prop_assert_eq!(Fields::of(&fields, |fields| from_fields(fields, 1_000)), Some(held));
        }
    }

    #[test]
    fn of_many_ranges_the_first_are_reported() {
        let held: Extents = (0..2_000).map(|n| n * 10 + 1..n * 10 + 5).collect();
        let fields = to_fields(&held);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let declared = Fields::of(&fields, |fields| from_fields(fields, u64::MAX)).unwrap();
        assert_eq!((declared.iter().count(), declared.end()), (MOST_RANGES, 9_995));
    }
}
