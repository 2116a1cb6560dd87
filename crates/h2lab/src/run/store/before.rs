//! What was measured before a run to find its rate: ramps, in a folder of their own in that of the run.

use std::path::Path;

use anyhow::{Context, Result};
use h2lab_model::record::RunRecord;

use super::RunFolder;

/// The folder, which is read as any other run folder.
pub(super) const RAMPS: &str = "ramps";

impl RunFolder {
    /// Keeps the ramps by which the rate of this run was chosen.
    pub fn keep_ramps(&self, ramps: &RunRecord) -> Result<()> {
        let mut folder = Self::create(&self.path.join(RAMPS), ramps)?;
        ramps.repetitions.iter().try_for_each(|one| folder.stage(one))?;
        folder.finish(ramps.interrupted)
    }
}

/// The ramps before the run in `folder`; `None` if there were none, as in folders of before they were kept.
pub fn read_ramps(folder: &Path) -> Result<Option<RunRecord>> {
    let ramps = folder.join(RAMPS);
    let read = |ramps: &Path| super::read(ramps).with_context(|| format!("in {}", ramps.display()));
    ramps.is_dir().then(|| read(&ramps)).transpose()
}
