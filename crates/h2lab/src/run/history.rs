//! The runs that were kept in a folder, in the order in which they began.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Access, access};
use rustix::process::geteuid;
use serde::Deserialize;

/// Where runs are kept by default.
pub const PARENT: &str = "h2lab-runs";
/// How the name of a run folder begins that had to go to the temporary folder.
pub const MOVED: &str = "h2lab-run-";

/// The part of `run.json` that orders runs.
#[derive(Deserialize)]
struct Began {
    started: String,
}

/// The run folders in `parent`, newest last. Those without a start time come first: reading them reports what is wrong.
pub fn folders(parent: &Path) -> Result<Vec<PathBuf>> {
    let entries = parent.read_dir().with_context(|| format!("cannot read {}", parent.display()))?;
    let mut folders: Vec<(String, PathBuf)> = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", parent.display()))?.path();
        if path.is_dir() {
            folders.push((began(&path).unwrap_or_default(), path));
        }
    }
    folders.sort();
    Ok(folders.into_iter().map(|(_, path)| path).collect())
}

/// RFC 3339 in UTC, which sorts as text.
fn began(folder: &Path) -> Option<String> {
    let text = std::fs::read_to_string(folder.join("run.json")).ok()?;
    Some(serde_json::from_str::<Began>(&text).ok()?.started)
}

/// The folder that a user names: itself, or for `latest` and `latest~N` one of those here, unless there is a folder of
/// that name.
pub fn find(named: &Path) -> Result<PathBuf> {
    let exists = named.try_exists().with_context(|| format!("cannot read {}", named.display()))?;
    match back(&named.to_string_lossy()) {
        _ if exists => Ok(named.to_owned()),
        Some(back) => here_or_moved(Path::new(PARENT), &std::env::temp_dir(), back),
        None => bail!(
            "{} does not exist: give a run folder (`h2lab runs` lists those in {PARENT}) or `latest`; `h2lab diff` also takes \
             files of --json",
            named.display()
        ),
    }
}

/// A run in `parent`, by how far back it is. A later one of this user may lie in `temporary`, where runs go if they can go nowhere else:
/// it is said, and where runs still cannot be kept here it is what must have been meant, so that nothing else is taken for it.
fn here_or_moved(parent: &Path, temporary: &Path, back: usize) -> Result<PathBuf> {
    let found = nth_last(parent, back);
    let Some((began_at, moved)) = newest_moved(temporary) else { return found };
    let newest_here = nth_last(parent, 0).ok().and_then(|path| began(&path));
    if newest_here.is_some_and(|here| here >= began_at) {
        return found;
    }
    let lies = format!("your newest run is not in {} but in {}", parent.display(), moved.display());
    if found.is_err() || !is_writable(parent) {
        bail!("{lies}: give that path");
    }
    say!("note: {lies}, which is not meant by `latest` here");
    found
}

/// The newest run of this user that went to the temporary folder, with when it began.
fn newest_moved(temporary: &Path) -> Option<(String, PathBuf)> {
    let entries = temporary.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_ours = |path: &PathBuf| {
        let is_named = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(MOVED));
        let about = path.symlink_metadata();
        is_named && about.is_ok_and(|about| about.is_dir() && about.uid() == geteuid().as_raw())
    };
    entries.filter(is_ours).filter_map(|path| Some((began(&path)?, path))).max()
}

/// Whether a run could be kept in `parent` now.
fn is_writable(parent: &Path) -> bool {
    let place = if parent.exists() { parent } else { Path::new(".") };
    place.is_dir() && access(place, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Whether it is `latest` or `latest~N`.
pub fn is_relative(named: &Path) -> bool {
    back(&named.to_string_lossy()).is_some()
}

/// How far back `latest~N` goes.
fn back(text: &str) -> Option<usize> {
    match text.strip_prefix("latest")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

fn nth_last(parent: &Path, back: usize) -> Result<PathBuf> {
    let readable: Vec<PathBuf> = folders(parent)?.into_iter().filter(|path| began(path).is_some()).collect();
    match readable.len().checked_sub(back + 1) {
        Some(place) => Ok(readable[place].clone()),
        None => bail!("{} holds {} runs", parent.display(), readable.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with runs that began at these times, the later ones made first, and a broken one.
    fn parent() -> tempfile::TempDir {
        let parent = tempfile::tempdir().unwrap();
        for (name, started) in [("b", "2026-02-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z")] {
            std::fs::create_dir(parent.path().join(name)).unwrap();
            let text = format!("{{\"started\": \"{started}\", \"more\": 1}}");
            std::fs::write(parent.path().join(name).join("run.json"), text).unwrap();
        }
        std::fs::create_dir(parent.path().join("z")).unwrap();
        std::fs::write(parent.path().join("notes.txt"), "mine").unwrap();
        parent
    }

    #[test]
    fn the_newest_is_last_and_what_is_broken_first() {
        let parent = parent();
        let names = folders(parent.path()).unwrap();
        let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["z", "a", "b"]);
    }

    #[test]
    fn what_does_not_exist_is_answered_with_what_may_be_named() {
        let parent = parent();
        let missing = find(&parent.path().join("nope.json")).unwrap_err().to_string();
        assert!(missing.contains("nope.json does not exist: give a run folder"), "{missing}");
        assert!(find(&parent.path().join("a")).is_ok());
        let broken = find(&parent.path().join("notes.txt/run.json")).unwrap_err().to_string();
        assert!(broken.starts_with("cannot read "), "{broken}");
    }

    #[test]
    fn a_later_run_that_went_elsewhere_is_not_passed_over() {
        let (parent, temporary) = (parent(), tempfile::tempdir().unwrap());
        let of = |parent: &Path| here_or_moved(parent, temporary.path(), 0);
        let moved = |name: &str, started: &str| {
            let path = temporary.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("run.json"), format!("{{\"started\": \"{started}\"}}")).unwrap();
        };
        moved("h2lab-run-old", "2026-01-15T00:00:00Z");
        moved("other", "2026-09-01T00:00:00Z");
        assert!(of(parent.path()).unwrap().ends_with("b"), "the one here is newer");
        moved("h2lab-run-new", "2026-03-01T00:00:00Z");
        assert!(of(parent.path()).unwrap().ends_with("b"), "with a note: runs can be kept here");
        let newest = newest_moved(temporary.path()).unwrap();
        assert!(newest.1.ends_with("h2lab-run-new"), "{newest:?}");
        // A file in the place of the folder: no run can be kept.
        let refused = of(&parent.path().join("notes.txt")).unwrap_err().to_string();
        assert!(refused.contains("h2lab-run-new: give that path"), "{refused}");
        assert!(!is_writable(&parent.path().join("notes.txt")) && is_writable(parent.path()));
    }

    #[test]
    fn latest_is_the_newest_that_can_be_read_and_goes_back() {
        let parent = parent();
        assert!(nth_last(parent.path(), 0).unwrap().ends_with("b"));
        assert!(nth_last(parent.path(), 1).unwrap().ends_with("a"));
        assert!(nth_last(parent.path(), 2).unwrap_err().to_string().contains("holds 2 runs"));
        assert_eq!(
            [back("latest"), back("latest~3"), back("latest~"), back("other")],
            [Some(0), Some(3), None, None]
        );
    }
}
