//! The run folder: `run.json` and Parquet tables, written after every visit, readable by DuckDB, Polars and pandas.
//!
//! Each visit is first written as small tables under `visits/`, so that an interrupted or killed run keeps all that it
//! has measured and can be gone on with ([`reopen`]); [`RunFolder::finish`] joins them into `samples.parquet`, `tallies.parquet`, `connections.parquet`, `frames.parquet`,
//! `tcp.parquet` and `link.parquet`, and `waits.parquet` where the causes of slow requests were asked for. A reader takes whichever is there. Where packets were captured, `pcap/` has a file of
//! each visit, whose name begins with the visit's number.

mod durable;
mod reopen;
mod rows;
pub mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use h2lab_analysis::diagnose::waits::{Doubt, Story, Waits};
use h2lab_base::counters::TcpTick;
use h2lab_base::units::Time;
use h2lab_model::record::{
    BulkVisit, CellRecord, ConnectionRecord, Environment, GeneratorSummary, LinkSummary, PacketRecord,
    RunRecord, SCHEMA_VERSION, Sample, ServerSummary, SidecarSummary, Tally,
};
use h2lab_model::scenario::{Cell, Scenario};
use h2lab_report::Explained;
use h2lab_wire::trace::FrameEvent;
use serde::{Deserialize, Serialize};

pub use reopen::{Reopened, is_running, reopen};
pub use rows::direction_name;
use table::Row;

/// One visit without its bulk, as `run.json` has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct VisitHead {
    /// What the tables call it; its place in the list in folders of before the field. One that is measured again after it
    /// was found damaged takes its number.
    #[serde(default)]
    number: Option<u64>,
    cell: Cell,
    attempt: u32,
    started_at: Time,
    link: Option<LinkSummary>,
    generator: GeneratorSummary,
    server: Option<ServerSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sidecar: Option<SidecarSummary>,
    /// Absent unless the work is bulk, and in folders of before the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bulk: Option<BulkVisit>,
    environment: Environment,
    warnings: Vec<String>,
    /// Absent in folders of before the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unsupported: Option<String>,
    /// Absent where the causes of slow requests were not asked for, and in folders of before the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits: Option<WaitsHead>,
}

/// What slow requests waited for, without the stories, which are a table.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct WaitsHead {
    slower_than_ns: u64,
    doubts: Vec<Doubt>,
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
    /// When it was gone on with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    resumed: Vec<String>,
    visits: Vec<VisitHead>,
}

impl RunHead {
    /// The run with these visits.
    fn run(&self, scenario: Scenario, visits: Vec<CellRecord>) -> RunRecord {
        RunRecord {
            schema: self.schema,
            version: self.version.clone(),
            started: self.started.clone(),
            command: self.command.clone(),
            seed: self.seed,
            machine: self.machine.clone(),
            scenario,
            visits,
            interrupted: self.interrupted,
            resumed: self.resumed.clone(),
        }
    }
}

/// The folder of the visits' packets, for Wireshark.
const CAPTURES: &str = "pcap";

/// An open run folder.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    head: RunHead,
    /// Held as long as the run goes on: two processes at one folder would destroy each other's visits. The kernel lets go
    /// of it when the process ends, however it does.
    _lock: File,
}

