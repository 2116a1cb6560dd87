//! `h2lab gen`: man pages, shell completions and, with the feature `schema`, JSON Schemas, from the program itself.

use std::env;
use std::path::{Path, PathBuf};

use super::exit::Usage;
use super::{Exit, explain, help, output};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use clap_complete::Shell;

#[cfg(feature = "schema")]
mod schema;

/// Write man pages and shell completions
///
/// Generated from the program itself, so they match its version. With the feature `schema`, JSON Schemas too; docs/schema has
/// those of a release.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab gen man ~/.local/share/man/man1", "man pages: `man h2lab-compare`"),
        ("h2lab gen completions --install", "completions, where your shell looks for them"),
        ("h2lab gen completions zsh > _h2lab", "to stdout"),
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
        /// The folder; created if missing
        folder: PathBuf,
    },
    #[cfg(feature = "schema")]
    /// Write the JSON Schema of every document that `--json` prints into a folder
    Schema {
        /// The folder; created if missing
        folder: PathBuf,
    },
    /// Print docs/causes.md, the table of all causes
    #[command(hide = true)]
    Causes,
    /// Print completions for a shell, or install them for the current user
    Completions {
        /// The shell [default with --install: that of $SHELL]
        #[arg(required_unless_present = "install")]
        shell: Option<Shell>,
        /// Write them where bash, zsh or fish looks for the current user's
        #[arg(long)]
        install: bool,
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
        What::Causes => output::print(&explain::markdown())?,
        What::Completions { shell, install: false } => {
            let shell = shell.ok_or_else(|| Usage("give a shell".to_owned()))?;
            output::print(&String::from_utf8_lossy(&completions(shell)))?;
        }
        What::Completions { shell, install: true } => install(*shell)?,
    }
    Ok(Exit::Done)
}

fn completions(shell: Shell) -> Vec<u8> {
    // The generator panics if it cannot write, so it writes to a buffer.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "h2lab", &mut script);
    script
}

/// Writes completions for this user, and says what else the shell needs.
fn install(shell: Option<Shell>) -> Result<()> {
    let shell = shell.or_else(Shell::from_env).ok_or_else(|| {
        Usage("$SHELL names no shell with completions; give one, such as `bash`".to_owned())
    })?;
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME").context("$HOME is not set: h2lab gen completions SHELL > FILE")?;
    let data = variable("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
    let config = variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    let Some(path) = place(shell, &data, &config) else {
        let text = format!("{shell} has no folder for completions: h2lab gen completions {shell} > FILE");
        return Err(Usage(text).into());
    };
    let folder = path.parent().unwrap_or(&data);
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    std::fs::write(&path, completions(shell)).with_context(|| format!("cannot write {}", path.display()))?;
    let then = match shell {
        Shell::Zsh => format!("; in ~/.zshrc, before compinit: fpath+=({})", folder.display()),
        _ => "; new shells load them".to_owned(),
    };
    output::print(&format!("{}{then}\n", path.display()))
}

/// Where `shell` looks for a user's completions.
fn place(shell: Shell, data: &Path, config: &Path) -> Option<PathBuf> {
    match shell {
        Shell::Bash => Some(data.join("bash-completion/completions/h2lab")),
        Shell::Zsh => Some(data.join("zsh/site-functions/_h2lab")),
        Shell::Fish => Some(config.join("fish/completions/h2lab.fish")),
        _ => None,
    }
}
