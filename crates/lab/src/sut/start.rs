//! Starts servers under test, and ends them.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use h2lab_base::units::nanos;
use h2lab_model::workload::Protocol;
use rustix::process::Signal;

use super::all::find;
use super::error::SutError;
use super::kind::{
    About, BUILD_TIMEOUT, Endpoints, Ports, SCRATCH, START_TIMEOUT, Site, StartOptions, Sut, version,
};
use super::log::{SampleLines, ServerLog};
use super::own::OwnConfig;
use super::server_namespace::{ServerNamespace, wait_until_ready};
use super::upstream::Upstream;
use super::{early, origin, own};
use h2lab_net::privileges::{self, CapabilitySet};
use h2lab_net::process::{self, Child, ChildExit, WaitError};
use h2lab_net::process_watch::ProcessWatch;
use h2lab_net::tcp::{ReservedPort, StreamSocket};

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
    samples: SampleLines,
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

    /// CPU time that it has used so far, in nanoseconds; for a proxy without that of its origin.
    pub fn cpu(&self) -> u64 {
        nanos(self.child.cpu())
    }

    /// Its peak of resident memory so far, in bytes; 0 if that cannot be read.
    pub fn resident_peak(&self) -> u64 {
        self.child.resident_peak()
    }

    /// Watches on it and on the origin behind it, by name, for use while it serves.
    pub fn watches(&self) -> io::Result<Vec<(String, ProcessWatch)>> {
        let mut watches = self.behind.as_ref().map_or_else(|| Ok(Vec::new()), |behind| behind.watches())?;
        watches.push((self.name.clone(), self.child.watch()?));
        Ok(watches)
    }

    /// The first of it and the origin behind it that has ended, by name, and how; `None` while both run.
    pub fn ended(&mut self) -> io::Result<Option<(String, ChildExit)>> {
        if let Some(behind) = &mut self.behind
            && let Some(ended) = behind.ended()?
        {
            return Ok(Some(ended));
        }
        Ok(self.child.wait(Duration::ZERO)?.map(|ended| (self.name.clone(), ended)))
    }

    /// The lines of our origin about its QUIC connections and what it counted; more come until it has ended.
    pub fn samples(&self) -> Arc<Mutex<Vec<String>>> {
        Arc::clone(&self.samples)
    }

    /// Its last output.
    pub fn log(&self) -> String {
        self.child.log()
    }

    /// Signals it to finish and end; kills it after `timeout`.
    pub fn drain(mut self, timeout: Duration) -> io::Result<ChildExit> {
        self.child.stop(self.drain_signal, timeout)
    }
}

/// Starts the server called `name` and returns when it accepts connections; a proxy in front of an origin of its own.
///
/// `place` is where the server runs, such as the server's namespace. The server dies with the calling thread.
pub fn start(
    name: &str,
    options: &StartOptions,
    place: &dyn ServerNamespace,
) -> Result<StartedSut, SutError> {
    start_in_front(name, options, Protocol::H1, place)
}

/// The same; a proxy reaches its origin over `protocol`.
pub fn start_in_front(
    name: &str,
    options: &StartOptions,
    protocol: Protocol,
    place: &dyn ServerNamespace,
) -> Result<StartedSut, SutError> {
    start_at(find(name)?, options, None, &Behind::Origin(protocol), place)
}

/// Starts the proxy called `name` on the clients' side, in front of `upstream`; nothing is started behind it.
pub fn start_sidecar(
    name: &str,
    options: &StartOptions,
    upstream: Upstream,
    place: &dyn ServerNamespace,
) -> Result<StartedSut, SutError> {
    let sut = find(name)?;
    if !sut.is_proxy() {
        let why = "not a proxy, so it cannot be a sidecar".to_owned();
        return Err(SutError::Unsupported { server: sut.name(), why });
    }
    start_proxy(sut, options, upstream, place)
}

