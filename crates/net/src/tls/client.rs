//! The client's side: what it trusts, its identity, and what it offers.

use std::sync::Arc;

use quinn_proto::crypto::rustls::QuicClientConfig;
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, KeyLogFile, SignatureScheme};

use super::common_name;
use super::error::{TlsError, is_nameless, is_of_an_authority};
use super::files::{Identity, certificates, roots};
use super::provider;
use super::session::TlsSession;

/// What a client trusts, presents and caches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Skip certificate verification (`-k`). Signatures are still checked, so that the handshake costs the same.
    pub insecure: bool,
    /// PEM certificates to trust instead of the system's roots (`--cacert`).
    pub ca_pem: Option<Vec<u8>>,
    /// Our identity for a server that asks (`--cert`, `--key`).
    pub identity: Option<Identity>,
    /// Make a full handshake for every connection (`--no-tls-resumption`), where otherwise later ones resume the session
    /// of earlier ones, as browsers and service clients do.
    pub full_handshakes: bool,
}

/// The client side of many connections to one server: they share the sessions to resume.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    alpn: &'static str,
    has_certificate: bool,
}

impl ClientTls {
    /// A client of `server_name` that offers the one protocol `alpn`. The server's certificate must be for this name; it is
    /// sent as SNI unless it is an address, which RFC 6066 §3 forbids there.
    pub fn new(server_name: &str, alpn: &'static str, options: &TlsOptions) -> Result<Self, TlsError> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| TlsError::Name(server_name.to_owned()))?;
        let provider = Arc::new(provider()?);
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::from)?;
        let builder = if options.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny { provider }))
        } else {
            let verifier = Trusting::new(options.ca_pem.as_deref(), provider)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        };
        let mut config = match &options.identity {
            Some(identity) => builder.with_client_auth_cert(identity.chain()?, identity.key()?)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        config.key_log = Arc::new(KeyLogFile::new());
        if options.full_handshakes {
            config.resumption = Resumption::disabled();
        }
        Ok(Self { config: Arc::new(config), name, alpn, has_certificate: options.identity.is_some() })
    }

    /// A new connection's session; its `ClientHello` is ready to [`TlsSession::send`].
    pub fn session(&self) -> Result<TlsSession, TlsError> {
        let connection = rustls::ClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        Ok(TlsSession::client(connection, self.alpn, self.has_certificate))
    }

    /// The same for QUIC, which offers and trusts the same. It has no early data (0-RTT): requests in it may be replayed.
    pub fn quic(&self) -> Result<Arc<QuicClientConfig>, TlsError> {
        let config = QuicClientConfig::try_from(Arc::clone(&self.config));
        config.map(Arc::new).map_err(|error| TlsError::Other(error.to_string()))
    }

    /// The server's name, as it is checked and sent.
    pub fn name(&self) -> String {
        self.name.to_str().into_owned()
    }

    /// The protocol that is offered.
    pub const fn alpn(&self) -> &'static str {
        self.alpn
    }

    /// Whether we have a certificate to present.
    pub const fn has_certificate(&self) -> bool {
        self.has_certificate
    }
}

/// The usual verifier, which also accepts a certificate that is itself in `--cacert`, as curl with OpenSSL does. Such a
/// certificate is trusted although its issuer is unknown, and although it is an authority's (CA:TRUE), as every one
/// that `openssl req -x509` makes. If it names no host in a subjectAltName, its common name is used.
#[derive(Debug)]
struct Trusting {
    usual: Arc<WebPkiServerVerifier>,
    /// Those of `--cacert`.
    given: Vec<CertificateDer<'static>>,
}

impl Trusting {
    fn new(ca_pem: Option<&[u8]>, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(ca_pem)?), provider).build();
        Ok(Self {
            usual: usual.map_err(|error| TlsError::Other(error.to_string()))?,
            given: ca_pem.map_or(Ok(Vec::new()), certificates)?,
        })
    }
}

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // It is valid at this time: that is checked before its issuer and its names.
            Err(rustls::Error::InvalidCertificate(why))
                if self.given.contains(end_entity)
                    && (is_of_an_authority(&why.to_string())
                        || why == CertificateError::UnknownIssuer
                        || is_nameless(&why)) =>
            {
                is_for(end_entity, server_name).map(|()| ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// Whether a certificate that is trusted by itself is one for this name.
fn is_for(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), rustls::Error> {
    match verify_server_name(&ParsedCertificate::try_from(certificate)?, name) {
        Err(rustls::Error::InvalidCertificate(why))
            if is_nameless(&why) && common_name::is(certificate, name) =>
        {
            Ok(())
        }
        verified => verified,
    }
}

/// The verifier of `-k`.
#[derive(Debug)]
struct AcceptAny {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
