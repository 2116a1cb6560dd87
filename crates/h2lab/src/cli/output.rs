//! What a finished run leaves: text or JSON on stdout, report files, thresholds, the exit code.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use h2lab_analysis::diagnose;
use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::stats;
use h2lab_analysis::stats::{Analysis, CellState, CellVerdict, Ending, Threshold};
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::Cell;
use h2lab_report::{AnswerPlace, Condition, Explained, Report, TextStyle};

use super::Exit;
use super::exit::{MissingRequirement, Usage};
use super::files::{self, ResultFormat};
use crate::run::messages::{Failure, FailureKind, with_causes};
use crate::run::store;
use crate::terminal::Terminal;
use crate::text_writer::TextWriter;
use h2lab_net::ownership;

/// Where results go.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// One JSON document on stdout instead of text
    #[arg(long)]
    pub json: bool,
    /// Also write a report; the extension sets the format; repeatable
    ///
    /// Reports: .html .json .csv .md. Latencies for `HdrHistogram` tools: .hgrm (percentiles of one cell, ms) and .hlog
    /// (histograms of every cell, which can be merged across runs). Single requests: .parquet (for `DuckDB`) and .vegeta.csv
    /// (for `vegeta report` and `vegeta plot`); they hold what --record kept.
    #[arg(short = 'o', long = "output", visible_alias = "html", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Exit with 1 if this holds: 'h2c.p99 > 1.2*h1.p99', 'errors > 0.1%'; repeatable
    #[arg(long, value_name = "EXPR", value_parser = threshold)]
    pub fail_if: Vec<Threshold>,
    /// Also print each verdict as a sentence, below the matrix
    #[arg(long)]
    pub verdicts: bool,
}

/// A condition of `--fail-if`.
pub fn threshold(text: &str) -> Result<Threshold, String> {
    text.parse().map_err(|error: stats::ThresholdError| error.to_string())
}

impl OutputArgs {
    /// Refuses report files with an unknown extension or that cannot be written, before anything is measured.
    pub fn validate(&self) -> Result<()> {
        self.files.iter().try_for_each(|path| {
            ResultFormat::of(path)?;
            files::check_place("-o", path)
        })
    }

    /// Refuses thresholds that name none of these cells of a run, and forms that cannot hold all of them, before
    /// anything is measured or printed.
    pub fn check_names(&self, cells: &[Cell]) -> Result<()> {
        self.files.iter().try_for_each(|path| ResultFormat::of(path)?.check_cells(path, cells))?;
        let check = |threshold: &Threshold| threshold.check_names(cells);
        self.fail_if.iter().try_for_each(check).map_err(|error| Usage(format!("--fail-if: {error}")))?;
        for meaning in self.fail_if.iter().filter_map(Threshold::assumed_unit) {
            super::note(&format_args!("--fail-if: {meaning}"));
        }
        Ok(())
    }
}

/// What slow requests waited for, from the run folder. If that table cannot be read, only this part of the report is
/// missing.
fn causes(folder: &Path) -> Vec<Explained> {
    store::read_waits(folder).unwrap_or_else(|error| {
        let why = with_causes(&error);
        super::note(&format_args!("what slow requests waited for is unknown: {why}"));
        Vec::new()
    })
}

/// The findings of a run, by these verdicts and by what slow requests waited for.
fn found(run: &RunRecord, verdicts: &[CellVerdict], causes: &[Explained]) -> Vec<Finding> {
    let waits = |cell: u32, repetition: u32| {
        let its = causes.iter().find(|one| (one.cell, one.repetition) == (cell, repetition));
        its.map(|one| &one.waits)
    };
    diagnose::findings_with(&run.repetitions, verdicts, &waits)
}

/// What other machines found that measured the same plan, as the folder has it. A run that cannot be read costs this part alone.
fn reproductions(folder: &Path) -> Vec<Analysis> {
    let runs = store::read_reproductions(folder).unwrap_or_else(|error| {
        let why = with_causes(&error);
        super::note(&format_args!("what other machines measured of the same plan is unknown: {why}"));
        Vec::new()
    });
    runs.iter().map(stats::analyse).collect()
}