/// Starts `proxy`, which may be configured differently from those of [`ALL`], in front of `upstream`; nothing is
/// started behind it.
pub fn start_proxy(
    proxy: &dyn Sut,
    options: &StartOptions,
    upstream: Upstream,
    place: &dyn ServerNamespace,
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
    place: &dyn ServerNamespace,
) -> Result<StartedSut, SutError> {
    let about = sut.about();
    let program = about.program.find()?;
    let version = version(sut, &program)?;
    let failed = |source: io::Error| SutError::Io { server: sut.name(), source };

    // The server gets the path as an argument and works in another folder.
    let folder = std::path::absolute(options.logs.join(about.name)).map_err(failed)?;
    let scratch = Scratch::create(&folder).map_err(failed)?;
    let own = options.own.as_ref();
    if own.is_some() && place.is_shared() {
        let why =
            "a configuration of yours needs network namespaces, which this machine does not allow".to_owned();
        return Err(SutError::Unsupported { server: sut.name(), why });
    }
    let (behind, upstream) = match behind {
        _ if !about.is_proxy && !own.is_some_and(OwnConfig::has_upstream) => (None, None),
        Behind::Given(upstream) => (None, Some(*upstream)),
        Behind::Origin(protocol) => {
            let options = of_origin(&folder, own);
            let origin = start_at(&origin::Origin, &options, Some(Ports::ANY), behind, place)?;
            let upstream = origin.endpoint(*protocol).map(|address| Upstream::new(address, *protocol));
            (Some(Box::new(origin)), upstream)
        }
    };
    let (ports, _reserved) = match ports {
        Some(ports) => (ports, Vec::new()),
        None => choose_ports(options.ip, place).map_err(failed)?,
    };
    let mut launch = sut.launch(Site { folder: &folder, ports, upstream }, options)?;
    if let Some(own) = own {
        own.fill(&mut launch, options.ip, &folder, behind.as_ref().map(|behind| &behind.endpoints));
    }
    own::change(&mut launch, sut.name(), &version, &options.changes)?;
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
        let timeout = if about.built.is_some() { BUILD_TIMEOUT } else { START_TIMEOUT };
        let (status, said) = process::run(command(&program, &launch.check), timeout).map_err(failed)?;
        if !status.success() {
            let file = launch.files.first().map_or(folder.clone(), |(file, _)| folder.join(file));
            let server = sut.name();
            return Err(match own {
                Some(own) => {
                    let said = own.said(&said, &file, (server, &*version));
                    SutError::OwnRefused { server, said, file: own.path.clone() }
                }
                None => SutError::ConfigRefused { server, file, said },
            });
        }
    }
    let program = about.built.map_or(program, |built| folder.join(built));
    let samples = SampleLines::default();
    let log = ServerLog::create(&folder, options.key_log.as_deref(), Arc::clone(&samples)).map_err(failed)?;
    let mut command = command(&program, &launch.arguments);
    privileges::keep_in(&mut command, kept(sut, options, &folder));
    let child = Child::spawn(command, Some(log.into_listener())).map_err(failed)?;
    let mut endpoints = launch.endpoints;
    wait_until_ready(sut, &child, &mut endpoints, place)
        .map_err(|error| refused(error, own, !launch.check.is_empty()))?;
    let About { name, drain_signal, .. } = about;
    Ok(StartedSut {
        name: name.to_owned(),
        version,
        endpoints,
        child,
        drain_signal,
        behind,
        samples,
        _scratch: scratch,
    })
}

/// The options of the origin behind a server whose files are in `folder`. It has no limit, so that only the server in
/// front ends connections. Its own files go below the other's, since another origin may run at the same time.
fn of_origin(folder: &Path, own: Option<&OwnConfig>) -> StartOptions {
    // A user's configuration has upstreams whose paths are not ours.
    let is_stand_in = own.is_some();
    StartOptions { is_stand_in, ..StartOptions::new(Ipv4Addr::LOCALHOST.into(), folder.to_owned()) }
}

