//! What `compare` and `run` have in common: the flags that change a scenario, and how its cells are run.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_base::counts::plural;
use h2lab_model::record::{RunRecord, SCHEMA_VERSION};
use h2lab_model::scenario::{Cell, Scenario, Target};

use super::capture::CaptureArgs;
use super::client::ClientArgs;
use super::exit::Usage;
use super::flags::{self, Flags};
use super::impair::LinkArgs;
use super::output::{self, Concluded, OutputArgs};
use super::policy::PolicyArgs;
use super::progress::{PlanProgressBar, about, estimate};
use super::protocols::ProtocolArgs;
use super::resume::Unfinished;
use super::servers::ServerArgs;
use super::work::WorkArgs;
use super::{Exit, needs, signals};
use crate::run::execute::{Executed, Live, NOTHING_MEASURED, PlanContext, execute};
use crate::run::folder;
use crate::run::messages::{Failure, FailureKind};
use crate::run::preflight;
use crate::run::store::RunFolder;
use h2lab_lab::sut;
use h2lab_report::AnswerPlace;

/// The flags that override a scenario.
#[derive(Debug, Args)]
pub struct CellArgs {
    #[command(flatten)]
    pub work: Flags<WorkArgs>,
    #[command(flatten)]
    pub client: Flags<ClientArgs>,
    #[command(flatten)]
    pub policy: Flags<PolicyArgs>,
    #[command(flatten)]
    pub link: Flags<LinkArgs>,
    #[command(flatten)]
    pub servers: Flags<ServerArgs>,
    #[command(flatten)]
    pub capture: Flags<CaptureArgs>,
}

impl CellArgs {
    /// `scenario` with the flags in place of what it says, checked. Its claim is kept if the same is measured, or if the run is
    /// `resumed`.
    pub fn applied(&self, scenario: &Scenario, resumed: bool) -> Result<Scenario> {
        let chosen = self.work.chosen(scenario)?;
        let mut scenario = chosen.clone();
        self.apply_to_client(&mut scenario)?;
        self.link.apply(&mut scenario);
        self.servers.apply(&mut scenario);
        self.capture.apply(&mut scenario.capture);
        if !resumed {
            flags::keep_claim(&mut scenario, &chosen);
        }
        flags::check(&scenario)?;
        Ok(scenario)
    }

    /// What a live server is sent: `scenario` with the flags in place of what it says. Those of the emulated link are refused.
    pub fn applied_live(&self, scenario: &Scenario) -> Result<Scenario> {
        self.refuse_emulation("is for the emulated link; live servers are measured without emulation")?;
        let mut scenario = self.work.chosen(scenario)?;
        self.apply_to_client(&mut scenario)?;
        Ok(scenario)
    }

    /// Refuses flags that have no effect in any protocol of the scenario, and keys of its file. A file's other protocols may have been
    /// left out by a flag.
    pub fn check_protocols(&self, scenario: &Scenario) -> Result<(), Usage> {
        let protocols = needs::protocols(scenario);
        needs::check(&self.work, &needs::cell_protocols(scenario))?;
        needs::check(&self.client, &protocols)?;
        needs::check(&self.policy, &protocols)?;
        let is_chosen = self.client.given().iter().any(|(id, _)| ProtocolArgs::NAMES.contains(&id.as_str()));
        if is_chosen { Ok(()) } else { needs::check_tables(scenario) }
    }

    fn apply_to_client(&self, scenario: &mut Scenario) -> Result<()> {
        self.work.apply(scenario);
        self.client.apply(scenario)?;
        self.policy.apply(scenario);
        Ok(())
    }

    /// Refuses the flags of the link, of its servers, and of captures of its packets.
    pub fn refuse_emulation(&self, why: &str) -> Result<()> {
        self.link.refuse(&[], why)?;
        self.servers.refuse(&[], why)?;
        Ok(self.capture.refuse(&[], why)?)
    }
}

/// A scenario, checked and ready to be run.
#[derive(Debug)]
pub struct CheckedScenario<'a> {
    /// What to measure.
    pub scenario: Scenario,
    /// The live servers of the scenario, found; none where it has none.
    pub live: Live,
    /// The run folder, if the user named one.
    pub out: Option<&'a Path>,
    /// Whether to show no progress.
    pub quiet: bool,
    /// The run to resume, if the user named one.
    pub unfinished: Option<Unfinished>,
    /// As given.
    pub command_line: Vec<String>,
}

