//! The URLs that users give: `http://host:port/path?query`, strictly.

use std::fmt;
use std::str::FromStr;

use h2lab_model::workload::without_placeholders;

/// An `http` or `https` URL (RFC 9110 §4.2), as far as a client of services needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    tls: bool,
    host: String,
    port: u16,
    authority: String,
    path_and_query: String,
}

/// Why a text is not a URL that can be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not `http://` or `https://`.
    #[error("a URL begins with http:// or https://")]
    Scheme,
    /// There is nothing between `//` and the path.
    #[error("there is no host")]
    NoHost,
    /// The host has characters that no host has.
    #[error("`{0}` is not a host")]
    Host(String),
    /// The port is not a number from 1 to 65535.
    #[error("`{0}` is not a port (1 to 65535)")]
    Port(String),
    /// There is a name or password before the host.
    #[error("credentials in a URL end up in logs; send them with -u NAME:PASSWORD, or -H 'Authorization: …'")]
    Credentials,
    /// Spaces, control characters or others that must be percent-encoded.
    #[error("the path has characters that must be percent-encoded")]
    Path,
}

impl Url {
    /// Whether the scheme is `https`.
    pub const fn is_tls(&self) -> bool {
        self.tls
    }

    /// Host name or address; an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, given or the scheme's own.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What `:authority` and Host carry: the host and, unless it is the scheme's own, the port.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query, at least `/`. A fragment is never sent and is dropped.
    pub fn path_and_query(&self) -> &str {
        &self.path_and_query
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text, str::to_owned)
    }
}

impl Url {
    /// A URL whose path may have placeholders, in which spaces never reach the wire: `{{random 1..9}}`.
    pub fn with_placeholders(text: &str) -> Result<Self, UrlError> {
        Self::parse(text, without_placeholders)
    }

    /// `literal` is the part of a path that goes on the wire as it stands.
    fn parse(text: &str, literal: fn(&str) -> String) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(UrlError::Scheme),
        };
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (network, path) = rest.split_at(end);
        if network.contains('@') {
            return Err(UrlError::Credentials);
        }
        let (host, port) = split_port(network)?;
        let own_port = if tls { 443 } else { 80 };
        let port = port.unwrap_or(own_port);
        if !literal(path).bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(UrlError::Path);
        }
        let path_and_query = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority = if port == own_port { bracketed } else { format!("{bracketed}:{port}") };
        Ok(Self { tls, host, port, authority, path_and_query })
    }
}

/// Splits `host`, `host:port`, `[::1]` and `[::1]:port`.
fn split_port(network: &str) -> Result<(String, Option<u16>), UrlError> {
    let parse_port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
        _ => Err(UrlError::Port(text.to_owned())),
    };
    if let Some(rest) = network.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(|| UrlError::Host(network.to_owned()))?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::Host(network.to_owned()))?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None if after.is_empty() => None,
            None => return Err(UrlError::Host(network.to_owned())),
        };
        return Ok((host.to_owned(), port));
    }
    let (host, port) = match network.split_once(':') {
        Some((host, port)) => (host, Some(parse_port(port)?)),
        None => (network, None),
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)) {
        return Err(UrlError::Host(host.to_owned()));
    }
    Ok((host.to_ascii_lowercase(), port))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.tls { "https" } else { "http" }, self.authority, self.path_and_query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_placeholders_has_spaces_only_inside_of_them() {
        let text = "http://a/{{random 1..9}}/{{pick a|b c}}";
        assert_eq!(text.parse::<Url>(), Err(UrlError::Path), "they are text to most commands");
        assert_eq!(Url::with_placeholders(text).unwrap().path_and_query(), &text["http://a".len()..]);
        for text in ["http://a/{{random 1..9}}/a b", "http://a/{{random 1..9", "http://a/{{{{ x"] {
            assert_eq!(Url::with_placeholders(text), Err(UrlError::Path), "{text}");
        }
    }

    #[test]
    fn urls_split_into_what_goes_on_the_wire() {
        for (text, host, port, authority, path) in [
            ("http://Example.test", "example.test", 80, "example.test", "/"),
            ("https://example.test:443/a?b=c#d", "example.test", 443, "example.test", "/a?b=c"),
            ("http://127.0.0.1:8080?x", "127.0.0.1", 8080, "127.0.0.1:8080", "/?x"),
            ("https://[::1]:8443/", "::1", 8443, "[::1]:8443", "/"),
            ("http://[::1]", "::1", 80, "[::1]", "/"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!(
                (url.host(), url.port(), url.authority(), url.path_and_query()),
                (host, port, authority, path)
            );
            assert_eq!(url.to_string().parse::<Url>().unwrap(), url);
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_its_reason() {
        for (text, error) in [
            ("example.test", UrlError::Scheme),
            ("ftp://example.test/", UrlError::Scheme),
            ("http:///", UrlError::NoHost),
            ("http://user:secret@example.test/", UrlError::Credentials),
            ("http://a b/", UrlError::Host("a b".to_owned())),
            ("http://example.test:0/", UrlError::Port("0".to_owned())),
            ("http://example.test:65536/", UrlError::Port("65536".to_owned())),
            ("http://example.test:+1/", UrlError::Port("+1".to_owned())),
            ("http://[::1/", UrlError::Host("[::1".to_owned())),
            ("http://[::1]x/", UrlError::Host("[::1]x".to_owned())),
            ("http://example.test/a b", UrlError::Path),
        ] {
            assert_eq!(text.parse::<Url>().unwrap_err(), error, "{text}");
        }
    }
}
