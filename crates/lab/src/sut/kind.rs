//! The description of a server under test, as values: its program, its options, how it is started.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use h2lab_model::scenario::Change;
use h2lab_model::workload::{EngineSettings, Protocol};
use rustix::process::Signal;

use super::early::{Early, Page, Pages};
use super::error::SutError;
use super::own::OwnConfig;
use super::package::Package;
use super::upstream::Upstream;
use h2lab_net::privileges::{self, CapabilitySet};
use h2lab_net::process;

/// Length of every server's response body, whatever the request.
pub const BODY_BYTES: usize = 1024;

/// Concurrent streams that servers allow: so many that the client's own limits decide, as in a service configured for
/// it.
pub(super) const MAX_CONCURRENT_STREAMS: u32 = 100_000;

/// How long a server may take to listen, to check its configuration, or to print its version: a JVM on a machine with other work took 20 s.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a server may take that must be built first: the first time with all of its dependencies.
pub(super) const BUILD_TIMEOUT: Duration = Duration::from_secs(300);

/// The folder, below a server's own, that is removed when the server ends.
pub const SCRATCH: &str = "scratch";

/// The log file in a server's folder.
pub const LOG: &str = "log.txt";

/// The beginning of our origin's lines about a QUIC connection, on its standard output.
pub const QUIC_SAMPLE: &str = "quic-sample ";

/// The beginning of its lines about what it has counted so far.
pub const ORIGIN_COUNTS: &str = "origin-counts ";

/// A server's addresses, by protocol.
pub type Endpoints = BTreeMap<Protocol, SocketAddr>;

/// The program of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// This very program in another role.
    Ourselves,
    /// A program of the machine.
    Installed {
        /// Its file name.
        name: &'static str,
        /// The package that has it.
        package: Package,
    },
    /// A program that another one runs, such as a Java library.
    Interpreted {
        /// The file name of the program that runs it.
        by: &'static str,
        /// Its absolute path in its package.
        file: &'static str,
        /// The package that has it, or several, separated by spaces.
        package: Package,
    },
}

impl Program {
    /// The line that installs it on Debian; `None` for ourselves.
    pub fn install_line(self) -> Option<String> {
        match self {
            Self::Ourselves => None,
            Self::Installed { package, .. } | Self::Interpreted { package, .. } => {
                Some(package.install_line())
            }
        }
    }

    /// Finds the executable; of an interpreted program, the program that runs it. Looks in `PATH`, in the
    /// administrator's folders, and in the user's folder of pipx: a `PATH` often lacks these.
    pub fn find(self) -> Result<PathBuf, SutError> {
        match self {
            // This path works even if the file was replaced or removed.
            Self::Ourselves => Ok(PathBuf::from("/proc/self/exe")),
            Self::Interpreted { file, package, .. } if !Path::new(file).is_file() => {
                Err(SutError::Missing { program: file, package })
            }
            Self::Installed { name, package } | Self::Interpreted { by: name, package, .. } => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let home = std::env::var_os("HOME").map(PathBuf::from);
                let administrators =
                    ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/go/bin"];
                std::env::split_paths(&path)
                    .chain(administrators.map(PathBuf::from))
                    .chain(home.map(|home| home.join(".local/bin")))
                    .map(|folder| folder.join(name))
                    .find(|file| file.is_file())
                    .ok_or(SutError::Missing { program: name, package })
            }
        }
    }
}

/// Ports to listen on. HTTP/2 in clear has a port apart from HTTP/1.1's, because not every server can distinguish the
/// two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// HTTP/1.1 in clear.
    pub h1: u16,
    /// HTTP/2 in clear, by prior knowledge.
    pub h2c: u16,
    /// TLS: HTTP/1.1 and HTTP/2 by ALPN.
    pub tls: u16,
}

impl Ports {
    /// The fixed ports for a network namespace of our own, where no other program listens.
    pub const LAB: Self = Self { h1: 8080, h2c: 8081, tls: 8443 };

    /// Ports that the kernel chooses: for a server that prints where it listens.
    pub(super) const ANY: Self = Self { h1: 0, h2c: 0, tls: 0 };
}

/// The options of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartOptions {
    /// The address to listen on: one of a lab, or of loopback.
    pub ip: IpAddr,
    /// Where configuration and log are kept, in a folder with the server's name. It is made if it is not there; one
    /// server of a kind at a time may use it.
    pub logs: PathBuf,
    /// Requests after which the server ends a connection; `None`: never.
    pub max_requests_per_connection: Option<u32>,
    /// The file, which exists, for the secrets of its TLS connections, if its configuration can ask for them; secrets
    /// that it writes into its log are moved there. A program that supports `SSLKEYLOGFILE` gets it from the
    /// [`ServerNamespace`](super::ServerNamespace) that it runs in.
    pub key_log: Option<PathBuf>,
    /// Speak HTTP/3, too; `None`: no HTTP/3 and no Alt-Svc.
    pub h3: Option<H3>,
    /// How the HTTP/2 engine of our origin behaves; `None`: as by default. Other servers ignore it.
    pub engine: Option<EngineSettings>,
    /// Our origin as a server of bulk data; `None`: with its paths for tests and comparisons. Other servers ignore it.
    pub bulk: Option<BulkServer>,
    /// Our origin answers any path, since it is in the place of a server whose paths are not known. Other servers
    /// ignore it.
    pub is_stand_in: bool,
    /// What it does about early hints and early push; `None`: its default.
    pub early: Option<Early>,
    /// The user's configuration instead of ours.
    pub own: Option<OwnConfig>,
    /// Settings that are changed in its configuration.
    pub changes: Vec<Change>,
}

