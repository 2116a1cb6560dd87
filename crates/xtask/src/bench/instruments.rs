//! Counting what programs do: valgrind for instructions in user space, perf for system calls.
//!
//! strace counts calls too, but stops the program at each: a client that is slowed down finds more waiting whenever it
//! looks, and makes fewer calls than it would.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The kernel's event for every system call.
const SYSTEM_CALLS: &str = "raw_syscalls:sys_enter";

/// A finished command and its count.
#[derive(Debug)]
pub struct Count {
    /// What it printed.
    pub stdout: String,
    /// How many, all threads together.
    pub count: f64,
}

/// The command prefix for valgrind, which writes its result to `out` at the end.
pub fn valgrind(out: &Path) -> Vec<String> {
    let file = format!("--callgrind-out-file={}", out.display());
    ["valgrind", "--quiet", "--tool=callgrind", &file].map(str::to_owned).to_vec()
}

/// Instructions in user space of a command.
pub fn instructions(words: &[String]) -> Result<Count> {
    counted_by_valgrind(&[], words)
}

/// The same of a part of it, which an option of callgrind selects.
pub fn instructions_of(selection: &str, words: &[String]) -> Result<Count> {
    counted_by_valgrind(&[selection.to_owned()], words)
}

fn counted_by_valgrind(options: &[String], words: &[String]) -> Result<Count> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("callgrind.out");
    let stdout = run(&[valgrind(&out).as_slice(), options, words].concat())?;
    Ok(Count { stdout, count: collected(&out)? })
}

/// The sum in callgrind's output.
pub fn collected(out: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(out).with_context(|| format!("valgrind left no {}", out.display()))?;
    total(&text).context("valgrind's output has no total")
}

/// The line `totals: N`, or `summary: N` where the program was ended.
fn total(text: &str) -> Option<f64> {
    let figure = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    figure("totals:").or_else(|| figure("summary:"))
}

/// System calls of a command.
pub fn calls(words: &[String]) -> Result<Count> {
    perf(&[], words)
}

/// System calls of another process while a command runs.
pub fn calls_of(process: u32, words: &[String]) -> Result<Count> {
    perf(&["-p".to_owned(), process.to_string()], words)
}

fn perf(options: &[String], words: &[String]) -> Result<Count> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("perf.csv");
    let mut command: Vec<String> =
        ["perf", "stat", "-x,", "-e", SYSTEM_CALLS, "-o"].map(str::to_owned).to_vec();
    command.push(out.display().to_string());
    command.extend(options.iter().cloned());
    command.push("--".to_owned());
    command.extend(words.iter().cloned());
    let stdout = run(&command)?;
    let text = std::fs::read_to_string(&out).context("perf left no result")?;
    let count = counted(&text).with_context(|| {
        format!("perf counted no system calls (it needs root and a kernel with tracepoints): {text}")
    })?;
    Ok(Count { stdout, count })
}

/// The first field of the line of our event.
fn counted(text: &str) -> Option<f64> {
    text.lines().find(|line| line.contains(SYSTEM_CALLS))?.split(',').next()?.parse().ok()
}

/// Runs a command to its end and returns what it printed.
fn run(words: &[String]) -> Result<String> {
    let (program, arguments) = words.split_first().context("a command has a program")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` ended with {}: {said}", words.join(" "), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_from_what_valgrind_writes() {
        assert_eq!(total("events: Ir\nsummary: 12\n\ntotals: 1234\n"), Some(1234.0));
        assert_eq!(total("events: Ir\nsummary: 12\nfn=(1) main\n"), Some(12.0));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn counts_are_read_from_what_perf_writes_and_a_refusal_is_none() {
        let line = |count| format!("# started on x\n\n{count},,raw_syscalls:sys_enter,1000,100.00,,\n");
        assert_eq!(counted(&line("4711")), Some(4711.0));
        assert_eq!(counted(&line("<not supported>")), None);
        assert_eq!(counted(""), None);
    }
}
