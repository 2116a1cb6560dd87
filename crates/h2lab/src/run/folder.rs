//! Where a run is kept, and on what machine it was made.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

pub use h2lab_net::machine::{cpus, machine};
use h2lab_net::{ownership, scratch};

use super::history::MOVED;

/// The run folder: the one the user named, else `h2lab-runs/<UTC>-<seed>` here, else, if that cannot be written, a
/// temporary one.
pub fn choose(named: Option<&Path>, started: SystemTime, seed: u64) -> Result<PathBuf> {
    if let Some(path) = named {
        ownership::create_dir_all(path)
            .with_context(|| format!("--out {}: cannot create it", path.display()))?;
        // Tables of an earlier run would mix with this one's.
        let mut entries =
            path.read_dir().with_context(|| format!("--out {}: cannot read it", path.display()))?;
        if entries.next().is_some() {
            bail!("--out {}: the folder is not empty; give a new one", path.display());
        }
        return Ok(path.to_owned());
    }
    let stamp: String = humantime::format_rfc3339_seconds(started)
        .to_string()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    match unique(Path::new("h2lab-runs"), &stamp, seed) {
        Ok(path) => Ok(path),
        Err(error) => {
            let path = private(&std::env::temp_dir(), &stamp, seed).context(
                "cannot create a run folder here or in the temporary folder; give one with --out DIR",
            )?;
            say!("note: ./h2lab-runs cannot be written ({error}); the run goes to {}", path.display());
            Ok(path)
        }
    }
}

/// A folder of this name that did not exist before: two runs of one second do not share one.
fn unique(parent: &Path, stamp: &str, seed: u64) -> std::io::Result<PathBuf> {
    ownership::create_dir_all(parent)?;
    let mut path = parent.join(format!("{stamp}-{seed}"));
    let mut n = 1;
    loop {
        match ownership::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                n += 1;
                path = parent.join(format!("{stamp}-{seed}-{n}"));
            }
            Err(error) => return Err(error),
        }
    }
}

/// A folder among those of all users: of a name that nobody could take before, and closed to them.
fn private(parent: &Path, stamp: &str, seed: u64) -> std::io::Result<PathBuf> {
    let path = parent.join(scratch::unpredictable(&format!("{MOVED}{stamp}-{seed}"))?);
    ownership::create_private_dir(&path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_folder_must_be_empty_and_is_never_touched_if_not() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join("thesis.txt"), "mine").unwrap();
        let error = choose(Some(parent.path()), SystemTime::UNIX_EPOCH, 1).unwrap_err();
        assert!(error.to_string().contains("not empty"), "{error}");
        assert!(parent.path().join("thesis.txt").exists());
        choose(Some(&parent.path().join("new")), SystemTime::UNIX_EPOCH, 1).unwrap();
    }

    #[test]
    fn among_temporary_files_a_run_has_a_folder_that_is_its_users_alone_and_was_nobodys_before() {
        use std::os::unix::fs::PermissionsExt as _;
        let parent = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| private(parent.path(), "20261121T000000Z", 1).unwrap());
        assert_ne!(first, second);
        assert_eq!(first.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(first.parent(), Some(parent.path()), "no folder between that another user may have made");
    }

    #[test]
    fn two_runs_of_one_second_do_not_share_a_folder() {
        let parent = tempfile::tempdir().unwrap();
        let first = unique(parent.path(), "20261121T000000Z", 1).unwrap();
        let second = unique(parent.path(), "20261121T000000Z", 1).unwrap();
        assert_ne!(first, second);
        assert!(second.ends_with("20261121T000000Z-1-2"));
    }
}
