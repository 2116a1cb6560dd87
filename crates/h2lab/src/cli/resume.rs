//! `--resume FOLDER`: resumes a run that was interrupted, killed, or whose machine went down.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
#[cfg(feature = "nats")]
use h2lab_model::record::CellRecord;
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::{Cell, Scenario};

use super::exit::Usage;
#[cfg(feature = "nats")]
use crate::run::remote::KeptRun;
use crate::run::store::{self, RunFolder};
use crate::run::{folder, history};

/// Where the repetitions of a run go.
#[derive(Debug, Clone, Default, Args)]
pub struct FolderArgs {
    /// Run folder [default: h2lab-runs/<UTC>-<seed>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume the unfinished run of this folder (or `latest`): finished repetitions are kept, the others are run
    ///
    /// The scenario must be the same; without one, the folder's is used. Values of header fields and queries, and bodies, are
    /// not kept in a folder and must be given again. `h2lab runs` prints the command.
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Suppress plan and progress; warnings are still printed
    #[arg(short_alias = 's', long, alias = "silent")]
    pub quiet: bool,
}

impl FolderArgs {
    /// The unfinished run, if one is to be resumed.
    pub fn unfinished(&self) -> Result<Option<Unfinished>> {
        self.resume.as_deref().map(Unfinished::find).transpose()
    }
}

/// An unfinished run that may be resumed.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    /// As `run.json` has it, without the repetitions' bulk.
    stored: RunRecord,
}

impl Unfinished {
    /// Finds it. Refuses a run that is complete, and one that this program or machine cannot resume: repetitions of two kernels
    /// or two versions are not repetitions of one cell.
    fn find(named: &Path) -> Result<Self> {
        let path = history::find(named)?;
        let stored = store::read_heads(&path)?;
        let refuse = |why: String| Err(Usage(format!("--resume {}: {why}", path.display())).into());
        if !stored.interrupted {
            return refuse(format!("this run is complete: h2lab report {}", path.display()));
        }
        let present = [
            ("h2lab", &stored.version, env!("CARGO_PKG_VERSION").to_owned(), true),
            // Agents say themselves which machines theirs are.
            ("the machine", &stored.machine, folder::machine(), !store::is_by_agents(&path)),
        ];
        for (what, then, now, counts) in present {
            if *then != now && counts {
                return refuse(format!(
                    "{what} was {then}, is {now}: its repetitions could not be pooled; start a new run"
                ));
            }
        }
        Ok(Self { path, stored })
    }

    /// Its scenario, into which flags put again what the folder does not keep.
    pub fn scenario(&self) -> Result<Scenario> {
        let scenario = &self.stored.scenario;
        let again = |what: &str| {
            let command = h2lab_report::shell_line(&self.stored.command);
            Err(Usage(format!("--resume {}: {what} again; it was: {command}", self.path.display())).into())
        };
        if !scenario.matrix.live.is_empty() {
            return again("it measured live servers: give their URLs and its flags");
        }
        if scenario.needs_its_file() {
            return again(
                "a run folder keeps neither the contents of requests nor query values: give the scenario file",
            );
        }
        Ok(scenario.to_be_completed())
    }

    /// The repetitions that it has, without their bulk.
    #[cfg(feature = "nats")]
    pub fn measured(&self) -> &[CellRecord] {
        &self.stored.repetitions
    }

    /// Refuses to resume a run that agents make on this machine.
    pub fn is_of_this_machine(&self) -> Result<(), Usage> {
        if !store::is_by_agents(&self.path) {
            return Ok(());
        }
        let words = "this run is made by agents: give --agents NAME,… and --nats URL with `h2lab run`";
        Err(Usage(format!("--resume {}: {words}", self.path.display())))
    }

    /// What is known of the agents that make it; `None` if it was stopped before anything was. Refuses a run that was made on this
    /// machine.
    #[cfg(feature = "nats")]
    pub fn kept_by_agents(&self) -> Result<Option<KeptRun>> {
        let kept = store::read_agents(&self.path)?;
        if kept.is_none() && !self.stored.repetitions.is_empty() {
            let words = "its repetitions were measured on this machine: resume it without --agents";
            return Err(Usage(format!("--resume {}: {words}", self.path.display())).into());
        }
        Ok(kept)
    }

    /// Refuses to resume with another plan.
    pub fn check(&self, scenario: &Scenario, plan: &[Cell]) -> Result<(), Usage> {
        let refuse = |why: String| Err(Usage(format!("--resume {}: {why}", self.path.display())));
        let stored = &self.stored.scenario;
        let withheld = stored.withheld();
        if scenario.without_secrets().withheld() != withheld && !withheld.is_empty() {
            return refuse(format!(
                "a run folder does not keep values of header fields and bodies; give {} again",
                withheld.join(" ")
            ));
        }
        let differences = stored.differences(scenario);
        if !differences.is_empty() {
            return refuse(format!("this is not the run that was started: {}", differences.join("; ")));
        }
        let is_planned = |cell: &Cell| plan.iter().any(|planned| planned.without_secrets() == *cell);
        match self.stored.repetitions.iter().find(|measured| !is_planned(&measured.cell)) {
            Some(stray) => refuse(format!("its repetition of `{}` is not in the plan", stray.cell.label())),
            None => Ok(()),
        }
    }

    /// Takes the folder over, and gives back the run with its whole repetitions.
    pub fn resume(self, scenario: Scenario, plan: &[Cell], now: String) -> Result<(RunFolder, RunRecord)> {
        let store::Reopened { mut folder, mut run, discarded } = store::reopen(&self.path)?;
        for measured in discarded {
            super::note(&format_args!("to be measured again, since it cannot be read: {measured}"));
        }
        folder.resume(now.clone())?;
        run.resumed.push(now);
        (run.interrupted, run.failure) = (false, None);
        run.scenario = scenario;
        for measured in &mut run.repetitions {
            // As it is made, with what is not kept.
            let is_same = |cell: &&Cell| {
                (cell.index, cell.repetition) == (measured.cell.index, measured.cell.repetition)
            };
            if let Some(cell) = plan.iter().find(is_same) {
                measured.cell = cell.clone();
            }
        }
        Ok((folder, run))
    }
}
