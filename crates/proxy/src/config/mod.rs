//! What a sidecar is configured with: a TOML file. Missing keys have the values of [`Config::default`] and of the types below.
//!
//! A table of the file is a module.

mod admin;
mod connect;
mod error;
#[cfg(test)]
mod guard_tests;
mod health;
mod hints;
mod instance;
mod limits;
mod listen;
mod log;
mod memory;
mod network;
mod outlier;
mod policy;
mod rate;
mod retry;
mod service;
#[cfg(test)]
mod tests;
mod timeouts;
mod trace;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use admin::Admin;
pub use connect::{ConnectTarget, Tunnels};
pub use error::ConfigError;
pub use health::Health;
pub use hints::{Hint, Hints};
pub use instance::{Instance, Speaks};
pub use limits::ServiceLimits;
pub use listen::{Listen, Route};
pub use log::{Log, LogFormat};
pub use memory::Size;
pub use network::Network;
pub use outlier::Outlier;
pub use policy::Policy;
pub use rate::{Rate, RateKey};
pub use retry::{Retry, RetryOn};
pub use service::Service;
pub use timeouts::{ServiceTimeouts, Timeouts};
pub use trace::{Trace, TraceContext};

use crate::fields::OwnFields;

/// A sidecar's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Where it listens, and what for.
    pub listen: Vec<Listen>,
    /// Where requests may go, by name.
    pub service: BTreeMap<String, Service>,
    /// What it adds to requests and responses.
    pub fields: OwnFields,
    /// Its certificate, for listeners with TLS; without one it makes a self-signed one.
    pub identity: Option<Identity>,
    /// How long it waits, and for what.
    pub timeouts: Timeouts,
    /// Which requests are sent again.
    pub retry: Retry,
    /// How much memory it may use in all; without it there is no bound.
    pub memory: Option<Size>,
    /// Links of pages that clients are told early.
    pub hint: Vec<Hint>,
    /// How clients are told.
    pub hints: Hints,
    /// The access log.
    pub log: Log,
    /// Where it says how it does.
    pub admin: Admin,
    /// What becomes of trace context.
    pub trace: Trace,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Identity {
    /// The certificate chain, PEM.
    pub cert: String,
    /// Its private key, PEM.
    pub key: String,
}

impl Config {
    /// Reads a file, and checks it.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| ConfigError::Toml(error.to_string()))?;
        config.check()?;
        Ok(config)
    }

    /// One listener for one service: what flags without a file ask for.
    pub fn simple(address: SocketAddr, instances: Vec<Instance>, policy: Policy) -> Self {
        const NAME: &str = "service";
        let service = Service { instances, policy, ..Service::default() };
        let listen = Listen {
            address,
            tls: false,
            client_ca: None,
            service: Some(NAME.to_owned()),
            route: Vec::new(),
            rate: None,
            connect: Vec::new(),
            connect_service: None,
            proxy_protocol: false,
            proxy_protocol_from: Vec::new(),
        };
        Self {
            listen: vec![listen],
            service: BTreeMap::from([(NAME.to_owned(), service)]),
            ..Self::default()
        }
    }

    /// The configuration as TOML for people, without what may be a secret.
    pub fn shown(&self) -> String {
        let Ok(mut table) = toml::Table::try_from(self) else { return String::new() };
        table.iter_mut().for_each(|(key, value)| hide(key, value));
        toml::to_string_pretty(&table).unwrap_or_default()
    }

    /// Checks what the types do not say.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.listen.is_empty() {
            return Err(ConfigError::NoListener);
        }
        self.hint.iter().try_for_each(Hint::check)?;
        self.admin.check()?;
        for listen in &self.listen {
            if listen.service.is_none() && listen.route.is_empty() {
                return Err(ConfigError::NoRoute(listen.address));
            }
            if listen.client_ca.is_some() && !listen.tls {
                return Err(ConfigError::NeedsTls(listen.address));
            }
            listen.check_connect(&self.service)?;
            if !listen.proxy_protocol_from.is_empty() && !listen.proxy_protocol {
                return Err(ConfigError::NoProxyProtocol(listen.address));
            }
            let place = format!("the listener on {}", listen.address);
            for service in listen.service.iter().chain(listen.route.iter().map(|route| &route.service)) {
                if !self.service.contains_key(service) {
                    return Err(ConfigError::UnknownService { place, service: service.clone() });
                }
            }
            let paths = listen.route.iter().filter_map(|route| route.path.as_ref());
            if let Some(path) = paths.into_iter().find(|path| !path.starts_with('/')) {
                return Err(ConfigError::Path(path.clone()));
            }
        }
        self.check_guards()?;
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if let Some(via) =
            self.fields.via.as_ref().filter(|via| via.is_empty() || !via.bytes().all(is_of_name))
        {
            return Err(ConfigError::Via(via.clone()));
        }
        self.service.iter().try_for_each(|(name, service)| service.check_proxy_protocol(name))?;
        match self.service.iter().find(|(_, service)| service.instances.is_empty()) {
            Some((name, _)) => Err(ConfigError::NoInstance(name.clone())),
            None => Ok(()),
        }
    }
}

/// Replaces what may be a secret, by the names of keys: tables of other modules may have some, too.
fn hide(key: &str, value: &mut toml::Value) {
    const SECRETS: [&str; 5] = ["token", "password", "secret", "credential", "key"];
    match value {
        toml::Value::Table(table) => table.iter_mut().for_each(|(key, value)| hide(key, value)),
        toml::Value::Array(items) => items.iter_mut().for_each(|item| hide(key, item)),
        value if SECRETS.iter().any(|secret| key.contains(secret)) => {
            *value = toml::Value::String("(left out)".to_owned());
        }
        _ => {}
    }
}
