//! The comparison itself: h1 against h2c over one and sixteen connections, with and without loss.

use anyhow::{Context, Result};

use crate::verify::binary::H2lab;
use crate::verify::document::{Cell, Document};
use crate::verify::numbers::{agreement_ms, median};
use crate::verify::outcome::ItemOutcome;

/// The servers: our own, and one that cannot share a mistake with our client.
pub const SERVERS: [&str; 2] = ["origin", "nginx"];

/// How many header fields a request carries.
pub const SHAPES: [&str; 2] = ["bare", "mesh"];

/// Requests offered per second.
const OFFERED: f64 = 1000.0;

/// The link, work and length of every cell here; one repetition, since seeds are varied outside.
const COMMON: [&str; 5] =
    ["--delay=12.5ms", "-q=1000", "-z=15s", "--repetitions=1", "--loss-model=bernoulli"];

fn measure(h2lab: &H2lab, server: &str, shape: &str, further: &[&str]) -> Result<Document> {
    let (server, shape) = (format!("--origin={server}"), format!("--shape={shape}"));
    let mut arguments = COMMON.to_vec();
    arguments.extend([server.as_str(), shape.as_str()]);
    arguments.extend(further);
    h2lab.compare(&arguments)
}

/// The cell's label, state, and share of the offered requests that it served.
fn describe(cell: &Cell) -> String {
    let served = cell.throughput_rps;
    let p99 = cell.p99_ms().map_or_else(|_| "no p99".to_owned(), |p99| format!("p99 {p99:.1} ms"));
    format!(
        "{}: {} served {served:.0}/s ({:.1} %), {p99}",
        cell.label(),
        cell.state,
        served / OFFERED * 100.0
    )
}

/// What loss does to one connection, and what sixteen make of it.
pub fn loss(h2lab: &H2lab, server: &str, shape: &str) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut ratios = Vec::new();
    for seed in 1..=3 {
        let seed_flag = format!("--seed={seed}");
        let flags = ["--loss=3%", "--congestion=cubic", "--proto=h1,h2c", "-c=1,16", &seed_flag];
        let document = measure(h2lab, server, shape, &flags)?;
        let h1 = document.cell("h1", None)?;
        let one = document.cell("h2c", Some(1))?;
        let sixteen = document.cell("h2c", Some(16))?;
        let say = |cell| format!("seed {seed}: {}", describe(cell));
        outcome.check(h1.throughput_rps >= 0.98 * OFFERED, say(h1));
        outcome.check(one.throughput_rps < 0.65 * OFFERED && one.state == "unstable", say(one));
        outcome.check(sixteen.throughput_rps >= 0.98 * OFFERED, say(sixteen));
        ratios.push(sixteen.p99_ms()? / h1.p99_ms()?);
    }
    let middle = median(&ratios).context("three seeds were measured")?;
    let all: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    outcome.check(
        middle <= 1.5,
        format!("p99 of h2c × 16 is {middle:.2} × h1's (median of {})", all.join(", ")),
    );
    Ok(outcome)
}

/// Without loss there is nothing to distinguish.
pub fn no_loss(h2lab: &H2lab, server: &str, shape: &str) -> Result<ItemOutcome> {
    let flags = ["--loss=0%", "--congestion=cubic", "--proto=h1,h2c", "-c=1,4,16", "--seed=1"];
    let document = measure(h2lab, server, shape, &flags)?;
    let mut outcome = ItemOutcome::default();
    let mut p99s = Vec::new();
    for cell in &document.cells {
        outcome.check(cell.state == "ok", describe(cell));
        p99s.push(cell.p99_ms()?);
    }
    let least = p99s.iter().copied().fold(f64::INFINITY, f64::min);
    let spread = p99s.iter().copied().fold(0.0, f64::max) - least;
    let allowed = agreement_ms(least);
    outcome.check(spread <= allowed, format!("they differ by {spread:.2} ms, allowed {allowed:.2} ms"));
    Ok(outcome)
}

/// A congestion control that does not take loss for congestion. One repetition may still meet a second without an answer, so
/// the middle one of three seeds decides, as it does for p99; what is served must hold for each.
pub fn bbr(h2lab: &H2lab, server: &str, shape: &str) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut stable = 0;
    for seed in 1..=3 {
        let seed_flag = format!("--seed={seed}");
        let flags = ["--loss=3%", "--congestion=bbr", "--proto=h2c", "-c=1", &seed_flag];
        let document = measure(h2lab, server, shape, &flags)?;
        let cell = document.cell("h2c", Some(1))?;
        stable += u32::from(cell.state == "ok");
        let holds = cell.throughput_rps >= 0.98 * OFFERED;
        outcome.check(holds, format!("seed {seed}: {}", describe(cell)));
    }
    outcome.check(stable >= 2, format!("{stable} of 3 seeds are stable"));
    Ok(outcome)
}
