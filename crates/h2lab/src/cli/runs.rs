//! `h2lab runs`: what was measured here before.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use h2lab_base::JsonSchema;
use h2lab_report::PastRun;
use serde::Serialize;

use super::exit::Usage;
use super::{Exit, help, output, quotable};
use crate::run::messages::with_causes;
use crate::run::{history, store};

/// List the stored runs, newest last
///
/// Lists each with its start, its servers, the figures of its cells, its folder, and its command without possible secrets. A
/// folder that cannot be read is listed with the reason, an unfinished run with the command that resumes it.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab runs", "those in ./h2lab-runs"),
        ("h2lab runs --dir results --json", "others, for a script"),
    ],
))]
pub struct RunsArgs {
    /// The folder that holds the run folders
    #[arg(long, value_name = "DIR", default_value = history::PARENT)]
    dir: PathBuf,
    /// One JSON document on stdout instead of text
    #[arg(long)]
    json: bool,
}

/// What `runs --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HistoryDocument {
    /// The runs, newest last.
    runs: Vec<PastRun>,
    /// Folders that could not be read.
    unreadable: Vec<Unreadable>,
}

/// A folder that is no run, or not any more.
#[derive(Debug, Serialize, JsonSchema)]
struct Unreadable {
    /// Where it is.
    folder: String,
    /// What is wrong with it.
    error: String,
}

/// Reads all and lists them.
pub fn main(args: &RunsArgs) -> Result<Exit> {
    let history = read(&args.dir)?;
    if args.json {
        output::print(&(serde_json::to_string_pretty(&history)? + "\n"))?;
        return Ok(Exit::Done);
    }
    for Unreadable { folder, error } in &history.unreadable {
        super::note(&format_args!("{folder}: {error}"));
    }
    output::print(&h2lab_report::history_text(&history.runs, output::style()))?;
    Ok(Exit::Done)
}

fn read(dir: &Path) -> Result<HistoryDocument> {
    if !dir.is_dir() {
        return Err(Usage(format!("{}: there is no such folder, so it holds no runs", dir.display())).into());
    }
    let mut history = HistoryDocument { runs: Vec::new(), unreadable: Vec::new() };
    for path in history::folders(dir)? {
        // The names in an archive of runs were chosen by whoever packed it.
        let folder = quotable(&path.display().to_string());
        match store::read_figures(&path) {
            Ok(run) => {
                let mut past = h2lab_report::past_run(&run, &folder);
                // A run that is still in progress cannot be resumed.
                past.resume = past.resume.filter(|_| !store::is_running(&path));
                history.runs.push(past);
            }
            Err(error) => {
                history.unreadable.push(Unreadable { folder, error: quotable(&with_causes(&error)) });
            }
        }
    }
    Ok(history)
}
