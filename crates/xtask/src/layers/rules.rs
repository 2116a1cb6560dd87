//! What the tree must look like. Pure: files and table in, problems out.

use std::collections::BTreeSet;
use std::fmt;

use super::source::{self, Origin, PathUse};
use super::table::Table;

/// No file is longer, tests included: beyond this a reader no longer holds it in mind.
pub const LONGEST_FILE: usize = 800;

/// Modules of core that work without any dependency beyond [`PURE_CRATES`], so that they can be read, fuzzed and reused
/// alone.
pub const PURE_MODULES: [&str; 3] = ["wire", "link", "trace"];

/// Crates that [`PURE_MODULES`] may name: the language's own, and those that only describe values or tokenise.
pub const PURE_CRATES: [&str; 6] = ["core", "alloc", "serde", "thiserror", "httparse", "schemars"];

/// Modules of `std` that touch the world outside the process or its threads: what `core` and `alloc` do not have. The
/// rest of `std` is `core` and `alloc` under another name and is free.
pub const WORLDLY_STD: [&str; 9] = ["env", "fs", "io", "net", "os", "path", "process", "sync", "thread"];

/// A Rust file.
#[derive(Debug)]
pub struct SourceFile {
    /// Its path from the workspace's root, for messages.
    pub name: String,
    /// The module that it is; empty for a crate's root.
    pub module: Vec<String>,
    /// What it says.
    pub text: String,
}

/// A crate whose modules stand in the table.
#[derive(Debug)]
pub struct Crate {
    /// Its name in the table: `core` or `shell`.
    pub layer: &'static str,
    /// Its files.
    pub files: Vec<SourceFile>,
    /// The crates that it depends on, in Rust spelling.
    pub dependencies: BTreeSet<String>,
}

impl Crate {
    fn modules(&self) -> BTreeSet<&str> {
        self.files.iter().filter_map(|file| file.module.first()).map(String::as_str).collect()
    }
}

/// Something that must be mended.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    file: String,
    line: usize,
    what: String,
}

