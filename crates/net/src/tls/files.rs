//! PEM files: authorities to trust, and certificates with their keys.

use std::fmt;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use super::error::TlsError;

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
                rustls::Error::InvalidCertificate(why) => TlsError::Identity(why.to_string()),
                other => TlsError::Key(other.to_string()),
            },
        )
    }

    pub(super) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(self.certificates_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| TlsError::Identity(error.to_string()))?;
        if chain.is_empty() {
            return Err(TlsError::Identity("it contains no BEGIN CERTIFICATE".to_owned()));
        }
        Ok(chain)
    }

    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|error| {
            TlsError::Key(match error {
                pem::Error::NoItemsFound if self.key_pem.contains("BEGIN ENCRYPTED PRIVATE KEY") => {
                    "it is encrypted; decrypt it first (openssl pkey -in FILE -out PLAIN)".to_owned()
                }
                pem::Error::NoItemsFound => "it contains no BEGIN PRIVATE KEY".to_owned(),
                other => other.to_string(),
            })
        })
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
    all.map_err(|error| TlsError::Authority(error.to_string()))
}

/// The authorities of a PEM file: at least one, and all of them well-formed.
pub(super) fn authorities(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem)? {
        store.add(certificate).map_err(|error| TlsError::Authority(error.to_string()))?;
    }
    if store.is_empty() {
        return Err(TlsError::Authority("it contains no BEGIN CERTIFICATE".to_owned()));
    }
    Ok(store)
}
