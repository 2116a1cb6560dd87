//! What a finished run leaves: text or JSON on stdout, report files, thresholds, the exit code.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use h2lab_core::diagnose::{self, Finding};
use h2lab_core::record::RunRecord;
use h2lab_core::report::{self, Report, TextStyle};
use h2lab_core::stats::{self, Analysis, Conclusion, Threshold, Verdict};

use super::Exit;
use super::exit::Usage;

/// Where results go.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// One JSON document on stdout instead of text
    #[arg(long)]
    pub json: bool,
    /// Write a report too, by its ending: .html .json .csv .md; repeatable
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Exit with 1 if this holds: 'h2c.p99 > 1.2*h1.p99', 'errors > 0.1%'; repeatable
    #[arg(long, value_name = "EXPR", value_parser = threshold)]
    pub fail_if: Vec<Threshold>,
}

fn threshold(text: &str) -> Result<Threshold, String> {
    text.parse().map_err(|error: stats::ThresholdError| error.to_string())
}

impl OutputArgs {
    /// Refuses report files whose ending says nothing, before anything is measured.
    pub fn validate(&self) -> Result<()> {
        self.files.iter().try_for_each(|path| Format::of(path).map(|_| ()))
    }
}

/// A form of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Html,
    Json,
    Csv,
    Markdown,
}

impl Format {
    fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("html") => Ok(Self::Html),
            Some("json") => Ok(Self::Json),
            Some("csv") => Ok(Self::Csv),
            Some("md") => Ok(Self::Markdown),
            _ => {
                Err(Usage(format!("-o {}: the ending must be .html, .json, .csv or .md", path.display()))
                    .into())
            }
        }
    }
}

/// A run with all that is concluded from it.
#[derive(Debug)]
pub struct Concluded<'a> {
    run: &'a RunRecord,
    analysis: Analysis,
    findings: Vec<Finding>,
    folder: &'a Path,
    folder_name: String,
    page_name: String,
}

impl<'a> Concluded<'a> {
    /// Draws all conclusions; pure and repeatable.
    pub fn new(run: &'a RunRecord, folder: &'a Path) -> Self {
        Self {
            run,
            analysis: stats::analyse(run),
            findings: diagnose::run(&run.visits),
            folder,
            folder_name: folder.display().to_string(),
            page_name: folder.join(PAGE).display().to_string(),
        }
    }

    fn report(&self) -> Report<'_> {
        Report {
            run: self.run,
            analysis: &self.analysis,
            findings: &self.findings,
            folder: Some(&self.folder_name),
            page: self.folder.join(PAGE).exists().then_some(&*self.page_name),
        }
    }

    fn render(&self, format: Format) -> Result<String> {
        let report = self.report();
        Ok(match format {
            Format::Html => report::html(&report),
            Format::Json => serde_json::to_string_pretty(&report::document(&report))? + "\n",
            Format::Csv => report::csv(&report),
            Format::Markdown => report::markdown(&report),
        })
    }

    /// Stores `report.html` beside the data.
    pub fn store(&self) -> Result<()> {
        let path = self.folder.join(PAGE);
        std::fs::write(&path, self.render(Format::Html)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes the report files asked for, prints, and decides the exit code.
    pub fn tell(&self, output: &OutputArgs) -> Result<Exit> {
        for path in &output.files {
            let text = self.render(Format::of(path)?)?;
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let text =
            if output.json { self.render(Format::Json)? } else { report::text(&self.report(), style()) };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever reads only the head (`| head`) still gets the exit code.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => self.exit(output),
        }
    }

    fn exit(&self, output: &OutputArgs) -> Result<Exit> {
        let mut exit = Exit::Done;
        for threshold in &output.fail_if {
            for violation in threshold.check(&self.analysis).map_err(|error| Usage(error.to_string()))? {
                eprintln!("failed: {}", report::violation(&self.report(), &violation));
                exit = Exit::CheckFailed;
            }
        }
        let is_void = |verdict: &Verdict| verdict.conclusion == Conclusion::Invalid;
        if exit == Exit::Done && self.analysis.verdicts.iter().any(is_void) {
            exit = Exit::Invalid;
        }
        Ok(exit)
    }
}

/// The report's name in the run folder.
const PAGE: &str = "report.html";

/// As wide as the terminal, within reason; in colour only for people who want it.
fn style() -> TextStyle {
    const PIPED: u16 = 110;
    let stdout = std::io::stdout();
    let width = rustix::termios::tcgetwinsize(&stdout).map_or(PIPED, |size| size.ws_col);
    let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    TextStyle { width: usize::from(width).clamp(80, 160), colour }
}
