//! A/A: where there is no difference, none may be claimed.

use anyhow::Result;

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
