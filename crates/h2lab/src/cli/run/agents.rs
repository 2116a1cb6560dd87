//! `h2lab run --agents`: the cells are measured by agents on other machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
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
use crate::run::execute::{Executed, NOTHING_MEASURED};
use crate::run::remote::{Asked, DrivenRun, KeptRun, ReadyRun, RemoteObserver};
use h2lab_net::clock::Clock;
use h2lab_net::privileges;

/// What the first Ctrl-C does.
const STOPPING: &str = "stopping: what is being fetched is stored, and the run is closed at NATS; a second \
                        Ctrl-C ends the driver within 3 s";
/// How often it is checked whether a Ctrl-C came.
const CHECK_PERIOD: Duration = Duration::from_millis(50);
/// How long the driver may take then to end as after the first one.
const GRACE: Duration = Duration::from_secs(1);
/// How long closing the run may take after that.
const CLOSING: Duration = Duration::from_secs(2);

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
        servers: args.nats.servers(),
    };
    rights::reduce(privileges::NONE)?;
    let nats = args.nats.connect(DRIVER)?;
    let stop = signals::stop_flag()?;
    let mut progress = RemoteProgress::new(quiet, &plan);
    let measured = unfinished.as_ref().map_or(&[][..], Unfinished::measured);
    let ready = ReadyRun::find(nats, asked, &plan, measured, kept.as_ref(), &mut progress)
        .map_err(|error| explained_cause(error, &args.nats.servers()))?;
    if unfinished.is_none() && stop.load(Ordering::Relaxed) {
        say!("{NOTHING_MEASURED}");
        return Ok(Exit::Interrupted);
    }
    let (folder, run) = open(scenario, out, unfinished, args.nats.added_to(command_line), &plan)?;
    if !quiet {
        let agents: Vec<&str> = ready.agents().map(AgentName::as_str).collect();
        let (n, names) = (plural(agents.len() as u64, "agent"), agents.join(", "));
        let repetitions = plural(ready.to_measure(&plan) as u64, "repetition");
        let place = folder.path().display();
        if agents.is_empty() {
            say!("what agents have reported is fetched; run folder {place}");
        } else {
            say!("{repetitions} by {n} ({names}); run folder {place}");
        }
    }
    let driven = ready.driven_in(&folder);
    signals::remove_if_empty(folder.path());
    signals::say_at_once(&driven.if_ended_at_once());
    let (ended, is_ended) = sync_channel::<()>(0);
    let interrupted = Arc::clone(&stop);
    thread::Builder::new()
        .name("leave".to_owned())
        .spawn(move || leave_when_asked(driven, &is_ended, &interrupted, quiet))
        .context("cannot start a thread")?;
    let executed = signals::in_sessions(|| ready.execute(run, &plan, folder, kept, &stop, &mut progress));
    drop(ended);
    progress.shown.clear();
    match executed? {
        executed if executed.run.repetitions.is_empty() => Ok(nothing_finished(&executed)),
        executed => conclude(executed, output),
    }
}

/// Ends the program soon after a second Ctrl-C, with the run closed, unless the driver `is_ended` by then: it may wait for a
/// server that is away, or fetch a large part. After the first one it says what is done, unless `is_quiet`.
fn leave_when_asked(driven: DrivenRun, is_ended: &Receiver<()>, stop: &AtomicBool, is_quiet: bool) {
    let goes_on = |time| is_ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    let mut is_announced = is_quiet;
    while !signals::must_leave() {
        if !goes_on(CHECK_PERIOD) {
            return;
        }
        if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut is_announced, true) {
            note(&STOPPING);
        }
    }
    if !goes_on(GRACE) {
        return;
    }
    let words = driven.leave(CLOSING);
    // If it has ended meanwhile, it says itself how.
    if goes_on(Duration::ZERO) {
        crate::stderr::write(format_args!("{words}\n"));
        crate::stderr::erase();
        crate::stderr::flush();
        std::process::exit(i32::from(Exit::Interrupted as u8));
    }
}

