//! One question and its answer over any protocol, by our own engines: what a well-behaved client would see.

use std::cell::RefCell;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::probe::server::{Answer, Ended, Lines};
use h2lab_model::workload::Protocol;
use h2lab_wire::connection::Request;
use h2lab_wire::trace::Direction;
use h2lab_wire::trace::detail::printable;
use h2lab_wire::{Connection, Error, ErrorCode, Event, Field, Fields, StreamId};

use super::dial::dial;
use super::tape::Tape;
use super::{ProbeError, Prober};
use crate::client::connect::Established;
use crate::client::{ConnectError, Target};
use h2lab_net::reactor::Reactor;
use h2lab_net::transport::{Crossing, Received, Sent, Transport};

/// Bytes of a body that are kept.
const KEPT: usize = 1 << 20;
/// Interim responses, and promises, that are kept.
const SEVERAL: usize = 100;

/// A request to be answered.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// `GET` …
    pub method: String,
    /// Another authority than the host's.
    pub authority: Option<String>,
    /// Path and query.
    pub path: String,
    /// Field lines, lower-case names.
    pub fields: Lines,
    /// The body; none if empty.
    pub body: Vec<u8>,
    /// Whether the server may push.
    pub accepts_push: bool,
    /// The body goes only after a 100, or when this has passed without one.
    pub waits_for_100: Option<Duration>,
}

impl Question {
    /// A GET of `path`.
    pub fn get(path: &str) -> Self {
        Self { method: "GET".to_owned(), path: path.to_owned(), ..Self::default() }
    }

    /// The same with a further field.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Asks `question` on a connection of its own in `protocol`. That it ends early is an answer, too; that there is no connection is
/// an error.
pub fn ask(prober: &mut Prober, protocol: Protocol, question: &Question) -> Result<Answer, ProbeError> {
    prober.take_request()?;
    let mut target = prober.target(protocol)?;
    target.engine.enable_push = question.accepts_push;
    let began = prober.now();
    let (reactor, established) = dial(prober, &target)?;
    Asking::new(prober, protocol, &target, established, reactor, began).run(question)
}

/// An exchange under way.
struct Asking<'a> {
    prober: &'a mut Prober,
    reactor: Reactor,
    transport: Transport,
    engine: Connection,
    tape: RefCell<Tape>,
    answer: Answer,
    stream: Option<StreamId>,
    sent_at: Time,
    body_sent: usize,
    may_send_body: bool,
    over: bool,
}

impl<'a> Asking<'a> {
    fn new(
        prober: &'a mut Prober,
        protocol: Protocol,
        target: &Target,
        established: Established,
        reactor: Reactor,
        began: Time,
    ) -> Self {
        let (now, config) = (prober.now(), target.engine);
        let mut tape = Tape::new(began);
        let engine = if protocol.is_quic() {
            Connection::h3(config, now)
        } else if protocol.is_multiplexed() {
            tape.reads_frames();
            Connection::h2(config, now)
        } else {
            Connection::h1(config)
        };
        let mut transport = established.transport;
        if let Some(quic) = transport.quic_mut() {
            quic.expect_streams(1);
        }
        Self {
            prober,
            reactor,
            transport,
            engine,
            tape: RefCell::new(tape),
            answer: Answer::none(),
            stream: None,
            sent_at: now,
            body_sent: 0,
            may_send_body: true,
            over: false,
        }
    }

