//! A child of this process that measures: a re-execution of h2lab itself, with its spec on stdin and its messages on stdout.

use std::io::{BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use h2lab_model::record::DisturbanceKind;
use h2lab_net::privileges;
use h2lab_net::process::{cpu_clock, die_with_us};
use rustix::process::Pid;
use serde::Serialize;

use super::messages::{self, Failure, FailureKind, Incoming, Message, RepetitionProgress};

/// The name of the subcommand that is a lab.
pub const LAB: &str = "__lab";
/// The name of the subcommand that tries sysctls.
pub const SYSCTLS: &str = "__sysctls";
/// The name of the subcommand that is a generator.
pub const LOAD: &str = "__load";

/// A command that re-executes this very program in a role. `/proc/self/exe` survives a replaced or removed file.
pub fn self_command(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("h2lab").arg(role);
    command
}

/// How a child ended.
#[derive(Debug)]
pub enum ChildOutcome {
    /// It has sent everything.
    Done(Box<Incoming>),
    /// `stop` was set; the child was killed.
    Stopped,
}

/// A running child. Dropping it kills it, and with a lab all that the lab started.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Result<Message>>,
}

impl Running {
    /// Starts `command`, which must answer in [`messages`], and gives it `spec`. The child ignores the terminal's signals (its
    /// own process group); it dies with the calling thread.
    pub fn start(mut command: Command, spec: &impl Serialize) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        die_with_us(&mut command);
        let child = command.spawn().context("cannot re-execute h2lab")?;
        let (sender, messages) = channel();
        // From here on an error kills the child.
        let mut running = Self { child, stdin: None, messages };
        let stdout = running.child.stdout.take().context("the child has no output")?;
        let mut stdout = BufReader::with_capacity(1 << 20, stdout);
        let read = move || {
            privileges::renounce();
            loop {
                match messages::read(&mut stdout) {
                    Ok(Some(message)) => {
                        let last = matches!(message, Message::Done | Message::Failed(_));
                        if sender.send(Ok(message)).is_err() || last {
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        // The receiver may be gone; then the error is not needed.
                        let _ = sender.send(Err(error));
                        break;
                    }
                }
            }
        };
        std::thread::Builder::new()
            .name("child".to_owned())
            .spawn(read)
            .context("cannot start the thread that reads the child's messages")?;
        let mut stdin = running.child.stdin.take().context("the child has no standard input")?;
        let mut line = serde_json::to_vec(spec)?;
        line.push(b'\n');
        stdin.write_all(&line).context("the child does not accept its task")?;
        running.stdin = Some(stdin);
        Ok(running)
    }

    /// Takes messages in until the child has sent everything, has failed, or `stop` is set. A generator that is done keeps its
    /// connections open until [`Running::finish`], because their other ends are examined first.
    pub fn receive(
        &mut self,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&RepetitionProgress),
    ) -> Result<ChildOutcome> {
        let mut incoming = Incoming::default();
        loop {
            match self.messages.recv_timeout(Duration::from_millis(50)) {
                Ok(Ok(Message::Done)) => break,
                Ok(Ok(Message::Progress(now))) => progress(&now),
                Ok(Ok(message)) => incoming.take(message)?,
                Ok(Err(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.exit_reason().into()),
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(ChildOutcome::Stopped);
            }
        }
        Ok(ChildOutcome::Done(Box::new(incoming)))
    }

    /// CPU time that it has used so far.
    pub fn cpu(&self) -> Duration {
        cpu_clock(Pid::from_child(&self.child)).unwrap_or_default()
    }

    /// Lets the child go, by the end of its input, and waits for it.
    pub fn finish(mut self) -> Result<()> {
        self.stdin = None;
        self.child.wait().context("cannot wait for the child")?;
        Ok(())
    }

    /// Why the pipe ended before the result.
    fn exit_reason(&mut self) -> Failure {
        let (kind, message) = match self.child.wait() {
            Ok(status) => {
                let message = format!("the measuring process ended without a result ({status})");
                match DisturbanceKind::ended(status.code(), status.signal()) {
                    DisturbanceKind::Killed { .. } => (FailureKind::Killed, message),
                    _ => (FailureKind::Harness, format!("{message}; its last output is above")),
                }
            }
            Err(error) => (FailureKind::Harness, format!("the measuring process is gone: {error}")),
        };
        Failure { kind, message }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the child is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
