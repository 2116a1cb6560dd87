//! The exchanges of a connection, and which of them have something to do.
//!
//! A client may hold thousands of requests open that wait for their time, or for the client. Work is therefore
//! proportional to events: an event puts its exchange into a queue, a due time takes it from an ordered set, and no
//! other exchange is touched. Deliberately, there is no way to iterate over all of them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_wire::{Connection, StreamId};

use super::exchange::{Exchange, Standing};

/// An entry for an exchange. Entries are reused, so that requests allocate nothing.
#[derive(Debug)]
struct Place {
    exchange: Option<Exchange>,
    /// It is to be advanced, and waits in a queue. It stays there if its exchange ends before that: the next exchange in its
    /// place is new, and to be advanced as well.
    is_ready: bool,
    /// When it continues by itself; [`Time::NEVER`] if it does not.
    due: Time,
}

/// All exchanges of one connection. Advancing one costs a step in a hash table, and in an ordered set if it waits for its time;
/// the others cost nothing.
#[derive(Debug, Default)]
pub struct Exchanges {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Hashed with a secret, since clients choose their streams' numbers.
    by_stream: HashMap<StreamId, u32>,
    /// Those that the engine lets write, in its order: the more urgent first. They go before the others.
    writable: VecDeque<u32>,
    /// Those with another event, in the order of events.
    ready: VecDeque<u32>,
    /// Those that wait for their time.
    waiting: BTreeSet<(Time, u32)>,
    /// Bytes of bodies and trailers that are held for all.
    held: usize,
    /// How often an exchange was advanced.
    #[cfg(test)]
    steps: u64,
}

impl Exchanges {
    /// Bytes of bodies and trailers that are held for them.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Whether no request is to be answered.
    pub fn is_empty(&self) -> bool {
        self.by_stream.is_empty()
    }

    /// When the first of the waiting exchanges is due; [`Time::NEVER`] if none is.
    pub fn next_due(&self) -> Time {
        self.waiting.first().map_or(Time::NEVER, |(due, _)| *due)
    }

    /// Adds one, to be advanced. Its stream is not among those here.
    pub fn insert(&mut self, exchange: Exchange) {
        let (stream, held) = (exchange.stream, exchange.held());
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { exchange: None, is_ready: false, due: Time::NEVER });
            self.places.len() as u32 - 1
        });
        self.places[place as usize].exchange = Some(exchange);
        self.by_stream.insert(stream, place);
        self.held += held;
        self.stir(place);
    }

    /// Applies `work` to the exchange on `stream`, if there is one, which may then continue.
    pub fn change(&mut self, stream: StreamId, work: impl FnOnce(&mut Exchange)) {
        let Some(&place) = self.by_stream.get(&stream) else { return };
        self.with(place, work);
        self.stir(place);
    }

    /// The engine takes more of the body of the exchange on `stream`.
    pub fn unblock(&mut self, stream: StreamId) {
        let Some(&place) = self.by_stream.get(&stream) else { return };
        self.with(place, Exchange::unblock);
        self.places[place as usize].is_ready = true;
        self.writable.push_back(place);
    }

    /// Ends the exchange on `stream`, if there is one, after `work` was done with it.
    pub fn remove(&mut self, stream: StreamId, work: impl FnOnce(&mut Exchange)) {
        let Some(place) = self.by_stream.remove(&stream) else { return };
        self.wait_until(place, Time::NEVER);
        // In place: moving it out takes longer than everything else here.
        let exchange = &mut self.places[place as usize].exchange;
        if let Some(exchange) = exchange {
            self.held -= exchange.held();
            work(exchange);
        }
        *exchange = None;
        self.free.push(place);
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Advances those that may continue: after an event, or when due.
    pub fn advance(&mut self, now: Time, engine: &mut Connection, handler_delay: Duration) {
        while let Some(&(due, place)) = self.waiting.first()
            && due <= now
        {
            self.wait_until(place, Time::NEVER);
            self.stir(place);
        }
        while let Some(place) = self.writable.pop_front().or_else(|| self.ready.pop_front()) {
            if !std::mem::take(&mut self.places[place as usize].is_ready) {
                continue; // it was in both queues
            }
            let advanced = self.with(place, |exchange| {
                let standing = exchange.advance(now, engine, handler_delay);
                (exchange.stream, standing, exchange.take_promised(now))
            });
            let Some((stream, standing, promised)) = advanced else { continue };
            match standing {
                Standing::Done => self.remove(stream, |_| ()),
                Standing::WaitsForPeer => self.wait_until(place, Time::NEVER),
                Standing::WaitsUntil(due) => self.wait_until(place, due),
            }
            for one in promised {
                self.insert(one);
            }
        }
    }

    /// Puts one into the queue, unless it is in one.
    fn stir(&mut self, place: u32) {
        if !std::mem::replace(&mut self.places[place as usize].is_ready, true) {
            self.ready.push_back(place);
        }
    }

    /// It continues at this time, and at no other.
    fn wait_until(&mut self, place: u32, due: Time) {
        let before = std::mem::replace(&mut self.places[place as usize].due, due);
        if before == due {
            return;
        }
        if before.happened() {
            self.waiting.remove(&(before, place));
        }
        if due.happened() {
            self.waiting.insert((due, place));
        }
    }

    /// Applies `work` to one, and keeps the account of what it holds.
    fn with<T>(&mut self, place: u32, work: impl FnOnce(&mut Exchange) -> T) -> Option<T> {
        let exchange = self.places[place as usize].exchange.as_mut()?;
        #[cfg(test)]
        {
            self.steps += 1;
        }
        let before = exchange.held();
        let outcome = work(exchange);
        self.held = self.held + exchange.held() - before;
        Some(outcome)
    }
}

