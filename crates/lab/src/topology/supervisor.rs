//! The process outside of a lab: it waits, ends as the lab did, and cleans up what the lab cannot.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, pipe};

use super::error::{During, Result};
use super::setup_step::SetupStep;
use super::sys::{Forked, exit_now, fork, wait_for};
use h2lab_net::privileges::{self, CapabilitySet};

/// How a lab is ended.
#[derive(Debug)]
pub(super) enum TerminationPolicy {
    /// By SIGKILL to its first process, which ends its PID namespace.
    Kill,
    /// By closing the lifeline, which the subreaper notices: killed itself, it could not clean up.
    CloseLifeline,
}

/// Forks. The child returns, as the first process of the PID namespace if one was entered; the parent [supervises](supervise) it.
/// By its termination policy the child dies with the parent, or learns of the parent's end by a hang-up of the returned
/// descriptor.
pub(super) fn become_first_process(termination: &TerminationPolicy, file: Option<&Path>) -> Result<OwnedFd> {
    let (alive, lifeline) = pipe_with(PipeFlags::CLOEXEC).during(SetupStep::PidNamespace)?;
    match fork().during(SetupStep::PidNamespace)? {
        Forked::Parent(child) => {
            drop(alive);
            supervise(child, lifeline, termination, file);
        }
        Forked::Child => {
            drop(lifeline);
            // Before the parent handles signals there must be no file for it to remove. If it is gone, the hang-up says so.
            while rustix::io::read(&alive, &mut [0_u8]) == Err(Errno::INTR) {}
            if matches!(termination, TerminationPolicy::Kill) {
                die_with_parent(&alive)?;
            }
            Ok(alive)
        }
    }
}

/// Requests to be killed with the parent, and checks that it is not dead already.
///
/// `getppid` does not help: the parent is outside of the PID namespace, where its number is always 0. But only the parent holds
/// the other end of `alive`.
pub(super) fn die_with_parent(alive: &OwnedFd) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).during(SetupStep::DeathSignal)?;
    let mut fds = [PollFd::new(alive, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).during(SetupStep::DeathSignal)?;
    if fds[0].revents().contains(PollFlags::HUP) {
        exit_now(128 + Signal::KILL.as_raw());
    }
    Ok(())
}

/// Waits for `child` and ends as it did. At SIGTERM or SIGHUP it ends the child first and then itself, by that signal.
///
/// `file` (or a folder), which must not stay, is removed when no process is left that could make it again. `lifeline` carries a byte once
/// signals are handled, and ends with this process.
pub(super) fn supervise(
    child: Pid,
    lifeline: OwnedFd,
    termination: &TerminationPolicy,
    file: Option<&Path>,
) -> ! {
    // The child is this user's, and may be killed without a right. The file may lie in a folder of another user's.
    let kept = if file.is_some() { CapabilitySet::DAC_OVERRIDE } else { privileges::NONE };
    privileges::keep(kept).expect("a process may give up its rights: allow it capset(2) and prctl(2)");
    // If a kernel or a limit refuses this, signals keep their defaults and the rest works.
    let signals = Signals::listen();
    // Fails only if the child has died, and then nothing is lost.
    let _ = rustix::io::write(&lifeline, &[0_u8]);
    let signal = signals.ok().and_then(|signals| signals.before_end_of(child));
    if signal.is_some() {
        match termination {
            // It has not been reaped, so the number is still its own.
            TerminationPolicy::Kill => {
                let _ = kill_process(child, Signal::KILL);
            }
            TerminationPolicy::CloseLifeline => drop(lifeline),
        }
    }
    let status = wait_for(child);
    if let Some(file) = file {
        // In an orderly end the lab has removed it itself.
        let _ = if file.is_dir() { fs::remove_dir_all(file) } else { fs::remove_file(file) };
    }
    if let Some(signal) = signal {
        // Does not return; if it fails, the status is that of a killed lab.
        let _ = emulate_default_handler(signal);
    }
    exit_now(status)
}

/// Catches signals that would end this process.
#[derive(Debug)]
struct Signals {
    /// Readable when there was one.
    reader: OwnedFd,
    /// The last one; 0 for none.
    which: Arc<AtomicUsize>,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let which = Arc::new(AtomicUsize::new(0));
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        for signal in [SIGTERM, SIGHUP] {
            // In this order: the waker must find which signal it was.
            signal_hook::flag::register_usize(signal, Arc::clone(&which), signal.unsigned_abs() as usize)?;
            pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self { reader, which })
    }

    /// Waits for a signal or the end of `child`, which is not reaped; `None` for the latter.
    fn before_end_of(&self, child: Pid) -> Option<i32> {
        let ended = pidfd_open(child, PidfdFlags::empty()).ok()?;
        let mut fds = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&self.reader, PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
        match self.which.load(Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}
