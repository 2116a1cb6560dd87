//! The run folder: `run.json` and Parquet tables, written after every repetition, readable by DuckDB, Polars and pandas.
//!
//! Each repetition is first written as small tables under `visits/`, so that an interrupted or killed run keeps all that it
//! has measured and can be resumed ([`reopen`]); [`RunFolder::finish`] joins them into `samples.parquet`, `tallies.parquet`,
//! `connections.parquet`, `frames.parquet`, `tcp.parquet` and `link.parquet`, and `waits.parquet` where the causes of slow
//! requests were asked for. A reader takes whichever is there. Where packets were captured, `pcap/` has a file of each
//! repetition, whose name begins with the repetition's number. Where ramps were run to find the rate, `ramps/` is their run folder;
//! where agents have measured the plan more than once, `reproductions/` has a run folder for each further time.

mod before;
mod by_agents;
mod durable;
#[cfg(feature = "nats")]
mod import;
mod reopen;
mod rows;
mod seal;
pub mod table;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use h2lab_analysis::diagnose::waits::{Doubt, LatencyBreakdown, Waits};
use h2lab_base::counters::TcpTick;
use h2lab_base::units::Time;
use h2lab_model::foreign;
use h2lab_model::record::{
    BulkRepetition, CellRecord, ConnectionRecord, Environment, GeneratorSummary, Level, LinkSummary,
    MeasuredOn, PacketRecord, RunRecord, SCHEMA_VERSION, Sample, ServerSummary, ShareSummary, SidecarSummary,
    Tally,
};
use h2lab_model::scenario::{Cell, Scenario};
use h2lab_net::ownership::Borrowed;
use h2lab_report::Explained;
use h2lab_wire::trace::FrameEvent;
use serde::{Deserialize, Serialize};

pub use before::read_ramps;
#[cfg(feature = "nats")]
pub use by_agents::reproduction;
pub use by_agents::{is_by_agents, read_reproductions};
use durable::Batch;
#[cfg(feature = "nats")]
pub use import::{StoredElsewhere, read_agents, read_all};
pub use reopen::{Reopened, is_running, reopen};
pub use rows::direction_name;
use table::TableRow;

use super::messages::{Failure, FailureKind};

/// One repetition without its bulk, as `run.json` has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredRepetition {
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
    bulk: Option<BulkRepetition>,
    /// Absent unless agents made the load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    agents: Vec<ShareSummary>,
    environment: Environment,
    warnings: Vec<String>,
    /// Absent in folders of before the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unsupported: Option<String>,
    /// Absent unless an agent made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<MeasuredOn>,
    /// Absent where the causes of slow requests were not asked for, and in folders of before the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits: Option<WaitsHead>,
}

/// What slow requests waited for, without the latency breakdowns, which are a table.
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
    /// Why it could not go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// Of which kind that was: it decides the exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure_kind: Option<FailureKind>,
    /// When it was resumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    resumed: Vec<String>,
    #[serde(alias = "visits")]
    repetitions: Vec<StoredRepetition>,
}

impl RunHead {
    /// The run with these repetitions.
    fn run(&self, scenario: Scenario, repetitions: Vec<CellRecord>) -> RunRecord {
        RunRecord {
            schema: self.schema,
            version: self.version.clone(),
            started: self.started.clone(),
            command: self.command.clone(),
            seed: self.seed,
            machine: self.machine.clone(),
            scenario,
            repetitions,
            interrupted: self.interrupted,
            failure: self.failure.clone(),
            resumed: self.resumed.clone(),
        }
    }
}

/// The folder of the repetitions' packets, for Wireshark.
const CAPTURES: &str = "pcap";

/// An open run folder.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    head: RunHead,
    /// Held as long as the run lasts: two processes at one folder would destroy each other's repetitions. The kernel releases it
    /// when the process ends, in any way.
    _lock: File,
    /// Root's processes have no right to write into folders of others: this one is root's while they do.
    borrowed: Option<Borrowed>,
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let given_back = self.borrowed.as_ref().map_or(Ok(()), Borrowed::give_back);
        if let Err(error) = given_back {
            let path = self.path.display();
            say!("note: {path}: cannot change the owner of all of it ({error}); use chown -R");
        }
    }
}

