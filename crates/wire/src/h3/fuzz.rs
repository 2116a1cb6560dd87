//! Streams and field sections under arbitrary input ([`h2lab_model::fuzz`]).

use super::qpack::{self, Encoder};
use super::stream::QuicStreamId;
use crate::compression::{FieldEncoder, FieldList};
use crate::connection::{Request, Response};
use crate::{Config, Connection, ErrorCode, Event, Role, StreamId};
use h2lab_base::units::Time;

/// The memory that a connection may hold whatever its peer does, in bytes: a role below sends 20 KB for each request.
const MOST_HELD: usize = 8 << 20;

/// The bytes of bodies.
static BODY: [u8; 20_000] = [b'x'; 20_000];

/// Section after section, each after its length: lists keep to their limit, and decoded fields survive a round trip.
pub fn sections(mut data: &[u8]) {
    const LIMIT: u32 = 4_096;
    let mut list = FieldList::with_most_decoded(LIMIT, 4);
    while let Some((length, rest)) = data.split_first_chunk() {
        let (section, rest) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes(*length))));
        data = rest;
        if qpack::decode(section, &mut list).is_err() {
            continue; // unlike in HPACK the next one does not depend on it
        }
        let fields = || list.starting_at(0).iter();
        let size: usize = fields().map(|field| field.name.len() + field.value.len() + 32).sum();
        assert!(size <= LIMIT as usize, "{size}");
        let mut coded = Vec::new();
        Encoder::begin(&mut coded);
        fields().for_each(|field| Encoder.field(field.name, field.value, &mut coded));
        let mut read = FieldList::new(LIMIT);
        qpack::decode(&coded, &mut read).expect("what we encode can be decoded");
        assert!(fields().eq(read.starting_at(0).iter()), "a field changed on its way");
        assert_eq!(list.kinds(), read.kinds());
    }
}

/// A server (first byte even) or a client (odd), fed with steps of a script: three bytes that select the action and its
/// stream, and, if bytes arrive, the bytes.
pub fn streams(data: &[u8]) {
    let Some((options, mut script)) = data.split_first() else { return };
    let mut driven = Driven::new(if options & 1 == 0 { Role::Server } else { Role::Client }, *options);
    while let Some(([what, stream, length], rest)) = script.split_first_chunk() {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        script = if what % 8 < 5 { rest } else { &script[3..] };
        driven.step(*what, QuicStreamId(u64::from(*stream)), bytes);
    }
    driven.end();
}

/// A connection and a role that does all that it is asked for.
struct Driven {
    connection: Connection,
    now: Time,
    is_slow: bool,
    is_closed: bool,
}

impl Driven {
    fn new(role: Role, options: u8) -> Self {
        let mut config = Config::new(role);
        if options & 2 != 0 {
            (config.send_buffer, config.max_header_list_size) = (700, 600);
        }
        config.flow.manual_release = options & 4 != 0;
        config.connect_protocol = options & 8 != 0;
        let connection = Connection::h3(config, Time::ZERO);
        let mut driven =
            Self { connection, now: Time::from_millis(5), is_slow: options & 16 != 0, is_closed: false };
        driven.quic().handle_streams_granted(8);
        for n in 0..4 {
            let request = Request {
                method: ["GET", "POST", "HEAD", "CONNECT"][n],
                authority: "a",
                path: "/",
                fields: &[],
                body_length: None,
                end_stream: n % 2 == 0,
            };
            driven.connection.send_request(driven.now, &request);
        }
        driven
    }

    fn quic(&mut self) -> &mut super::Connection {
        self.connection.as_h3().expect("HTTP/3")
    }

    fn step(&mut self, what: u8, stream: QuicStreamId, bytes: &[u8]) {
        let (now, code) = (self.now, u64::from(what) << 1);
        match what % 8 {
            0..=3 => self.quic().handle_stream(now, stream, bytes, what & 16 != 0),
            4 => bytes.iter().for_each(|byte| self.quic().handle_stream(now, stream, &[*byte], false)),
            5 => self.quic().handle_stream_reset(now, stream, code),
            6 => self.quic().handle_stop_sending(now, stream, code),
            _ => self.transmit(usize::from(what) << 3),
        }
        self.take_events();
        let passed = if self.is_slow { 3_000_000_000 } else { 100_000 };
        self.now += std::time::Duration::from_nanos(passed);
        if self.connection.poll_timeout() <= self.now {
            self.connection.handle_timeout(self.now);
            self.take_events();
        }
        assert!(self.connection.held_bytes() <= MOST_HELD, "{}", self.connection.held_bytes());
    }

