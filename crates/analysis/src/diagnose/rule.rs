//! What a rule is.

use std::fmt;

use super::Finding;
use h2lab_model::record::CellRecord;
use h2lab_wire::trace::Facts;

/// How far a rule can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It has not fired on enough real systems yet.
    Preview,
    /// It fires, its fix closes the gap, and it is silent on what merely looks alike.
    Stable,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Preview => "preview",
            Self::Stable => "stable",
        })
    }
}

/// What there is to say about a rule without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleMeta {
    /// Four letters of what it is about and a number: `LOSS101`.
    pub id: &'static str,
    /// The name in words: `tcp-head-of-line-blocking`.
    pub name: &'static str,
    /// How far it can be trusted.
    pub status: Status,
    /// The version of h2lab that had it first.
    pub since: &'static str,
    /// Its page, as `h2lab explain` prints it: Markdown with fixed headings.
    pub doc: &'static str,
}

/// A repetition, as a rule sees it.
#[derive(Debug)]
pub struct Repetition<'a> {
    /// What is known.
    pub facts: Facts,
    /// What it is known from.
    pub record: &'a CellRecord,
    /// What its cell is called in its group.
    pub label: &'a str,
}

/// A cause of slowness that can be recognised from records.
pub trait Rule: Sync {
    /// What there is to say about it without a record.
    fn meta(&self) -> &'static RuleMeta;

    /// What it finds in all repetitions of one cell, which are never none. A rule that is not sure is silent.
    fn check(&self, repetitions: &[Repetition<'_>]) -> Option<Finding>;
}