#[cfg(test)]
mod tests {
    use h2lab_wire::connection::Request;
    use h2lab_wire::{Config, ErrorCode, Event, Role};

    use super::*;
    use crate::origin::exchange::Room;
    use crate::origin::handler;

    /// Milliseconds that a held request waits for its answer.
    const HELD_MS: u64 = 20_000;

    /// A client and an origin's engine with nothing between them, and the exchanges of the origin.
    struct Pair {
        client: Connection,
        server: Connection,
        exchanges: Exchanges,
        now: Time,
        /// Streams whose answers the client has, in their order.
        answered: Vec<StreamId>,
    }

    impl Pair {
        fn new() -> Self {
            let now = Time::from_millis(1_000);
            let config = Config { max_concurrent_streams: Some(20_000), ..Config::new(Role::Server) };
            let mut pair = Self {
                client: Connection::h2(Config::new(Role::Client), now),
                server: Connection::h2(config, now),
                exchanges: Exchanges::default(),
                now,
                answered: Vec::new(),
            };
            pair.settle();
            pair
        }

        /// Requests `path`, with a body if `is_all` is false.
        fn ask(&mut self, path: &str, is_all: bool) -> StreamId {
            let request = Request {
                method: if is_all { "GET" } else { "POST" },
                authority: "h",
                path,
                fields: &[],
                body_length: None,
                end_stream: is_all,
            };
            self.client.send_request(self.now, &request).expect("there is room for a stream")
        }

        /// Carries bytes until both sides are silent.
        fn settle(&mut self) {
            let now = self.now;
            loop {
                let up = self.client.poll_transmit(now).to_vec();
                self.client.handle_transmitted(now, up.len());
                self.server.handle_input(now, &up);
                self.take_events();
                self.exchanges.advance(now, &mut self.server, Duration::ZERO);
                let down = self.server.poll_transmit(now).to_vec();
                self.server.handle_transmitted(now, down.len());
                self.client.handle_input(now, &down);
                while let Some(event) = self.client.poll_event(now) {
                    match event {
                        Event::Data { stream, end_stream: true, .. }
                        | Event::Response { stream, end_stream: true, .. } => self.answered.push(stream),
                        _ => {}
                    }
                }
                if up.is_empty() && down.is_empty() {
                    return;
                }
            }
        }

