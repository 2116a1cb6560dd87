//! A fleet as users have it: nats-server, agents on machines of their own, an origin, and drivers; here in namespaces.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::network::{HUB, Network};
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::started::{Ended, Ending, Started};

/// The agents of most items.
pub const THREE: [&str; 3] = ["kek-1", "kek-2", "kek-3"];
/// The node of the origin.
pub const ORIGIN: &str = "origin";
/// The port of the origin.
pub const PORT: u16 = 8080;
/// Nothing takes as long to be ready, but what hangs: an agent tries each step of a lab before.
const START: Duration = Duration::from_secs(60);
/// No command of a driver takes as long, but one that hangs.
pub const DEADLINE: Duration = Duration::from_secs(240);
/// Exit code of figures that the tool does not trust.
pub const INVALID: i32 = 5;
/// How often it is looked whether an agent is free or busy.
const PACE: Duration = Duration::from_millis(250);

/// How an agent is started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Launch<'a> {
    /// A command that executes the one after it, such as `unshare`.
    pub before: &'a [&'a str],
    /// Further flags. Without `--allow` among them the agent permits the origin.
    pub flags: &'a [&'a str],
    /// Variables of its environment.
    pub variables: &'a [(&'a str, &'a str)],
}

/// All that runs; it ends with the value, the network last.
pub struct Fleet<'a> {
    h2lab: &'a H2lab,
    agents: BTreeMap<String, Started>,
    origin: Option<Started>,
    nats: Option<Started>,
    network: Network,
    folder: TempDir,
    /// Counts the processes, so that each has files of its own.
    begun: Cell<u32>,
}

impl<'a> Fleet<'a> {
    /// The network only, with a node of each name.
    pub fn new(h2lab: &'a H2lab, nodes: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let network = Network::new(folder.path(), nodes)?;
        Ok(Self {
            h2lab,
            agents: BTreeMap::new(),
            origin: None,
            nats: None,
            network,
            folder,
            begun: Cell::new(0),
        })
    }

    /// NATS, an origin, and three agents that permit it.
    pub fn of_three(h2lab: &'a H2lab) -> Result<Self> {
        let mut fleet = Self::new(h2lab, &[THREE[0], THREE[1], THREE[2], ORIGIN])?;
        fleet.start_nats("", "")?;
        fleet.start_origin()?;
        fleet.start_agents(&THREE, Launch::default())?;
        Ok(fleet)
    }

    /// Where everything is written.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The network.
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// A page of the origin.
    pub fn url(&self, path: &str) -> Result<String> {
        let (_, address) = self.network.node(ORIGIN)?;
        Ok(format!("http://{address}:{PORT}{path}"))
    }

    /// The NATS server's URL.
    pub fn nats_url(scheme: &str) -> String {
        format!("{scheme}://{HUB}:4222")
    }

    /// A name of files that no other process has.
    pub fn file_name(&self, what: &str) -> String {
        self.begun.set(self.begun.get() + 1);
        format!("{what}-{}", self.begun.get())
    }

    /// Starts nats-server, again if it was stopped: its store is kept. `jetstream` are settings of `JetStream`, `more` others.
    pub fn start_nats(&mut self, jetstream: &str, more: &str) -> Result<()> {
        self.start_nats_with(jetstream, more, &[])
    }

    /// The same with variables, which its configuration may name.
    pub fn start_nats_with(
        &mut self,
        jetstream: &str,
        more: &str,
        variables: &[(String, String)],
    ) -> Result<()> {
        let program = process::find("nats-server").context("nats-server is not installed")?;
        let (store, file) = (self.folder().join("jetstream"), self.folder().join("nats.conf"));
        let text = format!(
            "listen: \"0.0.0.0:4222\"\nserver_name: verify\njetstream {{\n  store_dir: {:?}\n  {jetstream}\n}}\n{more}\n",
            store.display().to_string()
        );
        fs::write(&file, text)?;
        let mut command = self.network.hub().command(program);
        command.arg("--config").arg(&file).envs(variables.iter().map(|(name, value)| (name, value)));
        let mut nats = Started::begin(&mut command, self.folder(), &self.file_name("nats"))?;
        let is_ready = nats.until(START, |nats| nats.stderr().contains("Server is ready"))?;
        ensure!(is_ready, "nats-server does not start: {}", nats.stderr().trim());
        self.nats = Some(nats);
        Ok(())
    }

    /// Kills nats-server.
    pub fn kill_nats(&mut self) {
        self.nats = None;
    }

    /// What nats-server has logged since its last start.
    pub fn nats_log(&self) -> String {
        self.nats.as_ref().map(Started::stderr).unwrap_or_default()
    }

    /// The process of nats-server.
    pub fn nats_process(&self) -> Result<u32> {
        self.nats.as_ref().map(Started::id).context("nats-server does not run")
    }

    /// Starts `h2lab origin` on its node.
    pub fn start_origin(&mut self) -> Result<()> {
        let (node, address) = self.network.node(ORIGIN)?;
        let mut command = node.command(self.h2lab.path());
        command.args(["origin", "--listen", &format!("{address}:{PORT}")]);
        let mut origin = Started::begin(&mut command, self.folder(), &self.file_name(ORIGIN))?;
        let listens = origin.until(START, |origin| origin.stdout().contains("listening"))?;
        ensure!(listens, "the origin does not listen: {}", origin.stderr().trim());
        self.origin = Some(origin);
        Ok(())
    }

