//! Whole connections under arbitrary input ([`h2lab_model::fuzz`]).

mod pair;
mod seeds;

use std::time::Duration;

pub use self::pair::pair;
pub use self::seeds::{recorded_client, recorded_server, sparing_client};
use super::connection::{Request, Response};
use super::h2::frame::{FrameHeader, HEADER_LENGTH, PREFACE};
use super::{Config, Connection, ErrorCode, Event, Role, StreamId};
use h2lab_base::random::Counter;
use h2lab_base::units::Time;

/// The memory that a connection may hold whatever its peer does, in bytes: the role below sends 50 KB for each request,
/// and the input buffer grows to 256 KiB.
const MOST_HELD: usize = 4 << 20;

/// The bytes of bodies.
static BODY: [u8; 50_000] = [b'x'; 50_000];

/// Bits of the first byte of the input.
mod option {
    /// HTTP/1.1 instead of HTTP/2.
    pub(crate) const H1: u8 = 1;
    /// A valid preface precedes the input.
    pub(crate) const GREETED: u8 = 2;
    /// The role releases by hand.
    pub(super) const MANUAL: u8 = 4;
    /// Small windows, buffers, and no table.
    pub(super) const SMALL: u8 = 8;
    /// Time passes in seconds instead of microseconds.
    pub(super) const SLOW: u8 = 16;
    /// Push is enabled, and so is `Upgrade: h2c`; the role does what it is asked for a little later.
    pub(super) const EXTRAS: u8 = 32;
}

#[cfg(test)]
pub(crate) use self::option::{GREETED, H1};

/// A server, fed with bytes of a client.
pub fn server(data: &[u8]) {
    connection(Role::Server, data);
}

/// A client with requests under way, fed with bytes of a server.
pub fn client(data: &[u8]) {
    connection(Role::Client, data);
}

fn connection(role: Role, data: &[u8]) {
    let [options, pieces, bytes @ ..] = data else { return };
    let mut driven = Driven::new(role, *options);
    let pieces = Counter::new(u64::from(*pieces), "pieces");
    let (mut rest, mut n) = (bytes, 0);
    while !rest.is_empty() {
        let most = if pieces.at(n) & 1 == 0 { 16 } else { 3_000 };
        let (piece, after) = rest.split_at(rest.len().min(1 + (pieces.at(n) >> 1) as usize % most));
        driven.feed(piece);
        if n % 3 == 0 {
            driven.transmit();
        }
        driven.pass_time();
        (rest, n) = (after, n + 1);
    }
    driven.end();
}

/// A connection and a role that does all that it is asked for.
struct Driven {
    connection: Connection,
    options: u8,
    now: Time,
    closed: bool,
}

impl Driven {
    fn new(role: Role, options: u8) -> Self {
        let has = |option| options & option != 0;
        let mut config = Config { enable_push: has(option::EXTRAS), ..Config::new(role) };
        config.flow.manual_release = has(option::MANUAL);
        config.h2c_upgrade = has(option::EXTRAS).then_some(1_000);
        if has(option::SMALL) {
            config.flow.stream_window = 300;
            (config.send_buffer, config.header_table_size) = (700, 0);
            (config.max_header_list_size, config.max_concurrent_streams) = (600, Some(2));
        }
        let connection =
            if has(option::H1) { Connection::h1(config) } else { Connection::h2(config, Time::ZERO) };
        let mut driven = Self { connection, options, now: Time::from_millis(5), closed: false };
        if role == Role::Client {
            driven.ask();
        }
        if has(option::GREETED) && !has(option::H1) {
            let preface = if role == Role::Server { &PREFACE[..] } else { &[] };
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
            let acknowledgement = [0, 0, 0, 4, 1, 0, 0, 0, 0];
            driven.feed(&[preface, &settings, &acknowledgement].concat());
        }
        driven.transmit();
        driven
    }

