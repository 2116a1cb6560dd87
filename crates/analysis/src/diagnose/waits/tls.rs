//! TLS read with a key log: from records of TLS 1.3 (RFC 8446 §5) and of the AEAD suites of TLS 1.2 (RFC 5246 §6.2.3.3,
//! RFC 5288, RFC 7905) to the bytes in them, each with its place in the TCP stream.

pub(super) mod keys;
pub(super) mod protection;
#[cfg(test)]
pub(in crate::diagnose) mod testing;

use std::ops::Range;

pub(in crate::diagnose) use keys::KeyLog;
use keys::{Random, Secrets};
use protection::{HEADER, Header, Protection};

use h2lab_wire::trace::Direction;

/// A record's longest body: 2^14 and what protection may add (RFC 5246 §6.2.3).
const LONGEST: usize = (1 << 14) + 2048;

/// Types of content (RFC 8446 §5.1).
mod content {
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    pub const HANDSHAKE: u8 = 22;
    pub const APPLICATION_DATA: u8 = 23;
}

/// Types of handshake messages (RFC 8446 §4).
mod message {
    pub const CLIENT_HELLO: u8 = 1;
    pub const SERVER_HELLO: u8 = 2;
    pub const KEY_UPDATE: u8 = 24;
}

/// The most records of the encrypted handshake of TLS 1.3: those of the server, and those of the client (RFC 8446 §2).
const SERVERS_FLIGHT: u32 = 5;
const CLIENTS_FLIGHT: u32 = 3;

/// Why a connection cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::diagnose) enum Opaque {
    /// The key log has no secret for it, or its cipher suite is not supported here.
    NoKeys,
    /// Its bytes are not TLS, or do not decrypt.
    Garbled,
}

/// One TLS connection, both directions.
#[derive(Debug, Default)]
pub(in crate::diagnose) struct Tls {
    client_random: Option<Random>,
    server: Option<ServerHello>,
    secrets: Option<Secrets>,
    up: Half,
    down: Half,
    opaque: Option<Opaque>,
    /// A secret has decrypted a record.
    has_opened: bool,
}

/// One direction.
#[derive(Debug, Default)]
struct Half {
    /// The record in progress.
    pending: Vec<u8>,
    /// The place of its first byte in the TCP stream.
    start: u64,
    protection: Option<Protection>,
    /// TLS 1.2: everything from here on is protected. TLS 1.3: a record of application data has been read.
    is_protected: bool,
    /// TLS 1.3: records that the application's key did not decrypt, before the first that it did.
    unopened: u32,
}

/// The parts of the server's hello that determine the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerHello {
    random: Random,
    pub suite: u16,
    is_tls13: bool,
    /// TLS 1.3: it resumes a session (RFC 8446 §4.2.11).
    is_resumed: bool,
}

impl Tls {
    /// Whether its handshake resumed a session; `None` if that is not known, as in TLS 1.2.
    pub fn is_resumed(&self) -> Option<bool> {
        self.server.filter(|server| server.is_tls13).map(|server| server.is_resumed)
    }

    /// Whether bytes that begin a connection begin TLS: a handshake record of some version 3.x.
    pub fn begins_with(bytes: &[u8]) -> bool {
        matches!(bytes, [content::HANDSHAKE, 3, ..])
    }

    /// Why the connection cannot be read, if it cannot.
    pub const fn opaque(&self) -> Option<Opaque> {
        self.opaque
    }

    /// Whether there are secrets for it that decrypt nothing: they belong to something else.
    pub const fn has_wrong_secrets(&self) -> bool {
        let is_beyond_handshake = self.up.unopened > CLIENTS_FLIGHT || self.down.unopened > SERVERS_FLIGHT;
        self.secrets.is_some() && !self.has_opened && (is_beyond_handshake || self.opaque.is_some())
    }

