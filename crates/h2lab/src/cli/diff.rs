//! `h2lab diff A B`: what changed from one run to another, for people and for CI.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use h2lab_analysis::stats::{Checked, Threshold};
use h2lab_model::record::RunRecord;
use h2lab_report::{Condition, Diff, DiffSide, PrintedRun};

use super::exit::Usage;
use super::files::{self, ResultFormat};
use super::output::{self, Concluded};
use super::{Exit, help, say};
use crate::run::messages::with_causes;
use crate::run::{history, store};

/// Compare two runs, or two files that --json printed
///
/// Reports what changed from the first to the second: ratios of median, tail and throughput of corresponding cells (same label,
/// in order), with 95 % intervals. Files of --json hold no requests: they give ratios without intervals. For CI, --fail-if
/// compares a figure with that of the same cell in the first run, the base.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab diff latest~1 latest", "what changed between the last two runs"),
        ("h2lab diff before.json after.json --fail-if 'p99 > 1.1*base.p99'", "fail if a p99 grew by more than a tenth"),
        ("h2lab diff A B --fail-if 'h2c.throughput < 0.95*base.throughput'", "the cells of one protocol"),
        ("h2lab diff A B -o diff.md -o diff.html", "for a pull request, and both runs in one picture"),
    ],
))]
pub struct DiffArgs {
    /// The base to compare it with: a run folder (`latest`, `latest~1`), or a file of --json
    #[arg(value_name = "A")]
    first: PathBuf,
    /// The run to compare
    #[arg(value_name = "B")]
    second: PathBuf,
    /// One JSON document on stdout instead of text
    #[arg(long)]
    json: bool,
    /// Also write a report; the extension sets the format: .md .json .html (of two run folders); repeatable
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Exit with 1 if this holds: 'p99 > 1.1*base.p99', 'errors > 0.1%'; repeatable
    #[arg(long, value_name = "EXPR", value_parser = output::threshold)]
    fail_if: Vec<Threshold>,
}

/// What an argument names.
enum Source {
    Folder(PathBuf, Box<RunRecord>),
    File(PrintedRun),
}

impl Source {
    fn read(named: &Path) -> Result<Self> {
        let path = history::find(named)?;
        if path.is_file() {
            let json =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.display().to_string();
            let printed = PrintedRun::read(&name, &json).map_err(|error| Usage(format!("{name} {error}")))?;
            return Ok(Self::File(printed));
        }
        let run = store::read(&path).map_err(|error| Usage(with_causes(&error)))?;
        if run.repetitions.is_empty() {
            return Err(Usage(format!("{} has no repetitions", path.display())).into());
        }
        Ok(Self::Folder(path, Box::new(run)))
    }

    fn concluded(&self) -> Side<'_> {
        match self {
            Self::Folder(path, run) => Side::Run(Box::new(Concluded::new(run, Some(path.as_path())))),
            Self::File(printed) => Side::Printed(printed),
        }
    }
}

/// A source with all that is concluded from it.
enum Side<'a> {
    Run(Box<Concluded<'a>>),
    Printed(&'a PrintedRun),
}

impl Side<'_> {
    fn of_diff(&self) -> DiffSide<'_> {
        match self {
            Self::Run(concluded) => DiffSide::Run(concluded.report()),
            Self::Printed(printed) => DiffSide::Printed((*printed).clone()),
        }
    }
}

/// Reads both, compares, and checks the conditions.
pub fn main(args: &DiffArgs) -> Result<Exit> {
    args.check_files()?;
    let sources = [Source::read(&args.first)?, Source::read(&args.second)?];
    args.check_pages(&sources)?;
    let concluded = sources.each_ref().map(Source::concluded);
    let sides = concluded.each_ref().map(Side::of_diff);
    let diff = Diff::new(&sides[0], &sides[1]);
    let checked: Result<Vec<Checked>, Usage> = args.fail_if.iter().map(|one| check(&diff, one)).collect();
    let conditions = checked.as_deref().map(conditions).unwrap_or_default();
    let json = || -> Result<String> { Ok(serde_json::to_string_pretty(&diff.document())? + "\n") };
    output::print(&if args.json { json()? } else { diff.text(output::style()) })?;
    for path in &args.files {
        let text = match (ResultFormat::of(path)?, &sides) {
            (ResultFormat::Json, _) => json()?,
            (ResultFormat::Html, [DiffSide::Run(first), DiffSide::Run(second)]) => {
                h2lab_report::html(&[*first, *second])
            }
            _ => diff.markdown(&conditions),
        };
        files::put(path, &text)?;
    }
    judge(&diff, checked)
}

/// The result of a condition for the two runs.
fn check(diff: &Diff<'_>, condition: &Threshold) -> Result<Checked, Usage> {
    condition.check_against(&diff.pairs()).map_err(|error| Usage(format!("--fail-if: {error}")))
}

/// The same for a report.
fn conditions(checked: &[Checked]) -> Vec<Condition> {
    let of = |one: &Checked| {
        let judged = one.violations.iter().chain(&one.others);
        let mut all: Vec<Condition> = judged
            .map(|judged| Condition { is_true: Some(judged.is_true), said: judged.to_string() })
            .collect();
        all.extend(one.undecided.iter().map(|said| Condition { is_true: None, said: said.clone() }));
        all
    };
    checked.iter().flat_map(of).collect()
}

impl DiffArgs {
    /// Refuses a page of files of --json, before anything is printed or written.
    fn check_pages(&self, sources: &[Source; 2]) -> Result<(), Usage> {
        let is_page = |path: &&PathBuf| matches!(ResultFormat::of(path), Ok(ResultFormat::Html));
        let has_both = sources.iter().all(|source| matches!(source, Source::Folder(..)));
        match self.files.iter().find(is_page).filter(|_| !has_both) {
            Some(path) => {
                let why = "an HTML page needs two run folders, since files of --json hold no single requests";
                Err(Usage(format!("-o {}: {why}", path.display())))
            }
            None => Ok(()),
        }
    }

    /// Refuses files that cannot be written, before anything is read.
    fn check_files(&self) -> Result<()> {
        self.files.iter().try_for_each(|path| match ResultFormat::of(path)? {
            ResultFormat::Json | ResultFormat::Html | ResultFormat::Markdown => {
                files::check_place("-o", path)
            }
            _ => {
                Err(Usage(format!("-o {}: write the comparison as .md, .json or .html", path.display()))
                    .into())
            }
        })
    }
}

/// The exit code. Two sides that both collapsed were not compared, but fail a condition.
fn judge(diff: &Diff<'_>, checked: Result<Vec<Checked>, Usage>) -> Result<Exit> {
    if diff.pairs().is_empty() {
        return Err(Usage("no cell of one run corresponds to a cell of the other".to_owned()).into());
    }
    let (mut failed, mut undecided) = (false, false);
    for checked in checked? {
        for violation in checked.violations {
            say(output::IS_TRUE, &violation);
            failed = true;
        }
        for why in checked.undecided {
            say("undecided", &why);
            undecided = true;
        }
    }
    Ok(match diff.is_sound() {
        _ if undecided || diff.is_invalid() => Exit::Invalid,
        _ if failed => Exit::CheckFailed,
        true => Exit::Done,
        false => Exit::Invalid,
    })
}
