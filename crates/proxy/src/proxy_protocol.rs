//! The header by which a proxy announces the client of a connection that it passes on, before the first byte of that:
//! PROXY protocol, versions 1 and 2 (`HAProxy`, `doc/proxy-protocol.txt`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

/// The first bytes of version 2 (§2.2).
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of version 1.
const WORD: &[u8] = b"PROXY ";
/// The longest line of version 1, with its end (§2.1).
const LONGEST_LINE: usize = 107;
/// Bytes of a header of version 2 that are read at most: 16 of it, the addresses of IPv6, and kilobytes of TLVs, which are skipped.
pub const LONGEST: usize = 16 + 4096;

/// A complete header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Its bytes: what follows is the client's.
    pub length: usize,
    /// The client's address, and the one that it has connected to. `None`: the connection is the proxy's own, such as a health check
    /// (`LOCAL`, `UNKNOWN`).
    pub ends: Option<(SocketAddr, SocketAddr)>,
}

/// Why what came is not a header. The connection cannot be used then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid PROXY protocol header: {0}")]
pub struct NoHeader(&'static str);

/// Reads a header from the front of `bytes`; `None` while it is incomplete.
///
/// # Errors
/// If no header begins like this. A port where the header is expected accepts nothing else: a client could otherwise
/// claim any address (§2).
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, NoHeader> {
    let begins = |with: &[u8]| {
        let known = bytes.len().min(with.len());
        bytes[..known] == with[..known]
    };
    if begins(SIGNATURE) {
        return if bytes.len() < 16 { Ok(None) } else { parse_2(bytes) };
    }
    if begins(WORD) {
        return parse_1(bytes);
    }
    Err(NoHeader("it begins with the signature of neither version"))
}

fn parse_1(bytes: &[u8]) -> Result<Option<Header>, NoHeader> {
    let Some(end) = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
        return if bytes.len() < LONGEST_LINE { Ok(None) } else { Err(NoHeader("its line does not end")) };
    };
    let wrong = NoHeader("its line is malformed");
    let line = bytes[..end].strip_suffix(b"\r").and_then(|line| str::from_utf8(line).ok()).ok_or(wrong)?;
    let mut words = line.split(' ').skip(1);
    let family = words.next().unwrap_or_default();
    let ends = match family {
        "UNKNOWN" => None, // whatever follows is ignored
        "TCP4" | "TCP6" => {
            let [from, to, port, to_port] =
                <[&str; 4]>::try_from(words.collect::<Vec<_>>()).map_err(|_| wrong)?;
            let address = |ip: &str, port: &str| {
                let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
                let ip: IpAddr = ip.parse().ok().filter(|ip: &IpAddr| ip.is_ipv4() == (family == "TCP4"))?;
                Some(SocketAddr::new(ip, port.parse().ok().filter(|_| is_number)?))
            };
            Some(address(from, port).zip(address(to, to_port)).ok_or(wrong)?)
        }
        _ => return Err(wrong),
    };
    Ok(Some(Header { length: end + 1, ends }))
}

/// At least 16 bytes have come.
fn parse_2(bytes: &[u8]) -> Result<Option<Header>, NoHeader> {
    let (version, family) = (bytes[12], bytes[13]);
    let rest = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    let length = 16 + rest;
    if version >> 4 != 2 || version & 0xf > 1 {
        return Err(NoHeader("its version or command is unknown"));
    }
    if length > LONGEST {
        return Err(NoHeader("it is longer than 4 KiB"));
    }
    let Some(addresses) = bytes.get(16..length) else { return Ok(None) };
    let ends = match (version & 0xf, family) {
        (0, _) => None, // LOCAL
        // TCP over IPv4 and IPv6.
        (_, 0x11) => Some(ends_of::<4>(addresses)?),
        (_, 0x21) => Some(ends_of::<16>(addresses)?),
        // Unspecified, UDP, Unix sockets: nothing that a field could name.
        _ => None,
    };
    Ok(Some(Header { length, ends }))
}

/// Two addresses of N bytes, and their ports (§2.2).
fn ends_of<const N: usize>(bytes: &[u8]) -> Result<(SocketAddr, SocketAddr), NoHeader>
where
    IpAddr: From<[u8; N]>,
{
    let mut rest = bytes;
    let short = NoHeader("its addresses are cut short");
    let from = take::<N>(&mut rest).ok_or(short)?;
    let to = take::<N>(&mut rest).ok_or(short)?;
    let mut port = || take::<2>(&mut rest).map(u16::from_be_bytes).ok_or(short);
    let ports = (port()?, port()?);
    Ok((SocketAddr::new(from.into(), ports.0), SocketAddr::new(to.into(), ports.1)))
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*bytes)
}

