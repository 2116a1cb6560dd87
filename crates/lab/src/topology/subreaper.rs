//! A replacement for a PID namespace: everything that a lab started ends with the lab, whichever signal ends it.
//!
//! ```text
//!   the process that was started ── subreaper ── lab ── servers, generator … and theirs
//! ```
//!
//! The subreaper adopts every orphan below it (`PR_SET_CHILD_SUBREAPER`). When the lab ends or the process above dies, it kills
//! the lab, then every process that is reparented to it, until none is left. If the subreaper itself is killed, the lab dies with
//! it and so do the lab's children (`PDEATHSIG`); only their own children then survive.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper, wait,
};

use super::enter::Outside;
use super::error::{During, Result};
use super::setup_step::SetupStep;
use super::supervisor::{TerminationPolicy, become_first_process, die_with_parent};
use super::sys::{Forked, exit_now, fork, wait_for};
use h2lab_net::process::children;

/// Forks twice. The lab returns, with the descriptor from which it reads the signals that are passed on; the calling process waits
/// and ends as the lab did, as [`super::enter_beside`] promises.
pub(super) fn become_subreaped_process(outside: &Outside<'_>) -> Result<OwnedFd> {
    // The same fork as into a PID namespace. The subreaper must outlive its parent, to clean up after it.
    let above = become_first_process(&TerminationPolicy::CloseLifeline, outside)?;
    set_child_subreaper(Some(getpid())).during(SetupStep::DeathSignal)?;
    let (alive, lifeline) = pipe_with(PipeFlags::CLOEXEC).during(SetupStep::DeathSignal)?;
    match fork().during(SetupStep::DeathSignal)? {
        Forked::Parent(lab) => {
            drop(alive);
            exit_now(keep(lab, &above, &lifeline));
        }
        Forked::Child => {
            drop((lifeline, above));
            die_with_parent(&alive)?;
            Ok(alive)
        }
    }
}

/// Passes on a byte of `above` if `fds` of [`keep`] report one; returns whether it did.
fn pass_on(fds: &[PollFd<'_>; 2], above: &OwnedFd, below: &OwnedFd) -> bool {
    let mut signal = [0_u8];
    let is_there = !fds[0].revents().contains(PollFlags::IN)
        && fds[1].revents().contains(PollFlags::IN)
        && rustix::io::read(above, &mut signal) == Ok(1);
    // The lab may be gone, or may not listen.
    is_there && rustix::io::write(below, &signal).is_ok()
}

/// Waits until the lab ends or `above` is gone, and kills what is left; returns the status to end with. Bytes from
/// `above` are passed on to the lab.
fn keep(lab: Pid, above: &OwnedFd, below: &OwnedFd) -> i32 {
    if let Ok(ended) = pidfd_open(lab, PidfdFlags::empty()) {
        let mut fds =
            [PollFd::new(&ended, PollFlags::IN), PollFd::from_borrowed_fd(above.as_fd(), PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) || pass_on(&fds, above, below) {}
        if !fds[0].revents().contains(PollFlags::IN) {
            // It has not been reaped, so the PID is still its own.
            let _ = kill_process(lab, Signal::KILL);
        }
    }
    let status = wait_for(lab);
    loop {
        for orphan in children() {
            let _ = kill_process(orphan, Signal::KILL);
        }
        // The children of a dead process are reparented to us before we learn of its death.
        if let Err(Errno::CHILD) = wait(WaitOptions::empty()) {
            return status;
        }
    }
}
