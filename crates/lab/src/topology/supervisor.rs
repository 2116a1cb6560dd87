//! The process that stays outside of a lab: it waits, ends as the lab did, and clears up what the lab cannot.

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

use super::error::{During, TopologyError};
use super::step::Step;
use super::sys::{Forked, exit_now, fork, wait_for};

/// How a lab is told to end.
#[derive(Debug)]
pub(super) enum TerminationPolicy {
    /// By SIGKILL to its first process, which takes its PID namespace along.
    Kill,
    /// By letting go, which the subreaper hears: killed itself, it could not clear up.
    CloseLifeline,
}

/// Forks. The child returns, as the first process of the PID namespace if one was entered; the parent [attends](supervise) to
/// it. By its termination policy the child dies with the parent, or else sees by a hang-up of the returned descriptor that it is
/// gone.
pub(super) fn become_first_process(
    termination: &TerminationPolicy,
    file: Option<&Path>,
) -> Result<OwnedFd, TopologyError> {
    let (alive, lifeline) = pipe_with(PipeFlags::CLOEXEC).during(Step::PidNamespace)?;
    match fork().during(Step::PidNamespace)? {
        Forked::Parent(child) => {
            drop(alive);
            supervise(child, lifeline, termination, file);
        }
        Forked::Child => {
            drop(lifeline);
            // Until the parent hears signals there must be no file for it to remove. If it is gone, the hang-up says so.
            while rustix::io::read(&alive, &mut [0_u8]) == Err(Errno::INTR) {}
            if matches!(termination, TerminationPolicy::Kill) {
                die_with_parent(&alive)?;
            }
            Ok(alive)
        }
    }
}

/// Asks to be killed with the parent, and makes sure that it is not dead already.
///
/// `getppid` cannot tell: the parent is outside of the PID namespace, where its number is always 0. But the parent alone
/// holds the other end of `alive`.
pub(super) fn die_with_parent(alive: &OwnedFd) -> Result<(), TopologyError> {
    set_parent_process_death_signal(Some(Signal::KILL)).during(Step::DeathSignal)?;
    let mut fds = [PollFd::new(alive, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).during(Step::DeathSignal)?;
    if fds[0].revents().contains(PollFlags::HUP) {
        exit_now(128 + Signal::KILL.as_raw());
    }
    Ok(())
}

/// Waits for `child` and ends as it did. At SIGTERM or SIGHUP it ends the child first and then itself, by that signal.
///
/// `file`, which must not stay, is removed when nobody is left who could make it again. `lifeline` says by a byte that
/// signals are heard from now on, and by its end that this process is gone.
pub(super) fn supervise(
    child: Pid,
    lifeline: OwnedFd,
    termination: &TerminationPolicy,
    file: Option<&Path>,
) -> ! {
    // A kernel or a limit that refuses this leaves the signals what they were, and everything else as it is.
    let signals = Signals::listen();
    // Fails only if the child has died, and then there is nobody to tell.
    let _ = rustix::io::write(&lifeline, &[0_u8]);
    let signal = signals.ok().and_then(|signals| signals.before_end_of(child));
    if signal.is_some() {
        match termination {
            // It has not been waited for, so that the number is still its own.
            TerminationPolicy::Kill => {
                let _ = kill_process(child, Signal::KILL);
            }
            TerminationPolicy::CloseLifeline => drop(lifeline),
        }
    }
    let status = wait_for(child);
    if let Some(file) = file {
        // In good order the lab has removed it itself.
        let _ = fs::remove_file(file);
    }
    if let Some(signal) = signal {
        // Does not return; should it be refused, the status is that of a lab that was killed.
        let _ = emulate_default_handler(signal);
    }
    exit_now(status)
}

/// Hears of signals that would end this process.
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
            // In this order: whoever hears of a signal finds which it was.
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
