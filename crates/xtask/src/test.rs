//! `cargo xtask test`: every check and every test, with what they need installed first, and a few situations of `verify diagnose`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use crate::tiers::Tiers;
use crate::{check, needs, process, verify};

/// Arguments of `cargo xtask test`.
#[derive(Debug, Default, clap::Args)]
pub struct Arguments {
    /// Handed to `cargo test` as they are, such as a name to filter by; the checks are left out then.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// How many tests the test harness runs at a time.
const THREADS: &str = "RUST_TEST_THREADS";
/// With one integration test per CPU the suite takes twice as long: they mostly wait.
const INTEGRATION_TESTS_PER_CPU: usize = 4;
/// Of a failed test, what is repeated at the end of the run.
const LINES_OF_A_FAILURE: usize = 40;
const COLUMNS_OF_A_FAILURE: usize = 300;

/// Tests enable the schemas and the lints before them do not, so that both are compiled.
const SCHEMA: &str = "--features=h2lab/schema";

/// Installs what is missing, then runs the checks and the tests. Nothing is printed after cargo's own last line.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if !arguments.rest.is_empty() {
        needs::install_missing()?;
        return cargo_test(&arguments.rest);
    }
    let mut tiers = Tiers::begin();
    let done = all(&mut tiers);
    // Alone and at the end: beside other tests a machine is too busy to measure.
    let is_staged = match &done {
        Ok(failed) if failed.is_empty() => tiers.time("situations of diagnose", verify::staged),
        _ => Ok(true),
    };
    tiers.print();
    let failed = done?;
    if !is_staged? {
        eprintln!("error: `diagnose` was wrong twice about two situations or more; see above");
        return Ok(ExitCode::FAILURE);
    }
    if failed.is_empty() {
        // The examples in the documentation, by cargo itself: what it prints closes the run.
        return cargo_test(&["--doc"]);
    }
    for (selection, messages) in failed {
        if !messages.is_empty() {
            eprintln!("{messages}");
        }
        eprintln!("error: test failed, to rerun pass `{selection}`");
    }
    Ok(ExitCode::FAILURE)
}

/// Profile dev: the integration tests drive the binary that cargo builds for them beside the tests. Timing never
/// decides a test, so that a release build would only cost minutes.
fn cargo_test<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Result<ExitCode> {
    let status = process::stream(process::cargo(["test", "--workspace", SCHEMA]).args(arguments))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// For a binary that failed: the arguments of `cargo test` that select it, and what its failed tests said where its output was
/// captured.
type Failed = (String, String);

/// Runs all but the examples in the documentation.
fn all(tiers: &mut Tiers) -> Result<Vec<Failed>> {
    tiers.time("tools", needs::install_missing)?;
    check::all(tiers)?;
    let (units, drivers): (Vec<Binary>, Vec<Binary>) =
        tiers.time("building the tests", build)?.into_iter().partition(Binary::is_of_units);
    let (waiting, computing): (Vec<Binary>, Vec<Binary>) =
        drivers.into_iter().partition(Binary::is_of_integration);
    let mut failed = one_by_one(&units, tiers)?;
    thread::scope(|scope| {
        let beside: Vec<_> =
            waiting.iter().map(|binary| (binary, scope.spawn(|| binary.captured()))).collect();
        failed.extend(one_by_one(&computing, tiers)?);
        for (binary, captured) in beside {
            let captured = captured.join();
            let (output, taken) =
                captured.map_err(|_| anyhow!("the thread that ran {} panicked", binary.tier()))??;
            binary.announce();
            io::stdout().write_all(&output.stdout)?;
            io::stderr().write_all(&output.stderr)?;
            tiers.add(format!("{} (beside the others)", binary.tier()), taken);
            if !output.status.success() {
                let stdout = String::from_utf8_lossy(&output.stdout);
                failed.push((binary.selection(), messages_of_failures(&stdout)));
            }
        }
        Ok(failed)
    })
}

/// Of each failed test, the first lines that it printed, without the backtrace: a log of CI is often cut in its middle, its end is
/// shown.
fn messages_of_failures(stdout: &str) -> String {
    let mut kept = String::new();
    let mut left = 0;
    for line in stdout.lines() {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            left = LINES_OF_A_FAILURE;
        } else if line == "stack backtrace:" || line == "failures:" {
            left = 0;
        }
        if left > 0 && !line.is_empty() {
            left -= 1;
            let end = line.char_indices().nth(COLUMNS_OF_A_FAILURE).map_or(line.len(), |(at, _)| at);
            kept.push_str(&line[..end]);
            kept.push('\n');
        }
    }
    kept
}

/// Runs these; returns those that failed.
fn one_by_one(binaries: &[Binary], tiers: &mut Tiers) -> Result<Vec<Failed>> {
    let mut failed = Vec::new();
    for binary in binaries {
        if !tiers.time(binary.tier(), || binary.run())? {
            failed.push((binary.selection(), String::new()));
        }
    }
    Ok(failed)
}

