//! `h2lab run SCENARIO.toml`, and what every command that runs cells has in common.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use h2lab_core::record::{RunRecord, SCHEMA_VERSION};
use h2lab_core::scenario::{Cell, Scenario, Target};

use super::Exit;
use super::axes::{LinkArgs, WorkArgs};
use super::exit::Usage;
use super::output::{Concluded, OutputArgs};
use super::progress::{Bar, length_of};
use super::signals;
use crate::run::execute::{LiveServer, Setting, execute};
use crate::run::folder;
use crate::run::messages::Failure;
use crate::run::spec::TlsTrust;
use crate::sut;

/// `h2lab run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The scenario file
    scenario: PathBuf,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Run folder [default: h2lab-runs/<UTC>-<seed>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the file.
pub fn main(args: &RunArgs, command_line: Vec<String>) -> Result<Exit> {
    args.output.validate()?;
    let path = &args.scenario;
    let text = std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("cannot read the scenario {}: {error}", path.display())))?;
    let mut scenario = Scenario::from_toml(&text).with_context(|| format!("in {}", path.display()))?;
    args.work.apply(&mut scenario)?;
    args.link.apply(&mut scenario);
    if !scenario.matrix.live.is_empty() {
        return Err(Usage(
            "`live` in a scenario file: give live servers to `h2lab compare URL …` instead".to_owned(),
        )
        .into());
    }
    let request = Request {
        scenario,
        live: Vec::new(),
        tls: TlsTrust::default(),
        max_requests_per_connection: args.link.max_requests_per_connection,
        out: args.out.as_deref(),
        command_line,
    };
    request.run(&args.output)
}

/// A scenario, ready to be run.
#[derive(Debug)]
pub struct Request<'a> {
    /// What to measure.
    pub scenario: Scenario,
    /// Live servers, resolved.
    pub live: Vec<LiveServer>,
    /// How TLS servers are believed.
    pub tls: TlsTrust,
    /// Requests after which a server that we start ends a connection.
    pub max_requests_per_connection: Option<u32>,
    /// The run folder, if the user named one.
    pub out: Option<&'a Path>,
    /// As given.
    pub command_line: Vec<String>,
}

impl Request<'_> {
    /// Runs the plan, concludes, reports.
    pub fn run(self, output: &OutputArgs) -> Result<Exit> {
        self.scenario.validate()?;
        let plan = self.scenario.plan();
        // Before anything is measured: a server that is not there must not end a run in its middle.
        for cell in &plan {
            if let Target::Sut { name } = &cell.target {
                sut::find(name).and_then(|sut| sut.program().find()).map_err(Failure::from)?;
            }
        }
        let stop = signals::stop_flag()?;
        let started = std::time::SystemTime::now();
        let seed = self.scenario.seed.values()[0];
        let path = folder::choose(self.out, started, seed)?;
        announce(&plan, &path);
        let run = RunRecord {
            schema: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: humantime::format_rfc3339_seconds(started).to_string(),
            command: self.command_line,
            seed,
            machine: folder::machine(),
            scenario: self.scenario,
            visits: Vec::new(),
            interrupted: false,
        };
        let setting = Setting {
            live: &self.live,
            tls: self.tls,
            max_requests_per_connection: self.max_requests_per_connection,
            stop: &stop,
        };
        let mut bar = Bar::new(&plan);
        let executed = execute(run, &plan, path, &setting, &mut bar);
        bar.clear();
        let executed = executed?;
        if executed.run.visits.is_empty() {
            eprintln!("nothing was measured");
            return match executed.unsupported.into_iter().next() {
                Some((_, failure)) if !executed.run.interrupted => Err(failure.into()),
                _ => Ok(Exit::Interrupted),
            };
        }
        let concluded = Concluded::new(&executed.run, &executed.folder);
        concluded.store()?;
        let exit = concluded.tell(output)?;
        Ok(if executed.run.interrupted { Exit::Interrupted } else { exit })
    }
}

/// Says what is about to happen and how long it takes.
fn announce(plan: &[Cell], path: &Path) {
    let points = plan.iter().map(|cell| cell.index).max().map_or(0, |index| index + 1);
    let seconds = plan.iter().map(length_of).sum::<std::time::Duration>().as_secs();
    eprintln!("{points} cells, {} visits, up to {seconds} s; run folder {}", plan.len(), path.display());
}
