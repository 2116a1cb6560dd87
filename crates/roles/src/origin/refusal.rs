//! Why something that a client sends is refused.

use h2lab_transfer::Checksum;

use super::folder::FolderError;
use h2lab_net::storage::SinkError;

/// Why something is refused, as reported to its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// 400 to 599.
    pub status: u16,
    pub(super) words: String,
    /// The sum of what arrived, if it is not the one that was declared.
    pub(super) found: Option<Checksum>,
}

impl Refusal {
    /// With this status, and a text without a line end.
    pub fn new(status: u16, words: impl Into<String>) -> Self {
        Self { status, words: words.into(), found: None }
    }

    /// There is a file of this name, which must not be replaced.
    ///
    /// 412 as for a copy that must not overwrite (RFC 4918 §9.8.5). 409 was rejected: it means that another client is
    /// writing, and our client repeats requests that are refused with it.
    pub fn exists() -> Self {
        let words =
            "this name exists; give another name, or let uploads replace files: bulk serve --overwrite";
        Self::new(412, words)
    }

    /// What arrived, whose sum is `found`, is not what was declared.
    pub fn mismatch(what: &str, declared: &Checksum, found: Checksum) -> Self {
        let words = format!("checksum mismatch of {what}: {declared} declared, {} received", found.hex());
        Self { found: Some(found), ..Self::new(400, words) }
    }
}

impl From<SinkError> for Refusal {
    fn from(error: SinkError) -> Self {
        let status = match &error {
            SinkError::Exists { .. } => return Self::exists(),
            // RFC 4918 §11.5: there is no room for what the request wants to have stored.
            SinkError::Full { .. } | SinkError::Spared { .. } | SinkError::TooLarge { .. } => 507,
            SinkError::Busy { .. } | SinkError::NotAFile { .. } => 409,
            SinkError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => 403,
            _ => 500,
        };
        Self::new(status, error.to_string())
    }
}

impl From<FolderError> for Refusal {
    fn from(error: FolderError) -> Self {
        let status = match error {
            FolderError::Malformed | FolderError::TooLong => 400,
            FolderError::NameTooLong => 414,
            FolderError::Missing => 404,
            FolderError::Denied => 403,
            FolderError::Io(_) => 500,
        };
        Self::new(status, error.to_string())
    }
}
