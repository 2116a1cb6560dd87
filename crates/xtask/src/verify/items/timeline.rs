//! The waterfall of early hints and early push: the shipped study, and chains of real proxies.

use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::suites::suite;
use super::{Item, item};
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::outcome::Outcome;

/// The promises of this file.
pub fn items() -> Vec<Item> {
    vec![
        item(
            "timeline",
            "the waterfall over h1, h1s, h2, h2c and h3; pushes taken, refused; several runs; pictures; chains of real \
             proxies: who forwards a 103, swallows it, pushes instead; nginx 1.22's broken 103 is found",
            suites,
        ),
        item(
            "early-push",
            "Apache's table, medians of 11: the promise >= 50 ms before the response for the slow proxy and the CGI with \
             H2PushResource, < 5 ms with Header add; backends over h1 and h2c; every other server has its rows",
            early_push,
        ),
    ]
}

fn suites(h2lab: &H2lab) -> Result<Outcome> {
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], "timeline::")
}

/// The document of a study, as far as it is read here.
#[derive(Debug, Deserialize)]
struct Table {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    server: String,
    backend: Option<String>,
    source: String,
    announcement: String,
    setting: String,
    promise_lead_ms: Option<f64>,
    early_hints_lead_ms: Option<f64>,
    answered: u32,
    runs: u32,
}

/// Milliseconds by which a promise has to come before the response of something slow, and at most if it comes with it.
const EARLY_MS: f64 = 50.0;
const WITH_IT_MS: f64 = 5.0;

fn early_push(h2lab: &H2lab) -> Result<Outcome> {
    let scenario = process::workspace().join("scenarios/early-push.toml");
    let output = Command::new(h2lab.path())
        .arg("run")
        .arg(scenario)
        .arg("--json")
        .output()
        .context("h2lab does not start")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let table: Table = serde_json::from_slice(&output.stdout).with_context(|| format!("no table: {said}"))?;
    let mut outcome = Outcome::default();
    for row in &table.rows {
        let behind = row.backend.as_deref().unwrap_or("-");
        let lead = row.promise_lead_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let hints = row.early_hints_lead_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let text = format!(
            "{} {} {} (behind: {behind}): promise {lead} ms and 103 {hints} ms before the response, {}/{} answered",
            row.server, row.source, row.setting, row.answered, row.runs
        );
        let is_slow = matches!(row.source.as_str(), "slow-proxy" | "cgi");
        match (row.server.as_str(), row.announcement.as_str()) {
            ("apache", "early") if is_slow => outcome.check(row.promise_lead_ms >= Some(EARLY_MS), text),
            ("apache", "link") => {
                outcome.check(row.promise_lead_ms.is_some_and(|lead| lead < WITH_IT_MS), text);
            }
            _ => outcome.note(text),
        }
    }
    let of = |server: &str, backend: &str| {
        table.rows.iter().any(|row| row.server == server && row.backend.as_deref() == Some(backend))
    };
    for server in ["apache", "caddy", "haproxy", "nghttpx", "envoy"] {
        outcome.check(of(server, "h1") && of(server, "h2c"), format!("{server} in front of h1 and of h2c"));
    }
    for server in ["nginx-proxy", "h2o"] {
        outcome.check(of(server, "h1"), format!("{server} in front of h1, which is all that it speaks"));
    }
    let broken =
        table.rows.iter().find(|row| row.server == "nginx-proxy" && row.announcement == "backend-hints");
    outcome.check(
        broken.is_some_and(|row| row.answered == 0),
        "nginx never answers when a 103 comes from behind",
    );
    Ok(outcome)
}
