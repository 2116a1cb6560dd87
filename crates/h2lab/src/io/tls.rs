//! TLS as a converter between ciphertext and plaintext buffers: no socket in here.
//!
//! rustls with aws-lc-rs does the work; this module decides what is verified, what is offered by ALPN (RFC 7301), and
//! turns errors into types that say what a user can do about them.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};

use super::tcp::Read;

/// Why TLS could not be set up or went wrong. The text says what to do where that is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// `server_name` is neither a DNS name nor an address.
    #[error("`{0}` is not a name that a certificate can be checked against")]
    Name(String),
    /// The custom CA file holds no certificate.
    #[error("the CA file holds no PEM certificate: {0}")]
    Authority(String),
    /// The system has no root certificates and none were given.
    #[error(
        "this system has no root certificates (Debian: ca-certificates); give --cacert FILE, or -k to skip the check"
    )]
    NoRoots,
    /// The server's certificate was not accepted.
    #[error(
        "the server's certificate is not accepted: {0} (--cacert FILE trusts its authority, -k skips the check)"
    )]
    Certificate(String),
    /// The server speaks TLS but not the protocol that we asked for.
    #[error("the server does not speak `{wanted}` over TLS (ALPN): it chose {chosen}")]
    Alpn {
        /// The protocol name that we offered.
        wanted: String,
        /// What it chose instead, in words.
        chosen: String,
    },
    /// The first bytes are no TLS record: most often a cleartext port.
    #[error("the server does not speak TLS on this port; try http:// instead of https://")]
    NotTls,
    /// The server refused us by an alert.
    #[error("the server refused the TLS connection with the alert {0}")]
    Alert(String),
    /// Anything else.
    #[error("TLS failed: {0}")]
    Other(String),
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(why) => Self::Certificate(why.to_string()),
            rustls::Error::InvalidMessage(
                rustls::InvalidMessage::InvalidContentType | rustls::InvalidMessage::UnknownProtocolVersion,
            ) => Self::NotTls,
            rustls::Error::AlertReceived(alert) => Self::Alert(format!("{alert:?}")),
            other => Self::Other(other.to_string()),
        }
    }
}

/// What a client trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Accept any certificate (`-k`). Signatures are still checked, so that the handshake costs the same.
    pub insecure: bool,
    /// PEM certificates to trust instead of the system's roots (`--cacert`).
    pub ca_pem: Option<Vec<u8>>,
}

/// The client side of many connections to one server.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    alpn: &'static str,
}

impl ClientTls {
    /// A client of `server_name` (SNI, and what its certificate must be for) that offers the one protocol `alpn`.
    pub fn new(server_name: &str, alpn: &'static str, options: &TlsOptions) -> Result<Self, TlsError> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| TlsError::Name(server_name.to_owned()))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::from)?;
        let builder = if options.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny { provider }))
        } else {
            builder.with_root_certificates(roots(options.ca_pem.as_deref())?)
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        Ok(Self { config: Arc::new(config), name, alpn })
    }

    /// A new connection's session; its `ClientHello` is ready in [`TlsSession::transmit`].
    pub fn session(&self) -> Result<TlsSession, TlsError> {
        let connection = rustls::ClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        Ok(TlsSession::new(connection.into(), Some(self.alpn)))
    }
}

/// The server side, with a certificate made at start.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    certificate_pem: String,
}

impl ServerTls {
    /// A server with a self-signed certificate for `names` (DNS names or addresses) that accepts the protocols `alpn`, in
    /// the order of its preference.
    pub fn self_signed(names: &[&str], alpn: &[&str]) -> Result<Self, TlsError> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let made =
            rcgen::generate_simple_self_signed(names).map_err(|error| TlsError::Other(error.to_string()))?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::from)?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())?;
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Self { config: Arc::new(config), certificate_pem: made.cert.pem() })
    }

    /// The certificate, for a client's `--cacert`.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A new connection's session.
    pub fn session(&self) -> Result<TlsSession, TlsError> {
        Ok(TlsSession::new(rustls::ServerConnection::new(Arc::clone(&self.config))?.into(), None))
    }
}

