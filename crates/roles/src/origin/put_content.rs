//! What a PUT says about its content.

use std::ops::Range;

use h2lab_transfer::upload::{COMPLETE_FIELD, LENGTH_FIELD, flag, number, tag};
use h2lab_transfer::{Algorithm, Checksum, content_range};
use h2lab_wire::Fields;

use super::preconditions::Preconditions;
use super::refusal::Refusal;

/// The content of a PUT, and the upload that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutContent {
    /// The client's tag of the upload; without one it cannot be resumed, unless it comes in parts.
    pub tag: Option<String>,
    /// Its first byte, counted in the whole.
    pub from: u64,
    /// One past its last byte, if it is known: not for a body without a length.
    pub until: Option<u64>,
    /// The length of the whole, if it is known.
    pub total: Option<u64>,
    /// Whether the file is complete when all of it is here; else another request declares it.
    pub completes: bool,
    /// The algorithm with which the client wants the sum of the whole.
    pub wanted: Algorithm,
    /// The sums that the client declares.
    pub declared: DeclaredSums,
    /// What must hold of a file of this name.
    pub preconditions: Preconditions,
}

/// The sums that a client declares, in a head or in trailers (RFC 9530).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeclaredSums {
    /// Of the whole.
    pub whole: Option<Checksum>,
    /// Of what this request carries.
    pub content: Option<Checksum>,
}

/// If a field names several checksums, the strongest of ours counts.
const BY_STRENGTH: [Algorithm; 3] = [Algorithm::Sha512, Algorithm::Sha256, Algorithm::Crc32c];

impl DeclaredSums {
    /// What `fields` declare. A field that cannot be parsed is refused: a wrong checksum must not pass for a missing
    /// one.
    pub fn of(fields: Fields<'_>) -> Result<Self, Refusal> {
        let sum = |name: &str| -> Result<Option<Checksum>, Refusal> {
            let Some(field) = fields.get(name) else { return Ok(None) };
            let malformed = |why: &str| Refusal::new(400, format!("{name}: {why}"));
            let field = std::str::from_utf8(field).map_err(|_| malformed("it is not text"))?;
            for algorithm in BY_STRENGTH {
                match Checksum::from_field(field, algorithm) {
                    Ok(None) => {}
                    Ok(sum) => return Ok(sum),
                    Err(error) => return Err(malformed(&error.to_string())),
                }
            }
            Ok(None)
        };
        Ok(Self { whole: sum("repr-digest")?, content: sum("content-digest")? })
    }

    /// The same; where it declares nothing, what was declared before.
    pub fn or(self, before: Self) -> Self {
        Self { whole: self.whole.or(before.whole), content: self.content.or(before.content) }
    }
}

impl PutContent {
    /// What the head of a PUT offers.
    pub fn of(fields: Fields<'_>) -> Result<Self, Refusal> {
        let length = number(fields, "content-length");
        let (range, of) = range(fields)?;
        let total = of.or(number(fields, LENGTH_FIELD)).or(length.filter(|_| range.is_none()));
        let declared = DeclaredSums::of(fields)?;
        let wanted = fields.get("want-repr-digest").and_then(|field| std::str::from_utf8(field).ok());
        let offer = Self {
            tag: tag(fields).map(str::to_owned),
            from: range.as_ref().map_or(0, |range| range.start),
            until: range.as_ref().map(|range| range.end).or(length).or(total),
            total,
            completes: flag(fields, COMPLETE_FIELD).unwrap_or(true),
            wanted: wanted.map_or(Algorithm::None, Algorithm::wanted),
            declared,
            preconditions: Preconditions::of(fields),
        };
        let contradicts = |length: u64| offer.until.is_some_and(|until| until - offer.from != length);
        if length.is_some_and(contradicts) {
            return Err(Refusal::new(400, "Content-Range and Content-Length contradict each other"));
        }
        if offer.until > offer.total.or(offer.until) {
            return Err(Refusal::new(400, "it is longer than Upload-Length"));
        }
        Ok(offer)
    }

