//! `h2lab doctor`: what this machine allows, what is missing, and the line that enables it.

use h2lab_base::JsonSchema;
use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::{Exit, help, output};
use h2lab_lab::sut;
use h2lab_lab::sut::Availability;
use h2lab_lab::topology::doctor;
use h2lab_lab::topology::doctor::{DoctorCheck, Examination, StepStatus};
use h2lab_report::hanging;

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
    if args.json {
        output::print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        output::show(&text(&document))?;
    }
    Ok(if lab_works { Exit::Done } else { Exit::Environment })
}

fn text(document: &DoctorDocument) -> String {
    let mut out = String::new();
    let Examination { root, user } = &document.examination;
    if let Some(checks) = root {
        list(&mut out, "As root", checks);
    }
    if let Some(checks) = user {
        list(
            &mut out,
            if root.is_some() { "As an unprivileged user (nobody)" } else { "As this user" },
            checks,
        );
    }
    out.push_str("Servers behind the link\n");
    for server in &document.servers {
        match &server.version {
            Some(version) => line(&mut out, "ok", &server.name, version),
            None => line(&mut out, "missing", &server.name, &format!("install it: {}", server.install)),
        }
    }
    let ending = if document.lab_works {
        let isolation_level = document.isolation_level.as_deref().unwrap_or_default();
        format!(
            "This user can have an emulated link (isolation level: {isolation_level}): try `h2lab compare`."
        )
    } else {
        "This user can have no emulated link. `h2lab compare URL` and `h2lab report` still work.".to_owned()
    };
    out.push('\n');
    out.push_str(&hanging("", &ending, output::style()));
    out
}

/// A line of a list, wrapped behind its name.
fn line(out: &mut String, state: &str, name: &str, text: &str) {
    out.push_str(&hanging(&format!("  {state:8} {name:18} "), text, output::style()));
}

fn list(out: &mut String, title: &str, checks: &[DoctorCheck]) {
    let _ = writeln!(out, "{title}");
    for check in checks {
        let id = &check.id;
        match &check.status {
            StepStatus::Ok => line(out, "ok", id, &check.what),
            StepStatus::NotNeeded { reason } => line(out, "-", id, &format!("not needed: {reason}")),
            StepStatus::Blocked { by } => line(out, "blocked", id, &format!("not tried: it needs {by}")),
            StepStatus::Failed { reason } => {
                line(out, "MISSING", id, &format!("{}: {reason}", check.what));
                line(out, "", "", &format!("without it: {}", check.consequence));
                line(out, "", "", &format!("still works: {}", check.still_works));
                if let Some(remedy) = &check.remedy {
                    // A command is to be copied: it is not wrapped.
                    let beside = format!("           {:18} to enable: {remedy}", "");
                    if beside.chars().count() <= output::style().width {
                        let _ = writeln!(out, "{beside}");
                    } else {
                        line(out, "", "", "to enable:");
                        let _ = writeln!(out, "  {remedy}");
                    }
                }
            }
        }
    }
    out.push('\n');
}
