//! Two sidecars of ours over a link that loses packets: beside HTTP/1.1 and fixed numbers of connections, and after loss begins and
//! ends.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::OURS;
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::document::{Cell, Document};
use crate::verify::numbers::median;
use crate::verify::outcome::ItemOutcome;

/// Rounds at RTT 25 ms, and at the other conditions. A round measures every configuration once.
const ROUNDS: u32 = 9;
const FEWER_ROUNDS: u32 = 3;
/// Rounds that may be void: the tool has called them invalid as often as it is asked to measure again.
const VOID_ROUNDS: u32 = 3;
/// Fixed numbers of connections.
const FIXED: [u32; 4] = [4, 8, 16, 32];
/// What is the same in all runs.
const LOAD: [&str; 4] = ["--topology=two-sidecars", "--sidecar=h2lab", "--congestion=cubic", "-q=1000"];

/// The p99 at RTT 25 ms and 3 % loss, the condition of the study.
pub fn lossy(h2lab: &H2lab) -> Result<ItemOutcome> {
    beside_fixed_numbers(h2lab, "12.5ms", "60s", ROUNDS)
}

/// The same at RTT 10 ms, where another number of connections is the best.
pub fn lossy_near(h2lab: &H2lab) -> Result<ItemOutcome> {
    beside_fixed_numbers(h2lab, "5ms", "30s", FEWER_ROUNDS)
}

/// The adaptive number of connections against HTTP/1.1 and against each of [`FIXED`].
fn beside_fixed_numbers(h2lab: &H2lab, delay: &str, measure: &str, rounds: u32) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    // Of `h2c`, one connection stands for the number that the path needs.
    let words = [
        "--proto=h1,h2c",
        "-c=1,4,8,16,32",
        "--loss=3%",
        &format!("--delay={delay}"),
        &format!("-z={measure}"),
    ];
    let documents = measured(h2lab, &words, rounds, &mut outcome)?;
    // A number at which the queue grows without end has no p99.
    let p99 = |protocol: &str, n: Option<u32>| {
        let of = |document: &Document| Ok(document.cell(protocol, n)?.p99_ms().unwrap_or(f64::INFINITY));
        let all = documents.iter().map(of).collect::<Result<Vec<f64>>>()?;
        median(&all).context("no round")
    };
    let (http1, own) = (p99("h1", None)?, p99("h2c", Some(1))?);
    let fixed = FIXED.map(|n| p99("h2c", Some(n)));
    let fixed = fixed.into_iter().collect::<Result<Vec<f64>>>()?;
    let best = fixed.iter().copied().fold(f64::INFINITY, f64::min);
    outcome.note(format!(
        "medians of {rounds} rounds of {measure}: adaptive {own:.1} ms, h1 {http1:.1}, 4/8/16/32 {fixed:.1?}"
    ));
    outcome.check(own <= 0.4 * http1, format!("{:.2} of h1", own / http1));
    outcome.check(own <= 1.05 * best, format!("{:.2} of the best fixed number", own / best));
    Ok(outcome)
}

/// The programs whose pairs are measured side by side.
const PAIRS: &str = "--sidecar=h2lab,haproxy,envoy,nginx-proxy";

