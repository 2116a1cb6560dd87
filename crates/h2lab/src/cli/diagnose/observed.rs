//! The run made from connections that nobody measured: those of a capture, or of a running sidecar.

use std::time::{Duration, UNIX_EPOCH};

use h2lab_model::record::{CellRecord, RunRecord, SCHEMA_VERSION};
use h2lab_model::scenario::{Axis, LiveTarget, Scenario, Target};

/// A run of these repetitions that began so long after 1970. `machine` says where they come from.
pub(super) fn run(
    machine: String,
    began: Duration,
    records: Vec<CellRecord>,
    command: Vec<String>,
) -> RunRecord {
    let mut scenario = Scenario { repetitions: 1, ..Scenario::default() };
    let url = |target: &Target| match target {
        Target::Url { url } => url.clone(),
        Target::Origin | Target::Sut { .. } => String::new(),
    };
    let cells = records.iter().filter(|record| record.cell.repetition == 0);
    scenario.matrix.live = cells
        .map(|record| LiveTarget {
            url: url(&record.cell.target),
            path: "/".to_owned(),
            protocols: Axis::one(record.cell.protocol),
        })
        .collect();
    RunRecord {
        schema: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: humantime::format_rfc3339_seconds(UNIX_EPOCH + began).to_string(),
        command,
        seed: 0,
        machine,
        scenario,
        repetitions: records,
        interrupted: false,
        failure: None,
        resumed: Vec::new(),
    }
}
