//! What the tests of the engine share: frames by hand, a scripted peer, and a pair of engines.

use std::time::Duration;

use crate::compression::FieldEncoder;
use crate::connection::{Request, Response};
use crate::h3;
use crate::h3::model::Model;
use crate::h3::qpack::Encoder;
use crate::h3::stream::QuicStreamId;
use crate::h3::transport::Action;
use crate::h3::{frame, varint};
use crate::testing::{Reaction, Seen, drain_events};
use crate::{Config, Connection, Error, ErrorCode, Role, StreamId};
use h2lab_base::units::Time;

pub(super) const NOW: Time = Time::from_millis(5);

/// The client's control stream, and the server's.
pub(super) const CLIENT_CONTROL: u64 = 2;
pub(super) const SERVER_CONTROL: u64 = 3;

pub(super) fn get(path: &str) -> Request<'_> {
    Request { method: "GET", authority: "a", path, fields: &[], body_length: None, end_stream: true }
}

pub(super) fn post(body_length: Option<u64>) -> Request<'static> {
    Request { method: "POST", body_length, end_stream: false, ..get("/") }
}

pub(super) const OK: Response<'_> =
    Response { status: 200, fields: &[], body_length: None, end_stream: false };

/// One frame as bytes.
pub(super) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::put_header(kind, payload.len() as u64, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

pub(super) fn integer(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint::encode(value, &mut bytes);
    bytes
}

pub(super) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    Encoder::begin(&mut section);
    for (name, value) in fields {
        Encoder.field(name.as_bytes(), value.as_bytes(), &mut section);
    }
    frame(frame::kind::HEADERS, &section)
}

pub(super) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/")];

/// HEADERS of a GET with more fields.
pub(super) fn get_with(more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[&GET[..], more].concat())
}

/// HEADERS of a response with this status and more fields.
pub(super) fn answer(status: &str, more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[&[(":status", status)][..], more].concat())
}

pub(super) fn data(body: &[u8]) -> Vec<u8> {
    frame(frame::kind::DATA, body)
}

/// A control stream with SETTINGS and what follows.
pub(super) fn control(more: &[Vec<u8>]) -> Vec<u8> {
    [&[0][..], &frame(frame::kind::SETTINGS, &[]), &more.concat()].concat()
}

/// An engine whose peer the test scripts, stream by stream.
pub(super) struct Scripted {
    pub(super) engine: Connection,
    pub(super) now: Time,
}

impl Scripted {
    /// The peer has sent nothing; a client may begin 100 requests.
    pub(super) fn silent(config: Config) -> Self {
        let mut engine = Connection::h3(config, Time::ZERO);
        engine.as_h3().unwrap().handle_streams_granted(100);
        Self { engine, now: NOW }
    }

    /// The peer has sent SETTINGS.
    pub(super) fn new(config: Config) -> Self {
        let mut scripted = Self::silent(config);
        let stream = if config.role == Role::Client { SERVER_CONTROL } else { CLIENT_CONTROL };
        assert_eq!(scripted.receive(stream, &control(&[]), false), [Seen::Settings]);
        scripted.sent();
        scripted
    }

    pub(super) fn quic(&mut self) -> &mut h3::Connection {
        self.engine.as_h3().unwrap()
    }

    pub(super) fn events(&mut self) -> Vec<Seen> {
        drain_events(&mut self.engine, self.now)
    }

    /// The peer sends `bytes` on a stream; returns the engine's events.
    pub(super) fn receive(&mut self, stream: u64, bytes: &[u8], fin: bool) -> Vec<Seen> {
        let now = self.now;
        self.quic().handle_stream(now, QuicStreamId(stream), bytes, fin);
        self.events()
    }

    pub(super) fn receive_reset(&mut self, stream: u64, code: ErrorCode) -> Vec<Seen> {
        let now = self.now;
        self.quic().handle_stream_reset(now, QuicStreamId(stream), u64::from(code.0));
        self.events()
    }

    pub(super) fn receive_stop(&mut self, stream: u64, code: ErrorCode) -> Vec<Seen> {
        let now = self.now;
        self.quic().handle_stop_sending(now, QuicStreamId(stream), u64::from(code.0));
        self.events()
    }

