//! The statistics of a connection and of its requests, and how events change them.

use std::io;
use std::time::Duration;

use h2lab_base::secrets::without_url_secrets;
use h2lab_base::text::PeerText;
use h2lab_base::units::Time;
use h2lab_model::record::connection::count_one;
use h2lab_model::record::{CloseReason, ConnectionRecord, GoAwayRecord, Outcome};
use h2lab_wire::{Error, ErrorCode, Event, Initiator, StreamId};

use super::connect::ConnectError;
use super::request_observer::{RequestEnd, RequestObserver};
use super::streams::{Carried, Streams};
use h2lab_net::transport::TransportError;

/// GOAWAYs of a connection that are kept in its record: an orderly server sends two.
const MOST_GOAWAYS: usize = 16;
/// Bytes that are kept of a text that the server chose and that stays in a record: the debug data of a GOAWAY, the
/// name of its software, or where it redirects to.
const MOST_TEXT: usize = 1_024;

/// Why a session ended.
#[derive(Debug)]
pub enum SessionEnd {
    /// The server ended it in an orderly way.
    Orderly,
    /// The engine failed with this error.
    Engine(Error),
    /// The transport failed.
    Transport(TransportError),
    /// We ended it.
    Local(&'static str),
}

impl SessionEnd {
    fn reason(&self) -> CloseReason {
        match self {
            Self::Orderly => CloseReason::Server,
            Self::Engine(error @ (Error::GoAway(_) | Error::UnexpectedEof(_))) => {
                CloseReason::Broken { why: error.to_string() }
            }
            Self::Engine(error @ Error::Timeout(_)) => CloseReason::TimedOut { why: error.to_string() },
            Self::Engine(error) => CloseReason::Local { why: error.to_string() },
            Self::Transport(TransportError::Io(error)) => match error.kind() {
                io::ErrorKind::ConnectionReset => CloseReason::Reset { why: error.to_string() },
                io::ErrorKind::TimedOut => CloseReason::TimedOut { why: error.to_string() },
                _ => CloseReason::Broken { why: error.to_string() },
            },
            Self::Transport(error) => CloseReason::Broken { why: error.to_string() },
            Self::Local(why) => CloseReason::Local { why: (*why).to_owned() },
        }
    }

    /// The outcome of the requests that it cut off, over HTTP/3 (`by_stream`) with its codes.
    const fn outcome(&self, by_stream: bool) -> (Outcome, u32) {
        match self {
            Self::Orderly => (Outcome::GoAway, 0),
            Self::Engine(Error::GoAway(code)) => (Outcome::GoAway, code.0),
            Self::Engine(Error::PeerMisbehaved { code, .. }) => (Outcome::Protocol, code.0),
            Self::Engine(Error::Exceeded(_)) => {
                let calm = ErrorCode::ENHANCE_YOUR_CALM;
                (Outcome::Protocol, if by_stream { calm.in_http3().0 } else { calm.0 })
            }
            Self::Engine(Error::BadHttp1(_) | Error::WrongProtocol { .. })
            | Self::Transport(TransportError::QuicVersion) => (Outcome::Protocol, 0),
            // Above all a server that refuses our certificate, or requires one: TLS 1.3 reports that after our handshake.
            Self::Transport(TransportError::Tls(_)) => (Outcome::Tls, 0),
            Self::Engine(_) | Self::Transport(_) | Self::Local(_) => (Outcome::Closed, 0),
        }
    }

