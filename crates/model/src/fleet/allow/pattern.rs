//! Which servers an `--allow` stands for.
//!
//! Names are compared as DNS does: without regard to case and to the dot at their end. What is not certainly a name
//! or an address is never permitted: `127.1`, `0x7f000001` and `2130706433` are addresses to a resolver.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A URL pattern: a scheme, a host or a network, a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlPattern {
    is_tls: bool,
    hosts: Hosts,
    /// `None` for each.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    /// `*`: all names and addresses.
    All,
    /// This name only.
    Named(String),
    /// Names with at least one label before this one.
    Below(String),
    /// Addresses whose first bits are these; never one that a name stands for.
    Network { address: IpAddr, prefix: u8 },
}

/// A host that a URL may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// A name, see [`canonical_name`].
    Name(String),
    /// An address; that of IPv4 if it is one as IPv6 writes it (`::ffff:10.0.0.1`).
    Address(IpAddr),
}

impl Host {
    /// Reads a host; IPv6 addresses have no brackets. `None` if it is not certain what a resolver makes of it.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text.parse::<IpAddr>() {
            Ok(address) => Some(Self::Address(address.to_canonical())),
            Err(_) => canonical_name(text).map(Self::Name),
        }
    }
}

/// Labels of letters, digits, `-` and `_` (ASCII: international names as DNS has them, `xn--…`), in lower case,
/// without the dot at the end. `None` for all else, and for a name whose last label is a number: resolvers take it
/// for an address.
fn canonical_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_plain);
    let is_number = |label: &str| match label.strip_prefix("0x") {
        Some(hex) => hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    };
    let is_name =
        name.len() <= 253 && name.split('.').all(is_label) && !name.rsplit('.').take(1).any(is_number);
    is_name.then_some(name)
}

impl UrlPattern {
    /// Reads `SCHEME://HOST[:PORT]`; the error says what is expected.
    pub(super) fn read(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or(
            "what an agent may do: a URL pattern (such as https://*.staging.example:443, http://10.1.0.0/16:*), `lab` or `serve`",
        )?;
        let is_tls = is_tls(scheme).ok_or("a URL pattern: it begins with http:// or https://")?;
        if rest.contains('@') {
            return Err("a URL pattern: it has a host, and no user before it");
        }
        let (host, bracketed, after) = split_host(rest)?;
        let (prefix, port) = match after.strip_prefix('/') {
            None => (None, after),
            Some(after) => {
                let end = after.find(':').unwrap_or(after.len());
                (Some(&after[..end]), &after[end..])
            }
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Some(own_port(is_tls)),
            Some("*") => None,
            Some(digits) => Some(read_port(digits).ok_or("a URL pattern: its port is 1 to 65535, or `*`")?),
            None => return Err("a URL pattern: after the host there is a port or nothing"),
        };
        Ok(Self { is_tls, hosts: Hosts::read(host, bracketed, prefix)?, port })
    }

    /// Whether a server is one of these.
    pub(super) fn covers(&self, is_tls: bool, host: &Host, port: u16) -> bool {
        self.is_tls == is_tls && self.port.is_none_or(|own| own == port) && self.hosts.have(host)
    }
}

impl Hosts {
    fn read(host: &str, bracketed: bool, prefix: Option<&str>) -> Result<Self, &'static str> {
        if let Ok(address) = host.parse::<IpAddr>()
            && address.is_ipv6() == bracketed
        {
            return network(address, prefix);
        }
        if bracketed {
            return Err("a URL pattern: between brackets there is an IPv6 address");
        }
        if prefix.is_some() {
            return Err(
                "a URL pattern: it ends with the port, since all paths of a server are permitted or none",
            );
        }
        let read = |name| {
            canonical_name(name).ok_or(
                "a URL pattern: its host is an address, a name as DNS has it (xn--… if it is international), `*`, \
                 or `*.` and a name",
            )
        };
        match host.strip_prefix("*.") {
            _ if host == "*" => Ok(Self::All),
            Some(name) => Ok(Self::Below(read(name)?)),
            None => Ok(Self::Named(read(host)?)),
        }
    }

    fn have(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::All, _) => true,
            (Self::Named(name), Host::Name(host)) => name == host,
            (Self::Below(name), Host::Name(host)) => host
                .strip_suffix(name.as_str())
                .is_some_and(|before| before.len() > 1 && before.ends_with('.')),
            (Self::Network { address, prefix }, Host::Address(host)) => {
                address.is_ipv4() == host.is_ipv4() && masked(*host, *prefix) == *address
            }
            _ => false,
        }
    }
}

/// A network; one of IPv4 addresses as IPv6 writes them is one of IPv4.
fn network(address: IpAddr, prefix: Option<&str>) -> Result<Hosts, &'static str> {
    let all = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        None => all,
        Some(digits) => {
            let bits = digits.parse().ok().filter(|bits| *bits <= all && !digits.starts_with('+'));
            bits.ok_or("a URL pattern: after the slash there are the bits of a network, to 32 in IPv4, to 128 in IPv6")?
        }
    };
    let (address, prefix) = match address.to_canonical() {
        IpAddr::V4(of_ipv4) if address.is_ipv6() && prefix >= 96 => (IpAddr::V4(of_ipv4), prefix - 96),
        _ => (address, prefix),
    };
    if masked(address, prefix) != address {
        return Err("a URL pattern: the address of a network is its first one, such as 10.1.0.0/16");
    }
    Ok(Hosts::Network { address, prefix })
}

/// The address with all bits after `prefix` zero.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

/// The host, whether it was in brackets, and what follows.
fn split_host(text: &str) -> Result<(&str, bool, &str), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("a URL pattern: a bracket is not closed")?;
        return Ok((host, true, after));
    }
    let end = text.find([':', '/']).unwrap_or(text.len());
    Ok((&text[..end], false, &text[end..]))
}

/// Whether a scheme is `https`; `None` if it is neither that nor `http`.
pub(super) fn is_tls(scheme: &str) -> Option<bool> {
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Some(false),
        "https" => Some(true),
        _ => None,
    }
}

/// The port of a URL without one.
pub(super) const fn own_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

/// A port from 1 to 65535.
pub(super) fn read_port(digits: &str) -> Option<u16> {
    let is_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| is_digits && *port > 0)
}
