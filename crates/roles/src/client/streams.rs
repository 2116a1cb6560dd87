//! Which request a stream carries.

use std::collections::VecDeque;

use h2lab_base::units::Time;
use h2lab_wire::StreamId;

/// A request on its stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried {
    /// Its number, given by the role.
    pub request: u32,
    /// Which of the prepared requests it is.
    pub number: u64,
    /// Bytes of its body that the engine has not taken yet.
    pub body_left: u64,
    /// Since when its body waits for a window; [`Time::NEVER`] if it does not.
    pub blocked_since: Time,
    /// The head of its final response has arrived.
    pub answered: bool,
    /// When it was handed to the engine.
    pub begun_at: Time,
    /// Where its head ends in the bytes of the connection, or of its stream if it has its own.
    pub head_end: u64,
    /// The position, counted in the same way, after what the engine has of the request.
    pub end: u64,
    /// How many bytes of its stream the transport has, if it has its own.
    pub sent: u64,
    /// The transport has its head.
    pub is_sent: bool,
    /// Bytes that the connection had received when it began.
    pub received_before: u64,
    /// Bytes that the TCP socket had taken when the request began, with TLS bytes of records: the request's own come
    /// after them.
    pub written_before: u64,
}

/// The requests of one connection by stream. A client's stream IDs rise by two (RFC 9113 §5.1.1), so a queue indexed by
/// them finds each request in one step and is freed at its front as old streams end.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The number of the request at the front of the queue, counted on this connection.
    first: u32,
    queue: VecDeque<Option<Carried>>,
    open: u32,
    /// The transport has the heads of the requests before this one: they leave in the order of their streams.
    unsent: u32,
}

impl Streams {
    /// How many requests are in flight.
    pub const fn open(&self) -> u32 {
        self.open
    }

    /// Notes what `stream`, the newest, carries.
    pub fn insert(&mut self, stream: StreamId, carried: Carried) {
        let number = stream.0 / 2;
        if self.queue.is_empty() {
            self.first = number;
        }
        while self.first + (self.queue.len() as u32) < number {
            self.queue.push_back(None);
        }
        self.queue.push_back(Some(carried));
        self.open += 1;
    }

    /// The next request whose head ends within the first `bytes` of the connection; each is reported once.
    pub fn next_sent(&mut self, bytes: u64) -> Option<&mut Carried> {
        let mut place = self.unsent.saturating_sub(self.first);
        while let Some(None) = self.queue.get(place as usize) {
            place += 1; // it has ended
        }
        self.unsent = self.first + place;
        let next = self.queue.get_mut(place as usize)?.as_mut()?;
        let is_sent = next.head_end <= bytes;
        self.unsent += u32::from(is_sent);
        is_sent.then_some(next)
    }

    /// The request on `stream`, if it is one of ours and in flight.
    pub fn get_mut(&mut self, stream: StreamId) -> Option<&mut Carried> {
        let index = Self::number(stream)?.checked_sub(self.first)?;
        self.queue.get_mut(index as usize)?.as_mut()
    }

    /// Takes a request off its stream: it has ended there.
    pub fn take(&mut self, stream: StreamId) -> Option<Carried> {
        let index = Self::number(stream)?.checked_sub(self.first)?;
        let carried = self.queue.get_mut(index as usize)?.take()?;
        self.open -= 1;
        while let Some(None) = self.queue.front() {
            self.queue.pop_front();
            self.first += 1;
        }
        Some(carried)
    }

    /// Takes the newest request whose stream is above `last`. Newest first, so that a caller that puts each back at the front of
    /// its queue keeps their order.
    pub fn take_above(&mut self, last: StreamId) -> Option<Carried> {
        while let Some(back) = self.queue.back() {
            let stream = StreamId::of_request(self.first + self.queue.len() as u32 - 1);
            if stream <= last {
                return None;
            }
            let carried = *back;
            self.queue.pop_back();
            if carried.is_some() {
                self.open -= 1;
                return carried;
            }
        }
        None
    }

    /// Requests are on odd streams.
    const fn number(stream: StreamId) -> Option<u32> {
        if stream.0 % 2 == 1 { Some(stream.0 / 2) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(request: u32) -> Carried {
        Carried {
            request,
            number: 0,
            body_left: 0,
            blocked_since: Time::NEVER,
            answered: false,
            begun_at: Time::ZERO,
            head_end: 0,
            end: 0,
            sent: 0,
            is_sent: false,
            received_before: 0,
            written_before: 0,
        }
    }

    fn three() -> Streams {
        let mut streams = Streams::default();
        for n in 0..3 {
            streams.insert(StreamId::of_request(n), carried(100 + n));
        }
        streams
    }

    #[test]
    fn streams_end_in_any_order_and_only_once() {
        let mut streams = three();
        for (stream, request) in [(3, 101), (1, 100), (5, 102)] {
            assert_eq!(streams.take(StreamId(stream)).map(|carried| carried.request), Some(request));
            assert!(streams.take(StreamId(stream)).is_none());
        }
        assert_eq!(streams.open(), 0);
        streams.insert(StreamId(7), carried(103));
        assert_eq!(streams.get_mut(StreamId(7)).map(|carried| carried.request), Some(103));
    }

    #[test]
    fn each_head_is_sent_once_when_all_of_it_is_and_those_that_ended_before_never() {
        let mut streams = Streams::default();
        let begin = |streams: &mut Streams, n: u32| {
            let head_end = u64::from(n + 1) * 10;
            streams.insert(StreamId::of_request(n), Carried { head_end, ..carried(n) });
        };
        let sent = |streams: &mut Streams, bytes| streams.next_sent(bytes).map(|carried| carried.request);
        (0..4).for_each(|n| begin(&mut streams, n));
        assert_eq!(sent(&mut streams, 9), None);
        assert_eq!((sent(&mut streams, 10), sent(&mut streams, 10)), (Some(0), None));
        streams.take(StreamId(1));
        streams.take(StreamId(3));
        assert_eq!((sent(&mut streams, 39), sent(&mut streams, 39)), (Some(2), None));
        // Later requests do not wait for its end.
        streams.take_above(StreamId(5));
        begin(&mut streams, 4);
        assert_eq!((sent(&mut streams, 50), sent(&mut streams, 50)), (Some(4), None));
        streams.take(StreamId(5));
        streams.take(StreamId(9));
        begin(&mut streams, 5);
        assert_eq!((sent(&mut streams, 60), sent(&mut streams, 60)), (Some(5), None));
    }

    #[test]
    fn ids_that_a_peer_invents_find_nothing() {
        let mut streams = three();
        for id in [0, 2, 4, 7, 9, u32::MAX] {
            assert!(streams.take(StreamId(id)).is_none(), "{id}");
        }
        assert_eq!(streams.open(), 3);
    }

    #[test]
    fn requests_above_a_last_stream_come_newest_first_and_the_others_stay() {
        let mut streams = three();
        assert_eq!(streams.take_above(StreamId(1)).unwrap().request, 102);
        assert_eq!(streams.take_above(StreamId(1)).unwrap().request, 101);
        assert!(streams.take_above(StreamId(1)).is_none());
        assert_eq!(streams.open(), 1);
        assert_eq!(streams.take_above(StreamId::CONNECTION).unwrap().request, 100);
    }
}