    /// What it means for a connection that has not carried a response yet, and whose server had `timeout` to answer.
    pub fn into_connect_error(self, timeout: Duration) -> ConnectError {
        match self {
            Self::Orderly => ConnectError::Closed("it ends without an answer".to_owned()),
            Self::Engine(Error::WrongProtocol { expected, hint }) => {
                ConnectError::WrongProtocol { expected, hint }
            }
            Self::Engine(error @ (Error::UnexpectedEof(_) | Error::GoAway(_))) => {
                ConnectError::Closed(error.to_string())
            }
            Self::Engine(Error::Timeout(_)) | Self::Local(_) => ConnectError::NoAnswer(timeout),
            Self::Engine(error) => ConnectError::Protocol(error.to_string()),
            Self::Transport(TransportError::Io(error)) => ConnectError::Closed(error.to_string()),
            Self::Transport(error) => error.into(),
        }
    }
}

/// The statistics of a session. They are separate from the engine so that they can be written while an event borrows
/// the engine.
#[derive(Debug, Default)]
pub(super) struct ConnectionStatistics {
    pub record: ConnectionRecord,
    pub streams: Streams,
    pub multiplexed: bool,
    /// Whether positions are counted on each stream, because bytes of different streams have no common order.
    pub by_stream: bool,
    /// Until when the socket was last known to be full.
    pub full_until: Time,
    /// Streams that can take more body.
    pub writable: Vec<StreamId>,
    /// Streams whose response is complete while our body is not.
    pub answered_early: Vec<StreamId>,
    /// Responses that were complete.
    pub responses: u32,
    /// Bytes of ours that the server's TCP had acknowledged when it closed the connection; with TLS, bytes of records.
    pub acknowledged: Option<u64>,
    pub end: Option<SessionEnd>,
    /// Why we are ending it ourselves, if we are.
    pub ending: Option<&'static str>,
}

impl Carried {
    /// The transport has taken the head of this request; it had no room until `full_until`.
    fn head_is_out(&mut self, now: Time, full_until: Time, exchange: &mut impl RequestObserver) {
        if std::mem::replace(&mut self.is_sent, true) {
            return;
        }
        // A request that began when there was no room, or before that, waited only for room.
        let waited = if full_until >= self.begun_at { now.since(self.begun_at) } else { Duration::ZERO };
        exchange.sent(self.request, now, waited);
    }

    /// It is over on this connection. If its body waited for a window until now, that is reported too.
    pub fn end(self, now: Time, fate: RequestEnd, exchange: &mut impl RequestObserver) {
        if self.blocked_since.happened() {
            exchange.waited_for_window(self.request, now.since(self.blocked_since));
        }
        exchange.ended(self.request, now, fate);
    }
}

impl ConnectionStatistics {
    /// Records one event.
    pub fn note(&mut self, event: &Event<'_>, now: Time, exchange: &mut impl RequestObserver) {
        match *event {
            Event::Response { stream, head, end_stream } => {
                if self.record.server_software.is_none()
                    && let Some(server) = head.fields.get("server")
                {
                    self.record.server_software = Some(PeerText::cut(server, MOST_TEXT));
                }
                if self.record.http.location.is_none()
                    && (300..400).contains(&head.status)
                    && let Some(location) = head.fields.get("location")
                {
                    let location = PeerText::cut(location, MOST_TEXT);
                    self.record.http.location = Some((*without_url_secrets(&location)).into());
                }
                if let Some(carried) = self.streams.get_mut(stream) {
                    carried.answered = true;
                    exchange.head(carried.request, now, &head);
                }
                if end_stream {
                    self.complete(stream, now, exchange);
                }
            }
            Event::Data { stream, data, end_stream } => {
                if let Some(carried) = self.streams.get_mut(stream) {
                    exchange.body(carried.request, data);
                }
                if end_stream {
                    self.complete(stream, now, exchange);
                }
            }
            Event::Trailers { stream, fields } => {
                if let Some(carried) = self.streams.get_mut(stream) {
                    exchange.trailers(carried.request, fields);
                }
                self.complete(stream, now, exchange);
            }
            Event::Writable { stream } => self.writable.push(stream),
            Event::Reset { stream, code, initiator } => self.reset(stream, code, initiator, now, exchange),
            Event::GoAway { last_stream, code, debug } => {
                let debug = PeerText::cut(debug, MOST_TEXT);
                // The last GOAWAY decides how the requests that it cut off end, so beyond the limit it replaces the one
                // before.
                self.record.goaways.truncate(MOST_GOAWAYS - 1);
                self.record.goaways.push(GoAwayRecord {
                    at: now,
                    code: code.0,
                    last_stream: last_stream.0,
                    debug,
                });
                while let Some(carried) = self.streams.take_above(last_stream) {
                    carried.end(now, RequestEnd::Unprocessed, exchange);
                }
            }
            Event::Closed { ref error } => {
                let end = match (self.ending, error) {
                    (Some(why), _) => SessionEnd::Local(why),
                    (None, Some(error)) => SessionEnd::Engine(error.clone()),
                    (None, None) => SessionEnd::Orderly,
                };
                self.finish(now, end, exchange);
            }
            Event::Interim { stream, ref head } => {
                count_one(&mut self.record.http.interim, head.status);
                if let Some(carried) = self.streams.get_mut(stream) {
                    exchange.interim(carried.request, now, head);
                }
            }
            Event::PushPromise { head, .. } => {
                self.record.http.pushes_accepted += 1;
                exchange.promised(head.path);
            }
            _ => {} // SETTINGS and PING change nothing here
        }
    }

