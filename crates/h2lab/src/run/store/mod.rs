//! The run folder: `run.json` and Parquet tables, written after every visit, readable by DuckDB, Polars and pandas.
//!
//! Each visit is first written as small tables under `visits/`, so that an interrupted or killed run keeps all that it
//! has measured; [`RunFolder::finish`] joins them into `samples.parquet`, `tallies.parquet`, `connections.parquet`, `frames.parquet`,
//! `tcp.parquet` and `link.parquet`. A reader takes whichever is there.

mod rows;
pub mod table;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use h2lab_core::record::{
    CellRecord, ConnectionRecord, Environment, GeneratorSummary, LinkSummary, PacketRecord, RunRecord,
    SCHEMA_VERSION, Sample, ServerSummary, SidecarSummary, Tally, TcpTick,
};
use h2lab_core::scenario::{Cell, Scenario};
use h2lab_core::trace::FrameEvent;
use h2lab_core::units::Time;
use h2lab_core::workload::MixEntry;
use serde::{Deserialize, Serialize};

pub use rows::{direction_name, fate_name};
use table::Row;

/// One visit without its bulk, as `run.json` has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct VisitHead {
    cell: Cell,
    attempt: u32,
    started_at: Time,
    link: Option<LinkSummary>,
    generator: GeneratorSummary,
    server: Option<ServerSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sidecar: Option<SidecarSummary>,
    environment: Environment,
    warnings: Vec<String>,
    /// Absent in folders of before the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unsupported: Option<String>,
}

/// `run.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RunHead {
    schema: u32,
    version: String,
    started: String,
    command: Vec<String>,
    seed: u64,
    machine: String,
    /// As TOML: the form in which a user can run it again.
    scenario: String,
    interrupted: bool,
    visits: Vec<VisitHead>,
}

/// An open run folder.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    head: RunHead,
}

