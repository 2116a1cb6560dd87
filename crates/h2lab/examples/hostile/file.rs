//! A server of one file, correct or with quirks.
//!
//! A file is words of eight bytes: its version in the upper half, the word's index in the lower one. So what arrived shows by
//! itself whether it is one version, whole and in order.

use anyhow::{Context, Result, bail};
use h2lab_transfer::{Algorithm, Digest};

use super::conversation::Request;

/// One way in which the server is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quirk {
    /// The whole file, whatever range is asked for.
    NoRanges,
    /// Neither `ETag` nor `Last-Modified`.
    NoValidator,
    /// Another version with each response.
    Changes,
    /// The `ETag` is that of the first version.
    KeepsTag,
    /// The checksum is that of another file.
    WrongDigest,
    /// A range begins elsewhere than was asked, and says so.
    WrongPlace,
    /// 206 for a range that is one byte shorter than was asked, and says so.
    ShortRange,
}

const WORDS: [(&str, Quirk); 7] = [
    ("no-ranges", Quirk::NoRanges),
    ("no-validator", Quirk::NoValidator),
    ("changes", Quirk::Changes),
    ("keeps-tag", Quirk::KeepsTag),
    ("wrong-digest", Quirk::WrongDigest),
    ("wrong-place", Quirk::WrongPlace),
    ("short-range", Quirk::ShortRange),
];

/// How the file is served.
#[derive(Debug, Clone)]
pub struct FileManner {
    /// In bytes, a multiple of eight.
    size: u64,
    quirks: Vec<Quirk>,
}

impl FileManner {
    /// `SIZE WORD…`.
    pub fn parse(text: &str) -> Result<Self> {
        let mut words = text.split(' ');
        let size = words.next().unwrap_or_default().parse::<u64>()?.next_multiple_of(8);
        let quirk = |word| match WORDS.iter().find(|(name, _)| *name == word) {
            Some((_, quirk)) => Ok(*quirk),
            None => bail!("no quirk is called {word}"),
        };
        Ok(Self { size, quirks: words.map(quirk).collect::<Result<_>>()? })
    }

    fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    /// The response to `request`, the `nth` of all.
    pub fn answer(&self, request: &Request, nth: u32) -> Answer {
        if request.is("PUT") {
            return Answer { status: "201", fields: vec![field("content-length", "0")], body: Vec::new() };
        }
        let version = if self.has(Quirk::Changes) { nth } else { 0 };
        let whole = content(self.size, version);
        let mut fields = vec![field("repr-digest", &self.digest(&whole))];
        if !self.has(Quirk::NoValidator) {
            let tag = if self.has(Quirk::KeepsTag) { 0 } else { version };
            fields.push(field("etag", &format!("\"{tag}\"")));
        }
        let range = request.field("range").filter(|_| !self.has(Quirk::NoRanges) && request.is("GET"));
        let (status, body) = match range.and_then(|text| self.range(text).ok()) {
            None => ("200", whole),
            Some((from, to)) => {
                fields.push(field("content-range", &format!("bytes {from}-{to}/{}", self.size)));
                ("206", whole[from as usize..=to as usize].to_vec())
            }
        };
        fields.push(field("content-length", &body.len().to_string()));
        Answer { status, fields, body }
    }

    fn digest(&self, whole: &[u8]) -> String {
        let mut digest = Digest::new(Algorithm::Crc32c);
        digest.update(whole);
        if self.has(Quirk::WrongDigest) {
            digest.update(b"and more");
        }
        digest.checksum().map_or_else(String::new, |checksum| checksum.to_field())
    }

    /// First and last byte of `bytes=A-B`.
    fn range(&self, text: &str) -> Result<(u64, u64)> {
        let (from, to) =
            text.strip_prefix("bytes=").and_then(|text| text.split_once('-')).context("a range")?;
        let last = self.size - 1;
        let (from, to) = (from.parse::<u64>()?.min(last), to.parse::<u64>().unwrap_or(last).min(last));
        Ok(match () {
            () if self.has(Quirk::WrongPlace) && from >= 8 => (from - 8, to - 8),
            () if self.has(Quirk::ShortRange) && to > from => (from, to - 1),
            () => (from, to),
        })
    }
}

/// A whole response.
#[derive(Debug)]
pub struct Answer {
    pub status: &'static str,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

fn field(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn content(size: u64, version: u32) -> Vec<u8> {
    (0..size / 8).flat_map(|index| (u64::from(version) << 32 | index).to_be_bytes()).collect()
}
