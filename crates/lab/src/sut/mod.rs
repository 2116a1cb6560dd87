//! Servers under test: how each is configured for the lab, started, detected as ready, and ended.
//!
//! A server is a file here that implements [`Sut`] with values: which program, which files, which arguments, which line of its
//! log means that it listens. [`start`] does the rest, the same for all. A new server is a new file and a line in [`ALL`]; See
//! `docs/adding-a-sut.md`.
//!
//! Every configuration asks for the same service, so that servers compare: 1 KiB in answer to any method on any path,
//! HTTP/1.1 and HTTP/2 in clear and over TLS, many streams, no limit of requests per connection unless asked for, no
//! access log, one process.
//!
//! A proxy stands in front of our own origin, which is started before it, listens on loopback for the proxy only, and answers by
//! path: `/delay/5` takes 5 ms behind every proxy. The same proxy on the client's side of the link is a sidecar:
//! [`start_sidecar`] gives it another upstream, over the link, and otherwise the same configuration.

pub mod apache;
pub mod caddy;
mod early;
pub mod envoy;
mod error;
pub mod go;
pub mod h2o;
pub mod haproxy;
mod log;
pub mod nghttpx;
pub mod nginx;
pub mod nginx_proxy;
pub mod origin;
mod place;
mod upstream;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use h2lab_base::units::nanos;
use h2lab_model::workload::{EngineSettings, Protocol};
use rustix::process::Signal;
use serde::Serialize;

pub use early::{Early, Page, Pages};
pub use error::SutError;
use log::ServerLog;
pub use place::Place;
pub use upstream::Upstream;

use h2lab_net::process;
use h2lab_net::process::{Child, Ended};
use h2lab_net::tcp::ReservedPort;

/// Every server that can be started, by its name.
pub const ALL: [&dyn Sut; 10] = [
    &origin::Origin,
    &nginx::Nginx,
    &nginx_proxy::NginxProxy,
    &envoy::Envoy,
    &haproxy::Haproxy,
    &caddy::Caddy,
    &nghttpx::Nghttpx,
    &apache::Apache,
    &h2o::H2o,
    &go::Go,
];

/// Length of every server's response body, whatever the request.
pub const BODY_BYTES: usize = 1024;

/// Streams at a time that servers allow: so many that the client's own limits decide, as in a service configured for it.
const MAX_CONCURRENT_STREAMS: u32 = 100_000;

/// How long a server may take to listen, to check its configuration, or to print its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a server may take that is built first: the first time with all of its dependencies.
const BUILD_PATIENCE: Duration = Duration::from_secs(300);

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
}

