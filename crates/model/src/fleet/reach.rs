//! How a client reaches a server, and whom it trusts there: what curl's options of the same names say.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a URL's server is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reach {
    /// Fixed addresses (`--resolve`).
    pub resolve: Vec<ResolveEntry>,
    /// Other hosts and ports (`--connect-to`).
    pub connect_to: Vec<ConnectTo>,
    /// A Unix socket, whatever the URL says (`--unix-socket`).
    pub unix_socket: Option<PathBuf>,
    /// Only addresses of IPv4 (`-4`).
    pub ipv4: bool,
    /// Only addresses of IPv6 (`-6`).
    pub ipv6: bool,
}

impl Reach {
    /// The host and port to connect to for those of a URL.
    pub fn place(&self, host: &str, port: u16) -> (String, u16) {
        let other = self.connect_to.iter().find_map(|entry| entry.apply(host, port));
        other.unwrap_or_else(|| (host.to_owned(), port))
    }

    /// The fixed addresses of `host` and `port`, if there are any: those of the last entry for them, else of the last one for any
    /// host.
    pub fn fixed(&self, host: &str, port: u16) -> Option<&[IpAddr]> {
        let of_port = || self.resolve.iter().rev().filter(|entry| entry.port == port);
        let is_its =
            |entry: &&ResolveEntry| entry.host.as_ref().is_some_and(|fixed| fixed.eq_ignore_ascii_case(host));
        let entry = of_port().find(is_its).or_else(|| of_port().find(|entry| entry.host.is_none()))?;
        Some(&entry.addresses)
    }

    /// Whether an address is of a wanted family.
    pub const fn takes(&self, address: IpAddr) -> bool {
        (address.is_ipv4() || !self.ipv4) && (address.is_ipv6() || !self.ipv6)
    }
}

/// One `--resolve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveEntry {
    /// `None` for any.
    host: Option<String>,
    port: u16,
    addresses: Vec<IpAddr>,
}

impl FromStr for ResolveEntry {
    type Err = String;

    /// `HOST:PORT:ADDR[,ADDR]`; the host `*` is any. A `+` before it is about curl's cache of names, which we have not.
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (host, rest) = text.strip_prefix('+').unwrap_or(text).split_once(':')?;
            let (port, addresses) = rest.split_once(':')?;
            let address = |text: &str| text.trim_start_matches('[').trim_end_matches(']').parse().ok();
            Some(Self {
                host: (host != "*").then(|| host.to_ascii_lowercase()),
                port: port.parse().ok()?,
                addresses: addresses.split(',').map(address).collect::<Option<_>>()?,
            })
        };
        parse().ok_or_else(|| format!("`{text}` is not HOST:PORT:ADDR (such as example.test:443:127.0.0.1)"))
    }
}

/// One `--connect-to`. `None` matches anything on the left, and keeps the original on the right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectTo {
    from: (Option<String>, Option<u16>),
    to: (Option<String>, Option<u16>),
}

impl FromStr for ConnectTo {
    type Err = String;

    /// `HOST1:PORT1:HOST2:PORT2`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (from_host, rest) = host(text)?;
            let (from_port, rest) = rest.split_once(':')?;
            let (to_host, to_port) = host(rest)?;
            let port = |text: &str| match text {
                "" => Some(None),
                text => text.parse().ok().filter(|port| *port > 0).map(Some),
            };
            Some(Self { from: (from_host, port(from_port)?), to: (to_host, port(to_port)?) })
        };
        parse().ok_or_else(|| format!("`{text}` is not HOST1:PORT1:HOST2:PORT2 (such as ::127.0.0.1:8080)"))
    }
}

/// Splits `host:rest` or `[::1]:rest`; an empty host is `None`.
fn host(text: &str) -> Option<(Option<String>, &str)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once("]:")?,
        None => text.split_once(':')?,
    };
    Some(((!host.is_empty()).then(|| host.to_ascii_lowercase()), rest))
}

impl ConnectTo {
    /// Where to connect instead of to `host` and `port`; `None` if it is about others.
    fn apply(&self, host: &str, port: u16) -> Option<(String, u16)> {
        let is_its = self.from.0.as_deref().is_none_or(|from| from.eq_ignore_ascii_case(host))
            && self.from.1.is_none_or(|from| from == port);
        let to = || (self.to.0.clone().unwrap_or_else(|| host.to_owned()), self.to.1.unwrap_or(port));
        is_its.then(to)
    }
}

/// What a client trusts and presents in TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Trust {
    /// Any certificate is accepted (`-k`).
    pub insecure: bool,
    /// These certificates (PEM) are trusted instead of the system's (`--cacert`).
    pub ca_pem: Option<String>,
    /// The client's own certificate, for servers that ask for one (`--cert`, `--key`).
    #[serde(default)]
    pub identity: Option<ClientIdentity>,
    /// A full TLS handshake for every connection (`--no-tls-resumption`).
    #[serde(default)]
    pub full_handshakes: bool,
}

/// A client's certificate with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientIdentity {
    /// The certificate, and those between it and its authority, in this order (PEM).
    pub certificates_pem: String,
    /// Its private key (PEM), not encrypted.
    pub key_pem: String,
}

impl fmt::Debug for ClientIdentity {
    /// Without the key: debug output may be kept.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_entries_read_as_in_curl() {
        let entries = ["Example.test:443:[::1]", "*:443:127.0.0.3", "+other.test:443:127.0.0.1,127.0.0.2"];
        let resolve = entries.map(|entry| entry.parse().unwrap()).to_vec();
        let reach = Reach { resolve, ..Reach::default() };
        let addresses = |host, port| reach.fixed(host, port).map(<[IpAddr]>::to_vec);
        let of = |text: &[&str]| Some(text.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>());
        assert_eq!(addresses("example.TEST", 443), of(&["::1"]));
        assert_eq!(addresses("other.test", 443), of(&["127.0.0.1", "127.0.0.2"]));
        assert_eq!(addresses("any.test", 443), of(&["127.0.0.3"]));
        assert_eq!(addresses("example.test", 80), None);
        for bad in ["example.test:443", "example.test:x:127.0.0.1", "example.test:443:nowhere"] {
            assert!(bad.parse::<ResolveEntry>().is_err(), "{bad}");
        }
    }

    #[test]
    fn connect_to_replaces_what_it_is_about() {
        let of = |entry: &str| entry.parse::<ConnectTo>().unwrap().apply("example.test", 443);
        let to = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(of("example.test:443:127.0.0.1:8443"), to("127.0.0.1", 8443));
        assert_eq!(of("Example.test:443:[::1]:8443"), to("::1", 8443));
        assert_eq!(of("::127.0.0.1:"), to("127.0.0.1", 443));
        assert_eq!(of(":::8443"), to("example.test", 8443));
        assert_eq!(of("other.test:443:127.0.0.1:1"), None);
        assert_eq!(of("example.test:80:127.0.0.1:1"), None);
        for bad in ["a:1:b", "a:x:b:1", "a:1:b:0", "[::1:1:b:1"] {
            assert!(bad.parse::<ConnectTo>().unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn a_private_key_is_not_in_debug_output() {
        let identity = ClientIdentity { certificates_pem: "CERT".to_owned(), key_pem: "SECRET".to_owned() };
        let trust = Trust { identity: Some(identity), ..Trust::default() };
        assert!(!format!("{trust:?}").contains("SECRET"));
    }
}
