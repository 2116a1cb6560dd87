//! `cargo xtask confirmed`: docs/confirmed.md, which cause was found at which server and what confirmed it, from the records of
//! `cargo xtask verify diagnose`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::situation::Situation;
use super::{Change, Found, effect_words, is_right};
use crate::process;

/// The page.
const PAGE: &str = "docs/confirmed.md";
/// The records that it is made from, one for each seed, in a folder of `results`.
const RECORDS: &str = "results/diagnose";

const HEAD: &str = "\
# What was confirmed

Each row is a cause, or two, planted in a real system: a server with a setting, a link, a client, with values drawn at random. `h2lab
diagnose` was not told which. *Found first* counts the draws in which the first cause that it named was a planted one (of `A or B`
either), and of two planted ones the other was named as well. What a planted cause brings with it in some draws (`also` in the file of
situations: all streams are taken where streams are refused, for example) may be named before it, and is not counted. Only the first
look at a draw counts: one that was wrong counts as wrong, although the same draw was right when it was staged again with a later h2lab,
and one that could not be staged at first does not count. *Change* is the one setting that h2lab changed in its experiment; of several
that were confirmed, in draws with the right cause, the one with the largest effect. The effect is on p95, p99 or requests/s, with an
interval that is corrected for all changes of the run; above 1 is better. Without a change the cause was seen in frames or packets, and
no experiment of the budget decided; of a client (curl, httpx …) only what lies at h2lab's end can be changed.

Made by `cargo xtask confirmed` from the records of `cargo xtask verify diagnose` in `results/diagnose`.

| cause | server or client | found first | change | effect |
|---|---|---|---|---|
";

/// A situation and what `diagnose` found in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    situation: String,
    planted: Vec<String>,
    found: Vec<String>,
    is_right: bool,
    server: String,
    drawn: BTreeMap<String, String>,
    change: Option<Change>,
    removed: Option<[f64; 3]>,
    /// Why this is not the first look at the draw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    again: Option<Again>,
    /// Whether h2lab said that it could not measure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unsound: bool,
}

/// Why a draw was staged again with a later h2lab. It is written into a record by hand: `verify` stages a draw once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Again {
    /// The first diagnosis was wrong.
    Wrong,
    /// It could not be staged at first.
    NotStaged,
}

impl Row {
    /// The row of what is kept of a situation. A program that `diagnose` did not start is asked for its version.
    pub(super) fn new(name: &str, situation: &Situation, found: &Found) -> Self {
        Self {
            situation: name.to_owned(),
            planted: situation.planted.clone(),
            found: found.all(),
            is_right: is_right(situation, found),
            server: found.server.clone().unwrap_or_else(|| with_version(product(name))),
            drawn: found.drawn.clone(),
            change: found.change.clone(),
            removed: found.removed,
            again: None,
            unsound: found.unsound,
        }
    }

    /// Whether the first look at the draw has a result.
    fn is_first_look(&self) -> bool {
        self.again != Some(Again::NotStaged)
    }

    /// Whether that result was right.
    fn was_right(&self) -> bool {
        self.is_right && self.again.is_none()
    }
}

/// The products that situations are named after; others are of our origin.
const PRODUCTS: [&str; 18] = [
    "apache",
    "caddy",
    "curl",
    "envoy",
    "go",
    "h2load",
    "h2o",
    "haproxy",
    "httpx",
    "hypercorn",
    "java",
    "nghttp",
    "nghttpd",
    "nghttpx",
    "nginx",
    "node",
    "python",
    "tomcat",
];

/// The product that a situation is named after.
pub(super) fn product(name: &str) -> &str {
    name.split('-').find(|word| PRODUCTS.contains(word)).unwrap_or("origin")
}

/// A product with the version of its program, if it says one.
fn with_version(product: &str) -> String {
    if product == "origin" {
        return format!("origin {}", env!("CARGO_PKG_VERSION"));
    }
    let (program, flags): (_, &[&str]) = match product {
        "nginx" | "haproxy" | "apache" => (if product == "apache" { "apache2" } else { product }, &["-v"]),
        "go" | "caddy" => (product, &["version"]),
        "tomcat" => {
            ("java", &["-cp", "/usr/share/tomcat10/lib/catalina.jar", "org.apache.catalina.util.ServerInfo"])
        }
        _ => (product, &["--version"]),
    };
    let version = process::find(program).and_then(|path| version_of(&path, flags, product));
    version.map_or_else(|| product.to_owned(), |version| format!("{product} {version}"))
}

