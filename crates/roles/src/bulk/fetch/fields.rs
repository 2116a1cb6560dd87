//! What the fields of an answer say of the requested file.

use std::fmt;

use h2lab_transfer::Validator;
use h2lab_wire::Fields;

use super::error::FetchError;

/// Everything that an answer says about its version, strong or weak, verbatim. Tags are compared weakly (RFC 9110
/// §8.8.3.2): Apache marks the tag of a file as weak for a second after the file was written, and as strong afterwards.
#[derive(Debug)]
pub(super) struct Version {
    etag: Option<String>,
    modified: Option<String>,
}

impl Version {
    /// `None` if there is none.
    pub(super) fn of(fields: Fields<'_>) -> Option<Self> {
        let [etag, modified] = ["etag", "last-modified"].map(|name| text(fields, name).map(str::to_owned));
        (etag.is_some() || modified.is_some()).then_some(Self { etag, modified })
    }

    fn opaque_tag(&self) -> Option<&str> {
        self.etag.as_deref().map(|tag| tag.strip_prefix("W/").unwrap_or(tag))
    }

    /// Whether both have the same modification time, as far as they state it: replicas of one file may differ in their
    /// `ETag`.
    pub(super) fn is_as_old_as(&self, other: &Self) -> bool {
        self.modified.is_some() && self.modified == other.modified
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.opaque_tag() == other.opaque_tag() && self.modified == other.modified
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.etag, &self.modified) {
            (Some(etag), Some(modified)) => write!(f, "{etag} of {modified}"),
            (Some(one), None) | (None, Some(one)) => f.write_str(one),
            (None, None) => f.write_str("undeclared"),
        }
    }
}

/// `Content-Length`.
pub(super) fn length(fields: Fields<'_>) -> Option<u64> {
    text(fields, "content-length")?.parse().ok()
}

/// Rejects a content coding: ranges and checksums refer to the stored bytes.
pub(super) fn check_coding(fields: Fields<'_>) -> Result<(), FetchError> {
    match text(fields, "content-encoding") {
        None | Some("identity") => Ok(()),
        Some(_) => Err(contradiction("it sends a content-encoding that was not requested")),
    }
}

/// What distinguishes this state of the file from others.
pub(super) fn validator(fields: Fields<'_>) -> Option<Validator> {
    Validator::of(text(fields, "etag"), text(fields, "last-modified"), text(fields, "date"))
}

pub(super) fn contradiction(what: impl Into<String>) -> FetchError {
    FetchError::Contradiction(what.into())
}

/// A field as text.
pub(super) fn text<'a>(fields: Fields<'a>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(|value| std::str::from_utf8(value).ok())
}
