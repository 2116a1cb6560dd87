//! Promises of `h2lab probe`.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Item, item, suites};
use crate::generators::Origin;
use crate::verify::binary::H2lab;
use crate::verify::nginx::{Listen, Nginx};
use crate::verify::outcome::ItemOutcome;

/// All of them.
pub fn items() -> Vec<Item> {
    vec![
        item(
            "keepalive-1000",
            "nginx with keepalive_requests 1000: measured exactly, over TLS and in clear",
            |h2lab| quota(h2lab, 1000),
        ),
        item("keepalive-137", "nginx with keepalive_requests 137: the same", |h2lab| quota(h2lab, 137)),
        item("origin", "the origin probed against itself, with all attacks: clean", origin),
        item(
            "probe-tests",
            "limits, readiness, forms, the target authorization: the tests that CI runs",
            |h2lab| suites::suite(h2lab, &["--package", "h2lab", "--test", "integration"], "probe::"),
        ),
    ]
}

/// Probes `url` with `arguments`; the document.
fn probe(h2lab: &H2lab, url: &str, arguments: &[&str]) -> Result<Value> {
    let mut words: Vec<String> =
        ["probe", "-k", "--json", "--i-own-this-host", url].map(str::to_owned).to_vec();
    words.extend(arguments.iter().map(|&word| word.to_owned()));
    let run = h2lab.run(Path::new("."), &words, "")?;
    ensure!(
        run.code == Some(0),
        "`h2lab {}` ended with {:?}: {}",
        words.join(" "),
        run.code,
        run.stderr.trim()
    );
    serde_json::from_str(&run.stdout).context("stdout is no JSON document")
}

fn quota(h2lab: &H2lab, keepalive_requests: u32) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let nginx = Nginx::start(&[Listen::Tls, Listen::H2c, Listen::H1], keepalive_requests)?;
    for (n, scheme, key) in [
        (0, "https", "requests_per_connection"),
        (0, "https", "h1_requests_per_connection"),
        (1, "http", "requests_per_connection"),
        (2, "http", "h1_requests_per_connection"),
    ] {
        let url = format!("{scheme}://{}:{}/", Ipv4Addr::LOCALHOST, nginx.port(n));
        let found = probe(h2lab, &url, &["--idle=100ms"])?;
        let value = found["limits"][key]["value"].as_u64();
        let holds = value == Some(u64::from(keepalive_requests));
        outcome.check(holds, format!("{url} {key}: {}", found["limits"][key]));
    }
    Ok(outcome)
}

fn origin(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let origin = Origin::start(h2lab)?;
    for (protocol, arguments) in [("h2c", &["--idle=2s", "--resistance"][..]), ("h2", &["--idle=2s"])] {
        let url = origin.url(protocol, "/");
        let found = probe(h2lab, &url, arguments)?;
        let checks = found["checks"].as_array().context("the document has no checks")?;
        let failed: Vec<&Value> = checks.iter().filter(|check| check["verdict"] == "fail").collect();
        outcome.check(failed.is_empty(), format!("{url}: {} checks, {} failed", checks.len(), failed.len()));
        for check in failed {
            outcome.check(false, format!("{}: {}", check["id"], check["summary"]));
        }
    }
    Ok(outcome)
}
