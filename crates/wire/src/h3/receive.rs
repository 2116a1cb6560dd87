//! The receive path: from input to events.

use std::ops::Range;

use super::fault::{self, Fault};
use super::stream::{Fin, QuicStreamId, Stream};
use super::transport::Arrival;
use super::{Connection, Occurrence, RESET_SLOT, Received, Role};
use crate::connection::Refused;
use crate::content::{Content, Side};
use crate::{Error, ErrorCode, Initiator};
use h2lab_base::units::Time;

/// How far ahead of the others a stream may begin to arrive. QUIC enforces the stream limit; this is for transports
/// that grant without bound.
const WIDEST_GAP: u32 = 10_000;

/// Bytes of one stream that are being taken.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) stream: QuicStreamId,
    /// Their place among the arrivals.
    pub(super) place: Range<usize>,
    /// The stream ends after them.
    pub(super) fin: bool,
}

impl Connection {
    /// Takes input up to the next event for the role.
    pub(super) fn advance(&mut self, now: Time) -> Option<Occurrence> {
        loop {
            if !self.end.is_open() {
                return self.end.report(|error| Occurrence::Closed { error });
            }
            if let Some((request, code, initiator)) = self.ended.pop_front() {
                return Some(Occurrence::Reset { request, code, initiator });
            }
            let Some(arrival) = self.arrivals.pop() else {
                if self.has_ended() {
                    continue;
                }
                return self.next_writable().map(|request| Occurrence::Writable { request });
            };
            let taken = match arrival {
                Arrival::Bytes { stream, place, fin } => self.take(now, Piece { stream, place, fin }),
                Arrival::Reset { stream, code } => self.receive_reset(now, stream, code),
                Arrival::Stopped { stream, code } => self.receive_stop(now, stream, code),
                Arrival::Closed { code } => {
                    self.receive_close(code);
                    Ok(None)
                }
            };
            match taken {
                Ok(Some(occurrence)) => return Some(occurrence),
                Ok(None) => {}
                Err(fault) => self.punish(fault),
            }
        }
    }

    /// Takes bytes up to the next event; the rest is put back.
    fn take(&mut self, now: Time, mut piece: Piece) -> Received {
        let taken = match kind_of(piece.stream)? {
            Some(request) => self.take_of_request(now, request, &mut piece),
            None => self.take_of_uni(&mut piece),
        };
        if matches!(taken, Ok(Some(_))) && (!piece.place.is_empty() || piece.fin) {
            let Piece { stream, place, fin } = piece;
            self.arrivals.put_back(Arrival::Bytes { stream, place, fin });
        }
        taken
    }

    /// The stream of a request begins to arrive (server role), unless it has before. Returns whether we serve it.
    pub(super) fn admit(&mut self, now: Time, request: u32) -> Result<bool, Fault> {
        if self.streams.contains_key(&request) {
            return Ok(true);
        }
        if self.config.role == Role::Client {
            return Ok(false); // it is over, or the transport is wrong
        }
        if request >= self.next {
            if request - self.next > WIDEST_GAP {
                return Err(fault::id("a stream far above all others (RFC 9000 §4.6)"));
            }
            self.late.extend(self.next..request);
            self.next = request + 1;
        } else if !self.late.remove(&request) {
            return Ok(false);
        }
        if self.drain.refuses(request) {
            self.put_abort(request, true, true, ErrorCode::H3_REQUEST_REJECTED);
            return Ok(false);
        }
        self.streams.insert(request, Stream::new(Side::Head, Content::new(false, false), now));
        self.open += 1;
        self.deadlines.stream_head_waits(now);
        Ok(true)
    }

    /// `RESET_STREAM` (RFC 9114 §4.1.1): the peer's message will not be complete.
    fn receive_reset(&mut self, now: Time, stream: QuicStreamId, code: ErrorCode) -> Received {
        let Some(request) = kind_of(stream)? else {
            return self.uni_ended(stream).map(|()| None);
        };
        // A stream that we stopped reading is reset in reply (RFC 9000 §3.5), which does not concern our response.
        let is_finished = |stream: &Stream| stream.is_finished;
        if !self.admit(now, request)? || self.streams.get(&request).is_some_and(is_finished) {
            return Ok(None);
        }
        self.given_up(now, request, code, false)
    }

