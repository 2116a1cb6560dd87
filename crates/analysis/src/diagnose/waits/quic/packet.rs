//! Decryption of QUIC packets (RFC 9000 §17): headers, header protection and packet protection (RFC 9001 §5).

use hkdf::Hkdf;
use sha2::Sha256;

use crate::diagnose::waits::tls::keys::Hash;
use crate::diagnose::waits::tls::protection::{Cipher, NONCE, SAMPLE, suite};
use h2lab_wire::h3::inspect::integer;
use h2lab_wire::trace::Direction;

/// `TLS_AES_128_GCM_SHA256`, the suite of Initial packets (RFC 9001 §5.2).
const INITIAL_SUITE: u16 = 0x1301;
/// The salt from which their secrets are derived (RFC 9001 §5.2).
const INITIAL_SALT: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc,
    0xbb, 0x7f, 0x0a,
];
/// Version 1 (RFC 9000 §15).
const VERSION: [u8; 4] = [0, 0, 0, 1];
/// The longest connection id (RFC 9000 §17.2).
const LONGEST_ID: usize = 20;
/// Bits of the first byte.
const LONG: u8 = 0x80;
const KEY_PHASE: u8 = 0x04;

/// The keys with which a packet is protected. 0-RTT is not read: our ends do not send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Initial,
    Handshake,
    /// 1-RTT packets, those with a short header.
    Application,
}

/// A packet in a datagram, not yet decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    Protected(Protected<'a>),
    /// The server requests another Initial, to this connection id (RFC 9000 §17.2.5).
    Retry {
        server_id: &'a [u8],
    },
    /// Another version, 0-RTT, or not QUIC.
    Other,
}

/// A protected packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protected<'a> {
    pub level: Level,
    /// The connection id of its receiver.
    pub to: &'a [u8],
    /// That of its sender; empty in short headers.
    pub from: &'a [u8],
    bytes: &'a [u8],
    /// The offset of the packet number.
    number_at: usize,
}

/// Takes the next packet from a datagram (RFC 9000 §12.2); connection ids of short headers have `id_length` bytes.
pub(super) fn next<'a>(datagram: &mut &'a [u8], id_length: usize) -> Option<Packet<'a>> {
    let bytes = std::mem::take(datagram);
    let first = *bytes.first()?;
    if first & LONG == 0 {
        let number_at = 1 + id_length;
        let to = bytes.get(1..number_at)?;
        return Some(Packet::Protected(Protected {
            level: Level::Application,
            to,
            from: &[],
            bytes,
            number_at,
        }));
    }
    let (to, rest) = id(bytes.get(5..)?)?;
    let (from, rest) = id(rest)?;
    if bytes.get(1..5)? != VERSION {
        return Some(Packet::Other);
    }
    let (level, rest) = match (first >> 4) & 3 {
        0 => {
            let (length, rest) = integer(rest)?;
            (Some(Level::Initial), rest.get(usize::try_from(length).ok()?..)?)
        }
        2 => (Some(Level::Handshake), rest),
        3 => return Some(Packet::Retry { server_id: from }),
        _ => (None, rest),
    };
    let (length, rest) = integer(rest)?;
    let number_at = bytes.len() - rest.len();
    let end = number_at.checked_add(usize::try_from(length).ok()?)?;
    let (bytes, behind) = bytes.split_at_checked(end)?;
    *datagram = behind;
    Some(
        level.map_or(Packet::Other, |level| {
            Packet::Protected(Protected { level, to, from, bytes, number_at })
        }),
    )
}

/// The connection id to which a datagram's first packet is sent, if that is an Initial.
pub(super) fn initial_to(mut datagram: &[u8]) -> Option<&[u8]> {
    match next(&mut datagram, 0)? {
        Packet::Protected(packet) if packet.level == Level::Initial => Some(packet.to),
        _ => None,
    }
}

/// A connection id that is preceded by its length, and what follows it.
fn id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let length = usize::from(*length);
    if length > LONGEST_ID { None } else { rest.split_at_checked(length) }
}

/// The keys of one direction at one level (RFC 9001 §5.1).
#[derive(Debug, Clone)]
pub(super) struct Keys {
    cipher: Cipher,
    hash: Hash,
    secret: Vec<u8>,
    key: Vec<u8>,
    iv: [u8; NONCE],
    header_key: Vec<u8>,
    /// The key phase bit of packets under them.
    phase: bool,
}

impl Keys {
    /// From a secret and a cipher suite; `None` if the suite is not supported here, or the secret does not belong to
    /// it.
    pub fn new(number: u16, secret: &[u8]) -> Option<Self> {
        let (cipher, hash) = suite(number)?;
        if secret.len() != hash.length() {
            return None;
        }
        let header_key = hash.expand_label(secret, "quic hp", cipher.key_length())?;
        Self { cipher, hash, secret: Vec::new(), key: Vec::new(), iv: [0; NONCE], header_key, phase: false }
            .with(secret.to_vec())
    }

