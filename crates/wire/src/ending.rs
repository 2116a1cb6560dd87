//! That a connection has ended, and that its role is told so once.

use super::Error;

/// Whether the connection goes on.
#[derive(Debug)]
pub(super) enum End {
    /// It does. The transport may have ended: what it delivered is still to be parsed.
    Open,
    /// It does not, and the role is still to be told why.
    Due(Option<Error>),
    /// Nothing follows.
    Reported,
}

impl End {
    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether the role is still to be told.
    pub(super) const fn is_due(&self) -> bool {
        matches!(self, Self::Due(_))
    }

    /// What the role is to be told, once; `reported` makes it of the error that ended the connection, if one did.
    pub(super) fn report<T>(&mut self, reported: impl FnOnce(Option<Error>) -> T) -> Option<T> {
        match std::mem::replace(self, Self::Reported) {
            Self::Due(error) => Some(reported(error)),
            Self::Open | Self::Reported => None,
        }
    }
}
