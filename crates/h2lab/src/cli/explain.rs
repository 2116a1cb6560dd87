//! `h2lab explain ID`: what a rule or a probe's check means, how it is known, what to change.

use anyhow::Result;
use clap::Args;
use h2lab_analysis::diagnose;
use h2lab_model::probe;
use h2lab_report::{hanging, prose};

use super::exit::Usage;
use super::{Exit, help, output};

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
    let style = output::style();
    let Some(id) = &args.id else {
        let rules = diagnose::RULES.iter().map(|rule| {
            let meta = rule.meta();
            (meta.id, format!("{} ({})", meta.name, meta.status))
        });
        let checks = probe::CHECKS
            .iter()
            .map(|check| (check.id, format!("{} (check, {})", check.name, check.severity)));
        let list = rules.chain(checks).map(|(id, text)| hanging(&format!("{id:8} "), &text, style));
        output::show(&list.collect::<String>())?;
        return Ok(Exit::Done);
    };
    let id = id.to_ascii_uppercase();
    let (heading, doc) = if let Some(meta) = diagnose::explain(&id) {
        let (id, name, status, since) = (meta.id, meta.name, meta.status, meta.since);
        (format!("{id} {name} ({status}, since {since})"), meta.doc)
    } else if let Some(meta) = probe::explain(&id) {
        let (id, name, severity, since) = (meta.id, meta.name, meta.severity, meta.since);
        (format!("{id} {name} (check, {severity} if it fails, since {since})"), meta.doc)
    } else {
        let rules = diagnose::RULES.iter().map(|rule| rule.meta().id);
        let known: Vec<&str> = rules.chain(probe::CHECKS.iter().map(|check| check.id)).collect();
        return Err(Usage(format!("there is no rule or check `{id}`; known: {}", known.join(", "))).into());
    };
    output::show(&format!("{}\n{}", hanging("", &heading, style), prose(doc.trim_end(), style)))?;
    Ok(Exit::Done)
}
