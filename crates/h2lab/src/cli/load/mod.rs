//! `h2lab load URL`: the load generator for users of wrk, wrk2, h2load, hey, vegeta, oha or fortio.
//!
//! [`plan`] makes one [`Cell`](h2lab_model::scenario::Cell) of the flags, [`run`] does it in this process, `agents` has it done
//! by agents, [`view`] shows how it goes.

#[cfg(feature = "nats")]
mod agents;
mod dump;
pub(super) mod exporter;
mod flags;
mod metrics;
mod plan;
mod requests;
mod run;
#[cfg(test)]
mod tests;
mod view;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use self::flags::AmountArgs;
use super::client::ClientArgs;
use super::exit::Usage;
use super::flags::Flags;
use super::output::OutputArgs;
use super::policy::PolicyArgs;
use super::reach::ReachArgs;
use super::{Exit, help, tls};

/// Send load to a server and report its response times
///
/// Closed loop unless -q says how many requests per second are due: each of -c connections carries -m requests at a time,
/// and a request follows as soon as one has ended. Without flags: GET for 10 s, over 50 connections of HTTP/1.1, or with
/// 100 streams on one connection of HTTP/2.
///
/// https:// is asked in HTTP/2 if the server takes it (ALPN), else in HTTP/1.1; http:// in HTTP/1.1 unless --proto or
/// --http2-prior-knowledge says otherwise. A protocol that was named is never replaced by another.
///
/// All URLs of a run have one scheme, host and port; each may have a weight: `URL weight=3`, as one argument.
///
/// With --agents the load is made by agents on other machines (`h2lab agent --nats`), each an equal share of it: -q, -c and -n
/// are of all together, -t is of each. Together they are one arrival process; the report is of the sum.
///
/// With SSLKEYLOGFILE set, TLS secrets are written to that file, for Wireshark.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab load http://127.0.0.1:8080/", "as hey does: 10 s, 50 connections"),
        ("h2lab load -n 1000 -c 10 https://service.example/", "a thousand requests"),
        ("h2lab load -q 2000 --arrival poisson -z 30s --warmup 2s http://127.0.0.1:8080/", "open loop"),
        ("h2lab load --ramp 100..5000/60s/10 -z 60s http://127.0.0.1:8080/", "ten steps from 100 to 5000 per second"),
        ("h2lab load --proto h2c -c 4 -m 100 http://127.0.0.1:8080/", "HTTP/2 in clear, 400 in flight"),
        ("h2lab load -X POST -d @order.json -H 'content-type: application/json' http://127.0.0.1:8080/", "bodies"),
        ("h2lab load -z 1h --prometheus 9100 http://127.0.0.1:8080/", "meanwhile: curl 127.0.0.1:9100/metrics"),
        ("h2lab load -z 5s --dump requests.csv -o run.html -o run.vegeta.csv http://127.0.0.1:8080/", "single requests"),
        ("h2lab load --fail-if 'p99 > 50ms' --fail-if 'errors > 0.1%' --json http://127.0.0.1:8080/", "as a gate"),
        ("h2lab load --agents kek-1,kek-2,kek-3 --nats nats://hub:4222 -q 300000 https://service.example/", "three machines"),
    ],
))]
pub struct LoadArgs {
    /// The URLs to request (http:// or https://); of several, each request picks one by weight
    #[arg(value_name = "URL", required_unless_present = "urls_file")]
    pub urls: Vec<String>,
    /// File of targets: lines `URL` or `METHOD URL`, each with an optional `weight=N`, or vegeta's format
    #[arg(long = "urls", value_name = "FILE")]
    pub urls_file: Option<PathBuf>,
    #[command(flatten)]
    pub load: AmountArgs,
    #[command(flatten)]
    pub client: Flags<ClientArgs>,
    #[command(flatten)]
    pub policy: Flags<PolicyArgs>,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Serve /metrics for Prometheus during the run: a port of 127.0.0.1, or ADDRESS:PORT; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", value_parser = exporter::address)]
    pub prometheus: Option<std::net::SocketAddr>,
    /// Write a line per request as it ends: FILE.csv, FILE.jsonl, or - for CSV on stdout (then the summary goes to stderr)
    #[arg(long, value_name = "FILE")]
    pub dump: Option<PathBuf>,
    /// Run folder [default: h2lab-runs/<UTC>-<seed>]
    #[arg(long, value_name = "DIR", conflicts_with = "no_store")]
    pub out: Option<PathBuf>,
    /// Do not keep a run folder
    #[arg(long)]
    pub no_store: bool,
    /// Record every frame too, for frames.parquet of the run folder
    ///
    /// Frames are counted by type in any case. Recording each takes memory and up to a fifth of the generator's CPU.
    #[arg(long)]
    pub frames: bool,
    /// Plain progress lines instead of the live view
    #[arg(long)]
    pub no_live: bool,
    /// No progress at all
    #[arg(short_alias = 's', long, alias = "silent")]
    pub quiet: bool,
    // The last: the headings of these flags go for all that follow them.
    #[cfg(feature = "nats")]
    #[command(flatten)]
    pub agents: agents::AgentsArgs,
}

impl LoadArgs {
    /// Into how many shares the load is divided: one for each agent; this process has all of it.
    #[cfg(feature = "nats")]
    fn shares(&self) -> u32 {
        self.agents.count()
    }

    /// The same without agents.
    #[cfg(not(feature = "nats"))]
    #[expect(clippy::unused_self, reason = "with the feature `nats` the flags decide")]
    const fn shares(&self) -> u32 {
        1
    }
}

/// Sends the load and says how it went.
pub fn main(args: &LoadArgs, command_line: Vec<String>) -> Result<Exit> {
    args.output.validate()?;
    if args.output.verdicts {
        let words = "--verdicts: a load has no baseline; `h2lab compare` gives verdicts";
        return Err(Usage(words.to_owned()).into());
    }
    if args.dump.as_deref().is_some_and(dump::is_stdout) && args.output.json {
        return Err(Usage("--dump - and --json both write to stdout; give --dump a file".to_owned()).into());
    }
    #[cfg(feature = "nats")]
    if args.agents.are_named()? {
        return agents::run(args, command_line);
    }
    tls::announce_key_log()?;
    run::run(args, command_line)
}
