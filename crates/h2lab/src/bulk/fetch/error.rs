//! Why a file did not arrive.

use h2lab_core::bulk::{Changed, Checksum};

use crate::bulk::sink::SinkError;

/// Why a file did not arrive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The server has an answer, but not the file.
    #[error("the server answers {status}{}", redirect(.location.as_deref()))]
    Status {
        /// The status.
        status: u16,
        /// Where it says that the file is, if it says that.
        location: Option<String>,
    },
    /// It is another file than the one of which a part is here.
    #[error("{0}; give --no-resume to begin anew")]
    Changed(#[from] Changed),
    /// The server sends the whole only.
    #[error("the server sends no ranges, so that it cannot be gone on with; give --no-resume to begin anew")]
    NoRanges,
    /// What it sends does not fit what it announced.
    #[error("the server contradicts itself: {0}")]
    Contradiction(String),
    /// It stopped answering.
    #[error("{0}")]
    Vanished(String),
    /// It cannot be stored.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// What arrived is not what the server has.
    #[error("the checksum is wrong: the server has {expected}, and what arrived {found}")]
    Mismatch {
        /// The server's.
        expected: Checksum,
        /// Ours.
        found: Checksum,
    },
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The time of -z was over.
    #[error("the time was over")]
    Deadline,
}

/// Where to find the file, if a server says that.
fn redirect(location: Option<&str>) -> String {
    location.map_or_else(String::new, |to| {
        format!(": the file is at {to}, give that (redirects are not followed)")
    })
}