/// Says that the user has ended a run of which nothing is stored, and how it is resumed if something may be reported.
fn nothing_finished(executed: &Executed) -> Exit {
    let folder = &executed.folder;
    let resume = h2lab_report::resume_line(&executed.run, &folder.display().to_string());
    match resume.filter(|_| folder.join("run.json").exists()) {
        Some(line) => {
            say!("no comparison was finished");
            crate::stderr::write(format_args!("to resume: {line}\n"));
        }
        None => say!("{NOTHING_MEASURED}"),
    }
    Exit::Interrupted
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
    /// Whether a cell's rate tells it from others.
    rates_differ: bool,
    clock: Clock,
    /// Repetitions that were stored when it began.
    first: Option<usize>,
}

impl RemoteProgress {
    fn new(is_quiet: bool, plan: &[Cell]) -> Self {
        let shown = ProgressLine::new(is_quiet);
        let has_lines = shown.is_hidden() && !is_quiet;
        let rates_differ = plan.windows(2).any(|pair| pair[0].work.arrival != pair[1].work.arrival);
        Self { shown, is_quiet, has_lines, rates_differ, clock: Clock::start(), first: None }
    }
}

/// What an agent has measured, in words: an unsupported cell is no repetition. `None` without a record.
fn taken_over(records: &[CellRecord], describe: impl Fn(&Cell) -> String) -> Option<String> {
    let measured: Vec<&CellRecord> = records.iter().filter(|one| one.unsupported.is_none()).collect();
    let (first, what) = match measured.first() {
        Some(first) => (*first, plural(measured.len() as u64, "repetition")),
        None => (records.first()?, format!("{} unsupported", plural(records.len() as u64, "cell"))),
    };
    Some(format!("{what}, the first of {}", describe(&first.cell)))
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
        let words = taken_over(records, |cell| self.describe(cell)).filter(|_| self.has_lines);
        if let Some(words) = words {
            say!("{agent}: {words}");
        }
    }

    fn not_measured(&mut self, cell: &Cell, why: &str) {
        note(&format_args!("{}: {why}", self.describe(cell)));
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
        let rate = cell.work.arrival.rate().filter(|_| self.rates_differ);
        describe(cell) + &rate.map_or_else(String::new, |rate| format!(", {rate}/s"))
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
    fn a_cell_is_known_by_its_rate_where_rates_differ() {
        let described = |rates: &str| {
            let text = format!("[work]\nrate = {rates}\n[matrix]\nprotocols = 'h2c'\nconnections = 1\n");
            let plan = h2lab_model::scenario::Scenario::from_toml(&text).unwrap().plan();
            RemoteProgress::new(true, &plan).describe(&plan[0])
        };
        assert_eq!(described("[100, 200]"), described("100") + ", 100/s");
    }

    #[test]
    fn a_cell_that_is_unsupported_is_not_counted_as_a_repetition() {
        let text = "[work]\nrate = 100\n[matrix]\nprotocols = ['h1', 'h2c']\nconnections = 1\n";
        let plan = h2lab_model::scenario::Scenario::from_toml(text).unwrap().plan();
        let unsupported = |cell: &Cell| CellRecord::unsupported(cell.clone(), "no".to_owned());
        let mut records: Vec<CellRecord> = plan.iter().map(unsupported).collect();
        let words = |records: &[CellRecord]| taken_over(records, |cell| cell.protocol.to_string());
        assert_eq!(words(&[]), None);
        let none = words(&records[..2]).unwrap();
        assert_eq!(none, format!("2 cells unsupported, the first of {}", plan[0].protocol));
        records.truncate(2);
        records.push(CellRecord::empty(plan[1].clone()));
        assert_eq!(words(&records).unwrap(), format!("1 repetition, the first of {}", plan[1].protocol));
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
