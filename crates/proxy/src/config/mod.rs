//! What a sidecar is configured with: a TOML file. Missing keys have the values of [`Config::default`] and of the types below.
//!
//! Each table of the file is a module.

mod addresses;
mod admin;
mod advice;
mod clients;
mod connect;
mod error;
#[cfg(test)]
mod guard_tests;
mod health;
mod hints;
mod http3;
mod instance;
mod limits;
mod listen;
mod log;
mod member;
mod memory;
mod network;
mod outlier;
mod place;
mod policy;
mod rate;
mod reading;
#[cfg(test)]
mod reference_tests;
mod registry;
mod retry;
mod service;
mod start;
#[cfg(test)]
mod tests;
mod threads;
mod timeouts;
mod times;
mod trace;
mod transparent;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

pub use admin::Admin;
pub use connect::{ConnectTarget, Tunnels};
pub use error::ConfigError;
pub use health::Health;
pub use hints::{Hint, Hints};
pub use instance::{Instance, Speaks};
pub use limits::ServiceLimits;
pub use listen::{Listen, MOST_LISTENERS, Route};
pub use log::{Log, LogFormat};
pub use member::{LARGEST_WEIGHT, Member};
pub use memory::Size;
pub use network::Network;
pub use outlier::Outlier;
pub use place::instance_line;
pub use policy::Policy;
pub use rate::{Rate, RateKey};
pub(crate) use reading::explained;
pub use reading::parse_address;
pub use registry::{Consul, REFRESH, Registry, SrvName, Token};
pub use retry::{Retry, RetryOn};
pub use service::Service;
pub use threads::{MOST_THREADS, Threads};
pub use timeouts::{ServiceTimeouts, Timeouts};
pub use trace::{Trace, TraceContext};
pub use transparent::{DestinationProtocol, Interception, ORIGINAL, Other, Transparent};

use crate::fields::OwnFields;
use crate::route::why_no_host;

/// A sidecar's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[schemars(title = "The file of h2lab sidecar")]
pub struct Config {
    /// Where it listens, and what for.
    pub listen: Vec<Listen>,
    /// Where requests may go, by name.
    pub service: BTreeMap<String, Service>,
    /// What it adds to requests and responses.
    pub fields: OwnFields,
    /// Its certificate, for listeners with TLS; without one it makes a self-signed one.
    pub identity: Option<Identity>,
    /// Where the sidecar stands: instances of this zone are preferred. Without it none are.
    pub zone: Option<String>,
    /// How many threads pass requests on.
    pub threads: Threads,
    /// How many clients may be connected at a time; others wait. Without it, as many as leave half of the process's
    /// file descriptors for connections to instances.
    pub max_clients: Option<u32>,
    /// How long it waits, and for what.
    pub timeouts: Timeouts,
    /// Which requests are sent again.
    pub retry: Retry,
    /// The mark of its connections to instances (`SO_MARK`), by which rules of netfilter distinguish them from those
    /// that they redirect. Needs `CAP_NET_ADMIN`.
    pub mark: Option<u32>,
    /// The user that it becomes when all sockets are open: a name, or `UID:GID`. Only if started as root.
    pub user: Option<String>,
    /// Whether it may open only its own files (Landlock): for reading, those below the folders of the configuration and
    /// of the files that it names at the start; for writing, those in the log's folder. True unless set.
    pub landlock: bool,
    /// How much memory it may use in all; without it there is no bound.
    pub memory: Option<Size>,
    /// Links of pages that clients get early.
    pub hint: Vec<Hint>,
    /// How clients get the links.
    pub hints: Hints,
    /// The access log.
    pub log: Log,
    /// Where it reports its status.
    pub admin: Admin,
    /// What becomes of trace context.
    pub trace: Trace,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Identity {
    /// The certificate chain, PEM.
    pub cert: String,
    /// Its private key, PEM.
    pub key: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            service: BTreeMap::new(),
            fields: OwnFields::default(),
            identity: None,
            zone: None,
            max_clients: None,
            timeouts: Timeouts::default(),
            retry: Retry::default(),
            mark: None,
            threads: Threads::default(),
            user: None,
            landlock: true,
            memory: None,
            hint: Vec::new(),
            hints: Hints::default(),
            log: Log::default(),
            admin: Admin::default(),
            trace: Trace::default(),
        }
    }
}

