//! The files of one folder, and nothing else of the machine.
//!
//! Paths come from clients. The kernel resolves them, beneath the folder (openat2(2), `RESOLVE_BENEATH`): neither `..` nor a
//! symbolic link leads out of it, even if something is renamed meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, CWD, Mode, OFlags, ResolveFlags, Stat, fadvise, openat, openat2};
use rustix::io::Errno;

use super::range::Validators;
use h2lab_base::calendar::http_date;
use h2lab_net::storage::{FileState, Names};

/// A folder whose files are served.
#[derive(Debug)]
pub struct ServedFolder {
    root: OwnedFd,
    /// Clients upload files to it: unfinished ones must not be served.
    takes_uploads: bool,
}

/// A file that was found there.
#[derive(Debug)]
pub struct ServedFile {
    /// The file, open for reading.
    pub file: Arc<File>,
    /// Its length in bytes.
    pub length: u64,
    /// What distinguishes this state of it from others, for clients.
    pub validators: Validators,
    /// The same, for ourselves.
    pub state: FileState,
}

/// Why a path cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It is no path: an incomplete escape, a NUL, a part that is `..`.
    #[error("the path is malformed")]
    Malformed,
    /// There is no such file, or it is a folder, a device, or outside.
    #[error("no such file")]
    Missing,
    /// It is longer than the longest content.
    #[error("nothing here is longer than 1 PiB")]
    TooLong,
    /// A name in it is longer than names of files can be.
    #[error("a name in the path is too long for a file, or for a file that is not complete")]
    NameTooLong,
    /// It exists and may not be read or written.
    #[error("permission denied")]
    Denied,
    /// The system failed.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for FolderError {
    fn from(error: io::Error) -> Self {
        Errno::from_io_error(&error).map_or(Self::Io(error), Self::from)
    }
}

impl From<Errno> for FolderError {
    fn from(error: Errno) -> Self {
        match error {
            // XDEV and LOOP: it leads outside, or over a link that may not be followed.
            Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::XDEV | Errno::LOOP | Errno::NXIO => {
                Self::Missing
            }
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            error => Self::Io(error.into()),
        }
    }
}

impl ServedFolder {
    /// Opens the folder at `path`, which may take uploads.
    pub fn open(path: &Path, takes_uploads: bool) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: openat(CWD, path, flags, Mode::empty())?, takes_uploads })
    }

    /// The file that the path of a request names.
    pub fn find(&self, path: &str) -> Result<ServedFile, FolderError> {
        let path = decode(path)?;
        if self.takes_uploads && path.file_name().is_some_and(Names::are_taken) {
            return Err(FolderError::Missing);
        }
        // Opening a FIFO would block for a writer.
        let file = File::from(self.open_beneath(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(FolderError::Missing);
        }
        // Only read-ahead keeps a disk busy while a block is being sent. Without it we are only slower.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        let etag = etag(metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        let modified = u64::try_from(metadata.mtime()).ok().map(http_date);
        let validators = Validators { etag, modified };
        let state = FileState::of(&metadata);
        Ok(ServedFile { file: Arc::new(file), length: metadata.len(), validators, state })
    }

    /// The names of the file that the path of a request leads to, and that path beneath the folder. The folder that the
    /// file lies in must exist.
    pub fn names(&self, path: &str) -> Result<(Names, PathBuf), FolderError> {
        let path = decode(path)?;
        let name = path.file_name().ok_or(FolderError::Missing)?.to_owned();
        let parent = self.open_folder(path.parent().unwrap_or(Path::new("")), OFlags::empty())?;
        Ok((Names::within(parent, &name), path))
    }

    /// Opens the folder `path`, relative to this one and beneath it, for reading; an empty path is this one.
    pub(super) fn open_folder(&self, path: &Path, more: OFlags) -> Result<OwnedFd, FolderError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.open_beneath(path, OFlags::RDONLY | OFlags::DIRECTORY | more, Mode::empty())
    }

    /// Opens `path`, relative to the folder and beneath it.
    pub(super) fn open_beneath(
        &self,
        path: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, FolderError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, resolve)?)
    }
}

