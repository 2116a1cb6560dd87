//! The client's side of one attempt, as a state machine without I/O.
//!
//! A 101 by itself proves nothing: proxies forward one and then drop what follows. So SETTINGS must be exchanged and
//! one GET of an allowed path be completed over the tunnel, before the forbidden path is requested in it.

use super::backend_request;
use super::offer::{ATTEMPT, OfferVariant, request};
use h2lab_base::text::printable;
use h2lab_base::units::Time;
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection, Event, Field, Role, StreamId};

/// The target of the requests.
#[derive(Debug, Clone, Copy)]
pub struct SmugglingTarget<'a> {
    /// Host and port, as in the URL.
    pub authority: &'a str,
    /// A path that the proxy allows.
    pub allowed: &'a str,
    /// A path that it forbids.
    pub forbidden: &'a str,
}

/// The progress of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptProgress {
    /// No answer, nor any other event.
    Nothing,
    /// The other end closed without an answer.
    Closed,
    /// An answer in HTTP/1.1: no tunnel.
    Answered {
        /// Its status.
        status: u16,
        /// Our backend sent it.
        from_backend: bool,
    },
    /// 101.
    Switched(Tunnel),
}

/// The state of a connection after its 101.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tunnel {
    /// The peer's SETTINGS arrived.
    pub settings: bool,
    /// The status of the GET of the allowed path on it, and whether our backend sent it.
    pub allowed: Option<(u16, bool)>,
    /// The same for the forbidden path.
    pub forbidden: Option<(u16, bool)>,
    /// The stream of the request for the forbidden path was reset.
    pub resets_forbidden: bool,
    /// Why HTTP/2 ended, if it did.
    pub error: Option<String>,
}

impl Tunnel {
    /// Whether it demonstrably speaks HTTP/2.
    pub const fn is_proved(&self) -> bool {
        self.settings && self.allowed.is_some()
    }

    /// Whether the forbidden path was refused in it: by a status of 300 or above that our backend did not send, or by a reset.
    pub fn denies(&self) -> bool {
        self.resets_forbidden || matches!(self.forbidden, Some((status, false)) if status >= 300)
    }
}

/// One attempt.
#[derive(Debug)]
pub struct Attempt {
    name: String,
    authority: String,
    allowed: String,
    forbidden: String,
    state: State,
    output: Vec<u8>,
    progress: AttemptProgress,
    server: Option<String>,
}

#[derive(Debug)]
enum State {
    /// Waiting for the answer in HTTP/1.1.
    Asked(Vec<u8>),
    /// In the tunnel; the streams of our two requests, once they have begun.
    Tunnel {
        engine: Box<Connection>,
        streams: [Option<StreamId>; 2],
    },
    Over,
}

/// The longest head that is waited for, in bytes; our backend's is shorter.
const LONGEST_HEAD: usize = 64 * 1024;

impl Attempt {
    /// An attempt with this name and `offer`; without one it is an ordinary request for the allowed path.
    pub fn new(name: &str, offer: Option<&OfferVariant>, aim: &SmugglingTarget<'_>) -> Self {
        Self {
            name: name.to_owned(),
            authority: aim.authority.to_owned(),
            allowed: aim.allowed.to_owned(),
            forbidden: aim.forbidden.to_owned(),
            state: State::Asked(Vec::new()),
            output: request(offer, aim.authority, aim.allowed, name),
            progress: AttemptProgress::Nothing,
            server: None,
        }
    }

    /// The software in the proxy's `server` field: our backend has none.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The progress so far.
    pub const fn progress(&self) -> &AttemptProgress {
        &self.progress
    }

    /// Whether nothing more can be learnt.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Bytes arrived at `now`.
    pub fn receive(&mut self, now: Time, bytes: &[u8]) {
        match &mut self.state {
            State::Asked(head) => {
                head.extend_from_slice(bytes);
                self.read_answer(now);
            }
            State::Tunnel { engine, .. } => {
                engine.handle_input(now, bytes);
                self.go_on(now);
            }
            State::Over => {}
        }
    }

    /// The other end has closed.
    pub fn end(&mut self, now: Time) {
        if let State::Tunnel { engine, .. } = &mut self.state {
            engine.handle_eof(now);
            self.go_on(now);
        }
        if self.progress == AttemptProgress::Nothing {
            self.progress = AttemptProgress::Closed;
        }
        self.state = State::Over;
    }

