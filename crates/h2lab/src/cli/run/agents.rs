//! `h2lab run --agents`: the cells are measured by agents on other machines.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_base::counts::plural;
use h2lab_base::units::Time;
use h2lab_model::fleet::AgentName;
use h2lab_model::record::CellRecord;
use h2lab_model::scenario::Cell;

use super::super::cells::{CheckedScenario, conclude, open};
use super::super::exit::Usage;
use super::super::flags::Flags;
use super::super::nats::{DRIVER, NatsArgs, explained_cause};
use super::super::output::OutputArgs;
use super::super::progress::{ProgressLine, about, describe};
use super::super::resume::Unfinished;
use super::super::values::{value, whole};
use super::super::{Exit, note, rights, signals};
use crate::run::remote::{Asked, KeptRun, ReadyRun, RemoteObserver};
use h2lab_net::clock::Clock;
use h2lab_net::privileges;

/// Which agents measure.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Agents")]
pub struct RunAgentsArgs {
    /// Have these agents measure the cells; `h2lab agents` lists those that are there
    ///
    /// All cells that are compared with each other are measured by one agent. Agents take what they can measure, one after
    /// the other; what an agent had that is gone goes to another one. The same flags with --resume continue a run whose driver
    /// was stopped.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = value::<AgentName>)]
    agents: Vec<AgentName>,
    /// Have each comparison made by N agents, and show whether they find the same [default: 1]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=100))]
    reproduce: Option<u32>,
    /// Take machines with other CPUs, kernels or isolation, too; each comparison still stays on one of them
    #[arg(long)]
    unlike_machines: bool,
    #[command(flatten)]
    nats: NatsArgs,
}

/// Whether agents measure. Flags that would have no effect are refused; the variable with the server is for all commands.
pub(super) fn are_named(args: &Flags<RunAgentsArgs>) -> Result<bool, Usage> {
    if args.agents.is_empty() {
        args.refuse(&[], "has no effect without --agents NAME,…; `h2lab agents` lists agents")?;
        return Ok(false);
    }
    let mut names: Vec<&AgentName> = args.agents.iter().collect();
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Usage(format!("--agents: {} is named twice", pair[0]))),
        None => Ok(true),
    }
}

/// Has agents measure the plan, concludes, reports.
pub(super) fn run(checked: CheckedScenario<'_>, args: &RunAgentsArgs, output: &OutputArgs) -> Result<Exit> {
    let CheckedScenario { scenario, live: _, out, quiet, unfinished, command_line } = checked;
    // What agents would refuse is refused here.
    scenario.as_received()?;
    let plan = scenario.plan();
    output.check_names(&plan)?;
    if let Some(unfinished) = &unfinished {
        unfinished.check(&scenario, &plan)?;
    }
    let kept = unfinished.as_ref().map(Unfinished::kept_by_agents).transpose()?.flatten();
    let asked = Asked {
        agents: args.agents.clone(),
        reproduce: copies(args.reproduce, kept.as_ref())?,
        may_be_unlike: args.unlike_machines,
    };
    rights::reduce(privileges::NONE)?;
    let nats = args.nats.connect(DRIVER)?;
    let stop = signals::stop_flag()?;
    let mut progress = RemoteProgress::new(quiet);
    let measured = unfinished.as_ref().map_or(&[][..], Unfinished::measured);
    let ready = ReadyRun::find(nats, asked, &plan, measured, &mut progress)
        .map_err(|error| explained_cause(error, &args.nats.servers()))?;
    if unfinished.is_none() && stop.load(Ordering::Relaxed) {
        say!("nothing was measured");
        return Ok(Exit::Interrupted);
    }
    let (folder, run) = open(scenario, out, unfinished, args.nats.added_to(command_line), &plan)?;
    if !quiet {
        let agents: Vec<&str> = ready.agents().map(AgentName::as_str).collect();
        let (n, names) = (plural(agents.len() as u64, "agent"), agents.join(", "));
        let repetitions = plural(plan.len() as u64, "repetition");
        say!("{repetitions} by {n} ({names}); run folder {}", folder.path().display());
    }
    let executed = ready.execute(run, &plan, folder, kept, &stop, &mut progress);
    progress.shown.clear();
    conclude(executed?, output)
}

