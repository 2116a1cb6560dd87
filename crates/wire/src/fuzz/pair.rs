//! Two engines against each other, driven by a script: whatever their roles do, neither ever reports an error of the
//! other, and what arrives is what was sent.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::connection::{Request, Response};
use crate::limits::Rate;
use crate::{Config, Connection, Error, ErrorCode, Event, Field, Role, StreamId};
use h2lab_base::units::Time;

/// The body that one side sends on a stream.
#[derive(Debug, Clone, Copy)]
struct Body {
    left: usize,
    sent: usize,
    with_trailers: bool,
}

/// One engine and its role.
struct Side {
    connection: Connection,
    /// Bodies that are being sent, by stream.
    sending: BTreeMap<u32, Body>,
    /// Bytes received so far, by stream.
    received: BTreeMap<u32, usize>,
    /// Requests without an answer (server role).
    asked: Vec<u32>,
    closed: bool,
}

/// Bytes that are handed to the engine at once.
const PIECE: usize = 3_000;

/// The byte at `place` of every body on `stream`: no two places within a frame look alike.
const fn pattern(stream: u32, place: usize) -> u8 {
    ((place as u32).wrapping_mul(31).wrapping_add(stream * 7) >> 2) as u8
}

fn piece(stream: u32, from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|place| pattern(stream, place)).collect()
}

const FIELDS: [Field<'static>; 2] = [
    Field { name: b"x-a", value: b"one" },
    Field { name: b"x-b", value: b"a value that is a little longer" },
];

impl Side {
    fn new(role: Role, options: u8) -> Self {
        let has = |bit: u8| options & bit != 0;
        let mut config = Config { enable_push: has(2), ..Config::new(role) };
        let limits = &mut config.limits;
        // The script may cause resets and errors at any rate: the rate limits are not under test.
        (limits.resets, limits.stream_errors) = (Rate { burst: u32::MAX, per_second: 0 }, u32::MAX);
        (limits.noise, limits.small_data_frames) = (u32::MAX, u32::MAX);
        if has(4) {
            (config.flow.stream_window, config.send_buffer) = (700, 900);
        }
        if has(8) {
            (config.header_table_size, config.max_concurrent_streams) = (0, Some(3));
        }
        config.flow.update_threshold_percent = if has(16) { 100 } else { 50 };
        config.padding = if has(32) { 200 } else { 0 };
        config.h2c_upgrade = has(64).then_some(1_000);
        let connection = match (has(1), has(64), role) {
            (false, _, _) => Connection::h2(config, Time::ZERO),
            (true, true, Role::Client) => Connection::h2c_upgrade(config, "a", Time::ZERO),
            (true, _, _) => Connection::h1(config),
        };
        let (sending, received) = (BTreeMap::new(), BTreeMap::new());
        Self { connection, sending, received, asked: Vec::new(), closed: false }
    }

    /// Takes all events, and sends more of the bodies that can be sent.
    fn take_events(&mut self, now: Time) {
        let mut writable = Vec::new();
        while let Some(event) = self.connection.poll_event(now) {
            match event {
                Event::Request { stream, .. } => self.asked.push(stream.0),
                Event::Data { stream, data, end_stream } => {
                    let received = self.received.entry(stream.0).or_default();
                    let expected =
                        data.iter().zip(*received..).all(|(byte, place)| *byte == pattern(stream.0, place));
                    assert!(
                        expected,
                        "the body of stream {stream} changed on its way, after {received} bytes"
                    );
                    *received += data.len();
                    assert!(end_stream || !data.is_empty());
                }
                Event::Writable { stream } => writable.push(stream.0),
                Event::Reset { stream, .. } => self.forget(stream.0),
                Event::Closed { error } => {
                    self.closed = true;
                    let accuses = matches!(
                        error,
                        Some(
                            Error::PeerMisbehaved { .. }
                                | Error::BadHttp1(_)
                                | Error::WrongProtocol { .. }
                                | Error::Exceeded(_)
                                | Error::Misuse(_)
                        )
                    );
                    assert!(!accuses, "{error:?}");
                }
                _ => {}
            }
        }
        for stream in writable {
            self.push(now, stream);
        }
    }

    fn forget(&mut self, stream: u32) {
        self.sending.remove(&stream);
        self.asked.retain(|asked| *asked != stream);
    }

    /// Begins a request with a body of `length` bytes, or without one.
    fn ask(&mut self, now: Time, length: Option<usize>, with_trailers: bool) {
        let request = Request {
            method: if length.is_some() { "POST" } else { "GET" },
            authority: "a",
            path: "/",
            fields: &FIELDS[..=usize::from(with_trailers)],
            body_length: length.filter(|_| !with_trailers).map(|length| length as u64),
            end_stream: length.is_none(),
        };
        let Some(stream) = self.connection.send_request(now, &request) else { return };
        if let Some(left) = length {
            self.sending.insert(stream.0, Body { left, sent: 0, with_trailers });
            self.push(now, stream.0);
        }
    }

