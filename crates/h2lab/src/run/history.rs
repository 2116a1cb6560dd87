//! The runs that were kept in a folder, in the order in which they began.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Where runs are kept by default.
pub const PARENT: &str = "h2lab-runs";

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
        Some(back) => nth_last(Path::new(PARENT), back),
        None => bail!(
            "{} does not exist: give a run folder (`h2lab runs` lists those in {PARENT}) or `latest`; `h2lab diff` also takes \
             files of --json",
            named.display()
        ),
    }
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
