//! How a sidecar behaves beyond its file, where it listens, and why it cannot listen.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use h2lab_model::sidecar::CertificateStatus;
use h2lab_net::tcp::StreamSocket;
use h2lab_net::tls::{ClientTls, Identity, ServerTlsOptions, TlsError, TlsOptions, check_authorities};
use h2lab_proxy::config::{Config as File, ConfigError, Size};
use h2lab_proxy::guard::memory::{Memory, diagnosis, largest_window, share};
use h2lab_proxy::{refusal, registry};
use h2lab_wire::own_answers::OwnAnswers;
use h2lab_wire::{Config, FlowControl, Role};

use super::certificates;
use super::observe::{AccessLog, AdminState};
use super::sockets::Sockets;
use crate::date::unix_s;

/// Streams that a client may have open on a connection, as [`crate::origin::MAX_CONCURRENT_STREAMS`].
const MAX_CONCURRENT_STREAMS: u32 = 1_000;
/// The initial stream window. Windows grow with the path, as far as the other side takes what arrives.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The connection window must be no bound: otherwise a few streams that are not read would use it up and stop all
/// others (h2lab explain FLOW108).
const CONNECTION_WINDOW: u32 = i32::MAX as u32;
/// The most that a window grows to: 1 Gbit/s at a round trip of 128 ms.
const LARGEST_WINDOW: u32 = 16 << 20;
/// The period in which a client whose request is not complete must send [`BODY_RATE`] bytes per second, on all of its
/// streams together. It is long: streams of gRPC wait for minutes, even before their responses begin, and a client with
/// `Expect: 100-continue` waits for its instance.
const BODY_PERIOD: Duration = Duration::from_secs(300);
/// Bytes per second in that period, of any kind: a client that is still there answers or asks for something.
const BODY_RATE: u32 = 1;
/// The longest body of a request that upgrades to HTTP/2.
const UPGRADE_BODY: u32 = 64 * 1024;

/// What a sidecar is made of.
#[derive(Debug, Clone)]
pub struct SidecarConfig {
    /// The user's configuration, checked.
    pub file: File,
    /// The engine of clients' connections.
    pub server: Config,
    /// The engine of connections to instances.
    pub client: Config,
    /// What it presents to clients, by listener.
    pub listeners: Vec<ServerTlsOptions>,
    /// What it trusts and presents, by service, in the order of their names.
    pub services: Vec<TlsOptions>,
    /// Decides which instances are drawn.
    pub seed: u64,
    /// Threads that pass requests on.
    pub threads: u32,
    /// Prints what the operator must know while the sidecar runs: why a service cannot be reached, which instance is
    /// left out.
    pub on_note: Option<fn(&str)>,
    /// Where listening sockets come from, and are handed on.
    pub sockets: Sockets,
    /// Where it answers questions about itself; nowhere, if there is none.
    pub admin: Option<Arc<AdminState>>,
    /// The access log.
    pub log: Option<AccessLog>,
    /// What answers say to requests that the HTTP engine refuses.
    pub refusals: Arc<OwnAnswers>,
    /// Certificates in the files that are named.
    pub certificates: Vec<CertificateStatus>,
}

