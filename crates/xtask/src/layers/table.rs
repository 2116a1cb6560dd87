//! The fenced `layers` table of ARCHITECTURE.md.
//!
//! One row per module: `core::record: scenario, link`. A row `core::*: units, random` holds for every module of the
//! crate. A module without a row may import only what the crate's `*` row allows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

/// A module of a crate: `("core", "wire")`.
pub type Module = (String, String);

/// Which module may import which.
#[derive(Debug, Default)]
pub struct Table {
    allowed: BTreeMap<Module, BTreeSet<String>>,
}

impl Table {
    /// Reads the table out of a Markdown page.
    pub fn parse(markdown: &str) -> Result<Self> {
        let mut lines = markdown.lines().map(str::trim);
        if !lines.any(|line| line == "```layers") {
            bail!("there is no fenced block ```layers");
        }
        let mut table = Self::default();
        for line in lines {
            match line {
                "```" => return table.acyclic(),
                "" => {}
                row => table.add(row)?,
            }
        }
        bail!("the fenced block ```layers has no end");
    }

    fn add(&mut self, row: &str) -> Result<()> {
        let parsed = row
            .split_once(": ")
            .and_then(|(module, allowed)| Some((module.trim().split_once("::")?, allowed)));
        let Some(((layer, module), allowed)) = parsed else {
            bail!("`{row}` is not a row such as `core::stats: record, units`");
        };
        let allowed = allowed.split(',').map(|name| name.trim().to_owned()).collect();
        let key = (layer.to_owned(), module.to_owned());
        if self.allowed.insert(key, allowed).is_some() {
            bail!("{layer}::{module} has two rows");
        }
        Ok(())
    }

    /// The modules that have a row of their own.
    pub fn rows(&self) -> impl Iterator<Item = &Module> {
        self.allowed.keys().filter(|(_, module)| module != "*")
    }

    /// All names that stand on the right side of a row of `layer`.
    pub fn targets<'a>(&'a self, layer: &'a str) -> impl Iterator<Item = &'a String> {
        self.allowed.iter().filter(move |((of, _), _)| of == layer).flat_map(|(_, allowed)| allowed)
    }

    /// Whether `from` may import `to`; both are modules of `layer`, or `to` is `core` as a whole.
    pub fn allows(&self, layer: &str, from: &str, to: &str) -> bool {
        self.allowed_for(layer, from).contains(to)
    }

    /// What `from` may import: its own row and that of `*`.
    pub fn allowed_for(&self, layer: &str, from: &str) -> BTreeSet<&str> {
        let row = |module: &str| self.allowed.get(&(layer.to_owned(), module.to_owned()));
        row(from).into_iter().chain(row("*")).flatten().map(String::as_str).collect()
    }

    /// Fails if a module could reach itself: a table with a cycle promises no direction.
    fn acyclic(self) -> Result<Self> {
        for (layer, module) in self.rows() {
            let mut reached = BTreeSet::new();
            let mut open = vec![module.clone()];
            while let Some(from) = open.pop() {
                for to in self.allowed.get(&(layer.clone(), from)).into_iter().flatten() {
                    if to == module {
                        bail!("the table lets {layer}::{module} import itself by way of others");
                    }
                    if reached.insert(to.clone()) {
                        open.push(to.clone());
                    }
                }
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rows: &str) -> Result<Table> {
        Table::parse(&format!("text\n```layers\n{rows}\n```\nmore text"))
    }

    #[test]
    fn a_row_allows_what_it_lists_and_nothing_else() {
        let table = parse("core::trace: wire, units\ncore::wire: units").unwrap();
        assert!(table.allows("core", "trace", "wire"));
        assert!(!table.allows("core", "wire", "trace"));
        assert!(!table.allows("shell", "trace", "wire"));
    }

    #[test]
    fn the_star_row_is_free_to_all_modules_of_its_crate_even_without_a_row() {
        let table = parse("core::*: units\nshell::io: core").unwrap();
        assert!(table.allows("core", "link", "units"));
        assert!(!table.allows("shell", "link", "units"));
    }

    #[test]
    fn a_cycle_in_the_table_is_refused_and_a_diamond_is_not() {
        assert!(parse("core::a: b\ncore::b: c\ncore::c: a").is_err());
        assert!(parse("core::a: b, c\ncore::b: d\ncore::c: d").is_ok());
    }

    #[test]
    fn a_broken_table_says_what_is_wrong() {
        assert!(parse("core stats record").unwrap_err().to_string().contains("core stats record"));
        assert!(parse("core::a: b\ncore::a: c").unwrap_err().to_string().contains("two rows"));
        assert!(Table::parse("no table").is_err());
        assert!(Table::parse("```layers\ncore::a: b").unwrap_err().to_string().contains("no end"));
    }
}
