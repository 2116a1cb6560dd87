//! A replacement of a PID namespace: everything that a lab started ends with it, by whatever signal it ends.
//!
//! ```text
//!   the process that was started ── subreaper ── lab ── servers, generator … and theirs
//! ```
//!
//! The subreaper adopts every orphan below it (`PR_SET_CHILD_SUBREAPER`). When the lab ends or the process above dies, it kills
//! the lab, then every process that is reparented to it, until none is left. If the subreaper itself is killed, the lab dies with
//! it and so do the lab's children (`PDEATHSIG`); only their own children then survive.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper, wait,
};

use super::error::{During, Result};
use super::setup_step::SetupStep;
use super::supervisor::{TerminationPolicy, become_first_process, die_with_parent};
use super::sys::{Forked, exit_now, fork, wait_for};
use h2lab_net::process::children;

/// Forks twice. The lab returns; the calling process waits, removes `file` and ends as the lab did, as
/// [`super::enter_removing`] promises.
pub(super) fn become_subreaped_process(file: Option<&Path>) -> Result<()> {
    // The same fork as into a PID namespace. The subreaper must outlive its parent, to clean up after it.
    let above = become_first_process(&TerminationPolicy::CloseLifeline, file)?;
    set_child_subreaper(Some(getpid())).during(SetupStep::DeathSignal)?;
    let (alive, lifeline) = pipe_with(PipeFlags::CLOEXEC).during(SetupStep::DeathSignal)?;
    match fork().during(SetupStep::DeathSignal)? {
        Forked::Parent(lab) => {
            drop(alive);
            exit_now(keep(lab, &above));
        }
        Forked::Child => {
            drop((lifeline, above));
            die_with_parent(&alive)
        }
    }
}

/// Waits until the lab ends or `above` is gone, and kills what is left; returns the status to end with.
fn keep(lab: Pid, above: &OwnedFd) -> i32 {
    if let Ok(ended) = pidfd_open(lab, PidfdFlags::empty()) {
        let mut fds =
            [PollFd::new(&ended, PollFlags::IN), PollFd::from_borrowed_fd(above.as_fd(), PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
        if !fds[0].revents().contains(PollFlags::IN) {
            // It has not been reaped, so the number is still its own.
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
