//! The scenarios of bulk transfers: what each of them claims, found in its own report.

use anyhow::{Context, Result};

use super::{Item, item, study};
use crate::verify::binary::H2lab;
use crate::verify::document::{Bulk, Document};
use crate::verify::numbers::median;
use crate::verify::outcome::ItemOutcome;

/// The promises of this file.
pub fn items() -> Vec<Item> {
    vec![
        item(
            "bulk-frame-size",
            "frame-size --quick, the middle of three seeds: frames are as long as the receiver lets them be, whatever the sender's setting; those of \
             16 KiB cost a fifth of the rate at most, and half of it where each is a write of its own; more requests at a time do not make HTTP/2 faster",
            frame_size,
        ),
        item(
            "bulk-fat-link",
            "long-fat-link --quick: one h2c stream carries what TCP carries; 4 MiB buffers and windows of 64 KiB hold it \
             back, each named with its fix; eight connections fill what one does not; frames and WINDOW_UPDATEs decide nothing",
            fat_link,
        ),
    ]
}

/// The transfers of a scenario's `--quick`, run once with each seed, found by what was varied and by protocol.
struct Transfers(Vec<Document>);

impl Transfers {
    fn of(h2lab: &H2lab, scenario: &str, seeds: &[u32]) -> Result<Self> {
        let run = |seed| Ok(study::measure(h2lab, scenario, &["--quick", &format!("--seed={seed}")])?.0);
        seeds.iter().map(run).collect::<Result<_>>().map(Self)
    }

    /// That of the first run.
    fn find(&self, factor: &str, protocol: &str) -> Result<&Bulk> {
        find(self.0.first().context("nothing was run")?, factor, protocol)
    }

    /// Mbit/s: the median of the runs.
    fn rate(&self, factor: &str, protocol: &str) -> Result<f64> {
        let rate = |run| Ok(find(run, factor, protocol)?.rate_bps.median / 1e6);
        median(&self.0.iter().map(rate).collect::<Result<Vec<_>>>()?).context("nothing was run")
    }

    /// Checks that one transfer's rate is at least `share` of another's, or at most if `is_most`.
    fn compare(
        &self,
        outcome: &mut ItemOutcome,
        (factor, protocol): (&str, &str),
        bound: Bound,
        (other, its_protocol): (&str, &str),
    ) -> Result<()> {
        let (rate, of) = (self.rate(factor, protocol)?, self.rate(other, its_protocol)?);
        let (holds, words) = match bound {
            Bound::AtLeast(share) => (rate >= share * of, format!("at least {share} x")),
            Bound::AtMost(share) => (rate <= share * of, format!("at most {share} x")),
        };
        let text =
            format!("{protocol}, {factor}: {rate:.1} Mbit/s, {words} {of:.1} of {its_protocol}, {other}");
        outcome.check(holds, text);
        Ok(())
    }

    /// Checks what a transfer was held back by, and that the fix has these words.
    fn held_back(&self, outcome: &mut ItemOutcome, factor: &str, kinds: &[&str], fix: &str) -> Result<()> {
        let limit = self.find(factor, "h2c")?.limit.as_ref().context("nothing held it back")?;
        let fixes = limit.fixes.iter().map(|fix| format!("{} - {}", fix.setting, fix.why));
        let rendered = fixes.collect::<Vec<_>>().join("; ");
        let text = format!("{factor}: {}: {}; the fix: {rendered}", limit.kind, limit.sentence);
        outcome.check(kinds.contains(&limit.kind.as_str()) && rendered.contains(fix), text);
        Ok(())
    }
}

fn find<'a>(run: &'a Document, factor: &str, protocol: &str) -> Result<&'a Bulk> {
    let of_protocol = run.cells.iter().filter(|cell| cell.protocol == protocol);
    let found = of_protocol.filter_map(|cell| cell.bulk.as_ref()).find(|bulk| bulk.factor == factor);
    found.with_context(|| format!("no {protocol} with `{factor}` was measured"))
}

