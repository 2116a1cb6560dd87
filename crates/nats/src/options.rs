//! Where the server is and who we are.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use h2lab_base::secrets::without_url_secrets;

use crate::{NatsError, tokens};

/// The longest that one attempt to connect takes, before the next server is tried.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Between two PINGs of ours. A connection with two of them unanswered is given up.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Commands that wait in async-nats. What waits beyond is counted in bytes: see [`crate::Nats::publish`].
const COMMANDS: usize = 64;
/// Between two attempts to connect again: doubled from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How to connect.
#[derive(Clone)]
pub struct ServerOptions {
    /// `nats://host:port` or `tls://host:port`, at least one, of one cluster. The port is 4222 if there is none.
    pub servers: Vec<String>,
    /// A file with a user's JWT and the seed of its key, as `nsc` writes it (`.creds`).
    pub credentials: Option<PathBuf>,
    /// A user and its password.
    pub user: Option<(String, String)>,
    /// A token instead of a user.
    pub token: Option<String>,
    /// Certificates (PEM) of the authorities that may sign the server's; those of the system if `None`.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key (PEM), if the server asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Our name, 1 to 64 of `A-Z a-z 0-9 _ -`: what the server's lists show. Answers come to `_INBOX_<name>.>`.
    pub name: String,
    /// How long the first connection is waited for.
    pub timeout: Duration,
}

impl ServerOptions {
    /// The subjects below which this client gets its answers. Not the common `_INBOX`: whoever may read that reads
    /// all answers.
    pub(crate) fn inbox(&self) -> String {
        format!("_INBOX_{}", self.name)
    }

    /// The servers for messages.
    pub(crate) fn shown(&self) -> String {
        self.servers.iter().map(|url| without_url_secrets(url)).collect::<Vec<_>>().join(", ")
    }

    /// Fails if a name or an address cannot be right.
    pub(crate) fn check(&self) -> Result<(), NatsError> {
        tokens::token(&self.name)?;
        if self.servers.is_empty() {
            return Err(NatsError::invalid("", "at least one server is needed: nats://host:4222"));
        }
        for url in &self.servers {
            let wrong = |reason| NatsError::invalid(&without_url_secrets(url), reason);
            if has_large_port(url) {
                return Err(wrong("its port is too large: 65535 is the largest"));
            }
            let address: ServerAddr =
                url.parse().map_err(|_| wrong("it must be nats://host:port or tls://host:port"))?;
            // async-nats would take any other scheme for plain TCP, and would not send a user of the URL.
            if !["nats", "tls"].contains(&address.scheme()) || address.host().is_empty() {
                return Err(wrong("it must be nats://host:port or tls://host:port"));
            }
            if address.has_user_pass() || address.password().is_some() {
                return Err(wrong("it must not contain a user or password: name them apart from the URL"));
            }
        }
        Ok(())
    }

    /// What async-nats is told. Files are read here, so that the error names them.
    pub(crate) fn connect_options(&self) -> Result<ConnectOptions, NatsError> {
        let mut options = ConnectOptions::new()
            .name(&self.name)
            .custom_inbox_prefix(self.inbox())
            .connection_timeout(self.timeout.min(ATTEMPT))
            .ping_interval(PING_INTERVAL)
            .client_capacity(COMMANDS)
            .reconnect_delay_callback(pause)
            // Only the servers that were named: addresses that a cluster tells of may be unreachable from here, and
            // their certificates are for names.
            .ignore_discovered_servers()
            .require_tls(self.servers.iter().all(|url| url.starts_with("tls://")));
        if let Some(path) = &self.credentials {
            let text = fs::read_to_string(path).map_err(NatsError::io(path))?;
            options = options.credentials(&text).map_err(NatsError::io(path))?;
        }
        if let Some((user, password)) = &self.user {
            options = options.user_and_password(user.clone(), password.clone());
        }
        if let Some(token) = &self.token {
            options = options.token(token.clone());
        }
        if let Some(path) = &self.ca {
            readable(path)?;
            options = options.add_root_certificates(path.clone());
        }
        if let Some((certificate, key)) = &self.identity {
            readable(certificate)?;
            readable(key)?;
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options)
    }
}

/// Whether a URL ends with a number that is no port.
fn has_large_port(url: &str) -> bool {
    let port = url.rsplit_once(':').map_or("", |(_, port)| port);
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_err()
}

/// Fails with the name of a file that async-nats could not read either, without saying which.
fn readable(path: &Path) -> Result<(), NatsError> {
    fs::read(path).map(drop).map_err(NatsError::io(path))
}

/// How long is waited before this attempt to connect (from 1): the first is made at once.
fn pause(attempt: usize) -> Duration {
    let (first, longest) = PAUSES;
    match u32::try_from(attempt).unwrap_or(u32::MAX) {
        0 | 1 => Duration::ZERO,
        more => first.saturating_mul(1_u32.checked_shl(more - 2).unwrap_or(u32::MAX)).min(longest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(server: &str) -> ServerOptions {
        ServerOptions {
            servers: vec![server.to_owned()],
            credentials: None,
            user: None,
            token: None,
            ca: None,
            identity: None,
            name: "kek-1".to_owned(),
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn only_nats_and_tls_without_a_user_are_servers() {
        for good in ["nats://localhost:4222", "tls://nats.example", "nats://[::1]:1", "localhost:4222"] {
            assert!(options(good).check().is_ok(), "{good}");
        }
        for bad in ["http://a", "ws://a", "nats://", "nats://user:secret@a", ""] {
            assert!(options(bad).check().is_err(), "{bad}");
        }
        assert!(ServerOptions { servers: Vec::new(), ..options("") }.check().is_err());
    }

    #[test]
    fn a_port_above_the_largest_is_named() {
        for (server, is_named) in
            [("nats://a:65535", false), ("nats://a:65536", true), ("nats://[::1]:99999", true)]
        {
            let error = options(server).check().map_err(|error| error.to_string());
            assert_eq!(error.is_err_and(|words| words.contains("port is too large")), is_named, "{server}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        let options = options("nats://user:secret@a:4222");
        let error = options.check().unwrap_err().to_string();
        assert!(!error.contains("secret") && !options.shown().contains("secret"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let absent = PathBuf::from("/nonexistent/agent.creds");
        for options in [
            ServerOptions { credentials: Some(absent.clone()), ..options("nats://a") },
            ServerOptions { ca: Some(absent.clone()), ..options("nats://a") },
            ServerOptions { identity: Some((absent.clone(), absent.clone())), ..options("nats://a") },
        ] {
            let error = options.connect_options().unwrap_err().to_string();
            assert!(error.contains("/nonexistent/agent.creds"), "{error}");
        }
    }

    #[test]
    fn pauses_double_up_to_two_seconds() {
        assert_eq!([0, 1, 2, 3, 4].map(pause), [0, 0, 100, 200, 400].map(Duration::from_millis));
        assert_eq!([7, 34, 64, usize::MAX].map(pause), [Duration::from_secs(2); 4]);
    }
}