/// A server that ends at once has refused a configuration of the user's that was not tested before: our origin's flags.
fn refused(error: SutError, own: Option<&OwnConfig>, is_tested: bool) -> SutError {
    match (error, own) {
        (SutError::NotStarted { server, why: WaitError::Ended, said }, Some(own)) if !is_tested => {
            SutError::OwnRefused { server, said, file: own.path.clone() }
        }
        (error, _) => error,
    }
}

/// The capabilities that a server keeps when root starts it: those to change to its user, to write its files if they
/// are in folders of others, and to set congestion control that only root may set.
fn kept(sut: &dyn Sut, options: &StartOptions, folder: &Path) -> CapabilitySet {
    let files = options.key_log.iter().map(PathBuf::as_path).chain([folder]).map(privileges::to_write);
    let congestion = options.bulk.as_ref().and_then(|bulk| bulk.congestion.as_deref());
    let sockets = congestion.map_or(privileges::NONE, StreamSocket::rights_for_congestion);
    // It listens where the user's configuration says.
    let ports = if options.own.is_some() { CapabilitySet::NET_BIND_SERVICE } else { privileges::NONE };
    files.fold(sut.capabilities() | sockets | ports, CapabilitySet::union)
}

/// The ports for a server at `ip` of `place`: reserved ones if other programs may listen there, too. Keep the
/// reservations until it listens.
fn choose_ports(ip: IpAddr, place: &dyn ServerNamespace) -> io::Result<(Ports, Vec<ReservedPort>)> {
    if !place.is_shared() {
        return Ok((Ports::LAB, Vec::new()));
    }
    let [h1, h2c, tls] = [(); 3].map(|()| ReservedPort::of(ip));
    let reserved = [h1?, h2c?, tls?];
    let [h1, h2c, tls] = reserved.each_ref().map(ReservedPort::number);
    Ok((Ports { h1: h1?, h2c: h2c?, tls: tls? }, reserved.into()))
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

/// A server's folder for files that must not be kept.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    /// Creates it below `folder`, empty.
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
        // This fails only if the run's folder has been removed meanwhile, which has the same effect.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_origin_behind_a_configuration_of_the_users_answers_any_path_and_behind_ours_its_own_paths() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("origin.flags");
        fs::write(&path, "--padding 3").unwrap();
        let own = OwnConfig::read("origin", &path).unwrap();
        assert!(of_origin(folder.path(), Some(&own)).is_stand_in);
        assert!(!of_origin(folder.path(), None).is_stand_in);
    }

    #[test]
    fn flags_that_our_origin_refuses_are_the_users_and_a_tested_configuration_is_not_refused_late() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("origin.flags");
        fs::write(&path, "--nonsense 3").unwrap();
        let own = OwnConfig::read("origin", &path).unwrap();
        let is_refused = |why, own, is_tested| {
            let error = SutError::NotStarted { server: "origin", why, said: String::new() };
            matches!(refused(error, own, is_tested), SutError::OwnRefused { .. })
        };
        assert!(is_refused(WaitError::Ended, Some(&own), false));
        assert!(!is_refused(WaitError::Ended, Some(&own), true));
        assert!(!is_refused(WaitError::Timeout, Some(&own), false));
        assert!(!is_refused(WaitError::Ended, None, false));
    }

    /// A network namespace of our own, or the machine's, in which nothing is started.
    #[derive(Debug)]
    struct Nowhere {
        is_shared: bool,
    }

    impl ServerNamespace for Nowhere {
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
        let choose = |is_shared| choose_ports(ip, &Nowhere { is_shared }).unwrap();
        assert_eq!(choose(false).0, Ports::LAB, "a sidecar's, too");
        // A listener on every address occupies the port on this one.
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let other = listener.local_addr().unwrap().port();
        let (Ports { h1, h2c, tls }, _reserved) = choose(true);
        assert!([h1, h2c, tls].iter().all(|port| *port != other && ![8080, 8081, 8443].contains(port)));
        assert!(h1 != h2c && h2c != tls && tls != h1);
    }
}
