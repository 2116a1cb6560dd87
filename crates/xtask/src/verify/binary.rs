//! The binary as it is published, driven as a user drives it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::document::{Cell, Document};
use crate::process;

/// A run may not take longer than this many seconds: only a hang does.
const DEADLINE_S: &str = "1200";

/// How often a measurement is made before it counts as void: the first time, and again after the tool called it
/// invalid. The tool has by then already measured the doubtful cells three times itself.
const TRIES: u32 = 3;

/// Exit code of a measurement that the tool does not trust.
const INVALID: i32 = 5;

/// `target/dist/h2lab`, or another.
#[derive(Debug, Clone)]
pub struct H2lab {
    path: PathBuf,
    profile: String,
}

/// What a run left.
#[derive(Debug)]
pub struct Run {
    /// Its exit code; `None` after a signal. 124 is that of `timeout`.
    pub code: Option<i32>,
    /// What scripts read.
    pub stdout: String,
    /// Progress, warnings and errors.
    pub stderr: String,
}

/// Builds what these arguments of cargo select; the folder of the profile.
fn build(profile: &str, what: &[&str]) -> Result<PathBuf> {
    let mut cargo = process::cargo(["build", "--profile", profile]);
    if !process::stream(cargo.args(what))?.success() {
        bail!("`cargo build {}` failed", what.join(" "));
    }
    Ok(process::target().join(if profile == "dev" { "debug" } else { profile }))
}

fn build_example(profile: &str, name: &str) -> Result<PathBuf> {
    Ok(build(profile, &["--package", "h2lab", "--example", name])?.join("examples").join(name))
}

impl H2lab {
    /// Builds it in the profile of what is published.
    pub fn build() -> Result<Self> {
        Self::build_in(process::PROFILE)
    }

    /// Builds it in this profile.
    pub fn build_in(profile: &str) -> Result<Self> {
        let folder = build(profile, &["--package", "h2lab"])?;
        Ok(Self { path: folder.join("h2lab"), profile: profile.to_owned() })
    }

    /// One that was built already.
    pub fn at(path: PathBuf) -> Self {
        Self { path, profile: process::PROFILE.to_owned() }
    }

    /// Builds an example of the product in the profile of what is published, and returns where it is.
    pub fn build_example(name: &str) -> Result<PathBuf> {
        build_example(process::PROFILE, name)
    }

    /// The same in the profile of this binary.
    pub fn example(&self, name: &str) -> Result<PathBuf> {
        build_example(&self.profile, name)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it in `folder` with `input` on stdin until it ends.
    pub fn run(&self, folder: &Path, arguments: &[String], input: &str) -> Result<Run> {
        // coreutils' timeout: no thread and no signal handling of ours, and it also ends what ignores SIGTERM.
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", DEADLINE_S]).arg(&self.path).args(arguments).current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start `timeout` of coreutils")?;
        // A run that has already failed does not read; its exit code shows it.
        let _ = child.stdin.take().context("stdin is a pipe")?.write_all(input.as_bytes());
        let output = child.wait_with_output()?;
        Ok(Run {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// `compare --json ARGUMENTS`, made again while the tool itself calls it invalid.
    pub fn compare(&self, arguments: &[&str]) -> Result<Document> {
        self.measure("compare", arguments)
    }

    /// The same of any command that measures cells.
    pub fn measure(&self, command: &str, arguments: &[&str]) -> Result<Document> {
        self.measure_in_time(command, arguments).map(|(document, _)| document)
    }

    /// The same, and how long the run took that counts.
    pub fn measure_in_time(&self, command: &str, arguments: &[&str]) -> Result<(Document, Duration)> {
        let mut words: Vec<String> = [command, "--json", "--out=run"].map(str::to_owned).to_vec();
        words.extend(arguments.iter().map(|&word| word.to_owned()));
        let mut doubts: Vec<String> = Vec::new();
        for _ in 0..TRIES {
            let folder = tempfile::tempdir()?;
            let begun = Instant::now();
            let run = self.run(folder.path(), &words, "")?;
            let taken = begun.elapsed();
            if !matches!(run.code, Some(0 | INVALID)) {
                bail!("`h2lab {}` ended with {:?}: {}", words.join(" "), run.code, run.stderr.trim());
            }
            let document = Document::parse(&run.stdout)?;
            if run.code == Some(0) && document.invalid().next().is_none() {
                return Ok((document, taken));
            }
            let doubt = |cell: &Cell| format!("{}: {}", cell.label(), cell.reasons.join("; "));
            doubts = document.invalid().map(doubt).collect();
        }
        bail!("void {TRIES} times, so nothing is shown either way; {}", doubts.join("; "));
    }
}
