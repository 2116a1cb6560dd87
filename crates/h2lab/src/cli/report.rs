//! `h2lab report RUN`: the report of a run again, from its folder alone.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::Exit;
use super::exit::Usage;
use super::output::{Concluded, OutputArgs};
use crate::run::store;

/// `h2lab report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run folder
    run: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// Reads the folder and reports.
pub fn main(args: &ReportArgs) -> Result<Exit> {
    args.output.validate()?;
    let run = store::read(&args.run).map_err(|error| Usage(format!("{error:#}")))?;
    if run.visits.is_empty() {
        return Err(Usage(format!("{} holds no visit", args.run.display())).into());
    }
    Concluded::new(&run, &args.run).tell(&args.output)
}