impl Config {
    /// Reads a file, and checks it. An error says which line is wrong.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config = reading::read(text)?;
        match config.check() {
            Ok(()) => Ok(config),
            Err(error) => Err(place::located(text, error)),
        }
    }

    /// One listener for one service: what flags without a file ask for.
    pub fn simple(address: SocketAddr, instances: Vec<Instance>, policy: Policy) -> Self {
        const NAME: &str = "service";
        let instances = instances.into_iter().map(Member::from).collect();
        let service = Service { instances, policy, ..Service::default() };
        let listen = Listen {
            address,
            upgrade_h2c: true,
            tls: false,
            h3: false,
            alt_svc: listen::ALT_SVC,
            client_ca: None,
            service: Some(NAME.to_owned()),
            route: Vec::new(),
            rate: None,
            max_clients: None,
            connect: Vec::new(),
            connect_service: None,
            proxy_protocol: false,
            proxy_protocol_from: Vec::new(),
            transparent: None,
            protocol: None,
            other: None,
            detect: None,
            ports: Vec::new(),
        };
        Self {
            listen: vec![listen],
            service: BTreeMap::from([(NAME.to_owned(), service)]),
            ..Self::default()
        }
    }

    /// The configuration as TOML for people, without secrets. Files that have some, such as private keys, are named.
    pub fn shown(&self) -> String {
        let Ok(mut table) = toml::Table::try_from(self) else { return String::new() };
        table.iter_mut().for_each(|(key, value)| hide(key, value));
        toml::to_string_pretty(&table).unwrap_or_default()
    }

    /// A hash of [`Config::shown`] (FNV-1a), of 48 bits, so that it is exact where numbers are floating point.
    pub fn hash(&self) -> u64 {
        let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = self.shown().bytes().fold(0xcbf2_9ce4_8422_2325, fold);
        (hash >> 48) ^ (hash & 0xffff_ffff_ffff)
    }

    /// Checks what the types do not say.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.listen.is_empty() {
            return Err(ConfigError::NoListener);
        }
        self.service.keys().try_for_each(|name| check_name(name))?;
        Hint::check_all(&self.hint)?;
        self.admin.check()?;
        self.log.check()?;
        self.check_listeners()?;
        for listen in &self.listen {
            listen.check_transparent()?;
            if listen.service.is_none() && listen.route.is_empty() && listen.transparent.is_none() {
                return Err(ConfigError::NoRoute(listen.address));
            }
            if listen.client_ca.is_some() && !listen.tls {
                return Err(ConfigError::NeedsTls(listen.address));
            }
            listen.check_http3()?;
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
            for host in listen.route.iter().filter_map(|route| route.host.as_ref()) {
                if let Some(why) = why_no_host(host) {
                    return Err(ConfigError::RouteHost { host: host.clone(), why });
                }
            }
            let paths = listen.route.iter().filter_map(|route| route.path.as_ref());
            if let Some(path) = paths.into_iter().find(|path| !path.starts_with('/')) {
                return Err(ConfigError::Path(path.clone()));
            }
        }
        self.check_guards()?;
        self.check_clients()?;
        self.check_times()?;
        if let Threads::Fixed(threads) = self.threads {
            self.check_threads(threads)?;
        }
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if let Some(via) =
            self.fields.via.as_ref().filter(|via| via.is_empty() || !via.bytes().all(is_of_name))
        {
            return Err(ConfigError::Via(via.clone()));
        }
        self.service.iter().try_for_each(|(name, service)| service.check_proxy_protocol(name))?;
        self.service.iter().try_for_each(|(name, service)| service.check_http3(name))?;
        self.check_original()?;
        let others = self.service.iter().filter(|(name, _)| !self.is_original(name));
        others.into_iter().try_for_each(|(name, service)| check_service(name, service))
    }

    /// The files that it names, except those of instances, which are watched separately.
    pub fn files(&self) -> Vec<&String> {
        let identities =
            self.identity.iter().chain(self.service.values().filter_map(|service| service.identity.as_ref()));
        let pairs = identities.flat_map(|identity| [&identity.cert, &identity.key]);
        let clients = self.listen.iter().filter_map(|listen| listen.client_ca.as_ref());
        let authorities = self.service.values().flat_map(|service| {
            [service.ca.as_ref(), service.consul.as_ref().and_then(|consul| consul.ca.as_ref())]
        });
        pairs.chain(clients).chain(authorities.flatten()).collect()
    }

    /// Listeners and routes that are there twice.
    fn check_listeners(&self) -> Result<(), ConfigError> {
        if self.listen.len() > MOST_LISTENERS {
            return Err(ConfigError::ManyListeners(self.listen.len()));
        }
        self.check_addresses()?;
        for listen in &self.listen {
            let address = listen.address;
            let takes: Vec<String> = listen.route.iter().map(Route::takes).collect();
            let same = (1..takes.len()).find(|n| takes[..*n].contains(&takes[*n]));
            if let Some(same) = same {
                return Err(ConfigError::SameRoute { address, what: takes[same].clone() });
            }
        }
        Ok(())
    }
}

/// Checks that a service does not have a reserved name: that of requests without a service, or of services that the
/// sidecar adds.
fn check_name(name: &str) -> Result<(), ConfigError> {
    let why = match name {
        "" => "it must not be empty: metrics name requests without a service so",
        "-" => "the access log writes it where there is no service",
        _ if name.starts_with(connect::PREFIX) => {
            "names that begin with \"connect:\" are those of CONNECT targets"
        }
        _ => return Ok(()),
    };
    Err(ConfigError::ServiceName { name: name.to_owned(), why })
}

fn check_service(name: &str, service: &Service) -> Result<(), ConfigError> {
    match service.sources() {
        0 => return Err(ConfigError::NoInstance(name.to_owned())),
        1 => {}
        _ => return Err(ConfigError::SeveralSources(name.to_owned())),
    }
    if let Some(why) = service.consul.as_ref().and_then(Consul::wrong) {
        return Err(ConfigError::Consul { service: name.to_owned(), why });
    }
    match service.refresh {
        Some(_) if service.dns.is_none() && service.dns_srv.is_none() => {
            Err(ConfigError::Refresh(name.to_owned()))
        }
        Some(refresh) if refresh < std::time::Duration::from_secs(1) => {
            Err(ConfigError::ShortRefresh(name.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Replaces secrets, by the names of keys: tables of other modules may have some, too. (`key` names a file, or who shares a rate.)
fn hide(key: &str, value: &mut toml::Value) {
    const SECRETS: [&str; 4] = ["token", "password", "secret", "credential"];
    match value {
        toml::Value::Table(table) => table.iter_mut().for_each(|(key, value)| hide(key, value)),
        toml::Value::Array(items) => items.iter_mut().for_each(|item| hide(key, item)),
        value if SECRETS.iter().any(|secret| key.contains(secret)) => {
            *value = toml::Value::String("(redacted)".to_owned());
        }
        _ => {}
    }
}
