//! Where a service's instances come from: `file`, `dns`, `dns-srv` and `[service.NAME.consul]`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use h2lab_base::JsonSchema;
use h2lab_base::units::duration_text;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Instance, Service, Speaks};

/// How often names are resolved again, unless `refresh` says otherwise.
pub const REFRESH: Duration = Duration::from_secs(10);

/// A source of the instances of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registry {
    /// A file, TOML or, if its name ends in `.json`, JSON.
    File(String),
    /// The addresses of a name, which all speak the same.
    Dns {
        /// The name, the port and what is spoken.
        url: Instance,
        /// How often it is resolved.
        refresh: Duration,
    },
    /// Service records (RFC 2782).
    DnsSrv {
        /// Their name.
        name: SrvName,
        /// How long an answer is used at most; its time to live, if that is shorter.
        refresh: Duration,
    },
    /// Consul's list of healthy instances.
    Consul(Consul),
}

impl Service {
    /// The source of its instances, if they are not listed in the file.
    pub fn registry(&self) -> Option<Registry> {
        let refresh = self.refresh.unwrap_or(REFRESH);
        let file = self.file.clone().map(Registry::File);
        let dns = || self.dns.clone().map(|url| Registry::Dns { url, refresh });
        let srv = || self.dns_srv.clone().map(|name| Registry::DnsSrv { name, refresh });
        file.or_else(dns).or_else(srv).or_else(|| self.consul.clone().map(Registry::Consul))
    }

    /// How many of the keys that name a source of instances it has: it should be one.
    pub(super) fn sources(&self) -> usize {
        let all = [
            !self.instances.is_empty(),
            self.file.is_some(),
            self.dns.is_some(),
            self.dns_srv.is_some(),
            self.consul.is_some(),
        ];
        all.into_iter().filter(|is_there| *is_there).count()
    }
}

/// The name of service records, `_h2c._tcp.users.internal`: its first label says what the instances speak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
pub struct SrvName {
    /// The whole name, without a dot at its end.
    pub name: String,
    /// What the instances speak.
    pub speaks: Speaks,
}

impl FromStr for SrvName {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = |why| ConfigError::SrvName { text: text.to_owned(), why };
        let name = text.strip_suffix('.').unwrap_or(text);
        let mut labels = name.split('.');
        let speaks = match labels.next() {
            Some("_http") => Speaks::H1,
            Some("_h2c") => Speaks::H2c,
            Some("_https") => Speaks::Tls,
            _ => return Err(wrong("its first label must be _http, _h2c or _https")),
        };
        if labels.next() != Some("_tcp") {
            return Err(wrong("its second label must be _tcp"));
        }
        if name.len() > 253
            || labels.clone().count() == 0
            || labels.any(|label| label.is_empty() || label.len() > 63)
        {
            return Err(wrong("labels have 1 to 63 bytes, names at most 253"));
        }
        Ok(Self { name: name.to_owned(), speaks })
    }
}

impl TryFrom<String> for SrvName {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.parse()
    }
}

impl From<SrvName> for String {
    fn from(name: SrvName) -> Self {
        name.name
    }
}

/// `[service.NAME.consul]`: a service of a Consul agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Consul {
    /// The agent, `http://HOST:PORT` or `https://HOST:PORT`.
    #[serde(default = "agent")]
    pub address: Instance,
    /// Authorities that are trusted instead of the system's, PEM file; for `https://`.
    #[serde(default)]
    pub ca: Option<String>,
    /// The name of the service.
    pub service: String,
    /// Only instances with this tag.
    #[serde(default)]
    pub tag: Option<String>,
    /// Only of this data centre; the agent's, if there is none.
    #[serde(default)]
    pub datacenter: Option<String>,
    /// The token that the agent requires, if it does.
    #[serde(default)]
    pub token: Option<Token>,
    /// How long a query may wait for a change, 1 s to 10 min.
    #[serde(default = "wait", with = "duration_text")]
    #[schemars(with = "String")]
    pub wait: Duration,
}

fn agent() -> Instance {
    Instance { speaks: Speaks::H1, host: "127.0.0.1".to_owned(), port: 8_500 }
}

const fn wait() -> Duration {
    Duration::from_secs(60)
}

impl Consul {
    /// What is wrong with it.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        if !matches!(self.address.speaks, Speaks::H1 | Speaks::Tls) {
            return Some("address must be http://HOST:PORT or https://HOST:PORT, the Consul agent's");
        }
        if self.ca.is_some() && self.address.speaks != Speaks::Tls {
            return Some("ca requires an https:// address");
        }
        if self.service.is_empty() {
            return Some("service must not be empty");
        }
        let range = Duration::from_secs(1)..=Duration::from_secs(600);
        (!range.contains(&self.wait)).then_some("wait must be from 1s to 10m")
    }
}

/// A secret: it is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// What is sent.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
