//! `h2lab run` of a file that asks for timelines: many exchanges with many servers, as a table and pictures.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use h2lab_base::counts::plural;
use h2lab_model::timeline::study::{StudyError, StudyTable, TimelineStudy};
use h2lab_model::workload::Protocol;
use h2lab_report::{study_page, study_text};
use std::os::unix::fs::PermissionsExt as _;

use super::super::asking::{self, AskArgs};
use super::super::exit::{MissingRequirement, Usage};
use super::super::progress::ProgressLine;
use super::super::{Exit, command_line, files, output, signals};
use super::request::{failure, to_chain};
use crate::run::folder;
use h2lab_roles::load::LoadError;
use h2lab_roles::timeline::chain::ChainError;
use h2lab_roles::timeline::study::{Runner, Studied};

/// The options of a study.
#[derive(Debug)]
pub struct StudyOptions<'a> {
    /// The file's text.
    pub text: &'a str,
    /// Where it is.
    pub path: &'a Path,
    /// Whether a quick look is enough.
    pub quick: bool,
    /// One JSON document on stdout instead of text.
    pub json: bool,
    /// Whether to show no progress.
    pub quiet: bool,
    /// Report files; their extensions set the formats.
    pub files: &'a [PathBuf],
    /// The folder that keeps the table and the page, if there is one.
    pub out: Option<&'a Path>,
    /// The protocol of the clients, instead of the file's.
    pub protocol: Option<Protocol>,
    /// The timeout of requests, instead of the file's.
    pub timeout: Option<Duration>,
}

/// The files of a study's folder.
const TABLE: &str = "study.json";
const PAGE: &str = "report.html";

/// Runs the file.
pub fn main(wanted: &StudyOptions<'_>) -> Result<Exit> {
    let study = TimelineStudy::from_toml(wanted.text).map_err(|error| usage(wanted.path, &error))?;
    let study = study.with(wanted.protocol, wanted.timeout).map_err(|error| usage(wanted.path, &error))?;
    let study = if wanted.quick { study.quickened() } else { study };
    wanted.files.iter().try_for_each(|path| check(path))?;
    let kept = wanted.out.map(|out| folder::choose(Some(out), SystemTime::now(), 0)).transpose()?;
    let stop = signals::stop_flag()?;
    let scratch = tempfile::tempdir().context("cannot make a folder for the servers")?;
    // Root's Apache reads its pages as another user.
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    let line = ProgressLine::new(wanted.quiet);
    let runner = Runner {
        study: &study,
        folder: scratch.path(),
        spec: &|chain, protocol, path, clock| {
            to_chain(&AskArgs::plain(protocol, study.timeline.timeout), chain, protocol, path, clock)
        },
        stop: &stop,
        progress: &mut |case, done| {
            line.show(&format!("{} done; {} {}", plural(done as u64, "row"), case.server, case.path));
        },
    };
    let studied = runner.run();
    drop(line);
    let Studied { table, failure } = studied.map_err(in_words)?;
    write(wanted, kept.as_deref(), &table)?;
    match failure {
        Some(error) => Err(in_words(error)),
        None if table.interrupted => Ok(Exit::Interrupted),
        None if table.rows.is_empty() => {
            Err(MissingRequirement("none of the servers could be reached".to_owned()).into())
        }
        None => Ok(Exit::Done),
    }
}

/// The error that ended a study, with its exit code.
fn in_words(error: anyhow::Error) -> anyhow::Error {
    let error = match error.downcast::<ChainError>() {
        Ok(error) => return failure(error).into(),
        Err(error) => error,
    };
    match error.downcast::<LoadError>() {
        Ok(error) => asking::failure(&error).into(),
        Err(error) => error,
    }
}

fn usage(path: &Path, error: &StudyError) -> Usage {
    Usage(format!("in {}: {error}", path.display()))
}

fn check(path: &Path) -> Result<()> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "json") => files::check_place("-o", path),
        _ => {
            let why = format!("-o {}: a study of timelines is written as .html or .json", path.display());
            Err(Usage(why).into())
        }
    }
}

fn write(wanted: &StudyOptions<'_>, kept: Option<&Path>, table: &StudyTable) -> Result<()> {
    let json = || Ok::<_, serde_json::Error>(serde_json::to_string_pretty(table)? + "\n");
    // Printing comes first: it needs no disk.
    output::print(&if wanted.json { json()? } else { study_text(table, output::style()) })?;
    if let Some(folder) = kept {
        files::put(&folder.join(TABLE), &json()?)?;
        files::put(&folder.join(PAGE), study_page(table, command_line()))?;
    }
    for path in wanted.files {
        let is_page = path.extension().is_some_and(|ending| ending == "html");
        files::put(path, &if is_page { study_page(table, command_line()) } else { json()? })?;
    }
    Ok(())
}
