//! Exit codes: scripts rely on them.

use anyhow::Error;
use h2lab_model::scenario::ScenarioError;

use crate::run::messages::{Failure, FailureKind, is_exhausted};

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// A `--fail-if` threshold or a check failed, or no response was a success.
    CheckFailed = 1,
    /// The command line or the scenario is wrong, or a file that it names is missing.
    Usage = 2,
    /// No response: the server cannot be reached or does not speak what was asked; or nothing could be compared.
    Unreachable = 3,
    /// This machine cannot do it, or a program is missing.
    Environment = 4,
    /// A cell stayed invalid, whether or not there are thresholds.
    Invalid = 5,
    /// Stopped by a signal; what was measured is kept.
    Interrupted = 130,
}

/// A wrong command line, found after parsing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Something on this machine is missing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MissingRequirement(pub String);

/// The exit code that an error deserves: that of the first cause in its chain that has one.
pub fn exit_of(error: &Error) -> Exit {
    for cause in error.chain() {
        if cause.is::<Usage>() || cause.is::<ScenarioError>() {
            return Exit::Usage;
        }
        if cause.is::<MissingRequirement>() {
            return Exit::Environment;
        }
        if cause.downcast_ref().is_some_and(is_exhausted) {
            return Exit::Environment;
        }
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return match failure.kind {
                FailureKind::Unreachable | FailureKind::Unsupported => Exit::Unreachable,
                FailureKind::Usage => Exit::Usage,
                FailureKind::Environment => Exit::Environment,
                FailureKind::Killed | FailureKind::Harness => Exit::Invalid,
            };
        }
    }
    // What is left are files that cannot be read or written, as named on the command line.
    Exit::Usage
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn the_cause_decides_and_context_does_not_hide_it() {
        let failure = Failure { kind: FailureKind::Environment, message: "no namespaces".to_owned() };
        let error = Err::<(), _>(failure).context("kept in x").unwrap_err();
        assert_eq!(exit_of(&error), Exit::Environment);
        assert_eq!(exit_of(&anyhow::Error::new(Usage("x".to_owned()))), Exit::Usage);
        let file =
            |errno| exit_of(&Err::<(), _>(io::Error::from(errno)).context("cannot write x").unwrap_err());
        for errno in [Errno::NOSPC, Errno::FBIG, Errno::ROFS, Errno::MFILE, Errno::AGAIN] {
            assert_eq!(file(errno), Exit::Environment, "{errno}");
        }
        assert_eq!(file(Errno::NOENT), Exit::Usage);
    }
}
