//! Checksums end to end, and their HTTP fields (RFC 9530).

use h2lab_base::JsonSchema;
use std::fmt::{self, Write};
use std::str::FromStr;

use crc_fast::CrcAlgorithm;
use serde::{Deserialize, Serialize};
use sha2::{Sha256, Sha512};

use super::fields::{Malformed, members};
use h2lab_base::units::{ParseQuantityError, base64, from_base64};

/// The algorithm of a checksum.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// CRC-32C (RFC 9260 appendix A): detects accidental errors of disks and paths for some 0.01 s of CPU per GB
    /// (`results/2026-11-21-2-cpus/bulk.md`), and sums of parts combine. RFC 9530 calls it deprecated, since it does
    /// not resist an attacker; here TLS does that.
    #[default]
    Crc32c,
    /// SHA-256 (FIPS 180-4).
    #[serde(rename = "sha-256")]
    Sha256,
    /// SHA-512 (FIPS 180-4).
    #[serde(rename = "sha-512")]
    Sha512,
    /// Nothing is summed.
    None,
}

impl Algorithm {
    /// All of them, in the order in which they are printed.
    pub const ALL: [Self; 4] = [Self::Crc32c, Self::Sha256, Self::Sha512, Self::None];

    /// The name in flags, JSON, reports and, but for `none`, HTTP (the registry of RFC 9530 §7.2).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
            Self::None => "none",
        }
    }

    /// Bytes of a checksum.
    pub const fn length(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
            Self::None => 0,
        }
    }

    /// Whether the sums of two neighbours give the sum of both ([`combine`]), so that parts can be summed in any order.
    pub const fn combines(self) -> bool {
        matches!(self, Self::Crc32c)
    }

    /// The value of `Want-Repr-Digest` that asks for this one alone; `None` without a checksum.
    pub fn want(self) -> Option<String> {
        (self != Self::None).then(|| format!("{}=10", self.name()))
    }

    /// The algorithm that a server should use for this value of `Want-Repr-Digest`: the supported one with the highest
    /// preference, from 1 to 10 (RFC 9530 §4), and among equals the strongest. 0 means "not this one". Of two members
    /// of one name the last one counts (RFC 9651 §4.2.2). A field that is not a dictionary asks for nothing (§4.2).
    pub fn wanted(field: &str) -> Self {
        let mut preferences = [0_u8; Self::ALL.len()];
        for member in members(field) {
            let Ok((key, value)) = member else { return Self::None };
            let Some(algorithm) = Self::of_field(key) else { continue };
            preferences[algorithm as usize] = value.parse().ok().filter(|value| *value <= 10).unwrap_or(0);
        }
        let known = preferences.into_iter().zip(Self::ALL).filter(|(preference, _)| *preference > 0);
        known.max().map_or(Self::None, |(_, algorithm)| algorithm)
    }

    /// The algorithm with this key in a field.
    fn of_field(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| *algorithm != Self::None && algorithm.name() == key)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == text)
            .ok_or_else(|| ParseQuantityError::new(text, "a checksum (crc32c, sha-256, sha-512, none)"))
    }
}

/// A checksum and its algorithm, which is never [`Algorithm::None`].
///
/// Its text is that of HTTP, a member of the dictionary in `Repr-Digest`: `crc32c=:4waSgw==:`, the bytes of a CRC in
/// network order. Output for people shows [`Checksum::hex`], as `sha256sum` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Checksum {
    algorithm: Algorithm,
    bytes: Box<[u8]>,
}

