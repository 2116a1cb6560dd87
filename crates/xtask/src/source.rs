//! Rust files as text: which lines are code, which belong to tests, which words are named.
//!
//! Not a parser: `syn` was rejected because it would be the largest dependency of xtask and keeps no comments or blank
//! lines to count by. What counts as product is stated at [`Tree::read`], once, for `history` and for `unused`.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders and files that hold tests, or programs that only benchmarks run, by their name.
const TEST_FOLDERS: [&str; 4] = ["tests", "testing", "examples", "benches"];
const TEST_FILES: [&str; 2] = ["tests.rs", "testing.rs"];

/// A Rust file: `code` has a space for each character of a comment, and quotes for what literals contain.
#[derive(Debug)]
pub struct File {
    /// Its path from the root of the workspace.
    pub path: PathBuf,
    /// Product code; empty in a file of tests.
    pub product: String,
    /// Test code, in the same form.
    pub tests: String,
    /// What product code says in literals and in the documentation of the command line, in the order of the file.
    pub said: Vec<Said>,
}

/// A piece of text in product code.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// A literal as it is written, with the code before it on its line.
    Literal {
        /// Such as `reason = `.
        before: String,
        /// With its quotes.
        text: String,
    },
    /// One line of documentation inside an item that clap reads, without `///`.
    Help(String),
    /// The documentation above ends.
    HelpEnds,
}

/// The files of a workspace's crates.
#[derive(Debug)]
pub struct Tree {
    /// In the order of their paths.
    pub files: Vec<File>,
}

impl Tree {
    /// Reads every Rust file below `crates`, but not xtask: tools are neither product nor tests.
    ///
    /// Test code is: what lies in a folder `tests`, `testing`, `examples` or `benches`; files called `tests.rs` or
    /// `testing.rs`; whatever follows `#[cfg(test)]`, or another `cfg` of `test` without `not`, and the files of such a
    /// module. The rest is product. A line counts if it has anything but blanks and comments.
    pub fn read(workspace: &Path) -> Result<Self> {
        let mut paths = Vec::new();
        collect(&workspace.join("crates"), &mut paths)?;
        paths.retain(|path| !path.starts_with(workspace.join("crates/xtask")));
        paths.sort();
        let mut sources = Vec::new();
        let mut test_modules = BTreeSet::new();
        for path in paths {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let (code, pieces) = scan(&text);
            let split = split(&code);
            test_modules.extend(split.modules.iter().map(|name| submodule(&path, name)));
            let said = said(&code, &pieces, &split.kept);
            sources.push((path, code, split, said));
        }
        let is_test = |path: &Path| {
            let inside = path.strip_prefix(workspace).unwrap_or(path);
            inside.iter().any(|part| TEST_FOLDERS.iter().any(|name| part == *name))
                || path.file_name().is_some_and(|file| TEST_FILES.iter().any(|name| file == *name))
                || path.ancestors().any(|at| test_modules.contains(&at.with_extension("")))
        };
        let files = sources.into_iter().map(|(path, code, split, said)| {
            let (product, tests, said) = if is_test(&path) {
                (String::new(), code, Vec::new())
            } else {
                (split.product, split.tests, said)
            };
            let path = path.strip_prefix(workspace).unwrap_or(&path).to_owned();
            File { path, product, tests, said }
        });
        Ok(Self { files: files.collect() })
    }

    /// Lines of product code, and of test code.
    pub fn lines(&self) -> (usize, usize) {
        let sum = |of: fn(&File) -> &str| self.files.iter().map(|file| code_lines(of(file))).sum();
        (sum(|file| &file.product), sum(|file| &file.tests))
    }
}

/// Every Rust file below `folder`.
pub fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
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

/// Where the module `name` of the file `path` lies, without `.rs`.
fn submodule(path: &Path, name: &str) -> PathBuf {
    let is_root =
        path.file_stem().is_some_and(|stem| ["lib", "main", "mod"].iter().any(|name| stem == *name));
    let folder = if is_root { path.parent().map(Path::to_path_buf) } else { Some(path.with_extension("")) };
    folder.unwrap_or_default().join(name)
}

/// Lines that are not blank in what [`code`] has left.
fn code_lines(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

/// The words of `code`: identifiers, keywords, numbers.
pub fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty())
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `text` with comments blanked, and literals filled with quotes, except for what a format string captures: `{name}`.
/// Lines stay where they are.
pub fn code(text: &str) -> String {
    scan(text).0
}

/// The same, and every comment and literal with the place in it where it was.
pub fn scan(text: &str) -> (String, Vec<(usize, &str)>) {
    let (mut rest, mut out) = (text, String::with_capacity(text.len()));
    let mut pieces = Vec::new();
    let mut in_word = false;
    while let Some(first) = rest.chars().next() {
        let (length, filler) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), ' ')
        } else if rest.starts_with("/*") {
            (block_comment(rest), ' ')
        } else if let Some(length) = (!in_word).then(|| literal(rest, first)).flatten() {
            (length, '"')
        } else {
            in_word = is_of_word(first);
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        in_word = false;
        pieces.push((out.len(), &rest[..length]));
        fill(&rest[..length], filler, &mut out);
        rest = &rest[length..];
    }
    (out, pieces)
}

