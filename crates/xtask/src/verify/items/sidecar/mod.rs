//! The sidecar: what it passes on, what it loses at a GOAWAY, how it does where packets are lost.

use anyhow::{Context, Result};

mod shows;

use super::suites::suite;
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::document::{Cell, Document};
use crate::verify::outcome::ItemOutcome;
pub use shows::{attacks, callers, soak};

/// Our own, among the sidecars of a scenario.
const OURS: &str = "h2lab";
/// A limit that no cell reaches.
const NO_LIMIT: u32 = 10_000_000;

/// Its integration tests, with clients and servers that are not ours.
pub fn behaviour(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], "sidecar::")
}

/// The number of connections and the choice among them, in virtual time.
pub fn pool(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab-proxy", "--test", "pool"], "s_")
}

fn name(cell: &Cell) -> &str {
    cell.sidecar.as_ref().map_or("none", |sidecar| &sidecar.name)
}

/// Requests that are lost where connections to the instance end after some number of them.
pub fn goaway(h2lab: &H2lab) -> Result<ItemOutcome> {
    let path = process::workspace().join("scenarios/sidecar-goaway.toml");
    let document = h2lab.measure("run", &[path.to_str().context("the workspace's path is not UTF-8")?])?;
    let mut outcome = ItemOutcome::default();
    for cell in &document.cells {
        let limit = cell.max_requests_per_connection.filter(|limit| *limit != NO_LIMIT);
        let of = limit.map_or("no limit".to_owned(), |limit| format!("limit {limit}"));
        let p99 = cell.p99_ms()?;
        let words = format!(
            "{} {of}: {} of {} failed, {:.0} requests/s, p99 {p99:.1} ms",
            name(cell),
            cell.requests.failed,
            cell.requests.sent,
            cell.throughput_rps
        );
        if name(cell) != OURS {
            outcome.note(words);
            continue;
        }
        let is_free =
            |other: &&Cell| name(other) == OURS && other.max_requests_per_connection == Some(NO_LIMIT);
        let free =
            document.cells.iter().find(is_free).context("the cell without a limit is missing")?.p99_ms()?;
        outcome.check(cell.requests.failed == 0, words);
        outcome.check(
            p99 <= 1.2 * free,
            format!("{of}: {:.2} of the p99 without a limit, {free:.1} ms", p99 / free),
        );
    }
    Ok(outcome)
}

/// The p99 through two sidecars of ours in HTTP/2 and in HTTP/1.1, and over fixed numbers of connections.
pub fn lossy(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let load = [
        "--topology=two-sidecars",
        "--sidecar=h2lab",
        "--congestion=cubic",
        "-q=1000",
        "-z=20s",
        "--repetitions=2",
    ];
    for (delay, loss) in [("12.5ms", "3%"), ("5ms", "3%"), ("12.5ms", "0%")] {
        let condition = [format!("--delay={delay}"), format!("--loss={loss}")];
        let measure = |protocols: &str, connections: &str| -> Result<Document> {
            let more = [format!("--proto={protocols}"), format!("-c={connections}")];
            let words: Vec<&str> =
                load.into_iter().chain(condition.iter().chain(&more).map(String::as_str)).collect();
            h2lab.measure("compare", &words)
        };
        let (adaptive, fixed) = (measure("h1,h2c", "1")?, measure("h2c", "4,8,16,32")?);
        let p99 = |document: &Document, protocol: &str, n: u32| document.cell(protocol, Some(n))?.p99_ms();
        let http1 = adaptive.cell("h1", None)?.p99_ms()?;
        let own = p99(&adaptive, "h2c", 1)?;
        let all = [4, 8, 16, 32].map(|n| p99(&fixed, "h2c", n).unwrap_or(f64::INFINITY));
        let best = all.into_iter().fold(f64::INFINITY, f64::min);
        let figures = format!("{delay}, {loss}: adaptive {own:.1} ms, h1 {http1:.1}, 4/8/16/32 {all:.1?}");
        if loss == "0%" {
            outcome.check(own <= 1.02 * http1, figures);
        } else {
            outcome.check(own <= 0.4 * http1, format!("{figures}: {:.2} of h1", own / http1));
            outcome
                .check(own <= 1.05 * best, format!("{figures}: {:.2} of the best fixed number", own / best));
        }
    }
    Ok(outcome)
}