        fn take_events(&mut self) {
            let Self { server, exchanges, now, .. } = self;
            while let Some(event) = server.poll_event(*now) {
                match event {
                    Event::Request { stream, head, end_stream } => {
                        exchanges.insert(Exchange::new(
                            stream,
                            handler::route(*now, &head),
                            false,
                            end_stream,
                        ));
                    }
                    Event::Data { stream, data, end_stream } => {
                        let room = Room { bytes: usize::MAX, is_shared: false };
                        exchanges.change(stream, |it| it.take_body(*now, data, room, end_stream));
                    }
                    Event::Writable { stream } => exchanges.unblock(stream),
                    Event::Reset { stream, .. } => exchanges.remove(stream, |_| ()),
                    _ => {}
                }
            }
        }

        /// Opens so many streams whose answers are due in [`HELD_MS`].
        fn hold(&mut self, count: u32) -> Vec<StreamId> {
            let path = format!("/delay/{HELD_MS}");
            let held = (0..count).map(|_| self.ask(&path, true)).collect();
            self.settle();
            held
        }

        /// How often exchanges are advanced during `work`.
        fn steps(&mut self, work: impl FnOnce(&mut Self)) -> u64 {
            let before = self.exchanges.steps;
            work(self);
            self.exchanges.steps - before
        }
    }

    /// A request that is answered at once, one whose body the client's window takes in parts, and one that is echoed.
    fn be_busy(pair: &mut Pair) {
        pair.ask("/", true);
        pair.ask("/bytes/300k", true);
        let echo = pair.ask("/echo", false);
        pair.settle();
        pair.client.send_data(pair.now, echo, &vec![b'x'; 40_000], true);
        pair.settle();
        assert_eq!(pair.answered.len(), 3);
    }

    #[test]
    fn what_a_busy_stream_costs_does_not_depend_on_how_many_are_held_open() {
        let alone = Pair::new().steps(be_busy);
        let mut pair = Pair::new();
        pair.hold(10_000);
        assert_eq!(pair.steps(be_busy), alone);
        assert!((5..100).contains(&alone), "{alone} steps");
    }

    #[test]
    fn streams_whose_time_has_come_are_answered_and_looked_at_no_more_than_twice() {
        let mut pair = Pair::new();
        let early = pair.hold(100);
        pair.now += Duration::from_millis(1);
        let late = pair.hold(10_000);
        let first_due = pair.exchanges.next_due();
        pair.now += Duration::from_millis(HELD_MS - 2);
        assert_eq!(pair.steps(Pair::settle), 0, "it is no one's time");
        pair.now += Duration::from_millis(1);
        assert_eq!(pair.now, first_due);
        let steps = pair.steps(Pair::settle);
        assert_eq!((steps, &pair.answered), (early.len() as u64, &early));
        pair.now += Duration::from_millis(1);
        assert_eq!(pair.steps(Pair::settle), late.len() as u64);
        assert_eq!(pair.answered.len(), early.len() + late.len());
        assert_eq!(pair.exchanges.next_due(), Time::NEVER);
    }

    #[test]
    fn those_that_end_before_their_time_leave_nothing_behind() {
        let mut pair = Pair::new();
        for stream in pair.hold(100) {
            pair.client.reset(pair.now, stream, ErrorCode::CANCEL);
            pair.settle();
        }
        assert_eq!(pair.exchanges.next_due(), Time::NEVER);
        let places = pair.exchanges.places.len();
        for _ in 0..10 {
            pair.hold(100);
            pair.now += Duration::from_millis(HELD_MS);
            pair.settle();
        }
        assert_eq!(pair.answered.len(), 1_000, "their places serve others");
        assert_eq!((pair.exchanges.places.len(), pair.exchanges.by_stream.len()), (places, 0));
    }

    #[test]
    fn what_is_held_is_counted_as_it_comes_and_goes() {
        let mut pair = Pair::new();
        let [kept, given_up] = [(); 2].map(|()| pair.ask("/echo", false));
        for (stream, bytes) in [(kept, 10_000), (given_up, 5_000)] {
            pair.client.send_data(pair.now, stream, &vec![b'x'; bytes], false);
        }
        pair.settle();
        assert_eq!(pair.exchanges.held(), 15_000);
        pair.client.reset(pair.now, given_up, ErrorCode::CANCEL);
        pair.settle();
        assert_eq!(pair.exchanges.held(), 10_000);
        pair.client.send_data(pair.now, kept, b"end", true);
        pair.settle();
        assert_eq!((pair.exchanges.held(), &pair.answered[..]), (0, &[kept][..]));
    }
}