    /// `STOP_SENDING`: the peer reads no more of what we send.
    fn receive_stop(&mut self, now: Time, stream: QuicStreamId, code: ErrorCode) -> Received {
        if stream == QuicStreamId::control_of(self.config.role) {
            let reason = "our control stream is not read (RFC 9114 §6.2.1)";
            return Err(fault::connection(ErrorCode::H3_CLOSED_CRITICAL_STREAM, reason));
        }
        let Some(request) = stream.request().filter(|_| !stream.is_unidirectional()) else {
            return Ok(None);
        };
        if !self.admit(now, request)? {
            return Ok(None);
        }
        if self.config.role == Role::Client {
            // The server has answered, or will, without the rest of the request: whatever its code, the response must
            // not be discarded for it (RFC 9114 §4.1). Only RESET_STREAM says that there will be none.
            self.end_unsent(request);
            return Ok(None);
        }
        self.given_up(now, request, code, true)
    }

    /// The peer aborted a request or its response. `stops`: it reads no more but may still send.
    fn given_up(&mut self, now: Time, request: u32, code: ErrorCode, stops: bool) -> Received {
        self.counters.frames_received[RESET_SLOT] += 1;
        if self.config.role == Role::Server {
            self.accounts.reset(now)?;
        }
        let was_reported = self.is_reported(request);
        if let Some(stream) = self.streams.get(&request) {
            let (sends, receives) = (stream.out.fin != Fin::Sent, !stream.is_finished && stops);
            self.put_abort(request, sends, receives, ErrorCode::H3_REQUEST_CANCELLED);
        }
        self.remove(request);
        let initiator = Initiator::Remote;
        Ok(was_reported.then_some(Occurrence::Reset { request, code, initiator }))
    }

    /// Whether a request was reported to the role and more of it is to come: a server reports it when the head is
    /// complete.
    fn is_reported(&self, request: u32) -> bool {
        self.streams.get(&request).is_some_and(|stream| {
            !stream.is_over() && (self.config.role == Role::Client || stream.remote != Side::Head)
        })
    }

    /// The transport reports that the connection has ended.
    fn receive_close(&mut self, code: Option<ErrorCode>) {
        self.drain.transport_ended = true;
        // An unknown code is equivalent to none (RFC 9114 §8.1).
        self.drain.close_error =
            code.filter(|code| code.name().is_some() && *code != ErrorCode::H3_NO_ERROR).map(Error::GoAway);
    }

    /// Answers a violation. The events for the role follow at the next call of [`Connection::advance`].
    fn punish(&mut self, fault: Fault) {
        match fault {
            Fault::Stream { stream: request, code, reason } => {
                if let Err(fault) = self.accounts.stream_error() {
                    return self.punish(fault);
                }
                let is_request = self.config.role == Role::Server && !self.is_reported(request);
                let is_response = self.config.role == Role::Client && self.is_reported(request);
                if is_response
                    || is_request
                        && matches!(code, ErrorCode::H3_MESSAGE_ERROR | ErrorCode::H3_EXCESSIVE_LOAD)
                {
                    self.refused = Some(Refused::by_reset(self.refused, reason));
                }
                self.give_up(request, code);
            }
            Fault::Excess(exceeded) => self.exceed(exceeded),
            Fault::Connection { code, reason } => {
                self.fail(Error::PeerMisbehaved { code, reason }, code, reason.to_owned());
            }
        }
    }

    /// The engine ends a request's stream, and reports that if the request was reported to the role.
    pub(super) fn give_up(&mut self, request: u32, code: ErrorCode) {
        if self.is_reported(request) {
            self.ended.push_back((request, code, Initiator::Engine));
        }
        self.abort(request, code);
        self.remove(request);
    }

    /// Takes a stream out of the store, with its pending output.
    pub(super) fn remove(&mut self, request: u32) {
        if let Some(stream) = self.streams.remove(&request) {
            self.unsent -= stream.out.queue.len();
            self.unsent_bodies -= stream.out.body;
            self.open -= u32::from(!stream.is_over());
        }
    }

    /// The peer did something that changes nothing.
    pub(super) fn noise(&mut self) -> Result<(), Fault> {
        self.accounts.noise(u64::from(self.next))
    }
}

/// The number of the request on a stream, or none if it is unidirectional.
fn kind_of(stream: QuicStreamId) -> Result<Option<u32>, Fault> {
    if stream.is_unidirectional() {
        return Ok(None);
    }
    if stream.initiator() == Role::Server {
        let reason = "a stream that a server began and that goes both ways (RFC 9114 §6.1)";
        return Err(fault::connection(ErrorCode::H3_STREAM_CREATION_ERROR, reason));
    }
    let request = stream.request();
    request.map(Some).ok_or(fault::id("more requests than a connection can have (RFC 9000 §4.6)"))
}
