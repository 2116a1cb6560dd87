//! What a sidecar is configured with: a TOML file. Missing keys have the values of [`Config::default`] and of the types below.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use h2lab_base::units::duration_text;
use serde::{Deserialize, Serialize};

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

/// A socket that it listens on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Listen {
    /// Address and port; port 0 takes a free one. In clear: HTTP/1.1, and HTTP/2 by prior knowledge or `Upgrade: h2c`.
    pub address: SocketAddr,
    /// With TLS: HTTP/1.1 and HTTP/2 by ALPN.
    #[serde(default)]
    pub tls: bool,
    /// Takes only clients with a certificate signed by one of these authorities, PEM file. For TLS.
    #[serde(default)]
    pub client_ca: Option<String>,
    /// The service of requests that no route takes; without it they are answered 404.
    #[serde(default)]
    pub service: Option<String>,
    /// Which requests go elsewhere; of those that match, the one with a host goes first, then the one with the longest path.
    #[serde(default)]
    pub route: Vec<Route>,
}

/// Which requests go to a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Route {
    /// The host of the request's authority, without port; `*.example.test` stands for every name below. Any, if there is none.
    #[serde(default)]
    pub host: Option<String>,
    /// The path, or a part of it before a `/`: `/a` takes `/a`, `/a/b` and `/a?q`, and not `/ab`. Any, if there is none.
    #[serde(default)]
    pub path: Option<String>,
    /// The service.
    pub service: String,
}

/// A service: instances that answer the same requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Service {
    /// Its instances.
    pub instances: Vec<Instance>,
    /// How many connections to each of them.
    #[serde(default)]
    pub policy: Policy,
    /// The name that certificates of its instances must be for, and that is sent as SNI; the instance's host, if there is none.
    #[serde(default)]
    pub server_name: Option<String>,
    /// Whether certificates of its instances are not checked: for tests.
    #[serde(default)]
    pub insecure: bool,
    /// Authorities that are trusted instead of the system's, PEM file.
    #[serde(default)]
    pub ca: Option<String>,
    /// The certificate that is presented to instances that ask.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// Congestion control of its connections, such as `bbr`; the system's, if there is none.
    #[serde(default)]
    pub congestion: Option<String>,
}

/// How many HTTP/2 connections an instance gets. HTTP/1.1 needs one for each request under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Policy {
    /// As many as the path needs: one where nothing is lost, more where a lost packet or the congestion window stops requests.
    #[default]
    Adaptive,
    /// So many.
    Fixed(u32),
    /// One for each request under way: as HTTP/1.1 has it.
    PerRequest,
}

/// The most connections of [`Policy::Fixed`].
const MOST_CONNECTIONS: u32 = 1_024;

impl FromStr for Policy {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::Policy(text.to_owned());
        match text.split_once(':') {
            None if text == "adaptive" => Ok(Self::Adaptive),
            None if text == "per-request" => Ok(Self::PerRequest),
            Some(("fixed", n)) => {
                let n = n.parse().map_err(|_| wrong())?;
                if (1..=MOST_CONNECTIONS).contains(&n) { Ok(Self::Fixed(n)) } else { Err(wrong()) }
            }
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Policy {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> Self {
        policy.to_string()
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::Fixed(n) => write!(f, "fixed:{n}"),
            Self::PerRequest => f.write_str("per-request"),
        }
    }
}

/// What an instance speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Speaks {
    /// `http://`: HTTP/1.1 in clear.
    H1,
    /// `h2c://`: HTTP/2 in clear, by prior knowledge.
    H2c,
    /// `https://`: with TLS, HTTP/2 if its ALPN takes it, else HTTP/1.1.
    Tls,
    /// `h1s://`: HTTP/1.1 with TLS.
    H1s,
    /// `h2://`: HTTP/2 with TLS.
    H2,
}

/// An instance of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Instance {
    /// What it speaks.
    pub speaks: Speaks,
    /// Its host: a name, or an address (IPv6 without brackets).
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl FromStr for Instance {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = |why| ConfigError::Instance { text: text.to_owned(), why };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let (speaks, default) = match scheme {
            "http" => (Speaks::H1, 80),
            "h2c" => (Speaks::H2c, 80),
            "https" => (Speaks::Tls, 443),
            "h1s" => (Speaks::H1s, 443),
            "h2" => (Speaks::H2, 443),
            _ => return Err(wrong("its scheme is none of http, h2c, https, h1s, h2")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@']) {
            return Err(wrong("it has more than a host and a port"));
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| wrong("its bracket is not closed"))?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong("its port is not a number from 1 to 65535"))?,
            None if port.is_empty() => default,
            None => return Err(wrong("its port is not a number from 1 to 65535")),
        };
        if host.is_empty() || port == 0 {
            return Err(wrong(if port == 0 { "its port is 0" } else { "it has no host" }));
        }
        Ok(Self { speaks, host: host.to_owned(), port })
    }
}

impl TryFrom<String> for Instance {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.parse()
    }
}

