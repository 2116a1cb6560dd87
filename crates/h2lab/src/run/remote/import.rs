//! What an agent measured of a unit, taken over: the part is unpacked and read, and only what was asked for is used.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};
use h2lab_model::record::{MeasuredOn, tally};
use h2lab_model::scenario::Cell;

use crate::run::part;
use crate::run::store::{self, StoredElsewhere};

/// The unit of a part.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    /// The plan of the run.
    pub plan: &'a [Cell],
    /// The unit's repetitions, by index of the cell and number of the repetition.
    pub cells: &'a [(u32, u32)],
    /// Who measured it.
    pub on: MeasuredOn,
}

/// The repetitions in the part `file`, unpacked into `into`, a folder that is not there yet.
pub(super) fn read(file: &Path, into: &Path, expected: &Expected<'_>) -> Result<Vec<StoredElsewhere>> {
    part::unpack(file, into, part::MOST_BYTES)?;
    let (_, repetitions) = store::read_all(into)?;
    checked(repetitions, expected)
}

/// These repetitions, if they are all of the unit and nothing else. Of their cells only index and number are believed.
fn checked(repetitions: Vec<StoredElsewhere>, expected: &Expected<'_>) -> Result<Vec<StoredElsewhere>> {
    let (mut seen, mut impossible) = (BTreeSet::new(), BTreeSet::new());
    let mut checked = Vec::with_capacity(repetitions.len());
    for mut one in repetitions {
        let key = (one.record.cell.index, one.record.cell.repetition);
        let planned = expected.plan.iter().find(|cell| (cell.index, cell.repetition) == key);
        let planned = planned.filter(|_| expected.cells.contains(&key));
        let (index, repetition) = key;
        ensure!(planned.is_some(), "repetition {repetition} of cell {index} is not of this unit");
        ensure!(seen.insert(key), "repetition {repetition} of cell {index} is there twice");
        ensure!(
            tally::add_up(&one.record.tallies),
            "the counts of repetition {repetition} of cell {index} contradict each other or are too large"
        );
        if one.record.unsupported.is_some() {
            impossible.insert(index);
        }
        if let Some(planned) = planned {
            one.record.cell = planned.clone();
        }
        one.record.machine = Some(expected.on.clone());
        one.record.agents.clear();
        checked.push(one);
    }
    // One record stands for all repetitions of a cell that its server does not speak.
    let is_there = |key: &&(u32, u32)| seen.contains(*key) || impossible.contains(&key.0);
    if let Some((index, repetition)) = expected.cells.iter().find(|key| !is_there(key)) {
        anyhow::bail!("repetition {repetition} of cell {index} is missing");
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::queue::{Job, JobState, lacking};
    use super::*;
    use crate::run::store::RunFolder;
    use h2lab_model::record::testing::{Model, counted, one_repetition, run};
    use h2lab_model::record::{CellRecord, HostId};
    use h2lab_model::scenario::Scenario;

    fn plan() -> Vec<Cell> {
        let text = "repetitions = 2\n[link]\ndelay = ['1ms', '5ms']\n[matrix]\nprotocols = ['h1', 'h2c']\nconnections = 4";
        Scenario::from_toml(text).unwrap().plan()
    }

    fn on() -> MeasuredOn {
        let [agent, machine, likeness] = ["kek-1", "Linux, 4 CPUs", "alike"].map(str::to_owned);
        MeasuredOn { agent, machine, likeness, host: HostId::new("x") }
    }

    /// The repetitions of the first two cells.
    fn unit(plan: &[Cell]) -> Vec<(u32, u32)> {
        let of_unit = plan.iter().filter(|cell| cell.index < 2);
        of_unit.map(|cell| (cell.index, cell.repetition)).collect()
    }

    fn elsewhere(record: CellRecord) -> StoredElsewhere {
        StoredElsewhere { record, waits: None, packets: None }
    }

    fn made(plan: &[Cell], keys: &[(u32, u32)]) -> Vec<StoredElsewhere> {
        let find = |key: &(u32, u32)| plan.iter().find(|cell| (cell.index, cell.repetition) == *key).unwrap();
        keys.iter().map(|key| elsewhere(CellRecord::empty(find(key).clone()))).collect()
    }

    fn refusal(plan: &[Cell], repetitions: Vec<StoredElsewhere>) -> String {
        let cells = unit(plan);
        checked(repetitions, &Expected { plan, cells: &cells, on: on() }).unwrap_err().to_string()
    }

    #[test]
    fn the_repetitions_of_a_unit_come_with_their_machine_and_the_cells_of_the_plan() {
        let plan = plan();
        let cells = unit(&plan);
        let mut repetitions = made(&plan, &cells);
        repetitions[0].record.cell.connections = 99;
        repetitions[0].record.machine = Some(MeasuredOn { agent: "another".to_owned(), ..on() });
        let taken = checked(repetitions, &Expected { plan: &plan, cells: &cells, on: on() }).unwrap();
        assert_eq!(taken.len(), 4);
        for one in &taken {
            assert_eq!(one.record.machine, Some(on()));
            assert!(plan.contains(&one.record.cell), "what the agent says of a cell is not believed");
        }
    }

    #[test]
    fn what_is_not_of_the_unit_or_there_twice_or_missing_is_refused() {
        let plan = plan();
        let cells = unit(&plan);
        let mut more = cells.clone();
        more.push((2, 0));
        assert_eq!(refusal(&plan, made(&plan, &more)), "repetition 0 of cell 2 is not of this unit");
        let mut twice = cells.clone();
        twice.push(cells[1]);
        assert!(refusal(&plan, made(&plan, &twice)).ends_with("is there twice"));
        assert!(refusal(&plan, made(&plan, &cells[1..])).ends_with("is missing"));
        let mut unknown = made(&plan, &cells);
        unknown[0].record.cell.repetition = 7;
        assert!(refusal(&plan, unknown).ends_with("is not of this unit"));
    }

    #[test]
    fn counts_that_contradict_each_other_are_refused() {
        let plan = plan();
        let cells = unit(&plan);
        let with_counts = || {
            let mut made = made(&plan, &cells);
            let last = &mut made[3].record;
            *last = counted(one_repetition(&last.cell, last.cell.repetition, &Model::CLEAN));
            made
        };
        assert!(checked(with_counts(), &Expected { plan: &plan, cells: &cells, on: on() }).is_ok());
        let mut wrong = with_counts();
        wrong[3].record.tallies[0].response =
            serde_json::from_str(r#"{"buckets":[[5,1]],"n":1,"sum_ns":5,"min_ns":9,"max_ns":1}"#).unwrap();
        let (index, repetition) = cells[3];
        let expected = format!("the counts of repetition {repetition} of cell {index} contradict each other");
        let why = refusal(&plan, wrong);
        assert!(why.starts_with(&expected), "{why}");
    }

    #[test]
    fn one_record_stands_for_a_cell_that_its_server_does_not_speak() {
        let plan = plan();
        let cells = unit(&plan);
        let of_first: Vec<(u32, u32)> = cells.iter().copied().filter(|(index, _)| *index == 0).collect();
        let mut repetitions = made(&plan, &of_first);
        let other = plan.iter().find(|cell| cell.index == 1).unwrap();
        repetitions.push(elsewhere(CellRecord::unsupported(other.clone(), "no".to_owned())));
        assert!(checked(repetitions, &Expected { plan: &plan, cells: &cells, on: on() }).is_ok());
    }

    #[test]
    fn a_unit_of_which_a_repetition_was_damaged_is_measured_again_as_a_whole_by_one_machine() {
        let parent = tempfile::tempdir().unwrap();
        let (path, plan) = (parent.path().join("run"), plan());
        let cells = unit(&plan);
        let made_by = |agent: &str| {
            let on = MeasuredOn { agent: agent.to_owned(), ..on() };
            let of_unit = plan.iter().filter(|cell| cells.contains(&(cell.index, cell.repetition)));
            let made = of_unit.map(|cell| {
                let mut record = one_repetition(cell, cell.repetition, &Model::CLEAN);
                record.cell = cell.clone();
                elsewhere(record)
            });
            checked(made.collect(), &Expected { plan: &plan, cells: &cells, on }).unwrap()
        };
        let mut folder = RunFolder::create(&path, &run(Vec::new())).unwrap();
        folder.import(&made_by("kek-1")).unwrap();
        drop(folder);
        std::fs::write(path.join("visits/0001.samples.parquet"), "damaged").unwrap();
        let store::Reopened { mut folder, run: mut record, discarded } = store::reopen(&path).unwrap();
        assert_eq!((record.repetitions.len(), discarded.len()), (3, 1));
        let (lacks, missing, state) = (Vec::new(), BTreeMap::new(), JobState::Open);
        let job = Job { cells: cells.clone(), copy: 0, class: 0, lacks, missing, state };
        assert!(job.is_begun(&record) && lacking(&cells, &record, &plan).is_some());
        folder.discard_repetitions(&job.cells).unwrap();
        record.repetitions.retain(|one| !job.has(&one.cell));
        assert!(!job.is_begun(&record));
        folder.import(&made_by("kek-2")).unwrap();
        folder.finish(false).unwrap();
        let stored = store::read(&path).unwrap();
        let agents = stored.repetitions.iter().map(|one| one.machine.as_ref().unwrap().agent.as_str());
        assert_eq!(agents.collect::<Vec<_>>(), ["kek-2"; 4]);
        assert!(plan.iter().filter(|cell| job.has(cell)).all(|cell| stored.has(cell)));
    }

    #[test]
    fn parts_are_imported_in_any_order_and_none_is_counted_twice() {
        let parent = tempfile::tempdir().unwrap();
        let plan = plan();
        let halves = [0, 2].map(|first| {
            let of_half = plan.iter().filter(|cell| (first..first + 2).contains(&cell.index));
            of_half.map(|cell| (cell.index, cell.repetition)).collect::<Vec<_>>()
        });
        let part = |n: usize, cells: &[(u32, u32)]| {
            let path = parent.path().join(format!("theirs-{n}"));
            let mut folder = RunFolder::create(&path, &run(Vec::new())).unwrap();
            for cell in plan.iter().filter(|cell| cells.contains(&(cell.index, cell.repetition))) {
                folder.stage(&one_repetition(cell, cell.repetition, &Model::CLEAN)).unwrap();
            }
            folder.finish(false).unwrap();
            let file = parent.path().join(format!("part-{n}"));
            part::pack(&path, &file).unwrap();
            file
        };
        let ours = parent.path().join("ours");
        let mut folder = RunFolder::create(&ours, &run(Vec::new())).unwrap();
        let mut record = run(Vec::new());
        // The second half first, and once more.
        for (n, half) in [1, 0, 1].into_iter().enumerate() {
            let file = part(n, &halves[half]);
            let expected = Expected { plan: &plan, cells: &halves[half], on: on() };
            let mut new = read(&file, &parent.path().join(format!("into-{n}")), &expected).unwrap();
            new.retain(|one| !record.has(&one.record.cell));
            folder.import(&new).unwrap();
            record.repetitions.extend(new.into_iter().map(|one| one.record));
        }
        folder.finish(false).unwrap();
        let stored = store::read(&ours).unwrap();
        assert_eq!((stored.repetitions.len(), record.repetitions.len()), (plan.len(), plan.len()));
        assert!(plan.iter().all(|cell| stored.has(cell)));
        assert!(stored.repetitions.iter().all(|one| one.machine == Some(on()) && !one.samples.is_empty()));
    }
}
