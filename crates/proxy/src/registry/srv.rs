//! Service records of DNS (RFC 2782): a question and its answer (RFC 1035 §4), and who is asked (resolv.conf(5)).
//!
//! It has a parser of its own: one question and one type of record are 150 lines, and answers come from the network.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The type of service records (RFC 2782).
const SRV: u16 = 33;
/// The class of the Internet.
const IN: u16 = 1;
/// Type of an alias.
const CNAME: u16 = 5;
/// Bytes of a header.
const HEADER: usize = 12;
/// The most instances of a service: no message over TCP could hold more.
const MOST: usize = 4_096;

/// A service record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Lower ones are tried first.
    pub priority: u16,
    /// Its share among those of the same priority.
    pub weight: u16,
    /// Its port.
    pub port: u16,
    /// The name of its host.
    pub target: String,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// All records.
    pub records: Vec<Record>,
    /// How long they may be used: the shortest of theirs.
    pub ttl: Duration,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SrvError {
    /// It is not whole: ask over TCP.
    #[error("the answer is truncated")]
    Truncated,
    /// It answers another question, or none.
    #[error("the name server answered another query")]
    Foreign,
    /// The name server says no (RFC 1035 §4.1.1).
    #[error("the name server answered {}", code_name(*.0))]
    Refused(u8),
    /// Nobody offers this service.
    #[error("no such record")]
    None,
    /// It breaks off, or does not end.
    #[error("the name server's answer is malformed")]
    Malformed,
}

const fn code_name(code: u8) -> &'static str {
    match code {
        1 => "FORMERR (malformed query)",
        2 => "SERVFAIL (server failure)",
        3 => "NXDOMAIN (no such name)",
        4 => "NOTIMP (not supported)",
        5 => "REFUSED",
        _ => "an error",
    }
}

/// The question for the service records of `name`, whose labels have 1 to 63 bytes.
pub fn question(id: u16, name: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + name.len() + 6);
    message.extend(id.to_be_bytes());
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]); // recursion desired; one question
    for label in name.split('.') {
        let label = &label.as_bytes()[..label.len().min(63)];
        message.push(label.len() as u8);
        message.extend(label);
    }
    message.push(0);
    message.extend(SRV.to_be_bytes());
    message.extend(IN.to_be_bytes());
    message
}

/// The answer to [`question`]. A target `.` says that the service is not offered.
pub fn answer(id: u16, name: &str, message: &[u8]) -> Result<Answer, SrvError> {
    let mut reader = Reader { message, at: 0 };
    let mut header = [0; 6];
    for number in &mut header {
        *number = reader.number().map_err(|_| SrvError::Foreign)?;
    }
    let [answered, flags, questions, answers, ..] = header;
    if answered != id || flags & 0x8000 == 0 || questions != 1 {
        return Err(SrvError::Foreign);
    }
    if flags & 0xf != 0 {
        return Err(SrvError::Refused((flags & 0xf) as u8));
    }
    let asked = reader.name()?;
    if !asked.eq_ignore_ascii_case(name) || reader.number()? != SRV || reader.number()? != IN {
        return Err(SrvError::Foreign);
    }
    if flags & 0x200 != 0 {
        return Err(SrvError::Truncated);
    }
    let (mut records, mut ttl) = (Vec::new(), u32::MAX);
    for _ in 0..answers {
        reader.name()?;
        let (kind, class) = (reader.number()?, reader.number()?);
        let lives = u32::from(reader.number()?) << 16 | u32::from(reader.number()?);
        let length = usize::from(reader.number()?);
        let end = reader.at + length;
        if class == IN && kind == SRV && records.len() < MOST {
            let (priority, weight, port) = (reader.number()?, reader.number()?, reader.number()?);
            let target = reader.name()?;
            if !target.is_empty() && port > 0 {
                records.push(Record { priority, weight, port, target });
            }
        }
        if class == IN && (kind == SRV || kind == CNAME) {
            ttl = ttl.min(lives);
        }
        reader.at = end;
    }
    if records.is_empty() {
        return Err(SrvError::None);
    }
    Ok(Answer { records, ttl: Duration::from_secs(ttl.into()) })
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self) -> Result<u16, SrvError> {
        let bytes = self.message.get(self.at..).and_then(<[u8]>::first_chunk).ok_or(SrvError::Malformed)?;
        self.at += 2;
        Ok(u16::from_be_bytes(*bytes))
    }

    /// A name, whose rest may be elsewhere (compression, RFC 1035 §4.1.4). Pointers only go back, so that it ends.
    fn name(&mut self) -> Result<String, SrvError> {
        let mut name = String::new();
        let (mut at, mut after, mut before) = (self.at, None, self.at);
        loop {
            let length = usize::from(*self.message.get(at).ok_or(SrvError::Malformed)?);
            match length {
                0 => break,
                1..=63 => {
                    let label = self.message.get(at + 1..at + 1 + length).ok_or(SrvError::Malformed)?;
                    // Host names have only these characters; others would be resolved as something else.
                    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
                    if !label.iter().all(is_of_name) || name.len() + length > 253 {
                        return Err(SrvError::Malformed);
                    }
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.extend(label.iter().map(|byte| char::from(*byte)));
                    at += 1 + length;
                }
                0xc0.. => {
                    let low = usize::from(*self.message.get(at + 1).ok_or(SrvError::Malformed)?);
                    after.get_or_insert(at + 2);
                    at = (length & 0x3f) << 8 | low;
                    if at >= before {
                        return Err(SrvError::Malformed);
                    }
                    before = at;
                }
                _ => return Err(SrvError::Malformed),
            }
        }
        self.at = after.unwrap_or(at + 1);
        Ok(name)
    }
}

