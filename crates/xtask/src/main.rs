//! `cargo xtask …`: what developers and CI run. Each subcommand is one module; none of them ships.
//!
//! Three kinds of check are never mixed: `test` (counts, seeds, virtual time, real servers; decides CI), `verify` (the
//! "Must show" list of a step on real time), `bench` (ratios against peers, side by side in one run).
//!
//! Never contains: what ships.

mod bench;
mod check;
mod deps;
mod fuzz_proof;
mod generators;
mod history;
#[cfg(test)]
mod links;
mod needs;
mod new_rule;
mod package;
mod process;
mod source;
mod strings;
mod test;
mod tiers;
mod unused;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks, tests and verification of the h2lab workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Ours against its peers, side by side in one run, as ratios.
    Bench(bench::Arguments),
    /// The quick part of `test`: formatting, dependency rules, unused items, lints, fuzz targets.
    Check,
    /// Write docs/confirmed.md from the records of `verify diagnose` in results/diagnose.
    Confirmed,
    /// Plant a bug for each fuzz target and show that it is found.
    FuzzProof,
    /// Measure a commit and append a row to results/history.csv.
    History(history::Arguments),
    /// Make the folder of a cause with a rule, which compiles and passes its tests, and list it.
    NewRule(new_rule::Arguments),
    /// Make what is published: static binary, Debian package, container image.
    Package(package::Arguments),
    /// Write the inventory of all that users read, for a review as a diff: docs/strings.txt.
    Strings,
    /// All that must hold before a commit: install what the tests need, then `check` and every test. With a filter the
    /// tests alone.
    Test(test::Arguments),
    /// Show on real time, with figures, that a step does what it promises.
    Verify(verify::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Check => check::run(),
        Task::Confirmed => verify::confirmed(),
        Task::FuzzProof => fuzz_proof::run(),
        Task::History(arguments) => history::run(&arguments),
        Task::NewRule(arguments) => new_rule::run(&arguments),
        Task::Package(arguments) => package::run(&arguments),
        Task::Strings => strings::run(),
        Task::Test(arguments) => test::run(&arguments),
        Task::Verify(arguments) => verify::run(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
