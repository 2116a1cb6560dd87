//! The server's end: each request is answered by the application.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_wire::connection::Response;
use h2lab_wire::{Connection, ErrorCode, Event, Field, StreamId};

use super::end::{End, Role};
use super::setup::{Answer, Application};
use h2lab_link::tcp::{self, Socket};

/// Body bytes passed to the engine at once.
const BLOCK: [u8; 16 * 1024] = [b'x'; 16 * 1024];

/// One request in progress.
#[derive(Debug)]
struct Exchange {
    answer: Answer,
    /// The answer's head was sent.
    begun: bool,
    body_left: u64,
}

/// The role of the server's end.
struct Answering<'a> {
    application: &'a Application,
    exchanges: BTreeMap<StreamId, Exchange>,
    /// Complete requests, and answers for which the engine has room again, by the time at which they proceed.
    due: BTreeSet<(Time, StreamId)>,
    over: bool,
}

/// The server's end of one connection.
pub struct Server<'a> {
    /// Socket and engine.
    pub end: End,
    role: Answering<'a>,
}

impl<'a> Server<'a> {
    /// A server that waits to be dialled.
    pub fn new(tcp: tcp::Config, engine: Connection, application: &'a Application) -> Self {
        let role = Answering { application, exchanges: BTreeMap::new(), due: BTreeSet::new(), over: false };
        Self { end: End::new(Socket::listen(tcp), engine), role }
    }

    /// Makes all possible progress.
    pub fn advance(&mut self, now: Time) {
        self.end.advance(now, &mut self.role);
    }

    /// How long body bytes have waited for closed windows.
    pub fn stalled(&self) -> Duration {
        let counters = self.end.engine.counters();
        counters.stalled_stream_window + counters.stalled_connection_window
    }

    /// When [`Server::advance`] must be called.
    pub fn deadline(&self) -> Time {
        self.role.due.first().map_or(Time::NEVER, |(at, _)| *at).min(self.end.deadline())
    }

    /// The open stream at this index, modulo their number.
    pub fn open_stream(&self, place: usize) -> Option<StreamId> {
        let open = &self.role.exchanges;
        open.keys().nth(place % open.len().max(1)).copied()
    }

    /// Resets a stream. The engine reports no event for a reset by its own role.
    pub fn reset(&mut self, now: Time, stream: StreamId, code: ErrorCode) {
        self.end.engine.reset(now, stream, code);
        self.role.exchanges.remove(&stream);
    }
}

impl Answering<'_> {
    /// The exchange on `stream` can proceed when its answer is due.
    fn ready(&mut self, now: Time, stream: StreamId) {
        if let Some(exchange) = self.exchanges.get(&stream) {
            self.due.insert((exchange.answer.due.max(now), stream));
        }
    }

    fn end(&mut self) {
        self.exchanges.clear();
        self.due.clear();
        self.over = true;
    }
}

impl Role for Answering<'_> {
    fn received(&mut self, _now: Time, _bytes: &[u8]) {}

    fn sent(&mut self, _now: Time, _bytes: &[u8]) {}

    fn note(&mut self, now: Time, event: &Event<'_>) {
        match *event {
            Event::Request { stream, head, end_stream } => {
                let answer = (self.application)(now, head.path);
                self.exchanges
                    .insert(stream, Exchange { answer, begun: false, body_left: answer.body_bytes });
                if end_stream {
                    self.ready(now, stream);
                }
            }
            Event::Data { stream, end_stream: true, .. }
            | Event::Trailers { stream, .. }
            | Event::Writable { stream } => self.ready(now, stream),
            Event::Reset { stream, .. } => {
                self.exchanges.remove(&stream);
            }
            Event::Closed { .. } => self.end(),
            _ => {} // pieces of a request's body, SETTINGS and PING change nothing here
        }
    }

    fn at_end(&mut self, _now: Time) {}

    fn broken(&mut self, _now: Time) {
        self.end();
    }

    fn act(&mut self, now: Time, engine: &mut Connection) -> bool {
        let mut acted = false;
        while let Some(&(at, stream)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, stream));
            let Some(exchange) = self.exchanges.get_mut(&stream) else { continue };
            acted = true;
            if !std::mem::replace(&mut exchange.begun, true) {
                begin(now, engine, stream, &exchange.answer);
            }
            go_on(now, engine, stream, &mut exchange.body_left);
            if exchange.body_left == 0 {
                self.exchanges.remove(&stream);
            }
        }
        acted
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

fn begin(now: Time, engine: &mut Connection, stream: StreamId, answer: &Answer) {
    let fields = [Field::new("server", "h2lab-model"), Field::new("content-type", "text/plain")];
    let response = Response {
        status: answer.status,
        fields: &fields,
        body_length: Some(answer.body_bytes),
        end_stream: answer.body_bytes == 0,
    };
    engine.send_response(now, stream, &response);
}

/// Passes as much of a body to the engine as it accepts.
fn go_on(now: Time, engine: &mut Connection, stream: StreamId, left: &mut u64) {
    while *left > 0 {
        let piece = &BLOCK[..BLOCK.len().min(*left as usize)];
        let taken = engine.send_data(now, stream, piece, piece.len() as u64 == *left);
        *left -= taken as u64;
        if taken < piece.len() {
            return; // the engine reports when there is room again
        }
    }
}
