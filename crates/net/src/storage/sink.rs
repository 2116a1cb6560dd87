//! Where received bytes go: nowhere, or into a file that gets its name once it is complete.
//!
//! A file is written as `NAME.part`. For a download all room is reserved before the first byte (fallocate(2)): a disk
//! that is too small fails then, and not after an hour. For an upload room is reserved as bytes arrive (`room`). A
//! [`Journal`] beside the part lists what it holds. When the file is complete, it is synced and renamed in one step
//! (rename(2)); so `NAME` is always complete.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use h2lab_base::units::format_bytes;
use h2lab_transfer::{Algorithm, Checksum, Journal};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Stat, fallocate, flock, fstatvfs};
use rustix::io::Errno;

use super::checksum::checksum;
use super::names::Names;
use super::room::{self, NoRoom, Spare};
use super::saver::Saver;

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// There is not enough room.
    #[error(
        "{}: not enough space: {} needed, {} free",
        .path.display(), format_bytes(*.needed), format_bytes(*.free)
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// Bytes that it takes in all.
        needed: u64,
        /// Bytes that its file system has left.
        free: u64,
    },
    /// The free room is to stay free.
    #[error(
        "{}: not enough space: {} more needed, {} free, of which {} are reserved (--reserve)",
        .path.display(), format_bytes(*.needed), format_bytes(*.free), format_bytes(*.spare)
    )]
    Spared {
        /// The file.
        path: PathBuf,
        /// Bytes that it still takes.
        needed: u64,
        /// Bytes that its file system has left.
        free: u64,
        /// Bytes that stay free.
        spare: u64,
    },
    /// The file would exceed the largest size that the file system, or this process (`ulimit -f`), allows.
    #[error("{}: it would be larger than a file may be here (`ulimit -f`, or the file system's limit)", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// An existing device, pipe or link has the name.
    #[error("{}: exists and is not a file; give another name, or --discard to store nothing", .path.display())]
    NotAFile {
        /// What is there.
        path: PathBuf,
    },
    /// There is a file of the name, which must not be replaced.
    #[error("{}: there is a file of this name", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another process writes it.
    #[error("{}: another process is writing it", part_of(.path).display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Its journal is inconsistent.
    #[error("{}: {why}; remove it and {}, or give --no-resume, to start over", journal_of(.path).display(), part_of(.path).display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Anything else.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl SinkError {
    /// What an error of the system means for the file at `path`, which takes `needed` bytes of the disk of `on`.
    fn of(path: &Path, needed: u64, on: impl AsFd, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => {
                let free = fstatvfs(on).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
                Self::Full { path, needed, free }
            }
            Some(Errno::FBIG) => Self::TooLarge { path },
            _ => Self::Io { path, source },
        }
    }

    /// The same for a lack of room.
    fn of_room(path: &Path, needed: u64, on: impl AsFd, why: NoRoom) -> Self {
        match why {
            NoRoom::Spared { free, spare } => Self::Spared { path: path.to_owned(), needed, free, spare },
            NoRoom::System(error) => Self::of(path, needed, on, error.into()),
        }
    }
}

/// `NAME.part`, for messages.
fn part_of(path: &Path) -> PathBuf {
    with_ending(path, ".part")
}

