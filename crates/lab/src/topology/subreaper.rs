//! What a PID namespace does where there is none: all that a lab started ends with it, by whatever signal it ends.
//!
//! ```text
//!   the process that was started ── subreaper ── lab ── servers, generator … and theirs
//! ```
//!
//! The subreaper adopts every orphan below it (`PR_SET_CHILD_SUBREAPER`). When the lab ends or the process above dies, it
//! kills the lab, then whatever has come to it, until there is nobody. If the subreaper itself is killed, the lab dies with it
//! and takes its own children along (`PDEATHSIG`); only what these had started is then not reached.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper, wait,
};

use super::error::{During, TopologyError};
use super::step::Step;
use super::supervisor::{TerminationPolicy, become_first_process, die_with_parent};
use super::sys::{Forked, exit_now, fork, wait_for};
use h2lab_net::process::children;

/// Forks twice. The lab returns; the calling process waits, removes `file` and ends as the lab did, as
/// [`super::enter_removing`] promises.
pub(super) fn become_subreaped_process(file: Option<&Path>) -> Result<(), TopologyError> {
    // The same fork as into a PID namespace. The subreaper must outlive its parent, to clear up after it.
    let above = become_first_process(&TerminationPolicy::CloseLifeline, file)?;
    set_child_subreaper(Some(getpid())).during(Step::DeathSignal)?;
    let (alive, lifeline) = pipe_with(PipeFlags::CLOEXEC).during(Step::DeathSignal)?;
    match fork().during(Step::DeathSignal)? {
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

/// Waits until the lab ends or `above` is gone, and leaves nobody; the status to end with.
fn keep(lab: Pid, above: &OwnedFd) -> i32 {
    if let Ok(ended) = pidfd_open(lab, PidfdFlags::empty()) {
        let mut fds =
            [PollFd::new(&ended, PollFlags::IN), PollFd::from_borrowed_fd(above.as_fd(), PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
        if !fds[0].revents().contains(PollFlags::IN) {
            // It has not been waited for, so that the number is still its own.
            let _ = kill_process(lab, Signal::KILL);
        }
    }
    let status = wait_for(lab);
    loop {
        for orphan in children() {
            let _ = kill_process(orphan, Signal::KILL);
        }
        // The children of what has died are ours before we hear of its death.
        if let Err(Errno::CHILD) = wait(WaitOptions::empty()) {
            return status;
        }
    }
}
