//! `load --agents`: the load is made by agents on other machines, each a share of it, over NATS.
//!
//! What was asked is checked here, where nothing was sent yet. Agents plan the same scenario, dial, and begin at one
//! instant; what each has measured comes as a part of the object store ([`parts`]). The merged record is kept, reported
//! and judged as any load's.

mod connection;
mod parts;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_base::counts::plural;
use h2lab_base::text::made_printable;
use h2lab_model::fleet::messages::{OrderError, encode_order};
use h2lab_model::fleet::{
    AgentCard, AgentName, FleetTimeouts, LoadCoordinator, LoadJob, LoadOutcome, LoadTask, ShareEnd,
    ShareRecord, ToAgent,
};
use h2lab_model::record::Level;
use h2lab_model::workload::{Arrival, Protocol, Share, due_within};
use h2lab_net::clock::Clock;
use h2lab_net::privileges;
use h2lab_roles::fleet::drive_load;
use h2lab_roles::load::{FULL_BURST, FULL_RATE, MOST_SAMPLES};

use super::super::agents::time_above_zero;
use super::super::exit::Usage;
use super::super::flags::Flags;
use super::super::nats::{DRIVER, NatsArgs, explained};
use super::super::values::value;
use super::super::{Exit, note, rights, signals};
use super::LoadArgs;
use super::plan::{self, LoadPlan};
use super::requests::{self, Requests};
use super::run::{Begun, Loaded, sentence, shown, usual_threads};
use super::view::LoadView;
use crate::run::agent::free::{self, Purpose};
use crate::run::agent::who::Present;
use crate::run::fleet;
use crate::run::messages::{Failure, FailureKind};
use connection::ConnectionNotes;
use parts::{Collected, collect};
use watch::Watch;

/// What the agents are needed for.
const PURPOSE: Purpose = Purpose { flags: "--agents", what: "load" };

/// What an agent says of a server that speaks TLS and not the protocol that was offered to it.
const NOT_SPOKEN: &str = "over TLS (ALPN)";

/// What is said of a load that a third Ctrl-C ends.
const ENDED_AT_ONCE: &str = "ended at once: agents that were not told stop within a minute, and what they have \
                             stored at NATS goes after 7 days";

/// Which agents make the load.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Agents")]
pub struct AgentsArgs {
    /// Have these agents make the load, an equal share each; `h2lab agents` lists those that are there
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = value::<AgentName>)]
    agents: Vec<AgentName>,
    /// Time to wait for the agents to be ready, and for their connections
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time_above_zero, requires = "agents")]
    setup_timeout: Duration,
    /// Time to wait for results after the end; a share without a result by then is lost
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time_above_zero, requires = "agents")]
    grace: Duration,
    #[command(flatten)]
    nats: Flags<NatsArgs>,
}

impl AgentsArgs {
    /// Whether agents make the load. Flags about NATS that would have no effect are refused; the variable is for all
    /// commands.
    pub fn are_named(&self) -> Result<bool, Usage> {
        if self.agents.is_empty() {
            self.nats.refuse(&[], "has no effect without --agents NAME,…; `h2lab agents` lists agents")?;
        }
        Ok(!self.agents.is_empty())
    }

    /// Into how many shares the load is divided.
    pub fn count(&self) -> u32 {
        u32::try_from(self.agents.len()).unwrap_or(u32::MAX).max(1)
    }
}

