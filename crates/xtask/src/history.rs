//! `cargo xtask history`: the figures of a commit, a row of `results/history.csv`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench::counts;
use crate::source::Tree;
use crate::verify::binary::H2lab;
use crate::{deps, process};

/// What the columns are is documented at [`Row`].
const HEADER: &str = "commit,date,product_lines,test_lines,packages,fresh_build_s,binary_bytes,instructions_per_request,\
                      h2spec_passed,h2spec_total";

/// Arguments of `cargo xtask history`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A checkout of the commit to measure [default: this one].
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
}

/// One commit's figures.
#[derive(Debug)]
struct Row {
    /// Its abbreviated hash.
    commit: String,
    /// The day of the commit.
    date: String,
    /// Lines of code in `crates` without xtask, by the rule at [`Tree::read`]: neither blank nor comment, without
    /// tests.
    product_lines: usize,
    /// Lines of tests, counted alike.
    test_lines: usize,
    /// Crates in the dependency tree of the binary, our own too, without those that only tests need.
    packages: usize,
    /// Seconds of `cargo build --release` in an empty target folder, with the crates downloaded.
    fresh_build_s: f64,
    /// Size of the binary that this makes.
    binary_bytes: u64,
    /// User-space instructions that a request costs the load generator, in the profile of what is published: median of
    /// three.
    instructions_per_request: f64,
    /// Cases that passed in all suites which the integration test `conformance` runs: h2spec as it is and strict, in
    /// clear and over TLS, and h2specd.
    h2spec_passed: u32,
    /// Their number.
    h2spec_total: u32,
}

impl Row {
    fn line(&self) -> String {
        let Self { commit, date, product_lines, test_lines, packages, .. } = self;
        let Self {
            fresh_build_s, binary_bytes, instructions_per_request, h2spec_passed, h2spec_total, ..
        } = self;
        format!(
            "{commit},{date},{product_lines},{test_lines},{packages},{fresh_build_s:.0},{binary_bytes},\
             {instructions_per_request:.0},{h2spec_passed},{h2spec_total}"
        )
    }
}

/// Measures a commit, and appends its row to our own file.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = match &arguments.repo {
        Some(folder) => folder.canonicalize().with_context(|| folder.display().to_string())?,
        None => process::workspace(),
    };
    let line = measure(&root)?.line();
    let file = process::workspace().join("results/history.csv");
    let mut text = fs::read_to_string(&file).unwrap_or_default();
    if text.is_empty() {
        let _ = writeln!(text, "{HEADER}"); // writing to a String cannot fail
    }
    let _ = writeln!(text, "{line}");
    fs::write(&file, text).with_context(|| file.display().to_string())?;
    println!("{HEADER}\n{line}");
    Ok(ExitCode::SUCCESS)
}

/// Measures the checkout at `root`; what is quick and may fail comes first.
fn measure(root: &Path) -> Result<Row> {
    let git = |arguments: &[&str]| -> Result<String> {
        Ok(process::said(Command::new("git").current_dir(root).args(arguments))?.trim().to_owned())
    };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no", "--", "crates", "Cargo.toml", "Cargo.lock"])?;
    ensure!(changed.is_empty(), "a row is of a commit, and these are not committed:\n{changed}");
    let (product_lines, test_lines) = Tree::read(root)?.lines();
    let tree =
        ["tree", "--locked", "--package=h2lab", "--edges=normal,build", "--prefix=none", "--format={p}"];
    let packages = deps::packages(&process::said(&mut process::cargo_in(root, tree))?).len();
    eprintln!("xtask: {product_lines} lines of product, {test_lines} of tests, {packages} packages");
    fs::create_dir_all(root.join("target"))?;
    let target = tempfile::tempdir_in(root.join("target"))?;
    let (fresh_build_s, binary_bytes) = fresh_build(root, target.path())?;
    let (h2lab, generator) = published(root, target.path())?;
    let mut instructions = [0.0; 3];
    for figure in &mut instructions {
        *figure = counts::instructions_per_request(&h2lab, &generator)?;
    }
    instructions.sort_by(f64::total_cmp);
    let (h2spec_passed, h2spec_total) = conformance(root, &h2lab)?;
    Ok(Row {
        commit: git(&["rev-parse", "--short=10", "HEAD"])?,
        date: git(&["show", "--no-patch", "--format=%cs"])?,
        product_lines,
        test_lines,
        packages,
        fresh_build_s,
        binary_bytes,
        instructions_per_request: instructions[1],
        h2spec_passed,
        h2spec_total,
    })
}