/// What distinguishes a state of a file from others: a strong entity tag, from its inode, its length and when it was last
/// changed.
pub(super) fn etag(inode: u64, length: u64, seconds: i64, nanos: i64) -> String {
    let changed = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    format!("\"{inode:x}-{length:x}-{changed:x}\"")
}

/// The same, from the metadata of a file.
pub(super) fn etag_of(stat: &Stat) -> String {
    etag(
        stat.st_ino,
        u64::try_from(stat.st_size).unwrap_or(0),
        stat.st_mtime,
        i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
    )
}

/// The path of a request as one beneath the folder: percent-decoded, without the slash that it begins with.
pub(super) fn decode(path: &str) -> Result<PathBuf, FolderError> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit(), digit());
                let (Some(high), Some(low)) = (high, low) else { return Err(FolderError::Malformed) };
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    if decoded.contains(&0) {
        return Err(FolderError::Malformed);
    }
    if decoded.ends_with(b"/") || decoded.ends_with(b"/.") {
        return Err(FolderError::Missing); // a folder
    }
    let mut path = PathBuf::new();
    for part in decoded.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." {
            return Err(FolderError::Malformed);
        }
        path.push(OsStr::from_bytes(part));
    }
    if path.as_os_str().is_empty() { Err(FolderError::Missing) } else { Ok(path) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with a file, beside one that must not be reachable.
    fn folder() -> (tempfile::TempDir, ServedFolder) {
        let place = tempfile::tempdir().unwrap();
        let inside = place.path().join("inside");
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::write(place.path().join("secret"), "outside").unwrap();
        fs::write(inside.join("a file"), "inside").unwrap();
        fs::write(inside.join("sub/b"), "below").unwrap();
        symlink("../secret", inside.join("out")).unwrap();
        symlink("/etc/passwd", inside.join("absolute")).unwrap();
        symlink("../a file", inside.join("sub/in")).unwrap();
        symlink("..", inside.join("up")).unwrap();
        let folder = ServedFolder::open(&inside, false).unwrap();
        (place, folder)
    }

    #[test]
    fn an_unfinished_upload_is_nobodys_to_get() {
        let (place, folder) = folder();
        fs::write(place.path().join("inside/a.part"), "half").unwrap();
        assert_eq!(folder.find("/a.part").unwrap().length, 4, "where there are no uploads it is a file");
        let writable = ServedFolder::open(&place.path().join("inside"), true).unwrap();
        for path in ["/a.part", "/a.p%61rt", "/./a.part"] {
            assert!(matches!(writable.find(path), Err(FolderError::Missing)), "{path}");
        }
    }

    #[test]
    fn files_beneath_the_folder_are_found_by_their_escaped_names() {
        let (_place, folder) = folder();
        for (path, length) in [("/a%20file", 6), ("/sub/b", 5), ("//sub/./b", 5), ("/sub/in", 6)] {
            assert_eq!(folder.find(path).unwrap().length, length, "{path}");
        }
    }

    #[test]
    fn nothing_outside_of_the_folder_is_found_by_any_spelling() {
        let (_place, folder) = folder();
        for path in [
            "/../secret",
            "/sub/../../secret",
            "/%2e%2e/secret",
            "/..%2fsecret",
            "/a%00",
            "/%",
            "/%2",
            "/%zz",
        ] {
            assert!(matches!(folder.find(path), Err(FolderError::Malformed)), "{path}");
        }
        for path in [
            "/out",
            "/absolute",
            "/up/secret",
            "//etc/passwd",
            "/",
            "/sub",
            "/nothing",
            "/a%20file/x",
            "/sub/b/",
            "/sub/b/.",
        ] {
            assert!(matches!(folder.find(path), Err(FolderError::Missing)), "{path}");
        }
        let long = format!("/{}", "x".repeat(300));
        assert!(matches!(folder.find(&long), Err(FolderError::NameTooLong)));
    }

    #[test]
    fn a_file_that_has_changed_has_another_tag() {
        let (place, folder) = folder();
        let tag = || folder.find("/sub/b").unwrap().validators.etag;
        let before = tag();
        assert_eq!(before, tag());
        fs::write(place.path().join("inside/sub/b"), "longer").unwrap();
        assert_ne!(before, tag());
        assert!(before.starts_with('"') && before.ends_with('"'), "{before} is strong");
    }
}
