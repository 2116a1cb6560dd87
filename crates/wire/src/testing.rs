//! Two connections joined by pipes, in virtual time, for the tests of both engines.
//!
//! Bytes cross in random pieces, drawn from a seed, so that every test also tests resumption at any byte.

use std::time::Duration;

use super::{Connection, ErrorCode, Event, Fields, Initiator, RequestHead, Role};
use crate::Error;
use h2lab_base::random::Counter;
use h2lab_base::units::Time;

/// Field lines as text, in order.
pub(crate) type OwnedFields = Vec<(String, String)>;

/// An owned [`Event`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Request {
        stream: u32,
        method: String,
        authority: String,
        path: String,
        fields: OwnedFields,
        end_stream: bool,
    },
    Interim {
        stream: u32,
        status: u16,
        fields: OwnedFields,
    },
    Response {
        stream: u32,
        status: u16,
        fields: OwnedFields,
        end_stream: bool,
    },
    Data {
        stream: u32,
        data: Vec<u8>,
        end_stream: bool,
    },
    Trailers {
        stream: u32,
        fields: OwnedFields,
    },
    PushPromise {
        stream: u32,
        promised: u32,
        path: String,
    },
    Writable {
        stream: u32,
    },
    Reset {
        stream: u32,
        code: ErrorCode,
        initiator: Initiator,
    },
    GoAway {
        last_stream: u32,
        code: ErrorCode,
        debug: String,
    },
    Settings,
    Pong {
        rtt: Duration,
    },
    Closed {
        error: Option<Error>,
    },
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn owned(fields: Fields<'_>) -> OwnedFields {
    fields.iter().map(|field| (text(field.name), text(field.value))).collect()
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Request { stream, head, end_stream } => {
                let RequestHead { method, authority, path, fields, .. } = head;
                let (method, authority, path) = (text(method), text(authority), text(path));
                Self::Request { stream: stream.0, method, authority, path, fields: owned(fields), end_stream }
            }
            Event::Interim { stream, head } => {
                Self::Interim { stream: stream.0, status: head.status, fields: owned(head.fields) }
            }
            Event::Response { stream, head, end_stream } => Self::Response {
                stream: stream.0,
                status: head.status,
                fields: owned(head.fields),
                end_stream,
            },
            Event::Data { stream, data, end_stream } => {
                Self::Data { stream: stream.0, data: data.to_vec(), end_stream }
            }
            Event::Trailers { stream, fields } => Self::Trailers { stream: stream.0, fields: owned(fields) },
            Event::PushPromise { stream, promised, head } => {
                Self::PushPromise { stream: stream.0, promised: promised.0, path: text(head.path) }
            }
            Event::Writable { stream } => Self::Writable { stream: stream.0 },
            Event::Reset { stream, code, initiator } => Self::Reset { stream: stream.0, code, initiator },
            Event::GoAway { last_stream, code, debug } => {
                Self::GoAway { last_stream: last_stream.0, code, debug: text(debug) }
            }
            Event::Settings => Self::Settings,
            Event::Pong { rtt } => Self::Pong { rtt },
            Event::Closed { error } => Self::Closed { error },
        }
    }
}

/// All events that are ready.
pub(crate) fn drain_events(connection: &mut Connection, now: Time) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Some(event) = connection.poll_event(now) {
        seen.push(Seen::from(event));
    }
    seen
}

/// The next write of a transport with few slices.
fn offered(connection: &mut Connection, now: Time) -> Vec<u8> {
    if !connection.is_scattered() {
        return connection.poll_transmit(now).to_vec();
    }
    let mut places = [&[][..]; 3];
    let count = connection.poll_transmit_slices(now, &mut places);
    places[..count].concat()
}

/// All bytes that are ready to leave.
pub(crate) fn drain_output(connection: &mut Connection, now: Time) -> Vec<u8> {
    let bytes = connection.poll_transmit(now).to_vec();
    connection.handle_transmitted(now, bytes.len());
    bytes
}

/// One end of a [`Pair`].
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) connection: Connection,
    /// Events not yet taken.
    pub(crate) seen: Vec<Seen>,
}

impl End {
    /// The events since the last time, without [`Seen::Settings`], which come in every test.
    pub(crate) fn take(&mut self) -> Vec<Seen> {
        let mut seen = std::mem::take(&mut self.seen);
        seen.retain(|seen| *seen != Seen::Settings);
        seen
    }
}

/// A client and a server with a perfect link between them.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) client: End,
    pub(crate) server: End,
    pub(crate) now: Time,
    /// How long each crossing takes.
    pub(crate) latency: Duration,
    pieces: Counter,
}

/// What a role does with an event.
pub(crate) type Reaction<'a> = dyn FnMut(Role, &mut Connection, &Seen, Time) + 'a;

impl Pair {
    /// Joins two connections; `seed` decides the pieces in which bytes cross.
    pub(crate) fn new(client: Connection, server: Connection, seed: u64) -> Self {
        let end = |connection| End { connection, seen: Vec::new() };
        Self {
            client: end(client),
            server: end(server),
            now: Time::from_millis(1),
            latency: Duration::from_millis(1),
            pieces: Counter::new(seed, "pieces"),
        }
    }

    /// Exchanges bytes until both sides are silent.
    pub(crate) fn settle(&mut self) {
        self.settle_with(&mut |_, _, _, _| {});
    }

    /// The same, with roles that react to events. Panics if the two never fall silent.
    pub(crate) fn settle_with(&mut self, react: &mut Reaction<'_>) {
        for _ in 0..100_000 {
            let up = self.cross(Role::Client, react);
            let down = self.cross(Role::Server, react);
            if !up && !down {
                return;
            }
        }
        panic!("the conversation does not end");
    }

    /// Sends what `from` has ready, in pieces; returns whether it had anything.
    fn cross(&mut self, from: Role, react: &mut Reaction<'_>) -> bool {
        let (sender, receiver, to) = match from {
            Role::Client => (&mut self.client, &mut self.server, Role::Server),
            Role::Server => (&mut self.server, &mut self.client, Role::Client),
        };
        poll(sender, from, self.now, react);
        let mut bytes = offered(&mut sender.connection, self.now);
        if bytes.is_empty() {
            return false;
        }
        let taken = 1 + self.pieces.below(bytes.len() as u64) as usize;
        bytes.truncate(taken);
        sender.connection.handle_transmitted(self.now, taken);
        self.now += self.latency;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let limit = if self.pieces.below(4) == 0 { 16 } else { 4096 };
            let (piece, after) = rest.split_at(rest.len().min(1 + self.pieces.below(limit) as usize));
            receiver.connection.handle_input(self.now, piece);
            poll(receiver, to, self.now, react);
            rest = after;
        }
        true
    }
}

fn poll(end: &mut End, role: Role, now: Time, react: &mut Reaction<'_>) {
    while let Some(event) = end.connection.poll_event(now) {
        let seen = Seen::from(event);
        react(role, &mut end.connection, &seen, now);
        end.seen.push(seen);
    }
}
