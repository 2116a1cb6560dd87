//! A nats-server of the test's own, on a port that nobody has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use h2lab_nats::{Nats, NatsError, Parts, ServerOptions, StoredPart};
use h2lab_net::process::Child;
use rustix::process::Signal;

/// What never takes so long unless something hangs.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A server that runs. It ends with this, and with the test's thread.
pub struct Server {
    child: Child,
    program: PathBuf,
    config: String,
    scheme: &'static str,
    pub port: u16,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts it with `JetStream`. `None` if `H2LAB_TEST_SKIP` names nats-server.
    pub fn start() -> Option<Self> {
        Self::with("jetstream { store_dir: \"FOLDER/store\" }")
    }

    /// Starts it with this configuration, in which `FOLDER` is replaced by a folder of its own.
    pub fn with(config: &str) -> Option<Self> {
        Self::with_files(config, &[])
    }

    /// The same, with files in that folder.
    pub fn with_files(config: &str, files: &[(&str, String)]) -> Option<Self> {
        let program = need()?;
        let folder = tempfile::Builder::new().prefix("h2lab-nats-").tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let config = config.replace("FOLDER", folder.path().to_str().unwrap());
        let scheme = if config.contains("tls {") { "tls" } else { "nats" };
        let (child, port) = run(&program, folder.path(), &config, None);
        Some(Self { child, program, config, scheme, port, folder })
    }

    /// A file of its folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends it, and waits for that.
    pub fn stop(&mut self) {
        self.child.stop(Signal::TERM, DEADLINE).unwrap();
    }

    /// Starts it again on the same port.
    pub fn start_again(&mut self) {
        (self.child, self.port) = run(&self.program, self.folder.path(), &self.config, Some(self.port));
    }

    /// How a client of this name connects, without credentials.
    pub fn options(&self, name: &str) -> ServerOptions {
        ServerOptions {
            servers: vec![format!("{}://127.0.0.1:{}", self.scheme, self.port)],
            credentials: None,
            user: None,
            token: None,
            ca: None,
            identity: None,
            name: name.to_owned(),
            timeout: DEADLINE,
        }
    }

    /// How a user connects.
    pub fn user(&self, name: &str, password: &str) -> ServerOptions {
        ServerOptions { user: Some((name.to_owned(), password.to_owned())), ..self.options(name) }
    }

    /// A connection without credentials.
    pub fn connect(&self) -> Nats {
        Nats::connect(&self.options("test")).unwrap_or_else(|error| panic!("{error}\n{}", self.child.log()))
    }

    /// A connection to a server that is set up.
    pub fn set_up(&self) -> Nats {
        let nats = self.connect();
        nats.setup().unwrap();
        nats
    }
}

/// Starts the program and waits until it is ready: its port.
fn run(program: &Path, folder: &Path, config: &str, port: Option<u16>) -> (Child, u16) {
    let listen = port.map_or_else(|| "-1".to_owned(), |port| port.to_string());
    let file = folder.join("server.conf");
    fs::write(&file, format!("listen: \"127.0.0.1:{listen}\"\n{config}\n")).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(&file);
    let child = Child::spawn(command, None).unwrap();
    let port = child.wait_for_line(DEADLINE, |line| {
        let (_, address) = line.split_once("Listening for client connections on ")?;
        address.trim().rsplit(':').next()?.parse().ok()
    });
    let port = port.unwrap_or_else(|error| panic!("nats-server: {error}\n{}", child.log()));
    let ready = |line: &str| line.contains("Server is ready").then_some(());
    child.wait_for_line(DEADLINE, ready).unwrap_or_else(|error| panic!("{error}\n{}", child.log()));
    (child, port)
}

/// The program; fails with the line that installs it. `None` if `H2LAB_TEST_SKIP` names it.
fn need() -> Option<PathBuf> {
    let skip = std::env::var("H2LAB_TEST_SKIP").unwrap_or_default();
    if skip.split(',').any(|skipped| skipped.trim() == "nats-server") {
        eprintln!("skipped, since H2LAB_TEST_SKIP names nats-server");
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join("nats-server"))
        .find(|file| file.is_file());
    assert!(
        found.is_some(),
        "this test needs nats-server; type\n  sudo apt-get install --no-install-recommends -y nats-server\n\
         or skip it: H2LAB_TEST_SKIP=nats-server"
    );
    found
}

/// Waits until it is so; beside lints on two CPUs that has taken longer than a minute.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = 5 * DEADLINE;
    let deadline = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Stores a part, for which one attempt is enough.
pub fn put(parts: &Parts, name: &str, file: &Path) -> Result<StoredPart, NatsError> {
    parts.put_within(name, file, Duration::ZERO, &|| false)
}

/// The error of a connection that must not come about.
#[track_caller]
pub fn refused(options: &ServerOptions) -> NatsError {
    Nats::connect(options).err().expect("no connection")
}
