//! The servers of the bulk benchmark: each is started once, on the servers' CPU, and serves all rounds.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::super::meter;
use super::network;
use crate::generators::{Running, SERVER_CPU};
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::nginx::{Listen, Nginx};

/// The Go program at both ends. Its name is not that of a Go file, so that no Go tool takes the folder for a package.
const PEER: &str = include_str!("peer.go.txt");
/// Where iperf3 listens: the namespace is ours alone.
const IPERF_PORT: u16 = 5201;
/// Bytes of the file that nginx serves. With several files curl 7.88 fails at the second one over HTTP/2 in clear.
pub const FILE_BYTES: u64 = 2_000_000_000;
/// Bytes of it that are written at once.
const WRITE: usize = 1_000_000;

/// The server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// `h2lab bulk serve --memory`.
    Ours,
    /// `examples/raw.rs` over TCP.
    Raw,
    /// The same over TLS.
    Rustls,
    /// iperf3.
    Iperf,
    /// Go's `net/http` in clear.
    Go,
    /// The same over TLS.
    GoTls,
    /// nginx with its defaults.
    Nginx,
    /// nginx with frames of 1 MiB.
    NginxTuned,
}

impl Server {
    /// What must be installed for it and its client: program and how to get it.
    pub const fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Ours | Self::Raw | Self::Rustls => &[],
            Self::Iperf => &[("iperf3", "apt-get install --no-install-recommends -y iperf3")],
            Self::Go | Self::GoTls => &[("go", "https://go.dev/dl (1.25 or newer)")],
            Self::Nginx | Self::NginxTuned => &[
                ("nginx", "apt-get install --no-install-recommends -y nginx-light"),
                ("curl", "apt-get install --no-install-recommends -y curl"),
            ],
        }
    }

    /// A missing program: its name and how to get it.
    pub fn missing(self) -> Option<(&'static str, &'static str)> {
        self.needs().iter().copied().find(|(name, _)| process::find(name).is_none())
    }
}

/// What runs.
#[derive(Debug)]
enum Process {
    Child(Running),
    Nginx(Nginx),
}

/// A running server, which ends when the value is dropped.
#[derive(Debug)]
pub struct Serving {
    process: Process,
    /// Where clients go, URLs or an address: of ours in clear and over TLS, of nginx for HTTP/1.1 and for HTTP/2 in
    /// clear.
    pub at: Vec<String>,
}

impl Serving {
    fn id(&self) -> u32 {
        match &self.process {
            Process::Child(running) => running.id(),
            Process::Nginx(nginx) => nginx.id(),
        }
    }

    /// CPU that it has taken so far, in seconds.
    pub fn cpu_s(&self) -> Result<f64> {
        Ok(meter::cpu_us_of(self.id())? / 1e6)
    }
}

/// The programs and files of a run, and the servers that were started.
#[derive(Debug)]
pub struct Servers {
    h2lab: H2lab,
    raw: PathBuf,
    folder: tempfile::TempDir,
    running: BTreeMap<Server, Serving>,
}

impl Servers {
    /// None yet. `raw` is the built example.
    pub fn new(h2lab: H2lab, raw: PathBuf) -> Result<Self> {
        Ok(Self { h2lab, raw, folder: tempfile::tempdir()?, running: BTreeMap::new() })
    }

    /// Our binary.
    pub fn h2lab(&self) -> &Path {
        self.h2lab.path()
    }

    /// The yardstick's program.
    pub fn raw(&self) -> &Path {
        &self.raw
    }

    /// The Go program, once a server of it was started.
    pub fn go(&self) -> PathBuf {
        self.folder.path().join("peer")
    }

    /// The certificate that the yardstick's client trusts.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("raw.pem")
    }

    /// The server, which was started.
    pub fn get(&self, server: Server) -> Result<&Serving> {
        self.running.get(&server).with_context(|| format!("{server:?} was not started"))
    }

    /// Starts it, unless it runs.
    pub fn start(&mut self, server: Server) -> Result<()> {
        if !self.running.contains_key(&server) {
            let serving = self.started(server).with_context(|| format!("{server:?}"))?;
            self.running.insert(server, serving);
        }
        Ok(())
    }

    fn started(&self, server: Server) -> Result<Serving> {
        match server {
            Server::Ours => {
                let arguments =
                    ["bulk", "serve", "--memory", "--listen=127.0.0.1:0", "--tls-listen=127.0.0.1:0", "--h3"];
                let mut running = Running::start(self.h2lab(), &arguments, Stdio::null())?;
                let mut url = || -> Result<String> {
                    // Its other protocols follow on the line.
                    let line = running.listening()?;
                    Ok(line.split(' ').next().unwrap_or_default().to_owned())
                };
                let at = vec![url()?, url()?];
                Ok(Serving { process: Process::Child(running), at })
            }
            Server::Raw => child(&self.raw, &["serve"]),
            Server::Rustls => {
                let certificate = self.certificate();
                child(&self.raw, &["serve", "--certificate", &certificate.display().to_string()])
            }
            Server::Iperf => {
                // The log does not go into a pipe: its output per test would not be read.
                let arguments = ["-s", "-B", "127.0.0.1", "--logfile", "/dev/null"];
                let program = process::find("iperf3").context("iperf3 is not installed")?;
                let running = Running::start(&program, &arguments, Stdio::null())?;
                network::await_listening(IPERF_PORT)?;
                Ok(Serving { process: Process::Child(running), at: vec!["127.0.0.1".to_owned()] })
            }
            Server::Go => child(&self.built_go()?, &["-serve", "http"]),
            Server::GoTls => child(&self.built_go()?, &["-serve", "https"]),
            Server::Nginx => self.nginx(""),
            Server::NginxTuned => self.nginx("http2_chunk_size 1m;"),
        }
    }

    fn built_go(&self) -> Result<PathBuf> {
        let (program, source) = (self.go(), self.folder.path().join("main.go"));
        if !program.is_file() {
            std::fs::write(&source, PEER)?;
            let go = process::find("go").context("go is not installed")?;
            let mut build = Command::new(go);
            build.args(["build", "-o"]).args([&program, &source]).current_dir(self.folder.path());
            ensure!(
                process::stream(&mut build)?.success(),
                "go did not build it, and said why above (1.25 or newer is needed)"
            );
        }
        Ok(program)
    }

    fn nginx(&self, more: &str) -> Result<Serving> {
        let file = self.folder.path().join("file");
        if !file.is_file() {
            // Written and not just extended, so that pages are read and not a hole.
            let (mut file, block) = (File::create(&file)?, vec![b'x'; WRITE]);
            for _ in 0..FILE_BYTES / WRITE as u64 {
                file.write_all(&block)?;
            }
        }
        let directives = format!("root {}; sendfile on; {more}", self.folder.path().display());
        let nginx = Nginx::serving(&directives, &[Listen::H1, Listen::H2c], 1_000_000)?;
        let mut pin = Command::new("taskset");
        pin.args(["-pc", SERVER_CPU, &nginx.id().to_string()]).stdout(Stdio::null());
        ensure!(process::stream(&mut pin)?.success(), "nginx cannot be bound to a CPU");
        let at = [0, 1].map(|n| format!("http://127.0.0.1:{}", nginx.port(n))).to_vec();
        Ok(Serving { process: Process::Nginx(nginx), at })
    }
}

/// A server that prints in one line where it listens.
fn child(program: &Path, arguments: &[&str]) -> Result<Serving> {
    let mut running = Running::start(program, arguments, Stdio::null())?;
    let at = vec![running.listening()?];
    Ok(Serving { process: Process::Child(running), at })
}
