//! Links of the documents, checked against the tree: no network.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process;

/// Documents that people read: those of the root, and the book.
fn documents(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in [root.to_owned(), root.join("docs"), root.join("docs/decisions"), root.join("packaging")] {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            found.extend(path.extension().is_some_and(|ending| ending == "md").then_some(path));
        }
    }
    found.sort();
    found
}

/// The targets of `[text](target)` outside of code.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let ends = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(ends.map(|(target, _)| target.to_owned()));
    }
    found
}

/// The anchors of a document's headings, as GitHub and `mdBook` make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let anchor = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let root = process::workspace();
    let mut broken = Vec::new();
    for document in documents(&root) {
        let text = fs::read_to_string(&document).unwrap();
        for target in targets(&text) {
            if target.starts_with("https://")
                || target.starts_with("http://")
                || target.starts_with("mailto:")
            {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if path.is_empty() { document.clone() } else { document.with_file_name(path) };
            let is_there = file.exists()
                && (anchor.is_empty()
                    || anchors(&fs::read_to_string(&file).unwrap_or_default()).contains(anchor));
            if !is_there {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let docs = process::workspace().join("docs");
    let listed: BTreeSet<String> =
        targets(&fs::read_to_string(docs.join("SUMMARY.md")).unwrap()).into_iter().collect();
    let pages: BTreeSet<String> = fs::read_dir(docs)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "md") && name != "SUMMARY.md")
        .collect();
    assert_eq!(pages, listed);
}

#[test]
fn code_has_no_links_and_headings_become_anchors() {
    assert_eq!(targets("[a](b.md) `[c](d)` ![e](f.png)\n```\n[g](h)\n```\n"), ["b.md", "f.png"]);
    let found = anchors("# What does `--fail-if` compare?\ntext\n## 1xx, and 2\n");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["1xx-and-2", "what-does---fail-if-compare"]);
}