/// Why a checksum could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// It is not a dictionary (RFC 9651 §3.2).
    #[error(transparent)]
    Field(#[from] Malformed),
    /// The value is not a byte sequence (RFC 9651 §3.3.5).
    #[error("the {algorithm} of a digest field is not base 64 between colons")]
    NotBytes {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// The value has another length than this algorithm gives.
    #[error("the {algorithm} of a digest field has {length} bytes instead of {}", .algorithm.length())]
    Length {
        /// The algorithm.
        algorithm: Algorithm,
        /// How many bytes it has.
        length: usize,
    },
    /// The text names no supported algorithm.
    #[error("`{text}` is not a checksum such as crc32c=:4waSgw==:")]
    Unknown {
        /// The text.
        text: String,
    },
}

impl Checksum {
    /// A CRC-32C.
    pub fn crc32c(value: u32) -> Self {
        Self { algorithm: Algorithm::Crc32c, bytes: value.to_be_bytes().into() }
    }

    /// The algorithm that made it.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// In hexadecimal digits, for people.
    pub fn hex(&self) -> String {
        self.bytes.iter().fold(String::with_capacity(2 * self.bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// The value of a `Repr-Digest` field or trailer with only this checksum.
    pub fn to_field(&self) -> String {
        format!("{}=:{}:", self.algorithm, base64(&self.bytes))
    }

    /// The `algorithm` member of a `Repr-Digest`; `None` if there is none, or without a checksum. Other algorithms and
    /// parameters are ignored, and of two members of one name the last one counts (RFC 9651 §4.2.2).
    pub fn from_field(field: &str, algorithm: Algorithm) -> Result<Option<Self>, ChecksumError> {
        let mut found = None;
        for member in members(field) {
            let (key, value) = member?;
            if algorithm != Algorithm::None && key == algorithm.name() {
                found = Some(Self::of_value(value, algorithm)?);
            }
        }
        Ok(found)
    }

    fn of_value(value: &str, algorithm: Algorithm) -> Result<Self, ChecksumError> {
        let text = value.strip_prefix(':').and_then(|value| value.strip_suffix(':'));
        let bytes = text.and_then(from_base64).ok_or(ChecksumError::NotBytes { algorithm })?;
        if bytes.len() != algorithm.length() {
            return Err(ChecksumError::Length { algorithm, length: bytes.len() });
        }
        Ok(Self { algorithm, bytes: bytes.into() })
    }
}

impl fmt::Display for Checksum {
    /// `crc32c e3069283`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm, self.hex())
    }
}

impl TryFrom<String> for Checksum {
    type Error = ChecksumError;

    fn try_from(text: String) -> Result<Self, ChecksumError> {
        for algorithm in Algorithm::ALL {
            if let Some(checksum) = Self::from_field(&text, algorithm)? {
                return Ok(checksum);
            }
        }
        Err(ChecksumError::Unknown { text })
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> Self {
        checksum.to_field()
    }
}

/// Computes the checksum of bytes that arrive in order. By default it computes none.
#[derive(Debug, Clone, Default)]
pub struct Digest {
    state: State,
    bytes: u64,
}

#[derive(Debug, Clone, Default)]
enum State {
    Crc32c(Box<crc_fast::Digest>),
    Sha256(Sha256),
    Sha512(Box<Sha512>),
    #[default]
    None,
}

impl Digest {
    /// A sum over no bytes yet.
    pub fn new(algorithm: Algorithm) -> Self {
        let state = match algorithm {
            Algorithm::Crc32c => State::Crc32c(Box::new(crc_fast::Digest::new(CRC32C))),
            Algorithm::Sha256 => State::Sha256(sha2::Digest::new()),
            Algorithm::Sha512 => State::Sha512(Box::new(sha2::Digest::new())),
            Algorithm::None => State::None,
        };
        Self { state, bytes: 0 }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        match &mut self.state {
            State::Crc32c(crc) => crc.update(data),
            State::Sha256(sha) => sha2::Digest::update(sha, data),
            State::Sha512(sha) => sha2::Digest::update(&mut **sha, data),
            State::None => {}
        }
    }

    /// How many bytes it has seen.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The sum of what it has seen; `None` for [`Algorithm::None`].
    pub fn checksum(&self) -> Option<Checksum> {
        let (algorithm, bytes): (_, Box<[u8]>) = match &self.state {
            State::Crc32c(crc) => return Some(Checksum::crc32c(crc.finalize() as u32)),
            State::Sha256(sha) => (Algorithm::Sha256, sha2::Digest::finalize(sha.clone()).to_vec().into()),
            State::Sha512(sha) => {
                (Algorithm::Sha512, sha2::Digest::finalize((**sha).clone()).to_vec().into())
            }
            State::None => return None,
        };
        Some(Checksum { algorithm, bytes })
    }
}

/// CRC-32C, which the library names after iSCSI.
const CRC32C: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// The CRC-32C of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(CRC32C, data) as u32
}

/// The CRC-32C of two neighbours, from that of each and the length of the second in bytes.
pub fn combine(first: u32, second: u32, second_bytes: u64) -> u32 {
    crc_fast::checksum_combine(CRC32C, first.into(), second.into(), second_bytes) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn summed(algorithm: Algorithm, data: &[u8]) -> Option<String> {
        let mut digest = Digest::new(algorithm);
        data.chunks(3).for_each(|chunk| digest.update(chunk));
        assert_eq!(digest.bytes(), data.len() as u64);
        digest.checksum().map(|checksum| checksum.hex())
    }

    #[test]
    fn the_sums_are_those_of_the_standards() {
        // RFC 3720 appendix B.4; the check value "123456789" of every catalogue.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(summed(Algorithm::Crc32c, b"123456789").unwrap(), "e3069283");
        // FIPS 180-4: the examples of one block.
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(summed(Algorithm::Sha256, b"abc").unwrap(), sha256);
        let sha512 = summed(Algorithm::Sha512, b"abc").unwrap();
        assert!(sha512.starts_with("ddaf35a193617abacc417349ae204131") && sha512.len() == 128);
        assert_eq!(summed(Algorithm::None, b"abc"), None);
    }

    #[test]
    fn names_read_back_and_others_are_refused() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            let json = serde_json::to_string(&algorithm).unwrap();
            assert_eq!(json, format!("\"{algorithm}\""));
        }
        for bad in ["", "sha256", "SHA-256", "md5"] {
            assert!(bad.parse::<Algorithm>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_field_says_what_rfc_9530_says() {
        let checksum = Checksum::crc32c(0xe306_9283);
        assert_eq!(checksum.to_field(), "crc32c=:4waSgw==:");
        assert_eq!(checksum.to_string(), "crc32c e3069283");
        // The example of RFC 9530 §3, with a member of ours beside it.
        let field = "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCs\
                     yRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:;note=\"a, b\", crc32c=:4waSgw==:";
        assert_eq!(Checksum::from_field(field, Algorithm::Crc32c), Ok(Some(checksum)));
        assert_eq!(Checksum::from_field(field, Algorithm::Sha512).unwrap().unwrap().hex()[..8], *"60c01a9b");
        assert_eq!(Checksum::from_field(field, Algorithm::Sha256), Ok(None));
        assert_eq!(Checksum::from_field(field, Algorithm::None), Ok(None));
    }

    #[test]
    fn a_servers_field_is_not_trusted() {
        let read = |field| Checksum::from_field(field, Algorithm::Crc32c);
        let algorithm = Algorithm::Crc32c;
        assert_eq!(read("crc32c=:4waS:"), Err(ChecksumError::Length { algorithm, length: 3 }));
        for bad in ["crc32c=4waSgw==", "crc32c=:4waSgw=:", "crc32c=:4wa gw==:", "crc32c", "crc32c=:"] {
            assert_eq!(read(bad), Err(ChecksumError::NotBytes { algorithm }), "{bad}");
        }
        assert_eq!(read("crc32c=:AAAAAA==:, crc32c=:4waSgw==:").unwrap().unwrap().hex(), "e3069283");
        assert!(matches!(read("crc32c=:4waSgw==:,"), Err(ChecksumError::Field(_))));
        assert!(matches!(read("Crc32c=:4waSgw==:"), Err(ChecksumError::Field(_))));
    }

    #[test]
    fn a_server_sends_what_is_wanted_most() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.want().map_or(Algorithm::None, |want| Algorithm::wanted(&want)), algorithm);
        }
        assert_eq!(Algorithm::wanted("sha-256=10, crc32c=3"), Algorithm::Sha256);
        assert_eq!(Algorithm::wanted("sha-512=3, sha-256=3, crc32c=3"), Algorithm::Sha512);
        assert_eq!(Algorithm::wanted("sha-256=0, unixsum=10"), Algorithm::None);
        assert_eq!(Algorithm::wanted("sha-256=10, crc32c=5, sha-256=1"), Algorithm::Crc32c);
        assert_eq!(Algorithm::wanted("sha-256=10, sha-256=0"), Algorithm::None);
        assert_eq!(Algorithm::wanted("crc32c=11, sha-256=-1"), Algorithm::None);
        assert_eq!(Algorithm::wanted("sha-256=1,, crc32c=3"), Algorithm::None);
        assert_eq!(Algorithm::wanted(""), Algorithm::None);
    }

    #[test]
    fn the_text_of_a_journal_reads_back() {
        let checksum = Checksum::crc32c(0x0102_0304);
        let json = serde_json::to_string(&checksum).unwrap();
        assert_eq!(serde_json::from_str::<Checksum>(&json).unwrap(), checksum);
        for bad in ["\"\"", "\"md5=:AAAA:\"", "\"crc32c=:AAAA:\"", "7"] {
            assert!(serde_json::from_str::<Checksum>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn sums_of_neighbours_combine_to_that_of_both(
            first in prop::collection::vec(any::<u8>(), 0..300),
            second in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let combined = combine(crc32c(&first), crc32c(&second), second.len() as u64);
            prop_assert_eq!(combined, crc32c(&[first, second].concat()));
        }

        #[test]
        fn no_field_makes_it_panic(field in "\\PC{0,80}|[-a-z0-9=:;,\"\\\\ ]{0,80}") {
            for algorithm in Algorithm::ALL {
                let _ = Checksum::from_field(&field, algorithm);
            }
            Algorithm::wanted(&field);
        }
    }
}
