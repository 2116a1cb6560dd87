//! One connection's TLS, either side.

use std::io::{self, Read as _, Write as _};

use h2lab_base::text::printable;
use rustls::HandshakeKind;

use super::error::TlsError;
use crate::tcp::Read;

/// What a handshake agreed on, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFacts {
    /// `TLSv1.3`, as OpenSSL writes it.
    pub version: String,
    /// The cipher suite by its name in the registry of IANA; `None` in QUIC, which does not report it.
    pub cipher: Option<String>,
    /// The protocol that ALPN chose, if any.
    pub alpn: Option<String>,
    /// Whether an earlier session was resumed; `None` in QUIC, which does not report it.
    pub resumed: Option<bool>,
}

/// One TLS connection, either side, between two buffers.
///
/// Ciphertext goes in by [`TlsSession::receive`] and comes out by [`TlsSession::send`]; plaintext comes out of
/// [`TlsSession::read`] and goes in by [`TlsSession::write`].
#[derive(Debug)]
pub struct TlsSession {
    connection: rustls::Connection,
    /// The protocol that we asked for (client side).
    wanted: Option<&'static str>,
    received_any: bool,
    /// We have a certificate to present (client side).
    shown: bool,
}

impl TlsSession {
    /// Plaintext that one [`TlsSession::write`] takes at most, so that a slow socket does not make us hold a copy of everything
    /// that the engine has. It fits what an engine hands over at once in bulk, frame headers included, so that no record of nine
    /// bytes is left for another write.
    const WRITE_LIMIT: usize = 256 * 1024 + 16 * 1024;

    pub(super) fn client(
        connection: rustls::ClientConnection,
        wanted: &'static str,
        has_certificate: bool,
    ) -> Self {
        Self { wanted: Some(wanted), shown: has_certificate, ..Self::server(connection.into()) }
    }

    pub(super) fn server(mut connection: rustls::Connection) -> Self {
        connection.set_buffer_limit(None); // WRITE_LIMIT bounds it instead
        Self { connection, wanted: None, received_any: false, shown: false }
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
        // `read` reports what rustls makes of an end without close_notify.
        let _ = self.connection.read_tls(&mut nothing);
        if self.is_handshaking() {
            return Err(TlsError::Other("the connection was closed during the handshake".to_owned()));
        }
        Ok(())
    }

    /// The user's view of an error: first bytes that are not TLS, and ALPN, need our own words.
    fn explain(&self, error: rustls::Error, first: bool) -> TlsError {
        match error {
            rustls::Error::AlertReceived(alert) => TlsError::refused(alert, self.wanted, self.shown),
            rustls::Error::InvalidMessage(_) | rustls::Error::PeerSentOversizedRecord if first => {
                TlsError::NotTls
            }
            error => error.into(),
        }
    }

    /// A server without ALPN speaks HTTP/1.1 (RFC 9112 needs none); HTTP/2 must be chosen (RFC 9113 §3.2).
    fn check_alpn(&self) -> Result<(), TlsError> {
        let Some(wanted) = self.wanted else { return Ok(()) };
        let chosen = match self.connection.alpn_protocol() {
            Some(chosen) if chosen == wanted.as_bytes() => return Ok(()),
            None if wanted == "http/1.1" => return Ok(()),
            Some(chosen) => format!("`{}`", printable(chosen)),
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
            // Many servers close without close_notify. HTTP's framing above us shows whether anything is missing.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Read::Truncated),
            Err(error) => Err(TlsError::Other(error.to_string())),
        }
    }

    /// Encrypts some of `plaintext` for [`TlsSession::send`] and returns how much; 0 during the handshake.
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

    /// Sends `close_notify`.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Whether there is ciphertext to send.
    pub fn wants_send(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes ciphertext to `to`, in one call of its [`write_vectored`](io::Write::write_vectored), straight from the session's
    /// buffers. Returns how much it took; the rest is kept.
    pub fn send(&mut self, to: &mut dyn io::Write) -> io::Result<usize> {
        self.connection.write_tls(to)
    }

    /// Whether the handshake is still under way.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the handshake resumed an earlier session; `None` while that is open.
    pub fn is_resumed(&self) -> Option<bool> {
        self.connection.handshake_kind().map(|kind| kind == HandshakeKind::Resumed)
    }

    /// What was negotiated; `None` while the handshake is under way.
    pub fn facts(&self) -> Option<TlsFacts> {
        let version = self.connection.protocol_version()?;
        let cipher = self.connection.negotiated_cipher_suite()?.suite();
        Some(TlsFacts {
            // rustls uses Rust names for both.
            version: format!("{version:?}").replace('_', "."),
            cipher: Some(format!("{cipher:?}").replace("TLS13_", "TLS_")),
            alpn: self.alpn().map(printable),
            resumed: Some(self.is_resumed()?),
        })
    }

    /// The protocol that was negotiated, if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }
}
