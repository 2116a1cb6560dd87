//! Files that are complete or absent, even after a kill, a full disk or a power failure during a write.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result};
use h2lab_net::ownership;

/// The ending of a file that is being written. A reader ignores it; [`sweep`] removes what a kill left of it.
pub const PARTIAL: &str = "partial";

/// Files that are written under other names first, all of them to the disk, and are then renamed. A thread for each waits for the
/// disk, so that the file system commits all of them at once. They last when their folder is [`sync`]ed.
#[derive(Debug, Default)]
pub struct Batch(Vec<Written>);

#[derive(Debug)]
struct Written {
    file: File,
    partial: PathBuf,
    path: PathBuf,
}

impl Batch {
    /// Writes the file that will be `path`.
    pub fn write(&mut self, path: &Path, write: impl FnOnce(&File) -> Result<()>) -> Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(PARTIAL);
        let partial = path.with_file_name(name);
        let file =
            ownership::create(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
        self.0.push(Written { file, partial, path: path.to_owned() });
        let file = &self.0[self.0.len() - 1].file;
        write(file).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Puts them in place, to last.
    pub fn commit(self) -> Result<()> {
        thread::scope(|scope| {
            let waits: Vec<_> = self
                .0
                .iter()
                .map(|written| {
                    let wait = thread::Builder::new().spawn_scoped(scope, || written.file.sync_all());
                    // If the thread cannot be started, this one waits.
                    wait.map_err(|_| written.file.sync_all())
                })
                .collect();
            self.0.iter().zip(waits).try_for_each(|(Written { path, .. }, wait)| {
                let synced = match wait {
                    Ok(thread) => thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
                    Err(synced) => synced,
                };
                synced.with_context(|| format!("cannot write {} to the disk", path.display()))
            })
        })?;
        self.place()
    }

    /// Puts them in place: what a kill finds complete or absent, a power failure may find empty.
    pub fn place(mut self) -> Result<()> {
        for Written { partial, path, .. } in &self.0 {
            fs::rename(partial, path).with_context(|| format!("cannot put {} in place", path.display()))?;
        }
        self.0.clear();
        Ok(())
    }
}

impl Drop for Batch {
    /// Of what was not put in place nothing is left: a disk that is full has room again.
    fn drop(&mut self) {
        for Written { partial, .. } in &self.0 {
            // Some may have been renamed, and the error that brought us here is reported.
            let _ = fs::remove_file(partial);
        }
    }
}

/// Writes one file like that.
pub fn put(path: &Path, write: impl FnOnce(&File) -> Result<()>) -> Result<()> {
    let mut batch = Batch::default();
    batch.write(path, write)?;
    batch.commit()
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
