//! Rules for dependencies: where they come from, under which licences, which are banned, what pure crates may name.
//!
//! The lists are those of `deny.toml`, which `cargo deny check` reads too (and which then looks for advisories, over the
//! network). Our own reader takes a second and no installation, so that every test run does it, alike on every machine.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process;

/// Crates of ours that take values and return values: no sockets, files, environment, clock, threads, printing.
const PURE: [&str; 9] = [
    "h2lab-no-schema",
    "h2lab-base",
    "h2lab-wire",
    "h2lab-link",
    "h2lab-transfer",
    "h2lab-proxy",
    "h2lab-model",
    "h2lab-analysis",
    "h2lab-report",
];

/// Crates of others that they may depend on: values, formats and arithmetic.
const FREE_OF_IO: [&str; 20] = [
    "aes-gcm",
    "base64",
    "chacha20",
    "chacha20poly1305",
    "crc-fast",
    "hdrhistogram",
    "hkdf",
    "hmac",
    "httparse",
    "minijinja",
    "png",
    // Made-up scenarios, only with the feature `testing` of model.
    "proptest",
    "schemars",
    "serde",
    "serde_json",
    "sha1",
    "sha2",
    "strum",
    "thiserror",
    "toml",
];

/// The only crate of ours that may depend on an asynchronous runtime, and what has one or is for one: everything else runs on our
/// reactor.
const WITH_RUNTIME: &str = "h2lab-nats";
const RUNTIMES: [&str; 4] = ["async-nats", "futures-util", "tokio", "tokio-util"];

/// The keys of `deny.toml`. An unknown key is refused: it would be a rule without a check.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
    #[serde(rename = "advisories")]
    _advisories: toml::Table,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Graph {
    targets: Vec<String>,
    all_features: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Licenses {
    allow: Vec<String>,
    /// Of texts without an SPDX expression, which we refuse anyway.
    #[serde(rename = "confidence-threshold")]
    _confidence_threshold: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    wildcards: Deny,
    deny: Vec<Ban>,
    /// A warning, which fails nothing.
    #[serde(rename = "multiple-versions")]
    _multiple_versions: String,
    /// Ours depend on each other by path.
    #[serde(rename = "allow-wildcard-paths")]
    _allow_wildcard_paths: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_registry: Deny,
    unknown_git: Deny,
}

/// The only setting that we know for these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Deny {
    Deny,
}

/// What `cargo metadata` says.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// `None` for a crate of this workspace.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    req: String,
    /// `None` for an ordinary one, else `dev` or `build`.
    kind: Option<String>,
    path: Option<String>,
}

/// Fails with every breach of a rule.
pub fn check() -> Result<()> {
    let file = process::workspace().join("deny.toml");
    let rules: Rules = toml::from_str(&std::fs::read_to_string(file)?).context("deny.toml")?;
    let Sources { unknown_registry: Deny::Deny, unknown_git: Deny::Deny } = rules.sources;
    let Deny::Deny = rules.bans.wildcards;
    let metadata: Metadata = serde_json::from_str(&process::said(&mut process::cargo([
        "metadata",
        "--locked",
        "--format-version=1",
    ]))?)?;
    let built = built(&rules.graph)?;
    let problems: Vec<String> = metadata
        .packages
        .iter()
        .map(|package| (format!("{} v{}", package.name, package.version), package))
        .filter(|(name, _)| built.contains(name))
        .flat_map(|(name, package)| {
            breaches(&rules, package).into_iter().map(move |breach| format!("{name}: {breach}"))
        })
        .collect();
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// `name vVERSION` of what is built on the systems in question. `cargo metadata` alone will not do: its graph has optional
/// dependencies too that another system's features would need.
fn built(graph: &Graph) -> Result<BTreeSet<String>> {
    let mut tree = process::cargo(["tree", "--locked", "--workspace", "--edges=normal,build,dev"]);
    tree.args(["--prefix=none", "--format={p}"]).args(graph.all_features.then_some("--all-features"));
    tree.args(graph.targets.iter().flat_map(|target| ["--target", target.as_str()]));
    Ok(packages(&process::said(&mut tree)?))
}

/// The first two words of each line: what follows says where the package lies, or that it was listed already.
pub fn packages(tree: &str) -> BTreeSet<String> {
    let words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    tree.lines().map(words).filter(|package| !package.is_empty()).collect()
}

/// What a package does that the rules do not allow.
fn breaches(rules: &Rules, package: &Package) -> Vec<String> {
    let mut breaches = Vec::new();
    match package.license.as_deref() {
        Some(license) if is_allowed(license, &rules.licenses.allow) => {}
        license => breaches.push(format!("its licence is not in deny.toml: {license:?}")),
    }
    if let Some(ban) = rules.bans.deny.iter().find(|ban| ban.name == package.name) {
        breaches.push(format!("it is banned: {}", ban.reason));
    }
    match &package.source {
        Some(source) if !source.ends_with("/crates.io-index") => {
            breaches.push(format!("it does not come from the public registry: {source}"));
        }
        Some(_) => {}
        None => breaches.extend(package.dependencies.iter().filter_map(|to| breach_of_ours(package, to))),
    }
    breaches
}

/// What a crate of ours may not depend on, or not so.
fn breach_of_ours(package: &Package, to: &Dependency) -> Option<String> {
    if to.req == "*" && to.path.is_none() {
        return Some(format!("it takes any version of {}", to.name));
    }
    if RUNTIMES.contains(&to.name.as_str()) && package.name != WITH_RUNTIME {
        return Some(format!("only {WITH_RUNTIME} may depend on {}", to.name));
    }
    let is_pure = |name: &str| PURE.contains(&name);
    let is_breach = is_pure(&package.name)
        && to.kind.as_deref() != Some("dev")
        && !is_pure(&to.name)
        && !FREE_OF_IO.contains(&to.name.as_str());
    is_breach
        .then(|| format!("it is pure and may not depend on {} (FREE_OF_IO in xtask/src/deps.rs)", to.name))
}

/// Whether an SPDX expression can be met with the licences in `allowed`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    // The spelling of before SPDX.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Spdx { words: &words, allowed };
    reader.any().is_some_and(|is_met| is_met && reader.words.is_empty())
}

