//! How a connection ends: errors, deadlines, GOAWAY (RFC 9113 §5.4.1, §6.8), the end of the transport.

use std::collections::VecDeque;
use std::time::Duration;

use super::fault::Fault;
use super::frame::{MAX_31_BITS, kind};
use super::{Connection, Role};
use crate::ending::End;
use crate::{Error, ErrorCode, Exceeded, Limit};
use h2lab_base::units::Time;

/// What the peer must send next before anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    /// The 24 octets of a client.
    Preface,
    Settings,
    Complete,
}

/// What both sides must send first, and by when.
#[derive(Debug)]
pub(super) struct Handshake {
    greeting: Greeting,
    acknowledgement_due: bool,
    deadline: Time,
    /// The transport will deliver no more.
    eof: bool,
}

impl Handshake {
    pub(super) fn new(role: Role, deadline: Time) -> Self {
        Self {
            greeting: if role == Role::Server { Greeting::Preface } else { Greeting::Settings },
            acknowledgement_due: true,
            deadline,
            eof: false,
        }
    }

    pub(super) const fn is_established(&self) -> bool {
        matches!(self.greeting, Greeting::Complete)
    }

    pub(super) const fn is_preface_due(&self) -> bool {
        matches!(self.greeting, Greeting::Preface)
    }

    pub(super) const fn preface_seen(&mut self) {
        self.greeting = Greeting::Settings;
    }

    pub(super) const fn settings_seen(&mut self) {
        self.greeting = Greeting::Complete;
        self.stop_if_done();
    }

    /// Our SETTINGS are acknowledged; `false` if they were before.
    pub(super) const fn settings_acknowledged(&mut self) -> bool {
        let first = self.acknowledgement_due;
        self.acknowledgement_due = false;
        self.stop_if_done();
        first
    }

    const fn stop_if_done(&mut self) {
        if self.is_established() && !self.acknowledgement_due {
            self.deadline = Time::NEVER;
        }
    }
}

/// PINGs that we sent, and our answers that the peer has not read.
#[derive(Debug)]
pub(super) struct Pings {
    /// Payload and time of those not acknowledged, oldest first.
    waiting: VecDeque<(u64, Time)>,
    next: u64,
    deadline: Time,
    /// Answers not yet offered to the transport: the peer is not to blame for not reading them.
    queued_answers: u32,
    unread_answers: u32,
    /// When this much has been transmitted, the answers counted so far have been read.
    read_at: u64,
    transmitted: u64,
    /// See [`super::super::Connection::pings_since_message`].
    since_message: u32,
}

impl Default for Pings {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            next: 0,
            deadline: Time::NEVER,
            queued_answers: 0,
            unread_answers: 0,
            read_at: 0,
            transmitted: 0,
            since_message: 0,
        }
    }
}

impl Pings {
    /// A PING is sent.
    pub(super) const fn sent(&mut self) {
        self.since_message += 1;
    }

    /// HEADERS or DATA have arrived. PINGs without an answer may reach the peer after it has sent them.
    #[inline]
    pub(super) fn message_came(&mut self) {
        if self.since_message > 0 {
            self.since_message = self.since_message.min(self.waiting.len() as u32);
        }
    }

    /// See [`super::super::Connection::pings_since_message`].
    pub(super) const fn since_message(&self) -> u32 {
        self.since_message
    }

    /// The payload of a new PING.
    pub(super) fn begin(&mut self, now: Time, timeout: Duration) -> [u8; 8] {
        let payload = self.next;
        self.next += 1;
        self.waiting.push_back((payload, now));
        self.rearm(timeout);
        payload.to_be_bytes()
    }

    /// When the PING with this payload was sent, if it is ours.
    pub(super) fn acknowledge(&mut self, payload: [u8; 8], timeout: Duration) -> Option<Time> {
        let payload = u64::from_be_bytes(payload);
        let place = self.waiting.iter().position(|ping| ping.0 == payload)?;
        let (_, sent) = self.waiting.remove(place)?;
        self.rearm(timeout);
        Some(sent)
    }

    /// Whether the oldest PING that is not acknowledged has this payload.
    fn is_oldest(&self, payload: [u8; 8]) -> bool {
        self.waiting.front().is_some_and(|ping| ping.0.to_be_bytes() == payload)
    }

    fn rearm(&mut self, timeout: Duration) {
        self.deadline = self.waiting.front().map_or(Time::NEVER, |ping| ping.1 + timeout);
    }