impl RunFolder {
    /// Makes the folder. `run` tells all but the visits, which are added one by one.
    pub fn create(path: &Path, run: &RunRecord) -> Result<Self> {
        std::fs::create_dir_all(path.join("visits"))
            .with_context(|| format!("cannot make the run folder {}", path.display()))?;
        let lock = reopen::lock(path)?;
        let head = RunHead {
            schema: run.schema,
            version: run.version.clone(),
            started: run.started.clone(),
            command: run.command.clone(),
            seed: run.seed,
            machine: run.machine.clone(),
            scenario: run.scenario.without_secrets().to_toml(),
            interrupted: true, // until `finish` says otherwise
            resumed: Vec::new(),
            visits: Vec::new(),
        };
        let folder = Self { path: path.to_owned(), head, _lock: lock };
        folder.write_head()?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file for the packets of the visit that is stored next, from the root on. A visit that is tried again replaces
    /// it, as its record does.
    pub fn next_pcap(&self, cell: &Cell) -> Result<PathBuf> {
        let captures = self.path.join(CAPTURES);
        std::fs::create_dir_all(&captures).with_context(|| format!("cannot make {}", captures.display()))?;
        let connections =
            if cell.protocol.is_multiplexed() { format!("-{}", cell.connections) } else { String::new() };
        let name = format!("{:04}-{}{connections}.pcapng", self.free_number(), cell.protocol);
        Ok(std::path::absolute(captures.join(name))?)
    }

    /// Stores one visit; all of it is on disk when this returns.
    pub fn add(&mut self, record: &CellRecord) -> Result<()> {
        self.add_explained(record, None)
    }

    /// The same with what its slow requests waited for.
    pub fn add_explained(&mut self, record: &CellRecord, waits: Option<&Waits>) -> Result<()> {
        let visit = self.free_number();
        table::write(&self.part::<Sample>(visit), visit, &record.samples)?;
        table::write(&self.part::<Tally>(visit), visit, &record.tallies)?;
        table::write(&self.part::<ConnectionRecord>(visit), visit, &record.connections)?;
        table::write(&self.part::<FrameEvent>(visit), visit, &record.frames)?;
        table::write(&self.part::<TcpTick>(visit), visit, &record.tcp)?;
        table::write(&self.part::<PacketRecord>(visit), visit, &record.packets)?;
        if let Some(waits) = waits {
            table::write(&self.part::<Story>(visit), visit, &waits.stories)?;
        }
        durable::sync(&self.path.join("visits"))?;
        self.head.visits.push(VisitHead {
            number: Some(visit),
            cell: record.cell.without_secrets(),
            attempt: record.attempt,
            started_at: record.started_at,
            link: record.link.clone(),
            generator: record.generator,
            server: record.server.clone(),
            sidecar: record.sidecar.clone(),
            bulk: record.bulk.clone(),
            environment: record.environment.clone(),
            warnings: record.warnings.clone(),
            unsupported: record.unsupported.clone(),
            waits: waits.map(|waits| WaitsHead {
                slower_than_ns: waits.slower_than_ns,
                doubts: waits.doubts.clone(),
            }),
        });
        self.write_head()
    }

    /// The smallest number that no visit has.
    fn free_number(&self) -> u64 {
        let taken: BTreeSet<u64> = self.head.visits.iter().filter_map(|visit| visit.number).collect();
        let visits = self.head.visits.len() as u64;
        (0..visits).find(|number| !taken.contains(number)).unwrap_or(visits)
    }

    /// Notes that the run is gone on with at this time (RFC 3339).
    pub fn resume(&mut self, at: String) -> Result<()> {
        self.head.interrupted = true;
        self.head.resumed.push(at);
        self.write_head()
    }

    /// Joins the visits' tables and removes the parts, and what a visit that was killed has left: half a file, and the secrets
    /// of TLS.
    pub fn finish(mut self, interrupted: bool) -> Result<()> {
        // First, since joining takes its time and a second Ctrl-C ends it; and once more, since programs of a lab that is
        // being killed may have written meanwhile.
        let swept = sweep(&self.path);
        self.join_all(interrupted).and(swept).and(sweep(&self.path))
    }

    fn join_all(&mut self, interrupted: bool) -> Result<()> {
        // The order of the numbers is that of the visits, unless one was measured again.
        self.head.visits.sort_by_key(|visit| visit.number);
        self.join::<Sample>()?;
        self.join::<Tally>()?;
        self.join::<ConnectionRecord>()?;
        self.join::<FrameEvent>()?;
        self.join::<TcpTick>()?;
        self.join::<PacketRecord>()?;
        let explained = self.head.visits.iter().filter(|visit| visit.waits.is_some());
        let explained: Vec<PathBuf> =
            explained.filter_map(|visit| visit.number).map(|n| self.part::<Story>(n)).collect();
        if !explained.is_empty() {
            table::join::<Story>(&explained, &self.joined::<Story>())?;
        }
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
            self.head.visits.iter().filter_map(|visit| visit.number).map(|n| self.part::<R>(n)).collect();
        table::join::<R>(&parts, &self.joined::<R>())
    }

    fn joined<R: Table>(&self) -> PathBuf {
        self.path.join(format!("{}.parquet", R::NAME))
    }

    /// Replaces `run.json` as a whole, so that a reader never sees half of it.
    fn write_head(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.head).context("cannot serialise run.json")?;
        durable::put(&self.path.join("run.json"), |mut file| Ok(file.write_all(text.as_bytes())?))?;
        durable::sync(&self.path)
    }
}

/// Removes what was half-written in the folder, the key log of a visit that was killed included.
fn sweep(folder: &Path) -> Result<()> {
    let captures = folder.join(CAPTURES);
    if captures.exists() {
        durable::sweep(&captures)?;
    }
    durable::sweep(folder)
}

