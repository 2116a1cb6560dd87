//! Clients of a sidecar that its successor takes over: what the successor must know of each, and the encoding between
//! the two processes.
//!
//! The successor says in one line which connections it takes ([`takes`]). A process that reads no such line, or one of
//! a version that it does not know, closes its connections itself. Messages with sockets follow, each with as many
//! records ([`encode`]).

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::config::Transparent;

/// The most connections in one message: fewer than the kernel takes (`SCM_MAX_FD`, 253), so that little is in transit.
pub const MOST: usize = 64;
/// The most bytes of a request that has begun: with more, its connection is not handed over.
pub const MOST_BYTES: usize = 128 * 1024;
/// The word before the versions in a line.
const WORD: &str = "clients";
/// The version of records and messages that is written here.
const VERSION: &str = "1";

/// A listener, as far as both processes must agree for one to go on with the other's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    /// Where it listens.
    pub address: SocketAddr,
    /// It speaks TLS.
    pub tls: bool,
    /// Its connections begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// Its connections were made to other addresses.
    pub transparent: Option<Transparent>,
}

/// The original destination of a connection that was made to another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Original {
    /// To this address.
    At(SocketAddr),
    /// To the listener itself.
    Here(SocketAddr),
    /// This address, but the sidecar itself has made the connection: it would loop for ever.
    Ours(SocketAddr),
}

impl Original {
    /// That address.
    pub const fn address(self) -> SocketAddr {
        match self {
            Self::At(to) | Self::Here(to) | Self::Ours(to) => to,
        }
    }
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its protocol is not known yet.
    New,
    /// A header of the PROXY protocol must come first.
    HeaderDue,
    /// It speaks HTTP/1.1, and no request is under way.
    Http1,
}

/// A client's connection in clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Where its listener listens.
    pub listener: SocketAddr,
    /// The client's address: the connection's, or what a header of the PROXY protocol said.
    pub client: SocketAddr,
    /// How far it is.
    pub stage: Stage,
    /// At a transparent listener: its original destination. At another one: the destination that a header of the PROXY
    /// protocol has named, as [`Original::Here`].
    pub original: Option<Original>,
    /// Bytes that were written on it: the kernel counts what is acknowledged from its beginning.
    pub written: u64,
    /// What was read of it and not used, up to [`MOST_BYTES`]: the beginning of a request.
    pub bytes: Vec<u8>,
}

/// Why a message cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no records of connections that are handed over")]
pub struct Malformed;

/// The line, without its end, by which a successor says that it goes on with connections of these listeners:
/// `clients 1 127.0.0.1:80 [::1]:81/proxy 0.0.0.0:15001/redirect`.
pub fn takes(listeners: impl IntoIterator<Item = Listener>) -> String {
    let mut line = format!("{WORD} {VERSION}");
    for Listener { address, tls, proxy_protocol, transparent } in listeners {
        line.push(' ');
        line.push_str(&address.to_string());
        let words = [("tls", tls), ("proxy", proxy_protocol)];
        let words = words.into_iter().filter(|(_, is_so)| *is_so).map(|(word, _)| word);
        for word in words.chain(transparent.map(word)) {
            line.push('/');
            line.push_str(word);
        }
    }
    line
}

const fn word(transparent: Transparent) -> &'static str {
    match transparent {
        Transparent::Redirect => "redirect",
        Transparent::Tproxy => "tproxy",
    }
}

/// The listeners of such a line; `None` if it names no version that is written here. Listeners of an unknown kind are
/// left out.
pub fn taken(line: &str) -> Option<Vec<Listener>> {
    let mut words = line.split_ascii_whitespace();
    let is_known = words.next() == Some(WORD) && words.next()?.split(',').any(|version| version == VERSION);
    is_known.then(|| words.filter_map(listener).collect())
}

fn listener(text: &str) -> Option<Listener> {
    let mut words = text.split('/');
    let address = words.next()?.parse().ok()?;
    let mut listener = Listener { address, tls: false, proxy_protocol: false, transparent: None };
    for text in words {
        match text {
            "tls" => listener.tls = true,
            "proxy" => listener.proxy_protocol = true,
            "redirect" => listener.transparent = Some(Transparent::Redirect),
            "tproxy" => listener.transparent = Some(Transparent::Tproxy),
            _ => return None,
        }
    }
    Some(listener)
}

/// Records of these connections, one behind the other. Numbers are big-endian. Each has its stage (1 byte), its
/// listener and its client (addresses: 4 or 6, the octets, the port; with IPv6 the scope), its original destination (1
/// byte, and an address unless that is 0), the number of bytes that were written (8 bytes), and the length (4 bytes) of
/// what was read, which follows.
pub fn encode<'a>(clients: impl IntoIterator<Item = &'a Client>) -> Vec<u8> {
    let mut into = Vec::new();
    for Client { listener, client, stage, original, written, bytes } in clients {
        into.push(match stage {
            Stage::New => 0,
            Stage::HeaderDue => 1,
            Stage::Http1 => 2,
        });
        push_address(&mut into, listener);
        push_address(&mut into, client);
        let (kind, to) = match original {
            None => (0, None),
            Some(Original::At(to)) => (1, Some(to)),
            Some(Original::Here(to)) => (2, Some(to)),
            Some(Original::Ours(to)) => (3, Some(to)),
        };
        into.push(kind);
        if let Some(to) = to {
            push_address(&mut into, to);
        }
        into.extend(written.to_be_bytes());
        into.extend((bytes.len() as u32).to_be_bytes());
        into.extend(bytes);
    }
    into
}

