//! Ownership of the files that root creates: those of a run under sudo belong to the caller.
//!
//! The owner is changed only of open files (by fchown, or by a descriptor that was opened without following a symbolic
//! link), never by path: the caller may rename entries of their folders meanwhile. Where root may not change owners (a
//! container without `CAP_CHOWN`, a network file system) files stay root's: a run matters more.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fchown, fstat, openat};
use rustix::process::geteuid;

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    uid: Uid,
    gid: Gid,
}

impl Owner {
    const ROOT: Self = Self { uid: Uid::ROOT, gid: Gid::ROOT };

    /// Who called sudo, by `SUDO_UID` and `SUDO_GID`; `None` if we are not root, or if no other user did.
    fn caller() -> Option<Self> {
        let id = |name: &str| std::env::var(name).ok();
        geteuid().is_root().then(|| Self::parse(&id("SUDO_UID")?, &id("SUDO_GID")?)).flatten()
    }

    /// Parses the numbers of a user other than root. The largest number means "unchanged" to chown(2), and is not a
    /// user.
    fn parse(uid: &str, gid: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number != u32::MAX);
        let (uid, gid) = (number(uid).filter(|uid| *uid != 0)?, number(gid)?);
        Some(Self { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) })
    }

    fn of(about: &Stat) -> Self {
        Self { uid: Uid::from_raw(about.st_uid), gid: Gid::from_raw(about.st_gid) }
    }

    fn give(self, file: impl AsFd) -> io::Result<()> {
        Ok(fchown(file, Some(self.uid), Some(self.gid))?)
    }
}

/// Gives a new file, or a folder, to the caller, if root may.
pub fn give_to_caller(file: impl AsFd) {
    let _ = Owner::caller().map(|caller| caller.give(file));
}

/// [`File::create`], where a new file is the caller's. One that was there keeps its owner.
pub fn create(path: &Path) -> io::Result<File> {
    match File::create_new(path) {
        Ok(file) => {
            give_to_caller(&file);
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => File::create(path),
        Err(error) => Err(error),
    }
}

/// [`fs::write`] to such a file.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    io::Write::write_all(&mut create(path)?, content.as_ref())
}

/// [`fs::create_dir`], where the folder is the caller's.
pub fn create_dir(path: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    give_to_caller(open_folder(CWD, path)?);
    Ok(())
}

/// The same, with a mode that lets nobody else read it.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)?;
    give_to_caller(open_folder(CWD, path)?);
    Ok(())
}

/// [`fs::create_dir_all`] in the same way.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), create_dir_all)?;
    match create_dir(path) {
        // Another process has created it first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// A folder that is root's while root's processes write in it, and then its owner's.
///
/// Those processes have given up the right to write into folders of other users (see [`crate::privileges`]).
#[derive(Debug)]
pub struct Borrowed {
    folder: OwnedFd,
    owner: Owner,
}

impl Borrowed {
    /// Makes root the owner of an open folder and of everything in it that belongs to the folder's owner, down to the
    /// depth at which we create folders, as far as root may. `None` if we are not root, or if the folder is root's and
    /// nobody called sudo: then there is nothing to give back.
    pub fn take(folder: impl AsFd) -> io::Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let folder = folder.as_fd().try_clone_to_owned()?;
        let owner = Owner::of(&fstat(&folder)?);
        if owner.uid.is_root() {
            return Ok(Owner::caller().map(|owner| Self { folder, owner }));
        }
        let _ = hand_over(&folder, owner, Owner::ROOT, DEPTH);
        Ok(Some(Self { folder, owner }))
    }

    /// Gives the folder, and everything of root's in it, to its owner.
    pub fn give_back(&self) -> io::Result<()> {
        hand_over(&self.folder, Owner::ROOT, self.owner, DEPTH)
    }
}

/// The deepest nesting of folders that we create: `logs/client/haproxy/scratch/storage` and a few more levels.
const DEPTH: u32 = 12;

/// Changes the owner of everything in an open folder that belongs to `from` to `to`, and finally that of the folder
/// itself. Symbolic links, devices and the like stay as they are, and so do files with a second name (hard link): that
/// may be anywhere.
fn hand_over(folder: &OwnedFd, from: Owner, to: Owner, depth: u32) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if [c".", c".."].contains(&entry.file_name()) {
            continue;
        }
        // Opens nothing: no link is followed, and no device is touched.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match openat(folder, entry.file_name(), flags, Mode::empty()) {
            // A program that is being killed removes its files meanwhile.
            Err(rustix::io::Errno::NOENT) => continue,
            opened => opened?,
        };
        let about = fstat(&opened)?;
        if about.st_uid != from.uid.as_raw() {
            continue;
        }
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Directory if depth > 0 => {
                hand_over(&open_folder(&opened, Path::new("."))?, from, to, depth - 1)?;
            }
            FileType::RegularFile | FileType::Socket if about.st_nlink == 1 => {
                chownat(&opened, "", Some(to.uid), Some(to.gid), AtFlags::EMPTY_PATH)?;
            }
            _ => {}
        }
    }
    to.give(folder)
}

/// Opens a folder that is no symbolic link.
fn open_folder(at: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, chown, symlink};

    use super::*;

    #[test]
    fn only_numbers_of_another_user_than_root_are_a_caller() {
        let caller = |uid, gid| Owner::parse(uid, gid).map(|owner| (owner.uid.as_raw(), owner.gid.as_raw()));
        assert_eq!(caller("1000", "0"), Some((1000, 0)));
        for (uid, gid) in
            [("0", "0"), ("4294967295", "1"), ("1", "4294967295"), ("-1", "1"), ("me", "1"), ("", "")]
        {
            assert_eq!(caller(uid, gid), None, "{uid} {gid}");
        }
    }

    #[test]
    fn a_borrowed_folder_is_given_back_but_links_and_what_is_of_others_stay() {
        if !geteuid().is_root() {
            return; // only root gives files to others
        }
        let (outside, inside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| inside.path().join(name);
        let (target, elsewhere) = (outside.path().join("target"), outside.path().join("elsewhere"));
        for file in [&target, &elsewhere, &path("own"), &path("others")] {
            fs::write(file, "").unwrap();
        }
        fs::create_dir(path("logs")).unwrap();
        fs::write(path("logs/log"), "").unwrap();
        symlink(&target, path("link")).unwrap();
        symlink(outside.path(), path("folder")).unwrap();
        fs::hard_link(&elsewhere, path("second name")).unwrap();
        chown(path("others"), Some(1), Some(1)).unwrap();
        for name in ["", "own", "logs", "logs/log"] {
            chown(path(name), Some(65_534), Some(65_533)).unwrap();
        }
        let owner = |path: &Path| fs::symlink_metadata(path).map(|about| (about.uid(), about.gid())).unwrap();
        let all = || ["", "own", "logs", "logs/log"].map(|name| owner(&path(name)));

        let borrowed = Borrowed::take(File::open(inside.path()).unwrap()).unwrap().unwrap();
        assert_eq!(all(), [(0, 0); 4]);
        fs::write(path("logs/new"), "").unwrap();
        borrowed.give_back().unwrap();
        assert_eq!(all(), [(65_534, 65_533); 4]);
        assert_eq!(owner(&path("logs/new")), (65_534, 65_533));
        assert_eq!(owner(&path("others")), (1, 1));
        for kept in [&target, &elsewhere, &path("link"), &path("folder"), &outside.path().to_owned()] {
            assert_eq!(owner(kept), (0, 0), "{}", kept.display());
        }
    }
}
