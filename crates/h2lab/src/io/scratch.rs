//! Files for the time of a run: without a name, or with one that nobody else has.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::rand::{GetRandomFlags, getrandom};

/// A file without a name on the disk of `folder`: it is gone with the process, however that ends.
pub fn nameless(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        return Ok(file.into());
    }
    // Not every file system can; then it has a name for a moment.
    let (path, file) = create(folder, "nameless")?;
    fs::remove_file(path)?;
    Ok(file)
}

/// An empty file in `folder` that only this user can read. Its name begins with `name` and ends as those do that a run
/// folder is swept of.
pub fn private(folder: &Path, name: &str) -> io::Result<PathBuf> {
    create(folder, name).map(|(path, _)| path)
}

/// The number of a process would not do: in a lab of its own each has the same.
fn create(folder: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let mut random = [0; 8];
    getrandom(&mut random[..], GetRandomFlags::empty())?;
    let path =
        std::path::absolute(folder.join(format!("{name}-{:016x}.partial", u64::from_ne_bytes(random))))?;
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((path, file))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
        let [first, second] = [(); 2].map(|()| private(folder.path(), "keys").unwrap());
        assert_ne!(first, second);
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(first.extension().unwrap(), "partial");
    }
}