impl SidecarConfig {
    /// A sidecar that behaves as `file` says. `read` reads the files that it names.
    pub fn new(
        mut file: File,
        seed: u64,
        read: &dyn Fn(&str) -> Result<Vec<u8>, SidecarError>,
    ) -> Result<Self, SidecarError> {
        file.check()?;
        file.add_tunnels();
        file.add_original();
        let identity = |files: &h2lab_proxy::config::Identity| -> Result<Identity, SidecarError> {
            let identity =
                Identity { certificates_pem: text(&read(&files.cert)?), key_pem: text(&read(&files.key)?) };
            let paths = |error: &TlsError| match error {
                TlsError::Identity(_) => vec![files.cert.clone()],
                TlsError::Key(_) => vec![files.key.clone()],
                _ => vec![files.cert.clone(), files.key.clone()],
            };
            identity.check().map_err(|source| SidecarError::Pem { paths: paths(&source), source })?;
            Ok(identity)
        };
        let authorities = |path: &String| -> Result<Vec<u8>, SidecarError> {
            let pem = read(path)?;
            check_authorities(&pem)
                .map_err(|source| SidecarError::Pem { paths: vec![path.clone()], source })?;
            Ok(pem)
        };
        let own = file.identity.as_ref().map(identity).transpose()?;
        let listeners = file.listen.iter().map(|listen| {
            let client_ca_pem = listen.client_ca.as_ref().map(authorities).transpose()?;
            Ok(ServerTlsOptions { identity: own.clone(), client_ca_pem, full_handshakes: false })
        });
        let listeners = listeners.collect::<Result<_, SidecarError>>()?;
        let services = file.service.values().map(|service| {
            let ca_pem = service.ca.as_ref().map(authorities).transpose()?;
            let identity = service.identity.as_ref().map(identity).transpose()?;
            let tls = TlsOptions { insecure: service.insecure, ca_pem, identity, full_handshakes: false };
            if let Some(name) = &service.server_name {
                ClientTls::new(name, "h2", &tls)?;
            }
            if let Some(path) = service.consul.as_ref().and_then(|consul| consul.ca.as_ref()) {
                authorities(path)?;
            }
            if let Some(path) = &service.file {
                let instances = registry::file::instances(path, &text(&read(path)?));
                instances.map_err(|why| SidecarError::Registry { path: path.clone(), why })?;
            }
            Ok(tls)
        });
        for (service, of) in &file.service {
            if let Some(name) = of.congestion.as_ref().filter(|_| of.uses_tcp()) {
                let result = StreamSocket::may_have_congestion(name);
                result.map_err(|source| without_congestion(service, name, of.h3, source))?;
            }
        }
        let services = services.collect::<Result<_, SidecarError>>()?;
        let mut server = engine(Role::Server);
        server.max_concurrent_streams = Some(MAX_CONCURRENT_STREAMS);
        server.h2c_upgrade = Some(UPGRADE_BODY);
        server.connect_protocol = true;
        server.limits.idle = Some(file.timeouts.client_idle).filter(|idle| !idle.is_zero());
        server.limits.body_period = Some(BODY_PERIOD);
        server.limits.body_rate = BODY_RATE;
        let client = engine(Role::Client);
        // Affinity and control groups may allow fewer CPUs than there are.
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        let threads = file.threads_on(cpus);
        let (server, client) = (within(server, &file, threads), within(client, &file, threads));
        let (on_note, admin, log, sockets) = (None, None, None, Sockets::default());
        let proxy_status = Some(refusal::of_engine(file.fields.via.as_deref().unwrap_or("h2lab")));
        let refusals = Arc::new(OwnAnswers { proxy_status, unix_s: Some(unix_s) });
        let certificates = certificates::of_files(file.files(), read)?;
        Ok(Self {
            file,
            server,
            client,
            listeners,
            services,
            seed,
            threads,
            on_note,
            sockets,
            admin,
            log,
            refusals,
            certificates,
        })
    }

    /// Bytes that each thread may keep for the diagnosis.
    pub fn diagnosis(&self) -> u64 {
        let bound = |memory: Size| diagnosis(Memory::new(memory.0, self.threads).room(), self.threads);
        self.file.memory.map_or(u64::MAX, bound)
    }

    /// Lines for the author of the file about settings that are valid but useless, or will not be valid for long.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.file.warnings();
        warnings.extend(certificates::warnings(&self.certificates));
        warnings
    }
}

/// Why connections of a service cannot have this congestion control.
fn without_congestion(service: &str, name: &str, h3: bool, source: io::Error) -> SidecarError {
    let (service, name) = (service.to_owned(), name.to_owned());
    let advice = if h3 {
        ". It also applies where HTTP/3 falls back to TCP: write h3:// for HTTP/3 alone"
    } else {
        ""
    };
    if source.kind() == io::ErrorKind::PermissionDenied {
        return SidecarError::RestrictedCongestion { service, name, advice };
    }
    SidecarError::Congestion { service, name, source, advice }
}

/// PEM is ASCII; what is not is refused where it is parsed.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Credit is given back when the other side has taken what came, so that a slow reader holds at most a window.
fn engine(role: Role) -> Config {
    let mut config = Config::new(role);
    config.flow = FlowControl {
        stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        update_threshold_percent: 25,
        manual_release: true,
        auto_limit: Some(LARGEST_WINDOW),
        ..FlowControl::default()
    };
    config
}

