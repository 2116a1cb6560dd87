//! `cargo xtask layers`: the architecture that ARCHITECTURE.md promises is the one that the code has.
//!
//! Three checks: imports between modules follow the fenced `layers` table; `wire`, `link` and `trace` use nothing beyond
//! the language and a short list of crates; no file is too long to read. `table` and `source` turn text into values,
//! `rules` compares them; only this file reads the disk.

mod rules;
mod source;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::process;
use rules::{Crate, SourceFile};

/// Reads the tree, prints what is wrong with it, fails if anything is.
pub fn run() -> Result<ExitCode> {
    let root = process::workspace();
    let architecture = read(&root.join("ARCHITECTURE.md"))?;
    let table = table::Table::parse(&architecture).context("ARCHITECTURE.md")?;
    let manifest = read(&root.join("crates/h2lab-core/Cargo.toml"))?;
    let core = Crate {
        layer: "core",
        files: sources(&root, "crates/h2lab-core/src")?,
        dependencies: dependencies(&manifest)?,
    };
    let shell =
        Crate { layer: "shell", files: sources(&root, "crates/h2lab/src")?, dependencies: BTreeSet::new() };

    let mut problems = rules::check_table(&table, &[&core, &shell]);
    problems.extend(rules::check_edges(&table, &core));
    problems.extend(rules::check_edges(&table, &shell));
    problems.extend(rules::check_purity(&core));
    problems.extend(rules::check_lengths(&sources(&root, "crates")?));
    for problem in &problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        let files = core.files.len() + shell.files.len();
        println!("layers: {files} files follow the table in ARCHITECTURE.md");
        return Ok(ExitCode::SUCCESS);
    }
    println!("layers: {} problems; move the code, or change the table and say why", problems.len());
    Ok(ExitCode::FAILURE)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The names of a manifest's ordinary dependencies, as they are written in Rust.
fn dependencies(manifest: &str) -> Result<BTreeSet<String>> {
    let manifest: toml::Table = manifest.parse().context("Cargo.toml of h2lab-core")?;
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    Ok(table.into_iter().flat_map(|table| table.keys()).map(|name| name.replace('-', "_")).collect())
}

/// Every Rust file below `folder`, in the order of its path.
fn sources(root: &Path, folder: &str) -> Result<Vec<SourceFile>> {
    let base = root.join(folder);
    let mut paths = Vec::new();
    collect(&base, &mut paths)?;
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = read(&path)?;
            let inside = path.strip_prefix(&base).unwrap_or(&path);
            Ok(SourceFile {
                name: path.strip_prefix(root).unwrap_or(&path).display().to_string(),
                module: source::module_of(inside),
                text,
            })
        })
        .collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ordinary_dependencies_count_and_in_rust_spelling() {
        let manifest = "[package]\nname='x'\n[dependencies]\nserde-thing.workspace = true\n[dev-dependencies]\nh2 = '1'\n";
        assert_eq!(dependencies(manifest).unwrap(), BTreeSet::from(["serde_thing".to_owned()]));
    }

    #[test]
    fn the_table_of_this_tree_is_readable() {
        let architecture = read(&process::workspace().join("ARCHITECTURE.md")).unwrap();
        assert!(table::Table::parse(&architecture).unwrap().rows().count() > 10);
    }
}
