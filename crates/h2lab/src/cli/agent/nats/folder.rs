//! The folder of an agent alone, which is removed when the agent ends. One that was killed cannot: what it has left is removed by
//! the next agent that starts beside it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

/// What the names of these folders begin with.
const PREFIX: &str = "h2lab-agent-";
/// The file that the agent of a folder has locked while it runs. The kernel releases it when the agent ends in any way. It is in
/// the folder once it is locked, and as long as anything else is.
const LOCK: &str = "agent.lock";

/// The folder of an agent that runs.
#[derive(Debug)]
pub struct AgentFolder {
    path: PathBuf,
    /// Held as long as the folder is used.
    _lock: File,
}

impl AgentFolder {
    /// Makes one in `parent`, which only this user can read.
    pub fn make(parent: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // Under its name it would be taken for that of an agent that has ended, before it is locked.
        let unlocked = folder.path().join("unlocked");
        let lock = File::create_new(&unlocked)?;
        // On a file system without locks nobody can tell whether the agent runs: the folder stays if it is killed.
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::rename(&unlocked, folder.path().join(LOCK))?;
        }
        Ok(Self { path: folder.keep(), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for AgentFolder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next agent.
        let _ = remove(&self.path);
    }
}

/// Removes the folders in `parent` whose agents have ended without that. Those that cannot be removed, or may be of others, stay.
pub fn remove_left(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    named.map(|entry| entry.path()).filter(|folder| is_removed(folder)).collect()
}

/// Removes a folder if it is ours and of an agent that has ended; whether it was removed.
fn is_removed(folder: &Path) -> bool {
    let is_ours =
        fs::symlink_metadata(folder).is_ok_and(|about| about.is_dir() && about.uid() == geteuid().as_raw());
    if !is_ours {
        return false;
    }
    let Ok(lock) = File::open(folder.join(LOCK)) else { return false };
    // Held until the folder is gone, so that another agent that starts now lets it be.
    flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() && remove(folder).is_ok()
}

/// Removes a folder, the file that is locked last: by it the folder is known if this ends in the middle.
fn remove(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir_all(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as an agent that was killed leaves it: with a file of a share, and a lock that nobody holds.
    fn left_by_a_killed_agent(parent: &Path, name: &str) -> PathBuf {
        let folder = parent.join(name);
        fs::create_dir_all(folder.join("share-1/run")).unwrap();
        fs::write(folder.join("share-1/part.tar"), "x").unwrap();
        fs::write(folder.join(LOCK), "").unwrap();
        folder
    }

    #[test]
    fn a_folder_is_gone_with_all_that_is_in_it_when_its_agent_ends() {
        let parent = tempfile::tempdir().unwrap();
        let folder = AgentFolder::make(parent.path()).unwrap();
        fs::create_dir(folder.path().join("unit-1")).unwrap();
        fs::write(folder.path().join("unit-1/part.tar"), "x").unwrap();
        drop(folder);
        assert_eq!(parent.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_agent_has_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let left = left_by_a_killed_agent(parent.path(), "h2lab-agent-a");
        let running = AgentFolder::make(parent.path()).unwrap();
        let other_name = left_by_a_killed_agent(parent.path(), "agent-a");
        let without_lock = parent.path().join("h2lab-agent-b");
        fs::create_dir(&without_lock).unwrap();
        let no_folder = parent.path().join("h2lab-agent-c");
        fs::write(&no_folder, "x").unwrap();
        let link = parent.path().join("h2lab-agent-d");
        std::os::unix::fs::symlink(&other_name, &link).unwrap();
        assert_eq!(remove_left(parent.path()), std::slice::from_ref(&left));
        assert!(!left.exists());
        for kept in [running.path(), &other_name, &without_lock, &no_folder, &link] {
            assert!(kept.exists(), "{}", kept.display());
        }
        assert!(other_name.join("share-1/part.tar").exists(), "links are not followed");
        assert!(remove_left(&parent.path().join("none")).is_empty());
    }

    #[test]
    fn a_folder_of_another_user_stays() {
        // Only root can make one.
        if !geteuid().is_root() {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let folder = left_by_a_killed_agent(parent.path(), "h2lab-agent-a");
        std::os::unix::fs::chown(&folder, Some(65_534), None).unwrap();
        assert!(remove_left(parent.path()).is_empty() && folder.exists());
        std::os::unix::fs::chown(&folder, Some(0), None).unwrap();
        assert_eq!(remove_left(parent.path()), [folder]);
    }
}
