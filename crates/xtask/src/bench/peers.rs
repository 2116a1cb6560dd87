//! The programs on both sides of a contest: servers that run through a round, clients that are its load.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::meter;
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::nginx::{Listen, Nginx};

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(10);
/// Bytes of the small response body.
pub const SMALL: usize = 6;

/// A running server, which ends when the value is dropped.
#[derive(Debug)]
pub struct Server {
    running: Running,
    /// `http://127.0.0.1:PORT/…`, for a GET of [`SMALL`] bytes; a POST is answered too.
    pub url: String,
}

#[derive(Debug)]
enum Running {
    Child { child: Child, _folder: Option<tempfile::TempDir> },
    Nginx(Nginx),
}

impl Server {
    /// Our origin: one cleartext port for HTTP/1.1 and HTTP/2 by prior knowledge. `wrapper` is the command prefix of a
    /// program that runs it, such as valgrind.
    pub fn origin(h2lab: &H2lab, wrapper: &[String]) -> Result<Self> {
        let mut child = dying(wrapper, h2lab.path())
            .args(["origin", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start our origin")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout is a pipe")?).read_line(&mut line)?;
        let base =
            line.trim().strip_prefix("listening ").context("the origin does not say where it listens")?;
        let url = format!("{base}/bytes/{SMALL}");
        Ok(Self { running: Running::Child { child, _folder: None }, url })
    }

    /// nghttp2's server with one thread and its defaults.
    pub fn nghttpd(wrapper: &[String]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("small"), vec![b'x'; SMALL])?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let child = dying(wrapper, &process::find("nghttpd").context("nghttpd is not installed")?)
            .args(["--no-tls", "--address=127.0.0.1", "--htdocs"])
            .arg(folder.path())
            .arg(port.to_string())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start nghttpd")?;
        let url = format!("http://127.0.0.1:{port}/small");
        let server = Self { running: Running::Child { child, _folder: Some(folder) }, url };
        await_port(port)?;
        Ok(server)
    }

    /// Debian's nginx, one process, HTTP/2 in clear, without a quota of requests.
    pub fn nginx() -> Result<Self> {
        let nginx = Nginx::start(&[Listen::H2c], 1_000_000_000)?;
        let url = format!("http://127.0.0.1:{}/", nginx.port(0));
        Ok(Self { running: Running::Nginx(nginx), url })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        match &self.running {
            Running::Child { child, .. } => child.id(),
            Running::Nginx(nginx) => nginx.id(),
        }
    }

    /// CPU that it has taken so far, in microseconds.
    pub fn cpu_us(&self) -> Result<f64> {
        meter::cpu_us_of(self.id())
    }

    /// Asks it to end, so that its wrapper can write its result, and waits until it has.
    pub fn end(mut self) -> Result<()> {
        let asked = Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        if !asked.context("cannot start kill")?.success() {
            bail!("the server has ended by itself");
        }
        if let Running::Child { child, .. } = &mut self.running {
            child.wait()?;
        }
        Ok(())
    }
}

/// Waits until `port` is listening.
fn await_port(port: u16) -> Result<()> {
    let until = Instant::now() + START;
    while TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_err() {
        if Instant::now() > until {
            bail!("nothing listens on port {port}");
        }
        std::thread::yield_now();
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Running::Child { child, .. } = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A command that dies with us even if we are killed.
fn dying(wrapper: &[String], program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig=KILL", "--"]).args(wrapper).arg(program);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// One connection with a hundred streams.
pub const DEEP: Load = Load { protocol: "h2c", connections: 1, streams: 100, body: 0 };
/// Ten connections with ten streams each.
pub const WIDE: Load = Load { protocol: "h2c", connections: 10, streams: 10, body: 0 };
/// A hundred connections of HTTP/1.1.
pub const MANY: Load = Load { protocol: "h1", connections: 100, streams: 1, body: 0 };
/// One connection with a hundred streams that carry a body.
pub const POST: Load = Load { body: 1024, ..DEEP };

/// What a client is to do.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// `h1` or `h2c`.
    pub protocol: &'static str,
    /// Connections.
    pub connections: u32,
    /// Streams at a time on each.
    pub streams: u32,
    /// Bytes of a POST's body; 0 is a GET.
    pub body: usize,
}

impl Load {
    const fn in_flight(self) -> u32 {
        self.connections * self.streams
    }

    /// How many requests h2load makes.
    pub const fn requests(self) -> u32 {
        if self.in_flight() >= 100 { 600_000 } else { 100_000 }
    }

    /// The words that run our generator alone, for a number of requests: see `examples/load.rs`.
    pub fn generator_words(self, program: &Path, url: &str, requests: u32, tap: bool) -> Vec<String> {
        let mut words = vec![program.display().to_string(), url.to_owned()];
        words.push(format!("--proto={}", self.protocol));
        words.push(format!("-n{requests}"));
        words.extend([format!("-c{}", self.connections), format!("-m{}", self.streams)]);
        words.push(format!("--body-bytes={}", self.body));
        words.extend((!tap).then(|| "--no-tap".to_owned()));
        words
    }

    /// Our generator alone, the whole process.
    pub fn generator(self, program: &Path, url: &str, tap: bool) -> Result<f64> {
        let requests = self.requests();
        let words = self.generator_words(program, url, requests, tap);
        let metered = meter::run(&words[0], &words[1..])?;
        Ok(metered.cpu_us / f64::from(requests))
    }

    /// The arguments with which h2load makes a number of requests; their body lies in `folder`.
    pub fn h2load_words(self, url: &str, requests: u32, folder: &Path) -> Result<Vec<String>> {
        let mut words =
            vec![format!("-n{requests}"), format!("-c{}", self.connections), format!("-m{}", self.streams)];
        if self.body > 0 {
            let file = folder.join("body");
            std::fs::write(&file, vec![b'x'; self.body])?;
            words.push(format!("-d{}", file.display()));
        }
        words.push(url.to_owned());
        Ok(words)
    }

    /// h2load, the whole process, over enough requests that its start does not count.
    pub fn h2load(self, url: &str, requests: u32) -> Result<f64> {
        let folder = tempfile::tempdir()?;
        let metered = meter::run("h2load", &self.h2load_words(url, requests, folder.path())?)?;
        let succeeded = format!("{requests} succeeded");
        if !metered.stdout.contains(&succeeded) {
            bail!("h2load: not all requests succeeded: {}", metered.stdout);
        }
        Ok(metered.cpu_us / f64::from(requests))
    }

    /// The arguments with which wrk runs for some seconds, with one thread.
    pub fn wrk_words(self, url: &str, seconds: u32) -> Vec<String> {
        ["-t1", &format!("-c{}", self.connections), &format!("-d{seconds}"), url].map(str::to_owned).to_vec()
    }

    /// wrk with one thread, the whole process.
    pub fn wrk(self, url: &str) -> Result<f64> {
        let metered = meter::run("wrk", &self.wrk_words(url, 2))?;
        Ok(metered.cpu_us / wrk_requests(&metered.stdout)?)
    }
}

/// How many requests wrk says that it made.
pub fn wrk_requests(stdout: &str) -> Result<f64> {
    let figure = |line: &str| line.trim().split_once(" requests in ")?.0.parse::<f64>().ok();
    stdout.lines().find_map(figure).context("wrk does not say how many requests it made")
}
