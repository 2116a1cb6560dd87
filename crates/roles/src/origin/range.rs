//! Which bytes of a representation a request asks for (RFC 9110 §14), and the dates and tags by which it names the
//! representation.

use std::ops::Range;

use h2lab_wire::Fields;

/// What is sent of a representation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeSelection {
    /// All of it: nothing else was asked for, or it has changed since the client had a part of it.
    Whole,
    /// These bytes, which are not all.
    Part(Range<u64>),
    /// The request wants bytes beyond the end.
    Unsatisfiable,
}

/// What distinguishes one state of a representation from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validators {
    /// A strong entity tag, with its quotes.
    pub etag: String,
    /// `Last-Modified`, if there is one.
    pub modified: Option<String>,
}

impl Validators {
    /// Whether `If-Range` names the present state. Only a strong tag does (RFC 9110 §13.1.5), or exactly the date.
    fn are_named_by(&self, if_range: &[u8]) -> bool {
        if_range == self.etag.as_bytes()
            || self.modified.as_ref().is_some_and(|date| date.as_bytes() == if_range)
    }
}

/// What a GET with these fields asks for of `length` bytes. Several ranges at once, other units and invalid ranges are
/// answered with everything, as RFC 9110 §14.2 allows.
pub fn select(fields: Fields<'_>, length: u64, validators: &Validators) -> RangeSelection {
    let Some(range) = fields.get("range").and_then(|value| std::str::from_utf8(value).ok()) else {
        return RangeSelection::Whole;
    };
    if fields.get("if-range").is_some_and(|value| !validators.are_named_by(value)) {
        return RangeSelection::Whole;
    }
    match parse(range, length) {
        Some(range) if range.is_empty() => RangeSelection::Unsatisfiable,
        Some(range) => RangeSelection::Part(range),
        None => RangeSelection::Whole,
    }
}

/// `bytes=A-B`, `bytes=A-`, `bytes=-N` of `length` bytes; empty if it is unsatisfiable, `None` if it is not a single range.
fn parse(text: &str, length: u64) -> Option<Range<u64>> {
    let (unit, spec) = text.split_once('=')?;
    let (first, last) = spec.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    match (first, last) {
        ("", last) => {
            let suffix = number(last)?;
            Some(length.saturating_sub(suffix)..length)
        }
        (first, "") => {
            let first = number(first)?;
            Some(first.min(length)..length)
        }
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| first.min(length)..last.saturating_add(1).min(length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_base::calendar::http_date;

    #[test]
    fn ranges_are_cut_to_what_there_is() {
        for (text, range) in [
            ("bytes=0-0", Some(0..1)),
            ("bytes=0-99", Some(0..100)),
            ("bytes=0-100", Some(0..100)),
            ("bytes=99-", Some(99..100)),
            ("Bytes=10-19", Some(10..20)),
            ("bytes=-1", Some(99..100)),
            ("bytes=-100", Some(0..100)),
            ("bytes=-101", Some(0..100)),
            ("bytes=0-18446744073709551615", Some(0..100)),
            ("bytes=100-", Some(100..100)),
            ("bytes=100-200", Some(100..100)),
            ("bytes=-0", Some(100..100)),
            ("bytes=9-8", None),
            ("bytes=0-1,5-6", None),
            ("bytes=a-b", None),
            ("bytes=+1-2", None),
            ("bytes=-", None),
            ("lines=0-1", None),
            ("bytes", None),
            ("bytes=18446744073709551616-", None),
        ] {
            assert_eq!(parse(text, 100), range, "{text}");
        }
    }

    #[test]
    fn a_part_of_what_has_changed_is_not_sent() {
        let date = http_date(784_111_777);
        let validators = Validators { etag: "\"a\"".to_owned(), modified: Some(date.clone()) };
        for (if_range, is_part) in
            [("\"a\"", true), ("\"b\"", false), ("W/\"a\"", false), (date.as_str(), true)]
        {
            assert_eq!(validators.are_named_by(if_range.as_bytes()), is_part, "{if_range}");
        }
    }
}
