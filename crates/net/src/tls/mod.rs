//! TLS as a converter between ciphertext and plaintext buffers: no socket in here.
//!
//! rustls with aws-lc-rs does the work; this module decides what is verified, what is offered by ALPN (RFC 7301), what is
//! resumed, and turns errors into types that say what a user can do about them.
//!
//! Both sides write the secrets of their connections to the file that the environment variable `SSLKEYLOGFILE` names, if it is
//! set, so that Wireshark can read a capture. The command line prints a notice then.

mod alert;
mod client;
mod common_name;
mod der;
mod error;
mod files;
mod key_log;
mod records;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod validity;

pub use client::{ClientTls, TlsOptions};
pub use error::TlsError;
pub(crate) use error::refusal;
pub use files::{Identity, check_authorities};
pub use key_log::is_secret;
pub(crate) use records::RecordMeter;
pub use server::{ServerTls, ServerTlsOptions};
pub use session::{TlsFacts, TlsSession};
pub use validity::Validity;

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// The cryptography of a client or a server.
///
/// AES-128-GCM is offered first, as browsers and h2load do. rustls begins with AES-256-GCM, which takes more CPU: a comparison with
/// such a client would be one of ciphers.
fn provider() -> Result<CryptoProvider, TlsError> {
    let mut provider = aws_lc_rs::default_provider();
    // A stable sort: TLS 1.3 stays before TLS 1.2.
    let is_128 = |suite: CipherSuite| format!("{suite:?}").contains("AES_128_GCM");
    provider.cipher_suites.sort_by_key(|suite| (suite.tls13().is_none(), !is_128(suite.suite())));
    seeded(provider)
}

/// The provider, after one draw from its random numbers. AWS-LC seeds them at their first use in a process from the
/// jitter of the CPU, which takes 25 to 30 ms. That would be in the time of the first handshake, and all connections
/// dialled with it would wait.
fn seeded(provider: CryptoProvider) -> Result<CryptoProvider, TlsError> {
    provider
        .secure_random
        .fill(&mut [0; 32])
        .map_err(|_| TlsError::from(rustls::Error::FailedToGetRandomBytes))?;
    Ok(provider)
}
