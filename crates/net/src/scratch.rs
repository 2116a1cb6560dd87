//! Temporary files of a run: without a name, or with a unique one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::rand::{GetRandomFlags, getrandom};

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

/// An empty file in `folder` that only this user can read. Its name begins with `name` and has the ending by which a run folder
/// is swept.
pub fn private(folder: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let path = unique(folder, name)?;
    let file = create(&path)?;
    Ok((path, file))
}

/// A path for such a file, before it is made: for another process that has to know it.
///
/// A process id would not be unique: in its own lab each process has the same.
pub fn unique(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom(&mut random[..], GetRandomFlags::empty())?;
    std::path::absolute(folder.join(format!("{name}-{:016x}.partial", u64::from_ne_bytes(random))))
}

/// Makes a file that does not exist yet, and that only this user can read.
pub fn create(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(SECRET).open(path)
}

/// Opens `path` for writing from its beginning: only this user can read a new file; an existing one keeps its mode. For the
/// secrets of TLS.
pub fn secret(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(SECRET).open(path)
}

/// A folder that is removed, with its contents, when this is dropped. It is readable by all: programs that become another user
/// must find their files.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
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

impl Drop for Folder {
    fn drop(&mut self) {
        // Fails only if it has been removed meanwhile, which is as well.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_goes_with_its_value() {
        let folder = Folder::create("h2lab-test").unwrap();
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

    #[test]
    fn a_file_of_secrets_is_its_owners_alone_unless_its_owner_has_said_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("link.pcapng");
        secret(&path).unwrap().write_all(b"long").unwrap();
        assert_eq!(rights(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        secret(&path).unwrap().write_all(b"x").unwrap();
        assert_eq!((rights(&path), fs::read(&path).unwrap().as_slice()), (0o640, &b"x"[..]));
    }
}
