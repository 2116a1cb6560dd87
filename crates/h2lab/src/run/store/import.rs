//! Repetitions that another machine made, taken over into a run folder.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use h2lab_analysis::diagnose::waits::Waits;
use h2lab_model::record::{CellRecord, RunRecord};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::by_agents::{AGENTS, INCOMING, is_by_agents};
use super::{CAPTURES, RunFolder, StoredRepetition, durable, read, read_waits};

/// A repetition with all that its run folder has of it.
#[derive(Debug)]
pub struct StoredElsewhere {
    /// The repetition.
    pub record: CellRecord,
    /// What its slow requests waited for, if that was asked.
    pub waits: Option<Waits>,
    /// The file of its packets, if they were captured.
    pub packets: Option<PathBuf>,
}

/// All repetitions of a run folder that is finished.
pub fn read_all(folder: &Path) -> Result<(RunRecord, Vec<StoredElsewhere>)> {
    let mut run = read(folder)?;
    let mut explained = read_waits(folder)?;
    let mut captures = captures(folder)?;
    let mut all = Vec::with_capacity(run.repetitions.len());
    for (number, record) in std::mem::take(&mut run.repetitions).into_iter().enumerate() {
        let is_its = |(cell, repetition): (u32, u32)| {
            (cell, repetition) == (record.cell.index, record.cell.repetition)
        };
        let waits = explained.iter().position(|one| is_its((one.cell, one.repetition)));
        let waits = waits.map(|place| explained.swap_remove(place).waits);
        let packets = captures.iter().position(|path| is_of(path, number as u64));
        let packets = packets.map(|place| captures.swap_remove(place));
        all.push(StoredElsewhere { record, waits, packets });
    }
    Ok((run, all))
}

/// The files of packets of a run folder.
fn captures(folder: &Path) -> Result<Vec<PathBuf>> {
    let captures = folder.join(CAPTURES);
    if !captures.is_dir() {
        return Ok(Vec::new());
    }
    let entries = captures.read_dir().with_context(|| format!("cannot read {}", captures.display()))?;
    entries
        .map(|entry| Ok(entry.with_context(|| format!("cannot read {}", captures.display()))?.path()))
        .collect()
}

/// Whether a file has the packets of the repetition with this number.
fn is_of(packets: &Path, number: u64) -> bool {
    let begins = format!("{number:04}-");
    packets.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begins))
}

impl RunFolder {
    /// Stores these repetitions, all or none, also if the process is killed meanwhile; they are on disk when this returns.
    pub fn import(&mut self, repetitions: &[StoredElsewhere]) -> Result<()> {
        let before = self.head.repetitions.len();
        let stored = self.store_all(repetitions);
        if stored.is_err() {
            // The list is written with whatever is stored next: a part of these must not be in it.
            self.head.repetitions.truncate(before);
        }
        stored
    }

    /// Keeps `agents`, by which the run is found again at the agents that make it.
    pub fn keep_agents(&self, agents: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(agents).context("cannot serialise agents.json")?;
        durable::put(&self.path.join(AGENTS), |mut file| Ok(file.write_all(text.as_bytes())?))?;
        durable::sync(&self.path)
    }

    /// An empty folder for what comes from agents; whatever it had is removed.
    pub fn incoming(&self) -> Result<PathBuf> {
        let folder = self.path.join(INCOMING);
        self.clear_incoming()?;
        std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    /// Removes that folder.
    pub fn clear_incoming(&self) -> Result<()> {
        let folder = self.path.join(INCOMING);
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", folder.display()))
            }
            _ => Ok(()),
        }
    }

    /// Removes the repetitions of these cells, by index of the cell and number of the repetition, with their packets. Their tables
    /// go with the folder's others when it is finished.
    pub fn discard_repetitions(&mut self, cells: &[(u32, u32)]) -> Result<()> {
        let is_named = |one: &StoredRepetition| cells.contains(&(one.cell.index, one.cell.repetition));
        // First, since no name of a file may be left for whoever gets the number.
        for number in self.head.repetitions.iter().filter(|one| is_named(one)).filter_map(|one| one.number) {
            for packets in captures(&self.path)?.iter().filter(|path| is_of(path, number)) {
                let cannot = || format!("cannot remove {}", packets.display());
                std::fs::remove_file(packets).with_context(cannot)?;
            }
        }
        self.head.repetitions.retain(|one| !is_named(one));
        self.write_head()
    }

    fn store_all(&mut self, repetitions: &[StoredElsewhere]) -> Result<()> {
        for StoredElsewhere { record, waits, packets } in repetitions {
            if let Some(packets) = packets {
                let to = self.next_pcap(&record.cell)?;
                std::fs::copy(packets, &to).with_context(|| format!("cannot write {}", to.display()))?;
            }
            self.put(record, waits.as_ref())?;
        }
        durable::sync(&self.path.join("visits"))?;
        self.write_head()
    }
}

