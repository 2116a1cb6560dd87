//! `cargo xtask test`: all tests, with what they need installed first.

use std::process::ExitCode;

use anyhow::Result;

use crate::{needs, process};

/// Arguments of `cargo xtask test`.
#[derive(Debug, Default, clap::Args)]
pub struct Arguments {
    /// Handed to `cargo test` as they are, such as a name to filter by.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Installs what is missing, then runs the tests. Nothing is printed after cargo's own last line.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    needs::install_missing()?;
    // Profile dev: the integration tests drive the binary that cargo builds for them beside the tests. Timing never
    // decides a test, so that a release build would only cost minutes.
    let status = process::stream(process::cargo(["test", "--workspace"]).args(&arguments.rest))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
