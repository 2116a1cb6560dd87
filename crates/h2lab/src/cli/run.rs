//! `h2lab run SCENARIO`.

#[cfg(feature = "nats")]
mod agents;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use h2lab_model::scenario::Scenario;
use h2lab_model::timeline::study::TimelineStudy;

use super::cells::{CellArgs, CheckedScenario};
use super::exit::Usage;
use super::flags::{FlagRefusal, Flags};
use super::output::{self, OutputArgs};
use super::protocols::ProtocolArgs;
use super::reach::ReachArgs;
use super::resume::FolderArgs;
use super::timeline::study;
use super::{Exit, help, scenarios, tls};
use crate::run::execute::Live;

/// Run a scenario: a shipped one by its name, or a file
///
/// The file sets the requests, the link, and the protocol between each pair of parties; missing keys take the values of `h2lab
/// compare`. Flags override the file. --list describes the shipped scenarios, which need no file: what each
/// claims, and how long it takes.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab run --list", "the shipped scenarios, with the time each takes"),
        ("h2lab run compare", "what `h2lab compare` runs"),
        ("h2lab run compare --quick", "quick run: one repetition of 1 s for each cell"),
        ("h2lab run sidecar-chaos --quick -o study.html", "the short run that the file describes"),
        ("h2lab run early-push -o early-push.html", "timelines instead of load: which server announces early?"),
        ("h2lab run --resume h2lab-runs/20260131T120000Z-1", "resume a run that was interrupted"),
        ("h2lab run my-scenario.toml --loss 1% --json", "your own file with another loss, as JSON"),
        ("h2lab run my-study.toml --agents kek-1,kek-2 --nats nats://hub:4222", "two machines measure its cells"),
    ],
))]
pub struct RunArgs {
    /// The name of a shipped scenario, or a file; optional with --resume
    #[arg(required_unless_present_any = ["resume", "list"])]
    scenario: Option<PathBuf>,
    /// List the shipped scenarios: name, time, claim
    #[arg(long, exclusive = true)]
    list: bool,
    #[command(flatten)]
    cells: CellArgs,
    #[command(flatten)]
    _reach: Flags<ReachArgs, NothingLive>,
    #[command(flatten)]
    output: Flags<OutputArgs>,
    #[command(flatten)]
    folder: Flags<FolderArgs>,
    // The last: the headings of these flags go for all that follow them.
    #[cfg(feature = "nats")]
    #[command(flatten)]
    agents: Flags<agents::RunAgentsArgs>,
}

/// A scenario's servers are started for it.
#[derive(Debug, Clone, Default)]
struct NothingLive;

impl FlagRefusal for NothingLive {
    fn why(_: &str) -> Option<&'static str> {
        Some(
            "is for live servers, and a scenario's are behind the emulated link; give a URL to `h2lab compare`",
        )
    }
}

/// Runs the file.
pub fn main(args: &RunArgs, command_line: Vec<String>) -> Result<Exit> {
    if args.list {
        output::show(&scenarios::list(output::style())?)?;
        return Ok(Exit::Done);
    }
    args.output.validate()?;
    #[cfg(feature = "nats")]
    let by_agents = agents::are_named(&args.agents)?;
    tls::announce_key_log()?;
    if let Some(path) = &args.scenario {
        let text = scenarios::text_of(path)?;
        if TimelineStudy::is_asked_for(&text) {
            return args.timelines(path, &text);
        }
    }
    let unfinished = args.folder.unfinished()?;
    let scenario = match (&args.scenario, &unfinished) {
        (Some(path), _) => read(path)?,
        (None, Some(unfinished)) => unfinished.scenario()?,
        (None, None) => return Err(Usage("give a scenario file, or --resume FOLDER".to_owned()).into()),
    };
    let scenario = args.cells.applied(&scenario, args.scenario.is_none())?;
    if !scenario.matrix.live.is_empty() {
        return Err(Usage(
            "`live` in a scenario file: give live servers to `h2lab compare URL …` instead".to_owned(),
        )
        .into());
    }
    args.cells.check_protocols(&scenario)?;
    let (out, quiet) = (args.folder.out.as_deref(), args.folder.quiet);
    let checked = CheckedScenario { scenario, live: Live::default(), out, quiet, unfinished, command_line };
    #[cfg(feature = "nats")]
    if by_agents {
        return agents::run(checked, &args.agents, &args.output);
    }
    checked.run(&args.output)
}

impl RunArgs {
    /// The file asks for timelines. Most of what the command line can say is about load.
    fn timelines(&self, path: &Path, text: &str) -> Result<Exit> {
        let why = format!("is about load, but {} measures timelines", path.display());
        let CellArgs { work, client, policy, .. } = &self.cells;
        work.refuse(&["timeout", "quick"], &why)?;
        client.refuse(ProtocolArgs::NAMES, &why)?;
        policy.refuse(&[], &why)?;
        self.cells.refuse_emulation(&why)?;
        self.output.refuse(&["json", "files"], &why)?;
        self.folder.refuse(&["out", "quiet"], &why)?;
        #[cfg(feature = "nats")]
        self.agents.refuse(&[], &why)?;
        study::main(&study::StudyOptions {
            text,
            path,
            quick: work.quick,
            json: self.output.json,
            quiet: self.folder.quiet,
            files: &self.output.files,
            out: self.folder.out.as_deref(),
            protocol: client.protocol.single(false)?,
            timeout: work.timeout,
        })
    }
}

/// Reads a scenario file.
fn read(path: &Path) -> Result<Scenario> {
    Scenario::from_toml(&scenarios::text_of(path)?).with_context(|| format!("in {}", path.display()))
}
