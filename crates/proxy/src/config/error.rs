//! What is wrong with a configuration.

use std::net::SocketAddr;
use std::time::Duration;

use h2lab_base::counts::plural;
use h2lab_base::units::{format_bytes, format_duration};

use super::listen::MOST_LISTENERS;
use super::policy::MOST_CONNECTIONS;
use super::threads::MOST_THREADS;
use crate::guard::memory::least;

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
    /// It is not valid TOML, or has a key or a value that is not allowed.
    #[error("{0}")]
    Toml(String),
    /// An invalid policy.
    #[error(
        "invalid policy \"{0}\": expected adaptive, fixed:N (N from 1 to {MOST_CONNECTIONS}) or per-request"
    )]
    Policy(String),
    /// An invalid instance.
    #[error(
        "invalid instance URL \"{text}\": {why}; expected http://HOST:PORT (HTTP/1.1), h2c://HOST:PORT (HTTP/2 without TLS, gRPC), \
         https://HOST:PORT (TLS) or h3://HOST:PORT (HTTP/3)"
    )]
    Instance {
        /// What was written.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An invalid number of threads.
    #[error(
        "invalid thread count \"{0}\": expected a number from 1 to {MOST_THREADS}, or \"auto\" (one per CPU)"
    )]
    Threads(String),
    /// Too little memory for the program.
    #[error(
        "memory = \"{}\" is too small: {} needs at least {} (24 MiB for the program, the rest for connections; 8 MiB more for each \
         further thread)",
        format_bytes(*size), plural((*threads).into(), "thread"), format_bytes(least(*threads))
    )]
    Memory {
        /// What was written, in bytes.
        size: u64,
        /// How many threads there are.
        threads: u32,
    },
    /// A time that is too short or too long.
    #[error("{place}: {why}")]
    Time {
        /// The table.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// More threads than connections.
    #[error(
        "{bound} of service \"{service}\" is too low for {threads} threads, each of which opens its own connections: use at least \
         {threads}, or fewer threads"
    )]
    TooManyThreads {
        /// The service.
        service: String,
        /// The bound on its connections.
        bound: String,
        /// How many threads there are.
        threads: u32,
    },
    /// A route's host that no request can have.
    #[error("invalid route host \"{host}\": {why}")]
    RouteHost {
        /// What was written.
        host: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Nothing listens.
    #[error("no listener is defined: add [[listen]] with an address")]
    NoListener,
    /// A service that is not defined.
    #[error("{place} refers to service \"{service}\", which is not defined: add [service.{service}]")]
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
    #[error("service \"{0}\" has no instances: set instances, file, dns, dns-srv or consul")]
    NoInstance(String),
    /// A service with instances of several sources.
    #[error("service \"{0}\" sets more than one of instances, file, dns, dns-srv and consul")]
    SeveralSources(String),
    /// A registry that cannot be queried.
    #[error("[service.{service}.consul]: {why}")]
    Consul {
        /// The service.
        service: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An invalid name of service records.
    #[error("invalid SRV record name \"{text}\": {why}; expected a name such as _h2c._tcp.users.internal")]
    SrvName {
        /// What was written.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A key without effect.
    #[error("refresh of service \"{0}\" applies only to dns and dns-srv, and it has neither")]
    Refresh(String),
    /// A registry must not be queried too often.
    #[error("refresh of service \"{0}\" must be at least 1s")]
    ShortRefresh(String),
    /// Too many sockets.
    #[error("{0} listeners are defined: at most {MOST_LISTENERS} are allowed")]
    ManyListeners(usize),
    /// Two listeners at one address.
    #[error("two listeners have the same address, {0}")]
    SameAddress(SocketAddr),
    /// Two sockets that cannot listen at the same time.
    #[error(
        "the {admin}listener on {address} conflicts with the listener on {other}: give one of them another port"
    )]
    Overlap {
        /// `"admin "`, if the first one is the admin listener.
        admin: &'static str,
        /// Where the first one is to listen.
        address: SocketAddr,
        /// A listener that was there before it.
        other: SocketAddr,
    },
    /// A route that never matches.
    #[error("the listener on {address} has two routes for {what}: the second one never matches")]
    SameRoute {
        /// The listener.
        address: SocketAddr,
        /// What both take.
        what: String,
    },
    /// A key that needs TLS.
    #[error("client-ca of the listener on {0} requires tls = true")]
    NeedsTls(SocketAddr),
    /// An invalid name in `Via`.
    #[error("invalid via = \"{0}\": use letters, digits and -._~ (RFC 9110 §7.6.3)")]
    Via(String),
    /// An invalid cause of retries.
    #[error("invalid retry condition \"{0}\": expected connect, reset, or a status from 500 to 599")]
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
    #[error("invalid route path \"{0}\": it must begin with /")]
    Path(String),
    /// An invalid target of CONNECT.
    #[error("invalid CONNECT target \"{0}\": expected HOST:PORT or *.DOMAIN:PORT")]
    ConnectTarget(String),
    /// A pattern to which the sidecar cannot connect by itself.
    #[error(
        "CONNECT target \"{0}\" is a pattern, which requires connect-service: name a service whose instances accept CONNECT, or list \
         each host"
    )]
    ConnectPattern(String),
    /// A service for CONNECT that leads nowhere.
    #[error("connect-service of the listener on {0} has no effect without connect = [\"HOST:PORT\"]")]
    ConnectNowhere(SocketAddr),
    /// An invalid hint.
    #[error(
        "invalid hint for \"{0}\": its path must begin with / and have no query, and each link must look like <TARGET>; rel=preload (RFC 8288)"
    )]
    Hint(String),
    /// Two hints, of which the second one would never be sent.
    #[error("two [[hint]] are for the page \"{path}\"{host}: put their links into one")]
    SameHint {
        /// The path of the page.
        path: String,
        /// ` of host "NAME"`, if they have one.
        host: String,
    },
    /// A name that is reserved.
    #[error("invalid service name \"{name}\": {why}")]
    ServiceName {
        /// What was written.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A hint's host that no request can have.
    #[error("invalid hint host \"{host}\": {why}")]
    HintHost {
        /// What was written.
        host: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An invalid network.
    #[error("invalid network \"{0}\": expected an address such as 10.0.0.7, or a network such as 10.0.0.0/8")]
    Network(String),
    /// Networks that are trusted with a header that is not read.
    #[error("proxy-protocol-from of the listener on {0} requires proxy-protocol = true")]
    NoProxyProtocol(SocketAddr),
    /// An instance that takes no PROXY protocol from here.
    #[error("proxy-protocol of service \"{service}\" requires http:// instances, which {instance} is not")]
    ProxyProtocol {
        /// Its service.
        service: String,
        /// The instance.
        instance: String,
    },
    /// A key of redirected connections.
    #[error("{key} of the listener on {address} requires transparent = \"redirect\" or \"tproxy\"")]
    NotTransparent {
        /// The key.
        key: &'static str,
        /// The listener.
        address: SocketAddr,
    },
    /// An admin listener that other machines can reach, by mistake.
    #[error(
        "the admin listener on {0} would be reachable from other machines without authentication: use a loopback address, or set public \
         = true in [admin]"
    )]
    AdminIsPublic(SocketAddr),
    /// A window that takes too much memory.
    #[error("window = \"{}\" in [admin] must be at most 300s: its events are kept in memory", format_duration(*.0))]
    AdminWindow(Duration),
}
