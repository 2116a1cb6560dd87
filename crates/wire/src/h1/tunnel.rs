//! Tunnels: what follows a switch of protocols (RFC 9110 §7.8) or a CONNECT that was accepted (§9.3.6), and connections
//! that carry nothing else.

use std::sync::Arc;

use super::body::{Decoder, Encoder};
use super::connection::{Connection, Exchange, Receiving, SWITCHING, Sending, push_fields};
use super::head::Version;
use crate::connection::{Config, Response};
use crate::{Field, Role, StreamId};

impl Connection {
    /// See [`crate::Connection::tunnel`].
    pub(crate) fn tunnel(config: impl Into<Arc<Config>>) -> Self {
        let mut connection = Self::new(config);
        connection.is_raw = true;
        connection
    }

    /// See [`crate::Connection::is_tunnel`].
    pub(crate) const fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// Whether received bytes wait until the role claims the tunnel. Some servers speak first.
    pub(super) const fn awaits_its_tunnel(&self) -> bool {
        self.is_raw && self.exchange.is_none()
    }

    /// Begins the tunnel; nothing is sent for that.
    pub(super) fn claim_tunnel(&mut self) -> StreamId {
        let stream = StreamId::of_request(0);
        self.counters.requests = 1;
        self.exchange = Some(Exchange { is_connect: true, ..Exchange::new(stream, false, Version::Http11) });
        self.begin_tunnel();
        stream
    }

    /// Accepts a CONNECT: neither content-length nor transfer-encoding, and all that follows belongs to the tunnel.
    pub(super) fn accept_connect(&mut self, response: &Response<'_>) {
        let mark = self.output.len();
        self.push_status_line(response.status);
        let fields_at = self.output.len();
        if let Err(misuse) = push_fields(&mut self.output, response.fields) {
            return self.misuse(mark, misuse);
        }
        self.end_head(mark, fields_at);
        self.begin_tunnel();
        if response.end_stream {
            self.finish_body(&[]);
        }
    }

    /// Answers a request with 101: what follows in both directions belongs to another protocol, until the connection
    /// ends.
    pub(super) fn switch(&mut self, fields: &[Field<'_>]) {
        let mark = self.output.len();
        if !matches!(self.receiving, Receiving::Complete) {
            return self.misuse(mark, "a switch of protocols in the middle of a request");
        }
        self.push_status_line(SWITCHING);
        let fields_at = self.output.len();
        self.output.push(b"connection: upgrade\r\n");
        if let Err(misuse) = push_fields(&mut self.output, fields) {
            return self.misuse(mark, misuse);
        }
        self.end_head(mark, fields_at);
        self.begin_tunnel();
    }

    /// See [`crate::Connection::has_ended_its_direction`].
    pub fn has_ended_its_direction(&self) -> bool {
        let is_tunnel = matches!(self.receiving, Receiving::Body(Decoder::UntilClose));
        let asks = |exchange: &&Exchange| exchange.asks_for.is_some() || exchange.is_connect;
        let exchange = self.exchange.as_ref().filter(|exchange| is_tunnel && asks(exchange));
        exchange.is_some_and(|exchange| exchange.sending == Sending::Complete) && self.output.is_empty()
    }

    /// From now on all bytes are DATA.
    pub(super) fn begin_tunnel(&mut self) {
        let Some(exchange) = &mut self.exchange else { return };
        exchange.close = true;
        exchange.sending = Sending::Body(Encoder::UntilClose);
        self.receiving = Receiving::Body(Decoder::UntilClose);
    }

    /// See [`crate::Connection::announce_end`].
    pub fn announce_end(&mut self) {
        match self.config.role {
            // The peer learns of it by the close.
            Role::Client => self.draining = true,
            // If the head of the response under way did not announce the close, that response is not the last: its
            // client may have sent the next request already.
            Role::Server => self.announces_close = true,
        }
    }
}