/// Checks that a CA file can be trusted with [`TlsOptions::ca_pem`], before anything depends on it.
pub fn check_authorities(ca_pem: &[u8]) -> Result<(), TlsError> {
    roots(Some(ca_pem)).map(drop)
}

/// The roots to trust: those of the PEM file, or the system's.
fn roots(ca_pem: Option<&[u8]>) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    if let Some(pem) = ca_pem {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| TlsError::Authority(error.to_string()))?;
            store.add(certificate).map_err(|error| TlsError::Authority(error.to_string()))?;
        }
        return if store.is_empty() { Err(TlsError::Authority("it is empty".to_owned())) } else { Ok(store) };
    }
    // Single bad files of a system are no reason to stop; having none at all is.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() { Err(TlsError::NoRoots) } else { Ok(store) }
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

/// One TLS connection, either side, between two buffers.
///
/// Ciphertext goes in by [`TlsSession::receive`] and comes out of [`TlsSession::transmit`]; plaintext comes out of
/// [`TlsSession::read`] and goes in by [`TlsSession::write`].
#[derive(Debug)]
pub struct TlsSession {
    connection: rustls::Connection,
    /// Ciphertext to send; the first `sent` bytes are gone.
    outgoing: Vec<u8>,
    sent: usize,
    /// The protocol that we asked for (client side).
    wanted: Option<&'static str>,
    received_any: bool,
}

impl TlsSession {
    /// Plaintext that one [`TlsSession::write`] takes at most: four records, so that a slow socket does not make us hold a
    /// copy of everything that the engine has.
    const WRITE_LIMIT: usize = 64 * 1024;

    fn new(mut connection: rustls::Connection, wanted: Option<&'static str>) -> Self {
        connection.set_buffer_limit(None); // WRITE_LIMIT bounds it instead
        Self { connection, outgoing: Vec::new(), sent: 0, wanted, received_any: false }
    }

    /// Takes ciphertext in, up to what the session can hold, and returns how much that was. If it was not all,
    /// [`TlsSession::read`] what has been decrypted and offer the rest again.
    pub fn receive(&mut self, ciphertext: &[u8]) -> Result<usize, TlsError> {
        let mut rest = ciphertext;
        while !rest.is_empty() {
            match self.connection.read_tls(&mut rest) {
                // After the peer's close_notify nothing is read any more, and nothing that follows counts.
                Ok(0) => return Ok(ciphertext.len()),
                Ok(_) => {}
                Err(_) => break, // the buffer of plaintext is full
            }
            let first = !std::mem::replace(&mut self.received_any, true);
            let was_handshaking = self.connection.is_handshaking();
            self.connection.process_new_packets().map_err(|error| self.explain(error, first))?;
            if was_handshaking && !self.connection.is_handshaking() {
                self.check_alpn()?;
            }
        }
        Ok(ciphertext.len() - rest.len())
    }

    /// The peer closed the transport.
    pub fn receive_eof(&mut self) -> Result<(), TlsError> {
        let mut nothing: &[u8] = &[];
        // What rustls makes of an end without close_notify is told by `read`, where we forgive it.
        let _ = self.connection.read_tls(&mut nothing);
        if self.is_handshaking() {
            return Err(TlsError::Other("the connection was closed during the handshake".to_owned()));
        }
        Ok(())
    }

