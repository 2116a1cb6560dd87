//! A file and its temporary neighbours while it is being written, all in one folder that is held open: even if the path to it
//! changes, nothing is read or written elsewhere.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use h2lab_transfer::Journal;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, fstat, fsync, openat, renameat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;

/// What is appended to the name of a file while it is being written.
const PART: &str = ".part";
/// What is appended to the name of its journal.
const JOURNAL: &str = ".part.journal";
/// What is appended to that while it is being written itself.
const NEW: &str = ".part.journal.new";

/// The mode of new files, before the umask: that of `File::create`.
const MODE: Mode = Mode::from_raw_mode(0o666);

/// The names of one file, of its part and of the part's journal.
#[derive(Debug)]
pub struct Names {
    folder: OwnedFd,
    name: OsString,
}

impl AsFd for Names {
    /// The folder.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

impl Names {
    /// Of the file at `path`, whose folder must be there.
    pub fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::from(Errno::ISDIR))?;
        let parent = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        Ok(Self { folder, name: name.to_owned() })
    }

    /// Of the file `name` in `folder`, which is open for reading. `name` is one part of a path, and neither `.` nor `..`.
    pub fn within(folder: OwnedFd, name: &OsStr) -> Self {
        Self { folder, name: name.to_owned() }
    }

    /// Whether the file's name leaves no room for those of its part and of the part's journal: most file systems of Linux allow
    /// 255 bytes (pathname(7)).
    pub fn are_too_long(&self) -> bool {
        self.name.len() + NEW.len() > 255
    }

    /// Whether a file of this name would be taken for a part of another one, or for its journal.
    pub fn are_taken(name: &OsStr) -> bool {
        let name = name.as_encoded_bytes();
        [PART, JOURNAL, NEW].into_iter().any(|ending| name.ends_with(ending.as_bytes()))
    }

    /// The name of the file whose journal has this name; `None` if it is none of a journal.
    pub fn of_journal(name: &OsStr) -> Option<&OsStr> {
        let name = name.as_bytes().strip_suffix(JOURNAL.as_bytes())?;
        (!name.is_empty()).then(|| OsStr::from_bytes(name))
    }

    /// When the part or its journal was last written to; `None` if there is neither.
    pub(super) fn last_written(&self) -> Option<SystemTime> {
        let written = |ending| {
            let stat = statat(&self.folder, self.ending(ending), AtFlags::SYMLINK_NOFOLLOW).ok()?;
            SystemTime::UNIX_EPOCH.checked_add(Duration::new(u64::try_from(stat.st_mtime).ok()?, 0))
        };
        written(PART).max(written(JOURNAL))
    }

    /// What the kernel says of the file; `None` if there is nothing of its name. Links are not followed.
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The type of what has this name; `None` if there is nothing. Links are not followed.
    pub fn kind(&self) -> io::Result<Option<FileType>> {
        Ok(self.stat()?.map(|stat| FileType::from_raw_mode(stat.st_mode)))
    }

    fn ending(&self, ending: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(ending);
        name
    }

    fn open(&self, ending: &str, flags: OFlags) -> io::Result<File> {
        // Nobody may redirect our writes with a link.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.folder, self.ending(ending), flags, MODE)?.into())
    }

    /// The part, which is made if it is not there.
    pub(super) fn open_part(&self) -> io::Result<File> {
        self.open(PART, OFlags::RDWR | OFlags::CREATE)
    }

    /// Whether the part's name refers to `file`.
    pub(super) fn is_part(&self, file: &File) -> io::Result<bool> {
        let ours = fstat(file)?;
        match statat(&self.folder, self.ending(PART), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok((there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What the part's journal says, and how long the part is; `None` without a journal. Opening a FIFO would block.
    pub(super) fn journal(&self) -> io::Result<Option<(String, u64)>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let mut text = Vec::new();
        match self.open(JOURNAL, flags).and_then(|mut file| file.read_to_end(&mut text)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let part = statat(&self.folder, self.ending(PART), AtFlags::SYMLINK_NOFOLLOW);
        // Content that is not text is no journal either; the code that parses it reports that.
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Some((text, part.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0)))))
    }

    /// Writes `journal`, whole or not at all.
    pub(super) fn write_journal(&self, journal: &Journal) -> io::Result<()> {
        let mut file = self.open(NEW, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(journal.to_json().as_bytes())?;
        file.sync_all()?;
        Ok(renameat(&self.folder, self.ending(NEW), &self.folder, self.ending(JOURNAL))?)
    }

    /// Gives the part the name of the file, in one step. If it must not replace a file that has the name, that is an error
    /// (`AlreadyExists`).
    pub(super) fn complete(&self, replaces: bool) -> io::Result<()> {
        let part = self.ending(PART);
        if !replaces {
            match renameat_with(&self.folder, &part, &self.folder, &self.name, RenameFlags::NOREPLACE) {
                // Some file systems, such as NFS, cannot: there another program may create one between the check and
                // the renaming.
                Err(Errno::INVAL | Errno::NOSYS) if self.stat()?.is_some() => return Err(Errno::EXIST.into()),
                Err(Errno::INVAL | Errno::NOSYS) => {}
                renamed => return Ok(renamed?),
            }
        }
        Ok(renameat(&self.folder, part, &self.folder, &self.name)?)
    }

    pub(super) fn remove_part(&self) -> io::Result<()> {
        self.remove(PART)
    }

    pub(super) fn remove_journal(&self) -> io::Result<()> {
        self.remove(JOURNAL)
    }

    /// Removes a file that may be missing.
    fn remove(&self, ending: &str) -> io::Result<()> {
        match unlinkat(&self.folder, self.ending(ending), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Syncs the folder: a new name survives a power failure only then.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.folder)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_that_would_be_taken_for_a_part_are_known() {
        for name in ["a.part", ".part", "a.part.journal", "a.part.journal.new"] {
            assert!(Names::are_taken(OsStr::new(name)), "{name}");
        }
        for name in ["a", "part", "a.part1", "a.journal", "a.part.new"] {
            assert!(!Names::are_taken(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_part_is_not_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "others'").unwrap();
        symlink(&other, folder.path().join("f.part")).unwrap();
        let names = Names::of(&folder.path().join("f")).unwrap();
        assert!(names.open_part().is_err());
        assert_eq!(fs::read_to_string(&other).unwrap(), "others'");
    }

    #[test]
    fn what_was_renamed_or_removed_is_the_part_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let names = Names::of(&folder.path().join("f")).unwrap();
        let file = names.open_part().unwrap();
        assert!(names.is_part(&file).unwrap());
        names.complete(true).unwrap();
        assert!(!names.is_part(&file).unwrap());
        fs::write(folder.path().join("f.part"), "").unwrap();
        assert!(!names.is_part(&file).unwrap(), "another one has its name now");
    }

    #[test]
    fn a_name_that_is_taken_is_left_to_its_file_if_that_must_not_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let names = Names::of(&path).unwrap();
        for (there, replaces, is_named) in [(false, false, true), (true, false, false), (true, true, true)] {
            names.open_part().unwrap();
            if there {
                fs::write(&path, "others'").unwrap();
            }
            let outcome = names.complete(replaces);
            assert_eq!(outcome.is_ok(), is_named, "{there} {replaces}");
            let kind = outcome.map_or_else(|error| error.kind(), |()| io::ErrorKind::AlreadyExists);
            assert_eq!(kind, io::ErrorKind::AlreadyExists, "{there} {replaces}");
            assert_eq!(fs::read(&path).unwrap().is_empty(), is_named, "{there} {replaces}");
        }
    }

    #[test]
    fn what_stands_under_the_name_is_reported_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        symlink("file", folder.path().join("link")).unwrap();
        let kind = |name| Names::of(&folder.path().join(name)).unwrap().kind().unwrap();
        assert_eq!(kind("file"), Some(FileType::RegularFile));
        assert_eq!(kind("link"), Some(FileType::Symlink));
        assert_eq!(kind("nothing"), None);
    }
}
