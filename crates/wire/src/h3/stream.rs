//! The streams of a connection: how QUIC numbers them, and the state of each request's.

use super::frame::FrameReader;
use crate::content::{Content, Side};
use crate::limits::accounts::FAIR_PIECE;
use crate::queue::SendQueue;
use crate::{Role, StreamId};
use h2lab_base::units::Time;

/// A stream as QUIC numbers it (RFC 9000 §2.1): the lowest bit encodes the initiator, the next whether it is
/// unidirectional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuicStreamId(pub u64);

/// How many requests a connection can have: as many as HTTP/2 has a [`StreamId`] for.
pub(super) const MOST_REQUESTS: u32 = 1 << 30;

impl QuicStreamId {
    /// The stream of a request.
    pub const fn of_request(stream: StreamId) -> Self {
        Self::of_number(stream.0 >> 1)
    }

    /// The stream of the request with this number, counted from 0.
    pub(super) const fn of_number(request: u32) -> Self {
        Self((request as u64) << 2)
    }

    /// The first stream that `role` begins in one direction: its control stream.
    pub(super) const fn control_of(role: Role) -> Self {
        Self(match role {
            Role::Client => 2,
            Role::Server => 3,
        })
    }

    /// The side that began it.
    pub const fn initiator(self) -> Role {
        if self.0 & 1 == 0 { Role::Client } else { Role::Server }
    }

    /// Whether it is unidirectional, away from its initiator.
    pub const fn is_unidirectional(self) -> bool {
        self.0 & 2 != 0
    }

    /// Its place among those of the same initiator and direction, counted from 0.
    pub const fn number(self) -> u64 {
        self.0 >> 2
    }

    /// The number of the request on it, counted from 0; `None` if it carries none, or if no connection has that many.
    pub(super) fn request(self) -> Option<u32> {
        let n = u32::try_from(self.number()).ok()?;
        (self.initiator() == Role::Client && !self.is_unidirectional() && n < MOST_REQUESTS).then_some(n)
    }
}

impl std::fmt::Display for QuicStreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of the end of our direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fin {
    /// More may come.
    Open,
    /// The end goes with the last pending byte.
    Due,
    /// The transport has it.
    Sent,
}

/// What is queued for the transport on one stream.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) queue: SendQueue,
    /// How much of it is body, which waits behind heads.
    pub(super) body: usize,
    pub(super) fin: Fin,
    /// It is among those that [`super::Connection::poll_stream`] offers.
    pub(super) is_offered: bool,
    /// The transport did not take all; it reports when it takes more.
    pub(super) is_blocked: bool,
    /// Since when it has made no progress; [`Time::NEVER`] if it has.
    pub(super) blocked_since: Time,
    /// Bytes that it took since then.
    pub(super) taken_since: usize,
}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self {
            queue: SendQueue::default(),
            body: 0,
            fin: Fin::Open,
            is_offered: false,
            is_blocked: false,
            blocked_since: Time::NEVER,
            taken_since: 0,
        }
    }

    /// The transport took `n` of the bytes that it was shown, and the end if that was all. Returns whether a new stall
    /// begins.
    pub(super) fn sent(&mut self, now: Time, n: usize) -> bool {
        let is_all = n >= self.queue.pending().len();
        self.queue.consume(n);
        self.body = self.body.min(self.queue.len());
        if self.queue.len() == 0 {
            self.fin = if self.fin == Fin::Open { Fin::Open } else { Fin::Sent };
            (self.blocked_since, self.taken_since) = (Time::NEVER, 0);
            return false;
        }
        if is_all {
            (self.blocked_since, self.taken_since) = (Time::NEVER, 0);
            return false;
        }
        self.is_blocked = true;
        self.taken_since += n;
        // Less than that is not progress: a peer that opens its window byte by byte is stalled too.
        let begins = self.taken_since >= FAIR_PIECE || !self.blocked_since.happened();
        if begins {
            (self.blocked_since, self.taken_since) = (now, 0);
        }
        begins
    }

    /// Whether there is something to offer to the transport.
    pub(super) fn is_waiting(&self) -> bool {
        self.queue.len() > 0 || self.fin == Fin::Due
    }
}

/// The stream of a request.
#[derive(Debug)]
pub(super) struct Stream {
    /// Our side; it has ended when the end is queued.
    pub(super) local: Side,
    /// The peer's side.
    pub(super) remote: Side,
    /// The peer's direction of the stream has ended: nothing at all follows.
    pub(super) is_finished: bool,
    /// Content state of the peer's message.
    pub(super) content: Content,
    pub(super) reader: FrameReader,
    pub(super) out: Outgoing,
    /// Body waits for room.
    pub(super) waits: bool,
    /// Interim responses received.
    pub(super) interims: u32,
    /// Since when the peer's head is incomplete.
    pub(super) begun_at: Time,
    /// The role itself releases what arrives.
    pub(super) by_hand: bool,
    /// Bytes of body that it has not yet released.
    pub(super) held: u32,
}

impl Stream {
    pub(super) fn new(local: Side, content: Content, begun_at: Time) -> Self {
        Self {
            local,
            remote: Side::Head,
            is_finished: false,
            content,
            reader: FrameReader::new(),
            out: Outgoing::new(),
            waits: false,
            interims: 0,
            begun_at,
            by_hand: false,
            held: 0,
        }
    }

    /// Whether the peer's head is complete.
    pub(super) fn has_head(&self) -> bool {
        self.remote != Side::Head
    }

    /// Whether both sides have ended. Our output may still wait for the transport.
    pub(super) fn is_over(&self) -> bool {
        self.local == Side::Ended && self.is_finished
    }

    /// The memory that it takes, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.reader.held() + self.out.queue.held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_numbered_as_in_http_2() {
        for (n, quic) in [(0, 0), (1, 4), (2, 8), (MOST_REQUESTS - 1, 4 * (u64::from(MOST_REQUESTS) - 1))] {
            let stream = QuicStreamId::of_request(StreamId::of_request(n));
            assert_eq!((stream.0, stream.request()), (quic, Some(n)));
        }
        assert_eq!(QuicStreamId(4 * u64::from(MOST_REQUESTS)).request(), None);
    }

    #[test]
    fn the_lowest_bits_have_initiator_and_direction() {
        let declared = |id| {
            let id = QuicStreamId(id);
            (id.initiator(), id.is_unidirectional(), id.request().is_some())
        };
        assert_eq!(declared(0), (Role::Client, false, true));
        assert_eq!(declared(1), (Role::Server, false, false));
        assert_eq!(declared(2), (Role::Client, true, false));
        assert_eq!(declared(3), (Role::Server, true, false));
        assert_eq!(QuicStreamId::control_of(Role::Server).0, 3);
    }
}