    /// What an error means to a user: the first bytes being no TLS, and ALPN, need our own words.
    fn explain(&self, error: rustls::Error, first: bool) -> TlsError {
        match (error, self.wanted) {
            (rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol), Some(wanted)) => {
                TlsError::Alpn { wanted: wanted.to_owned(), chosen: "none of ours".to_owned() }
            }
            (rustls::Error::InvalidMessage(_) | rustls::Error::PeerSentOversizedRecord, _) if first => {
                TlsError::NotTls
            }
            (error, _) => error.into(),
        }
    }

    /// A server that does not know ALPN speaks HTTP/1.1 (RFC 9112 needs none); HTTP/2 must be chosen (RFC 9113 §3.2).
    fn check_alpn(&self) -> Result<(), TlsError> {
        let Some(wanted) = self.wanted else { return Ok(()) };
        let chosen = match self.connection.alpn_protocol() {
            Some(chosen) if chosen == wanted.as_bytes() => return Ok(()),
            None if wanted == "http/1.1" => return Ok(()),
            Some(chosen) => format!("`{}`", String::from_utf8_lossy(chosen)),
            None => "nothing".to_owned(),
        };
        Err(TlsError::Alpn { wanted: wanted.to_owned(), chosen })
    }

    /// Takes decrypted bytes out.
    pub fn read(&mut self, space: &mut [u8]) -> Result<Read, TlsError> {
        match self.connection.reader().read(space) {
            Ok(0) => Ok(Read::Eof),
            Ok(n) => Ok(Read::Bytes(n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Read::WouldBlock),
            // Many servers close without close_notify. Truncation is caught by the framing of HTTP above us.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Read::Eof),
            Err(error) => Err(TlsError::Other(error.to_string())),
        }
    }

    /// Encrypts some of `plaintext` for [`TlsSession::transmit`] and returns how much; 0 during the handshake.
    pub fn write(&mut self, plaintext: &[u8]) -> Result<usize, TlsError> {
        if self.is_handshaking() {
            return Ok(0);
        }
        let taken = plaintext.len().min(Self::WRITE_LIMIT);
        self.connection
            .writer()
            .write_all(&plaintext[..taken])
            .map_err(|error| TlsError::Other(error.to_string()))?;
        Ok(taken)
    }

    /// Says that we are finished (`close_notify`).
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// The ciphertext to send next; empty if there is none.
    pub fn transmit(&mut self) -> &[u8] {
        if self.sent == self.outgoing.len() {
            self.outgoing.clear();
            self.sent = 0;
        }
        while self.connection.wants_write() {
            // Writing into memory cannot fail.
            if self.connection.write_tls(&mut self.outgoing).is_err() {
                break;
            }
        }
        &self.outgoing[self.sent..]
    }

    /// The transport took the first `n` bytes of [`TlsSession::transmit`].
    pub fn transmitted(&mut self, n: usize) {
        self.sent += n;
    }

    /// Whether the handshake is still under way.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The protocol that was negotiated, if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves ciphertext both ways until neither side has any.
    fn shuttle(a: &mut TlsSession, b: &mut TlsSession) -> Result<(), TlsError> {
        loop {
            let mut moved = false;
            for _ in 0..2 {
                let bytes = a.transmit().to_vec();
                a.transmitted(bytes.len());
                moved |= !bytes.is_empty();
                let taken = b.receive(&bytes)?;
                assert_eq!(taken, bytes.len());
                std::mem::swap(a, b);
            }
            if !moved {
                return Ok(());
            }
        }
    }

    fn trusting(server: &ServerTls, alpn: &'static str) -> ClientTls {
        let options =
            TlsOptions { insecure: false, ca_pem: Some(server.certificate_pem().as_bytes().to_vec()) };
        ClientTls::new("localhost", alpn, &options).unwrap()
    }

    #[test]
    fn plaintext_crosses_both_ways_after_the_handshake() {
        let server = ServerTls::self_signed(&["localhost"], &["h2", "http/1.1"]).unwrap();
        let (mut client, mut server) =
            (trusting(&server, "h2").session().unwrap(), server.session().unwrap());
        assert_eq!(client.write(b"too early").unwrap(), 0);
        shuttle(&mut client, &mut server).unwrap();
        assert_eq!((client.alpn(), server.alpn()), (Some(&b"h2"[..]), Some(&b"h2"[..])));
        for (from, to) in [(0, 1), (1, 0)] {
            let ends = [&mut client, &mut server];
            assert_eq!(ends[from].write(b"over the wire").unwrap(), 13);
            let bytes = ends[from].transmit().to_vec();
            ends[from].transmitted(bytes.len());
            ends[to].receive(&bytes).unwrap();
            let mut space = [0; 32];
            assert_eq!(ends[to].read(&mut space).unwrap(), Read::Bytes(13));
            assert_eq!(&space[..13], b"over the wire");
            assert_eq!(ends[to].read(&mut space).unwrap(), Read::WouldBlock);
        }
    }

    #[test]
    fn more_than_the_session_holds_is_taken_in_pieces() {
        let server = ServerTls::self_signed(&["localhost"], &["h2"]).unwrap();
        let (mut client, mut server) =
            (trusting(&server, "h2").session().unwrap(), server.session().unwrap());
        shuttle(&mut client, &mut server).unwrap();
        let sent = vec![42; 60_000];
        assert_eq!(client.write(&sent).unwrap(), sent.len());
        let cipher = client.transmit().to_vec();
        let (mut at, mut plain, mut space) = (0, Vec::new(), vec![0; 16_384]);
        while at < cipher.len() {
            at += server.receive(&cipher[at..]).unwrap();
            while let Read::Bytes(n) = server.read(&mut space).unwrap() {
                plain.extend_from_slice(&space[..n]);
            }
        }
        assert_eq!(plain, sent);
    }

    #[test]
    fn an_unknown_certificate_is_refused_unless_told_otherwise() {
        let (server, other) = (
            ServerTls::self_signed(&["localhost"], &["h2"]).unwrap(),
            ServerTls::self_signed(&["localhost"], &["h2"]).unwrap(),
        );
        let error = shuttle(&mut trusting(&other, "h2").session().unwrap(), &mut server.session().unwrap());
        assert!(matches!(error, Err(TlsError::Certificate(_))), "{error:?}");
        let insecure = TlsOptions { insecure: true, ca_pem: None };
        let client = ClientTls::new("localhost", "h2", &insecure).unwrap();
        shuttle(&mut client.session().unwrap(), &mut server.session().unwrap()).unwrap();
    }

    #[test]
    fn a_server_without_our_protocol_is_an_error_and_no_fallback() {
        let server = ServerTls::self_signed(&["localhost"], &["http/1.1"]).unwrap();
        let mut client = trusting(&server, "h2").session().unwrap();
        let mut session = server.session().unwrap();
        let hello = client.transmit().to_vec();
        client.transmitted(hello.len());
        assert!(session.receive(&hello).is_err());
        let alert = session.transmit().to_vec();
        let error = client.receive(&alert).unwrap_err();
        assert!(matches!(error, TlsError::Alpn { .. }), "{error:?}");
    }

    #[test]
    fn a_server_that_knows_no_alpn_speaks_http_1_1_only() {
        let server = ServerTls::self_signed(&["localhost"], &[]).unwrap();
        shuttle(&mut trusting(&server, "http/1.1").session().unwrap(), &mut server.session().unwrap())
            .unwrap();
        let error = shuttle(&mut trusting(&server, "h2").session().unwrap(), &mut server.session().unwrap());
        assert!(matches!(error, Err(TlsError::Alpn { .. })), "{error:?}");
    }

    #[test]
    fn an_http_answer_is_recognised_as_no_tls() {
        let server = ServerTls::self_signed(&["localhost"], &[]).unwrap();
        let mut client = trusting(&server, "h2").session().unwrap();
        assert_eq!(client.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Err(TlsError::NotTls));
        let mut session = server.session().unwrap();
        assert_eq!(session.receive(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"), Err(TlsError::NotTls));
    }

    #[test]
    fn an_empty_ca_file_is_refused_by_name() {
        let options = TlsOptions { insecure: false, ca_pem: Some(b"not a certificate".to_vec()) };
        assert!(matches!(ClientTls::new("localhost", "h2", &options), Err(TlsError::Authority(_))));
        assert!(matches!(ClientTls::new("no spaces", "h2", &TlsOptions::default()), Err(TlsError::Name(_))));
    }
}
