//! Load generators, ours and those that people use today, configured to do the same job on the same server.
//!
//! The server runs on the first CPU and the generator on the second, so that neither takes the other's time and every
//! generator has one CPU. What a generator did is counted by the server.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;
use crate::verify::binary::H2lab;

/// The CPU of servers, for taskset.
pub const SERVER_CPU: &str = "0";
/// That of generators and other clients.
pub const CLIENT_CPU: &str = "1";

/// A load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `h2lab load`, as its users run it: with discovery, every request recorded and the run kept.
    H2lab,
    /// HTTP/1.1, closed loop.
    Wrk,
    /// HTTP/1.1, open loop.
    Wrk2,
    /// nghttp2's.
    H2load,
    /// Go; HTTP/2 over TLS only.
    Hey,
    /// Rust, on hyper.
    Oha,
    /// Go; open loop, on one connection of HTTP/2 only.
    Vegeta,
}

impl Tool {
    /// All of them, ours first.
    pub const ALL: [Self; 7] =
        [Self::H2lab, Self::Wrk, Self::Wrk2, Self::H2load, Self::Hey, Self::Oha, Self::Vegeta];

    /// Its program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::H2lab => "h2lab",
            Self::Wrk => "wrk",
            Self::Wrk2 => "wrk2",
            Self::H2load => "h2load",
            Self::Hey => "hey",
            Self::Oha => "oha",
            Self::Vegeta => "vegeta",
        }
    }

    /// The line that installs it.
    const fn installing(self) -> &'static str {
        match self {
            Self::H2lab => "cargo build --profile dist",
            Self::Wrk => "apt-get install --no-install-recommends -y wrk",
            Self::Wrk2 => {
                "git clone https://github.com/giltene/wrk2 && make -C wrk2 (its program is called wrk: put it in PATH as wrk2)"
            }
            Self::H2load => "apt-get install --no-install-recommends -y nghttp2-client",
            Self::Hey => "go install github.com/rakyll/hey@v0.1.5",
            Self::Oha => "cargo install oha --locked",
            // Its own go.mod has replacements, with which `go install …@version` refuses to build.
            Self::Vegeta => {
                "in a folder whose go.mod requires github.com/tsenart/vegeta/v12 v12.12.0: go install github.com/tsenart/vegeta/v12"
            }
        }
    }

    /// Whether every user may run it: not if it is in a home directory.
    pub fn is_for_all(self) -> bool {
        self == Self::H2lab || process::find(self.name()).is_some_and(|path| !path.starts_with("/root"))
    }

    /// Where it is, if it is installed.
    fn find(self) -> Option<PathBuf> {
        process::find(self.name()).or_else(|| {
            let file = PathBuf::from(std::env::var_os("HOME")?).join(".cargo/bin").join(self.name());
            file.is_file().then_some(file)
        })
    }

    /// Its arguments for a job; `None` if it cannot do it. Files of its own lie in `folder`.
    ///
    /// A rate is requested in the manner that the tool's manual recommends against coordinated omission, if it has one.
    fn arguments(self, job: &Job<'_>, folder: &Path) -> Option<Vec<String>> {
        let Job { protocol, connections, streams, seconds, rate, url, .. } = *job;
        let is_h1 = protocol == "h1";
        let in_flight = connections * streams;
        let file = |name: &str| folder.join(name).display().to_string();
        let mut words: Vec<String> = Vec::new();
        let mut add = |line: &str| words.extend(line.split_whitespace().map(str::to_owned));
        match self {
            Self::H2lab => {
                add(&format!("load --json -k --proto {protocol} -c {connections} -z {seconds}s"));
                match rate {
                    Some(rate) => add(&format!("-q {rate}")),
                    None if !is_h1 => add(&format!("-m {streams}")),
                    None => {}
                }
                add(&format!("--out {}", file("run")));
            }
            Self::Wrk if is_h1 && rate.is_none() => add(&format!("-t1 -c{connections} -d{seconds}")),
            Self::Wrk2 if is_h1 => add(&format!("-t1 -c{connections} -d{seconds} -R{}", rate?)),
            Self::H2load => {
                add(&format!("-D {seconds} -c {connections} -m {streams}"));
                add(if is_h1 { "--h1" } else { "" });
                // Per connection.
                if let Some(rate) = rate {
                    add(&format!("--rps {}", rate / connections));
                }
            }
            // One connection, whatever is configured; nothing in clear.
            Self::Hey if is_h1 || (protocol == "h2" && connections == 1) => {
                add(&format!("-z {seconds}s -c {in_flight}"));
                // Unless it is given a host, it puts the port into TLS's server name, too, which rustls refuses.
                add(if is_h1 { "" } else { "-h2 -host localhost" });
                if let Some(rate) = rate {
                    add(&format!("-q {}", rate / in_flight));
                }
            }
            Self::Oha => {
                add(&format!("-z {seconds}s --no-tui --output-format json --insecure -c {connections}"));
                add(&if is_h1 { String::new() } else { format!("-p {streams} --http2") });
                if let Some(rate) = rate {
                    add(&format!("-q {rate} --latency-correction"));
                }
            }
            Self::Vegeta if is_h1 || connections == 1 => {
                add(&format!("attack -insecure -duration {seconds}s -output {}", file("vegeta.bin")));
                add(&format!("-targets {}", file("targets")));
                add(if protocol == "h2c" { "-h2c" } else { "" });
                add(&match rate {
                    Some(rate) => format!("-rate {rate}"),
                    None => format!("-rate 0 -workers {in_flight} -max-workers {in_flight}"),
                });
                return Some(words);
            }
            Self::Wrk | Self::Wrk2 | Self::Hey | Self::Vegeta => return None,
        }
        words.push(url.to_owned());
        Some(words)
    }

    /// Does the job in `folder`; `None` if it cannot.
    pub fn run(self, h2lab: &H2lab, job: &Job<'_>, folder: &Path) -> Result<Option<Done>> {
        let Some(arguments) = self.arguments(job, folder) else { return Ok(None) };
        let program = match self {
            Self::H2lab => h2lab.path().to_owned(),
            _ => self.find().with_context(|| format!("{} is not installed", self.name()))?,
        };
        std::fs::write(folder.join("targets"), format!("GET {}\n", job.url))?;
        let user: &[&str] = if job.as_nobody {
            // The tool writes its files into this folder.
            std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY))?;
            &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--"]
        } else {
            &[]
        };
        // bash's `time` does the accounting (`wait4`), to a millisecond, without unsafe code here.
        let output = Command::new("bash")
            .args(["-c", "TIMEFORMAT='%3U %3S'; time \"$@\" 2>errors", "bash"])
            .args(user)
            .args(["taskset", "-c", CLIENT_CPU])
            .arg(&program)
            .args(&arguments)
            .current_dir(folder)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .context("cannot start bash")?;
        // 5: ours has doubts about its measurement, which are reported but are not a failure.
        if !matches!(output.status.code(), Some(0 | 5)) {
            let errors = std::fs::read_to_string(folder.join("errors")).unwrap_or_default();
            bail!("`{} {}` ended with {}: {errors}", self.name(), arguments.join(" "), output.status);
        }
        let times = String::from_utf8_lossy(&output.stderr).into_owned();
        let seconds: Vec<f64> = times.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [user, system] = seconds[..] else { bail!("bash's `time` printed {times:?}") };
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Some(Done { stdout, cpu_us: (user + system) * 1e6 }))
    }

    /// Its report on its run in `folder`, in its own JSON: vegeta's is made from its file.
    pub fn report(self, done: &Done, folder: &Path) -> Result<serde_json::Value> {
        if self != Self::Vegeta {
            return serde_json::from_str(&done.stdout)
                .with_context(|| format!("{}: not JSON: {}", self.name(), done.stdout));
        }
        let program = self.find().context("vegeta is not installed")?;
        let output = Command::new(program)
            .args(["report", "-type", "json", "vegeta.bin"])
            .current_dir(folder)
            .output()
            .context("cannot start vegeta")?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// The tools that are installed; prints how to get the others.
pub fn installed(tools: &[Tool]) -> Vec<Tool> {
    let is_here = |tool: &&Tool| **tool == Tool::H2lab || tool.find().is_some();
    for tool in tools.iter().filter(|tool| !is_here(tool)) {
        println!("{} is left out, it is not installed: {}", tool.name(), tool.installing());
    }
    tools.iter().filter(is_here).copied().collect()
}

/// What a generator is to do.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// `h1`, `h2c` or `h2`.
    pub protocol: &'static str,
    /// Connections to open, as far as the tool has an option for it.
    pub connections: u32,
    /// Requests at a time on each; 1 for HTTP/1.1.
    pub streams: u32,
    /// How long.
    pub seconds: u32,
    /// Requests per second; `None` as many as are answered.
    pub rate: Option<u32>,
    /// What to ask for.
    pub url: &'a str,
    /// Whether the tool runs without any privilege, as uid 65534; root may start it so.
    pub as_nobody: bool,
}

