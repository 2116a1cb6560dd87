//! Running other programs: where the workspace is, and one way to start a command whose output the user sees.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// The root of the workspace: the folder with the root `Cargo.toml`.
pub fn workspace() -> PathBuf {
    // Known at compile time: xtask always runs out of the tree that it was built in.
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map_or_else(PathBuf::new, Path::to_path_buf)
}

/// The folder in which cargo builds: `CARGO_TARGET_DIR`, else `target`.
pub fn target() -> PathBuf {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    workspace().join(chosen)
}

/// The profile in which everything is built whose speed counts: that of published binaries. Its folder has the same
/// name.
pub const PROFILE: &str = "dist";

/// A `cargo` of the same toolchain that runs xtask, in the workspace's root.
pub fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    cargo_in(&workspace(), arguments)
}

/// The same in another checkout.
pub fn cargo_in<S: AsRef<OsStr>>(root: &Path, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(arguments);
    command
}

/// Runs `command` with our own output and waits. An error means that it could not be started.
pub fn stream(command: &mut Command) -> Result<ExitStatus> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.status().with_context(|| format!("cannot start `{name}`"))
}

/// What `command` prints on stdout; an error if it fails. Its stderr goes to ours.
pub fn said(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{name}`"))?;
    anyhow::ensure!(output.status.success(), "`{name}` failed, and said why above");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The executable called `name`. It is searched in `PATH`, in the folders for the administrator's programs, which a
/// user's `PATH` often lacks although nginx is there, and where Go or Python install for one user.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .chain(go_folders())
        .chain(std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/bin")))
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

/// Whether a shell would run this file: what may not be executed is not the command.
fn is_executable(file: &Path) -> bool {
    let mode = |file: &Path| {
        std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file).map(|it| it.permissions().mode())
    };
    mode(file).is_some_and(|mode| mode & 0o111 != 0)
}

/// Where Go and what `go install` builds may be: first the folder into which it builds.
pub fn go_folders() -> impl Iterator<Item = PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let path = variable("GOPATH").or_else(|| variable("HOME").map(|home| home.join("go")));
    let built = variable("GOBIN").into_iter().chain(path.map(|path| path.join("bin")));
    built.chain([PathBuf::from("/usr/local/go/bin")])
}

/// Whether we are root.
pub fn is_root() -> bool {
    // The owner of /proc/self is the effective user; this needs no unsafe call and no dependency.
    std::os::linux::fs::MetadataExt::st_uid(&match std::fs::metadata("/proc/self") {
        Ok(metadata) => metadata,
        Err(_) => return false,
    }) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_the_folder_of_the_virtual_manifest() {
        let manifest = std::fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn a_program_is_found_by_name_and_a_missing_one_is_not() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-of-h2lab").is_none());
    }
}
