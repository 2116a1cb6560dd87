//! Temporary files of a run: without a name, or with a unique one.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::ownership;

/// The mode of files that only their owner may read.
const SECRET: u32 = 0o600;
/// What the names of files end with that are removed when a run folder is cleaned up.
const SUFFIX: &str = ".partial";
/// The hexadecimal digits that make a name unpredictable.
const RANDOM_DIGITS: usize = 16;

/// A file without a name on the disk of `folder`: it disappears with the process, however that ends.
pub fn nameless(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        return Ok(file.into());
    }
    // Not every file system can; then it has a name for a moment.
    let (path, file) = private(folder, "nameless")?;
    fs::remove_file(path)?;
    Ok(file)
}

/// An empty file in `folder` that only this user can read. Its name begins with `name`, and ends with the suffix of
/// files that are removed when a run folder is cleaned up.
pub fn private(folder: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let path = unique(folder, name)?;
    let file = create(&path)?;
    Ok((path, file))
}

/// A path for such a file, before it is created: for another process that needs the path.
///
/// A process id would not be unique: in its own lab each process has the same.
pub fn unique(folder: &Path, name: &str) -> io::Result<PathBuf> {
    std::path::absolute(folder.join(unpredictable(name)? + SUFFIX))
}

/// A name that begins with `name` and cannot be predicted: in a folder that all users may write to, somebody else could
/// create the file first.
pub fn unpredictable(name: &str) -> io::Result<String> {
    let mut random = [0; 8];
    getrandom(&mut random[..], GetRandomFlags::empty())?;
    Ok(format!("{name}-{:0RANDOM_DIGITS$x}", u64::from_ne_bytes(random)))
}

/// Makes a file that does not exist yet, and that only this user can read.
pub fn create(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(SECRET).open(path)
}

/// Opens `path` for writing from its beginning, for the secrets of TLS: only this user can read the file, an existing one, too. A
/// symbolic link of another user is not followed; those of root, such as `/dev/stdout`, are.
pub fn secret(path: &Path) -> io::Result<File> {
    match create(path) {
        Ok(file) => {
            ownership::give_to_caller(&file);
            return Ok(file);
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let open = |follow: OFlags| {
        let flags = i32::try_from(follow.bits()).unwrap_or(0);
        File::options().write(true).create(true).truncate(true).mode(SECRET).custom_flags(flags).open(path)
    };
    let is_trusted =
        || fs::symlink_metadata(path).is_ok_and(|link| [0, geteuid().as_raw()].contains(&link.uid()));
    let file = match open(OFlags::NOFOLLOW) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) && is_trusted() => open(OFlags::empty())?,
        opened => opened?,
    };
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(SECRET))?;
    }
    Ok(file)
}

/// A folder that is removed, with its contents, when this is dropped. It is readable by all: programs that become another user
/// must find their files. What a process that was killed has left is removed when the next one makes a folder of the same name.
#[derive(Debug)]
pub struct ScratchFolder {
    path: PathBuf,
    /// The folder, locked as long as it is used. The kernel releases it when the process ends in any way.
    _lock: File,
}

impl ScratchFolder {
    /// Makes one among the system's temporary files.
    pub fn create(name: &str) -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir(), name)
    }

    fn create_in(parent: &Path, name: &str) -> io::Result<Self> {
        remove_left(parent, name);
        // Under its name another process would take it for one that was left, before it is locked.
        let (unlocked, path) = (unique(parent, &format!("unlocked-{name}"))?, unique(parent, name)?);
        fs::DirBuilder::new().mode(0o755).create(&unlocked)?;
        let lock = File::open(&unlocked)?;
        // On a file system without locks nobody can tell whether the process runs: the folder stays if it is killed.
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        fs::rename(&unlocked, &path)?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // Fails only if it has been removed meanwhile, which is as well.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of this name in `parent` whose processes have ended without that. What cannot be removed, or is another
/// user's, stays.
fn remove_left(parent: &Path, name: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let entry_name = entry.file_name();
        let entry_name = entry_name.to_str().unwrap_or_default();
        let random =
            entry_name.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(SUFFIX));
        // Longer ones belong to other names that begin like this one.
        if random.is_none_or(|random| random.len() != RANDOM_DIGITS) {
            continue;
        }
        // Locked until it is gone, so that no other process removes it as well.
        if let Some(_lock) = unused(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A folder of ours that no process uses, locked; `None` if it is another's, in use, or no folder.
fn unused(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let is_ours = folder.metadata().is_ok_and(|about| about.uid() == geteuid().as_raw());
    (is_ours && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()).then_some(folder)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn secrets_are_for_this_user_only_where_the_file_was_there_before_too() {
        let folder = tempfile::tempdir().unwrap();
        let (old, link) = (folder.path().join("old"), folder.path().join("link"));
        fs::write(&old, "long ago").unwrap();
        fs::set_permissions(&old, Permissions::from_mode(0o644)).unwrap();
        symlink(&old, &link).unwrap();
        for path in [&old, &link, &folder.path().join("new")] {
            drop(secret(path).unwrap());
            let metadata = fs::metadata(path).unwrap();
            assert_eq!((metadata.mode() & 0o777, metadata.len()), (0o600, 0), "{}", path.display());
        }
        assert!(secret(Path::new("/dev/null")).is_ok(), "a device keeps its mode");
        assert_eq!(fs::metadata("/dev/null").unwrap().mode() & 0o777, 0o666);
        // Only root can make a link of another user.
        if geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
            assert!(secret(&link).is_err());
        }
    }

    #[test]
    fn a_folder_goes_with_its_value() {
        let folder = ScratchFolder::create("h2lab-test").unwrap();
        let path = folder.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_killed_process_has_left_is_removed_by_the_next_one_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("key.pem"), "x").unwrap();
            path
        };
        let left = make("h2lab-test-0123456789abcdef.partial");
        let others = [
            make("h2lab-other-0123456789abcdef.partial"),
            make("h2lab-test-more-0123456789abcdef.partial"),
            make("h2lab-test-0123456789abcdef"),
        ];
        let link = parent.path().join("h2lab-test-fedcba9876543210.partial");
        symlink(&others[0], &link).unwrap();
        let first = ScratchFolder::create_in(parent.path(), "h2lab-test").unwrap();
        let second = ScratchFolder::create_in(parent.path(), "h2lab-test").unwrap();
        assert!(!left.exists() && first.path().exists(), "one that is used stays");
        assert!(others.iter().all(|other| other.join("key.pem").exists()), "links are not followed");
        // As if it were killed: the lock goes, and the folder stays.
        let path = first.path().to_owned();
        drop(first);
        fs::create_dir(&path).unwrap();
        drop(second);
        let third = ScratchFolder::create_in(parent.path(), "h2lab-test").unwrap();
        assert!(!path.exists() && third.path().exists());
        assert_eq!(parent.path().read_dir().unwrap().count(), others.len() + 2, "the link, and the third");
    }

    #[test]
    fn a_nameless_file_is_nowhere_to_be_seen_and_works() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = nameless(folder.path()).unwrap();
        file.write_all(b"x").unwrap();
        file.rewind().unwrap();
        let mut read = String::new();
        file.read_to_string(&mut read).unwrap();
        assert_eq!((read.as_str(), folder.path().read_dir().unwrap().count()), ("x", 0));
    }

    #[test]
    fn a_private_file_is_its_owners_alone_and_never_another() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| private(folder.path(), "keys").unwrap().0);
        assert_ne!(first, second);
        assert_eq!(rights(&first), 0o600);
        assert_eq!(first.extension().unwrap(), "partial");
    }

    fn rights(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }
}
