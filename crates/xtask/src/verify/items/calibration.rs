//! A/A: where there is no difference, none may be claimed.

use anyhow::Result;

use super::faults::draw;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

/// Live runs.
const RUNS: u32 = 10;

/// The share of verdicts that may be wrong: that of the interval.
const ALLOWED: f64 = 0.05;

/// h1 against h1 with the defaults' link and length, ten seeds, with and without loss.
pub fn live(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let (mut claims, mut verdicts) = (0_u32, 0_u32);
    for seed in 1..=RUNS {
        let document = h2lab.compare(&["--proto=h1,h1", "--loss=0%,3%", &format!("--seed={seed}")])?;
        verdicts += u32::try_from(document.verdicts.len())?;
        for verdict in document.verdicts.iter().filter(|verdict| verdict.claims_a_difference()) {
            claims += 1;
            outcome.note(format!("seed {seed}: {}", verdict.sentence));
        }
    }
    outcome.check(verdicts >= RUNS, format!("{verdicts} verdicts of {RUNS} runs"));
    outcome.check(f64::from(claims) <= ALLOWED * f64::from(verdicts), format!("{claims} claim a difference"));
    Ok(outcome)
}

/// Real A/A runs whose values are drawn at random.
const DRAWN: u32 = 50;

/// The servers of these.
const SERVERS: [&str; 6] = ["origin", "nginx", "haproxy", "envoy", "go", "apache"];
/// A protocol, named twice.
const TWICE: [&str; 4] = ["h1,h1", "h2c,h2c", "h1s,h1s", "h2,h2"];

/// Each protocol against itself at servers, rates, round trips and sizes drawn at random, without loss: no difference, and no cause.
pub fn drawn(h2lab: &H2lab, seed: u64) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let (mut claims, mut verdicts, mut causes, mut void) = (0_u32, 0_u32, 0_u32, 0_u32);
    for run in 0..DRAWN {
        let number = |name: &str, least: u64, most: u64| {
            least + draw(seed, &format!("aa/{run}/{name}")) % (most - least + 1)
        };
        let one_of = |name: &str, all: &[&'static str]| all[number(name, 0, all.len() as u64 - 1) as usize];
        let protocols = one_of("protocol", &TWICE);
        let mut arguments = vec![
            format!("--origin={}", one_of("server", &SERVERS)),
            format!("--proto={protocols}"),
            format!("--delay={}ms", number("delay", 1, 40)),
            format!("--rate={}", number("rate", 20, 300)),
            format!("--body-bytes={}", number("body", 0, 8_192)),
            format!("--seed={}", number("seed", 1, 1_000)),
            "--loss=0%".to_owned(),
            "--duration=2s".to_owned(),
        ];
        if protocols.starts_with("h2") {
            arguments.push(format!("--connections={}", number("connections", 1, 8)));
        }
        let document = match h2lab.compare(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
            Ok(document) => document,
            Err(error) => {
                void += 1;
                outcome.note(format!("{error:#}"));
                continue;
            }
        };
        verdicts += u32::try_from(document.verdicts.len())?;
        for verdict in document.verdicts.iter().filter(|verdict| verdict.claims_a_difference()) {
            claims += 1;
            outcome.note(format!("{}: {}", arguments.join(" "), verdict.sentence));
        }
        let findings = document.cells.iter().flat_map(|cell| &cell.findings);
        for finding in findings.filter(|finding| finding.explains != Some(0.0)) {
            causes += 1;
            outcome.note(format!("{}: {} {}", arguments.join(" "), finding.rule, finding.symptom));
        }
    }
    outcome.check(
        void * 10 <= DRAWN,
        format!("{verdicts} verdicts of {DRAWN} runs, {void} without a sound measurement"),
    );
    outcome.check(f64::from(claims) <= ALLOWED * f64::from(verdicts), format!("{claims} claim a difference"));
    outcome.check(causes == 0, format!("{causes} causes of a difference"));
    Ok(outcome)
}
