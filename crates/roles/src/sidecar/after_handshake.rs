//! Why a TLS connection to an instance has ended, if its end alone does not show it. In TLS 1.3 an instance that
//! rejects our certificate, or misses one, reports it after the handshake is over on this side (RFC 8446 §4.4.2.4), or
//! not at all.

use h2lab_net::tls::TlsError;
use h2lab_net::transport::TransportError;
use h2lab_wire::Error;

use super::Sidecar;
use super::side::{Peer, Side};

/// A connection that ends without an error.
pub const CLOSED: &str = "it closed the connection";

/// Whether `why` says only that a connection has ended: without a protocol error or an alert.
fn is_bare_end(why: &str) -> bool {
    let ends = [CLOSED, "the connection ended in the middle of ", "Connection reset", "Broken pipe"];
    ends.iter().any(|end| why.starts_with(end))
}

/// The text of a transport's error, without the flags of other commands.
pub fn words(error: &TransportError) -> String {
    let TransportError::Tls(error) = error else { return error.to_string() };
    match error {
        TlsError::ClientCertificateRequired => "it requires a client certificate".to_owned(),
        TlsError::ClientCertificateRefused(alert) => {
            format!("it rejected our client certificate (alert {alert})")
        }
        _ => {
            let text = error.to_string();
            let (what, advice) = text.split_once("; ").unwrap_or((&text, ""));
            if advice.contains("--") || advice.contains("-k") { what.to_owned() } else { text.clone() }
        }
    }
}

/// Why a connection to an instance, or a client's, ended, according to its engine.
pub fn words_of_engine(error: Option<&Error>, peer: &Peer) -> String {
    let who = match peer {
        Peer::Client { .. } => "the client",
        Peer::Instance(_) => "the instance",
    };
    error.map_or_else(|| CLOSED.to_owned(), |error| said_of(error, who))
}

/// The text of an engine's error, with `who` as its peer: the engine cannot tell, and a proxy has peers on both sides.
/// All of the text is the engine's own.
pub fn said_of(error: &Error, who: &str) -> String {
    error.to_string().replace("the peer", who)
}

impl Sidecar<'_> {
    /// `why`, with the likely cause if an instance has ended a connection before any byte of its first response.
    pub(super) fn after_handshake(&mut self, side: &Side, why: &str) -> Option<String> {
        let Peer::Instance(number) = &side.peer else { return None };
        let is_first = side.requests <= 1 && !side.engine.is_established();
        let is_silent = side.streams.iter().all(|(_, id)| !self.exchanges.get(id).is_answered);
        if !is_bare_end(why) || !side.transport.is_tls() || !is_first || !is_silent {
            return None;
        }
        let service = self.pools.all.get(*number as usize)?.service;
        let name = &self.guard.services.get(service as usize)?.name;
        let has_identity = self.config.file.service.get(name).is_some_and(|of| of.identity.is_some());
        let guess = if has_identity {
            "may have rejected the client certificate"
        } else {
            "may require a client certificate"
        };
        Some(format!("it closed the connection right after the TLS handshake; it {guess}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_says_names_the_side() {
        let client = Peer::Client { listener: 0, address: "192.0.2.7".into() };
        for (error, peer, told) in [
            (Error::BadHttp1("no version"), &client, "invalid HTTP/1.1 from the client: no version"),
            (
                Error::WrongProtocol { expected: "HTTP/1.1", hint: "it looks like TLS" },
                &Peer::Instance(0),
                "the instance does not speak HTTP/1.1: it looks like TLS",
            ),
            (
                Error::GoAway(h2lab_wire::ErrorCode::PROTOCOL_ERROR),
                &Peer::Instance(0),
                "the instance ended the connection with GOAWAY PROTOCOL_ERROR",
            ),
            (Error::Timeout("SETTINGS"), &client, "the client did not send SETTINGS in time"),
        ] {
            assert_eq!(words_of_engine(Some(&error), peer), told);
        }
        assert_eq!(words_of_engine(None, &client), CLOSED);
    }

    #[test]
    fn no_flags_of_other_commands_are_named() {
        for (error, told) in [
            (TlsError::ClientCertificateRequired, "it requires a client certificate"),
            (
                TlsError::ClientCertificateRefused("unknown_ca".to_owned()),
                "it rejected our client certificate (alert unknown_ca)",
            ),
            (
                TlsError::Certificate("it has expired; renew it, or skip verification by -k".to_owned()),
                "the server's certificate is not trusted: it has expired",
            ),
            (TlsError::KeyMismatch, "the private key does not belong to the certificate"),
        ] {
            assert_eq!(words(&TransportError::Tls(error)), told);
        }
    }
}
