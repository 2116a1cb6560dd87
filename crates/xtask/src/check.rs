//! `cargo xtask check`: what must hold before a commit and needs no test run, cheapest first. `cargo xtask test` begins
//! with it.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::tiers::Tiers;
use crate::{deps, process, unused};

/// Runs every check by itself.
pub fn run() -> Result<ExitCode> {
    let mut tiers = Tiers::begin();
    let checked = all(&mut tiers);
    tiers.print();
    checked.map(|()| ExitCode::SUCCESS)
}

/// Runs every check; stops at the first that fails.
pub fn all(tiers: &mut Tiers) -> Result<()> {
    tiers.time("formatting", || cargo(&["fmt", "--all", "--check"], "fix it with `cargo fmt --all`"))?;
    tiers.time("dependency rules", deps::check)?;
    tiers.time("unused public items", unused::check)?;
    let lints = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    tiers.time("lints", || cargo(&lints, "clippy said why above"))?;
    tiers.time("fuzz targets", fuzz_targets)
}

fn cargo(arguments: &[&str], remedy: &str) -> Result<()> {
    eprintln!("xtask: cargo {}", arguments.join(" "));
    succeed(&mut process::cargo(arguments), remedy)
}

fn succeed(command: &mut Command, remedy: &str) -> Result<()> {
    anyhow::ensure!(process::stream(command)?.success(), "check failed: {remedy}");
    Ok(())
}

/// Fuzzing needs nightly; whether its targets still match our crates shows on stable. They share the workspace's target
/// folder and its debug information, so that what both build is built once.
fn fuzz_targets() -> Result<()> {
    eprintln!("xtask: cargo check --manifest-path fuzz/Cargo.toml");
    let mut check = process::cargo([
        "check",
        "--quiet",
        "--locked",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target-dir",
    ]);
    check.arg(process::target()).env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
    // Nothing is linked, so that libFuzzer need not be compiled, for which a C++ compiler would have to be installed.
    check.env("CUSTOM_LIBFUZZER_PATH", process::workspace().join("fuzz/libfuzzer.a"));
    let remedy = "a fuzz target does not fit; or, if fuzz/Cargo.lock is not that of its dependencies any more: \
                  cp Cargo.lock fuzz/ && cargo check --manifest-path fuzz/Cargo.toml";
    succeed(&mut check, remedy)
}
