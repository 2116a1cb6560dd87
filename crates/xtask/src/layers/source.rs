//! Which paths a Rust file names: a tokeniser that knows comments and literals, and a reader of `use` trees.
//!
//! Not a parser: macros and types are token soup to it, which is enough, since a path looks the same everywhere. `syn`
//! was rejected because it gives no line numbers without nightly features and would be the largest dependency of xtask.

use std::path::Path;

/// A piece of source text that can be part of a path, or separates paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind<'a> {
    Word(&'a str),
    PathSeparator,
    Mark(char),
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind<'a>,
    line: usize,
}

/// Where a path begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// At the root of the file's own crate: `crate::`, `self::` and `super::` end here once resolved.
    OwnCrate,
    /// At any other name: an external crate, or something in scope.
    Name(String),
}

/// A path that a file names, resolved against the module in which it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathUse {
    /// Where it begins.
    pub origin: Origin,
    /// What follows; empty for the whole crate.
    pub segments: Vec<String>,
    /// The 1-based line.
    pub line: usize,
    /// Whether it stands in a module called `tests`.
    pub in_tests: bool,
}

/// The module that a file is, from its path below `src`: `wire/h2/frame.rs` is `["wire", "h2", "frame"]`, the root files
/// are `[]`.
pub fn module_of(path: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_folder_file = module.last().is_some_and(|last| last == "mod");
    let is_root = module.len() == 1 && matches!(module[0].as_str(), "lib" | "main");
    if is_folder_file || is_root {
        module.pop();
    }
    module
}

/// Every path in `text`, the source of `module`.
pub fn paths(text: &str, module: &[String]) -> Vec<PathUse> {
    let tokens = tokens(text);
    let mut reader =
        Reader { tokens: &tokens, module: module.to_vec(), scopes: Vec::new(), found: Vec::new() };
    reader.read();
    reader.found
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    /// The file's module and the inline modules around the current token.
    module: Vec<String>,
    /// For each open brace, whether it opened an inline module.
    scopes: Vec<bool>,
    found: Vec<PathUse>,
}

impl Reader<'_> {
    fn kind(&self, at: usize) -> Option<Kind<'_>> {
        self.tokens.get(at).map(|token| token.kind)
    }

    fn read(&mut self) {
        let mut at = 0;
        while let Some(token) = self.tokens.get(at) {
            match token.kind {
                Kind::Mark('{') => self.open_brace(at),
                Kind::Mark('}') => self.close_brace(),
                Kind::Word(_) if self.begins_path(at) => {
                    at = self.tree(at, &[], token.line);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn open_brace(&mut self, at: usize) {
        let name = match (
            at.checked_sub(2).and_then(|at| self.kind(at)),
            at.checked_sub(1).and_then(|at| self.kind(at)),
        ) {
            (Some(Kind::Word("mod")), Some(Kind::Word(name))) => Some(name.to_owned()),
            _ => None,
        };
        self.scopes.push(name.is_some());
        self.module.extend(name);
    }

    fn close_brace(&mut self) {
        if self.scopes.pop() == Some(true) {
            self.module.pop();
        }
    }

    /// Whether the word at `at` is the first of a path, or a lone name after `use`.
    fn begins_path(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|at| self.kind(at));
        let goes_on = self.kind(at + 1) == Some(Kind::PathSeparator);
        match before {
            Some(Kind::Word("use")) => true,
            // `::serde::Value` begins at its separator; `Vec::new` and `<T>::new` do not.
            Some(Kind::PathSeparator) => {
                let further = at.checked_sub(2).and_then(|at| self.kind(at));
                goes_on
                    && !matches!(further, Some(Kind::Word(word)) if word != "use")
                    && further != Some(Kind::Mark('>'))
            }
            _ => goes_on,
        }
    }

    /// Reads the `use` tree (or plain path) at `at`, below `prefix`; returns where it ends.
    fn tree(&mut self, mut at: usize, prefix: &[String], line: usize) -> usize {
        let mut path = prefix.to_vec();
        loop {
            match self.kind(at) {
                Some(Kind::Word(word)) => {
                    path.push(word.to_owned());
                    at += 1;
                }
                Some(Kind::Mark('*')) => {
                    at += 1;
                    break;
                }
                Some(Kind::Mark('{')) if self.kind(at.wrapping_sub(1)) == Some(Kind::PathSeparator) => {
                    return self.group(at + 1, &path);
                }
                _ => break,
            }
            if self.kind(at) != Some(Kind::PathSeparator) {
                break;
            }
            at += 1;
        }
        self.record(path, line);
        at
    }

    /// Reads the members of `{a, b::c as d}` up to the closing brace.
    fn group(&mut self, mut at: usize, prefix: &[String]) -> usize {
        while let Some(token) = self.tokens.get(at) {
            match token.kind {
                Kind::Mark('}') => return at + 1,
                Kind::Word("as") => at += 2,
                Kind::Word(_) | Kind::Mark('*') => at = self.tree(at, prefix, token.line),
                _ => at += 1,
            }
        }
        at
    }

    fn record(&mut self, path: Vec<String>, line: usize) {
        let mut segments = path.into_iter().peekable();
        let mut base = self.module.clone();
        let origin = match segments.next().as_deref() {
            Some("crate") => {
                base.clear();
                Origin::OwnCrate
            }
            Some("self") => Origin::OwnCrate,
            Some("super") => {
                base.pop();
                while segments.next_if(|segment| segment == "super").is_some() {
                    base.pop();
                }
                Origin::OwnCrate
            }
            Some(name) => {
                base.clear();
                Origin::Name(name.to_owned())
            }
            None => return,
        };
        base.extend(segments.filter(|segment| segment != "self"));
        let in_tests = self.module.iter().any(|module| module == "tests");
        self.found.push(PathUse { origin, segments: base, line, in_tests });
    }
}

/// Cuts `text` into tokens, without comments and without what literals contain.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (length, kind) = next(rest, first);
        line += rest[..length].matches('\n').count();
        if let Some(kind) = kind {
            tokens.push(Token { kind, line });
        }
        rest = &rest[length..];
    }
    tokens
}

