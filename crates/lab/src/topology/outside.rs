//! The process that stays outside of a lab: it waits, ends as the lab did, and clears up what the lab cannot.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, pipe};

use super::enter::wait_for;
use super::sys::exit_now;

/// How a lab is told to end.
#[derive(Debug)]
pub(super) enum Leash {
    /// By SIGKILL to its first process, which takes its PID namespace along.
    Kill,
    /// By letting go, which the keeper hears: killed itself, it could not clear up.
    LetGo,
}

/// Waits for `child` and ends as it did. At SIGTERM or SIGHUP it ends the child first and then itself, by that signal.
///
/// `file`, which must not stay, is removed when nobody is left who could make it again. `lifeline` says by a byte that
/// signals are heard from now on, and by its end that this process is gone.
pub(super) fn attend(child: Pid, lifeline: OwnedFd, leash: &Leash, file: Option<&Path>) -> ! {
    // A kernel or a limit that refuses this leaves the signals what they were, and everything else as it is.
    let signals = Signals::listen();
    // Fails only if the child has died, and then there is nobody to tell.
    let _ = rustix::io::write(&lifeline, &[0_u8]);
    let signal = signals.ok().and_then(|signals| signals.before_end_of(child));
    if signal.is_some() {
        match leash {
            // It has not been waited for, so that the number is still its own.
            Leash::Kill => {
                let _ = kill_process(child, Signal::KILL);
            }
            Leash::LetGo => drop(lifeline),
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
    heard: OwnedFd,
    /// The last one; 0 for none.
    which: Arc<AtomicUsize>,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let which = Arc::new(AtomicUsize::new(0));
        let (heard, told) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        for signal in [SIGTERM, SIGHUP] {
            // In this order: whoever hears of a signal finds which it was.
            signal_hook::flag::register_usize(signal, Arc::clone(&which), signal.unsigned_abs() as usize)?;
            pipe::register(signal, told.try_clone()?)?;
        }
        Ok(Self { heard, which })
    }

    /// Waits for a signal or the end of `child`, which is not reaped; `None` for the latter.
    fn before_end_of(&self, child: Pid) -> Option<i32> {
        let ended = pidfd_open(child, PidfdFlags::empty()).ok()?;
        let mut fds = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&self.heard, PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
        match self.which.load(Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}
