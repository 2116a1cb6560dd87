//! What the sidecar must show beside figures: suites of others, attacks, clients that nobody changed, a soak.

use anyhow::Result;

use super::super::suites::{suite, suite_with};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

const INTEGRATION: [&str; 4] = ["--package", "h2lab", "--test", "integration"];
/// Requests of the soak, and how long they may take, unless these variables say otherwise. 0 requests are as many as there are in that time.
const REQUESTS: (&str, &str) = ("H2LAB_SOAK_REQUESTS", "1000000");
const TIME: (&str, &str) = ("H2LAB_SOAK_TIME", "2h");

/// h2spec, ten times on each listener, and attacks while others are served.
pub fn attacks(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &INTEGRATION, "sidecar_attack")
}

/// Clients and servers of others.
pub fn callers(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &INTEGRATION, "sidecar_callers::")
}

/// A million requests over a link with loss.
pub fn soak(h2lab: &H2lab) -> Result<ItemOutcome> {
    let asked = |(name, default): (&'static str, &str)| {
        (name, std::env::var(name).unwrap_or_else(|_| default.to_owned()))
    };
    let asked = [REQUESTS, TIME].map(asked);
    let variables = asked.each_ref().map(|(name, value)| (*name, value.as_str()));
    suite_with(h2lab, &INTEGRATION, "sidecar_soak::", &variables)
}
