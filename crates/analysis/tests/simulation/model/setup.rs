//! The replaceable parts of a repetition.

use std::time::Duration;

use h2lab_base::units::{Bandwidth, Time};
use h2lab_wire::{Config, ErrorCode, Role};

use h2lab_link::tcp;

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Not before this time, nor before the request is complete.
    pub due: Time,
    /// Status 200 to 599.
    pub status: u16,
    /// Length of the body: filler.
    pub body_bytes: u64,
}

/// The server's application: takes the time at which a request's head arrived, and its path; returns the answer.
pub type Application = dyn Fn(Time, &[u8]) -> Answer;

/// Answers at once with this many bytes.
pub fn at_once(body_bytes: u64) -> impl Fn(Time, &[u8]) -> Answer {
    move |now, _| Answer { due: now, status: 200, body_bytes }
}

/// Pauses for `pause` at the beginning of each `every`, like the origin's `/stall`: requests meanwhile are answered at
/// the end of the pause, on all connections at once.
pub fn stalling(every: Duration, pause: Duration, body_bytes: u64) -> impl Fn(Time, &[u8]) -> Answer {
    move |now, _| {
        let phase = Duration::from_nanos((u128::from(now.as_nanos()) % every.as_nanos()) as u64);
        Answer { due: now + pause.saturating_sub(phase), status: 200, body_bytes }
    }
}

/// Everything that a [`Cell`](h2lab_model::scenario::Cell) does not define.
#[derive(Clone)]
pub struct Setup<'a> {
    /// The client's end of TCP.
    pub client_tcp: tcp::Config,
    /// The server's end.
    pub server_tcp: tcp::Config,
    /// The client's engine: windows, frame size and the like.
    pub client: Config,
    /// The server's engine.
    pub server: Config,
    /// The application.
    pub application: &'a Application,
    /// How fast the client's user reads response bodies; `None`: at once. With a speed, credit is returned as the user
    /// reads, on each connection separately.
    pub reader: Option<Bandwidth>,
    /// The disturbances, in the order of time.
    pub disturbances: Vec<Disturbance>,
}

impl Setup<'_> {
    /// The lab's defaults: our client's and our origin's engines, Linux's TCP, and 1 KiB at once.
    pub fn new() -> Setup<'static> {
        let mut client = Config::new(Role::Client);
        (client.flow.stream_window, client.flow.connection_window) = (4 << 20, 1 << 30);
        let mut server = Config::new(Role::Server);
        (server.flow.stream_window, server.flow.connection_window) = (64 << 10, i32::MAX as u32);
        server.max_concurrent_streams = Some(100_000);
        Setup {
            client_tcp: tcp::Config::default(),
            server_tcp: tcp::Config::default(),
            client,
            server,
            application: &|now, _| Answer { due: now, status: 200, body_bytes: 1024 },
            reader: None,
            disturbances: Vec::new(),
        }
    }
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end that dialled.
    Client,
    /// The end that was dialled.
    Server,
}

/// A disturbance at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disturbance {
    /// When, counted from the first request.
    pub after: Duration,
    /// On which of the connections that are open at that time: this index modulo their number.
    pub connection: usize,
    /// The kind.
    pub kind: DisturbanceKind,
}

/// Kinds of disturbances of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisturbanceKind {
    /// An end accepts no further requests: GOAWAY, or `Connection: close`.
    GoAway(Side, ErrorCode),
    /// The server resets the open stream at this index, modulo their number.
    Reset(usize, ErrorCode),
    /// The client cancels the open request at this index, modulo their number.
    Cancel(usize),
    /// An end sends PING.
    Ping(Side),
    /// An end has memory for receive windows of this many bytes only.
    WindowLimit(Side, u32),
    /// An end's process dies: RST.
    Abort(Side),
}
