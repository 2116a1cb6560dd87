//! Names that are resolved again and again: all addresses of one, or its service records.

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use h2lab_proxy::config::{Instance, Member, SrvName};
use h2lab_proxy::registry::srv::{self, Answer, SrvError};

use super::super::live::{Found, Resolved};
use super::super::names::LONG_LOOKUP_TIMEOUT;
use super::{FIRST_LIST_TIMEOUT, LONGEST_PAUSE, Source};

/// How long a name server may take, each time it is asked.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a name server is asked over UDP: packets get lost.
const ATTEMPTS: usize = 2;
/// Records with a shorter TTL are used for so long nevertheless.
const SHORTEST: Duration = Duration::from_secs(1);

/// The addresses of a name, by the system's resolver.
pub struct Addresses {
    member: Member,
    refresh: Duration,
}

impl Addresses {
    pub fn new(url: Instance, refresh: Duration) -> Self {
        Self { member: url.into(), refresh }
    }
}

impl Source for Addresses {
    fn look(&mut self) -> Result<Option<Found>, String> {
        let mut set = match Resolved::all(&self.member) {
            Ok(set) => set,
            Err(why) => return Ok(Some(Found::without(self.member.clone(), why))),
        };
        for at in &mut set {
            // Each has its own name in messages, and the certificate is still for the common one.
            at.member.url.host = at.address.ip().to_string();
        }
        set.sort_by_key(|at| at.address); // name servers shuffle them
        Ok(Some(Found { set, unresolved: Vec::new() }))
    }

    fn pause(&self) -> Duration {
        self.refresh
    }

    fn longest_pause(&self) -> Duration {
        self.refresh.min(LONGEST_PAUSE)
    }
}

/// Service records, by the name server of resolv.conf(5); their targets by the system's resolver.
pub struct Services {
    name: SrvName,
    refresh: Duration,
    /// The TTL of the last answer.
    ttl: Duration,
    /// How long addresses of targets are waited for.
    timeout: Duration,
}

impl Services {
    pub const fn new(name: SrvName, refresh: Duration) -> Self {
        Self { name, refresh, ttl: refresh, timeout: FIRST_LIST_TIMEOUT }
    }
}

impl Source for Services {
    fn look(&mut self) -> Result<Option<Found>, String> {
        let name = &self.name.name;
        let system = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let answer = match ask(&srv::name_servers(&system), name) {
            Ok(answer) => answer,
            Err(why) => {
                let name = Instance { speaks: self.name.speaks, host: name.clone(), port: 0 };
                return Ok(Some(Found::without(name.into(), why)));
            }
        };
        self.ttl = answer.ttl;
        let members = answer.records.into_iter().map(|record| {
            let url = Instance { speaks: self.name.speaks, host: record.target, port: record.port };
            // Records of weight 0 get little beside others (RFC 2782).
            Member { weight: record.weight.max(1).into(), priority: record.priority, ..url.into() }
        });
        let timeout = std::mem::replace(&mut self.timeout, LONG_LOOKUP_TIMEOUT);
        let mut found = Found::resolve(members.collect(), timeout);
        found.set.sort_by_cached_key(|at| at.member.url.to_string());
        Ok(Some(found))
    }

    fn pause(&self) -> Duration {
        self.refresh.min(self.ttl.max(SHORTEST))
    }

    fn longest_pause(&self) -> Duration {
        self.refresh.min(LONGEST_PAUSE)
    }
}

/// Asks the name servers, one after the other; the first that answers decides.
fn ask(servers: &[SocketAddr], name: &str) -> Result<Answer, String> {
    let mut why = "no name server is configured in /etc/resolv.conf".to_owned();
    for server in servers {
        match ask_one(*server, name) {
            Ok(answer) => return Ok(answer),
            Err(Failure::Answered(error)) => return Err(error.to_string()),
            Err(Failure::Unreached(error)) => {
                why = format!("no answer from name server {server}: {error}");
            }
        }
    }
    Err(why)
}

/// A number that nobody else can guess: the hash of nothing with a secret key.
fn random() -> u16 {
    RandomState::new().build_hasher().finish() as u16
}

