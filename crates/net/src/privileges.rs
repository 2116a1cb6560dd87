//! Drops capabilities after set-up.
//!
//! Capabilities belong to threads (capabilities(7)): dropping one affects the calling thread and the threads and
//! processes that it starts afterwards, and no others. So a process calls [`keep`] before it starts its first thread.
//! Where a process must keep capabilities for longer (a lab, until its last program runs), each of its threads calls it
//! for itself. Setting them for all threads at once, by a signal to each as libpsx does, was rejected: it interrupts
//! system calls of threads that measure.
//!
//! Running as another user was rejected, too: configurations, keys and logs lie where only root, or the caller, may
//! read.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Access, AtFlags, CWD, Gid, Uid, accessat};
use rustix::io::Errno;
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// No capability.
pub const NONE: CapabilitySet = CapabilitySet::empty();

/// What root needs to write files in other users' folders, and to change the owners of files.
pub const FILES: CapabilitySet =
    CapabilitySet::CHOWN.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::FOWNER);

/// Drops every capability except `kept`, permanently, and sets `no_new_privs`.
///
/// It applies to every capability set of the calling thread. It adds none of `kept` that the thread does not have. It
/// only makes system calls, as required between fork and exec.
pub fn keep(kept: CapabilitySet) -> io::Result<()> {
    reduce_bounding_set(kept)?;
    match clear_ambient_capability_set() {
        // Before Linux 4.3 there is none.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let had = capabilities(None)?;
    let permitted = had.permitted & kept;
    let wanted = CapabilitySets { effective: permitted, permitted, inheritable: NONE };
    // Services of plain users have nothing to drop, and are often forbidden the call itself.
    if wanted != had {
        set_capabilities(None, wanted)?;
    }
    Ok(set_no_new_privs(true)?)
}

/// Drops all capabilities of a thread of ours that needs none, neither now nor later.
///
/// # Panics
/// If the kernel refuses, which only a filter of system calls can cause: the thread must not continue with all
/// capabilities.
pub fn renounce() {
    keep(NONE).expect("a thread may give up its rights: allow it capset(2) and prctl(2)");
}

/// setresuid(2), setresgid(2) and chown(2) do not take this as a user's number, but as -1: "unchanged".
const UNCHANGED: u32 = u32::MAX;

/// A user that a process may become: a name in `/etc/passwd`, a number (then also its group), or `UID:GID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// Looks it up. Fails if there is no such user, if it is root, or if a number means "unchanged" to setresuid(2).
    pub fn named(name: &str) -> io::Result<Self> {
        let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default(); // an image may have none
        let none = || {
            io::Error::new(io::ErrorKind::NotFound, format!("unknown user \"{name}\" (not in /etc/passwd)"))
        };
        let user = Self::in_text(name, &text).ok_or_else(none)?;
        let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("\"{name}\" has {why}")));
        match user {
            Self { uid: 0, .. } => wrong("UID 0"),
            // It would stay root.
            Self { uid: UNCHANGED, .. } => wrong("UID 4294967295, which is no user (it means -1)"),
            Self { gid: UNCHANGED, .. } => wrong("GID 4294967295, which is no group (it means -1)"),
            user => Ok(user),
        }
    }

    fn in_text(name: &str, passwd: &str) -> Option<Self> {
        let (uid, gid) = name.split_once(':').unwrap_or((name, name));
        if let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse()) {
            return Some(Self { uid, gid });
        }
        let mut fields = passwd
            .lines()
            .map(|line| line.split(':'))
            .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
        Some(Self { uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    }

    /// Its number.
    pub const fn uid(self) -> u32 {
        self.uid
    }

    /// Makes it the owner of an open file. Needs `CAP_CHOWN`.
    pub fn give(self, file: impl AsFd) -> io::Result<()> {
        std::os::unix::fs::fchown(file, Some(self.uid), Some(self.gid))
    }

    /// Whether it may write `path`, by the modes of the file and of its folders: tried as this user. Needs `CAP_SETUID`
    /// and `CAP_SETGID`.
    pub fn may_write(self, path: &Path) -> io::Result<()> {
        let attempt = || {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            // These calls affect this thread alone, and it ends afterwards.
            set_thread_groups(&[gid])?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)?;
            accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, attempt)?;
            Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
        })
    }

    /// Makes it the user of the process, of all its threads, permanently. The process then has only the user's group,
    /// and no capability but `kept`, which only the calling thread keeps. Needs `CAP_SETUID` and `CAP_SETGID`.
    pub fn become_it(self, kept: CapabilitySet) -> io::Result<()> {
        let Self { uid, gid } = self;
        let done = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        rustix::thread::set_keep_capabilities(!kept.is_empty())?;
        // SAFETY: it reads one number.
        done(unsafe { libc::setgroups(1, &raw const gid) })?;
        // SAFETY: these take numbers alone; the C library applies them to every thread.
        done(unsafe { libc::setresgid(gid, gid, gid) })?;
        // SAFETY: as above.
        done(unsafe { libc::setresuid(uid, uid, uid) })?;
        keep(kept)
    }
}

/// Removes all but `kept` from the bounding set, which limits what execve(2) can gain.
fn reduce_bounding_set(kept: CapabilitySet) -> io::Result<()> {
    for capability in (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number)) {
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // INVAL: the kernel has no further ones. PERM: without CAP_SETPCAP the set stays, and no_new_privs makes it useless.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether the calling thread may use all of these.
pub fn has(wanted: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.permitted.contains(wanted))
}

/// Makes the process of `command` [keep](keep()) only `kept`, before its program is executed.
pub fn keep_in(command: &mut Command, kept: CapabilitySet) {
    // SAFETY: between fork and exec it only makes system calls: no allocation, no lock.
    unsafe { command.pre_exec(move || keep(kept)) };
}

