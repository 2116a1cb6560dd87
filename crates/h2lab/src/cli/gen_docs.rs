//! `h2lab gen`: man pages and shell completions, from the command line itself.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use clap_complete::Shell;

use super::Exit;

/// `h2lab gen`.
#[derive(Debug, Args)]
pub struct GenArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write man pages into a folder
    Man {
        /// The folder; made if it is missing
        folder: PathBuf,
    },
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Writes what was asked for.
pub fn main(args: &GenArgs) -> Result<Exit> {
    match &args.what {
        What::Man { folder } => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            clap_mangen::generate_to(super::command(), folder)
                .with_context(|| format!("cannot write man pages into {}", folder.display()))?;
        }
        What::Completions { shell } => {
            clap_complete::generate(*shell, &mut super::command(), "h2lab", &mut std::io::stdout());
        }
    }
    Ok(Exit::Done)
}
