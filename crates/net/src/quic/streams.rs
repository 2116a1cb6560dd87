//! The streams of a connection: an HTTP/3 engine gets the data that they carry, and the engine's output is written to
//! them.

use std::ops::Bound;

use bytes::Bytes;
use h2lab_base::units::Time;
use h2lab_wire::h3::Connection as Engine;
use h2lab_wire::h3::stream::QuicStreamId;
use h2lab_wire::h3::transport::{Action, Transmit};
use h2lab_wire::trace::Crossing;
use h2lab_wire::{ErrorCode, Priority, StreamId as RequestId};
use quinn_proto::{
    Connection, ConnectionError, Dir, Event, ReadError, Side, StreamEvent, StreamId, TransportErrorCode,
    VarInt, WriteError,
};

use super::session::{End, QuicSession};
use crate::crossing::{Received, Sent, TransportError};

/// Bytes of one stream that are handed over before the next stream's turn.
const PIECE: usize = 64 * 1024;
/// Bytes of all streams that are handed over before the engine's events are taken.
const TURN: usize = 256 * 1024;
/// Above the most urgent request: what the control stream carries concerns the requests.
const CONTROL_PRIORITY: i32 = Priority::DEFAULT_URGENCY as i32 + 1;

impl QuicSession {
    /// Takes datagrams and hands their stream data to `engine`, up to [`TURN`] bytes; `see` observes all of it. Take
    /// the engine's events after each call.
    pub fn receive(
        &mut self,
        engine: &mut Engine,
        now: Time,
        see: &mut impl FnMut(Crossing<'_>),
    ) -> Result<Received, TransportError> {
        let left_over = self.hand_over(engine, now, see);
        if left_over > 0 {
            return Ok(Received::Bytes(left_over));
        }
        let read = self.read_datagrams(now);
        let stirred = self.take_events(engine, now, see);
        let handed = self.hand_over(engine, now, see);
        self.grant(engine);
        // A peer whose datagrams hold nothing for the engine uses up a turn, too.
        let taken = read.as_ref().map_or(0, |read| *read).max(handed);
        if stirred || handed > 0 {
            return Ok(Received::Bytes(taken));
        }
        if let Some(reason) = self.lost.clone()
            && !std::mem::replace(&mut self.is_reported, true)
        {
            return self.report_end(engine, now, reason);
        }
        read?;
        Ok(if taken > 0 { Received::Bytes(taken) } else { Received::WouldBlock })
    }

    /// Reports that the connection has ended. Everything that came before was handed over.
    fn report_end(
        &mut self,
        engine: &mut Engine,
        now: Time,
        reason: ConnectionError,
    ) -> Result<Received, TransportError> {
        match reason {
            ConnectionError::ApplicationClosed(close) => {
                engine.handle_close(now, Some(close.error_code.into_inner()));
                Ok(Received::Eof)
            }
            ConnectionError::LocallyClosed => {
                engine.handle_close(now, None);
                Ok(Received::Eof)
            }
            // Not an error of the transport: some servers end idle connections like this.
            ConnectionError::ConnectionClosed(close) if close.error_code == TransportErrorCode::NO_ERROR => {
                engine.handle_close(now, None);
                Ok(Received::Eof)
            }
            reason => {
                // The peer is notified of the error, if it still reads; our own error matters more than a failure of that.
                let _ = self.flush(now);
                Err(self.explain(reason))
            }
        }
    }

    /// Takes the connection's events; returns whether there were any.
    fn take_events(&mut self, engine: &mut Engine, now: Time, see: &mut impl FnMut(Crossing<'_>)) -> bool {
        let mut any = false;
        while let Some(event) = self.proto.poll() {
            match event {
                Event::Stream(event) => self.take_stream_event(&event, engine, now, see),
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                _ => continue,
            }
            any = true;
        }
        any
    }

    fn take_stream_event(
        &mut self,
        event: &StreamEvent,
        engine: &mut Engine,
        now: Time,
        see: &mut impl FnMut(Crossing<'_>),
    ) {
        match *event {
            StreamEvent::Opened { dir } => {
                while let Some(id) = self.proto.streams().accept(dir) {
                    self.readable.insert(id);
                }
            }
            StreamEvent::Readable { id } => {
                self.readable.insert(id);
            }
            StreamEvent::Writable { id } => engine.handle_stream_writable(number(id)),
            StreamEvent::Finished { id } => self.acknowledged(id),
            StreamEvent::Stopped { id, error_code } => {
                self.acknowledged(id);
                let (stream, code) = (number(id), error_code.into_inner());
                see(Crossing::Stop { stream, code });
                engine.handle_stop_sending(now, stream, code);
            }
            StreamEvent::Available { dir: Dir::Uni } if !self.greeted => {
                engine.handle_stream_writable(number(self.control()));
            }
            StreamEvent::Available { .. } => {} // `grant` checks that itself
        }
    }

    /// Server: all of a stream was acknowledged, or the client no longer wants it.
    fn acknowledged(&mut self, id: StreamId) {
        if let End::Server { unacknowledged } = &mut self.end {
            unacknowledged.remove(&id);
        }
    }

    /// Hands over stream data, as far as it is wanted, up to [`TURN`] bytes; returns how many bytes, and 1 for a FIN without
    /// data. What is not wanted stays unread, so that the peer gets no credit for more. It begins after the stream with which the
    /// turn before ended, so that every stream gets its turn.
    fn hand_over(&mut self, engine: &mut Engine, now: Time, see: &mut impl FnMut(Crossing<'_>)) -> usize {
        let start = self.turn_after.take();
        let (mut total, mut after, mut is_round) = (0, start, start.is_none());
        loop {
            if total >= TURN {
                self.turn_after = after;
                break;
            }
            let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let next = self.readable.range(range).next().copied();
            let Some(id) = next.filter(|id| !is_round || start.is_none_or(|start| *id <= start)) else {
                if is_round {
                    break;
                }
                (after, is_round) = (None, true);
                continue;
            };
            after = Some(id);
            if !engine.wants_stream(number(id)) {
                continue;
            }
            let (bytes, more) = read(&mut self.proto, id, engine, now, see);
            if !more {
                self.readable.remove(&id);
            }
            total += bytes;
        }
        self.intake.took(total);
        total
    }

    /// Whether data was left unread that the engine wants by now: no further event will report it.
    pub fn has_unread(&self, engine: &Engine) -> bool {
        self.readable.iter().any(|id| engine.wants_stream(number(*id)))
    }

    /// Client: opens streams ahead of the requests that will use them, since only opening shows what the server grants. An unused
    /// stream sends nothing.
    fn grant(&mut self, engine: &mut Engine) {
        let End::Client { opened, ahead, .. } = &mut self.end else { return };
        while !engine.is_draining()
            && engine.available_streams() < *ahead
            && self.proto.streams().open(Dir::Bi).is_some()
        {
            *opened += 1;
            engine.handle_streams_granted(*opened);
        }
    }

    /// Our control stream.
    pub(super) fn control(&self) -> StreamId {
        StreamId::new(self.proto.side(), Dir::Uni, 0)
    }

    /// Carries out the engine's actions, then writes what it has for one stream. [`QuicSession::flush`] sends it.
    pub fn send(&mut self, engine: &mut Engine, now: Time, see: &mut impl FnMut(Crossing<'_>)) -> Sent {
        self.grant(engine);
        self.expect_answers(engine.open_streams() > 0);
        while let Some(action) = engine.poll_action() {
            self.act(now, action, see);
        }
        let Some(transmit) = engine.poll_stream() else {
            self.close_if_arrived(engine, now);
            return Sent::Nothing;
        };
        let (stream, length) = (transmit.stream, transmit.data.len());
        let id = quic_id(stream);
        let is_early = id == self.control() && !self.greet();
        let (taken, is_over) = if is_early { (0, false) } else { write(&mut self.proto, id, &transmit) };
        self.unacknowledged.wrote(taken);
        let fin = transmit.fin && taken == length && self.proto.send_stream(id).finish().is_ok();
        if taken > 0 || fin {
            see(Crossing::Bytes { stream: Some(stream), bytes: &transmit.data[..taken], fin });
        }
        if fin && let End::Server { unacknowledged } = &mut self.end {
            unacknowledged.insert(id);
        }
        engine.handle_stream_sent(now, stream, if is_over { length } else { taken });
        let request = if stream.is_unidirectional() {
            RequestId::CONNECTION
        } else {
            RequestId::of_request((stream.0 >> 2) as u32)
        };
        Sent::Bytes { stream: Some(request), bytes: taken }
    }

    /// Opens our control stream; `false` if the peer does not grant it yet.
    fn greet(&mut self) -> bool {
        if !self.greeted
            && let Some(id) = self.proto.streams().open(Dir::Uni)
        {
            self.greeted = true;
            // It was opened just now.
            let _ = self.proto.send_stream(id).set_priority(CONTROL_PRIORITY);
        }
        self.greeted
    }

    fn act(&mut self, now: Time, action: Action, see: &mut impl FnMut(Crossing<'_>)) {
        // A stream that is already closed needs none of this, and the calls below fail for no other reason.
        match action {
            Action::Reset { stream, code } => {
                let id = quic_id(stream);
                self.acknowledged(id);
                self.unacknowledged.was_reset();
                let _ = self.proto.send_stream(id).reset(VarInt::from_u32(code.0));
                see(Crossing::Reset { stream, code: u64::from(code.0) });
            }
            Action::Stop { stream, code } => {
                let id = quic_id(stream);
                self.readable.remove(&id);
                let _ = self.proto.recv_stream(id).stop(VarInt::from_u32(code.0));
                see(Crossing::Stop { stream, code: u64::from(code.0) });
            }
            Action::Prioritise { stream, priority } => {
                let _ = self.proto.send_stream(quic_id(stream)).set_priority(rank(priority));
            }
            Action::Close { code, reason } => {
                let reason = Bytes::from(reason.into_bytes());
                if code == ErrorCode::H3_NO_ERROR {
                    // What the engine still has to send, a GOAWAY above all, goes before the close.
                    self.closing = Some((code, reason));
                } else {
                    self.close(now, code, reason);
                }
            }
        }
    }

    /// Closes the connection, if it is to be closed and everything sent has arrived: the rest would be lost, since nothing is
    /// sent or resent after a `CONNECTION_CLOSE`. A client has its answers, so all of its requests have arrived.
    fn close_if_arrived(&mut self, engine: &Engine, now: Time) {
        if self.closing.is_none() || engine.unsent() > 0 {
            return;
        }
        let arrived = match &self.end {
            End::Client { .. } => true,
            End::Server { unacknowledged } => unacknowledged.is_empty() && self.is_all_acknowledged(),
        };
        if arrived && let Some((code, reason)) = self.closing.take() {
            self.close(now, code, reason);
        }
    }

    /// Whether all bytes written have arrived. Call it only once nothing more is to be written. `quinn-proto` reports
    /// streams that have ended, which our control stream never does. But it accepts no byte beyond its send window:
    /// with a window of one byte it accepts nothing until the last byte before is acknowledged.
    ///
    /// It accepts nothing either while the peer grants no credit, to the connection or to our control stream, and does
    /// not distinguish the two cases. That counts as not arrived: the end then waits for the peer's credit, or for its
    /// caller's timeout, rather than lose a GOAWAY, which nothing would send again.
    fn is_all_acknowledged(&mut self) -> bool {
        self.limit_unacknowledged(1);
        let control = self.control();
        !matches!(self.proto.send_stream(control).write(&[]), Err(WriteError::Blocked))
    }

    /// Whether everything sent on the stream of a request was acknowledged, as far as QUIC knows.
    pub fn has_arrived(&mut self, request: RequestId) -> bool {
        // `quinn-proto` drops a stream when its end has been acknowledged.
        self.proto.send_stream(quic_id(QuicStreamId::of_request(request))).priority().is_err()
    }
}

/// Reads at most [`PIECE`] bytes of a stream; returns how many, 1 for a FIN without data, and whether there may be more.
fn read(
    proto: &mut Connection,
    id: StreamId,
    engine: &mut Engine,
    now: Time,
    see: &mut impl FnMut(Crossing<'_>),
) -> (usize, bool) {
    let stream = number(id);
    let mut pass = |bytes: &[u8], fin| {
        see(Crossing::Bytes { stream: Some(stream), bytes, fin });
        engine.handle_stream(now, stream, bytes, fin);
    };
    let mut incoming = proto.recv_stream(id);
    // Else it was already read to its end, or stopped, and reported once more.
    let Ok(mut chunks) = incoming.read(true) else { return (0, false) };
    let mut total = 0;
    // Each chunk is held until the next one comes, so that the FIN is reported with the last data.
    let mut last = Bytes::new();
    let end = loop {
        if total >= PIECE {
            break None;
        }
        match chunks.next(PIECE) {
            Ok(Some(chunk)) => {
                total += chunk.bytes.len();
                let before = std::mem::replace(&mut last, chunk.bytes);
                if !before.is_empty() {
                    pass(&before, false);
                }
            }
            other => break Some(other),
        }
    };
    // Any frames that this makes necessary leave with the next flush, which always follows.
    let _ = chunks.finalize();
    let fin = matches!(end, Some(Ok(None)));
    if fin || !last.is_empty() {
        pass(&last, fin);
    }
    if let Some(Err(ReadError::Reset(code))) = end {
        let code = code.into_inner();
        see(Crossing::Reset { stream, code });
        engine.handle_stream_reset(now, stream, code);
        total += 1;
    }
    (total + usize::from(fin), end.is_none())
}

/// Writes until all is taken or QUIC takes no more. Returns how much that was, and whether the peer has stopped reading
/// the stream: then the rest counts as taken, although it was not sent, and the engine gets an event.
fn write(proto: &mut Connection, id: StreamId, transmit: &Transmit<'_>) -> (usize, bool) {
    let mut taken = 0;
    // QUIC reports room again only after it has refused a write.
    while taken < transmit.data.len() {
        let mut stream = proto.send_stream(id);
        let written = match transmit.lent {
            Some(bytes) => {
                let chunks = &mut [Bytes::from_static(&bytes[taken..])];
                stream.write_chunks(chunks).map(|written| written.bytes)
            }
            None => stream.write(&transmit.data[taken..]),
        };
        match written {
            Ok(n) => taken += n,
            Err(WriteError::Blocked) => break,
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return (taken, true),
        }
    }
    (taken, false)
}

/// An engine's priority as `quinn-proto`'s: higher ones go first, and streams without a priority have 0.
fn rank(priority: Priority) -> i32 {
    i32::from(Priority::DEFAULT_URGENCY) - i32::from(priority.urgency)
}

/// The engine's ID of a stream, which is the same as QUIC's.
fn number(id: StreamId) -> QuicStreamId {
    QuicStreamId(u64::from(id))
}

fn quic_id(stream: QuicStreamId) -> StreamId {
    let side = |bit| if bit { Side::Server } else { Side::Client };
    let dir = if stream.is_unidirectional() { Dir::Uni } else { Dir::Bi };
    StreamId::new(side(stream.0 & 1 == 1), dir, stream.0 >> 2)
}
