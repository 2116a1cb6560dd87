//! What a finished run leaves: text or JSON on stdout, report files, thresholds, the exit code.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use h2lab_core::diagnose::{self, Finding};
use h2lab_core::record::RunRecord;
use h2lab_core::report;
use h2lab_core::stats::{self, Analysis, Threshold};

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
            _ => Err(Usage(format!("-o {}: the ending must be .html, .json, .csv or .md", path.display())).into()),
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
}

impl<'a> Concluded<'a> {
    /// Draws all conclusions; pure and repeatable.
    pub fn new(run: &'a RunRecord, folder: &'a Path) -> Self {
        let findings = diagnose::run(&run.visits);
        let analysis = stats::analyse(run, &findings);
        Self { run, analysis, findings, folder }
    }

    fn render(&self, format: Format) -> Result<String> {
        Ok(match format {
            Format::Html => report::html(self.run, &self.analysis, &self.findings)?,
            Format::Json => {
                let document = report::document(self.run, &self.analysis, &self.findings, &self.folder_name());
                serde_json::to_string_pretty(&document)? + "\n"
            }
            Format::Csv => report::csv(&self.analysis),
            Format::Markdown => report::markdown(self.run, &self.analysis, &self.findings),
        })
    }

    fn folder_name(&self) -> String {
        self.folder.display().to_string()
    }

    /// Writes the report into the run folder and the files asked for, prints, and decides the exit code.
    pub fn tell(&self, output: &OutputArgs) -> Result<Exit> {
        for path in &output.files {
            let text = self.render(Format::of(path)?)?;
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let mut out = std::io::stdout().lock();
        if output.json {
            out.write_all(self.render(Format::Json)?.as_bytes())?;
        } else {
            let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let text = report::text(self.run, &self.analysis, &self.findings, &self.folder_name(), color);
            out.write_all(text.as_bytes())?;
        }
        out.flush()?;
        self.exit(output)
    }

    /// Stores `report.html` beside the data.
    pub fn store(&self) -> Result<()> {
        let path = self.folder.join("report.html");
        std::fs::write(&path, self.render(Format::Html)?).with_context(|| format!("cannot write {}", path.display()))
    }

    fn exit(&self, output: &OutputArgs) -> Result<Exit> {
        if self.run.interrupted {
            return Ok(Exit::Interrupted);
        }
        let mut exit = Exit::Done;
        for threshold in &output.fail_if {
            for violation in threshold.check(&self.analysis).map_err(|error| Usage(error.to_string()))? {
                eprintln!("failed: {violation}");
                exit = Exit::CheckFailed;
            }
        }
        if exit == Exit::Done && self.analysis.needs_an_invalid_cell() {
            exit = Exit::Invalid;
        }
        Ok(exit)
    }
}
