//! `cargo xtask fuzz-proof`: each fuzz target finds a bug that was planted for the purpose.
//!
//! The bugs are changes of one line, made in a copy of the tree; there the target's test must fail. What the test finds
//! in its ten seconds, cargo-fuzz finds within a minute: `fuzz/README.md` has both figures.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process;

/// A bug.
struct Planted {
    /// The target that must find it.
    target: &'static str,
    /// The test that runs the target.
    test: &'static str,
    /// Where it is planted, below `crates/`.
    file: &'static str,
    /// The original text, which occurs once.
    right: &'static str,
    /// What is put there.
    wrong: &'static str,
}

/// One bug for each target, of the kind that the target is to find.
const BUGS: [Planted; 11] = [
    // Padding as long as the payload was refused: the range ends before it begins.
    Planted {
        target: "frames",
        test: "frames_are_understood_or_refused",
        file: "wire/src/h2/frame.rs",
        right: "Some(end) if end >= 1 => Ok(1..end)",
        wrong: "Some(end) => Ok(1..end)",
    },
    // A string may run past its block by a byte.
    Planted {
        target: "hpack",
        test: "field_blocks_decode_or_are_refused",
        file: "wire/src/compression/integer.rs",
        right: "if length > self.rest.len() {",
        wrong: "if length > self.rest.len() + 1 {",
    },
    // Trailers that consist only of their empty line are not checked.
    Planted {
        target: "h1_head",
        test: "heads_parse_or_are_refused",
        file: "wire/src/h1/head.rs",
        right: "bytes.starts_with(b\"\\r\\n\") || tail",
        wrong: "tail",
    },
    // A piece may be a byte longer than what is available.
    Planted {
        target: "h1_body",
        test: "bodies_decode_alike_however_they_are_cut",
        file: "wire/src/h1/body.rs",
        right: ".unwrap_or(usize::MAX).min(available);",
        wrong: ".unwrap_or(usize::MAX).min(available + 1);",
    },
    // A stream that no longer waits for its window is subtracted from the count twice.
    Planted {
        target: "server",
        test: "a_server_survives_any_client",
        file: "wire/src/h2/backlog.rs",
        right: "Wait::Window => self.stalled -= 1,",
        wrong: "Wait::Window => self.stalled -= 2,",
    },
    // The place at which a body ends is taken for its length.
    Planted {
        target: "client",
        test: "a_client_survives_any_server",
        file: "wire/src/h2/connection.rs",
        right: "if by_hand { body.end - body.start } else { 0 };",
        wrong: "if by_hand { body.end } else { 0 };",
    },
    // Padding is not taken off the connection's window.
    Planted {
        target: "pair",
        test: "two_engines_never_accuse_each_other",
        file: "wire/src/h2/send.rs",
        right: "            self.send_window.consume(taken);",
        wrong: "            self.send_window.consume(piece.len());",
    },
    // A client's own framing is passed on beside that of the next hop.
    Planted {
        target: "proxy",
        test: "what_a_proxy_passes_on_is_the_one_message_that_was_meant",
        file: "proxy/src/fields.rs",
        right: "            | b\"transfer-encoding\"\n",
        wrong: "",
    },
    // Names by reference go out as if they were of the dynamic table.
    Planted {
        target: "qpack",
        test: "field_sections_decode_or_are_refused",
        file: "wire/src/h3/qpack/encoder.rs",
        right: "integer::encode(index, 4, 0x50, out);",
        wrong: "integer::encode(index, 4, 0x40, out);",
    },
    // A stream that has already ended is subtracted from the count of open streams again.
    Planted {
        target: "h3",
        test: "http_3_survives_any_peer",
        file: "wire/src/h3/receive.rs",
        right: "self.open -= u32::from(!stream.is_over());",
        wrong: "self.open -= 1;",
    },
    // Durations are written with four digits.
    Planted {
        target: "scenario",
        test: "scenario_files_are_read_or_refused",
        file: "model/src/scenario/axis.rs",
        right: "axis_value!(Duration, parse_duration, |duration| format_exact(*duration));",
        wrong: "axis_value!(Duration, parse_duration, |duration| h2lab_base::units::format_duration(*duration));",
    },
];

/// Plants each bug in turn and runs its target; fails if one is not found.
pub fn run() -> Result<ExitCode> {
    let copy =
        tempfile::Builder::new().prefix("h2lab-fuzz-proof-").tempdir().context("a temporary folder")?;
    copy_tree(&process::workspace(), copy.path())?;
    let mut missed = 0;
    for bug in &BUGS {
        let file = copy.path().join("crates").join(bug.file);
        let right = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        fs::write(&file, plant(&right, bug)?)?;
        let (found, seconds) = is_found(copy.path(), bug)?;
        println!("{:<9} {} after {seconds:.1} s", bug.target, if found { "finds it" } else { "MISSES IT" });
        missed += u32::from(!found);
        fs::write(&file, right)?;
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The text with the bug.
fn plant(text: &str, bug: &Planted) -> Result<String> {
    if text.matches(bug.right).count() != 1 {
        bail!(
            "{} no longer has the line that the bug of `{}` replaces, once: {}",
            bug.file,
            bug.target,
            bug.right
        );
    }
    Ok(text.replacen(bug.right, bug.wrong, 1))
}

/// Whether the target's test fails by a panic, and the seconds that it ran.
fn is_found(workspace: &Path, bug: &Planted) -> Result<(bool, f64)> {
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .current_dir(workspace)
            .args(["test", "--quiet", "-p", "h2lab-model", "--lib"])
            .args(arguments);
        command
            .env("CARGO_TARGET_DIR", process::target().join("fuzz-proof"))
            .output()
            .context("cannot start cargo")
    };
    let built = cargo(&["--no-run"])?;
    if !built.status.success() {
        bail!("the bug of `{}` does not build:\n{}", bug.target, String::from_utf8_lossy(&built.stderr));
    }
    let begun = Instant::now();
    let ran = cargo(&[&format!("fuzz::tests::{}", bug.test)])?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    if said.contains("running 0 tests") {
        bail!("there is no test {}", bug.test);
    }
    Ok((!ran.status.success() && said.contains("panicked at"), begun.elapsed().as_secs_f64()))
}

/// Copies what the build of the pure crates needs.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for name in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "crates", "scenarios"] {
        let status = process::stream(Command::new("cp").arg("-r").arg(from.join(name)).arg(to))?;
        if !status.success() {
            bail!("cannot copy {name}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_can_still_be_planted() {
        for bug in &BUGS {
            let file = process::workspace().join("crates").join(bug.file);
            assert_ne!(plant(&fs::read_to_string(file).unwrap(), bug).unwrap(), "", "{}", bug.target);
        }
    }
}
