//! `h2lab compare`: the main job, over an emulated link or against live servers.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use clap::Args;
use h2lab_base::units::{format_duration, parse_duration};
use h2lab_model::scenario::{Cell, Scenario};
use serde_json::Value;

use super::cells::{CellArgs, CheckedScenario};
use super::flags::Flags;
use super::output::OutputArgs;
use super::reach::{self, ReachArgs};
use super::resume::{FolderArgs, Unfinished};
use super::{Exit, discover, help, tls};
use crate::run::execute::Live;
use crate::run::messages::{Failure, FailureKind};

/// The embedded scenario: `h2lab run scenarios/compare.toml` gives the same cells.
const SCENARIO: &str = include_str!("../../../../scenarios/compare.toml");

/// Compare HTTP/2 with HTTP/1.1: over an emulated lossy link, or against live servers
///
/// Without a URL, starts the built-in origin behind an emulated link and compares HTTP/1.1 with HTTP/2 on 1, 4 and 16
/// connections, without loss and with 3 %, in about a minute. No root is needed; every flag replaces a value of
/// scenarios/compare.toml; several values of one flag are compared with each other.
///
/// With URLs, finds which protocols each server speaks and measures them without emulation, by default at low load: GET, 50
/// requests per second, one HTTP/2 connection.
///
/// With SSLKEYLOGFILE set, TLS secrets are written to that file, for Wireshark.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab compare", "the main job, with the defaults"),
        ("h2lab compare --loss 0%,1%,3% -c 1,16 -z 10s", "more losses, longer repetitions"),
        ("h2lab compare --origin nginx --congestion cubic,bbr", "Debian's nginx behind the link"),
        ("h2lab compare https://service.example/", "a live server, in each protocol that it speaks"),
        ("h2lab compare http://service:8080/ http://proxy:8080/", "direct beside through the proxy"),
        ("h2lab compare --resume latest", "resume the last run, which was interrupted"),
        ("h2lab compare --fail-if 'h2c.p99 > 1.2*h1.p99' -o report.html", "as a gate, with a report"),
    ],
))]
pub struct CompareArgs {
    /// Live servers (http:// or https://); several are compared with each other
    #[arg(id = "live", value_name = "URL", value_parser = reach::url_text())]
    pub urls: Vec<String>,
    #[command(flatten)]
    pub cells: CellArgs,
    #[command(flatten)]
    pub reach: Flags<ReachArgs>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub folder: FolderArgs,
}

/// Runs the comparison.
pub fn main(args: &CompareArgs, command_line: Vec<String>) -> Result<Exit> {
    args.output.validate()?;
    tls::announce_key_log()?;
    let unfinished = args.folder.unfinished()?;
    let (scenario, live) = if args.urls.is_empty() {
        (emulated(args, unfinished.as_ref())?, Live::default())
    } else {
        let mut scenario = args.cells.applied_live(&discover::gentle())?;
        let protocol = &args.cells.client.protocol;
        let live = discover::find(&mut scenario, &args.urls, protocol, &args.reach)?;
        if protocol.either_scheme().is_empty() {
            has_pair(&scenario)?;
        }
        let remarks = [twice(&args.urls), discover::too_long(&scenario, &live)];
        remarks.iter().flatten().for_each(|remark| super::note(remark));
        (scenario, live)
    };
    args.cells.check_protocols(&scenario)?;
    let (out, quiet) = (args.folder.out.as_deref(), args.folder.quiet);
    CheckedScenario { scenario, live, out, quiet, unfinished, command_line }.run(&args.output)
}

/// A note if a URL is given more than once: that may be a test of the method, and is more often a mistake.
fn twice(urls: &[String]) -> Option<String> {
    let again = urls.iter().enumerate().find(|(place, url)| urls[..*place].contains(url));
    again.map(|(_, url)| {
        format!("{url} is given twice: it is measured twice and compared with itself, and no difference is expected")
    })
}

/// Refuses a comparison of a single cell, if no protocol was named.
fn has_pair(scenario: &Scenario) -> Result<(), Failure> {
    let plan = scenario.plan();
    let is_beside =
        |cell: &Cell| plan.iter().any(|other| other.group == cell.group && other.index != cell.index);
    if plan.iter().any(is_beside) {
        return Ok(());
    }
    let live: Vec<String> = scenario
        .matrix
        .live
        .iter()
        .map(|live| format!("{} speaks {} only", live.url, live.protocols))
        .collect();
    let (live, protocols) = (live.join("; "), &scenario.matrix.protocols);
    let message =
        format!("nothing to compare: {live}; `h2lab load` measures it, and so does --proto {protocols}");
    Err(Failure { kind: FailureKind::Unreachable, message })
}

/// The scenario over an emulated link; of a resumed run, its own.
fn emulated(args: &CompareArgs, unfinished: Option<&Unfinished>) -> Result<Scenario> {
    args.reach.refuse(&[], "is for live servers: give a URL")?;
    let scenario = match unfinished {
        Some(unfinished) => unfinished.scenario()?,
        None => embedded()?,
    };
    args.cells.applied(&scenario, unfinished.is_some())
}

/// The values that flags replace, by the flag's id: for the help.
pub(super) fn defaults() -> BTreeMap<&'static str, String> {
    let scenario =
        embedded().ok().and_then(|scenario| serde_json::to_value(scenario).ok()).unwrap_or_default();
    let text = |value: &Value| match value {
        Value::String(text) => parse_duration(text).map_or_else(|_| text.clone(), format_duration),
        Value::Number(number) => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    };
    let of = |(id, table, key): (&'static str, &str, &str)| {
        let value = match scenario.get(table)?.get(key)? {
            Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(","),
            one => text(one),
        };
        Some((id, value))
    };
    let mut all: BTreeMap<_, _> = [
        ("loss", "link", "loss"),
        ("delay", "link", "delay"),
        ("origin", "matrix", "origin"),
        ("protocols", "matrix", "protocols"),
        ("connections", "matrix", "connections"),
        ("rate", "work", "rate"),
        ("measure", "work", "measure"),
    ]
    .into_iter()
    .filter_map(of)
    .collect();
    all.insert("bandwidth", "unlimited".to_owned());
    all
}

/// What is compared without flags.
pub(super) fn embedded() -> Result<Scenario> {
    Scenario::from_toml(SCENARIO).context("the embedded scenario")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_scenario_is_the_one_that_the_design_names() {
        let scenario = Scenario::from_toml(SCENARIO).unwrap();
        let plan = scenario.plan();
        assert_eq!(plan.len(), 16, "two losses, four ways to connect, two repetitions");
        let seconds =
            h2lab_model::scenario::Estimate::new(&plan).left(std::time::Duration::ZERO).as_secs_f64();
        assert!((50.0..=61.0).contains(&seconds), "at most a minute, not {seconds} s");
    }

    #[test]
    fn a_url_that_is_given_twice_is_told_of() {
        let urls = |texts: &[&str]| twice(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(urls(&["http://a/", "http://b/", "http://a/b"]), None);
        let told = urls(&["http://a/", "http://b/", "http://b/"]).unwrap();
        assert!(told.starts_with("http://b/ is given twice"), "{told}");
    }
}
