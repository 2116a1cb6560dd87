//! The process outside of a lab: it waits, ends as the lab did, and cleans up what the lab cannot.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, pipe};

use super::enter::Outside;
use super::error::{During, Result};
use super::interrupts::Interrupts;
use super::setup_step::SetupStep;
use super::sys::{Forked, exit_now, fork, wait_for};
use h2lab_net::privileges::{self, CapabilitySet};

/// How a lab is ended.
#[derive(Debug)]
pub(super) enum TerminationPolicy {
    /// By SIGKILL to its first process, which ends its PID namespace.
    Kill,
    /// By closing the lifeline, which the subreaper detects: if the subreaper itself were killed, it could not clean
    /// up.
    CloseLifeline,
}

/// Forks. The child returns, as the first process of the PID namespace if one was entered; the parent
/// [supervises](supervise) it. Depending on the termination policy, the child is killed with the parent, or detects the
/// parent's end by a hang-up of the returned descriptor. That descriptor has a byte for each signal that is passed on.
pub(super) fn become_first_process(
    termination: &TerminationPolicy,
    outside: &Outside<'_>,
) -> Result<OwnedFd> {
    let (alive, lifeline) = pipe_with(PipeFlags::CLOEXEC).during(SetupStep::PidNamespace)?;
    match fork().during(SetupStep::PidNamespace)? {
        Forked::Parent(child) => {
            drop(alive);
            supervise(child, lifeline, termination, outside);
        }
        Forked::Child => {
            drop(lifeline);
            // Waits until the parent handles signals: before that, there must be no file for the parent to remove. If
            // the parent is gone, the read ends by the hang-up.
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

/// Waits for `child` and ends as it did. Interrupts are passed on to it, as bytes of `lifeline`. At a SIGTERM or SIGHUP
/// that is not an interrupt, it ends the child first and then itself, by that signal.
///
/// The file that must not remain is removed when no process is left that could create it again. `lifeline` carries a
/// byte once signals are handled, and is closed when this process ends.
pub(super) fn supervise(
    child: Pid,
    lifeline: OwnedFd,
    termination: &TerminationPolicy,
    outside: &Outside<'_>,
) -> ! {
    // The child belongs to this user, so killing it needs no capability. The file may be in another user's folder.
    let kept = if outside.removed.is_some() { CapabilitySet::DAC_OVERRIDE } else { privileges::NONE };
    privileges::keep(kept).expect("a process may give up its rights: allow it capset(2) and prctl(2)");
    // If a kernel or a limit refuses this, signals keep their defaults and the rest works.
    let interrupts = outside.interrupts.as_deref();
    let signals = Signals::listen(interrupts.map_or(&[], Interrupts::signals));
    // Fails only if the child has died, and then nothing is lost.
    let _ = rustix::io::write(&lifeline, &[0_u8]);
    // A signal that came before that moment is passed on again: the child does not assume that it has received it.
    if let Some(signal) = interrupts.and_then(Interrupts::early) {
        pass_on(signal, &lifeline);
    }
    let signal = signals.ok().and_then(|signals| signals.before_end_of(child, &lifeline));
    if signal.is_some() {
        match termination {
            // It has not been reaped, so the PID is still its own.
            TerminationPolicy::Kill => {
                let _ = kill_process(child, Signal::KILL);
            }
            TerminationPolicy::CloseLifeline => drop(lifeline),
        }
    }
    let status = wait_for(child);
    if let Some(file) = outside.removed {
        // If the lab ended cleanly, it has removed the file itself.
        let _ = if file.is_dir() { fs::remove_dir_all(file) } else { fs::remove_file(file) };
    }
    if let Some(signal) = signal {
        // Does not return; if it fails, the status is that of a killed lab.
        let _ = emulate_default_handler(signal);
    }
    exit_now(status)
}

/// Passes a signal on to the lab. If the lab does not read any more, it is about to end.
fn pass_on(signal: i32, lifeline: &OwnedFd) {
    let _ = rustix::io::write(lifeline, &[signal.to_le_bytes()[0]]);
}

/// Catches signals that would end this process, and those that are for the lab.
#[derive(Debug)]
struct Signals {
    /// Readable after a signal.
    reader: OwnedFd,
    /// The last signal that ends this process; 0 for none.
    which: Arc<AtomicUsize>,
    /// The last signal for the lab; 0 if there was none since the last one was passed on.
    passed_on: Arc<AtomicUsize>,
}

impl Signals {
    /// Catches SIGTERM and SIGHUP, and `interrupts`, which are for the lab.
    fn listen(interrupts: &[i32]) -> io::Result<Self> {
        let [which, passed_on] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let ending = [SIGTERM, SIGHUP].into_iter().filter(|signal| !interrupts.contains(signal));
        let all = ending.map(|signal| (signal, &which));
        for (signal, flag) in all.chain(interrupts.iter().map(|&signal| (signal, &passed_on))) {
            // In this order: when the pipe becomes readable, the signal's number must be stored already.
            signal_hook::flag::register_usize(signal, Arc::clone(flag), signal.unsigned_abs() as usize)?;
            pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self { reader, which, passed_on })
    }

    /// Waits for a signal that ends this process, or for the end of `child`, which it does not reap; `None` for the
    /// latter. Until then it passes on the signals for the child.
    fn before_end_of(&self, child: Pid, lifeline: &OwnedFd) -> Option<i32> {
        let ended = pidfd_open(child, PidfdFlags::empty()).ok()?;
        loop {
            let mut fds = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&self.reader, PollFlags::IN)];
            while poll(&mut fds, None) == Err(Errno::INTR) {}
            // Emptied first: a signal after that makes it readable again.
            while rustix::io::read(&self.reader, &mut [0_u8; 16]).is_ok_and(|bytes| bytes > 0) {}
            match self.passed_on.swap(0, Ordering::SeqCst) {
                0 => {}
                signal => pass_on(i32::try_from(signal).unwrap_or_default(), lifeline),
            }
            let signal = self.which.load(Ordering::SeqCst);
            if signal != 0 || fds[0].revents().contains(PollFlags::IN) {
                return i32::try_from(signal).ok().filter(|&signal| signal != 0);
            }
        }
    }
}
