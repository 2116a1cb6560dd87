//! The files of `-o`: which form a file's extension means, what the form can hold, and how it is written.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use clap::Args;
use h2lab_base::units::nanos;
use h2lab_model::record::{Level, RunRecord, Sample};
use h2lab_model::scenario::Cell;
use h2lab_report::{Report, hdr};
use rustix::fs::Access;

use super::exit::{MissingRequirement, Usage};
use crate::run::store::table;
use h2lab_net::ownership;

/// A form of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultFormat {
    /// The report as a page.
    Html,
    /// The report as a document.
    Json,
    /// A line per cell.
    Csv,
    /// Tables for an issue.
    Markdown,
    /// A row per request.
    Parquet,
    /// A line per request, as vegeta writes them.
    Vegeta,
    /// The percentiles of one cell, as `HdrHistogram` writes them.
    Percentiles,
    /// The histograms of every cell, as `HdrHistogram` logs them.
    HistogramLog,
}

/// The extension of each form. Longer ones precede those that they end with.
const ENDINGS: [(&str, ResultFormat); 8] = [
    (".html", ResultFormat::Html),
    (".json", ResultFormat::Json),
    (".vegeta.csv", ResultFormat::Vegeta),
    (".csv", ResultFormat::Csv),
    (".md", ResultFormat::Markdown),
    (".parquet", ResultFormat::Parquet),
    (".hgrm", ResultFormat::Percentiles),
    (".hlog", ResultFormat::HistogramLog),
];

impl ResultFormat {
    /// The form that the extension of `path` means.
    pub fn of(path: &Path) -> Result<Self> {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let known = ENDINGS.iter().find(|(ending, _)| name.len() > ending.len() && name.ends_with(ending));
        known.map(|(_, format)| *format).ok_or_else(|| {
            let endings: Vec<&str> = ENDINGS.iter().map(|(ending, _)| *ending).collect();
            Usage(format!("-o {}: the ending must be one of {}", path.display(), endings.join(" "))).into()
        })
    }

    /// Refuses a run with more cells than the form can hold: a distribution is of one cell.
    pub fn check_cells(self, path: &Path, cells: &[Cell]) -> Result<()> {
        let different = cells.iter().map(|cell| cell.index).collect::<std::collections::BTreeSet<_>>().len();
        if self == Self::Percentiles && different != 1 {
            let why =
                format!("it holds one distribution, the run has {different} cells; .hlog holds them all");
            return Err(Usage(format!("-o {}: {why}", path.display())).into());
        }
        Ok(())
    }

    /// Refuses several runs where they could not be distinguished.
    fn check_runs(self, path: &Path, runs: usize) -> Result<()> {
        if runs > 1 && matches!(self, Self::Percentiles | Self::Parquet) {
            let why = "it holds one run; write one file for each";
            return Err(Usage(format!("-o {}: {why}", path.display())).into());
        }
        Ok(())
    }

    /// Whether it has a line for each request.
    const fn holds_requests(self) -> bool {
        matches!(self, Self::Parquet | Self::Vegeta)
    }
}

