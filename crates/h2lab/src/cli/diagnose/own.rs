//! `--config`: the user's configuration of the server that is started.

use std::time::Duration;

use anyhow::{Context as _, Result};
use h2lab_lab::sut::{self, OwnConfig};
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::{Axis, Cell, Scenario};
use h2lab_model::workload::Protocol;

use super::progress::Progress;
use super::{DiagnoseArgs, What};
use crate::cli::cells::{CellArgs, check_programs, new_run};
use crate::cli::exit::Usage;
use crate::cli::{note, signals};
use crate::run::execute::{Live, PlanContext, execute};
use crate::run::messages::Failure;

/// How long a server is measured if the question is only whether it starts.
const START_CHECK: Duration = Duration::from_millis(100);

impl DiagnoseArgs {
    /// The configuration of `--config`, read and adapted.
    pub(super) fn own(&self, what: Option<&What>) -> Result<Option<OwnConfig>> {
        let Some(path) = &self.config else { return Ok(None) };
        let usage = |why: &str| Err(Usage(format!("--config {why}")).into());
        if what.is_some() {
            return usage("is for a server that h2lab starts: leave WHAT out");
        }
        let servers = &self.cells.servers;
        let Some([name]) = servers.origin.as_ref().map(Axis::values) else {
            return usage("needs one --origin: the server whose configuration it is");
        };
        if servers.max_requests_per_connection.is_some() {
            return usage("has its own limits: leave --max-requests-per-connection out");
        }
        let own =
            OwnConfig::read(sut::find(name).map_err(Failure::from)?.name(), path).map_err(Failure::from)?;
        self.announce(&own);
        Ok(Some(own))
    }

    /// Says what was adapted.
    pub(super) fn announce(&self, own: &OwnConfig) {
        if self.quiet {
            return;
        }
        note(&format_args!("{} is used as it is, but for the lab:", own.path.display()));
        for adapted in &own.notes {
            note(&format_args!("- {adapted}"));
        }
        let fields = self.cells.client.request.fields().unwrap_or_default();
        if fields.iter().all(|(name, _)| name != "host") {
            note(&"- requests ask for its address; -H 'Host: NAME' asks for a name, over TLS by SNI too");
        }
    }
}

/// Compares what a configuration speaks, unless flags say otherwise.
pub(super) fn compare_what_it_speaks(
    scenario: &mut Scenario,
    cells: &CellArgs,
    own: &OwnConfig,
) -> Result<()> {
    let Some(protocols) = own.protocols() else {
        scenario.matrix.protocols = Axis::one(own.first().unwrap_or(Protocol::H1));
        // If the server rejects the configuration, its own message says more than what we read from the file.
        started(cells.applied(scenario, false)?, own)?;
        let why = "it speaks HTTP/1.1 alone, so there is no HTTP/2 to diagnose";
        return Err(Usage(format!("{}: {why}", own.path.display())).into());
    };
    scenario.matrix.protocols = Axis::new(protocols).context("it speaks something")?;
    // As for a live server, it is unknown which requests it accepts.
    (scenario.work.method, scenario.work.body_bytes) = ("GET".to_owned(), 0);
    Ok(())
}

/// Starts the server with this configuration, and fails if that fails.
fn started(mut scenario: Scenario, own: &OwnConfig) -> Result<()> {
    scenario.work.measure = Axis::one(START_CHECK);
    let mut cells = scenario.plan();
    cells.truncate(1);
    put_into(&mut cells, Some(own));
    check_programs(&cells)?;
    let stop = signals::stop_flag()?;
    let scratch = tempfile::tempdir().context("cannot make a folder for the server's files")?;
    let (folder, run) = new_run(scenario, Some(&scratch.path().join("run")), Vec::new())?;
    let context = PlanContext { live: &Live::default(), stop: &stop, own: Some(own) };
    let executed = execute(run, &cells, folder, &context, &mut Progress::new(true, Duration::ZERO))?;
    executed.failure.map_or(Ok(()), Err)
}

/// Notes the configuration in each cell of a server that is started with it.
pub(super) fn put_into(cells: &mut [Cell], own: Option<&OwnConfig>) {
    for cell in cells {
        cell.setup.config = own.map(|own| own.path.display().to_string());
    }
}

/// The configuration of an earlier run, as it is now.
pub(super) fn of_run(before: &RunRecord) -> Result<Option<OwnConfig>> {
    let mut cells = before.repetitions.iter().map(|one| &one.cell);
    let found = cells.find_map(|cell| Some((cell.target.name(), cell.setup.config.as_ref()?)));
    let Some((name, path)) = found else { return Ok(None) };
    let name = sut::find(name).map_err(Failure::from)?.name();
    Ok(Some(OwnConfig::read(name, path.as_ref()).map_err(Failure::from)?))
}
