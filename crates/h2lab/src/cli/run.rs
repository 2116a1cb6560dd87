//! `h2lab run SCENARIO.toml`, and what every command that runs cells has in common.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use h2lab_model::record::{RunRecord, SCHEMA_VERSION};
use h2lab_model::scenario::{Cell, Scenario, Target};
use h2lab_model::timeline::study::Study;

use super::capture::CaptureArgs;
use super::client::ClientArgs;
use super::exit::Usage;
use super::flags::{Flags, Refusal};
use super::impair::LinkArgs;
use super::output::{self, Concluded, OutputArgs};
use super::policy::PolicyArgs;
use super::progress::{Bar, about, estimate};
use super::protocols::ProtocolArgs;
use super::reach::ReachArgs;
use super::resume::{FolderArgs, Unfinished};
use super::servers::ServerArgs;
use super::timeline::study;
use super::work::WorkArgs;
use super::{Exit, flags, help, signals, tls};
use crate::run::execute::{Executed, Live, Setting, execute};
use crate::run::folder;
use crate::run::messages::{Failure, FailureKind};
use crate::run::preflight;
use crate::run::store::RunFolder;
use h2lab_lab::sut;

/// Run a scenario file
///
/// The file says what is sent, what the link does, and who talks to whom in which protocol; missing keys take the values
/// of `h2lab compare`. Flags replace what the file says. `scenarios/` holds files to begin with: the first line of each is
/// the claim that it tests.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab run scenarios/compare.toml", "what `h2lab compare` runs"),
        ("h2lab run scenarios/compare.toml --quick", "a look: one repetition of 1 s to each cell"),
        ("h2lab run scenarios/sidecar-chaos.toml --quick -o study.html", "what the file says of a quick look"),
        ("h2lab run scenarios/early-push.toml -o early-push.html", "timelines instead of load: who announces early?"),
        ("h2lab run --resume h2lab-runs/20260131T120000Z-1", "go on with a run that was interrupted"),
        ("h2lab run scenarios/compare.toml --loss 1% --json", "another loss, as JSON"),
    ],
))]
pub struct RunArgs {
    /// The scenario file; with --resume it may be left out
    #[arg(required_unless_present = "resume")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    work: Flags<WorkArgs>,
    #[command(flatten)]
    client: Flags<ClientArgs>,
    #[command(flatten)]
    policy: Flags<PolicyArgs>,
    #[command(flatten)]
    link: Flags<LinkArgs>,
    #[command(flatten)]
    servers: Flags<ServerArgs>,
    #[command(flatten)]
    capture: Flags<CaptureArgs>,
    #[command(flatten)]
    _reach: Flags<ReachArgs, NothingLive>,
    #[command(flatten)]
    output: Flags<OutputArgs>,
    #[command(flatten)]
    folder: Flags<FolderArgs>,
}

/// A scenario's servers are started for it.
#[derive(Debug, Clone, Default)]
struct NothingLive;

impl Refusal for NothingLive {
    fn why(_: &str) -> Option<&'static str> {
        Some(
            "is for live servers, and a scenario's are behind the emulated link; give a URL to `h2lab compare`",
        )
    }
}

/// Runs the file.
pub fn main(args: &RunArgs, command_line: Vec<String>) -> Result<Exit> {
    args.output.validate()?;
    tls::announce_key_log()?;
    if let Some(path) = &args.scenario {
        let text = text_of(path)?;
        if Study::is_asked_for(&text) {
            return args.timelines(path, &text);
        }
    }
    let unfinished = args.folder.unfinished()?;
    let mut scenario = match (&args.scenario, &unfinished) {
        (Some(path), _) => read(path)?,
        (None, Some(unfinished)) => unfinished.scenario()?,
        (None, None) => return Err(Usage("give a scenario file, or --resume FOLDER".to_owned()).into()),
    };
    scenario = args.work.chosen(&scenario)?;
    let file = scenario.clone();
    args.work.apply(&mut scenario);
    args.client.apply(&mut scenario)?;
    args.policy.apply(&mut scenario);
    args.link.apply(&mut scenario);
    args.servers.apply(&mut scenario);
    args.capture.apply(&mut scenario.capture);
    if args.scenario.is_some() {
        flags::keep_claim(&mut scenario, &file);
    }
    flags::check(&scenario)?;
    if !scenario.matrix.live.is_empty() {
        return Err(Usage(
            "`live` in a scenario file: give live servers to `h2lab compare URL …` instead".to_owned(),
        )
        .into());
    }
    let (out, quiet) = (args.folder.out.as_deref(), args.folder.quiet);
    Request { scenario, live: Live::default(), out, quiet, unfinished, command_line }.run(&args.output)
}

