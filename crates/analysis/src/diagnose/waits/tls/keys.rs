//! The key log and the key schedules.

use std::collections::BTreeMap;

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384};

use h2lab_wire::trace::Direction;

/// A hello's random; the client's identifies the connection in a key log.
pub(in super::super) type Random = [u8; 32];

/// The names of secrets in a key log (RFC 9850 §2) that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// TLS 1.3: for the client's application data.
    Client,
    /// TLS 1.3: for the server's.
    Server,
    /// TLS 1.3: for the client's encrypted handshake, which is read only in QUIC.
    ClientHandshake,
    /// TLS 1.3: for the server's.
    ServerHandshake,
    /// TLS 1.2: the master secret.
    Master,
}

impl Label {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "CLIENT_TRAFFIC_SECRET_0" => Some(Self::Client),
            "SERVER_TRAFFIC_SECRET_0" => Some(Self::Server),
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET" => Some(Self::ClientHandshake),
            "SERVER_HANDSHAKE_TRAFFIC_SECRET" => Some(Self::ServerHandshake),
            "CLIENT_RANDOM" => Some(Self::Master),
            _ => None,
        }
    }
}

/// Secrets of connections, by client random.
#[derive(Debug, Default)]
pub(in crate::diagnose) struct KeyLog {
    secrets: BTreeMap<(Random, Label), Vec<u8>>,
}

impl KeyLog {
    /// Reads the text of a key log; other lines are skipped.
    pub fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let label = Label::parse(words.next()?)?;
            let random = unhex(words.next()?)?.try_into().ok()?;
            Some(((random, label), unhex(words.next()?)?))
        };
        Self { secrets: text.lines().filter_map(line).collect() }
    }

    /// Adds the lines of another key log.
    pub fn add(&mut self, text: &str) {
        self.secrets.extend(Self::parse(text).secrets);
    }

    /// Whether it has no secrets at all.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    fn get(&self, random: &Random, label: Label) -> Option<Vec<u8>> {
        self.secrets.get(&(*random, label)).cloned()
    }
}

/// Decodes hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let octet = |&[high, low]: &[u8; 2]| Some((digit(high)? << 4 | digit(low)?) as u8);
    rest.is_empty().then(|| pairs.iter().map(octet).collect())?
}

/// The secrets of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Secrets {
    /// TLS 1.3: traffic secrets of both directions.
    Traffic {
        /// The client's.
        up: Vec<u8>,
        /// The server's.
        down: Vec<u8>,
    },
    /// TLS 1.2.
    Master(Vec<u8>),
}

impl Secrets {
    /// The secrets of the connection with this client random; `None` if the log does not have them.
    pub fn find(log: &KeyLog, client: &Random, is_tls13: bool) -> Option<Self> {
        if !is_tls13 {
            return log.get(client, Label::Master).map(Self::Master);
        }
        let (up, down) = log.get(client, Label::Client).zip(log.get(client, Label::Server))?;
        Some(Self::Traffic { up, down })
    }

    /// TLS 1.3: the secrets of its encrypted handshake.
    pub fn find_handshake(log: &KeyLog, client: &Random) -> Option<Self> {
        let (up, down) =
            log.get(client, Label::ClientHandshake).zip(log.get(client, Label::ServerHandshake))?;
        Some(Self::Traffic { up, down })
    }

    /// TLS 1.3: the traffic secret of a direction.
    pub fn traffic(&self, direction: Direction) -> Option<&[u8]> {
        match (self, direction) {
            (Self::Traffic { up, .. }, Direction::Up) => Some(up),
            (Self::Traffic { down, .. }, Direction::Down) => Some(down),
            (Self::Master(_), _) => None,
        }
    }
}

/// The hash of a cipher suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Hash {
    Sha256,
    Sha384,
}

impl Hash {
    /// Bytes of its output.
    pub const fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    /// HKDF-Expand-Label with an empty context (RFC 8446 §7.1); `None` if the secret is too short for the hash.
    pub fn expand_label(self, secret: &[u8], label: &str, length: usize) -> Option<Vec<u8>> {
        const PREFIX: &str = "tls13 ";
        let mut info = (length as u16).to_be_bytes().to_vec();
        info.push((PREFIX.len() + label.len()) as u8);
        info.extend_from_slice(PREFIX.as_bytes());
        info.extend_from_slice(label.as_bytes());
        info.push(0);
        let mut out = vec![0; length];
        match self {
            Self::Sha256 => Hkdf::<Sha256>::from_prk(secret).ok()?.expand(&info, &mut out).ok()?,
            Self::Sha384 => Hkdf::<Sha384>::from_prk(secret).ok()?.expand(&info, &mut out).ok()?,
        }
        Some(out)
    }

    /// The PRF of TLS 1.2 (RFC 5246 §5).
    pub fn prf(self, secret: &[u8], label: &str, seed: &[u8], length: usize) -> Vec<u8> {
        let seed = [label.as_bytes(), seed].concat();
        let mut out = Vec::new();
        let mut turn = self.hmac(secret, &[&seed]);
        while out.len() < length {
            out.extend(self.hmac(secret, &[&turn, &seed]));
            turn = self.hmac(secret, &[&turn]);
        }
        out.truncate(length);
        out
    }

    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        fn of<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
            let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
            for part in parts {
                mac.update(part);
            }
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Self::Sha256 => of::<Hmac<Sha256>>(key, parts),
            Self::Sha384 => of::<Hmac<Sha384>>(key, parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_log_is_read_line_by_line_and_the_rest_passed_over() {
        let random = "11".repeat(32);
        let log = KeyLog::parse(&format!(
            "# a comment\r\nCLIENT_TRAFFIC_SECRET_0 {random} aabb\r\nCLIENT_HANDSHAKE_TRAFFIC_SECRET {random} 00\n\
             CLIENT_RANDOM {random} 0\nSERVER_TRAFFIC_SECRET_0 {random} CCdd\nSERVER_TRAFFIC_SECRET_0 11 ee\n"
        ));
        let secrets = Secrets::find(&log, &[0x11; 32], true).unwrap();
        assert_eq!(secrets.traffic(Direction::Up), Some(&[0xaa, 0xbb][..]));
        assert_eq!(secrets.traffic(Direction::Down), Some(&[0xcc, 0xdd][..]));
        assert_eq!(Secrets::find(&log, &[0x11; 32], false), None, "the digits of the master secret were odd");
        assert_eq!(Secrets::find(&log, &[0x12; 32], true), None);
    }

    /// RFC 8448 §3: the server's write key and IV from its handshake traffic secret.
    #[test]
    fn labels_expand_as_in_the_traces_of_rfc_8448() {
        let secret = unhex("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38").unwrap();
        let key = Hash::Sha256.expand_label(&secret, "key", 16).unwrap();
        let iv = Hash::Sha256.expand_label(&secret, "iv", 12).unwrap();
        assert_eq!(key, unhex("3fce516009c21727d0f2e4e86ee403bc").unwrap());
        assert_eq!(iv, unhex("5d313eb2671276ee13000b30").unwrap());
        assert_eq!(Hash::Sha384.expand_label(&secret, "key", 16), None, "too short for the hash");
    }
}
