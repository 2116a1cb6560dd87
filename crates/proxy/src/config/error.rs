//! What is wrong with a configuration.

use std::net::SocketAddr;
use std::time::Duration;

use h2lab_base::units::format_duration;

use super::listen::MOST_LISTENERS;
use super::policy::MOST_CONNECTIONS;
use super::threads::MOST_THREADS;

/// What is wrong with a configuration. It is the user's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Something is wrong in this line of the file.
    #[error("line {line}: {error}")]
    At {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        error: Box<Self>,
    },
    /// It is no such TOML.
    #[error("{}", .0.trim_end())]
    Toml(String),
    /// A policy that is none.
    #[error(
        "`{0}` is no policy: adaptive, fixed:N (1 to {MOST_CONNECTIONS} connections per instance) or per-request"
    )]
    Policy(String),
    /// An instance that is none.
    #[error(
        "`{text}` is no instance: {why}; write http://HOST:PORT for HTTP/1.1 in clear, h2c://HOST:PORT for HTTP/2 in clear (gRPC), or \
         https://HOST:PORT for TLS"
    )]
    Instance {
        /// What was written.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A number of threads that is none.
    #[error(
        "`{0}` is no number of threads: 1 to {MOST_THREADS}, or auto (as many as there are CPUs that it may use)"
    )]
    Threads(String),
    /// More threads than connections.
    #[error(
        "the service `{service}` has {bound}, which is too few for {threads} threads: each has connections of its own; write {threads} or more, or fewer threads"
    )]
    TooManyThreads {
        /// The service.
        service: String,
        /// The bound on its connections.
        bound: String,
        /// How many threads there are.
        threads: u32,
    },
    /// A host that no request names so.
    #[error("the host `{host}` of a route: {why}")]
    RouteHost {
        /// What was written.
        host: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Nothing listens.
    #[error("it listens nowhere: write [[listen]] with an address")]
    NoListener,
    /// A service that is not there.
    #[error("{place} names the service `{service}`, which there is not: write [service.{service}]")]
    UnknownService {
        /// Where.
        place: String,
        /// Its name.
        service: String,
    },
    /// A listener that has nowhere to send requests.
    #[error("the listener on {0} has neither a service nor a route")]
    NoRoute(SocketAddr),
    /// A service without an instance.
    #[error("the service `{0}` has no instance: write instances, file, dns, dns-srv or consul")]
    NoInstance(String),
    /// A service with instances of several sources.
    #[error("the service `{0}` has more than one of instances, file, dns, dns-srv and consul")]
    SeveralSources(String),
    /// A registry that cannot be asked.
    #[error("consul of the service `{service}`: {why}")]
    Consul {
        /// The service.
        service: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A name of service records that is none.
    #[error("`{text}` is no name of service records: {why}; write _h2c._tcp.NAME")]
    SrvName {
        /// What was written.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A key without effect.
    #[error("refresh of the service `{0}` is of dns and dns-srv, which it has not")]
    Refresh(String),
    /// Registries are not to be flooded.
    #[error("refresh of the service `{0}` is less than 1s")]
    ShortRefresh(String),
    /// Too many sockets.
    #[error("{0} listeners: {MOST_LISTENERS} at most")]
    ManyListeners(usize),
    /// Two listeners at one address.
    #[error("two listeners have the address {0}")]
    SameAddress(SocketAddr),
    /// A route that takes nothing.
    #[error("the listener on {address} has two routes for {what}: the second one takes nothing")]
    SameRoute {
        /// The listener.
        address: SocketAddr,
        /// What both take.
        what: String,
    },
    /// A key that needs TLS.
    #[error("client-ca of the listener on {0} is for TLS: write tls = true")]
    NeedsTls(SocketAddr),
    /// A name in `Via` that is none.
    #[error("via = \"{0}\" is no name: letters, digits and -._~ (RFC 9110 §7.6.3)")]
    Via(String),
    /// A cause of retries that is none.
    #[error("`{0}` is nothing to retry on: connect, reset, or a status from 500 to 599")]
    RetryOn(String),
    /// A number, time or path that makes no sense.
    #[error("{place}: {why}")]
    Value {
        /// The table.
        place: String,
        /// What is wrong with it, and what to write.
        why: &'static str,
    },
    /// A path that matches nothing.
    #[error("`{0}` is no path of a route: it begins with /")]
    Path(String),
    /// A target of CONNECT that is none.
    #[error("`{0}` is no target of CONNECT: write HOST:PORT or *.DOMAIN:PORT")]
    ConnectTarget(String),
    /// A pattern to which the sidecar cannot connect by itself.
    #[error(
        "connect = [\"{0}\"] stands for many hosts: write connect-service = \"…\", whose instances take CONNECT, or each host"
    )]
    ConnectPattern(String),
    /// A service for CONNECT that leads nowhere.
    #[error("connect-service of the listener on {0} gets no CONNECT: write connect = [\"HOST:PORT\"]")]
    ConnectNowhere(SocketAddr),
    /// A hint that is none.
    #[error("the hint of `{0}`: its path begins with /, and each link is <TARGET>; rel=preload (RFC 8288)")]
    Hint(String),
    /// A network that is none.
    #[error("`{0}` is no address or network: write 10.0.0.7 or 10.0.0.0/8")]
    Network(String),
    /// Who is trusted with what is not read.
    #[error(
        "proxy-protocol-from of the listener on {0} is for the PROXY protocol: write proxy-protocol = true"
    )]
    NoProxyProtocol(SocketAddr),
    /// An instance that takes no PROXY protocol from here.
    #[error("proxy-protocol of the service `{service}` is for http:// instances, and {instance} is none")]
    ProxyProtocol {
        /// Its service.
        service: String,
        /// The instance.
        instance: String,
    },
    /// A key of redirected connections.
    #[error(
        "{key} of the listener on {address} is for redirected connections: write transparent = \"redirect\" or \"tproxy\""
    )]
    NotTransparent {
        /// The key.
        key: &'static str,
        /// The listener.
        address: SocketAddr,
    },
    /// An admin listener that others reach, by mistake.
    #[error(
        "the admin listener on {0} can be reached from other machines and asks nobody who they are: take a loopback address, or write \
         public = true in [admin]"
    )]
    AdminIsPublic(SocketAddr),
    /// A window that takes too much memory.
    #[error("window = \"{}\" in [admin] is longer than 300s: what happens in it is kept in memory", format_duration(*.0))]
    AdminWindow(Duration),
}
