//! `h2lab doctor`: what this machine allows, what is missing, and the line that enables it.

use h2lab_base::JsonSchema;
use std::io::Write;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::{Exit, help};
use h2lab_lab::sut;
use h2lab_lab::sut::Availability;
use h2lab_lab::topology::doctor;
use h2lab_lab::topology::doctor::{DoctorCheck, Examination, StepStatus};

/// Try each step that a run needs, and report what is missing and how to fix it
///
/// Carries out each step: namespaces, devices, routes, the packet ring, each server. For each failure, prints the consequence,
/// what still works, and the command that fixes it. Exits with 4 if `h2lab compare`
/// without a URL cannot work for this user.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[("h2lab doctor", "as this user"), ("sudo h2lab doctor", "as root and as an unprivileged user")],
))]
pub struct DoctorArgs {
    /// One JSON document on stdout instead of text
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DoctorDocument {
    /// Version of h2lab.
    version: String,
    /// Steps of a run.
    #[serde(flatten)]
    examination: Examination,
    /// Servers that can stand behind the link.
    servers: Vec<Availability>,
    /// Whether `compare` without a URL works for the user who asked.
    lab_works: bool,
    /// What its labs stand on: `root`, `user-namespace`, `reflector` (`CAP_NET_ADMIN` and nothing else); null if on nothing.
    isolation_level: Option<String>,
}

/// Makes every check and prints the results. Exits with 4 if this user can have no emulated link.
pub fn main(args: &DoctorArgs) -> Result<Exit> {
    let examination = doctor::examine()?;
    let own = examination.root.as_ref().or(examination.user.as_ref());
    let isolation_level = own.and_then(|checks| doctor::isolation_level(checks));
    let lab_works = isolation_level.is_some();
    let document = DoctorDocument {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        examination,
        servers: sut::available(),
        lab_works,
        isolation_level: isolation_level.map(|isolation_level| isolation_level.name().to_owned()),
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = serde_json::to_string_pretty(&document)?;
        writeln!(out, "{text}")?;
    } else {
        write_out(&mut out, &document)?;
    }
    Ok(if lab_works { Exit::Done } else { Exit::Environment })
}

fn write_out(out: &mut impl Write, document: &DoctorDocument) -> Result<()> {
    let Examination { root, user } = &document.examination;
    if let Some(checks) = root {
        write_checks(out, "As root", checks)?;
    }
    if let Some(checks) = user {
        write_checks(
            out,
            if root.is_some() { "As an unprivileged user (nobody)" } else { "As this user" },
            checks,
        )?;
    }
    writeln!(out, "Servers behind the link")?;
    for server in &document.servers {
        match &server.version {
            Some(version) => writeln!(out, "  ok       {:18} {version}", server.name)?,
            None => writeln!(out, "  missing  {:18} install it: {}", server.name, server.install)?,
        }
    }
    writeln!(out)?;
    if document.lab_works {
        let isolation_level = document.isolation_level.as_deref().unwrap_or_default();
        writeln!(
            out,
            "This user can have an emulated link (isolation level: {isolation_level}): try `h2lab compare`."
        )?;
    } else {
        writeln!(
            out,
            "This user can have no emulated link. `h2lab compare URL` and `h2lab report` still work."
        )?;
    }
    Ok(())
}

fn write_checks(out: &mut impl Write, title: &str, checks: &[DoctorCheck]) -> Result<()> {
    writeln!(out, "{title}")?;
    for check in checks {
        match &check.status {
            StepStatus::Ok => writeln!(out, "  ok       {:18} {}", check.id, check.what)?,
            StepStatus::NotNeeded { reason } => {
                writeln!(out, "  -        {:18} not needed: {reason}", check.id)?;
            }
            StepStatus::Blocked { by } => {
                writeln!(out, "  blocked  {:18} not tried: it needs {by}", check.id)?;
            }
            StepStatus::Failed { reason } => {
                writeln!(out, "  MISSING  {:18} {}: {reason}", check.id, check.what)?;
                writeln!(out, "           {:18} without it: {}", "", check.consequence)?;
                writeln!(out, "           {:18} still works: {}", "", check.still_works)?;
                if let Some(remedy) = &check.remedy {
                    writeln!(out, "           {:18} to enable: {remedy}", "")?;
                }
            }
        }
    }
    writeln!(out)?;
    Ok(())
}
