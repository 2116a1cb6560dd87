//! What is read and not measured: run folders and captures.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::experiment::{Experiment, Recorded};
use h2lab_model::record::RunRecord;
use h2lab_report::{Diagnosis, Fixing, Report, Said, TextStyle};

use super::super::Exit;
use super::super::bulk::kept;
use super::super::cells::CellArgs;
use super::super::documents::{Form, json};
use super::super::exit::Usage;
use super::super::output::Concluded;
use super::super::reach;
use super::rate::Found;
use super::{DiagnoseArgs, fix, repeated};
use crate::run::store;

impl DiagnoseArgs {
    /// Refuses flags of measurements where nothing is measured.
    pub(super) fn refuse_measuring(&self, only_read: &str, has_experiment: bool) -> Result<()> {
        let why = format!("is for a measurement, and {only_read}");
        if self.via.is_some() {
            return Err(Usage(format!("--via {why}")).into());
        }
        if self.fix || self.config.is_some() {
            return Err(Usage(format!("{} {why}", if self.fix { "--fix" } else { "--config" })).into());
        }
        if self.budget.is_some() {
            return Err(Usage(format!("--budget {why}")).into());
        }
        if self.out.is_some() {
            return Err(
                Usage(format!("--out {why}: there is no run to keep; -o FILE writes the report")).into()
            );
        }
        if self.client.is_tls() {
            return Err(Usage("--tls is for the server of --run".to_owned()).into());
        }
        if self.fail_on.is_some() && !has_experiment {
            return Err(Usage(format!("--fail-on {why}: nothing is confirmed by it")).into());
        }
        let CellArgs { work, client, policy, .. } = &self.cells;
        work.refuse(&[], &why)?;
        client.refuse(&[], &why)?;
        policy.refuse(&[], &why)?;
        self.cells.refuse_emulation(&why)?;
        Ok(self.reach.refuse(&[], &why)?)
    }

    /// What a run folder shows: the experiment, if `diagnose` made it, else its findings.
    pub(super) fn of_run_folder(&self, folder: &Path) -> Result<Exit> {
        if let Some(moved) = kept::read(folder)? {
            self.refuse_measuring("a run folder is only read", false)?;
            self.documents.notify(|form, style| moved.render(form, style))?;
            return Ok(Exit::Done);
        }
        let run = read(folder)?;
        let before = Found::in_folder(folder);
        let remark = before.as_ref().and_then(Found::remark);
        let concluded = Concluded::new(&run, Some(folder)).warned(remark);
        let recorded = Recorded::of(&run, concluded.report().findings);
        let made = recorded.and_then(|recorded| Some((Experiment::of(&run, &recorded.setup)?, recorded)));
        self.refuse_measuring("a run folder is only read", made.is_some())?;
        let Some((experiment, recorded)) = made else {
            let exit = self.conclude(&concluded, None)?;
            return as_the_run(folder, exit);
        };
        let verdicts = experiment.verdicts(concluded.verdicts());
        let limit = before.and_then(|found| found.limit);
        let concluded = concluded.compared(&verdicts).found_before(limit, recorded.setup.subject);
        let fix = fixing(&run, &recorded, &experiment, concluded.report().findings, folder);
        self.print_diagnosis(&Diagnosis {
            report: concluded.report(),
            experiment: &experiment,
            subject: recorded.setup.subject,
            repeat: &repeat(&run, &recorded),
            fix: fix.as_ref(),
            is_via: recorded.is_via,
            unread: None,
            took: None,
            failure: run.failure.as_deref(),
        })?;
        as_the_run(folder, self.judged(&experiment, fix.as_ref()))
    }

    /// Reports what the connections of a client show; on `unread` of them no request could be read. The check has failed
    /// if no request was a success.
    pub(super) fn conclude_client(&self, concluded: &Concluded<'_>, unread: u64) -> Result<Exit> {
        let report = concluded.report();
        let is_ours = concluded.has_limits_of_ours;
        let said = Said::of_client(&report, unread, is_ours);
        let exit = self.print(&report, &said, &|style| {
            h2lab_report::diagnosis_of_client(&report, unread, is_ours, style)
        })?;
        let cells = &report.analysis.cells;
        let none = !cells.is_empty() && cells.iter().all(|cell| cell.requests.succeeded == 0);
        Ok(if none { Exit::CheckFailed } else { exit })
    }

