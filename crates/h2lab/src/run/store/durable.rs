//! Files that are complete or absent, even after a kill, a full disk or a power failure during a write.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use h2lab_net::ownership;

/// The ending of a file that is being written. A reader ignores it; [`sweep`] removes what a kill left of it.
pub const PARTIAL: &str = "partial";

/// Writes a file: under another name first, to the disk, and then renamed. It lasts when its folder is [`sync`]ed, which
/// several files can share.
pub fn put(path: &Path, write: impl FnOnce(&File) -> Result<()>) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(PARTIAL);
    let partial = path.with_file_name(name);
    let file = ownership::create(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    let written = write(&file)
        .with_context(|| format!("cannot write {}", path.display()))
        .and_then(|()| {
            file.sync_all().with_context(|| format!("cannot write {} to the disk", path.display()))
        })
        .and_then(|()| {
            fs::rename(&partial, path).with_context(|| format!("cannot put {} in place", path.display()))
        });
    if written.is_err() {
        // The first error counts; a disk that is full has room again.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Makes the names in a folder last.
pub fn sync(folder: &Path) -> Result<()> {
    let opened = File::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
    opened.sync_all().with_context(|| format!("cannot write {} to the disk", folder.display()))
}

/// Removes what was half-written in a folder.
pub fn sweep(folder: &Path) -> Result<()> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        if path.extension().is_some_and(|ending| ending == PARTIAL) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}