impl RunArgs {
    /// The file asks for timelines. Most of what the command line can say is about load.
    fn timelines(&self, path: &Path, text: &str) -> Result<Exit> {
        let why = format!("is about load, and {} asks for timelines", path.display());
        self.work.refuse(&["timeout", "quick"], &why)?;
        self.client.refuse(ProtocolArgs::NAMES, &why)?;
        self.policy.refuse(&[], &why)?;
        self.link.refuse(&[], &why)?;
        self.servers.refuse(&[], &why)?;
        self.capture.refuse(&[], &why)?;
        self.output.refuse(&["json", "files"], &why)?;
        self.folder.refuse(&["out", "quiet"], &why)?;
        study::main(&study::Wanted {
            text,
            path,
            quick: self.work.quick,
            json: self.output.json,
            quiet: self.folder.quiet,
            files: &self.output.files,
            out: self.folder.out.as_deref(),
            protocol: self.client.protocol.single(false)?,
            timeout: self.work.timeout,
        })
    }
}

fn text_of(path: &Path) -> Result<String, Usage> {
    std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("cannot read the scenario {}: {error}", path.display())))
}

/// Reads a scenario file.
fn read(path: &Path) -> Result<Scenario> {
    Scenario::from_toml(&text_of(path)?).with_context(|| format!("in {}", path.display()))
}

/// A scenario, checked and ready to be run.
#[derive(Debug)]
pub struct Request<'a> {
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

impl Request<'_> {
    /// Runs the plan, concludes, reports. What was measured is reported first, whatever ended the run.
    pub fn run(self, output: &OutputArgs) -> Result<Exit> {
        let plan = self.scenario.plan();
        // Before anything is measured: neither a slip of the pen nor a server that is not there may end a run in its
        // middle.
        output.check_names(&plan)?;
        if let Some(unfinished) = &self.unfinished {
            unfinished.check(&self.scenario, &plan)?;
        }
        check_programs(&plan)?;
        let stop = signals::stop_flag()?;
        preflight::sysctls(&plan, &stop)?;
        let (folder, run) = open(self.scenario, self.out, self.unfinished, self.command_line, &plan)?;
        if !self.quiet {
            announce(&plan, &run, folder.path());
        }
        let setting = Setting { live: &self.live, stop: &stop };
        let mut bar = Bar::new(&plan, &run, self.quiet);
        let executed = execute(run, &plan, folder, &setting, &mut bar);
        bar.clear();
        conclude(executed?, output)
    }
}

/// The folder of the run and its record so far: a new one, or the unfinished one.
fn open(
    scenario: Scenario,
    out: Option<&Path>,
    unfinished: Option<Unfinished>,
    command: Vec<String>,
    plan: &[Cell],
) -> Result<(RunFolder, RunRecord)> {
    let now = std::time::SystemTime::now();
    let reported = humantime::format_rfc3339_seconds(now).to_string();
    if let Some(unfinished) = unfinished {
        return unfinished.resume(scenario, plan, reported);
    }
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
        resumed: Vec::new(),
    };
    Ok((RunFolder::create(&path, &run)?, run))
}

/// Finds the programs of every cell. An unknown name is an error; a program that is not installed only makes its cells
/// unsupported, unless there are no others.
fn check_programs(plan: &[Cell]) -> Result<(), Failure> {
    let mut absent = None;
    let mut is_any_possible = false;
    for cell in plan {
        let server = match &cell.target {
            Target::Sut { name } => Some(name),
            Target::Origin | Target::Url { .. } => None,
        };
        let mut is_possible = true;
        for name in server.into_iter().chain(cell.sidecar.as_ref().map(|sidecar| &sidecar.name)) {
            if let Err(error) = sut::find(name)?.program().find() {
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
fn conclude(executed: Executed, output: &OutputArgs) -> Result<Exit> {
    if executed.run.repetitions.is_empty() {
        eprintln!("nothing was measured");
        return Ok(Exit::Interrupted);
    }
    let concluded = [Concluded::new(&executed.run, Some(&executed.folder))];
    let stored = concluded[0].store();
    output::write_out(&concluded, output)?;
    match executed.failure.map_or(stored, Err) {
        Err(failure) => Err(failure),
        // Half a run opens and shuts no gate.
        Ok(()) if executed.run.interrupted => {
            let folder = executed.folder.display().to_string();
            if let Some(line) = h2lab_report::resume_line(&executed.run, &folder) {
                eprintln!("to go on: {line}");
            }
            Ok(Exit::Interrupted)
        }
        Ok(()) => output::judge(&concluded, output),
    }
}

/// Prints what is about to happen and how long it takes.
fn announce(plan: &[Cell], run: &RunRecord, path: &Path) {
    let points = plan.iter().map(|cell| cell.index).max().map_or(0, |index| index + 1);
    let estimate = estimate(plan, run);
    let repetitions = match estimate.open() {
        open if open == plan.len() => format!("{open} repetitions"),
        open => format!("{open} of {} repetitions to be made", plan.len()),
    };
    let time = about(estimate.left(Duration::ZERO));
    eprintln!("{points} cells, {repetitions}, about {time}; run folder {}", path.display());
}
