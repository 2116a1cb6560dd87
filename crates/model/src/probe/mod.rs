//! What a probe may do, what it concludes and how that is written down.
//!
//! The shell exchanges bytes with a server, a proxy or a client and makes [`Check`]s of what it saw; all that they
//! share is here: verdicts and their severity, [evidence](CheckEvidence), the [budget](Budget) that no probe exceeds, the
//! page behind each check with its fixes ([`CheckMeta`]), and the [report](ProbeReport). [`h2lab_report`] prints it.

mod budget;
mod check;
mod checklist;
pub mod client;
pub mod downgrade;
mod meta;
mod pages;
mod report;
pub mod server;
pub mod smuggling;

pub use budget::{Allowance, Budget, Exhausted, Spent};
pub use check::{Check, CheckEvidence, EvidenceItem, Verdict, is_product};
pub use checklist::checklist;
pub use meta::{CheckMeta, Group, HEADINGS, Severity};
pub use pages::{CHECKS, explain, id};
pub use report::{Bound, ChecklistItem, Mark, ProbeReport, ServerLimits, Subject};
