//! Agents over NATS: a real nats-server, agents as processes of their own, and drivers as users start them.
//!
//! What takes a minute by design, such as a driver that falls silent, belongs to `cargo xtask verify agents`.

/// `bulk drive` by agents.
mod bulk;

/// An agent that dies, a server that is started again.
mod faults;

/// Packets, orders and runs that no driver of ours sends.
mod hostile;

/// `load --agents`.
mod load;

/// What agents and drivers refuse, in words.
mod refused;

/// `run --agents`.
mod run;

/// An agent from its start to its end, and who it works for.
mod service;

/// A server that has lost what it stored, and copies of run folders.
mod store;

/// nats-server, as the tests of `h2lab-nats` start it. No tests.
#[path = "../../../../nats/tests/server/host.rs"]
#[expect(dead_code, reason = "what only those tests need")]
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use h2lab_net::process::Child;
use serde_json::Value;
use tempfile::TempDir;

use self::server::{Server, eventually};
use crate::origin::Origin;
use crate::support::{DEADLINE, Finished, binary, folder, run_program};

/// What an agent of most tests permits.
const ANY: [&str; 2] = ["--allow", "http://127.0.0.1:*"];

/// Who the drivers are.
const USER: &str = "ann";

/// What a driver of a load says of an agent that needed more than a second to answer, on a machine that is busy with other
/// tests.
const OVERLOOKED: &str = "did not answer (there:";

/// The same of a run that needs each of its agents.
const TOO_FEW: &str = "agents, one for each measurement, and there are";

/// What a driver says of an agent that still ends its work for the one before.
const BUSY: &str = "it is busy with";

/// Whose turn it is.
static TURN: Mutex<()> = Mutex::new(());

/// A server, and a folder in which drivers work. Agents and drivers are children of the test, and end with it.
struct Hub {
    server: Server,
    folder: TempDir,
    /// Of all hubs one at a time.
    _turn: MutexGuard<'static, ()>,
}

impl Hub {
    /// `None` if `H2LAB_TEST_SKIP` names nats-server.
    fn start() -> Option<Self> {
        // Several at a time, each with agents that have real-time threads, leave too little of two CPUs to all other tests.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self { server: Server::start()?, folder: folder(), _turn: turn })
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.server.port)
    }

    /// A file or folder of the drivers.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// h2lab with these arguments, in the folder.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(words).current_dir(self.folder.path());
        command
            .env("H2LAB_NATS", self.url())
            .env("USER", USER)
            .env("LC_ALL", "C.UTF-8")
            .env_remove("COLUMNS");
        command
    }

    /// Starts an agent, which keeps what it measures in a folder of its name.
    fn begin_agent(&self, name: &str, flags: &[&str]) -> Child {
        let folder = self.path(name);
        fs::create_dir_all(&folder).expect("a temporary folder");
        let mut command = self.command(&["agent", "--name", name, "--nats", &self.url()]);
        command.args(flags).arg("--folder").arg(folder);
        Child::spawn(command, None).expect("the binary starts")
    }

    /// Starts an agent, and waits until it takes orders.
    #[track_caller]
    fn agent(&self, name: &str, flags: &[&str]) -> Child {
        let agent = self.begin_agent(name, flags);
        await_line(&agent, "waits for drivers");
        agent
    }

    /// Starts agents that permit the same.
    #[track_caller]
    fn agents<const N: usize>(&self, names: [&str; N], flags: &[&str]) -> [Child; N] {
        let agents = names.map(|name| self.begin_agent(name, flags));
        for agent in &agents {
            await_line(agent, "waits for drivers");
        }
        agents
    }

    /// Runs h2lab to its end.
    #[track_caller]
    fn h2lab(&self, words: &[&str]) -> Finished {
        let mut all = vec![format!("H2LAB_NATS={}", self.url()), format!("USER={USER}")];
        all.push(binary().display().to_string());
        all.extend(words.iter().map(|&word| word.to_owned()));
        run_program(Path::new("env"), self.folder.path(), &all)
    }

    /// The same, again as long as it says one of these.
    #[track_caller]
    fn h2lab_again(&self, words: &[&str], said: &[&str]) -> Finished {
        let until = Instant::now() + DEADLINE;
        loop {
            let finished = self.h2lab(words);
            let transcript = finished.transcript();
            if !said.iter().any(|said| transcript.contains(said)) || Instant::now() >= until {
                return finished;
            }
        }
    }

    /// Runs a driver whose agents are there and free, or will be in a moment.
    #[track_caller]
    fn drive(&self, words: &[&str]) -> Finished {
        self.h2lab_again(words, &[OVERLOOKED, TOO_FEW, BUSY])
    }

    /// Starts a load, and waits until its agents have been told when to begin.
    #[track_caller]
    fn begin_load(&self, words: &[&str]) -> Child {
        loop {
            let driver = Child::spawn(self.command(words), None).expect("the binary starts");
            let begins = |line: &str| {
                let is_begun = line.contains(" agent (") || line.contains(" agents (");
                (is_begun || line.contains(OVERLOOKED)).then_some(is_begun)
            };
            let begun = driver.wait_for_line(DEADLINE, begins);
            if begun.unwrap_or_else(|error| panic!("{error}: {}", driver.log())) {
                return driver;
            }
        }
    }

    /// The document of `agents --json`, once these agents answer, by name, and no others.
    #[track_caller]
    fn listed(&self, names: &[&str]) -> Value {
        let mut document = Value::Null;
        eventually(&format!("{names:?} are there"), || {
            document = self.h2lab(&["agents", "--json"]).json();
            let agents = document["agents"].as_array().expect("a list");
            agents.iter().map(|agent| agent["name"].as_str().expect("a name")).eq(names.iter().copied())
        });
        document
    }

    /// A document that a driver has written.
    #[track_caller]
    fn document(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
    }
}

/// An origin, and the URL of its page of 1 KiB.
fn origin() -> (Origin, String) {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    (origin, url)
}

/// Waits until a child has written a line with these words.
#[track_caller]
fn await_line(child: &Child, words: &str) {
    let found = child.wait_for_line(DEADLINE, |line| line.contains(words).then_some(()));
    found.unwrap_or_else(|error| panic!("`{words}`: {error}: {}", child.log()));
}

/// The exit code of a child, which ends by itself.
#[track_caller]
fn code(child: &mut Child) -> Option<i32> {
    let ended = child.wait(DEADLINE).expect("a child can be waited for");
    ended.unwrap_or_else(|| panic!("it still runs: {}", child.log())).status.code()
}

/// Fails unless a child has measured: 5 means that the machine was too busy for the figures.
#[track_caller]
fn assert_measured(child: &mut Child) {
    let code = code(child);
    assert!(matches!(code, Some(0 | 5)), "exit code {code:?}: {}", child.log());
}

/// The shares of a load.
#[track_caller]
fn shares(document: &Value) -> &[Value] {
    document["agents"]["shares"].as_array().unwrap_or_else(|| panic!("no shares: {document:#}"))
}

/// Fails unless the requests of a load are those that were due at the agents whose shares are there, each once. How many there
/// are.
#[track_caller]
fn assert_adds_up(document: &Value) -> u64 {
    let count = |name: &str| document["requests"][name].as_u64().expect("a number");
    let there = shares(document).iter().filter(|share| share["state"] != "lost");
    let due: u64 = there.map(|share| share["due"].as_u64().expect("a number")).sum();
    let ended = count("succeeded") + count("failed") + count("unfinished");
    assert_eq!((count("sent"), ended), (due, due), "{document:#}");
    due
}