/// A run with all that is concluded from it.
#[derive(Debug)]
pub struct Concluded<'a> {
    run: &'a RunRecord,
    analysis: Analysis,
    findings: Vec<Finding>,
    /// What slow requests waited for, for each repetition in which causes were asked for.
    causes: Vec<Explained>,
    /// Where the run folder is, if it is kept.
    folder: Option<&'a Path>,
    folder_name: Option<String>,
    page_name: Option<String>,
    /// For a user's client: whether something was found that is only about our own server.
    pub has_limits_of_ours: bool,
}

impl<'a> Concluded<'a> {
    /// Draws all conclusions; pure and repeatable.
    pub fn new(run: &'a RunRecord, folder: Option<&'a Path>) -> Self {
        let others = folder.map_or_else(Vec::new, reproductions);
        let analysis = stats::analyse(run).reproduced_by(&others);
        let causes = folder.map_or_else(Vec::new, causes);
        Self {
            run,
            findings: found(run, &analysis.verdicts, &causes),
            analysis,
            causes,
            folder,
            folder_name: folder.map(|folder| folder.display().to_string()),
            page_name: folder.map(|folder| folder.join(PAGE).display().to_string()),
            has_limits_of_ours: false,
        }
    }

    /// Conclusions from a capture, with what cannot be known from it. Warnings about cells are dropped: they are about
    /// how a cell was measured, and nothing was measured.
    pub fn of_capture(run: &'a RunRecord, notes: Vec<String>) -> Self {
        let mut concluded = Self::new(run, None);
        concluded.analysis.cells.iter_mut().for_each(|cell| cell.warnings.clear());
        concluded.analysis.warnings = notes;
        concluded.findings = diagnose::client::of_capture(concluded.findings);
        concluded
    }

    /// Conclusions from the connections of a running sidecar. `own`: what is configured for the instance of a cell.
    pub fn of_sidecar(
        run: &'a RunRecord,
        notes: Vec<String>,
        own: &dyn Fn(u32) -> diagnose::sidecar::Own,
    ) -> Self {
        let mut concluded = Self::new(run, None);
        for cell in &mut concluded.analysis.cells {
            cell.warnings.clear();
            if matches!(cell.state, CellState::Unstable { .. } | CellState::Invalid { .. }) {
                cell.state = CellState::Ok;
            }
        }
        concluded.analysis.warnings = notes;
        concluded.findings = diagnose::sidecar::of_sidecar(concluded.findings, own);
        concluded
    }

    /// Conclusions from the connections of a user's client. Whether it carries a load is not examined.
    pub fn of_client(run: &'a RunRecord, notes: Vec<String>, client: &diagnose::client::Client<'_>) -> Self {
        let mut concluded = Self::of_capture(run, notes);
        for cell in &mut concluded.analysis.cells {
            if matches!(cell.state, CellState::Unstable { .. } | CellState::Invalid { .. }) {
                cell.state = CellState::Ok;
            }
            if !client.doubts.is_empty() {
                cell.state = CellState::Invalid { reasons: client.doubts.to_vec() };
            }
        }
        let of_client = diagnose::client::of_client(concluded.findings, &run.repetitions, client);
        concluded.analysis.warnings.extend(of_client.remarks());
        concluded.has_limits_of_ours = !of_client.of_server.is_empty();
        concluded.findings = of_client.findings;
        concluded
    }

    /// Adds a remark on what was found before anything was measured.
    pub fn warned(mut self, remark: Option<String>) -> Self {
        self.analysis.warnings.extend(remark);
        self
    }

    /// Replaces the run's findings with findings about cells as these verdicts compare them.
    pub fn compared(mut self, verdicts: &[CellVerdict]) -> Self {
        self.findings = found(self.run, verdicts, &self.causes);
        self
    }

