//! The interface between the engine and QUIC: bytes of each stream in and out, and events of streams.
//!
//! QUIC has its own flow control, order and priorities of streams, and the engine leaves them to it. The transport
//!
//! - hands over what arrives with [`Connection::handle_stream`], [`Connection::handle_stream_reset`] and
//!   [`Connection::handle_stop_sending`], and the end with [`Connection::handle_close`]; each followed by
//!   [`crate::Connection::poll_event`] until that returns `None`;
//! - reads from a stream only while [`Connection::wants_stream`]: what it leaves in QUIC withholds the peer's credit;
//! - does what [`Connection::poll_action`] asks for, then writes what [`Connection::poll_stream`] shows, and reports
//!   how much it took with [`Connection::handle_stream_sent`];
//! - reports when a stream that it could not write to is writable again with [`Connection::handle_stream_writable`],
//!   and how many requests may be begun with [`Connection::handle_streams_granted`].
//!
//! Streams that the engine begins need no action: it numbers them as QUIC does, in order, so that the transport opens
//! one when it first sees its number.

use std::collections::VecDeque;
use std::ops::Range;

use super::Connection;
use super::stream::{Fin, Outgoing, QuicStreamId};
use crate::{ErrorCode, Priority, Role};
use h2lab_base::units::Time;

/// Bytes to write on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// The stream. Opened now if it is ours and was not seen before.
    pub stream: QuicStreamId,
    /// The bytes, which may be none.
    pub data: &'a [u8],
    /// The same, if they never change or go away, so that the transport need not copy them.
    pub lent: Option<&'static [u8]>,
    /// The stream ends after them.
    pub fin: bool,
}

/// What the transport has to do apart from writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send `RESET_STREAM` (RFC 9000 §19.4); what was written and is not yet acknowledged need not arrive. A stream
    /// that was not opened yet is opened for it, so that the numbers of later ones are right.
    Reset {
        /// The stream.
        stream: QuicStreamId,
        /// Why.
        code: ErrorCode,
    },
    /// Send `STOP_SENDING` (RFC 9000 §19.5); what still arrives may be discarded.
    Stop {
        /// The stream.
        stream: QuicStreamId,
        /// Why.
        code: ErrorCode,
    },
    /// The priority of the stream's data changes (RFC 9218).
    Prioritise {
        /// The stream.
        stream: QuicStreamId,
        /// Its new priority.
        priority: Priority,
    },
    /// Send `CONNECTION_CLOSE` (RFC 9000 §19.19), after what was written has arrived unless `code` is an error.
    Close {
        /// Why.
        code: ErrorCode,
        /// A description for people.
        reason: String,
    },
}

/// What the transport handed over, in order.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Bytes of a stream, by their place in [`Arrivals`], and whether it ends after them.
    Bytes { stream: QuicStreamId, place: Range<usize>, fin: bool },
    /// The peer reset its direction of a stream.
    Reset { stream: QuicStreamId, code: ErrorCode },
    /// The peer reads no more of a stream.
    Stopped { stream: QuicStreamId, code: ErrorCode },
    /// The connection is over; with a code if the peer sent one.
    Closed { code: Option<ErrorCode> },
}

/// What has arrived and is not yet taken.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    bytes: Vec<u8>,
    queue: VecDeque<Arrival>,
}

impl Arrivals {
    /// Everything lent from here is released when the next bytes arrive.
    fn push_bytes(&mut self, stream: QuicStreamId, bytes: &[u8], fin: bool) {
        if self.queue.is_empty() {
            self.bytes.clear();
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.queue.push_back(Arrival::Bytes { stream, place: start..self.bytes.len(), fin });
    }

    pub(super) fn pop(&mut self) -> Option<Arrival> {
        self.queue.pop_front()
    }

    /// Puts the rest of an arrival back: it comes next.
    pub(super) fn put_back(&mut self, arrival: Arrival) {
        self.queue.push_front(arrival);
    }

    pub(super) fn slice(&self, start: usize, end: usize) -> &[u8] {
        &self.bytes[start..end]
    }

    pub(super) fn discard(&mut self) {
        self.queue.clear();
    }

    pub(super) fn held(&self) -> usize {
        self.bytes.capacity() + self.queue.capacity() * size_of::<Arrival>()
    }
}

impl Connection {
    /// `bytes` arrived on `stream`, in their order; `fin`: they are its last.
    pub fn handle_stream(&mut self, now: Time, stream: QuicStreamId, bytes: &[u8], fin: bool) {
        self.deadlines.received(now, bytes.len());
        if self.end.is_open() {
            self.arrivals.push_bytes(stream, bytes, fin);
        }
    }

    /// The peer reset its direction of `stream` with this code.
    pub fn handle_stream_reset(&mut self, now: Time, stream: QuicStreamId, code: u64) {
        self.notice(now, Arrival::Reset { stream, code: ErrorCode::of_quic(code) });
    }

    /// The peer asks us to send no more on `stream`.
    pub fn handle_stop_sending(&mut self, now: Time, stream: QuicStreamId, code: u64) {
        self.notice(now, Arrival::Stopped { stream, code: ErrorCode::of_quic(code) });
    }

    /// The connection has ended: by the peer's `CONNECTION_CLOSE` with an application's code, or without one.
    pub fn handle_close(&mut self, now: Time, code: Option<u64>) {
        self.notice(now, Arrival::Closed { code: code.map(ErrorCode::of_quic) });
    }

