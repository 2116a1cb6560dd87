//! Requests and connections of clients that get to no service, and how their requests end before their time.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::tls::TlsError;
use h2lab_net::transport::TransportError;
use h2lab_proxy::fields::Version;
use h2lab_proxy::log::Entry;
use h2lab_proxy::proxy_protocol::NoHeader;
use h2lab_wire::connection::Refused;

use super::Watch;
use crate::sidecar::exchange::Exchange;
use crate::sidecar::side::{Peer, Side};

impl Watch {
    /// The client's side of an exchange ends before its time. `refused`: what its engine has answered, if it has.
    pub fn left(&self, exchange: &mut Exchange, why: String, refused: Option<Refused>) {
        if !self.is_on {
            return;
        }
        if let (Some(refused), false) = (refused, exchange.is_answered) {
            (exchange.seen.status, exchange.seen.bytes[0]) = (refused.status, refused.body);
        }
        exchange.seen.left = Some(why);
    }

    /// The engine of a client's connection has refused requests that are none of ours.
    pub fn bad_request(&mut self, side: &Side, refused: Refused, now: Time) {
        let Peer::Client { address, .. } = &side.peer else { return };
        if self.is_on {
            self.bad_requests += u64::from(refused.times);
            for _ in 0..refused.times {
                self.log_refused(
                    address,
                    Some(side.version),
                    (refused.status, refused.body),
                    refused.reason,
                    now,
                );
            }
        }
    }

    /// A client's connection has ended without a request under way, since it broke the protocol; its engine had no answer.
    pub fn bad_client(&mut self, side: &Side, why: &str, now: Time) {
        let Peer::Client { address, .. } = &side.peer else { return };
        if self.is_on {
            self.bad_requests += 1;
            self.log_refused(address, Some(side.version), (0, 0), why, now);
        }
    }

    /// A connection of a client has ended before it was known what it speaks.
    pub fn not_opened(&mut self, client: &str, error: &TransportError, now: Time) {
        match error {
            TransportError::Tls(error) => self.tls_failed(client, error, now),
            TransportError::Quic(_) | TransportError::QuicVersion if self.is_on => {
                self.tls_failures += 1;
                self.log_refused(client, None, (0, 0), &format!("QUIC handshake failed: {error}"), now);
            }
            TransportError::Io(error) if self.is_on => {
                let is_header = error.get_ref().and_then(|inner| inner.downcast_ref::<NoHeader>()).is_some();
                if is_header {
                    self.bad_requests += 1;
                    self.log_refused(client, None, (0, 0), &error.to_string(), now);
                }
            }
            _ => {}
        }
    }

    /// The TLS handshake with a client has failed.
    fn tls_failed(&mut self, client: &str, error: &TlsError, now: Time) {
        if !self.is_on {
            return;
        }
        self.tls_failures += 1;
        let why = match error {
            TlsError::Alert(alert) => format!("TLS handshake failed: the client sent the alert {alert}"),
            TlsError::NotTls => "TLS handshake failed: the client does not speak TLS".to_owned(),
            // What follows is advice to users of other commands.
            TlsError::Certificate(why) => {
                let reason = why.split("; ").next().unwrap_or_default();
                format!("TLS handshake failed: the client's certificate is not trusted: {reason}")
            }
            TlsError::Other(why) => format!("TLS handshake failed: {why}"),
            _ => "TLS handshake failed".to_owned(),
        };
        self.log_refused(client, None, (0, 0), &why, now);
    }

    fn log_refused(
        &mut self,
        client: &str,
        version: Option<Version>,
        (status, sent): (u16, u64),
        why: &str,
        now: Time,
    ) {
        let Some(log) = &mut self.log else { return };
        let entry = Entry {
            at: self.since_1970 + now.since(Time::ZERO),
            client,
            method: b"",
            authority: b"",
            path: b"",
            version,
            is_http10: false,
            status,
            received: 0,
            sent,
            took: Duration::ZERO,
            service: None,
            instance: None,
            connection: 0,
            tries: 0,
            grpc_status: None,
            span: None,
            failed: Some(why),
        };
        log.add(&entry, now);
    }
}