/// What a user may read of the `pieces` of `code` that lie in `kept`.
fn said(code: &str, pieces: &[(usize, &str)], kept: &[Range<usize>]) -> Vec<Said> {
    let help = read_by_clap(code);
    let mut said = Vec::new();
    let mut help_end = None;
    for &(at, piece) in pieces.iter().filter(|(at, _)| kept.iter().any(|part| part.contains(at))) {
        if help_end.is_some_and(|end: usize| !code[end.min(at)..at].trim().is_empty()) {
            said.push(Said::HelpEnds);
            help_end = None;
        }
        if piece.starts_with('/') {
            let doc = piece.strip_prefix("///").filter(|_| help.iter().any(|item| item.contains(&at)));
            if let Some(doc) = doc {
                said.push(Said::Help(doc.trim().to_owned()));
                help_end = Some(at);
            }
            continue;
        }
        let line = code[..at].rfind('\n').map_or(0, |end| end + 1);
        // A literal on a line of its own belongs to the call above.
        let before = code[line..at].trim();
        let before =
            if before.is_empty() { code[..at].trim_end().lines().last().unwrap_or("") } else { before };
        said.push(Said::Literal { before: before.trim().to_owned(), text: piece.to_owned() });
    }
    said
}

/// What product code in `text` says.
#[cfg(test)]
pub fn said_in(text: &str) -> Vec<Said> {
    let (code, pieces) = scan(text);
    said(&code, &pieces, &split(&code).kept)
}

/// The items of `code` whose documentation is help of the command line.
fn read_by_clap(code: &str) -> Vec<Range<usize>> {
    let derives = code.match_indices("#[derive(").map(|(at, _)| at);
    let is_of_clap = |at: &usize| {
        words(&code[*at..at + closing(&code[*at..])])
            .any(|word| ["Args", "Parser", "Subcommand", "ValueEnum"].contains(&word))
    };
    // Blanked comments are blanks: those before the derive are between the item above and it.
    derives.filter(is_of_clap).map(|at| code[..at].trim_end().len()..at + item(&code[at..])).collect()
}

fn fill(piece: &str, filler: char, out: &mut String) {
    let mut is_captured = false;
    for c in piece.chars() {
        is_captured = filler == '"' && (c == '{' || (is_captured && is_of_word(c)));
        out.push(if c == '\n' || (is_captured && c != '{') { c } else { filler });
    }
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

/// The length of a string or character literal, if one begins here.
fn literal(rest: &str, first: char) -> Option<usize> {
    if first == '\'' {
        return character(rest);
    }
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let body = rest.strip_prefix(prefix);
        let hashes = if prefix.ends_with('r') { '#' } else { '"' };
        body.is_some_and(|body| body.starts_with('"') || body.trim_start_matches(hashes).starts_with('"'))
    });
    let Some(prefix) = prefix else {
        return rest.strip_prefix("b'").and_then(|_| Some(1 + character(&rest[1..])?));
    };
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

/// The length of `'a'` or `'\n'`; `None` for the lifetime `'a`.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    match chars.next()? {
        (_, '\\') => Some(rest.get(3..)?.find('\'')? + 4),
        _ => chars.next().and_then(|(at, c)| (c == '\'').then_some(at + 1)),
    }
}

/// Code divided into product and tests, with the names of the modules of tests that lie in files of their own.
struct Split {
    product: String,
    tests: String,
    modules: Vec<String>,
    /// Where the product lies in the whole.
    kept: Vec<Range<usize>>,
}

/// Divides what [`code`] has left by its `cfg` attributes.
fn split(code: &str) -> Split {
    let mut split =
        Split { product: String::new(), tests: String::new(), modules: Vec::new(), kept: Vec::new() };
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(") {
        let end = at + closing(&rest[at..]);
        let condition: Vec<&str> = words(&rest[at..end]).collect();
        if !condition.contains(&"test") || condition.contains(&"not") {
            split.keep(code, rest, end);
            rest = &rest[end..];
            continue;
        }
        let after = end + item(&rest[end..]);
        split.keep(code, rest, at);
        let item = &rest[at..after];
        split.tests.push_str(item);
        split.tests.push('\n');
        if let Some(name) = item.strip_suffix(';').and_then(|item| {
            let mut words = words(item).skip_while(|word| *word != "mod");
            words.next().and(words.next())
        }) {
            split.modules.push(name.to_owned());
        }
        rest = &rest[after..];
    }
    split.keep(code, rest, rest.len());
    split
}

impl Split {
    /// The first `length` bytes of what is left of `code` are product.
    fn keep(&mut self, code: &str, rest: &str, length: usize) {
        let start = code.len() - rest.len();
        self.product.push_str(&rest[..length]);
        self.kept.push(start..start + length);
    }
}

/// The length up to the end of the brackets that open first.
fn closing(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => continue,
        }
        if depth <= 0 {
            return at + c.len_utf8();
        }
    }
    code.len()
}