    /// The bytes to send now.
    pub fn transmit(&mut self, now: Time) -> Vec<u8> {
        let mut output = std::mem::take(&mut self.output);
        if let State::Tunnel { engine, .. } = &mut self.state {
            output.append(&mut engine.take_transmit(now));
        }
        output
    }

    fn read_answer(&mut self, now: Time) {
        loop {
            let State::Asked(received) = &mut self.state else { return };
            let Some(length) = backend_request::head_length(received) else {
                if received.len() > LONGEST_HEAD {
                    self.state = State::Over;
                }
                return;
            };
            let head: Vec<u8> = received.drain(..length).collect();
            let server = backend_request::values(&head, "server").first().map(|value| printable(value));
            self.server = self.server.take().or(server);
            match status(&head) {
                Some(101) => {
                    let unread = std::mem::take(received);
                    return self.enter(now, &unread);
                }
                Some(100..=199) => {}
                Some(status) => {
                    let from_backend =
                        backend_request::values(&head, ATTEMPT).contains(&self.name.as_bytes());
                    self.progress = AttemptProgress::Answered { status, from_backend };
                    self.state = State::Over;
                }
                None => self.state = State::Over,
            }
        }
    }

    fn enter(&mut self, now: Time, unread: &[u8]) {
        self.progress = AttemptProgress::Switched(Tunnel::default());
        let config = Config::new(Role::Client);
        let Some(engine) = Connection::h2c_switched(config, b"", unread, now) else {
            self.state = State::Over;
            return;
        };
        self.state = State::Tunnel { engine: Box::new(engine), streams: [None, None] };
        self.go_on(now);
    }

    /// Handles the engine's events, and requests the next path.
    fn go_on(&mut self, now: Time) {
        let (State::Tunnel { engine, streams }, AttemptProgress::Switched(tunnel)) =
            (&mut self.state, &mut self.progress)
        else {
            return;
        };
        let mut over = false;
        while let Some(event) = engine.poll_event(now) {
            match event {
                Event::Response { stream, head, .. } => {
                    let from_backend = head.fields.get(ATTEMPT) == Some(self.name.as_bytes());
                    let answer = Some((head.status, from_backend));
                    if streams[0] == Some(stream) {
                        tunnel.allowed = answer;
                    } else if streams[1] == Some(stream) {
                        tunnel.forbidden = answer;
                        over = true;
                    }
                }
                Event::Reset { stream, code, .. } if streams.contains(&Some(stream)) => {
                    tunnel.resets_forbidden = streams[1] == Some(stream);
                    tunnel.error = Some(format!("the request in the tunnel was reset: {code}"));
                    over = true;
                }
                Event::Closed { error } => {
                    tunnel.error = error.map(|error| error.to_string());
                    over = true;
                }
                _ => {}
            }
        }
        tunnel.settings |= engine.is_established();
        let next = match streams {
            [None, _] if tunnel.settings => Some((0, &self.allowed)),
            [Some(_), None] if tunnel.allowed.is_some() => Some((1, &self.forbidden)),
            _ => None,
        };
        if let Some((k, path)) = next {
            let request = Request {
                method: "GET",
                authority: &self.authority,
                path,
                fields: &[Field::new(ATTEMPT, &self.name), Field::new("cache-control", "no-cache")],
                body_length: None,
                end_stream: true,
            };
            streams[k] = engine.send_request(now, &request);
        }
        if over {
            self.state = State::Over;
        }
    }
}

