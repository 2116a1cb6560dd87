//! `cargo xtask check`: what must hold before a commit, cheapest first.

use std::process::ExitCode;

use anyhow::Result;

use crate::{layers, process, test};

/// The steps that are one cargo command each, with the name under which a failure is reported.
const STEPS: &[(&str, &[&str])] = &[
    ("formatting (mend with `cargo fmt --all`)", &["fmt", "--all", "--check"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
];

/// Runs every step, then the tests; stops at the first that fails.
pub fn run() -> Result<ExitCode> {
    for (name, arguments) in STEPS {
        eprintln!("xtask: cargo {}", arguments.join(" "));
        if !process::stream(&mut process::cargo(*arguments))?.success() {
            anyhow::bail!("check failed: {name}");
        }
    }
    eprintln!("xtask: layers");
    let layers = layers::run()?;
    if layers != ExitCode::SUCCESS {
        return Ok(layers);
    }
    test::run(&test::Arguments::default())
}
