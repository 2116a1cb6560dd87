//! The server's side: its certificate, and what it requires of clients.

use std::sync::Arc;

use quinn_proto::crypto::rustls::QuicServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{KeyLogFile, ServerConfig};

use super::error::TlsError;
use super::files::{Identity, authorities};
use super::provider;
use super::session::TlsSession;

/// What a server presents and requires.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTlsOptions {
    /// Its certificate; `None` makes a self-signed one at start.
    pub identity: Option<Identity>,
    /// Refuse clients that have no certificate signed by one of these authorities, PEM.
    pub client_ca_pem: Option<Vec<u8>>,
    /// Make a full handshake for every connection: no tickets.
    pub full_handshakes: bool,
}

/// The server side of many connections.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    certificate_pem: String,
}

impl ServerTls {
    /// A server with a self-signed certificate for `names` (DNS names or addresses) that accepts the protocols `alpn`, in
    /// the order of its preference.
    pub fn self_signed(names: &[&str], alpn: &[&str]) -> Result<Self, TlsError> {
        Self::new(&ServerTlsOptions::default(), names, alpn)
    }

    /// A server that accepts the protocols `alpn`, in the order of its preference. If it has to make its certificate, that
    /// is for `names` (DNS names or addresses).
    pub fn new(options: &ServerTlsOptions, names: &[&str], alpn: &[&str]) -> Result<Self, TlsError> {
        let identity = match &options.identity {
            Some(identity) => identity.clone(),
            None => Identity::self_signed(names)?,
        };
        let provider = Arc::new(provider()?);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::from)?;
        let builder = match options.client_ca_pem.as_deref() {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = Arc::new(authorities(pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|error| TlsError::Authority(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(identity.chain()?, identity.key()?)?;
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.key_log = Arc::new(KeyLogFile::new());
        if options.full_handshakes {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        } else {
            // Stateless tickets: rustls's default keeps 256 sessions in memory, so that the 257th client of a run would be the
            // first not to resume.
            config.ticketer = aws_lc_rs::Ticketer::new()?;
        }
        Ok(Self { config: Arc::new(config), certificate_pem: identity.certificates_pem })
    }

    /// The certificate, for a client's `--cacert`.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The same for QUIC: the same certificate and clients, and HTTP/3 instead of the protocols of TCP.
    pub fn quic(&self) -> Result<Arc<QuicServerConfig>, TlsError> {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h3".to_vec()];
        let config = QuicServerConfig::try_from(config);
        config.map(Arc::new).map_err(|error| TlsError::Other(error.to_string()))
    }

    /// A new connection's session.
    pub fn session(&self) -> Result<TlsSession, TlsError> {
        Ok(TlsSession::server(rustls::ServerConnection::new(Arc::clone(&self.config))?.into()))
    }
}
