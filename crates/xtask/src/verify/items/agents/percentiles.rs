//! Percentiles of merged shares are those of all requests, as DuckDB computes them.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::doing;
use super::figures::{number, queried};
use super::fleet::{Fleet, THREE, json};
use crate::verify::binary::H2lab;
use crate::verify::items::suites::suite;
use crate::verify::outcome::ItemOutcome;

/// The percentiles, by their names in documents.
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];
/// A server that pauses makes a distribution with all kinds of values.
const PATH: &str = "/stall?every=1000&ms=40";
/// A histogram of three significant digits, and one rank.
const PRECISION: f64 = 0.002;
/// Nanoseconds are printed as µs with a digit or two.
const ROUNDING_US: f64 = 1.0;

/// Of all requests, and of those that were only counted.
pub fn percentiles(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let fleet = Fleet::of_three(h2lab)?;
    let full = loaded(&fleet, "full")?;
    for (name, share) in PERCENTILES {
        let sql = format!(
            "SELECT quantile_disc(completed_at_ns - scheduled_at_ns, {share}) / 1e3 FROM 'samples.parquet' WHERE measured"
        );
        let truth = queried(&fleet.folder().join("full"), &sql)?;
        let merged = number(&full, &format!("/latency_us/response/{name}"))?;
        let sent = number(&full, "/requests/sent")?;
        let text = format!("full: {name} {merged:.1} µs, {truth:.1} of all {sent} requests by DuckDB");
        outcome.check(is_equal(merged, truth), text);
    }
    let tail = loaded(&fleet, "tail")?;
    slowest(&mut outcome, &fleet, &tail)?;
    // That histograms are merged, and no percentiles averaged, is exact there.
    outcome.add(suite(h2lab, &["--package", "h2lab-model", "--lib"], "record::merge::")?);
    Ok(outcome)
}

/// A load whose run folder is called as its level.
fn loaded(fleet: &Fleet<'_>, level: &str) -> Result<Value> {
    doing(format!("a load of 10 s by three agents, --record {level}"));
    let (names, url) = (THREE.join(","), fleet.url(PATH)?);
    let load = ["load", "--json", "--quiet", "-c150", "-q6000", "-z10s", "--agents", &names];
    let words: Vec<&str> = load.into_iter().chain(["--record", level, "--out", level, &url]).collect();
    let document = json(&fleet.drive(&words)?)?;
    let (sent, succeeded) = (number(&document, "/requests/sent")?, number(&document, "/requests/succeeded")?);
    ensure!(sent > 50_000.0 && sent - succeeded < 1.0, "{succeeded} of {sent} requests succeeded");
    Ok(document)
}

/// The slowest requests are kept one by one at level `tail`, so that the 99.9th percentile is known besides its histogram.
fn slowest(outcome: &mut ItemOutcome, fleet: &Fleet<'_>, document: &Value) -> Result<()> {
    let sent = number(document, "/requests/sent")?;
    let place = slower_than(sent, 0.999);
    let sql = format!(
        "SELECT (completed_at_ns - scheduled_at_ns) / 1e3 FROM 'samples.parquet' WHERE measured \
         ORDER BY completed_at_ns - scheduled_at_ns DESC LIMIT 1 OFFSET {place}"
    );
    let truth = queried(&fleet.folder().join("tail"), &sql)?;
    let merged = number(document, "/latency_us/response/p999")?;
    let text =
        format!("tail: p999 {merged:.1} µs by histograms, {truth:.1} by the slowest {} requests", place + 1);
    outcome.check(is_equal(merged, truth), text);
    Ok(())
}

/// How many of `all` requests are slower than the one at this quantile.
fn slower_than(all: f64, quantile: f64) -> u64 {
    (all - (all * quantile).ceil()).max(0.0) as u64
}

fn is_equal(merged: f64, truth: f64) -> bool {
    (merged - truth).abs() <= truth * PRECISION + ROUNDING_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_quantile_counts_from_the_slowest() {
        assert_eq!(
            (slower_than(1_000.0, 0.999), slower_than(60_000.0, 0.999), slower_than(1.0, 0.5)),
            (1, 60, 0)
        );
    }

    #[test]
    fn percentiles_are_equal_within_three_digits_and_no_further() {
        assert!(is_equal(10_020.0, 10_000.0) && !is_equal(10_022.0, 10_000.0));
        assert!(is_equal(1.9, 1.0) && !is_equal(2.1, 1.0));
    }
}
