//! Keys of one direction, and records decrypted with them.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::aes::cipher::BlockCipherEncrypt;
use aes_gcm::aes::{Aes128, Aes256};
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use chacha20poly1305::ChaCha20Poly1305;

use super::keys::{Hash, Random, Secrets};
use h2lab_wire::trace::Direction;

/// Bytes of a record's header.
pub(super) const HEADER: usize = 5;
/// A record's header: type, version, length of the body (RFC 8446 §5.1).
pub(super) type Header = [u8; HEADER];
/// Bytes of a nonce.
pub(in super::super) const NONCE: usize = 12;
/// Bytes of a nonce that are sent in each record of TLS 1.2 with GCM (RFC 5288 §3).
const EXPLICIT: usize = 8;
/// Bytes of the sample that protects the header of a QUIC packet (RFC 9001 §5.4.2).
pub(in super::super) const SAMPLE: usize = 16;
/// Bytes of key stream for each value of the counter (RFC 8439 §2.3).
const CHACHA20_BLOCK: u64 = 64;
/// Bytes of a tag.
const TAG: usize = 16;

/// An authenticated cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Cipher {
    Aes128,
    Aes256,
    ChaCha20,
}

impl Cipher {
    /// Bytes of its key.
    pub const fn key_length(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes256 | Self::ChaCha20 => 32,
        }
    }

    /// TLS 1.2: bytes of a nonce that are not in the record.
    const fn fixed_length(self) -> usize {
        match self {
            Self::Aes128 | Self::Aes256 => NONCE - EXPLICIT,
            Self::ChaCha20 => NONCE,
        }
    }

    /// Decrypts a message; `None` if it is not authentic.
    pub fn open(self, key: &[u8], nonce: [u8; NONCE], aad: &[u8], msg: &[u8]) -> Option<Vec<u8>> {
        let payload = Payload { msg, aad };
        match self {
            Self::Aes128 => Aes128Gcm::new_from_slice(key).ok()?.decrypt(&nonce.into(), payload).ok(),
            Self::Aes256 => Aes256Gcm::new_from_slice(key).ok()?.decrypt(&nonce.into(), payload).ok(),
            Self::ChaCha20 => {
                ChaCha20Poly1305::new_from_slice(key).ok()?.decrypt(&nonce.into(), payload).ok()
            }
        }
    }

    /// The mask of a QUIC header, derived from a sample of the packet (RFC 9001 §5.4.3, §5.4.4).
    pub fn mask(self, key: &[u8], sample: [u8; SAMPLE]) -> Option<[u8; SAMPLE]> {
        let mut block = sample.into();
        match self {
            Self::Aes128 => Aes128::new_from_slice(key).ok()?.encrypt_block(&mut block),
            Self::Aes256 => Aes256::new_from_slice(key).ok()?.encrypt_block(&mut block),
            Self::ChaCha20 => {
                let (counter, nonce) = sample.split_first_chunk::<4>()?;
                let mut cipher = ChaCha20::new_from_slices(key, nonce).ok()?;
                cipher.try_seek(u64::from(u32::from_le_bytes(*counter)) * CHACHA20_BLOCK).ok()?;
                block = [0; SAMPLE].into();
                cipher.try_apply_keystream(&mut block).ok()?;
            }
        }
        Some(block.into())
    }

    /// Encrypts what [`Self::open`] decrypts.
    #[cfg(test)]
    pub fn seal(self, key: &[u8], nonce: [u8; NONCE], aad: &[u8], msg: &[u8]) -> Vec<u8> {
        let payload = Payload { msg, aad };
        let sealed = match self {
            Self::Aes128 => Aes128Gcm::new_from_slice(key).expect("a key").encrypt(&nonce.into(), payload),
            Self::Aes256 => Aes256Gcm::new_from_slice(key).expect("a key").encrypt(&nonce.into(), payload),
            Self::ChaCha20 => {
                ChaCha20Poly1305::new_from_slice(key).expect("a key").encrypt(&nonce.into(), payload)
            }
        };
        sealed.expect("a short message")
    }
}

/// Cipher and hash of a suite; `None` if it is not supported here.
pub(in super::super) const fn suite(number: u16) -> Option<(Cipher, Hash)> {
    Some(match number {
        // TLS 1.3 (RFC 8446 §B.4), then TLS 1.2: RSA, DHE, ECDHE with either signature.
        0x1301 | 0x009c | 0x009e | 0xc02b | 0xc02f => (Cipher::Aes128, Hash::Sha256),
        0x1302 | 0x009d | 0x009f | 0xc02c | 0xc030 => (Cipher::Aes256, Hash::Sha384),
        0x1303 | 0xcca8 | 0xcca9 | 0xccaa => (Cipher::ChaCha20, Hash::Sha256),
        _ => return None,
    })
}

/// How the records of one direction are protected.
#[derive(Debug, Clone)]
pub(in super::super) struct Protection {
    cipher: Cipher,
    hash: Hash,
    /// TLS 1.3: the secret from which the keys are derived.
    secret: Vec<u8>,
    key: Vec<u8>,
    iv: Vec<u8>,
    /// Number of records so far with these keys.
    sequence: u64,
}

impl Protection {
    /// The first application keys of a direction (RFC 8446 §7.3).
    pub fn tls13(secrets: &Secrets, number: u16, direction: Direction) -> Option<Self> {
        let (cipher, hash) = suite(number)?;
        let secret = secrets.traffic(direction)?.to_vec();
        if secret.len() != hash.length() {
            return None;
        }
        let mut protection = Self { cipher, hash, secret, key: Vec::new(), iv: Vec::new(), sequence: 0 };
        protection.derive()?;
        Some(protection)
    }