/// By how many machines each comparison is made: as asked, or as the run was begun.
fn copies(asked: Option<u32>, kept: Option<&KeptRun>) -> Result<u32, Usage> {
    match (asked, kept.map(|kept| kept.reproduce)) {
        (Some(asked), Some(begun)) if asked != begun => Err(Usage(format!(
            "--reproduce {asked}: the run was begun with {begun}; omit the flag, or start a new run"
        ))),
        (asked, begun) => Ok(asked.or(begun).unwrap_or(1)),
    }
}

/// How far a run by agents is: a bar on a terminal, a line for each unit when piped.
struct RemoteProgress {
    shown: ProgressLine,
    is_quiet: bool,
    has_lines: bool,
    clock: Clock,
    /// Repetitions that were stored when it began.
    first: Option<usize>,
}

impl RemoteProgress {
    fn new(is_quiet: bool) -> Self {
        let shown = ProgressLine::new(is_quiet);
        let has_lines = shown.is_hidden() && !is_quiet;
        Self { shown, is_quiet, has_lines, clock: Clock::start(), first: None }
    }
}

/// How long the rest takes, if it goes on as it went until now; `None` before anything was stored.
fn left(passed: Duration, first: usize, stored: usize, all: usize) -> Option<Duration> {
    let made = stored.checked_sub(first).filter(|made| *made > 0)?;
    Some(passed.mul_f64(all.saturating_sub(stored) as f64 / made as f64))
}

impl RemoteObserver for RemoteProgress {
    fn stands(&mut self, stored: usize, all: usize) {
        let first = *self.first.get_or_insert(stored);
        let passed = self.clock.now().since(Time::ZERO);
        let left = left(passed, first, stored, all)
            .map_or_else(String::new, |left| format!("; about {} left", about(left)));
        let words = format!("{stored} of {}{left}", plural(all as u64, "repetition"));
        self.shown.show_share(stored as f64 / all.max(1) as f64, &words);
    }

    fn stored(&mut self, agent: &str, records: &[CellRecord]) {
        let Some(first) = records.first().filter(|_| self.has_lines) else { return };
        let repetitions = plural(records.len() as u64, "repetition");
        say!("{agent}: {repetitions}, the first of {}", describe(&first.cell));
    }

    fn not_measured(&mut self, cell: &Cell, why: &str) {
        note(&format_args!("{}: {why}", describe(cell)));
    }

    fn notes(&mut self, words: &str) {
        note(&words);
    }

    fn waits(&mut self, words: &str) {
        if !self.is_quiet {
            note(&words);
        }
    }

    fn describe(&self, cell: &Cell) -> String {
        describe(cell)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use h2lab_model::fleet::RandomId;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        agents: Flags<RunAgentsArgs>,
    }

    fn line(words: &[&str]) -> Flags<RunAgentsArgs> {
        Line::try_parse_from(["x"].iter().chain(words)).unwrap().agents
    }

    #[test]
    fn flags_of_agents_without_agents_are_refused_and_nobody_measures_twice() {
        assert!(!are_named(&line(&[])).unwrap());
        assert!(are_named(&line(&["--agents", "a,b"])).unwrap());
        for flags in [&["--reproduce", "2"][..], &["--unlike-machines"], &["--creds", "me.creds"]] {
            let refused = are_named(&line(flags)).unwrap_err().to_string();
            assert!(refused.starts_with(flags[0]) && refused.contains("without --agents"), "{refused}");
        }
        let twice = are_named(&line(&["--agents", "b,a,b"])).unwrap_err().to_string();
        assert_eq!(twice, "--agents: b is named twice");
    }

    #[test]
    fn a_run_that_is_resumed_is_made_by_as_many_machines_as_it_was_begun_with() {
        let kept = KeptRun { run: RandomId::new(1), reproduce: 3, attempts: 0, agents: Vec::new() };
        assert_eq!(copies(None, None).unwrap(), 1);
        assert_eq!(copies(Some(2), None).unwrap(), 2);
        assert_eq!(copies(None, Some(&kept)).unwrap(), 3);
        assert_eq!(copies(Some(3), Some(&kept)).unwrap(), 3);
        let refused = copies(Some(2), Some(&kept)).unwrap_err().to_string();
        assert!(refused.contains("was begun with 3"), "{refused}");
    }

    #[test]
    fn the_rest_takes_as_long_as_what_was_stored_since_the_beginning() {
        let left = |first, stored| left(Duration::from_secs(60), first, stored, 100);
        assert_eq!(left(0, 0), None);
        assert_eq!(left(40, 40), None, "what was there before says nothing");
        assert_eq!(left(40, 70), Some(Duration::from_secs(60)));
        assert_eq!(left(0, 100), Some(Duration::ZERO));
    }
}
