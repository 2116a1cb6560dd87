//! An instance of a service, as it is written: `h2c://10.0.0.7:8080`.

use std::fmt;
use std::str::FromStr;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// What an instance speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Speaks {
    /// `http://`: HTTP/1.1 in clear.
    H1,
    /// `h2c://`: HTTP/2 in clear, by prior knowledge.
    H2c,
    /// `https://`: with TLS, HTTP/2 if the instance selects it by ALPN, else HTTP/1.1.
    Tls,
    /// `h1s://`: HTTP/1.1 with TLS.
    H1s,
    /// `h2://`: HTTP/2 with TLS.
    H2,
    /// `h3://`: HTTP/3.
    H3,
    /// Not HTTP: the target of a CONNECT. It has no notation in a file.
    Tcp,
}

/// An instance of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
        const PORT: &str = "the port must be a number from 1 to 65535";
        let wrong = |why| ConfigError::Instance { text: text.to_owned(), why };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let (speaks, default) = match scheme {
            "http" => (Speaks::H1, 80),
            "h2c" => (Speaks::H2c, 80),
            "https" => (Speaks::Tls, 443),
            "h1s" => (Speaks::H1s, 443),
            "h2" => (Speaks::H2, 443),
            "h3" => (Speaks::H3, 443),
            _ => return Err(wrong("unknown scheme")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@']) {
            return Err(wrong("only a host and a port are allowed"));
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| wrong("unclosed bracket"))?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong(PORT))?,
            None if port.is_empty() => default,
            None => return Err(wrong(PORT)),
        };
        if host.is_empty() || port == 0 {
            return Err(wrong(if port == 0 { PORT } else { "it has no host" }));
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
            Speaks::H3 => "h3",
            Speaks::Tcp => "tcp",
        };
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}
