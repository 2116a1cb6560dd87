//! Where a URL leads: by flags, else by the system's resolver; and which certificates to trust there.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::exit::Usage;
use super::tls::TlsArgs;
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::tcp::Endpoint;
use h2lab_roles::client::url::Url;

/// How live servers are met.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Live servers")]
pub struct ReachArgs {
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Connect to ADDR for HOST:PORT, as curl does; repeatable
    #[arg(long, value_name = "HOST:PORT:ADDR", value_parser = resolve_entry)]
    resolve: Vec<ResolveEntry>,
    /// Connect to HOST2:PORT2 for HOST1:PORT1, as curl does; an empty part stands for any, or the same; repeatable
    #[arg(long, value_name = "HOST1:PORT1:HOST2:PORT2", value_parser = connect_to_entry)]
    connect_to: Vec<ConnectTo>,
    /// Connect to this Unix socket whatever the URL says, as curl does
    #[arg(long, value_name = "PATH", conflicts_with_all = ["connect_to", "resolve"])]
    unix_socket: Option<PathBuf>,
    /// Only IPv4 addresses of a name
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Only IPv6 addresses of a name
    #[arg(short = '6', long)]
    ipv6: bool,
}

/// One `--resolve`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ResolveEntry {
    host: String,
    port: u16,
    address: IpAddr,
}

/// The value parser of `--resolve`: `HOST:PORT:ADDR`.
fn resolve_entry(text: &str) -> Result<ResolveEntry, String> {
    let parse = || {
        let (host, rest) = text.split_once(':')?;
        let (port, address) = rest.split_once(':')?;
        let address = address.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
        Some(ResolveEntry { host: host.to_ascii_lowercase(), port: port.parse().ok()?, address })
    };
    parse().ok_or_else(|| format!("`{text}` is not HOST:PORT:ADDR (such as example.test:443:127.0.0.1)"))
}

/// One `--connect-to`. `None` matches anything on the left, and keeps the original on the right.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ConnectTo {
    from: (Option<String>, Option<u16>),
    to: (Option<String>, Option<u16>),
}

fn connect_to_entry(text: &str) -> Result<ConnectTo, String> {
    let parse = || {
        let (from_host, rest) = host(text)?;
        let (from_port, rest) = rest.split_once(':')?;
        let (to_host, to_port) = host(rest)?;
        let port = |text: &str| match text {
            "" => Some(None),
            text => text.parse().ok().filter(|port| *port > 0).map(Some),
        };
        Some(ConnectTo { from: (from_host, port(from_port)?), to: (to_host, port(to_port)?) })
    };
    parse().ok_or_else(|| format!("`{text}` is not HOST1:PORT1:HOST2:PORT2 (such as ::127.0.0.1:8080)"))
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
    /// Where this leads instead of to `host` and `port`, if it is about them.
    fn apply(&self, host: &str, port: u16) -> Option<(String, u16)> {
        let is_its = self.from.0.as_deref().is_none_or(|from| from.eq_ignore_ascii_case(host))
            && self.from.1.is_none_or(|from| from == port);
        let to = || (self.to.0.clone().unwrap_or_else(|| host.to_owned()), self.to.1.unwrap_or(port));
        is_its.then(to)
    }
}

/// The URL that `text` is.
pub fn url(text: &str) -> Result<Url, Usage> {
    text.parse().map_err(|error| Usage(format!("{text}: {error}")))
}

/// How long one of several addresses of a name may take to accept a connection.
const ADDRESS_TRIAL: Duration = Duration::from_secs(2);

/// The first of `endpoints`, which are not none, that accepts a connection; the first one, if none does. `localhost` is often
/// `::1` first, while most services listen on 127.0.0.1.
pub fn answering(endpoints: &[Endpoint]) -> Endpoint {
    let answers = |endpoint: &&Endpoint| match endpoint {
        Endpoint::Tcp(address) => TcpStream::connect_timeout(address, ADDRESS_TRIAL).is_ok(),
        Endpoint::Unix(_) => true,
    };
    let first = match endpoints {
        [only] => only,
        several => several.iter().find(answers).unwrap_or(&several[0]),
    };
    first.clone()
}

