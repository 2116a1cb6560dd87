//! `h2lab explain ID`: what a rule or a probe's check means, how it is known, what to change.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use h2lab_analysis::diagnose;
use h2lab_model::probe;

use super::exit::Usage;
use super::{Exit, help};

/// Explain a rule that a finding names, or a check of a probe
///
/// Prints what it means, how it is detected, when it is not reported, and what to change.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab explain", "all rules and checks"),
        ("h2lab explain LOSS101", "a rule of findings"),
        ("h2lab explain PROT101", "a check of `h2lab probe`"),
    ],
))]
pub struct ExplainArgs {
    /// The id of a rule or a check, such as LOSS101; without it, all are listed
    id: Option<String>,
}

/// Prints the page of a rule or a check, or the list.
pub fn main(args: &ExplainArgs) -> Result<Exit> {
    let mut out = std::io::stdout().lock();
    let Some(id) = &args.id else {
        for rule in diagnose::RULES {
            let meta = rule.meta();
            writeln!(out, "{:8} {} ({})", meta.id, meta.name, meta.status)?;
        }
        for check in probe::CHECKS {
            writeln!(out, "{:8} {} (check, {})", check.id, check.name, check.severity)?;
        }
        return Ok(Exit::Done);
    };
    let id = id.to_ascii_uppercase();
    if let Some(meta) = diagnose::explain(&id) {
        let (id, name, status, since) = (meta.id, meta.name, meta.status, meta.since);
        writeln!(out, "{id} {name} ({status}, since {since})\n\n{}", meta.doc.trim_end())?;
    } else if let Some(meta) = probe::explain(&id) {
        let (id, name, severity, since) = (meta.id, meta.name, meta.severity, meta.since);
        writeln!(
            out,
            "{id} {name} (check, {severity} if it fails, since {since})\n\n{}",
            meta.doc.trim_end()
        )?;
    } else {
        let rules = diagnose::RULES.iter().map(|rule| rule.meta().id);
        let known: Vec<&str> = rules.chain(probe::CHECKS.iter().map(|check| check.id)).collect();
        return Err(Usage(format!("there is no rule or check `{id}`; known: {}", known.join(", "))).into());
    }
    Ok(Exit::Done)
}
