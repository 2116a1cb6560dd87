//! What the tests need besides the Rust toolchain, and how it gets onto a machine.
//!
//! The list is data, `crates/h2lab/tests/needs.toml`: the tests read the same file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process;

/// A program that tests run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// The command whose presence shows that it is there.
    pub probe: String,
    /// Debian's package.
    pub package: String,
    /// What would be untested without it.
    pub why: String,
}

/// Needs by the name that stands in `H2LAB_TEST_SKIP` and in the tests' `need("…")`.
pub type Needs = BTreeMap<String, Need>;

/// The shipped list.
pub fn all() -> Result<Needs> {
    toml::from_str(include_str!("../../h2lab/tests/needs.toml")).context("crates/h2lab/tests/needs.toml")
}

/// What skips a need: a comma list of names.
pub const SKIP_VARIABLE: &str = "H2LAB_TEST_SKIP";

/// The needs that are neither present nor skipped.
pub fn missing<'a>(
    needs: &'a Needs,
    skip: &str,
    is_present: impl Fn(&str) -> bool,
) -> Result<Vec<(&'a str, &'a Need)>> {
    let skipped: Vec<&str> = skip.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if let Some(unknown) = skipped.iter().find(|name| !needs.contains_key(**name)) {
        let names: Vec<&str> = needs.keys().map(String::as_str).collect();
        bail!("{SKIP_VARIABLE} names `{unknown}`, which no test needs; known names: {}", names.join(", "));
    }
    let needs = needs.iter().map(|(name, need)| (name.as_str(), need));
    Ok(needs.filter(|(name, need)| !skipped.contains(name) && !is_present(&need.probe)).collect())
}

/// The arguments with which apt-get installs `needs`.
fn install_arguments<'a>(needs: &[(&str, &'a Need)]) -> Vec<&'a str> {
    let packages = needs.iter().map(|(_, need)| need.package.as_str());
    ["install", "--no-install-recommends", "-y"].into_iter().chain(packages).collect()
}

/// What a person can do about `needs`: the line to type, or the tests to skip.
pub fn advice(needs: &[(&str, &Need)]) -> String {
    let names: Vec<&str> = needs.iter().map(|(name, _)| *name).collect();
    let line = install_arguments(needs).join(" ");
    format!("type\n  sudo apt-get {line}\nor skip their tests: {SKIP_VARIABLE}={}", names.join(","))
}

/// Installs what is missing if this user may; otherwise fails with the exact line to type.
pub fn install_missing() -> Result<()> {
    let skip = std::env::var(SKIP_VARIABLE).unwrap_or_default();
    let needs = all()?;
    let missing = missing(&needs, &skip, |probe| process::find(probe).is_some())?;
    if missing.is_empty() {
        return Ok(());
    }
    for (_, need) in &missing {
        eprintln!("xtask: missing {} ({}): {}", need.probe, need.package, need.why);
    }
    let Some(prefix) = apt_prefix() else {
        bail!(
            "the tests need programs that are not here and that this user may not install; {}",
            advice(&missing)
        );
    };
    // A fresh machine or container has no package lists; a stale list names files that are gone. Its failure is not
    // ours to judge: the lists that are there may do.
    apt(&prefix, &["update"])?;
    if !apt(&prefix, &install_arguments(&missing))?.success() {
        bail!("installing failed, and apt-get said why above; {}", advice(&missing));
    }
    if let Some((_, need)) = missing.iter().find(|(_, need)| process::find(&need.probe).is_none()) {
        bail!("apt-get installed {}, but there is still no `{}`", need.package, need.probe);
    }
    Ok(())
}

/// How this user may run apt-get without being asked anything: directly as root, or by a passwordless sudo.
fn apt_prefix() -> Option<Vec<OsString>> {
    process::find("apt-get")?;
    if process::is_root() {
        return Some(Vec::new());
    }
    let sudo = process::find("sudo")?;
    let quiet = Command::new(&sudo).args(["-n", "true"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success()).then(|| vec![sudo.into_os_string(), "-n".into()])
}

fn apt(prefix: &[OsString], arguments: &[&str]) -> Result<ExitStatus> {
    let mut words = prefix.to_vec();
    words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"].map(OsString::from));
    let mut command = Command::new(&words[0]);
    eprintln!("xtask: apt-get {}", arguments.join(" "));
    // apt's chatter goes to stderr: stdout stays with the test results.
    command.args(&words[1..]).args(arguments).stdin(Stdio::null()).stdout(std::io::stderr());
    process::stream(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "[nginx]\nprobe = 'nginx'\npackage = 'nginx-light'\nwhy = 'x'\n\
                       [curl]\nprobe = 'curl'\npackage = 'curl'\nwhy = 'y'\n";

    fn names(skip: &str, present: &[&str]) -> Vec<String> {
        let needs: Needs = toml::from_str(TWO).unwrap();
        let missing = missing(&needs, skip, |probe| present.contains(&probe)).unwrap();
        missing.into_iter().map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn what_is_present_or_skipped_is_not_missing() {
        assert!(names("", &["nginx", "curl"]).is_empty());
        assert_eq!(names("", &["curl"]), ["nginx"]);
        assert!(names("nginx", &["curl"]).is_empty());
        assert!(names(" nginx, curl ", &[]).is_empty());
    }

    #[test]
    fn a_misspelt_skip_is_refused_rather_than_ignored() {
        let error = missing(&all().unwrap(), "ngnix", |_| true).err().unwrap().to_string();
        assert!(error.contains("`ngnix`") && error.contains("nginx"), "{error}");
    }

    #[test]
    fn the_advice_names_every_missing_package_and_its_skip() {
        let needs: Needs = toml::from_str(TWO).unwrap();
        let missing = missing(&needs, "", |_| false).unwrap();
        let advice = advice(&missing);
        assert!(
            advice.contains("sudo apt-get install --no-install-recommends -y curl nginx-light\n"),
            "{advice}"
        );
        assert!(advice.ends_with("H2LAB_TEST_SKIP=curl,nginx"), "{advice}");
    }

    #[test]
    fn the_shipped_list_is_well_formed() {
        assert!(all().unwrap().contains_key("nginx"));
    }
}