    /// The run's own verdicts.
    pub fn verdicts(&self) -> &[CellVerdict] {
        &self.analysis.verdicts
    }

    /// Adds the cause of a cell that was found before it was measured, unless it was found again.
    pub fn found_before(mut self, found: Option<Finding>, cell: u32) -> Self {
        let is_again = |found: &Finding| {
            self.findings.iter().any(|finding| finding.cell == cell && finding.rule == found.rule)
        };
        let found = found.filter(|found| !is_again(found));
        self.findings.extend(found.map(|found| Finding { cell, ..found }));
        self
    }

    /// The run as input of a report.
    pub fn report(&self) -> Report<'_> {
        Report {
            run: self.run,
            analysis: &self.analysis,
            findings: &self.findings,
            causes: &self.causes,
            folder: self.folder_name.as_deref(),
            page: self.page_name.as_deref().filter(|page| Path::new(page).exists()),
            conditions: &[],
        }
    }

    /// Stores `report.html` beside the data, if they are kept. A full disk is an error of this machine.
    pub fn store(&self) -> Result<()> {
        self.store_page(|| h2lab_report::html(&[self.report()]))
    }

    /// Stores this page instead.
    pub fn store_page(&self, page: impl FnOnce() -> String) -> Result<()> {
        let Some(path) = self.folder.map(|folder| folder.join(PAGE)) else { return Ok(()) };
        let kept = ownership::write(&path, page());
        kept.map_err(|error| {
            // Otherwise half a page would be named as the report. There may be no file at all.
            let _ = std::fs::remove_file(&path);
            let message = format!("cannot write {}: {error}", path.display());
            Failure { kind: FailureKind::Environment, message }.into()
        })
    }

    /// Adds a warning about what the run folder lacks, once the page was `stored`: users must not look for it in the
    /// folder.
    pub fn lacking(self, stored: &Result<()>) -> Self {
        let Some(folder) = self.folder else { return self };
        let page = stored.is_err().then(|| PAGE.to_owned());
        let apart = store::unjoined(folder);
        let place = if apart.is_empty() {
            ""
        } else {
            "; the tables of each repetition are still in its folder visits"
        };
        let lacks: Vec<String> = page.into_iter().chain(apart).collect();
        let is_whole = lacks.is_empty();
        let said =
            format!("the run folder could not be written to its end: it lacks {}{place}", lacks.join(", "));
        self.warned((!is_whole).then_some(said))
    }

    /// The results of these conditions, for a report. One that cannot be applied is refused by [`judge`].
    fn conditions(&self, thresholds: &[Threshold]) -> Vec<Condition> {
        let report = self.report();
        let all = thresholds.iter().filter_map(|threshold| threshold.judge(&self.analysis).ok()).flatten();
        let condition = |judged: stats::Judged| Condition {
            is_true: Some(judged.is_true),
            said: h2lab_report::judged(&report, &judged),
        };
        all.map(condition).collect()
    }

    /// Prints every condition of `--fail-if` that is true; whether there is one.
    fn check(&self, thresholds: &[Threshold]) -> Result<bool> {
        let mut failed = false;
        for threshold in thresholds {
            for judged in threshold.check(&self.analysis).map_err(|error| Usage(error.to_string()))? {
                super::say(IS_TRUE, &h2lab_report::judged(&self.report(), &judged));
                failed = true;
            }
        }
        Ok(failed)
    }
}

/// The text before a condition of `--fail-if` that is true: it is why the command fails.
pub const IS_TRUE: &str = "failed, since this is true";

