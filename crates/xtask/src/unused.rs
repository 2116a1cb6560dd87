//! Public items that nothing names: part of `cargo xtask check`.
//!
//! The compiler warns of what is private and unused, and is silent about `pub`. Here the words of all product code are
//! counted: an item whose name occurs only in its definition and in imports is unused or only for tests. Two items with
//! one name hide each other, so that this may miss some, but never reports an item that is used.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::process;
use crate::source::{self, Tree};

/// Items that may stay, each with its reason.
const KEPT: &[(&str, &str)] = &[
    ("HEADINGS", "the form of every page, against which a test holds them"),
    ("no_schema", "the derive; code names it `JsonSchema`"),
    ("resident_bytes", "integration tests hold the memory of a server under attack against it"),
    ("wire_fields", "the simulation's client, which makes the requests of the load generator"),
];

/// The words before the name of an item, behind `pub`.
const KINDS: [&str; 9] = ["fn", "struct", "enum", "const", "static", "trait", "type", "union", "mod"];
/// Those that may come between.
const QUALIFIERS: [&str; 4] = ["const", "async", "unsafe", "extern"];

/// An item that nothing names.
#[derive(Debug, PartialEq, Eq)]
struct Unused<'a> {
    path: &'a PathBuf,
    line: usize,
    kind: &'a str,
    name: &'a str,
}

impl fmt::Display for Unused<'_> {
    /// `path:line: what`, as compilers print it, so that editors jump there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: pub {} {} is named nowhere else in the product",
            self.path.display(),
            self.line,
            self.kind,
            self.name
        )
    }
}

/// Fails with every item that is unused and not in [`KEPT`], and with every entry there that is not needed.
pub fn check() -> Result<()> {
    let workspace = process::workspace();
    let tree = Tree::read(&workspace)?;
    // Benchmarks and fuzzing drive the product through what it makes public for them.
    let is_driver = |path: &PathBuf| path.iter().any(|part| part == "examples");
    let mut drivers: Vec<String> =
        tree.files.iter().filter(|file| is_driver(&file.path)).map(|file| file.tests.clone()).collect();
    let mut paths = Vec::new();
    source::collect(&workspace.join("fuzz/fuzz_targets"), &mut paths)?;
    paths.push(workspace.join("fuzz/seeds.rs"));
    for path in paths {
        drivers.push(source::code(&std::fs::read_to_string(path)?));
    }
    let found = unused(&tree, &drivers);
    let mut problems: Vec<String> = found
        .iter()
        .filter(|item| !KEPT.iter().any(|(name, _)| *name == item.name))
        .map(ToString::to_string)
        .collect();
    let is_found = |name: &str| found.iter().any(|item| item.name == name);
    problems.extend(
        KEPT.iter()
            .filter(|(name, _)| !is_found(name))
            .map(|(name, _)| format!("xtask/src/unused.rs keeps {name}, which is used or gone")),
    );
    if !problems.is_empty() {
        bail!(
            "{}\n{} items: delete them, or keep them with a reason (KEPT in xtask/src/unused.rs)",
            problems.join("\n"),
            problems.len()
        );
    }
    Ok(())
}

fn unused<'a>(tree: &'a Tree, drivers: &[String]) -> Vec<Unused<'a>> {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    let product = tree.files.iter().map(|file| file.product.as_str());
    let imports_left_out: Vec<String> =
        product.chain(drivers.iter().map(String::as_str)).map(without_imports).collect();
    for word in imports_left_out.iter().flat_map(|code| source::words(code)) {
        *named.entry(word).or_default() += 1;
    }
    let items: Vec<Unused<'_>> =
        tree.files.iter().flat_map(|file| items(&file.path, &file.product)).collect();
    let mut defined: BTreeMap<&str, usize> = BTreeMap::new();
    for item in &items {
        *defined.entry(item.name).or_default() += 1;
    }
    items.into_iter().filter(|item| named.get(item.name) <= defined.get(item.name)).collect()
}

/// Code without its `use` declarations, public ones too: a re-export is not a use. What they rename stays, since it is
/// used by its other name.
fn without_imports(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut is_import = false;
    for line in code.split_inclusive('\n') {
        is_import |=
            source::words(line).find(|word| !["pub", "crate", "super", "in"].contains(word)) == Some("use");
        if is_import {
            let renamed = line.split(',').filter_map(|part| source::words(part.split_once(" as ")?.0).last());
            renamed.for_each(|name| out.extend([name, "\n"]));
        } else {
            out.push_str(line);
        }
        is_import &= !line.contains(';');
    }
    out
}

/// The items of a file that are `pub` without restriction. Modules only lead to items.
fn items<'a>(path: &'a PathBuf, code: &'a str) -> Vec<Unused<'a>> {
    let mut items = Vec::new();
    for (line, text) in code.lines().enumerate() {
        let Some(rest) = text.trim_start().strip_prefix("pub ") else { continue };
        let mut words = source::words(rest).peekable();
        let mut kind = words.next();
        while kind.is_some_and(|word| QUALIFIERS.contains(&word))
            && words.peek().is_some_and(|word| KINDS.contains(word) || QUALIFIERS.contains(word))
        {
            kind = words.next();
        }
        let (Some(kind), Some(name)) =
            (kind.filter(|kind| KINDS.contains(kind) && *kind != "mod"), words.next())
        else {
            continue;
        };
        items.push(Unused { path, line: line + 1, kind, name });
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::File;

    fn found(product: &str, drivers: &[String]) -> Vec<String> {
        let file = File {
            path: "a.rs".into(),
            product: source::code(product),
            tests: "used_by_a_test();".to_owned(),
            said: Vec::new(),
        };
        unused(&Tree { files: vec![file] }, drivers).iter().map(|item| item.name.to_owned()).collect()
    }

    #[test]
    fn what_only_its_definition_imports_and_tests_name_is_unused() {
        let product = "pub use b::{\n    Lone,\n};\npub struct Lone;\npub const fn used_by_a_test() {}\npub fn used() {}\n\
                       fn f() { used() } // Lone\npub(crate) fn g() {}\n";
        assert_eq!(found(product, &[]), ["Lone", "used_by_a_test"]);
        assert_eq!(found(product, &["fn main() { Lone }".to_owned()]), ["used_by_a_test"]);
    }

    #[test]
    fn what_is_imported_by_another_name_is_used() {
        assert_eq!(found("pub use a::{b as c, d};\npub fn b() {}\npub fn d() {}\n", &[]), ["d"]);
    }

    #[test]
    fn items_of_every_kind_are_seen_and_fields_and_modules_are_not() {
        let product = "pub const A: u8 = 1;\npub unsafe fn b() {}\npub async fn c() {}\npub trait D {}\npub mod e;\n\
                       pub struct F {\n    pub g: u8,\n}\npub type H = u8;\npub static I: u8 = 1;\n";
        assert_eq!(found(product, &[]), ["A", "b", "c", "D", "F", "H", "I"]);
    }

    #[test]
    fn two_items_with_one_name_are_unused_together_only() {
        assert_eq!(found("pub fn a() {}\npub fn a() {}\n", &[]).len(), 2);
        assert_eq!(found("pub fn a() {}\npub fn a() {}\nfn b() { a() }\n", &[]).len(), 0);
    }
}
