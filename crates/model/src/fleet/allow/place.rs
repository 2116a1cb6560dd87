//! The server of a URL, as the client's own parser of URLs finds it; what is in doubt is refused.

use std::fmt;

use super::pattern::{is_tls, own_port, read_port};

/// Scheme, host and port of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) is_tls: bool,
    /// In lower case, an IPv6 address without brackets. A dot at its end stays: overrides of name resolution are
    /// looked up by this.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Place {
    /// The place of a URL; the error says what is wrong with it, without its text: that may have a password.
    pub(super) fn of_url(url: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = url.split_once("://").ok_or("it does not begin with http:// or https://")?;
        let is_tls = is_tls(scheme).ok_or("it does not begin with http:// or https://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let network = &rest[..end];
        if network.contains('@') {
            return Err("there are credentials before its host; send them with -u, or -H 'Authorization: …'");
        }
        let (host, port) = match network.strip_prefix('[') {
            Some(inside) => {
                let (host, after) = inside.split_once(']').ok_or("a bracket of its host is not closed")?;
                if host.parse::<std::net::Ipv6Addr>().is_err() {
                    return Err("between brackets there is no IPv6 address");
                }
                match after.strip_prefix(':') {
                    None if after.is_empty() => (host, None),
                    None => return Err("after its host there is neither a port nor a path"),
                    port => (host, port),
                }
            }
            None => network.split_once(':').map_or((network, None), |(host, port)| (host, Some(port))),
        };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_bracketed = network.starts_with('[');
        if !is_bracketed && (host.is_empty() || host.len() > 254 || !host.bytes().all(is_host)) {
            return Err(
                "its host is neither an address nor a name as DNS has it (xn--… if it is international)",
            );
        }
        let port = match port {
            None => own_port(is_tls),
            Some(digits) => read_port(digits).ok_or("its port is not 1 to 65535")?,
        };
        Ok(Self { is_tls, host: host.to_ascii_lowercase(), port })
    }

    /// The scheme, as in URLs.
    pub(super) const fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = (self.scheme(), &self.host, self.port);
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}
