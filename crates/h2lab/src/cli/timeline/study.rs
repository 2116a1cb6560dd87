//! `h2lab run` of a file that asks for timelines: many exchanges with many servers, as a table and pictures.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use h2lab_core::report::{study_page, study_text};
use h2lab_core::timeline::study::{Study, StudyError, StudyTable};
use h2lab_core::workload::Protocol;
use std::os::unix::fs::PermissionsExt as _;

use super::super::asking::AskArgs;
use super::super::exit::Usage;
use super::super::live::LiveArgs;
use super::super::{Exit, files, live, output, signals};
use super::hops::failure;
use super::prepare;
use crate::io::clock::Clock;
use crate::load::LoadSpec;
use crate::timeline::chain::{Chain, ChainError};
use crate::timeline::study::Runner;

/// What is wanted of a study.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The file's text.
    pub text: &'a str,
    /// Where it is.
    pub path: &'a Path,
    /// Whether a look is enough.
    pub quick: bool,
    /// One JSON document on stdout instead of text.
    pub json: bool,
    /// Reports, by their endings.
    pub files: &'a [PathBuf],
}

/// Runs the file.
pub fn main(wanted: &Wanted<'_>) -> Result<Exit> {
    let study = Study::from_toml(wanted.text).map_err(|error| usage(wanted.path, &error))?;
    let study = if wanted.quick { study.quickened() } else { study };
    wanted.files.iter().try_for_each(|path| check(path))?;
    let stop = signals::stop_flag()?;
    let folder = tempfile::tempdir().context("cannot make a folder for the servers")?;
    // Root's Apache reads its pages as another user.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    let is_watched = std::io::stderr().is_terminal();
    let runner = Runner {
        study: &study,
        folder: folder.path(),
        spec: &|chain, protocol, path, clock| spec(&study, chain, protocol, path, clock),
        stop: &stop,
        progress: &mut |case, done| {
            if is_watched {
                eprint!("\r\x1b[K{done} rows; {} {}", case.server, case.path);
            }
        },
    };
    let table = runner.run();
    if is_watched {
        eprint!("\r\x1b[K");
    }
    let table = table.map_err(|error| match error.downcast::<ChainError>() {
        Ok(error) => failure(error).into(),
        Err(error) => error,
    })?;
    write(wanted, &table)?;
    Ok(if table.interrupted { Exit::Interrupted } else { Exit::Done })
}

fn usage(path: &Path, error: &StudyError) -> Usage {
    Usage(format!("in {}: {error}", path.display()))
}

fn check(path: &Path) -> Result<(), Usage> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "json") => files::check_place(path),
        _ => Err(Usage(format!("-o {}: a study of timelines is written as .html or .json", path.display()))),
    }
}

fn write(wanted: &Wanted<'_>, table: &StudyTable) -> Result<()> {
    let json = || Ok::<_, serde_json::Error>(serde_json::to_string_pretty(table)? + "\n");
    for path in wanted.files {
        let is_page = path.extension().is_some_and(|ending| ending == "html");
        files::put(path, &if is_page { study_page(table) } else { json()? })?;
    }
    let text = if wanted.json { json()? } else { study_text(table, output::style()) };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// The request for `path` of a chain's first server.
fn spec(
    study: &Study,
    chain: &Chain,
    protocol: Protocol,
    path: &str,
    clock: Clock,
) -> Result<LoadSpec<'static>> {
    let scheme = if protocol.is_tls() { "https" } else { "http" };
    let text = format!("{scheme}://{}{path}", chain.address()?);
    let ask = AskArgs::plain(protocol, study.timeline.timeout);
    let mut spec = ask.spec(&text, &live::parse(&text)?, &LiveArgs::default())?;
    prepare(&mut spec, protocol);
    spec.tls.insecure = true;
    spec.clock_origin_ns = clock.origin_ns();
    Ok(spec)
}
