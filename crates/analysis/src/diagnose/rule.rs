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

/// The static part of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleMeta {
    /// Four letters of its subject and a number: `LOSS101`.
    pub id: &'static str,
    /// The name in words: `tcp-head-of-line-blocking`.
    pub name: &'static str,
    /// How far it can be trusted.
    pub status: RuleStatus,
    /// The version of h2lab that introduced it.
    pub since: &'static str,
    /// Its page, as `h2lab explain` prints it: Markdown with fixed headings.
    pub doc: &'static str,
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

/// A cause of slowness that can be recognised from records.
pub trait Rule: Sync {
    /// Its static part.
    fn meta(&self) -> &'static RuleMeta;

    /// Its finding in all repetitions of one cell, at least one. `None` if the rule is not sure.
    fn check(&self, repetitions: &[Repetition<'_>]) -> Option<Finding>;
}
