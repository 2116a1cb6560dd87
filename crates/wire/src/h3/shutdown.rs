//! How a connection ends: errors, deadlines, GOAWAY (RFC 9114 §5.2, §8), the end of the transport.

use std::time::Duration;

use super::frame::kind;
use super::stream::{MOST_REQUESTS, QuicStreamId};
use super::transport::Action;
use super::{Connection, Role, varint};
use crate::ending::End;
use crate::{Error, ErrorCode, Initiator};
use h2lab_base::units::Time;

/// The id of a GOAWAY that only announces the end (RFC 9114 §5.2): the highest that a request can have.
const NO_REQUEST_IN_PARTICULAR: u64 = varint::MAX - 3;
/// How long to wait for requests in flight after that: longer than the round trips of most paths. HTTP/3
/// has no PING to measure one.
const ON_THEIR_WAY: Duration = Duration::from_secs(1);

/// The state of the graceful end.
#[derive(Debug)]
pub(super) struct Drain {
    /// The first request that our GOAWAY refuses (server role), or 0: there is none to accept (client role).
    first_refused: Option<u32>,
    /// When the second step of a graceful end follows the first.
    second_step: Time,
    /// Until when to wait for requests that our GOAWAY accepts and that have not begun to arrive.
    late_until: Time,
    /// The code to close the transport with.
    code: ErrorCode,
    pub(super) reason: String,
    /// The id of the peer's GOAWAY.
    pub(super) peer: Option<u64>,
    /// The transport will deliver no more.
    pub(super) transport_ended: bool,
    /// The error that it ended with.
    pub(super) close_error: Option<Error>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            first_refused: None,
            second_step: Time::NEVER,
            late_until: Time::NEVER,
            code: ErrorCode::H3_NO_ERROR,
            reason: String::new(),
            peer: None,
            transport_ended: false,
            close_error: None,
        }
    }
}

impl Drain {
    /// Whether a request is beyond what our GOAWAY accepts.
    pub(super) fn refuses(&self, request: u32) -> bool {
        self.first_refused.is_some_and(|first| request >= first)
    }
}

impl Connection {
    /// See [`super::super::Connection::is_draining`].
    pub fn is_draining(&self) -> bool {
        let drain = &self.drain;
        let announced = drain.first_refused.is_some() || drain.second_step.happened() || drain.peer.is_some();
        announced || drain.transport_ended || !self.end.is_open() || self.is_out_of_ids()
    }

    /// See [`super::super::Connection::goaway`]. A server without an error ends gracefully: it first announces the end,
    /// and a second later which requests it has accepted (RFC 9114 §5.2). GOAWAY has no code here; `code` and `debug`
    /// go with the end of the transport, when the requests under way are over.
    pub fn goaway(&mut self, now: Time, code: ErrorCode, debug: &[u8]) {
        if !self.end.is_open() {
            return;
        }
        let code = code.in_http3();
        let graceful = self.config.role == Role::Server && code == ErrorCode::H3_NO_ERROR;
        if graceful && (self.drain.second_step.happened() || self.drain.first_refused.is_some()) {
            return;
        }
        (self.drain.code, self.drain.reason) = (code, String::from_utf8_lossy(debug).into_owned());
        if graceful {
            self.put_goaway(NO_REQUEST_IN_PARTICULAR);
            self.drain.second_step = now + ON_THEIR_WAY;
        } else {
            self.accept_no_more(now);
        }
    }

    /// Server role: a request was accepted, which may be the last one.
    pub(super) fn count_request(&mut self, now: Time) {
        let quota = self.config.max_requests.map_or(u64::from(MOST_REQUESTS), u64::from);
        if self.drain.first_refused.is_none() && self.counters.requests >= quota {
            self.accept_no_more(now);
        }
    }

