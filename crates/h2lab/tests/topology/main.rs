//! The emulated link under the real kernel: namespaces, devices, pump, doctor.
//!
//! Namespaces are entered by a process with one thread, once. So each case runs in a process of its own: this program
//! starts itself again with the case's name in the environment. As root every case runs as root and as the user 65534,
//! and cases that move packets run over both mechanisms each time.

mod cases;
mod causes;
mod fleet;
mod ladder;

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use h2lab_lab::topology::Mechanism;
use rustix::fs::{Access, CWD, FileType, Mode, access, mknodat};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Names the case that this process runs.
const CASE: &str = "H2LAB_TOPOLOGY_CASE";
/// Names the mechanism by which that case's link moves packets; unset: whichever the program chooses.
const MECHANISM: &str = "H2LAB_TOPOLOGY_MECHANISM";
/// Set if this process is to be an agent of a fleet that a case has started.
const AGENT: &str = "H2LAB_TOPOLOGY_AGENT";
const TUN: &str = "/dev/net/tun";
/// `nobody`.
const UNPRIVILEGED: u32 = 65534;

/// A case: its name, which is a sentence, and what it does in a process of its own. It fails by a panic.
pub struct Case {
    name: &'static str,
    run: fn(),
    /// The mechanisms with which it must move packets, each in a run of its own; `None`: it moves none.
    mechanisms: &'static [Option<Mechanism>],
    /// Whether it makes TUN devices without being asked to.
    needs_tun: bool,
}

/// One run of a case.
#[derive(Clone, Copy)]
struct Work {
    case: &'static Case,
    user: User,
    mechanism: Option<Mechanism>,
}

/// Every mechanism there is.
const EACH: [Option<Mechanism>; 2] = [Some(Mechanism::PacketRing), Some(Mechanism::Tun)];

/// The mechanism that the running case is to use.
fn mechanism() -> Option<Mechanism> {
    let name = std::env::var(MECHANISM).ok()?;
    EACH.into_iter().flatten().find(|mechanism| mechanism.name() == name)
}

/// The user of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    Current,
    Unprivileged,
}

impl User {
    fn name(self) -> &'static str {
        match self {
            Self::Unprivileged => "user",
            Self::Current if rustix::process::geteuid().is_root() => "root",
            Self::Current => "current user",
        }
    }
}

/// This program again, with the work to do.
fn command(program: &Path, work: Work) -> Command {
    let mut command = Command::new(program);
    command.env(CASE, work.case.name).current_dir("/");
    if let Some(mechanism) = work.mechanism {
        command.env(MECHANISM, mechanism.name());
    }
    if work.user == User::Unprivileged {
        // std drops supplementary groups when root changes its user.
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

fn main() -> ExitCode {
    if std::env::var_os(AGENT).is_some() {
        h2lab_roles::fleet::stdio::work(h2lab_analysis::fleet::pair_figures).expect("an agent that can work");
        return ExitCode::SUCCESS;
    }
    if let Ok(name) = std::env::var(CASE) {
        let case = cases::ALL.iter().find(|case| case.name == name).expect("a case of this name");
        (case.run)();
        return ExitCode::SUCCESS;
    }
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let folder = tempfile::tempdir().expect("a folder for a copy of this program");
    let program = readable_copy(folder.path());
    if User::Current.name() == "root" {
        open_tun_to_all(folder.path()).expect("a TUN device for everybody");
    }
    let users: &[User] = match User::Current.name() {
        "root" => &[User::Current, User::Unprivileged],
        _ => &[User::Current],
    };
    let is_wanted = |case: &&Case| filters.iter().all(|filter| case.name.contains(filter.as_str()));
    let mut work = Vec::new();
    for case in cases::ALL.iter().filter(is_wanted) {
        for &user in users {
            work.extend(case.mechanisms.iter().map(|&mechanism| Work { case, user, mechanism }));
        }
    }
    if !may_open_tun() {
        let before = work.len();
        work.retain(|work| work.mechanism != Some(Mechanism::Tun) && !work.case.needs_tun);
        println!("topology: {} cases are left out: this user may not open {TUN}", before - work.len());
    }
    let failed = run_all(&program, work);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether this user may make TUN devices.
fn may_open_tun() -> bool {
    access(TUN, Access::READ_OK | Access::WRITE_OK).is_ok()
}

/// If only root may open TUN devices, the cases of the other user get a node that everybody may open, in a mount
/// namespace that ends with this process: they test what a permitted user can do.
fn open_tun_to_all(folder: &Path) -> io::Result<()> {
    let found = std::fs::metadata(TUN)?;
    if found.permissions().mode() & 0o006 == 0o006 {
        return Ok(());
    }
    // SAFETY: no thread has been started yet, and no file descriptor or working directory depends on the mounts.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let node = folder.join("tun");
    mknodat(CWD, &node, FileType::CharacterDevice, Mode::RUSR, found.rdev())?;
    std::fs::set_permissions(&node, std::fs::Permissions::from_mode(0o666))?;
    Ok(mount_bind(&node, TUN)?)
}

/// Runs the work, two cases at a time; returns how many failed.
fn run_all(program: &Path, mut work: Vec<Work>) -> usize {
    let total = work.len();
    work.reverse();
    let (work, failed) = (Mutex::new(work), Mutex::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(next) = work.lock().unwrap().pop() else { break };
                    if !run_one(program, next) {
                        *failed.lock().unwrap() += 1;
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    println!("\ntopology: {} passed, {failed} failed\n", total - failed);
    failed
}

fn run_one(program: &Path, work: Work) -> bool {
    let start = Instant::now();
    let output = command(program, work).stdin(Stdio::null()).output().expect("this program starts");
    let verdict = if output.status.success() { "ok" } else { "FAILED" };
    let by = work.mechanism.map_or(String::new(), |mechanism| format!(", {}", mechanism.name()));
    let seconds = start.elapsed().as_secs_f64();
    println!("test {} ({}{by}) ... {verdict} ({seconds:.1} s)", work.case.name, work.user.name());
    let report = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        println!("{report}{}", String::from_utf8_lossy(&output.stderr));
    }
    // `cargo xtask verify` shows them.
    report.lines().filter(|line| line.starts_with("figure: ")).for_each(|figure| println!("{figure}"));
    output.status.success()
}

/// A copy of this program where everybody may run it: the build folder may be closed to others.
fn readable_copy(folder: &Path) -> PathBuf {
    let copy = folder.join("topology-cases");
    std::fs::copy(std::env::current_exe().expect("this program has a path"), &copy)
        .expect("a copy of this program");
    for path in [folder, &copy] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
            .expect("permissions of our own file");
    }
    copy
}
