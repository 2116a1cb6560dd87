//! `Content-Range` of an answer (RFC 9110 §14.4).

use std::ops::Range;

/// `bytes A-B/TOTAL` or `bytes A-B/*`: which bytes, and of how many. `None` if it is malformed, or no range of bytes.
pub fn parse(text: &str) -> Option<(Range<u64>, Option<u64>)> {
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let range = number(first)?..number(last)?.checked_add(1)?;
    let total = if total == "*" { None } else { Some(number(total)?) };
    (!range.is_empty() && total.is_none_or(|total| range.end <= total)).then_some((range, total))
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
}