    /// We queued an answer.
    pub(super) const fn answered(&mut self) {
        self.queued_answers += 1;
    }

    /// Answers that were not offered to the transport yet.
    pub(super) const fn queued_answers(&self) -> u32 {
        self.queued_answers
    }

    /// All that is `pending`, in bytes, is offered to the transport.
    pub(super) const fn offered(&mut self, pending: usize) {
        if self.queued_answers == 0 {
            return;
        }
        if self.unread_answers == 0 {
            self.read_at = self.transmitted + pending as u64;
        }
        self.unread_answers += self.queued_answers;
        self.queued_answers = 0;
    }

    /// `n` bytes were transmitted.
    pub(super) const fn transmitted(&mut self, n: usize) {
        self.transmitted += n as u64;
        if self.transmitted >= self.read_at {
            self.unread_answers = 0;
        }
    }
}

/// GOAWAY, of both sides.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// From our final GOAWAY: streams of the peer above this one are ignored.
    last_accepted: Option<u32>,
    /// The first step of a graceful end: GOAWAY with the highest id was sent, and a PING with this payload behind it.
    announced: Option<[u8; 8]>,
    peer: Option<(u32, ErrorCode)>,
    /// Our streams above the last one are still to be reported, from this place on.
    pub(super) unprocessed: Option<(usize, u32)>,
}

impl Drain {
    pub(super) fn is_answered_by(&self, payload: [u8; 8]) -> bool {
        self.announced == Some(payload)
    }

    /// The peer sent GOAWAY; `false` if it raises the last stream.
    #[must_use]
    pub(super) fn peer_goaway(&mut self, last_stream: u32, code: ErrorCode) -> bool {
        if self.peer.is_some_and(|(last, _)| last_stream > last) {
            return false;
        }
        self.peer = Some((last_stream, code));
        self.unprocessed = Some((0, last_stream));
        true
    }

    /// The peer accepts no new streams.
    pub(super) const fn peer_is_leaving(&self) -> bool {
        self.peer.is_some()
    }

    /// The peer's error, if it sent one.
    fn peer_error(&self) -> Option<Error> {
        self.peer.filter(|(_, code)| *code != ErrorCode::NO_ERROR).map(|(_, code)| Error::GoAway(code))
    }
}

impl Connection {
    /// See [`super::super::Connection::is_draining`].
    pub fn is_draining(&self) -> bool {
        let drain = &self.drain;
        let announced = drain.last_accepted.is_some() || drain.announced.is_some() || drain.peer.is_some();
        announced || self.handshake.eof || !self.end.is_open() || self.is_out_of_ids()
    }

    /// Whether the peer's stream is above the last one that our GOAWAY accepts.
    pub(super) fn is_beyond_goaway(&self, id: u32) -> bool {
        self.is_of_peer(id) && self.drain.last_accepted.is_some_and(|last| id > last)
    }

    /// See [`super::super::Connection::goaway`]. A server without an error ends gracefully: it first announces the
    /// end (last stream 2^31 − 1), and one round trip later which streams it has accepted, so that no request under
    /// way is lost (RFC 9113 §6.8).
    pub fn goaway(&mut self, now: Time, code: ErrorCode, debug: &[u8]) {
        if !self.end.is_open() {
            return;
        }
        let graceful = self.config.role == Role::Server && code == ErrorCode::NO_ERROR;
        if graceful && (self.drain.announced.is_some() || self.drain.last_accepted.is_some()) {
            return;
        }
        if graceful {
            self.put_goaway(MAX_31_BITS, code, debug);
            let payload = self.pings.begin(now, self.config.peer_timeout);
            self.put_frame(kind::PING, 0, 0, &payload);
            self.drain.announced = Some(payload);
        } else {
            self.accept_no_more(code, debug);
        }
    }

    /// The second step of a graceful end.
    pub(super) fn finish_drain(&mut self) {
        self.accept_no_more(ErrorCode::NO_ERROR, b"");
    }

    /// The PING behind our GOAWAY may be the one that is not answered in time: behind a body on a slow path it is late
    /// through no fault of the peer. The end proceeds as if it had been answered; requests under way have deadlines of
    /// their own.
    fn finish_drain_unanswered(&mut self) -> bool {
        let announced = self.drain.announced.filter(|payload| self.pings.is_oldest(*payload));
        let Some(payload) = announced.filter(|_| self.end.is_open()) else { return false };
        self.pings.acknowledge(payload, self.config.peer_timeout);
        self.finish_drain();
        true
    }