/// `NAME.part.journal`, for messages.
fn journal_of(path: &Path) -> PathBuf {
    with_ending(path, ".part.journal")
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Where the bytes of one transfer go.
#[derive(Debug, Default)]
pub enum Sink {
    /// Nowhere: the network is measured.
    #[default]
    Discard,
    /// Into a file.
    File(Box<FileSink>),
}

/// A file that is being written.
#[derive(Debug)]
pub struct FileSink {
    /// Its path for messages.
    path: PathBuf,
    names: Arc<Names>,
    file: Arc<File>,
    saver: Saver,
    /// Bytes of the whole, once they are known and there is room for them.
    total: Option<u64>,
}

impl FileSink {
    /// Resumes `path` if `resume` finds a part and its journal, else starts anew. Nothing else is changed before bytes arrive.
    pub fn open(path: &Path, resume: bool) -> Result<(Self, Option<Journal>), SinkError> {
        let names = Names::of(path).map_err(|source| SinkError::Io { path: path.to_owned(), source })?;
        Self::open_in(names, path, resume)
    }

    /// The same for a file whose folder is open; messages call it `path`.
    pub fn open_in(names: Names, path: &Path, resume: bool) -> Result<(Self, Option<Journal>), SinkError> {
        Self::check_in(&names, path)?;
        let failed = |source| SinkError::Io { path: path.to_owned(), source };
        let file = Self::locked(&names, path)?;
        let journal = if resume { Self::journal_in(&names, path)? } else { None };
        if journal.is_none() {
            // Without a journal the part's content is unknown.
            file.set_len(0).map_err(failed)?;
            names.remove_journal().map_err(failed)?;
        }
        let (file, names) = (Arc::new(file), Arc::new(names));
        let saver = Saver::new(Arc::clone(&file), Arc::clone(&names));
        Ok((Self { path: path.to_owned(), names, file, saver, total: None }, journal))
    }

    /// Whether the name is free, or that of a regular file, which may be replaced.
    pub fn check(path: &Path) -> Result<(), SinkError> {
        // What is wrong with the folder is reported by the code that writes there.
        Names::of(path).map_or(Ok(()), |names| Self::check_in(&names, path))
    }

    fn check_in(names: &Names, path: &Path) -> Result<(), SinkError> {
        match names.kind() {
            Ok(Some(kind)) if kind != FileType::RegularFile => {
                Err(SinkError::NotAFile { path: path.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// The part, locked against other writers. Before we had the lock, its last writer may have renamed or removed it: then what
    /// we opened is not the part any more.
    fn locked(names: &Names, path: &Path) -> Result<File, SinkError> {
        let failed = |source| SinkError::Io { path: path.to_owned(), source };
        loop {
            let file = names.open_part().map_err(failed)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
                Errno::WOULDBLOCK => SinkError::Busy { path: path.to_owned() },
                error => failed(error.into()),
            })?;
            if names.is_part(&file).map_err(failed)? {
                return Ok(file);
            }
        }
    }

    /// The journal of a file that messages call `path`, without resuming it.
    pub fn journal_in(names: &Names, path: &Path) -> Result<Option<Journal>, SinkError> {
        let found = names.journal().map_err(|source| SinkError::Io { path: journal_of(path), source })?;
        let Some((text, length)) = found else { return Ok(None) };
        let wrong = |why: String| SinkError::Journal { path: path.to_owned(), why };
        let journal = Journal::from_json(&text).map_err(|error| wrong(error.to_string()))?;
        if length == 0 {
            return Ok(None); // the part is new: what the journal lists has gone
        }
        if journal.extents.end() > length {
            return Err(wrong(format!("it lists more than the file's {length} bytes")));
        }
        Ok(Some(journal))
    }

    /// Whether there would be room now for a file of `total` bytes of which `held` are there already. Takes none: see
    /// `room::check`.
    pub fn check_room(
        names: &Names,
        path: &Path,
        total: u64,
        held: u64,
        spare: Spare,
    ) -> Result<(), SinkError> {
        let more = total.saturating_sub(held);
        room::check(names, total, more, spare).map_err(|why| SinkError::of_room(path, more, names, why))
    }

    /// Removes the part and the journal of an upload that was last written to at `latest` or before; returns whether it
    /// did. Leaves the parts of `bulk get`, parts that somebody is writing, and files that are not our parts.
    pub fn expire(names: &Names, path: &Path, latest: SystemTime) -> Result<bool, SinkError> {
        let is_old = |names: &Names| names.last_written().is_some_and(|written| written <= latest);
        if !is_old(names) {
            return Ok(false);
        }
        let failed = |source| SinkError::Io { path: path.to_owned(), source };
        let journal = names.journal().map_err(failed)?.and_then(|(text, _)| Journal::from_json(&text).ok());
        // The journal of a download names its server.
        if journal.is_none_or(|journal| journal.url.contains("://")) {
            return Ok(false);
        }
        let _locked = Self::locked(names, path)?;
        // Somebody may have continued it before we had the lock.
        if !is_old(names) {
            return Ok(false);
        }
        names.remove_journal().and_then(|()| names.remove_part()).map_err(failed)?;
        Ok(true)
    }

    /// The whole file has `total` bytes: reserves the room for it.
    fn reserve(&mut self, total: u64) -> Result<(), SinkError> {
        if self.total.replace(total) == Some(total) || total == 0 {
            return Ok(());
        }
        match fallocate(&*self.file, FallocateFlags::empty(), 0, total) {
            // Some file systems cannot: then room is taken as bytes arrive.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(self.failed(error.into())),
        }
    }

    fn write_at(&self, at: u64, data: &[u8]) -> Result<(), SinkError> {
        self.file.write_all_at(data, at).map_err(|error| self.failed(error))
    }

    /// What an error of the system means for this file.
    fn failed(&self, source: io::Error) -> SinkError {
        SinkError::of(&self.path, self.total.unwrap_or(0), &self.file, source)
    }

    /// The checksum of its first `total` bytes, read back.
    fn checksum(&self, algorithm: Algorithm, total: u64) -> Result<Option<Checksum>, SinkError> {
        checksum(&self.file, algorithm, total).map_err(|error| self.failed(error))
    }

    /// All `total` bytes are there: brings them to the disk and gives the file its name.
    fn finish(&mut self, total: u64, replaces: bool) -> Result<(), SinkError> {
        self.saver.stop();
        let finish = || {
            self.file.set_len(total)?;
            self.file.sync_all()?;
            self.names.complete(replaces)?;
            self.names.remove_journal()?;
            self.names.sync()
        };
        finish().map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => SinkError::Exists { path: self.path.clone() },
            _ => SinkError::Io { path: self.path.clone(), source },
        })
    }

    /// The transfer ends early: brings to the disk what `journal` covers.
    fn keep(&mut self, journal: &Journal) -> Result<(), SinkError> {
        self.saver.stop();
        if journal.extents.is_empty() {
            let removed = self.names.remove_journal().and_then(|()| self.names.remove_part());
            return removed.map_err(|error| self.failed(error));
        }
        self.saver.save_now(journal).map_err(|error| self.failed(error))
    }
}

impl Sink {
    /// Takes the room for `total` bytes.
    pub fn reserve(&mut self, total: u64) -> Result<(), SinkError> {
        match self {
            Self::Discard => Ok(()),
            Self::File(file) => file.reserve(total),
        }
    }

    /// Takes the room for the bytes `wanted` of a request that began at `from` and ends at `until`, and leaves `spare` free;
    /// returns up to where there is room. See `room::take`.
    pub fn take_room(
        &mut self,
        from: u64,
        wanted: Range<u64>,
        until: Option<u64>,
        spare: Spare,
    ) -> Result<u64, SinkError> {
        let needed = wanted.end - wanted.start;
        match self {
            Self::Discard => Ok(u64::MAX),
            Self::File(file) => room::take(&file.file, from, wanted, until, spare)
                .map_err(|why| SinkError::of_room(&file.path, needed, &file.file, why)),
        }
    }

    /// Stores `data` at offset `at`.
    #[inline]
    pub fn write_at(&mut self, at: u64, data: &[u8]) -> Result<(), SinkError> {
        match self {
            Self::Discard => Ok(()),
            Self::File(file) => file.write_at(at, data),
        }
    }

    /// Whether what was stored can be read again.
    pub const fn is_kept(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// The checksum of what was stored, read back; `None` if it is not kept, or nothing is summed.
    pub fn checksum(&self, algorithm: Algorithm, total: u64) -> Result<Option<Checksum>, SinkError> {
        match self {
            Self::Discard => Ok(None),
            Self::File(file) => file.checksum(algorithm, total),
        }
    }

    /// The file that has the name now; `None` if there is none, or nothing is kept.
    pub fn replaced(&self) -> Result<Option<Stat>, SinkError> {
        match self {
            Self::Discard => Ok(None),
            Self::File(file) => file.names.stat().map_err(|error| file.failed(error)),
        }
    }

    /// The metadata of what was written; `None` where nothing is kept.
    pub fn metadata(&self) -> Option<Metadata> {
        match self {
            Self::Discard => None,
            Self::File(file) => file.file.metadata().ok(),
        }
    }

    /// Makes what has arrived survive the end of this process, in the background: `journal` is called if no save is
    /// under way. An empty journal is not written. Returns `false` if a save was under way: then call it again.
    pub fn save(&mut self, journal: impl FnOnce() -> Option<Journal>) -> bool {
        match self {
            Self::Discard => true,
            Self::File(file) => file.saver.save(|| journal().filter(|journal| !journal.extents.is_empty())),
        }
    }

    /// From now on saving behaves as on a slow disk.
    #[cfg(any(test, feature = "testing"))]
    pub fn seem_saving(&self) {
        if let Self::File(file) = self {
            file.saver.seem_busy();
        }
    }

    /// Whether a save is under way, so that dropping this would have to wait.
    pub fn is_saving(&self) -> bool {
        matches!(self, Self::File(file) if file.saver.is_busy())
    }

    /// Completes the file. If it must not replace another one, and a file has its name by now, that is
    /// [`SinkError::Exists`].
    pub fn finish(&mut self, total: u64, replaces: bool) -> Result<(), SinkError> {
        match self {
            Self::Discard => Ok(()),
            Self::File(file) => file.finish(total, replaces),
        }
    }

    /// The transfer ends early: what `journal` covers can be resumed.
    pub fn keep(&mut self, journal: &Journal) -> Result<(), SinkError> {
        match self {
            Self::Discard => Ok(()),
            Self::File(file) => file.keep(journal),
        }
    }

    /// Discards what was stored.
    pub fn throw_away(&mut self) {
        if let Self::File(file) = self {
            file.saver.stop();
            // Leftovers are overwritten by the next attempt.
            let _ = file.names.remove_journal().and_then(|()| file.names.remove_part());
        }
    }
}

/// Whether two files cannot be written at the same time: they are the same, or one is a temporary neighbour of the other.
pub fn collide(a: &Path, b: &Path) -> bool {
    let is_beside = |one: &Path, other: &Path| {
        [part_of(one), journal_of(one), with_ending(&journal_of(one), ".new")]
            .iter()
            .any(|path| path == other)
    };
    a == b || is_beside(a, b) || is_beside(b, a)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use h2lab_transfer::{Digest, Validator};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// A sink for ten bytes, and a journal of the first four.
    fn begun(path: &Path) -> (Sink, Journal) {
        let (file, journal) = FileSink::open(path, true).unwrap();
        assert!(journal.is_none());
        let mut sink = Sink::File(Box::new(file));
        sink.reserve(10).unwrap();
        sink.write_at(0, b"0123").unwrap();
        let mut journal = Journal::new("http://a/f", 10, Validator::Etag("\"a\"".to_owned()));
        journal.extents.insert(0..4);
        (sink, journal)
    }

    #[test]
    fn what_is_kept_is_taken_up_and_completed_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let (mut sink, journal) = begun(&path);
        sink.keep(&journal).unwrap();
        drop(sink);
        assert_eq!(names(folder.path()), ["f.part", "f.part.journal"]);
        let (file, found) = FileSink::open(&path, true).unwrap();
        assert_eq!(found.as_ref(), Some(&journal));
        let mut sink = Sink::File(Box::new(file));
        sink.write_at(4, b"456789").unwrap();
        let sum = sink.checksum(Algorithm::Crc32c, 10).unwrap().unwrap();
        let mut expected = Digest::new(Algorithm::Crc32c);
        expected.update(b"0123456789");
        assert_eq!(Some(sum), expected.checksum());
        sink.finish(10, true).unwrap();
        assert_eq!(names(folder.path()), ["f"]);
        assert_eq!(fs::read(&path).unwrap(), b"0123456789");
    }

    #[test]
    fn without_a_journal_or_if_asked_to_it_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let (mut sink, journal) = begun(&path);
        sink.keep(&journal).unwrap();
        drop(sink);
        let (_, found) = FileSink::open(&path, false).unwrap();
        assert!(found.is_none());
        assert_eq!(names(folder.path()), ["f.part"], "the journal of what is no more goes");
        assert_eq!(fs::read(part_of(&path)).unwrap(), b"");
        fs::write(part_of(&path), "of nobody knows what").unwrap();
        assert!(FileSink::open(&path, true).unwrap().1.is_none());
        assert_eq!(fs::read(part_of(&path)).unwrap(), b"");
    }

    #[test]
    fn a_journal_that_lies_is_refused_and_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let (mut sink, journal) = begun(&path);
        sink.keep(&journal).unwrap();
        drop(sink);
        fs::write(part_of(&path), "012").unwrap();
        let error = FileSink::open(&path, true).unwrap_err();
        assert!(matches!(error, SinkError::Journal { .. }), "{error}");
        assert!(error.to_string().contains("--no-resume"), "{error}");
        for damaged in [b"{}".as_slice(), b"\xff\xfe\0", b""] {
            fs::write(journal_of(&path), damaged).unwrap();
            assert!(matches!(FileSink::open(&path, true), Err(SinkError::Journal { .. })), "{damaged:?}");
        }
    }

    #[test]
    fn only_one_writes_a_file_and_a_useless_part_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let (mut sink, _) = begun(&path);
        assert!(matches!(FileSink::open(&path, true), Err(SinkError::Busy { .. })));
        sink.throw_away();
        assert!(names(folder.path()).is_empty());
        let (mut sink, mut journal) = begun(&path);
        sink.save(|| Some(journal.clone()));
        journal.extents = h2lab_transfer::Extents::new();
        sink.keep(&journal).unwrap();
        assert!(names(folder.path()).is_empty(), "a part without a byte is of no use");
    }

    #[test]
    fn a_device_a_pipe_or_a_link_keeps_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let [link, ours, part] = ["link", "f", "f.part"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        for path in [&link, Path::new("/dev/null"), folder.path()] {
            let opened = FileSink::open(path, true);
            assert!(matches!(opened, Err(SinkError::NotAFile { .. })), "{}", path.display());
        }
        assert_eq!(names(folder.path()), ["link"]);
        std::os::unix::fs::symlink("elsewhere", &part).unwrap();
        assert!(matches!(FileSink::open(&ours, true), Err(SinkError::Io { .. })));
        fs::remove_file(&part).unwrap();
        fs::write(&ours, "of before").unwrap();
        assert!(FileSink::open(&ours, true).is_ok(), "a file is replaced");
    }

    #[test]
    fn a_journal_beside_an_empty_part_covers_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let (mut sink, journal) = begun(&path);
        sink.keep(&journal).unwrap();
        drop(sink);
        fs::write(part_of(&path), "").unwrap();
        assert!(FileSink::open(&path, true).unwrap().1.is_none());
        assert_eq!(names(folder.path()), ["f.part"]);
    }

    #[test]
    fn two_files_collide_if_one_lies_beside_the_other_while_it_is_written() {
        let collide = |a: &str, b: &str| collide(Path::new(a), Path::new(b));
        for other in ["d/f", "d/f.part", "d/f.part.journal", "d/f.part.journal.new"] {
            assert!(collide("d/f", other) && collide(other, "d/f"), "{other}");
        }
        assert!(!collide("d/f", "e/f.part") && !collide("d/f", "d/g.part"));
    }

    #[test]
    fn what_was_saved_by_and_by_is_there_when_it_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let (mut sink, journal) = begun(&path);
        sink.save(|| Some(journal.clone()));
        // As if the process had ended: a save under way completes.
        drop(sink);
        assert_eq!(FileSink::open(&path, true).unwrap().1, Some(journal));
    }
}