/// The fields of a line of `cargo test --message-format=json` that is about a test binary.
#[derive(Debug, Deserialize)]
struct Binary {
    package_id: String,
    manifest_path: PathBuf,
    target: Target,
    executable: PathBuf,
    profile: Profile,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// Builds all test binaries: unit tests first, then those that drive the product.
fn build() -> Result<Vec<Binary>> {
    let arguments = ["test", "--workspace", SCHEMA, "--no-run", "--message-format=json-render-diagnostics"];
    eprintln!("xtask: cargo {}", arguments[..4].join(" "));
    Ok(binaries(&process::said(&mut process::cargo(arguments))?))
}

fn binaries(messages: &str) -> Vec<Binary> {
    let binaries = messages.lines().filter_map(|line| serde_json::from_str::<Binary>(line).ok());
    let mut binaries: Vec<Binary> = binaries.filter(|binary| binary.profile.test).collect();
    binaries.sort_by_key(|binary| (!binary.is_of_units(), binary.selection()));
    binaries
}

impl Binary {
    fn is_of_units(&self) -> bool {
        !self.target.kind.iter().any(|kind| kind == "test")
    }

    /// `path+file:///…/crates/wire#h2lab-wire@0.1.0`, or without a name where that is the folder's.
    fn package(&self) -> &str {
        let (folder, name) = self.package_id.rsplit_once('#').unwrap_or(("", &self.package_id));
        name.split_once('@').map_or_else(|| folder.rsplit('/').next().unwrap_or(name), |(name, _)| name)
    }

    /// What `cargo test` takes to run it alone.
    fn selection(&self) -> String {
        let target = match (self.target.kind[0].as_str(), &self.target.name) {
            ("test", name) => format!("--test {name}"),
            ("bin", name) => format!("--bin {name}"),
            ("example", name) => format!("--example {name}"),
            _ => "--lib".to_owned(),
        };
        format!("-p {} {target}", self.package())
    }

    fn tier(&self) -> String {
        if self.is_of_units() { format!("units of {}", self.package()) } else { self.target.name.clone() }
    }

    /// The integration tests mostly wait for processes and their timeouts, so that the others that drive the product
    /// run beside them.
    fn is_of_integration(&self) -> bool {
        self.target.name == "integration"
    }

    fn announce(&self) {
        eprintln!("     Running {} ({})", self.target.src_path.display(), self.executable.display());
    }

    /// Runs it with our own output; returns whether it succeeded.
    fn run(&self) -> Result<bool> {
        self.announce();
        Ok(process::stream(&mut self.command()?)?.success())
    }

    /// Runs it while another one uses our output.
    fn captured(&self) -> Result<(Output, Duration)> {
        let begun = Instant::now();
        let output = self.command()?.output();
        Ok((output.with_context(|| format!("cannot start {}", self.executable.display()))?, begun.elapsed()))
    }

    /// As cargo runs it: in the folder of its package.
    fn command(&self) -> Result<Command> {
        let folder = self.manifest_path.parent().context("a manifest lies in a folder")?;
        let mut command = Command::new(&self.executable);
        // The variables in our own environment are xtask's.
        command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder).env("CARGO_PKG_NAME", self.package());
        if self.is_of_integration() && std::env::var_os(THREADS).is_none() {
            let cpus = std::thread::available_parallelism().map_or(1, usize::from);
            command.env(THREADS, (INTEGRATION_TESTS_PER_CPU * cpus).to_string());
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, kind: &str, name: &str, test: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/w/Cargo.toml","target":{{"kind":["{kind}"],"name":"{name}","src_path":"/w/x.rs"}},"profile":{{"test":{test}}},"executable":"/w/x"}}"#
        )
    }

    #[test]
    fn test_binaries_are_selected_as_cargo_selects_them_and_units_come_first() {
        let messages = [
            message("path+file:///w/h2lab#0.1.0", "test", "integration", true),
            message("path+file:///w/wire#h2lab-wire@0.1.0", "lib", "h2lab_wire", true),
            message("path+file:///w/h2lab#0.1.0", "bin", "h2lab", false),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let binaries = binaries(&messages.join("\n"));
        let selections: Vec<String> = binaries.iter().map(Binary::selection).collect();
        assert_eq!(selections, ["-p h2lab-wire --lib", "-p h2lab --test integration"]);
        assert_eq!(binaries[1].tier(), "integration");
        assert_eq!(binaries[0].tier(), "units of h2lab-wire");
    }

    #[test]
    fn of_a_failed_test_its_message_is_repeated_without_the_backtrace() {
        let stdout = "test a ... ok\n\nfailures:\n\n---- b stdout ----\n\nthread 'b' panicked at x.rs:1:\nleft: 1\n\
                      stack backtrace:\n   0: rust_begin_unwind\n\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed";
        assert_eq!(
            messages_of_failures(stdout),
            "---- b stdout ----\nthread 'b' panicked at x.rs:1:\nleft: 1\n"
        );
    }
}