/// The length of the item, statement or field at the start of `code`, with the attributes before it.
fn item(code: &str) -> usize {
    let blank = |at: usize| at + (code[at..].len() - code[at..].trim_start().len());
    let mut start = blank(0);
    while code[start..].starts_with("#[") {
        start = blank(start + closing(&code[start..]));
    }
    let begin = words(&code[start..]).find(|word| !["pub", "crate", "super", "in"].contains(word));
    // Items that may have a comma before their body, between angle brackets; a field ends with a comma.
    let has_body = begin.is_some_and(|word| {
        ["fn", "const", "async", "unsafe", "impl", "struct", "enum", "trait", "mod"].contains(&word)
    });
    let is_import = begin == Some("use");
    let mut at = start;
    while let Some(c) = code[at..].chars().next() {
        match c {
            ';' => return at + 1,
            ',' if !has_body && !is_import => return at + 1,
            '{' if !is_import => return at + closing(&code[at..]),
            '(' | '[' | '{' => at += closing(&code[at..]),
            ')' | ']' | '}' => return at,
            _ => at += c.len_utf8(),
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    /// No file is longer, tests included: beyond this a reader loses track.
    const LONGEST_FILE: usize = 800;

    fn lines(text: &str) -> (usize, usize) {
        let split = split(&code(text));
        (code_lines(&split.product), code_lines(&split.tests))
    }

    #[test]
    fn every_file_has_at_most_800_lines() {
        let mut paths = Vec::new();
        collect(&process::workspace().join("crates"), &mut paths).unwrap();
        for path in paths {
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines <= LONGEST_FILE, "{}: {lines} lines; split it by what it is about", path.display());
        }
    }

    /// Whether ARCHITECTURE.md's `crate/file.rs`, or a file named after another, lies below `crates/*/src`.
    fn is_there(root: &Path, named: &str) -> bool {
        let mut paths = Vec::new();
        let (krate, rest) = named.split_once('/').unwrap_or(("", named));
        collect(&root.join("crates"), &mut paths).unwrap();
        root.join("crates").join(krate).join("src").join(rest).exists()
            || root.join("crates").join(named).exists()
            || paths.iter().any(|path| path.ends_with(named))
    }

    #[test]
    fn architecture_fits_a_screen_and_every_path_that_it_names_is_there() {
        let root = process::workspace();
        let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
        assert!(text.lines().count() <= 150, "{} lines", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= 120));
        let paths = text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| word.rsplit_once('.').is_some_and(|(_, end)| end == "rs"));
        let missing: Vec<&str> = paths.filter(|path| !is_there(&root, path)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn blank_lines_and_comments_do_not_count_and_strings_over_lines_do() {
        assert_eq!(
            lines("//! a\n\nfn f() {} // b\n/* c /* d */\n e */\n/// x\nconst S: &str = \"a\n// b\n\";\n"),
            (4, 0)
        );
        assert_eq!(lines("let a = '\"'; // b\nlet b: &'a str = r#\"\"//\"#; // c\n// d"), (2, 0));
        assert_eq!(lines("let a = b'\"'; // b\nlet c = br\"//\n\";"), (3, 0));
    }

    #[test]
    fn what_only_tests_build_is_test_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\" }\n}\nfn c() {}\n";
        assert_eq!(lines(text), (2, 4));
        assert_eq!(
            lines("struct S {\n    a: u8,\n    #[cfg(test)]\n    b: [u8; 2],\n    c: u8,\n}\n"),
            (4, 2)
        );
        assert_eq!(
            lines("#[cfg(test)]\n#[allow(x)]\npub fn f<A, B>(x: [u8; 2]) -> u8 {\n}\nfn g() {}\n"),
            (1, 4)
        );
        assert_eq!(lines("#[cfg(any(test, feature = \"x\"))]\nuse a::{b, c};\nfn g() {}\n"), (1, 2));
        assert_eq!(lines("#[cfg(not(test))]\nfn f() {}\n"), (2, 0));
    }

    #[test]
    fn a_module_of_tests_in_a_file_of_its_own_is_known_by_its_name() {
        let split = split("#[cfg(test)]\npub(crate) mod cost;\nmod other;\n");
        assert_eq!(split.modules, ["cost"]);
        assert_eq!(submodule(Path::new("a/b.rs"), "cost"), Path::new("a/b/cost"));
        assert_eq!(submodule(Path::new("a/mod.rs"), "cost"), Path::new("a/cost"));
    }

    #[test]
    fn the_words_of_a_literal_are_not_named_but_those_that_it_captures_are() {
        let code = code("f(\"not {LIMIT:>3} this {}\", b\"nor\", 'x', x::<'a>)");
        assert_eq!(words(&code).collect::<Vec<_>>(), ["f", "LIMIT", "x", "a"]);
    }

    #[test]
    fn this_tree_has_product_and_tests_and_no_tools() {
        let tree = Tree::read(&process::workspace()).unwrap();
        let (product, tests) = tree.lines();
        assert!(product > 10_000 && tests > 10_000, "{product} and {tests}");
        assert!(tree.files.iter().all(|file| !file.path.starts_with("crates/xtask")));
    }
}