impl RunFolder {
    /// Makes the folder. `run` tells all but the visits, which are added one by one.
    pub fn create(path: &Path, run: &RunRecord) -> Result<Self> {
        std::fs::create_dir_all(path.join("visits"))
            .with_context(|| format!("cannot make the run folder {}", path.display()))?;
        let mut scenario = run.scenario.clone();
        let work = &mut scenario.work;
        without_secrets(&mut work.headers, &mut work.body, &mut work.body_bytes, &mut work.mix);
        let head = RunHead {
            schema: run.schema,
            version: run.version.clone(),
            started: run.started.clone(),
            command: run.command.clone(),
            seed: run.seed,
            machine: run.machine.clone(),
            scenario: scenario.to_toml(),
            interrupted: true, // until `finish` says otherwise
            visits: Vec::new(),
        };
        let folder = Self { path: path.to_owned(), head };
        folder.write_head()?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores one visit; all of it is on disk when this returns.
    pub fn add(&mut self, record: &CellRecord) -> Result<()> {
        let visit = self.head.visits.len() as u64;
        table::write(&self.part::<Sample>(visit), visit, &record.samples)?;
        table::write(&self.part::<Tally>(visit), visit, &record.tallies)?;
        table::write(&self.part::<ConnectionRecord>(visit), visit, &record.connections)?;
        table::write(&self.part::<FrameEvent>(visit), visit, &record.frames)?;
        table::write(&self.part::<TcpTick>(visit), visit, &record.tcp)?;
        table::write(&self.part::<PacketRecord>(visit), visit, &record.packets)?;
        let mut cell = record.cell.clone();
        let work = &mut cell.work;
        without_secrets(&mut work.headers, &mut work.body, &mut work.body_bytes, &mut work.mix);
        self.head.visits.push(VisitHead {
            cell,
            attempt: record.attempt,
            started_at: record.started_at,
            link: record.link.clone(),
            generator: record.generator,
            server: record.server.clone(),
            sidecar: record.sidecar.clone(),
            environment: record.environment.clone(),
            warnings: record.warnings.clone(),
            unsupported: record.unsupported.clone(),
        });
        self.write_head()
    }

    /// Joins the visits' tables and removes the parts.
    pub fn finish(mut self, interrupted: bool) -> Result<()> {
        self.join::<Sample>()?;
        self.join::<Tally>()?;
        self.join::<ConnectionRecord>()?;
        self.join::<FrameEvent>()?;
        self.join::<TcpTick>()?;
        self.join::<PacketRecord>()?;
        self.head.interrupted = interrupted;
        self.write_head()?;
        let parts = self.path.join("visits");
        std::fs::remove_dir_all(&parts).with_context(|| format!("cannot remove {}", parts.display()))
    }

    fn part<R: Table>(&self, visit: u64) -> PathBuf {
        part::<R>(&self.path, visit)
    }

    fn join<R: Table>(&self) -> Result<()> {
        let parts: Vec<PathBuf> =
            (0..self.head.visits.len() as u64).map(|visit| self.part::<R>(visit)).collect();
        table::join::<R>(&parts, &self.path.join(format!("{}.parquet", R::NAME)))
    }

    /// Replaces `run.json` as a whole, so that a reader never sees half of it.
    fn write_head(&self) -> Result<()> {
        let path = self.path.join("run.json");
        let partial = self.path.join("run.json.partial");
        let text = serde_json::to_string_pretty(&self.head).context("cannot serialise run.json")?;
        std::fs::write(&partial, text).with_context(|| format!("cannot write {}", partial.display()))?;
        std::fs::rename(&partial, &path).with_context(|| format!("cannot put {} in place", path.display()))
    }
}

/// Removes what a run has written into its folder, and the folder if it is empty then. Nothing else is touched.
pub fn discard(folder: &Path) -> Result<()> {
    let names = [
        Sample::NAME,
        Tally::NAME,
        ConnectionRecord::NAME,
        FrameEvent::NAME,
        TcpTick::NAME,
        PacketRecord::NAME,
    ];
    for name in names {
        std::fs::remove_file(folder.join(format!("{name}.parquet")))?;
    }
    std::fs::remove_file(folder.join("run.json"))?;
    let logs = folder.join("logs");
    if logs.exists() {
        std::fs::remove_dir_all(logs)?;
    }
    Ok(std::fs::remove_dir(folder)?)
}

/// What a request carries may be a secret: names are kept, values are not.
fn without_secrets(
    headers: &mut [(String, String)],
    body: &mut Option<String>,
    body_bytes: &mut u64,
    mix: &mut [MixEntry],
) {
    const MASK: &str = "(not kept)";
    let of_kinds = mix.iter_mut().flat_map(|kind| &mut kind.headers);
    headers.iter_mut().chain(of_kinds).for_each(|(_, value)| MASK.clone_into(value));
    if let Some(body) = body.take() {
        *body_bytes = body.len() as u64;
    }
    // A length alone has no place in a kind: that there was a body is told.
    mix.iter_mut().filter_map(|kind| kind.body.as_mut()).for_each(|body| MASK.clone_into(body));
}

/// A record type with a table of its own.
trait Table: Row {
    /// The file's name without `.parquet`.
    const NAME: &'static str;
    /// Whether folders of older versions lack it.
    const IS_NEW: bool = false;
}

impl Table for Sample {
    const NAME: &'static str = "samples";
}

impl Table for Tally {
    const NAME: &'static str = "tallies";
    const IS_NEW: bool = true;
}

impl Table for ConnectionRecord {
    const NAME: &'static str = "connections";
}

impl Table for FrameEvent {
    const NAME: &'static str = "frames";
}

impl Table for TcpTick {
    const NAME: &'static str = "tcp";
}

impl Table for PacketRecord {
    const NAME: &'static str = "link";
}

fn part<R: Table>(folder: &Path, visit: u64) -> PathBuf {
    folder.join("visits").join(format!("{visit:04}.{}.parquet", R::NAME))
}

/// Reads a run folder back, finished or not.
pub fn read(folder: &Path) -> Result<RunRecord> {
    read_as(folder, true)
}

/// The same without frames, packets and samples of TCP: all that counts, rates and latencies need, in a fraction of the time.
pub fn read_figures(folder: &Path) -> Result<RunRecord> {
    read_as(folder, false)
}

fn read_as(folder: &Path, all: bool) -> Result<RunRecord> {
    let path = folder.join("run.json");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{} is no run folder: cannot read {}", folder.display(), path.display()))?;
    let head: RunHead =
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
    if head.schema > SCHEMA_VERSION {
        bail!(
            "{} has schema {}, this h2lab reads up to {SCHEMA_VERSION}: use a newer one",
            path.display(),
            head.schema
        );
    }
    let scenario = Scenario::of_a_run(&head.scenario).context("the scenario in run.json is damaged")?;
    let count = head.visits.len();
    let mut samples = bulk::<Sample>(folder, count)?.into_iter();
    let mut tallies = bulk::<Tally>(folder, count)?.into_iter();
    let mut connections = bulk::<ConnectionRecord>(folder, count)?.into_iter();
    let detailed = if all { count } else { 0 };
    let mut frames = bulk::<FrameEvent>(folder, detailed)?.into_iter();
    let mut tcp = bulk::<TcpTick>(folder, detailed)?.into_iter();
    let mut packets = bulk::<PacketRecord>(folder, detailed)?.into_iter();
    let visits = head
        .visits
        .into_iter()
        .map(|visit| CellRecord {
            cell: visit.cell,
            attempt: visit.attempt,
            started_at: visit.started_at,
            samples: samples.next().unwrap_or_default(),
            tallies: tallies.next().unwrap_or_default(),
            connections: connections.next().unwrap_or_default(),
            frames: frames.next().unwrap_or_default(),
            tcp: tcp.next().unwrap_or_default(),
            packets: packets.next().unwrap_or_default(),
            link: visit.link,
            generator: visit.generator,
            server: visit.server,
            sidecar: visit.sidecar,
            environment: visit.environment,
            warnings: visit.warnings,
            unsupported: visit.unsupported,
        })
        .collect();
    Ok(RunRecord {
        schema: head.schema,
        version: head.version,
        started: head.started,
        command: head.command,
        seed: head.seed,
        machine: head.machine,
        scenario,
        visits,
        interrupted: head.interrupted,
    })
}

/// The rows of a table, by visit.
fn bulk<R: Table>(folder: &Path, visits: usize) -> Result<Vec<Vec<R>>> {
    let joined = folder.join(format!("{}.parquet", R::NAME));
    if visits == 0 {
        return Ok(Vec::new());
    }
    let paths = if joined.exists() {
        vec![joined]
    } else {
        (0..visits as u64).map(|visit| part::<R>(folder, visit)).collect()
    };
    let mut by_visit: Vec<Vec<R>> = (0..visits).map(|_| Vec::new()).collect();
    for path in paths.into_iter().filter(|path| !R::IS_NEW || path.exists()) {
        for (visit, row) in table::read::<R>(&path)? {
            let rows = usize::try_from(visit).ok().and_then(|visit| by_visit.get_mut(visit));
            rows.with_context(|| format!("{} names visit {visit}, run.json does not", path.display()))?
                .push(row);
        }
    }
    Ok(by_visit)
}
