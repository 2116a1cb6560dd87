//! The waterfall of early hints and early push: the shipped study, and chains of real proxies.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::suites::suite;
use super::{Item, item};
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

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
             H2PushResource or a 103 from behind, < 5 ms with Header add; Go's promise and its and HAProxy's 103 >= 50 ms; backends over h1 and h2c; every other server has its rows",
            early_push,
        ),
    ]
}

fn suites(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], "timeline::")
}

/// The document of a study, as far as it is read here.
#[derive(Debug, Deserialize)]
struct Table {
    runs: u32,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    server: String,
    backend: Option<String>,
    early_hints: Option<bool>,
    source: String,
    announcement: String,
    setting: String,
    promise_lead_ms: Option<f64>,
    early_hints_lead_ms: Option<f64>,
    answered: u32,
    runs: u32,
}

/// What a row of Apache's is: where the page is from, how it is announced, what is behind, and whether 103 is on.
type Kind<'a> = (&'a str, &'a str, Option<&'a str>, Option<bool>);

/// Every row that Apache's table must have.
fn apache_rows() -> BTreeSet<Kind<'static>> {
    let mut rows = BTreeSet::new();
    for hints in [Some(false), Some(true)] {
        for announcement in ["link", "early"] {
            rows.extend(["file", "cgi"].map(|source| (source, announcement, None, hints)));
        }
        for behind in [Some("h1"), Some("h2c")] {
            for announcement in ["link", "early"] {
                rows.extend(["proxy", "slow-proxy"].map(|source| (source, announcement, behind, hints)));
            }
            rows.extend(["backend-link", "backend-hints"].map(|by| ("slow-proxy", by, behind, hints)));
        }
    }
    rows
}

/// Apache's table is complete: no row is missing, none is duplicated, and none has fewer runs.
fn check_apache(table: &Table, outcome: &mut ItemOutcome) {
    let rows: Vec<&Row> = table.rows.iter().filter(|row| row.server == "apache").collect();
    let kinds: BTreeSet<Kind<'_>> = rows
        .iter()
        .map(|row| (row.source.as_str(), row.announcement.as_str(), row.backend.as_deref(), row.early_hints))
        .collect();
    let expected = apache_rows();
    outcome.check(
        kinds == expected && rows.len() == expected.len(),
        format!("Apache has its {} rows: {} are there", expected.len(), rows.len()),
    );
    let complete = rows.iter().filter(|row| (row.runs, row.answered) == (RUNS, RUNS)).count();
    outcome.check(
        table.runs == RUNS && complete == rows.len(),
        format!("{complete} of {} rows of Apache's are of {RUNS} runs that were all answered", rows.len()),
    );
}

/// Runs of each row.
const RUNS: u32 = 11;

/// Milliseconds by which a promise has to come before the response of something slow, and at most if it comes with it.
const EARLY_MS: f64 = 50.0;
const WITH_IT_MS: f64 = 5.0;

fn early_push(h2lab: &H2lab) -> Result<ItemOutcome> {
    let scenario = process::workspace().join("scenarios/early-push.toml");
    let output = Command::new(h2lab.path())
        .arg("run")
        .arg(scenario)
        .arg("--json")
        .output()
        .context("h2lab does not start")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut outcome = ItemOutcome::default();
    outcome.check(output.status.success(), format!("it ends in order: {}", output.status));
    let table: Table = serde_json::from_slice(&output.stdout).with_context(|| format!("no table: {said}"))?;
    check_apache(&table, &mut outcome);
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
            ("apache", "early" | "backend-hints") if is_slow => {
                outcome.check(row.promise_lead_ms >= Some(EARLY_MS), text);
            }
            ("apache", "link" | "backend-link") => {
                outcome.check(row.promise_lead_ms.is_some_and(|lead| lead < WITH_IT_MS), text);
            }
            _ if row.setting == "Pusher.Push" => outcome.check(row.promise_lead_ms >= Some(EARLY_MS), text),
            _ if ["WriteHeader(103)", "http-request early-hint Link"].contains(&row.setting.as_str()) => {
                outcome.check(row.early_hints_lead_ms >= Some(EARLY_MS), text);
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
    for server in ["go", "origin"] {
        let rows = table.rows.iter().filter(|row| row.server == server && row.answered == RUNS).count();
        outcome.check(rows == 3, format!("{server}, which answers by itself: {rows} of 3 ways"));
    }
    let broken =
        table.rows.iter().find(|row| row.server == "nginx-proxy" && row.announcement == "backend-hints");
    outcome.check(
        broken.is_some_and(|row| row.answered == 0),
        "nginx never answers when a 103 comes from behind",
    );
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(runs: u32) -> Table {
        let row = |(source, announcement, backend, early_hints): Kind<'_>| Row {
            server: "apache".to_owned(),
            backend: backend.map(str::to_owned),
            early_hints,
            source: source.to_owned(),
            announcement: announcement.to_owned(),
            setting: String::new(),
            promise_lead_ms: None,
            early_hints_lead_ms: None,
            answered: runs,
            runs,
        };
        Table { runs, rows: apache_rows().into_iter().map(row).collect() }
    }

    fn passes(table: &Table) -> bool {
        let mut outcome = ItemOutcome::default();
        check_apache(table, &mut outcome);
        outcome.holds()
    }

    #[test]
    fn a_table_without_a_row_or_a_run_does_not_pass() {
        assert_eq!(apache_rows().len(), 32);
        assert!(passes(&table(RUNS)));
        assert!(!passes(&Table { runs: RUNS, rows: Vec::new() }));
        assert!(!passes(&table(3)));
        let mut lacking = table(RUNS);
        lacking.rows.pop();
        assert!(!passes(&lacking));
        let mut lost = table(RUNS);
        lost.rows[5].answered = 10;
        assert!(!passes(&lost));
    }
}