/// Removes what a run has written into its folder, and the folder if it is empty then. Nothing else is touched.
pub fn discard(folder: &Path) -> Result<()> {
    sweep(folder)?;
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
    let waits = folder.join(format!("{}.parquet", Story::NAME));
    if waits.exists() {
        std::fs::remove_file(waits)?;
    }
    std::fs::remove_file(folder.join("run.json"))?;
    for inner in ["logs", CAPTURES].map(|name| folder.join(name)) {
        if inner.exists() {
            std::fs::remove_dir_all(inner)?;
        }
    }
    Ok(std::fs::remove_dir(folder)?)
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

/// What slow requests waited for, one row each. Not every run asks.
impl Table for Story {
    const NAME: &'static str = "waits";
    const IS_NEW: bool = true;
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
    let head = read_head(folder)?;
    let scenario = scenario_of(&head)?;
    let numbers: Vec<u64> = numbers(&head);
    let mut samples = bulk::<Sample>(folder, &numbers)?.into_iter();
    let mut tallies = bulk::<Tally>(folder, &numbers)?.into_iter();
    let mut connections = bulk::<ConnectionRecord>(folder, &numbers)?.into_iter();
    let detailed = if all { &numbers[..] } else { &[] };
    let mut frames = bulk::<FrameEvent>(folder, detailed)?.into_iter();
    let mut tcp = bulk::<TcpTick>(folder, detailed)?.into_iter();
    let mut packets = bulk::<PacketRecord>(folder, detailed)?.into_iter();
    let with_bulk = |visit: &VisitHead| CellRecord {
        samples: samples.next().unwrap_or_default(),
        tallies: tallies.next().unwrap_or_default(),
        connections: connections.next().unwrap_or_default(),
        frames: frames.next().unwrap_or_default(),
        tcp: tcp.next().unwrap_or_default(),
        packets: packets.next().unwrap_or_default(),
        ..record_of(visit.clone())
    };
    let visits = head.visits.iter().map(with_bulk).collect();
    Ok(head.run(scenario, visits))
}

/// What the slow requests of each visit waited for, where that was asked.
pub fn read_waits(folder: &Path) -> Result<Vec<Explained>> {
    let head = read_head(folder)?;
    let asked = |visit: &VisitHead| visit.waits.is_some();
    if !head.visits.iter().any(asked) {
        return Ok(Vec::new());
    }
    let mut stories = bulk::<Story>(folder, &numbers(&head))?.into_iter();
    let explained = head.visits.iter().map(|visit| (visit, stories.next().unwrap_or_default()));
    let explained = explained.filter_map(|(visit, stories)| {
        let known = visit.waits.as_ref()?;
        let waits = Waits {
            slower_than_ns: known.slower_than_ns,
            split: stories.iter().collect(),
            stories,
            doubts: known.doubts.clone(),
        };
        Some(Explained { cell: visit.cell.index, repetition: visit.cell.repetition, waits })
    });
    Ok(explained.collect())
}

/// The same without any bulk: what was asked, and which visits were made.
pub fn read_heads(folder: &Path) -> Result<RunRecord> {
    let head = read_head(folder)?;
    let scenario = scenario_of(&head)?;
    let visits = head.visits.iter().cloned().map(record_of).collect();
    Ok(head.run(scenario, visits))
}

/// `run.json`, if this version can read it.
fn read_head(folder: &Path) -> Result<RunHead> {
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
    Ok(head)
}

fn scenario_of(head: &RunHead) -> Result<Scenario> {
    Scenario::of_a_run(&head.scenario).context("the scenario in run.json is damaged")
}

/// What the tables call each visit of `run.json`.
fn numbers(head: &RunHead) -> Vec<u64> {
    let number = |(place, visit): (usize, &VisitHead)| visit.number.unwrap_or(place as u64);
    head.visits.iter().enumerate().map(number).collect()
}

/// A visit without its bulk.
fn record_of(visit: VisitHead) -> CellRecord {
    CellRecord {
        attempt: visit.attempt,
        started_at: visit.started_at,
        link: visit.link,
        generator: visit.generator,
        server: visit.server,
        sidecar: visit.sidecar,
        bulk: visit.bulk,
        environment: visit.environment,
        warnings: visit.warnings,
        unsupported: visit.unsupported,
        ..CellRecord::empty(visit.cell)
    }
}

/// The rows of a table, by visit, in the order of `visits`.
fn bulk<R: Table>(folder: &Path, visits: &[u64]) -> Result<Vec<Vec<R>>> {
    let joined = folder.join(format!("{}.parquet", R::NAME));
    if visits.is_empty() {
        return Ok(Vec::new());
    }
    let paths = if joined.exists() {
        vec![joined]
    } else {
        visits.iter().map(|visit| part::<R>(folder, *visit)).collect()
    };
    let places: BTreeMap<u64, usize> = visits.iter().copied().zip(0..).collect();
    let mut by_visit: Vec<Vec<R>> = visits.iter().map(|_| Vec::new()).collect();
    for path in paths.into_iter().filter(|path| !R::IS_NEW || path.exists()) {
        for (visit, row) in table::read::<R>(&path)? {
            let place = places.get(&visit);
            let place = place
                .with_context(|| format!("{} names visit {visit}, run.json does not", path.display()))?;
            by_visit[*place].push(row);
        }
    }
    Ok(by_visit)
}
