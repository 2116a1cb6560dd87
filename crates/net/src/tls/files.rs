//! PEM files: authorities to trust, and certificates with their keys.

use std::fmt;

use h2lab_base::text::made_printable;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use super::error::{TOO_OLD, TlsError, is_too_old};

/// The identity of one side: a certificate and its key, as the text of PEM files.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The certificate, and those between it and its authority, in this order.
    pub certificates_pem: String,
    /// Its private key (PKCS #8, PKCS #1 or SEC 1), not encrypted.
    pub key_pem: String,
}

impl fmt::Debug for Identity {
    /// Without the key: debug output may be kept.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates_pem", &self.certificates_pem).finish_non_exhaustive()
    }
}

impl Identity {
    /// A new key and a self-signed certificate for `names` (DNS names or addresses).
    pub fn self_signed(names: &[&str]) -> Result<Self, TlsError> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let made =
            rcgen::generate_simple_self_signed(names).map_err(|error| TlsError::Other(error.to_string()))?;
        Ok(Self { certificates_pem: made.cert.pem(), key_pem: made.signing_key.serialize_pem() })
    }

    /// Checks that the certificate and the key can be used and belong together, before anything depends on it.
    pub fn check(&self) -> Result<(), TlsError> {
        CertifiedKey::from_der(self.chain()?, self.key()?, &aws_lc_rs::default_provider()).map(drop).map_err(
            |error| match error {
                rustls::Error::InconsistentKeys(_) => TlsError::KeyMismatch,
                rustls::Error::InvalidCertificate(why) => TlsError::Identity(unusable(&why.to_string())),
                other => TlsError::Key(unusable_key(&other.to_string())),
            },
        )
    }

    pub(super) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(self.certificates_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| TlsError::Identity(malformed(&error)))?;
        if chain.is_empty() {
            return Err(TlsError::Identity(without("CERTIFICATE", self.certificates_pem.as_bytes())));
        }
        Ok(chain)
    }

    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|error| {
            TlsError::Key(match error {
                pem::Error::NoItemsFound if self.key_pem.contains("BEGIN ENCRYPTED PRIVATE KEY") => {
                    "it is encrypted; decrypt it first (openssl pkey -in FILE -out PLAIN)".to_owned()
                }
                pem::Error::NoItemsFound => without("PRIVATE KEY", self.key_pem.as_bytes()),
                other => malformed(&other),
            })
        })
    }
}

/// Why a certificate cannot be used, from the library's words.
fn unusable(why: &str) -> String {
    if is_too_old(why) { TOO_OLD.to_owned() } else { why.to_owned() }
}

/// Why a key cannot be used, from the library's words, which do not say what is wrong with it.
fn unusable_key(why: &str) -> String {
    if why.contains("failed to parse private key") {
        "its kind is not supported: use RSA of 2048 bits or more, ECDSA with P-256, P-384 or P-521, or Ed25519".to_owned()
    } else {
        why.to_owned()
    }
}

/// Checks that a file of authorities can be trusted, before anything depends on it.
pub fn check_authorities(ca_pem: &[u8]) -> Result<(), TlsError> {
    authorities(ca_pem).map(drop)
}

/// The roots to trust: those of the PEM file, or the system's.
pub(super) fn roots(ca_pem: Option<&[u8]>) -> Result<RootCertStore, TlsError> {
    if let Some(pem) = ca_pem {
        return authorities(pem);
    }
    let mut store = RootCertStore::empty();
    // A few bad files of a system are no reason to stop; having none at all is.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() { Err(TlsError::NoRoots) } else { Ok(store) }
}

/// The certificates of a PEM file.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>();
    all.map_err(|error| TlsError::Authority(malformed(&error)))
}

/// The authorities of a PEM file: at least one, and all of them well-formed.
pub(super) fn authorities(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem)? {
        store.add(certificate).map_err(|error| TlsError::Authority(error.to_string()))?;
    }
    if store.is_empty() {
        return Err(TlsError::Authority(without("CERTIFICATE", pem)));
    }
    Ok(store)
}

/// Describes what a file has instead of `wanted`, a label of PEM (RFC 7468).
fn without(wanted: &str, file: &[u8]) -> String {
    /// How a SEQUENCE of more than 255 bytes begins, and therefore certificates and keys in DER: 0x30 0x82. The second
    /// byte is not text.
    const DER: &str = "0\u{fffd}";
    let text = String::from_utf8_lossy(file);
    let labels = text.split("-----BEGIN ").skip(1).filter_map(|rest| rest.split_once("-----"));
    let mut found: Vec<String> = labels.map(|(label, _)| label.chars().take(40).collect()).collect();
    found.dedup();
    found.truncate(3);
    let has = if file.iter().all(u8::is_ascii_whitespace) {
        "it is empty".to_owned()
    } else if text.starts_with(DER) {
        "it is DER, which is binary; convert it to PEM (openssl x509, or openssl pkey, with -inform der)"
            .to_owned()
    } else if found.is_empty() {
        "it is no PEM file".to_owned()
    } else {
        format!("it has {}", made_printable(&found.join(" and ")))
    };
    format!("it contains no BEGIN {wanted}: {has}")
}

/// What is wrong with a PEM file, from the parser's words.
fn malformed(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a BEGIN has no END: the file is cut off".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed".to_owned(),
        pem::Error::Base64Decode(_) => "what stands between BEGIN and END is not base64".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{CertificateError, Error, OtherError};

    use super::*;

    #[test]
    fn what_the_library_says_of_old_certificates_and_rare_keys_is_put_into_words() {
        let old = CertificateError::Other(OtherError(Arc::new(webpki_words::UnsupportedCertVersion)));
        assert!(unusable(&old.to_string()).starts_with("it is of X.509 version 1"));
        assert_eq!(unusable("BadEncoding"), "BadEncoding");
        let key = Error::General("failed to parse private key as RSA, ECDSA, or EdDSA".to_owned());
        assert!(unusable_key(&key.to_string()).contains("RSA of 2048 bits or more"));
        // PKCS #8 in DER that is not a key of any kind.
        let real = aws_lc_rs::sign::any_supported_type(&PrivateKeyDer::Pkcs8(vec![0x30, 0].into()));
        let words = real.expect_err("it is none").to_string();
        assert!(unusable_key(&words).contains("RSA of 2048 bits or more"), "{words}");
    }

    mod webpki_words {
        /// As webpki names it.
        #[derive(Debug)]
        pub struct UnsupportedCertVersion;

        impl std::fmt::Display for UnsupportedCertVersion {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self:?}")
            }
        }

        impl std::error::Error for UnsupportedCertVersion {}
    }
}
