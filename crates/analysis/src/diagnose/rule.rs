//! What a rule is.

use std::fmt;

use super::Finding;
use h2lab_model::record::CellRecord;
use h2lab_wire::trace::Facts;

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

/// A repetition, as a rule sees it.
#[derive(Debug)]
pub struct Repetition<'a> {
    /// Its facts.
    pub facts: Facts,
    /// Its record.
    pub record: &'a CellRecord,
    /// The label of its cell in its group.
    pub label: &'a str,
}

/// The code that recognises a cause in records. What is said of the cause is in its
/// [`CauseMeta`](super::CauseMeta).
pub trait Rule: fmt::Debug + Sync {
    /// Its finding in all repetitions of one cell, at least one. `None` if the rule is not sure.
    fn check(&self, repetitions: &[Repetition<'_>]) -> Option<Finding>;
}