impl ReachArgs {
    /// Where a URL's server is to be looked for, in the order in which to try; at least one. `text` is the URL as given.
    pub fn endpoints(&self, text: &str, url: &Url) -> Result<Vec<Endpoint>, Failure> {
        match &self.unix_socket {
            Some(path) => Ok(vec![Endpoint::Unix(path.as_path().into())]),
            None => Ok(self.addresses(text, url)?.into_iter().map(Endpoint::from).collect()),
        }
    }

    /// The addresses of a URL's server, in the order in which to try them; at least one. `text` is the URL as given.
    fn addresses(&self, text: &str, url: &Url) -> Result<Vec<SocketAddr>, Failure> {
        let (host, port) = self
            .connect_to
            .iter()
            .find_map(|entry| entry.apply(url.host(), url.port()))
            .unwrap_or_else(|| (url.host().to_owned(), url.port()));
        let fixed =
            self.resolve.iter().find(|entry| entry.port == port && entry.host.eq_ignore_ascii_case(&host));
        if let Some(entry) = fixed {
            return Ok(vec![SocketAddr::new(entry.address, port)]);
        }
        let unreachable =
            |why: String| Failure { kind: FailureKind::Unreachable, message: format!("{text}: {why}") };
        let found = (host.as_str(), port).to_socket_addrs().map_err(|error| {
            let next = format!("check the name, or give --resolve {host}:{port}:ADDR");
            unreachable(format!("unknown host `{host}` ({error}); {next}"))
        })?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found.filter(|address| self.takes(address)) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            let family = if self.ipv4 {
                "IPv4 "
            } else if self.ipv6 {
                "IPv6 "
            } else {
                ""
            };
            return Err(unreachable(format!("`{host}` has no {family}address")));
        }
        Ok(addresses)
    }

    /// Whether an address is of a wanted family.
    fn takes(&self, address: &SocketAddr) -> bool {
        (address.is_ipv4() || !self.ipv4) && (address.is_ipv6() || !self.ipv6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_entries_read_as_in_curl() {
        let entry = resolve_entry("Example.test:443:[::1]").unwrap();
        assert_eq!(
            (entry.host.as_str(), entry.port, entry.address),
            ("example.test", 443, "::1".parse().unwrap())
        );
        for bad in ["example.test:443", "example.test:x:127.0.0.1", "example.test:443:nowhere"] {
            assert!(resolve_entry(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn connect_to_replaces_what_it_is_about() {
        let of = |entry: &str| connect_to_entry(entry).unwrap().apply("example.test", 443);
        let to = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(of("example.test:443:127.0.0.1:8443"), to("127.0.0.1", 8443));
        assert_eq!(of("Example.test:443:[::1]:8443"), to("::1", 8443));
        assert_eq!(of("::127.0.0.1:"), to("127.0.0.1", 443));
        assert_eq!(of(":::8443"), to("example.test", 8443));
        assert_eq!(of("other.test:443:127.0.0.1:1"), None);
        assert_eq!(of("example.test:80:127.0.0.1:1"), None);
        for bad in ["a:1:b", "a:x:b:1", "a:1:b:0", "[::1:1:b:1"] {
            assert!(connect_to_entry(bad).unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn a_name_gives_the_addresses_of_the_wanted_family() {
        let url: Url = "http://example.test:81/".parse().unwrap();
        let of = |args: &ReachArgs| args.addresses("http://example.test:81/", &url);
        let connect_to = vec![connect_to_entry("::127.0.0.1:82").unwrap()];
        let mut args = ReachArgs { connect_to, ..ReachArgs::default() };
        assert_eq!(of(&args).unwrap(), ["127.0.0.1:82".parse().unwrap()]);
        args.ipv6 = true;
        let error = of(&args).unwrap_err();
        assert!(error.message.contains("`127.0.0.1` has no IPv6 address"), "{error}");
    }
}