/// The uid and gid of an unprivileged user (`nobody`).
const NOBODY: u32 = 65_534;

/// A job that was done.
#[derive(Debug)]
pub struct Done {
    /// What was printed.
    pub stdout: String,
    /// User and system time of the whole process in microseconds.
    pub cpu_us: f64,
}

/// A server on its CPU; killed when the value is dropped, unless it was ended.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts it.
    pub fn start(program: &Path, arguments: &[&str], stdin: Stdio) -> Result<Self> {
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig=KILL", "--", "taskset", "-c", SERVER_CPU])
            .arg(program)
            .args(arguments)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is a pipe")?);
        Ok(Self { child, stdout })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens, the next line that it prints.
    pub fn listening(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let url = line.trim().strip_prefix("listening ").context("the server does not listen")?;
        Ok(url.to_owned())
    }

    /// The rest of what it prints until it ends.
    fn rest(mut self) -> Result<String> {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest)?;
        Ok(rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}

/// Our origin.
#[derive(Debug)]
pub struct Origin {
    running: Running,
    clear: String,
    tls: String,
}

impl Origin {
    /// Listens in clear and with TLS.
    pub fn start(h2lab: &H2lab) -> Result<Self> {
        let arguments = ["origin", "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0"];
        let mut running = Running::start(h2lab.path(), &arguments, Stdio::null())?;
        let (clear, tls) = (running.listening()?, running.listening()?);
        Ok(Self { running, clear, tls })
    }

    /// The URL of a path for a protocol.
    pub fn url(&self, protocol: &str, path: &str) -> String {
        format!("{}{path}", if protocol == "h2" { &self.tls } else { &self.clear })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.running.child.id()
    }

    /// Ends it; returns what it has served.
    pub fn end(self) -> Result<Served> {
        let id = self.running.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status().context("cannot start kill")?;
        if !asked.success() {
            bail!("the origin has ended by itself");
        }
        let said = self.running.rest()?;
        Served::read(&said).with_context(|| format!("the origin does not report what it served: {said:?}"))
    }
}

/// What an origin has served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Requests whose heads arrived.
    pub requests: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections without any request.
    pub useless: u64,
}