/// The name servers of a `resolv.conf(5)`: three at most, that of this machine if it names none.
pub fn name_servers(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        // Of a link-local address with its interface only the address is used: interfaces are not looked up here.
        let address = address.split('%').next()?;
        Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, 53))
    };
    let servers: Vec<SocketAddr> = text.lines().filter_map(server).take(3).collect();
    if servers.is_empty() { vec![SocketAddr::from(([127, 0, 0, 1], 53))] } else { servers }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME: &str = "_h2c._tcp.users.internal";

    /// An answer with these records; targets as they stand in the message.
    fn message(flags: u16, records: &[(u16, u16, u16, &[u8])]) -> Vec<u8> {
        let mut message = question(7, NAME);
        message[2..4].copy_from_slice(&flags.to_be_bytes());
        message[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        for (ttl, (priority, weight, port, target)) in (30_u16..).zip(records) {
            message.extend([0xc0, 12, 0, 33, 0, 1, 0, 0]);
            message.extend(ttl.to_be_bytes());
            message.extend((6 + target.len() as u16).to_be_bytes());
            message.extend([*priority, *weight, *port].iter().flat_map(|number| number.to_be_bytes()));
            message.extend(*target);
        }
        message
    }

    #[test]
    fn records_are_read() {
        // `b.users.internal`, the rest of which stands in the question: 12 + 5 + 5.
        let read =
            answer(7, NAME, &message(0x8180, &[(0, 5, 8080, b"\x01a\x00"), (1, 0, 81, b"\x01b\xc0\x16")]));
        let read = read.expect("an answer");
        assert_eq!(read.ttl, Duration::from_secs(30));
        let record = |priority, weight, port, target: &str| Record {
            priority,
            weight,
            port,
            target: target.to_owned(),
        };
        assert_eq!(read.records, [record(0, 5, 8080, "a"), record(1, 0, 81, "b.users.internal")]);
    }

    #[test]
    fn what_is_no_answer_is_none() {
        let good: (u16, u16, u16, &[u8]) = (0, 0, 1, b"\x01a\x00");
        let of =
            |flags, target: &[u8]| answer(7, NAME, &message(flags, &[(0, 0, 1, target)])).expect_err("none");
        assert_eq!(of(0x8380, b"\0"), SrvError::Truncated);
        assert_eq!(of(0x8183, b"\0"), SrvError::Refused(3));
        assert_eq!(of(0x0180, b"\0"), SrvError::Foreign, "a question");
        assert_eq!(of(0x8180, b"\0"), SrvError::None, "the target . offers nothing");
        assert_eq!(of(0x8180, b"\x01a"), SrvError::Malformed);
        assert_eq!(of(0x8180, b"\xc0\x40"), SrvError::Malformed, "a pointer to itself");
        assert_eq!(of(0x8180, b"\x01/\x00"), SrvError::Malformed, "no name of a host");
        assert_eq!(answer(7, NAME, b"noise"), Err(SrvError::Foreign));
        assert_eq!(answer(8, NAME, &message(0x8180, &[good])), Err(SrvError::Foreign));
        assert_eq!(answer(7, "_h2c._tcp.b", &message(0x8180, &[good])), Err(SrvError::Foreign));
        assert_eq!(answer(7, NAME, &message(0x8180, &[])), Err(SrvError::None));
    }

    #[test]
    fn name_servers_are_those_of_the_system() {
        let text = "# none\nsearch a\nnameserver 10.0.0.1\nnameserver fe80::1%eth0\nnameserver x\n nameserver 10.0.0.2 \nnameserver 1.1.1.1";
        let servers: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.0.0.1:53", "[fe80::1]:53", "10.0.0.2:53"]);
        assert_eq!(name_servers("")[0].to_string(), "127.0.0.1:53");
    }

    proptest! {
        #[test]
        fn anything_may_come(bytes: Vec<u8>, at in 0_usize..200, byte: u8) {
            let _ = answer(7, NAME, &bytes);
            let mut changed = message(0x8180, &[(0, 5, 8080, b"\x01a\x00"), (1, 0, 81, b"\x01b\xc0\x16")]);
            if let Some(place) = changed.get_mut(at) {
                *place = byte;
            }
            let _ = answer(7, NAME, &changed);
        }
    }
}
