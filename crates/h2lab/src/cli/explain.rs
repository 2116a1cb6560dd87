//! `h2lab explain RULE`: what a rule means, how it is known, what to change.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use h2lab_core::diagnose;

use super::exit::Usage;
use super::{Exit, help};

/// Explain a rule that a finding names
///
/// What it means, how it is known, when it stays silent, and what to change.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[("h2lab explain", "all rules"), ("h2lab explain LOSS101", "one of them")],
))]
pub struct ExplainArgs {
    /// The rule's id, such as LOSS101; all rules are listed if it is left out
    rule: Option<String>,
}

/// Prints the page of a rule, or the list.
pub fn main(args: &ExplainArgs) -> Result<Exit> {
    let mut out = std::io::stdout().lock();
    let Some(id) = &args.rule else {
        for rule in diagnose::RULES {
            let meta = rule.meta();
            writeln!(out, "{:8} {} ({})", meta.id, meta.name, meta.status)?;
        }
        return Ok(Exit::Done);
    };
    let Some(meta) = diagnose::explain(&id.to_ascii_uppercase()) else {
        let known: Vec<&str> = diagnose::RULES.iter().map(|rule| rule.meta().id).collect();
        return Err(Usage(format!("there is no rule `{id}`; known rules: {}", known.join(", "))).into());
    };
    writeln!(
        out,
        "{} {} ({}, since {})\n\n{}",
        meta.id,
        meta.name,
        meta.status,
        meta.since,
        meta.doc.trim_end()
    )?;
    Ok(Exit::Done)
}