/// A pair of ours beside pairs of others, in one run: only ours may be held to a figure.
pub fn pairs(h2lab: &H2lab) -> Result<ItemOutcome> {
    let words = ["--topology=two-sidecars", PAIRS, "--congestion=cubic", "--proto=h1,h2c", "-c=1", "-q=1000"];
    let link = ["--loss=3%", "--delay=12.5ms", "-z=30s", "--repetitions=2"];
    let document = h2lab.measure("compare", &[words.as_slice(), &link].concat())?;
    let mut outcome = ItemOutcome::default();
    for cell in &document.cells {
        let name = cell.sidecar.as_ref().map_or("a program", |sidecar| &sidecar.name);
        let told = match cell.state.as_str() {
            "ok" => format!("{} failed, p99 {:.1} ms", cell.requests.failed, cell.p99_ms()?),
            state => [state, &cell.reasons.join("; ")].join(": "),
        };
        outcome.note(format!("{name} over {}: {:.0}/s served; {told}", cell.protocol, cell.throughput_rps));
    }
    let p99 = |protocol: &str| {
        let is_ours = |cell: &&Cell| cell.sidecar.as_ref().is_some_and(|sidecar| sidecar.name == OURS);
        let mut ours = document.cells.iter().filter(is_ours);
        let cell = ours.find(|cell| cell.protocol == protocol).context("no cell of our pair")?;
        ensure!(
            cell.requests.failed == 0,
            "{} of our pair's requests failed over {protocol}",
            cell.requests.failed
        );
        cell.p99_ms()
    };
    let ratio = p99("h2c")? / p99("h1")?;
    outcome.check(ratio <= 0.4, format!("h2lab: {ratio:.2} of its p99 over h1"));
    Ok(outcome)
}

/// Without loss: the number of connections, and the p99 beside HTTP/1.1.
pub fn clean(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let words = ["--proto=h1,h2c", "-c=1", "--loss=0%", "--delay=12.5ms", "-z=20s"];
    let documents = measured(h2lab, &words, ROUNDS, &mut outcome)?;
    let (mut http1, mut own) = (Vec::new(), Vec::new());
    for document in &documents {
        let cell = document.cell("h2c", Some(1))?;
        let opened = cell.hop_connections.context("a pair without connections between its sidecars")?;
        outcome.check(opened <= 2, format!("{opened} connections"));
        http1.push(document.cell("h1", None)?.p99_ms()?);
        own.push(cell.p99_ms()?);
    }
    let (http1, own) = (median(&http1).context("no round")?, median(&own).context("no round")?);
    let ratio = own / http1;
    outcome.check(ratio <= 1.02, format!("adaptive {own:.2} ms, h1 {http1:.2}: {ratio:.3} of h1"));
    Ok(outcome)
}

/// One `compare` for each round, with another seed. What is printed of each is noted, so that a median hides nothing.
fn measured(h2lab: &H2lab, words: &[&str], rounds: u32, outcome: &mut ItemOutcome) -> Result<Vec<Document>> {
    let (mut documents, mut void) = (Vec::new(), 0);
    let mut seed = 0;
    while documents.len() < rounds as usize {
        seed += 1;
        let seed = format!("--seed={seed}");
        let all: Vec<&str> = LOAD.iter().chain(words).copied().chain(["--repetitions=1", &seed]).collect();
        match h2lab.measure("compare", &all) {
            Ok(document) => {
                outcome.note(round(&document, &seed));
                eprintln!("{}", round(&document, &seed));
                documents.push(document);
            }
            Err(error) => {
                void += 1;
                outcome.note(format!("{seed}: {error:#}"));
                ensure!(void <= VOID_ROUNDS, "{void} rounds are void: {error:#}");
            }
        }
    }
    Ok(documents)
}

/// The p99 of each cell of a round.
fn round(document: &Document, seed: &str) -> String {
    let cells = document.cells.iter().map(|cell| {
        let p99 = cell.p99_ms().map_or_else(|_| cell.state.clone(), |p99| format!("{p99:.1} ms"));
        let hop = cell.hop_connections.map_or_else(String::new, |n| format!(" ({n} connections)"));
        format!("{} x {} {p99}{hop}", cell.protocol, cell.connections)
    });
    format!("{seed}: {}", cells.collect::<Vec<_>>().join(", "))
}

/// When the link begins to lose packets, and when it stops.
const LOSS_FROM_S: u32 = 12;
const LOSS_UNTIL_S: u32 = 52;
/// For how long requests are made.
const MEASURED_S: u32 = LOSS_UNTIL_S + 65;

