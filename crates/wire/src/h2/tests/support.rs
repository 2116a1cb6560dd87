//! Helpers for the tests: configurations, scripted peers, frames.

use crate::compression::FieldEncoder;
use crate::connection::{Request, Response};
use crate::h2::frame::{FrameHeader, HEADER_LENGTH, PREFACE, kind};
use crate::h2::hpack::Encoder;
pub(super) use crate::h2::raw::frame;
use crate::testing::{Pair, Seen, drain_events, drain_output};
use crate::{Config, Connection, Field, Role, StreamId};
use h2lab_base::units::Time;

pub(super) const NOW: Time = Time::from_millis(5);

pub(super) fn client_config() -> Config {
    Config::new(Role::Client)
}

pub(super) fn server_config() -> Config {
    Config::new(Role::Server)
}

pub(super) fn pair_of(client: Config, server: Config, seed: u64) -> Pair {
    Pair::new(Connection::h2(client, Time::ZERO), Connection::h2(server, Time::ZERO), seed)
}

pub(super) fn get(path: &str) -> Request<'_> {
    Request {
        method: "GET",
        authority: "example.com",
        path,
        fields: &[],
        body_length: None,
        end_stream: true,
    }
}

pub(super) fn post(path: &str, body_length: u64) -> Request<'_> {
    Request { method: "POST", body_length: Some(body_length), end_stream: false, ..get(path) }
}

pub(super) const OK: Response<'_> =
    Response { status: 200, fields: &[], body_length: None, end_stream: false };
pub(super) const EMPTY: Response<'_> =
    Response { status: 200, fields: &[], body_length: Some(0), end_stream: true };

/// `length` bytes that differ from place to place and from stream to stream.
pub(super) fn body(length: usize, salt: u32) -> Vec<u8> {
    (0..length).map(|n| ((n as u32).wrapping_mul(31).wrapping_add(salt) >> 3) as u8).collect()
}

/// A block of literal fields; uses no dynamic table, so that blocks are independent of each other.
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut out, mut encoder) = (Vec::new(), Encoder::new());
    encoder.set_limit(0);
    encoder.begin(&mut out);
    out.clear();
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
    }
    out
}

pub(super) fn get_block() -> Vec<u8> {
    block(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")])
}

pub(super) fn ok_block() -> Vec<u8> {
    block(&[(":status", "200")])
}

/// Frames out of bytes: header and payload of each.
pub(super) fn frames(mut bytes: &[u8]) -> Vec<(FrameHeader, Vec<u8>)> {
    let mut found = Vec::new();
    bytes = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LENGTH>() {
        let header = FrameHeader::parse(header);
        let (payload, rest) = rest.split_at(header.length as usize);
        found.push((header, payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "output ends within a frame");
    found
}

/// An engine whose peer the test scripts, frame by frame.
pub(super) struct Scripted {
    pub(super) engine: Connection,
    pub(super) now: Time,
}

impl Scripted {
    /// Prefaces and SETTINGS are exchanged and acknowledged.
    pub(super) fn new(config: Config) -> Self {
        let mut scripted = Self { engine: Connection::h2(config, Time::ZERO), now: NOW };
        if config.role == Role::Server {
            scripted.engine.handle_input(NOW, PREFACE);
        }
        scripted.receive(&frame(kind::SETTINGS, 0, 0, &[]));
        scripted.receive(&frame(kind::SETTINGS, 1, 0, &[]));
        scripted.sent();
        scripted
    }

    /// The peer sends `bytes`; returns the engine's events.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Vec<Seen> {
        self.engine.handle_input(self.now, bytes);
        drain_events(&mut self.engine, self.now)
    }

    /// The frames that the engine sent since the last time.
    pub(super) fn sent(&mut self) -> Vec<(FrameHeader, Vec<u8>)> {
        frames(&drain_output(&mut self.engine, self.now))
    }

    /// Begins a GET and drops its frames.
    pub(super) fn request(&mut self) -> u32 {
        let stream = self.engine.send_request(self.now, &get("/")).expect("a stream is available");
        self.sent();
        stream.0
    }

    /// Begins an upload and drops its HEADERS.
    pub(super) fn upload(&mut self) -> StreamId {
        let request = Request { body_length: None, ..post("/", 0) };
        let stream = self.engine.send_request(self.now, &request).expect("a stream is available");
        self.sent();
        stream
    }

    /// The error code of the GOAWAY and of the RST_STREAMs that the engine sent since the last time.
    pub(super) fn codes(&mut self) -> (Option<u32>, Vec<(u32, u32)>) {
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        let (mut goaway, mut resets) = (None, Vec::new());
        for (header, payload) in self.sent() {
            match header.kind {
                kind::GOAWAY => goaway = Some(number(&payload[4..8])),
                kind::RST_STREAM => resets.push((header.stream, number(&payload))),
                _ => {}
            }
        }
        (goaway, resets)
    }
}

pub(super) fn field<'a>(name: &'a str, value: &'a str) -> Field<'a> {
    Field::new(name, value)
}
