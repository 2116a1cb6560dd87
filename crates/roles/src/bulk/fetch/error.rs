//! Why a file did not arrive.

use h2lab_base::text::PeerText;
use h2lab_model::bulk::TIME_WAS_OVER;
use h2lab_model::record::Fault;
use h2lab_transfer::{Changed, Checksum};

use crate::bulk::source::SourceError;
use h2lab_net::storage::SinkError;

/// Why a file did not arrive, here or there.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The server answered, but did not send the file.
    #[error("the server answers {status}{}{}", redirect(.location.as_deref()), said(.words.as_deref()))]
    Status {
        /// The status.
        status: u16,
        /// The answer's Location, if it has one.
        location: Option<PeerText>,
        /// The explanation in its body, if there is one.
        words: Option<PeerText>,
    },
    /// The server's file is not the one that is partly here.
    #[error("{0}; give --no-resume to start over")]
    Changed(#[from] Changed),
    /// The server sends only the whole file.
    #[error("the server sends no ranges, so the transfer cannot be resumed; give --no-resume to start over")]
    NoRanges,
    /// What the server sends contradicts what it announced.
    #[error("the server contradicts itself: {0}")]
    Contradiction(String),
    /// The file does not have the length that was asked for: the server has no `/bytes/N`.
    #[error("the server sends {sent} B where {wanted} B were asked for; give the URL of a large file on it")]
    OtherLength {
        /// What was asked for.
        wanted: u64,
        /// What it sends.
        sent: u64,
    },
    /// The server stopped answering.
    #[error("{0}")]
    Vanished(String),
    /// It cannot be stored.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// It cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The source has changed since the transfer began.
    #[error("the file changed while it was sent: the server's part of it is useless")]
    SourceChanged,
    /// What arrived is not what the server has.
    #[error("checksum mismatch: the server has {expected}, we have {found}")]
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
    #[error("{TIME_WAS_OVER}")]
    Deadline,
}

impl FetchError {
    /// Whose fault it was that a file did not arrive.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Sink(_) | Self::Source(_) | Self::SourceChanged | Self::Interrupted | Self::Deadline => {
                Fault::Client
            }
            // Statuses of class 4xx are client errors (RFC 9110 §15.5), and a redirect is for the client to follow.
            Self::Status { status: 300..500, .. } => Fault::Client,
            // It is unknown where the bytes were corrupted, but the server declared their checksum.
            _ => Fault::Sut,
        }
    }
}

/// Where to find the file, if the server names a Location.
fn redirect(location: Option<&str>) -> String {
    location.map_or_else(String::new, |to| {
        format!(": the file is at {to}, give that (redirects are not followed)")
    })
}

/// The server's explanation of its answer.
fn said(words: Option<&str>) -> String {
    words.map_or_else(String::new, |words| format!(": {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_class_5xx_is_the_servers_fault_and_one_of_4xx_is_not() {
        let fault = |status| FetchError::Status { status, location: None, words: None }.fault();
        assert_eq!([fault(404), fault(413), fault(302)], [Fault::Client; 3]);
        assert_eq!([fault(500), fault(204)], [Fault::Sut; 2]);
    }
}