impl Served {
    /// Parses `served N requests on N connections (N without any)`.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.starts_with("served "))?;
        let mut numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
        Some(Self { requests: numbers.next()?, connections: numbers.next()?, useless: numbers.next()? })
    }
}

/// The server that records arrivals: `crates/h2lab/examples/stamps.rs`.
#[derive(Debug)]
pub struct Stamps {
    running: Running,
    stdin: ChildStdin,
    /// Where it answers, HTTP/1.1 and HTTP/2 in clear alike.
    pub url: String,
}

impl Stamps {
    /// Starts the example that was built as `program`.
    pub fn start(program: &Path) -> Result<Self> {
        let mut running = Running::start(program, &[], Stdio::piped())?;
        let stdin = running.child.stdin.take().context("stdin is a pipe")?;
        let url = running.listening()? + "/";
        Ok(Self { running, stdin, url })
    }

    /// Ends it; returns when requests arrived, in nanoseconds.
    pub fn end(self) -> Result<Vec<u64>> {
        drop(self.stdin);
        self.running.rest()?.lines().map(|line| Ok(line.parse()?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Job<'static> = Job {
        protocol: "h1",
        connections: 100,
        streams: 1,
        seconds: 2,
        rate: None,
        url: "http://h/",
        as_nobody: false,
    };

    fn line(tool: Tool, job: &Job<'_>) -> Option<String> {
        tool.arguments(job, Path::new("/f")).map(|words| words.join(" "))
    }

    #[test]
    fn each_tool_is_given_the_same_job_in_its_own_flags() {
        let deep = Job { protocol: "h2c", connections: 1, streams: 100, ..GET };
        assert_eq!(line(Tool::Wrk, &GET).unwrap(), "-t1 -c100 -d2 http://h/");
        assert_eq!(line(Tool::H2load, &deep).unwrap(), "-D 2 -c 1 -m 100 http://h/");
        assert!(line(Tool::Oha, &deep).unwrap().contains("-c 1 -p 100 --http2"));
        assert!(line(Tool::Vegeta, &deep).unwrap().contains("-h2c -rate 0 -workers 100 -max-workers 100"));
        assert!(line(Tool::H2lab, &deep).unwrap().contains("--proto h2c -c 1 -z 2s -m 100"));
    }

    #[test]
    fn a_rate_of_all_connections_is_divided_where_a_tool_wants_it_of_each() {
        let paced = Job { rate: Some(20_000), ..GET };
        assert!(line(Tool::H2load, &paced).unwrap().contains("--rps 200 "));
        assert!(line(Tool::Hey, &paced).unwrap().contains("-q 200 "));
        assert!(line(Tool::Oha, &paced).unwrap().contains("-q 20000 --latency-correction"));
    }

    #[test]
    fn what_a_tool_cannot_do_it_is_not_asked() {
        let wide = Job { protocol: "h2c", connections: 10, streams: 10, ..GET };
        for tool in [Tool::Wrk, Tool::Wrk2, Tool::Hey, Tool::Vegeta] {
            assert_eq!(line(tool, &wide), None);
        }
        assert_eq!(line(Tool::Wrk, &Job { rate: Some(1), ..GET }), None);
        assert_eq!(line(Tool::Wrk2, &GET), None);
    }

    #[test]
    fn what_was_served_is_read_from_the_last_line() {
        let served = Served { requests: 12, connections: 3, useless: 1 };
        assert_eq!(Served::read("served 12 requests on 3 connections (1 without any)\n"), Some(served));
        assert_eq!(Served::read(""), None);
    }
}