/// How bulk data is served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BulkServer {
    /// The longest frame that its client accepts, if that is set: it writes as much at once.
    pub client_frame: Option<u32>,
    /// The congestion control of TCP, if no route sets it.
    pub congestion: Option<String>,
    /// TCP only, without HTTP.
    pub is_raw: bool,
}

/// The options of HTTP/3.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct H3 {
    /// The congestion control of the server's end, where it can be set; `None`: its own choice.
    pub congestion: Option<String>,
}

impl StartOptions {
    /// Whether it is to forward 103, and to push what Link fields name, if it does so only when configured.
    pub(super) fn forwards_hints(&self) -> bool {
        self.early.is_some_and(|early| early.hints)
    }

    /// The pages that it is to have.
    pub(super) fn pages(&self) -> Option<Pages> {
        self.early.and_then(|early| early.pages)
    }

    /// The options of a server at `ip` with its default behaviour, without any limit.
    pub const fn new(ip: IpAddr, logs: PathBuf) -> Self {
        Self {
            ip,
            logs,
            max_requests_per_connection: None,
            key_log: None,
            h3: None,
            engine: None,
            bulk: None,
            is_stand_in: false,
            early: None,
            own: None,
            changes: Vec::new(),
        }
    }

    /// Refuses a limit of requests per connection, which `server` does not support.
    pub(super) fn unlimited(&self, server: &'static str) -> Result<(), SutError> {
        match self.max_requests_per_connection {
            None => Ok(()),
            Some(_) => Err(SutError::Unsupported {
                server,
                why: "it cannot be configured to close connections after a number of requests".to_owned(),
            }),
        }
    }
}

/// Where a server's files go, where it listens, and its upstream.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// Where its files go; those that must not be kept (keys, temporary files) belong below [`SCRATCH`].
    pub folder: &'a Path,
    /// Its ports.
    pub ports: Ports,
    /// A proxy's upstream; `None` for a server that is no proxy.
    pub upstream: Option<Upstream>,
}

impl Site<'_> {
    /// The upstream that a proxy needs. Refuses one whose protocol is not in `sends`, the protocols that `server`
    /// speaks.
    pub(super) fn upstream(&self, server: &'static str, sends: &[Protocol]) -> Result<Upstream, SutError> {
        let upstream = self.upstream.ok_or(SutError::NoUpstream { server })?;
        if sends.contains(&upstream.protocol) {
            return Ok(upstream);
        }
        let spoken: Vec<&str> = sends.iter().map(|protocol| protocol.name()).collect();
        let why = format!("to its upstream it speaks {}, not {}", spoken.join(", "), upstream.protocol);
        Err(SutError::Unsupported { server, why })
    }

    /// The endpoints of a server that has one port in clear and one over TLS and speaks both versions of HTTP on each.
    pub(super) fn two_ports(&self, ip: IpAddr) -> Endpoints {
        let [clear, tls] = [self.ports.h1, self.ports.tls].map(|port| SocketAddr::new(ip, port));
        Endpoints::from([
            (Protocol::H1, clear),
            (Protocol::H2c, clear),
            (Protocol::H1s, tls),
            (Protocol::H2, tls),
        ])
    }
}

/// What is needed to start a server: a value, made without side effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Files to write before the start: the path below the server's folder, and the text. The configuration comes
    /// first.
    pub files: Vec<(String, String)>,
    /// Arguments with which the program checks its configuration and ends; empty if it has no such mode.
    pub check: Vec<String>,
    /// Arguments with which it serves.
    pub arguments: Vec<String>,
    /// Where it will listen, as far as known in advance.
    pub endpoints: Endpoints,
}

/// How a program prints its version.
#[derive(Debug, Clone, Copy)]
pub struct VersionQuery {
    /// The arguments for it.
    pub arguments: &'static [&'static str],
    /// Reads it from a line of the program's output; `None` if the line does not contain it.
    pub read: fn(&str) -> Option<&str>,
}

/// How to know that a server accepts connections on every endpoint.
#[derive(Debug, Clone, Copy)]
pub enum Ready {
    /// A line of its log says so: the one for which this is true.
    Line(fn(&str) -> bool),
    /// The same; an endpoint that a line names is added to the endpoints. Called with each line, in order.
    Addresses(fn(&str, &mut Endpoints) -> bool),
    /// Its log never says so: it is ready when every endpoint has accepted a connection.
    Silent,
}