impl CheckedScenario<'_> {
    /// Runs the plan, concludes, reports. What was measured is reported first, whatever ended the run.
    pub fn run(self, output: &OutputArgs) -> Result<Exit> {
        let plan = self.scenario.plan();
        // Check names and servers first, so that neither fails mid-run.
        output.check_names(&plan)?;
        if let Some(unfinished) = &self.unfinished {
            unfinished.check(&self.scenario, &plan)?;
            unfinished.is_of_this_machine()?;
        }
        check_programs(&plan)?;
        let stop = signals::stop_flag()?;
        preflight::sysctls(&plan, &stop)?;
        let (folder, run) = open(self.scenario, self.out, self.unfinished, self.command_line, &plan)?;
        if !self.quiet {
            announce(&plan, &run, folder.path());
        }
        let context = PlanContext { live: &self.live, stop: &stop, own: None };
        let mut bar = PlanProgressBar::new(&plan, &run, self.quiet);
        let executed = execute(run, &plan, folder, &context, &mut bar);
        bar.clear();
        conclude(executed?, output)
    }
}

/// The folder of the run and its record so far: a new one, or the unfinished one.
pub(super) fn open(
    scenario: Scenario,
    out: Option<&Path>,
    unfinished: Option<Unfinished>,
    command: Vec<String>,
    plan: &[Cell],
) -> Result<(RunFolder, RunRecord)> {
    match unfinished {
        Some(unfinished) => {
            let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
            unfinished.resume(scenario, plan, now)
        }
        None => new_run(scenario, out, command),
    }
}

/// A run that is about to begin, and its folder.
pub(super) fn new_run(
    scenario: Scenario,
    out: Option<&Path>,
    command: Vec<String>,
) -> Result<(RunFolder, RunRecord)> {
    let now = std::time::SystemTime::now();
    let reported = humantime::format_rfc3339_seconds(now).to_string();
    let seed = scenario.seed.values()[0];
    let path = folder::choose(out, now, seed)?;
    let run = RunRecord {
        schema: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: reported,
        command,
        seed,
        machine: folder::machine(),
        scenario,
        repetitions: Vec::new(),
        interrupted: false,
        failure: None,
        resumed: Vec::new(),
    };
    Ok((RunFolder::create(&path, &run)?, run))
}

/// Finds the programs of every cell. An unknown name is an error; a program that is not installed only makes its cells
/// unsupported, unless there are no others.
pub(super) fn check_programs(plan: &[Cell]) -> Result<(), Failure> {
    let mut absent = None;
    let mut is_any_possible = false;
    for cell in plan {
        let server = match &cell.target {
            Target::Sut { name } => Some(name),
            Target::Origin | Target::Url { .. } => None,
        };
        let mut is_possible = true;
        for name in server.into_iter().chain(cell.sidecar.as_ref().map(|sidecar| &sidecar.name)) {
            if let Err(error) = sut::find(name)?.about().program.find() {
                is_possible = false;
                absent.get_or_insert(error);
            }
        }
        is_any_possible |= is_possible;
    }
    match absent {
        Some(error) if !is_any_possible => {
            Err(Failure { kind: FailureKind::Environment, message: error.to_string() })
        }
        _ => Ok(()),
    }
}

/// Stores and reports what was measured, and exits as the run has ended.
pub(super) fn conclude(executed: Executed, output: &OutputArgs) -> Result<Exit> {
    if executed.run.repetitions.is_empty() {
        say!("{NOTHING_MEASURED}");
        return Ok(Exit::Interrupted);
    }
    let run = executed.run.without_secrets();
    let concluded = Concluded::new(&run, Some(&executed.folder));
    let stored = concluded.store();
    let concluded = [concluded.lacking(&stored)];
    output::write_out(&concluded, output, AnswerPlace::Last)?;
    match executed.failure.map_or(stored, Err) {
        Err(failure) => Err(failure),
        // Half a run opens and shuts no gate.
        Ok(()) if run.interrupted => {
            let folder = executed.folder.display().to_string();
            if let Some(line) = h2lab_report::resume_line(&run, &folder) {
                crate::stderr::write(format_args!("to resume: {line}\n"));
            }
            Ok(Exit::Interrupted)
        }
        Ok(()) => output::judge(&concluded, output),
    }
}

/// Prints what is about to happen and how long it takes.
fn announce(plan: &[Cell], run: &RunRecord, path: &Path) {
    let plural = |n: usize, noun: &str| plural(n as u64, noun);
    let points = plan.iter().map(|cell| cell.index).max().map_or(0, |index| index as usize + 1);
    let estimate = estimate(plan, run);
    let repetitions = match estimate.open() {
        open if open == plan.len() => plural(open, "repetition"),
        open => format!("{open} of {} to be made", plural(plan.len(), "repetition")),
    };
    let time = about(estimate.left(Duration::ZERO));
    say!("{}, {repetitions}, about {time}; run folder {}", plural(points, "cell"), path.display());
}