/// The status of a response's head.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.strip_prefix(b"HTTP/1.")?;
    std::str::from_utf8(line.get(2..5)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::smuggling::backend::Backend;
    use crate::probe::smuggling::offer::OFFERS;

    const AIM: SmugglingTarget<'_> =
        SmugglingTarget { authority: "a.test", allowed: "/", forbidden: "/flag" };

    /// Runs `attempt` against `backend`; a function per direction may change the bytes.
    fn converse(
        attempt: &mut Attempt,
        backend: &mut Backend,
        mut up: impl FnMut(Vec<u8>) -> Vec<u8>,
        mut down: impl FnMut(Vec<u8>) -> Vec<u8>,
    ) {
        for _ in 0..20 {
            let sent = up(attempt.transmit(Time::ZERO));
            backend.receive(Time::ZERO, &sent);
            let answered = down(backend.transmit(Time::ZERO));
            attempt.receive(Time::ZERO, &answered);
        }
    }

    #[test]
    fn a_hop_that_passes_everything_on_is_tunnelled_through_to_the_forbidden_path() {
        for (strictness, offers) in [("strict", &[0, 2, 4, 5, 6, 7][..]), ("lax", &[0, 1, 2, 3, 4, 5, 6, 7])]
        {
            for offer in offers {
                let offer = &OFFERS[*offer];
                let mut attempt = Attempt::new(&format!("1-{strictness}"), Some(offer), &AIM);
                let mut backend = Backend::default();
                converse(&mut attempt, &mut backend, |bytes| bytes, |bytes| bytes);
                let AttemptProgress::Switched(tunnel) = attempt.progress() else { panic!("{}", offer.id) };
                assert!(tunnel.is_proved() && tunnel.error.is_none(), "{}: {tunnel:?}", offer.id);
                assert_eq!((tunnel.allowed, tunnel.forbidden), (Some((200, true)), Some((200, true))));
                let switched = backend.switched().unwrap();
                assert!(switched.established && attempt.is_over());
                assert_eq!(switched.paths, ["/", "/", "/flag"]);
            }
        }
    }

    #[test]
    fn a_101_whose_tunnel_carries_nothing_is_no_tunnel() {
        let mut attempt = Attempt::new("1-lax", Some(&OFFERS[0]), &AIM);
        let mut backend = Backend::default();
        let only_heads = |bytes: Vec<u8>| if bytes.starts_with(b"GET") { bytes } else { Vec::new() };
        // The backend's 101 arrives in a read of its own.
        let cut = |bytes: Vec<u8>| {
            let length = backend_request::head_length(&bytes).unwrap_or(0);
            bytes[..length].to_vec()
        };
        converse(&mut attempt, &mut backend, only_heads, cut);
        let AttemptProgress::Switched(tunnel) = attempt.progress() else { panic!("no 101") };
        assert!(!tunnel.is_proved() && !backend.switched().unwrap().established);
        // A continuation in HTTP/1.1 is no tunnel either.
        let mut attempt = Attempt::new("1-lax", Some(&OFFERS[0]), &AIM);
        attempt.receive(Time::ZERO, b"HTTP/1.1 101 Switching\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\n");
        let AttemptProgress::Switched(tunnel) = attempt.progress() else { panic!("no 101") };
        assert!(!tunnel.is_proved() && tunnel.error.is_some() && attempt.is_over(), "{tunnel:?}");
    }

    #[test]
    fn another_answer_or_a_reset_denies_and_silence_does_not() {
        let answered = |status, ours| Tunnel { forbidden: Some((status, ours)), ..Tunnel::default() };
        assert!(answered(403, false).denies() && answered(302, false).denies());
        assert!(Tunnel { resets_forbidden: true, ..Tunnel::default() }.denies());
        assert!(
            !answered(200, true).denies() && !answered(200, false).denies() && !Tunnel::default().denies()
        );
    }

    #[test]
    fn a_close_without_an_answer_is_distinguished_from_silence() {
        let mut attempt = Attempt::new("1-lax", None, &AIM);
        assert_eq!(*attempt.progress(), AttemptProgress::Nothing);
        attempt.end(Time::ZERO);
        assert_eq!(*attempt.progress(), AttemptProgress::Closed);
    }

    #[test]
    fn an_answer_in_http_1_1_says_who_gave_it() {
        for (answer, from_backend) in [
            (&b"HTTP/1.1 200 OK\r\nX-H2lab-Attempt: 1-lax\r\n\r\n"[..], true),
            (b"HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\nServer: nginx/1.22\r\n\r\n", false),
        ] {
            let mut attempt = Attempt::new("1-lax", Some(&OFFERS[0]), &AIM);
            attempt.receive(Time::ZERO, answer);
            assert_eq!(attempt.server(), Some("nginx/1.22").filter(|_| !from_backend));
            assert_eq!(*attempt.progress(), AttemptProgress::Answered { status: 200, from_backend });
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_is_answered_makes_it_panic(mut answer: Vec<u8>, switched: bool) {
            if switched {
                answer.splice(0..0, *b"HTTP/1.1 101 x\r\n\r\n");
            }
            let mut attempt = Attempt::new("1-lax", Some(&OFFERS[0]), &AIM);
            attempt.receive(Time::ZERO, &answer);
            attempt.end(Time::ZERO);
            attempt.transmit(Time::ZERO);
        }
    }
}