    /// The keys of Initial packets, from the connection id to which the client sent its first packet (RFC 9001 §5.2).
    pub fn initial(client_chose: &[u8], direction: Direction) -> Option<Self> {
        let (secret, _) = Hkdf::<Sha256>::extract(Some(&INITIAL_SALT), client_chose);
        let label = if direction == Direction::Up { "client in" } else { "server in" };
        let hash = Hash::Sha256;
        Self::new(INITIAL_SUITE, &hash.expand_label(&secret, label, hash.length())?)
    }

    /// The same cipher and header protection with the key of another secret.
    fn with(&self, secret: Vec<u8>) -> Option<Self> {
        let key = self.hash.expand_label(&secret, "quic key", self.cipher.key_length())?;
        let iv = self.hash.expand_label(&secret, "quic iv", NONCE)?.try_into().ok()?;
        Some(Self { secret, key, iv, ..self.clone() })
    }

    /// The next generation (RFC 9001 §6.1).
    fn next(&self) -> Option<Self> {
        let secret = self.hash.expand_label(&self.secret, "quic ku", self.hash.length())?;
        let mut next = self.with(secret)?;
        next.phase = !self.phase;
        Some(next)
    }

    /// Decrypts a packet: its number and its frames; `None` if these keys do not fit. `largest` is the highest number
    /// before it in its direction and level. A packet of the next key phase switches to the keys of that phase.
    pub fn open(&mut self, packet: &Protected<'_>, largest: Option<u64>) -> Option<(u64, Vec<u8>)> {
        let Protected { bytes, number_at, .. } = *packet;
        let sample: [u8; SAMPLE] = bytes.get(number_at + 4..number_at + 4 + SAMPLE)?.try_into().ok()?;
        let mask = self.cipher.mask(&self.header_key, sample)?;
        let first = bytes[0] ^ (mask[0] & if bytes[0] & LONG == 0 { 0x1f } else { 0x0f });
        let length = usize::from(first & 3) + 1;
        let mut header = bytes[..number_at + length].to_vec();
        header[0] = first;
        let mut truncated = 0;
        for (byte, mask) in header[number_at..].iter_mut().zip(&mask[1..]) {
            *byte ^= mask;
            truncated = truncated << 8 | u64::from(*byte);
        }
        let number = full_number(truncated, length, largest);
        let body = &bytes[number_at + length..];
        let is_next = packet.level == Level::Application && (first & KEY_PHASE != 0) != self.phase;
        let next = if is_next { Some(self.next()?) } else { None };
        let keys = next.as_ref().unwrap_or(self);
        let opened = keys.cipher.open(&keys.key, keys.nonce(number), &header, body)?;
        if let Some(next) = next {
            *self = next;
        }
        Some((number, opened))
    }

    fn nonce(&self, number: u64) -> [u8; NONCE] {
        let mut nonce = self.iv;
        for (octet, count) in nonce[NONCE - 8..].iter_mut().zip(number.to_be_bytes()) {
            *octet ^= count;
        }
        nonce
    }
}

/// The packet number whose last `length` bytes these are, nearest to the expected number (RFC 9000 §A.3).
fn full_number(truncated: u64, length: usize, largest: Option<u64>) -> u64 {
    let expected = largest.map_or(0, |largest| largest + 1);
    let window = 1_u64 << (8 * length);
    let candidate = (expected & !(window - 1)) | truncated;
    if candidate + window / 2 <= expected {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
impl Keys {
    /// Encrypts what [`Self::open`] decrypts: `header` is everything before the packet number, which takes four bytes.
    pub fn seal(&self, header: &[u8], number: u64, frames: &[u8]) -> Vec<u8> {
        let mut header = header.to_vec();
        let number_at = header.len();
        header[0] = header[0] & !KEY_PHASE | 3 | if self.phase { KEY_PHASE } else { 0 };
        header.extend((number as u32).to_be_bytes());
        let sealed = self.cipher.seal(&self.key, self.nonce(number), &header, frames);
        let mask = self.cipher.mask(&self.header_key, sealed[..SAMPLE].try_into().unwrap()).unwrap();
        header[0] ^= mask[0] & if header[0] & LONG == 0 { 0x1f } else { 0x0f };
        for (byte, mask) in header[number_at..].iter_mut().zip(&mask[1..]) {
            *byte ^= mask;
        }
        [header, sealed].concat()
    }

    /// Switches to the next generation.
    pub fn update(&mut self) {
        *self = self.next().unwrap();
    }
}

#[cfg(test)]
mod tests;
