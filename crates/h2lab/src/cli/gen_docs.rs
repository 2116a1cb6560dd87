//! `h2lab gen`: man pages, shell completions and JSON Schemas, from the program itself.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use clap_complete::Shell;
use h2lab_model::probe::ProbeReport;
use h2lab_model::timeline::study::StudyTable;

use super::doctor::DoctorDocument;
use super::link::LinkDocument;
use super::runs::HistoryDocument;
use super::trace::TraceDocument;
use super::{Exit, help};

/// Write man pages, shell completions and JSON Schemas
///
/// All of it is made from the program itself, so that it cannot lag behind.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab gen man ~/.local/share/man/man1", "man pages: `man h2lab-compare`"),
        ("h2lab gen completions bash > ~/.local/share/bash-completion/completions/h2lab", "completions"),
        ("h2lab gen schema docs/schema", "the schemas of what --json prints"),
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
        What::Schema { folder } => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            for (name, schema) in [
                ("compare", schema::<h2lab_report::Document>()),
                ("load", schema::<h2lab_report::LoadDocument>()),
                ("bulk", schema::<h2lab_report::BulkDocument>()),
                ("bulk-drive", schema::<h2lab_report::FleetDocument>()),
                ("link", schema::<LinkDocument>()),
                ("report", schema::<h2lab_report::RunsDocument>()),
                ("runs", schema::<HistoryDocument>()),
                ("trace", schema::<TraceDocument>()),
                ("timeline", schema::<h2lab_report::TimelineDocument>()),
                ("timeline-study", schema::<StudyTable>()),
                ("probe", schema::<ProbeReport>()),
                ("doctor", schema::<DoctorDocument>()),
            ] {
                let path = folder.join(format!("{name}.schema.json"));
                let text = serde_json::to_string_pretty(&schema)? + "\n";
                std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        What::Completions { shell } => {
            clap_complete::generate(*shell, &mut super::command(), "h2lab", &mut std::io::stdout());
        }
    }
    Ok(Exit::Done)
}

/// The schema of what is written, in which a key is required unless it may be left out.
fn schema<T: schemars::JsonSchema>() -> schemars::Schema {
    let settings = schemars::generate::SchemaSettings::default().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}
