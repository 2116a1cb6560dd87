//! What the tests need besides the Rust toolchain, as data, and how it gets onto a machine.

use std::ffi::OsString;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Result, bail};

use crate::process;

/// A program that tests run.
pub struct Need {
    /// The name in `H2LAB_TEST_SKIP` and in the tests' `need("…")`.
    pub name: &'static str,
    /// The command whose presence shows that it is there.
    pub probe: &'static str,
    /// Debian's package.
    pub package: &'static str,
    /// Which tests would be lost without it.
    pub why: &'static str,
}

/// All of them. A name here and a `need("name")` in a test belong together.
pub const NEEDS: &[Need] = &[
    Need {
        name: "nginx",
        probe: "nginx",
        package: "nginx-light",
        why: "the first real server under test; its binary is run with our own configuration",
    },
    Need {
        name: "curl",
        probe: "curl",
        package: "curl",
        why: "an independent client of the origin, over h1, h1s, h2 and h2c",
    },
    Need {
        name: "nghttp",
        probe: "nghttp",
        package: "nghttp2-client",
        why: "a second HTTP/2 implementation for interoperability of the origin",
    },
    Need {
        name: "ping",
        probe: "ping",
        package: "iputils-ping",
        why: "measures the emulated link without any of our code at its ends",
    },
    Need {
        name: "chromium",
        probe: "chromium",
        package: "chromium",
        why: "opens the HTML report: no console error, no request to the network",
    },
    Need {
        name: "openssl",
        probe: "openssl",
        package: "openssl",
        why: "makes the certificate of the TLS servers that `verify` starts",
    },
    Need {
        name: "setpriv",
        probe: "setpriv",
        package: "util-linux",
        why: "runs the unprivileged leg as uid 65534; `unshare` of the same package takes capabilities away",
    },
];

/// What skips a need: a comma list of names.
pub const SKIP_VARIABLE: &str = "H2LAB_TEST_SKIP";

/// The needs that are neither present nor skipped.
pub fn missing<'a>(
    needs: &'a [Need],
    skip: &str,
    is_present: impl Fn(&str) -> bool,
) -> Result<Vec<&'a Need>> {
    let skipped: Vec<&str> = skip.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if let Some(unknown) = skipped.iter().find(|name| !needs.iter().any(|need| need.name == **name)) {
        let names: Vec<&str> = needs.iter().map(|need| need.name).collect();
        bail!("{SKIP_VARIABLE} names `{unknown}`, which no test needs; known names: {}", names.join(", "));
    }
    Ok(needs.iter().filter(|need| !skipped.contains(&need.name) && !is_present(need.probe)).collect())
}

/// The line that a person would type to install `needs`.
pub fn install_line(needs: &[&Need]) -> String {
    let packages: Vec<&str> = needs.iter().map(|need| need.package).collect();
    format!("apt-get install --no-install-recommends -y {}", packages.join(" "))
}

/// Installs what is missing if this user may; otherwise fails with the exact line to type.
pub fn install_missing() -> Result<()> {
    let skip = std::env::var(SKIP_VARIABLE).unwrap_or_default();
    let missing = missing(NEEDS, &skip, |probe| process::find(probe).is_some())?;
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        eprintln!("xtask: missing {} ({}): {}", need.probe, need.package, need.why);
    }
    let line = install_line(&missing);
    let skip_hint = format!(
        "or skip their tests: {SKIP_VARIABLE}={}",
        missing.iter().map(|n| n.name).collect::<Vec<_>>().join(",")
    );
    let Some(prefix) = apt_prefix() else {
        bail!(
            "the tests need programs that are not here and that this user may not install; type\n  sudo {line}\n{skip_hint}"
        );
    };
    eprintln!("xtask: {line}");
    // A fresh machine or container has no package lists; a stale list names files that are gone.
    apt(&prefix, &["update"])?;
    let mut arguments = vec!["install", "--no-install-recommends", "-y"];
    arguments.extend(missing.iter().map(|need| need.package));
    if !apt(&prefix, &arguments)?.success() {
        bail!("installing failed; what apt-get says stands above. Type\n  sudo {line}\n{skip_hint}");
    }
    if let Some(need) = missing.iter().find(|need| process::find(need.probe).is_none()) {
        bail!("apt-get installed {} but there is still no `{}`", need.package, need.probe);
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
    // apt's chatter goes to stderr: stdout stays with the test results.
    command.args(&words[1..]).args(arguments).stdin(Stdio::null()).stdout(std::io::stderr());
    process::stream(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(skip: &str, present: &[&str]) -> Vec<&'static str> {
        missing(NEEDS, skip, |probe| present.contains(&probe)).unwrap().iter().map(|need| need.name).collect()
    }

    #[test]
    fn what_is_present_or_skipped_is_not_missing() {
        let all: Vec<&str> = NEEDS.iter().map(|need| need.probe).collect();
        assert!(names("", &all).is_empty());
        assert_eq!(names("", &all[1..]), [NEEDS[0].name]);
        assert!(names(NEEDS[0].name, &all[1..]).is_empty());
    }

    #[test]
    fn a_misspelt_skip_is_refused_rather_than_ignored() {
        let error = missing(NEEDS, "ngnix", |_| true).err().unwrap().to_string();
        assert!(error.contains("`ngnix`") && error.contains("nginx"), "{error}");
    }

    #[test]
    fn the_line_to_type_names_every_missing_package() {
        let line = install_line(&[&NEEDS[0], &NEEDS[1]]);
        assert_eq!(line, "apt-get install --no-install-recommends -y nginx-light curl");
    }

    #[test]
    fn names_are_unique_so_that_a_skip_is_unambiguous() {
        let mut names: Vec<&str> = NEEDS.iter().map(|need| need.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NEEDS.len());
    }
}