/// The version of a program: what it says of itself, else that of the Python package which it belongs to: httpx and hypercorn have
/// no flag for it, and the numbers in their help are others.
fn version_of(program: &Path, flags: &[&str], package: &str) -> Option<String> {
    let said = |command: &mut Command| {
        let output = command.output().ok().filter(|output| output.status.success())?;
        version_in(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
    };
    said(Command::new(program).args(flags)).or_else(|| {
        let code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))";
        said(Command::new(interpreter(program)?).args(["-c", code, package]))
    })
}

/// The Python that runs a script, as its first line names it: a virtual environment has its own.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut first = String::new();
    BufReader::new(fs::File::open(script).ok()?).take(4096).read_line(&mut first).ok()?;
    let path = PathBuf::from(first.strip_prefix("#!")?.split_whitespace().next()?);
    path.file_name()?.to_str()?.starts_with("python").then_some(path)
}

/// The first number with a point in a text.
fn version_in(text: &str) -> Option<String> {
    let words = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    let mut numbers = words.map(|word| word.trim_matches('.')).filter(|word| word.contains('.'));
    numbers.next().map(ToOwned::to_owned)
}

/// Writes the page.
pub fn run() -> Result<ExitCode> {
    let root = process::workspace();
    let (rows, records) = recorded(&root.join(RECORDS))?;
    fs::write(root.join(PAGE), page(&rows)).with_context(|| format!("cannot write {PAGE}"))?;
    println!("{PAGE}: {} situations; records: {records}", rows.len());
    Ok(ExitCode::SUCCESS)
}

/// All rows of the records in a folder, and how many records there are.
fn recorded(folder: &Path) -> Result<(Vec<Row>, usize)> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort_unstable();
    ensure!(!paths.is_empty(), "no record in {}", folder.display());
    let mut rows = Vec::new();
    for path in &paths {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in text.lines() {
            rows.push(serde_json::from_str(line).with_context(|| format!("in {}", path.display()))?);
        }
    }
    Ok((rows, paths.len()))
}