    fn run(mut self, question: &Question) -> Result<Answer, ProbeError> {
        let mut until = self.prober.soon();
        // A response that never ends is cut off, however often something comes.
        let hard = self.prober.now() + 4 * self.prober.patience;
        let mut body_from = Time::ZERO;
        self.may_send_body = question.waits_for_100.is_none();
        loop {
            self.prober.check_stop()?;
            let progress = self.receive()?;
            self.begin(question);
            if let Some(wait) = question.waits_for_100
                && self.stream.is_some()
                && body_from == Time::ZERO
            {
                body_from = self.prober.now() + wait;
            }
            if !self.may_send_body && body_from > Time::ZERO && self.prober.now() >= body_from {
                self.may_send_body = true;
            }
            self.push_body(question);
            self.send()?;
            if self.over {
                break;
            }
            if self.prober.now() >= hard {
                let ended = if self.answer.status > 0 { Ended::Cut } else { Ended::Silence };
                self.finish(ended);
                break;
            }
            if progress {
                until = self.prober.soon();
            } else if self.prober.now() >= until {
                break;
            }
            let next = [until, self.engine.poll_timeout(), self.transport.timeout()];
            let mut wake = next.into_iter().min().unwrap_or(until);
            if !self.may_send_body && body_from > Time::ZERO {
                wake = wake.min(body_from);
            }
            if !progress {
                let now = self.reactor.wait(wake)?;
                while self.reactor.next_completion().is_some() {}
                if now >= self.engine.poll_timeout() {
                    self.engine.handle_timeout(now);
                }
                self.transport.handle_timeout(now);
            }
        }
        self.answer.settings = self.engine.settings_in_effect().1;
        self.engine.goaway(self.prober.now(), ErrorCode::NO_ERROR, b"");
        let _ = self.send(); // a goodbye that the budget has no room for changes no answer
        let _ = self.transport.shutdown(self.prober.now()); // who has gone will not miss it
        self.answer.exhibits = self.tape.borrow().exhibits();
        Ok(self.answer)
    }

    fn begin(&mut self, question: &Question) {
        if self.stream.is_some() || !self.engine.is_established() || self.engine.available_streams() == 0 {
            return;
        }
        let fields: Vec<Field<'_>> =
            question.fields.iter().map(|(name, value)| Field::new(name, value)).collect();
        let authority = question.authority.clone().unwrap_or_else(|| self.prober.host.authority.clone());
        let has_body = !question.body.is_empty();
        let request = Request {
            method: &question.method,
            authority: &authority,
            path: &question.path,
            fields: &fields,
            body_length: has_body.then_some(question.body.len() as u64),
            end_stream: !has_body,
        };
        self.sent_at = self.prober.now();
        self.stream = self.engine.send_request(self.sent_at, &request);
    }

    fn push_body(&mut self, question: &Question) {
        let Some(stream) = self.stream.filter(|_| self.may_send_body) else { return };
        if self.body_sent < question.body.len() {
            let rest = &question.body[self.body_sent..];
            self.answer.body_sent_at.get_or_insert(self.prober.now().since(self.sent_at));
            self.body_sent += self.engine.send_data(self.prober.now(), stream, rest, true);
        }
    }

    /// Takes what has come; whether there was anything.
    fn receive(&mut self) -> Result<bool, ProbeError> {
        let mut any = false;
        loop {
            if let Err(error) = self.prober.may_receive(1) {
                self.take_events();
                if self.answer.status == 0 {
                    return Err(error);
                }
                self.finish(Ended::Cut);
                break;
            }
            let (clock, tape) = (self.prober.clock(), &self.tape);
            let mut n = 0;
            let received = self.transport.receive(&mut self.engine, || clock.now(), &mut |at, crossing| {
                if let Crossing::Bytes { stream, bytes, .. } = crossing {
                    n += bytes.len();
                    if stream.is_none() {
                        tape.borrow_mut().record(at, Direction::Down, bytes);
                    }
                }
            });
            self.prober.received(n);
            match received {
                Ok(Received::Bytes(_)) => any = true,
                Ok(Received::WouldBlock) => break,
                Ok(Received::Eof) => {
                    any = true;
                    self.take_events();
                    self.finish(Ended::Closed("the server closed it".to_owned()));
                    break;
                }
                Err(error) => {
                    self.take_events();
                    self.finish(Ended::Closed(ConnectError::from(error).to_string()));
                    break;
                }
            }
            self.take_events();
            if self.over {
                break;
            }
        }
        self.take_events();
        Ok(any)
    }