/// The same within the memory that all may have.
fn within(mut config: Config, file: &File, threads: u32) -> Config {
    if let Some(memory) = file.memory {
        let room = Memory::new(memory.0, threads).room();
        let share = share(room);
        config.flow.auto_limit = config.flow.auto_limit.map(|limit| limit.min(largest_window(room)));
        config.flow.stream_window = config.flow.stream_window.min(share);
        config.send_buffer = config.send_buffer.min(share as usize);
    }
    config
}

/// A socket that the sidecar listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// Whether what is spoken there is encrypted.
    pub tls: bool,
    /// Whether it is HTTP/3, over UDP.
    pub h3: bool,
    /// The address, with the port that was really taken.
    pub address: SocketAddr,
}

impl fmt::Display for Listening {
    /// `http://127.0.0.1:8080`, `https://127.0.0.1:8443`, `https://127.0.0.1:8443 h3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, h3) = (if self.tls { "https" } else { "http" }, if self.h3 { " h3" } else { "" });
        write!(f, "{scheme}://{}{h3}", self.address)
    }
}

/// Why the sidecar cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file that it names cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Certificates or a key cannot be used.
    #[error("{}: {source}", paths.join(" and "))]
    Pem {
        /// The file or files.
        paths: Vec<String>,
        /// What is wrong with it.
        source: TlsError,
    },
    /// A file of instances is wrong.
    #[error("{path}: {why}")]
    Registry {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The UDP port of the same number is not available.
    #[error("cannot listen on UDP {address} for HTTP/3: {source}")]
    ListenUdp {
        /// The address.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The port is that of a listener that the new configuration replaces.
    #[error(
        "cannot listen on {udp}{address}: this sidecar's own listener on {own}, which the new configuration removes, still has the port. \
         Restart the sidecar, or remove that listener in one reload, and add the new one in another reload once its clients are gone"
    )]
    OwnPort {
        /// `"UDP "`, if it is the UDP port.
        udp: &'static str,
        /// The address.
        address: SocketAddr,
        /// The address of the listener that is there.
        own: SocketAddr,
    },
    /// Connections to instances cannot have this congestion control.
    #[error(
        "congestion = \"{name}\" of service \"{service}\" is not available: {source}; see the sysctl \
         net.ipv4.tcp_available_congestion_control{advice}"
    )]
    Congestion {
        /// The service.
        service: String,
        /// What was asked for.
        name: String,
        /// The kernel's answer.
        source: io::Error,
        /// What else can be done.
        advice: &'static str,
    },
    /// The same, because a privilege is missing.
    #[error(
        "congestion = \"{name}\" of service \"{service}\" is restricted on this system: it requires CAP_NET_ADMIN, or an entry in the sysctl \
         net.ipv4.tcp_allowed_congestion_control. A running sidecar has given up that capability unless its configuration needed it at the \
         start: restart it, or hand over (--take-over){advice}"
    )]
    RestrictedCongestion {
        /// The service.
        service: String,
        /// What was asked for.
        name: String,
        /// What else can be done.
        advice: &'static str,
    },
    /// Connections to other addresses cannot be accepted.
    #[error(
        "transparent = \"tproxy\" of the listener on {address} requires CAP_NET_ADMIN (IP_TRANSPARENT): {source}. Start as root with \
         --user, or grant that capability alone: setcap cap_net_admin+ep, or AmbientCapabilities=CAP_NET_ADMIN in systemd. \"redirect\" \
         requires none"
    )]
    Tproxy {
        /// The listener.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Its connections cannot be marked.
    #[error(
        "mark requires CAP_NET_ADMIN (SO_MARK): {0}. Start as root with --user, or grant that capability alone: setcap cap_net_admin+ep, or \
         AmbientCapabilities=CAP_NET_ADMIN in systemd. Rules can match the sidecar's user instead, which requires no capability"
    )]
    Mark(io::Error),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The event loop broke.
    #[error("event loop failed: {0}")]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_that_is_restricted_is_told_from_one_that_is_not_there() {
        let told = |kind: io::ErrorKind, h3| without_congestion("a", "cubic", h3, kind.into()).to_string();
        let restricted = told(io::ErrorKind::PermissionDenied, false);
        assert!(restricted.contains("CAP_NET_ADMIN") && restricted.contains("restart it"), "{restricted}");
        let unknown = told(io::ErrorKind::NotFound, true);
        assert!(unknown.contains("tcp_available_congestion_control. It also applies"), "{unknown}");
        assert!(!unknown.contains("CAP_NET_ADMIN"), "{unknown}");
    }
}
