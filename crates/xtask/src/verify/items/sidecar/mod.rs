//! The sidecar: what it passes on, what it loses at a GOAWAY, how it does where packets are lost.

use anyhow::{Context, Result};

mod shows;

use super::suites::suite;
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::document::Cell;
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

/// The p99 through two sidecars of ours in HTTP/2 and in HTTP/1.1, and over fixed numbers of connections, all in one run.
pub fn lossy(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let load = [
        "--topology=two-sidecars",
        "--sidecar=h2lab",
        "--congestion=cubic",
        "--proto=h1,h2c",
        "-q=1000",
        "-z=30s",
        "--repetitions=3",
    ];
    // Of `h2c`, one connection stands for the number that the path needs; without loss fixed numbers tell nothing.
    for (delay, loss, connections) in
        [("12.5ms", "3%", "1,4,8,16,32"), ("5ms", "3%", "1,4,8,16,32"), ("12.5ms", "0%", "1")]
    {
        let condition = [format!("--delay={delay}"), format!("--loss={loss}"), format!("-c={connections}")];
        let words: Vec<&str> = load.into_iter().chain(condition.iter().map(String::as_str)).collect();
        let document = h2lab.measure("compare", &words)?;
        let p99 = |protocol: &str, n| document.cell(protocol, n)?.p99_ms();
        let (http1, own) = (p99("h1", None)?, p99("h2c", Some(1))?);
        if loss == "0%" {
            let cell = document.cell("h2c", Some(1))?;
            let opened = cell.hop_connections.context("a pair without connections between its sidecars")?;
            outcome.check(
                opened <= 2 * cell.repetitions,
                format!("{delay}, {loss}: {opened} connections in {} repetitions", cell.repetitions),
            );
            outcome.check(
                own <= 1.02 * http1,
                format!("{delay}, {loss}: adaptive {own:.1} ms, h1 {http1:.1}: {:.2} of h1", own / http1),
            );
            continue;
        }
        // A number at which the queue grows without end has no p99.
        let fixed = [4, 8, 16, 32].map(|n| p99("h2c", Some(n)).unwrap_or(f64::INFINITY));
        let best = fixed.into_iter().fold(f64::INFINITY, f64::min);
        let figures = format!("{delay}, {loss}: adaptive {own:.1} ms, h1 {http1:.1}, 4/8/16/32 {fixed:.1?}");
        outcome.check(own <= 0.4 * http1, format!("{figures}: {:.2} of h1", own / http1));
        outcome.check(own <= 1.05 * best, format!("{figures}: {:.2} of the best fixed number", own / best));
    }
    Ok(outcome)
}