impl RunFolder {
    /// Makes the folder. `run` has everything but the repetitions, which are added one by one.
    pub fn create(path: &Path, run: &RunRecord) -> Result<Self> {
        if let Err(error) = std::fs::create_dir_all(path.join("visits")) {
            // It was made when its name was chosen. It stays if others have put something into it.
            let _ = std::fs::remove_dir(path);
            return Err(error).with_context(|| format!("cannot make the run folder {}", path.display()));
        }
        let (lock, borrowed) = reopen::lock_and_borrow(path)?;
        let head = RunHead {
            schema: run.schema,
            version: run.version.clone(),
            started: run.started.clone(),
            command: run.command.clone(),
            seed: run.seed,
            machine: run.machine.clone(),
            scenario: run.scenario.without_secrets().to_toml(),
            interrupted: true, // until `finish` says otherwise
            failure: None,
            failure_kind: None,
            resumed: Vec::new(),
            repetitions: Vec::new(),
        };
        let folder = Self { path: path.to_owned(), head, _lock: lock, borrowed };
        // Nothing was measured yet that would have to last.
        if let Err(error) = folder.put_head().and_then(Batch::place) {
            // The disk is full, above all: what is there is no run. The first error counts.
            drop(folder);
            let _ = discard(path);
            return Err(error);
        }
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file for the packets of the repetition that is stored next, from the root on. A repetition that is tried again
    /// replaces it, as its record does.
    pub fn next_pcap(&self, cell: &Cell) -> Result<PathBuf> {
        let captures = self.path.join(CAPTURES);
        std::fs::create_dir_all(&captures).with_context(|| format!("cannot make {}", captures.display()))?;
        let connections =
            if cell.protocol.is_multiplexed() { format!("-{}", cell.connections) } else { String::new() };
        let name = format!("{:04}-{}{connections}.pcapng", self.free_number(), cell.protocol);
        Ok(std::path::absolute(captures.join(name))?)
    }

    /// Stores one repetition; all of it is on disk when this returns.
    pub fn add(&mut self, record: &CellRecord) -> Result<()> {
        self.add_explained(record, None)
    }

    /// The same with what its slow requests waited for.
    pub fn add_explained(&mut self, record: &CellRecord, waits: Option<&Waits>) -> Result<()> {
        self.put(record, waits)?;
        durable::sync(&self.path.join("visits"))?;
        self.write_head()
    }

    /// Stores one repetition that does not last before [`RunFolder::finish`], which follows at once: the disk is waited for half as
    /// often.
    pub fn stage(&mut self, record: &CellRecord) -> Result<()> {
        self.put(record, None)
    }

    /// Puts the tables of a repetition in place, and it into the list.
    fn put(&mut self, record: &CellRecord, waits: Option<&Waits>) -> Result<()> {
        let measured = self.free_number();
        let mut batch = Batch::default();
        self.write_table::<Sample>(&mut batch, measured, &record.samples)?;
        self.write_table::<Tally>(&mut batch, measured, &record.tallies)?;
        self.write_table::<ConnectionRecord>(&mut batch, measured, &record.connections)?;
        self.write_table::<FrameEvent>(&mut batch, measured, &record.frames)?;
        self.write_table::<TcpTick>(&mut batch, measured, &record.tcp)?;
        self.write_table::<PacketRecord>(&mut batch, measured, &record.packets)?;
        if let Some(waits) = waits {
            self.write_table::<LatencyBreakdown>(&mut batch, measured, &waits.breakdowns)?;
        }
        batch.commit()?;
        self.head.repetitions.push(StoredRepetition {
            number: Some(measured),
            cell: record.cell.without_secrets(),
            attempt: record.attempt,
            started_at: record.started_at,
            link: record.link.clone(),
            generator: record.generator,
            server: record.server.clone(),
            sidecar: record.sidecar.clone(),
            bulk: record.bulk.clone(),
            agents: record.agents.clone(),
            environment: record.environment.clone(),
            warnings: record.warnings.clone(),
            unsupported: record.unsupported.clone(),
            machine: record.machine.clone(),
            waits: waits.map(|waits| WaitsHead {
                slower_than_ns: waits.slower_than_ns,
                doubts: waits.doubts.clone(),
            }),
        });
        Ok(())
    }

    /// Writes a table of one repetition.
    fn write_table<R: Table>(
        &self,
        batch: &mut Batch,
        measured: u64,
        rows: impl IntoIterator<Item: Borrow<R>, IntoIter: ExactSizeIterator>,
    ) -> Result<()> {
        table::write::<R>(batch, &self.part::<R>(measured), measured, rows)
    }

    /// The smallest number that no repetition has.
    fn free_number(&self) -> u64 {
        let taken: BTreeSet<u64> =
            self.head.repetitions.iter().filter_map(|measured| measured.number).collect();
        let repetitions = self.head.repetitions.len() as u64;
        (0..repetitions).find(|number| !taken.contains(number)).unwrap_or(repetitions)
    }

    /// Notes that the run is resumed at this time (RFC 3339).
    pub fn resume(&mut self, at: String) -> Result<()> {
        self.head.interrupted = true;
        self.fail(None);
        self.head.resumed.push(at);
        self.write_head()
    }

    /// Notes why the run could not go on, for [`RunFolder::finish`] to keep.
    pub fn fail(&mut self, why: Option<Failure>) {
        self.head.failure_kind = why.as_ref().map(|why| why.kind);
        self.head.failure = why.map(|why| why.message);
    }

    /// Joins the repetitions' tables and removes the parts, and what a repetition that was killed has left: half a file, and the
    /// secrets of TLS.
    pub fn finish(mut self, interrupted: bool) -> Result<()> {
        // First, since joining takes its time and a second Ctrl-C ends it; and once more, since programs of a lab that is
        // being killed may have written meanwhile.
        let swept = sweep(&self.path);
        self.join_all(interrupted).and(swept).and(sweep(&self.path))
    }

    fn join_all(&mut self, interrupted: bool) -> Result<()> {
        // The order of the numbers is that of the repetitions, unless one was measured again.
        self.head.repetitions.sort_by_key(|measured| measured.number);
        self.join::<Sample>()?;
        self.join::<Tally>()?;
        self.join::<ConnectionRecord>()?;
        self.join::<FrameEvent>()?;
        self.join::<TcpTick>()?;
        self.join::<PacketRecord>()?;
        let explained = self.head.repetitions.iter().filter(|measured| measured.waits.is_some());
        let explained: Vec<PathBuf> = explained
            .filter_map(|measured| measured.number)
            .map(|n| self.part::<LatencyBreakdown>(n))
            .collect();
        if !explained.is_empty() {
            table::join::<LatencyBreakdown>(&explained, &self.joined::<LatencyBreakdown>())?;
        }
        self.head.interrupted = interrupted;
        self.write_head()?;
        let parts = self.path.join("visits");
        std::fs::remove_dir_all(&parts).with_context(|| format!("cannot remove {}", parts.display()))
    }

    fn part<R: Table>(&self, measured: u64) -> PathBuf {
        part::<R>(&self.path, measured)
    }

    fn join<R: Table>(&self) -> Result<()> {
        let parts: Vec<PathBuf> = self
            .head
            .repetitions
            .iter()
            .filter_map(|measured| measured.number)
            .map(|n| self.part::<R>(n))
            .collect();
        table::join::<R>(&parts, &self.joined::<R>())
    }

    fn joined<R: Table>(&self) -> PathBuf {
        self.path.join(format!("{}.parquet", R::NAME))
    }

    /// Replaces `run.json` as a whole, so that a reader never sees half of it.
    fn write_head(&self) -> Result<()> {
        self.put_head()?.commit()?;
        durable::sync(&self.path)
    }

    /// The new `run.json`, not yet in place.
    fn put_head(&self) -> Result<Batch> {
        let text = serde_json::to_string_pretty(&self.head).context("cannot serialise run.json")?;
        let mut batch = Batch::default();
        batch.write(&self.path.join("run.json"), |mut file| Ok(file.write_all(text.as_bytes())?))?;
        Ok(batch)
    }
}

/// Removes what was half-written in the folder, the key log of a repetition that was killed included.
fn sweep(folder: &Path) -> Result<()> {
    let captures = folder.join(CAPTURES);
    if captures.exists() {
        durable::sweep(&captures)?;
    }
    durable::sweep(folder)
}

/// The tables that are written part by part while a run goes on, and joined at its end.
const TABLES: [&str; 6] =
    [Sample::NAME, Tally::NAME, ConnectionRecord::NAME, FrameEvent::NAME, TcpTick::NAME, PacketRecord::NAME];

/// The tables that a run folder lacks since they could not be joined of their parts, which are there then: after a full disk.
pub fn unjoined(folder: &Path) -> Vec<String> {
    let is_apart = folder.join("visits").exists();
    let tables = TABLES.into_iter().filter(|_| is_apart).map(|name| format!("{name}.parquet"));
    tables.filter(|name| !folder.join(name).exists()).collect()
}

/// Removes what a run has written into its folder, and the folder if it is empty then. Nothing else is touched. It is no error if the
/// folder is not there any more.
pub fn discard(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    sweep(folder)?;
    let tables = TABLES.into_iter().chain([LatencyBreakdown::NAME]).map(|name| format!("{name}.parquet"));
    let heads = ["run.json", by_agents::AGENTS].map(str::to_owned);
    for file in tables.chain(heads).map(|name| folder.join(name)) {
        if file.exists() {
            std::fs::remove_file(file)?;
        }
    }
    let inner = ["visits", "logs", CAPTURES, before::RAMPS, by_agents::REPRODUCTIONS, by_agents::INCOMING];
    for inner in inner.map(|name| folder.join(name)) {
        if inner.exists() {
            std::fs::remove_dir_all(inner)?;
        }
    }
    Ok(std::fs::remove_dir(folder)?)
}

/// A record type with a table of its own.
trait Table: TableRow {
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
impl Table for LatencyBreakdown {
    const NAME: &'static str = "waits";
    const IS_NEW: bool = true;
}

fn part<R: Table>(folder: &Path, measured: u64) -> PathBuf {
    folder.join("visits").join(format!("{measured:04}.{}.parquet", R::NAME))
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
    let head = read_head_to_show(folder)?;
    let scenario = Scenario::of_a_run_to_show(&head.scenario).context(DAMAGED_SCENARIO)?;
    let numbers: Vec<u64> = numbers(&head);
    check_tallies(folder, &head)?;
    let mut samples = bulk::<Sample, _>(folder, &numbers)?.into_iter();
    let mut tallies = bulk::<Tally, _>(folder, &numbers)?.into_iter();
    let mut connections = bulk::<ConnectionRecord, _>(folder, &numbers)?.into_iter();
    let detailed = if all { &numbers[..] } else { &[] };
    let mut frames = bulk::<FrameEvent, _>(folder, detailed)?.into_iter();
    let mut tcp = bulk::<TcpTick, _>(folder, detailed)?.into_iter();
    let mut packets = bulk::<PacketRecord, _>(folder, detailed)?.into_iter();
    let with_bulk = |measured: &StoredRepetition| CellRecord {
        samples: samples.next().unwrap_or_default(),
        tallies: tallies.next().unwrap_or_default(),
        connections: connections.next().unwrap_or_default(),
        frames: frames.next().unwrap_or_default(),
        tcp: tcp.next().unwrap_or_default(),
        packets: packets.next().unwrap_or_default(),
        ..record_of(measured.clone())
    };
    let repetitions = head.repetitions.iter().map(with_bulk).collect();
    // Earlier versions stored queries.
    Ok(head.run(scenario, repetitions).without_secrets())
}

/// Fails if a finished folder lacks the counts of requests that were not all kept: the rest would look like all of them.
fn check_tallies(folder: &Path, head: &RunHead) -> Result<()> {
    let counts = head.repetitions.iter().any(|measured| measured.generator.level != Level::Full);
    let path = folder.join(format!("{}.parquet", Tally::NAME));
    if counts && !path.exists() && !folder.join("visits").exists() {
        bail!("{} is missing, which counts the requests that samples.parquet does not have", path.display());
    }
    Ok(())
}

/// Why the run in `folder` could not go on to its end, with what decides its exit code; `None` if it did, and if the user
/// ended it. Folders of before the kind was kept have a run that is not sound.
pub fn read_failure(folder: &Path) -> Result<Option<Failure>> {
    let head = read_head_to_show(folder)?;
    let kind = head.failure_kind.unwrap_or(FailureKind::Invalid);
    Ok(head.failure.map(|message| Failure { kind, message }))
}

/// What the slow requests of each repetition waited for, where that was asked.
pub fn read_waits(folder: &Path) -> Result<Vec<Explained>> {
    let head = read_head_to_show(folder)?;
    let asked = |measured: &StoredRepetition| measured.waits.is_some();
    if !head.repetitions.iter().any(asked) {
        return Ok(Vec::new());
    }
    let mut breakdowns = bulk::<LatencyBreakdown, Vec<_>>(folder, &numbers(&head))?.into_iter();
    let explained = head.repetitions.iter().map(|measured| (measured, breakdowns.next().unwrap_or_default()));
    let explained = explained.filter_map(|(measured, breakdowns)| {
        let known = measured.waits.as_ref()?;
        let waits = Waits {
            slower_than_ns: known.slower_than_ns,
            split: breakdowns.iter().collect(),
            breakdowns,
            doubts: known.doubts.clone(),
        };
        Some(Explained { cell: measured.cell.index, repetition: measured.cell.repetition, waits })
    });
    Ok(explained.collect())
}

/// What was asked, to be measured again, and which repetitions were made; without any bulk.
pub fn read_heads(folder: &Path) -> Result<RunRecord> {
    let head = read_head(folder)?;
    let scenario = scenario_of(&head)?;
    let repetitions = head.repetitions.iter().cloned().map(record_of).collect();
    Ok(head.run(scenario, repetitions))
}

/// `run.json`, if this version can read it. What is measured again must be what was asked, to the byte: texts of the
/// scenario and the cells are as somebody wrote them.
fn read_head(folder: &Path) -> Result<RunHead> {
    read_head_but(folder, &["scenario", "cell"])
}

/// The same, with texts of cells that are printable.
fn read_head_to_show(folder: &Path) -> Result<RunHead> {
    read_head_but(folder, &["scenario"])
}

/// The same, with all texts printable but those under the keys `as_they_are`.
fn read_head_but(folder: &Path, as_they_are: &[&str]) -> Result<RunHead> {
    let path = folder.join("run.json");
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("{} is not a run folder: cannot read {}", folder.display(), path.display())
    })?;
    let head: RunHead =
        foreign::read(&text, as_they_are).with_context(|| format!("{} is damaged", path.display()))?;
    if head.schema > SCHEMA_VERSION {
        bail!(
            "{} has schema {}, this h2lab reads up to {SCHEMA_VERSION}: use a newer one",
            path.display(),
            head.schema
        );
    }
    Ok(head)
}

