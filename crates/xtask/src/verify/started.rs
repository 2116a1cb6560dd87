//! A run that something may happen to, or that may never end.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How often it is looked whether a run has ended.
const PACE: Duration = Duration::from_millis(10);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Not within its deadline: it was killed.
    Late,
}

impl Ending {
    fn of(status: ExitStatus) -> Self {
        status.code().map_or_else(|| Self::Signal(status.signal().unwrap_or(0)), Self::Code)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Late => f.write_str("never ends"),
        }
    }
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub ending: Ending,
    /// After which time.
    pub took: Duration,
    /// What scripts read.
    pub stdout: String,
    /// Progress, warnings and errors.
    pub stderr: String,
}

impl Ended {
    /// Its last words: the last line of its errors, or of its output.
    pub fn last_words(&self) -> &str {
        let last = |text: &'_ str| text.lines().rfind(|line| !line.trim().is_empty()).is_some();
        let of = if last(&self.stderr) { &self.stderr } else { &self.stdout };
        of.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("(it said nothing)")
    }
}

/// A run under way, killed with the value.
#[derive(Debug)]
pub struct Started {
    child: Child,
    begun: Instant,
    /// Files with what it says.
    said: [PathBuf; 2],
}

impl Started {
    /// Starts `command` in `folder`, which gets the files `NAME.stdout` and `NAME.stderr`.
    pub fn begin(command: &mut Command, folder: &Path, name: &str) -> Result<Self> {
        let said = ["stdout", "stderr"].map(|stream| folder.join(format!("{name}.{stream}")));
        let [out, err] = [File::create(&said[0])?, File::create(&said[1])?];
        let child = command.current_dir(folder).stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let program = || format!("cannot start {}", command.get_program().to_string_lossy());
        Ok(Self { child: child.with_context(program)?, begun: Instant::now(), said })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to stdout so far.
    pub fn stdout(&self) -> String {
        said(&self.said[0])
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        said(&self.said[1])
    }

    /// Whether it has ended, and how.
    pub fn ending(&mut self) -> Result<Option<Ending>> {
        Ok(self.child.try_wait()?.map(Ending::of))
    }

    /// Waits until `holds`, at most for `deadline` and as long as it runs; whether it came to that.
    pub fn until(&mut self, deadline: Duration, mut holds: impl FnMut(&Self) -> bool) -> Result<bool> {
        let until = Instant::now() + deadline;
        loop {
            if holds(self) {
                return Ok(true);
            }
            if self.ending()?.is_some() || Instant::now() > until {
                return Ok(false);
            }
            std::thread::sleep(PACE);
        }
    }

    /// Waits for its end, at most until it has run for `deadline`.
    pub fn end(mut self, deadline: Duration) -> Result<Ended> {
        let ending = loop {
            match self.ending()? {
                Some(ending) => break ending,
                None if self.begun.elapsed() > deadline => break Ending::Late,
                None => std::thread::sleep(PACE),
            }
        };
        let took = self.begun.elapsed();
        if ending == Ending::Late {
            self.child.kill()?;
            self.child.wait()?;
        }
        Ok(Ended { ending, took, stdout: self.stdout(), stderr: self.stderr() })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

fn said(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: Duration) -> Ended {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        Started::begin(command.args(["-c", script]), folder.path(), "sh").unwrap().end(deadline).unwrap()
    }

    #[test]
    fn a_run_ends_by_itself_or_by_a_signal_or_is_too_late() {
        const LONG: Duration = Duration::from_secs(60);
        let ended = shell("echo a; echo b >&2; exit 3", LONG);
        assert_eq!((ended.ending, ended.last_words()), (Ending::Code(3), "b"));
        assert_eq!(ended.stdout, "a\n");
        assert_eq!(shell("kill -9 $$", LONG).ending, Ending::Signal(9));
        assert_eq!(shell("exec sleep 60", Duration::ZERO).ending, Ending::Late);
    }

    #[test]
    fn what_a_run_has_said_is_known_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; exec sleep 60"]);
        let mut run = Started::begin(&mut command, folder.path(), "sh").unwrap();
        assert!(run.until(Duration::from_secs(60), |run| run.stdout().contains("ready")).unwrap());
        assert!(run.ending().unwrap().is_none());
    }
}