    /// Reports the experiment with a client, and what its connections show; on `unread` of them no request could be read.
    pub(super) fn conclude_trials(
        &self,
        concluded: &Concluded<'_>,
        unread: u64,
        experiment: &Experiment,
        took: Option<Duration>,
    ) -> Result<Exit> {
        self.print_diagnosis(&Diagnosis {
            report: concluded.report(),
            experiment,
            // Of its cells, that with most requests is the first.
            subject: 0,
            repeat: &[],
            fix: None,
            is_via: false,
            unread: Some(unread),
            took,
            failure: None,
        })?;
        Ok(self.judged(experiment, None))
    }

    /// Reports what the records of a run show; for a capture, of which nothing was measured, also on how many
    /// connections no request could be read.
    pub(super) fn conclude(&self, concluded: &Concluded<'_>, unread: Option<u64>) -> Result<Exit> {
        let report = concluded.report();
        let said = unread.map_or_else(|| Said::of_run(&report), |unread| Said::of_capture(&report, unread));
        self.print(&report, &said, &|style| match unread {
            Some(unread) => h2lab_report::diagnosis_of_capture(&report, unread, style),
            None => h2lab_report::diagnosis_of_run(&report, style),
        })
    }

    fn print(&self, report: &Report<'_>, said: &Said, text: &dyn Fn(TextStyle) -> String) -> Result<Exit> {
        self.documents.notify(|form, style| {
            Ok(match form {
                Form::Text => text(style),
                Form::Json => json(&h2lab_report::document(report))?,
                Form::Html => h2lab_report::findings_page(report, said),
                Form::Markdown => h2lab_report::markdown_of_findings(report, said),
                Form::Sarif => json(&h2lab_report::sarif_of_findings(report))?,
                Form::Junit => h2lab_report::junit_of_findings(report),
            })
        })?;
        Ok(Exit::Done)
    }
}

/// The exit code of a run that is read: `exit`, or that of the run itself if it could not go on.
fn as_the_run(folder: &Path, exit: Exit) -> Result<Exit> {
    store::read_failure(folder)?.map_or(Ok(exit), |failure| Err(failure.into()))
}

/// The command that compares the protocols as the run did. A rate that was searched for is added.
fn repeat(run: &RunRecord, recorded: &Recorded) -> Vec<String> {
    if recorded.subject.setup.config.is_some() {
        return Vec::new(); // No other command takes the user's configuration.
    }
    let urls: Vec<&str> = run.scenario.matrix.live.iter().map(|live| live.url.as_str()).collect();
    let word =
        |url: &str| run.command.iter().find(|word| reach::with_scheme(word) == url).map(String::as_str);
    let what = urls.first().and_then(|url| word(url));
    let mut words = repeated(&run.command, what, urls.get(1).copied());
    let gives_load =
        |word: &String| ["-q", "--rate", "--concurrency", "--ramp"].iter().any(|flag| word.starts_with(flag));
    if !urls.is_empty() && !run.command.iter().any(gives_load) {
        words.extend(["-q".to_owned(), run.scenario.work.rate.to_string()]);
    }
    words
}

/// What became of `--fix` in a run that had it: its diff is in the folder.
fn fixing(
    run: &RunRecord,
    recorded: &Recorded,
    experiment: &Experiment,
    findings: &[Finding],
    folder: &Path,
) -> Option<Fixing> {
    if !run.command.iter().any(|word| word == "--fix") {
        return None;
    }
    let Some((again, setting)) = &recorded.fix else {
        // The user's configuration may have changed since.
        return Some(fix::not_made(experiment, run, findings, &recorded.subject, None));
    };
    Some(fix::kept(again, setting, experiment, run, folder))
}

/// A run that is to be read.
pub(super) fn read(folder: &Path) -> Result<RunRecord> {
    let run = store::read(folder).map_err(|error| Usage(format!("{error:#}")))?;
    if run.repetitions.is_empty() {
        return Err(Usage(format!("{} has no repetitions", folder.display())).into());
    }
    Ok(run)
}
