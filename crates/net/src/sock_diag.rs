//! TCP connections of a network namespace as the kernel sees them, whichever process owns their sockets (`sock_diag`(7)).
//!
//! `TCP_INFO` of our own sockets does not count what the other end retransmitted. In a lab the other end is in a namespace of
//! ours, and there the kernel reports every connection, whatever program the server is and without its help.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use h2lab_base::counters::TcpSummary;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::tcp_info::TcpInfo;

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO` of `linux/inet_diag.h`: a `struct tcp_info`.
const INET_DIAG_INFO: u16 = 2;
/// `INET_DIAG_CONG`: the name of the congestion control, a C string.
const INET_DIAG_CONG: u16 = 4;
/// Bit n is state n of `enum tcp_state`: ESTABLISHED, both FIN-WAITs, CLOSE-WAIT, LAST-ACK, CLOSING. The others have no counters.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Bytes of `struct inet_diag_msg`.
const MESSAGE: usize = 72;
/// Messages and attributes are aligned to this many bytes.
const ALIGNMENT: usize = 4;

/// One connection, from the end whose socket is in the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagSocket {
    /// The address of the end in the namespace.
    pub local: SocketAddr,
    /// The address of the other end.
    pub remote: SocketAddr,
    /// Its `TCP_INFO`.
    pub info: TcpInfo,
    /// Its congestion control.
    pub congestion: String,
}

impl DiagSocket {
    /// As the record has it.
    pub fn summary(&self) -> TcpSummary {
        self.info.summary(self.congestion.clone())
    }
}

/// A netlink socket that queries the network namespace in which it was opened, wherever it is used later. Needs no privilege,
/// neither outside nor in a user namespace.
#[derive(Debug)]
pub struct SockDiag {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl SockDiag {
    /// What the kernel puts into one answer at most.
    const BUFFER: usize = 64 * 1024;

    /// Opens it in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
        Ok(Self { socket, buffer: vec![0; Self::BUFFER] })
    }

    /// All TCP connections that are established, or were and are being closed. Costs the kernel a walk over its table of
    /// connections, half a millisecond on a large machine: do not call it per request.
    pub fn established(&mut self) -> io::Result<Vec<DiagSocket>> {
        let mut found = Vec::new();
        self.dump(libc::AF_INET, &mut found)?;
        match self.dump(libc::AF_INET6, &mut found) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(found), // a kernel without IPv6
            result => result.map(|()| found),
        }
    }

    /// Asks for the connections of one family and takes the answers in.
    fn dump(&mut self, family: i32, found: &mut Vec<DiagSocket>) -> io::Result<()> {
        send(&self.socket, &request(family), SendFlags::empty())?;
        loop {
            let (length, _) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty())?;
            for message in Messages(&self.buffer[..length.min(Self::BUFFER)]) {
                match i32::from(message.kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return Err(error_of(message.body)),
                    _ => found.extend(parse(message.body)),
                }
            }
        }
    }
}

/// A `nlmsghdr` and a `struct inet_diag_req_v2` that ask for all of a family.
fn request(family: i32) -> [u8; HEADER + REQUEST] {
    let mut bytes = [0; HEADER + REQUEST];
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    bytes[0..4].copy_from_slice(&((HEADER + REQUEST) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes[HEADER] = family as u8;
    bytes[HEADER + 1] = libc::IPPROTO_TCP as u8;
    bytes[HEADER + 2] = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
    bytes[HEADER + 4..HEADER + 8].copy_from_slice(&STATES.to_ne_bytes());
    bytes
}

/// One netlink message.
struct Message<'a> {
    kind: u16,
    body: &'a [u8],
}

/// The messages of one datagram; ends at the first that does not fit.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = u32_at(self.0, 0)? as usize;
        let message = Message { kind: u16_at(self.0, 4)?, body: self.0.get(HEADER..length)? };
        self.0 = self.0.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(message)
    }
}

/// The attributes of a message; ends at the first that does not fit.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let attribute = (u16_at(self.0, 2)?, self.0.get(4..length)?);
        self.0 = self.0.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(attribute)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The error of an `NLMSG_ERROR` message: minus errno.
fn error_of(body: &[u8]) -> io::Error {
    let number = u32_at(body, 0).map_or(libc::EBADMSG, |number| number.cast_signed().saturating_neg());
    io::Error::from_raw_os_error(number)
}

/// Reads a `struct inet_diag_msg` and its attributes; `None` without a `tcp_info`.
fn parse(body: &[u8]) -> Option<DiagSocket> {
    let family = i32::from(*body.first()?);
    // `struct inet_diag_sockid` begins at 4: both ports, then both addresses of 16 bytes, all in network byte order.
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let local = SocketAddr::new(address(family, body.get(8..24)?)?, port(4)?);
    let remote = SocketAddr::new(address(family, body.get(24..40)?)?, port(6)?);
    let (mut info, mut congestion) = (None, String::new());
    for (kind, value) in Attributes(body.get(MESSAGE..)?) {
        match kind {
            INET_DIAG_INFO => info = Some(TcpInfo::from_bytes(value)),
            INET_DIAG_CONG => {
                let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
                congestion = String::from_utf8_lossy(&value[..end]).into_owned();
            }
            _ => {}
        }
    }
    Some(DiagSocket { local, remote, info: info?, congestion })
}

/// An address of 16 bytes, of which IPv4 uses the first four. An IPv4-mapped address becomes IPv4.
fn address(family: i32, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        libc::AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[..4]).ok()?).into()),
        libc::AF_INET6 => {
            Some(IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Both ends of a connection to `listening` over which a byte has gone and come back.
    fn pair(listening: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listening).unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut byte = [0];
        for (from, to) in [(0, 1), (1, 0)] {
            let ends = [&mut client, &mut server];
            ends[from].write_all(b"x").unwrap();
            ends[to].read_exact(&mut byte).unwrap();
        }
        (client, server)
    }

    #[test]
    fn both_ends_of_a_connection_on_loopback_are_seen_with_their_figures() {
        let (client, server) = pair("127.0.0.1:0");
        let (client, server) = (client.local_addr().unwrap(), server.local_addr().unwrap());
        let sockets = SockDiag::open().unwrap().established().unwrap();
        for (local, remote) in [(client, server), (server, client)] {
            let one = sockets.iter().find(|socket| (socket.local, socket.remote) == (local, remote)).unwrap();
            assert_eq!((one.info.segments_out, one.info.segments_in, one.info.retransmits), (1, 1, 0));
            assert!(one.info.rtt_us > 0 && one.info.min_rtt_us > 0 && one.info.cwnd >= 2, "{one:?}");
            assert!(!one.congestion.is_empty());
        }
    }

    #[test]
    fn an_ipv4_peer_of_an_ipv6_socket_is_shown_as_ipv4() {
        let (client, server) = pair("[::]:0");
        let remote = client.local_addr().unwrap();
        let port = server.local_addr().unwrap().port();
        let sockets = SockDiag::open().unwrap().established().unwrap();
        assert!(sockets.iter().any(|socket| socket.remote == remote && socket.local.port() == port));
    }

    #[test]
    fn a_listening_socket_is_no_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let sockets = SockDiag::open().unwrap().established().unwrap();
        assert!(sockets.iter().all(|socket| socket.local != local));
    }

    #[test]
    fn more_connections_than_one_answer_holds_are_all_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ends: Vec<_> =
            (0..300).map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap())).collect();
        let sockets = SockDiag::open().unwrap().established().unwrap();
        assert_eq!(sockets.iter().filter(|socket| socket.local == address).count(), ends.len());
    }

    #[test]
    fn an_answer_cut_anywhere_is_no_panic() {
        let mut bytes = request(libc::AF_INET).to_vec();
        bytes.resize(HEADER + MESSAGE + 4, 0);
        let length = bytes.len() as u32;
        bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        bytes[HEADER + MESSAGE..][..4].copy_from_slice(&[0xff, 0xff, 2, 0]); // longer than what there is
        for cut in 0..=bytes.len() {
            assert!(Messages(&bytes[..cut]).find_map(|message| parse(message.body)).is_none());
        }
        let zero = Messages(&[0; 64]).count(); // a length of 0 must not repeat for ever
        assert_eq!(zero, 0);
    }
}
