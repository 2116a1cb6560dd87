//! From an ordinary process into fresh namespaces: the same for root and for a plain user.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};

use super::capability_check::in_child;
use super::error::{During, Result, TopologyError};
use super::interrupts::Interrupts;
use super::setup_step::SetupStep;
use super::spec::Mechanism;
use super::subreaper;
use super::supervisor::{TerminationPolicy, become_first_process};
use super::sys::{threads, unshare};

/// The isolation levels, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IsolationLevel {
    /// Root's own rights: namespaces without a user namespace.
    Root,
    /// A user namespace, in which a plain user has the necessary rights.
    User,
    /// `CAP_NET_ADMIN` in the network namespace that it was started in, and nothing else.
    Reflector,
}

impl IsolationLevel {
    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user-namespace",
            Self::Reflector => "reflector",
        }
    }
}

/// The namespaces that this process is now in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnteredNamespaces {
    /// The isolation level of the run.
    pub isolation_level: IsolationLevel,
    /// Why it is not a better one; `None` unless only the reflector was left.
    pub refusal: Option<String>,
    /// Whether `/proc` shows our own PID namespace. Without (some containers mask `/proc` and forbid a new one) it shows the
    /// outer one's numbers, so that `/proc/PID` of a child is another process.
    pub has_own_proc: bool,
}

impl EnteredNamespaces {
    /// Whether the run has root's rights on the machine.
    pub fn is_root(&self) -> bool {
        self.isolation_level == IsolationLevel::Root
    }

    /// Puts the calling thread into another fresh network namespace, so that [`super::Namespaces::create`] can be called once
    /// more: as long as a process is left in the network before, its devices are there, too. Behind a reflector there is no
    /// other namespace, and the devices have ended with their descriptors.
    pub fn renew(&self) -> Result<()> {
        match self.isolation_level {
            IsolationLevel::Reflector => Ok(()),
            IsolationLevel::Root | IsolationLevel::User => {
                unshare(UnshareFlags::NEWNET).during(SetupStep::NetworkNamespace)
            }
        }
    }

    /// The mechanism that [`super::TopologySpec::mechanism`] must name; `None` leaves the choice.
    pub fn mechanism(&self) -> Option<Mechanism> {
        (self.isolation_level == IsolationLevel::Reflector).then_some(Mechanism::Reflector)
    }
}

/// Moves the process into fresh network, mount and PID namespaces, and returns as the first process of the latter.
///
/// Root with `CAP_SYS_ADMIN` needs no user namespace. Everybody else gets one in which the user keeps its number: a fake root was
/// rejected, since servers that start as "root" then fail to change their user. The process has all capabilities in the new
/// namespaces; a program that it executes as a plain user has none of them, as it should.
///
/// The calling process remains and only waits. It ends with the status of the process that returned (128 + n after
/// signal n). If the calling process dies first, by any signal, the kernel kills the process that returned, and with it
/// all processes of the PID namespace. So to end a lab, kill the process that was started. (The first process of a PID
/// namespace ignores signals from inside the namespace for which it has no handler.) Call it before the first thread
/// starts.
///
/// Where namespaces are refused but we have `CAP_NET_ADMIN`, the process stays in its namespaces, ready for a reflector; the
/// replacement of the PID namespace is described in `subreaper.rs`.
pub fn enter() -> Result<EnteredNamespaces> {
    enter_beside(Outside::default())
}

/// What the process that remains outside does beside waiting.
#[derive(Debug, Default)]
pub struct Outside<'a> {
    /// A file or a folder that it removes when the last process of the lab has ended, also if SIGTERM or SIGHUP ends
    /// it. For files that the lab creates and that must not remain.
    pub removed: Option<&'a Path>,
    /// Signals that it passes on to the lab, which then ends cleanly. If `None`, SIGTERM and SIGHUP kill the lab, and
    /// all other signals have their default actions.
    pub interrupts: Option<&'a mut Interrupts>,
}

/// The same as [`enter`], where the remaining process has more to do.
pub fn enter_beside(mut outside: Outside<'_>) -> Result<EnteredNamespaces> {
    match threads() {
        Ok(1) | Err(_) => {}
        Ok(threads) => return Err(TopologyError::ThreadsRunning { threads }),
    }
    if let Some(refusal) = only_the_reflector()? {
        let above = subreaper::become_subreaped_process(&outside)?;
        outside.listen_to(above);
        return Ok(EnteredNamespaces {
            isolation_level: IsolationLevel::Reflector,
            refusal: Some(refusal),
            has_own_proc: false,
        });
    }
    let isolation_level = if enter_namespaces()? { IsolationLevel::Root } else { IsolationLevel::User };
    let above = become_first_process(&TerminationPolicy::Kill, &outside)?;
    outside.listen_to(above);
    Ok(EnteredNamespaces { isolation_level, refusal: None, has_own_proc: mount_proc().is_ok() })
}

impl Outside<'_> {
    /// Called in the lab: from now on, each byte that the process outside writes is a signal.
    fn listen_to(&mut self, above: OwnedFd) {
        if let Some(interrupts) = &mut self.interrupts {
            interrupts.listen_to(above);
        }
    }
}

/// Why only the reflector is available; `None` if namespaces may be, too. Only the reflector is available if this
/// process has `CAP_NET_ADMIN` in its network namespace and cannot create namespaces.
///
/// A child tries to create them, since entering a user namespace gives up the capabilities outside.
fn only_the_reflector() -> Result<Option<String>> {
    let sets = capabilities(None).during(SetupStep::UserNamespace)?;
    let is_full_root = geteuid().is_root() && sets.effective.contains(CapabilitySet::SYS_ADMIN);
    if is_full_root || !sets.effective.contains(CapabilitySet::NET_ADMIN) {
        return Ok(None);
    }
    Ok(in_child(&|| enter_namespaces().map(drop))?.map(|refusal| refusal.text))
}

/// Leaves the old namespaces; returns whether that was with root's own rights.
fn enter_namespaces() -> Result<bool> {
    let is_root = enter_network_namespace()?;
    unshare(UnshareFlags::NEWNS).during(SetupStep::MountNamespace)?;
    unshare(UnshareFlags::NEWPID).during(SetupStep::PidNamespace)?;
    Ok(is_root)
}

/// Enters a fresh network namespace, and a user namespace first if necessary; `true` if that was not necessary.
pub(super) fn enter_network_namespace() -> Result<bool> {
    if geteuid().is_root() {
        match unshare(UnshareFlags::NEWNET) {
            Ok(()) => return Ok(true),
            // Root of a container without CAP_SYS_ADMIN is a plain user here.
            Err(Errno::PERM) => {}
            Err(error) => return Err(TopologyError::refused(SetupStep::NetworkNamespace, error)),
        }
    }
    enter_user_namespace()?;
    unshare(UnshareFlags::NEWNET).during(SetupStep::NetworkNamespace)?;
    Ok(false)
}

/// Creates a user namespace in which this user and group keep their numbers.
pub(super) fn enter_user_namespace() -> Result<()> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER).during(SetupStep::UserNamespace)?;
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(|source| TopologyError::Refused {
            step: SetupStep::UserNamespace,
            source,
            detail: format!("writing {file}"),
        })
    };
    // Without rights outside, mapping the own group requires giving up setgroups first (user_namespaces(7)).
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))
}

/// Shows our own PID namespace under `/proc`, to ourselves only.
fn mount_proc() -> io::Result<()> {
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    Ok(())
}
