//! `h2lab report RUN…`: the report of runs again, from their folders alone.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use h2lab_model::record::RunRecord;
use h2lab_report::{AnswerPlace, TextStyle};

use super::bulk::kept::{self, Moved};
use super::documents::Form;
use super::exit::Usage;
use super::files::{self, ResultFormat};
use super::output::{self, Concluded, OutputArgs};
use super::{Exit, help};
use crate::run::messages::with_causes;
use crate::run::{history, store};

/// Print the report of runs again, in any format
///
/// All figures are recomputed from the run folder, so a newer h2lab may report more. Several runs are printed
/// one after the other: in text, Markdown and HTML under their names, in CSV with the run in the first column, in JSON as one
/// document `{"runs": [...]}`; an HTML page overlays them in one picture. `h2lab diff` compares two.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab report h2lab-runs/20260131T120000Z-1", "the text again"),
        ("h2lab report RUN -o run.html -o run.csv", "other formats"),
        ("h2lab report latest --verdicts", "each verdict as a sentence"),
        ("h2lab report latest~1 latest -o both.html", "two runs in one picture"),
        ("h2lab report before after --json", "two runs in one document"),
    ],
))]
pub struct ReportArgs {
    /// The run folders; `latest` is the newest of ./h2lab-runs, `latest~1` the one before it
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

impl ReportArgs {
    /// The report of a transfer of `bulk`, which has no cells.
    fn of_transfer(&self, moved: &dyn Moved) -> Result<Exit> {
        if self.output.verdicts || !self.output.fail_if.is_empty() {
            return Err(Usage("--verdicts and --fail-if are of runs with cells".to_owned()).into());
        }
        for path in &self.output.files {
            form_of_transfer(path)?;
        }
        if self.output.json {
            output::print(&moved.render(Form::Json, output::style())?)?;
        } else {
            output::show(&moved.render(Form::Text, output::style())?)?;
        }
        let plain = TextStyle { colour: false, ..output::style() };
        for path in &self.output.files {
            files::put(path, moved.render(form_of_transfer(path)?, plain)?)?;
        }
        Ok(Exit::Done)
    }
}

/// The form of a file with the report of a transfer.
fn form_of_transfer(path: &Path) -> Result<Form> {
    match ResultFormat::of(path)? {
        ResultFormat::Html => Ok(Form::Html),
        ResultFormat::Json => Ok(Form::Json),
        ResultFormat::Markdown => Ok(Form::Markdown),
        _ => {
            let why = "of a transfer of `bulk` there is .html .json .md";
            Err(Usage(format!("-o {}: {why}", path.display())).into())
        }
    }
}

/// Reads the folders and reports.
pub fn main(args: &ReportArgs) -> Result<Exit> {
    args.output.validate()?;
    let mut runs: Vec<RunRecord> = Vec::new();
    let paths = args.runs.iter().map(|named| history::find(named)).collect::<Result<Vec<_>>>()?;
    for path in &paths {
        if let Some(moved) = kept::read(path)? {
            if paths.len() > 1 {
                let why = "a transfer of `bulk` is reported alone";
                return Err(Usage(format!("{}: {why}", path.display())).into());
            }
            return args.of_transfer(&*moved);
        }
        let run = store::read(path).map_err(|error| Usage(with_causes(&error)))?;
        if run.repetitions.is_empty() {
            return Err(Usage(format!("{} has no repetitions", path.display())).into());
        }
        let cells: Vec<_> = run.repetitions.iter().map(|repetition| repetition.cell.clone()).collect();
        args.output.check_names(&cells)?;
        runs.push(run);
    }
    let concluded: Vec<Concluded<'_>> =
        runs.iter().zip(&paths).map(|(run, path)| Concluded::new(run, Some(path.as_path()))).collect();
    output::write_out(&concluded, &args.output, AnswerPlace::First)?;
    output::judge(&concluded, &args.output)
}