    fn finish(&mut self, ended: Ended) {
        if !self.over {
            self.answer.ended = ended;
            self.over = true;
        }
    }

    fn take_events(&mut self) {
        let now = self.prober.now();
        let (ours, since) = (self.stream, now.since(self.sent_at));
        let most_read = self.prober.most_read;
        while let Some(event) = self.engine.poll_event(now) {
            let answer = &mut self.answer;
            let mut ended = None;
            match event {
                Event::Interim { stream, head } if Some(stream) == ours => {
                    self.may_send_body |= head.status == 100;
                    if answer.interim.len() < SEVERAL {
                        answer.interim.push((head.status, lines(head.fields), since));
                    }
                }
                Event::Response { stream, head, end_stream } if Some(stream) == ours => {
                    (answer.status, answer.fields) = (head.status, lines(head.fields));
                    answer.head_at = Some(since);
                    ended = end_stream.then_some(Ended::Complete);
                }
                Event::Data { stream, data, end_stream } if Some(stream) == ours => {
                    let room = KEPT.saturating_sub(answer.body.len());
                    answer.body.extend_from_slice(&data[..data.len().min(room)]);
                    answer.body_bytes += data.len() as u64;
                    if !data.is_empty() {
                        answer.pieces = Some((answer.pieces.map_or(since, |(first, _)| first), since));
                    }
                    ended = if end_stream {
                        Some(Ended::Complete)
                    } else {
                        (answer.body_bytes >= most_read).then_some(Ended::Cut)
                    };
                }
                Event::Trailers { stream, fields } if Some(stream) == ours => {
                    answer.trailers = lines(fields);
                    ended = Some(Ended::Complete);
                }
                Event::PushPromise { head, .. } => {
                    let path = (answer.pushes.len() < SEVERAL).then(|| printable(head.path));
                    answer.pushes.extend(path);
                }
                Event::Reset { stream, code, initiator } if Some(stream) == ours => {
                    use h2lab_wire::Initiator;
                    ended = Some(match initiator {
                        Initiator::Engine => Ended::Refused(format!("our engine resets it with {code}")),
                        Initiator::Remote | Initiator::Local => Ended::Reset(code),
                    });
                }
                Event::Closed { error } => {
                    ended = Some(match error {
                        None => Ended::Closed("in order, without an answer".to_owned()),
                        Some(
                            error @ (Error::PeerMisbehaved { .. }
                            | Error::BadHttp1(_)
                            | Error::WrongProtocol { .. }
                            | Error::Exceeded(_)),
                        ) => Ended::Refused(error.to_string()),
                        Some(error) => Ended::Closed(error.to_string()),
                    });
                }
                _ => {}
            }
            if let Some(ended) = ended
                && !self.over
            {
                (answer.ended, self.over) = (ended, true);
            }
        }
    }

    fn send(&mut self) -> Result<(), ProbeError> {
        loop {
            // What has gone cannot be taken back: what waits must fit into the budget before any of it goes.
            self.prober.may_send(self.engine.unsent())?;
            let (clock, tape) = (self.prober.clock(), &self.tape);
            let mut n = 0;
            let sent = self.transport.send(&mut self.engine, clock.now(), &mut |crossing| {
                if let Crossing::Bytes { stream, bytes, .. } = crossing {
                    n += bytes.len();
                    if stream.is_none() {
                        tape.borrow_mut().record(clock.now(), Direction::Up, bytes);
                    }
                }
            });
            self.prober.sent(n);
            match sent {
                Ok(Sent::Bytes { .. }) => {}
                Ok(Sent::Nothing | Sent::WouldBlock) => break,
                Err(error) => {
                    self.finish(Ended::Closed(ConnectError::from(error).to_string()));
                    return Ok(());
                }
            }
        }
        let _ = self.transport.flush(self.prober.now()); // an error shows at the next reading
        Ok(())
    }
}

fn lines(fields: Fields<'_>) -> Lines {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields.iter().map(|field| (text(field.name), text(field.value))).collect()
}
