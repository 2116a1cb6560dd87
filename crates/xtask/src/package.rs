//! `cargo xtask package`: what is published, below `target/package`: a static binary, a Debian package, a container
//! image.
//!
//! The binary is linked statically with glibc (`+crt-static`): the same file runs on every Linux, so the package
//! depends on nothing and the image contains nothing else. dpkg-deb makes the package: cargo-deb would have to be
//! compiled first, and does nothing that a folder and a control file do not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::process;

/// What to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// All but the image.
    All,
    /// The static binary.
    Static,
    /// The Debian package.
    Deb,
    /// The container image, with buildah.
    Image,
}

/// Arguments of `cargo xtask package`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What to make.
    #[arg(value_enum, default_value = "all")]
    form: Form,
    /// Build in this profile of cargo.
    #[arg(long, value_name = "NAME", default_value = process::PROFILE)]
    profile: String,
}

/// The shells whose completions a package has, and the file of each.
pub const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/h2lab"),
    ("zsh", "usr/share/zsh/vendor-completions/_h2lab"),
    ("fish", "usr/share/fish/vendor_completions.d/h2lab.fish"),
];

/// Files of `packaging/` that a package has as they are: the file there, its place, its mode. The agent's settings may
/// have a password.
const SHIPPED: [(&str, &str, u32); 3] = [
    ("systemd/h2lab-agent.service", "usr/lib/systemd/system/h2lab-agent.service", 0o644),
    ("systemd/h2lab-agent.service.d/lab.conf", "usr/share/doc/h2lab/examples/lab.conf", 0o644),
    ("systemd/h2lab-agent.env", SETTINGS, 0o600),
];

/// What dpkg keeps as the user has changed it.
const SETTINGS: &str = "etc/default/h2lab-agent";

/// Makes what is wanted, and its checksums.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let binary = static_binary(&arguments.profile)?;
    let folder = folder()?;
    let mut made = Vec::new();
    if matches!(arguments.form, Form::All | Form::Static) {
        let path = folder.join(format!("h2lab-{}-{}-linux-static", version(), std::env::consts::ARCH));
        copy(&binary, &path, 0o755)?;
        made.push(path);
    }
    if matches!(arguments.form, Form::All | Form::Deb) {
        made.push(deb(&binary)?);
    }
    if arguments.form == Form::Image {
        println!("image {}", image(&binary)?);
    }
    for path in &made {
        println!("{}", path.display());
    }
    checksums(&folder)?;
    Ok(ExitCode::SUCCESS)
}

/// The version of every crate of the workspace, and so of xtask.
const fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn folder() -> Result<PathBuf> {
    let folder = process::target().join("package");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Builds the static binary.
pub fn static_binary(profile: &str) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // With --target the flags do not apply to build scripts and procedural macros, which cannot be static.
    let mut cargo = process::cargo(["build", "--package", "h2lab", "--profile", profile]);
    cargo.args(["--target", target.as_str()]);
    // The crate getrandom looks its function up by dlsym(3), which a static binary does not have, and falls back on
    // /dev/urandom, which an empty root does not have.
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"");
    let built = process::stream(&mut cargo)?.success();
    ensure!(built, "the static binary was not built; cargo said why above");
    let profile = if profile == "dev" { "debug" } else { profile };
    let folder = process::target().join(target).join(profile);
    // Function names stay, for backtraces and perf(1); debug information of everything that is linked statically is
    // three quarters of the size.
    let stripped = folder.join("h2lab-stripped");
    let mut strip = Command::new("strip");
    process::said(strip.arg("--strip-debug").arg("-o").arg(&stripped).arg(folder.join("h2lab")))?;
    Ok(stripped)
}

/// Makes the Debian package of this binary.
pub fn deb(binary: &Path) -> Result<PathBuf> {
    let folder = folder()?;
    let root = tempfile::tempdir_in(&folder)?;
    let at = |path: &str| root.path().join(path);
    copy(binary, &at("usr/bin/h2lab"), 0o755)?;
    let man = at("usr/share/man/man1");
    process::said(Command::new(binary).args(["gen", "man"]).arg(&man))?;
    let mut pages = fs::read_dir(&man)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    pages.sort();
    process::said(Command::new("gzip").args(["-9", "-n", "--"]).args(&pages))?;
    for (shell, path) in COMPLETIONS {
        put(&at(path), &process::said(Command::new(binary).args(["gen", "completions", shell]))?)?;
    }
    let sources = process::workspace();
    for (file, path, mode) in SHIPPED {
        copy(&sources.join("packaging").join(file), &at(path), mode)?;
    }
    put(&at("DEBIAN/conffiles"), &format!("/{SETTINGS}\n"))?;
    let licences = ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| fs::read_to_string(sources.join(name)));
    let [mit, apache] = licences.map(|text| text.context("a licence of the workspace"));
    let copyright =
        format!("h2lab is licensed under MIT or Apache-2.0, at your choice.\n\n{}\n\n{}", mit?, apache?);
    put(&at("usr/share/doc/h2lab/copyright"), &copyright)?;
    let control = fs::read_to_string(sources.join("packaging/deb/control"))?;
    let architecture = process::said(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let control = control.replace("@VERSION@", version()).replace("@ARCHITECTURE@", architecture);
    put(&at("DEBIAN/control"), &control)?;
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))?;
    let path = folder.join(format!("h2lab_{}-1_{architecture}.deb", version()));
    process::said(
        Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(root.path()).arg(&path),
    )?;
    Ok(path)
}

/// Makes the container image with buildah; returns its name.
pub fn image(binary: &Path) -> Result<String> {
    let context = tempfile::tempdir_in(folder()?)?;
    copy(binary, &context.path().join("h2lab"), 0o755)?;
    fs::create_dir(context.path().join("tmp"))?;
    let buildah = process::find("buildah")
        .context("an image needs buildah: sudo apt-get install --no-install-recommends -y buildah")?;
    let name = format!("h2lab:{}", version());
    let containerfile = process::workspace().join("packaging/oci/Containerfile");
    let mut build = Command::new(buildah);
    build.args(["build", "--tag", name.as_str(), "--file"]).arg(containerfile).arg(context.path());
    process::said(&mut build)?;
    Ok(name)
}

/// Writes `SHA256SUMS` of all files in the folder.
fn checksums(folder: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != "SHA256SUMS" {
            names.push(entry.file_name());
        }
    }
    names.sort();
    let sums = process::said(Command::new("sha256sum").current_dir(folder).arg("--").args(names))?;
    put(&folder.join("SHA256SUMS"), &sums)
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    make_room(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn put(path: &Path, text: &str) -> Result<()> {
    make_room(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o644))?)
}

fn make_room(path: &Path) -> Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}