fn push_address(into: &mut Vec<u8>, address: &SocketAddr) {
    match address {
        SocketAddr::V4(address) => {
            into.push(4);
            into.extend(address.ip().octets());
            into.extend(address.port().to_be_bytes());
        }
        SocketAddr::V6(address) => {
            into.push(6);
            into.extend(address.ip().octets());
            into.extend(address.port().to_be_bytes());
            into.extend(address.scope_id().to_be_bytes());
        }
    }
}

/// Reads what [`encode`] has written.
///
/// # Errors
/// If it is anything else, cut short, or of more than [`MOST`] connections.
pub fn decode(mut bytes: &[u8]) -> Result<Vec<Client>, Malformed> {
    let mut clients = Vec::new();
    while !bytes.is_empty() {
        let client = read_client(&mut bytes).ok_or(Malformed)?;
        clients.push(client);
        if clients.len() > MOST {
            return Err(Malformed);
        }
    }
    Ok(clients)
}

fn read_client(from: &mut &[u8]) -> Option<Client> {
    let stage = match read::<1>(from)? {
        [0] => Stage::New,
        [1] => Stage::HeaderDue,
        [2] => Stage::Http1,
        _ => return None,
    };
    let (listener, client) = (read_address(from)?, read_address(from)?);
    let original = match read::<1>(from)? {
        [0] => None,
        [1] => Some(Original::At(read_address(from)?)),
        [2] => Some(Original::Here(read_address(from)?)),
        [3] => Some(Original::Ours(read_address(from)?)),
        _ => return None,
    };
    let written = u64::from_be_bytes(read(from)?);
    let length = u32::from_be_bytes(read(from)?) as usize;
    let (bytes, rest) = from.split_at_checked(length).filter(|_| length <= MOST_BYTES)?;
    *from = rest;
    Some(Client { listener, client, stage, original, written, bytes: bytes.to_vec() })
}

fn read_address(from: &mut &[u8]) -> Option<SocketAddr> {
    match read::<1>(from)? {
        [4] => {
            let ip = IpAddr::from(read::<4>(from)?);
            Some(SocketAddr::new(ip, u16::from_be_bytes(read(from)?)))
        }
        [6] => {
            let ip = Ipv6Addr::from(read::<16>(from)?);
            let port = u16::from_be_bytes(read(from)?);
            Some(SocketAddrV6::new(ip, port, 0, u32::from_be_bytes(read(from)?)).into())
        }
        _ => None,
    }
}

fn read<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn clients() -> Vec<Client> {
        let first = Client {
            listener: at("127.0.0.1:15001"),
            client: at("10.1.2.3:40000"),
            stage: Stage::Http1,
            original: None,
            written: 1 << 40,
            bytes: b"POST / HT".to_vec(),
        };
        let second = Client {
            listener: at("[::]:80"),
            client: at("[fe80::1%7]:1"),
            stage: Stage::HeaderDue,
            original: Some(Original::At(at("192.0.2.1:443"))),
            written: 0,
            bytes: Vec::new(),
        };
        let here = Some(Original::Here(at("[::1]:9")));
        let third = Client { stage: Stage::New, original: here, ..first.clone() };
        let ours = Client { original: Some(Original::Ours(at("1.2.3.4:5"))), ..second.clone() };
        vec![first, second, third, ours]
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let clients = clients();
        assert_eq!(decode(&encode(&clients)), Ok(clients));
        assert_eq!(decode(&[]), Ok(Vec::new()));
    }

    #[test]
    fn what_is_cut_short_or_something_else_is_refused_whole() {
        let all = clients();
        let bytes = encode(&all);
        let ends: Vec<usize> = (0..=all.len()).map(|n| encode(&all[..n]).len()).collect();
        for n in 0..bytes.len() {
            assert_eq!(decode(&bytes[..n]).is_ok(), ends.contains(&n), "{n} bytes");
        }
        for wrong in [&[3][..], &[0, 5], b"GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(decode(wrong), Err(Malformed));
        }
        let long = Client { bytes: vec![0; MOST_BYTES + 1], ..all[0].clone() };
        assert_eq!(decode(&encode([&long])), Err(Malformed));
        let most = vec![all[0].clone(); MOST + 1];
        assert_eq!(decode(&encode(&most)), Err(Malformed));
        assert!(decode(&encode(&most[1..])).is_ok());
    }

    #[test]
    fn a_line_says_which_listeners_are_taken() {
        let plain =
            Listener { address: at("127.0.0.1:80"), tls: false, proxy_protocol: false, transparent: None };
        let listeners = [
            plain,
            Listener { address: at("[::1]:443"), tls: true, ..plain },
            Listener { proxy_protocol: true, transparent: Some(Transparent::Tproxy), ..plain },
            Listener { transparent: Some(Transparent::Redirect), ..plain },
        ];
        let line = takes(listeners);
        assert_eq!(
            line,
            "clients 1 127.0.0.1:80 [::1]:443/tls 127.0.0.1:80/proxy/tproxy 127.0.0.1:80/redirect"
        );
        assert_eq!(taken(&line), Some(listeners.to_vec()));
        assert_eq!(taken("clients 1"), Some(Vec::new()));
    }

    #[test]
    fn another_version_takes_nothing_and_kinds_that_are_not_known_are_left_out() {
        for line in ["", "clients", "clients 2 127.0.0.1:80", "clients 11", "others 1 127.0.0.1:80"] {
            assert_eq!(taken(line), None, "{line}");
        }
        let known = taken("clients 1,2 127.0.0.1:80 127.0.0.1:81/quic here 127.0.0.1:82/tls").unwrap();
        assert_eq!(known.iter().map(|listener| listener.address.port()).collect::<Vec<_>>(), [80, 82]);
    }
}