/// Writes these runs to `path` in the form that its extension means.
pub fn write(path: &Path, reports: &[Report<'_>]) -> Result<()> {
    let format = ResultFormat::of(path)?;
    format.check_runs(path, reports.len())?;
    if format.holds_requests()
        && let Some(note) = what_is_missing(reports)
    {
        super::note(&format_args!("{}: {note}", path.display()));
    }
    let first = reports.first().context("there is no run to write")?;
    let text = match format {
        ResultFormat::Html => h2lab_report::html(reports),
        ResultFormat::Json => json(reports)?,
        ResultFormat::Csv => h2lab_report::csv(reports),
        ResultFormat::Markdown => h2lab_report::markdown(reports),
        ResultFormat::Vegeta => h2lab_report::vegeta(reports, &began(reports)?),
        ResultFormat::HistogramLog => reports.iter().map(hdr::log).collect(),
        ResultFormat::Percentiles => {
            let cell = first.analysis.cells.first().context("the run has no cell")?;
            hdr::percentiles(&cell.response)
        }
        ResultFormat::Parquet => return samples(path, first.run),
    };
    put(path, &text)
}

/// The page of commands whose `-o` is a file to transfer.
#[derive(Debug, Clone, Default, Args)]
pub struct PageArg {
    /// Also write the report as an HTML page: one file that loads nothing
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl PageArg {
    /// Refuses a file that could not be written, before anything is transferred.
    pub fn validate(&self) -> Result<()> {
        self.html.as_deref().map_or(Ok(()), |path| check_place("--html", path))
    }

    /// Writes the page, if it was asked for.
    pub fn write(&self, page: impl FnOnce() -> String) -> Result<()> {
        self.html.as_deref().map_or(Ok(()), |path| put(path, page()))
    }
}

/// One run is its own document; several are a list of these.
pub fn json(reports: &[Report<'_>]) -> Result<String> {
    let text = match reports {
        [report] => serde_json::to_string_pretty(&h2lab_report::document(report))?,
        _ => serde_json::to_string_pretty(&h2lab_report::documents(reports))?,
    };
    Ok(text + "\n")
}

/// Refuses the file of `flag` that could not be written, before anything is measured. The disk may still fill up
/// afterwards.
pub fn check_place(flag: &str, path: &Path) -> Result<()> {
    check_folder(flag, path)?;
    if path.is_dir() {
        let why = format!("{flag} {}: that is a folder; give the name of a file in it", path.display());
        return Err(Usage(why).into());
    }
    if path.exists() { check_rights(flag, path, path) } else { Ok(()) }
}

/// The same for a file that replaces an existing one of the same name: only the folder matters.
pub fn check_folder(flag: &str, path: &Path) -> Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let (path, folder) = (path.display(), folder.display());
        let why = format!("{flag} {path}: there is no folder {folder}; create it first (mkdir -p {folder})");
        return Err(Usage(why).into());
    }
    // An existing file may be writable in a folder where no file may be created.
    if path.exists() { Ok(()) } else { check_rights(flag, path, folder) }
}

fn check_rights(flag: &str, path: &Path, written: &Path) -> Result<()> {
    let refused = |error| {
        MissingRequirement(format!("{flag} {}: cannot write: {error}; give a writable file", path.display()))
    };
    Ok(rustix::fs::access(written, Access::WRITE_OK).map_err(refused)?)
}

/// Writes a file. If the disk is full, the file is removed: half a report may look like a whole one.
pub fn put(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let written = ownership::write(path, content);
    let is_half =
        matches!(&written, Err(error) if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge));
    if is_half && path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
        // The first error counts.
        let _ = std::fs::remove_file(path);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Every sample of a run, warm-up included: the table `samples.parquet` of a run folder, by itself.
fn samples(path: &Path, run: &RunRecord) -> Result<()> {
    let repetitions = run.repetitions.iter().enumerate();
    let tables = repetitions.map(|(number, repetition)| (number as u64, &repetition.samples));
    table::write_all::<Sample>(path, tables)
}

/// What a file of single requests does not hold, in words.
fn what_is_missing(reports: &[Report<'_>]) -> Option<String> {
    let cells = || reports.iter().flat_map(|report| &report.analysis.cells);
    let sampled = cells().filter(|cell| cell.level != Level::Full).count();
    let level = cells().map(|cell| cell.level).max().filter(|level| *level != Level::Full)?;
    let repetitions = reports.iter().flat_map(|report| &report.run.repetitions);
    let kept: usize = repetitions
        .map(|repetition| repetition.samples.iter().filter(|sample| sample.measured).count())
        .sum();
    let all: u64 = cells().map(|cell| cell.requests.sent).sum();
    let what = match level {
        Level::Hist => "no individual request was kept (--record hist)",
        _ => {
            "the slow, the failed, and one in a thousand of the others: percentiles of this file are meaningless"
        }
    };
    let of = if sampled == cells().count() { String::new() } else { format!(" in {sampled} of the cells") };
    Some(format!("it is a sample{of}, {kept} of {all} requests: {what}; --record full keeps all"))
}

/// When the clock of each run began, in nanoseconds of the epoch, to the second: more was not recorded.
fn began(reports: &[Report<'_>]) -> Result<Vec<u64>> {
    let began = |report: &Report<'_>| {
        let started = &report.run.started;
        let time = humantime::parse_rfc3339(started).with_context(|| format!("`{started}` is not a time"))?;
        Ok(time.duration_since(SystemTime::UNIX_EPOCH).map(nanos).unwrap_or_default())
    };
    reports.iter().map(began).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_is_the_form_and_the_longer_ending_wins() {
        for (ending, format) in ENDINGS {
            assert_eq!(ResultFormat::of(Path::new(&format!("a/b{ending}"))).unwrap(), format);
        }
        assert_eq!(ResultFormat::of(Path::new("x.vegeta.csv")).unwrap(), ResultFormat::Vegeta);
        for bad in ["x", "x.txt", ".csv", "html"] {
            let error = ResultFormat::of(Path::new(bad)).unwrap_err().to_string();
            assert!(
                error.contains(bad) && error.contains(".vegeta.csv") && error.contains(".hlog"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_with_what_to_do_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let reported =
            |name: &str| check_place("-o", &folder.path().join(name)).err().map(|error| error.to_string());
        assert_eq!(reported("x.html"), None);
        assert!(!folder.path().join("x.html").exists());
        std::fs::create_dir(folder.path().join("y.html")).unwrap();
        assert!(reported("y.html").unwrap().contains("that is a folder"));
        let missing = reported("none/x.html").unwrap();
        assert!(missing.contains("there is no folder") && missing.contains("mkdir -p"), "{missing}");
        assert!(check_place("-o", Path::new("x.html")).is_ok(), "in the folder where we are");
    }

    #[test]
    fn forms_without_room_for_several_refuse_them_and_others_do_not() {
        let path = Path::new("x");
        for (_, format) in ENDINGS {
            let is_narrow = matches!(format, ResultFormat::Percentiles | ResultFormat::Parquet);
            assert!(format.check_runs(path, 1).is_ok());
            assert_eq!(format.check_runs(path, 2).is_err(), is_narrow, "{format:?}");
            assert_eq!(
                format.check_cells(path, &[]).is_err(),
                format == ResultFormat::Percentiles,
                "{format:?}"
            );
        }
    }
}