enum Failure {
    /// The name server has answered, and there is nothing.
    Answered(SrvError),
    /// Another name server may answer.
    Unreached(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Unreached(match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

fn ask_one(server: SocketAddr, name: &str) -> Result<Answer, Failure> {
    let any = if server.is_ipv4() {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
    } else {
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
    };
    let mut last = Failure::Unreached(io::ErrorKind::TimedOut.into());
    for _ in 0..ATTEMPTS {
        // A port and a number that nobody else can guess (RFC 5452).
        let id = random();
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        socket.send(&srv::question(id, name))?;
        match receive(&socket, id, name) {
            Ok(answer) => return Ok(answer),
            Err(Failure::Answered(SrvError::Truncated)) => return ask_over_tcp(server, name),
            Err(Failure::Answered(SrvError::Refused(2 | 4 | 5))) => {
                last = Failure::Unreached(io::Error::other("it answered SERVFAIL, NOTIMP or REFUSED"));
            }
            Err(failure @ Failure::Answered(_)) => return Err(failure),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

/// Waits for the answer. Other datagrams are ignored, and do not extend the wait.
fn receive(socket: &UdpSocket, id: u16, name: &str) -> Result<Answer, Failure> {
    let until = Instant::now() + QUERY_TIMEOUT;
    let mut space = [0; 4_096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Unreached(io::ErrorKind::TimedOut.into()));
        }
        socket.set_read_timeout(Some(left))?;
        let n = socket.recv(&mut space)?;
        match srv::answer(id, name, &space[..n]) {
            Err(SrvError::Foreign) => {}
            result => return result.map_err(Failure::Answered),
        }
    }
}

fn ask_over_tcp(server: SocketAddr, name: &str) -> Result<Answer, Failure> {
    let id = random();
    let mut stream = TcpStream::connect_timeout(&server, QUERY_TIMEOUT)?;
    stream.set_read_timeout(Some(QUERY_TIMEOUT))?;
    stream.set_write_timeout(Some(QUERY_TIMEOUT))?;
    let question = srv::question(id, name);
    let length = (question.len() as u16).to_be_bytes();
    stream.write_all(&[&length[..], &question].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    srv::answer(id, name, &message).map_err(Failure::Answered)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const NAME: &str = "_http._tcp.a";

    /// A name server that answers one question. Over UDP it first sends something else, and then an answer with these
    /// flags and at most one record; over TCP it sends the whole answer.
    fn name_server(flags: u16) -> SocketAddr {
        let record = b"\xc0\x0c\x00\x21\x00\x01\x00\x00\x00\x05\x00\x09\x00\x00\x00\x01\x1f\x90\x01b\x00";
        let respond = move |question: &[u8], flags: u16| {
            let mut answer = question.to_vec();
            answer[2..4].copy_from_slice(&flags.to_be_bytes());
            answer[7] = 1;
            answer.extend(record);
            answer
        };
        // The port of one may be taken for the other.
        let (listener, address, socket) = loop {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            if let Ok(socket) = UdpSocket::bind(address) {
                break (listener, address, socket);
            }
        };
        thread::spawn(move || {
            let mut space = [0; 512];
            while let Ok((n, from)) = socket.recv_from(&mut space) {
                socket.send_to(b"noise", from).expect("it is sent");
                socket.send_to(&respond(&space[..n], flags), from).expect("it is sent");
            }
        });
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut space = [0; 512];
                stream.read_exact(&mut space[..2]).expect("a length");
                let n = usize::from(u16::from_be_bytes([space[0], space[1]]));
                stream.read_exact(&mut space[..n]).expect("a question");
                let answer = respond(&space[..n], 0x8180);
                stream.write_all(&(answer.len() as u16).to_be_bytes()).expect("it reads");
                stream.write_all(&answer).expect("it reads");
            }
        });
        address
    }

    #[test]
    fn service_records_come_over_udp_and_over_tcp_where_they_are_many() {
        for flags in [0x8180, 0x8380] {
            let answer = ask(&[name_server(flags)], NAME).expect("an answer");
            assert_eq!((answer.records[0].port, answer.records[0].target.as_str()), (8080, "b"));
            assert_eq!(answer.ttl, Duration::from_secs(5));
        }
    }

    #[test]
    fn what_the_first_name_server_says_counts_unless_it_fails() {
        let [none, fails, good] = [0x8183, 0x8182, 0x8180].map(name_server);
        assert!(ask(&[none, good], NAME).is_err_and(|why| why.contains("NXDOMAIN")));
        assert!(ask(&[fails, good], NAME).is_ok());
        assert!(ask(&[fails], NAME).is_err_and(|why| why.contains("no answer from")));
    }

    #[test]
    fn a_name_has_all_of_its_addresses() {
        let mut addresses = Addresses::new("h2c://localhost:8080".parse().expect("one"), SHORTEST);
        let Found { set, .. } = addresses.look().expect("it is known").expect("news");
        assert!(!set.is_empty());
        for at in set {
            assert_eq!((at.server_name.as_str(), at.member.url.port), ("localhost", 8080));
            assert_eq!(at.member.url.host, at.address.ip().to_string());
        }
    }
}
