//! A run folder opened again: what is whole stays, the rest is measured again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use h2lab_analysis::diagnose::waits::LatencyBreakdown;
use h2lab_base::counters::TcpTick;
use h2lab_model::record::{CellRecord, ConnectionRecord, PacketRecord, RunRecord, Sample, Tally};
use h2lab_net::ownership::Borrowed;
use h2lab_wire::trace::FrameEvent;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::durable::Batch;
use super::{RunFolder, StoredRepetition, Table, durable, part, read_head, record_of, table};
use crate::run::messages::with_causes;

/// A run folder that can be resumed.
#[derive(Debug)]
pub struct Reopened {
    /// The folder; [`RunFolder::add`] continues it.
    pub folder: RunFolder,
    /// The run with the repetitions that are whole.
    pub run: RunRecord,
    /// Repetitions that were stored and cannot be read, with the reason: they are discarded.
    pub discarded: Vec<String>,
}

/// Takes the folder for this process alone, until the value is dropped or the process ends in any way.
pub(super) fn lock(path: &Path) -> Result<File> {
    let folder = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            bail!("{}: another h2lab is still running it; wait for it, or stop it first", path.display())
        }
        // Where there are no locks (some network file systems), users must take care themselves.
        Ok(()) | Err(_) => Ok(folder),
    }
}

/// The same, and root's for as long as the second value lasts, if we are root.
pub(super) fn lock_and_borrow(path: &Path) -> Result<(File, Option<Borrowed>)> {
    let lock = lock(path)?;
    let borrowed = Borrowed::take(&lock)
        .with_context(|| format!("cannot take {} from its owner for the time of the run", path.display()))?;
    Ok((lock, borrowed))
}

/// Whether a process is adding to this folder right now.
pub fn is_running(path: &Path) -> bool {
    lock(path).is_err()
}

/// Opens the folder of an interrupted run. Fails if it is none, or if another process is at it.
pub fn reopen(path: &Path) -> Result<Reopened> {
    let (lock, borrowed) = lock_and_borrow(path)?;
    let mut head = read_head(path)?;
    if !head.interrupted {
        bail!("{}: this run is complete", path.display());
    }
    let scenario = super::scenario_of(&head)?;
    super::sweep(path)?;
    fs::create_dir_all(path.join("visits")).context("cannot make the folder of the repetitions")?;
    durable::sweep(&path.join("visits"))?;
    split_all(path)?;
    let (mut repetitions, mut discarded, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for (place, mut repetition) in std::mem::take(&mut head.repetitions).into_iter().enumerate() {
        let number = *repetition.number.get_or_insert(place as u64);
        match whole(path, number, &repetition) {
            Ok(record) => {
                repetitions.push(record);
                kept.push(repetition);
            }
            Err(error) => discarded.push(format!("repetition {number}: {}", with_causes(&error))),
        }
    }
    head.repetitions = kept;
    let run = head.run(scenario, repetitions);
    Ok(Reopened { folder: RunFolder { path: path.to_owned(), head, _lock: lock, borrowed }, run, discarded })
}

/// A repetition with its bulk, if each of its tables exists and is complete.
fn whole(path: &Path, number: u64, head: &StoredRepetition) -> Result<CellRecord> {
    if head.waits.is_some() {
        rows::<LatencyBreakdown, Vec<_>>(path, number)?;
    }
    Ok(CellRecord {
        samples: rows::<Sample, _>(path, number)?,
        tallies: rows::<Tally, _>(path, number)?,
        connections: rows::<ConnectionRecord, _>(path, number)?,
        frames: rows::<FrameEvent, _>(path, number)?,
        tcp: rows::<TcpTick, _>(path, number)?,
        packets: rows::<PacketRecord, _>(path, number)?,
        ..record_of(head.clone())
    })
}

fn rows<R: Table, L: Default + Extend<R>>(path: &Path, number: u64) -> Result<L> {
    let part = part::<R>(path, number);
    let mut rows = L::default();
    table::read(&part, &mut |repetition, row| {
        ensure!(repetition == number, "{} belongs to another repetition", part.display());
        rows.extend([row]);
        Ok(())
    })?;
    Ok(rows)
}

/// Takes tables apart that an orderly end had joined, each before it is removed: a repetition more would not fit into them.
fn split_all(path: &Path) -> Result<()> {
    split::<Sample>(path)?;
    split::<Tally>(path)?;
    split::<ConnectionRecord>(path)?;
    split::<FrameEvent>(path)?;
    split::<TcpTick>(path)?;
    split::<PacketRecord>(path)?;
    split::<LatencyBreakdown>(path)
}

fn split<R: Table>(path: &Path) -> Result<()> {
    let joined = path.join(format!("{}.parquet", R::NAME));
    if !joined.exists() {
        return Ok(());
    }
    let numbers: BTreeSet<u64> = read_head(path)?
        .repetitions
        .iter()
        .enumerate()
        .map(|(place, repetition)| repetition.number.unwrap_or(place as u64))
        .collect();
    let mut by_repetition: Vec<(u64, Vec<R>)> =
        numbers.into_iter().map(|number| (number, Vec::new())).collect();
    table::read(&joined, &mut |repetition, row| {
        let place = by_repetition.binary_search_by_key(&repetition, |(number, _)| *number).ok();
        let place = place.with_context(|| {
            format!("{} names repetition {repetition}, run.json does not", joined.display())
        })?;
        by_repetition[place].1.push(row);
        Ok(())
    })?;
    let mut batch = Batch::default();
    for (number, rows) in &by_repetition {
        table::write::<R>(&mut batch, &part::<R>(path, *number), *number, rows)?;
    }
    batch.commit()?;
    durable::sync(&path.join("visits"))?;
    fs::remove_file(&joined).with_context(|| format!("cannot remove {}", joined.display()))
}
