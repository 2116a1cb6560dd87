//! What a program costs: its CPU time.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A finished command: what it printed, and the CPU that it and its children took.
#[derive(Debug)]
pub struct Metered {
    /// Its standard output.
    pub stdout: String,
    /// User and system time in microseconds.
    pub cpu_us: f64,
}

/// Runs a command to its end. bash's `time` does the accounting (`wait4`), to a millisecond, without unsafe code here.
pub fn run(program: &str, arguments: &[String]) -> Result<Metered> {
    let output = Command::new("bash")
        .args(["-c", "TIMEFORMAT='%3U %3S'; time \"$0\" \"$@\" 2>/dev/null", program])
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .context("cannot start bash")?;
    if !output.status.success() {
        bail!("`{program} {}` ended with {}", arguments.join(" "), output.status);
    }
    let times = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut seconds = times.split_whitespace().map(str::parse::<f64>);
    let (Some(Ok(user)), Some(Ok(system))) = (seconds.next(), seconds.next()) else {
        bail!("bash's `time` printed {times:?}");
    };
    Ok(Metered {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        cpu_us: (user + system) * 1e6,
    })
}

/// CPU that all threads of a running process have taken so far, in microseconds, to the nanosecond of the scheduler.
pub fn cpu_us_of(pid: u32) -> Result<f64> {
    let mut total = 0.0;
    for task in std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))? {
        let file = task?.path().join("schedstat");
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let nanos: f64 =
            text.split(' ').next().unwrap_or_default().parse().context("schedstat is not a number")?;
        total += nanos / 1e3;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_costs_cpu_and_its_output_is_kept() {
        let words = ["-c", "for ((i = 0; i < 50000; i++)); do :; done; echo done"].map(str::to_owned);
        let metered = run("bash", &words).unwrap();
        assert_eq!(metered.stdout, "done\n");
        assert!(metered.cpu_us > 0.0, "{metered:?}");
    }

    #[test]
    fn a_command_that_fails_is_an_error() {
        assert!(run("false", &[]).is_err());
    }

    #[test]
    fn our_own_cpu_only_grows() {
        let before = cpu_us_of(std::process::id()).unwrap();
        assert!(before > 0.0 && cpu_us_of(std::process::id()).unwrap() >= before);
    }
}