    /// Starts agents on the nodes of their names, one after the other, and waits until all are ready.
    pub fn start_agents(&mut self, names: &[&str], launch: Launch<'_>) -> Result<()> {
        for name in names {
            self.begin_agent(name, launch)?;
        }
        for name in names {
            self.await_agent(name)?;
        }
        Ok(())
    }

    /// Starts an agent, again if it was killed, and waits for nothing.
    pub fn begin_agent(&mut self, name: &str, launch: Launch<'_>) -> Result<()> {
        let (node, _) = self.network.node(name)?;
        let mut command = match launch.before.split_first() {
            None => node.command(self.h2lab.path()),
            Some((first, rest)) => {
                let mut command = node.command(first);
                command.args(rest).arg(self.h2lab.path());
                command
            }
        };
        command.args(["agent", "--name", name]);
        if !launch.flags.contains(&"--nats") {
            command.args(["--nats", &Self::nats_url("nats")]);
        }
        if !launch.flags.contains(&"--allow") {
            command.args(["--allow", &self.url("")?]);
        }
        command.args(launch.flags).envs(launch.variables.iter().copied());
        let agent = Started::begin(&mut command, self.folder(), &self.file_name(name))?;
        self.agents.insert(name.to_owned(), agent);
        Ok(())
    }

    /// Waits until an agent says that it is ready.
    pub fn await_agent(&mut self, name: &str) -> Result<()> {
        let agent = self.agents.get_mut(name).with_context(|| format!("{name} was not started"))?;
        let is_ready = agent.until(START, |agent| agent.stderr().contains("waits for drivers"))?;
        ensure!(is_ready, "{name} is not ready: {}", agent.stderr().trim());
        Ok(())
    }

    /// An agent's process.
    pub fn agent(&self, name: &str) -> Result<&Started> {
        self.agents.get(name).with_context(|| format!("{name} does not run"))
    }

    /// Sends an agent a signal, by its name as kill(1) has it.
    pub fn signal(&self, name: &str, signal: &str) -> Result<()> {
        send(self.agent(name)?, signal)
    }

    /// Ends an agent with SIGKILL.
    pub fn kill_agent(&mut self, name: &str) -> Result<()> {
        self.agents.remove(name).map(drop).with_context(|| format!("{name} does not run"))
    }

    /// A command of a driver on the hub. Its last words name the server, unless it has them.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.network.hub().command(self.h2lab.path());
        command.args(words);
        if !words.contains(&"--nats") {
            command.args(["--nats", &Self::nats_url("nats")]);
        }
        command
    }

    /// Begins a command of a driver, in the folder.
    pub fn begin(&self, words: &[&str]) -> Result<Started> {
        Started::begin(&mut self.command(words), self.folder(), &self.file_name("driver"))
    }

    /// Runs a command of a driver to its end.
    pub fn drive(&self, words: &[&str]) -> Result<Ended> {
        self.begin(words)?.end(DEADLINE)
    }

    /// Waits until an agent works for nobody. One whose driver has just ended is free in a moment.
    pub fn await_free(&self, name: &str, within: Duration) -> Result<Duration> {
        self.await_busy(name, within, |busy| !busy)
    }

    /// The document of `agents --json`.
    pub fn agents(&self) -> Result<Value> {
        json(&self.drive(&["agents", "--json", "--wait", "500ms"])?)
    }

    /// Waits until this holds for what an agent is busy with; for how long that took.
    pub fn await_busy(&self, name: &str, within: Duration, holds: impl Fn(bool) -> bool) -> Result<Duration> {
        let begun = Instant::now();
        while begun.elapsed() < within {
            // There is none while the server is away.
            let document = self.agents().unwrap_or_default();
            let agents = document["agents"].as_array().map_or(&[][..], Vec::as_slice);
            if agents.iter().any(|agent| agent["name"] == name && holds(!agent["busy"].is_null())) {
                return Ok(begun.elapsed());
            }
            std::thread::sleep(PACE);
        }
        bail!("{name} is not so within {} s", within.as_secs())
    }

    /// What a run folder says by `h2lab report`; `None` if there is no folder, or an empty one.
    pub fn report(&self, run: &str) -> Result<Option<Value>> {
        let folder: PathBuf = self.folder().join(run);
        let is_empty = || fs::read_dir(&folder).map_or(true, |mut entries| entries.next().is_none());
        if is_empty() {
            return Ok(None);
        }
        let mut command = self.network.hub().command(self.h2lab.path());
        command.args(["report", "--json", run]);
        let reported =
            Started::begin(&mut command, self.folder(), &self.file_name("report"))?.end(DEADLINE)?;
        json(&reported).map(Some).with_context(|| format!("the run folder {run} is neither whole nor absent"))
    }
}

/// Sends a process a signal, by its name as kill(1) has it.
pub fn send(process: &Started, signal: &str) -> Result<()> {
    let sent = Command::new("kill").args([&format!("-{signal}"), &process.id().to_string()]).status()?;
    ensure!(sent.success(), "no signal can be sent");
    Ok(())
}

/// The document on the stdout of a run that ended by itself.
pub fn json(ended: &Ended) -> Result<Value> {
    ensure!(matches!(ended.ending, Ending::Code(_)), "{}: {}", ended.ending, ended.last_words());
    let read = serde_json::from_str(&ended.stdout);
    read.with_context(|| format!("{}, and no JSON: {}", ended.ending, ended.last_words()))
}
