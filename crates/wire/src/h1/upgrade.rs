//! The HTTP/1.1 half of the switch to HTTP/2 in clear, `Upgrade: h2c` (RFC 7540 §3.2): the offer and its answer, both
//! roles.

use std::sync::Arc;

use super::connection::{Connection, Exchange, Life, Offered, Receiving, Sending, Upgrade};
use super::head::{self, Framing, Opening, Refusal, Version, has_token};
use crate::connection::Config;
use crate::upgrade::{Handover, decode, encode};
use crate::{Error, Fields, StreamId, h2};
use h2lab_base::units::Time;

impl Connection {
    /// A client's connection whose first request asks for HTTP/2. It must have no body.
    pub(crate) fn offering_h2c(config: impl Into<Arc<Config>>) -> Self {
        let mut connection = Self::new(config);
        connection.upgrade = Upgrade::Wanted;
        connection
    }

    /// A client's connection that asks for HTTP/2 before anything else. `OPTIONS *` leaves every request of the role to
    /// HTTP/2, at the price of a round trip (RFC 7540 §3.2). Some servers answer it without looking at the offer.
    pub(crate) fn asking_for_h2c(config: impl Into<Arc<Config>>, authority: &str, now: Time) -> Self {
        let mut connection = Self::new(config);
        let config = Arc::clone(&connection.config);
        let mark = connection.output.len();
        for part in ["OPTIONS * HTTP/1.1\r\nhost: ", authority, "\r\n", &offer(&config)] {
            connection.output.push(part.as_bytes());
        }
        connection.end_head(mark, mark);
        let exchange = Exchange::new(StreamId::of_request(0), false, Version::Http11);
        connection.exchange = Some(Exchange { sending: Sending::Complete, ..exchange });
        connection.upgrade = Upgrade::Asked(now + config.peer_timeout);
        connection
    }

    /// Server: checks whether the request whose head was just read offers the switch, and records the offer. An offer
    /// that is incomplete, or whose request has a longer body than [`Config::h2c_upgrade`], is ignored (RFC 9110 §7.8),
    /// and the request stays an HTTP/1.1 request: the JDK's `HttpClient` makes the offer with any body.
    pub(super) fn note_offer(&mut self, framing: Framing, version: Version) -> Result<(), Refusal> {
        let is_first = self.counters.requests == 0 && !self.config.tls;
        let Some(limit) = self.config.h2c_upgrade.filter(|_| is_first).map(u64::from) else { return Ok(()) };
        if framing.ends_connection(version) || version != Version::Http11 {
            return Ok(());
        }
        let fields = Fields::new(&self.scratch.bytes, &self.scratch.spans);
        let Some(settings) = offered_settings(fields) else { return Ok(()) };
        let settings = decode(settings).filter(|payload| h2::are_client_settings(payload));
        let settings = settings.ok_or(Refusal::bad("its HTTP2-Settings is not a valid SETTINGS payload"))?;
        if framing.content_length.is_some_and(|length| length > limit) {
            return Ok(());
        }
        self.upgrade = Upgrade::Offered(Box::new(Offered { settings, body_left: limit }));
        Ok(())
    }

    /// Server: `bytes` of the body of an offering request have arrived. The body is bounded, because nothing else can
    /// be sent on the connection until its end: with a longer one the offer is ignored.
    pub(super) fn charge_offer(&mut self, bytes: u64) {
        let Upgrade::Offered(offered) = &mut self.upgrade else { return };
        match offered.body_left.checked_sub(bytes) {
            Some(left) => offered.body_left = left,
            None => self.upgrade = Upgrade::No,
        }
    }

    /// Whether HTTP/2 was offered or requested, so that [`Connection::switch_to_h2c`] is worth a call.
    pub(crate) const fn may_switch(&self) -> bool {
        !matches!(self.upgrade, Upgrade::No | Upgrade::Wanted)
    }

