//! What can fail, and whose fault it is.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use h2lab_base::text::PeerText;
use h2lab_base::units::{format_bytes, format_duration};

/// Why an operation failed. Each variant says first whose fault it is.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// The network's, or the server does not run: no connection within the time allowed, or none at the moment.
    #[error(
        "no connection to NATS at {servers}: {reason}; check that the server runs and that no firewall blocks the port"
    )]
    Unreachable {
        /// The servers that were tried, without secrets.
        servers: String,
        /// Of the last attempt.
        reason: PeerText,
    },
    /// Ours: the server does not accept the credentials.
    #[error(
        "NATS at {servers} refuses the credentials: {reason}; look at --creds, at --nats-user with \
         --nats-password-file or H2LAB_NATS_PASSWORD, or at the client certificate"
    )]
    Refused {
        /// The servers that were tried, without secrets.
        servers: String,
        /// The server's words.
        reason: PeerText,
    },
    /// Ours, or the server's: TLS fails, such as for a certificate that no known authority signed.
    #[error("TLS with NATS at {servers} fails: {reason}; look at --nats-ca, --nats-cert and --nats-key")]
    Tls {
        /// The servers that were tried, without secrets.
        servers: String,
        /// What TLS says.
        reason: PeerText,
    },
    /// Ours: the user may not publish or subscribe to this subject.
    #[error("NATS does not permit this user the subject `{subject}`; add it to the user's permissions")]
    Denied {
        /// What was asked for.
        subject: PeerText,
    },
    /// The server's: JetStream is off, for the server or for this account.
    #[error(
        "the NATS server has no JetStream for this account; start it with `jetstream` enabled (`nats-server -js`)"
    )]
    NoJetStream,
    /// Ours: what is asked for is not there (any more).
    #[error("NATS has no {what}")]
    Absent {
        /// What was asked for.
        what: PeerText,
    },
    /// The server's: a limit of the account, of a stream or of the disk is reached.
    #[error("NATS cannot store more for {what}: {reason}; raise the limit, or delete what is old")]
    Quota {
        /// The subject of what was stored or created.
        what: PeerText,
        /// The server's words.
        reason: PeerText,
    },
    /// The network's: messages wait because the connection is down or slow, and no more are kept.
    #[error("too many messages are queued for NATS: the connection is down or too slow")]
    Full,
    /// Ours, or the peer's: more bytes than are allowed.
    #[error("{what} has {}, and at most {} are allowed", format_bytes(*.bytes), format_bytes(*.most))]
    TooLarge {
        /// What has them.
        what: PeerText,
        /// How many it has.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// The peer's, or the server's: what is stored is not what was put there.
    #[error("{what} is damaged: {reason}")]
    Corrupt {
        /// What is stored.
        what: PeerText,
        /// What is wrong.
        reason: PeerText,
    },
    /// The server's, or the network's: connected, but no answer in time. JetStream does not answer for a stream that
    /// is absent.
    #[error("NATS did not answer {what} within {}", format_duration(*.after))]
    Timeout {
        /// What was asked.
        what: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// Ours: a file of this machine.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Ours: an option, a name or a subject that cannot be right.
    #[error("`{what}` cannot be used for NATS: {reason}")]
    Invalid {
        /// The value.
        what: PeerText,
        /// What it must be.
        reason: &'static str,
    },
    /// The server's: an answer that none of the above is.
    #[error("NATS refuses {what}: {reason}")]
    Other {
        /// What was asked.
        what: PeerText,
        /// The server's words.
        reason: PeerText,
    },
    /// Ours: the connection was closed, or its thread has ended.
    #[error("the connection to NATS was closed")]
    Gone,
}

impl NatsError {
    /// For `map_err` of what the file system answers.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| Self::Io { path: path.to_owned(), source }
    }

    /// A subject that the server does not permit.
    pub(crate) fn denied(subject: &str) -> Self {
        Self::Denied { subject: subject.into() }
    }

    /// A value that this crate does not accept.
    pub(crate) fn invalid(what: &str, reason: &'static str) -> Self {
        Self::Invalid { what: what.into(), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_printable_in_a_message() {
        let error = NatsError::Other { what: "a".into(), reason: "\u{1b}[2J".into() };
        assert_eq!(error.to_string(), "NATS refuses a: \\u{1b}[2J");
        let error = NatsError::invalid("a b", "no blanks");
        assert_eq!(error.to_string(), "`a b` cannot be used for NATS: no blanks");
    }
}