const DAMAGED_SCENARIO: &str = "the scenario in run.json is damaged";

fn scenario_of(head: &RunHead) -> Result<Scenario> {
    Scenario::of_a_run(&head.scenario).context(DAMAGED_SCENARIO)
}

/// What the tables call each repetition of `run.json`.
fn numbers(head: &RunHead) -> Vec<u64> {
    let number = |(place, measured): (usize, &StoredRepetition)| measured.number.unwrap_or(place as u64);
    head.repetitions.iter().enumerate().map(number).collect()
}

/// A repetition without its bulk.
fn record_of(measured: StoredRepetition) -> CellRecord {
    CellRecord {
        attempt: measured.attempt,
        started_at: measured.started_at,
        link: measured.link,
        generator: measured.generator,
        server: measured.server,
        sidecar: measured.sidecar,
        bulk: measured.bulk,
        agents: measured.agents,
        environment: measured.environment,
        warnings: measured.warnings,
        unsupported: measured.unsupported,
        machine: measured.machine,
        ..CellRecord::empty(measured.cell)
    }
}

/// The rows of a table, by repetition, in the order of `repetitions`.
fn bulk<R: Table, L: Default + Extend<R>>(folder: &Path, repetitions: &[u64]) -> Result<Vec<L>> {
    let joined = folder.join(format!("{}.parquet", R::NAME));
    if repetitions.is_empty() {
        return Ok(Vec::new());
    }
    let paths = if joined.exists() {
        vec![joined]
    } else {
        repetitions.iter().map(|measured| part::<R>(folder, *measured)).collect()
    };
    let places: BTreeMap<u64, usize> = repetitions.iter().copied().zip(0..).collect();
    let mut by_repetition: Vec<L> = repetitions.iter().map(|_| L::default()).collect();
    for path in paths.into_iter().filter(|path| !R::IS_NEW || path.exists()) {
        table::read(&path, &mut |measured, row| {
            let place = places.get(&measured);
            let place = place.with_context(|| {
                format!("{} names repetition {measured}, run.json does not", path.display())
            })?;
            by_repetition[*place].extend([row]);
            Ok(())
        })?;
    }
    Ok(by_repetition)
}
