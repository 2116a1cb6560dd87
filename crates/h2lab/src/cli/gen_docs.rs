//! `h2lab gen`: man pages, shell completions and, with the feature `schema`, JSON Schemas, from the program itself.

use std::path::PathBuf;

use super::{Exit, help, output};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use clap_complete::Shell;

#[cfg(feature = "schema")]
mod schema;

/// Write man pages and shell completions
///
/// They are generated from the program itself and match its version. With the feature `schema`, JSON Schemas too; those of
/// a release are in docs/schema.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab gen man ~/.local/share/man/man1", "man pages: `man h2lab-compare`"),
        ("h2lab gen completions bash > ~/.local/share/bash-completion/completions/h2lab", "completions"),
    ],
))]
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
    #[cfg(feature = "schema")]
    /// Write the JSON Schema of every document that `--json` prints into a folder
    Schema {
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
        #[cfg(feature = "schema")]
        What::Schema { folder } => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            schema::write(folder)?;
        }
        What::Completions { shell } => {
            // It panics where it cannot write, so it gets a buffer.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut super::command(), "h2lab", &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
        }
    }
    Ok(Exit::Done)
}
