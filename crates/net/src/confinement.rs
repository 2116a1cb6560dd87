//! Which files this process may still open: Landlock (landlock(7), Linux 5.13). It affects neither files that are open
//! already nor the network.
//!
//! It holds for the calling thread and for those that it starts afterwards, as capabilities do ([`super::privileges`]).

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, path_beneath_rules,
};

/// The newest ABI version of Landlock that is requested; an older kernel does what it supports.
const NEWEST: ABI = ABI::V5;

/// What the C library and rustls read by themselves: names of hosts, authorities, libraries that are loaded when a name
/// is first resolved.
const SYSTEM: [&str; 15] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/run/systemd/resolve",
    "/sys/fs/cgroup",
];
/// Folders of libraries, from which code may be loaded.
const LIBRARIES: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];
/// Devices, and files that are on no disk.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/urandom", "/proc/self"];

/// What may be opened, beside what the system's libraries need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allowed {
    /// Files and folders of which all may be read.
    pub read: Vec<PathBuf>,
    /// Folders in which files and sockets may be made, written and removed.
    pub write: Vec<PathBuf>,
}

/// How much of it the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confined {
    /// All.
    Fully,
    /// Part of it: the kernel is older.
    Partly,
    /// Nothing: the kernel has no Landlock, or it is switched off.
    Not,
}

impl Allowed {
    /// Whether a file may be read, as far as its path tells.
    pub fn reads(&self, path: &std::path::Path) -> bool {
        let real = path.canonicalize();
        let is_below = |folder: &PathBuf| {
            let folder = folder.canonicalize().unwrap_or_else(|_| folder.clone());
            real.as_deref().unwrap_or(path).starts_with(folder)
        };
        self.read.iter().chain(&self.write).any(is_below)
    }

    /// Permanently forbids the calling thread, and those that it starts, to open anything else. Paths that do not exist
    /// are left out.
    pub fn confine(&self) -> io::Result<Confined> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let write = read
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::MakeSock
            | AccessFs::RemoveFile;
        let confine = || -> Result<RulesetStatus, RulesetError> {
            let rules = |paths: Vec<PathBuf>, access: BitFlags<AccessFs>| path_beneath_rules(paths, access);
            let system = SYSTEM.iter().chain(&DEVICES).map(PathBuf::from).chain(self.read.iter().cloned());
            let null = vec![PathBuf::from("/dev/null")];
            let status = Ruleset::default()
                .handle_access(AccessFs::from_all(NEWEST))?
                .create()?
                .add_rules(rules(system.collect(), read))?
                .add_rules(rules(LIBRARIES.map(PathBuf::from).to_vec(), AccessFs::from_read(NEWEST)))?
                .add_rules(rules(null, read | AccessFs::WriteFile))?
                .add_rules(rules(self.write.clone(), write))?
                .restrict_self()?;
            Ok(status.ruleset)
        };
        match confine() {
            Ok(RulesetStatus::FullyEnforced) => Ok(Confined::Fully),
            Ok(RulesetStatus::PartiallyEnforced) => Ok(Confined::Partly),
            Ok(RulesetStatus::NotEnforced) => Ok(Confined::Not),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// This kernel has no Landlock: a test that passed would have tested nothing. As `support::need_of_kernel` of the
    /// tests of h2lab.
    fn skipped() {
        let skip = std::env::var("H2LAB_TEST_SKIP").unwrap_or_default();
        assert!(
            skip.split(',').any(|name| name.trim() == "landlock"),
            "this test needs Landlock in the kernel; boot a kernel of 5.13 or newer with CONFIG_SECURITY_LANDLOCK and landlock in lsm=, \
             or skip it: H2LAB_TEST_SKIP=landlock"
        );
        eprintln!("skipped, since H2LAB_TEST_SKIP names landlock");
    }

    #[test]
    fn a_thread_opens_what_it_may_and_nothing_else() {
        let [own, log, other] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        for folder in [&own, &log, &other] {
            fs::write(folder.path().join("file"), "x").unwrap();
        }
        let allowed = Allowed {
            read: vec![own.path().to_owned()],
            write: vec![log.path().to_owned(), "/does/not/exist".into()],
        };
        let file = |folder: &tempfile::TempDir| folder.path().join("file");
        assert_eq!([&own, &log, &other].map(|folder| allowed.reads(&file(folder))), [true, true, false]);
        let [own_file, log_file, other_file] = [&own, &log, &other].map(file);
        let folder = log.path().to_owned();
        let confined = std::thread::spawn(move || {
            if allowed.confine().unwrap() == Confined::Not {
                return skipped();
            }
            assert!(fs::read(&own_file).is_ok() && fs::read(&log_file).is_ok());
            let denied =
                |result: io::Result<()>| result.unwrap_err().kind() == io::ErrorKind::PermissionDenied;
            assert!(denied(fs::read(&other_file).map(drop)) && denied(fs::read("/etc/passwd").map(drop)));
            assert!(denied(fs::write(&own_file, "y")));
            fs::write(folder.join("new"), "y").unwrap();
            fs::remove_file(folder.join("new")).unwrap();
            std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
            assert!(fs::read("/etc/hosts").is_ok() && fs::read("/proc/self/status").is_ok());
            std::thread::spawn(move || assert!(denied(fs::read(&other_file).map(drop)))).join().unwrap();
        });
        confined.join().unwrap();
        assert!(fs::read(file(&other)).is_ok(), "other threads are free");
    }
}