/// The header for a connection from `client` to `server`, in version 1 or 2. IPv4-mapped addresses, which a socket of
/// IPv6 reports, are written as IPv4; if the two are of different families, both are written as IPv6.
pub fn header(version: Version, client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (client, mut server) = (canonical(client), canonical(server));
    // A socket for all addresses may have that address of either family.
    if client.is_ipv4() && server.ip().is_unspecified() {
        server.set_ip(Ipv4Addr::UNSPECIFIED.into());
    }
    let is_v4 = client.is_ipv4() && server.is_ipv4();
    let mapped = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    match version {
        Version::V1 if is_v4 => {
            format!("PROXY TCP4 {} {} {} {}\r\n", client.ip(), server.ip(), client.port(), server.port())
                .into_bytes()
        }
        Version::V1 => {
            let (from, to) = (mapped(client.ip()), mapped(server.ip()));
            format!("PROXY TCP6 {from} {to} {} {}\r\n", client.port(), server.port()).into_bytes()
        }
        Version::V2 => {
            let addresses = match (client.ip(), server.ip()) {
                (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
                (from, to) => [mapped(from).octets(), mapped(to).octets()].concat(),
            };
            let length = (addresses.len() + 4) as u16;
            let kind = [0x21, if is_v4 { 0x11 } else { 0x21 }];
            let ports = [client.port().to_be_bytes(), server.port().to_be_bytes()].concat();
            [SIGNATURE, &kind, &length.to_be_bytes(), &addresses, &ports].concat()
        }
    }
}

/// The header of a connection of the sender's own, without a client: `UNKNOWN` (§2.1), `LOCAL` (§2.2).
pub fn own(version: Version) -> Vec<u8> {
    match version {
        Version::V1 => b"PROXY UNKNOWN\r\n".to_vec(),
        Version::V2 => [SIGNATURE, &[0x20, 0, 0, 0]].concat(),
    }
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One line of text.
    V1,
    /// Binary.
    V2,
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn client(bytes: &[u8]) -> Option<String> {
        parse(bytes).unwrap().unwrap().ends.map(|(client, _)| client.to_string())
    }

    #[test]
    fn the_examples_of_the_specification_are_read() {
        let line = b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET / HTTP/1.1\r\n";
        assert_eq!(client(line).as_deref(), Some("192.168.0.1:56324"));
        let ends = ("192.168.0.1:56324".parse().unwrap(), "192.168.0.11:443".parse().unwrap());
        assert_eq!(parse(line), Ok(Some(Header { length: 47, ends: Some(ends) })));
        assert_eq!(client(b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n").as_deref(), Some("[2001:db8::1]:1"));
        assert_eq!(client(b"PROXY UNKNOWN\r\n"), None);
        assert_eq!(client(b"PROXY UNKNOWN ffff::1 x y z\r\n"), None);
        let local = [SIGNATURE, b"\x20\x00\x00\x00"].concat();
        assert_eq!(parse(&local), Ok(Some(Header { length: 16, ends: None })));
        for version in [Version::V1, Version::V2] {
            let own = own(version);
            assert_eq!(parse(&own), Ok(Some(Header { length: own.len(), ends: None })));
        }
        let unix = [SIGNATURE, b"\x21\x31\x00\x02ab"].concat();
        assert_eq!(parse(&unix), Ok(Some(Header { length: 18, ends: None })));
    }

    #[test]
    fn a_client_of_ipv4_is_one_on_a_socket_of_ipv6_too() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let written =
            |client, server| String::from_utf8(header(Version::V1, at(client), at(server))).unwrap();
        for (client, server, line) in [
            ("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:2", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"),
            ("192.0.2.1:1", "[::]:2", "PROXY TCP4 192.0.2.1 0.0.0.0 1 2\r\n"),
            ("[2001:db8::1]:1", "[2001:db8::2]:2", "PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n"),
            ("192.0.2.1:1", "[2001:db8::2]:2", "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 1 2\r\n"),
        ] {
            assert_eq!(written(client, server), line);
            let binary = parse(&header(Version::V2, at(client), at(server))).unwrap().unwrap();
            assert_eq!(binary.ends.unwrap().0.is_ipv4(), line.contains("TCP4"), "{line}");
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let longest = format!("PROXY TCP4 {}", "1".repeat(LONGEST_LINE));
        for wrong in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 99999 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 99999\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
            b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            b"PROXX",
            longest.as_bytes(),
            &[SIGNATURE, b"\x11\x11\x00\x00"].concat(),
            &[SIGNATURE, b"\x22\x11\x00\x00"].concat(),
            &[SIGNATURE, b"\x21\x11\x00\x04abcd"].concat(),
            &[SIGNATURE, b"\x21\x21\x00\x0cabcdabcdabcd"].concat(),
            &[SIGNATURE, b"\x21\x11\xff\xff"].concat(),
        ] {
            assert!(parse(wrong).is_err(), "{:?}", String::from_utf8_lossy(wrong));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_however_it_is_cut(
            from: (u128, u16), to: (u128, u16), is_v4: bool, is_first: bool, tail: Vec<u8>
        ) {
            let address = |(ip, port): (u128, u16)| {
                // No IPv4-mapped address of IPv6.
                let of_ipv6 = Ipv6Addr::from(ip | 1 << 127);
                let ip: IpAddr = if is_v4 { Ipv4Addr::from(ip as u32).into() } else { of_ipv6.into() };
                SocketAddr::new(ip, port)
            };
            let version = if is_first { Version::V1 } else { Version::V2 };
            let header = header(version, address(from), address(to));
            for cut in 0..header.len() {
                prop_assert_eq!(parse(&header[..cut]), Ok(None));
            }
            let read = Header { length: header.len(), ends: Some((address(from), address(to))) };
            prop_assert_eq!(parse(&[header, tail].concat()), Ok(Some(read)));
        }

        #[test]
        fn no_input_panics(bytes: Vec<u8>, rest in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&bytes);
            let _ = parse(&[SIGNATURE, &rest].concat());
            let _ = parse(&[WORD, &rest].concat());
        }
    }
}
