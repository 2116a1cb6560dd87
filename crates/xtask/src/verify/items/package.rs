//! What is published runs where nothing of ours is: a fresh Debian for the package, an empty folder for the static binary.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::package;
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

use super::{Item, item};

/// The promises.
pub fn items() -> Vec<Item> {
    vec![
        item(
            "static",
            "the static binary runs in a root with nothing else, where names resolve by /etc/hosts and by DNS",
            alone,
        ),
        item(
            "deb",
            "the .deb installs in a fresh Debian root without dependencies, with man pages and completions of three shells, and runs",
            installed,
        ),
        item("image", "the image FROM scratch is built and run by buildah", contained),
    ]
}

/// An address of this machine at which no name server listens.
const NAME_SERVER: &str = "127.0.0.77";

/// A folder that is the root of what runs in it.
struct Root {
    path: PathBuf,
    _kept: TempDir,
}

impl Root {
    fn empty() -> Result<Self> {
        ensure!(process::is_root(), "chroot takes root");
        let kept = tempfile::tempdir()?;
        Ok(Self { path: kept.path().join("root"), _kept: kept })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.path).args(words).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    fn run(&self, words: &[&str]) -> Result<Output> {
        Ok(self.command(words).stdin(Stdio::null()).output()?)
    }

    /// Loads the origin that runs in this root, by this name of it; whether every request was answered.
    fn loads(&self, program: &str, name: &str) -> Result<(bool, String)> {
        let (mut origin, port) = self.origin(program)?;
        let url = format!("http://{name}:{port}/");
        let output = self.run(&[program, "load", "--json", "-n", "20", "-c", "2", &url]);
        origin.kill()?;
        origin.wait()?;
        let output = output?;
        let text = said(&output);
        Ok((output.status.success(), if output.status.success() { String::new() } else { text }))
    }