/// After a step from no loss to 3 %, and after the step back.
pub fn step(h2lab: &H2lab) -> Result<ItemOutcome> {
    let duckdb = process::find("duckdb").context("it reads the requests: pipx install duckdb-cli")?;
    let mut outcome = ItemOutcome::default();
    let (mut early, mut settled) = (Vec::new(), Vec::new());
    for seed in 1..=FEWER_ROUNDS {
        let folder = tempfile::tempdir()?;
        stepped(h2lab, folder.path(), seed)?;
        let ask = |sql: &str| query(&duckdb, folder.path(), sql);
        // Requests due 2 to 10 s after the first lost packet, and those of the last 20 s of the loss.
        let [first, last] = ["min", "max"]
            .map(|which| ask(&format!("SELECT {which}(at_ns) FROM 'run/link.parquet' WHERE fate = 'lost'")));
        let (first, last) = (first?, last?);
        let p99 = |from: f64, to: f64| {
            ask(&format!(
                "SELECT quantile_disc(coalesce(completed_at_ns - scheduled_at_ns, 1e12), 0.99) / 1e6 FROM 'run/samples.parquet' \
                 WHERE measured AND scheduled_at_ns >= {from} AND scheduled_at_ns < {to}"
            ))
        };
        let after = p99(first + 2e9, first + 10e9)?;
        let late = p99(last - 20e9, last)?;
        // An idle connection has a PING at least once in six seconds.
        let open = ask(&format!(
            "SELECT count(DISTINCT client_port) FROM 'run/link.parquet' WHERE at_ns BETWEEN {} AND {}",
            last + 54e9,
            last + 60e9
        ))?;
        let most = ask("SELECT count(DISTINCT client_port) FROM 'run/link.parquet'")?;
        outcome.note(format!(
            "--seed={seed}: p99 2 to 10 s after the step {after:.1} ms, in the last 20 s of the loss {late:.1}; {most} connections in all"
        ));
        outcome
            .check(open <= 2.0, format!("{open} connections are used 54 to 60 s after the last lost packet"));
        early.push(after);
        settled.push(late);
    }
    let (early, settled) = (median(&early).context("no round")?, median(&settled).context("no round")?);
    outcome.check(
        early <= 1.2 * settled,
        format!(
            "medians: {early:.1} ms 2 to 10 s after the step, {settled:.1} settled: {:.2}",
            early / settled
        ),
    );
    Ok(outcome)
}

/// Makes the run of a step in `folder`/run; again while the tool calls it invalid.
fn stepped(h2lab: &H2lab, folder: &Path, seed: u32) -> Result<()> {
    let more = [
        "--proto=h2c".to_owned(),
        "-c=1".to_owned(),
        "--delay=12.5ms".to_owned(),
        "--loss=0%".to_owned(),
        format!("--at={LOSS_FROM_S}s:loss=3%"),
        format!("--at={LOSS_UNTIL_S}s:loss=0%"),
        "--warmup=2s".to_owned(),
        format!("-z={MEASURED_S}s"),
        "--repetitions=1".to_owned(),
        format!("--seed={seed}"),
        "--out=run".to_owned(),
    ];
    let words: Vec<String> =
        ["compare"].iter().chain(&LOAD).map(|&word| word.to_owned()).chain(more).collect();
    for _ in 0..=VOID_ROUNDS {
        let run = h2lab.run(folder, &words, "")?;
        match run.code {
            Some(0) => return Ok(()),
            Some(5) => std::fs::remove_dir_all(folder.join("run"))?,
            code => bail!("`h2lab {}` ended with {code:?}: {}", words.join(" "), run.stderr.trim()),
        }
    }
    bail!("void {} times, so nothing is shown either way", VOID_ROUNDS + 1)
}

/// The one figure that a query has.
fn query(duckdb: &Path, folder: &Path, sql: &str) -> Result<f64> {
    let output = Command::new(duckdb).args(["-csv", "-noheader", "-c", sql]).current_dir(folder).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("{sql}: {text} {}", String::from_utf8_lossy(&output.stderr)))
}