    /// Whether it brings all of a file.
    pub fn is_whole(&self) -> bool {
        self.from == 0 && self.completes && self.until == self.total
    }

    /// Whether it carries no bytes and says that everything is here.
    pub fn is_last_word(&self) -> bool {
        self.completes && self.until == Some(self.from) && self.total == Some(self.from)
    }

    /// The algorithm with which the content is summed as it arrives; `None` if no sum was requested.
    pub fn algorithm(&self) -> Algorithm {
        let declared =
            self.declared.content.as_ref().or(self.declared.whole.as_ref()).map(Checksum::algorithm);
        declared.unwrap_or(self.wanted)
    }
}

/// The bytes that `Content-Range` names, and the complete length. An empty range says that the request carries no
/// bytes, and that everything else is here.
fn range(fields: Fields<'_>) -> Result<(Option<Range<u64>>, Option<u64>), Refusal> {
    let Some(field) = fields.get("content-range") else { return Ok((None, None)) };
    let text = std::str::from_utf8(field).unwrap_or_default();
    if let Some(total) = content_range::parse_empty(text) {
        return Ok((Some(total..total), Some(total)));
    }
    match content_range::parse(text) {
        Some((range, Some(total))) => Ok((Some(range), Some(total))),
        Some((_, None)) => Err(Refusal::new(400, "Content-Range must say how many bytes the whole has")),
        None => Err(Refusal::new(400, "Content-Range is malformed")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What a PUT with these fields offers.
    pub fn offer(fields: &[(&str, &str)]) -> Result<PutContent, Refusal> {
        Fields::of(fields, PutContent::of)
    }

    #[test]
    fn a_put_is_whole_a_part_or_a_last_word() {
        let whole = offer(&[("content-length", "100")]).unwrap();
        assert_eq!((whole.from, whole.until, whole.total, whole.is_whole()), (0, Some(100), Some(100), true));
        let chunked = offer(&[]).unwrap();
        assert_eq!((chunked.until, chunked.total, chunked.is_whole()), (None, None, true));
        let sized = offer(&[("upload-length", "100")]).unwrap();
        assert_eq!((sized.until, sized.total), (Some(100), Some(100)));
        let part = offer(&[
            ("content-range", "bytes 10-19/100"),
            ("content-length", "10"),
            ("upload-complete", "?0"),
        ])
        .unwrap();
        assert_eq!((part.from, part.until, part.total), (10, Some(20), Some(100)));
        assert!(!part.completes && !part.is_whole());
        let last = offer(&[("content-range", "bytes */100"), ("content-length", "0")]).unwrap();
        assert_eq!((last.from, last.until, last.completes, last.is_whole()), (100, Some(100), true, false));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for fields in [
            &[("content-range", "bytes 10-19/100"), ("content-length", "11")][..],
            &[("content-range", "bytes 10-19/*")],
            &[("content-range", "bytes 10-19/19")],
            &[("content-range", "lines 1-2/3")],
            &[("content-length", "11"), ("upload-length", "10")],
            &[("repr-digest", "sha-256=:AAAA:")],
            &[("content-digest", "crc32c=nothing")],
        ] {
            assert_eq!(offer(fields).unwrap_err().status, 400, "{fields:?}");
        }
    }

    #[test]
    fn of_several_sums_the_strongest_counts_and_unknown_ones_are_passed_over() {
        let declared = |field: &str| Fields::of(&[("repr-digest", field)], DeclaredSums::of).unwrap().whole;
        let sha = "sha-256=:RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=:";
        assert_eq!(declared(&format!("crc32c=:AAAAAA==:, {sha}")).unwrap().algorithm(), Algorithm::Sha256);
        assert_eq!(declared("md5=:1B2M2Y8AsgTpgAmY7PhCfg==:"), None);
    }
}
