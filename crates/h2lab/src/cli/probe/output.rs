//! Where a probe's report goes, in which form, and what makes the exit code 1.

use anyhow::Result;
use clap::Args;
use h2lab_model::probe::{ProbeReport, Severity};

use crate::cli::documents::{DocumentArgs, Form, json};
use crate::cli::{Exit, command_line};

/// Where results go.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct ProbeReportArgs {
    #[command(flatten)]
    documents: DocumentArgs,
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

impl ProbeReportArgs {
    /// Refuses report files with an unknown ending or that cannot be written, before any request.
    pub fn validate(&self) -> Result<()> {
        self.documents.validate()
    }

    /// Whether what is printed or written is one document.
    pub const fn is_one_document(&self) -> bool {
        self.documents.is_document() || self.documents.has_files()
    }

    /// Prints the report, writes its files, and says how the program ends.
    pub fn notify(&self, found: &ProbeReport) -> Result<Exit> {
        self.documents.notify(|form, style| {
            Ok(match form {
                Form::Html => h2lab_report::probe_page(found, command_line()),
                Form::Text => h2lab_report::probe_text(found, style, self.verbose),
                Form::Markdown => h2lab_report::probe_markdown(found),
                Form::Json => json(&h2lab_report::probe_document(found))?,
                Form::Sarif => json(&h2lab_report::sarif(found))?,
                Form::Junit => h2lab_report::junit(found),
            })
        })?;
        let failed = self.fail_on.map_or(0, |severity| found.failed(severity).count());
        if let Some(severity) = self.fail_on.filter(|_| failed > 0) {
            let checks = if failed == 1 { "check" } else { "checks" };
            say!("failed: {failed} {checks} at least as bad as --fail-on {severity}");
            return Ok(Exit::CheckFailed);
        }
        Ok(Exit::Done)
    }
}
