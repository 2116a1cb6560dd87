//! The rest of a request whose response is complete. A server reads all of a request or closes the connection (RFC 9112
//! §9.3). A close that no response has announced loses a request that the client may have sent after it.

use std::time::Duration;

use super::body::Decoder;
use super::connection::{Connection, Life, Receiving, Sending};
use crate::{Role, StreamId};
use h2lab_base::units::Time;

/// A body of which more bytes than this are to come is large.
const MUCH: u64 = 1 << 20;
/// How many bytes are read and thrown away before the connection is closed.
const MOST_READ: u64 = 64 << 20;
/// For how long bytes are read and thrown away.
const PERIOD: Duration = Duration::from_secs(5);

/// The rest of a request is read and thrown away.
#[derive(Debug)]
pub(super) struct Unwanted {
    /// Until when it is read.
    until: Time,
    /// Bytes that may still come.
    left: u64,
}

impl Connection {
    /// See [`crate::Connection::is_much_to_come`].
    pub(crate) fn is_much_to_come(&self) -> bool {
        let Receiving::Body(decoder) = &self.receiving else { return false };
        match decoder {
            Decoder::Length(left) => left.saturating_sub(self.input.unread().len() as u64) > MUCH,
            Decoder::Chunked(_) => true,
            Decoder::UntilClose => false,
        }
    }

    /// See [`crate::Connection::forgo`]; `false` if there is no rest, or its response is not complete.
    pub(crate) fn forgo(&mut self, now: Time, stream: StreamId) -> bool {
        let is_message = matches!(
            self.receiving,
            Receiving::Body(Decoder::Length(_) | Decoder::Chunked(_)) | Receiving::Trailers
        );
        let is_server = self.config.role == Role::Server && is_message && matches!(self.life, Life::Open);
        let Some(exchange) = self.exchange.as_mut().filter(|exchange| is_server && exchange.stream == stream)
        else {
            return false;
        };
        let is_kept = exchange.sending == Sending::Complete && !exchange.close;
        if is_kept {
            exchange.unwanted = Some(Box::new(Unwanted { until: now + PERIOD, left: MOST_READ }));
        }
        is_kept
    }

    /// Until when the rest of a request is waited for.
    pub(super) fn unwanted_until(&self) -> Time {
        let unwanted = self.exchange.as_ref().and_then(|exchange| exchange.unwanted.as_ref());
        unwanted.map_or(Time::NEVER, |unwanted| unwanted.until)
    }

    /// `bytes` of a body have arrived; returns whether they are thrown away. Too many end the connection.
    pub(super) fn throws_away(&mut self, bytes: u64) -> bool {
        let Some(unwanted) = self.exchange.as_mut().and_then(|exchange| exchange.unwanted.as_mut()) else {
            return false;
        };
        match unwanted.left.checked_sub(bytes) {
            Some(left) => unwanted.left = left,
            None => self.end(None),
        }
        true
    }
}
