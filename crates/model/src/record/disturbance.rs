//! What happened to the processes of a repetition that is no answer to its load.

use std::fmt;
use std::time::Duration;

use h2lab_base::JsonSchema;
use h2lab_base::units::format_duration;
use serde::{Deserialize, Serialize};

/// Something that ended or stopped a server's process while it was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Disturbance {
    /// Which: the server's name, or that of the origin behind it.
    pub process: String,
    /// When it was noticed, in nanoseconds from the first request.
    pub after_ns: u64,
    /// What happened.
    pub kind: DisturbanceKind,
}

/// Kinds of [`Disturbance`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DisturbanceKind {
    /// It, or one of its children, was stopped by a signal or a debugger.
    Stopped {
        /// For how long, in nanoseconds, to the precision of the readings (20 ms).
        for_ns: u64,
    },
    /// One of the children that it had at the beginning ended, such as a worker of nginx.
    ChildEnded,
    /// A signal ended it that programs do not raise themselves: somebody killed it, or the kernel did for lack of memory.
    Killed {
        /// The signal's number.
        signal: i32,
    },
    /// It ended with this code.
    Exited {
        /// The exit code.
        code: i32,
    },
    /// It ended by a fault of its own, such as SIGSEGV or SIGABRT.
    Crashed {
        /// The signal's number.
        signal: i32,
    },
}

/// Signals that the kernel sends a program for what it did itself, and SIGABRT (signal(7); the numbers are those of x86 and ARM).
const OWN_FAULTS: [i32; 7] = [4, 5, 6, 7, 8, 11, 31];

impl DisturbanceKind {
    /// How a process ended: by `signal`, if there is one, else with `code`.
    pub fn ended(code: Option<i32>, signal: Option<i32>) -> Self {
        match signal {
            Some(signal) if OWN_FAULTS.contains(&signal) => Self::Crashed { signal },
            Some(signal) => Self::Killed { signal },
            None => Self::Exited { code: code.unwrap_or_default() },
        }
    }
}

impl Disturbance {
    /// Whether the server did it itself: a result about the server, where all else makes the measurement worthless.
    pub const fn is_of_the_server(&self) -> bool {
        matches!(self.kind, DisturbanceKind::Exited { .. } | DisturbanceKind::Crashed { .. })
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, after_ns, kind } = self;
        let after = format_duration(Duration::from_nanos(*after_ns));
        match kind {
            DisturbanceKind::Stopped { for_ns } => {
                let time = format_duration(Duration::from_nanos(*for_ns));
                write!(f, "{process} was stopped by a signal for {time}, {after} after the first request")
            }
            DisturbanceKind::ChildEnded => {
                write!(f, "a child process of {process} ended {after} after the first request")
            }
            DisturbanceKind::Killed { signal } => {
                write!(f, "{process} was killed by signal {signal}, {after} after the first request")
            }
            DisturbanceKind::Exited { code } => {
                write!(f, "{process} exited with code {code}, {after} after the first request")
            }
            DisturbanceKind::Crashed { signal } => {
                write!(f, "{process} crashed (signal {signal}), {after} after the first request")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_does_itself_is_a_result_and_what_others_do_to_it_is_not() {
        let is_own = |kind| Disturbance { process: "nginx".to_owned(), after_ns: 0, kind }.is_of_the_server();
        assert!(is_own(DisturbanceKind::ended(Some(1), None)));
        assert!(is_own(DisturbanceKind::ended(Some(0), None)), "it should have gone on serving");
        assert!(is_own(DisturbanceKind::ended(None, Some(11))), "SIGSEGV");
        assert!(is_own(DisturbanceKind::ended(None, Some(6))), "SIGABRT");
        assert!(!is_own(DisturbanceKind::ended(None, Some(9))), "SIGKILL");
        assert!(!is_own(DisturbanceKind::ended(None, Some(15))), "SIGTERM");
        assert!(!is_own(DisturbanceKind::Stopped { for_ns: 1 }) && !is_own(DisturbanceKind::ChildEnded));
    }

    #[test]
    fn a_disturbance_names_process_event_and_time() {
        let kind = DisturbanceKind::Killed { signal: 9 };
        let killed = Disturbance { process: "nginx".to_owned(), after_ns: 1_500_000_000, kind };
        assert_eq!(killed.to_string(), "nginx was killed by signal 9, 1.5s after the first request");
    }
}
