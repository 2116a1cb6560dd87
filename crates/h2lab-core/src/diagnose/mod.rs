//! From records to findings: rules with evidence and cost.

pub mod finding;

pub use finding::{Confidence, Evidence, Finding, Fix};
