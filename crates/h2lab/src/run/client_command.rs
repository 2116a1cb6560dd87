//! The client's command of a lab of the user's programs, until it ends.

use std::io;
use std::process::{Command, ExitStatus};
use std::thread::sleep;

use anyhow::{Context, Result};
use h2lab_lab::topology::Interrupts;
use h2lab_net::clock::Clock;
use h2lab_net::process::descendants;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::commands::{CHECK_PERIOD, Detached};

/// Runs a command that has our terminal, and so its signals. A signal that only the process outside got is passed on to it.
pub(super) fn attached(
    command: &mut Command,
    interrupts: &mut Interrupts,
    has_own_proc: bool,
) -> io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    while let Some(signal) = interrupts.before_end_of(pid).and_then(Signal::from_named_raw) {
        // A shell that waits for a program ends when that does, and no earlier.
        let below = if has_own_proc { descendants(pid) } else { Vec::new() };
        for process in below.into_iter().chain([pid]) {
            // It fails only for what has ended meanwhile.
            let _ = kill_process(process, signal);
        }
    }
    child.wait()
}

impl Detached {
    /// Runs the command; how it ended, and whether its time had run out.
    pub(super) fn run(
        &self,
        mut command: Command,
        clock: Clock,
        interrupts: &mut Interrupts,
    ) -> Result<(ExitStatus, bool)> {
        let began = clock.now();
        let mut child = command.spawn().context("cannot start the client's command")?;
        loop {
            let ended = child.try_wait().context("cannot wait for the client's command")?;
            if let Some(status) = ended {
                return Ok((status, false));
            }
            let ran_out = clock.now().since(began) >= self.limit;
            if ran_out || interrupts.is_set() {
                // It has not been reaped, so that the number is its group's. What has left the group ends with the lab.
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                return Ok((child.wait().context("cannot wait for the client's command")?, ran_out));
            }
            sleep(CHECK_PERIOD);
        }
    }
}