/// A reader of SPDX expressions; `None` where there is none to read.
struct Spdx<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Spdx<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        self.words = &self.words[usize::from(is_next)..];
        is_next
    }

    /// Terms joined by OR, which binds less than AND.
    fn any(&mut self) -> Option<bool> {
        let mut is_met = self.all()?;
        while self.takes("OR") {
            is_met |= self.all()?;
        }
        Some(is_met)
    }

    fn all(&mut self) -> Option<bool> {
        let mut is_met = self.term()?;
        while self.takes("AND") {
            is_met &= self.term()?;
        }
        Some(is_met)
    }

    fn term(&mut self) -> Option<bool> {
        if self.takes("(") {
            let is_met = self.any()?;
            return self.takes(")").then_some(is_met);
        }
        let (&first, rest) = self.words.split_first()?;
        self.words = rest;
        let mut name = first.to_owned();
        if self.takes("WITH") {
            let (exception, rest) = self.words.split_first()?;
            name = format!("{name} WITH {exception}");
            self.words = rest;
        }
        Some(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        toml::from_str(include_str!("../../../deny.toml")).unwrap()
    }

    fn package(json: &str) -> Package {
        let mut package: serde_json::Value = serde_json::from_str(
            r#"{"name":"x","version":"1","license":"MIT","source":null,"dependencies":[]}"#,
        )
        .unwrap();
        let other: serde_json::Value = serde_json::from_str(&format!("{{{json}}}")).unwrap();
        package.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        serde_json::from_value(package).unwrap()
    }

    fn breaches_of(json: &str) -> usize {
        breaches(&rules(), &package(json)).len()
    }

    #[test]
    fn a_licence_is_met_by_either_of_two_and_by_both_of_two() {
        let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "ISC"].map(str::to_owned);
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "MIT AND (ISC OR OpenSSL)",
            "Apache-2.0 WITH LLVM-exception AND MIT",
            "GPL-3.0 AND ISC OR MIT",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "", "MIT ISC", "(MIT", "MIT OR"] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_package_with_a_foreign_licence_source_or_banned_name_is_a_breach() {
        let registry = r#""source":"registry+https://github.com/rust-lang/crates.io-index""#;
        assert_eq!(breaches_of(registry), 0);
        assert_eq!(breaches_of(r#""license":"GPL-3.0""#), 1);
        assert_eq!(breaches_of(r#""license":null"#), 1);
        assert_eq!(breaches_of(r#""source":"git+https://example.test/x""#), 1);
        assert_eq!(breaches_of(r#""name":"openssl""#), 1);
    }

    #[test]
    fn a_pure_crate_may_depend_on_pure_ones_and_on_values_and_its_tests_on_anything() {
        let to = |from: &str, name: &str, kind: &str| {
            breaches_of(&format!(
                r#""name":"{from}","dependencies":[{{"name":"{name}","req":"^1","kind":{kind},"path":null}}]"#
            ))
        };
        assert_eq!(to("h2lab-wire", "serde", "null"), 0);
        assert_eq!(to("h2lab-wire", "h2lab-base", "null"), 0);
        assert_eq!(to("h2lab-wire", "libc", "\"dev\""), 0);
        assert_eq!(to("h2lab-wire", "libc", "null"), 1);
        assert_eq!(to("h2lab-report", "h2lab-net", "null"), 1);
        assert_eq!(to("h2lab-net", "libc", "null"), 0);
    }

    #[test]
    fn one_crate_alone_may_depend_on_an_asynchronous_runtime() {
        let on_tokio = |from: &str, kind: &str| {
            breaches_of(&format!(
                r#""name":"{from}","dependencies":[{{"name":"tokio","req":"^1","kind":{kind},"path":null}}]"#
            ))
        };
        assert_eq!(on_tokio("h2lab-nats", "null"), 0);
        for other in ["h2lab-net", "h2lab-roles", "h2lab", "h2lab-wire"] {
            assert_eq!((on_tokio(other, "null"), on_tokio(other, "\"dev\"")), (1, 1), "{other}");
        }
    }

    #[test]
    fn a_package_is_listed_once_wherever_it_lies() {
        let tree = "h2lab v0.1.0 (/w/crates/h2lab)\nserde v1.0.1\nserde v1.0.1 (*)\nserde_derive v1.0.1 (proc-macro)\n\n";
        assert_eq!(
            packages(tree).into_iter().collect::<Vec<_>>(),
            ["h2lab v0.1.0", "serde v1.0.1", "serde_derive v1.0.1"]
        );
    }

    #[test]
    fn any_version_is_a_breach_except_of_a_path() {
        let any = |path: &str| {
            breaches_of(&format!(r#""dependencies":[{{"name":"a","req":"*","kind":null,"path":{path}}}]"#))
        };
        assert_eq!((any("null"), any("\"/a\"")), (1, 0));
    }

    #[test]
    fn a_rule_that_this_does_not_know_is_refused() {
        let more = include_str!("../../../deny.toml")
            .replace("[bans]", "[bans]\nworkspace-default-features = \"deny\"");
        assert!(toml::from_str::<Rules>(&more).is_err());
    }
}
