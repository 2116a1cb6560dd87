//! Temporary files of a run: without a name, or with a unique one.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::ownership;

/// The mode of files that only their owner may read.
const SECRET: u32 = 0o600;

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
    std::path::absolute(folder.join(unpredictable(name)? + ".partial"))
}

/// A name that begins with `name` and cannot be predicted: in a folder that all users may write to, somebody else could
/// create the file first.
pub fn unpredictable(name: &str) -> io::Result<String> {
    let mut random = [0; 8];
    getrandom(&mut random[..], GetRandomFlags::empty())?;
    Ok(format!("{name}-{:016x}", u64::from_ne_bytes(random)))
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
/// must find their files.
#[derive(Debug)]
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Makes one among the system's temporary files.
    pub fn create(name: &str) -> io::Result<Self> {
        let path = unique(&std::env::temp_dir(), name)?;
        fs::DirBuilder::new().mode(0o755).create(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // Fails only if it has been removed meanwhile, which is as well.
        let _ = fs::remove_dir_all(&self.0);
    }
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