    /// Processes the next bytes of a direction; the first of them is at this place. `sink` gets the contents of each
    /// record of application data, and the places of the whole record, which must have arrived before any of it can be
    /// read.
    pub fn feed(
        &mut self,
        direction: Direction,
        start: u64,
        bytes: &[u8],
        log: &KeyLog,
        sink: &mut impl FnMut(Range<u64>, &[u8]),
    ) {
        if self.opaque.is_some() {
            return;
        }
        let half = self.half(direction);
        if half.pending.is_empty() {
            half.start = start;
        }
        let mut pending = std::mem::take(&mut half.pending);
        pending.extend_from_slice(bytes);
        let (mut place, mut rest) = (half.start, pending.as_slice());
        while let Some((record, behind)) = split_record(rest) {
            let Some((&header, body)) = record.split_first_chunk::<HEADER>() else { break };
            if body.len() > LONGEST {
                self.opaque = Some(Opaque::Garbled);
                return;
            }
            let places = place..place + record.len() as u64;
            if let Err(opaque) =
                self.record(direction, header, body, log, &mut |bytes| sink(places.clone(), bytes))
            {
                self.opaque = Some(opaque);
                return;
            }
            (place, rest) = (places.end, behind);
        }
        let read = pending.len() - rest.len();
        pending.drain(..read);
        let half = self.half(direction);
        (half.pending, half.start) = (pending, place);
    }

    const fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    fn record(
        &mut self,
        direction: Direction,
        header: Header,
        body: &[u8],
        log: &KeyLog,
        sink: &mut impl FnMut(&[u8]),
    ) -> Result<(), Opaque> {
        let is_protected = self.half(direction).is_protected;
        match header[0] {
            content::CHANGE_CIPHER_SPEC if self.is_tls12() => self.begin_protection(direction, log),
            // TLS 1.3 sends it only for middleboxes; it has no meaning.
            content::CHANGE_CIPHER_SPEC => Ok(()),
            content::HANDSHAKE if !is_protected => {
                self.hello(body);
                Ok(())
            }
            content::APPLICATION_DATA if !self.is_tls12() => {
                self.protected_13(direction, header, body, log, sink)
            }
            _ if is_protected => self.protected_12(direction, header, body, sink),
            content::APPLICATION_DATA => Err(Opaque::Garbled),
            // An alert in clear.
            _ => Ok(()),
        }
    }

    fn is_tls12(&self) -> bool {
        self.server.is_some_and(|server| !server.is_tls13)
    }

    /// Extracts the inputs of the keys from a record that begins with a hello.
    fn hello(&mut self, body: &[u8]) {
        match body.first() {
            Some(&message::CLIENT_HELLO) => self.client_random = random_of(body),
            Some(&message::SERVER_HELLO) => self.server = server_hello(body).or(self.server),
            _ => {}
        }
    }

    fn secrets(&mut self, log: &KeyLog) -> Result<Secrets, Opaque> {
        if let Some(secrets) = &self.secrets {
            return Ok(secrets.clone());
        }
        let (client, server) = self.client_random.zip(self.server).ok_or(Opaque::Garbled)?;
        let secrets = Secrets::find(log, &client, server.is_tls13).ok_or(Opaque::NoKeys)?;
        self.secrets = Some(secrets.clone());
        Ok(secrets)
    }

    /// TLS 1.2: the direction's records are protected from here on.
    fn begin_protection(&mut self, direction: Direction, log: &KeyLog) -> Result<(), Opaque> {
        let secrets = self.secrets(log)?;
        let (client, server) = self.client_random.zip(self.server).ok_or(Opaque::Garbled)?;
        let protection = Protection::tls12(&secrets, server.suite, direction, &client, &server.random);
        let half = self.half(direction);
        half.protection = Some(protection.ok_or(Opaque::NoKeys)?);
        half.is_protected = true;
        Ok(())
    }

    fn protected_12(
        &mut self,
        direction: Direction,
        header: Header,
        body: &[u8],
        sink: &mut impl FnMut(&[u8]),
    ) -> Result<(), Opaque> {
        let protection = self.half(direction).protection.as_mut().ok_or(Opaque::Garbled)?;
        let opened = protection.open_12(header, body).ok_or(Opaque::Garbled)?;
        self.has_opened = true;
        if header[0] == content::APPLICATION_DATA {
            sink(&opened);
        }
        Ok(())
    }