    /// What the engine wrote since the last time, by stream, and whether the stream ends.
    pub(super) fn sent(&mut self) -> Vec<(u64, Vec<u8>, bool)> {
        let (now, mut all) = (self.now, Vec::new());
        while let Some(transmit) = self.quic().poll_stream() {
            let (stream, data, fin) = (transmit.stream, transmit.data.to_vec(), transmit.fin);
            self.quic().handle_stream_sent(now, stream, data.len());
            all.push((stream.0, data, fin));
        }
        all
    }

    pub(super) fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.quic().poll_action()).collect()
    }

    /// Begins a request and drops what it writes.
    pub(super) fn request(&mut self, request: &Request<'_>) -> StreamId {
        let stream = self.engine.send_request(self.now, request).expect("a stream is available");
        self.sent();
        stream
    }

    pub(super) fn wait(&mut self, time: Duration) -> Vec<Seen> {
        self.now += time;
        assert!(self.engine.poll_timeout() <= self.now, "nothing is due");
        self.engine.handle_timeout(self.now);
        self.events()
    }
}

/// The scope and code of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    Nothing,
    Stream(ErrorCode),
    Connection(ErrorCode),
}

/// The reaction to the last input.
pub(super) fn cost(peer: &mut Scripted, seen: &[Seen]) -> Cost {
    let (mut streams, mut close) = (Vec::new(), None);
    for action in peer.actions() {
        match action {
            Action::Reset { code, .. } | Action::Stop { code, .. } => streams.push(code),
            Action::Close { code, .. } => close = Some(code),
            Action::Prioritise { .. } => {}
        }
    }
    match (close, seen.last()) {
        (
            Some(code),
            Some(Seen::Closed { error: Some(Error::PeerMisbehaved { code: reported, reason }) }),
        ) => {
            assert_eq!(code, *reported, "the role gets the code that the peer gets");
            let is_self_evident = [ErrorCode::H3_EXCESSIVE_LOAD, ErrorCode::QPACK_DECOMPRESSION_FAILED];
            assert!(reason.contains("RFC") || is_self_evident.contains(&code), "{reason}");
            Cost::Connection(code)
        }
        (Some(code), Some(Seen::Closed { error: Some(Error::Exceeded(_)) })) => Cost::Connection(code),
        (None, _) if streams.is_empty() => Cost::Nothing,
        (None, _) => Cost::Stream(streams[0]),
        (close, seen) => panic!("{close:?}, but {seen:?}"),
    }
}

/// A client and a server over a model of QUIC.
pub(super) struct Pair {
    pub(super) client: Connection,
    pub(super) server: Connection,
    pub(super) now: Time,
    pub(super) seen: [Vec<Seen>; 2],
    model: Model,
}

impl Pair {
    pub(super) fn new(client: Config, server: Config, seed: u64) -> Self {
        let mut client = Connection::h3(client, Time::ZERO);
        client.as_h3().unwrap().handle_streams_granted(1_000);
        let server = Connection::h3(server, Time::ZERO);
        Self { client, server, now: NOW, seen: [Vec::new(), Vec::new()], model: Model::new(seed) }
    }

    /// Exchanges bytes until both sides are silent; `react` is what the roles do.
    pub(super) fn settle(&mut self, react: &mut Reaction<'_>) {
        for _ in 0..1_000_000 {
            self.now += Duration::from_micros(10);
            let mut any = false;
            for (place, role) in [Role::Client, Role::Server].into_iter().enumerate() {
                let engine = if place == 0 { &mut self.client } else { &mut self.server };
                let quic = engine.as_h3().unwrap();
                any |= self.model.deliver(self.now, role, quic);
                while let Some(event) = engine.poll_event(self.now) {
                    let seen = Seen::from(event);
                    react(role, engine, &seen, self.now);
                    self.seen[place].push(seen);
                }
                any |= self.model.collect(self.now, role, engine.as_h3().unwrap());
            }
            if !any {
                return;
            }
        }
        panic!("the conversation does not end");
    }

    /// The client's events, or the server's, since the last time, without [`Seen::Settings`].
    pub(super) fn take(&mut self, role: Role) -> Vec<Seen> {
        let mut seen = std::mem::take(&mut self.seen[usize::from(role == Role::Server)]);
        seen.retain(|seen| *seen != Seen::Settings);
        seen
    }
}
