//! What a run folder has besides if agents make its run: a file about them, and the run folders of machines that repeat its plan.

use std::path::{Path, PathBuf};

use anyhow::Result;
use h2lab_model::record::RunRecord;

use super::read_figures;

/// The folder of the further measurements of a plan, each a run folder of its own.
pub(super) const REPRODUCTIONS: &str = "reproductions";
/// The file about the agents that make a run.
pub(super) const AGENTS: &str = "agents.json";
/// The folder of what comes from agents until it is taken over.
pub(super) const INCOMING: &str = "incoming";

/// Whether agents make the run of a folder.
pub fn is_by_agents(folder: &Path) -> bool {
    folder.join(AGENTS).exists()
}

/// The run folder, in that of a run, of the measurement number `copy` of its plan; the run itself is number 0.
pub fn reproduction(folder: &Path, copy: u32) -> PathBuf {
    match copy {
        0 => folder.to_owned(),
        _ => folder.join(REPRODUCTIONS).join(copy.to_string()),
    }
}

/// The further measurements of a run's plan, in order, without frames, packets and samples of TCP; none where only one machine has
/// measured it.
pub fn read_reproductions(folder: &Path) -> Result<Vec<RunRecord>> {
    let folders = (1..).map(|copy| reproduction(folder, copy));
    let there = folders.take_while(|folder| folder.join("run.json").is_file());
    there.map(|folder| read_figures(&folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::RunFolder;
    use super::super::tests::{filled, run};
    use super::*;

    #[test]
    fn reproductions_are_numbered_from_one_without_a_hole() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        RunFolder::create(&path, &run()).unwrap().finish(false).unwrap();
        assert!(read_reproductions(&path).unwrap().is_empty());
        for copy in [1, 2, 4] {
            let (folder, _) = filled(&reproduction(&path, copy));
            folder.finish(false).unwrap();
        }
        let found = read_reproductions(&path).unwrap();
        assert_eq!(found.iter().map(|run| run.repetitions.len()).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(reproduction(&path, 0), path);
    }
}
