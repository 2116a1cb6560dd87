//! A model of QUIC between two engines: streams in any order, each in pieces of any size, blocked now and then.
//!
//! It keeps only the guarantees of RFC 9000 that the engine relies on: the bytes of a stream come in order, those of
//! different streams do not; what is reset may be lost.

use std::collections::BTreeMap;

use super::Connection;
use super::stream::QuicStreamId;
use super::transport::Action;
use crate::Role;
use h2lab_base::random::Counter;
use h2lab_base::units::Time;

/// What is on its way on one stream, in one direction.
#[derive(Debug, Default)]
struct Flight {
    bytes: Vec<u8>,
    fin: bool,
    reset: Option<u64>,
}

/// Both directions of a connection. As a direction, `true` is away from the client.
#[derive(Debug)]
pub(crate) struct Model {
    dice: Counter,
    flights: BTreeMap<(bool, u64), Flight>,
    /// `STOP_SENDING` that is on its way.
    stops: Vec<(bool, u64, u64)>,
    blocked: Vec<(bool, u64)>,
    /// `CONNECTION_CLOSE`, by direction.
    closes: [Option<u64>; 2],
    /// Streams that were reset or stopped, by direction: nothing is delivered on them.
    dead: Vec<(bool, u64)>,
}

impl Model {
    /// `seed` decides order and pieces.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            dice: Counter::new(seed, "quic"),
            flights: BTreeMap::new(),
            stops: Vec::new(),
            blocked: Vec::new(),
            closes: [None; 2],
            dead: Vec::new(),
        }
    }

    /// Takes what `engine` has for its peer; returns whether there was anything.
    pub(crate) fn collect(&mut self, now: Time, role: Role, engine: &mut Connection) -> bool {
        let up = role == Role::Client;
        let mut any = false;
        while let Some(action) = engine.poll_action() {
            any = true;
            self.act(up, &action);
        }
        let writable: Vec<_> = self.blocked.iter().filter(|blocked| blocked.0 == up).copied().collect();
        self.blocked.retain(|blocked| blocked.0 != up);
        for (_, stream) in writable {
            any = true;
            engine.handle_stream_writable(QuicStreamId(stream));
        }
        for _ in 0..=self.dice.below(4) {
            let Some(transmit) = engine.poll_stream() else { break };
            any = true;
            let (stream, length) = (transmit.stream, transmit.data.len());
            let taken =
                if self.dice.below(3) == 0 { self.dice.below(length as u64 + 1) as usize } else { length };
            let flight = self.flights.entry((up, stream.0)).or_default();
            assert!(!flight.fin, "nothing follows the end of stream {stream}");
            flight.bytes.extend_from_slice(&transmit.data[..taken]);
            flight.fin = transmit.fin && taken == length;
            engine.handle_stream_sent(now, stream, taken);
            if taken < length {
                self.blocked.push((up, stream.0));
            }
        }
        any
    }

    fn act(&mut self, up: bool, action: &Action) {
        match *action {
            Action::Reset { stream, code } => {
                let flight = self.flights.entry((up, stream.0)).or_default();
                *flight = Flight { reset: Some(u64::from(code.0)), ..Flight::default() };
            }
            Action::Stop { stream, code } => {
                self.stops.push((up, stream.0, u64::from(code.0)));
                self.flights.remove(&(!up, stream.0));
                self.dead.push((!up, stream.0));
            }
            Action::Prioritise { .. } => {}
            Action::Close { code, .. } => self.closes[usize::from(up)] = Some(u64::from(code.0)),
        }
    }

    /// Hands a piece of what is on its way to `engine`; returns whether there was anything. The order is random.
    pub(crate) fn deliver(&mut self, now: Time, role: Role, engine: &mut Connection) -> bool {
        let up = role == Role::Server;
        if let Some(at) = self.stops.iter().position(|stop| stop.0 == up)
            && self.dice.below(2) == 0
        {
            let (_, stream, code) = self.stops.remove(at);
            engine.handle_stop_sending(now, QuicStreamId(stream), code);
            return true;
        }
        let dead = &self.dead;
        self.flights.retain(|way, flight| !dead.contains(way) || flight.reset.is_some());
        let ready: Vec<u64> = self
            .flights
            .iter()
            .filter(|((way, stream), flight)| {
                *way == up
                    && (flight.reset.is_some() || flight.fin || !flight.bytes.is_empty())
                    && engine.wants_stream(QuicStreamId(*stream))
            })
            .map(|((_, stream), _)| *stream)
            .collect();
        if ready.is_empty() {
            let close = self.closes[usize::from(up)].take();
            if close.is_some() {
                engine.handle_close(now, close);
            }
            return close.is_some() || self.stops.iter().any(|stop| stop.0 == up);
        }
        let stream = ready[self.dice.below(ready.len() as u64) as usize];
        self.deliver_of(now, up, stream, engine);
        true
    }

    fn deliver_of(&mut self, now: Time, up: bool, stream: u64, engine: &mut Connection) {
        let Some(flight) = self.flights.get_mut(&(up, stream)) else { return };
        if let Some(code) = flight.reset {
            self.flights.remove(&(up, stream));
            return engine.handle_stream_reset(now, QuicStreamId(stream), code);
        }
        let most = if self.dice.below(4) == 0 { 3 } else { 3_000 };
        let length = flight.bytes.len().min(1 + self.dice.below(most) as usize);
        let piece: Vec<u8> = flight.bytes.drain(..length).collect();
        let fin = flight.fin && flight.bytes.is_empty();
        if fin {
            self.flights.remove(&(up, stream));
        }
        engine.handle_stream(now, QuicStreamId(stream), &piece, fin);
    }
}