/// What to install to have a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package {
    /// Debian's package of this name.
    Debian(&'static str),
    /// The Python package of this name, whose wheel holds the program.
    Python(&'static str),
    /// To be had only from this page, in a version that no package of Debian has.
    Page(&'static str),
}

impl Package {
    /// The line that installs it, or the page that says how.
    fn install_line(self) -> String {
        match self {
            Self::Debian(name) => format!("sudo apt-get install --no-install-recommends -y {name}"),
            // A virtual environment (Debian's package pipx), with the program linked into the user's own folder.
            Self::Python(name) => format!("pipx install {name}"),
            Self::Page(url) => url.to_owned(),
        }
    }

    /// What to do to have it, as the end of a sentence.
    fn remedy(self) -> String {
        match self {
            Self::Debian(_) | Self::Python(_) => format!("type\n  {}", self.install_line()),
            Self::Page(url) => format!("get it from {url}"),
        }
    }
}

impl Program {
    /// The line that installs it on Debian; `None` for ourselves.
    pub fn install_line(self) -> Option<String> {
        match self {
            Self::Ourselves => None,
            Self::Installed { package, .. } => Some(package.install_line()),
        }
    }

    /// Finds the executable: in `PATH`, or in the administrator's folders and in the user's folder of pipx, which a `PATH` often
    /// lacks.
    pub fn find(self) -> Result<PathBuf, SutError> {
        match self {
            // Survives a replaced or removed file.
            Self::Ourselves => Ok(PathBuf::from("/proc/self/exe")),
            Self::Installed { name, package } => {
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

/// Ports to listen on. One for HTTP/2 in clear apart from HTTP/1.1's, because not every server can distinguish them.
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

    /// Whatever the kernel chooses: for a server that prints where it listens.
    const ANY: Self = Self { h1: 0, h2c: 0, tls: 0 };

    /// The ports for a server at `ip` of `place`: reserved ones where other programs may listen, too. Keep the reservations until
    /// it listens.
    fn choose(ip: IpAddr, place: &dyn Place) -> io::Result<(Self, Vec<ReservedPort>)> {
        if !place.is_shared() {
            return Ok((Self::LAB, Vec::new()));
        }
        let [h1, h2c, tls] = [(); 3].map(|()| ReservedPort::of(ip));
        let reserved = [h1?, h2c?, tls?];
        let [h1, h2c, tls] = reserved.each_ref().map(ReservedPort::number);
        Ok((Self { h1: h1?, h2c: h2c?, tls: tls? }, reserved.into()))
    }
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
    /// The file, which exists, for the secrets of its TLS connections, if its configuration can ask for them; those that it
    /// writes into its log are added to it. A program that knows `SSLKEYLOGFILE` gets it from the [`Place`] that it runs at.
    pub key_log: Option<PathBuf>,
    /// Speak HTTP/3, too; `None`: no HTTP/3 and no Alt-Svc.
    pub h3: Option<H3>,
    /// Our origin as a server of bulk data; `None`: with its paths for tests and comparisons. Other servers ignore it.
    pub bulk: Option<BulkServer>,
    /// What it does about early hints and early push; `None`: its default.
    pub early: Option<Early>,
}

/// How bulk data is served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BulkServer {
    /// How its HTTP/2 engine behaves.
    pub engine: EngineSettings,
    /// The longest frame that its client accepts, where that is set: it writes as much at once.
    pub client_frame: Option<u32>,
    /// The congestion control of TCP, where no route sets it.
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
    /// Whether it is to forward 103, and to push what Link fields name, if it does that only by configuration.
    fn forwards_hints(&self) -> bool {
        self.early.is_some_and(|early| early.hints)
    }

    /// The pages that it is to have.
    fn pages(&self) -> Option<Pages> {
        self.early.and_then(|early| early.pages)
    }

    /// The options of the origin behind a proxy: on loopback, without any limit, so that only the proxy ends connections. Its
    /// files go below the proxy's, since another origin may run at the same time.
    fn behind(proxy: &Path) -> Self {
        Self {
            ip: Ipv4Addr::LOCALHOST.into(),
            logs: proxy.to_owned(),
            max_requests_per_connection: None,
            key_log: None,
            h3: None,
            bulk: None,
            early: None,
        }
    }

    /// Refuses a limit of requests per connection, which `server` does not have.
    fn unlimited(&self, server: &'static str) -> Result<(), SutError> {
        match self.max_requests_per_connection {
            None => Ok(()),
            Some(_) => Err(SutError::Unsupported {
                server,
                why: "it cannot be told to end connections after a number of requests".to_owned(),
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
    /// The endpoints of a server that has one port in clear and one over TLS and speaks both versions of HTTP on each.
    fn two_ports(&self, ip: IpAddr) -> Endpoints {
        let [clear, tls] = [self.ports.h1, self.ports.tls].map(|port| SocketAddr::new(ip, port));
        Endpoints::from([
            (Protocol::H1, clear),
            (Protocol::H2c, clear),
            (Protocol::H1s, tls),
            (Protocol::H2, tls),
        ])
    }
}

/// What starting a server takes: a value, made without side effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Files to write before: the path below the server's folder, and the text. The configuration comes first.
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

/// A kind of server.
pub trait Sut: fmt::Debug + Sync {
    /// The name in flags, scenarios and reports.
    fn name(&self) -> &'static str;

    /// The program.
    fn program(&self) -> Program;

    /// How to query its version.
    fn version(&self) -> VersionQuery;

    /// Whether it is a proxy, in front of our origin.
    fn is_proxy(&self) -> bool {
        false
    }

    /// The pages that it can be configured to have, which announce what they need: see [`Early::pages`].
    fn pages(&self) -> Vec<Page> {
        Vec::new()
    }

    /// Whether it sends or forwards 103, or pushes what Link fields name, only by configuration: see [`Early::hints`].
    fn has_hints_switch(&self) -> bool {
        false
    }

    /// What to write and how to start it.
    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError>;

    /// The program that its check builds, by its path below the server's folder: it serves instead of
    /// [`program`](Self::program), which only builds.
    fn built(&self) -> Option<&'static str> {
        None
    }

    /// Whether its log never says that it listens. Then it is ready when every endpoint has accepted a connection.
    fn is_silent(&self) -> bool {
        false
    }

    /// Called with each line of its log, in order, until it returns `true`: then it accepts connections on every endpoint. Adds
    /// to the endpoints what the line says of them.
    fn is_ready(&self, line: &str, endpoints: &mut Endpoints) -> bool;

    /// The signal that makes it finish what it has begun, if it can, and end.
    fn drain_signal(&self) -> Signal;
}

/// A server and whether this machine has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Availability {
    /// Its name.
    pub name: String,
    /// Its version; `None` if it is not there or does not tell.
    pub version: Option<String>,
    /// The line that installs it; empty if it is a part of h2lab.
    pub install: String,
}

/// Every server, and whether this machine has it.
pub fn available() -> Vec<Availability> {
    let availability = |sut: &dyn Sut| Availability {
        name: sut.name().to_owned(),
        version: sut.program().find().and_then(|program| version(sut, &program)).ok(),
        install: sut.program().install_line().unwrap_or_default(),
    };
    ALL.map(availability).into()
}

/// The folder, below a server's own, that is removed when the server ends.
pub const SCRATCH: &str = "scratch";

/// The log file in a server's folder.
pub const LOG: &str = "log.txt";

/// The server called `name`.
pub fn find(name: &str) -> Result<&'static dyn Sut, SutError> {
    ALL.into_iter().find(|sut| sut.name() == name).ok_or_else(|| SutError::Unknown { name: name.to_owned() })
}

/// A server that runs. Dropping it kills it and removes its scratch folder.
#[derive(Debug)]
pub struct StartedSut {
    /// Its name.
    pub name: String,
    /// Its version, as it prints it.
    pub version: String,
    /// Where it listens.
    pub endpoints: Endpoints,
    child: Child,
    drain_signal: Signal,
    /// The origin behind a proxy, dropped after it.
    behind: Option<Box<StartedSut>>,
    /// Dropped after the child, which writes in it.
    _scratch: Scratch,
}

impl StartedSut {
    /// Where it speaks `protocol`; `None` if it does not.
    pub fn endpoint(&self, protocol: Protocol) -> Option<SocketAddr> {
        self.endpoints.get(&protocol).copied()
    }

    /// The origin behind a proxy.
    pub fn behind(&self) -> Option<&StartedSut> {
        self.behind.as_deref()
    }

    /// CPU time that it has used so far, in nanoseconds; a proxy's is its own, without the origin's.
    pub fn cpu(&self) -> u64 {
        nanos(self.child.cpu())
    }

    /// The most bytes of its memory that were resident at a time so far; 0 if that cannot be seen.
    pub fn resident_peak(&self) -> u64 {
        self.child.resident_peak()
    }

    /// Its last output.
    pub fn log(&self) -> String {
        self.child.log()
    }

    /// Signals it to finish and end; kills it after `timeout`.
    pub fn drain(mut self, timeout: Duration) -> io::Result<Ended> {
        self.child.stop(self.drain_signal, timeout)
    }
}

/// Starts the server called `name` and returns when it accepts connections; a proxy in front of an origin of its own.
///
/// `place` is where the server runs, such as the server's namespace. The server dies with the calling thread.
pub fn start(name: &str, options: &StartOptions, place: &dyn Place) -> Result<StartedSut, SutError> {
    start_in_front(name, options, Protocol::H1, place)
}

/// The same; a proxy reaches its origin over `protocol`.
pub fn start_in_front(
    name: &str,
    options: &StartOptions,
    protocol: Protocol,
    place: &dyn Place,
) -> Result<StartedSut, SutError> {
    start_at(find(name)?, options, None, &Behind::Origin(protocol), place)
}

/// Starts the proxy called `name` on the clients' side, in front of `upstream`; nothing is started behind it.
pub fn start_sidecar(
    name: &str,
    options: &StartOptions,
    upstream: Upstream,
    place: &dyn Place,
) -> Result<StartedSut, SutError> {
    let sut = find(name)?;
    if !sut.is_proxy() {
        let why = "it is no proxy, and so no sidecar".to_owned();
        return Err(SutError::Unsupported { server: sut.name(), why });
    }
    start_proxy(sut, options, upstream, place)
}

/// Starts `proxy`, which may be configured otherwise than those of [`ALL`], in front of `upstream`; nothing is started behind it.
pub fn start_proxy(
    proxy: &dyn Sut,
    options: &StartOptions,
    upstream: Upstream,
    place: &dyn Place,
) -> Result<StartedSut, SutError> {
    start_at(proxy, options, None, &Behind::Given(upstream), place)
}

/// A proxy's upstream.
#[derive(Debug, Clone, Copy)]
enum Behind {
    /// An origin of its own, in this protocol.
    Origin(Protocol),
    /// A server that runs already.
    Given(Upstream),
}

/// Starts `sut` at these ports; `None`: the usual ports of its place.
fn start_at(
    sut: &dyn Sut,
    options: &StartOptions,
    ports: Option<Ports>,
    behind: &Behind,
    place: &dyn Place,
) -> Result<StartedSut, SutError> {
    let program = sut.program().find()?;
    let version = version(sut, &program)?;
    let failed = |source: io::Error| SutError::Io { server: sut.name(), source };

    let folder = absolute(&options.logs.join(sut.name())).map_err(failed)?;
    let scratch = Scratch::create(&folder).map_err(failed)?;
    let (behind, upstream) = match behind {
        _ if !sut.is_proxy() => (None, None),
        Behind::Given(upstream) => (None, Some(*upstream)),
        Behind::Origin(protocol) => {
            let options = StartOptions::behind(&folder);
            let origin = start_at(&origin::Origin, &options, Some(Ports::ANY), behind, place)?;
            let upstream = origin.endpoint(*protocol).map(|address| Upstream::new(address, *protocol));
            (Some(Box::new(origin)), upstream)
        }
    };
    let (ports, _reserved) = match ports {
        Some(ports) => (ports, Vec::new()),
        None => Ports::choose(options.ip, place).map_err(failed)?,
    };
    let launch = sut.launch(Site { folder: &folder, ports, upstream }, options)?;
    let pages = options.pages().map_or_else(Vec::new, |pages| early::files(&sut.pages(), pages));
    for (file, text) in launch.files.iter().chain(&pages) {
        write(&folder.join(file), text).map_err(failed)?;
    }
    let command = |program: &Path, arguments: &[String]| {
        let mut command = place.command(program);
        command.args(arguments).current_dir(&folder);
        command
    };
    if !launch.check.is_empty() {
        let patience = if sut.built().is_some() { BUILD_PATIENCE } else { PATIENCE };
        let (status, said) = process::run(command(&program, &launch.check), patience).map_err(failed)?;
        if !status.success() {
            let file = launch.files.first().map_or(folder.clone(), |(file, _)| folder.join(file));
            return Err(SutError::ConfigRefused { server: sut.name(), file, said });
        }
    }
    let program = sut.built().map_or(program, |built| folder.join(built));
    let log = ServerLog::create(&folder, options.key_log.as_deref()).map_err(failed)?;
    let command = command(&program, &launch.arguments);
    let child = Child::spawn(command, Some(log.into_listener())).map_err(failed)?;
    let mut endpoints = launch.endpoints;
    place::wait_until_ready(sut, &child, &mut endpoints, place)?;
    let name = sut.name().to_owned();
    let drain_signal = sut.drain_signal();
    Ok(StartedSut { name, version, endpoints, child, drain_signal, behind, _scratch: scratch })
}

/// Writes a file of a server. One that begins with `#!` becomes executable.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)?;
    if text.starts_with("#!") {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Asks a server's program for its version.
fn version(sut: &dyn Sut, program: &Path) -> Result<String, SutError> {
    let query = sut.version();
    let mut command = Command::new(program);
    command.args(query.arguments);
    let (_, said) =
        process::run(command, PATIENCE).map_err(|source| SutError::Io { server: sut.name(), source })?;
    let version = said.lines().find_map(query.read).map(str::to_owned);
    version.ok_or(SutError::NoVersion { server: sut.name(), said })
}

/// `path` made absolute: the server gets it as an argument and works in another folder.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    std::path::absolute(path)
}

/// A server's folder for what must not be kept.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    /// Makes it below `folder`, empty.
    fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(SCRATCH);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir_all(&path)?,
        }
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Fails only if the run's folder has been removed meanwhile, which is as well.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A self-signed certificate for a server at `ip` and its key, PEM.
fn certificate(server: &'static str, ip: IpAddr) -> Result<(String, String), SutError> {
    let names = vec!["server".to_owned(), "localhost".to_owned(), ip.to_string()];
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| SutError::Io { server, source: io::Error::other(error) })?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

/// What the tests of the proxies share.
#[cfg(test)]
mod testing {
    use super::*;

    /// How `sut` is launched at 10.9.0.2 with an upstream over `protocol`.
    pub(super) fn launched(sut: &dyn Sut, protocol: Protocol) -> Result<Launch, SutError> {
        launched_with(sut, protocol, 1, None)
    }

    /// The same, over `connections`, and with a limit of requests on each of its own.
    pub(super) fn launched_with(
        sut: &dyn Sut,
        protocol: Protocol,
        connections: u32,
        max_requests_per_connection: Option<u32>,
    ) -> Result<Launch, SutError> {
        let options = StartOptions {
            ip: IpAddr::from([10, 9, 0, 2]),
            logs: PathBuf::from("logs"),
            max_requests_per_connection,
            key_log: None,
            h3: None,
            bulk: None,
            early: None,
        };
        let upstream = Upstream { address: SocketAddr::from(([127, 0, 0, 1], 40001)), protocol, connections };
        let site = Site { folder: Path::new("/x"), ports: Ports::LAB, upstream: Some(upstream) };
        sut.launch(site, &options)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use h2lab_model::scenario::Sidecar;

    use super::*;

    #[test]
    fn an_unknown_server_is_refused_with_the_names_of_the_known_ones() {
        let error = find("ngnix").unwrap_err();
        assert!(matches!(error, SutError::Unknown { .. }));
        let text = error.to_string();
        assert!(text.contains("`ngnix`") && text.contains("nginx") && text.contains("origin"), "{text}");
    }

    #[test]
    fn the_proxies_that_can_be_told_their_connections_are_those_that_reports_take_for_it() {
        for sut in ALL.into_iter().filter(|sut| sut.is_proxy()) {
            let sidecar = Sidecar { name: sut.name().to_owned(), warm_pool: 1, max_connections: 1 };
            let launch = testing::launched_with(sut, Protocol::H2c, 2, None);
            assert_eq!(launch.is_ok(), sidecar.can_be_configured(), "{}: {:?}", sut.name(), launch.err());
        }
    }

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

    /// A network namespace of our own, or the machine's; nothing is started there.
    #[derive(Debug)]
    struct Nowhere {
        is_shared: bool,
    }

    impl Place for Nowhere {
        fn command(&self, program: &Path) -> Command {
            Command::new(program)
        }

        fn reach(&self, _: SocketAddr) -> io::Result<()> {
            Ok(())
        }

        fn is_shared(&self) -> bool {
            self.is_shared
        }
    }

    #[test]
    fn the_ports_of_a_lab_are_taken_only_where_nobody_else_can_have_them() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        let choose = |is_shared| Ports::choose(ip, &Nowhere { is_shared }).unwrap();
        assert_eq!(choose(false).0, Ports::LAB, "a sidecar's, too");
        // A listener on every address occupies the port on this one.
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let other = listener.local_addr().unwrap().port();
        let (Ports { h1, h2c, tls }, _reserved) = choose(true);
        assert!([h1, h2c, tls].iter().all(|port| *port != other && ![8080, 8081, 8443].contains(port)));
        assert!(h1 != h2c && h2c != tls && tls != h1);
    }

    #[test]
    fn a_server_that_is_a_part_of_h2lab_needs_no_installing() {
        for sut in ALL {
            assert_eq!(sut.program().install_line().is_none(), sut.program() == Program::Ourselves);
        }
    }

    #[test]
    fn names_are_unique() {
        for sut in ALL {
            assert_eq!(find(sut.name()).unwrap().name(), sut.name());
            assert_eq!(ALL.iter().filter(|other| other.name() == sut.name()).count(), 1);
        }
    }
}