    /// Answers the oldest request.
    fn answer(&mut self, now: Time, length: usize, with_trailers: bool) {
        if self.asked.is_empty() {
            return;
        }
        let stream = self.asked.remove(0);
        let body_length = Some(length as u64).filter(|_| !with_trailers);
        let response = Response { status: 200, fields: &FIELDS, body_length, end_stream: false };
        self.connection.send_response(now, StreamId(stream), &response);
        self.sending.insert(stream, Body { left: length, sent: 0, with_trailers });
        self.push(now, stream);
    }

    /// Sends as much of a body as the engine takes.
    fn push(&mut self, now: Time, stream: u32) {
        let Some(body) = self.sending.get_mut(&stream) else { return };
        loop {
            let bytes = piece(stream, body.sent, body.left.min(PIECE));
            let ends = !body.with_trailers && bytes.len() == body.left;
            let taken = self.connection.send_data(now, StreamId(stream), &bytes, ends);
            body.sent += taken;
            body.left -= taken;
            if taken < bytes.len() {
                return;
            }
            if body.left == 0 {
                break;
            }
        }
        if body.with_trailers {
            self.connection.send_trailers(now, StreamId(stream), &FIELDS);
        }
        self.sending.remove(&stream);
    }

    /// Ends the lowest stream that is under way here.
    fn reset(&mut self, now: Time) {
        let stream = self.sending.keys().next().copied().or(self.asked.first().copied());
        if let Some(stream) = stream {
            self.connection.reset(now, StreamId(stream), ErrorCode::CANCEL);
            self.forget(stream);
        }
    }
}

/// Both sides, and the time.
struct Pair {
    client: Side,
    server: Side,
    now: Time,
}

impl Pair {
    /// Carries up to `most` bytes to the other side; returns whether there were any.
    fn carry(&mut self, to_server: bool, most: usize) -> bool {
        let (from, to) = if to_server {
            (&mut self.client, &mut self.server)
        } else {
            (&mut self.server, &mut self.client)
        };
        let pending = from.connection.poll_transmit(self.now);
        let bytes = pending[..pending.len().min(most)].to_vec();
        from.connection.handle_transmitted(self.now, bytes.len());
        from.take_events(self.now);
        if bytes.is_empty() {
            return false;
        }
        self.now += Duration::from_millis(1);
        to.connection.handle_input(self.now, &bytes);
        to.take_events(self.now);
        true
    }

    /// Exchanges bytes until neither has output.
    fn settle(&mut self) {
        for _ in 0..20_000 {
            while !self.server.asked.is_empty() {
                self.server.answer(self.now, 3_000, false);
            }
            let up = self.carry(true, 50_000);
            let down = self.carry(false, 50_000);
            if !up && !down && self.server.asked.is_empty() {
                return;
            }
        }
        panic!("the conversation does not end");
    }
}

/// See the module. The first byte holds options, then come steps: an opcode, and an argument where one is needed.
pub fn pair(data: &[u8]) {
    let [options, script @ ..] = data else { return };
    let (client, server) = (Side::new(Role::Client, *options), Side::new(Role::Server, *options));
    let mut pair = Pair { client, server, now: Time::from_millis(1) };
    for step in script.chunks_exact(2).take(200) {
        let (now, argument) = (pair.now, usize::from(step[1]));
        let length = argument * argument;
        match step[0] % 12 {
            0 => pair.client.ask(now, None, false),
            1 => pair.client.ask(now, Some(length), false),
            2 => pair.client.ask(now, Some(argument), true),
            3 => pair.server.answer(now, length, false),
            4 => pair.server.answer(now, argument, true),
            5 => drop(pair.carry(true, argument + 1)),
            6 => drop(pair.carry(false, argument + 1)),
            7 if argument < 128 => pair.client.reset(now),
            7 => pair.server.reset(now),
            8 if argument < 128 => pair.client.connection.ping(now),
            8 => pair.server.connection.ping(now),
            9 if argument == 0 => pair.server.connection.goaway(now, ErrorCode::NO_ERROR, b"done"),
            9 => {
                if let Some(stream) = pair.server.asked.first() {
                    pair.server.connection.send_interim(now, StreamId(*stream), 103, &FIELDS);
                }
            }
            10 => drop(pair.carry(true, length + 1)),
            _ => drop(pair.carry(false, length + 1)),
        }
    }
    pair.settle();
    let complete = [&pair.client, &pair.server].map(|side| side.sending.is_empty() || side.closed);
    let h2 = matches!(pair.client.connection, Connection::H2(_));
    assert!(
        !h2 || complete == [true, true],
        "a body is stuck: {:?} {:?}",
        pair.client.sending,
        pair.server.sending
    );
}
