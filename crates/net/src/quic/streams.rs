//! The streams of a connection: what they bring goes to an engine of HTTP/3, and what that has for them is written.

use std::ops::Bound;

use bytes::Bytes;
use h2lab_base::units::Time;
use h2lab_wire::h3::Connection as Engine;
use h2lab_wire::h3::stream::QuicStreamId;
use h2lab_wire::h3::transport::Action;
use h2lab_wire::{ErrorCode, Priority, StreamId as RequestId};
use quinn_proto::{
    Connection, ConnectionError, Dir, Event, ReadError, Side, StreamEvent, StreamId, TransportErrorCode,
    VarInt, WriteError,
};

use super::session::{End, QuicSession};
use crate::crossing::{Crossing, Received, Sent, TransportError};

/// Bytes of one stream that are handed over before it is the others' turn.
const PIECE: usize = 64 * 1024;
/// Bytes of all streams that are handed over before the engine's events are looked at.
const TURN: usize = 256 * 1024;
/// Ahead of the most urgent request: what is said on the control stream is about them.
const CONTROL_PRIORITY: i32 = Priority::DEFAULT_URGENCY as i32 + 1;

impl QuicSession {
    /// Takes datagrams and hands what they bring to `engine`, up to [`TURN`] bytes; `see` is shown all of it. Look at the
    /// engine's events after each call.
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
        // Whoever sends datagrams with nothing in them for the engine has his turn, too.
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

    /// All that came before was handed over: the connection has ended.
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
            // The transport itself has nothing against us: so some servers end what is idle.
            ConnectionError::ConnectionClosed(close) if close.error_code == TransportErrorCode::NO_ERROR => {
                engine.handle_close(now, None);
                Ok(Received::Eof)
            }
            reason => {
                // What is wrong the peer is told, if it will listen; our own error matters more than one in doing so.
                let _ = self.flush(now);
                Err(self.explain(reason))
            }
        }
    }

    /// Takes what the connection has to tell; whether that was anything.
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
            StreamEvent::Available { .. } => {} // `grant` asks for itself
        }
    }

    /// Server: all of a stream has arrived, or nobody waits for it any more.
    fn acknowledged(&mut self, id: StreamId) {
        if let End::Server { unacknowledged } = &mut self.end {
            unacknowledged.remove(&id);
        }
    }

    /// Hands over what streams bring, as far as it is wanted, up to [`TURN`] bytes; returns how many it was, and 1 for an end
    /// alone. What is not wanted stays where it is, so that the peer gets no credit for more. It begins behind the stream with
    /// which the turn before ended, so that all have theirs.
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
        total
    }

    /// Whether something was left alone that is wanted by now: nothing that arrives will tell of it.
    pub fn has_unread(&self, engine: &Engine) -> bool {
        self.readable.iter().any(|id| engine.wants_stream(number(*id)))
    }

    /// Client: opens streams ahead of the requests that will be on them, which is how QUIC says what the server grants. One
    /// that is not used costs nothing on the way.
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
    fn control(&self) -> StreamId {
        StreamId::new(self.proto.side(), Dir::Uni, 0)
    }

    /// Does what the engine asks for, then writes what it has for one stream. [`QuicSession::flush`] sends it.
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
        let (taken, is_over) = if is_early { (0, false) } else { write(&mut self.proto, id, transmit.data) };
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

    /// Opens our control stream; `false` if the peer does not let us yet.
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
        // A stream that is over already needs none of it: that is all that the calls below could say.
        match action {
            Action::Reset { stream, code } => {
                let id = quic_id(stream);
                self.acknowledged(id);
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
                    // What the engine still has to say, a GOAWAY above all, comes before it.
                    self.closing = Some((code, reason));
                } else {
                    self.close(now, code, reason);
                }
            }
        }
    }

    /// Closes the connection, if it is to be closed and all that was said has arrived: what has not would be lost, since
    /// nothing is sent behind a `CONNECTION_CLOSE`, nor again. A client has its answers, so that all of its requests have.
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

    /// Whether all bytes have arrived that were written. Only once nothing more is to be written: `quinn-proto` tells of
    /// streams that have ended, which our control stream never does, but takes no byte beyond its window, and so nothing at
    /// all with a window of one byte until the last one before is acknowledged.
    ///
    /// It takes none either while the peer grants no more, to the connection or to our control stream, and does not tell the
    /// one from the other. That counts as not arrived: the end waits for the peer's credit then, or for the patience of
    /// whoever waits for it, rather than that a GOAWAY is lost, which nothing would send again.
    fn is_all_acknowledged(&mut self) -> bool {
        self.proto.set_send_window(1);
        let control = self.control();
        !matches!(self.proto.send_stream(control).write(&[]), Err(WriteError::Blocked))
    }

    /// Whether all of what we said on the stream of a request has arrived, as far as QUIC knows.
    pub fn has_arrived(&mut self, request: RequestId) -> bool {
        // It forgets a stream when its end has been acknowledged.
        self.proto.send_stream(quic_id(QuicStreamId::of_request(request))).priority().is_err()
    }
}

/// Reads [`PIECE`] bytes of a stream at most; returns how many, 1 for an end alone, and whether there may be more.
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
    // It was read to its end, or stopped, and told of once more.
    let Ok(mut chunks) = incoming.read(true) else { return (0, false) };
    let mut total = 0;
    // The last one waits for the next, so that the end of the stream is reported with what is before it.
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
    // What is owed to the peer for it leaves with the next flush, which always follows.
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

/// Writes until all is taken or no more is. Returns how much that was, and whether nobody reads the stream any more: then the
/// engine, which hears of that, is to be done with the rest, although it went nowhere.
fn write(proto: &mut Connection, id: StreamId, data: &[u8]) -> (usize, bool) {
    let mut taken = 0;
    // Only a refusal has QUIC say when it takes more.
    while taken < data.len() {
        match proto.send_stream(id).write(&data[taken..]) {
            Ok(n) => taken += n,
            Err(WriteError::Blocked) => break,
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return (taken, true),
        }
    }
    (taken, false)
}

/// What `quinn-proto` makes of a priority: higher ones go first, and streams of which nothing was said have 0.
fn rank(priority: Priority) -> i32 {
    i32::from(Priority::DEFAULT_URGENCY) - i32::from(priority.urgency)
}

/// A stream as the engine numbers it, which is as QUIC does.
fn number(id: StreamId) -> QuicStreamId {
    QuicStreamId(u64::from(id))
}

fn quic_id(stream: QuicStreamId) -> StreamId {
    let side = |bit| if bit { Side::Server } else { Side::Client };
    let dir = if stream.is_unidirectional() { Dir::Uni } else { Dir::Bi };
    StreamId::new(side(stream.0 & 1 == 1), dir, stream.0 >> 2)
}
