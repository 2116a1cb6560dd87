//! A file of instances, and files that are watched.
//!
//! Files are polled, without inotify: that works on every file system, and if a file, its folder or a link to either is
//! replaced.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use h2lab_proxy::registry;

use super::super::live::Found;
use super::{FIRST_LIST_TIMEOUT, Source, Unreadable};

/// How often files are checked.
const PERIOD: Duration = Duration::from_millis(250);

/// What changes when a file is written, or another one takes its place. `None`: it is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(Option<(u64, u64, u64, i64, i64)>);

impl Fingerprint {
    /// The fingerprint of the file that has this name now.
    pub fn of(path: &Path) -> Self {
        let of = |at: fs::Metadata| (at.dev(), at.ino(), at.size(), at.mtime(), at.mtime_nsec());
        Self(fs::metadata(path).ok().map(of))
    }
}

/// Files that may change. A change counts only if nothing has changed since the previous look, so that a file is not
/// read while it is being written.
#[derive(Debug, Default)]
pub struct Watched {
    files: Vec<PathBuf>,
    /// As they were when they were read.
    read: Vec<Fingerprint>,
    /// At the last look.
    seen: Vec<Fingerprint>,
}

impl Watched {
    /// Files as they are now, which are about to be read.
    pub fn new(files: Vec<PathBuf>) -> Self {
        let mut watched = Self::default();
        watched.add(files);
        watched
    }

    /// Further ones, likewise.
    pub fn add(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        for path in files {
            self.read.push(Fingerprint::of(&path));
            self.files.push(path);
        }
        self.seen.clone_from(&self.read);
    }

    /// Whether they have changed, and are to be read again.
    pub fn has_changed(&mut self) -> bool {
        let now: Vec<Fingerprint> = self.files.iter().map(|path| Fingerprint::of(path)).collect();
        let is_settled = now == self.seen;
        self.seen = now;
        let has_changed = is_settled && self.seen != self.read;
        if has_changed {
            self.read.clone_from(&self.seen);
        }
        has_changed
    }
}

/// A file of instances.
pub struct File {
    path: PathBuf,
    watched: Option<Watched>,
    /// The last time it was wrong, or could not be read. It is read again, since permissions change without a trace in
    /// the file.
    is_wrong: bool,
    unreadable: Unreadable,
}

impl File {
    pub const fn new(path: PathBuf, unreadable: Unreadable) -> Self {
        Self { path, watched: None, is_wrong: false, unreadable }
    }
}

impl Source for File {
    fn look(&mut self) -> Result<Option<Found>, String> {
        let is_new = match &mut self.watched {
            Some(watched) => watched.has_changed() || self.is_wrong,
            None => {
                self.watched = Some(Watched::new(vec![self.path.clone()]));
                true
            }
        };
        if !is_new {
            return Ok(None);
        }
        let found = read(&self.path, self.unreadable);
        self.is_wrong = found.is_err();
        found.map(Some)
    }

    fn pause(&self) -> Duration {
        PERIOD
    }

    fn longest_pause(&self) -> Duration {
        PERIOD
    }
}

/// The instances of a file, with their addresses.
fn read(path: &Path, unreadable: Unreadable) -> Result<Found, String> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, error).to_string())?;
    let name = path.display().to_string();
    let members = registry::file::instances(&name, &text).map_err(|why| format!("{name}: {why}"))?;
    Ok(Found::resolve(members, FIRST_LIST_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::sidecar::SidecarError;

    #[test]
    fn a_change_counts_once_it_has_settled() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f");
        let mut watched = Watched::new(vec![path.clone()]);
        assert!(!watched.has_changed());
        fs::write(&path, "1").expect("a file");
        assert_eq!(
            [watched.has_changed(), watched.has_changed(), watched.has_changed()],
            [false, true, false]
        );
        fs::write(&path, "22").expect("a file");
        assert!(!watched.has_changed());
        fs::write(&path, "333").expect("a file");
        assert_eq!(
            [watched.has_changed(), watched.has_changed()],
            [false, true],
            "it was still being written"
        );
        fs::write(folder.path().join("g"), "444").expect("a file");
        fs::rename(folder.path().join("g"), &path).expect("renamed");
        assert_eq!(
            [watched.has_changed(), watched.has_changed()],
            [false, true],
            "of equal size, and another file"
        );
        fs::remove_file(&path).expect("it is there");
        assert_eq!([watched.has_changed(), watched.has_changed()], [false, true]);
    }

    #[test]
    fn a_file_that_is_wrong_is_an_error_until_it_is_right() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f.json");
        let mut file = File::new(path.clone(), |path, source| SidecarError::File {
            path: path.display().to_string(),
            source: io::Error::new(source.kind(), "said elsewhere"),
        });
        assert!(file.look().is_err_and(|why| why.contains("cannot read") && why.contains("said elsewhere")));
        fs::write(&path, r#"{"instances": ["http://127.0.0.1:1"#).expect("a file");
        let mut look = || {
            let _ = file.look(); // it may still be being written
            file.look()
        };
        assert!(look().is_err_and(|why| why.contains("EOF")));
        assert!(look().is_err(), "it is still wrong");
        fs::write(&path, r#"{"instances": ["http://127.0.0.1:1", "h2c://[::1]:2"]}"#).expect("a file");
        let found = look().expect("it is right").expect("it is new");
        assert_eq!(found.set[1].address.to_string(), "[::1]:2");
        assert_eq!(look(), Ok(None));
        fs::write(&path, r#"{"instances": ["http://nope.invalid:1", "h2c://[::1]:2"]}"#).expect("a file");
        let found = look().expect("it is right").expect("it is new");
        assert_eq!((found.set.len(), found.unresolved.len()), (1, 1), "{found:?}");
    }
}