/// The first of `candidates` with which `works` succeeds in a thread that has no other capability. None if it succeeds
/// without any capability, or with none of the candidates.
pub fn needed(candidates: &[CapabilitySet], works: impl Fn() -> bool + Send) -> CapabilitySet {
    let attempt = move || {
        let Ok(sets) = capabilities(None) else { return NONE };
        let succeeds = |&effective: &CapabilitySet| {
            set_capabilities(None, CapabilitySets { effective: sets.permitted & effective, ..sets }).is_ok()
                && works()
        };
        if succeeds(&NONE) {
            return NONE;
        }
        candidates.iter().copied().find(succeeds).unwrap_or(NONE)
    };
    // A thread of its own, since effective capabilities belong to threads.
    std::thread::scope(|scope| match std::thread::Builder::new().spawn_scoped(scope, attempt) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        // The thread cannot be started; what needs a capability will fail and say so.
        Err(_) => NONE,
    })
}

/// What is needed to write `path`, a folder or a file, which need not exist yet. It is nothing where the modes allow it
/// to this user; else the capability to traverse folders that are closed to this user; else the one to ignore modes.
pub fn to_write(path: &Path) -> CapabilitySet {
    let candidates = [CapabilitySet::DAC_READ_SEARCH, CapabilitySet::DAC_OVERRIDE];
    needed(&candidates, || {
        let may = |path: &Path, how| accessat(CWD, path, how, AtFlags::EACCESS);
        let parent = path.parent().unwrap_or(path);
        match may(path, Access::WRITE_OK) {
            Ok(()) if path.is_dir() => may(path, Access::EXEC_OK).is_ok(),
            Err(Errno::NOENT) => may(parent, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
            written => written.is_ok(),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    /// What a thread has after it kept `kept`.
    fn left(kept: CapabilitySet) -> (CapabilitySets, bool) {
        let thread = std::thread::spawn(move || {
            keep(kept).unwrap();
            (capabilities(None).unwrap(), rustix::thread::no_new_privs().unwrap())
        });
        thread.join().unwrap()
    }

    #[test]
    fn a_thread_keeps_what_it_names_and_had_and_can_gain_nothing() {
        let had = capabilities(None).unwrap();
        for kept in [NONE, CapabilitySet::KILL] {
            let (sets, gains_nothing) = left(kept);
            let permitted = had.permitted & kept;
            assert_eq!(sets, CapabilitySets { effective: permitted, permitted, inheritable: NONE });
            assert!(gains_nothing);
        }
        assert_eq!(capabilities(None).unwrap(), had, "other threads keep theirs");
    }

    #[test]
    fn a_user_is_a_name_or_a_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/var/www:/usr/sbin/nologin\nshort:x:1\n";
        let of = |name: &str| User::in_text(name, passwd).map(|user| (user.uid, user.gid));
        assert_eq!([of("web"), of("65532"), of("1:2")], [(33, 34), (65532, 65532), (1, 2)].map(Some));
        assert_eq!([of("short"), of("nobody-else"), of("we"), of(""), of("1:x")], [None; 5]);
        assert!(User::named("0").is_err() && User::named("no such user").is_err());
        assert!(User::named("1:2").is_ok());
        for unchanged in ["4294967295", "4294967295:65534", "65534:4294967295"] {
            let error = User::named(unchanged).expect_err("setresuid(2) would leave root");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
    }

    #[test]
    fn whether_a_user_may_write_is_tried_as_that_user_and_changes_nothing_here() {
        if !rustix::process::geteuid().is_root() {
            return; // only root becomes others
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let (user, had) = (User { uid: 65_534, gid: 65_533 }, capabilities(None).unwrap());
        let path = |name: &str, (uid, gid), mode| {
            let path = folder.path().join(name);
            fs::write(&path, "").unwrap();
            chown(&path, Some(uid), Some(gid)).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        assert!(user.may_write(&path("own", (65_534, 0), 0o600)).is_ok());
        assert!(user.may_write(&path("of its group", (0, 65_533), 0o660)).is_ok());
        for path in [path("of root", (0, 0), 0o640), path("of root's group", (0, 0), 0o660)] {
            let error = user.may_write(&path).expect_err("it is root's");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
        assert!(rustix::process::geteuid().is_root());
        assert_eq!(capabilities(None).unwrap(), had);
    }

    #[test]
    fn a_program_has_only_what_was_kept() {
        let had = capabilities(None).unwrap().permitted;
        for kept in [NONE, CapabilitySet::KILL] {
            let mut command = Command::new("grep");
            command.args(["CapEff", "/proc/self/status"]);
            keep_in(&mut command, kept);
            let shown = String::from_utf8(command.output().unwrap().stdout).unwrap();
            let is_root = rustix::process::geteuid().is_root();
            let expected = if is_root { (had & kept).bits() } else { 0 };
            assert_eq!(shown.trim(), format!("CapEff:\t{expected:016x}"));
        }
    }

    #[test]
    fn no_more_is_needed_to_write_than_the_modes_demand() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let new = inner.join("new");
        assert_eq!([to_write(folder.path()), to_write(&inner), to_write(&new)], [NONE; 3]);
        if !rustix::process::geteuid().is_root() {
            return;
        }
        chown(folder.path(), Some(65_534), None).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        assert_eq!(to_write(folder.path()), CapabilitySet::DAC_OVERRIDE, "it is another user's");
        let closed = CapabilitySet::DAC_READ_SEARCH;
        assert_eq!([to_write(&inner), to_write(&new)], [closed; 2], "it is ours, behind another user's");
    }
}