/// How two rates are to lie.
#[derive(Debug, Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// The plainest transfer of a scenario.
const BASELINE: &str = "baseline";

/// Frames, and how they are written.
fn frame_size(h2lab: &H2lab) -> Result<ItemOutcome> {
    const SHORT: &str = "frames up to 16 KiB";
    const EACH_A_WRITE: &str = "frames up to 16 KiB, server's each frame a write";
    // On loopback single repetitions of 4 s vary from 36 to 46 Gbit/s.
    let run = Transfers::of(h2lab, "frame-size", &study::SEEDS)?;
    let mut outcome = ItemOutcome::default();
    let lengths = [
        (BASELINE, 65_536.0),
        (SHORT, 16_384.0),
        ("frames up to 1 MiB", 1_048_576.0),
        ("server's frames up to 1 MiB", 65_536.0),
    ];
    for (factor, allowed) in lengths {
        let frames = run.find(factor, "h2c")?.frames.as_ref().context("it had no frames")?;
        let text =
            format!("{factor}: DATA of {:.0} bytes in the mean; {allowed:.0} were let in", frames.mean_data);
        outcome.check((0.9 * allowed..=allowed).contains(&frames.mean_data), text);
    }
    run.compare(&mut outcome, (SHORT, "h2c"), Bound::AtLeast(0.8), (BASELINE, "h2c"))?;
    run.compare(&mut outcome, (EACH_A_WRITE, "h2c"), Bound::AtMost(0.5), (BASELINE, "h2c"))?;
    // The cell from which they differ in that alone.
    for more in ["100 in flight", "1,000 in flight"] {
        run.compare(&mut outcome, (more, "h2c"), Bound::AtMost(1.2), (BASELINE, "h2c"))?;
    }
    Ok(outcome)
}

/// The long fat link, one factor at a time.
fn fat_link(h2lab: &H2lab) -> Result<ItemOutcome> {
    const USUAL: &str = "tcp buffers 4 MiB";
    const EIGHT: &str = "tcp buffers 4 MiB, 8 in flight";
    const NARROW: &str = "stream window 64 KiB - 1, connection window 64 KiB - 1";
    const KNOBS: &str = "credit at 0 %, frames up to 16 KiB";
    let run = Transfers::of(h2lab, "long-fat-link", &[1])?;
    let mut outcome = ItemOutcome::default();
    let rate = run.rate(BASELINE, "h2c")?;
    outcome.check(rate >= 850.0, format!("h2c, {BASELINE}: {rate:.1} Mbit/s of 1,000"));
    run.compare(&mut outcome, (BASELINE, "h2c"), Bound::AtLeast(0.9), (BASELINE, "tcp"))?;
    for protocol in ["tcp", "h1", "h2c"] {
        run.compare(&mut outcome, (USUAL, protocol), Bound::AtMost(0.2), (BASELINE, protocol))?;
    }
    run.held_back(&mut outcome, USUAL, &["receive-buffer", "send-buffer"], "net.ipv4.tcp_")?;
    run.compare(&mut outcome, (EIGHT, "h1"), Bound::AtLeast(4.0), (EIGHT, "h2c"))?;
    run.compare(&mut outcome, (NARROW, "h2c"), Bound::AtMost(0.01), (BASELINE, "h2c"))?;
    run.held_back(&mut outcome, NARROW, &["stream-window", "connection-window"], "window")?;
    for cured in ["windows that grow to 1 GiB", KNOBS] {
        run.compare(&mut outcome, (cured, "h2c"), Bound::AtLeast(0.9), (BASELINE, "h2c"))?;
    }
    for other in ["bbr", "RTT 25ms"] {
        run.compare(&mut outcome, (other, "h2c"), Bound::AtLeast(0.9), (other, "tcp"))?;
    }
    Ok(outcome)
}
