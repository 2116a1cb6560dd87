//! Exit codes: scripts rely on them.

use anyhow::Error;

pub use crate::run::messages::MissingRequirement;
use crate::run::messages::{FailureKind, kind_of};

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// A `--fail-if` threshold or a check failed, no response was a success, or a server that had answered ended or
    /// stopped answering.
    CheckFailed = 1,
    /// The command line or the scenario is wrong, or a file that it names is missing.
    Usage = 2,
    /// No response: the server cannot be reached or does not speak what was asked; or nothing could be compared.
    Unreachable = 3,
    /// This machine cannot do it: a program, a permission, or room for a file is missing.
    Environment = 4,
    /// A measurement stayed invalid, whether or not there are thresholds.
    Invalid = 5,
    /// Stopped by a signal; what was measured is kept.
    Interrupted = 130,
}

impl Exit {
    /// The codes in order of precedence, where several apply: what our side could not do, then what the server did not,
    /// then whether the figures are valid, then what they say. `--help` has the same order.
    const ORDER: [Self; 7] = [
        Self::Environment,
        Self::Interrupted,
        Self::Unreachable,
        Self::Usage,
        Self::Invalid,
        Self::CheckFailed,
        Self::Done,
    ];

    /// The one of `codes` with the highest precedence.
    pub fn first(codes: impl IntoIterator<Item = Self>) -> Self {
        let place = |code: &Self| Self::ORDER.iter().position(|other| other == code);
        codes.into_iter().min_by_key(place).unwrap_or(Self::Done)
    }
}

/// A wrong command line, found after parsing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

impl From<FailureKind> for Exit {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Unreachable | FailureKind::Unsupported => Self::Unreachable,
            FailureKind::Ended => Self::CheckFailed,
            FailureKind::Interrupted => Self::Interrupted,
            FailureKind::Usage => Self::Usage,
            FailureKind::Environment => Self::Environment,
            FailureKind::Invalid | FailureKind::Killed | FailureKind::Harness => Self::Invalid,
        }
    }
}

/// The exit code of an error: that of the first cause in its chain that has one.
pub fn exit_of(error: &Error) -> Exit {
    let kind = error
        .chain()
        .find_map(|cause| if cause.is::<Usage>() { Some(FailureKind::Usage) } else { kind_of(cause) });
    // What is left are files that cannot be read or written, as named on the command line.
    kind.map_or(Exit::Usage, Exit::from)
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;
    use rustix::io::Errno;

    use super::*;
    use crate::run::messages::Failure;

    #[test]
    fn of_several_codes_the_one_counts_that_the_help_names_first() {
        let (_, line) = super::super::help::EXIT_CODES.rsplit_once("counts:").unwrap();
        let numbers: Vec<u8> =
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        let mut order: Vec<u8> =
            Exit::ORDER.iter().map(|code| *code as u8).filter(|code| *code > 0).collect();
        // The code of a server that ended comes before that of an invalid measurement.
        order.insert(order.iter().position(|code| *code == Exit::Invalid as u8).unwrap(), 1);
        assert_eq!(numbers, order);
        assert_eq!(
            Exit::first([Exit::Done, Exit::CheckFailed, Exit::Invalid, Exit::Unreachable]),
            Exit::Unreachable
        );
        assert_eq!(Exit::first([]), Exit::Done);
    }

    #[test]
    fn the_cause_decides_and_context_does_not_hide_it() {
        let failure = Failure { kind: FailureKind::Environment, message: "no namespaces".to_owned() };
        let error = Err::<(), _>(failure).context("kept in x").unwrap_err();
        assert_eq!(exit_of(&error), Exit::Environment);
        assert_eq!(exit_of(&anyhow::Error::new(Usage("x".to_owned()))), Exit::Usage);
        let file =
            |errno| exit_of(&Err::<(), _>(io::Error::from(errno)).context("cannot write x").unwrap_err());
        for errno in
            [Errno::NOSPC, Errno::FBIG, Errno::ROFS, Errno::MFILE, Errno::AGAIN, Errno::ACCESS, Errno::PERM]
        {
            assert_eq!(file(errno), Exit::Environment, "{errno}");
        }
        assert_eq!(file(Errno::NOENT), Exit::Usage);
    }
}