/// Has agents make the load, from the flags to the exit code.
pub fn run(args: &LoadArgs, command_line: Vec<String>) -> Result<Exit> {
    check(args)?;
    let requests = requests::read(&args.urls, args.urls_file.as_deref(), args.client.request.template)?;
    let protocols = plan::protocols(args, requests.url.is_tls())?;
    let plan = plan::plan(args, &requests, protocols[0])?;
    check_shares(args.agents.count(), &plan)?;
    args.output.check_names(std::slice::from_ref(&plan.cell))?;
    let mut job = job(args, &requests, &plan)?;
    args.agents.nats.check_key(&job.task.trust)?;
    rights::reduce(privileges::NONE)?;
    let nats = args.agents.nats.connect(DRIVER)?;
    nats.setup().map_err(|error| explained(error, &args.agents.nats.servers()))?;
    let agents = &args.agents.agents;
    let mut waits = |words: &str| {
        if !args.quiet {
            note(&words);
        }
    };
    let present = free::await_free(&nats, PURPOSE, agents, &mut waits)?;
    let cpus = least_cpus(agents, &present);
    let is_open = !matches!(plan.cell.work.arrival, Arrival::Closed { .. });
    job.task.threads = threads(args.load.threads, cpus, is_open)?;
    let stop = signals::stop_flag()?;
    let begun = Begun::now(args, args.agents.nats.added_to(command_line))?;
    signals::say_at_once(ENDED_AT_ONCE);
    let load = || -> Result<Loaded> {
        let _notes = (!args.quiet).then(|| ConnectionNotes::of(&nats));
        let transports = fleet::transports(&nats, &args.agents.agents)?;
        let view = LoadView::start(shown(args), &plan);
        let mut watch = Watch::new(&view, sentence_of_agents(args, &requests, &plan), args.quiet);
        let clock = Clock::start();
        let mut look = |coordinator: &mut LoadCoordinator, now| {
            if signals::must_leave() {
                coordinator.abandon();
            }
            watch.update(coordinator, now);
        };
        let outcome = signals::in_sessions(|| drive_load(job, clock, transports, &stop, &mut look))?;
        drop(view);
        if signals::must_leave() {
            return Err(left().into());
        }
        if let Some(failure) = not_begun(&outcome, &protocols) {
            return Err(failure.into());
        }
        let Collected { record, lost } = collect(&outcome, clock, &plan, &nats.parts(), &present)?;
        let record = record.ok_or_else(|| nothing(&lost, &protocols, outcome.interrupted))?;
        Ok(Loaded { plan: plan.clone(), record, interrupted: outcome.interrupted })
    };
    let loaded = begun.unless_failed(load())?;
    begun.conclude(args, loaded, Ok(()))
}

/// Refuses what cannot be done with agents.
fn check(args: &LoadArgs) -> Result<(), Usage> {
    let refused = |words: &str| Err(Usage(words.to_owned()));
    if args.dump.is_some() {
        return refused(
            "--dump: with --agents requests end on other machines; `-o requests.parquet` has those that --record \
             kept, after the end",
        );
    }
    if args.prometheus.is_some() {
        return refused(
            "--prometheus: with --agents requests are counted on other machines, which serve no metrics",
        );
    }
    let agents = &args.agents.agents;
    let mut seen = BTreeSet::new();
    if let Some(twice) = agents.iter().find(|agent| !seen.insert(*agent)) {
        return Err(Usage(format!("--agents: {twice} is named twice, and makes one share")));
    }
    if args.agents.count() > Share::MOST {
        return Err(Usage(format!(
            "--agents: {} are named, at most {} can share a load",
            agents.len(),
            Share::MOST
        )));
    }
    args.reach.check(&args.client.protocol)
}

/// Refuses a load of which an agent would have no connection.
fn check_shares(agents: u32, plan: &LoadPlan) -> Result<(), Usage> {
    let connections = plan.cell.connections;
    if connections < agents {
        return Err(Usage(format!(
            "--agents: {agents} agents need a connection each, and the load has {connections}: raise -c (and -n), \
             or name fewer agents"
        )));
    }
    Ok(())
}

/// The CPUs of that of these agents which has the fewest: all have as many threads, since requests are dealt out to the threads of
/// all.
fn least_cpus(agents: &[AgentName], present: &Present) -> usize {
    let is_named = |card: &&AgentCard| agents.contains(&card.name);
    let cards = present.agents.iter().map(|seen| &seen.card).filter(is_named);
    cards.map(|card| card.cpus as usize).min().unwrap_or(1)
}

/// Threads of each agent, where the smallest has so many CPUs. An agent would take no more than are usual for its CPUs, and all must
/// have the same number.
fn threads(asked: Option<u32>, cpus: usize, is_open: bool) -> Result<u32, Usage> {
    let usual = usual_threads(cpus, is_open);
    match asked {
        Some(asked) if asked > usual => Err(Usage(format!(
            "-t/--threads {asked}: the smallest of the agents has {}, so that each may have at most {}",
            plural(cpus as u64, "CPU"),
            plural(usual.into(), "thread")
        ))),
        asked => Ok(asked.unwrap_or(usual)),
    }
}

