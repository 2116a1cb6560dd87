//! `h2lab agents`: who is at a NATS server, and which runs are open there.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

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

/// How long the reports of one run are read: each is a question of its own, and there may be thousands.
const READING: Duration = Duration::from_secs(30);

/// List the agents at a NATS server, and the open runs
///
/// Asks all agents who is there, and prints a line for each: whether it is free or with whom it is busy, its version, what
/// its machine has, what it permits, and how far its clock is ahead of this one's. Below them are the runs whose units agents
/// still measure. Exits with 3 if no agent answers.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab agents --nats nats://hub.example:4222", "which agents answer?"),
        ("h2lab agents --nats tls://hub.example --creds me.creds --wait 3s --json", "for a script, over a slow network"),
    ],
))]
pub struct AgentsArgs {
    /// How long answers are waited for
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_above_zero)]
    wait: Duration,
    /// One JSON document on stdout instead of text
    #[arg(long)]
    json: bool,
    // The last: the heading of these flags goes for all that follow them.
    #[command(flatten)]
    server: NatsArgs,
}

/// A time to wait: in none nobody can answer.
pub fn time_above_zero(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("give a time of more than 0".to_owned()),
        time => Ok(time),
    }
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

/// Of how many of a run's `units` an agent has reported in its own name.
fn reported(nats: &Nats, run: &str, units: u32) -> Result<u32, NatsError> {
    counted(units, READING, |after| nats.reports().read(run, after, Duration::ZERO))
}

/// The same of reports that `read` gives: those behind a number. The number of a unit that was added again is so many higher.
/// Fails after `time`: reports may come as fast as they are read.
fn counted(
    units: u32,
    time: Duration,
    mut read: impl FnMut(u64) -> Result<Vec<StoredReport>, NatsError>,
) -> Result<u32, NatsError> {
    let (of, began) = (units.max(1), Instant::now());
    let (mut reported, mut after) = (BTreeSet::new(), 0);
    loop {
        let reports = read(after)?;
        let Some(last) = reports.last() else { return Ok(reported.len() as u32) };
        if began.elapsed() >= time {
            return Err(NatsError::Timeout { what: "to a request for all reports".to_owned(), after: time });
        }
        after = last.sequence;
        let unit = |stored: &StoredReport| {
            let report: UnitReport = decode_printable(&String::from_utf8_lossy(&stored.payload)).ok()?;
            (report.agent == stored.agent).then_some(report.unit % of)
        };
        reported.extend(reports.iter().filter_map(unit));
    }
}

#[cfg(test)]
mod tests {
    use h2lab_model::fleet::messages::encode;
    use h2lab_model::record::HostId;

    use super::*;

    /// The report `sequence`, of this unit, published in the name of kek-1.
    fn stored(sequence: u64, unit: u32, agent: &str) -> StoredReport {
        let report = UnitReport {
            run: "run".to_owned(),
            unit,
            agent: agent.to_owned(),
            machine: "Linux".to_owned(),
            likeness: "alike".to_owned(),
            host: HostId::default(),
            outcome: Err("nginx does not start".to_owned()),
            delivered: 1,
        };
        let payload = encode(&report).unwrap().into_bytes();
        StoredReport { sequence, agent: "kek-1".to_owned(), payload }
    }

    #[test]
    fn a_unit_counts_as_reported_once_however_often_it_was_added_and_only_in_its_agents_own_name() {
        let reports =
            [stored(1, 0, "kek-1"), stored(2, 4, "kek-1"), stored(3, 1, "kek-2"), stored(4, 7, "kek-1")];
        let behind = |after: u64| -> Result<Vec<StoredReport>, NatsError> {
            Ok(reports.iter().filter(|one| one.sequence > after).take(2).cloned().collect())
        };
        assert_eq!(counted(4, Duration::from_secs(3600), behind).unwrap(), 2);
    }

    #[test]
    fn who_waits_waits_for_some_time() {
        assert_eq!(time_above_zero("1ms"), Ok(Duration::from_millis(1)));
        for none in ["0", "0s", "0ms"] {
            assert!(time_above_zero(none).unwrap_err().contains("more than 0"), "{none}");
        }
    }

    #[test]
    fn reports_that_never_end_are_read_for_some_time_only() {
        let endless = |after: u64| Ok(vec![stored(after + 1, 0, "kek-1")]);
        let error = counted(4, Duration::ZERO, endless).unwrap_err();
        assert!(matches!(error, NatsError::Timeout { .. }), "{error}");
        assert_eq!(counted(4, Duration::ZERO, |_| Ok(Vec::new())).unwrap(), 0, "there are none");
    }
}
