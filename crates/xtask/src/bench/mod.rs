//! `cargo xtask bench [subject]`: ours against its peers, side by side in one run, as ratios.
//!
//! A [`Contest`] runs ours and a peer in turns, A/B then B/A, and takes one ratio per round: what disturbs the machine
//! for longer than a round disturbs both. What is printed is the median of the rounds' ratios and the interval in which
//! the true median lies with 95 % (order statistics, so nothing is assumed of the distribution).

mod bulk;
pub mod counts;
mod engine;
mod hpack;
mod instruments;
mod link;
mod load;
mod meter;
mod pacing;
mod peers;
pub mod ratio;
mod sidecar;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use self::ratio::Ratios;
use crate::process;
use crate::verify::binary::H2lab;

/// What is measured.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Subject {
    /// The HTTP engines, in the generator and in the origin: CPU per request.
    Engine,
    /// The same: user-space instructions (`ir-…`) and system calls (`sys-…`) per request.
    Counts,
    /// `h2lab load` beside wrk, h2load, hey, oha and vegeta: requests per second and CPU per request; how punctual they
    /// are.
    Load,
    /// Decoding of header fields: nanoseconds and instructions per field.
    Hpack,
    /// The emulated link: what one TCP connection gets through it, at what CPU and lateness.
    Link,
    /// `h2lab bulk` beside raw TCP, rustls, Go, nginx with curl: rate and CPU per byte of each end.
    Bulk,
    /// A pair of sidecars beside pairs of other proxies: CPU per request, added latency, memory per idle connection.
    Sidecar,
}

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What to measure.
    #[arg(value_enum, default_value = "engine")]
    subject: Subject,
    /// Rounds per contest [default: 9, which a gate on CPU time needs at least; 3 for counts, which hardly vary, and
    /// for pacing; 5 for sidecar].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=999))]
    rounds: Option<u32>,
    /// Only the contests whose id begins with this; several may be given.
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Bulk: a quarter of the bytes and three rounds; sidecar: three rounds, to see that all runs; gates are shown and
    /// decide nothing.
    #[arg(long)]
    quick: bool,
    /// Write the table here too, as Markdown, such as results/<date>-<machine>/bench-counts.md.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// Ours against a peer.
pub struct Contest {
    /// How `--only` selects it.
    id: &'static str,
    /// What is compared.
    claim: &'static str,
    /// The ratio that must not be exceeded.
    limit: f64,
    /// The ratio that we want.
    aim: f64,
    /// One round: ours and the peer's figure, measured one after the other; `true` begins with the peer.
    round: Box<dyn Fn(bool) -> Result<Pair>>,
}

/// One round's figures, in the same unit.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// Ours.
    pub ours: f64,
    /// The peer's.
    pub peer: f64,
}

impl Pair {
    /// Measures both, in the order of the round.
    fn measure(
        peer_first: bool,
        ours: impl FnOnce() -> Result<f64>,
        peers: impl FnOnce() -> Result<f64>,
    ) -> Result<Self> {
        if peer_first {
            let peer = peers()?;
            return Ok(Self { ours: ours()?, peer });
        }
        Ok(Self { ours: ours()?, peer: peers()? })
    }
}

/// Runs the contests; fails if a ratio exceeds its limit.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let what = match arguments.subject {
        Subject::Hpack => return hpack::run(arguments),
        Subject::Load => return load::run(arguments),
        Subject::Link => return link::run(arguments),
        Subject::Bulk => return bulk::run(arguments),
        Subject::Sidecar => return sidecar::run(arguments),
        Subject::Engine => "microseconds of CPU",
        Subject::Counts => "per request",
    };
    let is_counts = matches!(arguments.subject, Subject::Counts);
    need(PEERS)?;
    if is_counts {
        need(INSTRUMENTS)?;
    }
    let (h2lab, generator) = (H2lab::build()?, H2lab::build_example("load")?);
    let contests =
        if is_counts { counts::contests(&h2lab, &generator)? } else { engine::contests(&h2lab, &generator)? };
    let rounds = arguments.rounds.unwrap_or(if is_counts { 3 } else { 9 });
    let wanted = |contest: &&Contest| {
        arguments.only.is_empty() || arguments.only.iter().any(|id| contest.id.starts_with(id.as_str()))
    };
    let chosen: Vec<&Contest> = contests.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let ids: Vec<&str> = contests.iter().map(|contest| contest.id).collect();
        bail!("no contest begins with that; there are {}", ids.join(", "));
    }
    let mut table = format!(
        "{what:<22} {:>9} {:>9}  {:>6} {:>15} {:>6} {:>6}\n",
        "ours", "peer", "ratio", "95 % of median", "limit", "aim"
    );
    print!("{table}");
    let mut held = true;
    for contest in chosen {
        let (line, holds) = hold(contest, rounds)?;
        println!("{line}");
        held &= holds;
        let _ = writeln!(table, "{line}"); // writing to a String cannot fail
    }
    if let Some(file) = &arguments.record {
        std::fs::write(file, markdown(arguments.subject, rounds, &table))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The table, and how to reproduce it.
fn markdown(subject: Subject, rounds: u32, table: &str) -> String {
    let name =
        clap::ValueEnum::to_possible_value(&subject).map_or_else(String::new, |v| v.get_name().to_owned());
    format!(
        "# Ours against its peers: {name}\n\n`cargo xtask bench {name} --rounds {rounds}`: medians of {rounds} paired \
         rounds, and of their ratios (ours / peer).\n\n```text\n{table}```\n"
    )
}

/// The peers' programs and the Debian packages that have them.
const PEERS: &[(&str, &str)] = &[
    ("h2load", "nghttp2-client"),
    ("nghttpd", "nghttp2-server"),
    ("nginx", "nginx-light"),
    ("wrk", "wrk"),
    ("setpriv", "util-linux"),
];

/// The programs that count.
const INSTRUMENTS: &[(&str, &str)] = &[("valgrind", "valgrind"), ("perf", "linux-perf")];

/// Refuses to begin without these programs: a benchmark installs nothing unasked.
fn need(programs: &[(&str, &'static str)]) -> Result<()> {
    let missing: Vec<&str> = programs
        .iter()
        .filter(|(name, _)| process::find(name).is_none())
        .map(|&(_, package)| package)
        .collect();
    if !missing.is_empty() {
        bail!("programs are missing: apt-get install --no-install-recommends -y {}", missing.join(" "));
    }
    Ok(())
}

/// Runs one contest; its line of the table, and whether the limit held.
fn hold(contest: &Contest, rounds: u32) -> Result<(String, bool)> {
    let mut pairs = Vec::new();
    for round in 0..rounds {
        pairs.push((contest.round)(round % 2 == 1).with_context(|| contest.id)?);
    }
    let ratios = Ratios::of(&pairs);
    let holds = ratios.median <= contest.limit;
    let mark = if holds { "" } else { "  EXCEEDED" };
    let line = format!(
        "{:<22} {:>9.3} {:>9.3}  {:>6.3} {:>15} {:>6.2} {:>6.2}  {}{mark}",
        contest.id,
        ratios.ours,
        ratios.peer,
        ratios.median,
        format!("{:.3} to {:.3}", ratios.low, ratios.high),
        contest.limit,
        contest.aim,
        contest.claim,
    );
    Ok((line, holds))
}