/// The load as agents receive it; refused if it is too long for a message. How many threads they have is known only once they have
/// answered.
fn job(args: &LoadArgs, requests: &Requests, plan: &LoadPlan) -> Result<LoadJob, Usage> {
    let phases = plan.cell.work.phases;
    let job = LoadJob {
        agents: args.agents.agents.iter().map(ToString::to_string).collect(),
        task: LoadTask {
            scenario: plan.scenario.clone(),
            congestion: plan.cell.congestion.clone(),
            requests: plan.requests,
            share: Share::default(),
            threads: 1,
            level: args.load.record.0.unwrap_or_else(|| level(plan)),
            frames: args.frames,
            url: requests.text.clone(),
            reach: args.reach.reach(),
            trust: args.reach.tls.trust()?,
            protocol: plan.cell.protocol,
        },
        duration: phases.warmup + phases.measure + phases.drain,
        waits: FleetTimeouts { setup: args.agents.setup_timeout, grace: args.agents.grace },
    };
    // The numbers of a share make a few bytes of difference.
    match encode_order(&ToAgent::Load(Box::new(job.task.clone()))) {
        Ok(_) => Ok(job),
        Err(error @ OrderError::TooLong { .. }) => Err(Usage(format!(
            "--agents: {error}: give less with -d or --urls-file, or use --body-bytes (of -d, what is not UTF-8 \
             takes four times its size)"
        ))),
        Err(OrderError::Json(error)) => Err(Usage(format!("--agents: {error}"))),
    }
}

/// What all agents record, where nothing was said: one level for all, since what one only counts cannot be kept of the
/// others. It is chosen before the load, as a load of this process would go on: how much a closed loop sends is not
/// known, unless -n says it.
fn level(plan: &LoadPlan) -> Level {
    let work = &plan.cell.work;
    let rate = match work.arrival {
        Arrival::Closed { .. } => f64::INFINITY,
        Arrival::Constant { rate } | Arrival::Poisson { rate } => rate,
        Arrival::Ramp { from, to, .. } => from.max(to),
    };
    let due = due_within(work.arrival, work.phases.warmup + work.phases.measure).unwrap_or(f64::INFINITY);
    let due = due.min(plan.requests.map_or(f64::INFINITY, |n| n as f64));
    let is_kept = due <= FULL_BURST as f64 || rate <= FULL_RATE && due <= MOST_SAMPLES as f64;
    if is_kept { Level::Full } else { Level::Tail }
}

/// What is done, in a line.
fn sentence_of_agents(args: &LoadArgs, requests: &Requests, plan: &LoadPlan) -> String {
    let text = plan.cell.work.url_as_shown(&requests.text);
    format!("{text} by {}: {}", names(&args.agents.agents), sentence(plan))
}

/// `3 agents (a, b, c)`; of many the first ones.
fn names(agents: &[AgentName]) -> String {
    let names: Vec<&str> = agents.iter().map(AgentName::as_str).collect();
    format!("{} ({})", plural(agents.len() as u64, "agent"), few(&names))
}

/// `a, b, c`; of many the first ones.
fn few(names: &[&str]) -> String {
    const SHOWN: usize = 6;
    let mut shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>();
    if names.len() > SHOWN {
        shown.push("…");
    }
    shown.join(", ")
}

/// The error after a second Ctrl-C: the parts of the interrupted load were not waited for.
fn left() -> Failure {
    let message = "the load was ended without results; agents that were told stop at once, others within a \
                   minute";
    Failure { kind: FailureKind::Interrupted, message: message.to_owned() }
}

/// Why a load was not begun that an agent has refused; `None` if none has.
fn not_begun(outcome: &LoadOutcome, protocols: &[Protocol]) -> Option<Failure> {
    let is_refused = |share: &ShareRecord| matches!(share.end, ShareEnd::Failed { .. });
    if !outcome.shares.iter().any(is_refused) {
        return None;
    }
    let why = |share: &ShareRecord| Some(format!("{}: {}", share.agent.name, share.agent.lost.as_ref()?));
    let why = outcome.shares.iter().filter_map(why).collect::<Vec<_>>().join("; ");
    let message = format!("the load was not begun: {}{}", made_printable(&why), other(&why, protocols));
    Some(Failure { kind: FailureKind::Unreachable, message })
}

/// Why there is nothing to report, where no share is there.
fn nothing(lost: &[String], protocols: &[Protocol], interrupted: bool) -> Failure {
    let kind = if interrupted { FailureKind::Interrupted } else { FailureKind::Unreachable };
    let why = lost.join("; ");
    Failure { kind, message: format!("no agent has made its share: {why}{}", other(&why, protocols)) }
}

/// The protocol that a load of this process would try next, where the server does not speak the first one.
fn other(why: &str, protocols: &[Protocol]) -> String {
    match protocols {
        [first, second, ..] if why.contains(NOT_SPOKEN) => {
            format!("; agents try {first} only: --proto {second} has them speak that")
        }
        _ => String::new(),
    }
}
