//! The built-in backend: it records every byte, answers everything, and switches to HTTP/2 when it is offered.

use super::backend_request::{self, BackendBytes, BackendRequest};
use super::offer::{ATTEMPT, Strictness};
use h2lab_base::text::printable;
use h2lab_base::units::Time;
use h2lab_wire::connection::Response;
use h2lab_wire::{Config, Connection, Event, Field, Role};

/// The most paths recorded of one connection: an attempt requests three.
const PATHS: usize = 64;

/// One connection at the backend, without I/O.
///
/// It decides by the request itself ([`ATTEMPT`] names the strictness), without state of its own: a
/// proxy may use any of its connections for any request.
#[derive(Debug, Default)]
pub struct Backend {
    received: BackendBytes,
    /// When its first bytes came.
    arrived_at: Option<Time>,
    state: State,
    output: Vec<u8>,
    /// The switch of this connection, if any.
    switched: Option<Switched>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Http1,
    Http2(Box<Connection>),
    /// The answer closes the connection, and no further request is read.
    Over,
}

/// What happened on a connection that we switched to HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switched {
    /// The attempt whose offer was accepted.
    pub attempt: String,
    /// The client's SETTINGS came over it: the hops between forward HTTP/2.
    pub established: bool,
    /// Paths that were requested in HTTP/2, beginning with that of the offering request.
    pub paths: Vec<String>,
}

impl Backend {
    /// The bytes received.
    pub const fn backend_request(&self) -> &BackendBytes {
        &self.received
    }

    /// When its first bytes came; `None` if none did.
    pub const fn arrived_at(&self) -> Option<Time> {
        self.arrived_at
    }

    /// The state after the switch to HTTP/2; `None` if we did not.
    pub const fn switched(&self) -> Option<&Switched> {
        self.switched.as_ref()
    }

    /// Whether to close the connection once its output was sent.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Bytes arrived at `now`.
    pub fn receive(&mut self, now: Time, bytes: &[u8]) {
        self.arrived_at.get_or_insert(now);
        match &mut self.state {
            State::Http2(engine) => {
                engine.handle_input(now, bytes);
                self.serve(now);
            }
            State::Http1 => {
                for request in self.received.receive(bytes) {
                    if matches!(self.state, State::Http1) {
                        self.answer(now, &request);
                    }
                }
            }
            // Still recorded: a smuggled request may follow on the same connection.
            State::Over => drop(self.received.receive(bytes)),
        }
    }

    /// The bytes to send now.
    pub fn transmit(&mut self, now: Time) -> Vec<u8> {
        let mut output = std::mem::take(&mut self.output);
        if let State::Http2(engine) = &mut self.state {
            output.append(&mut engine.take_transmit(now));
        }
        output
    }

    fn answer(&mut self, now: Time, request: &BackendRequest) {
        let bytes = self.received.bytes();
        let head = &bytes[request.head.clone()];
        let attempt = attempt(head).unwrap_or_default();
        let Some(settings) = accepted(head, &attempt) else {
            let body = format!("h2lab's backend, attempt {attempt}\n");
            let length = body.len();
            self.output.extend_from_slice(
                format!(
                    "HTTP/1.1 200 OK\r\n{ATTEMPT}: {attempt}\r\nContent-Type: text/plain\r\n\
                     Content-Length: {length}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}"
                )
                .as_bytes(),
            );
            self.state = State::Over;
            return;
        };
        let unread = self.received.rest().to_vec();
        let path = printable(backend_request::path(head).unwrap_or_default());
        let config = Config::new(Role::Server);
        let Some(engine) = Connection::h2c_switched(config, settings, &unread, now) else {
            self.state = State::Over; // invalid settings: a server would answer 400 and close
            return;
        };
        self.output.extend_from_slice(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        );
        self.switched = Some(Switched { attempt, established: false, paths: vec![path] });
        self.state = State::Http2(Box::new(engine));
        self.respond(now, vec![1]);
        self.serve(now);
    }

