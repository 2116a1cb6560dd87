//! What is read and not measured: run folders and captures.

use std::path::Path;

use anyhow::Result;
use h2lab_model::record::RunRecord;
use h2lab_report::{Report, TextStyle};

use super::super::Exit;
use super::super::cells::CellArgs;
use super::super::documents::{Form, json};
use super::super::exit::Usage;
use super::super::output::Concluded;
use super::{DiagnoseArgs, no_experiment};
use crate::run::store;

impl DiagnoseArgs {
    /// Refuses flags of measurements where nothing is measured.
    pub(super) fn refuse_measuring(&self, only_read: &str) -> Result<()> {
        self.documents.refuse(&[Form::Sarif, Form::Junit], no_experiment)?;
        let why = format!("is for a measurement, and {only_read}");
        if self.via.is_some() {
            return Err(Usage(format!("--via {why}")).into());
        }
        if self.fix || self.config.is_some() {
            return Err(Usage(format!("{} {why}", if self.fix { "--fix" } else { "--config" })).into());
        }
        if self.fail_on.is_some() {
            return Err(Usage(format!("--fail-on {why}: nothing is confirmed by it")).into());
        }
        let CellArgs { work, client, policy, .. } = &self.cells;
        work.refuse(&[], &why)?;
        client.refuse(&[], &why)?;
        policy.refuse(&[], &why)?;
        self.cells.refuse_emulation(&why)?;
        Ok(self.reach.refuse(&[], &why)?)
    }

    /// What the connections of a client show; `seen` is what came from it.
    pub(super) fn conclude_client(&self, concluded: &Concluded<'_>, seen: &str) -> Result<Exit> {
        let report = concluded.report();
        self.print(&report, &|style| {
            h2lab_report::diagnosis_of_client(&report, seen, concluded.has_limits_of_ours, style)
        })
    }

    /// What the records of a run show; `is_capture`: nothing of it was measured.
    pub(super) fn conclude(&self, concluded: &Concluded<'_>, is_capture: bool) -> Result<Exit> {
        let report = concluded.report();
        self.print(&report, &|style| {
            if is_capture {
                h2lab_report::diagnosis_of_capture(&report, style)
            } else {
                h2lab_report::diagnosis_of_run(&report, style)
            }
        })
    }

    fn print(&self, report: &Report<'_>, text: &dyn Fn(TextStyle) -> String) -> Result<Exit> {
        self.documents.notify(|form, style| {
            Ok(match form {
                Form::Text => text(style),
                Form::Json => json(&h2lab_report::document(report))?,
                Form::Html => h2lab_report::html(&[*report]),
                Form::Markdown => h2lab_report::markdown(&[*report]),
                Form::Sarif | Form::Junit => return Err(no_experiment()),
            })
        })?;
        Ok(Exit::Done)
    }
}

/// A run that is to be read.
pub(super) fn read(folder: &Path) -> Result<RunRecord> {
    let run = store::read(folder).map_err(|error| Usage(format!("{error:#}")))?;
    if run.repetitions.is_empty() {
        return Err(Usage(format!("{} has no repetitions", folder.display())).into());
    }
    Ok(run)
}
