//! `Content-Range` (RFC 9110 §14.4) of an answer, or of a partial PUT (§14.5).

use std::ops::Range;

/// `bytes A-B/TOTAL` or `bytes A-B/*`: the range, and the total. `None` if it is malformed, or no range of bytes.
pub fn parse(text: &str) -> Option<(Range<u64>, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let range = inclusive(range)?;
    let total = if total == "*" { None } else { Some(number(total)?) };
    total.is_none_or(|total| range.end <= total).then_some((range, total))
}

/// `bytes */TOTAL`: no range, and the total. `None` if it is anything else.
pub fn parse_empty(text: &str) -> Option<u64> {
    number(text.strip_prefix("bytes */")?)
}

/// The value for this range of `total` bytes: `bytes */TOTAL` if `range` is empty.
pub fn to_field(range: &Range<u64>, total: u64) -> String {
    if range.is_empty() {
        return format!("bytes */{total}");
    }
    format!("bytes {}-{}/{total}", range.start, range.end - 1)
}

/// `A-B`, both inclusive; never empty.
pub(super) fn inclusive(text: &str) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    let range = number(first)?..number(last)?.checked_add(1)?;
    (!range.is_empty()).then_some(range)
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_nonsense_is_not() {
        assert_eq!(parse("bytes 0-9/10"), Some((0..10, Some(10))));
        assert_eq!(parse("bytes 5-5/*"), Some((5..6, None)));
        for bad in [
            "bytes 0-10/10",
            "bytes 5-4/10",
            "bytes */10",
            "bytes 0-18446744073709551615/*",
            "bytes -1/10",
            "items 0-9/10",
            "",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        assert_eq!(parse(&to_field(&(3..9), 20)), Some((3..9, Some(20))));
        assert_eq!(parse_empty(&to_field(&(3..3), 20)), Some(20));
        assert_eq!((parse_empty("bytes 0-1/20"), parse_empty("bytes */*")), (None, None));
    }
}
