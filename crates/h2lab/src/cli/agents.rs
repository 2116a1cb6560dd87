//! `h2lab agents`: who is at a NATS server, and which runs are open there.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_base::units::millis_f64;
use h2lab_model::fleet::messages::decode_printable;
use h2lab_model::fleet::{RunInfo, UnitReport};
use h2lab_nats::{Nats, NatsError, ServerFacts, StoredReport};
use h2lab_report::{AgentsDocument, NatsServerDocument, OpenRunDocument, agent_card_document, agents_text};

use super::nats::{NatsArgs, OBSERVER, explained_cause};
use super::values::duration;
use super::{Exit, help, output, rights};
use crate::run::agent::who;
use h2lab_net::privileges;

/// List the agents at a NATS server, and the open runs
///
/// Asks all agents who is there, and prints a line for each: whether it is free or with whom it is busy, its version, what
/// its machine has, and how far its clock is ahead of this one's. Below them are the runs whose units agents still measure.
/// Exits with 3 if no agent answers.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab agents --nats nats://hub.example:4222", "who is there?"),
        ("h2lab agents --nats tls://hub.example --creds me.creds --wait 3s --json", "for a script, over a slow network"),
    ],
))]
pub struct AgentsArgs {
    /// How long answers are waited for
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    wait: Duration,
    /// One JSON document on stdout instead of text
    #[arg(long)]
    json: bool,
    // The last: the heading of these flags goes for all that follow them.
    #[command(flatten)]
    server: NatsArgs,
}

/// Asks and lists.
pub fn main(args: &AgentsArgs) -> Result<Exit> {
    rights::reduce(privileges::NONE)?;
    let nats = args.server.connect(OBSERVER)?;
    let present =
        who::ask(&nats, args.wait).map_err(|error| explained_cause(error, &args.server.servers()))?;
    let mut warnings = present.doubts;
    let runs = open_runs(&nats).unwrap_or_else(|error| {
        warnings.push(format!("Open runs are not known: {error}."));
        Vec::new()
    });
    let agents = present.agents.iter().map(|seen| agent_card_document(&seen.card, seen.clock));
    let document = AgentsDocument {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        server: server_document(&nats.server()),
        wait_s: args.wait.as_secs_f64(),
        agents: agents.collect(),
        runs,
        warnings,
    };
    if args.json {
        output::print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        output::print(&agents_text(&document, output::style()))?;
    }
    Ok(if document.agents.is_empty() { Exit::Unreachable } else { Exit::Done })
}

fn server_document(facts: &ServerFacts) -> NatsServerDocument {
    NatsServerDocument {
        name: facts.name.to_string(),
        version: facts.version.to_string(),
        round_trip_ms: facts.round_trip.map(millis_f64),
        max_payload: facts.max_payload as u64,
    }
}

/// The open runs, the oldest first. An entry that is of another version, or none, is left out: its run belongs to others.
fn open_runs(nats: &Nats) -> Result<Vec<OpenRunDocument>, NatsError> {
    let mut open = Vec::new();
    for (run, bytes) in nats.runs().all()? {
        if let Ok(info) = decode_printable::<RunInfo>(&String::from_utf8_lossy(&bytes))
            && info.run == run
        {
            open.push(OpenRunDocument {
                waiting: nats.cells().waiting(&run).ok().map(|units| units.len() as u32),
                reported: reported(nats, &run, info.units).ok(),
                run,
                driver: info.driver,
                started: info.started,
                agents: info.agents,
                units: info.units,
            });
        }
    }
    open.sort_by(|one, other| (&one.started, &one.run).cmp(&(&other.started, &other.run)));
    Ok(open)
}

/// Of how many of a run's `units` an agent has reported in its own name. The number of one that was added again is so many
/// higher.
fn reported(nats: &Nats, run: &str, units: u32) -> Result<u32, NatsError> {
    let of = units.max(1);
    let (mut reported, mut after) = (BTreeSet::new(), 0);
    loop {
        let reports = nats.reports().read(run, after, Duration::ZERO)?;
        let Some(last) = reports.last() else { return Ok(reported.len() as u32) };
        after = last.sequence;
        let unit = |stored: &StoredReport| {
            let report: UnitReport = decode_printable(&String::from_utf8_lossy(&stored.payload)).ok()?;
            (report.agent == stored.agent).then_some(report.unit % of)
        };
        reported.extend(reports.iter().filter_map(unit));
    }
}