/// What does not depend on how a server is started.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The name in flags, scenarios and reports.
    pub name: &'static str,
    /// The program.
    pub program: Program,
    /// How to query its version.
    pub version: VersionQuery,
    /// Whether it is a proxy, in front of our origin.
    pub is_proxy: bool,
    /// Whether it sends or forwards 103, or pushes what Link fields name, only by configuration: see [`Early::hints`].
    pub has_hints_switch: bool,
    /// How to know that it accepts connections.
    pub ready: Ready,
    /// The program that its check builds, by its path below the server's folder: this one serves, and
    /// [`program`](Self::program) only builds it.
    pub built: Option<&'static str>,
    /// The signal that makes it finish what it has begun, if it can, and end.
    pub drain_signal: Signal,
}

/// A kind of server.
pub trait Sut: fmt::Debug + Sync {
    /// What does not depend on how it is started.
    fn about(&self) -> About;

    /// What to write and how to start it.
    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError>;

    /// Capabilities that it needs when root starts it; it is started without all others.
    fn capabilities(&self) -> CapabilitySet {
        privileges::NONE
    }

    /// The pages that it can be configured to have, which announce what they need: see [`Early::pages`].
    fn pages(&self) -> Vec<Page> {
        Vec::new()
    }

    /// Its [name](About::name).
    fn name(&self) -> &'static str {
        self.about().name
    }

    /// Whether it is a [proxy](About::is_proxy).
    fn is_proxy(&self) -> bool {
        self.about().is_proxy
    }
}

/// Queries the version of a server's program.
pub(super) fn version(sut: &dyn Sut, program: &Path) -> Result<String, SutError> {
    let query = sut.about().version;
    let mut command = Command::new(program);
    command.args(query.arguments);
    let (_, said) =
        process::run(command, START_TIMEOUT).map_err(|source| SutError::Io { server: sut.name(), source })?;
    let version = said.lines().find_map(query.read).map(str::to_owned);
    version.ok_or(SutError::NoVersion { server: sut.name(), said })
}

/// The files of a server at `ip`: its configuration, a self-signed certificate and its key.
pub(super) fn files(
    server: &'static str,
    ip: IpAddr,
    name: &str,
    configuration: String,
) -> Result<Vec<(String, String)>, SutError> {
    let (certificate, key) = certificate(server, ip)?;
    Ok(vec![
        (name.to_owned(), configuration),
        (format!("{SCRATCH}/certificate.pem"), certificate),
        (format!("{SCRATCH}/key.pem"), key),
    ])
}

/// A self-signed certificate for a server at `ip` and its key, PEM.
pub(super) fn certificate(server: &'static str, ip: IpAddr) -> Result<(String, String), SutError> {
    let names = vec!["server".to_owned(), "localhost".to_owned(), ip.to_string()];
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| SutError::Io { server, source: io::Error::other(error) })?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_installed_is_an_error_with_the_line_that_installs_it() {
        for (package, line) in [
            (Package::Debian("no-such"), "apt-get install --no-install-recommends -y no-such"),
            (Package::Python("no-such"), "pipx install no-such"),
            (Package::Page("https://no-such.test"), "https://no-such.test"),
        ] {
            let error = Program::Installed { name: "no-such-server", package }.find().unwrap_err();
            assert!(matches!(error, SutError::Missing { .. }));
            assert!(error.to_string().contains(line), "{error}");
        }
    }

    #[test]
    fn an_interpreted_program_needs_both_its_file_and_what_runs_it() {
        let missing = |by, file| {
            let error =
                Program::Interpreted { by, file, package: Package::Debian("a b") }.find().unwrap_err();
            error.to_string()
        };
        let error = missing("sh", "/no/such.jar");
        assert!(error.contains("/no/such.jar") && error.contains("-y a b"), "{error}");
        let error = missing("no-such-java", "/proc/self/exe");
        assert!(error.contains("no-such-java"), "{error}");
    }

    fn site(upstream: Option<Upstream>) -> Site<'static> {
        Site { folder: Path::new("x"), ports: Ports::LAB, upstream }
    }

    #[test]
    fn an_upstream_that_is_missing_or_speaks_something_else_is_refused_by_name() {
        let upstream = Upstream::new("127.0.0.1:40001".parse().unwrap(), Protocol::H2c);
        let asked = |upstream, sends: &[Protocol]| site(upstream).upstream("squid", sends);
        assert!(matches!(asked(None, &Protocol::OVER_TCP), Err(SutError::NoUpstream { server: "squid" })));
        assert_eq!(asked(Some(upstream), &[Protocol::H1, Protocol::H2c]).unwrap(), upstream);
        let error = asked(Some(upstream), &[Protocol::H1, Protocol::H1s]).unwrap_err().to_string();
        assert!(error.contains("squid") && error.contains("h1, h1s, not h2c"), "{error}");
    }
}
