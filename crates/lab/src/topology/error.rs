//! What can go wrong while namespaces and devices are made, and the remedies.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use super::remedy::remedy;
use super::setup_step::SetupStep;

/// The result of a step of creating namespaces and devices.
pub(super) type Result<T, E = TopologyError> = std::result::Result<T, E>;

/// The topology could not be made. For the command line this is exit code 4, "the environment cannot", unless
/// [`TopologyError::is_input`] says that a wrong value was asked for, which is exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The kernel refused a step.
    #[error("cannot {step}: {source}{}", in_brackets(.detail))]
    Refused {
        /// Which step.
        step: SetupStep,
        /// The kernel's error.
        source: io::Error,
        /// The kernel's message, or the object of the step; may be empty.
        detail: String,
    },
    /// No such congestion control in this kernel.
    #[error("congestion control `{asked}` is not available here (available: {})", .available.join(", "))]
    UnknownCongestion {
        /// As given.
        asked: String,
        /// What the kernel has loaded.
        available: Vec<String>,
    },
    /// A connection does not use the congestion control of its route.
    #[error("the {side} uses congestion control `{found}`, although its route sets `{asked}`")]
    CongestionNotApplied {
        /// `client` or `server`.
        side: &'static str,
        /// As given.
        asked: String,
        /// The one that the socket uses.
        found: String,
    },
    /// No such sysctl in a fresh network namespace.
    #[error("this kernel has no sysctl `{name}` in a network namespace")]
    SysctlAbsent {
        /// As given.
        name: String,
    },
    /// A sysctl that is global to the machine, or that kernels withhold from namespaces that are not root's.
    #[error("`{name}` is machine-wide, or only root's: the network namespaces of this run do not have it")]
    SysctlOfMachine {
        /// As given.
        name: String,
    },
    /// The kernel rejects a value.
    #[error("the kernel does not accept `{value}` for {name}: {source}")]
    SysctlValue {
        /// As given.
        name: String,
        /// As given.
        value: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A sysctl reads back differently from what was written.
    #[error("the {side}'s {name} is `{found}` after `{asked}` was written to it")]
    SysctlNotApplied {
        /// `client` or `server`.
        side: &'static str,
        /// `net.ipv4.tcp_rmem` …
        name: String,
        /// As given.
        asked: String,
        /// As read back.
        found: String,
    },
    /// [`super::enter`] was called too late.
    #[error("namespaces can only be entered before the first thread starts, but {threads} run")]
    ThreadsRunning {
        /// Threads of this process.
        threads: usize,
    },
}

fn in_brackets(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(" ({detail})") }
}

impl TopologyError {
    /// `step` failed with `source`.
    pub(super) fn refused(step: SetupStep, source: impl Into<io::Error>) -> Self {
        Self::Refused { step, source: source.into(), detail: String::new() }
    }

    /// This error, with a detail added: the fallback was tried too and failed with `instead`.
    pub(super) fn or_else_impossible(self, instead: &dyn fmt::Display) -> Self {
        match self {
            Self::Refused { step, source, detail } if detail.is_empty() => {
                Self::Refused { step, source, detail: instead.to_string() }
            }
            Self::Refused { step, source, detail } => {
                Self::Refused { step, source, detail: format!("{detail}; {instead}") }
            }
            other => other,
        }
    }

    /// This error, refined by the sysctls `outside` that the machine's own namespace has. A sysctl that only that
    /// namespace has is global to the machine; one that neither has does not exist in this kernel.
    #[must_use]
    pub fn seen_from(self, outside: &BTreeSet<String>) -> Self {
        match self {
            Self::SysctlAbsent { name } if outside.contains(&name) => Self::SysctlOfMachine { name },
            other => other,
        }
    }

    /// Whether the scenario or the command line asks for something that no machine has: an unknown congestion control, a sysctl
    /// that is not per network namespace or rejects this value.
    pub fn is_input(&self) -> bool {
        match self {
            // A well-known one is a module that is not loaded; any other is a typo.
            Self::UnknownCongestion { asked, .. } => !WELL_KNOWN.contains(&asked.as_str()),
            Self::SysctlNotApplied { .. } | Self::SysctlOfMachine { .. } | Self::SysctlValue { .. } => true,
            Self::Refused { .. }
            | Self::SysctlAbsent { .. }
            | Self::CongestionNotApplied { .. }
            | Self::ThreadsRunning { .. } => false,
        }
    }

    /// What to do next, in one or two lines to copy; `None` where the message itself says it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Refused { step, source, .. } => remedy(*step, source),
            Self::UnknownCongestion { asked, .. } if !self.is_input() => {
                Some(format!("sudo modprobe tcp_{asked}"))
            }
            Self::SysctlAbsent { .. } => {
                Some("use a newer kernel, or load its module; `sysctl -aN` lists those available".to_owned())
            }
            _ => None,
        }
    }
}

/// Congestion controls that come with Linux.
const WELL_KNOWN: [&str; 3] = ["cubic", "bbr", "reno"];

/// Names the step of a failed call.
pub(super) trait During<T> {
    /// Turns the error into a [`TopologyError`] of `step`.
    fn during(self, step: SetupStep) -> Result<T>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, step: SetupStep) -> Result<T> {
        self.map_err(|error| TopologyError::refused(step, error))
    }
}
