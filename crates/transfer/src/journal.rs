//! The journal beside an unfinished download, from which it is resumed.

use serde::{Deserialize, Serialize};

use super::{Checksum, Extents};

/// The journal format that this version writes; a newer one is refused.
const FORMAT: u32 = 1;

/// The state of a resumable download: which bytes of which representation are stored.
///
/// Only bytes that would survive a power cut belong in `extents`: storage writes them, syncs the file, and then writes
/// the journal. So if a journal lags behind, some bytes are fetched again; it never claims a missing byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// [`FORMAT`].
    format: u32,
    /// Where it comes from, without the query, which may be a secret (a signature), and changes from one
    /// request to the next.
    pub url: String,
    /// The length of the whole, in bytes.
    pub total: u64,
    /// What identifies this version of the file.
    pub validator: Validator,
    /// The checksum of the whole, if the server declared it before the end.
    pub checksum: Option<Checksum>,
    /// The bytes that are stored safely.
    pub extents: Extents,
}

/// What identifies a version of a file, byte by byte: a strong validator (RFC 9110 §8.8.1). Ranges of different
/// versions must never be joined, so without one a download starts over.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Validator {
    /// A strong `ETag`, with its quotes.
    Etag(String),
    /// `Last-Modified`, as the server wrote it.
    LastModified(String),
}

impl Validator {
    /// The validator of a response, from its `ETag`, `Last-Modified` and `Date` fields.
    ///
    /// A weak tag (`W/"…"`) means that versions are equivalent, not identical. A date is strong only if the response
    /// was made in a later second (RFC 9110 §8.8.2.2): within the same second the file may have changed again. Both
    /// have a resolution of a second and one spelling, so that dates that differ are at least a second apart; their
    /// order need not be checked, since no server may send a `Last-Modified` after its `Date` (§8.8.2.1).
    pub fn of(etag: Option<&str>, last_modified: Option<&str>, date: Option<&str>) -> Option<Self> {
        if let Some(tag) = etag {
            let is_strong = tag.len() >= 2 && tag.starts_with('"') && tag.ends_with('"');
            return is_strong.then(|| Self::Etag(tag.to_owned()));
        }
        let modified = last_modified.filter(|modified| date.is_some_and(|date| date != *modified))?;
        Some(Self::LastModified(modified.to_owned()))
    }

    /// The value of `If-Range` (RFC 9110 §13.1.5): a server that has another version now sends all of it.
    pub fn if_range(&self) -> &str {
        match self {
            Self::Etag(text) | Self::LastModified(text) => text,
        }
    }
}

/// The file on the server is not the one that we have a part of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Changed {
    /// Another length.
    #[error("the file had {was} bytes and has {is} now: it was changed on the server")]
    Size {
        /// The value in the journal.
        was: u64,
        /// The value from the server.
        is: u64,
    },
    /// Another validator.
    #[error("the file was {was} and is {is} now: it was changed on the server")]
    Validator {
        /// The value in the journal.
        was: String,
        /// The value from the server.
        is: String,
    },
    /// The server sends no validator to compare.
    #[error(
        "the server no longer declares which version it sends (it was {was}), so that parts could be of different ones"
    )]
    Undeclared {
        /// The value in the journal.
        was: String,
    },
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Not valid JSON of a journal.
    #[error("it is not a journal of h2lab: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A later version of h2lab wrote it.
    #[error("it has the form {found}, and this version of h2lab knows forms up to {FORMAT}")]
    Newer {
        /// Its format.
        found: u32,
    },
    /// It claims bytes past the end of the file.
    #[error("it claims bytes up to {end} of a file of {total} bytes")]
    BehindTheEnd {
        /// One past the last byte that it claims.
        end: u64,
        /// The file's length.
        total: u64,
    },
    /// It is for an empty file, which has no parts.
    #[error("it is of a file without a byte")]
    NoBytes,
}

impl Journal {
    /// The journal of a download without bytes yet; the query of `url` is left out.
    pub fn new(url: &str, total: u64, validator: Validator) -> Self {
        let url = without_query(url).to_owned();
        Self { format: FORMAT, url, total, validator, checksum: None, extents: Extents::new() }
    }

    /// Whether it belongs to the file at `url`. Only the path is compared: servers may move, and mirrors have the same
    /// file.
    pub fn is_of(&self, url: &str) -> bool {
        path(&self.url) == path(url)
    }

    /// Checks whether what a server sends now is the rest of what we have. Compares the length of the whole (from
    /// `Content-Length` or `Content-Range`, if declared) and [`Validator::of`].
    pub fn check(&self, total: Option<u64>, validator: Option<&Validator>) -> Result<(), Changed> {
        if let Some(is) = total.filter(|is| *is != self.total) {
            return Err(Changed::Size { was: self.total, is });
        }
        let was = || self.validator.if_range().to_owned();
        match validator {
            Some(is) if *is == self.validator => Ok(()),
            Some(is) => Err(Changed::Validator { was: was(), is: is.if_range().to_owned() }),
            None => Err(Changed::Undeclared { was: was() }),
        }
    }

    /// As JSON, with a line end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("strings and numbers are always JSON");
        text.push('\n');
        text
    }

    /// From JSON. Checks its claims as far as possible without the file.
    pub fn from_json(text: &str) -> Result<Self, JournalError> {
        /// Read first: a newer form may have other fields.
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let found = serde_json::from_str::<Form>(text)?.format;
        if found > FORMAT {
            return Err(JournalError::Newer { found });
        }
        let journal: Self = serde_json::from_str(text)?;
        match (journal.extents.end(), journal.total) {
            (0, 0) => Err(JournalError::NoBytes),
            (end, total) if end > total => Err(JournalError::BehindTheEnd { end, total }),
            _ => Ok(journal),
        }
    }
}

fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// The path of a URL, from its slash on.
fn path(url: &str) -> &str {
    let url = without_query(url);
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("", |at| &rest[at..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOON: &str = "Sat, 31 Jan 2026 12:00:00 GMT";
    const LATER: &str = "Sat, 31 Jan 2026 12:00:01 GMT";

    fn journal() -> Journal {
        let mut journal =
            Journal::new("https://a.example/big?key=k", 100, Validator::Etag("\"v1\"".to_owned()));
        journal.extents.insert(0..40);
        journal.extents.insert(60..80);
        journal.checksum = Some(Checksum::crc32c(7));
        journal
    }

    #[test]
    fn a_journal_reads_back_as_written() {
        let text = journal().to_json();
        assert_eq!(Journal::from_json(&text).unwrap(), journal());
        assert!(text.contains("\"etag\": \"\\\"v1\\\"\"") && text.ends_with("}\n"), "{text}");
    }

    #[test]
    fn a_journal_is_of_a_path_and_keeps_no_query() {
        let journal = journal();
        assert!(!journal.to_json().contains("key"), "{}", journal.to_json());
        for same in ["https://a.example/big", "http://b:81/big?key=other", "https://a.example/big#top"] {
            assert!(journal.is_of(same), "{same}");
        }
        for other in
            ["https://a.example/bigger", "https://a.example/", "https://a.example", "https://b/a/big"]
        {
            assert!(!journal.is_of(other), "{other}");
        }
    }

    #[test]
    fn a_journal_that_cannot_be_true_is_refused() {
        let (good, behind) = (journal().to_json(), |total: &str| journal().to_json().replace("100", total));
        assert!(Journal::from_json(&behind("80")).is_ok());
        let refused = Journal::from_json(&behind("79"));
        assert!(matches!(refused, Err(JournalError::BehindTheEnd { end: 80, total: 79 })), "{refused:?}");
        let nothing = Journal::new("http://a/f", 0, Validator::Etag("\"v1\"".to_owned())).to_json();
        assert!(matches!(Journal::from_json(&nothing), Err(JournalError::NoBytes)));
        let newer = good.replace("\"format\": 1", "\"format\": 2, \"mirrors\": []");
        assert!(matches!(Journal::from_json(&newer), Err(JournalError::Newer { found: 2 })));
        for bad in ["", "{}", "[]", &good[..good.len() / 2], &good.replace("total", "length")] {
            assert!(matches!(Journal::from_json(bad), Err(JournalError::Malformed(_))), "{bad}");
        }
    }

    #[test]
    fn only_the_same_version_is_resumed() {
        let (journal, same) = (journal(), Validator::Etag("\"v1\"".to_owned()));
        assert_eq!(journal.check(Some(100), Some(&same)), Ok(()));
        assert_eq!(journal.check(None, Some(&same)), Ok(()));
        assert_eq!(journal.check(Some(101), Some(&same)), Err(Changed::Size { was: 100, is: 101 }));
        let other = Validator::Etag("\"v2\"".to_owned());
        let rendered = journal.check(Some(100), Some(&other)).unwrap_err();
        assert_eq!(
            rendered.to_string(),
            "the file was \"v1\" and is \"v2\" now: it was changed on the server"
        );
        let date = Validator::LastModified("\"v1\"".to_owned());
        assert!(matches!(journal.check(Some(100), Some(&date)), Err(Changed::Validator { .. })));
        assert!(matches!(journal.check(Some(100), None), Err(Changed::Undeclared { .. })));
    }

    #[test]
    fn only_strong_validators_count() {
        let tag = |tag| Validator::of(Some(tag), Some(NOON), Some(LATER));
        assert_eq!(tag("\"a\""), Some(Validator::Etag("\"a\"".to_owned())));
        assert_eq!(tag("\"\""), Some(Validator::Etag("\"\"".to_owned())));
        for weak in ["W/\"a\"", "a", "\"", ""] {
            assert_eq!(tag(weak), None, "{weak}");
        }
        let date = |date| Validator::of(None, Some(NOON), date);
        assert_eq!(date(Some(LATER)), Some(Validator::LastModified(NOON.to_owned())));
        assert_eq!((date(Some(NOON)), date(None)), (None, None));
        assert_eq!(Validator::of(None, None, Some(LATER)), None);
    }
    proptest! {
        #[test]
        fn whatever_was_here_is_here_again(
            ranges in prop::collection::vec((0_u64..1000, 1_u64..100), 0..20),
            tag in "\"\\PC{0,20}\"",
        ) {
            let mut journal = Journal::new("http://a/f", 1100, Validator::Etag(tag));
            for (from, length) in ranges {
                journal.extents.insert(from..from + length);
            }
            let read = Journal::from_json(&journal.to_json()).unwrap();
            prop_assert_eq!(read, journal);
        }

        #[test]
        fn whatever_became_of_a_journal_it_claims_nothing_behind_the_end(
            at in any::<prop::sample::Index>(),
            cut in 0_usize..4,
            put in "[0-9\\[\\],\"]{0,4}",
        ) {
            let mut text = journal().to_json();
            let at = at.index(text.len());
            text.replace_range(at..(at + cut).min(text.len()), &put);
            if let Ok(read) = Journal::from_json(&text) {
                prop_assert!(read.total > 0 && read.extents.end() <= read.total, "{}", text);
            }
        }
    }
}