impl fmt::Display for Problem {
    /// `path:line: what`, as compilers print it, so that editors jump there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

fn problem(file: &SourceFile, line: usize, what: String) -> Problem {
    Problem { file: file.name.clone(), line, what }
}

/// The table names only modules that exist.
pub fn check_table(table: &Table, crates: &[&Crate]) -> Vec<Problem> {
    let mut named: BTreeSet<(&str, &str)> =
        table.rows().map(|(layer, module)| (&**layer, &**module)).collect();
    for one in crates {
        named.extend(table.targets(one.layer).map(|target| (one.layer, target.as_str())));
    }
    let exists = |layer: &str, module: &str| {
        let is_core_itself = layer != "core" && module == "core";
        is_core_itself || crates.iter().any(|one| one.layer == layer && one.modules().contains(module))
    };
    let absent = named.into_iter().filter(|(layer, module)| !exists(layer, module));
    absent
        .map(|(layer, module)| Problem {
            file: "ARCHITECTURE.md".to_owned(),
            line: 1,
            what: format!("the layers table names {layer}::{module}, which does not exist"),
        })
        .collect()
}

/// Every import between modules of one crate is in the table.
pub fn check_edges(table: &Table, one: &Crate) -> Vec<Problem> {
    let modules = one.modules();
    let mut problems = Vec::new();
    // A crate's root declares the modules and starts them: it is above all layers.
    for file in one.files.iter().filter(|file| !file.module.is_empty()) {
        for path in source::paths(&file.text, &file.module) {
            if let Some(what) = forbidden(table, one.layer, &modules, &file.module[0], &path) {
                problems.push(problem(file, path.line, what));
            }
        }
    }
    problems
}

fn forbidden(
    table: &Table,
    layer: &str,
    modules: &BTreeSet<&str>,
    from: &str,
    path: &PathUse,
) -> Option<String> {
    let to = match &path.origin {
        Origin::Name(name) if name == "h2lab_core" && layer != "core" => "core",
        Origin::Name(_) => return None,
        Origin::OwnCrate => match path.segments.first() {
            Some(first) if modules.contains(first.as_str()) => first.as_str(),
            Some(first) => {
                return Some(format!("crate::{first} hides its module in the crate's root; name the module"));
            }
            None => return Some("the whole crate is imported; name the modules".to_owned()),
        },
    };
    if to == from || table.allows(layer, from, to) {
        return None;
    }
    let allowed: Vec<&str> = table.allowed_for(layer, from).into_iter().collect();
    let allowed =
        if allowed.is_empty() { "nothing".to_owned() } else { format!("only {}", allowed.join(", ")) };
    Some(format!("{layer}::{from} imports {to}, but may import {allowed}"))
}

/// The pure modules name no crate beyond their short list. Tests may use what they like.
pub fn check_purity(core: &Crate) -> Vec<Problem> {
    let mut problems = Vec::new();
    let pure = |file: &&SourceFile| {
        file.module.first().is_some_and(|module| PURE_MODULES.contains(&module.as_str()))
    };
    for file in core.files.iter().filter(pure) {
        for path in source::paths(&file.text, &file.module).iter().filter(|path| !path.in_tests) {
            let Origin::Name(name) = &path.origin else { continue };
            let within = path.segments.first().map_or("", String::as_str);
            let is_worldly = name == "std" && WORLDLY_STD.contains(&within);
            let is_foreign = core.dependencies.contains(name) && !PURE_CRATES.contains(&name.as_str());
            if is_worldly || is_foreign {
                let full = if is_worldly { format!("std::{within}") } else { name.clone() };
                problems.push(problem(
                    file,
                    path.line,
                    format!("{} names {full}; it may name only {}", file.module[0], PURE_CRATES.join(", ")),
                ));
            }
        }
    }
    problems
}

/// No file is longer than [`LONGEST_FILE`].
pub fn check_lengths(files: &[SourceFile]) -> Vec<Problem> {
    files
        .iter()
        .filter_map(|file| {
            let lines = file.text.lines().count();
            let what =
                || format!("{lines} lines; split the file by what it is about (at most {LONGEST_FILE})");
            (lines > LONGEST_FILE).then(|| problem(file, lines, what()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(module: &str, text: &str) -> SourceFile {
        let module: Vec<String> = module.split("::").map(str::to_owned).collect();
        SourceFile { name: format!("{}.rs", module.join("/")), module, text: text.to_owned() }
    }

    fn core(files: Vec<SourceFile>) -> Crate {
        Crate {
            layer: "core",
            files,
            dependencies: ["serde", "plotters", "httparse"].map(str::to_owned).into(),
        }
    }

    fn table(rows: &str) -> Table {
        Table::parse(&format!("```layers\n{rows}\n```")).unwrap()
    }

    fn said(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_edge_in_the_table_passes_and_its_reverse_fails_with_file_and_line() {
        let table = table("core::trace: wire");
        let good = core(vec![file("trace::frame", "use crate::wire::StreamId;"), file("wire", "")]);
        assert!(check_edges(&table, &good).is_empty());
        let bad = core(vec![file("wire::h2", "\nuse crate::trace::FrameEvent;"), file("trace", "")]);
        assert_eq!(
            said(&check_edges(&table, &bad)),
            ["wire/h2.rs:2: core::wire imports trace, but may import nothing"]
        );
    }

    #[test]
    fn a_module_may_import_itself_by_any_path() {
        let one =
            core(vec![file("wire::h2", "use crate::wire::event; use super::error; use super::super::wire;")]);
        assert!(check_edges(&table("core::x: y"), &one).is_empty());
    }

    #[test]
    fn leaving_the_module_by_super_is_an_edge_too() {
        let one = core(vec![file("wire", "use super::link::Pipe;"), file("link", "")]);
        assert_eq!(check_edges(&table("core::x: y"), &one).len(), 1);
    }

    #[test]
    fn items_of_the_crate_root_hide_edges_and_are_refused() {
        let one = core(vec![file("wire", "use crate::Time;"), file("wire::h1", "use crate::*;")]);
        assert_eq!(check_edges(&table("core::x: y"), &one).len(), 2);
    }

    #[test]
    fn in_the_shell_core_is_one_module_that_needs_its_entry() {
        let shell = |text| Crate {
            layer: "shell",
            files: vec![file("io::tcp", text)],
            dependencies: BTreeSet::new(),
        };
        let uses = shell("use h2lab_core::units::Time;");
        assert!(check_edges(&table("shell::io: core"), &uses).is_empty());
        assert_eq!(check_edges(&table("shell::io: client"), &uses).len(), 1);
    }

    #[test]
    fn a_pure_module_names_its_short_list_only_and_the_others_are_free() {
        let text =
            "use std::fmt; use serde::Serialize; use httparse::Status; use std::collections::VecDeque;";
        assert!(check_purity(&core(vec![file("wire", text)])).is_empty());
        assert!(check_purity(&core(vec![file("report", "use plotters::x;")])).is_empty());
        for bad in ["use plotters::x;", "fn f() { std::fs::read(1) }", "use std::{fmt, net::TcpStream};"] {
            assert_eq!(check_purity(&core(vec![file("link", bad)])).len(), 1, "{bad}");
        }
    }

    #[test]
    fn tests_of_a_pure_module_may_use_their_oracles() {
        assert!(check_purity(&core(vec![file("wire", "mod tests { use plotters::x; }")])).is_empty());
        assert!(check_purity(&core(vec![file("wire::tests", "use plotters::x;")])).is_empty());
    }

    #[test]
    fn a_file_of_800_lines_passes_and_one_of_801_fails() {
        assert!(check_lengths(&[file("a", &"\n".repeat(LONGEST_FILE))]).is_empty());
        assert_eq!(check_lengths(&[file("a", &"\n".repeat(LONGEST_FILE + 1))]).len(), 1);
    }

    #[test]
    fn a_row_or_entry_for_a_module_that_is_gone_is_a_problem() {
        let one = core(vec![file("wire", ""), file("trace", "")]);
        assert!(check_table(&table("core::trace: wire"), &[&one]).is_empty());
        assert_eq!(check_table(&table("core::gone: wire"), &[&one]).len(), 1);
        assert_eq!(check_table(&table("core::trace: gone"), &[&one]).len(), 1);
    }
}