    /// Starts the origin in this root; with the port of its first line.
    fn origin(&self, program: &str) -> Result<(Child, u16)> {
        let mut command = self.command(&[program, "origin", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout is a pipe")?).read_line(&mut line)?;
        let port = line.trim().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        match port {
            Some(port) => Ok((child, port)),
            None => {
                child.kill()?;
                anyhow::bail!("the origin said `{}`", line.trim())
            }
        }
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The static binary in an empty root.
fn alone(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let root = Root::empty()?;
    fs::create_dir_all(root.path.join("etc"))?;
    fs::create_dir_all(root.path.join("tmp"))?;
    fs::copy(h2lab.path(), root.path.join("h2lab"))?;
    fs::write(root.path.join("etc/hosts"), "127.0.0.1 by-hosts.test\n")?;
    fs::write(root.path.join("etc/resolv.conf"), format!("nameserver {NAME_SERVER}\n"))?;
    let version = root.run(&["/h2lab", "--version"])?;
    outcome.check(version.status.success(), format!("in a root with one file: {}", said(&version).trim()));
    let scenarios = root.run(&["/h2lab", "run", "--list"])?;
    outcome.check(scenarios.status.success(), "run --list has the scenarios");
    let names = UdpSocket::bind((NAME_SERVER, 53)).context("a name server of our own")?;
    // It ends with this process.
    std::thread::spawn(move || serve_names(&names));
    for (name, how) in [("by-hosts.test", "/etc/hosts"), ("by-dns.test", "DNS")] {
        let (loaded, why) = root.loads("/h2lab", name)?;
        outcome.check(loaded, format!("load by a name of {how} {why}"));
    }
    Ok(outcome)
}

/// Answers every question for an IPv4 address with 127.0.0.1, and others with nothing (RFC 1035 §4).
fn serve_names(socket: &UdpSocket) {
    let mut buffer = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        // The end of the name: a length of 0; then type and class.
        let Some(name) = buffer[12..length].iter().position(|byte| *byte == 0) else { continue };
        let end = 12 + name + 5;
        if end > length {
            continue;
        }
        let is_address = buffer[12 + name + 1..12 + name + 3] == [0, 1];
        let mut answer = buffer[..end].to_vec();
        // A response, recursion available; one question, perhaps one answer, nothing else.
        answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
        if is_address {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
        }
        if socket.send_to(&answer, from).is_err() {
            return;
        }
    }
}

/// The package in a Debian that was just made.
fn installed(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let root = debian()?;
    let deb = package::deb(h2lab.path())?;
    fs::copy(&deb, root.path.join("h2lab.deb"))?;
    let dpkg = root.run(&["dpkg", "--install", "/h2lab.deb"])?;
    outcome.check(dpkg.status.success(), format!("dpkg --install {}", last_line(&said(&dpkg))));
    let version = root.run(&["h2lab", "--version"])?;
    outcome.check(version.status.success(), said(&version).trim().to_owned());
    for path in package::COMPLETIONS.map(|(_, path)| path).into_iter().chain([
        "usr/share/man/man1/h2lab.1.gz",
        "usr/share/man/man1/h2lab-compare.1.gz",
        "usr/share/doc/h2lab/copyright",
        "usr/lib/systemd/system/h2lab-agent.service",
        "etc/default/h2lab-agent",
    ]) {
        outcome.check(root.path.join(path).is_file(), path);
    }
    let bash = root.run(&["bash", "-n", "/usr/share/bash-completion/completions/h2lab"])?;
    outcome.check(bash.status.success(), "bash reads its completions");
    let (loaded, why) = root.loads("h2lab", "localhost")?;
    outcome.check(loaded, format!("load by the name localhost {why}"));
    let purge = root.run(&["dpkg", "--purge", "h2lab"])?;
    let is_gone = purge.status.success() && !root.path.join("usr/bin/h2lab").exists();
    outcome.check(is_gone, "dpkg --purge removes it");
    Ok(outcome)
}

fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or_default()
}

/// A new root of the Debian that this machine has.
fn debian() -> Result<Root> {
    let root = Root::empty()?;
    let release = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let suite = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("/etc/os-release names no release of Debian")?;
    let mut make = if let Some(mmdebstrap) = process::find("mmdebstrap") {
        let mut make = Command::new(mmdebstrap);
        make.args(["--quiet", "--variant=minbase", suite]).arg(&root.path);
        // Without a mirror it reads sources from stdin: those of this machine.
        let sources = sources()?;
        if !sources.is_empty() {
            make.args(sources);
        }
        make
    } else {
        let debootstrap = process::find("debootstrap").context(
            "a fresh root needs mmdebstrap: sudo apt-get install --no-install-recommends -y mmdebstrap",
        )?;
        let mut make = Command::new(debootstrap);
        make.args(["--variant=minbase", suite]).arg(&root.path);
        make
    };
    process::said(&mut make)?;
    Ok(root)
}

/// The files in which this machine has its sources of packages, for mmdebstrap.
fn sources() -> Result<Vec<PathBuf>> {
    let listed = Path::new("/etc/apt/sources.list");
    let mut files: Vec<PathBuf> = Vec::new();
    if listed.is_file() && !fs::read_to_string(listed)?.trim().is_empty() {
        files.push(listed.to_owned());
    }
    let parts = Path::new("/etc/apt/sources.list.d/debian.sources");
    files.extend(parts.is_file().then(|| parts.to_owned()));
    Ok(files)
}

/// The image, built and run.
fn contained(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let name = package::image(h2lab.path())?;
    let buildah = process::find("buildah").context("it has just built the image")?;
    let container = process::said(Command::new(&buildah).args(["from", name.as_str()]))?;
    let container = container.trim();
    let mut run = Command::new(&buildah);
    run.arg("run");
    if ["crun", "runc"].iter().all(|runtime| process::find(runtime).is_none()) {
        run.args(["--isolation", "chroot"]);
    }
    let run = run.args([container, "--", "/h2lab", "--version"]).output()?;
    outcome.check(run.status.success(), format!("buildah run: {}", said(&run).trim()));
    process::said(Command::new(&buildah).args(["rm", container]))?;
    Ok(outcome)
}