    /// See [`crate::Connection::handle_eof`].
    pub fn handle_eof(&mut self, now: Time) {
        self.handle_close(now, None);
    }

    fn notice(&mut self, now: Time, arrival: Arrival) {
        self.deadlines.received(now, 0);
        if self.end.is_open() {
            self.arrivals.queue.push_back(arrival);
        }
    }

    /// Client role: the peer lets us begin `total` requests in all (RFC 9000 §4.6). Fewer than before change nothing.
    pub fn handle_streams_granted(&mut self, total: u64) {
        self.granted = self.granted.max(total);
    }

    /// Whether the engine takes more input on `stream`. If not, the transport leaves it in QUIC: then the peer gets no
    /// credit for it, which is the whole effect of [`crate::FlowControl::manual_release`] here.
    pub fn wants_stream(&self, stream: QuicStreamId) -> bool {
        let Some(request) = stream.request() else { return true };
        let window = self.config.flow.stream_window;
        let has_room = |stream: &super::Stream| !stream.by_hand || stream.held < window;
        // A client receives answers: it can limit those by its requests, not by leaving answers unread.
        let listens = self.config.role == Role::Client || self.wants_input();
        listens && self.streams.get(&request).is_none_or(has_room)
    }

    /// Whether [`Connection::poll_action`] or [`Connection::poll_stream`] has anything.
    pub fn has_output(&mut self) -> bool {
        !self.actions.is_empty() || self.poll_stream().is_some()
    }

    /// What the transport has to do next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next bytes to write, on a stream that is not blocked; call [`Connection::handle_stream_sent`] before this is
    /// called again.
    pub fn poll_stream(&mut self) -> Option<Transmit<'_>> {
        let stream = loop {
            let stream = *self.offers.front()?;
            if self.outgoing(stream).is_some_and(|out| !out.is_blocked && out.is_waiting()) {
                break stream;
            }
            self.withdraw(stream);
        };
        let out = self.outgoing(stream)?;
        let (data, lent) = (out.queue.pending(), out.queue.pending_lent());
        let fin = out.fin == Fin::Due && data.len() == out.queue.len();
        Some(Transmit { stream, data, lent, fin })
    }

    /// The transport took the first `n` bytes that [`Connection::poll_stream`] showed for `stream`, and the end if it
    /// took all and was shown it. If it did not take all, the stream is blocked until
    /// [`Connection::handle_stream_writable`].
    pub fn handle_stream_sent(&mut self, now: Time, stream: QuicStreamId, n: usize) {
        self.deadlines.transmitted(now, n);
        self.withdraw(stream);
        let Some(out) = self.outgoing(stream) else { return };
        let (before, body) = (out.queue.len(), out.body);
        let is_stuck = out.sent(now, n);
        let body_taken = body - out.body;
        let was_deaf = !self.wants_input();
        self.unsent -= before.min(n);
        self.unsent_bodies -= body_taken;
        if is_stuck {
            self.deadlines.window_waits(now);
        }
        if was_deaf {
            self.excuse_unread(now);
        }
        if let Some(request) = stream.request() {
            self.stream_drained(request);
        }
        // Bytes that lie elsewhere were not shown.
        self.offer(stream);
    }

    /// `stream` can be written to again.
    pub fn handle_stream_writable(&mut self, stream: QuicStreamId) {
        if let Some(out) = self.outgoing(stream) {
            out.is_blocked = false;
            self.offer(stream);
        }
    }

    /// The pending output on one of our streams.
    pub(super) fn outgoing(&mut self, stream: QuicStreamId) -> Option<&mut Outgoing> {
        if stream == QuicStreamId::control_of(self.config.role) {
            return Some(&mut self.control);
        }
        self.streams.get_mut(&stream.request()?).map(|stream| &mut stream.out)
    }

    /// Something was queued on `stream`.
    pub(super) fn offer(&mut self, stream: QuicStreamId) {
        let Some(out) = self.outgoing(stream) else { return };
        if !out.is_offered && !out.is_blocked && out.is_waiting() {
            out.is_offered = true;
            self.offers.push_back(stream);
        }
    }

    /// `stream` is first, and is not offered any more.
    fn withdraw(&mut self, stream: QuicStreamId) {
        if self.offers.front() == Some(&stream) {
            self.offers.pop_front();
        }
        if let Some(out) = self.outgoing(stream) {
            out.is_offered = false;
        }
    }

    /// Aborts both directions of a request's stream, as far as they are open.
    pub(super) fn abort(&mut self, request: u32, code: ErrorCode) {
        let Some(stream) = self.streams.get(&request) else { return };
        let (sends, receives) = (stream.out.fin != Fin::Sent, !stream.is_finished);
        self.put_abort(request, sends, receives, code);
    }

    /// Queues actions that abort directions of a request's stream.
    pub(super) fn put_abort(&mut self, request: u32, sends: bool, receives: bool, code: ErrorCode) {
        let stream = QuicStreamId::of_number(request);
        if sends {
            self.actions.push_back(Action::Reset { stream, code });
        }
        if receives {
            self.actions.push_back(Action::Stop { stream, code });
        }
        self.counters.frames_sent[super::RESET_SLOT] += u64::from(sends || receives);
    }
}
