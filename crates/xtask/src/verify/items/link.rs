//! The emulated link, measured by ping: none of our code at its ends.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::lab::{self, Link, SERVER};
use crate::verify::numbers::{deviations, quantile};
use crate::verify::outcome::ItemOutcome;

/// The configured loss, in each direction.
const ASKED: f64 = 0.03;

/// A link that only loses.
const LOSSY: Link = Link { delay: "0ms", loss: "3%" };

/// Loss over a million packets, in the link's own packet log and as ping sees it.
pub fn million(h2lab: &H2lab) -> Result<ItemOutcome> {
    ensure!(process::is_root(), "ping floods only for root");
    // Four at once, since each pauses 10 ms after a loss: 132,500 × 4 up and 97 % of them down are over a million.
    let flood = format!("for i in 1 2 3 4; do ping -f -q -c 132500 {SERVER} & done; wait");
    let run = lab::run(h2lab, LOSSY, 1, &flood)?;
    let mut outcome = ItemOutcome::default();
    let both = run.link.up.packets_in + run.link.down.packets_in;
    outcome.check(both >= 1_000_000, format!("{both} packets entered the link"));
    outcome
        .check(run.link.device_drops == 0, format!("{} dropped by devices, unasked", run.link.device_drops));
    let lost = run.link.up.lost + run.link.down.lost;
    let mut counted = |name: &str, hits: u64, trials: u64, p: f64| {
        let off = deviations(hits, trials, p);
        let (seen, asked) = (hits as f64 / trials as f64 * 100.0, p * 100.0);
        let text = format!("{name}: {hits} of {trials} lost, {seen:.4} % (asked {asked:.4} %), {off:+.2} sd");
        outcome.check(off.abs() <= 3.0, text);
    };
    counted("uplink", run.link.up.lost, run.link.up.packets_in, ASKED);
    counted("downlink", run.link.down.lost, run.link.down.packets_in, ASKED);
    counted("both", lost, both, ASKED);
    let (transmitted, received) = lab::totals(&run.client);
    ensure!(transmitted > 0, "ping's summary is missing: {}", run.client);
    counted("ping, there and back", transmitted - received, transmitted, 1.0 - (1.0 - ASKED).powi(2));
    Ok(outcome)
}

/// Delay as ping sees it.
pub fn delay(h2lab: &H2lab) -> Result<ItemOutcome> {
    ensure!(process::is_root(), "the promise is for root, whose link runs under SCHED_FIFO");
    let link = Link { delay: "12.5ms", loss: "0%" };
    let run = lab::run(h2lab, link, 1, &format!("ping -n -i 0.01 -c 1000 {SERVER}"))?;
    ensure!(run.status == 0, "ping failed: {}", run.client);
    let times: Vec<f64> = lab::replies(&run.client).into_iter().map(|(_, ms)| ms).collect();
    let at = |share| quantile(&times, share).context("no reply came");
    let (p50, p99, max) = (at(0.5)?, at(0.99)?, at(1.0)?);
    let mut outcome = ItemOutcome::default();
    outcome.check(times.len() == 1000, format!("{} of 1000 replies", times.len()));
    outcome.check((25.0..=25.2).contains(&p50), format!("p50 {p50:.2} ms"));
    outcome.check(p99 <= 25.4, format!("p99 {p99:.2} ms"));
    outcome.note(format!("max {max:.2} ms; the link's own lateness p99 {} us", run.link.late_p99_ns / 1000));
    Ok(outcome)
}

/// Pings: the n-th is the n-th packet of the uplink, since nothing else is on the link.
const PINGS: u64 = 2000;

/// What a link dropped: as its packet log says, and as ping felt it.
#[derive(Debug, PartialEq, Eq)]
struct Drops {
    /// Direction and index of each packet that was lost.
    lost: BTreeSet<(String, u64)>,
    /// Sequence numbers of the pings whose answer never came.
    unanswered: BTreeSet<u64>,
}

impl Drops {
    fn observe(h2lab: &H2lab, seed: u64) -> Result<Self> {
        let run = lab::run(h2lab, LOSSY, seed, &format!("ping -n -i 0.002 -c {PINGS} {SERVER}"))?;
        let answered: BTreeSet<u64> =
            lab::replies(&run.client).into_iter().map(|(sequence, _)| sequence).collect();
        let unanswered = (1..=PINGS).filter(|sequence| !answered.contains(sequence)).collect();
        Ok(Self { lost: run.lost, unanswered })
    }

    fn both_ways(&self) -> bool {
        ["up", "down"]
            .iter()
            .all(|configuration| self.lost.iter().any(|(direction, _)| direction == configuration))
    }
}

impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets lost (", self.lost.len())?;
        for (direction, index) in self.lost.iter().take(5) {
            write!(f, "{direction} {index}, ")?;
        }
        write!(f, "…), {} pings unanswered", self.unanswered.len())
    }
}

/// Which packets are lost is a function of the seed alone.
pub fn same_seed(h2lab: &H2lab) -> Result<ItemOutcome> {
    let (first, again, other) =
        (Drops::observe(h2lab, 7)?, Drops::observe(h2lab, 7)?, Drops::observe(h2lab, 8)?);
    let mut outcome = ItemOutcome::default();
    outcome.check(first.both_ways(), format!("seed 7: {first}"));
    outcome.check(first == again, format!("seed 7 again: {again}"));
    outcome
        .check(first.lost != other.lost && first.unanswered != other.unanswered, format!("seed 8: {other}"));
    Ok(outcome)
}