impl From<Instance> for String {
    fn from(instance: Instance) -> Self {
        instance.to_string()
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { speaks, host, port } = self;
        let scheme = match speaks {
            Speaks::H1 => "http",
            Speaks::H2c => "h2c",
            Speaks::Tls => "https",
            Speaks::H1s => "h1s",
            Speaks::H2 => "h2",
        };
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

/// How long a sidecar waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Timeouts {
    /// For a connection to an instance, with TLS.
    #[serde(with = "duration_text")]
    pub connect: Duration,
    /// For the head of the response, from the moment at which the request was complete.
    #[serde(with = "duration_text")]
    pub response: Duration,
    /// For requests under way when it is stopped.
    #[serde(with = "duration_text")]
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self { connect: secs(5), response: secs(60), drain: secs(10) }
    }
}

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
    /// A path that matches nothing.
    #[error("`{0}` is no path of a route: it begins with /")]
    Path(String),
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
        let service = Service {
            instances,
            policy,
            server_name: None,
            insecure: false,
            ca: None,
            identity: None,
            congestion: None,
        };
        let listen = Listen {
            address,
            tls: false,
            client_ca: None,
            service: Some(NAME.to_owned()),
            route: Vec::new(),
        };
        Self {
            listen: vec![listen],
            service: BTreeMap::from([(NAME.to_owned(), service)]),
            ..Self::default()
        }
    }

    /// Checks what the types do not say.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.listen.is_empty() {
            return Err(ConfigError::NoListener);
        }
        for listen in &self.listen {
            if listen.service.is_none() && listen.route.is_empty() {
                return Err(ConfigError::NoRoute(listen.address));
            }
            if listen.client_ca.is_some() && !listen.tls {
                return Err(ConfigError::NeedsTls(listen.address));
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
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if let Some(via) =
            self.fields.via.as_ref().filter(|via| via.is_empty() || !via.bytes().all(is_of_name))
        {
            return Err(ConfigError::Via(via.clone()));
        }
        match self.service.iter().find(|(_, service)| service.instances.is_empty()) {
            Some((name, _)) => Err(ConfigError::NoInstance(name.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What makes a configuration wrong.
    type Change<'a> = &'a dyn Fn(&mut Config);

    fn instance(text: &str) -> Result<String, String> {
        text.parse::<Instance>().map(|instance| instance.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn instances_have_a_scheme_a_host_and_a_port() {
        for (text, known) in [
            ("http://a", "http://a:80"),
            ("h2c://10.0.0.1:8080", "h2c://10.0.0.1:8080"),
            ("https://a.test/", "https://a.test:443"),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
            ("http://[::1]", "http://[::1]:80"),
            ("h1s://a", "h1s://a:443"),
            ("h2://a:1", "h2://a:1"),
        ] {
            assert_eq!(instance(text).as_deref(), Ok(known));
        }
        for text in [
            "a:80",
            "ftp://a",
            "http://",
            "http://a:0",
            "http://a:x",
            "http://a:99999",
            "http://a/b",
            "http://u@a",
            "http://[::1",
            "http://[::1]x",
            "http://:80",
        ] {
            assert!(instance(text).is_err_and(|why| why.contains("is no instance")), "{text}");
        }
    }

    #[test]
    fn a_file_is_read() {
        let text = r#"
            [[listen]]
            address = "127.0.0.1:15001"
            route = [{ host = "a.test", path = "/api", service = "a" }]

            [service.a]
            instances = ["h2c://10.0.0.1:8080", "https://b"]
            policy = "fixed:4"

            [fields]
            via = "edge"
            client = "forwarded"

            [timeouts]
            response = "5s"
        "#;
        let config = Config::parse(text).expect("it is right");
        assert_eq!(config.service["a"].policy, Policy::Fixed(4));
        assert_eq!(
            (config.timeouts.response, config.timeouts.connect),
            (Duration::from_secs(5), Duration::from_secs(5))
        );
        assert_eq!(config.fields.via.as_deref(), Some("edge"));
        for (wrong, words) in [
            ("listen = 1", "invalid type"),
            ("[servce.a]", "unknown field `servce`"),
            ("[service.a]\ninstances = ['ftp://a']", "is no instance"),
            ("[service.a]\ninstances = ['http://a']\npolicy = 'fixed:x'", "is no policy"),
        ] {
            let told = Config::parse(wrong).expect_err("it is wrong").to_string();
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn the_file_of_the_documentation_is_right() {
        let page = include_str!("../../../docs/sidecar.md");
        let text =
            page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let config = Config::parse(text).expect("it is right");
        assert_eq!((config.listen.len(), config.service.len()), (2, 3));
        assert_eq!(config.timeouts, Timeouts::default(), "the page says what the defaults are");
        assert_eq!(config.fields.client, crate::fields::ClientFields::default());
    }

    #[test]
    fn policies_are_read_and_written() {
        for text in ["adaptive", "fixed:1", "fixed:1024", "per-request"] {
            assert_eq!(text.parse::<Policy>().map(|policy| policy.to_string()).as_deref(), Ok(text));
        }
        for text in ["fixed:0", "fixed:1025", "fixed", "fixed:x", "adaptive:3", ""] {
            assert!(text.parse::<Policy>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        let simple = || {
            let address = "127.0.0.1:1".parse().expect("an address");
            Config::simple(address, vec!["h2c://a".parse().expect("an instance")], Policy::default())
        };
        assert_eq!(simple().check(), Ok(()));
        assert_eq!(Config::default().check(), Err(ConfigError::NoListener));
        let changed = |change: &dyn Fn(&mut Config)| {
            let mut config = simple();
            change(&mut config);
            config.check().expect_err("it is wrong").to_string()
        };
        let wrong: [(Change<'_>, &str); 6] = [
            (&|config| config.fields.via = Some("a b".to_owned()), "is no name"),
            (&|config| config.listen[0].service = None, "neither a service nor a route"),
            (&|config| config.listen[0].service = Some("b".to_owned()), "write [service.b]"),
            (&|config| config.listen[0].client_ca = Some("f".to_owned()), "write tls = true"),
            (
                &|config| config.service.values_mut().for_each(|service| service.instances.clear()),
                "has no instance",
            ),
            (
                &|config| {
                    let service = "service".to_owned();
                    config.listen[0].route.push(Route { host: None, path: Some("a".to_owned()), service });
                },
                "begins with /",
            ),
        ];
        for (change, words) in wrong {
            let told = changed(change);
            assert!(told.contains(words), "{told}");
        }
    }
}
