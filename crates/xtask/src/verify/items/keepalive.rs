//! Proxies that end connections after a number of requests: the shipped scenarios against the real programs.

use anyhow::{Context, Result};

use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::document::{Cell, Document};
use crate::verify::outcome::ItemOutcome;

/// The proxies and their settings.
pub const PROXIES: [(&str, &str); 2] =
    [("nginx-proxy", "keepalive_requests"), ("envoy", "max_requests_per_connection")];

const QUOTA_RULE: &str = "CONN101";
const LIMIT: u32 = 1000;
/// A limit that no cell reaches.
const NO_LIMIT: u32 = 100_000;
/// Repetitions of a cell in the shipped scenarios.
const REPETITIONS: u64 = 2;
/// Unused dials of a client that does not stampede: one at the end of each repetition.
const SPARE: u64 = REPETITIONS;

/// The scenario of a proxy, its matrix made smaller by `more`.
fn measure(h2lab: &H2lab, proxy: &str, more: &[&str]) -> Result<Document> {
    let file = match proxy {
        "envoy" => "keepalive-requests-envoy.toml",
        _ => "keepalive-requests.toml",
    };
    let path = process::workspace().join("scenarios").join(file);
    let path = path.to_str().context("the workspace's path is not UTF-8")?;
    h2lab.measure("run", &[&[path][..], more].concat())
}

fn describe(cell: &Cell) -> String {
    let limit = cell.max_requests_per_connection.map_or("none".to_owned(), |limit| limit.to_string());
    format!(
        "{} at {}, limit {limit}, {}: {:.0} requests/s, {} failed, {} connections, {} of no use",
        cell.protocol,
        cell.target,
        cell.dial_policy.as_deref().unwrap_or("its own"),
        cell.throughput_rps,
        cell.requests.failed,
        cell.connections_opened,
        cell.useless_dials
    )
}

/// Limit, none, and the service alone.
pub fn scenario(h2lab: &H2lab, proxy: &str, setting: &str) -> Result<ItemOutcome> {
    let document = measure(h2lab, proxy, &["--max-requests-per-connection=100000,1000"])?;
    let mut outcome = ItemOutcome::default();
    for cell in &document.cells {
        outcome.check(cell.requests.failed == 0, describe(cell));
        let is_used_up = cell.max_requests_per_connection == Some(LIMIT) && cell.protocol == "h2";
        if is_used_up {
            // Each connection carries the limit at most, and one round trip of requests more.
            let fewest = cell.requests.sent / u64::from(LIMIT) * 9 / 10;
            outcome.check(cell.connections_opened >= fewest, format!("at least {fewest} connections"));
            check_named(&mut outcome, cell, setting);
            // A client that dials once for all waiting requests may have one unused when the load ends, in each repetition.
            let (useless, is_stampede) =
                (cell.useless_dials, cell.dial_policy.as_deref() == Some("stampede"));
            let is_so = if is_stampede { useless > cell.connections_opened / 2 } else { useless <= SPARE };
            outcome.check(is_so, "most dials are of no use in a stampede, hardly any with single flight");
        } else if cell.protocol == "h2" {
            outcome.check(
                cell.connections_opened == REPETITIONS,
                "one connection in each repetition, as asked for",
            );
            outcome.check(cell.finding(QUOTA_RULE).is_none(), format!("{QUOTA_RULE} is silent"));
        }
    }
    for policy in ["single-flight", "stampede"] {
        let of = |limit| document.cells.iter().find(|cell| is(cell, proxy, limit, policy));
        let (limited, free) = of(LIMIT).zip(of(NO_LIMIT)).context("a cell is missing")?;
        let ratio = limited.throughput_rps / free.throughput_rps;
        let rendered = format!("h2, {policy}: limit {LIMIT} serves {ratio:.2} of limit {NO_LIMIT}");
        // Envoy's twin has no delay, so that a stampede is small and costs little.
        if policy == "stampede" && proxy == "nginx-proxy" {
            outcome.check(ratio < 0.95, rendered);
        } else {
            outcome.note(rendered);
        }
    }
    Ok(outcome)
}

fn is(cell: &Cell, proxy: &str, limit: u32, policy: &str) -> bool {
    let at = cell.target == proxy && cell.protocol == "h2" && cell.dial_policy.as_deref() == Some(policy);
    at && cell.max_requests_per_connection == Some(limit)
}

/// Checks that the rule names the limit, within 2 % where the server does not say it exactly, and the setting.
fn check_named(outcome: &mut ItemOutcome, cell: &Cell, setting: &str) {
    let Some(finding) = cell.finding(QUOTA_RULE) else {
        return outcome.check(false, format!("{QUOTA_RULE} is silent"));
    };
    let rendered = finding.evidence.first().map_or(0.0, |evidence| evidence.value);
    let limit = f64::from(LIMIT);
    outcome.check((limit..=limit * 1.02).contains(&rendered), finding.symptom.clone());
    let named = finding.fixes.iter().any(|fix| fix.setting.contains(setting));
    outcome.check(named, format!("the advice names {setting}"));
}

/// What a client loses that does not send again.
pub fn no_replay(h2lab: &H2lab) -> Result<ItemOutcome> {
    let more = [
        "--origin=nginx-proxy",
        "--proto=h2",
        "--max-requests-per-connection=1000",
        "--dial-policy=stampede",
        "--no-replay",
    ];
    let document = measure(h2lab, "nginx-proxy", &more)?;
    let mut outcome = ItemOutcome::default();
    for cell in &document.cells {
        outcome.check(cell.requests.failed > 0, describe(cell));
    }
    Ok(outcome)
}
