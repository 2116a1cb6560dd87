//! Removes what is left of uploads that nobody continues, including those of an earlier process.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use h2lab_base::text::printable;
use h2lab_net::storage::{FileSink, Names};
use rustix::fs::{Dir, DirEntry, FileType, OFlags};

use super::folder::ServedFolder;
use super::log::Log;
use super::uploads::Uploads;

/// The shortest and the longest time between two searches.
const PERIOD: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3_600)];

/// A thread that looks for unfinished uploads from time to time. A search takes the longer the larger the folder is,
/// which is why the server's own thread does not do it.
#[derive(Debug)]
pub(super) struct Expiry {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Expiry {
    /// Begins to remove uploads that have received nothing for `after`: at once, and then periodically, with a line of
    /// `log` for each.
    pub fn start(
        uploads: Arc<Uploads>,
        folder: Arc<ServedFolder>,
        after: Duration,
        log: Option<Arc<Log>>,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let period = (after / 4).clamp(PERIOD[0], PERIOD[1]);
        let remove = move || {
            loop {
                let latest = SystemTime::now().checked_sub(after);
                for path in latest.map(|latest| expire(&uploads, &folder, latest)).unwrap_or_default() {
                    if let Some(log) = &log {
                        log.write_out(&format!("expired {}", printable(path.as_os_str().as_bytes())));
                    }
                }
                if stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("expiry".to_owned()).spawn(remove)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It holds no lock and ends by itself.
            let _ = thread.join();
        }
    }
}

/// Removes the unfinished uploads that were last written to at `latest` or before; returns their paths.
fn expire(uploads: &Uploads, folder: &ServedFolder, latest: SystemTime) -> Vec<PathBuf> {
    let mut expired = uploads.expire_open(latest);
    let mut folders = vec![PathBuf::new()];
    while let Some(at) = folders.pop() {
        // A folder that cannot be read is left as it is.
        for (name, is_folder) in entries(folder, &at).unwrap_or_default() {
            let path = at.join(&name);
            if is_folder {
                folders.push(path);
            } else if let Ok(parent) = folder.open_folder(&at, OFlags::NOFOLLOW)
                // What cannot be removed now is tried again.
                && FileSink::expire(&Names::within(parent, &name), &path, latest).unwrap_or(false)
            {
                uploads.forget(&path);
                expired.push(path);
            }
        }
    }
    expired
}

/// The folders in the folder `at`, and the files of which there is a journal; links are not followed.
fn entries(folder: &ServedFolder, at: &Path) -> Option<Vec<(OsString, bool)>> {
    let entries = Dir::read_from(folder.open_folder(at, OFlags::NOFOLLOW).ok()?).ok()?;
    let entry = |entry: DirEntry| {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let is_folder = match entry.file_type() {
            FileType::Directory => true,
            // Some file systems do not report the type.
            FileType::Unknown => folder.open_folder(&at.join(name), OFlags::NOFOLLOW).is_ok(),
            _ => false,
        };
        match is_folder {
            true if name == "." || name == ".." => None,
            true => Some((name.to_owned(), true)),
            false => Names::of_journal(name).map(|file| (file.to_owned(), false)),
        }
    };
    Some(entries.flatten().filter_map(entry).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use h2lab_base::units::Time;
    use h2lab_transfer::{Journal, Validator};

    use super::super::put_content::tests::offer;
    use super::super::quota::UploadLimits;
    use super::super::uploads::Destination;
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// Makes a file as old as so many days.
    fn age(path: &Path, days: u32) {
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - DAY * days).unwrap();
    }

    /// A part of four bytes and its journal, of what is called `url`, last written to so many days ago.
    fn leave(folder: &Path, name: &str, url: &str, days: u32) {
        let mut journal = Journal::new(url, 10, Validator::Etag("\"t\"".to_owned()));
        journal.extents.insert(0..4);
        for (ending, text) in [("part", "0123".to_owned()), ("part.journal", journal.to_json())] {
            let path = folder.join(format!("{name}.{ending}"));
            fs::write(&path, text).unwrap();
            age(&path, days);
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Removes what is older than a day and a half.
    fn sweep(uploads: &Uploads, root: &Path) -> Vec<PathBuf> {
        let mut expired =
            expire(uploads, &ServedFolder::open(root, true).unwrap(), SystemTime::now() - DAY - DAY / 2);
        expired.sort();
        expired
    }

    #[test]
    fn old_uploads_of_another_process_go_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("sub/deep")).unwrap();
        fs::create_dir(place.path().join("outside")).unwrap();
        std::os::unix::fs::symlink("../outside", root.join("link")).unwrap();
        leave(&root, "old", "old", 2);
        leave(&root.join("sub/deep"), "old", "sub/deep/old", 2);
        leave(&root, "new", "new", 1);
        leave(&root, "download", "http://a/download", 2);
        leave(&place.path().join("outside"), "old", "old", 2);
        for theirs in ["movie.part", "theirs.part", "theirs.part.journal", "complete"] {
            fs::write(root.join(theirs), "theirs").unwrap();
            age(&root.join(theirs), 2);
        }
        // Written to a moment ago, though its journal is old.
        leave(&root, "active", "active", 2);
        age(&root.join("active.part"), 0);
        let expired = sweep(&Uploads::default(), &root);
        assert_eq!(expired, [PathBuf::from("old"), PathBuf::from("sub/deep/old")]);
        assert_eq!(names(&place.path().join("outside")).len(), 2);
        assert!(names(&root.join("sub/deep")).is_empty());
        let left = names(&root);
        assert!(left.iter().all(|name| !name.starts_with("old")), "{left:?}");
        for kept in ["active.part", "complete", "download.part", "movie.part", "new.part", "theirs.part"] {
            assert!(left.contains(&kept.to_owned()), "{kept}: {left:?}");
        }
    }

    #[test]
    fn an_open_upload_goes_when_nobody_continues_it_and_takes_no_room_any_more() {
        let place = tempfile::tempdir().unwrap();
        let uploads = Arc::new(Uploads::new(UploadLimits { max_total: Some(10), ..UploadLimits::default() }));
        let begin = |name: &str| {
            let names = Names::of(&place.path().join(name)).unwrap();
            let fields = [("h2lab-upload", "\"t\""), ("content-length", "10")];
            uploads.begin(Time::ZERO, offer(&fields).unwrap(), Destination::File(names, name.into()))
        };
        let mut receipt = begin("f").unwrap();
        receipt.take(b"0123");
        age(&place.path().join("f.part"), 2);
        assert!(sweep(&uploads, place.path()).is_empty(), "a request brings it");
        drop(receipt);
        assert_eq!(begin("g").unwrap_err().status, 507);
        age(&place.path().join("f.part"), 2);
        assert_eq!(sweep(&uploads, place.path()), [PathBuf::from("f")]);
        assert!(names(place.path()).is_empty());
        assert!(begin("g").is_ok());
    }

    #[test]
    fn an_upload_that_somebody_writes_stays() {
        let place = tempfile::tempdir().unwrap();
        leave(place.path(), "f", "f", 2);
        let path = place.path().join("f");
        let (_writer, journal) = FileSink::open(&path, true).unwrap();
        assert!(journal.is_some());
        assert!(sweep(&Uploads::default(), place.path()).is_empty());
        assert_eq!(names(place.path()).len(), 2);
    }
}