    /// What HTTP/2 takes over, once both sides have agreed on it. The connection is unusable after that.
    pub(crate) fn switch_to_h2c(&mut self) -> Option<Handover> {
        if !matches!(self.life, Life::Open) {
            return None;
        }
        match &mut self.upgrade {
            Upgrade::No | Upgrade::Wanted => None,
            Upgrade::Offered(offered) => {
                let unanswered =
                    self.exchange.as_ref().is_some_and(|exchange| exchange.sending == Sending::Head);
                if !unanswered || !matches!(self.receiving, Receiving::Complete) {
                    return None;
                }
                let settings = std::mem::take(&mut offered.settings);
                self.output
                    .push(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n");
                Some(self.hand_over(settings))
            }
            Upgrade::Asked(_) => self.read_switch(),
        }
    }

    /// Client: reads the answer to our offer.
    fn read_switch(&mut self) -> Option<Handover> {
        loop {
            match head::opening(self.input.unread(), false) {
                Opening::Http => {}
                Opening::Unclear => return None,
                Opening::Foreign(error) => {
                    self.end(Some(error));
                    return None;
                }
            }
            let head = match self.parse(head::parse_response, |head| head.length) {
                Ok(head) => head?,
                Err(refusal) => {
                    self.refuse(refusal);
                    return None;
                }
            };
            self.take_head(head.length);
            let fields = Fields::new(&self.scratch.bytes, &self.scratch.spans);
            match head.line {
                101 if any_token(fields, b"upgrade", b"h2c") => return Some(self.hand_over(Vec::new())),
                101 => self.refuse(Refusal::bad("it switches to a protocol that we did not ask for")),
                100..=199 => continue,
                _ => {
                    let hint = "it answered `Upgrade: h2c` in HTTP/1.1; use prior knowledge or h1";
                    self.end(Some(Error::WrongProtocol { expected: "HTTP/2", hint }));
                }
            }
            return None;
        }
    }

    fn hand_over(&mut self, settings: Vec<u8>) -> Handover {
        self.upgrade = Upgrade::No;
        Handover {
            config: Arc::clone(&self.config),
            counters: self.counters(),
            unread: self.input.unread().to_vec(),
            unsent: self.output.gathered(),
            settings,
            is_head: self.exchange.as_ref().is_some_and(|exchange| exchange.is_head),
            eof: self.eof.has_come(),
            draining: self.draining || self.announces_close,
        }
    }

    /// Client: by when the server must answer our offer.
    pub(super) const fn upgrade_deadline(&self) -> Time {
        match self.upgrade {
            Upgrade::Asked(deadline) if matches!(self.life, Life::Open) => deadline,
            _ => Time::NEVER,
        }
    }
}

/// The fields of a client's offer.
pub(super) fn offer(config: &Config) -> String {
    let settings = encode(&h2::announced_settings(config));
    format!("connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: {settings}\r\n")
}

/// The value of `HTTP2-Settings` in a complete offer: `Upgrade` names h2c, there is one `HTTP2-Settings`, and
/// `Connection` names both, so that no proxy in between has passed them on by mistake (RFC 7540 §3.2.1).
fn offered_settings(fields: Fields<'_>) -> Option<&[u8]> {
    let of = |name: &'static [u8]| fields.iter().filter(move |field| field.name == name);
    let mut settings = of(b"http2-settings");
    let value = settings.next()?.value;
    let offered = any_token(fields, b"upgrade", b"h2c")
        && any_token(fields, b"connection", b"upgrade")
        && any_token(fields, b"connection", b"http2-settings")
        && settings.next().is_none();
    offered.then_some(value)
}

/// Whether any of the fields with this lower-case name lists `token`.
pub(super) fn any_token(fields: Fields<'_>, name: &[u8], token: &[u8]) -> bool {
    fields.iter().any(|field| field.name == name && has_token(field.value, token))
}