/// Runs a cargo that builds into `target`.
fn build(root: &Path, target: &Path, arguments: &[&str]) -> Result<()> {
    let mut cargo = process::cargo_in(root, arguments);
    // A setting of this shell must not change what is built.
    cargo.env("CARGO_TARGET_DIR", target).env_remove("CARGO_INCREMENTAL");
    ensure!(process::stream(&mut cargo)?.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

/// Seconds of a release build in the empty folder `target`, and the bytes of its binary.
fn fresh_build(root: &Path, target: &Path) -> Result<(f64, u64)> {
    build(root, target, &["fetch", "--locked", "--quiet"])?;
    let begun = Instant::now();
    build(root, target, &["build", "--release", "--locked", "--package=h2lab"])?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok((seconds, fs::metadata(target.join("release/h2lab"))?.len()))
}

/// The binary as it is published, and the load generator alone.
fn published(root: &Path, target: &Path) -> Result<(H2lab, PathBuf)> {
    // Before there was a profile for it, what was published was the release build.
    let has_profile = fs::read_to_string(root.join("Cargo.toml"))?.contains("[profile.dist]");
    let profile = if has_profile { process::PROFILE } else { "release" };
    for what in ["--bin=h2lab", "--example=load"] {
        build(root, target, &["build", "--profile", profile, "--locked", "--package=h2lab", what])?;
    }
    let folder = target.join(profile);
    Ok((H2lab::at(folder.join("h2lab")), folder.join("examples/load")))
}

/// Cases of the conformance suites that passed, and all.
fn conformance(root: &Path, h2lab: &H2lab) -> Result<(u32, u32)> {
    let test =
        ["test", "--locked", "--quiet", "--package=h2lab", "--test=integration", "conformance::", "--"];
    let mut cargo = process::cargo_in(root, test);
    let output = cargo.arg("--nocapture").env("H2LAB_TEST_BINARY", h2lab.path()).output()?;
    // A suite with failures reports that in the panic, on the other stream.
    let said = [output.stdout, output.stderr].concat();
    cases(&String::from_utf8_lossy(&said)).context("the test `conformance` lists no cases")
}

/// The sums over all `N of M cases`; `None` without any.
fn cases(said: &str) -> Option<(u32, u32)> {
    let count = |line: &str| {
        let (passed, rest) = line.split_once(" of ")?;
        let total = rest.strip_suffix(" cases").or_else(|| Some(rest.split_once(", at least ")?.0))?;
        Some((
            passed.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()?,
            total.parse::<u32>().ok()?,
        ))
    };
    said.lines().filter_map(count).reduce(|a, b| (a.0 + b.0, a.1 + b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_added_up_of_suites_that_passed_and_that_did_not() {
        let said =
            "running 2 tests\n145 of 145 cases\n.57 of 57 cases\nok\n143 of 146, at least 146 expected:\n";
        assert_eq!(cases(said), Some((345, 348)));
        assert_eq!(cases("running 0 tests\n"), None);
    }

    #[test]
    fn a_row_has_a_field_for_each_column() {
        let row = Row {
            commit: "0123456789".to_owned(),
            date: "2026-01-31".to_owned(),
            product_lines: 2,
            test_lines: 1,
            packages: 3,
            fresh_build_s: 199.6,
            binary_bytes: 4,
            instructions_per_request: 5.4,
            h2spec_passed: 6,
            h2spec_total: 7,
        };
        assert_eq!(row.line(), "0123456789,2026-01-31,2,1,3,200,4,5,6,7");
        assert_eq!(row.line().split(',').count(), HEADER.split(',').count());
    }
}