/// The page: a line for each planted set of causes and each server. Of several changes it has the one that was confirmed with
/// the largest effect.
fn page(rows: &[Row]) -> String {
    let mut all: BTreeMap<(String, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.planted.is_empty()) {
        let causes = row.planted.join(" and ").replace('|', " or ");
        all.entry((causes, &row.server)).or_default().push(row);
    }
    let mut text = HEAD.to_owned();
    for ((causes, server), rows) in all {
        let looks: Vec<_> = rows.iter().filter(|row| row.is_first_look()).collect();
        let first = looks.iter().filter(|row| row.was_right()).count();
        let changes = rows.iter().filter(|row| row.is_right).filter_map(|row| row.change.as_ref());
        let confirmed = changes.filter(|change| change.is_confirmed);
        let best = confirmed.max_by(|a, b| a.effect[0].total_cmp(&b.effect[0]));
        let (change, effect) =
            best.map_or_else(Default::default, |change| (change.what.clone(), effect_words(change.effect)));
        let _ = writeln!(text, "| {causes} | {server} | {first} of {} | {change} | {effect} |", looks.len());
    }
    let healthy: Vec<&Row> =
        rows.iter().filter(|row| row.planted.is_empty() && row.is_first_look()).collect();
    let wrong = healthy.iter().filter(|row| !row.was_right()).count();
    let unsound = healthy.iter().filter(|row| row.was_right() && row.unsound).count();
    let _ = write!(
        text,
        "\nOf {} healthy systems, drawn at random as well, {wrong} had a cause named. On a machine that was too busy to measure, {unsound} \
         more had no verdict.\n",
        healthy.len() - unsound
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(planted: &[&str], is_right: bool, change: Option<(&str, bool, f64)>) -> Row {
        Row {
            situation: "x".to_owned(),
            planted: planted.iter().map(|cause| (*cause).to_owned()).collect(),
            found: Vec::new(),
            is_right,
            server: "nginx 1.22.1".to_owned(),
            drawn: BTreeMap::new(),
            change: change.map(|(what, is_confirmed, ratio)| Change {
                what: what.to_owned(),
                is_confirmed,
                effect: [ratio, ratio / 2.0, ratio * 2.0],
            }),
            removed: None,
            again: None,
            unsound: false,
        }
    }

    #[test]
    fn a_line_counts_draws_and_has_the_largest_confirmed_effect() {
        let rows = [
            row(&["CONN101"], true, Some(("no limit", true, 2.0))),
            row(&["CONN101"], false, Some(("4 connections", true, 3.0))),
            row(&["CONN101"], true, Some(("bbr", false, 90.0))),
            row(&["LOSS101|LOSS102", "CONN101"], true, None),
            row(&[], true, None),
            row(&[], false, None),
            Row { unsound: true, ..row(&[], true, None) },
        ];
        let text = page(&rows);
        for line in [
            "| CONN101 | nginx 1.22.1 | 2 of 3 | no limit | 2.00 × (1.00–4.00) |",
            "| LOSS101 or LOSS102 and CONN101 | nginx 1.22.1 | 1 of 1 |  |  |",
            "Of 2 healthy systems, drawn at random as well, 1 had a cause named. On a machine that was too busy to measure, 1 more had no \
             verdict.",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn only_the_first_look_at_a_draw_counts() {
        let again = |again: Again| Row {
            again: Some(again),
            ..row(&["CONN101"], true, Some(("no limit", true, 2.0)))
        };
        let line = |rows: &[Row]| {
            let text = page(rows);
            text.lines().find(|line| line.starts_with("| CONN101 |")).unwrap().to_owned()
        };
        let first = row(&["CONN101"], true, None);
        let effect = "no limit | 2.00 × (1.00–4.00) |";
        let rows = [first.clone(), again(Again::Wrong)];
        assert_eq!(line(&rows), format!("| CONN101 | nginx 1.22.1 | 1 of 2 | {effect}"));
        let rows = [first, again(Again::NotStaged)];
        assert_eq!(line(&rows), format!("| CONN101 | nginx 1.22.1 | 1 of 1 | {effect}"));
        let healthy = |again: Again| Row { again: Some(again), ..row(&[], true, None) };
        let text = page(&[row(&[], true, None), healthy(Again::Wrong), healthy(Again::NotStaged)]);
        assert!(text.contains("Of 2 healthy systems, drawn at random as well, 1 had"), "{text}");
    }

    #[test]
    fn a_record_has_a_line_for_each_draw_and_what_is_unusual_only_where_it_is() {
        let plain = row(&["CONN101"], true, None);
        let text = serde_json::to_string(&plain).unwrap();
        assert!(!text.contains("again") && !text.contains("unsound"), "{text}");
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), plain);
        let odd = Row { again: Some(Again::NotStaged), unsound: true, ..plain };
        let text = serde_json::to_string(&odd).unwrap();
        assert!(text.contains(r#""again":"not-staged""#), "{text}");
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), odd);
    }

    #[test]
    fn our_origin_has_the_version_of_h2lab() {
        assert_eq!(with_version("origin"), format!("origin {}", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn a_program_without_a_flag_for_it_has_the_version_of_its_python_package() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let refuses = "echo needs 3.11 or later; exit 2";
        let own = format!("#!/bin/sh\ncase $1 in -c) [ $3 = httpx ] && echo 0.28.1;; *) {refuses};; esac\n");
        let python = write("python3", own);
        let script = write("httpx", format!("#!{}\n", python.display()));
        assert_eq!(version_of(&script, &["--version"], "httpx").as_deref(), Some("0.28.1"));
        assert_eq!(version_of(&script, &["--version"], "other"), None);
        let shell = write("tool", format!("#!/bin/sh\n{refuses}\n"));
        assert_eq!(version_of(&shell, &["--version"], "httpx"), None, "what a refusal says is no version");
        let plain = write("plain", "#!/bin/sh\necho plain 1.2\n".to_owned());
        assert_eq!(version_of(&plain, &["--version"], "plain").as_deref(), Some("1.2"));
    }

    #[test]
    fn a_situation_is_named_after_its_product() {
        for (name, expected) in [
            ("limit105-nginx-ramp", "nginx"),
            ("client-two-sessions-curl", "curl"),
            ("conn107-streams", "origin"),
        ] {
            assert_eq!(product(name), expected);
        }
    }

    #[test]
    fn a_version_is_the_first_number_with_a_point() {
        assert_eq!(version_in("nginx version: nginx/1.22.1\n").as_deref(), Some("1.22.1"));
        assert_eq!(version_in("h2o version 2.2.5\nOpenSSL: 3.0.17").as_deref(), Some("2.2.5"));
        assert_eq!(version_in("go version go1.24.1 linux/amd64").as_deref(), Some("1.24.1"));
        assert_eq!(version_in("none."), None);
    }

    #[test]
    fn the_published_page_is_that_of_the_records() {
        let root = process::workspace();
        let (rows, _) = recorded(&root.join(RECORDS)).unwrap();
        let published = fs::read_to_string(root.join(PAGE)).unwrap();
        assert_eq!(page(&rows), published, "{PAGE} lags behind: `cargo xtask confirmed`");
    }
}
