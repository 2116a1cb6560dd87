//! `h2lab diagnose --again`: the cells of an earlier run again, and how much of their difference is gone.

use std::path::Path;

use anyhow::Result;
use h2lab_analysis::experiment::{Recorded, Since};
use h2lab_base::secrets::HIDDEN;
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::Scenario;

use super::super::discover;
use super::super::documents::{Form, json};
use super::super::exit::{Exit, Usage};
use super::super::output::Concluded;
use super::plan::{AGAIN, Base, Plan};
use super::recorded::read;
use super::{DiagnoseArgs, Servers, exit, holds_responses, own};
use crate::run::execute::Live;

impl DiagnoseArgs {
    /// Measures the work of an earlier run again, and reports how much of its difference is gone.
    pub(super) fn again(&self, folder: &Path, command_line: Vec<String>) -> Result<Exit> {
        let before = read(folder)?;
        let urls: Vec<String> = before.scenario.matrix.live.iter().map(|live| live.url.clone()).collect();
        let refuse = |why: &str| Err(Usage(format!("--again {}: {why}", folder.display())).into());
        if before.scenario.needs_its_file() || urls.iter().any(|url| url.contains(HIDDEN)) {
            return refuse("a run folder keeps neither the contents of requests of a file nor query values");
        }
        let mut scenario = Scenario { repetitions: 1, ..before.scenario.to_be_completed() };
        let live = if urls.is_empty() {
            self.reach.refuse(&[], "is for live servers, and that run had none")?;
            scenario = self.cells.applied(&scenario, true)?;
            Live::default()
        } else {
            scenario = self.cells.applied_live(&scenario)?;
            let reach = self.reach.as_in(&before.command);
            let live = discover::find(&mut scenario, &urls, &self.cells.client.protocol, &reach)?;
            holds_responses(&scenario, &live)?;
            live
        };
        let withheld = before.scenario.withheld();
        if !withheld.is_empty() && scenario.without_secrets().withheld() != withheld {
            let words = withheld.join(" ");
            return refuse(&format!(
                "a run folder does not keep values of header fields and bodies; give {words} again"
            ));
        }
        let own = own::of_run(&before)?;
        if let Some(own) = &own {
            self.announce(own);
        }
        // As it is entered in the scenario now: cells have that URL.
        let proxy = scenario.matrix.live.get(1).filter(|_| Recorded::via(&before).is_some());
        let mut base = Base::of(&scenario, proxy.map(|proxy| proxy.url.as_str()))?;
        own::put_into(&mut base.cells, own.as_ref());
        let mut plan = Plan::new(&base, own.as_ref(), false);
        let setup = plan.setup();
        let mut next = |_: &RunRecord, is_spent: bool| plan.unchanged(AGAIN, is_spent);
        let servers = Servers { live: &live, own: own.as_ref() };
        let executed = self.measure(scenario, &base, servers, (command_line, None), &mut next)?;
        let run = executed.run.without_secrets();
        let concluded = Concluded::new(&run, Some(&executed.folder));
        let stored = concluded.store();
        let concluded = concluded.lacking(&stored);
        let since = Since::of(&before, &run, &setup);
        let (report, since) = (concluded.report(), since.as_ref());
        self.documents.notify(|form, style| {
            Ok(match form {
                Form::Text => h2lab_report::since_text(&report, since, style),
                Form::Json => json(&h2lab_report::since_document(&report, since))?,
                Form::Html => h2lab_report::html(&[report]),
                Form::Markdown => h2lab_report::markdown(&[report]),
                Form::Sarif => json(&h2lab_report::sarif_of_findings(&report))?,
                Form::Junit => h2lab_report::junit_of_findings(&report),
            })
        })?;
        executed.failure.map_or(stored, Err)?;
        if run.interrupted {
            return Ok(Exit::Interrupted);
        }
        // The question is how much of the difference is gone. If this run or the earlier one is unsound, it stays
        // unanswered.
        let is_open = since.is_none_or(|since| since.doubt.is_some());
        let exit = exit(&run, &setup)?;
        Ok(if exit == Exit::Done && is_open { Exit::Invalid } else { exit })
    }
}
