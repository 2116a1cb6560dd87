//! What is wrong with a configuration.

use std::net::SocketAddr;

use super::policy::MOST_CONNECTIONS;

/// What is wrong with a configuration. It is the user's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is no such TOML.
    #[error("{}", .0.trim_end())]
    Toml(String),
    /// A policy that is none.
    #[error(
        "`{0}` is no policy: adaptive, fixed:N (1 to {MOST_CONNECTIONS} connections per instance) or per-request"
    )]
    Policy(String),
    /// An instance that is none.
    #[error("`{text}` is no instance: {why}; write http://HOST:PORT, h2c://HOST:PORT or https://HOST:PORT")]
    Instance {
        /// What was written.
        text: String,
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
    #[error("the service `{0}` has no instance")]
    NoInstance(String),
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
}
