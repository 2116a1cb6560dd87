//! TLS connections for tests: both ends, with their secrets.

use super::keys::Secrets;
use super::protection::Protection;
use h2lab_wire::trace::Direction::{self, Down, Up};

pub(in crate::diagnose) const CLIENT: [u8; 32] = [0x11; 32];
pub(in crate::diagnose) const SERVER: [u8; 32] = [0x22; 32];
/// Types of records.
pub(in crate::diagnose) const HANDSHAKE: u8 = 22;
pub(in crate::diagnose) const APPLICATION: u8 = 23;

/// Both ends of a TLS connection.
pub(in crate::diagnose) struct Ends {
    suite: u16,
    pub is_tls13: bool,
    up: Protection,
    down: Protection,
}

impl Ends {
    pub fn new(suite: u16) -> Self {
        let is_tls13 = suite >> 8 == 0x13;
        let length = if suite == 0x1302 { 48 } else { 32 };
        let secrets = if is_tls13 {
            Secrets::Traffic { up: vec![0xa1; length], down: vec![0xb2; length] }
        } else {
            Secrets::Master(vec![0xc3; 48])
        };
        let end = |way| {
            if is_tls13 {
                Protection::tls13(&secrets, suite, way)
            } else {
                Protection::tls12(&secrets, suite, way, &CLIENT, &SERVER)
            }
        };
        Self { suite, is_tls13, up: end(Up).unwrap(), down: end(Down).unwrap() }
    }

    /// The lines of a key log with its secrets.
    pub fn key_log(&self) -> String {
        let client = hexadecimal(&CLIENT);
        if !self.is_tls13 {
            return format!("CLIENT_RANDOM {client} {}\n", "c3".repeat(48));
        }
        let length = if self.suite == 0x1302 { 48 } else { 32 };
        let (up, down) = ("a1".repeat(length), "b2".repeat(length));
        format!("CLIENT_TRAFFIC_SECRET_0 {client} {up}\nSERVER_TRAFFIC_SECRET_0 {client} {down}\n")
    }

    /// The server's next keys, after a `KeyUpdate`.
    pub fn update(&mut self) {
        self.down.update();
    }

    /// A protected record.
    pub fn seal(&mut self, way: Direction, kind: u8, bytes: &[u8]) -> Vec<u8> {
        let end = if way == Up { &mut self.up } else { &mut self.down };
        if self.is_tls13 { end.seal_13(kind, bytes) } else { end.seal_12(kind, bytes) }
    }
}

/// A record in clear.
pub(in crate::diagnose) fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat()
}

/// A hello: random, session, suite, and the extension for TLS 1.3.
pub(in crate::diagnose) fn hello_of(message: u8, random: [u8; 32], suite: u16, is_tls13: bool) -> Vec<u8> {
    let mut body = [&[message, 0, 0, 0, 3, 3][..], &random, &[0]].concat();
    body.extend(suite.to_be_bytes());
    body.extend([0, 0, if is_tls13 { 6 } else { 0 }]);
    if is_tls13 {
        body.extend([0, 43, 0, 2, 3, 4]);
    }
    record(HANDSHAKE, &body)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}
