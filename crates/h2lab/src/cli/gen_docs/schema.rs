//! JSON Schemas of all documents that `--json` prints, and of the sidecar's file.

use std::path::Path;

use anyhow::{Context, Result};
use h2lab_model::timeline::study::StudyTable;

use crate::cli::doctor::DoctorDocument;
use crate::cli::explain::document::ExplainDocument;
use crate::cli::link::LinkCommandDocument;
use crate::cli::runs::HistoryDocument;
use crate::cli::trace::document::TraceDocument;

/// Writes them into `folder`, one file each.
pub fn write(folder: &Path) -> Result<()> {
    // What is read, not written: a key is required unless it has a default.
    let sidecar = schemars::schema_for!(h2lab_proxy::config::Config);
    for (name, schema) in [
        ("compare", schema::<h2lab_report::Document>()),
        ("load", schema::<h2lab_report::LoadDocument>()),
        ("bulk", schema::<h2lab_report::BulkDocument>()),
        ("bulk-drive", schema::<h2lab_report::FleetDocument>()),
        ("agents", schema::<h2lab_report::AgentsDocument>()),
        ("link", schema::<LinkCommandDocument>()),
        ("diagnose", schema::<h2lab_report::DiagnosisDocument>()),
        ("diff", schema::<h2lab_report::RunsComparisonDocument>()),
        ("report", schema::<h2lab_report::RunsDocument>()),
        ("runs", schema::<HistoryDocument>()),
        ("trace", schema::<TraceDocument>()),
        ("timeline", schema::<h2lab_report::TimelineDocument>()),
        ("timeline-study", schema::<StudyTable>()),
        ("probe", schema::<h2lab_report::ProbeDocument>()),
        ("sidecar-config", sidecar),
        ("doctor", schema::<DoctorDocument>()),
        ("explain", schema::<ExplainDocument>()),
    ] {
        let path = folder.join(format!("{name}.schema.json"));
        let text = serde_json::to_string_pretty(&schema)? + "\n";
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The schema of what is written, in which a key is required unless it may be left out.
fn schema<T: schemars::JsonSchema>() -> schemars::Schema {
    let settings = schemars::generate::SchemaSettings::default().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}
