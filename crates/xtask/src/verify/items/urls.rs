//! Live servers over the network as they are: a real nginx on loopback.

use anyhow::{Context, Result};

use crate::verify::binary::H2lab;
use crate::verify::document::Cell;
use crate::verify::nginx::{Listen, Nginx};
use crate::verify::outcome::ItemOutcome;

/// More requests per connection than any cell here sends.
const NO_QUOTA: u32 = 1_000_000;

/// The rule that names a quota of requests per connection.
const QUOTA_RULE: &str = "CONN101";

fn describe(cell: &Cell) -> String {
    let requests = &cell.requests;
    let response = cell.latency_us.response.as_ref();
    let p50 =
        response.map_or_else(|| "no answer".to_owned(), |response| format!("p50 {:.0} us", response.p50));
    format!(
        "{}: {}, {} of {} requests succeeded, {} failed, {} connections opened, {p50}",
        cell.label(),
        cell.state,
        requests.succeeded,
        requests.sent,
        requests.failed,
        cell.connections_opened
    )
}

/// A TLS nginx with and without a quota of 1000 requests per connection.
pub fn quota(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    for keepalive_requests in [1000, NO_QUOTA] {
        let nginx = Nginx::start(&[Listen::Tls], keepalive_requests)?;
        let url = format!("https://127.0.0.1:{}/", nginx.port(0));
        let document = h2lab.compare(&["-k", "-q=1000", "-z=6s", "--repetitions=1", "--seed=1", &url])?;
        outcome.note(format!("keepalive_requests {keepalive_requests}"));
        outcome.check(document.cell("h1s", None).is_ok(), "h1s was found");
        let cell = document.cell("h2", Some(1))?;
        let has_quota = keepalive_requests != NO_QUOTA;
        // Six seconds at 1,000/s take six connections of 1,000 requests each, plus those of the warm-up.
        let as_expected = if has_quota { cell.connections_opened >= 6 } else { cell.connections_opened == 1 };
        outcome.check(as_expected, describe(cell));
        match cell.finding(QUOTA_RULE) {
            Some(finding) if has_quota => {
                outcome.check(finding.symptom.replace(',', "").contains("1000"), finding.symptom.clone());
                let fix = finding.fixes.iter().find(|fix| fix.product == "nginx");
                let fix = fix.context("there is no advice for nginx")?;
                outcome.check(fix.setting.contains("keepalive_requests"), format!("nginx: {}", fix.setting));
            }
            Some(finding) => outcome.check(false, format!("fires without a quota: {}", finding.symptom)),
            None => outcome.check(!has_quota, format!("{QUOTA_RULE} is silent")),
        }
    }
    Ok(outcome)
}

/// An h1 port beside an h2c port.
pub fn two(h2lab: &H2lab) -> Result<ItemOutcome> {
    let nginx = Nginx::start(&[Listen::H1, Listen::H2c], NO_QUOTA)?;
    let url = |n| format!("http://127.0.0.1:{}/", nginx.port(n));
    let document = h2lab.compare(&["-z=3s", "--seed=1", &url(0), &url(1)])?;
    let mut outcome = ItemOutcome::default();
    for protocol in ["h1", "h2c"] {
        let cell = document.cell(protocol, None)?;
        outcome.check(cell.state == "ok" && cell.requests.failed == 0, describe(cell));
    }
    outcome
        .check(!document.verdicts.is_empty(), format!("{} verdicts across the two", document.verdicts.len()));
    Ok(outcome)
}
