//! Where CONNECT may lead (RFC 9110 §9.3.6): `connect` of a listener.

use std::fmt;
use std::str::FromStr;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError, Instance, Listen, Policy, Service, Speaks};

/// The prefix of the names of services that are added for targets. No name in a file begins with it.
pub(super) const PREFIX: &str = "connect:";

/// A host and port that clients may be tunnelled to: `db.internal:5432`, or `*.internal:443` for every name below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
pub struct ConnectTarget {
    /// In lower case; `*.` and what follows it, or a name, or an address (IPv6 without brackets).
    host: String,
    port: u16,
}

impl ConnectTarget {
    /// Whether it stands for several hosts.
    pub fn is_pattern(&self) -> bool {
        self.host.starts_with("*.")
    }

    /// Whether a CONNECT with this authority leads there. Without a port it leads nowhere.
    pub fn takes(&self, authority: &[u8]) -> bool {
        let Some((host, port)) = str::from_utf8(authority).ok().and_then(split) else { return false };
        let is_host = match self.host.strip_prefix('*') {
            Some(end) => host.len() > end.len() && host.to_ascii_lowercase().ends_with(end),
            None => host.eq_ignore_ascii_case(&self.host),
        };
        is_host && port == self.port
    }

    /// The service that is made for it.
    pub fn service_name(&self) -> String {
        format!("{PREFIX}{self}")
    }

    fn instance(&self) -> Instance {
        Instance { speaks: Speaks::Tcp, host: self.host.clone(), port: self.port }
    }
}

/// Host, without the brackets of IPv6, and port.
fn split(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let port = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok())??;
    (!host.is_empty() && port > 0).then_some((host, port))
}

impl FromStr for ConnectTarget {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::ConnectTarget(text.to_owned());
        let (host, port) = split(text).ok_or_else(wrong)?;
        let name = host.strip_prefix("*.").unwrap_or(host);
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_of_name) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_ascii_lowercase(), port })
    }
}

impl TryFrom<String> for ConnectTarget {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.parse()
    }
}

impl From<ConnectTarget> for String {
    fn from(target: ConnectTarget) -> Self {
        target.to_string()
    }
}

impl fmt::Display for ConnectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Listen {
    /// Checks its keys for CONNECT.
    pub(super) fn check_connect(
        &self,
        services: &std::collections::BTreeMap<String, Service>,
    ) -> Result<(), ConfigError> {
        let address = self.address;
        match &self.connect_service {
            Some(_) if self.connect.is_empty() => Err(ConfigError::ConnectNowhere(address)),
            Some(service) if !services.contains_key(service) => {
                let place = format!("connect-service of the listener on {address}");
                Err(ConfigError::UnknownService { place, service: service.clone() })
            }
            Some(_) => Ok(()),
            None => match self.connect.iter().find(|target| target.is_pattern()) {
                Some(pattern) => Err(ConfigError::ConnectPattern(pattern.to_string())),
                None => Ok(()),
            },
        }
    }
}

impl Config {
    /// Adds a service of one instance, which does not speak HTTP, for each target of CONNECT that the sidecar connects
    /// to itself.
    pub fn add_tunnels(&mut self) {
        for listen in self.listen.iter().filter(|listen| listen.connect_service.is_none()) {
            for target in &listen.connect {
                let simple = Self::simple(listen.address, vec![target.instance()], Policy::PerRequest);
                if let Some(service) = simple.service.into_values().next() {
                    self.service.entry(target.service_name()).or_insert(service);
                }
            }
        }
    }
}

/// Where the CONNECTs of a listener lead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tunnels {
    targets: Vec<(ConnectTarget, u32)>,
}

impl Tunnels {
    /// Those of a listener; `number` gives the number of a service.
    pub fn new(listen: &Listen, number: impl Fn(&str) -> u32) -> Self {
        let service = |target: &ConnectTarget| {
            number(listen.connect_service.as_deref().unwrap_or(&target.service_name()))
        };
        Self { targets: listen.connect.iter().map(|target| (target.clone(), service(target))).collect() }
    }

    /// The service that takes a CONNECT with this authority; else the status with which it is refused, and why.
    pub fn service(&self, authority: &[u8]) -> Result<u32, (u16, &'static str)> {
        match self.targets.iter().find(|(target, _)| target.takes(authority)) {
            Some((_, service)) => Ok(*service),
            None if self.targets.is_empty() => Err((501, "CONNECT is not allowed")),
            None => Err((403, "CONNECT to this host and port is not allowed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> ConnectTarget {
        text.parse().expect("it is right")
    }

    #[test]
    fn a_target_takes_its_host_and_port_alone() {
        let takes = |text: &str, authority: &str| target(text).takes(authority.as_bytes());
        assert!(takes("db.test:5432", "DB.test:5432") && takes("[2001:DB8::1]:1", "[2001:db8::1]:1"));
        assert!(takes("*.test:443", "a.test:443") && takes("*.Test:443", "b.a.tesT:443"));
        for (text, authority) in [
            ("db.test:5432", "db.test:5433"),
            ("db.test:5432", "db.test"),
            ("db.test:5432", "xdb.test:5432"),
            ("db.test:80", "db.test:+80"),
            ("db.test:80", "user@db.test:80"),
            ("*.test:443", "test:443"),
            ("*.test:443", ".test:443"),
            ("*.test:443", "[a.test]:44"),
            ("[::1]:1", "::1:1"),
        ] {
            assert!(!takes(text, authority), "{text} {authority}");
        }
        for wrong in
            ["", "a", "a:", ":1", "a:0", "a:65536", "a b:1", "*:1", "*.:1", "a.*.b:1", "::1:5", "a/b:1"]
        {
            assert!(
                wrong
                    .parse::<ConnectTarget>()
                    .is_err_and(|why| why.to_string().contains("invalid CONNECT target")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn each_target_without_a_service_gets_one_and_others_are_refused() {
        let text = "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\nconnect = ['db.test:5432', '[::1]:7']\n\
                    [[listen]]\naddress = '127.0.0.1:2'\nservice = 'a'\nconnect = ['*.test:443']\nconnect-service = 'a'\n\
                    [service.a]\ninstances = ['http://a']\n";
        let mut config = Config::parse(text).expect("it is right");
        config.add_tunnels();
        config.add_tunnels();
        let names: Vec<&str> = config.service.keys().map(String::as_str).collect();
        assert_eq!(names, ["a", "connect:[::1]:7", "connect:db.test:5432"]);
        assert_eq!(config.service[names[2]].instances[0].url.to_string(), "tcp://db.test:5432");
        let number = |name: &str| names.iter().position(|other| *other == name).expect("it is there") as u32;
        let of = |listen: usize| Tunnels::new(&config.listen[listen], number);
        assert_eq!(of(0).service(b"db.test:5432"), Ok(2));
        assert_eq!(of(0).service(b"db.test:22").map_err(|(status, _)| status), Err(403));
        assert_eq!(of(1).service(b"x.test:443"), Ok(0));
        assert_eq!(Tunnels::default().service(b"x.test:443").map_err(|(status, _)| status), Err(501));
        for (from, to, words) in [
            ("connect-service = 'a'\n", "", "requires connect-service"),
            ("connect-service = 'a'", "connect-service = 'b'", "add [service.b]"),
            ("connect = ['*.test:443']\n", "", "has no effect without connect"),
        ] {
            let told = Config::parse(&text.replace(from, to)).expect_err("it is wrong").to_string();
            assert!(told.contains(words), "{told}");
        }
    }
}