/// The length of the piece at the start of `rest`, and its token if it is one.
fn next(rest: &str, first: char) -> (usize, Option<Kind<'_>>) {
    let word = |text: &str| text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), None);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), None);
    }
    if let Some(length) = string(rest) {
        return (length, None);
    }
    if first == '\'' {
        return (char_or_lifetime(rest), None);
    }
    if rest.starts_with("::") {
        return (2, Some(Kind::PathSeparator));
    }
    if first.is_ascii_digit() {
        return (word(rest), None);
    }
    if first.is_alphabetic() || first == '_' {
        if let Some(raw) = rest.strip_prefix("r#") {
            let length = word(raw);
            return (length + 2, Some(Kind::Word(&raw[..length])));
        }
        let length = word(rest);
        return (length, Some(Kind::Word(&rest[..length])));
    }
    (first.len_utf8(), (!first.is_whitespace()).then_some(Kind::Mark(first)))
}

/// The length of a block comment; they nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// The length of a string literal of any kind, if one begins here.
fn string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix);
        after.is_some_and(|after| {
            after.trim_start_matches(if prefix.ends_with('r') { '#' } else { '"' }).starts_with('"')
                || after.starts_with('"')
        })
    })?;
    let body = &rest[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let start = prefix.len() + hashes + 1;
        return Some(rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len()));
    }
    let mut escaped = false;
    for (at, c) in body.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(prefix.len() + at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// The length of `'a'`, `'\n'` or the lifetime `'a`.
fn char_or_lifetime(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest.get(3..).and_then(|rest| rest.find('\'')).map_or(rest.len(), |at| at + 4),
        Some((_, _)) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 1, // a lifetime: its name is read as a word, which no path follows
        },
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str, module: &[&str]) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|&part| part.to_owned()).collect();
        let own = paths(text, &module).into_iter().filter(|path| path.origin == Origin::OwnCrate);
        own.map(|path| path.segments.join("::")).collect()
    }

    fn named(text: &str) -> Vec<String> {
        paths(text, &[])
            .into_iter()
            .filter_map(|path| match path.origin {
                Origin::Name(name) => Some(name),
                Origin::OwnCrate => None,
            })
            .collect()
    }

    #[test]
    fn files_are_named_as_modules() {
        let name = |path: &str| module_of(Path::new(path)).join("::");
        assert_eq!(name("wire/h2/frame.rs"), "wire::h2::frame");
        assert_eq!(name("wire/mod.rs"), "wire");
        assert_eq!(name("units.rs"), "units");
        assert_eq!(name("lib.rs"), "");
        assert_eq!(name("main.rs"), "");
    }

    #[test]
    fn groups_globs_and_renames_are_opened() {
        let text = "use crate::{wire::{self, h2::*}, trace as t, units::Time};";
        assert_eq!(own(text, &["stats"]), ["wire", "wire::h2", "trace", "units::Time"]);
        assert_eq!(own("use {crate::a, crate::b::C};", &[]), ["a", "b::C"]);
    }

    #[test]
    fn super_is_resolved_from_the_module_it_stands_in() {
        assert_eq!(own("use super::trace::X;", &["wire"]), ["trace::X"]);
        assert_eq!(own("use super::event::X;", &["wire", "h2"]), ["wire::event::X"]);
        assert_eq!(own("use super::super::link;", &["wire", "h2"]), ["link"]);
        assert_eq!(
            own("fn f() {} mod tests { use super::*; use super::super::link; } use self::a;", &["wire"]),
            ["wire", "link", "wire::a"]
        );
    }

    #[test]
    fn paths_in_code_count_as_imports_do() {
        assert_eq!(
            own("fn f() -> crate::wire::Error { crate::units::nanos::<u8>(1) }", &["link"]),
            ["wire::Error", "units::nanos"]
        );
        assert_eq!(
            own("macro_rules! m { () => { $crate::random::derive() } }", &["link"]),
            ["random::derive"]
        );
    }

    #[test]
    fn comments_and_literals_name_nothing() {
        let text = r##"
            // crate::a
            /* crate::b /* crate::c */ crate::d */
            const S: &str = "crate::e \" crate::f";
            const R: &str = r#"crate::g " crate::h"#;
            const B: &[u8] = b"crate::i";
            const C: (char, char) = ('"', '\'');
            fn f<'a>(x: &'a crate::real::Thing) {}
        "##;
        assert_eq!(own(text, &["x"]), ["real::Thing"]);
    }

    #[test]
    fn an_external_crate_is_the_first_name_of_a_path() {
        assert_eq!(
            named("use serde::Serialize; let x = ::toml::Value::new(); Vec::<u8>::new()"),
            ["serde", "toml", "Vec"]
        );
        assert_eq!(named("use postcard;"), ["postcard"]);
    }

    #[test]
    fn tests_are_known_as_such_and_lines_are_counted() {
        let found = paths("use a::b;\nmod tests {\n    use c::d;\n}\nuse e::f;", &[]);
        let seen: Vec<(usize, bool)> = found.iter().map(|path| (path.line, path.in_tests)).collect();
        assert_eq!(seen, [(1, false), (3, true), (5, false)]);
    }
}
