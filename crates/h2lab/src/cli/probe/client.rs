//! `h2lab probe client`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_model::probe::client::grade;
use h2lab_model::probe::client::grade::Played;
use h2lab_model::probe::client::{Act, Performance, score_card};
use h2lab_model::probe::{Limits, ProbeReport, Spent, Subject};

use super::output::ReportArgs;
use crate::cli::exit::Usage;
use crate::cli::values::duration;
use crate::cli::{Exit, help, signals, tls};
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::clock::Clock;
use h2lab_net::resources;
use h2lab_roles::probe::client;
use h2lab_roles::probe::client::{ClientError, Script};

/// Check how a client behaves when its server ends connections, refuses streams, or falls silent
///
/// Runs the client's command once for each act of a server of ours on loopback, and grades it: connections per GOAWAY, requests
/// lost against those that could be sent again, windows and how often credit comes back, frame size, PINGs, time to recover,
/// `TCP_NODELAY`, settings that it ignores. Each verdict has its evidence and the library's setting that fixes it; a score card
/// closes the report.
///
/// In the command, `{url}` is the server's URL, `{urls}` several of them (-n), and `{ca}` the file of the authority that its certificate
/// can be checked by. A command that makes several requests, some at a time, shows more than one that makes one.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab probe client --run 'curl -s --http2-prior-knowledge -Z {urls}'", "curl, twelve requests at a time"),
        ("h2lab probe client --tls --run 'curl -s --cacert {ca} {url}'", "over TLS"),
        ("h2lab probe client --run 'node app.js {url}' --act stream-quota,black-out --json", "two acts, for scripts"),
    ],
))]
pub struct ClientArgs {
    /// The client's command, for `sh -c`
    #[arg(long, value_name = "COMMAND")]
    run: String,
    /// How many URLs {urls} stands for [default: 12]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    requests: Option<u16>,
    /// Serve TLS: h2 and http/1.1 by ALPN
    #[arg(long)]
    tls: bool,
    /// Play these acts only, behind `plain`: see docs/probe-client.md
    #[arg(long, value_name = "ACT", value_delimiter = ',', value_parser = act)]
    act: Vec<Act>,
    /// How long the command may run on once the server says nothing more, in the acts in which it falls silent
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    patience: Duration,
    /// How long the command may run in any act
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    time_limit: Duration,
    #[command(flatten)]
    report: ReportArgs,
}

/// URLs that `{urls}` stands for, unless `-n` says otherwise.
const URLS: u16 = 12;

fn act(name: &str) -> Result<Act, String> {
    Act::named(name).ok_or_else(|| {
        let names = Act::ALL.map(Act::name).join(", ");
        format!("there is no act `{name}`: {names}")
    })
}

/// Probes a client.
pub fn main(args: &ClientArgs) -> Result<Exit> {
    args.report.validate()?;
    if !["{url}", "{urls}"].iter().any(|place| args.run.contains(place)) {
        return Err(Usage(
            "--run: the command has neither {url} nor {urls}, where the server's URL goes".to_owned(),
        )
        .into());
    }
    for (is_wrong, message) in [
        (args.run.contains("{ca}") && !args.tls, "{ca} is the authority of --tls, which is not given"),
        (
            args.requests.is_some() && !args.run.contains("{urls}"),
            "-n says how many {urls} are, and --run has none",
        ),
    ] {
        if is_wrong {
            return Err(Usage(message.to_owned()).into());
        }
    }
    tls::announce_key_log()?;
    // A stampede of the client's takes as many descriptors here as there.
    resources::raise_open_files();
    let stop = signals::stop_flag()?;
    let script = Script {
        command: args.run.clone(),
        urls: usize::from(args.requests.unwrap_or(URLS)),
        tls: args.tls,
        patience: args.patience,
        limit: args.time_limit,
        acts: acts(&args.act),
    };
    let clock = Clock::start();
    let played = match client::play(&script, clock, &stop, &mut |act| eprintln!("{} …", act.name())) {
        Ok(played) => played,
        Err(ClientError::Interrupted) => return Ok(Exit::Interrupted),
        Err(error) => {
            let message = error.to_string();
            return Err(Failure { kind: FailureKind::Environment, message }.into());
        }
    };
    args.report.tell(&report(args, &played))
}

/// Plain comes first, since all others are measured by it.
fn acts(chosen: &[Act]) -> Vec<Act> {
    let is_chosen = |act: &Act| chosen.is_empty() || *act == Act::Plain || chosen.contains(act);
    Act::ALL.into_iter().filter(is_chosen).collect()
}

fn report(args: &ClientArgs, played: &[Performance]) -> ProbeReport {
    let software = played.iter().flat_map(|act| &act.connections).find_map(|seen| seen.user_agent.clone());
    let checks: Vec<_> = grade::checks(Played(played))
        .into_iter()
        .map(|check| check.for_product(software.as_deref().or(Some(&args.run))))
        .collect();
    let connections: usize = played.iter().map(Performance::dials).sum();
    let took: Duration = played.iter().map(|act| act.took).sum();
    ProbeReport {
        target: args.run.clone(),
        subject: Subject::Client,
        software,
        checklist: score_card(&checks),
        checks,
        limits: Limits::default(),
        attempts: Vec::new(),
        spent: Spent {
            requests: played
                .iter()
                .flat_map(|act| &act.connections)
                .map(|seen| seen.requests.len() as u64)
                .sum(),
            bytes: 0,
            received: 0,
            connections: connections as u64,
            ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        },
        warnings: if played.len() < acts(&args.act).len() {
            vec![
                "only `plain` was played: what a client does there by itself, it would do in all others"
                    .to_owned(),
            ]
        } else {
            Vec::new()
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_is_always_played_and_first() {
        assert_eq!(acts(&[Act::BlackOut, Act::Quota]), [Act::Plain, Act::Quota, Act::BlackOut]);
        assert_eq!(acts(&[]), Act::ALL);
    }
}