    /// Handles the engine's events, and answers its requests.
    fn serve(&mut self, now: Time) {
        let (State::Http2(engine), Some(switched)) = (&mut self.state, &mut self.switched) else { return };
        let mut streams = Vec::new();
        let mut over = false;
        while let Some(event) = engine.poll_event(now) {
            match event {
                Event::Request { stream, head, .. } => {
                    if switched.paths.len() < PATHS {
                        switched.paths.push(printable(head.path));
                    }
                    streams.push(stream.0);
                }
                Event::Closed { .. } => over = true,
                _ => {}
            }
        }
        switched.established |= engine.is_established();
        self.respond(now, streams);
        if over {
            let last = self.transmit(now);
            self.output = last;
            self.state = State::Over;
        }
    }

    fn respond(&mut self, now: Time, streams: Vec<u32>) {
        let (State::Http2(engine), Some(switched)) = (&mut self.state, &self.switched) else { return };
        let fields = [Field::new(ATTEMPT, &switched.attempt), Field::new("cache-control", "no-store")];
        for stream in streams {
            let response = Response { status: 200, fields: &fields, body_length: Some(0), end_stream: true };
            engine.send_response(now, h2lab_wire::StreamId(stream), &response);
        }
    }
}

/// The attempt that a head names.
pub fn attempt(head: &[u8]) -> Option<String> {
    let value = *backend_request::values(head, ATTEMPT).first()?;
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    (value.len() < 64 && value.iter().all(is_word)).then(|| String::from_utf8_lossy(value).into_owned())
}

/// The value of `HTTP2-Settings`, perhaps none, if a server with the attempt's strictness would switch.
fn accepted<'a>(head: &'a [u8], attempt: &str) -> Option<&'a [u8]> {
    let settings = backend_request::values(head, "http2-settings");
    if !backend_request::has_token(head, "upgrade", "h2c") {
        return None;
    }
    if attempt.ends_with(Strictness::Lax.name()) {
        return Some(settings.first().copied().unwrap_or_default());
    }
    let is_named = backend_request::has_token(head, "connection", "http2-settings");
    (attempt.ends_with(Strictness::Strict.name()) && is_named && settings.len() == 1).then(|| settings[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::smuggling::offer::{OFFERS, request};

    fn answered(offer: Option<usize>, attempt: &str) -> String {
        let mut backend = Backend::default();
        backend.receive(Time::ZERO, &request(offer.map(|n| &OFFERS[n]), "a", "/x", attempt));
        let output = backend.transmit(Time::ZERO);
        String::from_utf8_lossy(&output[..12.min(output.len())]).into_owned()
    }

    #[test]
    fn a_lax_backend_switches_for_what_a_strict_one_does_not() {
        for (n, strict, lax) in [(0, "101", "101"), (1, "200", "101"), (2, "101", "101"), (3, "200", "101")] {
            assert_eq!(answered(Some(n), "1-strict"), format!("HTTP/1.1 {strict}"), "{}", OFFERS[n].id);
            assert_eq!(answered(Some(n), "1-lax"), format!("HTTP/1.1 {lax}"), "{}", OFFERS[n].id);
        }
        for strictness in ["1-strict", "1-lax"] {
            assert_eq!(answered(None, strictness), "HTTP/1.1 200");
        }
    }

    #[test]
    fn what_follows_an_answered_request_is_recorded_and_not_answered() {
        let mut backend = Backend::default();
        let twice = [request(None, "a", "/x", "1-lax"), request(None, "a", "/y", "1-lax")].concat();
        backend.receive(Time::ZERO, &twice);
        assert!(backend.is_over());
        assert_eq!(backend.backend_request().requests().len(), 2);
        let said = backend.transmit(Time::ZERO);
        assert!(said.windows(23).any(|bytes| bytes == b"Cache-Control: no-store"), "caches must not keep it");
        assert_eq!(said.windows(15).filter(|bytes| *bytes == b"HTTP/1.1 200 OK").count(), 1);
    }
}