    /// Ends a stream whose response is complete.
    fn complete(&mut self, stream: StreamId, now: Time, exchange: &mut impl RequestObserver) {
        if let Some(carried) = self.streams.take(stream) {
            if carried.body_left > 0 {
                self.answered_early.push(stream);
            }
            self.responses += 1;
            carried.end(now, RequestEnd::Complete, exchange);
        }
    }

    /// A stream was reset.
    fn reset(
        &mut self,
        stream: StreamId,
        code: ErrorCode,
        initiator: Initiator,
        now: Time,
        exchange: &mut impl RequestObserver,
    ) {
        if initiator == Initiator::Engine {
            count_one(&mut self.record.http.resets_sent, code.0);
        }
        // After a GOAWAY the engine also reports a reset of each stream that it left unprocessed; those were already
        // removed.
        let Some(carried) = self.streams.take(stream) else { return };
        if initiator == Initiator::Remote {
            count_one(&mut self.record.resets_received, code.0);
        }
        let fate = match initiator {
            // After the head of a response this code is wrong: the request was processed (RFC 9113 §8.7).
            _ if code.is_refusal() && !carried.answered => RequestEnd::Unprocessed,
            Initiator::Engine => RequestEnd::Failed { outcome: Outcome::Protocol, code: code.0 },
            Initiator::Remote | Initiator::Local => {
                RequestEnd::Failed { outcome: Outcome::Reset, code: code.0 }
            }
        };
        carried.end(now, fate, exchange);
    }

    /// The transport took `n` more bytes at `now`, of `stream` if positions are counted on each stream: reports the
    /// requests whose heads have now been sent.
    pub fn transmitted(
        &mut self,
        now: Time,
        stream: Option<StreamId>,
        n: usize,
        exchange: &mut impl RequestObserver,
    ) {
        self.record.bytes_sent += n as u64;
        if let Some(stream) = stream {
            let Some(carried) = self.streams.get_mut(stream) else { return };
            carried.sent += n as u64;
            if carried.sent >= carried.head_end {
                carried.head_is_out(now, self.full_until, exchange);
            }
            return;
        }
        while let Some(carried) = self.streams.next_sent(self.record.bytes_sent) {
            carried.head_is_out(now, self.full_until, exchange);
        }
    }

    /// The connection is over: records it once, and every request that it still carried.
    pub fn finish(&mut self, now: Time, end: SessionEnd, exchange: &mut impl RequestObserver) {
        if self.end.is_some() {
            return;
        }
        // If a server sent a GOAWAY and then closed, the GOAWAY ended these requests, whatever error the socket
        // reports.
        let (outcome, code) = match self.record.goaways.last() {
            Some(goaway) => (Outcome::GoAway, goaway.code),
            None => match end.outcome(self.by_stream) {
                // HTTP/1.1 has no GOAWAY: its connections are only closed.
                (Outcome::GoAway, code) if !self.multiplexed => (Outcome::Closed, code),
                ended => ended,
            },
        };
        while let Some(carried) = self.streams.take_above(StreamId::CONNECTION) {
            // A FIN acknowledges everything before it: all of a request that the server read and did not answer.
            let may_have_arrived =
                self.acknowledged.is_none_or(|acknowledged| acknowledged > carried.written_before);
            let is_silent = !self.multiplexed && carried.received_before == self.record.bytes_received;
            let fate = if !carried.is_sent {
                RequestEnd::Unprocessed
            } else if self.responses > 0 && (is_silent || !may_have_arrived) {
                RequestEnd::Unanswered { outcome, may_have_arrived }
            } else {
                RequestEnd::Failed { outcome, code }
            };
            carried.end(now, fate, exchange);
        }
        self.record.closed_at = now;
        self.record.closed = end.reason();
        self.end = Some(end);
    }
}

#[cfg(test)]
mod tests {
    use h2lab_wire::{Exceeded, Limit};

    use super::*;

    #[test]
    fn requests_that_a_bound_cut_off_are_recorded_with_the_code_that_the_server_was_sent() {
        let end = SessionEnd::Engine(Error::Exceeded(Exceeded { limit: Limit::FieldList, allowed: 1 }));
        assert_eq!(end.outcome(false), (Outcome::Protocol, 0xb));
        assert_eq!(end.outcome(true), (Outcome::Protocol, 0x107));
    }
}