/// What [`RunFolder::keep_agents`] has kept; `None` if this machine itself makes the run.
pub fn read_agents<T: DeserializeOwned>(folder: &Path) -> Result<Option<T>> {
    let path = folder.join(AGENTS);
    if !is_by_agents(folder) {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{filled, run};
    use super::*;

    #[test]
    fn what_another_machine_measured_is_read_back_from_this_folder() {
        let [theirs, ours] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (folder, measured) = filled(&theirs.path().join("run"));
        folder.finish(false).unwrap();
        let (their_run, all) = read_all(&theirs.path().join("run")).unwrap();
        assert_eq!((their_run.interrupted, all.len()), (false, measured.repetitions.len()));
        let path = ours.path().join("run");
        let mut folder = RunFolder::create(&path, &run()).unwrap();
        folder.import(&all).unwrap();
        folder.finish(false).unwrap();
        assert_eq!(read(&path).unwrap().repetitions, read(&theirs.path().join("run")).unwrap().repetitions);
    }

    #[test]
    fn of_repetitions_that_cannot_all_be_stored_none_is_in_the_list() {
        let [theirs, ours] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (folder, _) = filled(&theirs.path().join("run"));
        folder.finish(false).unwrap();
        let (_, mut all) = read_all(&theirs.path().join("run")).unwrap();
        all.last_mut().unwrap().packets = Some(theirs.path().join("gone.pcapng"));
        let path = ours.path().join("run");
        let mut folder = RunFolder::create(&path, &run()).unwrap();
        let error = folder.import(&all).unwrap_err().to_string();
        assert!(error.starts_with("cannot write"), "{error}");
        folder.finish(true).unwrap();
        assert!(read(&path).unwrap().repetitions.is_empty());
    }

    #[test]
    fn what_is_discarded_is_not_in_the_folder_any_more_and_can_be_measured_again() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let (mut folder, measured) = filled(&path);
        let [first, second] = [0, 1].map(|n: usize| measured.repetitions[n].clone());
        let packets = ["0000-h1.pcapng", "0001-h1.pcapng"].map(|name| {
            let packets = folder.next_pcap(&first.cell).unwrap().with_file_name(name);
            std::fs::write(&packets, "packets").unwrap();
            packets
        });
        folder.discard_repetitions(&[(first.cell.index, first.cell.repetition), (99, 0)]).unwrap();
        assert_eq!(packets.map(|packets| packets.exists()), [false, true]);
        let left = super::super::read_heads(&path).unwrap();
        assert_eq!((left.repetitions.len(), left.has(&first.cell), left.has(&second.cell)), (2, false, true));
        let again = StoredElsewhere { record: first, waits: None, packets: None };
        folder.import(&[again]).unwrap();
        folder.finish(false).unwrap();
        assert_eq!(read(&path).unwrap().repetitions, measured.repetitions, "it has the number that was free");
    }

    #[test]
    fn what_is_known_of_the_agents_is_read_back_and_a_run_without_them_has_none() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let folder = RunFolder::create(&path, &run()).unwrap();
        assert_eq!(read_agents::<Vec<String>>(&path).unwrap(), None);
        folder.keep_agents(&["kek-1"]).unwrap();
        assert_eq!(read_agents::<Vec<String>>(&path).unwrap(), Some(vec!["kek-1".to_owned()]));
        assert!(read_agents::<u32>(&path).unwrap_err().to_string().ends_with("is damaged"));
        std::fs::write(folder.incoming().unwrap().join("part"), "x").unwrap();
        assert_eq!(folder.incoming().unwrap().read_dir().unwrap().count(), 0);
        folder.finish(true).unwrap();
        super::super::discard(&path).unwrap();
        assert!(!path.exists());
    }
}
