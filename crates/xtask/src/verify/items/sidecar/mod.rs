//! The sidecar: what it passes on, what it loses at a GOAWAY, how it does where packets are lost.

use std::num::NonZero;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

mod lossy;
mod shows;

use super::suites::{Tests, suite};
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::document::Cell;
use crate::verify::outcome::ItemOutcome;
pub use lossy::{clean, lossy, lossy_near, pairs, step};
pub use shows::{attacks, callers, soak};

/// Our own, among the sidecars of a scenario.
const OURS: &str = "h2lab";
/// A limit that no cell reaches.
const NO_LIMIT: u32 = 10_000_000;
/// Requests of ours at each limit, none of which may fail, and the time that they take at 20,000/s and less.
const REQUESTS: u64 = 1_000_000;
const REQUESTS_TAKE: &str = "-z=70s";

/// All of its integration tests that are not an item of their own, with clients and servers that are not ours.
pub fn behaviour(h2lab: &H2lab) -> Result<ItemOutcome> {
    const OTHERS: [&str; 3] = ["sidecar_attack", "sidecar_callers::", "sidecar_soak::"];
    let tests = Tests { skip: &OTHERS, ..Tests::from("sidecar") };
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], tests)
}

/// The number of connections and the choice among them, in virtual time.
pub fn pool(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab-proxy", "--test", "pool"], "s_")
}

fn name(cell: &Cell) -> &str {
    cell.sidecar.as_ref().map_or("none", |sidecar| &sidecar.name)
}

/// With fewer CPUs, callers that do not pause leave none to the packet pump, unless it has real-time priority.
const CPUS_WITHOUT_REALTIME: usize = 3;

/// Refuses a measurement whose every cell would be invalid: after 20 minutes, if nobody said so before.
fn ensure_link_is_on_time(h2lab: &H2lab) -> Result<()> {
    let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
    let doctor = h2lab.run(&std::env::temp_dir(), &["doctor", "--json"].map(str::to_owned), "")?;
    let checks: Value =
        serde_json::from_str(&doctor.stdout).context("`h2lab doctor --json` printed no JSON")?;
    ensure!(
        cpus >= CPUS_WITHOUT_REALTIME || realtime(&checks)?,
        "on {cpus} CPUs the emulated link is late without real-time priority: run it as root, or after `ulimit -r 1`"
    );
    Ok(())
}

/// Whether `doctor` could give the packet pump real-time priority, as the user who asked.
fn realtime(doctor: &Value) -> Result<bool> {
    let own =
        ["root", "user"].iter().find_map(|user| doctor[user].as_array()).context("doctor checked nothing")?;
    let check =
        own.iter().find(|check| check["id"] == "realtime").context("doctor has no check `realtime`")?;
    Ok(check["status"]["state"] == "ok")
}

/// Whether a limit costs no time. Both CPUs are busy, and the p99 of one repetition differs from that of the next by a third:
/// repetitions of all limits take turns.
fn quick_as_without_a_limit(h2lab: &H2lab, path: &str, outcome: &mut ItemOutcome) -> Result<()> {
    let document = h2lab.measure("run", &[path, "--sidecar=h2lab", "--repetitions=9", "-z", "5s"])?;
    let is_free = |cell: &&Cell| cell.max_requests_per_connection == Some(NO_LIMIT);
    let free =
        document.cells.iter().find(is_free).context("the cell without a limit is missing")?.p99_ms()?;
    for cell in document.cells.iter().filter(|cell| !is_free(cell)) {
        let (limit, p99) =
            (cell.max_requests_per_connection.context("a cell without a limit")?, cell.p99_ms()?);
        outcome.check(
            p99 <= 1.2 * free,
            format!("limit {limit}: {:.2} of the p99 without a limit, {free:.1} ms", p99 / free),
        );
    }
    Ok(())
}

/// Requests that are lost where connections to the instance end after some number of them.
pub fn goaway(h2lab: &H2lab) -> Result<ItemOutcome> {
    ensure_link_is_on_time(h2lab)?;
    let path = process::workspace().join("scenarios/sidecar-goaway.toml");
    let path = path.to_str().context("the workspace's path is not UTF-8")?;
    let document = h2lab.measure("run", &[path])?;
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
        if name(cell) == OURS {
            outcome.check(cell.requests.failed == 0, words);
        } else {
            outcome.note(words);
        }
    }
    quick_as_without_a_limit(h2lab, path, &mut outcome)?;
    let ours =
        ["--sidecar=h2lab", "--max-requests-per-connection=1000,137", "--repetitions=1", REQUESTS_TAKE];
    let all: Vec<&str> = [path].into_iter().chain(ours).collect();
    for cell in &h2lab.measure("run", &all)?.cells {
        let (sent, failed) = (cell.requests.sent, cell.requests.failed);
        let limit = cell.max_requests_per_connection.context("a cell without a limit")?;
        outcome.check(sent >= REQUESTS && failed == 0, format!("limit {limit}: {failed} of {sent} failed"));
    }
    Ok(outcome)
}
