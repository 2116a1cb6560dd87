//! `h2lab explain`: what a cause or a probe's check means, how it is known, what to change.

use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use h2lab_analysis::diagnose::{self, CAUSES, CauseMeta, FAMILIES};
use h2lab_model::probe::{self, CHECKS, CheckMeta, Group};
use h2lab_report::{TextStyle, hanging, prose};

use super::exit::Usage;
use super::{Exit, help, output};

pub mod document;
mod near;

#[cfg(test)]
mod tests;

/// Explain a cause of slowness that a finding names, or a check of a probe
///
/// Prints what it is, what shows it, the experiment that confirms it, and what to change. Without an id, all causes are
/// listed; with words, those in whose name or summary all of them occur.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab explain", "all causes and checks"),
        ("h2lab explain LOSS101", "a cause, by its id or its name"),
        ("h2lab explain stream window", "the causes and checks with these words"),
        ("h2lab explain PROT101", "a check of `h2lab probe`"),
    ],
))]
pub struct ExplainArgs {
    /// The id or the name of a cause or a check, such as LOSS101, or words; without any, all are listed
    words: Vec<String>,

    /// One JSON document on stdout instead of text
    #[arg(long)]
    json: bool,
}

/// What was asked for: causes and checks, in the order of their lists.
struct Selection {
    causes: Vec<&'static CauseMeta>,
    checks: Vec<&'static CheckMeta>,
}

/// Prints the page of a cause or a check, or a list.
pub fn main(args: &ExplainArgs) -> Result<Exit> {
    let found = select(&args.words)?;
    let style = output::style();
    let text = if args.json {
        serde_json::to_string_pretty(&document::document(&found.causes, &found.checks))? + "\n"
    } else {
        match (&found.causes[..], &found.checks[..]) {
            ([cause], []) => prose(&cause_page(cause), style),
            ([], [check]) => prose(&check_page(check), style),
            _ => list(&found, style),
        }
    };
    if args.json {
        output::print(&text)?;
    } else {
        output::show(&text)?;
    }
    Ok(Exit::Done)
}

/// The one with this id or name, else those with all these words, else an error that names near ones.
fn select(words: &[String]) -> Result<Selection> {
    let word = words.join(" ");
    if let Some(cause) = diagnose::cause(&word) {
        return Ok(Selection { causes: vec![cause], checks: Vec::new() });
    }
    let by_name = || CHECKS.iter().copied().find(|check| check.name.eq_ignore_ascii_case(&word));
    if let Some(check) = probe::explain(&word.to_ascii_uppercase()).or_else(by_name) {
        return Ok(Selection { causes: Vec::new(), checks: vec![check] });
    }
    let asked: Vec<String> = word.split_whitespace().map(str::to_lowercase).collect();
    let has_all = |text: &str| {
        let text = text.to_lowercase();
        asked.iter().all(|word| text.contains(word.as_str()))
    };
    let causes = CAUSES.iter().copied();
    let found = Selection {
        causes: causes
            .filter(|cause| has_all(&format!("{} {} {}", cause.id, cause.name, cause.summary)))
            .collect(),
        checks: CHECKS
            .iter()
            .copied()
            .filter(|check| has_all(&format!("{} {}", check.id, check.name)))
            .collect(),
    };
    if found.causes.is_empty() && found.checks.is_empty() {
        let near = near::near(&word).join(", ");
        let text = format!("there is no cause or check `{word}`; near: {near}; `h2lab explain` lists all");
        return Err(Usage(text).into());
    }
    Ok(found)
}

/// A line for each; a star marks causes with a rule.
fn list(found: &Selection, style: TextStyle) -> String {
    let mut text = String::new();
    for (letters, subject) in FAMILIES {
        let causes: Vec<_> = found.causes.iter().filter(|cause| cause.family() == letters).collect();
        if !causes.is_empty() {
            let _ = writeln!(text, "{subject}");
        }
        for cause in causes {
            let mark = if cause.status.is_found() { "*" } else { " " };
            text += &hanging(&format!("{:8}{mark} ", cause.id), cause.summary, style);
        }
    }
    if !found.causes.is_empty() {
        text += "* a rule finds it; the page of each: h2lab explain ID\n";
    }
    for (group, letters) in Group::ALL {
        let checks: Vec<_> = found.checks.iter().filter(|check| Group::of(check.id) == Some(group)).collect();
        if !checks.is_empty() {
            let _ = writeln!(text, "Checks of `h2lab probe`, {letters}: {group}");
        }
        for check in checks {
            let about = format!("{} ({})", check.name, check.severity);
            text += &hanging(&format!("{:8}  ", check.id), &about, style);
        }
    }
    text
}

fn cause_page(cause: &CauseMeta) -> String {
    let (id, name, status, since) = (cause.id, cause.name, cause.status.word(), cause.since);
    let mut text =
        format!("{id} {name} ({status}, since {since})\n\n{}\n\n## In h2lab\n\n", cause.text().trim_end());
    let mut line = |what: &str, values: Vec<&str>| {
        if !values.is_empty() {
            let _ = writeln!(text, "- {what}: {}", values.join(", "));
        }
    };
    line("how it is found", vec![&cause.status.to_string()]);
    line("checks of `h2lab probe`", cause.checks.iter().map(|check| check.id).collect());
    line("parts of a slow request (`--causes`)", cause.waits.iter().map(|kind| kind.name()).collect());
    line("limits of `h2lab bulk`", cause.limits.iter().map(|kind| kind.words()).collect());
    line("it explains", cause.supersedes.to_vec());
    line("what the experiment changes", vec![cause.knob]);
    text
}

fn check_page(check: &CheckMeta) -> String {
    let (id, name, severity, since) = (check.id, check.name, check.severity, check.since);
    format!("{id} {name} (check, {severity} if it fails, since {since})\n\n{}\n", check.page().trim_end())
}

/// docs/causes.md.
pub fn markdown() -> String {
    let mut text = "# Causes\n\nWhat h2lab knows of why HTTP/2 is slower than HTTP/1.1, or fails. `h2lab explain ID` prints the page of a cause: \
        what it is,\nits evidence, the experiment that confirms it, fixes and references. This page is generated: \
        `h2lab gen causes`.\n\n- **rule**: `compare`, `load` and `run` report it as a finding;\n- **rule of `diagnose --run`**: found \
        of a client of yours only, whose server is ours;\n- **page only**: what our records or a capture \
        would show;\n- **needs a view of the server**: the client and its link do not show it.\n"
        .to_owned();
    for (letters, subject) in FAMILIES {
        let _ = writeln!(
            text,
            "\n## {letters}: {subject}\n\n| id | name | summary | how it is found |\n|---|---|---|---|"
        );
        for cause in CAUSES.iter().filter(|cause| cause.family() == letters) {
            let _ =
                writeln!(text, "| {} | {} | {} | {} |", cause.id, cause.name, cause.summary, cause.status);
        }
    }
    text
}
