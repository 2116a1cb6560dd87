//! Where a URL leads: from the flags that say so, else from the system's resolver.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::Args;

use crate::run::messages::{Failure, FailureKind};
use h2lab_net::tcp::Endpoint;
use h2lab_roles::client::url::Url;

/// Other ways to a server than its name.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Live servers")]
pub struct ReachArgs {
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
pub struct ResolveEntry {
    host: String,
    port: u16,
    address: IpAddr,
}

/// The value parser of `--resolve`: `HOST:PORT:ADDR`.
pub fn resolve_entry(text: &str) -> Result<ResolveEntry, String> {
    let parse = || {
        let (host, rest) = text.split_once(':')?;
        let (port, address) = rest.split_once(':')?;
        let address = address.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
        Some(ResolveEntry { host: host.to_ascii_lowercase(), port: port.parse().ok()?, address })
    };
    parse().ok_or_else(|| format!("`{text}` is not HOST:PORT:ADDR (such as example.test:443:127.0.0.1)"))
}

/// One `--connect-to`. What is `None` stands for anything on the left, and for what it was on the right.
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

/// Where a URL's server is to be looked for, in the order in which to try; at least one. `text` is the URL as given.
pub fn endpoints(
    text: &str,
    url: &Url,
    entries: &[ResolveEntry],
    args: &ReachArgs,
) -> Result<Vec<Endpoint>, Failure> {
    match &args.unix_socket {
        Some(path) => Ok(vec![Endpoint::Unix(path.as_path().into())]),
        None => Ok(addresses(text, url, entries, args)?.into_iter().map(Endpoint::from).collect()),
    }
}

/// The addresses of a URL's server, in the order in which to try them; at least one. `text` is the URL as given.
pub fn addresses(
    text: &str,
    url: &Url,
    entries: &[ResolveEntry],
    args: &ReachArgs,
) -> Result<Vec<SocketAddr>, Failure> {
    let (host, port) = args
        .connect_to
        .iter()
        .find_map(|entry| entry.apply(url.host(), url.port()))
        .unwrap_or_else(|| (url.host().to_owned(), url.port()));
    let fixed = entries.iter().find(|entry| entry.port == port && entry.host.eq_ignore_ascii_case(&host));
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
    for address in found.filter(|address| args.takes(address)) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        let family = if args.ipv4 {
            "IPv4 "
        } else if args.ipv6 {
            "IPv6 "
        } else {
            ""
        };
        return Err(unreachable(format!("`{host}` has no {family}address")));
    }
    Ok(addresses)
}

impl ReachArgs {
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
        let of = |args: &ReachArgs| addresses("http://example.test:81/", &url, &[], args);
        let connect_to = vec![connect_to_entry("::127.0.0.1:82").unwrap()];
        let mut args = ReachArgs { connect_to, ..ReachArgs::default() };
        assert_eq!(of(&args).unwrap(), ["127.0.0.1:82".parse().unwrap()]);
        args.ipv6 = true;
        let error = of(&args).unwrap_err();
        assert!(error.message.contains("`127.0.0.1` has no IPv6 address"), "{error}");
    }
}
