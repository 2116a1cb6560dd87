//! Where a probe's report goes, in which form, and what makes the exit code 1.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use h2lab_model::probe::{ProbeReport, Severity};
use h2lab_report::TextStyle;

use crate::cli::exit::Usage;
use crate::cli::output::{print, style};
use crate::cli::{Exit, command_line, files};

/// Where results go.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
#[allow(clippy::struct_excessive_bools, reason = "they are flags of the command line")]
pub struct ProbeReportArgs {
    /// One JSON document on stdout instead of text
    #[arg(long, group = "form")]
    json: bool,
    /// SARIF 2.1.0 on stdout, for code scanning
    #[arg(long, group = "form")]
    sarif: bool,
    /// `JUnit`'s XML on stdout, for CI
    #[arg(long, group = "form")]
    junit: bool,
    /// Also write a report; the extension sets the format: .html .json .sarif .xml (`JUnit`) .txt; repeatable
    #[arg(short = 'o', long = "output", visible_alias = "html", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Exit with 1 if a check of this severity or a higher one fails: info, low, medium, high, critical
    #[arg(long, value_name = "SEVERITY", value_parser = severity)]
    fail_on: Option<Severity>,
    /// Show the evidence of checks that did not fail too
    #[arg(short, long)]
    verbose: bool,
}

fn severity(text: &str) -> Result<Severity, String> {
    text.parse()
}

/// A form of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Html,
    Text,
    Json,
    Sarif,
    Junit,
}

impl Form {
    /// The form that the ending of `path` means.
    fn of(path: &Path) -> Result<Self, Usage> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("html") => Ok(Self::Html),
            Some("txt") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            Some("sarif") => Ok(Self::Sarif),
            Some("xml") => Ok(Self::Junit),
            _ => {
                let path = path.display();
                Err(Usage(format!("-o {path}: the ending must be one of .html .json .sarif .xml .txt")))
            }
        }
    }

    fn write(self, found: &ProbeReport, style: TextStyle, verbose: bool) -> Result<String> {
        Ok(match self {
            Self::Html => h2lab_report::probe_page(found, command_line()),
            Self::Text => h2lab_report::probe_text(found, style, verbose),
            Self::Json => serde_json::to_string_pretty(found)? + "\n",
            Self::Sarif => serde_json::to_string_pretty(&h2lab_report::sarif(found))? + "\n",
            Self::Junit => h2lab_report::junit(found),
        })
    }
}

impl ProbeReportArgs {
    /// Refuses report files with an unknown ending or that cannot be written, before any request.
    pub fn validate(&self) -> Result<()> {
        self.files.iter().try_for_each(|path| {
            Form::of(path)?;
            files::check_place("-o", path)
        })
    }

    /// Whether stdout is to be one document for programs.
    pub const fn is_document(&self) -> bool {
        self.json || self.sarif || self.junit
    }

    /// Whether report files are to be written.
    pub const fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Prints the report, writes its files, and says how the program ends.
    pub fn notify(&self, found: &ProbeReport) -> Result<Exit> {
        let form = match (self.json, self.sarif, self.junit) {
            (true, ..) => Form::Json,
            (_, true, _) => Form::Sarif,
            (.., true) => Form::Junit,
            _ => Form::Text,
        };
        print(&form.write(found, style(), self.verbose)?)?;
        let plain = TextStyle { colour: false, ..style() };
        for path in &self.files {
            files::put(path, &Form::of(path)?.write(found, plain, self.verbose)?)?;
        }
        let failed = self.fail_on.map_or(0, |severity| found.failed(severity).count());
        if let Some(severity) = self.fail_on.filter(|_| failed > 0) {
            let checks = if failed == 1 { "check" } else { "checks" };
            say!("failed: {failed} {checks} at least as bad as --fail-on {severity}");
            return Ok(Exit::CheckFailed);
        }
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_means_a_form() {
        assert_eq!(Form::of(Path::new("a/b.sarif")).unwrap(), Form::Sarif);
        assert_eq!(Form::of(Path::new("junit.xml")).unwrap(), Form::Junit);
        assert_eq!(Form::of(Path::new("page.html")).unwrap(), Form::Html);
        for bad in ["a", "a.pdf", ".xml"] {
            assert!(Form::of(Path::new(bad)).unwrap_err().0.contains(".sarif"), "{bad}");
        }
    }
}
