//! What a rule is.

use std::fmt;

use super::{Case, Finding};

/// How far a rule can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleStatus {
    /// It has not fired on enough real systems yet.
    Preview,
    /// It fires, its fix closes the gap, and it does not fire on similar symptoms.
    Stable,
}

impl fmt::Display for RuleStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Preview => "preview",
            Self::Stable => "stable",
        })
    }
}

/// The code that recognises a cause in records. The texts about the cause are in its [`CauseMeta`](super::CauseMeta).
pub trait Rule: fmt::Debug + Sync {
    /// Its findings in a cell: none if the rule is not sure.
    fn check(&self, case: &Case<'_>) -> Vec<Finding>;
}
