//! The end of a connection, reported to its role once.

use super::Error;

/// Whether the connection is open, ended, or ended and reported.
#[derive(Debug)]
pub(super) enum End {
    /// Open. The transport may have ended: what it delivered is still to be parsed.
    Open,
    /// Ended; the role has yet to be informed why.
    Due(Option<Error>),
    /// Ended and reported; nothing follows.
    Reported,
}

impl End {
    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether the end has yet to be reported to the role.
    pub(super) const fn is_due(&self) -> bool {
        matches!(self, Self::Due(_))
    }

    /// The final report to the role, once; `reported` builds it from the error that ended the connection, if one did.
    pub(super) fn report<T>(&mut self, reported: impl FnOnce(Option<Error>) -> T) -> Option<T> {
        match std::mem::replace(self, Self::Reported) {
            Self::Due(error) => Some(reported(error)),
            Self::Open | Self::Reported => None,
        }
    }
}