    /// The transport does what it is asked for, and takes up to `most` bytes of each stream.
    fn transmit(&mut self, most: usize) {
        let now = self.now;
        while self.quic().poll_action().is_some() {}
        let mut blocked = Vec::new();
        while let Some(transmit) = self.quic().poll_stream() {
            let (stream, length) = (transmit.stream, transmit.data.len());
            assert!(length > 0 || transmit.fin, "something is offered");
            self.quic().handle_stream_sent(now, stream, length.min(most));
            if length > most {
                blocked.push(stream);
            }
        }
        for stream in blocked {
            self.quic().handle_stream_writable(stream);
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event(self.now) {
            assert!(!self.is_closed, "nothing follows the end");
            self.is_closed = matches!(event, Event::Closed { .. });
            match event {
                Event::Request { stream, .. } => self.answer(stream),
                Event::Writable { stream } => {
                    let taken = self.connection.send_data(self.now, stream, &BODY[..300], true);
                    assert!(taken > 0, "writable means it");
                }
                Event::Interim { stream, .. } => self.connection.reset(self.now, stream, ErrorCode::CANCEL),
                Event::Data { stream, data, .. } => {
                    let n = data.len() as u32;
                    self.connection.release(self.now, stream, n);
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self, stream: StreamId) {
        let response = Response { status: 200, fields: &[], body_length: None, end_stream: false };
        self.connection.send_response(self.now, stream, &response);
        self.connection.send_data(self.now, stream, &BODY, true);
    }

    /// The transport ends, and with it the connection, with no deadline left.
    fn end(mut self) {
        self.connection.handle_eof(self.now);
        self.take_events();
        assert!(self.is_closed, "the end of the transport ends the connection");
        assert_eq!(self.connection.poll_timeout(), Time::NEVER);
    }
}

/// Scripts for [`streams`]: a whole conversation for both roles, under every option that changes how it is read.
pub fn scripts() -> Vec<Vec<u8>> {
    let section = |fields: &[(&str, &str)]| {
        let mut section = Vec::new();
        Encoder::begin(&mut section);
        for (name, value) in fields {
            Encoder.field(name.as_bytes(), value.as_bytes(), &mut section);
        }
        [&[1, section.len() as u8][..], &section].concat()
    };
    let arrive =
        |what: u8, stream: u8, bytes: &[u8]| [&[what, stream, bytes.len() as u8][..], bytes].concat();
    let get = section(&[(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/")]);
    let control = |stream| arrive(0, stream, &[0, 4, 4, 6, 0x44, 0, 8, 1, 0x21, 1, 7]);
    let body = [0, 5, b'h', b'e', b'l', b'l', b'o'];
    let from_client = [
        control(2),
        arrive(0, 6, &[2, 0x20]),
        arrive(0, 10, &[3, 0x41]),
        arrive(16, 0, &get),
        arrive(4, 4, &[&get[..], &body].concat()),
        vec![255, 0, 0],
        arrive(16, 4, &section(&[("x-sum", "1")])),
        arrive(1, 2, &[0x80, 0x0f, 0x07, 0, 4, 4, b'u', b'=', b'1', 13, 1, 9, 7, 1, 0]),
        vec![5, 0, 0, 6, 4, 0],
    ];
    let from_server = [
        control(3),
        arrive(0, 0, &[section(&[(":status", "200"), ("content-length", "5")]), body.to_vec()].concat()),
        vec![255, 0, 0],
        arrive(16, 0, &section(&[("x-sum", "1")])),
        arrive(4, 4, &section(&[(":status", "103")])),
        arrive(16, 8, &section(&[(":status", "204")])),
        arrive(0, 3, &[7, 1, 8]),
        vec![6, 12, 0],
    ];
    let options = [0, 2, 4, 8, 16, 2 + 4 + 16];
    let scripts = |role: u8, steps: Vec<u8>| options.map(|options| [&[options + role][..], &steps].concat());
    [scripts(0, from_client.concat()), scripts(1, from_server.concat())].concat()
}