    /// Begins four requests, two of them with a body; HTTP/1.1 takes one.
    fn ask(&mut self) {
        for n in 0..4 {
            let request = Request {
                method: ["GET", "POST", "HEAD", "PUT"][n],
                authority: "a",
                path: "/",
                fields: &[],
                body_length: None,
                end_stream: n % 2 == 0,
            };
            let Some(stream) = self.connection.send_request(self.now, &request) else { return };
            if n % 2 == 1 {
                self.connection.send_data(self.now, stream, &BODY[..40_000], false);
            }
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        assert!(self.connection.recv_space().len() >= 1024);
        self.connection.handle_input(self.now, bytes);
        self.take_events();
    }

    fn take_events(&mut self) {
        let mut later = Vec::new();
        while let Some(event) = self.connection.poll_event(self.now) {
            assert!(!self.closed, "nothing follows the end");
            self.closed = matches!(event, Event::Closed { .. });
            match step(&event) {
                Some(step) if self.options & option::EXTRAS != 0 => later.push(step),
                Some(step) => {
                    let taken = self.answer(step);
                    assert!(taken > 0 || !matches!(step, Step::Continue(_)), "writable means it");
                }
                None => {}
            }
        }
        for step in later {
            self.answer(step);
        }
        let held = self.connection.held_bytes();
        assert!(held <= MOST_HELD, "{held} bytes are held");
    }

    /// Does what is asked for; returns how many bytes of body the engine took.
    fn answer(&mut self, step: Step) -> usize {
        let (connection, now) = (&mut self.connection, self.now);
        match step {
            Step::Answer(stream) => {
                let response = Response { status: 200, fields: &[], body_length: None, end_stream: false };
                connection.send_response(now, stream, &response);
                connection.send_data(now, stream, &BODY[..50_000], true)
            }
            Step::Continue(stream) => connection.send_data(now, stream, &BODY[..300], true),
            Step::Release(stream, n) if self.options & option::MANUAL != 0 => {
                connection.release(now, stream, n);
                0
            }
            Step::Cancel(stream) if self.options & option::H1 == 0 => {
                connection.reset(now, stream, ErrorCode::CANCEL);
                0
            }
            Step::Release(..) | Step::Cancel(_) => 0,
        }
    }

    /// The transport takes all output, which in HTTP/2 must be whole frames.
    fn transmit(&mut self) {
        let sent = self.connection.poll_transmit(self.now).to_vec();
        self.connection.handle_transmitted(self.now, sent.len());
        if self.options & (option::H1 | option::EXTRAS) == 0 {
            check_frames(&sent);
        }
        self.take_events();
    }

    fn pass_time(&mut self) {
        let slow = self.options & option::SLOW != 0;
        self.now += if slow { Duration::from_secs(3) } else { Duration::from_micros(100) };
        if self.connection.poll_timeout() <= self.now {
            self.connection.handle_timeout(self.now);
            self.take_events();
        }
    }

    /// The peer closes: the connection must end, with no deadline left.
    fn end(mut self) {
        self.connection.handle_eof(self.now);
        self.take_events();
        // An HTTP/1.1 client that half-closes still gets the answers to all that it asked.
        for _ in 0..10_000 {
            if self.closed {
                break;
            }
            self.transmit();
        }
        assert!(self.closed, "the end of the transport ends the connection");
        assert_eq!(self.connection.poll_timeout(), Time::NEVER);
        assert!(self.connection.poll_event(self.now).is_none());
    }
}

/// What the role does about an event.
#[derive(Debug, Clone, Copy)]
enum Step {
    Answer(StreamId),
    Continue(StreamId),
    Release(StreamId, u32),
    Cancel(StreamId),
}

fn step(event: &Event<'_>) -> Option<Step> {
    match *event {
        Event::Request { stream, .. } => Some(Step::Answer(stream)),
        Event::Writable { stream } => Some(Step::Continue(stream)),
        Event::Data { stream, data, .. } => Some(Step::Release(stream, data.len() as u32)),
        Event::Interim { stream, .. } => Some(Step::Cancel(stream)),
        _ => None,
    }
}

/// Fails unless `bytes` are whole frames, with or without a preface before them.
fn check_frames(bytes: &[u8]) {
    let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    while let Some((header, after)) = rest.split_first_chunk::<HEADER_LENGTH>() {
        let header = FrameHeader::parse(header);
        // As long as the peer allows: the SETTINGS in the seeds state it, and mutations may state anything.
        assert!(header.kind <= 9, "{header:?}");
        rest = after.get(header.length as usize..).expect("output ends within a frame");
    }
    assert!(rest.is_empty(), "output ends within a header");
}