    /// TLS 1.3: the first records that look like application data are the encrypted part of the handshake, with other
    /// keys (RFC 8446 §5.2). They are skipped: the first record that the application's key decrypts belongs to the
    /// application.
    fn protected_13(
        &mut self,
        direction: Direction,
        header: Header,
        body: &[u8],
        log: &KeyLog,
        sink: &mut impl FnMut(&[u8]),
    ) -> Result<(), Opaque> {
        if self.half(direction).protection.is_none() {
            let secrets = self.secrets(log)?;
            let suite = self.server.ok_or(Opaque::Garbled)?.suite;
            let protection = Protection::tls13(&secrets, suite, direction).ok_or(Opaque::NoKeys)?;
            self.half(direction).protection = Some(protection);
        }
        let half = self.half(direction);
        let protection = half.protection.as_mut().ok_or(Opaque::Garbled)?;
        let Some(opened) = protection.open_13(header, body) else {
            half.unopened += u32::from(!half.is_protected);
            return if half.is_protected { Err(Opaque::Garbled) } else { Ok(()) };
        };
        half.is_protected = true;
        match inner_13(&opened) {
            Some((content::APPLICATION_DATA, bytes)) => sink(bytes),
            Some((content::HANDSHAKE, messages)) if has_key_update(messages) => protection.update(),
            _ => {}
        }
        self.has_opened = true;
        Ok(())
    }
}

/// The first record of `bytes`, and what follows it; `None` if it is incomplete. A body of impossible length is cut
/// where its length becomes impossible.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(u16::from_be_bytes([*bytes.get(3)?, *bytes.get(4)?]));
    bytes.split_at_checked(HEADER + length).or_else(|| (length > LONGEST).then_some((bytes, &[])))
}

/// The contents and type of a protected record of TLS 1.3; the type is the last octet that is not zero (RFC 8446 §5.4).
fn inner_13(opened: &[u8]) -> Option<(u8, &[u8])> {
    let last = opened.iter().rposition(|byte| *byte != 0)?;
    Some((opened[last], &opened[..last]))
}

/// Whether there is a `KeyUpdate` among these messages; after it the next record has another key (RFC 8446 §4.6.3).
fn has_key_update(mut messages: &[u8]) -> bool {
    while let [kind, a, b, c, rest @ ..] = messages {
        if *kind == message::KEY_UPDATE {
            return true;
        }
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        messages = rest.get(length..).unwrap_or_default();
    }
    false
}

/// The random of a hello: after type, length and version (RFC 8446 §4.1.2).
pub(super) fn random_of(hello: &[u8]) -> Option<Random> {
    hello.get(6..38)?.try_into().ok()
}

/// The server's hello; `None` for a `HelloRetryRequest`, which has the same format.
pub(super) fn server_hello(hello: &[u8]) -> Option<ServerHello> {
    const PRE_SHARED_KEY: u16 = 41;
    const SUPPORTED_VERSIONS: u16 = 43;
    /// SHA-256 of `HelloRetryRequest` (RFC 8446 §4.1.3) begins like this.
    const RETRY: [u8; 4] = [0xcf, 0x21, 0xad, 0x74];
    let random = random_of(hello)?;
    if random.starts_with(&RETRY) {
        return None;
    }
    let session = 39 + usize::from(*hello.get(38)?);
    let suite = be16(hello, session)?;
    let mut extensions = hello.get(session + 5..).unwrap_or_default();
    let (mut is_tls13, mut is_resumed) = (false, false);
    while let Some((kind, length)) = be16(extensions, 0).zip(be16(extensions, 2)) {
        is_resumed |= kind == PRE_SHARED_KEY;
        is_tls13 |= kind == SUPPORTED_VERSIONS && be16(extensions, 4) == Some(0x0304);
        extensions = extensions.get(4 + usize::from(length)..).unwrap_or_default();
    }
    Some(ServerHello { random, suite, is_tls13, is_resumed })
}

pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