    /// Server role: a request was accepted, which may be the last one.
    pub(super) fn count_request(&mut self) {
        let quota = self.config.max_requests.map(u64::from);
        if self.drain.last_accepted.is_none() && quota.is_some_and(|quota| self.counters.requests >= quota) {
            self.accept_no_more(ErrorCode::NO_ERROR, b"");
        }
    }

    pub(super) fn accept_no_more(&mut self, code: ErrorCode, debug: &[u8]) {
        let last = self.drain.last_accepted.unwrap_or(self.highest_peer);
        self.drain.last_accepted = Some(last);
        self.put_goaway(last, code, debug);
    }

    fn put_goaway(&mut self, last_stream: u32, code: ErrorCode, debug: &[u8]) {
        // The peer accepts at least 16,384 octets of payload.
        let debug = &debug[..debug.len().min(1024)];
        let payload = [&last_stream.to_be_bytes()[..], &code.0.to_be_bytes(), debug].concat();
        self.put_frame(kind::GOAWAY, 0, 0, &payload);
    }

    /// Ends the connection with an error; what has not been parsed is dropped.
    pub(super) fn fail(&mut self, error: Error, code: ErrorCode, debug: &[u8]) {
        if self.end.is_open() {
            self.accept_no_more(code, debug);
            self.end = End::Due(Some(error));
            self.input.discard();
        }
    }

    /// All input is parsed: returns whether the connection has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        if !self.end.is_open() {
            return true;
        }
        if self.handshake.eof {
            self.end = End::Due(self.cause_of_eof());
            return true;
        }
        let finished = self.drain.last_accepted.is_some()
            || (self.drain.peer.is_some()
                && (self.config.role == Role::Client || self.drain.peer_error().is_some()));
        if finished && self.streams.len() == 0 {
            self.end = End::Due(self.drain.peer_error());
        }
        !self.end.is_open()
    }

    fn cause_of_eof(&self) -> Option<Error> {
        let said_nothing = self.handshake.is_preface_due() && self.input.unread().is_empty();
        if self.drain.peer.is_some_and(|(_, code)| code != ErrorCode::NO_ERROR) {
            self.drain.peer_error()
        } else if self.rest.is_some() || !self.input.unread().is_empty() || self.assembly.is_under_way() {
            Some(Error::UnexpectedEof("a frame"))
        } else if !self.is_established() && !said_nothing {
            Some(Error::UnexpectedEof("the connection preface"))
        } else if self.streams.len() > 0 {
            Some(Error::UnexpectedEof(if self.config.role == Role::Client {
                "a response"
            } else {
                "an exchange"
            }))
        } else {
            None
        }
    }

    /// See [`super::super::Connection::handle_eof`].
    pub fn handle_eof(&mut self, _now: Time) {
        self.handshake.eof = true;
    }

    /// See [`super::super::Connection::poll_timeout`].
    pub fn poll_timeout(&self) -> Time {
        if self.end.is_open() {
            let greeting = self.handshake.deadline.min(self.pings.deadline);
            greeting.min(self.deadlines.next()).min(self.keep_alive.next())
        } else {
            Time::NEVER
        }
    }

    /// See [`super::super::Connection::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        self.handle_timeouts(now);
        if now >= self.pings.deadline && self.finish_drain_unanswered() {
            return;
        }
        let (what, code) = if now >= self.handshake.deadline && !self.is_established() {
            ("its SETTINGS", ErrorCode::SETTINGS_TIMEOUT)
        } else if now >= self.handshake.deadline {
            ("the acknowledgement of our SETTINGS", ErrorCode::SETTINGS_TIMEOUT)
        } else if now >= self.pings.deadline {
            ("the acknowledgement of our PING", ErrorCode::NO_ERROR)
        } else if self.end.is_open() && self.is_peer_dead(now) {
            ("the acknowledgement of our keep-alive PING", ErrorCode::NO_ERROR)
        } else {
            return;
        };
        self.fail(Error::Timeout(what), code, what.as_bytes());
    }

    /// Fails if the peer makes us answer without reading the answers.
    pub(super) fn check_answers(&self) -> Result<(), Fault> {
        let allowed = self.config.limits.unread_answers;
        if self.pings.unread_answers <= allowed {
            return Ok(());
        }
        Err(Fault::Excess(Exceeded { limit: Limit::UnreadAnswers, allowed: u64::from(allowed) }))
    }
}