    fn derive(&mut self) -> Option<()> {
        self.key = self.hash.expand_label(&self.secret, "key", self.cipher.key_length())?;
        self.iv = self.hash.expand_label(&self.secret, "iv", NONCE)?;
        self.sequence = 0;
        Some(())
    }

    /// The next generation of keys (RFC 8446 §7.2).
    pub fn update(&mut self) {
        if let Some(secret) = self.hash.expand_label(&self.secret, "traffic upd", self.hash.length()) {
            self.secret = secret;
            // The lengths are the same as in the first derivation, which succeeded.
            let _ = self.derive();
        }
    }

    /// The keys of a direction in TLS 1.2 (RFC 5246 §6.3).
    pub fn tls12(
        secrets: &Secrets,
        number: u16,
        direction: Direction,
        client: &Random,
        server: &Random,
    ) -> Option<Self> {
        let (cipher, hash) = suite(number)?;
        let Secrets::Master(master) = secrets else { return None };
        let (key, fixed) = (cipher.key_length(), cipher.fixed_length());
        let block = hash.prf(master, "key expansion", &[*server, *client].concat(), 2 * (key + fixed));
        let nth = usize::from(direction == Direction::Down);
        let part = |from: usize, length: usize| block.get(from..from + length).map(<[u8]>::to_vec);
        let (key, iv) = (part(nth * key, key)?, part(2 * key + nth * fixed, fixed)?);
        Some(Self { cipher, hash, secret: Vec::new(), key, iv, sequence: 0 })
    }

    /// Decrypts a record of TLS 1.3. `None` if these keys do not decrypt it; then nothing has changed.
    pub fn open_13(&mut self, header: Header, body: &[u8]) -> Option<Vec<u8>> {
        let opened = self.cipher.open(&self.key, self.counted_nonce()?, &header, body)?;
        self.sequence += 1;
        Some(opened)
    }

    /// Decrypts a record of TLS 1.2.
    pub fn open_12(&mut self, header: Header, body: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = if self.iv.len() == NONCE {
            (self.counted_nonce()?, body)
        } else {
            let (explicit, sealed) = body.split_at_checked(EXPLICIT)?;
            ([self.iv.as_slice(), explicit].concat().try_into().ok()?, sealed)
        };
        let length = u16::try_from(sealed.len().checked_sub(TAG)?).ok()?;
        let aad = [&self.sequence.to_be_bytes()[..], &header[..3], &length.to_be_bytes()].concat();
        let opened = self.cipher.open(&self.key, nonce, &aad, sealed)?;
        self.sequence += 1;
        Some(opened)
    }

    /// The nonce for the record's sequence number (RFC 8446 §5.3).
    fn counted_nonce(&self) -> Option<[u8; NONCE]> {
        let mut nonce: [u8; NONCE] = self.iv.as_slice().try_into().ok()?;
        for (octet, count) in nonce[NONCE - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *octet ^= count;
        }
        Some(nonce)
    }
}

#[cfg(test)]
impl Protection {
    /// Encrypts what [`Protection::open_13`] decrypts: a whole record.
    pub fn seal_13(&mut self, kind: u8, bytes: &[u8]) -> Vec<u8> {
        let inner = [bytes, &[kind, 0, 0]].concat(); // two octets of padding
        let length = ((inner.len() + TAG) as u16).to_be_bytes();
        let header = [23, 3, 3, length[0], length[1]];
        let nonce = self.counted_nonce().expect("an IV");
        self.sequence += 1;
        [&header[..], &self.seal(nonce, &header, &inner)].concat()
    }

    /// Encrypts what [`Protection::open_12`] decrypts: a whole record.
    pub fn seal_12(&mut self, kind: u8, bytes: &[u8]) -> Vec<u8> {
        let explicit = if self.iv.len() == NONCE { Vec::new() } else { self.sequence.to_be_bytes().to_vec() };
        let nonce = if explicit.is_empty() {
            self.counted_nonce().expect("an IV")
        } else {
            [self.iv.as_slice(), &explicit].concat().try_into().expect("twelve octets")
        };
        let plain = (bytes.len() as u16).to_be_bytes();
        let aad = [&self.sequence.to_be_bytes()[..], &[kind, 3, 3], &plain].concat();
        let body = [explicit, self.seal(nonce, &aad, bytes)].concat();
        self.sequence += 1;
        [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), &body].concat()
    }

    fn seal(&self, nonce: [u8; NONCE], aad: &[u8], msg: &[u8]) -> Vec<u8> {
        self.cipher.seal(&self.key, nonce, aad, msg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    /// RFC 8448 §3: the client's application data of the simple handshake.
    #[test]
    fn a_record_of_rfc_8448_is_opened() {
        let up = unhex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
        let down = unhex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
        let record = unhex(
            "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b\
             62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4",
        );
        let (&header, body) = record.split_first_chunk().unwrap();
        let secrets = Secrets::Traffic { up, down };
        let mut protection = Protection::tls13(&secrets, 0x1301, Direction::Up).unwrap();
        let opened = protection.open_13(header, body).unwrap();
        let expected: Vec<u8> = (0..50).chain([23]).collect();
        assert_eq!(opened, expected);
        assert_eq!(protection.open_13(header, body), None, "the second record has another nonce");
        assert!(Protection::tls13(&secrets, 0x1302, Direction::Up).is_none(), "the secret is too short");
        assert!(Protection::tls13(&secrets, 0x0035, Direction::Up).is_none(), "a suite without AEAD");
    }
}