    /// The last GOAWAY: it accepts the requests that have begun to arrive, and those that QUIC has opened with them.
    /// The latter are waited for as long as the rest of a head, since lost packets are retransmitted.
    pub(super) fn accept_no_more(&mut self, now: Time) {
        self.drain.second_step = Time::NEVER;
        if self.drain.first_refused.is_some() {
            return;
        }
        let first = if self.config.role == Role::Server { self.next } else { 0 };
        self.drain.first_refused = Some(first);
        if !self.late.is_empty() {
            self.drain.late_until = now + self.config.limits.head.unwrap_or(ON_THEIR_WAY);
        }
        // A client's GOAWAY holds a push id, and we accept no push.
        self.put_goaway(QuicStreamId::of_number(first).0);
    }

    fn put_goaway(&mut self, id: u64) {
        let mut payload = Vec::new();
        varint::encode(id, &mut payload);
        self.put_control(kind::GOAWAY, &payload);
    }

    /// The server has said that it does not process requests from this one on: they may be sent again.
    pub(super) fn refused_from(&mut self, first: u32) {
        let refused: Vec<u32> = self.streams.range(first..).map(|(number, _)| *number).collect();
        for request in refused {
            self.ended.push_back((request, ErrorCode::H3_REQUEST_REJECTED, Initiator::Remote));
            self.abort(request, ErrorCode::H3_REQUEST_CANCELLED);
            self.remove(request);
        }
    }

    /// Ends the connection with an error; what has not been taken is dropped.
    pub(super) fn fail(&mut self, error: Error, code: ErrorCode, reason: String) {
        if self.end.is_open() {
            self.end = End::Due(Some(error));
            self.arrivals.discard();
            self.actions.push_back(Action::Close { code, reason });
        }
    }

    /// All input is taken: returns whether the connection has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.drain.transport_ended {
            self.end = End::Due(self.cause_of_end());
            return true;
        }
        let finished = self.drain.first_refused.is_some()
            || (self.drain.peer.is_some() && self.config.role == Role::Client);
        if finished && self.streams.is_empty() && !self.awaits_late() {
            self.end = End::Due(None);
            let reason = std::mem::take(&mut self.drain.reason);
            self.actions.push_back(Action::Close { code: self.drain.code, reason });
            return true;
        }
        false
    }

    /// Whether requests that our GOAWAY accepts may still arrive.
    fn awaits_late(&self) -> bool {
        let first_refused = self.drain.first_refused.unwrap_or(0);
        self.drain.late_until.happened() && self.late.range(..first_refused).next().is_some()
    }

    fn cause_of_end(&mut self) -> Option<Error> {
        let cut_short = match self.config.role {
            Role::Client => "a response",
            Role::Server => "an exchange",
        };
        let said_nothing =
            self.config.role == Role::Server && !self.peer_streams.have_begun() && self.next == 0;
        self.drain.close_error.take().or_else(|| {
            if self.open > 0 {
                Some(Error::UnexpectedEof(cut_short))
            } else if !self.is_established() && !said_nothing {
                Some(Error::UnexpectedEof("the SETTINGS"))
            } else {
                None
            }
        })
    }

    /// See [`super::super::Connection::poll_timeout`].
    pub fn poll_timeout(&self) -> Time {
        if self.end.is_open() {
            let drain = self.drain.second_step.min(self.drain.late_until);
            self.settings_due.min(drain).min(self.deadlines.next())
        } else {
            Time::NEVER
        }
    }

    /// See [`super::super::Connection::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        if !self.end.is_open() {
            return;
        }
        if now >= self.drain.second_step {
            self.accept_no_more(now);
        }
        if now >= self.drain.late_until {
            self.drain.late_until = Time::NEVER;
        }
        self.handle_timeouts(now);
        if now >= self.settings_due {
            const WHAT: &str = "its SETTINGS";
            self.fail(Error::Timeout(WHAT), ErrorCode::H3_MISSING_SETTINGS, WHAT.to_owned());
        }
    }
}