/// Prints the reports of these runs, then writes the report files asked for: printing needs no disk. A run that has
/// just ended is printed with its answer at the end; a report begins with it.
pub fn write_out(runs: &[Concluded<'_>], output: &OutputArgs, answer: AnswerPlace) -> Result<()> {
    let conditions: Vec<_> = runs.iter().map(|run| run.conditions(&output.fail_if)).collect();
    let reports: Vec<Report<'_>> =
        runs.iter().zip(&conditions).map(|(run, conditions)| Report { conditions, ..run.report() }).collect();
    let style = TextStyle { verdicts: output.verdicts, answer, ..style() };
    let text = if output.json { files::json(&reports)? } else { h2lab_report::text(&reports, style) };
    print(&text)?;
    output.files.iter().try_for_each(|path| files::write(path, &reports))
}

/// The same for a load: one cell, in full; on stderr if something else is written to stdout.
pub fn write_load(run: &Concluded<'_>, output: &OutputArgs, aside: bool) -> Result<()> {
    let conditions = run.conditions(&output.fail_if);
    let report = Report { conditions: &conditions, ..run.report() };
    let json = || -> Result<String> {
        Ok(serde_json::to_string_pretty(&h2lab_report::load_document(&report))? + "\n")
    };
    let text = if output.json { json()? } else { h2lab_report::load_text(&report, style()) };
    if aside {
        crate::stderr::write(format_args!("{text}"));
    } else {
        print(&text)?;
    }
    output.files.iter().try_for_each(|path| match ResultFormat::of(path)? {
        ResultFormat::Json => files::put(path, &json()?),
        _ => files::write(path, &[report]),
    })
}

/// Prints a report. A reader that takes only its head (`| head`) still gets the report files and the exit code.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    Ok(printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))?)
}

/// The result of a write to stdout. It is not an error that the reader went away.
pub fn printed(written: io::Result<()>) -> Result<(), MissingRequirement> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(MissingRequirement(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints the last line of a command that has served. If stdout's reader is gone or does not read, the line is lost:
/// the work has not failed for that, and a process that is to end must not wait for it.
pub fn print_last(line: &impl Display) {
    crate::stderr::flush(); // earlier messages come before this line
    if let Ok(mut writer) = TextWriter::start(io::stdout()) {
        writer.put(&format!("{line}\n"));
        writer.waiting().wait();
    }
}

/// Prints what people read, in the characters that their locale has.
pub fn show(text: &str) -> Result<()> {
    print(&Terminal::stdout().printable(text))
}

/// The exit code of finished runs. Thresholds do not apply to figures that measured h2lab itself.
pub fn judge(runs: &[Concluded<'_>], output: &OutputArgs) -> Result<Exit> {
    let mut is_over = false;
    for run in runs {
        is_over |= run.check(&output.fail_if)?;
    }
    judge_endings(&runs.iter().flat_map(|run| Ending::of(&run.analysis)).collect(), is_over)
}

/// The exit code of runs that ended in these ways: of several, the code with the highest precedence. `is_over`: a
/// condition of `--fail-if` was true.
pub fn judge_endings(endings: &BTreeSet<Ending>, is_over: bool) -> Result<Exit> {
    for ending in endings {
        if let Ending::NoSuccess(why) = ending {
            super::say("failed", why);
        }
    }
    match endings.first() {
        Some(Ending::NoResponse(message)) => {
            Err(Failure { kind: FailureKind::Unreachable, message: message.clone() }.into())
        }
        None | Some(Ending::Answered) if is_over => Ok(Exit::CheckFailed),
        None => Ok(Exit::Done),
        Some(ending) => Ok(deserved(ending)),
    }
}

/// The exit code of a run that ended in this way.
const fn deserved(ending: &Ending) -> Exit {
    match ending {
        Ending::NoResponse(_) => Exit::Unreachable,
        Ending::Invalid => Exit::Invalid,
        Ending::ServerEnded | Ending::NoSuccess(_) => Exit::CheckFailed,
        Ending::Answered => Exit::Done,
    }
}

/// The report's name in the run folder.
const PAGE: &str = "report.html";

/// As wide as the terminal, within limits; colour and characters beyond ASCII only where they are wanted.
pub fn style() -> TextStyle {
    Terminal::stdout().style()
}
